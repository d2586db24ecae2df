// One image of a batch: the request and its result. rows.py mirrors this struct.
#pragma once
#include <cstdint>

enum Status : int32_t {
    WAITING = -2,       // not begun
    RUNNING = -1,       // in progress
    DONE = 0,
    UNREADABLE = 1,     // the file cannot be opened or read; `error` is the errno
    FOREIGN = 2,        // not a supported kind of JPEG: PNG, WebP, CMYK, 12 bits, unusual chroma
    DAMAGED = 3,        // truncated, or libjpeg-turbo complains
    EXCESSIVE = 4,      // more pixels, scans or bytes than allowed
    MISMATCHED = 5,     // not of the size the caller expects
    ALTERED = 6,        // its CRC-32 differs
    CANCELLED = 7,
    CUT_SHORT = 8,      // its mapped file was truncated while being read
};

enum Geometry : int32_t {
    BOX = 0,            // `box` as given
    CROP = 1,           // a random crop of the image, by `draws`
    CENTRE = 2,         // the image resized to a shorter side of `resize`, then its centre
    DISTORTED = 3,      // a random crop by TensorFlow's rule, by `draws`
};

enum Filter : int32_t { BILINEAR = 0, BICUBIC = 1 };

// Part of an image, in fractional pixels.
struct Box {
    double left, top, width, height;
};

// The same image at half its size, rounded up: used instead if its crop is at least as large as the output.
struct SmallLevel {
    const uint8_t *data;        // null: none
    uint64_t length;
    int32_t height, width;
    uint32_t crc;
    uint8_t raw;
};

// Counts of a memory that keeps shrunk images, shared by processes.
struct Memory {
    uint64_t used;              // bytes of images that are kept, or would have been
    uint64_t capacity;          // bytes
    uint64_t closed;            // not 0: nothing more is kept
};

struct Row {
    const uint8_t *data;        // the encoded image or its pixels; null: read the file
    const char *folder;         // null-terminated
    const char *path;           // relative to folder, `length` bytes
    const double *draws;        // CROP: [10, 4]: share of the area, width / height, top, left; then two ratios
                                // DISTORTED: [100, 4] in 0..1: width / height, height, top, left; then shares, ratios
    const struct Operation *operations;         // of an augmentation, in order; see augment.h
    uint8_t *pixels;            // written: [side, side, 3], RGB
    uint64_t length;            // bytes at `data` or `path`
    uint64_t file_bytes;        // size of the file when it was listed; 0: any
    Box box;                    // read for BOX, else written
    int32_t height, width;      // of the image: expected, or 0 to have it written; required for raw pixels
    int32_t geometry;
    int32_t side;               // of the output, in pixels
    int32_t resize;             // CENTRE: the shorter side, in pixels
    int32_t filter;
    int32_t operation_count;
    uint8_t raw;                // `data` is uint8 [height, width, 3]
    uint8_t mirror;
    uint8_t whole;              // always decode at full size
    uint8_t checked;            // verify `crc`; cleared when done, which reading the small level instead is not
    uint32_t crc;               // zlib's CRC-32 of the bytes
    int32_t status;             // written: Status
    int32_t error;              // written: errno of UNREADABLE
    SmallLevel small;
    Memory *memory;             // of shrunk images; null: none are kept
    uint8_t *kept;              // its images
    uint64_t *entry;            // the place of this image in it; see memory.h
    int32_t longest;            // the whole image is shrunk to this longer side before it is cropped; 0: it is not
};
