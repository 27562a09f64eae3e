#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "model/sample_params.h"

namespace ridge {

// A total that was added up in another order may tip the one rounding to float32; next to 0 the
// logarithm shows the total's own roundings.
inline void expect_same_logprob(float want, float got) {
    if (want == got) return;  // -inf among them
    ASSERT_NEAR(want, got, 3e-7f * std::abs(want) + 1e-12f);
}

inline void expect_same_draw(const Sampled& want, const Sampled& got) {
    ASSERT_EQ(want.token, got.token);
    expect_same_logprob(want.logprob, got.logprob);
    ASSERT_EQ(want.top.size(), got.top.size());
    for (size_t i = 0; i < want.top.size(); i++) {
        ASSERT_EQ(want.top[i].token, got.top[i].token) << "top " << i;
        expect_same_logprob(want.top[i].logprob, got.top[i].logprob);
    }
}

}  // namespace ridge
