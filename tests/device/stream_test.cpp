#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "device/device_options.h"
#include "engine/bench_session.h"
#include "engine/engine.h"
#include "support/error_of.h"

// Whole models whose layers are streamed: the same numbers as where all weights stay on the device.
// Needs a GPU.

namespace ridge {
namespace {

constexpr int kLayers = 30;  // of the model
constexpr int64_t kContext = 512, kPrompt = 70, kGenerated = 24;

OpenOptions options_of(const char* format) {
    return synth_options(format, kContext);
}

std::vector<Token> prompt_tokens() {
    std::vector<Token> tokens;
    for (Token i = 0; i < kPrompt; i++) tokens.push_back(100 + i * 37 % 1000);
    return tokens;
}

Request greedy() {
    Request request;
    request.prompt = prompt_tokens();
    request.sampling.temperature = 0;
    request.n_predict = kGenerated;
    request.ignore_eos = true;
    return request;
}

std::vector<Token> generate(Engine& engine) {
    Sequence sequence = engine.new_sequence();
    return engine.generate(sequence, greedy()).tokens;
}

// Of each position of the prompt.
std::vector<std::vector<float>> logits_of(Engine& engine, RowClass row_class) {
    std::vector<std::vector<float>> all;
    Sequence sequence = engine.new_sequence();
    engine.evaluate(sequence, prompt_tokens(),
                    [&](int64_t, std::span<const float> logits) {
                        all.emplace_back(logits.begin(), logits.end());
                    },
                    {.row_class = row_class});
    return all;
}

void expect_same(Engine& resident, Engine& streamed) {
    EXPECT_EQ(generate(streamed), generate(resident));
    for (RowClass row_class : {RowClass::kPrompt, RowClass::kDecode}) {
        const auto want = logits_of(resident, row_class), got = logits_of(streamed, row_class);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); i++) {
            ASSERT_EQ(std::memcmp(got[i].data(), want[i].data(), want[i].size() * sizeof(float)), 0)
                << "position " << i;
        }
    }
    EXPECT_EQ(generate(streamed), generate(resident)) << "after other steps";
}

class Stream : public testing::TestWithParam<const char*> {};

TEST_P(Stream, no_bit_differs_where_every_layer_is_streamed) {
    OpenOptions options = options_of(GetParam());
    auto resident = Engine::open(options);
    EXPECT_EQ(resident->info().stream.n_layers, 0);
    for (const char* checkpoint : {"", "plain"}) {
        SCOPED_TRACE(checkpoint);
        options.checkpoint = checkpoint;
        options.stream_weights = false;
        auto at_checkpoint = Engine::open(options);
        options.stream_weights = true;
        auto streamed = Engine::open(options);
        EXPECT_EQ(streamed->info().stream.n_layers, kLayers);
        expect_same(*at_checkpoint, *streamed);
    }
}

TEST_P(Stream, no_bit_differs_where_half_of_the_memory_is_there) {
    OpenOptions options = options_of(GetParam());
    options.memory_bytes = uint64_t{8} << 30;
    auto resident = Engine::open(options);
    const auto whole = static_cast<uint64_t>(resident->info().device_bytes);
    const auto in_layers = static_cast<uint64_t>(resident->info().weight_bytes) / 2;  // about
    constexpr uint64_t kBeside = 1 << 20;  // that the backend takes beside
    for (uint64_t memory_bytes : {whole + kBeside, whole - 1, whole - in_layers / 2}) {
        options.memory_bytes = memory_bytes;
        auto streamed = Engine::open(options);
        const StreamInfo& stream = streamed->info().stream;
        fmt::print("{} in {:.3f} GB: {}\n", GetParam(), 1e-9 * static_cast<double>(memory_bytes),
                   stream.reason.empty() ? "all stay" : stream.reason);
        EXPECT_LT(stream.n_layers, kLayers);
        EXPECT_EQ(stream.n_layers % 2, 0);
        EXPECT_EQ(stream.n_layers > 0, memory_bytes < whole);
        EXPECT_LE(streamed->info().device_bytes, static_cast<int64_t>(memory_bytes));
        expect_same(*resident, *streamed);
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, Stream, testing::Values("BF16", "Q8_0", "Q4_K_M"),
                         [](const auto& test) { return std::string(test.param); });

// A cancelled step leaves copies and kernels under way.
TEST(StreamedSteps, go_on_after_one_that_was_cancelled_within) {
    OpenOptions options = options_of("Q8_0");
    auto resident = Engine::open(options);
    const std::vector<Token> want = generate(*resident);
    options.stream_weights = true;
    auto streamed = Engine::open(options);
    for (int n_stages : {1, 2, 7, 33, 149, 151, 153, 160, 400}) {
        Request request = greedy();
        int n_left = n_stages;
        request.cancelled = [&] { return --n_left < 0; };
        Sequence sequence = streamed->new_sequence();
        EXPECT_EQ(streamed->generate(sequence, request).reason, StopReason::kCancelled);
        EXPECT_EQ(generate(*streamed), want) << "after a step that ended at stage " << n_stages;
    }
}

TEST(StreamedSteps, the_link_is_measured_between_steps_and_changes_none) {
    OpenOptions options = options_of("Q8_0");
    options.stream_weights = true;
    auto session = BenchSession::open(options, {64, 64}, 32);
    session->fill(2, 20);
    const std::vector<Token> want = session->decode(2, 20, 9);
    const double link = session->measure_link_gbps();
    EXPECT_GT(link, 0);
    EXPECT_GT(session->measure_read_gbps(), 0);
    session->fill(2, 20);
    EXPECT_EQ(session->decode(2, 20, 9), want);
    fmt::print("link {:.1f} GB/s\n", link);
}

TEST(StreamedSteps, memory_that_does_not_hold_two_layers_is_refused_in_one_line) {
    OpenOptions options = options_of("BF16");
    options.memory_bytes = 90'000'000;
    bool begun = false;
    const std::string error = error_of([&] {
        Engine::open(options, [&](std::string_view what, double) {
            begun = begun || what == "packing weights";
        });
    });
    EXPECT_NE(error.find("with layers streamed through memory for two of them, 0.09 GB free"),
              std::string::npos)
        << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_FALSE(begun) << "refused before anything is packed";
}

}  // namespace
}  // namespace ridge
