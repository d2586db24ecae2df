#include "affine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

// Source positions of some pixels of a line: four neighbors each, and the offset right of and below the first.
struct Origins {
    static constexpr int MOST = 64;             // a multiple of four
    int32_t upper_left[MOST];                   // byte offset; negative: outside the image
    int32_t to_right[MOST], to_below[MOST];     // bytes from one neighbor to the next; 0 at the edges
    double right[MOST], down[MOST];
};

void find_origins(const double *m, int side, int first, int y, int count, Origins &found) {
    for (int i = 0; i < count; i++) {
        double from_x = m[0] * (first + i + 0.5) + m[1] * (y + 0.5) + m[2];
        double from_y = m[3] * (first + i + 0.5) + m[4] * (y + 0.5) + m[5];
        if (!(from_x >= 0 && from_x < side && from_y >= 0 && from_y < side)) {
            found.upper_left[i] = -1;
            continue;
        }
        from_x -= 0.5;
        from_y -= 0.5;
        int left = from_x < 0 ? -1 : static_cast<int>(from_x), top = from_y < 0 ? -1 : static_cast<int>(from_y);
        int x = std::max(left, 0), y0 = std::max(top, 0);
        found.upper_left[i] = 3 * (y0 * side + x);
        found.to_right[i] = 3 * (std::min(left + 1, side - 1) - x);
        found.to_below[i] = 3 * side * (std::min(top + 1, side - 1) - y0);
        found.right[i] = from_x - left;
        found.down[i] = from_y - top;
    }
}

void blend_corners(const uint8_t *upper, const uint8_t *lower, int to_right, double right, double down, uint8_t *out) {
    for (int i = 0; i < 3; i++) {
        double above = upper[i] + (upper[to_right + i] - upper[i]) * right;
        double below = lower[i] + (lower[to_right + i] - lower[i]) * right;
        out[i] = static_cast<uint8_t>(above + (below - above) * down);
    }
}

template <void find(const double *, int, int, int, int, Origins &),
          void blend(const uint8_t *, const uint8_t *, int, double, double, uint8_t *)>
inline __attribute__((always_inline)) void transform_line(Image before, int y, const double *m, uint8_t *out) {
    Origins from;
    for (int first = 0; first < before.side; first += Origins::MOST) {
        int count = std::min(before.side - first, Origins::MOST);
        find(m, before.side, first, y, count, from);
        for (int i = 0; i < count; i++, out += 3) {
            if (from.upper_left[i] < 0) {
                out[0] = out[1] = out[2] = 0;
            } else {
                const uint8_t *upper = before.pixels + from.upper_left[i];
                blend(upper, upper + from.to_below[i], from.to_right[i], from.right[i], from.down[i], out);
            }
        }
    }
}

void line_by_line(Image before, int y, const double *m, uint8_t *out) {
    transform_line<find_origins, blend_corners>(before, y, m, out);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

AVX2 inline void store(int32_t *out, __m256d values) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm256_cvttpd_epi32(values));
}

// The position of a neighbor and of the next one, clamped to the image, and the pixel's offset from the first.
struct Place {
    __m256d at, next, past;
};

AVX2 inline Place place_of(__m256d from, __m256d is_inside, __m256d last) {
    const __m256d one = _mm256_set1_pd(1), zero = _mm256_setzero_pd();
    from = _mm256_and_pd(_mm256_sub_pd(from, _mm256_set1_pd(0.5)), is_inside);
    __m256d floor = _mm256_floor_pd(from);
    return {_mm256_max_pd(floor, zero), _mm256_min_pd(_mm256_add_pd(floor, one), last), _mm256_sub_pd(from, floor)};
}

AVX2 inline __m256d is_within(__m256d from, __m256d end) {
    return _mm256_and_pd(_mm256_cmp_pd(from, _mm256_setzero_pd(), _CMP_GE_OQ), _mm256_cmp_pd(from, end, _CMP_LT_OQ));
}

// Four pixels at a time; integers are exact in floating point.
AVX2 void find_origins_avx2(const double *m, int side, int first, int y, int count, Origins &found) {
    const __m256d end = _mm256_set1_pd(side), last = _mm256_set1_pd(side - 1), stride = _mm256_set1_pd(3.0 * side);
    const __m256d row_x = _mm256_set1_pd(m[1] * (y + 0.5)), row_y = _mm256_set1_pd(m[4] * (y + 0.5));
    const __m256d three = _mm256_set1_pd(3), outside = _mm256_set1_pd(-1);
    for (int i = 0; i < count; i += 4) {
        __m256d column = _mm256_add_pd(_mm256_set1_pd(first + i), _mm256_setr_pd(0.5, 1.5, 2.5, 3.5));
        __m256d from_x = _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(m[0]), column), row_x);
        __m256d from_y = _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(m[3]), column), row_y);
        from_x = _mm256_add_pd(from_x, _mm256_set1_pd(m[2]));
        from_y = _mm256_add_pd(from_y, _mm256_set1_pd(m[5]));
        __m256d is_inside = _mm256_and_pd(is_within(from_x, end), is_within(from_y, end));
        Place across = place_of(from_x, is_inside, last), down = place_of(from_y, is_inside, last);
        __m256d upper_left = _mm256_add_pd(_mm256_mul_pd(stride, down.at), _mm256_mul_pd(three, across.at));
        store(found.upper_left + i, _mm256_blendv_pd(outside, upper_left, is_inside));
        store(found.to_right + i, _mm256_mul_pd(three, _mm256_sub_pd(across.next, across.at)));
        store(found.to_below + i, _mm256_mul_pd(stride, _mm256_sub_pd(down.next, down.at)));
        _mm256_storeu_pd(found.right + i, across.past);
        _mm256_storeu_pd(found.down + i, down.past);
    }
}

// A pixel's three values and an unused one, each with BIAS added through its bits; reads one byte past the pixel.
constexpr double BIAS = 4503599627370496;       // 2 to the 52: the lowest bit of such a number is worth 1
AVX2 inline __m256d load_pixel(const uint8_t *pixel) {
    int four;
    std::memcpy(&four, pixel, 4);
    __m256i values = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
    return _mm256_or_pd(_mm256_castsi256_pd(values), _mm256_set1_pd(BIAS));
}

AVX2 inline __m256d between(__m256d from, __m256d step, __m256d share) {
    return _mm256_add_pd(from, _mm256_mul_pd(step, share));
}

AVX2 inline __m256d between_pixels(const uint8_t *from, const uint8_t *to, __m256d share) {
    __m256d biased = load_pixel(from);
    return between(_mm256_sub_pd(biased, _mm256_set1_pd(BIAS)), _mm256_sub_pd(load_pixel(to), biased), share);
}

AVX2 inline void blend_corners_avx2(const uint8_t *upper, const uint8_t *lower, int to_right, double right,
                                    double down, uint8_t *out) {
    __m256d share = _mm256_set1_pd(right);
    __m256d above = between_pixels(upper, upper + to_right, share);
    __m256d below = between_pixels(lower, lower + to_right, share);
    __m128i values = _mm256_cvttpd_epi32(between(above, _mm256_sub_pd(below, above), _mm256_set1_pd(down)));
    const __m128i low_bytes = _mm_setr_epi8(0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    int four = _mm_cvtsi128_si32(_mm_shuffle_epi8(values, low_bytes));
    std::memcpy(out, &four, 3);
}

AVX2 void line_by_line_avx2(Image before, int y, const double *m, uint8_t *out) {
    transform_line<find_origins_avx2, blend_corners_avx2>(before, y, m, out);
}
#endif

// Whether every output pixel is one input pixel, so that no blending is needed.
bool is_shift(const double *m) {
    return m[0] == 1 && m[1] == 0 && m[3] == 0 && m[4] == 1 && m[2] == std::floor(m[2]) && m[5] == std::floor(m[5]);
}

// Fill `image` with `before` translated by whole pixels, black outside.
void shift(Image image, Image before, double right, double down) {
    int side = image.side, x = static_cast<int>(std::clamp<double>(right, -side, side));
    int first = std::max(-x, 0), kept = side - std::abs(x);
    std::memset(image.pixels, 0, image.values());
    for (int y = 0; y < side; y++) {
        if (y + down >= 0 && y + down < side) {
            uint8_t *out = image.pixels + 3 * (static_cast<size_t>(y) * side + first);
            std::memcpy(out, before.at(first + x, y + static_cast<int>(down)), static_cast<size_t>(3) * kept);
        }
    }
}

}  // namespace

void affine(Image image, Image before, const double *m) {
    if (is_shift(m)) {
        return shift(image, before, m[2], m[5]);
    }
    auto transform = line_by_line;
#ifdef __x86_64__
    transform = __builtin_cpu_supports("avx2") ? line_by_line_avx2 : line_by_line;
#endif
    for (int y = 0; y < image.side; y++) {
        transform(before, y, m, image.pixels + static_cast<size_t>(3) * y * image.side);
    }
}
