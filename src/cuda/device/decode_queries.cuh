#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/decode_fragments.cuh"
#include "cuda/device/decode_shape.cuh"
#include "cuda/device/turns.cuh"

// Decode attention: how an item's queries and its newest position come to shared memory.

namespace ridge::cuda::decode {

// The pairs of a head that a lane has: lane, lane + 32 and so on. Of elements that RoPE does not
// turn neighbours are a pair, which turns by nothing.
struct Pair {
    int first, second;

    __device__ Pair(const FreshRows& f, int pair) {
        const bool halves = f.half_split && pair < f.n_pairs;
        first = halves ? pair : 2 * pair, second = halves ? pair + f.n_pairs : 2 * pair + 1;
    }
};

template <class S>
constexpr int kLanePairs = (S::kMostD / 2 + 31) / 32;

// Heads of an item that are made ready, each by one warp: queries 0 to kHeads - 1, then the newest
// K and V. All of a warp's are asked for before the first is looked at; what does not depend on the
// kernel before is there when they come.
template <class S>
class NewHeads {
  public:
    // Before the kernel before is waited for.
    __device__ __forceinline__ NewHeads(const S& s, const DecodeRows& a, const HeadGroup& heads,
                                        const Item& item, int warp, int lane)
        : s_(s), a_(a), warp_(warp), lane_(lane), n_heads_(heads.n), has_fresh_(item.has_fresh) {
        const FreshRows& f = a.fresh;
        const int64_t row = a.first_row + item.row;
        const int k = f.n_heads + heads.kv_head;
#pragma unroll
        for (int t = 0; t < kTasks; t++) {
            const int head = head_of(t);
            const float* norm = is_query(t) ? f.q_norm : head == kKey ? f.k_norm : nullptr;
            if (!f.is_there()) {
                from_[t] = a.q + row * a.q_stride + (heads.first + head) * s.d;
            } else {
                const int number = is_query(t)    ? heads.first + head
                                   : head == kKey ? k
                                                  : k + a.kv.n_kv_heads;
                from_[t] = f.qkv + row * f.stride + number * s.d;
            }
            const bool norms = norm != nullptr && is_there(t);
            for_each_pair([&](int j, Pair pair) {
                weight_[t][j] = {norms ? norm[pair.first] : 1.0f, norms ? norm[pair.second] : 1.0f};
            });
        }
#pragma unroll
        for (int j = 0; j < kLanePairs<S>; j++) {
            turn_[j] = lane + 32 * j < f.n_pairs
                           ? sine_and_cosine(item.n_positions - 1, f.frequency[lane + 32 * j])
                           : float2{0, 1};
        }
    }

    // Behind it. Queries of heads that the group has not are zeros.
    __device__ __forceinline__ void put(const Room<S>& room) {
#pragma unroll
        for (int t = 0; t < kTasks; t++) {
            for_each_pair([&](int j, Pair pair) {
                x_[t][j] = {};
                if (is_there(t)) {
                    x_[t][j] = {__ldcg(from_[t] + pair.first), __ldcg(from_[t] + pair.second)};
                }
            });
        }
#pragma unroll
        for (int t = 0; t < kTasks; t++) {
            const int head = head_of(t);
            if (is_query(t)) {
                prepare(t, a_.fresh.q_norm != nullptr, true, a_.scale);
                put_query(t, room, head);
            } else if (is_there(t)) {
                const bool is_key = head == kKey;
                prepare(t, is_key && a_.fresh.k_norm != nullptr, is_key, 1);
                put_row(t, is_key ? s_.key_type(a_.kv) : s_.value_type(a_.kv),
                        {is_key ? room.k.x : room.v.x, is_key ? room.k.codes : room.v.codes,
                         is_key ? room.k.scales : room.v.scales});
            }
        }
    }

  private:
    static constexpr int kTasks = (S::kHeads + 2 + S::kWarps - 1) / S::kWarps, kKey = S::kHeads,
                         kValue = kKey + 1;

    __device__ int head_of(int task) const {
        return warp_ + task * S::kWarps;
    }
    // Known when compiling for most.
    __device__ bool is_query(int task) const {
        return task * S::kWarps < S::kHeads &&
               ((task + 1) * S::kWarps <= S::kHeads || head_of(task) < S::kHeads);
    }
    __device__ bool is_there(int task) const {
        const int head = head_of(task);
        return head < n_heads_ || (has_fresh_ && (head == kKey || head == kValue));
    }
    template <class F>
    __device__ __forceinline__ void for_each_pair(F f) const {
#pragma unroll
        for (int j = 0; j < kLanePairs<S>; j++) {
            const int pair = lane_ + 32 * j;
            if ((S::kWhole && S::kMostD % 64 == 0) || pair < s_.d / 2) f(j, Pair(a_.fresh, pair));
        }
    }

    // x = scale * turned(normed(x))
    __device__ __forceinline__ void prepare(int t, bool norms, bool turns, float scale) {
        if (norms) {
            float square = 0;
            for_each_pair([&](int j, Pair) {
                square = fmaf(x_[t][j].x, x_[t][j].x, square);
                square = fmaf(x_[t][j].y, x_[t][j].y, square);
            });
            scale *= rsqrtf(warp_sum(square) / static_cast<float>(s_.d) + a_.fresh.eps);
        }
        for_each_pair([&](int j, Pair) {
            float2& x = x_[t][j];
            x.x *= scale * weight_[t][j].x, x.y *= scale * weight_[t][j].y;
            if (turns) rotate(turn_[j], x.x, x.y);
        });
    }

    // A query in two numbers of 16 bits, or f32. It is brought between 1 and 2 by a power of two,
    // which the scores are multiplied by: so what its parts leave is 2^-22 of its largest element
    // in f16, 2^-16 of each in bf16.
    __device__ __forceinline__ void put_query(int t, const Room<S>& room, int head) {
        if constexpr (!S::kIsTensor) {
            auto* to = reinterpret_cast<float*>(room.queries) + head * s_.d;
            for_each_pair([&](int j, Pair pair) {
                to[pair.first] = x_[t][j].x, to[pair.second] = x_[t][j].y;
            });
        } else {
            uint32_t highest = 0;
            for_each_pair([&](int j, Pair) {
                highest = max(highest, __float_as_uint(x_[t][j].x) & kExponent);
                highest = max(highest, __float_as_uint(x_[t][j].y) & kExponent);
            });
            highest = __reduce_max_sync(kAllLanes, highest);
            // Within 2^-100 and 2^100.
            highest = min(max(highest, 27u << 23), 227u << 23);
            const float inverse = __uint_as_float((254u << 23) - highest);
            if (lane_ == 0) room.powers[head] = __uint_as_float(highest);
            const int row = S::kProducts == 1 ? 2 * head : head;
            std::byte* high = room.queries + row * S::query_row(s_.d);
            std::byte* low = high + (S::kProducts == 1 ? 1 : 8) * S::query_row(s_.d);
            for_each_pair([&](int j, Pair pair) {
                put_parts(x_[t][j].x * inverse, pair.first, high, low);
                put_parts(x_[t][j].y * inverse, pair.second, high, low);
            });
        }
    }
    static constexpr uint32_t kExponent = 0x7f800000;
    __device__ static void put_parts(float x, int i, std::byte* high, std::byte* low) {
        if constexpr (S::kIsF16) {
            const __half part = __float2half_rn(x);
            write_as(part, high + 2 * i);
            write_as(__float2half_rn(x - __half2float(part)), low + 2 * i);
        } else {
            const __nv_bfloat16 part = __float2bfloat16_rn(x);
            write_as(part, high + 2 * i);
            write_as(__float2bfloat16_rn(x - __bfloat162float(part)), low + 2 * i);
        }
    }
    // The newest K or V as the cache is to hold it.
    __device__ __forceinline__ void put_row(int t, DType type, const NewRow& row) {
        const DType rounded = type == DType::kQ8_0 ? DType::kF32 : type;
        for_each_pair([&](int j, Pair pair) {
            row.x[pair.first] = rounded_to(rounded, x_[t][j].x);
            row.x[pair.second] = rounded_to(rounded, x_[t][j].y);
        });
        if (type != DType::kQ8_0) return;
        __syncwarp();                           // the row is complete before other lanes read it
        static_assert(kKvScaleElements == 32);  // d is a multiple of it
        for_each_element(s_, lane_, [&](int i) {
            const float x = row.x[i];
            const f16 scale =
                q8_scale(__reduce_max_sync(kAllLanes, __float_as_uint(x) & 0x7fffffffu));
            const int8_t code = q8_code(x, q8_inverse(scale));
            row.codes[i] = code, row.x[i] = to_float(scale) * static_cast<float>(code);
            if (lane_ == 0) memcpy(row.scales + i / kKvScaleElements, &scale, sizeof scale);
        });
    }

    const S& s_;
    const DecodeRows& a_;
    const int warp_, lane_, n_heads_;
    const bool has_fresh_;
    const float* from_[kTasks];
    float2 x_[kTasks][kLanePairs<S>], weight_[kTasks][kLanePairs<S>], turn_[kLanePairs<S>];
};

// A row to its places in a tile of the cache (ref/host_kv.h, HostKvRow), by a warp.
template <class S>
__device__ __forceinline__ void keep_row(const S& s, const NewRow& row, DType type, std::byte* tile,
                                         int first, int first_scale, int stride, int lane) {
    for_each_element(s, lane, [&](int i) {
        const int place = first + i * stride;
        if (type == DType::kF16) {
            reinterpret_cast<__half*>(tile)[place] = __float2half_rn(row.x[i]);
        } else if (type == DType::kBF16) {
            reinterpret_cast<__nv_bfloat16*>(tile)[place] = __float2bfloat16_rn(row.x[i]);
        } else if (type == DType::kF32) {
            reinterpret_cast<float*>(tile)[place] = row.x[i];
        } else {
            reinterpret_cast<int8_t*>(tile)[place] = row.codes[i];
        }
    });
    if (type == DType::kQ8_0 && lane < s.d / kKvScaleElements) {
        auto* scales = reinterpret_cast<__half*>(tile + kKvPagePositions * s.d);
        scales[first_scale + lane * stride] = row.scales[lane];
    }
}

// The newest position to the cache, by the two last warps of one of the blocks that have it.
template <class S>
__device__ __forceinline__ void keep_newest(const S& s, const DecodeRows& a, const HeadGroup& heads,
                                            const Item& item, const Room<S>& room, int warp,
                                            int lane) {
    if (!item.has_fresh || blockIdx.z != 0 || warp < S::kWarps - 2) return;
    const auto slot = static_cast<uint64_t>(item.slot);
    const auto page = static_cast<int64_t>(slot / kKvPagePositions);
    const int p = static_cast<int>(slot % kKvPagePositions);
    if (warp == S::kWarps - 1) {
        keep_row(s, room.k, s.key_type(a.kv), a.kv.k_tile(page, heads.kv_head), p, p,
                 kKvPagePositions, lane);
    } else {
        keep_row(s, room.v, s.value_type(a.kv), a.kv.v_tile(page, heads.kv_head), p * s.d,
                 p * (s.d / kKvScaleElements), 1, lane);
    }
}

}  // namespace ridge::cuda::decode
