#include "cmd/bench_ops_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/json.h"
#include "cmd/aligned_table.h"
#include "cmd/peers.h"
#include "cmd/round_ratio.h"
#include "cmd/step_profile.h"

namespace ridge {
namespace {

double plain_ns(const CaseResult& result) {
    for (const OpResult& one : result.results) {
        if (one.checkpoint == kPlainCheckpoint && one.isa.empty()) {
            return median_of(one.samples_ns);
        }
    }
    return 0;
}

double spread_ns(const std::vector<double>& samples_ns) {
    const auto [least, most] = std::minmax_element(samples_ns.begin(), samples_ns.end());
    return (*most - *least) / 2;
}

std::string number(double x) {
    return fmt::format("{:.2f}", x);
}

// A row of the table, but for the case's name and what peers alone have. `plain_ns`: 0 where the
// plain kernel did not run.
std::vector<std::string> row_of(std::string name, const Case& c, int64_t n_bytes,
                                const std::vector<double>& samples_ns, double plain_ns) {
    const double ns = median_of(samples_ns);
    return {"",
            std::move(name),
            number(ns * 1e-3),
            number(spread_ns(samples_ns) * 1e-3),
            number(static_cast<double>(n_bytes) / ns),
            number(static_cast<double>(c.flops) / ns),
            plain_ns > 0 ? number(plain_ns / ns) : ""};
}

Json rates_json(const Case& c, int64_t n_bytes, const std::vector<double>& samples_ns) {
    Json json;
    const double ns = median_of(samples_ns);
    json["median_ns"] = ns;
    json["gbps"] = static_cast<double>(n_bytes) / ns;
    json["gflops"] = static_cast<double>(c.flops) / ns;
    return json;
}

Json peer_json(const CaseResult& result, const PeerOpResult& peer) {
    Json json;
    json["peer"] = peer.name;
    if (!peer.unfit.empty()) {
        json["unfit"] = peer.unfit;
        return json;
    }
    json["variant"] = peer.variant;
    json["bytes"] = peer.n_bytes;
    json["relative_l2"] = peer.relative_l2;
    json.update(rates_json(result.c, peer.n_bytes, peer.samples_ns));
    const RoundRatio ratio = ratio_of(peer.samples_ns, fastest_of(result).samples_ns);
    json["ridge_times_as_fast"] = ratio.median;
    json["ridge_times_as_fast_spread"] = ratio.spread;
    json["samples_ns"] = peer.samples_ns;
    return json;
}

}  // namespace

const OpResult& fastest_of(const CaseResult& result) {
    CHECK(!result.results.empty());
    return *std::min_element(result.results.begin(), result.results.end(),
                             [](const OpResult& a, const OpResult& b) {
                                 return median_of(a.samples_ns) < median_of(b.samples_ns);
                             });
}

Json shape_json(const Case& c) {
    Json json;
    json["n_rows"] = c.n_rows;
    json["d_in"] = c.d_in;
    json["n_heads"] = c.n_heads;
    json["n_kv_heads"] = c.n_kv_heads;
    json["d_head"] = c.d_head;
    json["d_rope"] = c.d_rope;
    json["weights"] = Json::array();
    for (const CaseWeight& weight : c.weights) {
        Json one;
        one["d_out"] = weight.d_out;
        one["format"] = std::string(format_of(weight.format).name);
        json["weights"].push_back(std::move(one));
    }
    json["sequences"] = Json::array();
    for (const CaseSequence& sequence : c.sequences) {
        Json one;
        one["n_ctx"] = sequence.n_ctx;
        one["n_rows"] = sequence.n_rows;
        json["sequences"].push_back(std::move(one));
    }
    return json;
}

std::string ops_table(const std::vector<CaseResult>& results) {
    const bool has_peers = std::any_of(results.begin(), results.end(),
                                       [](const CaseResult& r) { return !r.peers.empty(); });
    std::vector<std::vector<std::string>> rows = {
        {"operator", "checkpoint", "us", "±", "GB/s", "GFLOP/s", "times plain"}};
    if (has_peers) rows.front()[1] += " or peer", rows.front().emplace_back("Ridge is");
    for (const CaseResult& result : results) {
        const size_t first = rows.size();
        const double plain = plain_ns(result);
        for (const OpResult& one : result.results) {
            std::string name = one.checkpoint + (one.isa.empty() ? "" : " on " + one.isa);
            rows.push_back(
                row_of(std::move(name), result.c, result.c.bytes, one.samples_ns, plain));
            if (has_peers) rows.back().emplace_back();
        }
        for (const PeerOpResult& peer : result.peers) {
            if (!peer.unfit.empty()) continue;
            std::string name =
                peer.name + (peer.variant.empty() ? "" : fmt::format(" ({})", peer.variant));
            rows.push_back(row_of(std::move(name), result.c, peer.n_bytes, peer.samples_ns, plain));
            const RoundRatio ratio = ratio_of(peer.samples_ns, fastest_of(result).samples_ns);
            rows.back().push_back(fmt::format("x {:.2f} ± {:.2f}", ratio.median, ratio.spread));
        }
        if (rows.size() > first) rows[first][0] = result.c.name;
    }
    return aligned_table(rows, 2);
}

Json ops_json(const std::vector<CaseResult>& results) {
    Json all = Json::array();
    for (const CaseResult& result : results) {
        Json one;
        one["op"] = std::string(op_name(result.c.op));
        one["case"] = result.c.name;
        one["bytes"] = result.c.bytes;
        one["flops"] = result.c.flops;
        one["shape"] = shape_json(result.c);
        one["checkpoints"] = Json::array();
        const double plain = plain_ns(result);
        for (const OpResult& of : result.results) {
            Json entry;
            entry["checkpoint"] = of.checkpoint;
            if (!of.isa.empty()) entry["isa"] = of.isa;
            entry.update(rates_json(result.c, result.c.bytes, of.samples_ns));
            entry["times_plain"] = plain > 0 ? Json(plain / median_of(of.samples_ns)) : Json();
            entry["samples_ns"] = of.samples_ns;
            one["checkpoints"].push_back(std::move(entry));
        }
        if (!result.peers.empty()) one["peers"] = Json::array();
        for (const PeerOpResult& peer : result.peers) {
            one["peers"].push_back(peer_json(result, peer));
        }
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace ridge
