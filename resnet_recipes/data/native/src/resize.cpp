#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

double bilinear(double x) {
    x = std::fabs(x);
    return x < 1 ? 1 - x : 0;
}

double bicubic(double x) {              // a = -0.5, as in Pillow
    x = std::fabs(x);
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

// Round weights to integers whose sum is exactly 1.0; the largest weight absorbs the difference.
void quantize(const double *exact, double total, int count, int32_t *weights) {
    int sum = 0, largest = 0;
    for (int j = 0; j < count; j++) {
        weights[j] = static_cast<int32_t>(std::lrint(exact[j] / total * (1 << WEIGHT_BITS)));
        sum += weights[j];
        largest = weights[j] > weights[largest] ? j : largest;
    }
    weights[largest] += (1 << WEIGHT_BITS) - sum;
}

// Round weights as Pillow does, for any sum.
void quantize_exactly(const double *exact, double total, int count, int32_t *weights) {
    for (int j = 0; j < count; j++) {
        double weight = exact[j] / total;
        weights[j] = static_cast<int32_t>(weight * (1 << EXACT_BITS) + (weight < 0 ? -0.5 : 0.5));
    }
}

// (a * b) / 2^15, rounded: one vector instruction.
inline int16_t rounded_product(int16_t a, int16_t b) { return static_cast<int16_t>((a * b + (1 << 14)) >> 15); }

template <bool is_exact>
void blend_pixels(const uint8_t *row, const Columns &columns, uint8_t *out) {
    constexpr int BITS = is_exact ? EXACT_BITS : WEIGHT_BITS;
    for (int x = 0; x < columns.outputs; x++, out += 3) {
        const uint8_t *pixel = row + columns.first[x];
        int sum[3] = {1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1)};
        for (int tap = 0; tap < 2 * columns.pairs; tap++, pixel += 3) {
            size_t place = columns.place(x, tap / 2) + tap % 2;
            int weight = columns.weights[place];
            if constexpr (is_exact) {
                weight = weight * (1 << FINE_BITS) + columns.fine[place];
            }
            for (int c = 0; c < 3; c++) {
                sum[c] += pixel[c] * weight;
            }
        }
        for (int c = 0; c < 3; c++) {
            out[c] = static_cast<uint8_t>(std::clamp(sum[c] >> BITS, 0, 255));
        }
    }
}

void blend_rows(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin, int end) {
    for (int q = begin; q < end; q++) {
        int sum = 1 << (GRAY_BITS - 1);
        for (int j = 0; j < count; j++) {
            sum += rounded_product(static_cast<int16_t>(rows[j][q] << 7), static_cast<int16_t>(weights[j]));
        }
        out[q] = static_cast<uint8_t>(std::clamp(sum >> GRAY_BITS, 0, 255));
    }
}

void blend_rows_exactly(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin,
                        int end) {
    for (int q = begin; q < end; q++) {
        int sum = 1 << (EXACT_BITS - 1);
        for (int j = 0; j < count; j++) {
            sum += rows[j][q] * weights[j];
        }
        out[q] = static_cast<uint8_t>(std::clamp(sum >> EXACT_BITS, 0, 255));
    }
}

}  // namespace

const Instructions SCALAR = {"scalar", blend_pixels<false>, blend_pixels<true>, blend_rows, blend_rows_exactly};

void Axis::weigh(double start, double length, int limit, int size, int from, int outputs, Filter filter) {
    double scale = length / size, stretch = std::max(1.0, scale), support = stretch * (filter == BICUBIC ? 2 : 1);
    int lowest = std::max(0, static_cast<int>(std::floor(start)));
    int highest = std::min(limit, static_cast<int>(std::ceil(start + length)));
    taps = (2 * static_cast<int>(std::ceil(support)) + 2) & ~1;
    first.resize(outputs);
    count.resize(outputs);
    weights.assign(static_cast<size_t>(outputs) * taps, 0);
    std::vector<double> exact(taps);
    auto round = is_exact ? quantize_exactly : quantize;
    for (int i = 0; i < outputs; i++) {
        double center = start + (from + i + 0.5) * scale, total = 0;
        int begin = std::clamp(static_cast<int>(center - support + 0.5), lowest, highest - 1);
        int end = std::clamp(static_cast<int>(center + support + 0.5), begin + 1, std::min(highest, begin + taps));
        for (int j = 0; j < end - begin; j++) {
            double x = (begin + j - center + 0.5) * (1 / stretch);
            total += exact[j] = filter == BICUBIC ? bicubic(x) : bilinear(x);
        }
        first[i] = begin;
        count[i] = end - begin;
        round(exact.data(), total, end - begin, &weights[static_cast<size_t>(i) * taps]);
    }
}

void Columns::pack(const Axis &axis, bool mirror) {
    outputs = static_cast<int>(axis.first.size());
    pairs = (*std::max_element(axis.count.begin(), axis.count.end()) + 1) / 2;
    int filled = (outputs + TOGETHER - 1) / TOGETHER * TOGETHER;
    first.resize(filled);
    weights.resize(static_cast<size_t>(filled) * pairs * 8);
    fine.resize(axis.is_exact ? weights.size() : 0);
    for (int x = 0; x < filled; x++) {
        int kept = std::min(x, outputs - 1), from = mirror ? outputs - 1 - kept : kept;
        first[x] = 3 * (axis.first[from] - axis.begin());
        const int32_t *source = &axis.weights[static_cast<size_t>(from) * axis.taps];
        for (int tap = 0; tap < 2 * pairs; tap++) {
            for (int lane = 0; lane < 4; lane++) {
                size_t at = place(x, tap / 2) + 2 * lane + tap % 2;
                weights[at] = static_cast<int16_t>(axis.is_exact ? source[tap] >> FINE_BITS : source[tap]);
                if (axis.is_exact) {
                    fine[at] = source[tap] & FINE;
                }
            }
        }
    }
}

void Resizer::aim(const Cut &cut, double scale, int height, int width, const Row &row) {
    Filter filter = static_cast<Filter>(row.filter);
    rows.is_exact = columns.is_exact = row.geometry == CENTER;
    rows.weigh(cut.box.top * scale, cut.box.height * scale, height, cut.height, cut.top, row.output_size, filter);
    columns.weigh(cut.box.left * scale, cut.box.width * scale, width, cut.width, cut.left, row.output_size, filter);
}

void Resizer::run(RowSource &source, int left, bool mirror, const Instructions &instructions, uint8_t *out) {
    packed_.pack(columns, mirror);
    int values = 3 * packed_.outputs, y = rows.begin();
    stride_ = values + PADDING;
    ring_.resize(stride_ * rows.taps);
    taken_.resize(rows.taps);
    auto blend_pixels = columns.is_exact ? instructions.blend_pixels_exactly : instructions.blend_pixels;
    auto blend_rows = rows.is_exact ? instructions.blend_rows_exactly : instructions.blend_rows;
    for (size_t i = 0; i < rows.first.size(); i++, out += values) {
        for (; y < rows.first[i] + rows.count[i]; y++) {
            blend_pixels(source.at(y) + 3 * (columns.begin() - left), packed_, narrow(y));
        }
        for (int j = 0; j < rows.count[i]; j++) {
            taken_[j] = narrow(rows.first[i] + j);
        }
        blend_rows(taken_.data(), &rows.weights[i * rows.taps], rows.count[i], out, 0, values);
    }
}

#if !defined(__x86_64__) && !defined(__aarch64__)
const Instructions &best_instructions() { return SCALAR; }
#endif
