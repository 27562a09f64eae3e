#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "cases/random.h"
#include "cuda/checkpoints.h"
#include "cuda/decode_attention.h"
#include "device/device_cases.h"
#include "model/weights.h"
#include "ref/host_kv.h"
#include "support/seed.h"

// Attention of rows that are each a sequence's newest, on a GPU, beside the reference's norms,
// RoPE, cache and attention one after the other.

namespace ridge {
namespace {

struct Kind {
    int n_heads, n_kv_heads, d_head, d_rope;
    DType k, v;
    bool qk_norm = false, half_split = true, paged = true;
    std::vector<int> n_ctx = {};  // of each sequence, its newest position included
    bool masked = false;          // every third row
};

Buffer host_buffer(size_t n_bytes) {
    auto* data = new std::byte[n_bytes];
    memset(data, 0x7f, n_bytes);  // NaN in any type of float
    return {data, n_bytes, [](void* p, size_t) { delete[] static_cast<std::byte*>(p); }};
}

// Operands in host memory, and where a device is given in its memory, too.
class FreshRun {
  public:
    FreshRun(const Kind& kind, uint64_t seed) : kind_(kind), random_(seed) {
        config_.n_heads = kind.n_heads, config_.n_kv_heads = kind.n_kv_heads;
        config_.d_head = kind.d_head, config_.d_rope = kind.d_rope;
        config_.rope_style = kind.half_split ? RopeStyle::kHalfSplit : RopeStyle::kInterleaved;
        config_.rope_theta = 10000, config_.norm_eps = 1e-5f, config_.qk_norm = kind.qk_norm;
        rope_ = make_rope_table(config_);
        kv_.k_dtype = kind.k, kv_.v_dtype = kind.v;
        kv_.n_kv_heads = kind.n_kv_heads, kv_.d_head = kind.d_head;
        make_batch();
        make_operands();
    }

    int64_t n_rows() const { return static_cast<int64_t>(positions_.size()); }
    int64_t d_q() const { return int64_t{kind_.n_heads} * kind_.d_head; }
    bool is_masked(size_t row) const { return positions_[row] < 0; }

    // [n_rows, d_q]; the newest K and V of every row to `newest`.
    std::vector<float> reference(const Tables& tables, ThreadPool& pool,
                                 std::vector<float>& newest) {
        Buffer qkv = copy_of(qkv_), k = copy_of(k_), v = copy_of(v_), out = copy_of(out_);
        KvLayer kv = kv_;
        kv.k = &k, kv.v = &v;
        const Rows rows = rows_of(qkv);
        const int64_t d = kind_.d_head, d_kv = kind_.n_kv_heads * d;
        const Heads q(rows.cols(0, d_q()), kind_.n_heads, d);
        const Heads keys(rows.cols(d_q(), d_kv), kind_.n_kv_heads, d);
        const Heads values(rows.cols(d_q() + d_kv, d_kv), kind_.n_kv_heads, d);
        run(tables, pool, nullptr, [&](Step& s) {
            if (kind_.qk_norm) {
                s.ops.rms_norm(s, q, layer_.q_norm, config_.norm_eps, q);
                s.ops.rms_norm(s, keys, layer_.k_norm, config_.norm_eps, keys);
            }
            s.ops.rope(s, q, positions_, rope_);
            s.ops.rope(s, keys, positions_, rope_);
            s.ops.kv_append(s, keys, values, kv);
            s.ops.attention(s, q, kv, Heads(out_rows(out), kind_.n_heads, d));
        });
        newest = newest_of(kv);
        return floats_of(out);
    }

    std::vector<float> on_device(const Tables& tables, ThreadPool& pool, CaseDevice& device,
                                 std::vector<float>& newest) {
        std::deque<Buffer> buffers;
        auto there = [&](const Buffer& host) -> Buffer& {
            buffers.push_back(device.alloc(host.n_bytes()));
            device.upload(host, buffers.back());
            return buffers.back();
        };
        const Buffer &qkv = there(qkv_), &k = there(k_), &v = there(v_), &out = there(out_);
        KvLayer kv = kv_;
        kv.k = &k, kv.v = &v;
        Layer layer;
        if (kind_.qk_norm) {
            layer.q_norm = device.prepare(layer_.q_norm, row_major_layout());
            layer.k_norm = device.prepare(layer_.k_norm, row_major_layout());
        }
        int64_t n_pages = 0;
        for (const auto& table : page_tables_) n_pages += static_cast<int64_t>(table.size());
        device.begin(batch(), rope_, n_pages);
        run(tables, pool, &device,
            [&](Step& s) { cuda::attend_fresh_rows(s, layer, rows_of(qkv), kv, out_rows(out)); });
        const Buffer k_back = copy_of(k_), v_back = copy_of(v_), out_back = copy_of(out_);
        device.download(k, k_back), device.download(v, v_back), device.download(out, out_back);
        kv.k = &k_back, kv.v = &v_back;
        newest = newest_of(kv);
        return floats_of(out_back);
    }

  private:
    void make_batch() {
        int64_t next_page = 1;  // one is nobody's
        for (size_t i = 0; i < kind_.n_ctx.size(); i++) {
            const int64_t n = kind_.n_ctx[i], n_pages = kv_pages_of(n);
            KvView view;
            if (kind_.paged) {  // from the last to the first
                auto& table = page_tables_.emplace_back();
                for (int64_t p = 0; p < n_pages; p++) {
                    table.push_back(static_cast<int32_t>(next_page + n_pages - 1 - p));
                }
                view.page_table = table.data();
            } else {
                view.base_slot = next_page * kKvPagePositions;
            }
            next_page += n_pages;
            const bool masked = kind_.masked && i % 3 == 1;
            const auto row = static_cast<int32_t>(i);
            spans_.push_back({row, 1, RowClass::kDecode, view});
            positions_.push_back(masked ? -1 : static_cast<int32_t>(n - 1));
            slots_.push_back(masked ? -1 : view.slot(n - 1));
            tokens_.push_back(0);
        }
        kv_.n_slots = next_page * kKvPagePositions;
    }
    void make_operands() {
        const int64_t d = kind_.d_head;
        auto bytes_of = [&](DType type) {
            return host_kv_bytes(kv_.n_slots, kv_.n_kv_heads, kv_.d_head, type);
        };
        k_ = host_buffer(bytes_of(kind_.k)), v_ = host_buffer(bytes_of(kind_.v));
        kv_.k = &k_, kv_.v = &v_;
        std::vector<float> row(static_cast<size_t>(d));
        for (size_t i = 0; i < spans_.size(); i++) {
            for (int64_t p = 0; p < kind_.n_ctx[i] - 1; p++) {
                for (int64_t h = 0; h < kv_.n_kv_heads; h++) {
                    for (auto row_of : {host_k, host_v}) {
                        for (float& x : row) x = random_.normal();
                        store_row(row.data(), row_of(kv_, spans_[i].kv.slot(p), h));
                    }
                }
            }
        }
        n_cols_ = d_q() + 2 * kind_.n_kv_heads * d, stride_ = n_cols_ + 3;
        qkv_ = host_buffer(static_cast<size_t>(n_rows() * stride_) * sizeof(float));
        out_ = host_buffer(static_cast<size_t>(n_rows() * d_q()) * sizeof(float));
        for (int64_t i = 0; i < n_rows(); i++) {
            for (int64_t j = 0; j < n_cols_; j++) rows_of(qkv_).row<float>(i)[j] = random_.normal();
        }
        if (!kind_.qk_norm) return;
        layer_.q_norm = vector(q_norm_), layer_.k_norm = vector(k_norm_);
    }
    Tensor vector(std::vector<float>& values) {
        for (int i = 0; i < kind_.d_head; i++) {
            values.push_back(0.5f + static_cast<float>(random_.uniform()));
        }
        Tensor tensor;
        tensor.format = &format_of(FormatId::kF32), tensor.layout = &row_major_layout();
        tensor.n_dims = 1, tensor.shape = {kind_.d_head};
        tensor.planes[0].data = reinterpret_cast<const std::byte*>(values.data());
        tensor.planes[0].stride_bytes = kind_.d_head * int64_t{sizeof(float)};
        return tensor;
    }

    Batch batch() const { return {tokens_, positions_, slots_, spans_, {}, {}}; }
    Rows rows_of(const Buffer& qkv) const {
        return {&qkv, 0, DType::kF32, n_rows(), n_cols_, stride_};
    }
    Rows out_rows(const Buffer& out) const {
        return {&out, 0, DType::kF32, n_rows(), d_q(), d_q()};
    }
    static Buffer copy_of(const Buffer& buffer) {
        Buffer copy = host_buffer(buffer.n_bytes());
        memcpy(copy.data(), buffer.data(), buffer.n_bytes());
        return copy;
    }
    static std::vector<float> floats_of(const Buffer& buffer) {
        const auto* first = reinterpret_cast<const float*>(buffer.data());
        return {first, first + buffer.n_bytes() / sizeof(float)};
    }
    std::vector<float> newest_of(const KvLayer& kv) const {
        std::vector<float> all, row(static_cast<size_t>(kind_.d_head));
        for (size_t i = 0; i < spans_.size(); i++) {
            for (int64_t h = 0; h < kv.n_kv_heads && slots_[i] >= 0; h++) {
                for (auto row_of : {host_k, host_v}) {
                    load_row(row_of(kv, slots_[i], h), row.data());
                    all.insert(all.end(), row.begin(), row.end());
                }
            }
        }
        return all;
    }
    template <class F>
    void run(const Tables& tables, ThreadPool& pool, CaseDevice* device, F f) {
        const Batch rows = batch();
        Scratch memory;
        memory.begin_step();
        Step plan{tables, tables.ops, tables.stages, config_, rope_, rows, memory, pool, true};
        f(plan);
        const size_t n_bytes = memory.planned_bytes() + Scratch::kAlignBytes;
        const Buffer buffer = device == nullptr ? host_buffer(n_bytes) : device->alloc(n_bytes);
        memory.place(buffer);
        memory.begin_step();
        Step step{tables, tables.ops, tables.stages, config_, rope_, rows, memory, pool, false};
        f(step);
        if (device != nullptr) device->wait();
    }

    const Kind kind_;
    Random random_;
    Config config_;
    RopeTable rope_;
    KvLayer kv_;
    Layer layer_;
    Buffer qkv_, k_, v_, out_;
    std::vector<float> q_norm_, k_norm_;
    int64_t n_cols_ = 0, stride_ = 0;
    std::deque<std::vector<int32_t>> page_tables_;
    std::vector<SequenceSpan> spans_;
    std::vector<int32_t> positions_;
    std::vector<int64_t> slots_;
    std::vector<Token> tokens_;
};

double relative_l2(std::span<const float> want, std::span<const float> got) {
    if (want.size() != got.size()) return HUGE_VAL;
    double error = 0, sum = 0;
    for (size_t i = 0; i < want.size(); i++) {
        error += (double{got[i]} - double{want[i]}) * (double{got[i]} - double{want[i]});
        sum += double{want[i]} * double{want[i]};
    }
    return sum > 0 ? std::sqrt(error / sum) : error;
}

std::vector<Kind> kinds() {
    constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16, kQ8_0 = DType::kQ8_0,
                    kF32 = DType::kF32;
    std::vector<Kind> all;
    for (DType type : {kF16, kBF16, kQ8_0}) {
        for (int d_head : {64, 96, 128, 256}) {
            for (int group : {1, 4, 7, 12}) {
                Kind kind{2 * group, 2, d_head, d_head, type, type};
                kind.qk_norm = group % 4 == 0, kind.half_split = group != 7;
                kind.paged = d_head != 96, kind.masked = group == 4;
                kind.n_ctx = {1, 64, 33 + d_head, 65, 700};
                all.push_back(kind);
            }
        }
        for (int n_ctx : {1, 2, 32, 33, 64, 128, 129, 256, 257, 512, 513, 1100, 3000}) {
            Kind kind{4, 1, n_ctx % 2 == 0 ? 64 : 128, 64, type, type};
            kind.n_ctx = {n_ctx};
            all.push_back(kind);
        }
    }
    for (auto [k, v] : {std::pair(kF32, kF32), {kF16, kF32}, {kQ8_0, kF16}, {kBF16, kQ8_0}}) {
        Kind kind{6, 2, 96, 40, k, v};
        kind.qk_norm = true, kind.n_ctx = {1, 130, 300, 32, 600};
        all.push_back(kind);
    }
    Kind odd{5, 1, 72, 72, kF16, kF16};
    odd.n_ctx = {77, 1};
    all.push_back(odd);
    return all;
}

TEST(FreshRows, attend_as_norms_rope_cache_and_attention_one_by_one) {
    DeviceCases device;
    auto& [cuda, pool, ref_tables] = device;
    const Tables tables = resolve_tables(cuda_checkpoints(), "decode_attention", cuda.caps);
    uint64_t seed = test_seed();
    for (const Kind& kind : kinds()) {
        SCOPED_TRACE(fmt::format(
            "{} heads of {}, d_head {}, {} of them turned, types {} and {}, {} rows, first {}, "
            "RIDGE_SEED={}",
            kind.n_heads, kind.n_kv_heads, kind.d_head, kind.d_rope, static_cast<int>(kind.k),
            static_cast<int>(kind.v), kind.n_ctx.size(), kind.n_ctx[0], test_seed()));
        FreshRun run(kind, ++seed);
        std::vector<float> want_newest, newest;
        const std::vector<float> want = run.reference(ref_tables, pool, want_newest);
        const std::vector<float> got = run.on_device(tables, pool, *cuda.device, newest);
        // What is rounded may fall the other way where norms and turns differ in their last bits.
        const auto d_q = static_cast<size_t>(run.d_q());
        for (size_t row = 0; row < kind.n_ctx.size(); row++) {
            EXPECT_LT(relative_l2(std::span(want).subspan(row * d_q, d_q),
                                  std::span(got).subspan(row * d_q, d_q)),
                      2e-3)
                << "row " << row;
        }
        EXPECT_LT(relative_l2(want_newest, newest), 2e-3);
        for (size_t row = 0; row < kind.n_ctx.size(); row++) {
            for (int64_t j = 0; run.is_masked(row) && j < run.d_q(); j++) {
                EXPECT_EQ(got[row * static_cast<size_t>(run.d_q()) + static_cast<size_t>(j)], 0);
            }
        }
    }
}

}  // namespace
}  // namespace ridge
