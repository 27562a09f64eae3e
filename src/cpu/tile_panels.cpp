#include "cpu/tile_panels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ridge::cpu {
namespace {

// Of the second cache, which has 2 MiB on the machines that have tiles: for the part of the input
// that all panels are multiplied with, and for their sums.
constexpr int64_t kInputBytes = 512 << 10, kSumStrips = 128;
constexpr int64_t kMaxPanels = 8;

constexpr int64_t kBlockBytes = 1024;  // of a group, unpacked
constexpr int64_t kLine = 64;

int64_t n_strips(int64_t n_rows) {
    return (n_rows + kPaddedRows - 1) / kPaddedRows;
}

// Slices in the order in which they are multiplied: part by part along k, in each part panel by
// panel.
struct Slice {
    const TilePanel* panel;
    int64_t first, n;  // blocks of 32 elements; n is 0 where no slice is left
};
class SliceWalk {
  public:
    SliceWalk(std::span<const TilePanel> panels, int64_t part_blocks)
        : panels_(panels), part_blocks_(part_blocks) {
        for (const TilePanel& panel : panels) n_blocks_ = std::max(n_blocks_, panel.n_blocks);
    }
    Slice next() {
        while (part_ < n_blocks_) {
            const TilePanel& panel = panels_[panel_];
            const int64_t end = std::min(part_ + part_blocks_, panel.n_blocks);
            const int64_t first = part_ + done_;
            if (first < end) {
                const int64_t n = std::min<int64_t>(panel.gemm->slice_blocks, end - first);
                done_ += n;
                return {&panel, first, n};
            }
            done_ = 0;
            if (++panel_ == panels_.size()) panel_ = 0, part_ += part_blocks_;
        }
        return {nullptr, 0, 0};
    }

  private:
    std::span<const TilePanel> panels_;
    int64_t part_blocks_, n_blocks_ = 0;
    int64_t part_ = 0, done_ = 0;  // first block of the part, and blocks of the panel in it so far
    size_t panel_ = 0;
};

// Where a slice begins in a packed group, and how many bytes of it there are.
const uint8_t* packed(const Slice& slice, int group) {
    const TilePanel& panel = *slice.panel;
    return panel.supers[group] + slice.first / panel.super_blocks * panel.super_bytes;
}
int64_t packed_bytes(const Slice& slice) {
    return slice.n / slice.panel->super_blocks * slice.panel->super_bytes;
}

}  // namespace

int64_t tile_panels_at_once(int64_t n_rows, int64_t limit) {
    return std::clamp<int64_t>(kSumStrips / n_strips(n_rows), 1, std::min(kMaxPanels, limit));
}

int64_t tile_sum_floats(int64_t n_rows, int64_t limit) {
    const int64_t n = n_strips(n_rows), most = std::clamp<int64_t>(limit, 2, kMaxPanels);
    return std::min(most * n, std::max(kSumStrips, 2 * n)) * kTileStripFloats;
}

void multiply_tile_panels(const Kernels& kernels, std::span<const TilePanel> panels,
                          const Activations& x, int64_t n_rows, float* room) {
    const auto address = reinterpret_cast<uintptr_t>(room);
    uint8_t* codes = reinterpret_cast<uint8_t*>(room) + (-address & (kTileRoomAlign - 1));
    const int64_t slice_blocks = panels[0].gemm->slice_blocks;
    const int64_t strip_bytes = kPaddedRows * kBlock * int64_t{sizeof(uint16_t)};
    const int64_t part_blocks = kInputBytes / (strip_bytes * n_strips(n_rows));
    SliceWalk walk(panels, std::max<int64_t>(1, part_blocks / slice_blocks) * slice_blocks);
    Slice now = walk.next(), then = walk.next();
    // Unpacked, the slices at even and at odd places of the order.
    uint8_t* unpacked[2][kPanelGroups];
    for (int i = 0; i < 2 * kPanelGroups; i++) {
        unpacked[i / kPanelGroups][i % kPanelGroups] = codes + i * slice_blocks * kBlockBytes;
    }
    CHECK(2 * kPanelGroups * slice_blocks * kBlockBytes <= kTileRoomBytes);
    for (int g = 0; g < kPanelGroups && now.panel->gemm->unpack != nullptr; g++) {
        now.panel->gemm->unpack(now.panel->groups[g], now.panel->shape, now.first, now.n,
                                unpacked[0][g], nullptr, nullptr);
    }
    TileSums sums{};
    kernels.tiles.begin();
    for (int at = 0; now.n > 0; at = 1 - at) {
        const Slice ahead = walk.next();
        Panel panel{};
        TileSlice next{};
        for (int g = 0; g < kPanelGroups; g++) {
            panel.codes[g] = now.panel->gemm->unpack != nullptr ? unpacked[at][g] : packed(now, g);
            if (then.n == 0) continue;
            next.groups[g] = then.panel->groups[g];
            next.codes[g] = unpacked[1 - at][g];
            if (ahead.n > 0) next.ahead[g] = packed(ahead, g);
        }
        if (then.n > 0) {
            next.shape = then.panel->shape, next.first_block = then.first, next.n_blocks = then.n;
        }
        if (ahead.n > 0) next.n_lines = (packed_bytes(ahead) + kLine - 1) / kLine;
        sums.sums = now.panel->sums, sums.are_new = now.first == 0;
        const GemmKernel& kernel = then.n > 0 ? *then.panel->gemm : *now.panel->gemm;
        kernel.tiles(panel, x, now.first, now.n, n_rows, sums, next);
        now = then, then = ahead;
    }
    kernels.tiles.end(sums);
}

void tile_row(const float* sums, int64_t row, float* out) {
    const int64_t in_strip = row % kPaddedRows;
    const float* from = sums + row / kPaddedRows * kTileStripFloats +
                        in_strip / 16 * 2 * kTileFloats + in_strip % 16 * 16;
    memcpy(out, from, 16 * sizeof(float));
    memcpy(out + 16, from + kTileFloats, 16 * sizeof(float));
}

}  // namespace ridge::cpu
