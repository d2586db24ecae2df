// A CUDA runtime and cuBLAS that do nothing and keep a log: memory is lazy host memory, kernels are not run, and only
// small copies are made. Preloading it overrides the libraries that come with torch.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

static const size_t SMALL = 65536;      // bytes up to which copies and fills are made
static std::recursive_mutex mutex;
static std::map<char*, size_t> on_device, pinned;
static std::unordered_map<const void*, std::string> kernel_names;
static std::vector<std::string> entries;
static bool logging = false, capturing = false, is_broken = false, is_lost = false;
static cudaStream_t captured;
static std::thread::id capturer;

API void null_note(const char* text) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  if (logging) entries.push_back((capturing ? "captured " : "") + std::string(text));
}
API void null_log(bool on) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  logging = on;
  if (on) entries.clear();
}
API int null_size() { return (int)entries.size(); }
API const char* null_entry(int i) { return entries[i].c_str(); }

static cudaError_t noted(const std::string& text) { null_note(text.c_str()); return cudaSuccess; }

static bool is_captured(cudaStream_t stream) { return capturing && stream == captured; }

// An operation that a graph cannot contain: it breaks the capture, as on a GPU, unless another thread does it.
static cudaError_t forbidden(const std::string& text, cudaStream_t stream) {
  bool breaks = is_captured(stream) || (capturing && std::this_thread::get_id() == capturer);
  is_broken |= breaks;
  null_note(text.c_str());
  if (is_lost) return cudaErrorIllegalAddress;
  return breaks ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

// Marks work on other streams than the captured one: the graph does not contain it.
static std::string on(cudaStream_t stream) { return capturing && stream != captured ? "other stream " : ""; }

// The kernel that NULL_FAULT names reads out of bounds: from then on, whatever waits for the device fails.
API void null_launched(const char* name, void* stream) {
  const char* faulty = getenv("NULL_FAULT");
  is_lost |= faulty && *faulty && strstr(name, faulty);
  noted("launch " + on((cudaStream_t)stream) + name);
}

// Memory.

static void* allocate(std::map<char*, size_t>& where, size_t bytes) {
  bytes = (bytes + (2 << 20)) & ~(size_t)((2 << 20) - 1);
  char* p = (char*)mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  std::lock_guard<std::recursive_mutex> guard(mutex);
  where[p] = bytes;
  return p;
}

static void release(std::map<char*, size_t>& where, void* p) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto found = where.find((char*)p);
  if (found == where.end()) return;
  munmap(p, found->second);
  where.erase(found);
}

static bool within(std::map<char*, size_t>& where, const void* p) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto next = where.upper_bound((char*)p);
  return next != where.begin() && (char*)p < std::prev(next)->first + std::prev(next)->second;
}

API bool null_holds(const void* p) { return within(on_device, p); }

static std::string place(const void* p) {
  return within(on_device, p) ? "device" : within(pinned, p) ? "pinned" : "pageable";
}

static cudaError_t copied(const char* how, void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes <= SMALL) memcpy(to, from, bytes);
  std::string places = place(from) + " -> " + place(to), text = how + on(stream) + places;
  bool waits = places.find("pageable") != std::string::npos || !strncmp(how, "wait", 4);
  return waits ? forbidden(text + " " + std::to_string(bytes), stream) : noted(text + " " + std::to_string(bytes));
}

static cudaError_t filled(void* p, int value, size_t bytes, cudaStream_t stream) {
  if (bytes <= SMALL) memset(p, value, bytes);
  return noted("fill " + on(stream) + std::to_string(bytes));
}

API cudaError_t cudaMalloc(void** p, size_t n) {
  *p = allocate(on_device, n);
  return noted("malloc " + std::to_string(n));
}
API cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
API cudaError_t cudaFree(void* p) { release(on_device, p); return p ? noted("wait free") : cudaSuccess; }
API cudaError_t cudaFreeAsync(void* p, cudaStream_t) { release(on_device, p); return cudaSuccess; }
API cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { *p = allocate(pinned, n); return noted("pin"); }
API cudaError_t cudaFreeHost(void* p) { release(pinned, p); return cudaSuccess; }
API cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  pinned[(char*)p] = n;
  return cudaSuccess;
}
API cudaError_t cudaHostUnregister(void* p) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  pinned.erase((char*)p);
  return cudaSuccess;
}
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind, cudaStream_t s) {
  return copied("copy ", to, from, n, s);
}
API cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
  return copied("wait copy ", to, from, n, captured);
}
API cudaError_t cudaMemcpy2DAsync(
    void* to, size_t, const void* from, size_t, size_t w, size_t h, cudaMemcpyKind, cudaStream_t) {
  return noted("copy " + place(from) + " -> " + place(to) + " " + std::to_string(w * h));
}
API cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t) { return noted("copy peer"); }
API cudaError_t cudaMemset(void* p, int v, size_t n) { return filled(p, v, n, captured); }
API cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t s) { return filled(p, v, n, s); }
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  a->type = within(on_device, p) ? cudaMemoryTypeDevice : within(pinned, p) ? cudaMemoryTypeHost
                                                                              : cudaMemoryTypeUnregistered;
  a->hostPointer = a->devicePointer = (void*)p;
  return cudaSuccess;
}
// Bytes of a device: as in an H200, or NULL_MEMORY. Only the torch allocator respects the limit, if configured.
static size_t memory() {
  const char* given = getenv("NULL_MEMORY");
  return given ? strtoull(given, nullptr, 10) : 150754820096ull;
}

API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = memory();
  *free = *total / 100 * 93;
  return cudaSuccess;
}
API cudaError_t cudaGetSymbolAddress(void** p, const void*) { *p = allocate(on_device, 4096); return cudaSuccess; }

// Virtual memory, which torch uses for expandable segments: addresses, memory at them, and access to it.

typedef unsigned long long Address, Handle;

static int placed(Address at, size_t bytes, int access, Address* result = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
  void* p = mmap((void*)at, bytes, access, flags, -1, 0);
  if (result) *result = (Address)p;
  return p == MAP_FAILED ? 2 : 0;       // out of memory
}

API int cuMemGetAllocationGranularity(size_t* bytes, const void*, int) { *bytes = 2 << 20; return 0; }
API int cuMemAddressReserve(Address* p, size_t n, size_t, Address, Handle) { return placed(0, n, PROT_NONE, p); }
API int cuMemAddressFree(Address p, size_t n) { return munmap((void*)p, n); }
API int cuMemCreate(Handle* h, size_t n, const void*, Handle) {
  *h = n;
  return noted("malloc " + std::to_string(n));
}
API int cuMemRelease(Handle) { return 0; }
API int cuMemMap(Address p, size_t n, size_t, Handle h, Handle) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return on_device.emplace((char*)p, n).second && h == n ? 0 : 1;       // invalid value
}
API int cuMemSetAccess(Address p, size_t n, const void*, size_t) {
  return mprotect((void*)p, n, PROT_READ | PROT_WRITE);
}
API int cuMemUnmap(Address p, size_t n) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  on_device.erase(on_device.lower_bound((char*)p), on_device.lower_bound((char*)p + n));
  noted("unmap " + std::to_string(n));
  return placed(p, n, PROT_NONE);
}

// Streams, events, graphs.

template <class Handle> static cudaError_t handle(Handle* out) {
  static long next = 1 << 12;         // even, because torch distinguishes pointers from its own numbers that way
  *out = (Handle)(next += 16);
  return cudaSuccess;
}

API cudaError_t cudaStreamCreate(cudaStream_t* s) { return handle(s); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return handle(s); }
API cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return on(s).empty() ? forbidden("wait stream", s) : noted("wait other stream");
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaStreamGetPriority(cudaStream_t, int* p) { *p = 0; return cudaSuccess; }
API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* d, unsigned) {
  f(s, cudaSuccess, d);
  return cudaSuccess;
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void* d) { f(d); return cudaSuccess; }
API cudaError_t cudaEventCreate(cudaEvent_t* e) { return handle(e); }
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return handle(e); }
API cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaEventSynchronize(cudaEvent_t) { return forbidden("wait event", nullptr); }
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 1; return cudaSuccess; }
API cudaError_t cudaDeviceSynchronize() { return forbidden("wait device", captured); }

API cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  capturing = true;
  is_broken = false;
  captured = s;
  capturer = std::this_thread::get_id();
  return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* g) {
  capturing = false;
  *g = is_broken ? nullptr : (cudaGraph_t)1;
  return is_broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
static cudaStreamCaptureStatus status(cudaStream_t stream) {
  return is_captured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* s) {
  *s = status(stream);
  return cudaSuccess;
}
API cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, cudaStreamCaptureStatus* s, unsigned long long* id, cudaGraph_t* g, const cudaGraphNode_t** nodes,
    const cudaGraphEdgeData** edges, size_t* n) {
  *s = status(stream);
  if (id) *id = 1;
  if (g) *g = (cudaGraph_t)1;
  if (nodes) *nodes = nullptr;
  if (edges) *edges = nullptr;
  if (n) *n = 0;
  return cudaSuccess;
}
API cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* n) { *n = 1; return cudaSuccess; }
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t, unsigned long long) { return handle(e); }
API cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return noted("launch graph"); }

// The device.

static int devices() {
  static int count = getenv("NULL_DEVICES") ? atoi(getenv("NULL_DEVICES")) : 1;
  return count;
}
static thread_local int current = 0;
API cudaError_t cudaGetDeviceCount(int* n) { *n = devices(); return cudaSuccess; }
API cudaError_t cudaGetDevice(int* d) { *d = current; return cudaSuccess; }
API cudaError_t cudaSetDevice(int d) { current = d; return cudaSuccess; }
API cudaError_t cudaDriverGetVersion(int* v) { *v = 13000; return cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int* v) { *v = 13000; return cudaSuccess; }
API cudaError_t cudaDeviceCanAccessPeer(int* v, int, int) { *v = 1; return cudaSuccess; }
API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int) { *p = (cudaMemPool_t)1; return cudaSuccess; }
API cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int) { strncpy(s, "0000:00:00.0", n); return cudaSuccess; }
API cudaError_t cudaDeviceGetStreamPriorityRange(int* low, int* high) {
  if (low) *low = 0;
  if (high) *high = -5;
  return cudaSuccess;
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "null device (as an H200)");
  p->major = 9;
  p->totalGlobalMem = memory();
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = 232448;
  p->sharedMemPerMultiprocessor = 233472;
  p->totalConstMem = 65536;
  p->l2CacheSize = 62914560;
  p->memoryBusWidth = 5120;
  p->textureAlignment = 512;
  p->unifiedAddressing = p->concurrentKernels = 1;
  p->asyncEngineCount = 3;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  static const std::map<int, int> known = {
      {1, 1024}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {10, 32}, {12, 65536}, {16, 132}, {39, 2048},
      {75, 9}, {76, 0}, {81, 233472}, {97, 232448}, {106, 32}};
  auto found = known.find((int)a);
  *v = found == known.end() ? 1 : found->second;
  return cudaSuccess;
}
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->binaryVersion = a->ptxVersion = 90;
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int, size_t) {
  *n = 4;
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int, size_t, unsigned) {
  *n = 4;
  return cudaSuccess;
}
API cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** f, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* r) {
  static void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  *f = dlsym(RTLD_DEFAULT, name);
  if (!*f && driver) *f = dlsym(driver, name);
  if (r) *r = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
API const char* cudaGetErrorName(cudaError_t) { return "null"; }
API const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorStreamCaptureUnsupported   ? "operation not permitted when stream is capturing"
      : e == cudaErrorIllegalAddress           ? "an illegal memory access was encountered"
      : e == cudaErrorStreamCaptureInvalidated ? "operation failed due to a previous error during capture"
                                               : "null";
}

#define NOTHING(name, ...) API cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
NOTHING(cudaDeviceEnablePeerAccess, int, unsigned)
NOTHING(cudaEventDestroy, cudaEvent_t)
NOTHING(cudaEventQuery, cudaEvent_t)
NOTHING(cudaFuncSetAttribute, const void*, cudaFuncAttribute, int)
NOTHING(cudaGetLastError)
NOTHING(cudaGraphDebugDotPrint, cudaGraph_t, const char*, unsigned)
NOTHING(cudaGraphDestroy, cudaGraph_t)
NOTHING(cudaGraphExecDestroy, cudaGraphExec_t)
NOTHING(cudaMemPoolGetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
NOTHING(cudaMemPoolSetAccess, cudaMemPool_t, const cudaMemAccessDesc*, size_t)
NOTHING(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
NOTHING(cudaMemPoolTrimTo, cudaMemPool_t, size_t)
NOTHING(cudaMemcpyToSymbol, const void*, const void*, size_t, size_t, cudaMemcpyKind)
NOTHING(cudaPeekAtLastError)
NOTHING(cudaProfilerStart)
NOTHING(cudaProfilerStop)
NOTHING(cudaStreamDestroy, cudaStream_t)
NOTHING(cudaStreamQuery, cudaStream_t)
NOTHING(cudaThreadExchangeStreamCaptureMode, cudaStreamCaptureMode*)

// Launches: torch registers its kernels by name when its libraries are loaded.

static cudaError_t launched(const void* kernel, cudaStream_t s) {
  auto found = kernel_names.find(kernel);
  null_launched(found == kernel_names.end() ? "?" : found->second.c_str(), s);
  return cudaSuccess;
}
API cudaError_t cudaLaunchKernel(const void* f, dim3, dim3, void**, size_t, cudaStream_t s) { return launched(f, s); }
API cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3, dim3, void**, size_t, cudaStream_t s) {
  return launched(f, s);
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3, dim3, void**, size_t, cudaStream_t s) {
  return launched(f, s);
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void**) {
  return launched(f, c->stream);
}
API cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* f) { *k = (cudaKernel_t)f; return cudaSuccess; }
API char __cudaInitModule(void**) { return 0; }

struct Configuration { dim3 grid, block; size_t shared; void* stream; };
static thread_local std::vector<Configuration> configurations;
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return cudaSuccess;
  Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid, *block = last.block, *shared = last.shared, *(void**)stream = last.stream;
  return cudaSuccess;
}
API void** __cudaRegisterFatBinary(void*) { static void* handle[4]; return handle; }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
API void __cudaRegisterFunction(
    void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  kernel_names[host] = name;
}

// cuBLAS.

static void* gemm_stream;
#define GEMM(name) API int name() { null_launched(#name, gemm_stream); return 0; }
#define DOES_NOTHING(name) API int name() { return 0; }
GEMM(cublasGemmEx) GEMM(cublasSgemm_v2) GEMM(cublasSgemmEx) GEMM(cublasGemmStridedBatchedEx) GEMM(cublasDotEx)
GEMM(cublasSgemmStridedBatched) GEMM(cublasSgemv_v2) GEMM(cublasSdot_v2)
API int cublasLtMatmul() { return noted("launch cublasLtMatmul"); }
DOES_NOTHING(cublasDestroy_v2) DOES_NOTHING(cublasSetWorkspace_v2)
API int cublasSetStream_v2(void*, void* stream) { gemm_stream = stream; return 0; }
DOES_NOTHING(cublasSetMathMode) DOES_NOTHING(cublasSetPointerMode_v2) DOES_NOTHING(cublasLtMatmulDescSetAttribute)
DOES_NOTHING(cublasLtMatrixLayoutSetAttribute) DOES_NOTHING(cublasLtMatmulPreferenceSetAttribute)
API int cublasCreate_v2(void** h) { *h = (void*)1; return 0; }
API int cublasGetMathMode(void*, int* m) { *m = 0; return 0; }
API int cublasGetPointerMode_v2(void*, int* m) { *m = 0; return 0; }
API int cublasLtMatmulDescCreate(void** d, int, int) { *d = malloc(512); return 0; }
API int cublasLtMatrixLayoutCreate(void** d, int, unsigned long, unsigned long, long) { *d = malloc(512); return 0; }
API int cublasLtMatmulPreferenceCreate(void** d) { *d = malloc(512); return 0; }
API int cublasLtMatmulDescDestroy(void* p) { free(p); return 0; }
API int cublasLtMatrixLayoutDestroy(void* p) { free(p); return 0; }
API int cublasLtMatmulPreferenceDestroy(void* p) { free(p); return 0; }
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* result, int* n) {
  memset(result, 0, 96);
  *n = 1;
  return 0;
}
