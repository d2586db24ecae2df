#include "jpeg.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>       // jpeglib.h needs it
#include <cstring>

#include <jpeglib.h>

#include "fault.h"
#include "geometry.h"

namespace {

constexpr int MARGIN = 2;                       // pixels around a crop that fancy upsampling looks at
constexpr int MOST_SCANS = 500;
constexpr double MOST_WORK = 1 << 30;           // pixels times scans: a few seconds
constexpr long MOST_MEMORY = 512 << 20;         // bytes for libjpeg-turbo: a progressive image's coefficients
constexpr size_t TAIL = 1024;                   // the image must end in the file's last bytes, as in the Python decoder

// A decompressor for one image. It is never reused: libjpeg keeps tables, which a damaged file would then use.
class Decoder {
  public:
    jpeg_decompress_struct info{};
    jmp_buf escape;
    Status status = DAMAGED;
    HuffmanScan &scan;

    explicit Decoder(HuffmanScan &scan) : scan(scan) {
        info.err = jpeg_std_error(&errors_);
        errors_.error_exit = [](j_common_ptr info) { leave(info, DAMAGED); };
        errors_.emit_message = [](j_common_ptr info, int level) {
            if (level < 0) {                    // a warning: from here on pixels are invented
                leave(info, DAMAGED);
            }
        };
        errors_.output_message = [](j_common_ptr) {};
        info.client_data = this;
        progress_.progress_monitor = [](j_common_ptr info) { static_cast<Decoder *>(info->client_data)->count(); };
    }
    ~Decoder() { jpeg_destroy_decompress(&info); }
    Decoder(const Decoder &) = delete;
    Decoder &operator=(const Decoder &) = delete;

    void open(Bytes bytes) {
        jpeg_create_decompress(&info);
        info.client_data = this;
        info.progress = &progress_;
        info.mem->max_memory_to_use = MOST_MEMORY;
        jpeg_mem_src(&info, bytes.data, bytes.size);
        jpeg_read_header(&info, TRUE);
    }

  private:
    [[noreturn]] static void leave(j_common_ptr info, Status why) {
        Decoder *decoder = static_cast<Decoder *>(info->client_data);
        decoder->status = why;
        longjmp(decoder->escape, 1);
    }

    // Called for every row of blocks: endless scans are the cheapest way to keep a decoder busy.
    void count() {
        double pixels = static_cast<double>(info.image_width) * info.image_height;
        if (info.input_scan_number > MOST_SCANS || info.input_scan_number * pixels > MOST_WORK) {
            leave(reinterpret_cast<j_common_ptr>(&info), EXCESSIVE);
        }
    }

    jpeg_error_mgr errors_;
    jpeg_progress_mgr progress_{};
};

class Scanlines final : public RowSource {
  public:
    Scanlines(jpeg_decompress_struct &info, Workspace &work) : info_(info) {
        work.line.resize(std::max(work.line.size(), size_t{3} * info.output_width + work.resizer.padding()));
        row_ = work.line.data();
    }

    const uint8_t *at(int y) override {
        while (static_cast<int>(info_.output_scanline) <= y) {
            jpeg_read_scanlines(&info_, &row_, 1);
        }
        return row_;
    }

  private:
    jpeg_decompress_struct &info_;
    JSAMPROW row_;
};

// Whether the image ends in the last `tail` bytes; libjpeg-turbo judges the rest.
bool is_whole(Bytes bytes, size_t tail) {
    size_t from = bytes.size > tail ? bytes.size - tail : 0;
    for (size_t at = bytes.size - 1; at > from; at--) {
        if (bytes.data[at - 1] == 0xFF && bytes.data[at] == 0xD9) {
            return true;
        }
    }
    return false;
}

bool is_jpeg(Bytes bytes) { return bytes.size >= 16 && bytes.data[0] == 0xFF && bytes.data[1] == 0xD8; }

Status judge(const jpeg_decompress_struct &info, Row &row) {
    J_COLOR_SPACE space = info.jpeg_color_space;
    bool plain = space == JCS_YCbCr || space == JCS_RGB || space == JCS_GRAYSCALE;
    if (!plain || info.data_precision != 8) {
        return FOREIGN;
    }
    int64_t pixels = int64_t{info.image_width} * info.image_height;
    if (pixels < 1 || pixels > MOST_PIXELS) {
        return EXCESSIVE;
    }
    int height = info.image_height, width = info.image_width;
    if ((row.height && row.height != height) || (row.width && row.width != width)) {
        return MISMATCHED;
    }
    row.height = height;
    row.width = width;
    return DONE;
}

// Return how far the inverse DCT may reduce the image with no side of the box becoming shorter than the output's.
int reduction(const Cut &cut, bool whole) {
    double room = std::min(cut.box.width / cut.width, cut.box.height / cut.height);
    int shrink = 1;
    while (!whole && shrink < 8 && room >= 2 * shrink) {
        shrink *= 2;
    }
    return shrink;
}

// Start the decoder where the resize starts; return the first column it delivers.
int skip_to(jpeg_decompress_struct &info, const Resizer &resizer) {
    JDIMENSION left = std::max(0, resizer.columns.begin() - MARGIN), right = resizer.columns.end() + MARGIN;
    JDIMENSION width = std::min(right, info.output_width) - left;
    jpeg_crop_scanline(&info, &left, &width);
    int top = std::max(0, resizer.rows.begin() - MARGIN);
    scan_of(info).take_over(info, top);
    if (top) {
        jpeg_skip_scanlines(&info, top);
    }
    return left;
}

}  // namespace

HuffmanScan &scan_of(const jpeg_decompress_struct &info) { return static_cast<Decoder *>(info.client_data)->scan; }

Status decode_jpeg(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions) {
    Decoder decoder(work.scan);
    FaultGuard guard(&decoder.escape);
    switch (setjmp(decoder.escape)) {
        case 0: break;
        case FaultGuard::FAULT: return CUT_SHORT;
        default: return decoder.status;
    }
    if (!is_jpeg(bytes)) {
        return FOREIGN;
    }
    if (!is_whole(bytes, row.data ? 2 : TAIL)) {
        return DAMAGED;
    }
    decoder.open(bytes);
    jpeg_decompress_struct &info = decoder.info;
    if (Status status = judge(info, row); status != DONE) {
        return status;
    }
    Cut cut = cut_of(row, row.height, row.width);
    if (!cut.fits(row)) {
        return MISMATCHED;
    }
    row.box = cut.box;
    int shrink = reduction(cut, row.whole);
    info.scale_num = 8 / shrink;
    info.scale_denom = 8;
    info.dct_method = JDCT_ISLOW;
    info.do_fancy_upsampling = TRUE;
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    work.resizer.aim(cut, 1.0 / shrink, info.output_height, info.output_width, row);
    int left = skip_to(info, work.resizer);
    Scanlines scanlines(info, work);
    work.resizer.run(scanlines, left, row.mirror, instructions, row.pixels);
    return DONE;
}
