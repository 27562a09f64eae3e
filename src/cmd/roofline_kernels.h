#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/step_profile.h"
#include "model/ceiling.h"

namespace ridge {

// What all threads of a machine reach together, as kernels are held against it.
class Roof {
  public:
    explicit Roof(const Ceilings& ceilings);

    struct Level {
        std::string name;
        int64_t n_bytes = 0;   // that all threads have of it; 0: memory
        double read_gbps = 0;  // of all threads
    };
    const std::vector<Level>& levels() const { return levels_; }  // memory is the last
    // The nearest one that holds so many bytes.
    const Level& level_of(int64_t n_bytes) const;
    // GFLOP/s of a kind of arithmetic; of one that was not measured those of f32.
    double gflops(std::string_view name) const;
    double dispatch_us() const { return dispatch_us_; }

  private:
    std::vector<Level> levels_;
    std::vector<Ceiling> arithmetic_;
    double dispatch_us_;
};

enum class Bound {
    kMemory,
    kCache,
    kArithmetic,
    kLaunch,  // the work is less than it takes to hand it to the threads
};

// A kernel of a step under the roof. Bytes and flops are counted (model/work.h): every operand read
// once, every result written once. Which level of memory they pass is modelled by sizes alone:
// weights and the cache come from the level that holds all those of the step, since the whole step
// passes between two reads of them; a call's rows from the one that holds them.
struct PlacedKernel {
    std::string stage, node, checkpoint, weights;
    std::vector<NodeGroup::Matrix> matrices;  // what `weights` says
    int64_t n_calls = 0;                      // in a step; what follows is of all of them together
    int64_t n_launches = 0;                   // on a device (NodeGroup)
    bool in_graph = false;
    Work work;      // without its operands, which do not live as long
    double us = 0;  // median over steps
    double gbps = 0, gflops = 0;
    double intensity = 0;  // flops a byte
    std::string level;     // that most of the bytes' time goes to
    std::string arithmetic;
    double roof_us = 0;  // that the bytes take at their levels' rates, or the flops if that is more
    Bound bound = Bound::kMemory;
    std::vector<double> samples_ns;

    double share_of_roof() const { return us > 0 ? roof_us / us : 0; }
    std::string name() const;  // "ffn_in", "ffn_in/matmul"
    // "memory", "L3", "int8", "launch"
    std::string bound_text() const;
};

// `step_bytes`: weights, keys and values of all kernels of the step.
PlacedKernel place_kernel(const NodeGroup& group, int64_t step_bytes, std::string_view arithmetic,
                          const Roof& roof);

}  // namespace ridge
