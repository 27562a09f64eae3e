#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/isa/compact_group.h"
#include "cpu/isa/gemm_kernels.h"
#include "cpu/isa/group_kernels.h"

// What multiplies compact BF16 groups (interleaved_geometry.h): decode kernels take them apart in
// registers, those of prompts have each slice taken apart to what plain BF16 groups are unpacked
// to. The products and their order are those of plain BF16, bit for bit.

namespace ridge::cpu {
namespace {

// The exceptions of a group, one after the other.
class Exceptions {
  public:
    explicit Exceptions(const CompactGroup& group) : group_(group), next_(group.exception(0)) {}
    bool has(uint32_t vector) const { return CompactGroup::vector_of(next_) == vector; }
    // Those of this vector, which is the next that has any: high bytes of the rows from first_row
    // on.
    template <class V>
    typename V::Int mended(uint32_t vector, int first_row, typename V::Int high) {
        alignas(64) uint8_t bytes[64];
        V::store_bytes(bytes + 4 * first_row, high);
        for (; has(vector); next_ = group_.exception(++i_)) {
            bytes[CompactGroup::place_of(next_)] = static_cast<uint8_t>(next_);
        }
        return V::load(bytes + 4 * first_row);
    }

  private:
    const CompactGroup& group_;
    int i_ = 0;
    uint32_t next_;
};

// Pairs 0 and 1 of a unit, or 2 and 3, for the rows that `unit` points at the first of.
template <class V, bool last>
inline void half_unit(typename V::Table table, const uint8_t* unit, typename V::Int* pairs) {
    V::zip_bytes(V::load(unit + (last ? 128 : 64)),
                 V::template look_up_nibbles<last>(table, V::load(unit)), pairs);
}
template <class V>
inline void unit_pairs(typename V::Table table, const uint8_t* unit, typename V::Int* pairs) {
    half_unit<V, false>(table, unit, pairs);
    half_unit<V, true>(table, unit, pairs + 2);
}

// Super-block s as a plain one, V's rows of it from first_row on, of all rows the exceptions.
// plain [16 pairs][16 rows][2]
template <class V>
inline void plain_super(const CompactGroup& group, typename V::Table table, int64_t s,
                        int first_row, uint8_t* plain) {
    const uint8_t* unit = group.supers + s * kCompactSuperBytes + 4 * first_row;
    uint8_t* to = plain + 4 * first_row;
    for (int u = 0; u < kCompactUnits; u++, unit += kCompactUnitBytes, to += 256) {
        typename V::Int pairs[4];
        unit_pairs<V>(table, unit, pairs);
        for (int i = 0; i < 4; i++) V::store_bytes(to + 64 * i, pairs[i]);
    }
    group.mend_super(s, plain);
}

// All rows of it, out of memory.
template <class V>
inline void plain_super(const CompactGroup& group, int64_t s, uint8_t* plain) {
    const uint8_t* ahead = group.supers + s * kCompactSuperBytes + V::kPrefetchBytes;
    for (int i = 0; i < kCompactSuperBytes; i += 64) V::prefetch(ahead + i);
    const auto table = V::load_table(group.table);
    for (int row = 0; row < kGroupRows; row += V::kRows) {
        plain_super<V>(group, table, s, row, plain);
    }
}

// As dot_part_bf16.
template <class V, class S>
inline void dot_part_compact(const uint8_t* data, const PackedShape& shape, const Activations& x,
                             int64_t first_row, int first_weight_row, float* tile) {
    const CompactGroup group(data, shape.n_supers);
    if (!group.compact) {
        return dot_part_bf16<V, S>(group.supers, shape, x, first_row, first_weight_row, tile);
    }
    const auto table = V::load_table(group.table);
    const uint8_t* unit = group.supers;
    S sums(x, first_row);
    Exceptions exceptions(group);
    auto add_half = [&]<bool last>(uint32_t u) {
        const uint8_t* at = unit + 4 * first_weight_row;
        auto high = V::template look_up_nibbles<last>(table, V::load(at));
        if (__builtin_expect(exceptions.has(2 * u + last), 0)) {
            high = exceptions.mended<V>(2 * u + last, first_weight_row, high);
        }
        typename V::Int pairs[2];
        V::zip_bytes(V::load(at + (last ? 128 : 64)), high, pairs);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) sums.add_bf16(2 * last + i, pairs[i]);
    };
    const auto n_units = static_cast<uint32_t>(kCompactUnits * shape.n_supers);
    for (uint32_t u = 0; u < n_units; u++, unit += kCompactUnitBytes) {
        if (first_weight_row == 0) {
            for (int i = 0; i < 3; i++) V::prefetch(unit + 64 * i + shape.ahead_bytes);
        }
        add_half.template operator()<false>(u);
        add_half.template operator()<true>(u);
        sums.next_four();
    }
    sums.store(tile + first_weight_row);
}

template <template <class, int> class Sums>
struct CompactBf16Group {
    template <class V, int kN>
    static void part(const uint8_t* group, const PackedShape& shape, const Activations& x,
                     int64_t first_row, int first_weight_row, float* tile) {
        dot_part_compact<V, Sums<V, kN>>(group, shape, x, first_row, first_weight_row, tile);
    }
};

// Calls use(b, plain) for each block of a slice, in the plain layout.
template <class V, class Use>
inline void for_each_plain(const uint8_t* data, const PackedShape& shape, int64_t first_block,
                           int64_t n_blocks, Use use) {
    const CompactGroup group(data, shape.n_supers);
    if (!group.compact) {
        const uint8_t* super = group.supers + first_block * kGeometryBF16.code_bytes;
        for (int64_t b = 0; b < n_blocks; b++) use(b, super + b * kGeometryBF16.code_bytes);
        return;
    }
    alignas(64) uint8_t plain[1024];
    for (int64_t b = 0; b < n_blocks; b++) {
        plain_super<V>(group, first_block + b, plain);
        use(b, plain);
    }
}

// A slice for Operands::kF32, and for kBF16: UnpackKernels. The latter writes what unpack_pieces of
// CompactPiece does (tile_gemm.h), and fetches ahead: out of memory it takes two thirds of the
// time, and prompts of 512 and of 128 rows run 1 and 5 % faster.
template <class V>
void unpack_compact_floats(const uint8_t* group, const PackedShape& shape, int64_t first_block,
                           int64_t n_blocks, uint8_t* codes, float* scales, float* mins) {
    for_each_plain<V>(group, shape, first_block, n_blocks, [&](int64_t b, const uint8_t* plain) {
        unpack_floats<V, FloatBF16>(plain, shape, 0, 1, codes + 2048 * b, scales, mins);
    });
}
template <class V>
void unpack_compact_bf16(const uint8_t* group, const PackedShape& shape, int64_t first_block,
                         int64_t n_blocks, uint8_t* codes, float*, float*) {
    const CompactGroup from(group, shape.n_supers);
    if (!from.compact) {
        memcpy(codes, from.supers + 1024 * first_block, static_cast<size_t>(1024 * n_blocks));
        return;
    }
    for (int64_t b = 0; b < n_blocks; b++) plain_super<V>(from, first_block + b, codes + 1024 * b);
}

template <class V, class Single = V>
void fill_compact_kernels(CompactKernels& kernels) {
    kernels.group = group_kernel<V, Single, CompactBf16Group<FloatSums>>;
    kernels.gemm = {Operands::kF32, kFloatSliceBlocks, 0, unpack_compact_floats<V>,
                    multiply_floats<V>};
}

}  // namespace
}  // namespace ridge::cpu
