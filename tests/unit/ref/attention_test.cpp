#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cases/random.h"
#include "ref/host_kv.h"
#include "ref/ref.h"
#include "support/host_step.h"
#include "support/seed.h"

namespace ridge {
namespace {

// A cache of NaN, to be filled through kv_append.
struct Cache {
    std::vector<std::byte> k_bytes, v_bytes;
    Buffer k, v;
    KvLayer layer;

    Cache(int64_t n_slots, int n_kv_heads, int d_head, DType k_dtype, DType v_dtype)
        : k_bytes(host_kv_bytes(n_slots, n_kv_heads, d_head, k_dtype), std::byte{0xff}),
          v_bytes(host_kv_bytes(n_slots, n_kv_heads, d_head, v_dtype), std::byte{0xff}),
          k(borrow(k_bytes.data(), k_bytes.size())),
          v(borrow(v_bytes.data(), v_bytes.size())),
          layer{&k, &v, k_dtype, v_dtype, n_slots, n_kv_heads, d_head} {}
};

// out[h] = sum_p w[p] V[p] / sum_p w[p], w[p] = exp(s[p] - s[last]): shifted by another score than
// the largest, which long double has the range for.
std::vector<double> attend(const std::vector<float>& q, const std::vector<std::vector<float>>& k,
                           const std::vector<std::vector<float>>& v, size_t kv_head, size_t d) {
    std::vector<long double> score(k.size()), sum(d);
    for (size_t p = 0; p < k.size(); p++) {
        for (size_t i = 0; i < d; i++) {
            score[p] += static_cast<long double>(q[i]) * k[p][kv_head * d + i];
        }
        score[p] /= sqrtl(static_cast<long double>(d));
    }
    long double total = 0;
    for (size_t p = 0; p < k.size(); p++) {
        const long double weight = expl(score[p] - score.back());
        total += weight;
        for (size_t i = 0; i < d; i++) sum[i] += weight * v[p][kv_head * d + i];
    }
    std::vector<double> out(d);
    for (size_t i = 0; i < d; i++) out[i] = static_cast<double>(sum[i] / total);
    return out;
}

float as_stored(float x, DType dtype) {
    if (dtype == DType::kF16) return to_float(to_f16(x));
    if (dtype == DType::kBF16) return to_float(to_bf16(x));
    return x;
}

// What the n elements of one head are once they have been stored.
void round_head(float* x, size_t n, DType dtype) {
    if (dtype != DType::kQ8_0) {
        for (size_t i = 0; i < n; i++) x[i] = as_stored(x[i], dtype);
        return;
    }
    for (size_t first = 0; first < n; first += 32) {
        float highest = 0;
        for (size_t i = first; i < first + 32; i++) highest = std::max(highest, std::abs(x[i]));
        const float scale = to_float(to_f16(highest / 127));
        for (size_t i = first; i < first + 32; i++) {
            const float code = scale > 0 ? std::nearbyint(x[i] / scale) : 0;
            x[i] = scale * std::clamp(code, -127.0f, 127.0f);
        }
    }
}

struct Shape {
    int64_t n_ctx;
    int n_heads, n_kv_heads, d_head;
    DType k_dtype, v_dtype;
    bool paged;
    float scale;
};

// Appends n_ctx positions, then asks for the result of all of them at once.
void check_attention(const Shape& s) {
    const auto n = static_cast<size_t>(s.n_ctx), d = static_cast<size_t>(s.d_head);
    std::vector<int32_t> pages;
    for (int64_t p = 0; p * kKvPagePositions < s.n_ctx; p++) {
        pages.insert(pages.begin(), static_cast<int32_t>(p) + 1);  // page 0 is nobody's
    }
    const KvView view = s.paged ? KvView{pages.data(), 0} : KvView{nullptr, kKvPagePositions};
    Cache cache((static_cast<int64_t>(pages.size()) + 1) * kKvPagePositions, s.n_kv_heads, s.d_head,
                s.k_dtype, s.v_dtype);
    Random random(test_seed(), 40 + n);
    std::vector<std::vector<float>> k(n), v(n), q(n);
    Matrix k_rows(s.n_ctx, s.n_kv_heads * s.d_head), v_rows(s.n_ctx, s.n_kv_heads * s.d_head),
        q_rows(s.n_ctx, s.n_heads * s.d_head), out(s.n_ctx, s.n_heads * s.d_head, NAN);
    for (float& x : k_rows.values) x = s.scale * random.normal();
    for (float& x : v_rows.values) x = random.normal();
    for (float& x : q_rows.values) x = s.scale * random.normal();

    HostStep host;
    std::vector<Token> tokens(n);
    std::vector<int32_t> positions(n);
    std::vector<int64_t> slots(n);
    for (size_t p = 0; p < n; p++) {
        positions[p] = static_cast<int32_t>(p), slots[p] = view.slot(positions[p]);
        for (size_t i = 0; i < static_cast<size_t>(s.n_kv_heads) * d; i++) {
            const size_t at = p * static_cast<size_t>(s.n_kv_heads) * d + i;
            k[p].push_back(k_rows.values[at]);
            v[p].push_back(v_rows.values[at]);
        }
        for (size_t h = 0; h < static_cast<size_t>(s.n_kv_heads); h++) {
            round_head(k[p].data() + h * d, d, s.k_dtype);
            round_head(v[p].data() + h * d, d, s.v_dtype);
        }
    }
    const SequenceSpan span{0, static_cast<int32_t>(n), RowClass::kPrompt, view};
    host.batch = {tokens, positions, slots, {&span, 1}, {}, {}};
    Step step = host.step();
    ref::kv_append(step, {k_rows.rows(), s.n_kv_heads, s.d_head},
                   {v_rows.rows(), s.n_kv_heads, s.d_head}, cache.layer);
    ref::attention(step, {q_rows.rows(), s.n_heads, s.d_head}, cache.layer,
                   {out.rows(), s.n_heads, s.d_head});
    for (size_t p = 0; p < n; p++) {
        for (int h = 0; h < s.n_heads; h++) {
            const auto first =
                q_rows.values.begin() +
                static_cast<std::ptrdiff_t>(
                    (p * static_cast<size_t>(s.n_heads) + static_cast<size_t>(h)) * d);
            const std::vector<double> want =
                attend({first, first + s.d_head}, {k.begin(), k.begin() + positions[p] + 1},
                       {v.begin(), v.begin() + positions[p] + 1},
                       static_cast<size_t>(h * s.n_kv_heads / s.n_heads), d);
            for (size_t i = 0; i < d; i++) {
                const float got = out.at(positions[p], h * s.d_head + static_cast<int64_t>(i));
                ASSERT_NEAR(got, want[i], 2e-7 * (1 + std::abs(want[i])))
                    << "position " << p << ", head " << h << ", element " << i;
            }
        }
    }
}

TEST(attention, is_the_softmax_of_scores_times_values) {
    const DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16;
    check_attention({1, 1, 1, 64, f32, f32, false, 1});
    check_attention({65, 3, 1, 64, f16, f16, true, 1});
    check_attention({33, 8, 2, 80, bf16, f16, false, 1});
    check_attention({130, 4, 4, 16, f16, bf16, true, 2});
    check_attention({70, 7, 1, 96, f32, f32, true, 3});
}

// A code may differ where x / scale and x * (1 / scale) round apart, by one in 127.
TEST(attention, reads_eight_bit_codes_with_a_scale_for_each_32_elements) {
    const int n_slots = 70, d_head = 96;
    Cache cache(n_slots, 2, d_head, DType::kQ8_0, DType::kQ8_0);
    Random random(test_seed(), 60);
    for (int64_t slot = 0; slot < n_slots; slot++) {
        for (int64_t h = 0; h < 2; h++) {
            std::vector<float> x(d_head), got_k(d_head), got_v(d_head);
            for (float& value : x) value = random.normal();
            for (int i = 32; i < 64; i++) x[static_cast<size_t>(i)] *= slot == 3 ? 0.0f : 1e3f;
            store_row(x.data(), host_k(cache.layer, slot, h));
            store_row(x.data(), host_v(cache.layer, slot, h));
            load_row(host_k(cache.layer, slot, h), got_k.data());
            load_row(host_v(cache.layer, slot, h), got_v.data());
            EXPECT_EQ(got_k, got_v);
            std::vector<float> want = x;
            round_head(want.data(), want.size(), DType::kQ8_0);
            for (size_t i = 0; i < x.size(); i++) {
                const float step = i / 32 == 1 ? 40.0f : 0.04f;
                EXPECT_NEAR(got_k[i], want[i], step) << "element " << i;
                EXPECT_NEAR(got_k[i], x[i], step) << "element " << i;
            }
        }
    }
}

TEST(attention, takes_scores_of_ten_thousand) {
    check_attention({40, 6, 2, 64, DType::kF32, DType::kF32, false, 30});
    HostStep host;
    const std::vector<Token> tokens(1);
    const std::vector<int32_t> positions = {2};
    const SequenceSpan span{0, 1, RowClass::kDecode, {}};
    host.batch = {tokens, positions, {}, {&span, 1}, {}, {}};
    Cache cache(3, 1, 4, DType::kF32, DType::kF32);
    for (int64_t p = 0; p < 3; p++) {
        const float sign = p == 1 ? 1.0f : -1.0f;
        const float key[4] = {100 * sign, 100 * sign, 0, 0}, value[4] = {float(p), 1, 2, 3};
        store_row(key, host_k(cache.layer, p, 0));
        store_row(value, host_v(cache.layer, p, 0));
    }
    Matrix q(1, 4, {100, 100, 0, 0}), out(1, 4, NAN);  // scores -1e4, 1e4, -1e4
    Step step = host.step();
    ref::attention(step, q.rows(), cache.layer, out.rows());
    EXPECT_EQ(out.values, (std::vector<float>{1, 1, 2, 3}));
}

TEST(attention, gives_zeros_for_a_masked_row_and_reads_nothing) {
    HostStep host;
    const std::vector<Token> tokens(2);
    const std::vector<int32_t> positions = {-1, -1};
    const SequenceSpan span{0, 2, RowClass::kPrompt, {}};
    host.batch = {tokens, positions, {}, {&span, 1}, {}, {}};
    Cache cache(1, 1, 4, DType::kF16, DType::kF16);
    Matrix q(2, 8, 1.0f), out(2, 8, NAN);
    Step step = host.step();
    ref::attention(step, {q.rows(), 2, 4}, cache.layer, {out.rows(), 2, 4});
    for (float value : out.values) EXPECT_EQ(value, 0);
}

TEST(kv_append, writes_the_slots_of_its_rows_and_no_others) {
    HostStep host;
    const std::vector<Token> tokens(3);
    const std::vector<int64_t> slots = {4, -1, 1};
    host.batch = {tokens, {}, slots, {}, {}, {}};
    Cache cache(6, 2, 2, DType::kF16, DType::kBF16);
    Matrix k(3, 4, {1, 2, 3, 4, 5, 6, 7, 8, 0.1f, 10, 1e-7f, 12}),
        v(3, 4, {1, 2, 3, 4, 5, 6, 7, 8, 0.1f, 10, 1e-7f, 12});
    Step step = host.step();
    ref::kv_append(step, {k.rows(), 2, 2}, {v.rows(), 2, 2}, cache.layer);
    for (int64_t slot = 0; slot < 6; slot++) {
        const int64_t row = slot == 4 ? 0 : slot == 1 ? 2 : -1;
        for (int64_t h = 0; h < 2; h++) {
            const HostKvRow in_k = host_k(cache.layer, slot, h),
                            in_v = host_v(cache.layer, slot, h);
            float got_k[2], got_v[2];
            load_row(in_k, got_k);
            load_row(in_v, got_v);
            for (int64_t i = 0; i < 2; i++) {
                if (row < 0) {
                    EXPECT_EQ(read_as<uint16_t>(in_k.element(i, 2)), 0xffff) << "slot " << slot;
                    EXPECT_EQ(read_as<uint16_t>(in_v.element(i, 2)), 0xffff) << "slot " << slot;
                    continue;
                }
                EXPECT_EQ(got_k[i], as_stored(k.at(row, 2 * h + i), DType::kF16));
                EXPECT_EQ(got_v[i], as_stored(v.at(row, 2 * h + i), DType::kBF16));
            }
        }
    }
}

}  // namespace
}  // namespace ridge
