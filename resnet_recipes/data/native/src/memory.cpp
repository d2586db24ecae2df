#include "memory.h"

#include <cstring>

#include "fault.h"

namespace {

constexpr uint64_t TAKEN = ~uint64_t{0}, UNIT = 64;
constexpr int SIDE_BITS = 13, MOST_SIDE = 1 << SIDE_BITS;

uint64_t entry_of(const Row &row) { return row.entry ? __atomic_load_n(row.entry, __ATOMIC_ACQUIRE) : 0; }

struct Place {
    uint64_t at;
    int height, width;          // 0: the image is not in memory

    explicit Place(const Row &row) : at(0), height(0), width(0) {
        uint64_t entry = entry_of(row);
        if (entry == 0 || entry == TAKEN) {
            return;
        }
        at = ((entry >> 2 * SIDE_BITS) - 1) * UNIT;
        int high = 1 + static_cast<int>(entry >> SIDE_BITS & (MOST_SIDE - 1));
        int wide = 1 + static_cast<int>(entry & (MOST_SIDE - 1));
        __atomic_thread_fence(__ATOMIC_SEQ_CST);        // reads of pixels must finish before the following check
        if (at + uint64_t{3} * high * wide <= __atomic_load_n(&row.memory->capacity, __ATOMIC_SEQ_CST)) {
            height = high;
            width = wide;
        }
    }
};

}  // namespace

bool is_kept(const Row &row) { return Place(row).height; }

bool recall(Row &row, Bytes &bytes) {
    Place place(row);
    if (!place.height) {
        return false;
    }
    row.height = place.height;
    row.width = place.width;
    bytes = {row.kept + place.at, size_t{3} * row.height * row.width};
    return true;
}

void keep(const Row &row, Bytes bytes) {
    uint64_t empty = 0;
    if (!row.entry || row.memory->closed || row.height > MOST_SIDE || row.width > MOST_SIDE ||
        !__atomic_compare_exchange_n(row.entry, &empty, TAKEN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return;
    }
    uint64_t size = (bytes.size + UNIT - 1) / UNIT * UNIT;
    uint64_t at = __atomic_fetch_add(&row.memory->used, size, __ATOMIC_RELAXED);
    if (at + size > __atomic_load_n(&row.memory->capacity, __ATOMIC_SEQ_CST)) {
        return;
    }
    jmp_buf escape;
    FaultGuard guard(&escape);
    if (setjmp(escape)) {               // the system is out of memory pages
        row.memory->closed = 1;
        return;
    }
    std::memcpy(row.kept + at, bytes.data, bytes.size);
    uint64_t entry = (at / UNIT + 1) << 2 * SIDE_BITS | uint64_t(row.height - 1) << SIDE_BITS | uint64_t(row.width - 1);
    __atomic_store_n(row.entry, entry, __ATOMIC_RELEASE);
}
