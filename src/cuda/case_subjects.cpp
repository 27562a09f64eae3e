#include "cuda/case_subjects.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "cuda/checkpoints.h"
#include "cuda/context.h"
#include "cuda/tiles.h"
#include "model/step.h"
#include "ref/host_kv.h"
#include "ref/ref.h"

namespace ridge {
namespace {

// Of sums that round to f32 where the reference's are f64; of products whose operands round to f16.
constexpr float kSums = 2e-4f, kRounded = 1e-3f;
// Of attention, the reference's operands being rounded too where it matters; and of scores so large
// that their last bits do.
constexpr float kRoundedAttention = 3e-3f, kLargeScores = 1e-2f;
// Of elements that are judged together: each must be a number where the reference's is.
constexpr float kFinite = 1e30f;

// Kernels that multiply in f16; the others' operands keep 16 bits of the mantissa.
bool multiplies_f16(const KvLayer& kv) {
    return kv.k_dtype == kv.v_dtype && (kv.d_head == 64 || kv.d_head == 128) && !kv.exact &&
           (kv.k_dtype == DType::kF16 || kv.k_dtype == DType::kQ8_0);
}

// To f16, relative to the power of two at or below the greatest magnitude.
void round_row(float* x, int64_t n) {
    float highest = 0;
    for (int64_t i = 0; i < n; i++) highest = std::max(highest, std::abs(x[i]));
    if (highest == 0) return;
    const float power = std::exp2(std::floor(std::log2(highest)));
    for (int64_t i = 0; i < n; i++) x[i] = to_float(to_f16(x[i] / power)) * power;
}

// K in f32, its elements rounded to f16.
struct RoundedKeys {
    std::vector<float> values;
    Buffer buffer;
    KvLayer kv;

    explicit RoundedKeys(const KvLayer& original) : kv(original) {
        kv.k_dtype = DType::kF32, kv.k_offset = 0;
        CHECK(kv.group_stride == 0);
        const size_t n_bytes = host_kv_bytes(kv.n_slots, kv.n_kv_heads, kv.d_head, kv.k_dtype);
        values.resize(n_bytes / sizeof(float));
        buffer = Buffer(values.data(), n_bytes, [](void*, size_t) {});
        kv.k = &buffer;
        std::vector<float> row(static_cast<size_t>(kv.d_head));
        for (int64_t slot = 0; slot < kv.n_slots; slot++) {
            for (int64_t h = 0; h < kv.n_kv_heads; h++) {
                load_row(host_k(original, slot, h), row.data());
                for (float& x : row) x = to_float(to_f16(x));
                store_row(row.data(), host_k(kv, slot, h));
            }
        }
    }
};

void attention_of_rounded(Step& s, Heads q, KvLayer kv, Heads out) {
    ref::attention(s, q, kv, out);
    if (s.planning || !multiplies_f16(kv)) return;
    std::vector<SequenceSpan> prompts;
    for (const SequenceSpan& span : s.batch.spans) {
        if (span.row_class == RowClass::kPrompt) prompts.push_back(span);
    }
    Batch batch = s.batch;
    batch.spans = prompts;
    Step of_prompts{s.tables, s.ops, s.stages, s.config, s.rope_table, batch, s.memory, s.pool};
    const int64_t n_cols = q.rows.n_cols;
    std::vector<float> rounded(static_cast<size_t>(q.rows.n_rows * n_cols));
    for (int64_t i = 0; i < q.rows.n_rows; i++) {
        float* row = rounded.data() + i * n_cols;
        std::copy_n(q.rows.row<float>(i), n_cols, row);
        for (int64_t h = 0; h < q.n_heads; h++) round_row(row + h * q.d_head, q.d_head);
    }
    const Buffer buffer(rounded.data(), rounded.size() * sizeof(float), [](void*, size_t) {});
    q.rows.buffer = &buffer, q.rows.offset_bytes = 0, q.rows.stride = n_cols;
    if (kv.k_dtype != DType::kQ8_0) return ref::attention(of_prompts, q, kv, out);
    const RoundedKeys keys(kv);
    ref::attention(of_prompts, q, keys.kv, out);
}

bool has_prompt_attention(const Tables& tables) {
    const auto entries = tables.ops.attention.entries();
    return std::any_of(entries.begin(), entries.end(),
                       [](const auto& entry) { return entry.checkpoint == "prefill_attention"; });
}

Standard standard_of_sums(const Subject&, const Case& c) {
    return {.element = std::max(c.tolerance, kSums)};
}

Standard standard_of_matmul(const Subject&, const Case&) {
    return {kFinite, kRounded, "f16"};
}

// Operands that are no single f16 keep 16 bits of the mantissa, and the reference's are exact.
Standard standard_of_attention(const Subject& subject, const Case& c) {
    KvLayer kv;
    kv.k_dtype = c.k_dtype, kv.v_dtype = c.v_dtype, kv.exact = c.exact, kv.d_head = c.d_head;
    const bool f16 = has_prompt_attention(subject.tables) && multiplies_f16(kv);
    return {kFinite, c.scale == 1 ? kRoundedAttention : kLargeScores, f16 ? "f16" : "two f16"};
}

}  // namespace

Caps caps_without_device() {
    static const cuda::Context context = [] {
        cuda::Context c;
        c.n_sms = 132, c.capability = 90;
        c.shared_bytes_an_sm = 228 << 10, c.shared_bytes_a_block = 227 << 10;
        return c;
    }();
    return {.kernels = &context};
}

std::vector<Subject> cuda_subjects(Op op, const Caps& caps) {
    const NamedCaps machine[] = {{"", caps}};
    std::vector<Subject> subjects = subjects_of(cuda_checkpoints(), op, machine);
    for (Subject& subject : subjects) {
        const bool is_plain = subject.checkpoint == "plain";
        subject.is_packed = [](FormatId format) { return cuda::has_tiles(format); };
        switch (op) {
            case Op::kEmbedRows:
            case Op::kKvAppend:
            case Op::kAdd:
            case Op::kSample:  // bit for bit, or as the case says
                break;
            case Op::kMatmul:
                subject.standard = is_plain ? standard_of_sums : standard_of_matmul;
                break;
            case Op::kAttention:
                subject.standard = is_plain ? standard_of_sums : standard_of_attention;
                if (has_prompt_attention(subject.tables)) {
                    subject.reference.ops.attention.set("rounded", attention_of_rounded);
                }
                break;
            default:
                subject.standard = standard_of_sums;
        }
    }
    return subjects;
}

}  // namespace ridge
