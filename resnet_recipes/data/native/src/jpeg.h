// Decode the part of a JPEG that a row needs, and resize it.
#pragma once
#include "source.h"
#include "workspace.h"

constexpr int64_t MOST_PIXELS = 64'000'000;     // of one image, as in the Python decoder

// Write the row's pixels, or return why not; no pixel of another image is ever written.
Status decode_jpeg(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions);

// Decode the whole image and shrink it into `work.shrunk`, to the size that `work.shrinker` has, or by `row.longest`.
Status shrink_jpeg(Bytes bytes, Row &row, Workspace &work);
