#include "kernels/checkpoint_tables.h"

#include <cmath>
#include <deque>
#include <numbers>

#include "base/half.h"
#include "cpu/attention.h"
#include "cpu/checkpoints.h"
#include "cpu/matmul.h"
#include "ref/host_kv.h"
#include "ref/ref.h"
#include "support/all_kernels.h"
#include "support/op_entries.h"

namespace ridge {
namespace {

// BF16 weights are made compact on every set; as plain groups they are tested as files have them.
const std::deque<IsaKernels>& all_kernels() {
    static const std::deque<IsaKernels> all = kernels_of_all_isas();
    return all;
}

// Symmetric int8 in blocks of 32: the definition, in the few roundings that quantise_row has.
void round_to_int8(std::vector<float>& x) {
    for (size_t first = 0; first < x.size(); first += 32) {
        const size_t end = std::min(first + 32, x.size());
        float max = 0;
        for (size_t i = first; i < end; i++) max = std::max(max, std::abs(x[i]));
        const float scale = max / 127.0f;
        for (size_t i = first; i < end && max > 0; i++) {
            x[i] = scale * std::nearbyint(x[i] * (127.0f / max));
        }
    }
}

void round_to_bf16(std::vector<float>& x) {
    for (float& value : x) value = to_float(to_bf16(value));
}

// `kByClass`: prompt rows have kernels of their own.
template <bool kByClass>
void matmul_of_rounded(Step& s, Rows x, LinearGroup weights, Rows out) {
    if (s.planning) return;
    const auto& kernels = *static_cast<const cpu::Kernels*>(s.tables.kernels);
    int64_t column = 0;
    for (int g = 0; g < weights.n_weights; g++) {
        const Linear& linear = *weights.weights[static_cast<size_t>(g)];
        std::vector<float> w(static_cast<size_t>(x.n_cols)),
            bias(static_cast<size_t>(linear.weight.n_rows()));
        if (linear.bias) unpack_row(linear.bias, 0, bias.data());
        for (const SequenceSpan& span : s.spans) {
            const cpu::Operands operands = cpu::operands_of(
                kernels, kByClass ? span.row_class : RowClass::kDecode, linear.weight.format->id);
            std::vector<std::vector<float>> rows;
            for (int32_t i = 0; i < span.n_rows; i++) {
                const float* row = x.row<float>(span.first_row + i);
                auto& rounded = rows.emplace_back(row, row + x.n_cols);
                if (operands == cpu::Operands::kInt8) round_to_int8(rounded);
                if (operands == cpu::Operands::kBF16) round_to_bf16(rounded);
            }
            for (int64_t j = 0; j < linear.weight.n_rows(); j++) {
                unpack_row(linear.weight, j, w.data());
                if (operands == cpu::Operands::kBF16) round_to_bf16(w);
                for (int32_t i = 0; i < span.n_rows; i++) {
                    double sum = bias[static_cast<size_t>(j)];
                    for (size_t k = 0; k < w.size(); k++) {
                        sum += double{rows[static_cast<size_t>(i)][k]} * double{w[k]};
                    }
                    out.row<float>(span.first_row + i)[column + j] = static_cast<float>(sum);
                }
            }
        }
        column += linear.weight.n_rows();
    }
}

// One head of one row with what it multiplies rounded to bf16: q scaled, K, V, and weights, of
// which a power of two's distance to the highest score does not change the rounding. q, out
// [d_head]
void attend_rounded(const float* q, const KvLayer& kv, const KvView& view, int64_t kv_head,
                    int64_t n_positions, float* out) {
    const auto d = static_cast<size_t>(kv.d_head);
    const auto scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(kv.d_head)));
    std::vector<float> query(q, q + d), row(d);
    for (float& x : query) x *= scale;
    round_to_bf16(query);
    std::vector<double> scores, sum(d);
    double highest = -INFINITY, total = 0;
    for (int64_t p = 0; p < n_positions; p++) {
        load_row(host_k(kv, view.slot(p), kv_head), row.data());
        round_to_bf16(row);
        double score = 0;
        for (size_t i = 0; i < d; i++) score += double{query[i]} * double{row[i]};
        scores.push_back(score);
        highest = std::max(highest, std::ceil(score));
    }
    for (int64_t p = 0; p < n_positions; p++) {
        std::vector<float> weight = {
            static_cast<float>(std::exp2(scores[static_cast<size_t>(p)] - highest))};
        round_to_bf16(weight);
        load_row(host_v(kv, view.slot(p), kv_head), row.data());
        round_to_bf16(row);
        total += double{weight[0]};
        for (size_t i = 0; i < d; i++) sum[i] += double{weight[0]} * double{row[i]};
    }
    for (size_t i = 0; i < d; i++) out[i] = static_cast<float>(sum[i] / total);
}

// What has none is attended to by the plain op.
bool has_kernels(const KvLayer& kv) {
    return kv.d_head % cpu::kHeadMultiple == 0;
}

void attention_of_rounded(Step& s, Heads q, KvLayer kv, Heads out) {
    ref::attention(s, q, kv, out);
    const auto& kernels = *static_cast<const cpu::Kernels*>(s.tables.kernels);
    if (s.planning || !cpu::rounds_to_bf16(kernels, kv) || !has_kernels(kv)) return;
    for (const SequenceSpan& span : s.batch.spans) {
        if (span.row_class != RowClass::kPrompt) continue;
        for (int64_t i = span.first_row; i < span.first_row + span.n_rows; i++) {
            const int64_t n_positions = int64_t{s.batch.positions[static_cast<size_t>(i)]} + 1;
            for (int64_t h = 0; n_positions > 0 && h < q.n_heads; h++) {
                attend_rounded(q.head<float>(i, h), kv, span.kv, h * kv.n_kv_heads / q.n_heads,
                               n_positions, out.head<float>(i, h));
            }
        }
    }
}

}  // namespace

std::vector<CheckpointTables> checkpoints_of(Op op, int n_threads) {
    std::vector<CheckpointTables> result;
    size_t n_before = 0;
    for (const Checkpoint& checkpoint : cpu_checkpoints()) {
        const Caps plain_caps{n_threads, &all_kernels()[0].kernels, isa_name(Isa::kScalar)};
        Tables tables = resolve_tables(cpu_checkpoints(), checkpoint.name, plain_caps);
        const size_t n = n_entries(tables, op);
        if (n == n_before) continue;
        n_before = n;
        if (tables.kernels == nullptr) {
            result.push_back({std::string(checkpoint.name), std::move(tables)});
            continue;
        }
        for (const IsaKernels& k : all_kernels()) {
            const Caps caps{n_threads, &k.kernels, k.name};
            result.push_back({std::string(checkpoint.name) + " on " + std::string(k.name),
                              resolve_tables(cpu_checkpoints(), checkpoint.name, caps)});
        }
    }
    if (result.size() > 1) result.erase(result.begin());
    return result;
}

static bool has_prompt_attention(const CheckpointTables& checkpoint) {
    const auto entries = checkpoint.tables.ops.attention.entries();
    return std::any_of(entries.begin(), entries.end(),
                       [](const auto& entry) { return entry.checkpoint == "prefill_attention"; });
}

bool rounds_attention(const CheckpointTables& checkpoint, const Case& c) {
    if (!has_prompt_attention(checkpoint)) return false;
    KvLayer kv;
    kv.k_dtype = c.k_dtype, kv.v_dtype = c.v_dtype, kv.exact = c.exact, kv.d_head = c.d_head;
    const auto& kernels = *static_cast<const cpu::Kernels*>(checkpoint.tables.kernels);
    return cpu::rounds_to_bf16(kernels, kv) && has_kernels(kv);
}

Tables reference_for(const CheckpointTables& checkpoint) {
    Tables tables;
    ref::add_ref_ops(tables, "ref");
    tables.kernels = checkpoint.tables.kernels;
    bool grouped = false, by_class = false;
    for (const auto& entry : checkpoint.tables.ops.matmul.entries()) {
        grouped = grouped || entry.checkpoint == "matvec";
        by_class = by_class || entry.checkpoint == "gemm";
    }
    if (has_prompt_attention(checkpoint)) {
        tables.ops.attention.set("rounded", attention_of_rounded);
    }
    if (grouped) tables.ops.matmul.set("rounded", matmul_of_rounded<false>);
    if (by_class) tables.ops.matmul.set("rounded", matmul_of_rounded<true>);
    return tables;
}

}  // namespace ridge
