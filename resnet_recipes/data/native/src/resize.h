// Antialiased separable resize of RGB images, in Pillow's order: pixels within a row first, rounded, then rows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "geometry.h"

// The weights of one direction: output i is the sum of weights[i * taps + j] * source[first[i] + j], j < count[i].
struct Axis {
    int taps = 0;                       // room for each output, even
    std::vector<int> first, count;
    std::vector<int16_t> weights;       // 1.0 is 1 << 14; zero beyond count

    // `length` source pixels from `start` become `size`, of which outputs `from` to `from + outputs` are kept;
    // a weight never falls outside the source pixels that [start, start + length) touches, nor outside [0, limit).
    void weigh(double start, double length, int limit, int size, int from, int outputs, Filter filter);
    int begin() const { return first.front(); }
    int end() const { return first.back() + count.back(); }
};

// The weights of a row's pixels in the order of vector instructions: [outputs / 4][pairs of taps][4][8], where 8 is a
// pair four times. Outputs are filled up to a multiple of four.
struct Columns {
    static constexpr int TOGETHER = 4, NEXT_PAIR = TOGETHER * 8;

    int outputs = 0, pairs = 0;
    std::vector<int> first;             // values, of which a pixel has three
    std::vector<int16_t> weights;

    void pack(const Axis &axis, bool mirror);
    size_t place(int x, int pair) const {
        return ((static_cast<size_t>(x / TOGETHER) * pairs + pair) * TOGETHER + x % TOGETHER) * 8;
    }
};

// The two inner loops. Every set gives the same bits.
struct Instructions {
    const char *name;
    // Write the outputs of one row, [outputs, 3] and up to PADDING bytes more; reads the padding of a row as well.
    void (*blend_pixels)(const uint8_t *row, const Columns &columns, uint8_t *out);
    // out[q] = sum of rows[j][q] * weights[j], for q from `begin` to `end` and no further.
    void (*blend_rows)(const uint8_t *const *rows, const int16_t *weights, int count, uint8_t *out, int begin, int end);
};

extern const Instructions SCALAR;
const Instructions &best_instructions();

constexpr int WEIGHT_BITS = 14;
constexpr int GREY_BITS = 6;            // of a sum of rows: 16 bits hold what bicubic weights overshoot
constexpr int PADDING = 32;             // bytes

// Where the source rows of a resize come from.
class RowSource {
  public:
    // Return row y, with the resizer's padding behind it; rows are asked for once, in ascending order.
    virtual const uint8_t *at(int y) = 0;

  protected:
    ~RowSource() = default;
};

// One resize, with memory that the next one uses again.
class Resizer {
  public:
    Axis rows, columns;

    // Get ready for a source of height x width pixels, which is the row's image times `scale`.
    void aim(const Cut &cut, double scale, int height, int width, const Row &row);

    // Bytes behind a source row that are read and multiplied by zero.
    size_t padding() const { return 3 * columns.taps + PADDING; }

    // Write [side, side, 3]; what the source gives begins at its column `left`.
    void run(RowSource &source, int left, bool mirror, const Instructions &instructions, uint8_t *out);

  private:
    uint8_t *narrow(int y) { return ring_.data() + y % rows.taps * stride_; }

    Columns packed_;
    std::vector<uint8_t> ring_;         // the last rows of the source, already as wide as the output
    size_t stride_ = 0;
    std::vector<const uint8_t *> taken_;
};
