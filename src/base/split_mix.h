#pragma once

#include <cstdint>

namespace ridge {

// SplitMix64 (Steele, Lea, Flood 2014): a state that grows by kSplitMixStep, and split_mix() of it
// as the output. Output number i of a state is so had without those before it, alike on every
// machine.
constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

constexpr uint64_t split_mix(uint64_t state) {
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    return state ^ (state >> 31);
}

}  // namespace ridge
