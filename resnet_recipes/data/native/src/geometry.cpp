#include "geometry.h"

#include <algorithm>
#include <cmath>

namespace {

constexpr int TRIES = 10;

// The whole image, cut at the sides that make it too long or too tall.
Box widest_crop(double height, double width, double least, double most) {
    double kept_height = std::min(height, std::max(1.0, std::rint(width / least)));
    double kept_width = std::min(width, std::max(1.0, std::rint(height * most)));
    return {std::floor((width - kept_width) / 2), std::floor((height - kept_height) / 2), kept_width, kept_height};
}

Box random_crop(const double *draws, double height, double width) {
    const double *ratio = draws + 4 * TRIES;
    for (int attempt = 0; attempt < TRIES; attempt++, draws += 4) {
        double area = height * width * draws[0];
        double w = std::rint(std::sqrt(area * draws[1])), h = std::rint(std::sqrt(area / draws[1]));
        if (w > 0 && w <= width && h > 0 && h <= height) {
            return {std::floor(draws[3] * (width - w + 1)), std::floor(draws[2] * (height - h + 1)), w, h};
        }
    }
    return widest_crop(height, width, ratio[0], ratio[1]);
}

// The whole image with a shorter side of `resize`. As in torchvision, the longer one is rounded down, offsets half to
// even.
Cut centre(const Row &row, int height, int width) {
    double side = row.resize;
    int h = height <= width ? row.resize : static_cast<int>(std::floor(side * height / width));
    int w = height <= width ? static_cast<int>(std::floor(side * width / height)) : row.resize;
    int top = static_cast<int>(std::rint((h - row.side) / 2.0));
    int left = static_cast<int>(std::rint((w - row.side) / 2.0));
    return {{0, 0, static_cast<double>(width), static_cast<double>(height)}, h, w, top, left};
}

}  // namespace

Cut cut_of(const Row &row, int height, int width) {
    if (row.geometry == CENTRE) {
        return centre(row, height, width);
    }
    Box box = row.geometry == CROP ? random_crop(row.draws, height, width) : row.box;
    return {box, row.side, row.side, 0, 0};
}

bool Cut::fits(const Row &row) const {
    bool inside = box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&      // false for NaN
                  box.left + box.width <= row.width && box.top + box.height <= row.height;
    return inside && top >= 0 && left >= 0 && top + row.side <= height && left + row.side <= width;
}
