// Decode the part of a JPEG that a row needs, and resize it.
#pragma once
#include "source.h"
#include "workspace.h"

constexpr int64_t MOST_PIXELS = 64'000'000;     // limit per image, as in the Python decoder

// Write the row's pixels, or return the reason for failure; never writes pixels of another image.
Status decode_jpeg(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions);

// Decode the full image and shrink it into `work.shrunk`, to the size of `work.shrinker`, or by `row.longest`.
Status shrink_jpeg(Bytes bytes, Row &row, Workspace &work);
