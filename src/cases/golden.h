#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "text/token.h"

namespace ridge {

// What an independent implementation says a model gives: transformers in float32 on dequantised
// weights. Made by scripts/goldens, whose oracle.py describes the files.

// Relative L2 of logits where every sum is float32.
constexpr double kGoldenError = 1e-4;
// Where kernels round activations to int8 blocks or to 16 bits: the small models' random weights
// magnify it. What it means on real weights is measured as a divergence (docs/verification.md).
constexpr double kRoundedGoldenError = 0.1;

// Logits after the token at `position` of ids + greedy.
struct GoldenRow {
    int64_t position = 0;
    Token argmax = 0;
    double margin = 0;  // largest logit less the second
    double norm = 0;    // L2, of all logits
    // Either all of them, or the largest ones and a projection of all.
    std::vector<float> logits;       // [n_vocab]
    std::vector<Token> top_ids;      // largest first
    std::vector<float> top_logits;   // parallel to top_ids
    std::vector<double> projection;  // logits times Golden::signs
};

struct GoldenPrompt {
    std::string name;
    bool has_text = false;
    std::string text;
    std::vector<Token> ids;
    std::vector<Token> greedy;  // what follows, the model's end tokens not obeyed
    std::string greedy_text;    // where has_text of a real model
    std::vector<GoldenRow> rows;
};

struct Golden {
    std::string folder;
    std::vector<std::string> files;  // what to open, relative to the folder
    int n_vocab = 0;
    int n_projections = 0;
    uint64_t projection_seed = 0;
    std::vector<GoldenPrompt> prompts;

    // Relative L2 error of these logits, as far as what is stored can tell: of all, or the worst of
    // the largest ones, the norm, and the projection (whose error is that of all logits times the
    // square root of its length, within a quarter).
    double error(const GoldenRow& row, std::span<const float> logits) const;
};

// Error for files that are not there or not goldens.
Golden read_golden(const std::string& folder);

// One prompt, its continuation given: the logits of every golden position within max_error, and
// the most probable token the golden's where its margin is more than twice that.
class GoldenCheck {
  public:
    // Of positions below n_positions alone. Both must live on.
    GoldenCheck(const Golden& golden, const GoldenPrompt& prompt, double max_error,
                int64_t n_positions = INT64_MAX);

    const std::vector<Token>& tokens() const { return tokens_; }
    void see(int64_t position, std::span<const float> logits);  // of each of tokens(), in order

    double worst() const { return worst_; }
    size_t n_seen() const { return n_seen_; }
    std::string fault() const;  // empty: all of it holds; else the first that does not

  private:
    const Golden& golden_;
    double max_error_;
    std::vector<Token> tokens_;
    std::map<int64_t, const GoldenRow*> wanted_;
    size_t n_seen_ = 0;
    double worst_ = 0;
    std::string fault_;
};

}  // namespace ridge
