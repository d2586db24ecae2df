// Shrink a whole image by the mean over the area that each new pixel covers.
#pragma once
#include <cstdint>
#include <vector>

#include "resize.h"

// The weights in one direction: output i is the sum of weights[i * taps + j] * source[first[i] + j], j < count[i].
struct AreaAxis {
    int taps = 0;
    std::vector<int> first, count;
    std::vector<float> weights;

    // `length` source pixels become `size`, at most as many.
    void weigh(int length, int size);
};

// Every value is the sum of float products in this order: the rows of a column, then those sums. The same bits on every
// processor, and as in resnet_recipes/data/images/shrink.py.
class Shrinker {
  public:
    int height = 0, width = 0;          // of the output

    // Choose the output's size: the image's, or with a longer side of `longest`, as shrink.py's shrunk_size.
    void aim(int image_height, int image_width, int longest);

    // Write [height, width, 3] for an image of this size, whose rows are read once, from column 0 on.
    void run(RowSource &source, int image_height, int image_width, uint8_t *out);

  private:
    AreaAxis rows_, columns_;
    std::vector<float> sums_;
};
