#include "model/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "model/config.h"
#include "model/synth_plan.h"
#include "model/weights.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "text/tokenizer.h"

namespace ridge {
namespace {

std::string_view bytes_of(const Tensor& tensor) {
    return {reinterpret_cast<const char*>(tensor.planes[0].data),
            static_cast<size_t>(tensor.n_bytes())};
}

std::string_view format_name(const ModelFile& file, std::string_view tensor) {
    const Tensor* found = file.find(tensor);
    return found == nullptr ? "absent" : found->format->name;
}

uint64_t fnv1a(std::string_view bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
}

TEST(synth, shapes_have_the_published_number_of_parameters) {
    const std::map<std::string, int64_t> published = {
        {"llama-3.2-1b", 1'235'814'400}, {"llama-3.2-3b", 3'212'749'824},
        {"llama-3.1-8b", 8'030'261'248}, {"qwen3-0.6b", 596'049'920},
        {"qwen3-1.7b", 1'720'574'976},   {"qwen3-4b", 4'022'468'096},
        {"qwen3-8b", 8'190'735'360},     {"smollm2-135m", 134'515'008},
    };
    for (const auto& [name, n_parameters] : published) {
        int64_t n = 0;
        for (const SynthTensor& tensor : plan_synth(name, "Q4_0").tensors) {
            if (tensor.values.empty()) n += tensor.n_rows() * tensor.n_cols();
        }
        EXPECT_EQ(n, n_parameters) << name;
    }
}

TEST(synth, every_format_opens_with_the_shapes_of_its_model) {
    const std::string names[] = {"tiny-llama3", "tiny-qwen3", "tiny-qwen2", "tiny-open-llama"};
    size_t n_made = 0;
    for (const std::string& format : synth_formats()) {
        const std::string name = names[n_made++ % std::size(names)];
        SCOPED_TRACE(name + " " + format);
        const ModelFile file = make_synth(name, format, 1);
        EXPECT_EQ(file.path(), "synth:" + name + ":" + format);
        const Config config = read_config(file);
        const Weights weights = read_weights(file, config);
        EXPECT_EQ(weights.layers.size(), static_cast<size_t>(config.n_layers));
        EXPECT_EQ(config.d_model, 256);
        EXPECT_EQ(config.n_vocab, 4096);
        EXPECT_LT(config.n_kv_heads, config.n_heads);
        EXPECT_EQ(weights.layers[0].gate.weight.format->name, format.substr(0, format.find("_M")));
    }
    EXPECT_EQ(n_made, 17u);
}

TEST(synth, each_tiny_model_has_the_options_of_its_architecture) {
    const ModelFile llama_file = make_synth("tiny-llama3", "F16", 1);
    const Config llama = read_config(llama_file);
    EXPECT_EQ(llama.architecture, "llama");
    EXPECT_TRUE(llama.tied_head);
    ASSERT_EQ(llama.rope_factors.size(), 32u);
    EXPECT_EQ(llama.rope_factors.front(), 1.0f);
    EXPECT_NEAR(llama.rope_factors[16], 3.2923f, 1e-3f);
    EXPECT_EQ(llama.rope_factors.back(), 32.0f);

    const ModelFile qwen3_file = make_synth("tiny-qwen3", "F16", 1);
    const Config qwen3 = read_config(qwen3_file);
    EXPECT_EQ(qwen3.architecture, "qwen3");
    EXPECT_TRUE(qwen3.qk_norm);
    EXPECT_FALSE(qwen3.tied_head);
    EXPECT_NE(qwen3.d_q(), qwen3.d_model);
    EXPECT_FLOAT_EQ(qwen3.norm_eps, 1e-6f);

    const ModelFile qwen2_file = make_synth("tiny-qwen2", "F16", 1);
    const Config qwen2 = read_config(qwen2_file);
    EXPECT_EQ(qwen2.architecture, "qwen2");
    const Weights weights = read_weights(qwen2_file, qwen2);
    for (const Linear* linear :
         {&weights.layers[0].q, &weights.layers[3].k, &weights.layers[1].v}) {
        EXPECT_TRUE(static_cast<bool>(linear->bias)) << linear->weight.name;
    }
}

TEST(synth, mixtures_give_more_bits_to_the_head_and_to_some_values_and_down_projections) {
    const ModelFile file = make_synth("tiny-qwen3", "q4_k_m", 1);  // layer 2 of 3 gets more
    EXPECT_EQ(format_name(file, "token_embd.weight"), "Q4_K");
    EXPECT_EQ(format_name(file, "output.weight"), "Q6_K");
    EXPECT_EQ(format_name(file, "blk.0.attn_v.weight"), "Q4_K");
    EXPECT_EQ(format_name(file, "blk.2.attn_v.weight"), "Q6_K");
    EXPECT_EQ(format_name(file, "blk.2.ffn_down.weight"), "Q6_K");
    EXPECT_EQ(format_name(file, "blk.2.attn_k.weight"), "Q4_K");
    EXPECT_EQ(format_name(file, "blk.2.attn_norm.weight"), "F32");
    EXPECT_EQ(format_name(make_synth("tiny-llama3", "Q5_K_M", 1), "token_embd.weight"), "Q6_K");

    // 32 layers: 0..3, 28..31, and every third from 6 to 27.
    std::set<int> more;
    for (const SynthTensor& tensor : plan_synth("llama-3.1-8b", "Q4_K_M").tensors) {
        if (tensor.name.find("ffn_down") == std::string::npos) continue;
        if (tensor.format->id == FormatId::kQ6_K) more.insert(std::stoi(tensor.name.substr(4)));
    }
    EXPECT_EQ(more, (std::set<int>{0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31}));
}

TEST(synth, rows_that_are_no_whole_number_of_blocks_take_smaller_blocks) {
    // SmolLM2 has rows of 576 = 2.25 * 256, and of 1536 in ffn_down.
    const std::map<std::string, std::string> fallbacks = {
        {"Q2_K", "IQ4_NL"}, {"Q3_K", "IQ4_NL"},   {"Q4_K", "Q5_0"},   {"Q5_K", "Q5_1"},
        {"Q6_K", "Q8_0"},   {"IQ4_XS", "IQ4_NL"}, {"Q4_K_M", "Q5_0"}, {"Q4_0", "Q4_0"},
    };
    for (const auto& [format, fallback] : fallbacks) {
        std::map<std::string_view, std::string_view> found;
        const SynthPlan plan = plan_synth("smollm2-135m", format);
        for (const SynthTensor& tensor : plan.tensors) found[tensor.name] = tensor.format->name;
        EXPECT_EQ(found["blk.4.attn_q.weight"], fallback) << format;
        EXPECT_EQ(found["blk.4.ffn_down.weight"], format.substr(0, format.find("_M"))) << format;
        if (format == "Q4_K_M") {
            EXPECT_EQ(found["token_embd.weight"], "Q8_0");
        }
    }
}

TEST(synth, a_seed_gives_the_same_numbers_every_time_and_in_a_file) {
    TemporaryFolder folder;
    write_synth("tiny-qwen2", "Q4_K_M", 7, folder.path("7.gguf"), false);
    write_synth("tiny-qwen2", "Q4_K_M", 8, folder.path("8.gguf"), false);
    const ModelFile file = ModelFile::open(folder.path("7.gguf"));
    const ModelFile other = ModelFile::open(folder.path("8.gguf"));
    const ModelFile memory = make_synth("tiny-qwen2", "Q4_K_M", 7);
    ASSERT_EQ(file.tensor_names(), memory.tensor_names());
    EXPECT_EQ(file.file_bytes(), memory.file_bytes());
    for (const std::string& name : file.tensor_names()) {
        EXPECT_EQ(bytes_of(*file.find(name)), bytes_of(*memory.find(name))) << name;
        EXPECT_NE(bytes_of(*file.find(name)), bytes_of(*other.find(name))) << name;
    }
}

TEST(synth, a_seed_gives_the_same_numbers_on_every_machine) {
    const ModelFile plain = make_synth("tiny-llama3", "F32", 1);
    EXPECT_EQ(fnv1a(bytes_of(*plain.find("blk.0.attn_q.weight"))), 1725598967625867341u);
    EXPECT_EQ(fnv1a(bytes_of(*plain.find("output_norm.weight"))), 12033135322770775635u);
    const ModelFile packed = make_synth("tiny-llama3", "Q4_K", 1);
    EXPECT_EQ(fnv1a(bytes_of(*packed.find("token_embd.weight"))), 5069050700104194624u);
}

TEST(synth, weights_are_of_the_size_that_keeps_activations_and_no_two_rows_are_equal) {
    for (const char* format : {"BF16", "Q4_0", "Q4_K"}) {
        const ModelFile file = make_synth("tiny-qwen3", format, 3);
        for (const std::string& name : file.tensor_names()) {
            SCOPED_TRACE(name + " " + format);
            const Tensor& tensor = *file.find(name);
            std::vector<float> row(static_cast<size_t>(tensor.n_cols()));
            std::set<std::vector<float>> rows;
            double sum = 0, sum_squares = 0;
            for (int64_t i = 0; i < tensor.n_rows(); i++) {
                unpack_row(tensor, i, row.data());
                EXPECT_TRUE(rows.insert(row).second) << "row " << i << " is there twice";
                if (tensor.n_cols() >= 512) {
                    EXPECT_FALSE(std::equal(row.begin(), row.begin() + 256, row.begin() + 256))
                        << "row " << i << " repeats itself";
                }
                for (float x : row) sum += x, sum_squares += static_cast<double>(x) * x;
            }
            const auto n = static_cast<double>(tensor.n_elements());
            const double mean = sum / n, deviation = std::sqrt(sum_squares / n - mean * mean);
            if (tensor.n_dims == 1) {
                EXPECT_NEAR(mean, 1, 0.06);
                EXPECT_NEAR(deviation, 0.1, 0.03);
            } else {
                const double expected = 1 / std::sqrt(static_cast<double>(tensor.n_cols()));
                EXPECT_NEAR(mean, 0, expected * 0.03);
                EXPECT_NEAR(deviation, expected, expected * 0.04);
            }
        }
    }
}

TEST(synth, tokenizers_know_words_and_every_byte) {
    std::string every_byte;
    for (int byte = 0; byte < 256; byte++) every_byte += static_cast<char>(byte);
    for (const char* name : {"tiny-llama3", "tiny-qwen3", "tiny-qwen2", "tiny-open-llama"}) {
        SCOPED_TRACE(name);
        const Tokenizer tokenizer = Tokenizer::open(make_synth(name, "F16", 1));
        const EncodeOptions no_bos{.add_bos = false};
        EXPECT_EQ(tokenizer.n_vocab(), 4096);
        EXPECT_EQ(tokenizer.encode("Where is the water that people want", no_bos).size(), 7u);
        for (const std::string& text :
             {std::string("The computer's 12 answers:\n\n\tna\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd"),
              every_byte}) {
            EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, no_bos), true), text);
        }
    }
}

TEST(synth, control_tokens_have_their_published_ids) {
    struct Expected {
        const char* name;
        Token id;
        std::string_view text;
    };
    for (const Expected& expected : {
             Expected{"llama-3.2-1b", 128000, "<|begin_of_text|>"},
             {"llama-3.2-1b", 128009, "<|eot_id|>"},
             {"llama-3.2-1b", 128255, "<|reserved_special_token_247|>"},
             {"qwen3-0.6b", 151643, "<|endoftext|>"},
             {"qwen3-0.6b", 151645, "<|im_end|>"},
             {"qwen3-0.6b", 151668, "</think>"},
             {"smollm2-135m", 0, "<|endoftext|>"},
             {"smollm2-135m", 2, "<|im_end|>"},
             {"smollm2-135m", 16, "<empty_output>"},
         }) {
        const std::string header = plan_synth(expected.name, "Q4_0").writer.header();
        const std::string key = "tokenizer.ggml.tokens";
        size_t at = header.find(key);
        ASSERT_NE(at, std::string::npos);
        at += key.size() + 4 + 4 + 8;  // the value's type, its elements' type, their number
        for (Token id = 0;; id++) {
            uint64_t n_bytes;
            memcpy(&n_bytes, header.data() + at, sizeof(n_bytes));
            if (id == expected.id) {
                EXPECT_EQ(header.substr(at + 8, n_bytes), expected.text) << expected.name;
                break;
            }
            at += 8 + n_bytes;
        }
    }
}

TEST(synth, unknown_names_and_formats_are_refused_with_the_known_ones) {
    EXPECT_EQ(error_of([] { make_synth("gpt-5", "Q4_0", 1); }),
              "synth: unknown model gpt-5; one of llama-3.2-1b, llama-3.2-3b, llama-3.1-8b, "
              "qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, smollm2-135m, tiny-llama3, tiny-qwen3, "
              "tiny-qwen2, tiny-open-llama");
    EXPECT_EQ(error_of([] {
                  make_synth("tiny-qwen3", "q3\x1b", 1);
              }).find("synth: unknown format q3\\x1b; one of F32, F16, BF16, Q4_0"),
              0u);
    EXPECT_EQ(error_of([] {
                  make_synth("tiny-qwen3", "affine4", 1);
              }).find("synth: a GGUF file cannot hold the format affine4; one of F32"),
              0u);
}

TEST(synth, progress_rises_to_one_and_may_stop_the_work) {
    double last = 0;
    make_synth("tiny-llama3", "Q8_0", 1, [&](double share) {
        EXPECT_GE(share, last);
        last = share;
    });
    EXPECT_EQ(last, 1);

    TemporaryFolder folder;
    const std::string path = folder.path("model.gguf");
    EXPECT_EQ(error_of([&] {
                  write_synth("tiny-llama3", "Q8_0", 1, path, false,
                              [](double) { throw Error("stopped"); });
              }),
              "stopped");
    EXPECT_TRUE(list_folder(folder.path()).empty());
    folder.write("model.gguf", "precious");
    EXPECT_EQ(error_of([&] { write_synth("tiny-llama3", "Q8_0", 1, path, false); }),
              path + ": exists already; it was left as it was");
    write_synth("tiny-llama3", "Q8_0", 1, path, true);
    EXPECT_EQ(ModelFile::open(path).find("token_embd.weight")->n_rows(), 4096);
}

}  // namespace
}  // namespace ridge
