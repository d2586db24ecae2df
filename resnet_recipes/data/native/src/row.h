// One image of a batch: the request and its result. rows.py mirrors this struct.
#pragma once
#include <cstdint>

enum Status : int32_t {
    WAITING = -2,       // not started
    RUNNING = -1,       // in progress
    DONE = 0,
    UNREADABLE = 1,     // the file cannot be opened or read; `error` is the errno
    FOREIGN = 2,        // not a supported JPEG: PNG, WebP, CMYK, 12 bits, unusual chroma
    DAMAGED = 3,        // truncated, or rejected by libjpeg-turbo
    EXCESSIVE = 4,      // more pixels, scans or bytes than allowed
    MISMATCHED = 5,     // not the size that the caller expects
    ALTERED = 6,        // its CRC-32 differs
    CANCELLED = 7,
    CUT_SHORT = 8,      // its mapped file was truncated while being read
};

enum Geometry : int32_t {
    BOX = 0,            // `box` as given
    CROP = 1,           // a random crop of the image, by `draws`
    CENTER = 2,         // the image resized to a shorter side of `resize`, then its center
    DISTORTED = 3,      // a random crop by TensorFlow's rule, by `draws`
    WHOLE = 4,          // the complete image after shrinking, [height, width, 3]
};

enum Filter : int32_t { BILINEAR = 0, BICUBIC = 1 };

// Part of an image, in fractional pixels.
struct Box {
    double left, top, width, height;
};

// The same image at half size, rounded up: used instead if its crop is at least as large as the output.
struct SmallLevel {
    const uint8_t *data;        // null: no small level
    uint64_t length;
    int32_t height, width;
    uint32_t crc;
    uint8_t raw;
};

// Counts of the memory that keeps shrunk images, shared by processes.
struct Memory {
    uint64_t used;              // bytes of images that are kept, or would be if there were space
    uint64_t capacity;          // bytes
    uint64_t closed;            // nonzero: no more images are kept
};

struct Row {
    const uint8_t *data;        // the encoded image or its pixels; null: read the file
    const char *folder;         // null-terminated
    const char *path;           // relative to folder, `length` bytes
    const double *draws;        // CROP: [10, 4]: area fraction, width / height, top, left; then two ratios
                                // DISTORTED: [100, 4] in 0..1: width / height, height, top, left; then areas, ratios
    const struct Operation *operations;         // augmentation operations, in order; see augment.h
    uint8_t *pixels;            // output: [output_size, output_size, 3], RGB
    uint64_t length;            // bytes at `data` or `path`
    uint64_t file_bytes;        // size of the file when it was listed; 0: any
    Box box;                    // input for BOX, else output
    int32_t height, width;      // image size: expected, or 0 to return it; required for raw pixels
    int32_t geometry;
    int32_t output_size;        // output height and width, in pixels
    int32_t resize;             // CENTER: the shorter side, in pixels
    int32_t filter;
    int32_t operation_count;
    uint8_t raw;                // `data` is uint8 [height, width, 3]
    uint8_t mirror;
    uint8_t full_size;          // always decode at full size
    uint8_t checked;            // verify `crc`; cleared when verified, but not if the small level is read instead
    uint32_t crc;               // CRC-32 of the bytes, as in zlib
    int32_t status;             // output: Status
    int32_t error;              // output: errno of UNREADABLE
    SmallLevel small;
    Memory *memory;             // memory of shrunk images; null: keep none
    uint8_t *kept;              // images in that memory
    uint64_t *entry;            // the entry of this image; see memory.h
    int32_t longest;            // longer side to shrink the full image to before cropping; 0: do not shrink
};
