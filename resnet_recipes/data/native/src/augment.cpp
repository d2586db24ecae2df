#include "augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "affine.h"

// For loops that the compiler vectorizes, with a version per instruction set; the dynamic loader picks one.
#if defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

namespace {

using Table = std::array<uint8_t, 256>;

int gray_of(const uint8_t *pixel) { return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16; }

// Pillow's blend: it truncates between the two images, and also clips beyond them.
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
        for (int gray = 0; gray < 256; gray++) {
            tables[c][gray] = static_cast<uint8_t>(std::clamp(static_cast<int>(gray * scale + offset), 0, 255));
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
        for (int gray = 0; gray < 256; sum += counts[c][gray++]) {
            tables[c][gray] = static_cast<uint8_t>(step ? std::min(sum / step, 255) : gray);
        }
    }
    look_up(image, tables);
}

FOR_EACH_PROCESSOR void gray_line(const uint8_t *line, int pixels, uint8_t *out) {
    for (int x = 0; x < pixels; x++) {
        out[x] = static_cast<uint8_t>(gray_of(line + 3 * x));
    }
}

FOR_EACH_PROCESSOR void repeat_line(const uint8_t *grays, int pixels, uint8_t *out) {
    for (int x = 0; x < pixels; x++) {
        out[3 * x] = out[3 * x + 1] = out[3 * x + 2] = grays[x];
    }
}

void color(Image image, std::vector<uint8_t> &memory, float factor) {
    int stride = 3 * image.side;
    memory.resize(std::max<size_t>(memory.size(), stride + image.side));
    uint8_t *gray = memory.data(), *grays = gray + image.side;
    for (int y = 0; y < image.side; y++) {
        uint8_t *line = image.pixels + static_cast<size_t>(y) * stride;
        gray_line(line, image.side, gray);
        repeat_line(gray, image.side, grays);
        blend_line(grays, line, factor, line, stride);
    }
}

FOR_EACH_PROCESSOR void blend_with(Image image, int gray, float factor) {
    for (int at = 0; at < image.values(); at++) {
        image.pixels[at] = blended(gray, image.pixels[at], factor);
    }
}

void contrast(Image image, std::vector<uint8_t> &memory, float factor) {
    int pixels = image.side * image.side;
    memory.resize(std::max<size_t>(memory.size(), pixels));
    gray_line(image.pixels, pixels, memory.data());
    int64_t sum = std::accumulate(memory.begin(), memory.begin() + pixels, int64_t{0});
    blend_with(image, static_cast<int>(static_cast<double>(sum) / pixels + 0.5), factor);
}

// Write the mean over the neighbors of a line; the pixel itself counts five times.
FOR_EACH_PROCESSOR void smooth_line(const uint8_t *line, int stride, uint8_t *out) {
    const uint8_t *above = line - stride, *below = line + stride;
    for (int at = 3; at < stride - 3; at++) {
        int sum = above[at - 3] + above[at] + above[at + 3] + line[at - 3] + 5 * line[at] + line[at + 3] +
                  below[at - 3] + below[at] + below[at + 3];
        out[at] = static_cast<uint8_t>(static_cast<uint16_t>(2 * sum + 13) / 26);
    }
}

// The outermost pixels do not change.
void sharpness(Image image, Image before, float factor) {
    int stride = 3 * image.side;
    for (int y = 1; y + 1 < image.side; y++) {
        uint8_t *out = image.pixels + static_cast<size_t>(y) * stride;
        smooth_line(before.at(0, y), stride, out);
        blend_line(out + 3, before.at(1, y), factor, out + 3, stride - 6);
    }
}

// Rotate the hue of a pixel. Rounds where Pillow does, which keeps hue and saturation as bytes.
void turn_hue(uint8_t *pixel, int steps) {
    int red = pixel[0], green = pixel[1], blue = pixel[2];
    int value = std::max({red, green, blue}), range = value - std::min({red, green, blue});
    if (!range) {
        return;
    }
    float spread = static_cast<float>(range), to_red = (value - red) / spread, to_green = (value - green) / spread,
          to_blue = (value - blue) / spread, sector;
    if (red == value) {
        sector = to_blue - to_green;
    } else if (green == value) {
        sector = static_cast<float>(2.0 + to_red - to_blue);
    } else {
        sector = static_cast<float>(4.0 + to_green - to_red);
    }
    float turn = static_cast<float>(std::fmod(sector / 6.0 + 1.0, 1.0));
    int hue = (static_cast<int>(turn * 255.0) + steps) & 255;
    int saturation = static_cast<int>(spread / static_cast<float>(value) * 255.0);
    if (!saturation) {
        pixel[0] = pixel[1] = pixel[2] = static_cast<uint8_t>(value);
        return;
    }
    double position = hue * 6.0 / 255.0;
    float part = static_cast<float>(position - std::floor(position)), strength = static_cast<float>(saturation / 255.0);
    uint8_t high = static_cast<uint8_t>(value);
    uint8_t low = static_cast<uint8_t>(std::round(value * (1.0 - strength)));
    uint8_t falling = static_cast<uint8_t>(std::round(value * (1.0 - strength * part)));
    uint8_t rising = static_cast<uint8_t>(std::round(value * (1.0 - strength * (1.0 - part))));
    const uint8_t colors[6][3] = {{high, rising, low}, {falling, high, low}, {low, high, rising},
                                  {low, falling, high}, {rising, low, high}, {high, low, falling}};
    std::memcpy(pixel, colors[static_cast<int>(position) % 6], 3);
}

void hue(Image image, int steps) {
    for (int at = 0; at < image.values(); at += 3) {
        turn_hue(image.pixels + at, steps);
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
        case CONTRAST: return contrast(image, memory, factor);
        case BRIGHTNESS: return blend_with(image, 0, factor);
        case SHARPNESS: return sharpness(image, before, factor);
        case AFFINE: return affine(image, before, values);
        case HUE: return hue(image, static_cast<int>(values[0]));
    }
}

}  // namespace

void augment(Row &row, std::vector<uint8_t> &memory) {
    Image image{row.pixels, row.output_size};
    for (int i = 0; i < row.operation_count; i++) {
        const Operation &operation = row.operations[i];
        Image before = image;
        if (operation.kind == SHARPNESS || operation.kind == AFFINE) {
            memory.resize(std::max<size_t>(memory.size(), image.values() + 1));    // reading a pixel reads 4 bytes
            before.pixels = static_cast<uint8_t *>(std::memcpy(memory.data(), image.pixels, image.values()));
        }
        apply(operation, image, before, memory);
    }
}
