// Whole models against goldens that independent implementations made (scripts/goldens).

#include "cases/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ostream>

#include "base/files.h"
#include "engine/engine.h"

namespace ridge {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSlowBuild = true;
#elif defined(__has_feature)
constexpr bool kSlowBuild = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSlowBuild = false;
#endif

const char kSmolFolder[] = "smollm2-135m";
const char kSmolFile[] = "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

std::string models_folder() {
    return std::string(RIDGE_TESTS_DIR) + "/golden_data/models";
}

// The device that models run on: RIDGE_TEST_DEVICE, else the CPU.
std::string device() {
    const char* name = std::getenv("RIDGE_TEST_DEVICE");
    return name == nullptr ? "cpu" : name;
}

std::unique_ptr<Engine> open_engine(const std::string& path, const std::string& checkpoint,
                                    const std::string& cache_type = "f32") {
    OpenOptions options;
    options.model = path;
    options.device = device();
    options.checkpoint = checkpoint;
    options.cache_type_k = options.cache_type_v = cache_type;
    options.n_ctx = 1024;
    return Engine::open(options);
}

// Teacher-forced: the logits at each golden position of one prompt, or at those among its first
// `n_positions`.
void expect_logits(Engine& engine, const Golden& golden, const GoldenPrompt& prompt,
                   double max_error = kGoldenError, int64_t n_positions = INT64_MAX) {
    GoldenCheck check(golden, prompt, max_error, n_positions);
    Sequence sequence = engine.new_sequence();
    engine.evaluate(sequence, check.tokens(), [&](int64_t position, std::span<const float> logits) {
        check.see(position, logits);
    });
    EXPECT_GT(check.n_seen(), 0u);
    EXPECT_EQ(check.fault(), "");
    printf("%s: worst relative error %.1e\n", prompt.name.c_str(), check.worst());
}

// Free running: the golden's tokens and text, one decode step at a time.
void expect_greedy(Engine& engine, const GoldenPrompt& prompt) {
    Sequence sequence = engine.new_sequence();
    Request request;
    request.prompt = prompt.ids;
    request.sampling.temperature = 0;
    request.n_predict = static_cast<int64_t>(prompt.greedy.size());
    request.ignore_eos = true;
    request.show_special = true;
    Generation generation = engine.generate(sequence, request);
    EXPECT_EQ(generation.tokens, prompt.greedy);
    EXPECT_EQ(generation.reason, StopReason::kLength);
    if (!prompt.greedy_text.empty()) {
        EXPECT_EQ(generation.text, prompt.greedy_text);
    }
}

bool rounds_activations(const Engine& engine) {
    const ModelInfo& info = engine.info();
    return info.checkpoint != "ref" && info.checkpoint != "plain" && info.format != "F32";
}

struct GoldenCase {
    std::string model, file, checkpoint;
};

void PrintTo(const GoldenCase& golden_case, std::ostream* out) {
    *out << golden_case.model << "/" << golden_case.file << " at " << golden_case.checkpoint;
}

std::string name_of(const testing::TestParamInfo<GoldenCase>& info) {
    std::string name = info.param.model + "_" + info.param.file + "_" + info.param.checkpoint;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return isalnum(c) == 0; }, '_');
    return name;
}

// Every tiny model in each of its forms, at the checkpoints of the device that are whole paths: the
// CPU's two of references, the plain one of others, and the last. Those between differ from it in
// kernels, which tests/kernels and tests/device hold.
std::vector<GoldenCase> tiny_cases() {
    std::vector<GoldenCase> cases;
    const std::vector<std::string> checkpoints = checkpoint_names(device());
    std::vector<std::string> whole{"plain", checkpoints.back()};
    if (checkpoints.front() != "plain") whole.insert(whole.begin(), checkpoints.front());
    whole.erase(std::unique(whole.begin(), whole.end()), whole.end());
    for (const std::string& model : list_folder(models_folder())) {
        if (model == kSmolFolder) continue;
        for (const std::string& file : read_golden(models_folder() + "/" + model).files)
            for (const std::string& name : whole) cases.push_back({model, file, name});
    }
    return cases;
}

class TinyModel : public testing::TestWithParam<GoldenCase> {
  protected:
    void SetUp() override {
        golden_ = read_golden(models_folder() + "/" + GetParam().model);
        engine_ = open_engine(golden_.folder + "/" + GetParam().file, GetParam().checkpoint);
        ASSERT_EQ(engine_->config().n_vocab, golden_.n_vocab);
    }
    Golden golden_;
    std::unique_ptr<Engine> engine_;
};

TEST_P(TinyModel, gives_the_golden_logits) {
    for (const GoldenPrompt& prompt : golden_.prompts) {
        SCOPED_TRACE(prompt.name);
        expect_logits(*engine_, golden_, prompt,
                      rounds_activations(*engine_) ? kRoundedGoldenError : kGoldenError);
    }
}

TEST_P(TinyModel, continues_as_the_golden_does) {
    if (rounds_activations(*engine_)) {
        GTEST_SKIP() << "near ties may go the other way: gives_the_golden_logits compares the rest";
    }
    for (const GoldenPrompt& prompt : golden_.prompts) {
        SCOPED_TRACE(prompt.name);
        expect_greedy(*engine_, prompt);
    }
}

// The cache rounds K and V once each: half a unit in the last of 11 or 8 bits, and the random
// models magnify it.
TEST_P(TinyModel, stays_near_the_golden_with_a_cache_of_half_precision) {
    for (auto [cache_type, max_error] : {std::pair("f16", 1e-2), std::pair("bf16", 8e-2)}) {
        engine_ =
            open_engine(golden_.folder + "/" + GetParam().file, GetParam().checkpoint, cache_type);
        for (const GoldenPrompt& prompt : golden_.prompts) {
            SCOPED_TRACE(cache_type + (" " + prompt.name));
            expect_logits(*engine_, golden_, prompt,
                          max_error + (rounds_activations(*engine_) ? kRoundedGoldenError : 0));
        }
    }
}

TEST_P(TinyModel, reads_text_as_the_golden_does) {
    for (const GoldenPrompt& prompt : golden_.prompts) {
        if (!prompt.has_text) continue;
        EXPECT_EQ(engine_->tokenizer().encode(prompt.text), prompt.ids) << prompt.name;
    }
}

INSTANTIATE_TEST_SUITE_P(, TinyModel, testing::ValuesIn(tiny_cases()), name_of);

// SmolLM2-135M-Instruct, where it has been fetched.
class SmolLM2 : public testing::Test {
  protected:
    void SetUp() override {
        if (file_kind(path_) != FileKind::kRegular)
            GTEST_SKIP() << path_ << " is not there; scripts/demo fetches it";
        golden_ = read_golden(models_folder() + "/" + kSmolFolder);
        if (kSlowBuild) golden_.prompts.resize(1);  // the others take the same paths
    }
    void open(const std::string& checkpoint) {
        engine_ = open_engine(path_, checkpoint);
        ASSERT_EQ(engine_->config().n_vocab, golden_.n_vocab);
    }
    std::string path_ = cache_folder() + kSmolFile;
    Golden golden_;
    std::unique_ptr<Engine> engine_;
};

TEST_F(SmolLM2, plain_gives_the_golden_logits) {
    open("plain");
    for (const GoldenPrompt& prompt : golden_.prompts) {
        SCOPED_TRACE(prompt.name);
        expect_logits(*engine_, golden_, prompt);
    }
}

TEST_F(SmolLM2, plain_continues_as_the_golden_does) {
    open("plain");
    for (const GoldenPrompt& prompt : golden_.prompts) {
        SCOPED_TRACE(prompt.name);
        expect_greedy(*engine_, prompt);
    }
}

// int8 activations: the argmax is the golden's wherever its margin is beyond the error.
TEST_F(SmolLM2, the_fastest_path_stays_near_the_golden_logits) {
    open("");
    for (const GoldenPrompt& prompt : golden_.prompts) {
        SCOPED_TRACE(prompt.name);
        expect_logits(*engine_, golden_, prompt, 0.5);
    }
}

// The scalar reference is slow: the first positions of one prompt.
TEST_F(SmolLM2, ref_gives_the_golden_logits) {
    if (device() != "cpu") GTEST_SKIP() << "the reference runs on the CPU";
    open("ref");
    expect_logits(*engine_, golden_, golden_.prompts.front(), kGoldenError, 16);
}

TEST_F(SmolLM2, reads_text_as_the_golden_does) {
    open("plain");
    for (const GoldenPrompt& prompt : golden_.prompts) {
        EXPECT_EQ(engine_->tokenizer().encode(prompt.text, {.parse_special = true}), prompt.ids)
            << prompt.name;
    }
}

}  // namespace
}  // namespace ridge
