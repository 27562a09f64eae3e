#include "device/rounded_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "model/step.h"
#include "ref/host_kv.h"
#include "ref/ref.h"

namespace ridge {
namespace {

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

}  // namespace

Tables attention_reference(const Tables& tables) {
    Tables reference;
    ref::add_ref_ops(reference, "ref");
    for (const auto& entry : tables.ops.attention.entries()) {
        if (entry.checkpoint != "prefill_attention") continue;
        reference.ops.attention.set("rounded", attention_of_rounded);
    }
    return reference;
}

}  // namespace ridge
