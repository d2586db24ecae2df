// One thread's memory, reused for every image.
#pragma once
#include <vector>

#include "huffman.h"
#include "resize.h"
#include "shrink.h"

struct Workspace {
    std::vector<uint8_t> file, line, augmented, shrunk;
    Resizer resizer;
    Shrinker shrinker;
    HuffmanScan scan;

    // Shrink the row's image to the size of the shrinker, or by `row.longest`.
    void shrink(RowSource &source, const Row &row) {
        if (row.longest) {
            shrinker.aim(row.height, row.width, row.longest);
        }
        shrunk.resize(size_t{3} * shrinker.height * shrinker.width);
        shrinker.run(source, row.height, row.width, shrunk.data());
    }

    // Free the memory of an unusually large image.
    void trim() {
        constexpr size_t KEPT = 8 << 20;
        scan.trim(KEPT);
        for (std::vector<uint8_t> *memory : {&file, &line, &shrunk}) {
            if (memory->capacity() > KEPT) {
                std::vector<uint8_t>().swap(*memory);
            }
        }
    }
};
