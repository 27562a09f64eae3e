#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "file/gguf_writer.h"
#include "format/format.h"

namespace ridge {

// One tensor of a synthetic model, and what its numbers are.
struct SynthTensor {
    std::string name;
    const Format* format;
    std::vector<int64_t> shape;  // row-major
    // Random numbers of this mean and standard deviation, unless there are `values`.
    float mean = 0, deviation = 0;
    std::vector<float> values;  // [shape]

    int64_t n_cols() const { return shape.back(); }
    int64_t n_rows() const { return shape.size() == 1 ? 1 : shape[0]; }
};

// Everything of a synthetic model but its random numbers.
struct SynthPlan {
    std::string title;  // "synth:tiny-qwen3:Q4_K_M"
    GgufWriter writer;  // metadata and tensors; index i of the writer is tensors[i]
    std::vector<SynthTensor> tensors;
};

// See synth.h for names and formats; throws its errors.
SynthPlan plan_synth(const std::string& name, const std::string& format);

}  // namespace ridge
