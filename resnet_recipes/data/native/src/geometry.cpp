#include "geometry.h"

#include <algorithm>
#include <cmath>

namespace {

constexpr int TRIES = 10, DISTORTED_TRIES = 100;

// The full image, cropped if it is too wide or too tall.
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

// TensorFlow's sample_distorted_bounding_box, where the box is the full image and a crop must cover a tenth of it;
// the full image if no attempt fits.
Box distorted_crop(const double *draws, double height, double width) {
    const double *scale = draws + 4 * DISTORTED_TRIES, *ratio = scale + 2;
    double least = scale[0] * height * width, most = scale[1] * height * width;
    for (int attempt = 0; attempt < DISTORTED_TRIES; attempt++, draws += 4) {
        double aspect = ratio[0] + (ratio[1] - ratio[0]) * draws[0];
        double lowest = std::rint(std::sqrt(least / aspect)), highest = std::rint(std::sqrt(most / aspect));
        if (std::rint(highest * aspect) > width) {
            highest = std::floor((width + 0.5 - 1e-7) / aspect);
            highest -= std::rint(highest * aspect) > width;
        }
        highest = std::min(highest, height);
        lowest = std::min(lowest, highest);
        double h = lowest + std::floor(draws[1] * (highest - lowest + 1));
        h += h * std::rint(h * aspect) < least;         // rounding may be one pixel short
        h -= h * std::rint(h * aspect) > most;
        double w = std::rint(h * aspect), area = h * w;
        if (area >= std::max(least, 0.1 * height * width) && area <= most && area > 0 && w <= width && h <= height) {
            return {std::floor(draws[3] * (width - w)), std::floor(draws[2] * (height - h)), w, h};
        }
    }
    return {0, 0, width, height};
}

// The full image with a shorter side of `resize`. As in torchvision, the longer side is rounded down, and offsets are
// rounded half to even.
Cut center(const Row &row, int height, int width) {
    double side = row.resize;
    int h = height <= width ? row.resize : static_cast<int>(std::floor(side * height / width));
    int w = height <= width ? static_cast<int>(std::floor(side * width / height)) : row.resize;
    int top = static_cast<int>(std::rint((h - row.output_size) / 2.0));
    int left = static_cast<int>(std::rint((w - row.output_size) / 2.0));
    return {{0, 0, static_cast<double>(width), static_cast<double>(height)}, h, w, top, left};
}

}  // namespace

Cut cut_of(const Row &row, int height, int width) {
    if (row.geometry == CENTER) {
        return center(row, height, width);
    }
    Box box = row.box;
    if (row.geometry == CROP) {
        box = random_crop(row.draws, height, width);
    } else if (row.geometry == DISTORTED) {
        box = distorted_crop(row.draws, height, width);
    }
    return {box, row.output_size, row.output_size, 0, 0};
}

bool Cut::fits(const Row &row) const {
    bool inside = box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&      // false for NaN
                  box.left < row.width && box.top < row.height &&       // even for a very narrow box
                  box.left + box.width <= row.width && box.top + box.height <= row.height;
    return inside && top >= 0 && left >= 0 && top + row.output_size <= height && left + row.output_size <= width;
}
