// One thread's memory, reused for every image.
#pragma once
#include <vector>

#include "huffman.h"
#include "resize.h"

struct Workspace {
    std::vector<uint8_t> file, line, augmented;
    Resizer resizer;
    HuffmanScan scan;

    // Free the memory of an unusually large image.
    void trim() {
        constexpr size_t KEPT = 8 << 20;
        scan.trim(KEPT);
        for (std::vector<uint8_t> *memory : {&file, &line}) {
            if (memory->capacity() > KEPT) {
                std::vector<uint8_t>().swap(*memory);
            }
        }
    }
};
