// The C interface of the library, which resnet_recipes/data/native/engine.py calls through ctypes.
#include <cstdio>       // jpeglib.h needs it

#include <jpeglib.h>

#include "fault.h"
#include "fill.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

// Fill the rows of a batch in the calling thread; `scalar` avoids vector instructions.
EXPORTED void engine_fill(Row *rows, int64_t count, bool *reading, int scalar) {
    FaultGuard::install();
    fill(rows, count, reading, scalar ? SCALAR : best_instructions());
}

EXPORTED size_t engine_row_bytes() { return sizeof(Row); }

EXPORTED const char *engine_instructions() { return best_instructions().name; }

EXPORTED const char *engine_jpeg() { return "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION); }
