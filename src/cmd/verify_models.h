#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/verify_kernels.h"
#include "cmd/verify_report.h"
#include "engine/engine.h"

namespace ridge {

// Whole models: small ones of random weights, one for each kind of architecture, at every
// checkpoint against the reference's logits; and models that have goldens.

std::vector<std::string> verify_model_names();    // "tiny-qwen3", ...
std::vector<std::string> verify_model_formats();  // of their weights

// One model to be opened: at every checkpoint that is wanted, and at the last one on instruction
// sets other than the best.
struct ModelWork {
    std::string label{};   // "tiny-qwen3", or the golden's name
    std::string model{};   // as -m has it
    std::string format{};  // of synth models
    std::string golden{};  // folder of the golden; empty: held against the reference
    uint64_t seed = 0;
    bool is_large = false;  // a real one: few positions, fewer where nothing but loops computes
};

// Every format once, the architectures in turns, from one on that the seed chooses; and goldens.
// `goldens`: the folder that holds them; none where it is not there. Of these, models that are not
// there are left out.
std::vector<ModelWork> model_work(const VerifyFilter& filter, const std::string& goldens,
                                  uint64_t seed);

// `open`: device, cpu_isa and n_threads.
void verify_model(const OpenOptions& open, const std::string& backend, const ModelWork& work,
                  const VerifyFilter& filter, const VerifyEvents& events, VerifyReport& report);

// Logits of one model at the positions of a text, and how two of them compare.
using ModelLogits = std::vector<std::vector<float>>;  // [n_positions][n_vocab]
struct LogitsDifference {
    double worst = 0, relative_l2 = 0;  // relative L2 of the worst position, and of all together
    int64_t n_argmax = 0;               // positions whose most probable token is the same
    int64_t worst_position = 0;
    std::string fault;  // a logit that is no number
};
LogitsDifference compare_logits(const ModelLogits& want, const ModelLogits& got);
// Empty, or the first logit whose bits differ.
std::string first_other_logit(const ModelLogits& want, const ModelLogits& got);

}  // namespace ridge
