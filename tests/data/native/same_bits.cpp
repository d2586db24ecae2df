// Resize noise with a processor's own loops and with the plain ones: every byte must be the same.
#include <cstdio>
#include <random>
#include <vector>

#include "resize.h"

namespace {

class Noise final : public RowSource {
  public:
    Noise(std::mt19937 &random, int height, int width, size_t padding) : stride_(size_t{3} * width) {
        values_.resize(height * stride_ + padding);
        for (uint8_t &value : values_) {
            value = static_cast<uint8_t>(random() % 3 ? random() : random() % 2 * 255);
        }
    }
    const uint8_t *at(int y) override { return values_.data() + y * stride_; }

  private:
    size_t stride_;
    std::vector<uint8_t> values_;
};

}  // namespace

int main() {
    std::mt19937 random(1);
    const Instructions &own = best_instructions();
    for (int round = 0; round < 200; round++) {
        int height = 1 + random() % 200, width = 1 + random() % 200, side = 1 + random() % 100;
        Row row{};
        row.side = side;
        row.filter = round % 2 ? BICUBIC : BILINEAR;
        row.geometry = round % 4 < 2 ? CENTER : BOX;        // exact weights or not
        bool mirror = random() % 2;
        Resizer resizer;
        resizer.aim({{0.25, 0.5, width - 0.25, height - 0.5}, side, side, 0, 0}, 1.0, height, width, row);
        Noise noise(random, height, width, resizer.padding());
        std::vector<uint8_t> plain(3 * side * side), made(plain);
        resizer.run(noise, 0, mirror, SCALAR, plain.data());
        resizer.run(noise, 0, mirror, own, made.data());
        if (plain != made) {
            std::printf("%s differs: %d x %d to %d\n", own.name, height, width, side);
            return 1;
        }
    }
    std::printf("%s\n", own.name);
}
