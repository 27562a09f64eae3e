#include "cmd/roofline_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/aligned_table.h"
#include "cmd/build_info.h"
#include "cmd/machine_json.h"
#include "cmd/model_json.h"
#include "cmd/step_json.h"

namespace ridge {
namespace {

using Rows = std::vector<std::vector<std::string>>;

double mb(int64_t n_bytes) {
    return 1e-6 * static_cast<double>(n_bytes);
}

std::string_view unit_of(const Ceiling& ceiling) {
    if (ceiling.kind != CeilingKind::kArithmetic) return "GB/s";
    return ceiling.name.starts_with("int8") ? "GOP/s" : "GFLOP/s";
}

// Of a ceiling's rates in a unit in which they have few digits.
bool is_in_tera(const Ceiling& ceiling) {
    return ceiling.rate >= 10'000;
}
std::string number_text(const Ceiling& ceiling, double rate) {
    return fmt::format("{:.4g}", is_in_tera(ceiling) ? 1e-3 * rate : rate);
}
std::string rate_text_of(const Ceiling& ceiling, double rate) {
    std::string unit(unit_of(ceiling));
    if (is_in_tera(ceiling)) unit[0] = 'T';
    return number_text(ceiling, rate) + " " + unit;
}

std::string ceiling_name(const Ceiling& ceiling) {
    const char* kind = ceiling.kind == CeilingKind::kRead   ? " read"
                       : ceiling.kind == CeilingKind::kCopy ? " copy"
                                                            : "";
    std::string name = ceiling.name + kind;
    if (ceiling.kind == CeilingKind::kArithmetic) name += fmt::format(" ({})", ceiling.how);
    return name;
}

std::string size_text(int64_t n_bytes) {
    if (n_bytes == 0) return "";
    if (n_bytes < 1 << 20) return fmt::format("{} KiB", n_bytes >> 10);
    return fmt::format("{:.3g} MiB", static_cast<double>(n_bytes) / (1 << 20));
}

std::string rate_with_spread(const Ceiling& ceiling) {
    const auto [low, high] = std::minmax_element(ceiling.rates.begin(), ceiling.rates.end());
    return fmt::format("{} ({} to {})", rate_text(ceiling), number_text(ceiling, *low),
                       number_text(ceiling, *high));
}

std::string ceilings_table(const Ceilings& ceilings) {
    std::vector<int> threads;
    bool has_theoretical = false;
    for (const Ceiling& ceiling : ceilings.list) {
        if (std::find(threads.begin(), threads.end(), ceiling.n_threads) == threads.end())
            threads.push_back(ceiling.n_threads);
        has_theoretical = has_theoretical || ceiling.theoretical > 0;
    }
    const bool has_threads = threads.front() > 0;
    Rows rows(1, {"ceiling", has_threads ? "of a thread" : "size"});
    for (int n : threads) {
        rows[0].push_back(!has_threads ? "measured"
                          : n == 1     ? "1 thread"
                                       : fmt::format("{} threads", n));
    }
    if (has_theoretical) rows[0].emplace_back("theoretical");
    for (const Ceiling& first : ceilings.list) {
        if (first.n_threads != threads.front()) continue;
        // Of a shared cache a thread has the less the more of them there are.
        std::string sizes;
        std::vector<std::string> row = {ceiling_name(first), ""};
        for (const Ceiling& same : ceilings.list) {
            if (same.kind != first.kind || same.name != first.name) continue;
            row.push_back(rate_with_spread(same));
            const std::string size = size_text(same.level_bytes);
            if (sizes.find(size) == std::string::npos) sizes += (sizes.empty() ? "" : ", ") + size;
        }
        row[1] = sizes;
        if (has_theoretical) {
            row.push_back(first.theoretical > 0 ? rate_text_of(first, first.theoretical)
                                                : "unknown");
        }
        rows.push_back(std::move(row));
    }
    std::string text = aligned_table(rows, 1);
    text += fmt::format("\nmedians, with the lowest and the highest; a launch takes {:.2f} us{}",
                        ceilings.dispatch_us, has_threads ? "" : ", behind others in a graph");
    return text + (has_theoretical ? "\n" : "; theoretical peaks are unknown\n");
}

std::vector<std::string> row_of(const PlacedKernel& kernel, double step_us) {
    const bool computes = kernel.work.flops > 0;
    return {kernel.name(),
            kernel.checkpoint,
            kernel.weights,
            std::to_string(kernel.n_calls),
            fmt::format("{:.1f}", kernel.us),
            fmt::format("{:.1f}", 100 * kernel.us / step_us),
            fmt::format("{:.3f}", mb(kernel.work.bytes())),
            computes ? fmt::format("{:.3f}", mb(kernel.work.flops)) : "",
            fmt::format("{:.2f}", kernel.gbps),
            computes ? fmt::format("{:.2f}", kernel.gflops) : "",
            computes ? fmt::format("{:.3g}", kernel.intensity) : "",
            fmt::format("{:.0f}", 100 * kernel.share_of_roof()),
            kernel.bound_text()};
}

std::string step_text(const RooflineStep& step) {
    Rows rows = {{"kernel", "by", "weights", "calls", "us", "% of step", "MB", "MFLOP", "GB/s",
                  "GFLOP/s", "FLOP/byte", "% of roof", "bound by"}};
    for (const PlacedKernel& kernel : step.kernels) rows.push_back(row_of(kernel, step.traced_us));
    std::vector<std::string> between(rows[0].size());
    between[0] = "between";
    between[4] = fmt::format("{:.1f}", step.between_us);
    between[5] = fmt::format("{:.1f}", 100 * step.between_us / step.traced_us);
    rows.push_back(std::move(between));
    std::string text =
        fmt::format("{}: {:.3f} ms, {:.1f} tok/s (median of {})\n\n", step.name(),
                    1e-6 * median_of(step.samples_ns), step.tok_s(), step.samples_ns.size());
    text += aligned_table(rows, 3);
    if (step.on_device) {
        const bool alone = std::any_of(step.kernels.begin(), step.kernels.end(),
                                       [](const PlacedKernel& kernel) { return kernel.in_graph; });
        text += alone
                    ? "\nus: each row's kernels alone, in a graph of their own (see trace); as the "
                      "step runs they overlap with their neighbours\n"
                    : "\nus: between marks before and after each call\n";
    }
    if (step.n_prompt > 0) return text;
    const double bound = step.bound_tok_s();
    return text + fmt::format(
                      "\nmemory allows {:.1f} tok/s: weights of {:.3f} MB and KV of {:.3f} MB a "
                      "step at {:.2f} GB/s; reached: {:.1f} tok/s, {:.0f} %\n",
                      bound, mb(step.work.weight_bytes), mb(step.work.kv_bytes), step.read_gbps,
                      step.tok_s(), 100 * step.tok_s() / bound);
}

Json ceiling_json(const Ceiling& ceiling) {
    Json json;
    json["kind"] = ceiling.kind == CeilingKind::kRead   ? "read"
                   : ceiling.kind == CeilingKind::kCopy ? "copy"
                                                        : "arithmetic";
    json["name"] = ceiling.name;
    if (ceiling.kind == CeilingKind::kArithmetic) json["instruction"] = ceiling.how;
    json["n_threads"] = ceiling.n_threads;
    json["unit"] = std::string(unit_of(ceiling));
    json["rate"] = ceiling.rate;
    json["rates"] = ceiling.rates;
    if (ceiling.theoretical > 0) json["theoretical"] = ceiling.theoretical;
    if (ceiling.kind == CeilingKind::kArithmetic) return json;
    if (ceiling.level_bytes > 0) json["level_bytes"] = ceiling.level_bytes;
    if (ceiling.is_scratchpad) json["is_scratchpad"] = true;
    json["buffer_bytes"] = ceiling.buffer_bytes;
    return json;
}

Json kernel_json(const PlacedKernel& kernel) {
    constexpr const char* kBounds[] = {"memory", "cache", "arithmetic", "launch"};
    Json json;
    json["stage"] = kernel.stage;
    json["node"] = kernel.node;
    json["checkpoint"] = kernel.checkpoint;
    json["weights"] = matrices_json(kernel.matrices);
    json["n_calls"] = kernel.n_calls;
    if (kernel.n_launches > 0) {
        json["n_launches"] = kernel.n_launches;
        json["in_graph"] = kernel.in_graph;
    }
    json["bytes"] = bytes_json(kernel.work);
    json["bytes"]["from"] = "counted";
    json["flops"] = kernel.work.flops;
    json["median_us"] = kernel.us;
    json["gbps"] = kernel.gbps;
    json["gflops"] = kernel.gflops;
    json["intensity"] = kernel.intensity;
    json["level"] = {{"name", kernel.level}, {"from", "modelled"}};
    json["arithmetic"] = kernel.arithmetic;
    json["roof_us"] = kernel.roof_us;
    json["share_of_roof"] = kernel.share_of_roof();
    json["bound"] = kBounds[static_cast<int>(kernel.bound)];
    json["samples_ns"] = kernel.samples_ns;
    return json;
}

Json step_json(const RooflineStep& step) {
    Json json;
    json["n_prompt"] = step.n_prompt;
    json["n_parallel"] = step.n_parallel;
    json["n_depth"] = step.n_depth;
    json["tok_s"] = step.tok_s();
    json["read_gbps"] = step.read_gbps;
    json["bound_tok_s"] = step.n_prompt > 0 ? Json() : Json(step.bound_tok_s());
    json["bytes"] = bytes_json(step.work);
    json["bytes"]["from"] = "counted";
    json["flops"] = step.work.flops;
    json["traced_us"] = step.traced_us;
    json["between_us"] = step.between_us;
    json["samples_ns"] = step.samples_ns;
    json["kernels"] = Json::array();
    for (const PlacedKernel& kernel : step.kernels) json["kernels"].push_back(kernel_json(kernel));
    return json;
}

}  // namespace

std::string RooflineStep::name() const {
    return step_name(n_prompt, n_parallel, n_depth);
}

double RooflineStep::tok_s() const {
    return 1e9 * static_cast<double>(n_tokens()) / median_of(samples_ns);
}

double RooflineResult::read_wall_gbps() const {
    return median_of(read_walls_gbps);
}

double RooflineStep::bound_tok_s() const {
    const int64_t n_bytes = work.weight_bytes + work.kv_bytes;
    return 1e9 * read_gbps * n_parallel / static_cast<double>(n_bytes);
}

std::string rate_text(const Ceiling& ceiling) {
    return rate_text_of(ceiling, ceiling.rate);
}

std::string machine_text(const RooflineResult& result) {
    const ModelInfo& model = result.model;
    if (!model.gpu.empty()) {
        return fmt::format("{}, driver {}, {}", model.gpu,
                           model.driver.empty() ? "unknown" : model.driver, model.runtime);
    }
    return fmt::format("{}, {}, {}", cpu_name(), counted(model.n_threads, "thread"),
                       result.ceilings.isa);
}

std::string roofline_text(const RooflineResult& result) {
    std::string text = machine_text(result) + "\n\n" + ceilings_table(result.ceilings);
    for (const RooflineStep& step : result.steps) text += "\n" + step_text(step);
    return text;
}

nlohmann::ordered_json roofline_json(const RooflineResult& result) {
    Json json;
    json["build_commit"] = std::string(build_info().commit);
    json["build_version"] = std::string(build_info().version);
    json["date"] = date_of(result.time_s);
    json["test_time"] = time_of(result.time_s);
    json["machine"] = machine_json(result.model);
    json["device"] = result.model.device;
    json["isa"] = result.ceilings.isa;
    json["n_threads"] = result.model.n_threads;
    json["dispatch_us"] = result.ceilings.dispatch_us;
    json["share_run"] = result.ceilings.share_run;
    json["ceilings"] = Json::array();
    for (const Ceiling& ceiling : result.ceilings.list) {
        json["ceilings"].push_back(ceiling_json(ceiling));
    }
    if (result.steps.empty()) return json;
    json["model"] = model_json(result.model);
    json["read_wall_gbps"] = result.read_wall_gbps();
    json["read_walls_gbps"] = result.read_walls_gbps;
    json["steps"] = Json::array();
    for (const RooflineStep& step : result.steps) json["steps"].push_back(step_json(step));
    return json;
}

}  // namespace ridge
