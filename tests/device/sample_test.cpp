#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cases/case_run.h"
#include "cases/random.h"
#include "cuda/case_device.h"
#include "cuda/checkpoints.h"
#include "ref/ref.h"
#include "support/error_of.h"
#include "support/host_step.h"
#include "support/same_draw.h"
#include "support/seed.h"

// The device's sampler against the reference's: random ways of drawing from random logits, several
// rows at once. Needs a GPU.

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Row {
    SampleParams params;
    std::vector<Token> history;
    int64_t position = 0;
    std::vector<float> logits;
};

// What one batch gives: a row each, or the Error.
struct Drawn {
    std::vector<Sampled> rows;
    std::string error;
};

class Sampler {
  public:
    Sampler() : cuda_(make_cuda_cases({.threads = {1}})) {
        tables_ = resolve_tables(cuda_checkpoints(), "sample", cuda_.caps);
    }

    Drawn draw(const std::vector<Row>& rows, bool on_device) {
        const auto n_rows = static_cast<int64_t>(rows.size());
        const auto n_vocab = static_cast<int64_t>(rows[0].logits.size());
        Matrix logits(n_rows, n_vocab);
        for (size_t i = 0; i < rows.size(); i++) {
            std::copy(rows[i].logits.begin(), rows[i].logits.end(),
                      logits.values.begin() + static_cast<int64_t>(i) * n_vocab);
        }
        std::vector<SampleRow> sample_rows;
        for (const Row& row : rows) sample_rows.push_back({&row.params, row.history, row.position});
        std::vector<Token> tokens(rows.size());
        std::vector<int32_t> positions(rows.size()), logit_rows(rows.size());
        std::vector<int64_t> slots(rows.size(), -1);
        std::iota(logit_rows.begin(), logit_rows.end(), 0);
        HostStep host;
        host.batch = {tokens, positions, slots, {}, logit_rows, sample_rows};
        Drawn drawn{std::vector<Sampled>(rows.size()), ""};
        drawn.error = error_of([&] {
            if (on_device) {
                draw_on_device(host, logits, drawn.rows);
            } else {
                Step step = host.step();
                ref::sample(step, logits.rows(), drawn.rows);
            }
        });
        return drawn;
    }

  private:
    void draw_on_device(HostStep& host, Matrix& logits, std::span<Sampled> drawn) {
        host.tables = tables_;
        Rows rows = logits.rows();
        const Buffer buffer = cuda_.device->alloc(rows.buffer->n_bytes());
        cuda_.device->upload(*rows.buffer, buffer);
        cuda_.device->begin(host.batch, host.rope_table, 0);
        rows.buffer = &buffer;
        Buffer scratch;
        for (bool planning : {true, false}) {
            Step step = host.step(planning);
            host.memory.begin_step();
            host.tables.ops.sample(step, rows, drawn);
            if (!planning) break;
            scratch = cuda_.device->alloc(host.memory.planned_bytes() + Scratch::kAlignBytes);
            host.memory.place(scratch);
        }
        cuda_.device->wait();
    }

    CudaCases cuda_;
    Tables tables_;
};

SampleParams random_params(Random& random, int64_t n_vocab) {
    auto one_of = [&](std::initializer_list<float> values) {
        return values.begin()[random.below(static_cast<int64_t>(values.size()))];
    };
    SampleParams params;
    params.temperature = one_of({0, 0.1f, 0.8f, 1, 3, 100});
    params.top_k = static_cast<int>(one_of({0, 0, 0, 1, 7, 40, 65, 200, 1000, 1024, 1025, 5000}));
    params.top_p = one_of({1, 1, 0.95f, 0.5f, 0.999f, 0});
    params.min_p = one_of({0, 0, 0.05f, 1e-6f, 1});
    params.n_logprobs = static_cast<int>(one_of({-1, -1, 0, 3, 100, 1024, 1025}));
    params.seed = static_cast<uint64_t>(random.below(1 << 30));
    if (random.below(4) == 0) {
        params.repeat_penalty = 1.3f, params.presence_penalty = 0.5f;
        params.frequency_penalty = 0.1f;
        params.penalty_last_n = static_cast<int>(one_of({-1, 0, 10}));
    }
    while (random.below(3) == 0) {
        const auto token = static_cast<Token>(random.below(std::min<int64_t>(n_vocab, 5)));
        params.logit_bias.push_back({token, one_of({5, 0.1f, -kInfinity})});
    }
    return params;
}

// Flat, steep, equal, with ties, or mostly forbidden.
std::vector<float> random_logits(Random& random, int64_t n) {
    std::vector<float> logits(static_cast<size_t>(n));
    const float scales[] = {0, 1e-3f, 1, 3, 30, 1e4f};
    const float scale = scales[random.below(6)];
    const int64_t kind = random.below(4), keeps_one_of = random.below(2) == 0 ? 10 : 3000;
    for (float& logit : logits) {
        logit = scale * random.normal();
        if (kind == 1) logit = std::round(logit);
        if (kind == 2 && random.below(keeps_one_of) > 0) logit = -kInfinity;
    }
    if (kind == 2) logits[static_cast<size_t>(random.below(n))] = -scale;
    return logits;
}

TEST(Sample, draws_what_the_reference_draws) {
    Random random(test_seed(), 0);
    Sampler sampler;
    for (int i = 0; i < 60; i++) {
        const int64_t sizes[] = {1, 127, 128, 1000, 2048, 2049, 4097, 9000, 32000, 151936};
        const int64_t n = sizes[random.below(10)];
        std::vector<Row> rows(static_cast<size_t>(1 + random.below(12)));
        for (Row& row : rows) {
            row = {random_params(random, n), {}, random.below(1000), random_logits(random, n)};
            for (int64_t t = random.below(600); t > 0; t--) {
                row.history.push_back(static_cast<Token>(random.below(n)));
            }
        }
        const Drawn want = sampler.draw(rows, false), got = sampler.draw(rows, true);
        SCOPED_TRACE(fmt::format("batch {} of {} logits, RIDGE_SEED={}", i, n, test_seed()));
        ASSERT_EQ(want.error, got.error);  // a bias may have forbidden the only token
        if (want.error != "no error") continue;
        for (size_t r = 0; r < rows.size(); r++) {
            const SampleParams& p = rows[r].params;
            SCOPED_TRACE(fmt::format("row {}: temperature {}, top_k {}, top_p {}, min_p {}", r,
                                     p.temperature, p.top_k, p.top_p, p.min_p));
            expect_same_draw(want.rows[r], got.rows[r]);
            if (HasFatalFailure()) return;
        }
    }
}

TEST(Sample, refuses_what_the_reference_refuses_with_the_same_words) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Sampler sampler;
    auto check = [&](const SampleParams& params, const std::vector<float>& logits) {
        const std::vector<Row> rows = {{{}, {}, 11, std::vector<float>(logits.size(), 1.0f)},
                                       {params, {}, 12, logits}};
        const std::string error = sampler.draw(rows, false).error;
        EXPECT_NE(error, "no error");
        EXPECT_EQ(sampler.draw(rows, true).error, error);
    };
    for (size_t n : {size_t{1}, size_t{1000}, size_t{50000}}) {
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
        check({.logit_bias = {{0, nan}}}, std::vector<float>(n, 1.0f));
    }
}

}  // namespace
}  // namespace ridge
