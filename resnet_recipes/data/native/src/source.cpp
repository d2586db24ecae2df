#include "source.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc.h"
#include "fault.h"

namespace {

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

}  // namespace

// Opening a pipe must not wait for a writer; anything but a regular file is refused before it is read.
File::File(const Row &row) {
    char path[PATH_MAX];
    if (row.data) {
        return;
    }
    if (!join_path(row, path)) {
        error_ = ENAMETOOLONG;
    } else if ((descriptor_ = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0) {
        error_ = errno;
    } else {
#ifdef POSIX_FADV_WILLNEED
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_WILLNEED);      // only returns an error for what is no file
#endif
    }
}

File::~File() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

int File::read_all(std::vector<uint8_t> &memory, size_t &size) const {
    struct stat facts;
    if (error_ || fstat(descriptor_, &facts) != 0) {
        return error_ ? error_ : errno;
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

Status read_source(Row &row, const File &file, std::vector<uint8_t> &memory, Bytes &bytes) {
    bytes = {row.data, row.length};
    if (!row.data) {
        row.error = file.read_all(memory, bytes.size);
        bytes.data = memory.data();
        if (row.error) {
            return row.error == EFBIG ? EXCESSIVE : UNREADABLE;
        }
        if (row.file_bytes && row.file_bytes != bytes.size) {
            return MISMATCHED;
        }
    }
    jmp_buf escape;
    FaultGuard guard(&escape);
    if (setjmp(escape)) {
        return CUT_SHORT;
    }
    return row.checked && crc32_of(bytes.data, bytes.size) != row.crc ? ALTERED : DONE;
}
