// The inner loops of a resize with AVX2.
#ifdef __x86_64__
#include <immintrin.h>

#include "resize.h"

#define AVX2 __attribute__((target("avx2")))

namespace {

AVX2 inline __m128i load(const uint8_t *from) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)); }

// Add a pair of taps to two outputs, one in each half: (r, g, b, r', g', b') becomes (r, r'), (g, g'), (b, b'), each
// times (weight, weight').
AVX2 inline __m256i add_pair(__m256i sum, const uint8_t *one, const uint8_t *other, const int16_t *weights) {
    const __m256i interleave = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,
                                                0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    __m256i pixels = _mm256_shuffle_epi8(_mm256_set_m128i(load(other), load(one)), interleave);
    __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(weights));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pixels, pairs));
}

AVX2 void blend_pixels(const uint8_t *row, const Columns &columns, uint8_t *out) {
    const __m128i without_fourth = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i half = _mm256_set1_epi32(1 << (WEIGHT_BITS - 1));
    const int16_t *weights = columns.weights.data();
    for (int x = 0; x < columns.outputs; x += Columns::TOGETHER, out += 3 * Columns::TOGETHER) {
        const int *first = &columns.first[x];
        __m256i even = half, odd = half;
        for (int at = 0; at < 6 * columns.pairs; at += 6, weights += Columns::NEXT_PAIR) {
            even = add_pair(even, row + first[0] + at, row + first[1] + at, weights);
            odd = add_pair(odd, row + first[2] + at, row + first[3] + at, weights + 16);
        }
        __m256i grey = _mm256_packs_epi32(_mm256_srai_epi32(even, WEIGHT_BITS), _mm256_srai_epi32(odd, WEIGHT_BITS));
        grey = _mm256_packus_epi16(grey, grey);         // pixels 0, 2, 0, 2 and 1, 3, 1, 3, with a fourth value each
        __m128i four = _mm_unpacklo_epi32(_mm256_castsi256_si128(grey), _mm256_extracti128_si256(grey, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_shuffle_epi8(four, without_fourth));
    }
}

AVX2 inline __m256i weighed(const uint8_t *from, __m256i weight) {
    return _mm256_mulhrs_epi16(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load(from)), 7), weight);
}

AVX2 void blend_rows(const uint8_t *const *rows, const int16_t *weights, int count, uint8_t *out, int begin, int end) {
    int q = begin;
    for (; q + 32 <= end; q += 32) {
        __m256i low = _mm256_set1_epi16(1 << (GREY_BITS - 1)), high = low;
        for (int j = 0; j < count; j++) {
            __m256i weight = _mm256_set1_epi16(weights[j]);
            low = _mm256_add_epi16(low, weighed(rows[j] + q, weight));
            high = _mm256_add_epi16(high, weighed(rows[j] + q + 16, weight));
        }
        __m256i grey = _mm256_packus_epi16(_mm256_srai_epi16(low, GREY_BITS), _mm256_srai_epi16(high, GREY_BITS));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + q), _mm256_permute4x64_epi64(grey, 0b11011000));
    }
    SCALAR.blend_rows(rows, weights, count, out, q, end);
}

const Instructions AVX2_LOOPS = {"AVX2", blend_pixels, blend_rows};

}  // namespace

const Instructions &best_instructions() { return __builtin_cpu_supports("avx2") ? AVX2_LOOPS : SCALAR; }
#endif
