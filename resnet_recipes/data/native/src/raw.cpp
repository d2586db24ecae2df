#include "raw.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "fault.h"

namespace {

class Pixels final : public RowSource {
  public:
    Pixels(Bytes bytes, int width, Workspace &work)
        : bytes_(bytes), stride_(size_t{3} * width), padding_(work.resizer.padding()) {
        work.line.resize(std::max(work.line.size(), stride_ + padding_));
        last_ = work.line.data();
    }

    // The resize reads past the end of a row, and memory may end with the image, so its last rows are copied first.
    const uint8_t *at(int y) override {
        const uint8_t *row = bytes_.data + y * stride_;
        if ((y + 1) * stride_ + padding_ <= bytes_.size) {
            return row;
        }
        return static_cast<const uint8_t *>(std::memcpy(last_, row, stride_));
    }

  private:
    Bytes bytes_;
    size_t stride_, padding_;
    uint8_t *last_;
};

// Trivially destructible, because a fault jumps over it.
static_assert(std::is_trivially_destructible_v<Pixels>);

bool has_all_pixels(Bytes bytes, const Row &row) {
    return row.height > 0 && row.width > 0 && bytes.size == uint64_t{3} * row.height * row.width;
}

}  // namespace

Status resize_raw(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions) {
    if (!has_all_pixels(bytes, row)) {
        return MISMATCHED;
    }
    Cut cut = cut_of(row, row.height, row.width);
    if (!cut.fits(row)) {
        return MISMATCHED;
    }
    jmp_buf escape;
    FaultGuard guard(&escape);
    if (setjmp(escape)) {
        return CUT_SHORT;
    }
    row.box = cut.box;
    work.resizer.aim(cut, 1.0, row.height, row.width, row);
    Pixels pixels(bytes, row.width, work);
    work.resizer.run(pixels, 0, row.mirror, instructions, row.pixels);
    return DONE;
}

Status shrink_raw(Bytes bytes, Row &row, Workspace &work) {
    if (!has_all_pixels(bytes, row)) {
        return MISMATCHED;
    }
    jmp_buf escape;
    FaultGuard guard(&escape);
    if (setjmp(escape)) {
        return CUT_SHORT;
    }
    Pixels pixels(bytes, row.width, work);
    work.shrink(pixels, row);
    return DONE;
}
