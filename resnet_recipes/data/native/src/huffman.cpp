#include "huffman.h"

#include <algorithm>
#include <climits>
#include <cstring>

namespace {

constexpr size_t SLACK = 4096;          // zeros after the scan: more bytes than one unit reads
constexpr uint8_t STUFFED = 0xFF;

// Positions of coefficients; coefficients past the end of a damaged block, and end-of-block zeros, go to the last one.
struct Zigzag {
    uint8_t place[HuffmanTable::END + 65];
    constexpr Zigzag() : place() {
        int x = 0, y = 0;
        for (int k = 0; k < 64; k++) {
            place[k] = static_cast<uint8_t>(8 * y + x);
            bool up = (x + y) % 2 == 0;
            if (up ? x == 7 : y == 7) {
                (up ? y : x)++;
            } else if (up ? y == 0 : x == 0) {
                (up ? x : y)++;
            } else {
                x += up ? 1 : -1;
                y += up ? -1 : 1;
            }
        }
        for (int k = 64; k <= HuffmanTable::END + 64; k++) {
            place[k] = 63;
        }
    }
};
constexpr Zigzag ZIGZAG;

}  // namespace

inline void HuffmanScan::Bits::refill() {
    uint64_t more;
    std::memcpy(&more, at, sizeof more);
    next_bits |= __builtin_bswap64(more) >> available;
    at += (63 - available) >> 3;
    available |= 56;
}

inline void HuffmanScan::Bits::step(int count) {
    next_bits <<= count & 63;
    available -= count;
}

// Look up the next code among the short ones; needs 25 bits, for the code and its coefficient.
inline HuffmanTable::Entry HuffmanScan::Bits::look_up(const HuffmanTable &table) const {
    return table.entries[next_bits >> (64 - HuffmanTable::LOOK)];
}

// Look up the next code; needs 31 bits.
inline HuffmanTable::Entry HuffmanScan::Bits::next(const HuffmanTable &table) const {
    HuffmanTable::Entry entry = look_up(table);
    return __builtin_expect(entry.bits(), 1) ? entry : table.longer(static_cast<int>(next_bits >> 48));
}

// Return the next code's coefficient, without a branch: its sign is unpredictable.
inline int HuffmanScan::Bits::value(const HuffmanTable::Entry &entry) const {
    uint64_t after = next_bits << entry.code();
    int is_negative = static_cast<int>(after >> 63) - 1;                        // all bits one, or all zero
    return static_cast<int>(after >> 1 >> (63 - entry.size())) + (is_negative & (1 - (1 << entry.size())));
}

// Write the next code's coefficient, whose number is at least k, and step past it.
inline void HuffmanScan::Bits::put(const HuffmanTable::Entry &entry, int16_t *coefficients, int &k) {
    k += entry.run();
    coefficients[ZIGZAG.place[k]] = static_cast<int16_t>(value(entry));
    step(entry.bits());
    k++;
}

inline uint32_t HuffmanScan::Bits::read_dc(const HuffmanTable &table, uint32_t &predicted) {
    refill();
    HuffmanTable::Entry entry = next(table);
    predicted += value(entry);
    step(entry.bits());
    is_sound &= entry.run() != HuffmanTable::BAD;
    return predicted;
}

void HuffmanTable::set(const uint8_t *counts, const uint8_t *symbols, bool dc) {
    if (std::memcmp(counts_, counts, sizeof counts_) || std::memcmp(symbols_, symbols, sizeof symbols_)) {
        std::memcpy(counts_, counts, sizeof counts_);
        std::memcpy(symbols_, symbols, sizeof symbols_);
        is_dc_ = dc;
        fill();
        if (!dc) {
            fill_strides();
        }
    }
}

HuffmanTable::Entry HuffmanTable::entry_of(int symbol, int length) const {
    int size = symbol & 15, run = is_dc_ ? 0 : symbol >> 4;
    bool is_end = !is_dc_ && !size && run < 15;
    return {length, is_end ? END : run, size};
}

HuffmanTable::Entry HuffmanTable::longer(int code) const {
    int length = LOOK + 1;
    while (length <= 16 && code >= limit_[length]) {
        length++;
    }
    if (length > 16) {
        return {0, BAD, 0};
    }
    return entry_of(symbols_[(offset_[length] + (code >> (16 - length))) & 255], length);
}

void HuffmanTable::fill() {
    std::memset(entries, 0, sizeof entries);
    int code = 0, symbol = 0;
    for (int length = 1; length <= 16; length++) {
        offset_[length] = symbol - code;
        for (int i = 0; i < counts_[length] && symbol < 256; i++, code++, symbol++) {
            Entry entry = entry_of(symbols_[symbol], length);
            int free = LOOK - length;
            for (int rest = 0; free >= 0 && rest < 1 << free; rest++) {
                entries[(code << free | rest) & ((1 << LOOK) - 1)] = entry;
            }
        }
        limit_[length] = code << (16 - length);
        code <<= 1;
    }
}

void HuffmanTable::fill_strides() {
    for (int index = 0; index < 1 << LOOK; index++) {
        int bits = 0, advance = 0;
        bool is_end = false;
        while (!is_end && bits < LOOK) {
            const Entry &entry = entries[index << bits & ((1 << LOOK) - 1)];
            if (entry.bits() == 0 || bits + entry.code() > LOOK) {
                break;
            }
            bits += entry.bits();
            is_end = entry.run() == END;
            advance += is_end ? 0 : entry.run() + 1;
        }
        strides[index] = {bits, std::min(advance + is_end, 255), is_end};
    }
}

const HuffmanTable *HuffmanScan::table(bool dc, int number, const uint8_t *counts, const uint8_t *symbols) {
    tables_[dc][number].set(counts, symbols, dc);
    return &tables_[dc][number];
}

const uint8_t *HuffmanScan::begin(const ScanLayout &layout, const uint8_t *data, const uint8_t *end) {
    layout_ = layout;
    row_ = column_ = left_ = 0;
    segment_ = 0;
    is_segment_wanted_ = false;
    return unstuff(data, end);
}

// Copy a scan up to the marker at its end; return its position.
const uint8_t *HuffmanScan::unstuff(const uint8_t *data, const uint8_t *end) {
    if (data_.size() < end - data + SLACK) {
        data_.resize(end - data + SLACK);
    }
    uint8_t *out = data_.data();
    starts_.assign(1, 0);
    while (data < end) {
        const void *found = std::memchr(data, STUFFED, end - data);
        const uint8_t *marker = found ? static_cast<const uint8_t *>(found) : end;
        out = std::copy(data, marker, out);
        if (end - marker < 2) {
            break;
        }
        int next = marker[1];
        if (next == 0) {
            *out++ = STUFFED;
        } else if (next == static_cast<int>(0xD0 + (starts_.size() - 1) % 8)) {         // a restart marker
            starts_.push_back(out - data_.data());
        } else if (next != STUFFED) {
            break;
        }
        data = marker + (next == STUFFED ? 1 : 2);
    }
    std::memset(out, 0, SLACK);
    starts_.push_back(out - data_.data());
    return data;
}

bool HuffmanScan::wants(int row, int column) const {
    return row >= layout_.first_row && column >= layout_.first_column && column <= layout_.last_column;
}

bool HuffmanScan::begin_segment() {
    if (segment_ + 1 >= starts_.size() || (is_segment_wanted_ && bytes_left() > 0)) {
        return false;
    }
    int interval = layout_.interval;
    left_ = interval ? interval : INT_MAX;
    is_segment_wanted_ = !interval;
    for (int unit = 0, row = row_, column = column_; unit < interval && !is_segment_wanted_; unit++) {
        is_segment_wanted_ = wants(row, column);
        if (++column == layout_.columns) {
            column = 0;
            row++;
        }
    }
    bits_ = {data_.data() + starts_[segment_], 0, 0, true};
    segment_end_ = data_.data() + starts_[++segment_];
    std::fill(predicted_, predicted_ + 4, 0);
    return true;
}

bool HuffmanScan::decode(int16_t (**blocks)[64]) {
    if (!left_ && !begin_segment()) {
        return false;
    }
    bool is_wanted = blocks && wants(row_, column_);
    left_ -= layout_.interval ? 1 : 0;
    if (++column_ == layout_.columns) {
        column_ = 0;
        row_++;
    }
    if (!is_segment_wanted_) {
        return true;
    }
    return (is_wanted ? decode_unit(blocks) : skip_unit()) && bytes_left() >= 0;
}

// Complete bytes between the last unit and the segment's end; negative if the unit went past it.
std::ptrdiff_t HuffmanScan::bytes_left() const { return segment_end_ - (bits_.at - bits_.available / 8); }

void HuffmanScan::trim(size_t kept) {
    if (data_.capacity() > kept) {
        std::vector<uint8_t>().swap(data_);
    }
}

bool HuffmanScan::decode_unit(int16_t (**blocks)[64]) {
    Bits bits = bits_;
    for (int b = 0; b < layout_.block_count; b++) {
        const ScanLayout::Block &block = layout_.blocks[b];
        int16_t *coefficients = **blocks++;
        coefficients[0] = static_cast<int16_t>(bits.read_dc(*block.dc, predicted_[block.component]));
        int k = 1;
        while (k < 64) {
            bits.refill();                      // enough for any code and a short one after it: 56 bits
            HuffmanTable::Entry entry = bits.next(*block.ac);
            bits.put(entry, coefficients, k);
            if (k < 64 && (entry = bits.look_up(*block.ac)).bits()) {
                bits.put(entry, coefficients, k);
            }
        }
        bits.is_sound &= k == 64 || k > HuffmanTable::END;
    }
    bits_ = bits;
    return bits.is_sound;
}

bool HuffmanScan::skip_unit() {
    Bits bits = bits_;
    for (int b = 0; b < layout_.block_count; b++) {
        const ScanLayout::Block &block = layout_.blocks[b];
        bits.read_dc(*block.dc, predicted_[block.component]);
        int k = 1;
        while (k < 64) {
            if (bits.available < 32) {
                bits.refill();
            }
            HuffmanTable::Stride stride = block.ac->strides[bits.next_bits >> (64 - HuffmanTable::LOOK)];
            if (__builtin_expect(stride.bits() && k + stride.advance() <= 64, 1)) {
                bits.step(stride.bits());
                k += stride.advance() + stride.end();
            } else {
                HuffmanTable::Entry entry = bits.next(*block.ac);
                bits.step(entry.bits());
                k += entry.run() + 1;
            }
        }
        bits.is_sound &= k == 64 || k > HuffmanTable::END;
    }
    bits_ = bits;
    return bits.is_sound;
}
