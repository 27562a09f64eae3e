#include "cmd/bench_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cmd/bench_compare.h"
#include "support/error_of.h"

namespace ridge {
namespace {

TEST(BenchReport, the_spread_of_one_sample_is_nothing) {
    Spread spread = spread_of(std::vector<double>{7.5});
    EXPECT_EQ(spread.mean, 7.5);
    EXPECT_EQ(spread.median, 7.5);
    EXPECT_EQ(spread.stddev, 0);
}

TEST(BenchReport, spreads_are_mean_middle_and_deviation_of_samples) {
    Spread odd = spread_of(std::vector<double>{4, 1, 10});
    EXPECT_EQ(odd.mean, 5);
    EXPECT_EQ(odd.median, 4);
    EXPECT_DOUBLE_EQ(odd.stddev, std::sqrt((1 + 16 + 25) / 2.0));
    Spread even = spread_of(std::vector<double>{8, 2, 4, 100});
    EXPECT_EQ(even.median, 6);
    EXPECT_EQ(spread_of(std::vector<double>(5, 0.1)).stddev, 0);
}

TEST(BenchReport, tests_are_called_what_they_are) {
    EXPECT_EQ(test_name({512, 0, 0, 1}), "pp512");
    EXPECT_EQ(test_name({0, 128, 0, 1}), "tg128");
    EXPECT_EQ(test_name({0, 128, 2048, 8}), "tg128 x 8 @ d2048");
    EXPECT_EQ(test_name({512, 128, 7, 1}), "pp512+tg128 @ d7");
}

TEST(BenchReport, tokens_of_all_sequences_count) {
    BenchTest test{0, 128, 0, 8};
    EXPECT_EQ(test.n_tokens(), 1024);
    EXPECT_EQ((BenchTest{512, 128, 99, 1}.n_tokens()), 640);
}

TEST(BenchReport, the_share_of_the_link_is_of_the_bytes_that_each_step_brings) {
    BenchResult result;
    result.test = {0, 4, 10, 2};  // four steps of two sequences
    result.model.stream.bytes_a_step = 1'000'000;
    result.samples_ns = {100'000, 80'000, 50'000};  // 40, 50 and 80 GB/s
    result.links_gbps = {50, 50, 50, 150};
    EXPECT_DOUBLE_EQ(share_of_link(result), 0.8) << "of 0.8, 1 and 0.8";
    result.test.n_prompt = 5;
    EXPECT_EQ(share_of_link(result), 0);
    result.test.n_prompt = 0, result.model.stream.bytes_a_step = 0;
    EXPECT_EQ(share_of_link(result), 0);
}

TEST(BenchReport, bytes_of_a_token_are_its_share_of_the_weights_and_its_own_positions) {
    ModelInfo model;
    model.weight_bytes_per_token = 1'000'000;
    model.memory_bytes_per_token = 760'000;
    model.kv_bytes_per_position = 100;
    // Three steps at 10, 11 and 12 positions before them attend to 11, 12 and 13.
    EXPECT_EQ(bytes_per_token(model, {0, 3, 10, 1}), 1'000'000 + 12 * 100);
    EXPECT_EQ(bytes_per_token(model, {0, 3, 10, 4}), 250'000 + 12 * 100);
    EXPECT_EQ(bytes_per_token(model, {0, 1, 0, 1}), 1'000'000 + 100);
    EXPECT_EQ(read_bytes_per_token(model, {0, 3, 10, 4}), 190'000 + 12 * 100);
    EXPECT_EQ(bytes_per_token(model, {5, 3, 10, 1}), 0) << "a prompt is bound by arithmetic";
    EXPECT_EQ(bytes_per_token(model, {5, 0, 10, 1}), 0);
}

BenchResult result_of(const std::string& path, int64_t n_gen, const std::string& checkpoint) {
    BenchResult result;
    result.model.path = path;
    result.model.checkpoint = checkpoint;
    result.model.n_threads = 2;
    result.type_k = result.type_v = "f16";
    result.test.n_gen = n_gen;
    return result;
}

TEST(OlderResults, are_found_by_test_model_and_threads) {
    const std::string fields = R"("type_k": "f16", "type_v": "f16", "n_prompt": 0, "n_gen": 16)";
    const std::string text =
        "[{\"model_filename\": \"/a/m.gguf\", \"n_threads\": 2, \"median_ts\": 10, "
        "\"checkpoint\": \"plain\", " +
        fields +
        "},"
        "{\"model_filename\": \"/a/m.gguf\", \"n_threads\": 2, \"median_ts\": 30, "
        "\"checkpoint\": \"fused\", " +
        fields +
        "},"
        "{\"model_filename\": \"/a/m.gguf\", \"n_threads\": 1, \"median_ts\": 7, " +
        fields + "}]";
    const OlderResults older = OlderResults::parse(text, "old.json");
    EXPECT_EQ(older.rate_of(result_of("/b/m.gguf", 16, "plain")), 10);
    EXPECT_EQ(older.rate_of(result_of("/b/m.gguf", 16, "fused")), 30);
    EXPECT_EQ(older.rate_of(result_of("/b/m.gguf", 16, "gemm")), 30) << "the last one";
    EXPECT_EQ(older.rate_of(result_of("/b/m.gguf", 17, "fused")), 0);
    EXPECT_EQ(older.rate_of(result_of("/b/n.gguf", 16, "fused")), 0);
}

// Lines of JSON, and a mean where there is no median: llama-bench's.
TEST(OlderResults, come_a_line_each_from_llama_bench_too) {
    const OlderResults older = OlderResults::parse(
        "{\"model_filename\": \"m.gguf\", \"n_threads\": 2, \"avg_ts\": 12.5, \"type_k\": \"f16\", "
        "\"type_v\": \"f16\", \"n_prompt\": 0, \"n_gen\": 16}\n\n",
        "old.jsonl");
    EXPECT_EQ(older.rate_of(result_of("m.gguf", 16, "fused")), 12.5);
}

TEST(OlderResults, that_are_none_are_an_error) {
    for (const char* text :
         {"[]", "[1, 2]", "{}", "[{\"model_filename\": 3, \"median_ts\": 1}]", ""}) {
        EXPECT_EQ(error_of([&] { OlderResults::parse(text, "old.json"); }),
                  "old.json: no results in it; expected what ridge bench -o json writes")
            << text;
    }
    EXPECT_NE(error_of([] { OlderResults::parse("[{", "old.json"); }).find("old.json"),
              std::string::npos);
}

}  // namespace
}  // namespace ridge
