#include "cmd/bench_compare.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

namespace ridge {
namespace {

// One object a line, or one array of all.
Json results_in(std::string_view text, const std::string& path) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos && text[first] == '[') return parse_json(text, path);
    Json results = Json::array();
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line = text.substr(begin, end - begin);
        if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
            results.push_back(parse_json(line, path));
        }
        begin = end + 1;
    }
    return results;
}

double rate_in(const Json& result) {
    constexpr double kLeast = 1e-9, kMost = 1e12;  // others are no rates
    for (const char* key : {"median_ts", "avg_ts"}) {
        if (!result.contains(key) || !result[key].is_number()) continue;
        const double rate = result[key];
        return rate >= kLeast && rate <= kMost ? rate : 0;
    }
    return 0;
}

std::string text_in(const Json& result, const char* key) {
    return result.contains(key) && result[key].is_string() ? result[key].get<std::string>() : "";
}

int64_t number_in(const Json& result, const char* key, int64_t otherwise) {
    return result.contains(key) && result[key].is_number_integer() ? result[key].get<int64_t>()
                                                                   : otherwise;
}

}  // namespace

OlderResults OlderResults::parse(std::string_view text, const std::string& path) {
    OlderResults older;
    for (const Json& result : results_in(text, path)) {
        if (!result.is_object()) continue;
        Entry entry;
        entry.rate = rate_in(result);
        entry.model = last_part(text_in(result, "model_filename"));
        if (!(entry.rate > 0) || entry.model.empty()) continue;
        entry.checkpoint = text_in(result, "checkpoint");
        entry.type_k = text_in(result, "type_k"), entry.type_v = text_in(result, "type_v");
        entry.test = {number_in(result, "n_prompt", 0), number_in(result, "n_gen", 0),
                      number_in(result, "n_depth", 0),
                      static_cast<int>(std::clamp<int64_t>(number_in(result, "n_parallel", 1), -1,
                                                           std::numeric_limits<int>::max()))};
        entry.n_threads = number_in(result, "n_threads", 0);
        older.entries_.push_back(std::move(entry));
    }
    if (older.entries_.empty()) {
        throw Error("{}: no results in it; expected what ridge bench -o json writes",
                    printable(path));
    }
    return older;
}

double OlderResults::rate_of(const BenchResult& result) const {
    const Entry* found = nullptr;
    for (const Entry& entry : entries_) {
        const bool same =
            entry.model == last_part(result.model.path) &&
            entry.test.n_prompt == result.test.n_prompt && entry.test.n_gen == result.test.n_gen &&
            entry.test.n_depth == result.test.n_depth &&
            entry.test.n_parallel == result.test.n_parallel && entry.type_k == result.type_k &&
            entry.type_v == result.type_v && entry.n_threads == result.model.n_threads;
        if (!same) continue;
        const bool better = found == nullptr || found->checkpoint != result.model.checkpoint ||
                            entry.checkpoint == result.model.checkpoint;
        if (better) found = &entry;
    }
    return found == nullptr ? 0 : found->rate;
}

}  // namespace ridge
