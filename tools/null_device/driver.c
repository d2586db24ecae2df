/* A CUDA driver for Triton's launcher: kernels do not run; runtime.cpp logs their launches by name. And an NVML, without
   which torch's allocator cannot make expandable segments. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define DOES_NOTHING(name) int name() { return 0; }
DOES_NOTHING(cuInit) DOES_NOTHING(cuCtxSetCurrent) DOES_NOTHING(cuCtxSetLimit) DOES_NOTHING(cuFuncSetAttribute)
DOES_NOTHING(cuFuncSetCacheConfig) DOES_NOTHING(cuModuleUnload) DOES_NOTHING(cuPointerGetAttributes)
DOES_NOTHING(cuTensorMapEncodeTiled) DOES_NOTHING(cuLinkAddData_v2) DOES_NOTHING(cuLinkComplete)
DOES_NOTHING(cuLinkCreate_v2) DOES_NOTHING(nvmlInit_v2) DOES_NOTHING(nvmlDeviceGetGpuFabricInfoV)

/* What torch's allocator looks up and does not call. */
#define NOT_SUPPORTED(name) int name() { return 801; }
NOT_SUPPORTED(cuMemGetAddressRange) NOT_SUPPORTED(cuMemExportToShareableHandle)
NOT_SUPPORTED(cuMemImportFromShareableHandle) NOT_SUPPORTED(cuMemRetainAllocationHandle)
NOT_SUPPORTED(cuMemGetAllocationPropertiesFromHandle) NOT_SUPPORTED(cuMemsetD32Async)
NOT_SUPPORTED(cuStreamWriteValue32) NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2) NOT_SUPPORTED(nvmlDeviceGetComputeRunningProcesses)
NOT_SUPPORTED(nvmlSystemGetCudaDriverVersion_v2)

#define GIVES(name, type, value, ...) int name(type* out, ##__VA_ARGS__) { *out = value; return 0; }
GIVES(cuModuleLoad, void*, (void*)1, const char* s)
GIVES(cuModuleLoadData, void*, (void*)1, const void* s)
GIVES(cuModuleLoadDataEx, void*, (void*)1, const void* s)
GIVES(cuModuleGetFunction, void*, strdup(name), void* module, const char* name)
GIVES(cuLibraryLoadData, void*, (void*)1)
GIVES(cuLibraryGetKernel, void*, strdup(name), void* library, const char* name)
GIVES(cuKernelGetFunction, void*, kernel, void* kernel)
GIVES(cuFuncGetAttribute, int, attribute == 0 ? 1024 : attribute == 4 ? 32 : 0, int attribute, void* function)
GIVES(cuDevicePrimaryCtxRetain, void*, (void*)1, int device)
GIVES(cuCtxGetCurrent, void*, (void*)1)
GIVES(cuCtxGetDevice, int, 0)
GIVES(cuCtxGetLimit, size_t, 1024, int limit)
GIVES(cuDriverGetVersion, int, 13000)
GIVES(cuOccupancyMaxActiveClusters, int, 1)
GIVES(cuOccupancyMaxActiveBlocksPerMultiprocessor, int, 4)
GIVES(cuPointerGetAttribute, unsigned long, pointer, int attribute, unsigned long pointer)
GIVES(cuDeviceTotalMem_v2, size_t, 150754820096, int device)
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** out) { *out = (void*)1; return 0; }
int cuDeviceGet(int* out, int device) { *out = device; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { *flags = 0; *active = 1; return 0; }
int cuGetErrorString(int error, const char** out) { *out = "null device"; return 0; }

int cuDeviceGetCount(int* out) {
  int (*runtime)(int*) = (int (*)(int*))dlsym(RTLD_DEFAULT, "cudaGetDeviceCount");
  return runtime(out);
}
int nvmlDeviceGetCount_v2(int* out) { return cuDeviceGetCount(out); }

int cuDeviceGetName(char* out, int bytes, int device) {
  snprintf(out, bytes, "null device (as an H200)");
  return 0;
}

int cuDeviceGetAttribute(int* out, int attribute, int device) {
  int (*runtime)(int*, int, int) = (int (*)(int*, int, int))dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute");
  return runtime(out, attribute, device);
}

int cuStreamIsCapturing(void* stream, int* out) {
  int (*runtime)(void*, int*) = (int (*)(void*, int*))dlsym(RTLD_DEFAULT, "cudaStreamIsCapturing");
  return runtime(stream, out);
}

static int launched(const char* name, void* stream) {
  void (*note)(const char*, void*) = (void (*)(const char*, void*))dlsym(RTLD_DEFAULT, "null_launched");
  char line[512];
  snprintf(line, sizeof line, "triton %s", name ? name : "?");
  note(line, stream);
  return 0;
}

typedef struct { unsigned grid[3], block[3], shared; void* stream; } Configuration;

int cuLaunchKernel(void* kernel, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream) {
  return launched(kernel, stream);
}
int cuLaunchCooperativeKernel(void* kernel, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void* stream) {
  return launched(kernel, stream);
}
int cuLaunchKernelEx(const Configuration* config, void* kernel) { return launched(kernel, config->stream); }
