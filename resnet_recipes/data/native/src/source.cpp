#include "source.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc.h"
#include "fault.h"
#include "memory.h"

namespace {

class File {
  public:
    // Opening a pipe must not wait for a writer; anything but a regular file is rejected before it is read.
    explicit File(const char *path) : descriptor_(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    ~File() {
        if (descriptor_ >= 0) {
            close(descriptor_);
        }
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    // Read the file; return 0 or an errno. Reads at most the `fstat` size, so a growing file cannot fill memory.
    int read_all(std::vector<uint8_t> &memory, size_t &size) const {
        struct stat facts;
        if (descriptor_ < 0 || fstat(descriptor_, &facts) != 0) {
            return errno;
        }
        if (!S_ISREG(facts.st_mode)) {
            return S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
        }
        if (static_cast<size_t>(facts.st_size) > MOST_BYTES) {
            return EFBIG;
        }
        if (memory.size() < static_cast<size_t>(facts.st_size)) {
            memory.resize(facts.st_size);
        }
        for (size = 0; size < static_cast<size_t>(facts.st_size);) {
            ssize_t got = pread(descriptor_, memory.data() + size, facts.st_size - size, size);
            if (got < 0 && errno != EINTR) {
                return errno;
            }
            if (got == 0) {
                break;
            }
            size += got > 0 ? got : 0;
        }
        return 0;
    }

    // Ask the system to start reading the complete file into its page cache.
    void read_ahead() const {
#ifdef POSIX_FADV_WILLNEED
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_WILLNEED);      // only returns an error for an invalid descriptor
#endif
    }

  private:
    int descriptor_;
};

// The row's folder and name, joined by a slash; false if the path is too long for the system.
bool join_path(const Row &row, char (&path)[PATH_MAX]) {
    size_t folder = strlen(row.folder);
    if (folder + 1 + row.length + 1 > sizeof path) {
        return false;
    }
    memcpy(path, row.folder, folder);
    path[folder] = '/';
    memcpy(path + folder + 1, row.path, row.length);
    path[folder + 1 + row.length] = 0;
    return true;
}

Status read_file(Row &row, std::vector<uint8_t> &memory, Bytes &bytes) {
    char path[PATH_MAX];
    if (!join_path(row, path)) {
        row.error = ENAMETOOLONG;
        return UNREADABLE;
    }
    row.error = File(path).read_all(memory, bytes.size);
    bytes.data = memory.data();
    if (row.error) {
        return row.error == EFBIG ? EXCESSIVE : UNREADABLE;
    }
    return row.file_bytes && row.file_bytes != bytes.size ? MISMATCHED : DONE;
}

}  // namespace

void read_ahead(const Row &row) {
    char path[PATH_MAX];
    if (!row.data && !is_kept(row) && join_path(row, path)) {
        File(path).read_ahead();
    }
}

Status read_source(Row &row, std::vector<uint8_t> &memory, Bytes &bytes) {
    if (!row.data) {
        Status status = read_file(row, memory, bytes);
        if (status != DONE) {
            return status;
        }
    } else {
        bytes = {row.data, row.length};
    }
    jmp_buf escape;
    FaultGuard guard(&escape);
    if (setjmp(escape)) {
        return CUT_SHORT;
    }
    if (row.checked && crc32_of(bytes.data, bytes.size) != row.crc) {
        return ALTERED;
    }
    row.checked = false;
    return DONE;
}
