#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/model_source.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/values.h"
#include "engine/engine.h"
#include "model/cost.h"
#include "model/kv_cache.h"

namespace ridge {
namespace {

constexpr size_t kMaxValueBytes = 80;
constexpr size_t kMaxNameColumn = 48;

struct InspectOptions {
    OpenOptions open;
    bool metadata = false, tensors = false, json = false, quiet = false;
    FromVariables from_variables;
};

struct FormatTotal {
    int64_t n_tensors = 0, n_bytes = 0, n_elements = 0;
};

// Everything that inspect says of a model, read from headers alone.
struct Inspection {
    ModelFile file;
    std::vector<std::pair<std::string, std::string>> metadata;  // printable
    std::vector<std::pair<std::string, FormatTotal>> formats;   // most bytes first
    Config config;
    int64_t n_parameters = 0, weight_bytes = 0, bytes_per_token = 0;
    int64_t n_ctx = 0, kv_bytes = 0;
};

std::vector<std::pair<std::string, std::string>> metadata_of(const ModelFile& file) {
    std::vector<std::pair<std::string, std::string>> lines;
    if (file.type() == FileType::kGguf) {
        for (const GgufEntry& entry : file.metadata().entries()) {
            lines.emplace_back(printable(entry.key), gguf_type_text(entry) + "  " +
                                                         gguf_value_text(entry, kMaxValueBytes));
        }
        return lines;
    }
    for (const auto& [key, value] : file.config().items())
        lines.emplace_back(printable(key), printable(dump_json(value), kMaxValueBytes));
    return lines;
}

std::vector<std::pair<std::string, FormatTotal>> formats_of(const ModelFile& file) {
    std::map<std::string, FormatTotal> totals;
    for (size_t i = 0; i < file.tensor_names().size(); i++) {
        const Tensor& tensor = file.tensor(i);
        FormatTotal& total = totals[std::string(tensor.format->name)];
        total.n_tensors++;
        total.n_bytes += tensor.n_bytes();
        total.n_elements += tensor.n_elements();
    }
    std::vector<std::pair<std::string, FormatTotal>> sorted(totals.begin(), totals.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return a.second.n_bytes > b.second.n_bytes;
    });
    return sorted;
}

void read_sizes(Inspection& model, const OpenOptions& open) {
    model.config = read_config(model.file);
    Weights weights = read_weights(model.file, model.config);
    model.n_parameters = n_parameters(model.config, weights);
    model.weight_bytes = total_weight_bytes(model.config, weights);
    model.bytes_per_token = decode_weight_bytes(model.config, weights);
    model.n_ctx = choose_context(open.n_ctx, model.config);
    int64_t per_position =
        kv_bytes_per_position(model.config, read_cache_type("-ctk", open.cache_type_k),
                              read_cache_type("-ctv", open.cache_type_v));
    if (per_position > std::numeric_limits<int64_t>::max() / model.n_ctx) {
        throw Error("-c {}: the KV cache is too large to count", model.n_ctx);
    }
    model.kv_bytes = model.n_ctx * per_position;
}

std::string size_text(int64_t n_bytes) {
    if (n_bytes < 10'000) return fmt::format("{} B", n_bytes);
    if (n_bytes < 1'000'000) return fmt::format("{:.1f} kB", static_cast<double>(n_bytes) * 1e-3);
    if (n_bytes < 1'000'000'000)
        return fmt::format("{:.1f} MB", static_cast<double>(n_bytes) * 1e-6);
    return fmt::format("{:.2f} GB", static_cast<double>(n_bytes) * 1e-9);
}

void print_metadata(Output& output, const Inspection& model) {
    output.write(model.file.type() == FileType::kGguf ? "Metadata\n" : "config.json\n");
    size_t width = 0;
    for (const auto& [key, value] : model.metadata)
        width = std::min(std::max(width, key.size()), kMaxNameColumn);
    for (const auto& [key, value] : model.metadata)
        output.write(fmt::format("  {:<{}}  {}\n", key, width, value));
}

void print_tensors(Output& output, const Inspection& model) {
    output.write("Tensors\n");
    size_t width = 0;
    const std::vector<std::string>& names = model.file.tensor_names();
    for (const std::string& name : names)
        width = std::min(std::max(width, printable(name).size()), kMaxNameColumn);
    for (size_t i = 0; i < names.size(); i++) {
        const Tensor& tensor = model.file.tensor(i);
        output.write(fmt::format("  {:<{}}  {:<18}  {:<8}  {:>10}\n", printable(names[i]), width,
                                 shape_text(tensor), tensor.format->name,
                                 size_text(tensor.n_bytes())));
    }
}

void print_formats(Output& output, const Inspection& model) {
    output.write("Formats\n");
    for (const auto& [name, total] : model.formats) {
        output.write(fmt::format("  {:<8}  {:>5} tensors  {:>15} elements  {:>10}\n", name,
                                 total.n_tensors, total.n_elements, size_text(total.n_bytes)));
    }
}

void print_summary(Output& output, const Inspection& model, const OpenOptions& open) {
    const Config& c = model.config;
    auto row = [&](std::string_view name, const std::string& value) {
        output.write(fmt::format("  {:<22}  {}\n", name, value));
    };
    output.write("Model\n");
    row("file", fmt::format("{} ({})", printable(model.file.path()),
                            size_text(static_cast<int64_t>(model.file.file_bytes()))));
    row("kind", model.file.type() == FileType::kGguf ? "GGUF" : "safetensors");
    row("architecture", printable(c.architecture));
    if (!c.name.empty()) row("name", printable(c.name));
    row("layers", std::to_string(c.n_layers));
    row("d_model, d_ff", fmt::format("{}, {}", c.d_model, c.d_ff));
    row("heads, KV heads", fmt::format("{}, {} of {}", c.n_heads, c.n_kv_heads, c.d_head));
    row("vocabulary", std::to_string(c.n_vocab));
    row("context made for", std::to_string(c.n_ctx_train));
    row("parameters",
        fmt::format("{:.2f} million", static_cast<double>(model.n_parameters) * 1e-6));
    row("weights", size_text(model.weight_bytes));
    row("read per token", size_text(model.bytes_per_token) + " of weights");
    row(fmt::format("KV cache at -c {}", model.n_ctx),
        fmt::format("{} (K {}, V {})", size_text(model.kv_bytes), open.cache_type_k,
                    open.cache_type_v));
    row("memory needed",
        size_text(model.weight_bytes + model.kv_bytes) + " of weights and KV cache");
}

Json inspection_json(const Inspection& model) {
    const Config& c = model.config;
    Json json;
    json["path"] = model.file.path();
    json["kind"] = model.file.type() == FileType::kGguf ? "gguf" : "safetensors";
    json["files"] = model.file.file_paths();
    json["file_bytes"] = model.file.file_bytes();
    json["architecture"] = c.architecture;
    json["name"] = c.name;
    json["config"] = {{"n_layers", c.n_layers}, {"d_model", c.d_model},
                      {"n_heads", c.n_heads},   {"n_kv_heads", c.n_kv_heads},
                      {"d_head", c.d_head},     {"d_ff", c.d_ff},
                      {"n_vocab", c.n_vocab},   {"n_ctx_train", c.n_ctx_train},
                      {"norm_eps", c.norm_eps}, {"rope_theta", c.rope_theta},
                      {"d_rope", c.d_rope},     {"rope_scaled", !c.rope_factors.empty()},
                      {"qk_norm", c.qk_norm},   {"tied_head", c.tied_head}};
    json["n_parameters"] = model.n_parameters;
    json["weight_bytes"] = model.weight_bytes;
    json["weight_bytes_per_token"] = model.bytes_per_token;
    json["n_ctx"] = model.n_ctx;
    json["kv_bytes"] = model.kv_bytes;
    json["memory_bytes"] = model.weight_bytes + model.kv_bytes;
    Json formats = Json::array();
    for (const auto& [name, total] : model.formats) {
        formats.push_back({{"format", name},
                           {"tensors", total.n_tensors},
                           {"elements", total.n_elements},
                           {"bytes", total.n_bytes}});
    }
    json["formats"] = std::move(formats);
    Json metadata = Json::array();
    for (const auto& [key, value] : model.metadata)
        metadata.push_back({{"key", key}, {"value", value}});
    json["metadata"] = std::move(metadata);
    Json tensors = Json::array();
    for (size_t i = 0; i < model.file.tensor_names().size(); i++) {
        const Tensor& tensor = model.file.tensor(i);
        Json shape = Json::array();
        for (int d = 0; d < tensor.n_dims; d++) shape.push_back(tensor.shape[d]);
        tensors.push_back({{"name", model.file.tensor_names()[i]},
                           {"shape", std::move(shape)},
                           {"format", std::string(tensor.format->name)},
                           {"bytes", tensor.n_bytes()}});
    }
    json["tensors"] = std::move(tensors);
    return json;
}

bool parse(const std::vector<std::string>& arguments, InspectOptions& options) {
    CommandLine line("inspect", "Shows what is in a model file, from its headers alone.",
                     "ridge inspect -m model.gguf -c 32768");
    add_model_option(line, options.open.model);
    line.value("-c,--ctx-size", "N", "context that memory is told for (default: as run's)",
               [&](Where where, const std::string& text) {
                   options.open.n_ctx = parse_integer(where, text, 0, INT32_MAX);
               });
    add_cache_type_options(line, options.open);
    line.flag("--metadata", "the metadata alone", options.metadata);
    line.flag("--tensors", "the tensors alone", options.tensors);
    line.flag("--json", "one JSON object with everything", options.json);
    add_quiet_option(line, options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    need_model("inspect", options.open.model);
    return true;
}

int inspect(const InspectOptions& options) {
    Inspection model{open_model_header(options.open.model), {}, {}, {}};
    model.metadata = metadata_of(model.file);
    model.formats = formats_of(model.file);
    Output output;
    if (options.json) {
        read_sizes(model, options.open);
        output.write_json(inspection_json(model));
        output.flush();
        return 0;
    }
    bool all = !options.metadata && !options.tensors;
    if (all || options.metadata) print_metadata(output, model);
    if (all || options.tensors) print_tensors(output, model);
    if (all) {
        print_formats(output, model);
        output.flush();  // what the file holds is shown even where it is no model that can run
        read_sizes(model, options.open);
        print_summary(output, model, options.open);
    }
    output.flush();
    return 0;
}

}  // namespace

int inspect_command(const std::vector<std::string>& arguments) {
    InspectOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] { return inspect(options); });
}

}  // namespace ridge
