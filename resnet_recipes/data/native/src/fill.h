// Fill the rows of a batch, one after the other, in the calling thread.
#pragma once
#include "resize.h"

// `reading[i]` is true while row i is read. The next files are opened meanwhile, so that the thread seldom waits for
// the disk.
void fill(Row *rows, int64_t count, bool *reading, const Instructions &instructions);
