// The part of an image that becomes a row.
#pragma once
#include "row.h"

// A box, resized to `height` x `width`; the row keeps `output_size` x `output_size` of it, from (top, left) on.
struct Cut {
    Box box;
    int height, width, top, left;

    // Whether the box lies inside the row's image, and the output inside the resized box.
    bool fits(const Row &row) const;
};

// Return the cut for an image of this size; random crops are bit-identical to resnet_recipes/data/crop.py.
Cut cut_of(const Row &row, int height, int width);
