#include "cpu/compact.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "cpu/interleaved.h"
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

void pack_part(const Tensor& row_major, int64_t part, const PartPlan& plan, const void* kernels,
               std::byte* out) {
    kernels_in(kernels).pack(rows_of_group(row_major, part), {plan.n_bytes, plan.how},
                             reinterpret_cast<uint8_t*>(out));
}

template <class T>
T load(const uint8_t* p) {
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}

// One row of a compact group, exceptions left aside.
void unpack_super(const uint8_t* table, const uint8_t* super, int row, int n, float* out) {
    for (int k = 0; k < n; k++) {
        const int pair = k / 2 % 4;
        const uint8_t* unit = super + k / 8 * kCompactUnitBytes;
        const int at = 16 * (row / 4) + 8 * (pair % 2) + 2 * (row % 4) + k % 2;
        const uint8_t high = table[(unit[at] >> (4 * (pair / 2))) & 15];
        out[k] = to_float(bf16{static_cast<uint16_t>(unit[64 + 64 * (pair / 2) + at] | high << 8)});
    }
}

// What the exceptions say of it, which may lie in rows and columns that are not there.
void mend_super(const uint8_t* exceptions, int begin, int end, int row, int n, float* out) {
    for (int i = begin; i < end; i++) {
        const auto exception = load<uint32_t>(exceptions + 4 * i);
        const uint32_t vector = exception >> 14, at = exception >> 8 & 63;
        const auto k = static_cast<int>(vector % 8 * 4 + at / 8 % 2 * 2 + at % 2);
        if (static_cast<int>(at / 16 * 4 + at % 8 / 2) != row || k >= n) continue;
        const uint32_t low = std::bit_cast<uint32_t>(out[k]) >> 16 & 255;
        out[k] = to_float(bf16{static_cast<uint16_t>(low | (exception & 255) << 8)});
    }
}

void unpack_compact(const Tensor& weight, int64_t row, float* out) {
    const uint8_t* group = compact_group(weight, row / kGroupRows);
    const auto r = static_cast<int>(row % kGroupRows);
    const uint8_t* super = group + load<uint32_t>(group + kCompactOffset);
    const bool compact = load<uint32_t>(group + kCompactFlag) != 0;
    const int64_t n_cols = weight.n_cols(), n_supers = (n_cols + 31) / 32;
    const uint8_t* ends = group + kCompactEnds;
    const uint8_t* exceptions = ends + (2 * n_supers + 3) / 4 * 4;
    int n_before = 0;
    for (int64_t s = 0; s < n_supers; s++, out += 32) {
        const auto n = static_cast<int>(std::min<int64_t>(32, n_cols - 32 * s));
        if (!compact) {
            for (int k = 0; k < n; k++) {
                out[k] = to_float(bf16{load<uint16_t>(super + k / 2 * 64 + 4 * r + k % 2 * 2)});
            }
            super += kGeometryBF16.code_bytes;
            continue;
        }
        unpack_super(group, super, r, n, out);
        const int end = load<uint16_t>(ends + 2 * s);
        mend_super(exceptions, n_before, end, r, n, out);
        n_before = end;
        super += kCompactSuperBytes;
    }
}

constexpr Layout kLayout = {.name = "compact",
                            .unpack_row = unpack_compact,
                            .rows_in_part = kGroupRows,
                            .pack_part = pack_part,
                            .measure_part = measure_part};

}  // namespace

const Layout& compact_layout() {
    return kLayout;
}

const Layout* compact_layout_for(const Tensor& row_major, const void* kernels) {
    if (row_major.format->id != FormatId::kBF16 || kernels == nullptr) return nullptr;
    return kernels_in(kernels).faster ? &kLayout : nullptr;
}

}  // namespace ridge::cpu
