#include "shrink.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

using Four = float __attribute__((vector_size(16)));

void add_row(const uint8_t *__restrict row, float weight, int values, float *__restrict sums) {
    for (int q = 0; q < values; q++) {
        sums[q] += weight * row[q];
    }
}

// Return the weighted sum of consecutive pixels; the fourth value is unused.
Four sum_pixels(const float *pixel, const float *weights, int count) {
    Four sum{};
    for (int j = 0; j < count; j++, pixel += 3) {
        Four values;
        std::memcpy(&values, pixel, sizeof values);
        sum += weights[j] * values;
    }
    return sum;
}

}  // namespace

void AreaAxis::weigh(int length, int size) {
    double scale = static_cast<double>(length) / size;
    taps = static_cast<int>(std::ceil(scale)) + 1;
    first.resize(size);
    count.assign(size, 0);
    weights.assign(static_cast<size_t>(size) * taps, 0);
    for (int i = 0; i < size; i++) {
        double begin = i * scale, end = (i + 1) * scale;
        first[i] = static_cast<int>(begin);
        for (int j = 0; j < taps && first[i] + j < length; j++) {
            double from = first[i] + j, covered = std::min(from + 1, end) - std::max(from, begin);
            if (covered > 0) {
                weights[static_cast<size_t>(i) * taps + j] = static_cast<float>(covered / scale);
                count[i] = j + 1;
            }
        }
    }
}

void Shrinker::aim(int image_height, int image_width, int longest) {
    height = image_height;
    width = image_width;
    int longer = std::max(height, width);
    if (longer > longest) {
        double ratio = static_cast<double>(longest) / longer;
        height = std::max(1, static_cast<int>(ratio * height));
        width = std::max(1, static_cast<int>(ratio * width));
    }
}

void Shrinker::run(RowSource &source, int image_height, int image_width, uint8_t *out) {
    bool is_kept = height == image_height && width == image_width;
    rows_.weigh(image_height, height);
    columns_.weigh(image_width, width);
    int values = 3 * image_width, last = -1;
    sums_.resize(values + 1);           // reading the last pixel also reads the value after it
    const uint8_t *row = nullptr;
    for (int i = 0; i < height; i++) {
        std::fill(sums_.begin(), sums_.end(), 0.0f);
        for (int j = 0; j < rows_.count[i]; j++) {
            if (int y = rows_.first[i] + j; y != last) {
                row = source.at(y);
                last = y;
            }
            if (!is_kept) {
                add_row(row, rows_.weights[static_cast<size_t>(i) * rows_.taps + j], values, sums_.data());
            }
        }
        if (is_kept) {
            out = std::copy(row, row + values, out);
            continue;
        }
        for (int x = 0; x < width; x++, out += 3) {
            const float *weights = &columns_.weights[static_cast<size_t>(x) * columns_.taps];
            Four sum = sum_pixels(&sums_[3 * static_cast<size_t>(columns_.first[x])], weights, columns_.count[x]);
            for (int c = 0; c < 3; c++) {
                out[c] = static_cast<uint8_t>(std::lrintf(sum[c]));
            }
        }
    }
}
