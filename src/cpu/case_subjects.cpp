#include "cpu/case_subjects.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/cpu_features.h"
#include "base/half.h"
#include "cpu/attention.h"
#include "cpu/checkpoints.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "cpu/matmul.h"
#include "ref/host_kv.h"
#include "ref/ref.h"

namespace ridge {
namespace {

constexpr std::string_view kWithoutBf16 = "avx512 without bf16";

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

bool has_entry(const auto& node, std::string_view checkpoint) {
    const auto entries = node.entries();
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& entry) { return entry.checkpoint == checkpoint; });
}

// A score's last bits may tip how its weight is rounded to bf16, by 2^-8 of the weight: of single
// elements that is much, of all of them little.
constexpr float kRoundedElement = 1.5e-2f, kRoundedAttention = 3e-3f;

constexpr std::string_view kOperandNames[] = {kNotRounded, "int8", "bf16"};

Standard standard_of_attention(const Subject& subject, const Case& c) {
    const auto& ops = subject.tables.ops;
    if (!has_entry(ops.attention, "prefill_attention")) return exact_standard(subject, c);
    KvLayer kv;
    kv.k_dtype = c.k_dtype, kv.v_dtype = c.v_dtype, kv.exact = c.exact, kv.d_head = c.d_head;
    const auto& kernels = *static_cast<const cpu::Kernels*>(subject.tables.kernels);
    if (!cpu::rounds_to_bf16(kernels, kv) || !has_kernels(kv)) return exact_standard(subject, c);
    return {std::max(c.tolerance, kRoundedElement), kRoundedAttention, "bf16"};
}

Standard standard_of_matmul(const Subject& subject, const Case& c) {
    Standard standard = exact_standard(subject, c);
    if (!has_entry(subject.tables.ops.matmul, "matvec")) return standard;
    const bool by_class = has_entry(subject.tables.ops.matmul, "gemm");
    const auto& kernels = *static_cast<const cpu::Kernels*>(subject.tables.kernels);
    standard.operands.clear();
    for (const CaseWeight& w : c.weights) {
        const cpu::Operands operands =
            cpu::operands_of(kernels, by_class ? c.row_class : RowClass::kDecode, w.format);
        if (!standard.operands.empty()) standard.operands += ' ';
        standard.operands += kOperandNames[static_cast<size_t>(operands)];
    }
    return standard;
}

}  // namespace

std::vector<std::string_view> isa_kernels_names() {
    return {"scalar", "avx2", "avx512", kWithoutBf16, kTilesName, "amx", "neon"};
}

bool is_of_isa(std::string_view name, std::string_view isa) {
    if (name == kWithoutBf16) return isa == "avx512";
    if (name == kTilesName) return isa == "amx";
    return name == isa;
}

std::deque<IsaKernels> kernels_of_all_isas(const std::function<bool(std::string_view)>& wanted) {
    std::deque<IsaKernels> all;
    auto add = [&](std::string_view name, const cpu::Kernels& kernels) {
        all.push_back({name, kernels});
        all.back().kernels.compact.faster = true;
    };
    for (Isa isa : available_isas()) {
        if (wanted(isa_name(isa))) add(isa_name(isa), cpu::kernels_of_isa(isa));
#if defined(__x86_64__)
        if (isa != Isa::kAvx512 || !cpu_features().avx512_bf16 || !wanted(kWithoutBf16)) continue;
        cpu::Kernels kernels = cpu::kernels_of_isa(Isa::kAvx2);
        cpu::add_avx512_kernels(kernels);
        add(kWithoutBf16, kernels);
#endif
    }
    if (wanted(kTilesName)) {
        cpu::Kernels kernels = cpu::kernels_of_isa(Isa::kScalar);
        cpu::add_scalar_tile_kernels(kernels);
        add(kTilesName, kernels);
    }
    return all;
}

std::vector<Subject> cpu_subjects(Op op, const std::deque<IsaKernels>& kernels, int n_threads) {
    std::vector<NamedCaps> machines;
    for (const IsaKernels& k : kernels) {
        machines.push_back({std::string(k.name), {n_threads, &k.kernels, k.name}});
    }
    std::vector<Subject> subjects = subjects_of(cpu_checkpoints(), op, machines);
    if (subjects.size() > 1) subjects.erase(subjects.begin());
    for (Subject& subject : subjects) {
        subject.reference.kernels = subject.tables.kernels;
        if (op == Op::kAttention) {
            subject.standard = standard_of_attention;
            if (has_entry(subject.tables.ops.attention, "prefill_attention")) {
                subject.reference.ops.attention.set("rounded", attention_of_rounded);
            }
        }
        if (op == Op::kMatmul) {
            subject.standard = standard_of_matmul;
            const auto& matmul = subject.tables.ops.matmul;
            if (has_entry(matmul, "matvec")) {
                subject.reference.ops.matmul.set("rounded", has_entry(matmul, "gemm")
                                                                ? matmul_of_rounded<true>
                                                                : matmul_of_rounded<false>);
            }
        }
    }
    return subjects;
}

}  // namespace ridge
