#pragma once

#include <cstdint>

namespace ridge::cuda {

// Sine and cosine of position * frequency (radians). A full turn is 1: whole ones are taken away in
// f64, and f32 sees what is left, at most half a turn either way, rounded once (1e-7 rad). At
// position 131,071 the product in f64 is off by 1e-11 rad.
__device__ inline float2 sine_and_cosine(int32_t position, double frequency) {
    constexpr double kTurnsOfRadian = 0.15915494309189533577;  // 1 / (2 pi)
    const double turns = position * frequency * kTurnsOfRadian;
    const auto half_turns = static_cast<float>(2 * (turns - rint(turns)));
    float sine, cosine;
    sincospif(half_turns, &sine, &cosine);
    return {sine, cosine};
}

// (a, b) -> (a cos t - b sin t, a sin t + b cos t); turn: t's sine and cosine.
__device__ inline void rotate(float2 turn, float& a, float& b) {
    const float x = a, y = b;
    a = fmaf(x, turn.y, -(y * turn.x));
    b = fmaf(x, turn.x, y * turn.y);
}

}  // namespace ridge::cuda
