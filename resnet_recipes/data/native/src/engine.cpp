// The C interface of the library, which resnet_recipes/data/native/__init__.py calls through ctypes.
#include <cstddef>
#include <cstdio>       // jpeglib.h needs it
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <string>
#include <unistd.h>

#include <jpeglib.h>

#include "augment.h"
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
    // A forked child inherits the memory of the threads, but not the threads.
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

// Return 1 if every row of the batch has its status, 0 after a timeout, -1 in a forked child.
EXPORTED int engine_wait(Engine *engine, int64_t ticket, double seconds) {
    return engine->is_mine() ? engine->pool.wait(ticket, seconds) : -1;
}

// Wait for rows in progress, then free everything; does nothing in a forked child.
EXPORTED void engine_destroy(Engine *engine) {
    if (engine->is_mine()) {
        delete engine;
    }
}

// Fill rows in the calling thread.
EXPORTED void engine_try(Row *rows, int64_t count) {
    static thread_local Workspace work;         // keeps Huffman tables, which most files share
    FaultGuard::install();
    for (Row *row = rows; row < rows + count; row++) {
        row->status = fill(*row, work, best_instructions());
    }
    work.trim();
}

// Shrink the row's full image to [height, width, 3] in the calling thread, or only check it if the size is 0; return a
// Status.
EXPORTED int engine_shrink(Row *row, int height, int width, uint8_t *pixels) {
    static thread_local Workspace work;         // as in engine_try
    try {
        work.shrinker.height = height;
        work.shrinker.width = width;
        Status status = shrink(*row, work);
        if (status == DONE) {
            memcpy(pixels, work.shrunk.data(), work.shrunk.size());
        }
        work.trim();
        return status;
    } catch (const std::bad_alloc &) {
        return UNREADABLE;
    }
}

// Return a line for each field of the structs that rows.py mirrors: its name there, offset and size.
EXPORTED const char *engine_layout() {
#define FIELD(type, name, member) \
    name " ", offsetof(type, member), sizeof(static_cast<type *>(nullptr)->member)
    static const struct {
        const char *name;
        size_t offset, size;
    } fields[] = {
        {FIELD(Row, "data", data)},
        {FIELD(Row, "folder", folder)},
        {FIELD(Row, "path", path)},
        {FIELD(Row, "draws", draws)},
        {FIELD(Row, "operations", operations)},
        {FIELD(Row, "pixels", pixels)},
        {FIELD(Row, "length", length)},
        {FIELD(Row, "file_bytes", file_bytes)},
        {FIELD(Row, "box[0]", box.left)},
        {FIELD(Row, "box[1]", box.top)},
        {FIELD(Row, "box[2]", box.width)},
        {FIELD(Row, "box[3]", box.height)},
        {FIELD(Row, "size[0]", height)},
        {FIELD(Row, "size[1]", width)},
        {FIELD(Row, "geometry", geometry)},
        {FIELD(Row, "output_size", output_size)},
        {FIELD(Row, "resize", resize)},
        {FIELD(Row, "filter", filter)},
        {FIELD(Row, "operation_count", operation_count)},
        {FIELD(Row, "raw", raw)},
        {FIELD(Row, "mirror", mirror)},
        {FIELD(Row, "full_size", full_size)},
        {FIELD(Row, "checked", checked)},
        {FIELD(Row, "crc", crc)},
        {FIELD(Row, "status", status)},
        {FIELD(Row, "error", error)},
        {FIELD(Row, "small.data", small.data)},
        {FIELD(Row, "small.length", small.length)},
        {FIELD(Row, "small.size[0]", small.height)},
        {FIELD(Row, "small.size[1]", small.width)},
        {FIELD(Row, "small.crc", small.crc)},
        {FIELD(Row, "small.raw", small.raw)},
        {FIELD(Row, "memory", memory)},
        {FIELD(Row, "kept", kept)},
        {FIELD(Row, "entry", entry)},
        {FIELD(Row, "longest", longest)},
        {"row ", 0, sizeof(Row)},
        {FIELD(Operation, "kind", kind)},
        {FIELD(Operation, "values[0]", values[0])},
        {FIELD(Operation, "values[1]", values[1])},
        {FIELD(Operation, "values[2]", values[2])},
        {FIELD(Operation, "values[3]", values[3])},
        {FIELD(Operation, "values[4]", values[4])},
        {FIELD(Operation, "values[5]", values[5])},
        {"operation ", 0, sizeof(Operation)},
    };
#undef FIELD
    static const std::string text = [] {
        std::string lines;
        for (const auto &field : fields) {
            lines += field.name + std::to_string(field.offset) + " " + std::to_string(field.size) + "\n";
        }
        return lines;
    }();
    return text.c_str();
}

EXPORTED const char *engine_instructions() { return best_instructions().name; }

// Return which libjpeg-turbo is used: the one linked statically, or the file of the loaded library.
EXPORTED const char *engine_jpeg() {
#ifdef JPEG_INSIDE
    return "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION) " inside";
#else
    Dl_info found;
    return dladdr(reinterpret_cast<void *>(jpeg_read_header), &found) ? found.dli_fname : "libjpeg-turbo";
#endif
}
