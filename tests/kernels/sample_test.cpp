#include "cpu/sample.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cases/random.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "ref/ref.h"
#include "support/error_of.h"
#include "support/host_step.h"
#include "support/same_draw.h"
#include "support/seed.h"

// The CPU's sampler against the reference's, on random ways of drawing from random logits.

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One row drawn by one of the two, on logits of its own.
class Sampler {
  public:
    explicit Sampler(const cpu::Kernels* kernels) : kernels_(kernels) {
        host_.tables.kernels = kernels;
    }
    Sampled draw(const SampleParams& params, const std::vector<Token>& history, int64_t position,
                 std::vector<float> logits) {
        const auto n = static_cast<int64_t>(logits.size());
        const SampleRow row{&params, history, position};
        host_.batch.sample_rows = {&row, 1};
        Matrix matrix(1, n, std::move(logits));
        Sampled drawn;
        host_.memory = {};
        for (bool planning : {true, false}) {
            Step step = host_.step(planning);
            host_.memory.begin_step();
            (kernels_ == nullptr ? ref::sample : cpu::sample)(step, matrix.rows(), {&drawn, 1});
            if (!planning) break;
            bytes_.resize(host_.memory.planned_bytes() + Scratch::kAlignBytes);
            buffer_ = borrow(bytes_.data(), bytes_.size());
            host_.memory.place(buffer_);
        }
        return drawn;
    }

  private:
    const cpu::Kernels* kernels_;
    HostStep host_;
    std::vector<double> bytes_;  // aligned for anything
    Buffer buffer_;
};

SampleParams random_params(Random& random, int64_t n_vocab) {
    auto one_of = [&](std::initializer_list<float> values) {
        return values.begin()[random.below(static_cast<int64_t>(values.size()))];
    };
    SampleParams params;
    params.temperature = one_of({0, 0.1f, 0.8f, 1, 3, 100});
    params.top_k = static_cast<int>(one_of({0, 0, 1, 7, 40, 64, 65, 200, 5000, 1e6f}));
    params.top_p = one_of({1, 1, 0.95f, 0.5f, 0.999f, 0});
    params.min_p = one_of({0, 0, 0.05f, 1e-6f, 1});
    params.n_logprobs = static_cast<int>(one_of({-1, -1, 0, 3, 20, 100}));
    params.seed = static_cast<uint64_t>(random.below(1 << 30));
    if (random.below(4) == 0) {
        params.repeat_penalty = 1.3f, params.presence_penalty = 0.5f;
        params.frequency_penalty = 0.1f;
        params.penalty_last_n = static_cast<int>(one_of({-1, 0, 10}));
    }
    if (random.below(4) == 0) {
        params.logit_bias = {{static_cast<Token>(random.below(n_vocab)), one_of({5, -kInfinity})}};
    }
    return params;
}

// Flat, steep, with ties, or mostly forbidden.
std::vector<float> random_logits(Random& random, int64_t n) {
    std::vector<float> logits(static_cast<size_t>(n));
    const float scales[] = {1e-3f, 1, 3, 30, 1e4f};
    const float scale = scales[random.below(5)];
    const int64_t kind = random.below(4);
    for (float& logit : logits) {
        logit = scale * random.normal();
        if (kind == 1) logit = std::round(logit);
        if (kind == 2 && random.below(10) > 0) logit = -kInfinity;
    }
    if (kind == 2) logits[static_cast<size_t>(random.below(n))] = -scale;
    return logits;
}

TEST(Sample, draws_what_the_reference_draws) {
    Random random(test_seed(), 0);
    for (Isa isa : available_isas()) {
        const cpu::Kernels kernels = cpu::kernels_of_isa(isa);
        Sampler ref(nullptr), sampler(&kernels);
        for (int i = 0; i < 400; i++) {
            const int64_t sizes[] = {1, 15, 16, 17, 1000, 1024, 1025, 9000, 40000};
            const int64_t n = sizes[random.below(9)];
            const SampleParams params = random_params(random, n);
            std::vector<Token> history;
            for (int t = 0; t < 30; t++) history.push_back(static_cast<Token>(random.below(n)));
            const std::vector<float> logits = random_logits(random, n);
            SCOPED_TRACE(fmt::format(
                "draw {} of {} on {}: temperature {}, top_k {}, top_p {}, min_p {}, RIDGE_SEED={}",
                i, n, isa_name(isa), params.temperature, params.top_k, params.top_p, params.min_p,
                test_seed()));
            Sampled want;
            const std::string error =
                error_of([&] { want = ref.draw(params, history, 30, logits); });
            if (error != "no error") {  // a bias forbade the only token
                EXPECT_EQ(error_of([&] { sampler.draw(params, history, 30, logits); }), error);
                continue;
            }
            expect_same_draw(want, sampler.draw(params, history, 30, logits));
            if (HasFatalFailure()) return;
        }
    }
}

TEST(Sample, refuses_what_the_reference_refuses_with_the_same_words) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const cpu::Kernels kernels = cpu::kernels_of_isa(available_isas().back());
    Sampler ref(nullptr), sampler(&kernels);
    auto check = [&](const SampleParams& params, const std::vector<float>& logits) {
        const std::string error = error_of([&] { ref.draw(params, {}, 12, logits); });
        EXPECT_NE(error, "no error");
        EXPECT_EQ(error_of([&] { sampler.draw(params, {}, 12, logits); }), error);
    };
    for (size_t n : {1, 16, 1000, 1025, 50000}) {
        for (float bad : {nan, -nan, kInfinity}) {
            for (size_t at : {size_t{0}, n / 2, n - 1}) {
                std::vector<float> logits(n, 1.0f);
                logits[at] = bad;
                check({}, logits);
                logits[n - 1 - at] = kInfinity;
                check({.temperature = 0}, logits);
            }
        }
        check({}, std::vector<float>(n, -kInfinity));
        check({.logit_bias = {{static_cast<Token>(n), 1.0f}}}, std::vector<float>(n, 1.0f));
        check({.logit_bias = {{-1, 1.0f}}}, std::vector<float>(n, 1.0f));
        check({.logit_bias = {{0, nan}}}, std::vector<float>(n, 1.0f));
        check({.logit_bias = {{0, kInfinity}}}, std::vector<float>(n, 1.0f));
    }
}

}  // namespace
}  // namespace ridge
