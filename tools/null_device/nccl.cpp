// An NCCL that sends nothing, for the torch process group: collectives are logged as launches on their stream.
#include <cstring>
#include <string>

#define API extern "C" __attribute__((visibility("default")))
#define DOES_NOTHING(name) API int name() { return 0; }

API bool null_holds(const void* p);
API void null_launched(const char* name, void* stream);

struct Id { char bytes[128]; };
struct Communicator { int size, rank; };

API int ncclGetUniqueId(Id* id) { memset(id, 7, sizeof *id); return 0; }
API int ncclCommInitRankConfig(Communicator** c, int size, Id, int rank, void*) {
  *c = new Communicator{size, rank};
  return 0;
}
API int ncclCommInitRank(Communicator** c, int size, Id id, int rank) {
  return ncclCommInitRankConfig(c, size, id, rank, nullptr);
}
API int ncclCommCount(Communicator* c, int* size) { *size = c->size; return 0; }
API int ncclCommUserRank(Communicator* c, int* rank) { *rank = c->rank; return 0; }
API int ncclCommGetAsyncError(Communicator*, int* error) { *error = 0; return 0; }
DOES_NOTHING(ncclCommAbort) DOES_NOTHING(ncclCommDestroy) DOES_NOTHING(ncclCommFinalize)
DOES_NOTHING(ncclCommRegister) DOES_NOTHING(ncclCommDeregister) DOES_NOTHING(ncclGroupStart) DOES_NOTHING(ncclGroupEnd)

static int collective(const char* name, const void* from, const void* to, size_t count, void* stream) {
  if (!null_holds(from) || !null_holds(to)) return 4;       // invalid argument
  null_launched((std::string("nccl ") + name + " " + std::to_string(count)).c_str(), stream);
  return 0;
}

API int ncclAllReduce(const void* from, void* to, size_t n, int, int, Communicator*, void* stream) {
  return collective("all_reduce", from, to, n, stream);
}
API int ncclBroadcast(const void* from, void* to, size_t n, int, int, Communicator*, void* stream) {
  return collective("broadcast", from, to, n, stream);
}
API int ncclBcast(void* p, size_t n, int, int, Communicator*, void* stream) {
  return collective("broadcast", p, p, n, stream);
}
