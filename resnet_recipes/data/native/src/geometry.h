// Which part of an image a row takes.
#pragma once
#include "row.h"

// A box that is resized to `height` x `width`, of which the row keeps `side` x `side` from (top, left).
struct Cut {
    Box box;
    int height, width, top, left;

    // Tell whether the box lies inside the row's image, and the output inside the resized box.
    bool fits(const Row &row) const;
};

// Return the cut of an image of this size; random crops are those of resnet_recipes/data/crop.py to the bit.
Cut cut_of(const Row &row, int height, int width);
