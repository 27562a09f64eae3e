#include "cuda/tiles.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "format/block_parts.h"
#include "format/blocks.h"

namespace ridge::cuda {
namespace {

// A row's codes and scales as they are, before they are placed. K-quants: per 256 elements; the
// others per 32, of which `small` and `mins` use one.
struct Unpacked {
    uint16_t d = 0, m = 0;
    uint8_t scale[16] = {}, min[16] = {};  // of 32 elements, or of 16
    uint8_t codes[kSuperBlock] = {};
};

void read_nibbles(const uint8_t* qs, uint8_t* codes) {  // 16 bytes, as Q4_0 has them
    for (int i = 0; i < 16; i++) codes[i] = qs[i] & 15, codes[i + 16] = qs[i] >> 4;
}
void read_block(const BlockQ4_0& b, Unpacked& u) {
    u.d = b.d;
    read_nibbles(b.qs, u.codes);
}
void read_block(const BlockQ4_1& b, Unpacked& u) {
    u.d = b.d, u.m = b.m;
    read_nibbles(b.qs, u.codes);
}
void read_block(const BlockQ5_0& b, Unpacked& u) {
    u.d = b.d;
    five_bit_codes(b, u.codes);
}
void read_block(const BlockQ5_1& b, Unpacked& u) {
    u.d = b.d, u.m = b.m;
    five_bit_codes(b, u.codes);
}
void read_block(const BlockQ8_0& b, Unpacked& u) {
    u.d = b.d;
    for (int i = 0; i < 32; i++) u.codes[i] = static_cast<uint8_t>(b.qs[i] + 128);
}
void read_block(const BlockIQ4_NL& b, Unpacked& u) {
    u.d = b.d;
    read_nibbles(b.qs, u.codes);
    for (int i = 0; i < 32; i++) {
        u.codes[i] = static_cast<uint8_t>(kIq4Values[u.codes[i]] + 128);
    }
}
void read_block(const BlockIQ4_XS& b, Unpacked& u) {
    u.d = b.d;
    for (int k = 0; k < 8; k++) {
        uint8_t* codes = u.codes + 32 * k;
        read_nibbles(b.qs + 16 * k, codes);
        for (int i = 0; i < 32; i++) codes[i] = static_cast<uint8_t>(kIq4Values[codes[i]] + 128);
        u.scale[2 * k] = u.scale[2 * k + 1] = static_cast<uint8_t>(iq4_xs_scale(b, k));
    }
}
void read_block(const BlockQ2_K& b, Unpacked& u) {
    u.d = b.d, u.m = b.dmin;
    for (int s = 0; s < 16; s++) {
        u.scale[s] = b.scales[s] & 15, u.min[s] = b.scales[s] >> 4;
        const uint8_t* qs = b.qs + 32 * (s / 8) + 16 * (s % 2);
        for (int i = 0; i < 16; i++) u.codes[16 * s + i] = qs[i] >> (2 * (s / 2 % 4)) & 3;
    }
}
void read_block(const BlockQ3_K& b, Unpacked& u) {
    u.d = b.d;
    int8_t scales[16];
    q3_k_scales(b, scales);
    for (int s = 0; s < 16; s++) {
        u.scale[s] = static_cast<uint8_t>(scales[s]);
        const uint8_t* qs = b.qs + 32 * (s / 8) + 16 * (s % 2);
        const uint8_t* high = b.hmask + 16 * (s % 2);
        for (int i = 0; i < 16; i++) {
            u.codes[16 * s + i] = static_cast<uint8_t>((qs[i] >> (2 * (s / 2 % 4)) & 3) |
                                                       (high[i] >> (s / 2) & 1) << 2);
        }
    }
}
template <class Block>  // Q4_K, Q5_K
void read_k_scales(const Block& b, Unpacked& u) {
    u.d = b.d, u.m = b.dmin;
    for (int k = 0; k < 8; k++) {
        const ScaleMin small = k_scale_min(b.scales, k);
        u.scale[k] = small.scale, u.min[k] = small.min;
    }
}
void read_block(const BlockQ4_K& b, Unpacked& u) {
    read_k_scales(b, u);
    for (int k = 0; k < 8; k++) {
        for (int i = 0; i < 32; i++) {
            u.codes[32 * k + i] = b.qs[32 * (k / 2) + i] >> (4 * (k % 2)) & 15;
        }
    }
}
void read_block(const BlockQ5_K& b, Unpacked& u) {
    read_k_scales(b, u);
    for (int k = 0; k < 8; k++) {
        for (int i = 0; i < 32; i++) {
            u.codes[32 * k + i] = static_cast<uint8_t>(
                (b.qs[32 * (k / 2) + i] >> (4 * (k % 2)) & 15) | (b.qh[i] >> k & 1) << 4);
        }
    }
}
void read_block(const BlockQ6_K& b, Unpacked& u) {
    u.d = b.d;
    for (int s = 0; s < 16; s++) {
        u.scale[s] = static_cast<uint8_t>(b.scales[s]);
        const int h = s / 8, j = s / 2 % 4, l = 16 * (s % 2);
        const uint8_t* ql = b.ql + 64 * h + 32 * (j % 2) + l;
        const uint8_t* qh = b.qh + 32 * h + l;
        for (int i = 0; i < 16; i++) {
            u.codes[16 * s + i] =
                static_cast<uint8_t>((ql[i] >> (4 * (j / 2)) & 15) | (qh[i] >> (2 * j) & 3) << 4);
        }
    }
}

// The power of two, divided by which a number of up to `greatest` stays below 2^15.
float power_for(float greatest) {
    constexpr int kLeast = -100;  // so that neither the power nor 1 / power is subnormal
    const int exponent = greatest > 0 ? std::max(std::ilogb(greatest), kLeast) : 14;
    return std::ldexp(1.0f, exponent - 14);
}

// Writes one part. Everything in it starts as zero.
class PartWriter {
  public:
    PartWriter(const TileGeometry& geometry, std::byte* part)
        : g_(geometry), part_(reinterpret_cast<uint8_t*>(part)) {
        std::memset(part, 0, static_cast<size_t>(g_.part_bytes));
        const int chunk_bytes = code_bytes(g_.kind.codes) + high_bytes(g_.kind.codes);
        const int n_codes = 1 << (chunk_bytes * 8 / (kTileRows * kTileChunk));
        greatest_code_ = static_cast<float>(std::max(g_.kind.offset, n_codes - 1 - g_.kind.offset));
        for (int r = 0; r < kTileRows; r++) set_power(r, 1);
    }

    void set_power(int row, float power) {
        std::memcpy(part_ + g_.powers + (row % 8 * 2 + row / 8) * 4, &power, 4);
    }
    // Of a row whose scales are all set.
    void set_power_of_scales(int row) {
        set_power(row, power_for(greatest_[static_cast<size_t>(row)]));
    }

    // Code k of a row, of up to eight bits. The inverse of tile_code.
    void set_code(int row, int64_t k, uint32_t code) {
        const int64_t chunk = k / kTileChunk;
        const int mma = static_cast<int>(k % kTileChunk) / 16, i = static_cast<int>(k % 4);
        const int lane = row % 8 * 4 + static_cast<int>(k % 16) / 4, r = i / 2 * 2 + row / 8;
        const int half = 16 * (i % 2), nibble = 4 * r + half;
        uint8_t* codes = part_ + chunk * code_bytes(g_.kind.codes);
        uint8_t* high = part_ + g_.high + chunk * high_bytes(g_.kind.codes);
        switch (g_.kind.codes) {
            case Codes::kFour:
                return put(codes, 4 * lane + mma, code, nibble);
            case Codes::kFive:
                put(codes, 4 * lane + mma, code & 15, nibble);
                return put(high, lane, code >> 4, mma + 4 * r + half);
            case Codes::kSix:
                put(codes, 4 * lane + mma, code & 15, nibble);
                return put(high, 2 * lane + mma / 2, code >> 4, mma % 2 * 2 + 4 * r + half);
            case Codes::kEight:
                return put(codes + mma / 2 * 512, 4 * lane + mma % 2 * 2 + r / 2, code,
                           r % 2 * 16 + i % 2 * 8);
            case Codes::kF16:
                return put(codes + 512 * mma, 4 * lane + r, code, half);
        }
    }

    // Scales of the 32 or 256 elements from k on.
    void set_scales(int row, int64_t k, const Unpacked& u) {
        const int place = row % 8 * 2 + row / 8;
        const Scales scales = g_.kind.scales;
        const float d = std::abs(to_float(f16{u.d})), m = std::abs(to_float(f16{u.m}));
        const bool mins = scales == Scales::kSuper || scales == Scales::kSuper16Min;
        if (scales == Scales::kSmall || scales == Scales::kSmallMin) {
            const int64_t at = g_.scales + k / kTileChunk * scale_bytes(scales);
            const int block = static_cast<int>(k % kTileChunk) / 32;
            note_scale(row, d, m);
            if (scales == Scales::kSmall) return put16(at, 2 * place + block, u.d);
            put16(at, 4 * place + 2 * block, u.d);
            return put16(at, 4 * place + 2 * block + 1, u.m);
        }
        const int64_t super = g_.supers + k / 256 * super_bytes(scales);
        put16(super, mins ? 2 * place : place, u.d);
        if (mins) put16(super, 2 * place + 1, u.m);
        const int per_chunk = scales == Scales::kSuper ? 2 : 4;
        for (int s = 0; s < 4 * per_chunk; s++) {
            const int64_t chunk = k / kTileChunk + s / per_chunk;
            if (chunk >= g_.n_chunks) break;
            note_scale(row, d * std::abs(small_scale(u.scale[s])), m * u.min[s]);
            uint8_t* at = part_ + g_.scales + chunk * scale_bytes(scales);
            const int n = place * per_chunk + s % per_chunk;
            if (mins) {
                at[2 * n] = u.scale[s], at[2 * n + 1] = u.min[s];
            } else {
                at[n] = u.scale[s];
            }
        }
    }

    // A group's scale and bias, as they are stored.
    void set_group(int row, int64_t group, const std::byte* scale, const std::byte* bias) {
        const int place = row % 8 * 2 + row / 8, n = g_.group_scale_bytes;
        uint8_t* at = part_ + g_.scales + (group * 2 * kTileRows + 2 * place) * n;
        std::memcpy(at, scale, static_cast<size_t>(n));
        std::memcpy(at + n, bias, static_cast<size_t>(n));
        note_scale(row, std::abs(tile_group_number(g_, at, 0)),
                   std::abs(tile_group_number(g_, at, 1)));
    }

  private:
    float small_scale(uint8_t scale) const {
        return g_.kind.scales == Scales::kSuper16 ? static_cast<float>(static_cast<int8_t>(scale))
                                                  : static_cast<float>(scale);
    }
    // Elements of a row are up to a code times `scale`, and `add`.
    void note_scale(int row, float scale, float add) {
        if (!std::isfinite(scale) || !std::isfinite(add)) return;
        const float greatest = std::min(scale * greatest_code_ + add, FLT_MAX);
        float& of_row = greatest_[static_cast<size_t>(row)];
        of_row = std::max(of_row, greatest);
    }
    static void put(uint8_t* at, int word, uint32_t bits, int shift) {
        uint32_t value;
        std::memcpy(&value, at + 4 * word, 4);
        value |= bits << shift;
        std::memcpy(at + 4 * word, &value, 4);
    }
    void put16(int64_t offset, int index, uint16_t value) {
        std::memcpy(part_ + offset + 2 * index, &value, 2);
    }

    const TileGeometry& g_;
    uint8_t* part_;
    float greatest_code_;
    std::array<float, kTileRows> greatest_{};
};

template <class Block>
void pack_row(const std::byte* row, int64_t n_cols, int r, int block_elements, PartWriter& to) {
    for (int64_t k = 0; k < n_cols; k += block_elements) {
        Block block;
        std::memcpy(&block, row + k / block_elements * static_cast<int64_t>(sizeof(Block)),
                    sizeof(Block));
        Unpacked u;
        read_block(block, u);
        for (int i = 0; i < block_elements; i++) to.set_code(r, k + i, u.codes[i]);
        to.set_scales(r, k, u);
    }
    to.set_power_of_scales(r);
}

void pack_affine_row(const Tensor& weight, int64_t row, int r, PartWriter& to) {
    auto plane = [&](size_t p) {
        return weight.planes[p].data + row * weight.planes[p].stride_bytes;
    };
    const auto* codes = reinterpret_cast<const uint8_t*>(plane(0));
    const bool bytes = weight.format->id == FormatId::kAffine8;
    for (int64_t k = 0; k < weight.n_cols(); k++) {
        to.set_code(r, k, bytes ? codes[k] : codes[k / 2] >> (4 * (k % 2)) & 15u);
    }
    const int n = weight.scale_format == FormatId::kF32 ? 4 : 2;
    for (int64_t group = 0; group < weight.n_cols() / weight.group_size; group++) {
        to.set_group(r, group, plane(1) + group * n, plane(2) + group * n);
    }
    to.set_power_of_scales(r);
}

void pack_f16_row(const std::byte* row, int64_t n_cols, int r, PartWriter& to) {
    for (int64_t k = 0; k < n_cols; k++) {
        uint16_t bits;
        std::memcpy(&bits, row + 2 * k, 2);
        to.set_code(r, k, bits);
    }
}
void pack_bf16_row(const std::byte* row, int64_t n_cols, int r, PartWriter& to) {
    auto element = [&](int64_t k) {
        bf16 x;
        std::memcpy(&x, row + 2 * k, 2);
        return to_float(x);
    };
    float greatest = 0;
    for (int64_t k = 0; k < n_cols; k++) {
        const float x = std::abs(element(k));
        if (std::isfinite(x)) greatest = std::max(greatest, x);
    }
    const float power = power_for(greatest);
    for (int64_t k = 0; k < n_cols; k++) to.set_code(r, k, to_f16(element(k) / power).bits);
    to.set_power(r, power);
}

void pack_one_row(const Tensor& weight, int64_t row, int r, PartWriter& to) {
    const std::byte* at = weight.planes[0].data + row * weight.planes[0].stride_bytes;
    const int64_t n = weight.n_cols();
    switch (weight.format->id) {
        case FormatId::kF32:
            CHECK(!"F32 has no tiles");
            return;
        case FormatId::kF16:
            return pack_f16_row(at, n, r, to);
        case FormatId::kBF16:
            return pack_bf16_row(at, n, r, to);
        case FormatId::kQ4_0:
            return pack_row<BlockQ4_0>(at, n, r, kSmallBlock, to);
        case FormatId::kQ4_1:
            return pack_row<BlockQ4_1>(at, n, r, kSmallBlock, to);
        case FormatId::kQ5_0:
            return pack_row<BlockQ5_0>(at, n, r, kSmallBlock, to);
        case FormatId::kQ5_1:
            return pack_row<BlockQ5_1>(at, n, r, kSmallBlock, to);
        case FormatId::kQ8_0:
            return pack_row<BlockQ8_0>(at, n, r, kSmallBlock, to);
        case FormatId::kIQ4_NL:
            return pack_row<BlockIQ4_NL>(at, n, r, kSmallBlock, to);
        case FormatId::kQ2_K:
            return pack_row<BlockQ2_K>(at, n, r, kSuperBlock, to);
        case FormatId::kQ3_K:
            return pack_row<BlockQ3_K>(at, n, r, kSuperBlock, to);
        case FormatId::kQ4_K:
            return pack_row<BlockQ4_K>(at, n, r, kSuperBlock, to);
        case FormatId::kQ5_K:
            return pack_row<BlockQ5_K>(at, n, r, kSuperBlock, to);
        case FormatId::kQ6_K:
            return pack_row<BlockQ6_K>(at, n, r, kSuperBlock, to);
        case FormatId::kIQ4_XS:
            return pack_row<BlockIQ4_XS>(at, n, r, kSuperBlock, to);
        case FormatId::kAffine4:
        case FormatId::kAffine8:
            return pack_affine_row(weight, row, r, to);
    }
}

void pack_part(const Tensor& row_major, int64_t part, const PartPlan&, const void*,
               std::byte* out) {
    const TileGeometry geometry = tile_geometry(row_major);
    PartWriter writer(geometry, out);
    const int64_t first = part * kTileRows;
    const auto n = static_cast<int>(std::min<int64_t>(kTileRows, row_major.n_rows() - first));
    for (int r = 0; r < n; r++) pack_one_row(row_major, first + r, r, writer);
}

int64_t part_bytes(const Tensor& weight) {
    return tile_geometry(weight).part_bytes;
}

void unpack_row(const Tensor& weight, int64_t row, float* out) {
    const TileGeometry geometry = tile_geometry(weight);
    const auto* part = reinterpret_cast<const uint8_t*>(part_data(weight, row / kTileRows));
    for (int64_t k = 0; k < weight.n_cols(); k++) {
        out[k] = tile_element(geometry, part, static_cast<int>(row % kTileRows), k);
    }
}

constexpr Layout kLayout = {.name = "tiles",
                            .unpack_row = unpack_row,
                            .rows_in_part = kTileRows,
                            .pack_part = pack_part,
                            .part_bytes = part_bytes};

}  // namespace

TileGeometry tile_geometry(const Tensor& weight) {
    CHECK(weight.n_dims > 1 && has_tiles(weight.format->id));
    TileGeometry g;
    g.kind = tile_kind(weight.format->id);
    const int64_t n_chunks = (weight.n_cols() + kTileChunk - 1) / kTileChunk;
    const int64_t n = n_chunks * kTileChunk;
    const int64_t high = n_chunks * code_bytes(g.kind.codes);
    const int64_t scales = high + n_chunks * high_bytes(g.kind.codes);
    int64_t supers = scales + n_chunks * scale_bytes(g.kind.scales);
    int64_t end = supers + (n + kSuperBlock - 1) / kSuperBlock * super_bytes(g.kind.scales);
    if (g.kind.scales == Scales::kGroup) {
        g.group_size = weight.group_size;
        g.group_scale_bytes = weight.scale_format == FormatId::kF32 ? 4 : 2;
        g.group_scale_f16 = weight.scale_format == FormatId::kF16;
        // Of all that the chunks hold, so that what lies behind the last column has a scale: zero.
        const int64_t n_groups = (n + g.group_size - 1) / g.group_size;
        end = supers = scales + n_groups * 2 * kTileRows * g.group_scale_bytes;
    }
    const int64_t powers = round_up(end, 64);
    end = powers + kTileRows * int64_t{sizeof(float)};
    CHECK(end <= INT32_MAX);
    g.n_chunks = static_cast<int>(n_chunks);
    g.high = static_cast<int>(high), g.scales = static_cast<int>(scales);
    g.supers = static_cast<int>(supers), g.powers = static_cast<int>(powers);
    g.part_bytes = static_cast<int>(end);
    return g;
}

const Layout& tiles_layout() {
    return kLayout;
}

}  // namespace ridge::cuda
