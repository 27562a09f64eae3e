// Times Ridge's prompt matmul beside oneDNN's, on the shapes of Llama 3.2 1B and in turns:
//
//     apt install libdnnl-dev
//     cmake --preset cpu -DRIDGE_ONEDNN=ON && cmake --build --preset cpu --target onednn-gemm
//     OMP_NUM_THREADS=2 taskset -c 0,1 build/cpu/onednn-gemm --threads 2 -o gemm.json
//
// out [n_rows, n] f32 = x [n_rows, k] bf16 times weights [n, k] bf16, both random normal numbers.
// oneDNN has the weights in the layout that it asks for, Ridge has them packed; both have x rounded
// to bf16 before the clock starts. Each repetition takes another copy of the weights, enough copies
// that none is still in a cache. Other formats of weights (--format) are timed in Ridge alone.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "base/timer.h"
#include "cases/random_weights.h"
#include "cmd/build_info.h"
#include "cmd/machine_json.h"
#include "cmd/values.h"
#include "cpu/checkpoints.h"
#include "cpu/interleaved.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "cpu/matmul.h"
#include "format/packing.h"

namespace ridge {
namespace {

struct Shape {
    int64_t n_rows, n, k;
    double flop() const { return 2.0 * double(n_rows) * double(n) * double(k); }
};
constexpr Shape kShapes[] = {{512, 8192, 2048}, {512, 2048, 8192}, {512, 2048, 2048},
                             {128, 8192, 2048}, {128, 2048, 8192}, {128, 2048, 2048}};

constexpr auto kPause = std::chrono::milliseconds(10);

Buffer allocate(int64_t n_bytes) {
    void* data = reserve_memory(static_cast<size_t>(n_bytes));
    if (data == nullptr) throw std::bad_alloc();
    advise_huge_pages(data, static_cast<size_t>(n_bytes));
    return {data, static_cast<size_t>(n_bytes), release_memory};
}

// One shape: x, and copies of the weights, none of which is in a cache when its turn comes.
class RidgeGemm {
  public:
    RidgeGemm(const Shape& shape, FormatId format, int64_t cold_bytes, ThreadPool& pool)
        : shape_(shape), pool_(pool), kernels_(cpu::kernels_of_isa(choose_isa(""))), weights_(1) {
        tables_.kernels = &kernels_;
        const Tensor weight = weights_.matrix({shape.n, format}, shape.k, 0.02f, 1);
        Packing packing(weight, cpu::interleaved_layout(), &kernels_);
        for (int64_t i = 0; i < packing.n_to_measure(); i++) packing.measure(i);
        packing.settle();
        bytes_ = packing.n_bytes();
        const int64_t n_copies = std::max<int64_t>(2, cold_bytes / bytes_);
        packed_ = allocate(n_copies * bytes_);
        for (int64_t c = 0; c < n_copies; c++) {
            std::byte* at = packed_.data() + c * bytes_;
            for (int64_t i = 0; i < packing.n_parts(); i++) packing.pack(i, at);
            linears_.push_back({packing.view(at), {}});
        }
        x_ = matrix(x_buffer_, shape.n_rows, shape.k);
        out_ = matrix(out_buffer_, shape.n_rows, shape.n);
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        for (int64_t i = 0; i < x_.n_rows * x_.n_cols; i++) x_.row<float>(0)[i] = normal(random);
        step_.planning = true;
        multiply(0);
        scratch_buffer_ = allocate(static_cast<int64_t>(scratch_.planned_bytes()) + 4096);
        scratch_.place(scratch_buffer_);
        step_.planning = false;
    }

    // Nanoseconds.
    int64_t multiply(size_t turn) {
        if (!step_.planning) scratch_.begin_step();
        const Linear& linear = linears_[turn % linears_.size()];
        cpu::Matmul matmul(step_, RowClass::kPrompt, shape_.n_rows, shape_.k, linear);
        if (step_.planning) return 0;
        matmul.set_input(x_);
        const Timer timer;
        matmul.store(out_);
        return timer.elapsed_ns();
    }
    int64_t bytes() const { return bytes_; }
    float x(int64_t row, int64_t k) const { return x_.row<float>(row)[k]; }
    float out(int64_t row, int64_t j) const { return out_.row<float>(row)[j]; }
    void weight_row(int64_t j, float* to) const { unpack_row(linears_[0].weight, j, to); }

  private:
    static Rows matrix(Buffer& buffer, int64_t n_rows, int64_t n_cols) {
        buffer = allocate(n_rows * n_cols * 4);
        return {&buffer, 0, DType::kF32, n_rows, n_cols, n_cols};
    }

    Shape shape_;
    ThreadPool& pool_;
    cpu::Kernels kernels_;
    RandomWeights weights_;
    int64_t bytes_ = 0;
    Buffer packed_, x_buffer_, out_buffer_, scratch_buffer_;
    std::vector<Linear> linears_;
    Rows x_, out_;
    Tables tables_;
    Config config_;
    RopeTable rope_table_;
    Batch batch_;
    Scratch scratch_;
    Step step_{tables_, tables_.ops, tables_.stages, config_, rope_table_, batch_, scratch_, pool_};
};

class OneDnnGemm {
  public:
    OneDnnGemm(const Shape& shape, int64_t cold_bytes, const RidgeGemm& ridge) {
        using dnnl::memory;
        using Tag = memory::format_tag;
        const auto bf16 = memory::data_type::bf16, f32 = memory::data_type::f32;
        const memory::desc x({shape.n_rows, shape.k}, bf16, Tag::ab);
        const memory::desc any({shape.k, shape.n}, bf16, Tag::any);
        const memory::desc out({shape.n_rows, shape.n}, f32, Tag::ab);
        const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(x, any, out), engine_);
        implementation_ = plan.impl_info_str();
        matmul_ = dnnl::matmul(plan);
        // Weights as the files have them are [n, k].
        const memory::desc plain({shape.k, shape.n}, bf16, Tag::ba);
        memory from(plain, engine_), x_memory(x, engine_);
        auto* values = static_cast<uint16_t*>(from.get_data_handle());
        std::vector<float> row(static_cast<size_t>(shape.k));
        for (int64_t j = 0; j < shape.n; j++) {
            ridge.weight_row(j, row.data());
            for (int64_t i = 0; i < shape.k; i++) {
                values[j * shape.k + i] = to_bf16(row[static_cast<size_t>(i)]).bits;
            }
        }
        values = static_cast<uint16_t*>(x_memory.get_data_handle());
        for (int64_t r = 0; r < shape.n_rows; r++) {
            for (int64_t i = 0; i < shape.k; i++) {
                values[r * shape.k + i] = to_bf16(ridge.x(r, i)).bits;
            }
        }
        out_ = memory(out, engine_);
        const auto bytes = static_cast<int64_t>(plan.weights_desc().get_size());
        const int64_t n_copies = std::max<int64_t>(2, cold_bytes / bytes);
        packed_ = allocate(n_copies * bytes);
        dnnl::reorder reorder(from, memory(plan.weights_desc(), engine_, packed_.data()));
        for (int64_t c = 0; c < n_copies; c++) {
            memory to(plan.weights_desc(), engine_, packed_.data() + c * bytes);
            reorder.execute(stream_, from, to);
            arguments_.push_back(
                {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, to}, {DNNL_ARG_DST, out_}});
        }
        stream_.wait();
    }
    int64_t multiply(size_t turn) {
        const Timer timer;
        matmul_.execute(stream_, arguments_[turn % arguments_.size()]);
        stream_.wait();
        return timer.elapsed_ns();
    }
    const std::string& implementation() const { return implementation_; }
    float out(int64_t at) const { return static_cast<float*>(out_.get_data_handle())[at]; }

  private:
    dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream_{engine_};
    dnnl::matmul matmul_;
    dnnl::memory out_;
    Buffer packed_;
    std::vector<std::unordered_map<int, dnnl::memory>> arguments_;
    std::string implementation_;
};

nlohmann::ordered_json summary(std::vector<int64_t> samples_ns, const Shape& shape) {
    nlohmann::ordered_json result{{"samples_ns", samples_ns}};
    std::sort(samples_ns.begin(), samples_ns.end());
    auto tflops = [&](size_t i) { return shape.flop() / double(samples_ns[i]) / 1e3; };
    result["median_tflops"] = tflops(samples_ns.size() / 2);
    result["best_tflops"] = tflops(0);
    result["worst_tflops"] = tflops(samples_ns.size() - 1);
    return result;
}

// The two multiply the same numbers in another order.
void check_alike(const Shape& shape, const RidgeGemm& ridge, const OneDnnGemm& onednn) {
    double difference = 0, norm = 0;
    for (int64_t r = 0; r < shape.n_rows; r++) {
        for (int64_t j = 0; j < shape.n; j++) {
            const double a = double(ridge.out(r, j)), b = double(onednn.out(r * shape.n + j));
            difference += (a - b) * (a - b), norm += b * b;
        }
    }
    if (!(difference <= 1e-8 * norm)) {
        throw std::runtime_error(fmt::format("results differ: relative L2 {:.2e}, expected 1e-4",
                                             std::sqrt(difference / norm)));
    }
}

struct Options {
    int64_t n_threads = 2, rounds = 30, cold_mb = 768;
    const Format* format = nullptr;
    std::optional<std::string> path;
};

// False: --help was asked for and printed.
bool parse(int argc, char** argv, Options& options) {
    CLI::App app{"Times Ridge's prompt matmul beside oneDNN's."};
    // Values are read below, in one line where they are wrong.
    std::string n_threads = "2", rounds = "30", cold_mb = "768", format = "BF16";
    app.add_option("--threads", n_threads, "of Ridge; oneDNN takes OMP_NUM_THREADS (default: 2)");
    app.add_option("--rounds", rounds, "samples of each, in turns (default: 30)");
    app.add_option("--cold-mb", cold_mb, "copies of the weights together, in MB (default: 768)");
    app.add_option("--format", format, "of Ridge's weights; oneDNN is timed in BF16 alone");
    app.add_option("-o", options.path, "JSON file");
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        std::cout << app.help();
        return false;
    }
    options.n_threads = parse_integer("--threads", n_threads, 1, 1024);
    options.rounds = parse_integer("--rounds", rounds, 1, 100'000);
    options.cold_mb = parse_integer("--cold-mb", cold_mb, 1, 1'000'000);
    std::vector<std::string> known;
    for (const Format& one : formats()) {
        if (one.encode_row != nullptr) known.emplace_back(one.name);
    }
    options.format = find_format(parse_choice("--format", format, known));
    return true;
}

// What the samples of all shapes have in common, called as in `ridge bench`.
nlohmann::ordered_json about(const Options& options) {
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::system_clock::now().time_since_epoch());
    const dnnl_version_t& onednn = *dnnl_version();
    return {{"build_commit", build_info().commit},
            {"build_version", build_info().version},
            {"machine", machine_json()},
            {"isa", isa_name(choose_isa(""))},
            {"date", date_of(now.count())},
            {"test_time", time_of(now.count())},
            {"n_threads", options.n_threads},
            {"format", options.format->name},
            {"onednn_version", fmt::format("{}.{}.{}", onednn.major, onednn.minor, onednn.patch)}};
}

int run(int argc, char** argv) {
    Options options;
    if (!parse(argc, argv, options)) return 0;
    const Format* weights = options.format;
    const int64_t cold_bytes = options.cold_mb * 1'000'000;
    std::optional<FileWriter> file;  // made before minutes go into what it is to hold
    if (options.path) file.emplace(*options.path, true);
    ThreadPool pool(ThreadPoolOptions{static_cast<int>(options.n_threads)});
    nlohmann::ordered_json all = about(options);
    for (const Shape& shape : kShapes) {
        RidgeGemm ridge(shape, weights->id, cold_bytes, pool);
        std::optional<OneDnnGemm> onednn;
        if (weights->id == FormatId::kBF16) onednn.emplace(shape, cold_bytes, ridge);
        std::vector<int64_t> ridge_ns, onednn_ns;
        for (int64_t round = -2; round < options.rounds; round++) {
            const auto turn = static_cast<size_t>(round + 2);
            // Between turns, so that the threads of neither watch for work any more.
            std::this_thread::sleep_for(kPause);
            const int64_t ns = ridge.multiply(turn);
            std::this_thread::sleep_for(kPause);
            const int64_t peer_ns = onednn ? onednn->multiply(turn) : 0;
            if (round < 0) continue;
            ridge_ns.push_back(ns), onednn_ns.push_back(peer_ns);
        }
        nlohmann::ordered_json entry{{"n_rows", shape.n_rows},
                                     {"n", shape.n},
                                     {"k", shape.k},
                                     {"weight_bytes", ridge.bytes()},
                                     {"ridge", summary(ridge_ns, shape)}};
        std::string line =
            fmt::format("{:3} rows, {} x {}: ridge {:.2f} TFLOP/s ({:.2f} to {:.2f})", shape.n_rows,
                        shape.n, shape.k, entry["ridge"]["median_tflops"].get<double>(),
                        entry["ridge"]["worst_tflops"].get<double>(),
                        entry["ridge"]["best_tflops"].get<double>());
        if (onednn) {
            check_alike(shape, ridge, *onednn);
            entry["onednn"] = summary(onednn_ns, shape);
            entry["onednn"]["implementation"] = onednn->implementation();
            line += fmt::format(", oneDNN {:.2f} ({:.2f} to {:.2f})",
                                entry["onednn"]["median_tflops"].get<double>(),
                                entry["onednn"]["worst_tflops"].get<double>(),
                                entry["onednn"]["best_tflops"].get<double>());
        }
        std::cout << line << std::endl;
        all["shapes"].push_back(std::move(entry));
    }
    if (file) {
        file->append(all.dump(1) + "\n");
        file->commit();
    }
    return 0;
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
    try {
        return ridge::run(argc, argv);
    } catch (const std::exception& e) {
        std::cerr << "onednn-gemm: " << e.what() << "\n";
        return 1;
    }
}
