#include "cmd/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cmd/aligned_table.h"

namespace ridge {
namespace {

constexpr const char* kKept = "kept";

std::string us_text(double ns) {
    return fmt::format("{:.2f}", ns * 1e-3);
}

std::string times_text(double before_ns, double after_ns) {
    return after_ns > 0 ? fmt::format("{:.2f}", before_ns / after_ns) : std::string();
}

void add_choices(const auto& choices, std::vector<std::vector<std::string>>& rows) {
    for (const auto& choice : choices) {
        const std::string changes = changes_text(choice.values);
        rows.push_back({call_text(choice.call), changes.empty() ? kKept : changes,
                        us_text(choice.before_ns), us_text(choice.after_ns),
                        times_text(choice.before_ns, choice.after_ns)});
    }
}

}  // namespace

std::string short_name(const std::string& name) {
    constexpr std::string_view kComma = ", ";
    std::string text, last;
    int n_alike = 0;
    const auto add = [&] {
        if (n_alike == 0) return;
        text += text.empty() ? std::string_view() : kComma;
        text += n_alike == 1 ? last : fmt::format("{} x {}", n_alike, last);
    };
    for (size_t begin = 0; begin <= name.size();) {
        const size_t end = std::min(name.find(kComma, begin), name.size());
        std::string part = name.substr(begin, end - begin);
        if (n_alike > 0 && part == last) {
            n_alike++;
        } else {
            add();
            last = std::move(part), n_alike = 1;
        }
        begin = end + kComma.size();
    }
    add();
    return text;
}

std::string tune_table(const std::vector<TunedCall>& calls) {
    std::vector<std::vector<std::string>> rows = {
        {"call", "chosen", "before, us", "after, us", "times", "faster in"}};
    for (const TunedCall& call : calls) {
        for (const TunedCase& one : call.cases) {
            const size_t n_rounds = one.duel.before.size();
            const bool was_duel = n_rounds > 0;
            rows.push_back(
                {short_name(one.name), one.chosen.empty() ? kKept : one.chosen,
                 us_text(one.before_ns), us_text(one.after_ns),
                 was_duel ? fmt::format("{:.2f} ± {:.2f}", one.duel.ratio(), one.duel.spread())
                          : std::string(),
                 was_duel ? fmt::format("{} of {}", one.duel.n_faster(), n_rounds)
                          : std::string()});
        }
    }
    return aligned_table(rows, 2);
}

nlohmann::ordered_json tune_json(const std::vector<TunedCall>& calls,
                                 const nlohmann::ordered_json& about) {
    Json json = about;
    json["calls"] = Json::array();
    for (const TunedCall& call : calls) {
        Json one;
        one["op"] = call.op;
        one["call"] = call.call;
        one["chosen"] = call.chosen;
        one["cases"] = Json::array();
        for (const TunedCase& of : call.cases) {
            Json entry;
            entry["case"] = of.name;
            entry["chosen"] = of.chosen;
            entry["before_ns"] = of.before_ns;
            entry["after_ns"] = of.after_ns;
            const bool was_duel = !of.duel.before.empty();
            entry["times"] = was_duel ? Json(of.duel.ratio()) : Json();
            entry["n_faster"] = was_duel ? Json(of.duel.n_faster()) : Json();
            entry["before_samples_ns"] = of.duel.before;
            entry["after_samples_ns"] = of.duel.after;
            one["cases"].push_back(std::move(entry));
        }
        json["calls"].push_back(std::move(one));
    }
    return json;
}

std::string cache_table(const TuningCache& cache, const std::string& path) {
    std::vector<std::vector<std::string>> rows = {
        {"call", "chosen", "before, us", "after, us", "times"}};
    add_choices(cache.matmuls, rows);
    add_choices(cache.attentions, rows);
    return fmt::format("{}; ridge {}, {}\n{}\n\n{}", printable(device_text(cache.key)),
                       printable(cache.key.build), printable(cache.time), printable(path),
                       aligned_table(rows, 2));
}

}  // namespace ridge
