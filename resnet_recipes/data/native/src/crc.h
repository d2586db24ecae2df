// CRC-32 as in zlib and PNG.
#pragma once
#include <cstddef>
#include <cstdint>

uint32_t crc32_of(const uint8_t *data, size_t size);
