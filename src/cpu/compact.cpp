#include "cpu/compact.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "cpu/interleaved.h"
#include "cpu/isa/compact_group.h"
#include "cpu/kernels.h"

namespace ridge::cpu {
namespace {

const CompactKernels& kernels_in(const void* kernels) {
    CHECK(kernels != nullptr);
    return static_cast<const Kernels*>(kernels)->compact;
}

PartPlan measure_part(const Tensor& row_major, int64_t part, const void* kernels) {
    const CompactPlan plan = kernels_in(kernels).measure(rows_of_group(row_major, part));
    return {plan.n_bytes, plan.how};
}

// Of a group that has nothing beside its super-blocks.
int64_t least_part_bytes(const Tensor& weight) {
    return kCompactSuperBytes * packed_shape(weight).n_supers;
}

void pack_part(const Tensor& row_major, int64_t part, const PartPlan& plan, const void* kernels,
               std::byte* out) {
    kernels_in(kernels).pack(rows_of_group(row_major, part), {plan.n_bytes, plan.how},
                             reinterpret_cast<uint8_t*>(out));
}

// One row of a super-block, exceptions left aside.
void unpack_super(const uint8_t* table, const uint8_t* super, int row, int n, float* out) {
    for (int k = 0; k < n; k++) {
        const int pair = k / 2 % 4;
        const uint8_t* unit = super + k / 8 * kCompactUnitBytes;
        const int at = 16 * (row / 4) + 8 * (pair % 2) + 2 * (row % 4) + k % 2;
        const uint8_t high = table[(unit[at] >> (4 * (pair / 2))) & 15];
        out[k] = to_float(bf16{static_cast<uint16_t>(unit[64 + 64 * (pair / 2) + at] | high << 8)});
    }
}

// What exceptions say of it; some lie in columns that are not there.
void mend_row(const CompactGroup& group, int64_t s, int row, int n, float* out) {
    for (int i = group.begin(s); i < group.end(s); i++) {
        const uint32_t exception = group.exception(i);
        const int k = CompactGroup::element_of(exception);
        if (CompactGroup::row_of(exception) != row || k >= n) continue;
        const uint32_t low = std::bit_cast<uint32_t>(out[k]) >> 16 & 255;
        out[k] = to_float(bf16{static_cast<uint16_t>(low | (exception & 255) << 8)});
    }
}

void unpack_compact(const Tensor& weight, int64_t row, float* out) {
    const int64_t n_cols = weight.n_cols(), n_supers = (n_cols + 31) / 32;
    const CompactGroup group(group_data(weight, row / kGroupRows), n_supers);
    const auto r = static_cast<int>(row % kGroupRows);
    for (int64_t s = 0; s < n_supers; s++, out += 32) {
        const auto n = static_cast<int>(std::min<int64_t>(32, n_cols - 32 * s));
        if (group.compact) {
            unpack_super(group.table, group.supers + s * kCompactSuperBytes, r, n, out);
            mend_row(group, s, r, n, out);
            continue;
        }
        const uint8_t* super = group.supers + s * kGeometryBF16.code_bytes;
        for (int k = 0; k < n; k++) {
            uint16_t bits;
            memcpy(&bits, super + k / 2 * 64 + 4 * r + k % 2 * 2, sizeof bits);
            out[k] = to_float(bf16{bits});
        }
    }
}

constexpr Layout kLayout = {.name = "compact",
                            .unpack_row = unpack_compact,
                            .rows_in_part = kGroupRows,
                            .pack_part = pack_part,
                            .measure_part = measure_part,
                            .least_part_bytes = least_part_bytes};

}  // namespace

const Layout& compact_layout() {
    return kLayout;
}

const Layout* compact_layout_for(const Tensor& row_major, const void* kernels) {
    if (row_major.format->id != FormatId::kBF16 || kernels == nullptr) return nullptr;
    return kernels_in(kernels).faster ? &kLayout : nullptr;
}

}  // namespace ridge::cpu
