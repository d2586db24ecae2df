// A row's bytes: in memory, or in a regular file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "row.h"

struct Bytes {
    const uint8_t *data;
    size_t size;
};

constexpr size_t MOST_BYTES = size_t{256} << 20;     // of one encoded image

// A row's file, opened early so that the system fetches it meanwhile; nothing for a row in memory.
class File {
  public:
    explicit File(const Row &row);
    ~File();
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    // Read the whole file; return 0 or an errno. Never more than `fstat` says: a growing file cannot fill the memory.
    int read_all(std::vector<uint8_t> &memory, size_t &size) const;

  private:
    int descriptor_ = -1, error_ = 0;
};

// Point `bytes` at the row's image, reading it into `memory` if it is in a file, or return why not.
Status read_source(Row &row, const File &file, std::vector<uint8_t> &memory, Bytes &bytes);
