// Huffman decoding of single-scan baseline JPEGs. It is faster than in libjpeg-turbo, steps over blocks outside the
// crop, and skips entire restart intervals outside it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

// One Huffman table of a file, as lookup tables.
class HuffmanTable {
  public:
    static constexpr int LOOK = 10;             // bits looked up at once

    static constexpr int END = 128, BAD = 64;   // `run` at the end of a block, and for an invalid code

    // A code stands for `run` zeros and a coefficient. Both bit counts are packed into one number, their sum lowest:
    // a processor shifts by the lowest six bits of a number, and every instruction here adds latency.
    class Entry {
      public:
        Entry() = default;
        Entry(int code, int run, int size)
            : packed_(static_cast<uint32_t>(code + size) | code << 8 | size << 16 | static_cast<uint32_t>(run) << 24) {}
        int bits() const { return packed_ & 63; }               // code and coefficient; 0: the code is not here
        int code() const { return packed_ >> 8 & 63; }
        int size() const { return packed_ >> 16 & 63; }
        int run() const { return packed_ >> 24; }

      private:
        uint32_t packed_;
    };

    // For stepping over: number of complete coefficients in the bits, and END if the block ends; 0 bits: none.
    class Stride {
      public:
        Stride() = default;
        Stride(int bits, int advance, bool is_end)
            : packed_(static_cast<uint16_t>(bits | (is_end ? END >> 1 : 0) | advance << 8)) {}
        int bits() const { return packed_ & 63; }
        int end() const { return packed_ << 1 & END; }
        int advance() const { return packed_ >> 8; }

      private:
        uint16_t packed_;
    };

    Entry entries[1 << LOOK] = {};
    Stride strides[1 << LOOK] = {};

    // Use the codes of a file; rebuilds the tables only if the codes differ from those of the previous file.
    void set(const uint8_t *counts, const uint8_t *symbols, bool dc);

    // Find a code longer than LOOK in 16 bits.
    Entry longer(int code) const;

  private:
    Entry entry_of(int symbol, int length) const;
    void fill();
    void fill_strides();                        // only if there are many coefficients: not for a DC table

    uint8_t counts_[17] = {}, symbols_[256] = {};       // per file: number of codes by length, and symbols
    bool is_dc_ = false;
    int32_t limit_[17] = {}, offset_[17] = {};          // by length: first longer code as 16 bits; offset in `symbols_`
};

// The structure of the units of a scan, and which units are needed; the others are stepped over.
struct ScanLayout {
    struct Block {
        int component;
        const HuffmanTable *dc, *ac;
    };
    Block blocks[10];
    int block_count;
    int columns;                                // units per row
    int interval;                               // units between restart markers; 0: no restart markers
    int first_row, first_column, last_column;   // units that are needed
};

class HuffmanScan {
  public:
    // Return table `number`, 0 to 3, for these codes: how many have 1 to 16 bits, from counts[1] on, and their symbols.
    const HuffmanTable *table(bool dc, int number, const uint8_t *counts, const uint8_t *symbols);

    // Start a scan whose data follow its header; return where the data end, at most `end`.
    const uint8_t *begin(const ScanLayout &layout, const uint8_t *data, const uint8_t *end);

    // Free the memory of an unusually large image.
    void trim(size_t kept);

    // Decode the next unit into zeroed blocks, or step over it; false if the data are damaged.
    bool decode(int16_t (**blocks)[64]);

  private:
    // A position in the data: `next_bits` holds the next bits, highest first.
    struct Bits {
        const uint8_t *at;
        uint64_t next_bits;
        int available;
        bool is_sound;

        void refill();
        void step(int count);
        HuffmanTable::Entry look_up(const HuffmanTable &table) const;
        HuffmanTable::Entry next(const HuffmanTable &table) const;
        int value(const HuffmanTable::Entry &entry) const;
        void put(const HuffmanTable::Entry &entry, int16_t *coefficients, int &k);
        uint32_t read_dc(const HuffmanTable &table, uint32_t &predicted);
    };

    const uint8_t *unstuff(const uint8_t *data, const uint8_t *end);
    bool begin_segment();
    bool wants(int row, int column) const;
    bool decode_unit(int16_t (**blocks)[64]);
    bool skip_unit();
    std::ptrdiff_t bytes_left() const;

    ScanLayout layout_;
    HuffmanTable tables_[2][4];
    std::vector<uint8_t> data_;                 // the scan without stuffed zeros and markers
    std::vector<size_t> starts_;                // starts of its segments in `data_`, and the end
    uint32_t predicted_[4];
    int row_, column_;                          // position of the next unit
    int left_;                                  // units left in this segment
    size_t segment_;
    bool is_segment_wanted_;
    const uint8_t *segment_end_;
    Bits bits_;
};
