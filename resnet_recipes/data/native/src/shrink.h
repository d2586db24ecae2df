// Shrink a full image by area averaging: each new pixel is the mean over the area that it covers.
#pragma once
#include <cstdint>
#include <vector>

#include "resize.h"

// The weights in one direction: output i is the sum of weights[i * taps + j] * source[first[i] + j], j < count[i].
struct AreaAxis {
    int taps = 0;
    std::vector<int> first, count;
    std::vector<float> weights;

    // Weights from `length` source pixels to `size` pixels; `size` is at most `length`.
    void weigh(int length, int size);
};

// Every value is a sum of float products in this order: the rows of a column, then those sums. Bit-identical on every
// processor, and to resnet_recipes/data/images/shrink.py.
class Shrinker {
  public:
    int height = 0, width = 0;          // output size

    // Choose the output size: the image size, or a longer side of `longest`, as in shrink.py.
    void aim(int image_height, int image_width, int longest);

    // Write [height, width, 3] for an image of this size, whose rows are read once, from column 0 on.
    void run(RowSource &source, int image_height, int image_width, uint8_t *out);

  private:
    AreaAxis rows_, columns_;
    std::vector<float> sums_;
};
