#include "cmd/bench_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"

namespace ridge {
namespace {

enum class Axis { kDepth, kParallel, kSize };

double x_of(const BenchResult& result, Axis axis) {
    if (axis == Axis::kDepth) return static_cast<double>(result.test.n_depth);
    if (axis == Axis::kParallel) return result.test.n_parallel;
    return 1e-9 * static_cast<double>(result.model.weight_bytes);
}

size_t n_different(std::span<const BenchResult> results, Axis axis) {
    std::set<double> values;
    for (const BenchResult& result : results) values.insert(x_of(result, axis));
    return values.size();
}

// What is one line: all but what the axis shows. Of what is the same in all of them, nothing is
// said.
struct Key {
    std::string model, checkpoint, test, cache;
    int n_threads;
    auto operator<=>(const Key&) const = default;
};

Key key_of(const BenchResult& result, Axis axis) {
    BenchTest test = result.test;
    if (axis == Axis::kDepth) test.n_depth = 0;
    if (axis == Axis::kParallel) test.n_parallel = 1;
    return {axis == Axis::kSize ? "" : last_part(result.model.path), result.model.checkpoint,
            test_name(test), result.type_k + " " + result.type_v, result.model.n_threads};
}

template <class Member>
bool differs(const std::vector<Key>& keys, Member Key::*member) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const Key& other) { return other.*member != keys.front().*member; });
}

std::string name_of(const Key& key, const std::vector<Key>& keys) {
    std::string name = key.test;
    if (differs(keys, &Key::model)) name += " " + key.model;
    if (differs(keys, &Key::checkpoint)) name += " " + key.checkpoint;
    if (differs(keys, &Key::cache)) name += " " + key.cache;
    if (differs(keys, &Key::n_threads)) name += " " + counted(key.n_threads, "thread");
    return name;
}

double rate_of(const BenchTest& test, const std::vector<int64_t>& samples_ns) {
    const std::vector<double> ns(samples_ns.begin(), samples_ns.end());
    return 1e9 * static_cast<double>(test.n_tokens()) / spread_of(ns).median;
}

}  // namespace

double wall_tok_s(const BenchResult& result) {
    const double bytes = read_bytes_per_token(result.model, result.test);
    if (bytes <= 0 || result.read_walls_gbps.empty()) return 0;
    return 1e9 * spread_of(result.read_walls_gbps).median / bytes;
}

SeriesPlot bench_plot(std::span<const BenchResult> results) {
    Axis axis = Axis::kDepth;
    for (Axis other : {Axis::kParallel, Axis::kSize}) {
        if (n_different(results, other) > n_different(results, axis)) axis = other;
    }
    if (n_different(results, axis) < 2) {
        throw Error(
            "--plot: expected results of two or more depths (-d), numbers of sequences "
            "(-B) or models (-m)");
    }
    std::vector<Key> keys;
    std::map<Key, Series> rates, walls;
    for (const BenchResult& result : results) {
        const Key key = key_of(result, axis);
        if (!rates.contains(key)) keys.push_back(key);
        const double x = x_of(result, axis);
        rates[key].points.push_back({x, rate_of(result.test, result.samples_ns)});
        if (const double wall = wall_tok_s(result); wall > 0) {
            walls[key].points.push_back({x, wall});
        }
        for (const PeerResult& peer : result.peers) {
            Key other = key;
            other.checkpoint = peer.name;
            if (!rates.contains(other)) keys.push_back(other);
            std::vector<PlotPoint>& points = rates[other].points;
            // Beside several checkpoints it was timed several times: the first counts.
            if (std::any_of(points.begin(), points.end(),
                            [&](const PlotPoint& point) { return point.x == x; })) {
                continue;
            }
            points.push_back({x, rate_of(result.test, peer.samples_ns)});
        }
    }
    SeriesPlot plot;
    const BenchResult& first = results.front();
    plot.title = "Tokens a second";
    if (axis == Axis::kSize) {
        plot.title += " by size of the weights";
    } else if (!differs(keys, &Key::model)) {
        plot.title += " of " + last_part(first.model.path);
    }
    plot.subtitle = first.model.gpu.empty() ? cpu_name() : first.model.gpu;
    if (!differs(keys, &Key::n_threads)) {
        plot.subtitle += ", " + counted(first.model.n_threads, "thread");
    }
    if (!differs(keys, &Key::checkpoint)) plot.subtitle += ", checkpoint " + first.model.checkpoint;
    plot.x_label = axis == Axis::kDepth      ? "positions in the cache before"
                   : axis == Axis::kParallel ? "sequences in one step"
                                             : "weights, GB";
    plot.y_label = "tok/s";
    auto by_x = [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; };
    for (const Key& key : keys) {
        Series& series = rates[key];
        series.name = name_of(key, keys);
        std::stable_sort(series.points.begin(), series.points.end(), by_x);
        plot.series.push_back(series);
        if (!walls.contains(key)) continue;
        Series& wall = walls[key];
        wall.name = "the wall of " + series.name;
        wall.is_wall = true;
        std::stable_sort(wall.points.begin(), wall.points.end(), by_x);
        plot.series.push_back(wall);
    }
    return plot;
}

}  // namespace ridge
