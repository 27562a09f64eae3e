// oneDNN as a peer of `ridge bench ops`: its matmul, with weights in the layout that it asks for.
//
//     apt install libdnnl-dev
//     cmake --preset cpu -DRIDGE_ONEDNN=ON && cmake --build --preset cpu --target onednn-peer
//     ridge bench ops -m model.gguf --op matmul --peer onednn
//
// out [n_rows, d_out] f32 = x [n_rows, d_in] times weights [d_out, d_in], of all weights that read
// the same input as one. bf16 and float32 are both tried, and the faster one is kept. Weights are
// brought to oneDNN's layout before, as Ridge packs its own; x is rounded to bf16 within the call.
// README.md beside this file describes the requests.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/timer.h"
#include "cases/random.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using dnnl::memory;
using Tag = memory::format_tag;

constexpr size_t kMostBytes = size_t{1} << 30, kMostCopies = 64;
constexpr int kPilotCalls = 5;
constexpr int64_t kDistinct = 1'000'003;  // of the weights: making more takes long

double median_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::vector<float> normal_numbers(int64_t n, uint64_t seed) {
    Random random(seed);
    std::vector<float> values(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; i++) {
        values[static_cast<size_t>(i)] =
            i < kDistinct ? random.normal() : values[static_cast<size_t>(i - kDistinct)];
    }
    return values;
}

// One shape in one type.
class Matmul {
  public:
    Matmul(memory::data_type type, int64_t n_rows, int64_t d_in, int64_t d_out, size_t copies_bytes)
        : n_rows_(n_rows), d_in_(d_in), d_out_(d_out) {
        const auto f32 = memory::data_type::f32;
        const memory::desc x({n_rows, d_in}, type, Tag::ab), out({n_rows, d_out}, f32, Tag::ab);
        const memory::desc any({d_in, d_out}, type, Tag::any);
        const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(x, any, out), engine_);
        matmul_ = dnnl::matmul(plan);
        x_f32_ = memory({{n_rows, d_in}, f32, Tag::ab}, engine_);
        x_ = type == f32 ? x_f32_ : memory(x, engine_);
        out_ = memory(out, engine_);
        round_ = dnnl::reorder(x_f32_, x_);
        is_rounded_ = type != f32;
        x_values_ = normal_numbers(n_rows * d_in, 1);
        std::copy(x_values_.begin(), x_values_.end(),
                  static_cast<float*>(x_f32_.get_data_handle()));
        weights_ = normal_numbers(d_in * d_out, 2);
        memory from({{d_in, d_out}, f32, Tag::ba}, engine_, weights_.data());  // [d_out, d_in]
        n_bytes_ = plan.weights_desc().get_size();
        const size_t n_copies =
            std::clamp<size_t>(copies_bytes / n_bytes_ + 1, 1,
                               std::min(kMostCopies, std::max<size_t>(1, kMostBytes / n_bytes_)));
        for (size_t i = 0; i < n_copies; i++) {
            memory to(plan.weights_desc(), engine_);
            dnnl::reorder(from, to).execute(stream_, from, to);
            arguments_.push_back(
                {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, to}, {DNNL_ARG_DST, out_}});
        }
        stream_.wait();
    }

    void call(size_t turn) {
        if (is_rounded_) round_.execute(stream_, x_f32_, x_);
        matmul_.execute(stream_, arguments_[turn % arguments_.size()]);
        stream_.wait();
    }
    size_t n_copies() const { return arguments_.size(); }
    size_t bytes() const {
        return n_bytes_ + x_.get_desc().get_size() + out_.get_desc().get_size();
    }

    // Of the last 64 columns, from sums in float64.
    double relative_l2() {
        call(0);
        const auto* out = static_cast<const float*>(out_.get_data_handle());
        double difference = 0, norm = 0;
        for (int64_t r = 0; r < n_rows_; r++) {
            for (int64_t j = std::max<int64_t>(0, d_out_ - 64); j < d_out_; j++) {
                double sum = 0;
                for (int64_t i = 0; i < d_in_; i++) {
                    sum += double(x_values_[static_cast<size_t>(r * d_in_ + i)]) *
                           double(weights_[static_cast<size_t>(j * d_in_ + i)]);
                }
                const double off = double(out[r * d_out_ + j]) - sum;
                difference += off * off, norm += sum * sum;
            }
        }
        return std::sqrt(difference / norm);
    }

  private:
    int64_t n_rows_, d_in_, d_out_;
    dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream_{engine_};
    dnnl::matmul matmul_;
    dnnl::reorder round_;
    memory x_f32_, x_, out_;
    bool is_rounded_ = false;
    size_t n_bytes_ = 0;
    std::vector<float> x_values_, weights_;
    std::vector<std::unordered_map<int, memory>> arguments_;
};

class Peer {
  public:
    Json answer(const Json& request) {
        const std::string what = request.at("request");
        if (what == "hello") {
            omp_set_num_threads(request.at("n_threads").get<int>());
            const dnnl_version_t& version = *dnnl_version();
            return {
                {"name", "oneDNN"},
                {"version", fmt::format("{}.{}.{}", version.major, version.minor, version.patch)},
                {"note", "weights in its own layout, in bf16 or float32, whichever is faster"}};
        }
        if (what == "op") return open(request);
        if (what == "sample") return sample(request);
        return {{"error", "does not know the request " + what}};
    }

  private:
    Json open(const Json& request) {
        if (request.at("op") != "matmul" || request.at("device") != "cpu") {
            return {{"unfit", "multiplies matrices, on a processor alone"}};
        }
        const Json& shape = request.at("shape");
        int64_t d_out = 0;
        for (const Json& weight : shape.at("weights")) d_out += weight.at("d_out").get<int64_t>();
        matmul_.reset();
        double best_ns = 0;
        std::string variant, why;
        for (auto [type, name] : {std::pair(memory::data_type::bf16, "bf16"),
                                  std::pair(memory::data_type::f32, "f32")}) {
            try {
                auto found = std::make_unique<Matmul>(type, shape.at("n_rows").get<int64_t>(),
                                                      shape.at("d_in").get<int64_t>(), d_out,
                                                      request.at("copies_bytes").get<size_t>());
                std::vector<double> calls;
                for (size_t i = 0; i < kPilotCalls; i++) {
                    const Timer timer;
                    found->call(i);
                    calls.push_back(static_cast<double>(timer.elapsed_ns()));
                }
                const double ns = median_of(calls);
                if (matmul_ != nullptr && ns >= best_ns) continue;
                matmul_ = std::move(found), best_ns = ns, variant = name;
            } catch (const dnnl::error& error) {
                why = fmt::format("{}: {}", name, error.what());
            }
        }
        if (matmul_ == nullptr) return {{"unfit", why}};
        return {{"variant", variant},
                {"bytes", matmul_->bytes()},
                {"relative_l2", matmul_->relative_l2()}};
    }

    // The median over short runs of calls, every copy in turn, as Ridge takes it.
    Json sample(const Json& request) {
        if (matmul_ == nullptr) return {{"error", "nothing to time"}};
        for (size_t i = 0; i < matmul_->n_copies(); i++) matmul_->call(i);
        const double run_ns = request.at("run_ns"),
                     sample_ns = 1e6 * double(request.at("sample_ms"));
        std::vector<double> runs;
        const Timer all;
        Timer run;
        int n_of_run = 0;
        for (size_t i = 0; i == 0 || double(all.elapsed_ns()) < sample_ns; i++) {
            matmul_->call(i);
            n_of_run++;
            const auto ns = static_cast<double>(run.elapsed_ns());
            if (ns < run_ns) continue;
            runs.push_back(ns / n_of_run);
            n_of_run = 0;
            run.restart();
        }
        const double ns = runs.empty() ? double(run.elapsed_ns()) / n_of_run : median_of(runs);
        return {{"ns", ns}};
    }

    std::unique_ptr<Matmul> matmul_;
};

int serve() {
    Peer peer;
    for (std::string line; std::getline(std::cin, line);) {
        Json answer;
        try {
            answer = peer.answer(Json::parse(line));
        } catch (const std::exception& error) {
            answer = {{"error", error.what()}};
        }
        std::cout << answer.dump() << std::endl;
    }
    return 0;
}

}  // namespace
}  // namespace ridge

int main() {
    return ridge::serve();
}
