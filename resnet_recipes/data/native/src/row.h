// One image of a batch: what the caller asks for, and what became of it. Python mirrors this struct in rows.py.
#pragma once
#include <cstdint>

enum Status : int32_t {
    WAITING = -2,       // nobody has begun
    RUNNING = -1,       // a thread is at it
    DONE = 0,
    UNREADABLE = 1,     // the file cannot be opened or read; `error` is the errno
    FOREIGN = 2,        // not a JPEG of a kind that is decoded here: PNG, WebP, CMYK, 12 bits
    DAMAGED = 3,        // cut off, or libjpeg-turbo complains
    EXCESSIVE = 4,      // more pixels, scans or bytes than one image may have
    MISMATCHED = 5,     // not of the size that the caller was told
    ALTERED = 6,        // its CRC-32 is another
    CANCELLED = 7,
    CUT_SHORT = 8,      // its mapped file lost its end while it was read
};

enum Geometry : int32_t {
    BOX = 0,            // `box`, as given
    CROP = 1,           // a random crop of the image, by `draws`
    CENTRE = 2,         // the whole image with a shorter side of `resize`, and the centre of that
    DISTORTED = 3,      // a random crop by TensorFlow's rule, by `draws`
};

enum Filter : int32_t { BILINEAR = 0, BICUBIC = 1 };

// A part of an image, in its pixels; fractions are kept.
struct Box {
    double left, top, width, height;
};

// The same image at half its size, rounded up: read instead of it where the crop stays as large as the output.
struct SmallLevel {
    const uint8_t *data;        // null: there is none
    uint64_t length;
    int32_t height, width;
    uint32_t crc;
    uint8_t raw;
};

struct Row {
    const uint8_t *data;        // the encoded image, or its pixels; null: it is in a file
    const char *folder;         // null-terminated
    const char *path;           // relative to folder, `length` bytes
    const double *draws;        // CROP: [10, 4]: share of the area, width / height, top, left; then two ratios
                                // DISTORTED: [100, 4] in 0..1: width / height, height, top, left; then shares, ratios
    const struct Operation *operations;         // of an augmentation, one after the other; see augment.h
    uint8_t *pixels;            // written: [side, side, 3], RGB
    uint64_t length;            // bytes at `data` or `path`
    uint64_t file_bytes;        // of the file when it was listed; 0: any
    Box box;                    // BOX: read; else written
    int32_t height, width;      // of the image: expected, or 0 and written; of raw pixels always given
    int32_t geometry;
    int32_t side;               // of the output, pixels
    int32_t resize;             // CENTRE: the shorter side, pixels
    int32_t filter;
    int32_t operation_count;
    uint8_t raw;                // `data` is uint8 [height, width, 3]
    uint8_t mirror;
    uint8_t whole;              // never decode at a reduced size
    uint8_t checked;            // compare `crc`
    uint32_t crc;               // CRC-32 of the bytes, as zlib counts it
    int32_t status;             // written: Status
    int32_t error;              // written: errno of UNREADABLE
    SmallLevel small;
};
