#include "golden/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/files.h"
#include "base/json.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 26;

// [n_rows][n_vocab] of logits.f32.
std::vector<std::vector<float>> read_logits(const std::string& path, size_t n_vocab) {
    if (file_kind(path) == FileKind::kMissing) return {};
    std::string bytes = read_file(path, kMaxBytes);
    CHECK(bytes.size() % (n_vocab * sizeof(float)) == 0);
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
    std::string path = folder + "/golden.json";
    Json json = parse_json(read_file(path, kMaxBytes), path);
    Golden golden;
    golden.folder = folder;
    if (json.contains("files")) json.at("files").get_to(golden.files);
    json.at("n_vocab").get_to(golden.n_vocab);
    json.at("projection").at("n").get_to(golden.n_projections);
    json.at("projection").at("seed").get_to(golden.projection_seed);
    auto logits = read_logits(folder + "/logits.f32", static_cast<size_t>(golden.n_vocab));
    for (const Json& prompt : json.at("prompts"))
        golden.prompts.push_back(read_prompt(prompt, logits));
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

}  // namespace ridge
