#include "augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

// For loops that the compiler vectorises. It makes a version for each instruction set; the dynamic loader picks one.
#if defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

namespace {

using Table = std::array<uint8_t, 256>;

// A square RGB image.
struct Image {
    uint8_t *pixels;
    int side;

    int values() const { return 3 * side * side; }
    const uint8_t *at(int x, int y) const { return pixels + 3 * (static_cast<size_t>(y) * side + x); }
};

int grey_of(const uint8_t *pixel) { return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16; }

// Pillow's blend: between the two images it truncates, beyond them it also clips.
inline uint8_t blended(int from, int to, float factor) {
    float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
    return static_cast<uint8_t>(static_cast<int>(std::min(std::max(value, 0.0f), 255.0f)));
}

FOR_EACH_PROCESSOR void blend_line(const uint8_t *from, const uint8_t *to, float factor, uint8_t *out, int values) {
    for (int at = 0; at < values; at++) {
        out[at] = blended(from[at], to[at], factor);
    }
}

void look_up(Image image, const Table *tables) {
    for (int at = 0; at < image.values(); at += 3) {
        for (int c = 0; c < 3; c++) {
            image.pixels[at + c] = tables[c][image.pixels[at + c]];
        }
    }
}

void posterize(Image image, int bits) {
    uint8_t mask = static_cast<uint8_t>(255 << (8 - bits));
    for (int at = 0; at < image.values(); at++) {
        image.pixels[at] &= mask;
    }
}

void solarize(Image image, double threshold) {
    int from = static_cast<int>(std::ceil(threshold));
    for (int at = 0; at < image.values(); at++) {
        image.pixels[at] ^= image.pixels[at] >= from ? 255 : 0;
    }
}

FOR_EACH_PROCESSOR void extremes(Image image, uint8_t *low, uint8_t *high) {
    int stride = 3 * image.side;
    for (int y = 0; y < image.side; y++) {
        const uint8_t *line = image.at(0, y);
        for (int at = 0; at < stride; at++) {
            low[at] = std::min(low[at], line[at]);
            high[at] = std::max(high[at], line[at]);
        }
    }
}

void autocontrast(Image image, std::vector<uint8_t> &memory) {
    int stride = 3 * image.side;
    memory.assign(std::max<size_t>(memory.size(), 2 * stride), 0);
    uint8_t *low = memory.data(), *high = low + stride;
    std::memset(low, 255, stride);
    extremes(image, low, high);
    for (int at = 3; at < stride; at++) {
        low[at % 3] = std::min(low[at % 3], low[at]);
        high[at % 3] = std::max(high[at % 3], high[at]);
    }
    Table tables[3];
    for (int c = 0; c < 3; c++) {
        bool flat = high[c] <= low[c];
        double scale = flat ? 1.0 : 255.0 / (high[c] - low[c]), offset = flat ? 0.0 : -low[c] * scale;
        for (int grey = 0; grey < 256; grey++) {
            tables[c][grey] = static_cast<uint8_t>(std::clamp(static_cast<int>(grey * scale + offset), 0, 255));
        }
    }
    look_up(image, tables);
}

void equalize(Image image) {
    int counts[3][256] = {};
    for (int at = 0; at < image.values(); at += 3) {
        for (int c = 0; c < 3; c++) {
            counts[c][image.pixels[at + c]]++;
        }
    }
    Table tables[3];
    for (int c = 0; c < 3; c++) {
        int last = 255;
        while (last > 0 && !counts[c][last]) {
            last--;
        }
        int step = (image.side * image.side - counts[c][last]) / 255, sum = step / 2;
        for (int grey = 0; grey < 256; sum += counts[c][grey++]) {
            tables[c][grey] = static_cast<uint8_t>(step ? std::min(sum / step, 255) : grey);
        }
    }
    look_up(image, tables);
}

void color(Image image, std::vector<uint8_t> &memory, float factor) {
    int stride = 3 * image.side;
    memory.resize(std::max<size_t>(memory.size(), stride));
    for (int y = 0; y < image.side; y++) {
        uint8_t *line = image.pixels + static_cast<size_t>(y) * stride;
        for (int at = 0; at < stride; at += 3) {
            memory[at] = memory[at + 1] = memory[at + 2] = static_cast<uint8_t>(grey_of(line + at));
        }
        blend_line(memory.data(), line, factor, line, stride);
    }
}

void blend_with(Image image, int grey, float factor) {
    Table table;
    for (int value = 0; value < 256; value++) {
        table[value] = blended(grey, value, factor);
    }
    for (int at = 0; at < image.values(); at++) {
        image.pixels[at] = table[image.pixels[at]];
    }
}

void contrast(Image image, float factor) {
    int64_t sum = 0;
    for (int at = 0; at < image.values(); at += 3) {
        sum += grey_of(image.pixels + at);
    }
    blend_with(image, static_cast<int>(static_cast<double>(sum) / (image.side * image.side) + 0.5), factor);
}

// Write the mean of a line's neighbours, in which the pixel itself counts five times.
FOR_EACH_PROCESSOR void smooth_line(const uint8_t *line, int stride, uint8_t *out) {
    const uint8_t *above = line - stride, *below = line + stride;
    for (int at = 3; at < stride - 3; at++) {
        int sum = above[at - 3] + above[at] + above[at + 3] + line[at - 3] + 5 * line[at] + line[at + 3] +
                  below[at - 3] + below[at] + below[at + 3];
        out[at] = static_cast<uint8_t>(static_cast<uint16_t>(2 * sum + 13) / 26);
    }
}

// The outermost pixels stay as they are.
void sharpness(Image image, Image before, float factor) {
    int stride = 3 * image.side;
    for (int y = 1; y + 1 < image.side; y++) {
        uint8_t *out = image.pixels + static_cast<size_t>(y) * stride;
        smooth_line(before.at(0, y), stride, out);
        blend_line(out + 3, before.at(1, y), factor, out + 3, stride - 6);
    }
}

// Where a pixel comes from: four neighbours, and how far it lies to the right of and below the first.
struct Corners {
    const uint8_t *upper_left, *upper_right, *lower_left, *lower_right;
    double right, down;
};

void blend_corners(const Corners &from, uint8_t *out) {
    for (int i = 0; i < 3; i++) {
        double upper = from.upper_left[i] + (from.upper_right[i] - from.upper_left[i]) * from.right;
        double lower = from.lower_left[i] + (from.lower_right[i] - from.lower_left[i]) * from.right;
        out[i] = static_cast<uint8_t>(upper + (lower - upper) * from.down);
    }
}

template <void blend(const Corners &, uint8_t *)>
inline __attribute__((always_inline)) void transform_line(Image before, int y, const double *m, uint8_t *out) {
    int side = before.side;
    for (int x = 0; x < side; x++, out += 3) {
        double from_x = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2];
        double from_y = m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5];
        if (!(from_x >= 0 && from_x < side && from_y >= 0 && from_y < side)) {
            out[0] = out[1] = out[2] = 0;
            continue;
        }
        from_x -= 0.5;
        from_y -= 0.5;
        int left = from_x < 0 ? -1 : static_cast<int>(from_x), top = from_y < 0 ? -1 : static_cast<int>(from_y);
        int x0 = std::max(left, 0), x1 = std::min(left + 1, side - 1);
        int y0 = std::max(top, 0), y1 = std::min(top + 1, side - 1);
        blend({before.at(x0, y0), before.at(x1, y0), before.at(x0, y1), before.at(x1, y1),
               from_x - left, from_y - top}, out);
    }
}

void line_by_line(Image before, int y, const double *m, uint8_t *out) {
    transform_line<blend_corners>(before, y, m, out);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

// A pixel's three values and an unused one; reads one byte past the pixel.
AVX2 inline __m256d load_pixel(const uint8_t *pixel) {
    int four;
    std::memcpy(&four, pixel, 4);
    return _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four)));
}

AVX2 inline __m256d between(__m256d from, __m256d to, __m256d share) {
    return _mm256_add_pd(from, _mm256_mul_pd(_mm256_sub_pd(to, from), share));
}

AVX2 inline void blend_corners_avx2(const Corners &from, uint8_t *out) {
    __m256d right = _mm256_set1_pd(from.right);
    __m256d upper = between(load_pixel(from.upper_left), load_pixel(from.upper_right), right);
    __m256d lower = between(load_pixel(from.lower_left), load_pixel(from.lower_right), right);
    __m128i values = _mm256_cvttpd_epi32(between(upper, lower, _mm256_set1_pd(from.down)));
    const __m128i low_bytes = _mm_setr_epi8(0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    int four = _mm_cvtsi128_si32(_mm_shuffle_epi8(values, low_bytes));
    std::memcpy(out, &four, 3);
}

AVX2 void line_by_line_avx2(Image before, int y, const double *m, uint8_t *out) {
    transform_line<blend_corners_avx2>(before, y, m, out);
}
#endif

// In Pillow's 16.16 fixed point.
void affine_nearest(Image image, Image before, const double *m) {
    auto fixed = [](double value) { return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)); };
    int64_t line_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), line_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    int64_t step_x = fixed(m[0]), step_y = fixed(m[3]), next_x = fixed(m[1]), next_y = fixed(m[4]);
    int64_t end = int64_t{image.side} << 16;
    uint8_t *out = image.pixels;
    for (int y = 0; y < image.side; y++, line_x += next_x, line_y += next_y) {
        int64_t at_x = line_x, at_y = line_y;
        for (int x = 0; x < image.side; x++, out += 3, at_x += step_x, at_y += step_y) {
            bool inside = at_x >= 0 && at_x < end && at_y >= 0 && at_y < end;
            const uint8_t *from = before.at(inside ? at_x >> 16 : 0, inside ? at_y >> 16 : 0);
            for (int i = 0; i < 3; i++) {
                out[i] = inside ? from[i] : 0;
            }
        }
    }
}

// Whether every output pixel is one input pixel, so that there is nothing to blend.
bool is_shift(const double *m) {
    return m[0] == 1 && m[1] == 0 && m[3] == 0 && m[4] == 1 && m[2] == std::floor(m[2]) && m[5] == std::floor(m[5]);
}

void affine_linear(Image image, Image before, const double *m) {
    if (is_shift(m)) {
        return affine_nearest(image, before, m);
    }
    auto transform = line_by_line;
#ifdef __x86_64__
    transform = __builtin_cpu_supports("avx2") ? line_by_line_avx2 : line_by_line;
#endif
    for (int y = 0; y < image.side; y++) {
        transform(before, y, m, image.pixels + static_cast<size_t>(3) * y * image.side);
    }
}

void apply(const Operation &operation, Image image, Image before, std::vector<uint8_t> &memory) {
    const double *values = operation.values;
    float factor = static_cast<float>(values[0]);
    switch (operation.kind) {
        case POSTERIZE: return posterize(image, static_cast<int>(values[0]));
        case SOLARIZE: return solarize(image, values[0]);
        case AUTOCONTRAST: return autocontrast(image, memory);
        case EQUALIZE: return equalize(image);
        case COLOR: return color(image, memory, factor);
        case CONTRAST: return contrast(image, factor);
        case BRIGHTNESS: return blend_with(image, 0, factor);
        case SHARPNESS: return sharpness(image, before, factor);
        case AFFINE_LINEAR: return affine_linear(image, before, values);
        case AFFINE_NEAREST: return affine_nearest(image, before, values);
    }
}

}  // namespace

void augment(Row &row, std::vector<uint8_t> &memory) {
    Image image{row.pixels, row.side};
    for (int i = 0; i < row.operation_count; i++) {
        const Operation &operation = row.operations[i];
        Image before = image;
        if (operation.kind >= SHARPNESS) {
            memory.resize(std::max<size_t>(memory.size(), image.values() + 1));    // reading a pixel reads 4 bytes
            before.pixels = static_cast<uint8_t *>(std::memcpy(memory.data(), image.pixels, image.values()));
        }
        apply(operation, image, before, memory);
    }
}
