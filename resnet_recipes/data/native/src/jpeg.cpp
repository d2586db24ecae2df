#include "jpeg.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>       // jpeglib.h needs it
#include <cstring>
#include <type_traits>

#include <jpeglib.h>
#ifdef JPEG_INSIDE
#include <jpegint.h>
#endif

#include "fault.h"
#include "geometry.h"

namespace {

constexpr int MARGIN = 2;                       // pixels around a crop that fancy upsampling reads
constexpr int MOST_SCANS = 100, USUAL_SCANS = 10;
constexpr int64_t MOST_PASSES = 256'000'000;    // pixels times scans; each scan is a pass over all coefficients
constexpr size_t TAIL = 1024;                   // bytes; the image must end in these, as in the Python decoder

// Whether this number of scans is too much work for an image of this size.
bool exceeds(const jpeg_decompress_struct &info, int scans) {
    return int64_t{info.image_width} * info.image_height * scans > MOST_PASSES;
}

// A decompressor for one image. It is never reused: libjpeg keeps tables, which a damaged file would then use.
class Decoder {
  public:
    jpeg_decompress_struct info{};
    jmp_buf escape;
    Status status = DAMAGED;
    HuffmanScan &scan;

    explicit Decoder(HuffmanScan &scan) : scan(scan) {
        info.err = &errors_;        // custom, because jpeg_std_error in Debian cannot be linked into a shared library
        errors_.reset_error_mgr = [](j_common_ptr) {};
        errors_.error_exit = [](j_common_ptr info) { leave(info, DAMAGED); };
        errors_.emit_message = [](j_common_ptr info, int level) {
            if (level < 0) {                    // a warning: from here on pixels are made up
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
        jpeg_mem_src(&info, bytes.data, bytes.size);
        jpeg_read_header(&info, TRUE);
    }

  private:
    [[noreturn]] static void leave(j_common_ptr info, Status why) {
        Decoder *decoder = static_cast<Decoder *>(info->client_data);
        decoder->status = why;
        longjmp(decoder->escape, 1);
    }

    // Called for every row of blocks: endless scans are the cheapest attack on a decoder.
    void count() {
        if (info.input_scan_number > MOST_SCANS || exceeds(info, info.input_scan_number)) {
            leave(reinterpret_cast<j_common_ptr>(&info), EXCESSIVE);
        }
    }

    jpeg_error_mgr errors_{};
    jpeg_progress_mgr progress_{};
};

class Scanlines final : public RowSource {
  public:
    // libjpeg-turbo bypasses the caches when it writes to vector-aligned memory, but the line is read right away.
    Scanlines(jpeg_decompress_struct &info, Workspace &work) : info_(info) {
        constexpr size_t UNALIGNED = 8;
        size_t bytes = UNALIGNED + size_t{3} * info.output_width + work.resizer.padding();
        work.line.resize(std::max(work.line.size(), bytes));
        row_ = work.line.data() + UNALIGNED;
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

// Trivially destructible, because an error or a fault jumps over these.
static_assert(std::is_trivially_destructible_v<Scanlines> && std::is_trivially_destructible_v<Cut>);

// Whether the image ends in the last `tail` bytes; libjpeg-turbo checks the rest.
bool is_complete(Bytes bytes, size_t tail) {
    size_t from = bytes.size > tail ? bytes.size - tail : 0;
    for (size_t at = bytes.size - 1; at > from; at--) {
        if (bytes.data[at - 1] == 0xFF && bytes.data[at] == 0xD9) {
            return true;
        }
    }
    return false;
}

// Whether the end of the image follows its only scan, with no marker in between that would stop or change a decoder
// of the complete file, such as Pillow.
bool ends_after_scan(const uint8_t *data, const uint8_t *end) {
    constexpr int TEMPORARY = 0x01, RESTART = 0xD0, END = 0xD9, APPLICATION = 0xE0, COMMENT = 0xFE;
    while ((data = static_cast<const uint8_t *>(std::memchr(data, 0xFF, end - data))) && end - data >= 2) {
        int marker = data[1];
        if (marker == END) {
            return true;
        }
        if (marker == 0xFF) {                   // a fill byte
            data++;
        } else if (marker <= TEMPORARY || (marker >= RESTART && marker < RESTART + 8)) {
            data += 2;
        } else if ((marker >= APPLICATION && marker < APPLICATION + 16) || marker == COMMENT) {
            if (end - data < 4) {
                return false;
            }
            data += std::min<std::ptrdiff_t>(2 + (data[2] << 8 | data[3]), end - data);
        } else {
            return false;
        }
    }
    return false;
}

bool is_jpeg(Bytes bytes) { return bytes.size >= 16 && bytes.data[0] == 0xFF && bytes.data[1] == 0xD8; }

// Whether the chroma is 4:4:4, 4:2:2, 4:2:0 or 4:4:0, or the image is grayscale. libjpeg-turbo has bugs when it crops
// and reduces other images; as in the Python decoder.
bool is_usual(const jpeg_decompress_struct &info) {
    const jpeg_component_info *parts = info.comp_info;
    bool is_usual = parts[0].h_samp_factor <= 2 && parts[0].v_samp_factor <= 2;
    for (int c = 1; c < info.num_components; c++) {
        is_usual &= parts[c].h_samp_factor == 1 && parts[c].v_samp_factor == 1;
    }
    return is_usual;
}

Status judge(jpeg_decompress_struct &info, Row &row) {
    J_COLOR_SPACE space = info.jpeg_color_space;
    bool plain = space == JCS_YCbCr || space == JCS_RGB || space == JCS_GRAYSCALE;
    if (!plain || info.data_precision != 8 || !is_usual(info)) {
        return FOREIGN;
    }
    int64_t pixels = int64_t{info.image_width} * info.image_height;
    if (pixels < 1 || pixels > MOST_PIXELS || (jpeg_has_multiple_scans(&info) && exceeds(info, USUAL_SCANS))) {
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

// Return how far the inverse DCT may reduce the image while the box stays at least as large as the output.
int reduction(const Cut &cut, bool full_size) {
    double room = std::min(cut.box.width / cut.width, cut.box.height / cut.height);
    int shrink = 1;
    while (!full_size && shrink < 8 && room >= 2 * shrink) {
        shrink *= 2;
    }
    return shrink;
}

#ifdef JPEG_INSIDE
// Let `scan` decode the Huffman codes from `first_line` on, in the columns of jpeg_crop_scanline, if it can; return
// the first byte that it has not read. This uses private parts of libjpeg-turbo, which differ between versions, so it
// works only with the version linked into this library.
const uint8_t *take_over(jpeg_decompress_struct &info, int first_line, HuffmanScan &scan) {
    const uint8_t *start = info.src->next_input_byte;
    if (info.arith_code) {
        return start;
    }
    ScanLayout layout{};
    layout.block_count = info.blocks_in_MCU;
    for (int b = 0; b < layout.block_count; b++) {
        const jpeg_component_info &component = *info.cur_comp_info[info.MCU_membership[b]];
        const JHUFF_TBL *dc = info.dc_huff_tbl_ptrs[component.dc_tbl_no];
        const JHUFF_TBL *ac = info.ac_huff_tbl_ptrs[component.ac_tbl_no];
        layout.blocks[b] = {info.MCU_membership[b], scan.table(true, component.dc_tbl_no, dc->bits, dc->huffval),
                            scan.table(false, component.ac_tbl_no, ac->bits, ac->huffval)};
    }
    layout.columns = info.MCUs_per_row;
    layout.interval = info.restart_interval;
    int lines = (info.comps_in_scan > 1 ? info.max_v_samp_factor : 1) * info.min_DCT_scaled_size;
    layout.first_row = std::max(0, first_line / lines - 2);
    layout.first_column = info.master->first_iMCU_col;
    layout.last_column = info.master->last_iMCU_col;
    const uint8_t *rest = scan.begin(layout, start, start + info.src->bytes_in_buffer);
    info.entropy->decode_mcu = [](j_decompress_ptr info, JBLOCKROW *blocks) -> boolean {
        if (!static_cast<Decoder *>(info->client_data)->scan.decode(blocks)) {
            info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
        }
        return TRUE;
    };
    return rest;
}
#else
const uint8_t *take_over(jpeg_decompress_struct &info, int, HuffmanScan &) { return info.src->next_input_byte; }
#endif

// Read the header; return whether the image can be decoded.
Status open(Decoder &decoder, Bytes bytes, Row &row) {
    if (!is_jpeg(bytes)) {
        return FOREIGN;
    }
    if (!is_complete(bytes, row.data ? 2 : TAIL)) {
        return DAMAGED;
    }
    decoder.open(bytes);
    return judge(decoder.info, row);
}

void start(jpeg_decompress_struct &info, int shrink) {
    info.scale_num = 8 / shrink;
    info.scale_denom = 8;
    info.dct_method = JDCT_ISLOW;
    info.do_fancy_upsampling = TRUE;
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
}

// Skip to the first row that is needed, in columns `begin` to `end`; return the first column that is delivered.
int skip_to(Decoder &decoder, int first_row, int begin, int end) {
    jpeg_decompress_struct &info = decoder.info;
    JDIMENSION left = std::max(0, begin - MARGIN), right = end + MARGIN;
    JDIMENSION width = std::min(right, info.output_width) - left;
    jpeg_crop_scanline(&info, &left, &width);
    int top = std::max(0, first_row - MARGIN);
    if (!jpeg_has_multiple_scans(&info)) {      // with several scans, jpeg_start_decompress has read all of them
        const uint8_t *end = info.src->next_input_byte + info.src->bytes_in_buffer;
        if (!ends_after_scan(take_over(info, top, decoder.scan), end)) {
            info.err->error_exit(reinterpret_cast<j_common_ptr>(&info));
        }
    }
    if (top) {
        jpeg_skip_scanlines(&info, top);
    }
    return left;
}

}  // namespace

Status decode_jpeg(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions) {
    Decoder decoder(work.scan);
    FaultGuard guard(&decoder.escape);
    switch (setjmp(decoder.escape)) {
        case 0: break;
        case FaultGuard::FAULT: return CUT_SHORT;
        default: return decoder.status;
    }
    if (Status status = open(decoder, bytes, row); status != DONE) {
        return status;
    }
    Cut cut = cut_of(row, row.height, row.width);
    if (!cut.fits(row)) {
        return MISMATCHED;
    }
    row.box = cut.box;
    jpeg_decompress_struct &info = decoder.info;
    int shrink = reduction(cut, row.full_size);
    start(info, shrink);
    Resizer &resizer = work.resizer;
    resizer.aim(cut, 1.0 / shrink, info.output_height, info.output_width, row);
    int left = skip_to(decoder, resizer.rows.begin(), resizer.columns.begin(), resizer.columns.end());
    Scanlines scanlines(info, work);
    resizer.run(scanlines, left, row.mirror, instructions, row.pixels);
    return DONE;
}

Status shrink_jpeg(Bytes bytes, Row &row, Workspace &work) {
    Decoder decoder(work.scan);
    FaultGuard guard(&decoder.escape);
    switch (setjmp(decoder.escape)) {
        case 0: break;
        case FaultGuard::FAULT: return CUT_SHORT;
        default: return decoder.status;
    }
    if (Status status = open(decoder, bytes, row); status != DONE) {
        return status;
    }
    jpeg_decompress_struct &info = decoder.info;
    start(info, 1);
    int last = row.height - 1;
    bool checks = !row.longest && !work.shrinker.height;
    // skipped restart intervals are not read, so they would not be checked
    skip_to(decoder, checks && !info.restart_interval ? last + MARGIN : 0, 0, row.width);
    Scanlines scanlines(info, work);
    if (checks) {
        scanlines.at(last);
        work.shrunk.clear();
        return DONE;
    }
    work.shrink(scanlines, row);
    return DONE;
}
