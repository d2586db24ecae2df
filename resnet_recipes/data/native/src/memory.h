// Shrunk images in memory shared by processes. Any process stores and reads images, without locks.
//
// An image's entry is 0 while the image is absent, and TAKEN once a process starts to store it or finds no space.
// Otherwise it is the location: 38 bits for the position in units of 64 bytes, counted from 1; 13 bits each for
// height - 1 and width - 1.
//
// If the system runs short of memory, a process lowers the capacity and then frees the memory behind it; those images
// are gone. A reader checks afterwards with is_kept whether the pixels that it read may have been freed meanwhile.
#pragma once
#include "source.h"

// Point `bytes` to the row's image if it is in memory, and write its size to the row.
bool recall(Row &row, Bytes &bytes);

// Whether the row's image is in memory.
bool is_kept(const Row &row);

// Store the row's image, of the row's size, unless it is already in memory or there is no space.
void keep(const Row &row, Bytes bytes);
