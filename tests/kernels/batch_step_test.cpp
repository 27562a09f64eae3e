#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "cases/random.h"
#include "cases/random_weights.h"
#include "cpu/backend.h"
#include "cpu/checkpoints.h"
#include "cpu/isa.h"
#include "model/backend.h"
#include "support/seed.h"
#include "support/thin.h"

// Whole steps of a small random model: what a sequence's logits are does not depend on the
// sequences beside it, on how its prompt is cut, or on where it lies in the cache, bit for bit; and
// every checkpoint's are near the reference's.

namespace ridge {
namespace {

constexpr int kDecodeSteps = 3;

struct ModelOptions {
    bool qk_norm = false, bias = false;
    int d_head = 64;
    RopeStyle rope_style = RopeStyle::kHalfSplit;
    DType kv = DType::kF16;
    FormatId q = FormatId::kQ4_K, v = FormatId::kQ6_K, ffn = FormatId::kQ4_0;
    std::optional<FormatId> up = {};  // another than ffn
    int d_ff = 320;
};

Config make_config(const ModelOptions& options) {
    Config config;
    config.n_layers = 2, config.d_model = 256, config.n_heads = 6, config.n_kv_heads = 2;
    config.d_head = config.d_rope = options.d_head, config.d_ff = options.d_ff,
    config.n_vocab = 131;
    config.norm_eps = 1e-5f, config.rope_theta = 10000, config.rope_style = options.rope_style;
    config.qk_norm = options.qk_norm;
    return config;
}

Weights make_weights(const ModelOptions& options, const Config& c, RandomWeights& random) {
    uint64_t stream = 100;
    auto linear = [&](int64_t d_out, int64_t d_in, FormatId format, bool bias) {
        const float scale = 1 / std::sqrt(static_cast<float>(d_in));
        return random.linear({.d_out = d_out, .format = format, .bias = bias}, d_in, scale,
                             stream++);
    };
    auto norm = [&](int64_t d) { return random.vector(d, 1, 0.1f, stream++); };
    Weights weights;
    weights.embedding = linear(c.n_vocab, c.d_model, FormatId::kQ8_0, false).weight;
    for (int i = 0; i < c.n_layers; i++) {
        Layer& layer = weights.layers.emplace_back();
        layer.index = i;
        layer.attn_norm = norm(c.d_model), layer.ffn_norm = norm(c.d_model);
        layer.q = linear(c.d_q(), c.d_model, options.q, options.bias);
        layer.k = linear(c.d_kv(), c.d_model, options.q, options.bias);
        layer.v = linear(c.d_kv(), c.d_model, options.v, options.bias);
        if (c.qk_norm) layer.q_norm = norm(c.d_head), layer.k_norm = norm(c.d_head);
        layer.o = linear(c.d_model, c.d_q(), FormatId::kBF16, options.bias);
        layer.gate = linear(c.d_ff, c.d_model, options.ffn, options.bias);
        layer.up = linear(c.d_ff, c.d_model, options.up.value_or(options.ffn), options.bias);
        layer.down = linear(c.d_model, c.d_ff, options.ffn, options.bias);
    }
    weights.output_norm = norm(c.d_model);
    weights.head = linear(c.n_vocab, c.d_model, FormatId::kF16, false);
    return weights;
}

// A prompt, the tokens fed after it, and where the sequence lies.
struct TestSequence {
    std::vector<Token> tokens;  // prompt and kDecodeSteps more
    int64_t n_prompt = 0;
    KvView view;
    std::vector<int32_t> pages;
};

// Logits [n_vocab] of the last prompt row and of each decode step.
using Logits = std::vector<std::vector<float>>;

// A checkpoint on an instruction set, weights packed for its kernels or as they are in files.
struct Variant {
    std::string_view checkpoint;
    std::string isa{};  // empty: the best
    bool repack = true;
    bool side_by_side = true;  // weights that a stage reads so are packed so
};

// Runs sequences on one checkpoint; each step is given the rows of every sequence.
class Runner {
  public:
    Runner(const ModelOptions& options, const Variant& variant, int n_threads)
        : backend_(make_cpu_backend({n_threads, variant.isa})), random_(test_seed()) {
        model_.config = make_config(options);
        model_.weights = make_weights(options, model_.config, random_);
        model_.rope_table = make_rope_table(model_.config);
        model_.tables =
            resolve_tables(backend_->checkpoints(), variant.checkpoint, backend_->caps());
        const Layout& layout = variant.repack ? *model_.tables.matmul_layout : row_major_layout();
        auto prepare = [&](std::span<Tensor* const> tensors, int layer_index) {
            if (tensors[0]->n_dims == 1) return;
            if (variant.side_by_side) return backend_->prepare(tensors, layout, layer_index, {});
            for (Tensor* tensor : tensors) *tensor = backend_->prepare(*tensor, layout);
        };
        for_each_side_by_side(model_.weights, false, prepare);
        kv_ = backend_->make_kv_cache(model_.config, options.kv, options.kv, 4096);
        backend_->plan(model_, kv_, 512, 8);
    }

    // Positions begin[i]..end[i] of sequence i; logits of the last of them where they reach the
    // prompt's end.
    void step(std::span<const TestSequence> sequences, std::span<const int64_t> begin,
              std::span<const int64_t> end, std::span<Logits> logits) {
        std::vector<Token> tokens;
        std::vector<int32_t> positions, logit_rows;
        std::vector<int64_t> slots;
        std::vector<SequenceSpan> spans;
        std::vector<size_t> wanting;
        for (size_t i = 0; i < sequences.size(); i++) {
            const TestSequence& s = sequences[i];
            if (begin[i] == end[i]) continue;
            const bool decode = begin[i] >= s.n_prompt;
            spans.push_back({static_cast<int32_t>(tokens.size()),
                             static_cast<int32_t>(end[i] - begin[i]),
                             decode ? RowClass::kDecode : RowClass::kPrompt, s.view});
            for (int64_t p = begin[i]; p < end[i]; p++) {
                tokens.push_back(s.tokens[static_cast<size_t>(p)]);
                positions.push_back(static_cast<int32_t>(p));
                slots.push_back(s.view.slot(p));
            }
            if (end[i] < s.n_prompt) continue;
            logit_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
            wanting.push_back(i);
        }
        const Batch batch{tokens, positions, slots, spans, logit_rows, {}};
        const StepResult result = backend_->wait(backend_->step(model_, kv_, batch));
        for (size_t r = 0; r < wanting.size(); r++) {
            const float* row = result.logits.row<float>(static_cast<int64_t>(r));
            logits[wanting[r]].emplace_back(row, row + model_.config.n_vocab);
        }
    }

  private:
    std::unique_ptr<Backend> backend_;
    RandomWeights random_;
    Model model_;
    KvCache kv_;
};

// The prompt in chunks, then the decode steps; nobody else in the batch.
Logits run_alone(Runner& runner, const TestSequence& sequence, int64_t chunk) {
    Logits logits;
    const auto n = static_cast<int64_t>(sequence.tokens.size());
    for (int64_t p = 0; p < n;) {
        const int64_t end = p < sequence.n_prompt ? std::min(p + chunk, sequence.n_prompt) : p + 1;
        runner.step({&sequence, 1}, {&p, 1}, {&end, 1}, {&logits, 1});
        p = end;
    }
    return logits;
}

// All at once, the later ones starting later, so that prompts and decode rows share steps.
std::vector<Logits> run_together(Runner& runner, std::span<const TestSequence> sequences,
                                 int64_t chunk) {
    const size_t n = sequences.size();
    std::vector<Logits> logits(n);
    std::vector<int64_t> begin(n), end(n);
    bool busy = true;
    for (int64_t round = 0; busy; round++) {
        busy = false;
        for (size_t i = 0; i < n; i++) {
            const TestSequence& s = sequences[i];
            const auto n_tokens = static_cast<int64_t>(s.tokens.size());
            begin[i] = end[i];
            if (begin[i] == n_tokens) continue;
            busy = true;
            if (round < static_cast<int64_t>(i) / 3) continue;
            end[i] = begin[i] < s.n_prompt ? std::min(begin[i] + chunk, s.n_prompt) : begin[i] + 1;
        }
        if (busy) runner.step(sequences, begin, end, logits);
    }
    return logits;
}

std::vector<TestSequence> make_sequences() {
    Random random(test_seed(), 70);
    std::vector<TestSequence> sequences;
    std::vector<int32_t> pages(32);  // the upper half of the cache, in random order
    std::iota(pages.begin(), pages.end(), 32);
    for (size_t i = pages.size() - 1; i > 0; i--) {
        std::swap(pages[i], pages[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
    }
    int64_t next_slot = 0;
    for (int64_t n_prompt : {1, 65, 2, 33, 130, 64, 9, 31}) {
        TestSequence& s = sequences.emplace_back();
        s.n_prompt = n_prompt;
        for (int64_t i = 0; i < n_prompt + kDecodeSteps; i++) {
            s.tokens.push_back(static_cast<Token>(random.below(131)));
        }
        s.view.base_slot = next_slot;
        const int64_t n_pages = kv_pages_of(n_prompt + kDecodeSteps);
        next_slot += n_pages * kKvPagePositions;
        s.pages.assign(pages.end() - n_pages, pages.end());
        pages.resize(pages.size() - static_cast<size_t>(n_pages));
    }
    return sequences;
}

void use_pages(std::vector<TestSequence>& sequences) {
    for (TestSequence& s : sequences) s.view = {s.pages.data(), 0};
}

void expect_same_logits(const Logits& want, const Logits& got) {
    ASSERT_EQ(want.size(), static_cast<size_t>(1 + kDecodeSteps));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); i++) {
        for (size_t j = 0; j < want[i].size(); j++) {
            ASSERT_TRUE(std::isfinite(want[i][j]));
            ASSERT_EQ(want[i][j], got[i][j]) << "logit " << j << ", step " << i;
        }
    }
}

// Relative L2 error over all steps.
double logits_error(const Logits& want, const Logits& got) {
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++) {
        for (size_t j = 0; j < want[i].size(); j++) {
            error += std::pow(double{got[i][j]} - double{want[i][j]}, 2);
            size += std::pow(double{want[i][j]}, 2);
        }
    }
    return std::sqrt(error / size);
}

// The last checkpoint before stages are fused, whose results the fused ones' are held against:
// never left out.
constexpr std::string_view kSeparate = "prefill_attention", kFused = "fused";

// Every checkpoint on the best instruction set, then the last on all the others.
std::vector<Variant> variants() {
    const std::string_view first = cpu_checkpoints().front().name;
    const std::string_view last = cpu_checkpoints().back().name;
    std::vector<Variant> variants = {{first}}, between;
    for (const Checkpoint& checkpoint : cpu_checkpoints()) {
        if (checkpoint.name != first && checkpoint.name != last && checkpoint.name != kSeparate) {
            between.push_back({checkpoint.name});
        }
    }
    for (Variant& variant : thinned(std::move(between), 0)) variants.push_back(std::move(variant));
    variants.push_back({kSeparate});
    variants.push_back({last});
    for (Isa isa : available_isas()) {
        if (isa == available_isas().back() || !isa_is_tested(isa_name(isa))) continue;
        variants.push_back({last, std::string(isa_name(isa))});
    }
    variants.push_back({last, "", false});
    return variants;
}

// A difference of one float32 rounding may tip another one of a narrow cache type, which is as
// good. Kernels that round activations to int8 are 1% or so from the reference on random weights;
// how much that means on real ones is for `ridge eval` to say.
double tolerance(std::string_view checkpoint, DType kv) {
    if (checkpoint != "ref" && checkpoint != "plain") return 0.05;
    return kv == DType::kF32 ? 1e-5 : 2e-3;
}

void check_model(const ModelOptions& options) {
    std::vector<Logits> separate;     // of the stages before they are fused
    std::vector<Logits> ref, packed;  // of the first variant; of the last checkpoint at its best
    for (const Variant& variant : variants()) {
        Runner runner(options, variant, 2), other_runner(options, variant, 3);
        std::vector<TestSequence> sequences = make_sequences();
        std::vector<Logits> alone;
        for (const TestSequence& s : sequences) alone.push_back(run_alone(runner, s, 512));
        if (ref.empty()) ref = alone;
        if (variant.isa.empty() && variant.repack) packed = alone;
        use_pages(sequences);
        const std::vector<Logits> together = run_together(runner, sequences, 512);
        const std::vector<Logits> cut = run_together(other_runner, sequences, 23);
        for (size_t i = 0; i < sequences.size(); i++) {
            SCOPED_TRACE(fmt::format("prompt of {}, checkpoint {} on {}{}, RIDGE_SEED={}",
                                     sequences[i].n_prompt, variant.checkpoint,
                                     variant.isa.empty() ? "the best" : variant.isa,
                                     variant.repack ? "" : ", not packed", test_seed()));
            expect_same_logits(alone[i], together[i]);
            expect_same_logits(alone[i], cut[i]);
            EXPECT_LT(logits_error(ref[i], alone[i]), tolerance(variant.checkpoint, options.kv));
            if (!variant.repack) expect_same_logits(packed[i], alone[i]);
            // The fused stages are the same arithmetic in fewer passes.
            if (variant.checkpoint == kSeparate) separate.push_back(alone[i]);
            if (variant.checkpoint == kFused && variant.isa.empty()) {
                expect_same_logits(separate.at(i), alone[i]);
            }
        }
        if (::testing::Test::HasFailure()) return;
    }
}

TEST(BatchInvariance, logits_are_the_same_alone_and_among_seven_others) {
    check_model({});
}

TEST(BatchInvariance, logits_are_the_same_with_head_norms_and_biases) {
    check_model({.qk_norm = true,
                 .bias = true,
                 .rope_style = RopeStyle::kInterleaved,
                 .kv = DType::kF32,
                 .q = FormatId::kQ4_1,
                 .v = FormatId::kF16,
                 .ffn = FormatId::kAffine4});
}

// No kernel takes heads that are no multiple of 16.
TEST(BatchInvariance, logits_are_the_same_with_heads_that_plain_kernels_take) {
    check_model({.d_head = 24});
}

// Gate and up part by part in turns, or one behind the other: the same numbers from other places.
TEST(BatchInvariance, logits_are_the_same_where_gate_and_up_lie_apart) {
    using enum FormatId;
    const std::string_view last = cpu_checkpoints().back().name;
    for (const ModelOptions& options :
         {ModelOptions{.ffn = kQ4_0}, ModelOptions{.ffn = kQ4_K, .up = kQ6_K, .d_ff = 512},
          ModelOptions{.ffn = kBF16, .d_ff = 331}, ModelOptions{.ffn = kBF16, .up = kQ8_0}}) {
        for (Isa isa : available_isas()) {
            if (!isa_is_tested(isa_name(isa))) continue;
            Variant variant{last, std::string(isa_name(isa))};
            Runner in_turns(options, variant, 2);
            variant.side_by_side = false;
            Runner apart(options, variant, 2);
            for (const TestSequence& s : make_sequences()) {
                if (s.n_prompt != 2 && s.n_prompt != 65) continue;
                SCOPED_TRACE(fmt::format("{} on {}, prompt of {}, RIDGE_SEED={}",
                                         format_of(options.ffn).name, variant.isa, s.n_prompt,
                                         test_seed()));
                expect_same_logits(run_alone(apart, s, 512), run_alone(in_turns, s, 512));
                if (::testing::Test::HasFailure()) return;
            }
        }
    }
}

}  // namespace
}  // namespace ridge
