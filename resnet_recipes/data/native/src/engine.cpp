// The C interface of the library, which resnet_recipes/data/native/engine.py calls through ctypes.
#include <cstdio>       // jpeglib.h needs it
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <unistd.h>

#include <jpeglib.h>

#include "fault.h"
#include "memory.h"
#include "pool.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

namespace {

struct Engine {
    Pool pool;
    pid_t owner = getpid();

    Engine(int threads, bool scalar) : pool(threads, scalar ? SCALAR : best_instructions()) {}
    // A forked child has the memory of the threads, but not the threads.
    bool is_mine() const { return owner == getpid(); }
};

}  // namespace

// Start an engine; on failure return null, with the cause in `reason`.
EXPORTED Engine *engine_create(int threads, int scalar, char *reason, size_t size) {
    FaultGuard::install();
    try {
        return new Engine(threads, scalar);
    } catch (const std::exception &error) {
        snprintf(reason, size, "%s", error.what());
        return nullptr;
    }
}

// Return the ticket of a batch; -1 in a forked child, -2 if memory runs out.
EXPORTED int64_t engine_submit(Engine *engine, Row *rows, int64_t count) {
    try {
        return engine->is_mine() ? engine->pool.submit(rows, count) : -1;
    } catch (const std::bad_alloc &) {
        return -2;
    }
}

// Return 1 if every row of the batch has its status, 0 after a time-out, -1 in a forked child.
EXPORTED int engine_wait(Engine *engine, int64_t ticket, double seconds) {
    return engine->is_mine() ? engine->pool.wait(ticket, seconds) : -1;
}

// Wait for the rows being written, then free everything; does nothing in a forked child.
EXPORTED void engine_destroy(Engine *engine) {
    if (engine->is_mine()) {
        delete engine;
    }
}

// Fill rows in the calling thread, to try the library.
EXPORTED void engine_try(Row *rows, int64_t count) {
    Workspace work;
    for (Row *row = rows; row < rows + count; row++) {
        row->status = fill(*row, work, best_instructions());
    }
}

// Shrink the row's whole image to [height, width, 3] in the calling thread; return a Status.
EXPORTED int engine_shrink(Row *row, int height, int width, uint8_t *pixels) {
    try {
        Workspace work;
        work.shrinker.height = height;
        work.shrinker.width = width;
        Status status = shrink(*row, work);
        if (status == DONE) {
            memcpy(pixels, work.shrunk.data(), work.shrunk.size());
        }
        return status;
    } catch (const std::bad_alloc &) {
        return UNREADABLE;
    }
}

// Put an image, [height, width, 3], into the memory that the row points to.
EXPORTED void engine_keep(Row *row, const uint8_t *pixels, int height, int width) {
    row->height = height;
    row->width = width;
    keep(*row, {pixels, size_t{3} * height * width});
}

EXPORTED size_t engine_row_bytes() { return sizeof(Row); }

EXPORTED const char *engine_instructions() { return best_instructions().name; }

// Return which libjpeg-turbo decodes: the one inside, or the file of the one that is loaded.
EXPORTED const char *engine_jpeg() {
#ifdef JPEG_INSIDE
    return "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION) " inside";
#else
    Dl_info found;
    return dladdr(reinterpret_cast<void *>(jpeg_read_header), &found) ? found.dli_fname : "libjpeg-turbo";
#endif
}
