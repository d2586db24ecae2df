// Shrunk images in memory that processes share. Any of them puts images there and reads them, without locks.
//
// An image's entry is 0 while it is not there, and TAKEN once somebody stores it, or found no room. Else it says where:
// 38 bits for the place in units of 64 bytes, counted from 1; 13 each for height and width, less one.
//
// If the system runs short of memory, a process lowers the capacity, and then frees what is behind it: those images
// are there no longer. A reader finds out afterwards, by is_kept, that what it has read may have been freed meanwhile.
#pragma once
#include "source.h"

// Point `bytes` at the row's image if it is there, with its size in the row.
bool recall(Row &row, Bytes &bytes);

// Whether the row's image is there.
bool is_kept(const Row &row);

// Put the row's image there, of the row's size, unless it is there or there is no room.
void keep(const Row &row, Bytes bytes);
