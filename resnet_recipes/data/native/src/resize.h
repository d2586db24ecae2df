// Antialiased separable resize of RGB images in the order of Pillow: horizontally first, rounded, then vertically.
// With exact weights the pixels match Pillow; other weights are faster.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "geometry.h"

// The weights in one direction: output i is the sum of weights[i * taps + j] * source[first[i] + j], j < count[i].
struct Axis {
    int taps = 0;                       // weights stored for each output, an even number
    std::vector<int> first, count;
    bool is_exact = false;              // whether `weigh` computes weights as exact as in Pillow
    std::vector<int32_t> weights;       // 1.0 is 1 << WEIGHT_BITS, or 1 << EXACT_BITS; zero beyond count

    // Resize `length` source pixels from `start` to `size` pixels, and keep `outputs` of them from `from` on. No
    // weight falls outside the source pixels that [start, start + length) touches, nor outside [0, limit).
    void weigh(double start, double length, int limit, int size, int from, int outputs, Filter filter);
    int begin() const { return first.front(); }
    int end() const { return first.back() + count.back(); }
};

// A row's weights in the order that vector instructions read them: [outputs / 4][pairs of taps][4][8], each pair
// repeated four times. Outputs are padded to a multiple of four. An exact weight is coarse << FINE_BITS | fine.
struct Columns {
    static constexpr int TOGETHER = 4, NEXT_PAIR = TOGETHER * 8;

    int outputs = 0, pairs = 0;
    std::vector<int> first;             // in values: three per pixel
    std::vector<int16_t> weights;       // the coarse parts, if weights are exact
    std::vector<int16_t> fine;          // empty, if weights are not exact

    void pack(const Axis &axis, bool mirror);
    size_t place(int x, int pair) const {
        return ((static_cast<size_t>(x / TOGETHER) * pairs + pair) * TOGETHER + x % TOGETHER) * 8;
    }
};

// The two inner loops, for weights of WEIGHT_BITS and exact weights. Bit-identical for every instruction set.
struct Instructions {
    const char *name;
    // Write one row's outputs, [outputs, 3] and up to PADDING bytes more; also reads the row's padding.
    void (*blend_pixels)(const uint8_t *row, const Columns &columns, uint8_t *out);
    void (*blend_pixels_exactly)(const uint8_t *row, const Columns &columns, uint8_t *out);
    // out[q] = sum of rows[j][q] * weights[j], for q from `begin` to `end` and no further.
    void (*blend_rows)(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin, int end);
    void (*blend_rows_exactly)(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin,
                               int end);
};

extern const Instructions SCALAR;
const Instructions &best_instructions();

constexpr int WEIGHT_BITS = 14;
constexpr int EXACT_BITS = 22, FINE_BITS = 11, FINE = (1 << FINE_BITS) - 1;
constexpr int GRAY_BITS = 6;            // fraction bits of a sum of rows; 16 bits also hold bicubic overshoot
constexpr int PADDING = 32;             // bytes

// The source of the rows of a resize.
class RowSource {
  public:
    // Return row y, followed by the resizer's padding; each row is requested once, in ascending order.
    virtual const uint8_t *at(int y) = 0;

  protected:
    ~RowSource() = default;     // not virtual: a source must be trivially destructible, because a fault jumps over it
};

// One resize; its memory is reused by the next.
class Resizer {
  public:
    Axis rows, columns;

    // Prepare for a source of height x width pixels: the row's image scaled by `scale`.
    void aim(const Cut &cut, double scale, int height, int width, const Row &row);

    // Bytes past a source row that are read and multiplied by zero.
    size_t padding() const { return 3 * columns.taps + PADDING; }

    // Write [side, side, 3]; the source rows start at column `left`.
    void run(RowSource &source, int left, bool mirror, const Instructions &instructions, uint8_t *out);

  private:
    uint8_t *narrow(int y) { return ring_.data() + y % rows.taps * stride_; }

    Columns packed_;
    std::vector<uint8_t> ring_;         // the source's last rows, already resized to the output's width
    size_t stride_ = 0;
    std::vector<const uint8_t *> taken_;
};
