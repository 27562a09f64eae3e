#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/isa/vector_bytes.h"

// Vectors of bytes of the compilers' own, as wide as the including file's instruction set has them,
// and what packing does with them: everything within pieces of 16 bytes, which are called lanes.
// Both g++ and clang turn these into a few instructions of any set.

namespace ridge::cpu {
namespace {

constexpr int kWideBytes = kVectorBytes, kLanes = kWideBytes / 16;
using Wide8 = uint8_t __attribute__((vector_size(kWideBytes)));
using Wide16 = uint16_t __attribute__((vector_size(kWideBytes)));
using Wide32 = uint32_t __attribute__((vector_size(kWideBytes)));
using Lane = uint8_t __attribute__((vector_size(16)));

template <class To, class From>
inline To as(From v) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &v, sizeof to);
    return to;
}
template <class T>
inline T load_wide(const uint8_t* p) {
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <class T>
inline void store_wide(uint8_t* p, T v) {
    memcpy(p, &v, sizeof v);
}
template <class T>
inline T all_of(int x) {
    const T zeros = {};
    if constexpr (sizeof zeros[0] == 1) {
        return zeros + static_cast<uint8_t>(x);
    } else if constexpr (sizeof zeros[0] == 2) {
        return zeros + static_cast<uint16_t>(x);
    } else {
        return zeros + static_cast<uint32_t>(x);
    }
}

// Lane l from p[l].
template <class P>
inline Wide8 gather_lanes(P p) {
    const Lane first = load_wide<Lane>(p(0));
#if defined(__AVX512BW__) || defined(__AVX2__)
    using Two = uint8_t __attribute__((vector_size(32)));
    const auto join = []<size_t... I>(Lane a, Lane b, std::index_sequence<I...>) {
        return Two(__builtin_shufflevector(a, b, static_cast<int>(I)...));
    };
    const Two low = join(first, load_wide<Lane>(p(1)), std::make_index_sequence<32>());
#if defined(__AVX512BW__)
    const Two high =
        join(load_wide<Lane>(p(2)), load_wide<Lane>(p(3)), std::make_index_sequence<32>());
    return [&]<size_t... I>(std::index_sequence<I...>) {
        return Wide8(__builtin_shufflevector(low, high, static_cast<int>(I)...));
    }
    (std::make_index_sequence<64>());
#else
    return low;
#endif
#else
    return first;
#endif
}

// An element of the result of a shuffle within lanes: of a, or n behind it, of b.
enum class Pick : uint8_t { kZipLow, kZipHigh, kEven, kOdd };
template <Pick pick>
constexpr int picked(int i, int n, int per_lane) {
    const int lane = i / per_lane * per_lane, j = i % per_lane, half = per_lane / 2;
    switch (pick) {
        case Pick::kZipLow:
            return lane + j / 2 + j % 2 * n;
        case Pick::kZipHigh:
            return lane + half + j / 2 + j % 2 * n;
        case Pick::kEven:
            return lane + j % half * 2 + j / half * n;
        case Pick::kOdd:
            return lane + j % half * 2 + 1 + j / half * n;
    }
    return 0;
}
template <Pick pick, class T>
inline T shuffle_lanes(T a, T b) {
    constexpr int n = sizeof(T) / sizeof(a[0]), per_lane = 16 / sizeof(a[0]);
    return [&]<size_t... I>(std::index_sequence<I...>) {
        return T(__builtin_shufflevector(a, b, picked<pick>(static_cast<int>(I), n, per_lane)...));
    }
    (std::make_index_sequence<n>());
}

// Four words of four rows, row i's in row[i], the other way round.
inline void transpose_words(const Wide8* row, Wide8* word) {
    using Wide64 = uint64_t __attribute__((vector_size(kWideBytes)));
    const auto r0 = as<Wide32>(row[0]), r1 = as<Wide32>(row[1]), r2 = as<Wide32>(row[2]),
               r3 = as<Wide32>(row[3]);
    const auto a = as<Wide64>(shuffle_lanes<Pick::kZipLow>(r0, r1)),
               b = as<Wide64>(shuffle_lanes<Pick::kZipLow>(r2, r3)),
               c = as<Wide64>(shuffle_lanes<Pick::kZipHigh>(r0, r1)),
               d = as<Wide64>(shuffle_lanes<Pick::kZipHigh>(r2, r3));
    word[0] = as<Wide8>(shuffle_lanes<Pick::kZipLow>(a, b));
    word[1] = as<Wide8>(shuffle_lanes<Pick::kZipHigh>(a, b));
    word[2] = as<Wide8>(shuffle_lanes<Pick::kZipLow>(c, d));
    word[3] = as<Wide8>(shuffle_lanes<Pick::kZipHigh>(c, d));
}

inline bool any(Wide8 v) {
    uint64_t words[kWideBytes / 8];
    memcpy(words, &v, sizeof words);
    uint64_t all = 0;
    for (uint64_t w : words) all |= w;
    return all != 0;
}

}  // namespace
}  // namespace ridge::cpu
