#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "text/token.h"

namespace ridge::cuda {

// A token and its logit as one number, the greater the earlier in the order of
// model/sample_params.h: logits descending, then ids ascending. Above the lowest 18 bits stands the
// logit, in an order of its bits that is that of numbers; those 18 bits are the id, complemented.
using Candidate = uint64_t;

constexpr int kTokenBits = 18;
constexpr int64_t kMaxVocab = int64_t{1} << kTokenBits;  // tokens
constexpr int kCandidateBits = 32 + kTokenBits;
constexpr Candidate kNanCandidate = ~Candidate{0};  // stands before all others

// Ascending as numbers are, -0 and 0 alike.
RIDGE_HOST_DEVICE constexpr uint32_t bits_in_order(float x) {
    const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
RIDGE_HOST_DEVICE constexpr float number_of_bits(uint32_t ordered) {
    return std::bit_cast<float>(ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered);
}

RIDGE_HOST_DEVICE inline Candidate candidate_of(float logit, int64_t token) {
    if (logit != logit) return kNanCandidate;
    return Candidate{bits_in_order(logit)} << kTokenBits |
           static_cast<Candidate>(kMaxVocab - 1 - token);
}
RIDGE_HOST_DEVICE constexpr float logit_of(Candidate c) {
    return number_of_bits(static_cast<uint32_t>(c >> kTokenBits));
}
RIDGE_HOST_DEVICE constexpr Token token_of(Candidate c) {
    return static_cast<Token>(kMaxVocab - 1 - static_cast<int64_t>(c & (kMaxVocab - 1)));
}
// The last that a logit of at least `lowest` could be, which is not NaN.
RIDGE_HOST_DEVICE constexpr Candidate last_candidate(float lowest) {
    return Candidate{bits_in_order(lowest)} << kTokenBits;
}
// Every candidate of a finite logit, or of +inf, is at least this one; what stands below, 0 among
// them, is none. One more than the bits of -inf, whose order begins with 0x007fffff.
constexpr Candidate kLeastCandidate = Candidate{0x00800000} << kTokenBits;

// Probability of a logit relative to the most probable one's.
RIDGE_HOST_DEVICE inline double weight_of(float logit, float highest, float temperature) {
    return exp((static_cast<double>(logit) - static_cast<double>(highest)) /
               static_cast<double>(temperature));
}

// The digits of a candidate that a search looks at one after the other.
struct Digit {
    int shift, bits;
};
constexpr int kDigits = 5, kMaxDigitBits = 11;
RIDGE_HOST_DEVICE constexpr Digit digit_of_candidate(int i) {
    constexpr Digit kAll[kDigits] = {{39, 11}, {28, 11}, {18, 10}, {9, 9}, {0, 9}};
    return kAll[i];
}

// The lower one of the i-th pair of elements that a sorting network compares at a distance, a power
// of two; the other is so much further on. At distances up to 32, pairs 32 w and up to 31 behind it
// are of elements 64 w and up to 63 behind it.
RIDGE_HOST_DEVICE constexpr int first_of_pair(int i, int distance) {
    return 2 * i - (i & (distance - 1));
}

}  // namespace ridge::cuda
