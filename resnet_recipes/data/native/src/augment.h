// Augmentation operations on a finished row; the pixels match Pillow.
#pragma once
#include <vector>

#include "row.h"

enum OperationKind : int32_t {
    POSTERIZE = 0,      // values[0]: number of bits to keep
    SOLARIZE = 1,       // values[0]: values from this gray level up are inverted
    AUTOCONTRAST = 2,
    EQUALIZE = 3,
    COLOR = 4,          // values[0]: factor, for this and the next three
    CONTRAST = 5,
    BRIGHTNESS = 6,
    SHARPNESS = 7,
    AFFINE = 8,         // values: Pillow's six coefficients, from output to input coordinates; bilinear
    HUE = 9,            // values[0]: steps of 1/255 of a turn, 0 to 255
};

struct Operation {
    int64_t kind;
    double values[6];
};

// Apply the row's operations to its pixels; `memory` is scratch.
void augment(Row &row, std::vector<uint8_t> &memory);
