#include "cases/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/check.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 26;

// [n_rows][n_vocab] of logits.f32.
std::vector<std::vector<float>> read_logits(const std::string& path, size_t n_vocab) {
    if (file_kind(path) == FileKind::kMissing) return {};
    std::string bytes = read_file(path, kMaxBytes);
    if (bytes.size() % (n_vocab * sizeof(float)) != 0) {
        throw Error("{}: {} bytes, expected rows of {} logits", printable(path), bytes.size(),
                    n_vocab);
    }
    std::vector<std::vector<float>> rows(bytes.size() / (n_vocab * sizeof(float)));
    for (size_t i = 0; i < rows.size(); i++) {
        rows[i].resize(n_vocab);
        memcpy(rows[i].data(), bytes.data() + i * n_vocab * sizeof(float), n_vocab * sizeof(float));
    }
    return rows;
}

GoldenRow read_row(const Json& json, const std::vector<std::vector<float>>& logits) {
    GoldenRow row;
    json.at("position").get_to(row.position);
    json.at("argmax").get_to(row.argmax);
    json.at("margin").get_to(row.margin);
    json.at("norm").get_to(row.norm);
    if (json.contains("logits_row")) {
        row.logits = logits.at(json.at("logits_row").get<size_t>());
    } else {
        json.at("top_ids").get_to(row.top_ids);
        json.at("top_logits").get_to(row.top_logits);
        json.at("projection").get_to(row.projection);
    }
    return row;
}

GoldenPrompt read_prompt(const Json& json, const std::vector<std::vector<float>>& logits) {
    GoldenPrompt prompt;
    json.at("name").get_to(prompt.name);
    prompt.has_text = json.contains("text");
    prompt.text = json.value("text", "");
    json.at("ids").get_to(prompt.ids);
    json.at("greedy").get_to(prompt.greedy);
    prompt.greedy_text = json.value("greedy_text", "");
    for (const Json& row : json.at("rows")) prompt.rows.push_back(read_row(row, logits));
    return prompt;
}

// Output `index`, from 0, of the splitmix64 generator (Steele, Lea and Flood, 2014).
uint64_t splitmix64(uint64_t seed, uint64_t index) {
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// |a - b| / |b|
double relative_l2(std::span<const float> a, std::span<const float> b) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < b.size(); i++) {
        double difference = double{a[i]} - double{b[i]};
        error += difference * difference;
        norm += double{b[i]} * double{b[i]};
    }
    return std::sqrt(error / norm);
}

}  // namespace

Golden read_golden(const std::string& folder) {
    const std::string path = folder + "/golden.json";
    const Json json = parse_json(read_file(path, kMaxBytes), printable(path));
    Golden golden;
    golden.folder = folder;
    try {
        if (json.contains("files")) json.at("files").get_to(golden.files);
        json.at("n_vocab").get_to(golden.n_vocab);
        json.at("projection").at("n").get_to(golden.n_projections);
        json.at("projection").at("seed").get_to(golden.projection_seed);
        if (golden.n_vocab < 1) throw Error("{}: n_vocab {}", printable(path), golden.n_vocab);
        const auto logits =
            read_logits(folder + "/logits.f32", static_cast<size_t>(golden.n_vocab));
        for (const Json& prompt : json.at("prompts")) {
            golden.prompts.push_back(read_prompt(prompt, logits));
            if (golden.prompts.back().rows.empty()) throw Error("{}: no rows", printable(path));
        }
    } catch (const nlohmann::json::exception& e) {
        throw Error("{}: no golden: {}", printable(path), printable(e.what()));
    } catch (const std::out_of_range&) {
        throw Error("{}: a row of logits.f32 that is not there", printable(path));
    }
    return golden;
}

double Golden::error(const GoldenRow& row, std::span<const float> logits) const {
    CHECK(logits.size() == static_cast<size_t>(n_vocab));
    if (!row.logits.empty()) return relative_l2(logits, row.logits);
    std::vector<float> top;
    for (Token id : row.top_ids) top.push_back(logits[static_cast<size_t>(id)]);
    double worst = relative_l2(top, row.top_logits);

    double square = 0;
    std::vector<double> projection(row.projection.size());
    for (size_t i = 0; i < logits.size(); i++) {
        square += double{logits[i]} * double{logits[i]};
        uint64_t negative = splitmix64(projection_seed, i);
        for (size_t j = 0; j < projection.size(); j++)
            projection[j] += (negative >> j & 1) != 0 ? -double{logits[i]} : double{logits[i]};
    }
    worst = std::max(worst, std::abs(std::sqrt(square) - row.norm) / row.norm);
    double error = 0;
    for (size_t j = 0; j < projection.size(); j++)
        error += (projection[j] - row.projection[j]) * (projection[j] - row.projection[j]);
    return std::max(worst, std::sqrt(error / static_cast<double>(projection.size())) / row.norm);
}

GoldenCheck::GoldenCheck(const Golden& golden, const GoldenPrompt& prompt, double max_error,
                         int64_t n_positions)
    : golden_(golden), max_error_(max_error), tokens_(prompt.ids) {
    tokens_.insert(tokens_.end(), prompt.greedy.begin(), prompt.greedy.end());
    const int64_t last = std::min(
        {prompt.rows.back().position, n_positions - 1, static_cast<int64_t>(tokens_.size()) - 1});
    tokens_.resize(static_cast<size_t>(last + 1));
    for (const GoldenRow& row : prompt.rows) {
        if (row.position <= last) wanted_[row.position] = &row;
    }
}

void GoldenCheck::see(int64_t position, std::span<const float> logits) {
    const auto found = wanted_.find(position);
    if (found == wanted_.end()) return;
    const GoldenRow& row = *found->second;
    n_seen_++;
    const double error = golden_.error(row, logits);
    worst_ = std::max(worst_, error);
    if (!fault_.empty()) return;
    if (!(error < max_error_)) {
        fault_ =
            fmt::format("position {}: relative L2 {:.3g} from the golden, expected below {:.3g}",
                        position, error, max_error_);
    }
    if (row.margin <= 2 * max_error_ * row.norm) return;
    const auto argmax = std::max_element(logits.begin(), logits.end()) - logits.begin();
    if (argmax != row.argmax && fault_.empty()) {
        fault_ = fmt::format("position {}: token {} is the most probable, expected {}", position,
                             argmax, row.argmax);
    }
}

std::string GoldenCheck::fault() const {
    if (!fault_.empty() || n_seen_ == wanted_.size()) return fault_;
    return fmt::format("{} positions, expected {}", n_seen_, wanted_.size());
}

}  // namespace ridge
