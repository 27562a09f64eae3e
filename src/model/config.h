#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "file/model_file.h"

namespace ridge {

// Which elements of a head form the pairs that RoPE rotates.
enum class RopeStyle : uint8_t {
    kHalfSplit,    // (i, i + d_rope / 2): Qwen, and every model in its Hugging Face form
    kInterleaved,  // (2i, 2i + 1): llama models in GGUF, whose Q and K rows are stored permuted for
                   // it
};

// A decoder described by numbers and options. Llama, Qwen2 and Qwen3 are values of it.
struct Config {
    std::string architecture;  // "llama", "qwen2", "qwen3"
    std::string name;          // as the file calls the model; may be empty
    int n_layers = 0;
    int d_model = 0;
    int n_heads = 0;
    int n_kv_heads = 0;
    int d_head = 0;  // apart from d_model / n_heads in some models
    int d_ff = 0;
    int n_vocab = 0;
    int64_t n_ctx_train = 0;  // positions the model was made for
    float norm_eps = 0;
    double rope_theta = 0;
    int d_rope = 0;  // first elements of a head that RoPE rotates; even, at most d_head
    RopeStyle rope_style = RopeStyle::kHalfSplit;
    // Each pair's frequency is divided by its factor: Llama 3 scaling, linear scaling. [d_rope /
    // 2], or empty: all 1.
    std::vector<float> rope_factors;
    bool qk_norm = false;    // RMSNorm over each head of Q and K before RoPE (Qwen3)
    bool tied_head = false;  // the LM head is the embedding

    int d_q() const { return n_heads * d_head; }
    int d_kv() const { return n_kv_heads * d_head; }
};

// Reads and checks every hyper-parameter; errors name the file, the key, the value and what was
// expected.
Config read_config(const ModelFile& file);

// The factors that Llama 3.1's rope_scaling of type "llama3" gives, for d_rope / 2 pairs.
// Source: the reference implementation of Llama 3.1 (apply_scaling), with the smooth part as a
// factor.
std::vector<float> llama3_rope_factors(int d_rope, double theta, double factor,
                                       double low_freq_factor, double high_freq_factor,
                                       double original_n_ctx);

}  // namespace ridge
