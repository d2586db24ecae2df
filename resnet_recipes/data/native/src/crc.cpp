#include "crc.h"

#include <array>
#include <cstring>

namespace {

constexpr int SLICES = 8;
using Tables = std::array<std::array<uint32_t, 256>, SLICES>;

// tables[k][b] is the CRC of byte b followed by k zeros: looks up eight bytes at once (Intel's slicing-by-8).
constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        }
        tables[0][byte] = crc;
    }
    for (int k = 1; k < SLICES; k++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
        }
    }
    return tables;
}

constexpr Tables TABLES = make_tables();

}  // namespace

uint32_t crc32_of(const uint8_t *data, size_t size) {
    uint32_t crc = ~0u;
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low, high;
        std::memcpy(&low, data, 4);
        std::memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = TABLES[7][low & 255] ^ TABLES[6][low >> 8 & 255] ^ TABLES[5][low >> 16 & 255] ^ TABLES[4][low >> 24] ^
              TABLES[3][high & 255] ^ TABLES[2][high >> 8 & 255] ^ TABLES[1][high >> 16 & 255] ^ TABLES[0][high >> 24];
    }
    for (; size; data++, size--) {
        crc = crc >> 8 ^ TABLES[0][(crc ^ *data) & 255];
    }
    return ~crc;
}
