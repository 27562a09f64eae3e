#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/token.h"

namespace ridge {

// What an independent implementation says a model gives; made by scripts/goldens, whose oracle.py
// describes the files.

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

Golden read_golden(const std::string& folder);

}  // namespace ridge
