// Affine maps of square images computed as in Pillow.
#pragma once
#include <cstddef>
#include <cstdint>

// A square RGB image.
struct Image {
    uint8_t *pixels;
    int side;

    int values() const { return 3 * side * side; }
    const uint8_t *at(int x, int y) const { return pixels + 3 * (static_cast<size_t>(y) * side + x); }
};

// Fill `image` with bilinear values of `before`, black outside, where the pixel (x, y) comes from m[0] x + m[1] y + m[2]
// and m[3] x + m[4] y + m[5]. Reads one byte past `before`.
void affine(Image image, Image before, const double *m);
