// The inner loops of a resize with AVX2.
#ifdef __x86_64__
#include <algorithm>
#include <immintrin.h>

#include "resize.h"

#define AVX2 __attribute__((target("avx2")))

namespace {

AVX2 inline __m128i load(const uint8_t *from) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)); }

AVX2 inline __m256i load_row(const uint8_t *from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
}

AVX2 inline __m256i load(const int16_t *from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)); }

// Return pixels of two outputs, one in each half.
AVX2 inline __m256i load_both(const uint8_t *one, const uint8_t *other) {
    return _mm256_set_m128i(load(other), load(one));
}

// Return the first or the second pair of taps: (r, g, b, r', g', b') becomes (r, r'), (g, g'), (b, b').
template <int at>
AVX2 inline __m256i pair_up(__m256i pixels) {
    const __m256i interleave = _mm256_setr_epi8(
        at, -1, at + 3, -1, at + 1, -1, at + 4, -1, at + 2, -1, at + 5, -1, -1, -1, -1, -1,
        at, -1, at + 3, -1, at + 1, -1, at + 4, -1, at + 2, -1, at + 5, -1, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(pixels, interleave);
}

// Add the product of each pair with its pair of weights.
AVX2 inline __m256i add_pairs(__m256i sum, __m256i pairs, __m256i weights) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, weights));
}

// Return the combined sums of coarse and fine products, without the fraction.
AVX2 inline __m256i join(__m256i coarse, __m256i fine) {
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(coarse, FINE_BITS), fine), EXACT_BITS);
}

// Sums for four outputs: 0 and 1 are `even`, 2 and 3 are `odd`.
template <bool is_exact>
struct Sums {
    __m256i even, odd, even_fine, odd_fine;

    AVX2 void clear() {
        even = odd = is_exact ? _mm256_setzero_si256() : _mm256_set1_epi32(1 << (WEIGHT_BITS - 1));
        even_fine = odd_fine = _mm256_set1_epi32(1 << (EXACT_BITS - 1));
    }

    template <int at>
    AVX2 void add(__m256i even_pixels, __m256i odd_pixels, const int16_t *weights, const int16_t *fine) {
        __m256i even_pairs = pair_up<at>(even_pixels), odd_pairs = pair_up<at>(odd_pixels);
        even = add_pairs(even, even_pairs, load(weights));
        odd = add_pairs(odd, odd_pairs, load(weights + 16));
        if constexpr (is_exact) {
            even_fine = add_pairs(even_fine, even_pairs, load(fine));
            odd_fine = add_pairs(odd_fine, odd_pairs, load(fine + 16));
        }
    }
};

template <bool is_exact>
AVX2 void blend_pixels(const uint8_t *row, const Columns &columns, uint8_t *out) {
    const __m128i without_fourth = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const int16_t *weights = columns.weights.data(), *fine = columns.fine.data();
    for (int x = 0; x < columns.outputs; x += Columns::TOGETHER, out += 3 * Columns::TOGETHER) {
        const int *first = &columns.first[x];
        Sums<is_exact> sums;
        sums.clear();
        for (int pair = 0; pair < columns.pairs; pair += 2) {
            const uint8_t *from = row + 6 * pair;
            __m256i even = load_both(from + first[0], from + first[1]);
            __m256i odd = load_both(from + first[2], from + first[3]);
            sums.template add<0>(even, odd, weights, fine);
            weights += Columns::NEXT_PAIR, fine += Columns::NEXT_PAIR;
            if (pair + 1 < columns.pairs) {
                sums.template add<6>(even, odd, weights, fine);
                weights += Columns::NEXT_PAIR, fine += Columns::NEXT_PAIR;
            }
        }
        __m256i even = is_exact ? join(sums.even, sums.even_fine) : _mm256_srai_epi32(sums.even, WEIGHT_BITS);
        __m256i odd = is_exact ? join(sums.odd, sums.odd_fine) : _mm256_srai_epi32(sums.odd, WEIGHT_BITS);
        __m256i gray = _mm256_packs_epi32(even, odd);
        gray = _mm256_packus_epi16(gray, gray);         // pixels 0, 2, 0, 2 and 1, 3, 1, 3, with a fourth value each
        __m128i four = _mm_unpacklo_epi32(_mm256_castsi256_si128(gray), _mm256_extracti128_si256(gray, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_shuffle_epi8(four, without_fourth));
    }
}

AVX2 inline __m256i weighed(const uint8_t *from, __m256i weight) {
    return _mm256_mulhrs_epi16(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load(from)), 7), weight);
}

AVX2 void blend_rows(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin, int end) {
    int q = begin;
    for (; q + 32 <= end; q += 32) {
        __m256i low = _mm256_set1_epi16(1 << (GRAY_BITS - 1)), high = low;
        for (int j = 0; j < count; j++) {
            __m256i weight = _mm256_set1_epi16(static_cast<int16_t>(weights[j]));
            low = _mm256_add_epi16(low, weighed(rows[j] + q, weight));
            high = _mm256_add_epi16(high, weighed(rows[j] + q + 16, weight));
        }
        __m256i gray = _mm256_packus_epi16(_mm256_srai_epi16(low, GRAY_BITS), _mm256_srai_epi16(high, GRAY_BITS));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + q), _mm256_permute4x64_epi64(gray, 0b11011000));
    }
    SCALAR.blend_rows(rows, weights, count, out, q, end);
}

AVX2 void blend_rows_exactly(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin,
                             int end) {
    const __m256i zero = _mm256_setzero_si256();
    int q = begin;
    for (; q + 32 <= end; q += 32) {
        __m256i coarse[4] = {zero, zero, zero, zero}, fine[4];
        std::fill(fine, fine + 4, _mm256_set1_epi32(1 << (EXACT_BITS - 1)));
        for (int j = 0; j < count; j += 2) {
            bool is_pair = j + 1 < count;
            int one = weights[j], other = is_pair ? weights[j + 1] : 0;
            __m256i coarse_weights = _mm256_set1_epi32((other >> FINE_BITS) * (1 << 16) | (one >> FINE_BITS & 0xFFFF));
            __m256i fine_weights = _mm256_set1_epi32((other & FINE) << 16 | (one & FINE));
            __m256i upper = load_row(rows[j] + q), lower = load_row(rows[j + is_pair] + q);
            __m256i left = _mm256_unpacklo_epi8(upper, lower), right = _mm256_unpackhi_epi8(upper, lower);
            __m256i pairs[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                                _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};
            for (int part = 0; part < 4; part++) {
                coarse[part] = add_pairs(coarse[part], pairs[part], coarse_weights);
                fine[part] = add_pairs(fine[part], pairs[part], fine_weights);
            }
        }
        __m256i left = _mm256_packs_epi32(join(coarse[0], fine[0]), join(coarse[1], fine[1]));
        __m256i right = _mm256_packs_epi32(join(coarse[2], fine[2]), join(coarse[3], fine[3]));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + q), _mm256_packus_epi16(left, right));
    }
    SCALAR.blend_rows_exactly(rows, weights, count, out, q, end);
}

const Instructions AVX2_LOOPS = {"AVX2", blend_pixels<false>, blend_pixels<true>, blend_rows, blend_rows_exactly};

}  // namespace

const Instructions &best_instructions() { return __builtin_cpu_supports("avx2") ? AVX2_LOOPS : SCALAR; }
#endif
