#include "cmd/roofline_kernels.h"

#include <algorithm>

#include "base/check.h"

namespace ridge {
namespace {

// GB/s are thousands of bytes a microsecond, GFLOP/s thousands of operations.
double us_of(int64_t amount, double rate) {
    return rate > 0 ? 1e-3 * static_cast<double>(amount) / rate : 0;
}

int most_threads(const Ceilings& ceilings) {
    int n = 0;
    for (const Ceiling& ceiling : ceilings.list) n = std::max(n, ceiling.n_threads);
    return n;
}

}  // namespace

Roof::Roof(const Ceilings& ceilings) : dispatch_us_(ceilings.dispatch_us) {
    const int n_threads = most_threads(ceilings);
    for (const Ceiling& ceiling : ceilings.list) {
        if (ceiling.n_threads != n_threads) continue;
        if (ceiling.kind == CeilingKind::kArithmetic) arithmetic_.push_back(ceiling);
        if (ceiling.kind != CeilingKind::kRead || ceiling.is_scratchpad) continue;
        const int64_t n_bytes = ceiling.level_bytes * std::max(n_threads, 1);
        levels_.push_back({ceiling.name, n_bytes, ceiling.rate});
    }
    CHECK(!levels_.empty() && levels_.back().n_bytes == 0);
}

const Roof::Level& Roof::level_of(int64_t n_bytes) const {
    for (const Level& level : levels_) {
        if (n_bytes <= level.n_bytes) return level;
    }
    return levels_.back();
}

double Roof::gflops(std::string_view name) const {
    double f32 = 0;
    for (const Ceiling& ceiling : arithmetic_) {
        if (ceiling.name == name) return ceiling.rate;
        if (ceiling.name == "f32") f32 = ceiling.rate;
    }
    return f32;
}

std::string PlacedKernel::name() const {
    return stage == node ? stage : stage + "/" + node;
}

std::string PlacedKernel::bound_text() const {
    switch (bound) {
        case Bound::kArithmetic:
            return arithmetic;
        case Bound::kLaunch:
            return "launch";
        default:
            return level;
    }
}

PlacedKernel place_kernel(const NodeGroup& group, int64_t step_bytes, std::string_view arithmetic,
                          const Roof& roof) {
    PlacedKernel kernel;
    kernel.stage = group.stage, kernel.node = group.node, kernel.checkpoint = group.checkpoint;
    kernel.weights = group.weights, kernel.n_calls = group.n_calls, kernel.work = group.work;
    kernel.matrices = group.matrices;
    kernel.n_launches = group.n_launches, kernel.in_graph = group.in_graph;
    kernel.arithmetic = arithmetic;
    kernel.samples_ns = group.samples_ns;
    kernel.us = 1e-3 * group.median_ns();
    const Work& work = group.work;
    if (kernel.us > 0) {
        kernel.gbps = 1e-3 * static_cast<double>(work.bytes()) / kernel.us;
        kernel.gflops = 1e-3 * static_cast<double>(work.flops) / kernel.us;
    }
    if (work.bytes() > 0) {
        kernel.intensity = static_cast<double>(work.flops) / static_cast<double>(work.bytes());
    }

    const int64_t n_calls = std::max<int64_t>(group.n_calls, 1);
    const Roof::Level& of_weights = roof.level_of(step_bytes);
    const Roof::Level& of_rows = roof.level_of(work.activation_bytes / n_calls);
    const double weights_us = us_of(work.weight_bytes + work.kv_bytes, of_weights.read_gbps);
    const double rows_us = us_of(work.activation_bytes, of_rows.read_gbps);
    const double arithmetic_us = us_of(work.flops, roof.gflops(arithmetic));
    const Roof::Level& level = weights_us >= rows_us ? of_weights : of_rows;
    kernel.level = level.name;
    kernel.roof_us = std::max(weights_us + rows_us, arithmetic_us);
    const int64_t n_dispatches = std::max(n_calls, group.n_launches);
    if (kernel.roof_us < roof.dispatch_us() * static_cast<double>(n_dispatches)) {
        kernel.bound = Bound::kLaunch;
    } else if (arithmetic_us > weights_us + rows_us) {
        kernel.bound = Bound::kArithmetic;
    } else {
        kernel.bound = level.n_bytes > 0 ? Bound::kCache : Bound::kMemory;
    }
    return kernel;
}

}  // namespace ridge
