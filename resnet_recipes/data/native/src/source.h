// A row's bytes: in memory, or in a regular file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "row.h"

struct Bytes {
    const uint8_t *data;
    size_t size;
};

constexpr size_t MOST_BYTES = size_t{256} << 20;     // limit for one encoded image

// Point `bytes` to the row's image, reading it into `memory` if it is in a file, or return the reason for failure.
Status read_source(Row &row, std::vector<uint8_t> &memory, Bytes &bytes);

// Ask the system to prefetch the row's file, if any, without waiting; costs microseconds if it is cached.
void read_ahead(const Row &row);
