#include "fill.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <new>

#include "augment.h"
#include "geometry.h"
#include "jpeg.h"
#include "raw.h"
#include "source.h"

namespace {

constexpr int AHEAD = 8;        // files open at a time

// The caller looks at it from another thread.
void mark(bool &reading, bool value) { __atomic_store_n(&reading, value, __ATOMIC_RELAXED); }

// Use the half-size level if it has enough pixels for the crop.
bool suits_small(Row &row) {
    if (!row.small.data || row.whole || row.geometry == CENTRE) {
        return false;
    }
    Cut cut = cut_of(row, row.height, row.width);
    if (!cut.fits(row) || std::min(cut.box.width, cut.box.height) < 2 * row.side) {
        return false;
    }
    double down = static_cast<double>(row.small.height) / row.height;
    double across = static_cast<double>(row.small.width) / row.width;
    Box &box = row.box = {cut.box.left * across, cut.box.top * down, cut.box.width * across, cut.box.height * down};
    box.width = std::min(box.width, row.small.width - box.left);
    box.height = std::min(box.height, row.small.height - box.top);
    row.geometry = BOX;
    row.data = row.small.data;
    row.length = row.small.length;
    row.height = row.small.height;
    row.width = row.small.width;
    row.raw = row.small.raw;
    row.crc = row.small.crc;
    row.checked = true;
    return true;
}

Status fill_row(Row &row, const File &file, Workspace &work, const Instructions &instructions) {
    try {
        Bytes bytes{};
        Status status = read_source(row, file, work.file, bytes);
        if (status != DONE) {
            return status;
        }
        status = row.raw ? resize_raw(bytes, row, work, instructions) : decode_jpeg(bytes, row, work, instructions);
        if (status == DONE) {
            augment(row, work.augmented);
        }
        return status;
    } catch (const std::bad_alloc &) {
        row.error = ENOMEM;
        return UNREADABLE;
    }
}

}  // namespace

void fill(Row *rows, int64_t count, bool *reading, const Instructions &instructions) {
    thread_local Workspace work;
    std::deque<File> files;             // of the row in hand and of those after it
    std::fill(reading, reading + count, false);
    for (int64_t i = 0, next = 0; i < count; i++) {
        while (next < std::min(count, i + AHEAD)) {
            files.emplace_back(rows[next++]);
        }
        mark(reading[i], true);
        rows[i].error = 0;
        Row small = rows[i];            // the request itself stays unchanged
        rows[i].status = fill_row(suits_small(small) ? small : rows[i], files.front(), work, instructions);
        files.pop_front();
        work.trim();
        mark(reading[i], false);
    }
}
