#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/interleaved_geometry.h"
#include "cpu/kernels.h"

// How BF16 weights become compact groups (interleaved_geometry.h), in vectors of 16 bytes of the
// compilers' own, which both g++ and clang turn into whatever the including file is compiled for.
//
// A weight's high byte is its sign and its exponent without the last bit: a *class* of two
// exponents. The table holds both signs of eight neighbouring classes, sixteen exponents; or of
// seven, and of the class of zeros. Which eight are in it is chosen by a sample of the group.

namespace ridge::cpu {
namespace {

using Bytes = uint8_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));

template <class T>
inline T load_vector(const uint8_t* p) {
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <class To, class From>
inline To as(From v) {
    To to;
    memcpy(&to, &v, sizeof to);
    return to;
}

inline Halves all_halves(int x) {
    const auto h = static_cast<uint16_t>(x);
    return Halves{h, h, h, h, h, h, h, h};
}
inline Bytes all_bytes(int x) {
    const auto b = static_cast<uint8_t>(x);
    return Bytes{b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b};
}

constexpr int kClasses = 8;         // of each sign in a table
constexpr int kSampleRun = 64;      // elements that lie side by side
constexpr int kSampledShare = 8;    // one of so many elements is looked at
constexpr int kExceptionsMost = 6;  // of 512 weights, on average: with more a group is not compact

// The first class in the table, and whether the class of zeros takes the place of the last.
struct ClassRange {
    int first;
    bool zeros;
};
inline ClassRange best_range(const uint32_t* count) {
    ClassRange best{0, false};
    uint64_t most = 0;
    for (int zeros = 0; zeros < 2; zeros++) {
        const int n = kClasses - zeros;
        for (int first = zeros; first + n <= 120; first++) {
            uint64_t sum = zeros != 0 ? count[0] : 0;
            for (int i = 0; i < n; i++) sum += count[first + i];
            if (sum > most) most = sum, best = {first, zeros != 0};
        }
    }
    return best;
}

// Of each row an eighth, in runs that lie elsewhere in each.
inline ClassRange sampled_range(const Bf16Rows& rows) {
    uint32_t count[2][256] = {};  // of high bytes, in turn: equal ones follow each other
    for (int r = 0; r < rows.n_rows; r++) {
        const int64_t runs = (rows.n_cols + kSampleRun - 1) / kSampleRun;
        const int64_t step = runs < kSampledShare ? 1 : kSampledShare;
        for (int64_t run = r % step; run < runs; run += step) {
            const int64_t begin = run * kSampleRun;
            const int64_t end = begin + kSampleRun < rows.n_cols ? begin + kSampleRun : rows.n_cols;
            for (int64_t k = begin; k < end; k++) count[k % 2][rows.row[r][2 * k + 1]]++;
        }
    }
    uint32_t classes[128];
    for (int i = 0; i < 128; i++) {
        classes[i] = count[0][i] + count[0][i + 128] + count[1][i] + count[1][i + 128];
    }
    return best_range(classes);
}

// All ones in each element of v, a vector of classes, that is not in the table.
template <class T>
inline T not_in(T classes, T first, T n, T zeros) {
    return as<T>(classes - first >= n) & (as<T>(classes != T{}) | ~zeros);
}

inline int64_t count_exceptions(const Bf16Rows& rows, ClassRange range) {
    const int first = range.first, n = kClasses - (range.zeros ? 1 : 0);
    const Halves firsts = all_halves(first), ns = all_halves(n);
    const Halves zeros = all_halves(range.zeros ? 0xffff : 0);
    int64_t total = 0;
    for (int r = 0; r < rows.n_rows; r++) {
        const uint8_t* row = rows.row[r];
        int64_t k = 0;
        while (k + 8 <= rows.n_cols) {
            Halves sum{};
            const int64_t end = k + 32768 < rows.n_cols ? k + 32768 : rows.n_cols;
            for (; k + 8 <= end; k += 8) {
                const Halves classes = (load_vector<Halves>(row + 2 * k) >> 8) & 127;
                sum -= not_in(classes, firsts, ns, zeros);
            }
            for (int i = 0; i < 8; i++) total += sum[i];
        }
        for (; k < rows.n_cols; k++) {
            const int c = row[2 * k + 1] & 127;
            const bool in = (c >= first && c < first + n) || (range.zeros && c == 0);
            total += in ? 0 : 1;
        }
    }
    return total;
}

inline int64_t compact_header_bytes(int64_t n_supers, int64_t n_exceptions) {
    const int64_t n = kCompactEnds + (2 * n_supers + 3) / 4 * 4 + 4 * (n_exceptions + 1);
    return (n + 63) / 64 * 64;
}

// CompactPlan::how: the first class, + kZeros where zeros are in the table, + kCompact where the
// group is compact.
constexpr uint32_t kZeros = 0x80, kCompact = 0x100;

CompactPlan measure_compact(const Bf16Rows& rows) {
    const int64_t n_supers = (rows.n_cols + 31) / 32;
    const ClassRange range = sampled_range(rows);
    const int64_t n = count_exceptions(rows, range);
    const bool counted = n <= 65535 && 8 * n_supers < int64_t{kCompactNoVector};
    if (n > kExceptionsMost * n_supers || !counted) return {64 + 1024 * n_supers, 0};
    return {compact_header_bytes(n_supers, n) + kCompactSuperBytes * n_supers,
            kCompact | static_cast<uint32_t>(range.first) | (range.zeros ? kZeros : 0)};
}

// Four rows' pairs 0..3 of a unit, 16 bytes a row, the other way round: pair[i] has the four rows'.
inline void transpose_pairs(const uint8_t* const* row, int64_t at, Bytes* pair) {
    Words r[4];
    for (int i = 0; i < 4; i++) r[i] = load_vector<Words>(row[i] + at);
    const Words a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const Words b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const Words c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const Words d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    pair[0] = as<Bytes>(__builtin_shufflevector(a, b, 0, 1, 4, 5));
    pair[1] = as<Bytes>(__builtin_shufflevector(a, b, 2, 3, 6, 7));
    pair[2] = as<Bytes>(__builtin_shufflevector(c, d, 0, 1, 4, 5));
    pair[3] = as<Bytes>(__builtin_shufflevector(c, d, 2, 3, 6, 7));
}

class CompactWriter {
  public:
    CompactWriter(uint32_t how, int64_t n_supers, uint8_t* out)
        : first_(static_cast<uint8_t>(how & 0x7f)),
          zeros_((how & kZeros) != 0),
          ends_(out + kCompactEnds),
          exceptions_(ends_ + (2 * n_supers + 3) / 4 * 4) {
        const int zero = zeros_ ? 1 : 0;
        for (int i = 0; i < 16; i++) {
            const int c = zeros_ && i % 8 == 0 ? 0 : first_ + i % 8 - zero;
            out[i] = static_cast<uint8_t>(c | (i / 8) << 7);
        }
    }
    // What may stand where there is no weight: a high byte in the table, above a low byte of 0.
    uint8_t filler() const { return zeros_ ? 0 : first_; }

    // One super-block: 16 rows of 64 bytes, at `at` in each.
    void write(const uint8_t* const* rows, int64_t at, int64_t s, uint8_t* out) {
        for (int u = 0; u < kCompactUnits; u++) {
            for (int four = 0; four < 4; four++) {
                Bytes pair[4];
                transpose_pairs(rows + 4 * four, at + 16 * u, pair);
                write_rows(pair, out + kCompactUnitBytes * u + 16 * four,
                           static_cast<uint32_t>(8 * s + 2 * u) << 14 |
                               static_cast<uint32_t>(16 * four) << 8);
            }
            list_later();
        }
        const auto n = static_cast<uint16_t>(n_);
        memcpy(ends_ + 2 * s, &n, sizeof n);
    }
    void finish() { add(kCompactNoVector << 14); }

  private:
    // `where`: of the first weight, as an exception has it.
    void write_rows(const Bytes* pair, uint8_t* to, uint32_t where) {
        Bytes low[2], high[2], nibble[2], outside[2];
        for (int i = 0; i < 2; i++) {
            low[i] = __builtin_shufflevector(pair[2 * i], pair[2 * i + 1], 0, 2, 4, 6, 8, 10, 12,
                                             14, 16, 18, 20, 22, 24, 26, 28, 30);
            high[i] = __builtin_shufflevector(pair[2 * i], pair[2 * i + 1], 1, 3, 5, 7, 9, 11, 13,
                                              15, 17, 19, 21, 23, 25, 27, 29, 31);
            const Bytes classes = high[i] & 127;
            const Bytes zeros = all_bytes(zeros_ ? 255 : 0), first = all_bytes(first_);
            const Bytes n = all_bytes(kClasses - (zeros_ ? 1 : 0));
            outside[i] = not_in(classes, first, n, zeros);
            // The class of zeros comes first where there is one.
            const Bytes index = (classes - first + (zeros & 1)) & as<Bytes>(classes - first < n);
            nibble[i] = index | ((high[i] & 128) >> 4);
        }
        const Bytes nibbles = nibble[0] | (nibble[1] << 4);
        memcpy(to, &nibbles, 16);
        memcpy(to + 64, &low[0], 16);
        memcpy(to + 128, &low[1], 16);
        uint64_t any[2];
        const Bytes either = outside[0] | outside[1];
        memcpy(any, &either, sizeof any);
        if ((any[0] | any[1]) != 0) list(high, outside, where);
    }
    // Those of the unit's second vector wait until all rows of the first are listed.
    void list(const Bytes* high, const Bytes* outside, uint32_t where) {
        for (int b = 0; b < 16; b++) {
            const uint32_t at = where + (static_cast<uint32_t>(b) << 8);
            if (outside[0][b] != 0) add(at | high[0][b]);
            if (outside[1][b] != 0) later_[n_later_++] = (at + (1u << 14)) | high[1][b];
        }
    }
    void list_later() {
        for (int i = 0; i < n_later_; i++) add(later_[i]);
        n_later_ = 0;
    }
    void add(uint32_t exception) { memcpy(exceptions_ + 4 * n_++, &exception, sizeof exception); }

    uint8_t first_;
    bool zeros_;
    uint8_t *ends_, *exceptions_;
    int64_t n_ = 0;
    uint32_t later_[64];
    int n_later_ = 0;
};

// A super-block's rows, where some are not there or end within it: as one that is whole.
struct PaddedSuper {
    alignas(64) uint8_t bytes[kGroupRows][64];
    const uint8_t* rows[kGroupRows];

    PaddedSuper(const Bf16Rows& from, int64_t at, uint8_t filler) {
        const int64_t left = 2 * from.n_cols - at;
        for (int r = 0; r < kGroupRows; r++) {
            for (int i = 0; i < 64; i += 2) bytes[r][i] = 0, bytes[r][i + 1] = filler;
            rows[r] = bytes[r];
            if (r < from.n_rows) {
                memcpy(bytes[r], from.row[r] + at, static_cast<size_t>(left < 64 ? left : 64));
            }
        }
    }
};

void pack_plain_super(const uint8_t* const* rows, int64_t at, uint8_t* out) {
    for (int four = 0; four < 16; four++) {  // of rows, of pairs
        Bytes pair[4];
        transpose_pairs(rows + four % 4 * 4, at + four / 4 * 16, pair);
        for (int i = 0; i < 4; i++) {
            memcpy(out + 256 * (four / 4) + 64 * i + 16 * (four % 4), &pair[i], 16);
        }
    }
}

void pack_compact(const Bf16Rows& rows, const CompactPlan& plan, uint8_t* out) {
    const int64_t n_supers = (rows.n_cols + 31) / 32;
    const bool compact = (plan.how & kCompact) != 0;
    const int64_t super_bytes = compact ? kCompactSuperBytes : 1024;
    const auto offset = static_cast<uint32_t>(plan.n_bytes - super_bytes * n_supers);
    const uint32_t flag = compact ? 1 : 0;
    memset(out, 0, offset);
    memcpy(out + kCompactOffset, &offset, sizeof offset);
    memcpy(out + kCompactFlag, &flag, sizeof flag);
    if (!compact) {
        for (int64_t s = 0; s < n_supers; s++) {
            uint8_t* to = out + offset + 1024 * s;
            const bool whole = rows.n_rows == kGroupRows && 32 * (s + 1) <= rows.n_cols;
            if (whole) {
                pack_plain_super(rows.row, 64 * s, to);
            } else {
                pack_plain_super(PaddedSuper(rows, 64 * s, 0).rows, 0, to);
            }
        }
        return;
    }
    CompactWriter writer(plan.how, n_supers, out);
    for (int64_t s = 0; s < n_supers; s++) {
        uint8_t* to = out + offset + kCompactSuperBytes * s;
        const bool whole = rows.n_rows == kGroupRows && 32 * (s + 1) <= rows.n_cols;
        if (whole) {
            writer.write(rows.row, 64 * s, s, to);
        } else {
            writer.write(PaddedSuper(rows, 64 * s, writer.filler()).rows, 0, s, to);
        }
    }
    writer.finish();
}

}  // namespace
}  // namespace ridge::cpu
