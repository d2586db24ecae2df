// The inner loops of a resize with NEON, which every 64-bit Arm processor has.
#ifdef __aarch64__
#include <arm_neon.h>

#include "resize.h"

namespace {

// Return the combined sums of coarse and fine products, without the fraction.
inline int32x4_t join(int32x4_t coarse, int32x4_t fine) {
    return vshrq_n_s32(vaddq_s32(vshlq_n_s32(coarse, FINE_BITS), fine), EXACT_BITS);
}

inline int32x4_t add_pair(int32x4_t sum, int16x8_t two, const int16_t *weights) {
    sum = vmlal_n_s16(sum, vget_low_s16(two), weights[0]);
    return vmlal_n_s16(sum, vget_low_s16(vextq_s16(two, two, 3)), weights[1]);
}

template <bool is_exact>
void blend_pixels(const uint8_t *row, const Columns &columns, uint8_t *out) {
    for (int x = 0; x < columns.outputs; x++, out += 3) {
        const uint8_t *pixel = row + columns.first[x];
        int32x4_t sum = vdupq_n_s32(is_exact ? 0 : 1 << (WEIGHT_BITS - 1)), fine = vdupq_n_s32(1 << (EXACT_BITS - 1));
        for (int pair = 0; pair < columns.pairs; pair++, pixel += 6) {
            int16x8_t two = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(pixel)));
            sum = add_pair(sum, two, &columns.weights[columns.place(x, pair)]);
            if constexpr (is_exact) {
                fine = add_pair(fine, two, &columns.fine[columns.place(x, pair)]);
            }
        }
        sum = is_exact ? join(sum, fine) : vshrq_n_s32(sum, WEIGHT_BITS);
        uint16x4_t narrow = vqmovun_s32(sum);
        vst1_u8(out, vqmovn_u16(vcombine_u16(narrow, narrow)));
    }
}

inline int16x8_t weighed(uint8x8_t gray, int16_t weight) {
    return vqrdmulhq_n_s16(vreinterpretq_s16_u16(vshll_n_u8(gray, 7)), weight);
}

void blend_rows(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin, int end) {
    int q = begin;
    for (; q + 16 <= end; q += 16) {
        int16x8_t low = vdupq_n_s16(1 << (GRAY_BITS - 1)), high = low;
        for (int j = 0; j < count; j++) {
            uint8x16_t gray = vld1q_u8(rows[j] + q);
            int16_t weight = static_cast<int16_t>(weights[j]);
            low = vaddq_s16(low, weighed(vget_low_u8(gray), weight));
            high = vaddq_s16(high, weighed(vget_high_u8(gray), weight));
        }
        uint8x8_t left = vqmovun_s16(vshrq_n_s16(low, GRAY_BITS)), right = vqmovun_s16(vshrq_n_s16(high, GRAY_BITS));
        vst1q_u8(out + q, vcombine_u8(left, right));
    }
    SCALAR.blend_rows(rows, weights, count, out, q, end);
}

void blend_rows_exactly(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *out, int begin,
                        int end) {
    int q = begin;
    for (; q + 8 <= end; q += 8) {
        int32x4_t low = vdupq_n_s32(1 << (EXACT_BITS - 1)), high = low;
        for (int j = 0; j < count; j++) {
            uint16x8_t gray = vmovl_u8(vld1_u8(rows[j] + q));
            low = vmlaq_n_s32(low, vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(gray))), weights[j]);
            high = vmlaq_n_s32(high, vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(gray))), weights[j]);
        }
        uint16x4_t left = vqmovun_s32(vshrq_n_s32(low, EXACT_BITS)), right = vqmovun_s32(vshrq_n_s32(high, EXACT_BITS));
        vst1_u8(out + q, vqmovn_u16(vcombine_u16(left, right)));
    }
    SCALAR.blend_rows_exactly(rows, weights, count, out, q, end);
}

const Instructions NEON_LOOPS = {"NEON", blend_pixels<false>, blend_pixels<true>, blend_rows, blend_rows_exactly};

}  // namespace

const Instructions &best_instructions() { return NEON_LOOPS; }
#endif
