#include "cmd/bench_report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/build_info.h"
#include "cmd/fallbacks.h"
#include "cmd/machine_json.h"
#include "cmd/peers.h"
#include "cmd/round_ratio.h"
#include "cmd/tuning_info.h"

namespace ridge {
namespace {

std::vector<double> tokens_per_second(const BenchTest& test,
                                      const std::vector<int64_t>& samples_ns) {
    std::vector<double> rates;
    auto n_tokens = static_cast<double>(test.n_tokens());
    for (int64_t ns : samples_ns)
        rates.push_back(n_tokens * 1e9 / static_cast<double>(std::max<int64_t>(ns, 1)));
    return rates;
}

// A cell of a Markdown table.
std::string cell(std::string_view text) {
    std::string escaped;
    for (char c : printable(text)) escaped += c == '|' ? "\\|" : std::string(1, c);
    return escaped;
}

// "1.24B", "134.5M" below a billion.
std::string count_text(int64_t n, std::string_view billion, std::string_view million) {
    auto x = static_cast<double>(n);
    return x >= 1e9 ? fmt::format("{:.2f}{}", 1e-9 * x, billion)
                    : fmt::format("{:.1f}{}", 1e-6 * x, million);
}

// "llama 1.24B Q4_K"
std::string model_type(const ModelInfo& model) {
    return fmt::format("{} {} {}", model.architecture, count_text(model.n_parameters, "B", "M"),
                       model.format);
}

double bytes_with_kv(int64_t weight_bytes, const ModelInfo& model, const BenchTest& test) {
    if (test.n_prompt > 0 || test.n_gen == 0) return 0;
    // Step i of n_gen attends to n_depth + i + 1 positions.
    double n_positions =
        static_cast<double>(test.n_depth) + 0.5 * static_cast<double>(test.n_gen + 1);
    return static_cast<double>(weight_bytes) / test.n_parallel +
           static_cast<double>(model.kv_bytes_per_position) * n_positions;
}

double read_wall(const BenchResult& result) {
    return spread_of(result.read_walls_gbps).median;
}

// The median over the samples of each one's rate as a share of what the read wall around it allows:
// on a shared machine the wall itself moves, from one second to the next.
double share_of_wall(const BenchResult& result) {
    const double bytes = read_bytes_per_token(result.model, result.test);
    const std::vector<double> rates = tokens_per_second(result.test, result.samples_ns);
    std::vector<double> shares;
    for (size_t i = 0; i < rates.size(); i++) {
        const double wall = (result.read_walls_gbps[i] + result.read_walls_gbps[i + 1]) / 2;
        shares.push_back(wall > 0 ? bytes * rates[i] * 1e-9 / wall : 0);
    }
    return spread_of(shares).median;
}

// How many times as fast Ridge was, round by round.
RoundRatio times_as_fast(const BenchResult& result, const PeerResult& peer) {
    return ratio_of({peer.samples_ns.begin(), peer.samples_ns.end()},
                    {result.samples_ns.begin(), result.samples_ns.end()});
}

Json peer_fields(const BenchResult& result, const PeerResult& peer) {
    const std::vector<double> rates = tokens_per_second(result.test, peer.samples_ns);
    const Spread ts = spread_of(rates);
    const RoundRatio ratio = times_as_fast(result, peer);
    Json json;
    json["peer"] = peer.name;
    json["about"] = parse_json(peer.about, "a peer");
    json["avg_ts"] = ts.mean;
    json["stddev_ts"] = ts.stddev;
    json["median_ts"] = ts.median;
    json["ridge_times_as_fast"] = ratio.median;
    json["ridge_times_as_fast_spread"] = ratio.spread;
    json["same_token"] = peer.same_token ? Json(*peer.same_token) : Json();
    json["samples_ns"] = peer.samples_ns;
    json["samples_ts"] = rates;
    return json;
}

// Everything there is to say of one result, in the order of the CSV's columns.
Json fields_of(const BenchResult& result) {
    const ModelInfo& model = result.model;
    const BenchTest& test = result.test;
    std::vector<double> rates = tokens_per_second(result.test, result.samples_ns);
    std::vector<double> times(result.samples_ns.begin(), result.samples_ns.end());
    Spread ns = spread_of(times), ts = spread_of(rates);
    double bytes = bytes_per_token(model, test);
    Json json;
    json["build_commit"] = std::string(build_info().commit);
    json["build_version"] = std::string(build_info().version);
    json["cpu_info"] = cpu_name();
    json["machine"] = machine_json(model);
    json["device"] = model.device;
    json["isa"] = model.isa;
    json["checkpoint"] = model.checkpoint;
    json["fallbacks"] = fallbacks_json(model.fallbacks);
    json["model_filename"] = model.path;
    json["model_type"] = model_type(model);
    json["model_size"] = model.weight_bytes;
    json["model_n_params"] = model.n_parameters;
    json["n_ubatch"] = result.n_ubatch;
    json["n_threads"] = model.n_threads;
    json["tuning"] = tuning_json(model.tuning);
    json["type_k"] = result.type_k;
    json["type_v"] = result.type_v;
    json["n_parallel"] = test.n_parallel;
    json["n_prompt"] = test.n_prompt;
    json["n_gen"] = test.n_gen;
    json["n_depth"] = test.n_depth;
    json["date"] = date_of(result.time_s);
    json["test_time"] = time_of(result.time_s);
    json["load_ms"] = model.load_ms;
    json["avg_ns"] = std::llround(ns.mean);
    json["stddev_ns"] = std::llround(ns.stddev);
    json["median_ns"] = std::llround(ns.median);
    json["avg_ts"] = ts.mean;
    json["stddev_ts"] = ts.stddev;
    json["median_ts"] = ts.median;
    json["read_wall_gbps"] = read_wall(result);
    json["bytes_per_token"] = bytes > 0 ? Json(std::llround(bytes)) : Json();
    json["read_bytes_per_token"] =
        bytes > 0 ? Json(std::llround(read_bytes_per_token(model, test))) : Json();
    json["share_of_wall"] = bytes > 0 ? Json(share_of_wall(result)) : Json();
    json["streamed_layers"] = model.stream.n_layers;
    json["stream_bytes_per_step"] = model.stream.bytes_a_step;
    const double of_link = share_of_link(result);
    json["link_gbps"] =
        result.links_gbps.empty() ? Json() : Json(spread_of(result.links_gbps).median);
    json["share_of_link"] = of_link > 0 ? Json(of_link) : Json();
    json["links_gbps"] = result.links_gbps;
    json["read_walls_gbps"] = result.read_walls_gbps;
    json["samples_ns"] = result.samples_ns;
    json["samples_ts"] = rates;
    if (result.compared_ts) {
        const bool found = *result.compared_ts > 0;
        json["compared_ts"] = found ? Json(*result.compared_ts) : Json();
        json["compared_ratio"] = found ? Json(ts.median / *result.compared_ts) : Json();
    }
    if (result.peers.empty()) return json;
    json["peers"] = Json::array();
    for (const PeerResult& peer : result.peers) {
        json["peers"].push_back(peer_fields(result, peer));
    }
    return json;
}

// A value within quotes; text as it is, anything else as JSON, what is unknown empty.
std::string csv_value(const Json& value) {
    std::string text = value.is_string() ? value.get<std::string>()
                       : value.is_null() ? std::string()
                                         : dump_json(value);
    std::string quoted = "\"";
    for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
}

std::string csv_header(const Json& fields) {
    std::string line;
    for (const auto& [key, value] : fields.items()) line += (line.empty() ? "" : ",") + key;
    return line + "\n";
}

std::string csv_line(const Json& fields) {
    std::string line;
    for (const auto& [key, value] : fields.items())
        line += (line.empty() ? "" : ",") + csv_value(value);
    return line + "\n";
}

// Model, size, threads, checkpoint or peer, KV, tokens of a prompt's step, test, three of numbers,
// those of an earlier run, and how many times as fast as a peer.
using TableCells = std::array<std::string, 12>;
constexpr size_t kUbatchColumn = 5, kComparedColumn = 10, kPeersColumn = 11;

// A line of the table: `pad(text, column)` gives a cell its width.
template <class Pad>
std::string table_line(const TableCells& cells, const BenchColumns& columns, const Pad& pad) {
    std::string line = "|";
    for (size_t c = 0; c < cells.size(); c++) {
        if (c == kUbatchColumn && !columns.n_ubatch) continue;
        if (c == kComparedColumn && !columns.compared) continue;
        if (c == kPeersColumn && !columns.peers) continue;
        line += pad(cells[c], c) + "|";
    }
    return line + "\n";
}

constexpr bool is_number(size_t column) {
    return column == 1 || column == 2 || column == kUbatchColumn || column > 6;
}

std::string table_row(const TableCells& cells, const BenchColumns& columns) {
    const std::array<int, 12> widths = {std::max(32, columns.model_width), 8, 7,  17, 10, 6,
                                        std::max(18, columns.test_width),  8, 16, 17, 16, 15};
    return table_line(cells, columns, [&](const std::string& text, size_t c) {
        return is_number(c) ? fmt::format(" {:>{}} ", text, widths[c])
                            : fmt::format(" {:<{}} ", text, widths[c]);
    });
}

void note_once(std::vector<std::string>& notes, std::string note) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
        notes.push_back(std::move(note));
    }
}

std::string table_rule(const BenchColumns& columns) {
    return table_line({}, columns, [](const std::string&, size_t c) {
        return std::string(is_number(c) ? "---:" : "---");
    });
}

}  // namespace

std::string last_part(const std::string& path) {
    size_t end = path.find_last_not_of('/');
    if (end == std::string::npos) return path;
    size_t slash = path.rfind('/', end);
    size_t begin = slash == std::string::npos ? 0 : slash + 1;
    return path.substr(begin, end + 1 - begin);
}

std::string test_name(const BenchTest& test) {
    std::string name;
    if (test.n_prompt > 0) name = fmt::format("pp{}", test.n_prompt);
    if (test.n_gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", test.n_gen);
    if (test.n_parallel > 1) name += fmt::format(" x {}", test.n_parallel);
    if (test.n_depth > 0) name += fmt::format(" @ d{}", test.n_depth);
    return name;
}

BenchColumns columns_of(std::span<const std::string> models, std::span<const BenchTest> tests,
                        std::span<const int64_t> n_ubatch) {
    BenchColumns columns;
    columns.n_ubatch = std::any_of(n_ubatch.begin(), n_ubatch.end(),
                                   [&](int64_t n) { return n != n_ubatch.front(); });
    for (const std::string& a : models) {
        for (const std::string& b : models)
            columns.full_paths = columns.full_paths || (a != b && last_part(a) == last_part(b));
    }
    auto widen = [](int& width, const std::string& text) {
        width = std::max(width, static_cast<int>(text.size()));
    };
    for (const std::string& model : models)
        widen(columns.model_width, cell(columns.full_paths ? model : last_part(model)));
    for (const BenchTest& test : tests) widen(columns.test_width, test_name(test));
    return columns;
}

Spread spread_of(std::span<const double> samples) {
    CHECK(!samples.empty());
    std::vector<double> sorted(samples.begin(), samples.end());
    std::sort(sorted.begin(), sorted.end());
    size_t n = sorted.size();
    Spread spread;
    spread.median = 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
    for (double x : sorted) spread.mean += x / static_cast<double>(n);
    double squares = 0;
    for (double x : sorted) squares += (x - spread.mean) * (x - spread.mean);
    if (n > 1) spread.stddev = std::sqrt(squares / static_cast<double>(n - 1));
    return spread;
}

double bytes_per_token(const ModelInfo& model, const BenchTest& test) {
    return bytes_with_kv(model.weight_bytes_per_token, model, test);
}

double read_bytes_per_token(const ModelInfo& model, const BenchTest& test) {
    return bytes_with_kv(model.memory_bytes_per_token, model, test);
}

double share_of_link(const BenchResult& result) {
    const BenchTest& test = result.test;
    if (result.model.stream.bytes_a_step == 0 || test.n_prompt > 0 || test.n_gen == 0) return 0;
    const auto bytes = static_cast<double>(result.model.stream.bytes_a_step * test.n_gen);
    std::vector<double> shares;
    for (size_t i = 0; i < result.samples_ns.size(); i++) {
        const double link = (result.links_gbps[i] + result.links_gbps[i + 1]) / 2;
        shares.push_back(bytes / static_cast<double>(result.samples_ns[i]) / link);
    }
    return spread_of(shares).median;
}

void BenchReport::add_row(const BenchResult& result) {
    if (!begun_) {
        output_.write(
            table_row({"model", "size", "threads", "checkpoint", "KV", "ubatch", "test", "tok/s",
                       "mean ± stddev", "of the read wall", "before", "Ridge is"},
                      columns_));
        output_.write(table_rule(columns_));
    }
    Spread ts = spread_of(tokens_per_second(result.test, result.samples_ns));
    std::string wall;
    if (const double of_link = share_of_link(result); of_link > 0) {
        has_link_ = true;
        wall = fmt::format("link: {:.0f}% of {:.1f} GB/s", 100 * of_link,
                           spread_of(result.links_gbps).median);
    } else if (bytes_per_token(result.model, result.test) > 0) {
        has_wall_ = true;
        wall =
            fmt::format("{:.0f}% of {:.1f} GB/s", 100 * share_of_wall(result), read_wall(result));
    }
    const ModelInfo& model = result.model;
    tuned_ = tuning_text(model.tuning);
    if (!model.gpu.empty()) {
        gpu_ = fmt::format("{}, {}{}; ", model.gpu,
                           model.driver.empty() ? "" : fmt::format("driver {}, ", model.driver),
                           model.runtime);
    }
    if (!model.fallbacks.empty()) {
        note_once(notes_, fmt::format("{}, {}: {}", name_of(model), model.checkpoint,
                                      fallbacks_text(model.fallbacks)));
    }
    output_.write(table_row(
        {cell(name_of(model)), count_text(model.weight_bytes, " GB", " MB"),
         std::to_string(model.n_threads), cell(model.checkpoint),
         result.type_k == result.type_v ? result.type_k : result.type_k + ", " + result.type_v,
         std::to_string(result.n_ubatch), test_name(result.test), fmt::format("{:.2f}", ts.median),
         fmt::format("{:.2f} ± {:.2f}", ts.mean, ts.stddev), wall,
         result.compared_ts.value_or(0) > 0
             ? fmt::format("{:.2f}: x {:.3f}", *result.compared_ts, ts.median / *result.compared_ts)
             : std::string(),
         std::string()},
        columns_));
    for (const PeerResult& peer : result.peers) add_peer_row(result, peer);
}

void BenchReport::add_peer_row(const BenchResult& result, const PeerResult& peer) {
    const Spread ts = spread_of(tokens_per_second(result.test, peer.samples_ns));
    const RoundRatio ratio = times_as_fast(result, peer);
    const Json about = parse_json(peer.about, "a peer");
    auto text_of = [&](const char* key) {
        const auto found = about.find(key);
        return found != about.end() && found->is_string() ? found->get<std::string>()
                                                          : std::string();
    };
    output_.write(table_row(
        {cell(name_of(result.model)), "", std::to_string(result.model.n_threads), cell(peer.name),
         "", "", test_name(result.test), fmt::format("{:.2f}", ts.median),
         fmt::format("{:.2f} ± {:.2f}", ts.mean, ts.stddev), "", "",
         fmt::format("x {:.2f} ± {:.2f}", ratio.median, ratio.spread)},
        columns_));
    const std::string title = peer_title(about);
    std::string note =
        title.starts_with(peer.name) ? title : fmt::format("{}: {}", peer.name, title);
    if (const std::string weights = text_of("weights"); !weights.empty()) {
        note += fmt::format("; weights: {}", weights);
    }
    if (const std::string more = text_of("note"); !more.empty()) note += "; " + more;
    note_once(peer_notes_, note + ".");
    if (peer.same_token == false) {
        note_once(peer_notes_,
                  fmt::format("{}, {}: {} draws another token than Ridge.", name_of(result.model),
                              test_name(result.test), peer.name));
    }
}

std::string BenchReport::name_of(const ModelInfo& model) const {
    return columns_.full_paths ? model.path : last_part(model.path);
}

void BenchReport::add(const BenchResult& result) {
    if (format_ == BenchFormat::kMarkdown) {
        add_row(result);
    } else {
        Json fields = fields_of(result);
        switch (format_) {
            case BenchFormat::kCsv:
                if (!begun_) output_.write(csv_header(fields));
                output_.write(csv_line(fields));
                break;
            case BenchFormat::kJson:
                output_.write((begun_ ? ",\n" : "[\n") + dump_json(fields, output_.is_terminal()));
                break;
            default:
                output_.write_json(fields);
        }
    }
    begun_ = true;
    output_.flush();
}

void BenchReport::finish() {
    if (format_ == BenchFormat::kJson) output_.write(begun_ ? "\n]\n" : "[]\n");
    if (!begun_ && format_ != BenchFormat::kJson) return;
    if (format_ == BenchFormat::kMarkdown) {
        for (const std::string& note : notes_) {
            output_.write(
                fmt::format("\nNot all kernels are the checkpoint's own: {}.\n", printable(note)));
        }
        if (!peer_notes_.empty()) {
            output_.write(
                "\nRidge is: how many times as fast as the peer, the median of the rounds' ratios "
                "± their median distance from it.\n");
        }
        for (const std::string& note : peer_notes_) {
            output_.write(fmt::format("\n{}\n", printable(note, 400)));
        }
        if (has_wall_) {
            output_.write(
                "\nOf the read wall: what a token reads, packed as it lies in memory, against what "
                "these threads read in that time.\n");
        }
        if (has_link_) {
            output_.write(
                "\nLink: the weights of streamed layers that came to the device, against what a "
                "copy of them brings there in that time.\n");
        }
        output_.write(fmt::format(
            "\n{}{}, {}, {}; ridge {}{}{}\n", printable(gpu_), printable(cpu_name()),
            counted(default_n_threads(), "core"), printable(os_name()), build_info().version,
            build_info().commit.empty() ? "" : fmt::format(" ({})", build_info().commit),
            tuned_.empty() ? "" : ", " + tuned_));
    }
    output_.flush();
}

}  // namespace ridge
