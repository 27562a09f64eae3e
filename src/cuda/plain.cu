#include "base/half.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/block.cuh"
#include "cuda/device/kv_cache.cuh"
#include "cuda/plain.h"
#include "format/decode.h"
#include "ref/host_kv.h"
#include "ref/ref.h"

// One simple kernel for each operator: the equation, and no more threads than it takes to finish
// today. Sums are f32 unless the kernel's header says otherwise.

namespace ridge::cuda {
namespace plain {
namespace {

// A weight as the file has it, in device memory.
struct Weight {
    const uint8_t* plane[3];
    int64_t stride[3];
    FormatId format, scale_format;
    int group_size;
    int64_t n_rows, n_cols;
};

Weight weight_of(const Tensor& tensor) {
    CHECK(tensor.layout == &row_major_layout());
    Weight w{};
    for (int p = 0; p < 3; p++) {
        w.plane[p] = device_plane<const uint8_t>(tensor, p);
        w.stride[p] = tensor.planes[static_cast<size_t>(p)].stride_bytes;
    }
    w.format = tensor.format->id, w.scale_format = tensor.scale_format;
    w.group_size = tensor.group_size, w.n_rows = tensor.n_rows(), w.n_cols = tensor.n_cols();
    return w;
}

int block_elements(FormatId format) {
    switch (format) {
        case FormatId::kQ2_K:
        case FormatId::kQ3_K:
        case FormatId::kQ4_K:
        case FormatId::kQ5_K:
        case FormatId::kQ6_K:
        case FormatId::kIQ4_XS:
            return kSuperBlock;
        default:
            return kSmallBlock;
    }
}

__device__ float read_float(const uint8_t* plane, FormatId format, int64_t index) {
    if (format == FormatId::kF32) return reinterpret_cast<const float*>(plane)[index];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(plane)[index];
    return format == FormatId::kF16 ? to_float(f16{bits}) : to_float(bf16{bits});
}

template <class Block>
__device__ void decode(const uint8_t* row, int64_t block, float* out) {
    Block copy;  // blocks are of any alignment
    memcpy(&copy, row + block * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
    decode_block(copy, out);
}

// Elements of one block of a row: out [block_elements(format)]
__device__ void decode_at(const Weight& w, int64_t row, int64_t block, float* out) {
    const uint8_t* at = w.plane[0] + row * w.stride[0];
    switch (w.format) {
        case FormatId::kF32:
        case FormatId::kF16:
        case FormatId::kBF16:
            for (int64_t i = 0; i < kSmallBlock && 32 * block + i < w.n_cols; i++) {
                out[i] = read_float(at, w.format, 32 * block + i);
            }
            return;
        case FormatId::kQ4_0:
            return decode<BlockQ4_0>(at, block, out);
        case FormatId::kQ4_1:
            return decode<BlockQ4_1>(at, block, out);
        case FormatId::kQ5_0:
            return decode<BlockQ5_0>(at, block, out);
        case FormatId::kQ5_1:
            return decode<BlockQ5_1>(at, block, out);
        case FormatId::kQ8_0:
            return decode<BlockQ8_0>(at, block, out);
        case FormatId::kQ2_K:
            return decode<BlockQ2_K>(at, block, out);
        case FormatId::kQ3_K:
            return decode<BlockQ3_K>(at, block, out);
        case FormatId::kQ4_K:
            return decode<BlockQ4_K>(at, block, out);
        case FormatId::kQ5_K:
            return decode<BlockQ5_K>(at, block, out);
        case FormatId::kQ6_K:
            return decode<BlockQ6_K>(at, block, out);
        case FormatId::kIQ4_NL:
            return decode<BlockIQ4_NL>(at, block, out);
        case FormatId::kIQ4_XS:
            return decode<BlockIQ4_XS>(at, block, out);
        case FormatId::kAffine4:
        case FormatId::kAffine8: {
            const int64_t group = 32 * block / w.group_size;
            const float scale = read_float(w.plane[1] + row * w.stride[1], w.scale_format, group),
                        bias = read_float(w.plane[2] + row * w.stride[2], w.scale_format, group);
            for (int i = 0; i < kSmallBlock; i++) {
                const int64_t k = 32 * block + i;
                const int code = w.format == FormatId::kAffine8 ? at[k]
                                 : k % 2 == 0                   ? at[k / 2] & 15
                                                                : at[k / 2] >> 4;
                out[i] = scale * static_cast<float>(code) + bias;
            }
            return;
        }
    }
}

// embed_rows: out[i] = table[token[i]]            table [n_vocab, d_model]; out [n_rows, d_model]
__global__ void embed_rows_kernel(Weight table, int block_elements, const Token* token, float* out,
                                  int64_t stride) {
    const int64_t n_blocks = (table.n_cols + block_elements - 1) / block_elements;
    float values[kSuperBlock];
    for (int64_t b = threadIdx.x; b < n_blocks; b += blockDim.x) {
        decode_at(table, token[blockIdx.x], b, values);
        for (int64_t i = 0; i < block_elements && b * block_elements + i < table.n_cols; i++) {
            out[blockIdx.x * stride + b * block_elements + i] = values[i];
        }
    }
}

void embed_rows(Step& s, const Tensor& table, Tokens token, Rows out) {
    if (s.planning) return;
    CHECK(token.data() == s.batch.tokens.data() && out.n_rows > 0);
    const Context& c = context_of(s);
    const dim3 grid(static_cast<unsigned>(out.n_rows));
    if (!launches(c, "embed_rows", grid, 64)) return;
    embed_rows_kernel<<<grid, 64, 0, c.stream>>>(weight_of(table), block_elements(table.format->id),
                                                 c.mirror.tokens, device_rows<float>(out),
                                                 out.stride);
    check_launch("embed_rows");
}

// rms_norm: out[i, h] = x[i, h] / sqrt(mean(x[i, h]^2) + eps) * weight
//   x, out [n_rows, n_heads, d_head]. One warp for each head of a row; squares summed in f64.
__global__ void rms_norm_kernel(const float* x, int64_t x_stride, const float* weight, float eps,
                                int64_t d_head, float* out, int64_t out_stride) {
    const float* in = x + blockIdx.x * x_stride + blockIdx.y * d_head;
    float* to = out + blockIdx.x * out_stride + blockIdx.y * d_head;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < d_head; i += 32) sum += static_cast<double>(in[i]) * in[i];
    sum = warp_sum(sum);
    const auto scale = static_cast<float>(1 / sqrt(sum / static_cast<double>(d_head) + eps));
    for (int64_t i = threadIdx.x; i < d_head; i += 32) to[i] = in[i] * scale * weight[i];
}

void rms_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    if (s.planning) return;
    CHECK(weight.format->id == FormatId::kF32 && weight.n_cols() == x.d_head);
    const dim3 grid(static_cast<unsigned>(x.rows.n_rows), static_cast<unsigned>(x.n_heads));
    const Context& c = context_of(s);
    if (!launches(c, "rms_norm", grid, 32)) return;
    rms_norm_kernel<<<grid, 32, 0, c.stream>>>(device_rows<float>(x.rows), x.rows.stride,
                                               device_plane<const float>(weight), eps, x.d_head,
                                               device_rows<float>(out.rows), out.rows.stride);
    check_launch("rms_norm");
}

constexpr int kRowsAtOnce = 8;  // that share one decoding of a block

// matmul: out[i, j] = sum_k x[i, k] w[j, k] + bias[j]
//   One warp for each j and eight rows; its lanes take blocks of w in turns.
__global__ void matmul_kernel(Weight w, int block_elements, const float* bias, const float* x,
                              int64_t x_stride, int64_t n_rows, float* out, int64_t out_stride) {
    const int64_t j = blockIdx.x, n_blocks = (w.n_cols + block_elements - 1) / block_elements;
    const int64_t first = int64_t{blockIdx.y} * kRowsAtOnce;
    const int64_t n = min(n_rows - first, int64_t{kRowsAtOnce});
    float sum[kRowsAtOnce] = {}, values[kSuperBlock];
    for (int64_t b = threadIdx.x; b < n_blocks; b += 32) {
        decode_at(w, j, b, values);
        const int64_t k = b * block_elements, n_k = min(w.n_cols - k, int64_t{block_elements});
        for (int64_t r = 0; r < n; r++) {
            for (int64_t i = 0; i < n_k; i++) {
                sum[r] = fmaf(values[i], x[(first + r) * x_stride + k + i], sum[r]);
            }
        }
    }
    for (int64_t r = 0; r < n; r++) {
        const float total = warp_sum(sum[r]);
        if (threadIdx.x == 0) {
            out[(first + r) * out_stride + j] = total + (bias == nullptr ? 0 : bias[j]);
        }
    }
}

void matmul(Step& s, Rows x, LinearGroup weights, Rows out) {
    if (s.planning) return;
    CHECK(out.n_cols == weights.d_out() && out.n_rows == x.n_rows);
    int64_t column = 0;
    for (int i = 0; i < weights.n_weights; i++) {
        const Linear& linear = *weights.weights[static_cast<size_t>(i)];
        const Tensor& w = linear.weight;
        CHECK(w.n_cols() == x.n_cols);
        const dim3 grid(static_cast<unsigned>(w.n_rows()),
                        static_cast<unsigned>((x.n_rows + kRowsAtOnce - 1) / kRowsAtOnce));
        const Context& c = context_of(s);
        if (!launches(c, "matmul", grid, 32)) return;
        matmul_kernel<<<grid, 32, 0, c.stream>>>(
            weight_of(w), block_elements(w.format->id),
            linear.bias ? device_plane<const float>(linear.bias) : nullptr,
            device_rows<const float>(x), x.stride, x.n_rows, device_rows<float>(out) + column,
            out.stride);
        check_launch("matmul");
        column += w.n_rows();
    }
}

// rope: (a, b) -> (a cos t - b sin t, a sin t + b cos t), t = position[i] * frequency[pair]
//   x [n_rows, n_heads, d_head] in place; t, its sine and its cosine in f64.
//   One block for each head of a row, a thread for each pair.
__global__ void rope_kernel(float* x, int64_t stride, int64_t d_head, const int32_t* position,
                            const double* frequency, int n_pairs, bool half_split) {
    const int32_t p = position[blockIdx.x];
    if (p < 0) return;
    float* head = x + blockIdx.x * stride + blockIdx.y * d_head;
    for (int pair = static_cast<int>(threadIdx.x); pair < n_pairs; pair += blockDim.x) {
        float* a = head + pair * (half_split ? 1 : 2);
        float* b = a + (half_split ? n_pairs : 1);
        double sine, cosine;
        sincos(p * frequency[pair], &sine, &cosine);
        const auto sin_t = static_cast<float>(sine), cos_t = static_cast<float>(cosine);
        const float turned = *a * cos_t - *b * sin_t;
        *b = *a * sin_t + *b * cos_t;
        *a = turned;
    }
}

void rope(Step& s, Heads x, Positions position, const RopeTable& table) {
    if (s.planning) return;
    CHECK(position.data() == s.batch.positions.data() && &table == &s.rope_table);
    const Context& c = context_of(s);
    const dim3 grid(static_cast<unsigned>(x.rows.n_rows), static_cast<unsigned>(x.n_heads));
    if (!launches(c, "rope", grid, 32)) return;
    rope_kernel<<<grid, 32, 0, c.stream>>>(device_rows<float>(x.rows), x.rows.stride, x.d_head,
                                           c.mirror.positions, c.mirror.rope_frequency,
                                           static_cast<int>(table.frequency.size()),
                                           table.style == RopeStyle::kHalfSplit);
    check_launch("rope");
}

// kv_append: cache[slot[i]] = k[i], v[i]          k, v [n_rows, n_kv_heads, d_head]
//   One thread for a head of a row.
__global__ void kv_append_kernel(const float* k, int64_t k_stride, const float* v, int64_t v_stride,
                                 const int64_t* slots, KvTiles cache) {
    const int64_t slot = slots[blockIdx.x];
    const int head = static_cast<int>(threadIdx.x);
    if (slot < 0) return;
    const int64_t page = slot / kKvPagePositions;
    const int p = static_cast<int>(slot % kKvPagePositions);
    store_row(k + blockIdx.x * k_stride + head * cache.d_head, cache.k_row(page, p, head));
    store_row(v + blockIdx.x * v_stride + head * cache.d_head, cache.v_row(page, p, head));
}

void kv_append(Step& s, Heads k, Heads v, KvLayer kv) {
    if (s.planning) return;
    const Context& c = context_of(s);
    CHECK(k.n_heads <= 1024);
    const dim3 grid(static_cast<unsigned>(k.rows.n_rows));
    const auto n_threads = static_cast<unsigned>(k.n_heads);
    if (!launches(c, "kv_append", grid, n_threads)) return;
    kv_append_kernel<<<grid, n_threads, 0, c.stream>>>(
        device_rows<const float>(k.rows), k.rows.stride, device_rows<const float>(v.rows),
        v.rows.stride, c.mirror.slots, KvTiles(kv));
    check_launch("kv_append");
}

// attention: out[i, h] = softmax(q[i, h] . K[0 .. position[i]] / sqrt(d_head)) V
//   q, out [n_rows, n_heads, d_head]. One warp for each head of a row: each lane runs an online
//   softmax over every 32nd position, then the lanes' are merged. A masked row gives zeros.
//   Shared memory: two rows [d_head] for each lane.
__global__ void attention_kernel(const float* q, int64_t q_stride, const int32_t* position,
                                 const int32_t* sequence_of_row, const Sequence* sequences,
                                 const int32_t* pages, KvTiles cache, int heads_per_kv, float* out,
                                 int64_t out_stride) {
    extern __shared__ float shared[];
    const int64_t d = cache.d_head, head = blockIdx.y;
    const int kv_head = static_cast<int>(head / heads_per_kv);
    const int lane = static_cast<int>(threadIdx.x);
    float *sum_v = shared + lane * 2 * d, *row = sum_v + d;
    const float* query = q + blockIdx.x * q_stride + head * d;
    const Sequence& sequence = sequences[sequence_of_row[blockIdx.x]];
    const float scale = 1.0f / sqrtf(static_cast<float>(d));
    float highest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < d; i++) sum_v[i] = 0;
    for (int64_t p = lane; p <= position[blockIdx.x]; p += 32) {
        const int64_t page = sequence.page(pages, p / kKvPagePositions);
        load_row(cache.k_row(page, static_cast<int>(p % kKvPagePositions), kv_head), row);
        float score = 0;
        for (int64_t i = 0; i < d; i++) score = fmaf(query[i], row[i], score);
        score *= scale;
        const float now = fmaxf(highest, score);
        const float shrink = expf(highest - now), weight = expf(score - now);
        load_row(cache.v_row(page, static_cast<int>(p % kKvPagePositions), kv_head), row);
        for (int64_t i = 0; i < d; i++) sum_v[i] = fmaf(weight, row[i], sum_v[i] * shrink);
        sum = sum * shrink + weight, highest = now;
    }
    float all = highest;
    for (int l = 16; l > 0; l /= 2) all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, l));
    // A lane without positions adds nothing; one whose scores are no numbers must not be left out.
    const bool has_any = lane <= position[blockIdx.x];
    const float shrink = expf(highest - all);
    const float total = warp_sum(has_any ? sum * shrink : 0);
    for (int64_t i = 0; i < d; i++) {
        const float value = warp_sum(has_any ? sum_v[i] * shrink : 0);
        if (lane == 0) {
            out[blockIdx.x * out_stride + head * d + i] =
                position[blockIdx.x] >= 0 ? value / total : 0;
        }
    }
}

void attention(Step& s, Heads q, KvLayer kv, Heads out) {
    if (s.planning) return;
    const Context& c = context_of(s);
    const dim3 grid(static_cast<unsigned>(q.rows.n_rows), static_cast<unsigned>(q.n_heads));
    const auto shared_bytes = static_cast<int>(64 * kv.d_head * sizeof(float));
    check(cudaFuncSetAttribute(attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               shared_bytes),
          "attention: shared memory");
    if (!launches(c, "attention", grid, 32, static_cast<size_t>(shared_bytes))) return;
    attention_kernel<<<grid, 32, static_cast<size_t>(shared_bytes), c.stream>>>(
        device_rows<const float>(q.rows), q.rows.stride, c.mirror.positions,
        c.mirror.sequence_of_row, c.mirror.sequences, c.mirror.pages, KvTiles(kv),
        static_cast<int>(q.n_heads / kv.n_kv_heads), device_rows<float>(out.rows), out.rows.stride);
    check_launch("attention");
}

// swiglu: out[i, j] = g / (1 + exp(-g)) * u, g = gate_up[i, j], u = gate_up[i, d_ff + j]
//   exp(-g) may be infinite: g / inf is the right -0.
__global__ void swiglu_kernel(const float* gate_up, int64_t stride, int64_t d_ff, float* out,
                              int64_t out_stride) {
    const int64_t j = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
    if (j >= d_ff) return;
    const float g = gate_up[blockIdx.x * stride + j], u = gate_up[blockIdx.x * stride + d_ff + j];
    out[blockIdx.x * out_stride + j] = g / (1 + expf(-g)) * u;
}

void swiglu(Step& s, Rows gate_up, Rows out) {
    if (s.planning) return;
    const dim3 grid(static_cast<unsigned>(out.n_rows),
                    static_cast<unsigned>((out.n_cols + 255) / 256));
    const Context& c = context_of(s);
    if (!launches(c, "swiglu", grid, 256)) return;
    swiglu_kernel<<<grid, 256, 0, c.stream>>>(device_rows<const float>(gate_up), gate_up.stride,
                                              out.n_cols, device_rows<float>(out), out.stride);
    check_launch("swiglu");
}

// add: x[i] += y[i]                               x, y [n_rows, d]
__global__ void add_kernel(const float* y, int64_t y_stride, int64_t d, float* x,
                           int64_t x_stride) {
    const int64_t j = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
    if (j < d) x[blockIdx.x * x_stride + j] += y[blockIdx.x * y_stride + j];
}

void add(Step& s, Rows y, Rows x) {
    if (s.planning) return;
    const dim3 grid(static_cast<unsigned>(x.n_rows), static_cast<unsigned>((x.n_cols + 255) / 256));
    const Context& c = context_of(s);
    if (!launches(c, "add", grid, 256)) return;
    add_kernel<<<grid, 256, 0, c.stream>>>(device_rows<const float>(y), y.stride, x.n_cols,
                                           device_rows<float>(x), x.stride);
    check_launch("add");
}

// sample: the logits come to the host, where the reference draws.
void sample(Step& s, Rows logits, std::span<Sampled> drawn) {
    if (s.planning) return;
    const auto row_bytes = static_cast<size_t>(logits.n_cols) * sizeof(float);
    if (!launches(context_of(s), "copy of logits", dim3(0, 0, 0), 0)) return;
    std::vector<float> values(static_cast<size_t>(logits.n_rows * logits.n_cols));
    check(cudaMemcpy2DAsync(values.data(), row_bytes, device_rows<float>(logits),
                            static_cast<size_t>(logits.stride) * sizeof(float), row_bytes,
                            static_cast<size_t>(logits.n_rows), cudaMemcpyDeviceToHost,
                            context_of(s).stream),
          "sample: reading logits");
    check(cudaStreamSynchronize(context_of(s).stream), "sample");
    const Buffer view(values.data(), values.size() * sizeof(float), [](void*, size_t) {});
    ref::sample(s, {&view, 0, DType::kF32, logits.n_rows, logits.n_cols, logits.n_cols}, drawn);
}

}  // namespace
}  // namespace plain

void add_plain_ops(Tables& tables, std::string_view checkpoint) {
    tables.ops.embed_rows.set(checkpoint, plain::embed_rows);
    tables.ops.rms_norm.set(checkpoint, plain::rms_norm);
    tables.ops.matmul.set(checkpoint, plain::matmul);
    tables.ops.rope.set(checkpoint, plain::rope);
    tables.ops.kv_append.set(checkpoint, plain::kv_append);
    tables.ops.attention.set(checkpoint, plain::attention);
    tables.ops.swiglu.set(checkpoint, plain::swiglu);
    tables.ops.add.set(checkpoint, plain::add);
    tables.ops.sample.set(checkpoint, plain::sample);
}

}  // namespace ridge::cuda
