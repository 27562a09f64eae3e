#pragma once

#include <cstdint>
#include <span>

#include "model/sample_params.h"

namespace ridge::cuda {

// How one row's token is drawn (model/sample_params.h), as kernels read it.
struct RowDraw {
    double uniform;    // of the seed and the position
    double log_min_p;  // -inf: all are kept
    float temperature, top_p;
    float repeat_penalty, frequency_penalty, presence_penalty;
    int32_t top_k;             // 0: all
    int32_t n_logprobs;        // -1: none
    int32_t biases, n_biases;  // where they begin in the words: pairs of a token and a bias' bits,
                               // by tokens ascending
    int32_t history, n_history;  // tokens that penalties are for
};

// What a batch's rows want room for.
struct SampleNeeds {
    int64_t n_rows = 0;
    int64_t n_biases = 0, n_history = 0;  // words
    int n_top = 0;                        // log probabilities of one row, beside the drawn token's

    int64_t n_words() const { return n_biases + n_history; }
};
SampleNeeds sample_needs(std::span<const SampleRow> rows);

// draws [n_rows]. The words that they are told of are first the biases, then the histories of all
// rows. A bias for a token that is not there, or that is no number, is an Error, as it is of
// ref::sample.
void write_draws(std::span<const SampleRow> rows, int64_t n_vocab, RowDraw* draws);
void write_biases(std::span<const SampleRow> rows, int32_t* words);  // [n_biases]
// [n_history] tokens, drawn_by() among them.
void write_histories(std::span<const SampleRow> rows, int32_t* words);

// Whether a token beyond the first kMaxListed candidates may be drawn, so that kernels must be
// ready to order all of them.
constexpr int kMaxListed = 1024;
bool draws_from_all(const SampleParams& params);

}  // namespace ridge::cuda
