#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/interleaved_geometry.h"
#include "cpu/isa/pack_groups.h"
#include "cpu/isa/wide_bytes.h"
#include "cpu/kernels.h"

// How BF16 weights become compact groups (interleaved_geometry.h).
//
// A weight's high byte is its sign and its exponent without the last bit: a *class* of two
// exponents. The table holds both signs of eight neighbouring classes, sixteen exponents; or of
// seven, and of the class of zeros. Which eight are in it is chosen by a sample of the group.

namespace ridge::cpu {
namespace {

constexpr int kClasses = 8;         // of each sign in a table
constexpr int kSampledShare = 8;    // one of so many elements is looked at
constexpr int kExceptionsMost = 6;  // of 512 weights, on average: with more a group is not compact

// The first class in the table, and whether the class of zeros takes the place of the last.
struct ClassRange {
    int first;
    bool zeros;
    int n() const { return kClasses - (zeros ? 1 : 0); }
};
inline ClassRange best_range(const uint32_t* count) {
    ClassRange best{0, false};
    uint64_t most = 0;
    for (int zeros = 0; zeros < 2; zeros++) {
        const int n = kClasses - zeros;
        uint64_t sum = zeros != 0 ? count[0] : 0;
        for (int i = 0; i < n; i++) sum += count[zeros + i];
        for (int first = zeros; first + n <= 120; first++) {
            if (sum > most) most = sum, best = {first, zeros != 0};
            sum += count[first + n], sum -= count[first];
        }
    }
    return best;
}

// Of each row an eighth, one piece, which lies elsewhere in each. The next row is fetched
// meanwhile: all of it will be read.
inline ClassRange sampled_range(const GroupRows& rows) {
    uint32_t count[2][256] = {};  // of high bytes, in turn: equal ones follow each other
    const int64_t n = (rows.n_cols + kSampledShare - 1) / kSampledShare;
    for (int r = 0; r < rows.n_rows; r++) {
        for (int64_t at = 0; r + 1 < rows.n_rows && at < 2 * rows.n_cols; at += 64) {
            __builtin_prefetch(rows.plane[0][r + 1] + at);
        }
        const int64_t begin = n * (r % kSampledShare);
        const int64_t end = begin + n < rows.n_cols ? begin + n : rows.n_cols;
        for (int64_t k = begin; k < end; k++) count[k % 2][rows.plane[0][r][2 * k + 1]]++;
    }
    uint32_t classes[128];
    for (int i = 0; i < 128; i++) {
        classes[i] = count[0][i] + count[0][i + 128] + count[1][i] + count[1][i + 128];
    }
    return best_range(classes);
}

// All ones in each element of v, a vector of classes, that is not in the table.
template <class T>
inline T not_in(T classes, ClassRange range) {
    const T outside = as<T>(classes - all_of<T>(range.first) >= all_of<T>(range.n()));
    return range.zeros ? outside & as<T>(classes != T{}) : outside;
}

inline int64_t count_exceptions(const GroupRows& rows, ClassRange range) {
    constexpr int kStep = kWideBytes / 2;
    int64_t total = 0;
    for (int r = 0; r < rows.n_rows; r++) {
        const uint8_t* row = rows.plane[0][r];
        int64_t k = 0;
        while (k + kStep <= rows.n_cols) {
            Wide16 sum{};
            const int64_t end = k + 65535 * kStep < rows.n_cols ? k + 65535 * kStep : rows.n_cols;
            for (; k + kStep <= end; k += kStep) {
                sum -= not_in((load_wide<Wide16>(row + 2 * k) >> 8) & 127, range);
            }
            for (int i = 0; i < kStep; i++) total += sum[i];
        }
        for (; k < rows.n_cols; k++) {
            const int c = row[2 * k + 1] & 127;
            const bool in =
                (c >= range.first && c < range.first + range.n()) || (range.zeros && c == 0);
            total += in ? 0 : 1;
        }
    }
    return total;
}

inline int64_t compact_header_bytes(int64_t n_supers, int64_t n_exceptions) {
    const int64_t n = kCompactEnds + compact_ends_bytes(n_supers) + 4 * (n_exceptions + 1);
    return round_up_to(n, 64);
}

// CompactPlan::how: the first class, + kZeros where zeros are in the table, + kCompact where the
// group is compact.
constexpr uint32_t kZeros = 0x80, kCompact = 0x100;

CompactPlan measure_compact(const GroupRows& rows) {
    const int64_t n_supers = (rows.n_cols + 31) / 32;
    const ClassRange range = sampled_range(rows);
    const int64_t n = count_exceptions(rows, range);
    const bool counted = n <= 65535 && 8 * n_supers < int64_t{kCompactNoVector};
    if (n > kExceptionsMost * n_supers || !counted) return {64 + 1024 * n_supers, 0};
    return {compact_header_bytes(n_supers, n) + kCompactSuperBytes * n_supers,
            kCompact | static_cast<uint32_t>(range.first) | (range.zeros ? kZeros : 0)};
}

class CompactWriter {
  public:
    CompactWriter(uint32_t how, int64_t n_supers, uint8_t* out)
        : range_{static_cast<int>(how & 0x7f), (how & kZeros) != 0},
          ends_(out + kCompactEnds),
          exceptions_(ends_ + compact_ends_bytes(n_supers)) {
        for (int i = 0; i < 16; i++) {
            const int c = !range_.zeros ? range_.first + i % 8
                          : i % 8 == 0  ? 0
                                        : range_.first + i % 8 - 1;
            out[i] = static_cast<uint8_t>(c | (i / 8) << 7);
        }
    }
    // What may stand where there is no weight: a high byte in the table, above a low byte of 0.
    uint16_t filler() const { return static_cast<uint16_t>(range_.zeros ? 0 : range_.first << 8); }

    // One super-block: 16 rows of 64 bytes, at `at` in each.
    void write(const uint8_t* const* rows, int64_t at, int64_t s, uint8_t* out) {
        for (int u = 0; u < kCompactUnits; u++) {
            for (int four = 0; four < 4; four += kLanes) {
                Wide8 pair[4];
                load_words(rows, four, at + 16 * u, pair);
                write_rows(pair, out + kCompactUnitBytes * u + 16 * four,
                           static_cast<uint32_t>(8 * s + 2 * u) << 14 |
                               static_cast<uint32_t>(16 * four) << 8);
            }
            for (int i = 0; i < n_later_; i++) add(later_[i]);
            n_later_ = 0;
        }
        const auto n = static_cast<uint16_t>(n_);
        memcpy(ends_ + 2 * s, &n, sizeof n);
    }
    void finish() { add(kCompactNoVector << 14); }

  private:
    // `where`: of the first weight, as an exception has it.
    void write_rows(const Wide8* pair, uint8_t* to, uint32_t where) {
        Wide8 high[2], nibble[2], outside[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            store_wide(to + 64 + 64 * i, shuffle_lanes<Pick::kEven>(pair[2 * i], pair[2 * i + 1]));
            high[i] = shuffle_lanes<Pick::kOdd>(pair[2 * i], pair[2 * i + 1]);
            const Wide8 classes = high[i] & all_of<Wide8>(127);
            const Wide8 place = classes - all_of<Wide8>(range_.first);
            outside[i] = not_in(classes, range_);
            // The class of zeros comes first where there is one; what is outside comes anyhow.
            const Wide8 index =
                range_.zeros ? (place + all_of<Wide8>(1)) & as<Wide8>(classes != Wide8{}) : place;
            nibble[i] = (index & all_of<Wide8>(7)) |
                        as<Wide8>((as<Wide16>(high[i]) >> 4) & all_of<Wide16>(0x0808));
        }
        store_wide(to, nibble[0] | as<Wide8>(as<Wide16>(nibble[1]) << 4));
        if (__builtin_expect(any(outside[0] | outside[1]), 0)) list(high, outside, where);
    }
    // Those of the unit's second vector wait until all rows of the first are listed.
    void list(const Wide8* high, const Wide8* outside, uint32_t where) {
        for (int b = 0; b < kWideBytes; b++) {
            const uint32_t at = where + (static_cast<uint32_t>(b) << 8);
            if (outside[0][b] != 0) add(at | high[0][b]);
            if (outside[1][b] != 0) later_[n_later_++] = (at + (1u << 14)) | high[1][b];
        }
    }
    void add(uint32_t exception) {
        memcpy(exceptions_ + 4 * n_++, &exception, sizeof exception);
    }

    ClassRange range_;
    uint8_t *ends_, *exceptions_;
    int64_t n_ = 0;
    uint32_t later_[64];
    int n_later_ = 0;
};

void pack_compact(const GroupRows& rows, const CompactPlan& plan, uint8_t* out) {
    const int64_t n_supers = (rows.n_cols + 31) / 32;
    const bool compact = (plan.how & kCompact) != 0;
    const int64_t super_bytes = compact ? kCompactSuperBytes : 1024;
    const auto offset = static_cast<uint32_t>(plan.n_bytes - super_bytes * n_supers);
    const uint32_t flag = compact ? 1 : 0;
    memset(out, 0, offset);
    memcpy(out + kCompactOffset, &offset, sizeof offset);
    memcpy(out + kCompactFlag, &flag, sizeof flag);
    uint8_t* supers = out + offset;
    if (!compact) return pack_floats<2, write_words>(rows, supers);
    CompactWriter writer(plan.how, n_supers, out);
    for_each_64(rows, 2 * rows.n_cols, n_supers, writer.filler(),
                [&](const uint8_t* const* row, int64_t at, int64_t s) {
                    writer.write(row, at, s, supers + kCompactSuperBytes * s);
                });
    writer.finish();
}

}  // namespace
}  // namespace ridge::cpu
