#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cmd/roofline_kernels.h"
#include "engine/engine.h"
#include "model/ceiling.h"

namespace ridge {

// What `roofline` has measured, and how it is written.

// One kind of step, under the roof.
struct RooflineStep {
    int64_t n_prompt = 0;  // tokens of a prompt's step, from position 0 on; 0: a decode step
    int n_parallel = 1;    // sequences of a decode step, each with n_depth positions before
    int64_t n_depth = 0;
    std::vector<PlacedKernel> kernels;
    Work work;               // of all of them
    double traced_us = 0;    // median of the steps that the kernels' times are of
    double between_us = 0;   // of that, in no kernel
    bool on_device = false;  // whose kernels were timed alone where `in_graph`
    // At which memory can be read: the read wall, or the ceiling of the level that holds the step's
    // weights, keys and values, whichever is higher.
    double read_gbps = 0;
    std::vector<double> samples_ns;  // of steps that were timed whole, and not traced

    int64_t n_tokens() const { return n_prompt > 0 ? n_prompt : n_parallel; }
    std::string name() const;  // "decode step of 1 sequence at position 128"
    double tok_s() const;
    // Tokens a second that memory allows: the weights, keys and values of a decode step at that
    // rate.
    double bound_tok_s() const;
};

struct RooflineResult {
    ModelInfo model;  // without a model: the device alone
    Ceilings ceilings;
    std::vector<RooflineStep> steps;
    std::vector<double> read_walls_gbps;  // of the model's weights, in turns with the steps
    int64_t time_s = 0;                   // since 1970, UTC: when it began

    double read_wall_gbps() const;  // the median
};

// "528.4 GB/s", "33.3 TB/s"; operations of int8 are GOP/s.
std::string rate_text(const Ceiling& ceiling);
// "AMD EPYC, 2 threads, avx512"
std::string machine_text(const RooflineResult& result);

std::string roofline_text(const RooflineResult& result);
nlohmann::ordered_json roofline_json(const RooflineResult& result);

}  // namespace ridge
