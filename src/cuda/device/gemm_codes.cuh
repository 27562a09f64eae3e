#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/block.cuh"
#include "cuda/device/gemm_feed.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/device/tile_codes.cuh"

// How a chunk of codes becomes operands of bf16: each weight is scale * code + add in float32,
// rounded once.

namespace ridge::cuda {

__device__ inline float f16_at(const uint8_t* at, int index) {
    return __half2float(reinterpret_cast<const __half*>(at)[index]);
}
__device__ inline uint32_t pair_of_bf16(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
}

struct ScaleAdd {
    float scale, add;
};

// Of a row's elements that mma `first` of the chunk multiplies, 0 or 1, and mma first + 2: to[i] of
// mma first + 2 i, which is in block i of 32 elements.
__device__ inline void scales_of_row(const TileGeometry& g, const uint8_t* scales,
                                     const uint8_t* supers, int row, int first, ScaleAdd (&to)[2]) {
    const int place = row % 8 * 2 + row / 8;
    auto for_both = [&](auto scale_of) {
#pragma unroll
        for (int i = 0; i < 2; i++) to[i] = scale_of(i);
    };
    auto with_min = [&](const uint8_t* small) {
        return ScaleAdd{f16_at(supers, 2 * place) * static_cast<float>(small[0]),
                        -(f16_at(supers, 2 * place + 1) * static_cast<float>(small[1]))};
    };
    switch (g.kind.scales) {
        case Scales::kNone:
            return for_both([](int) { return ScaleAdd{1, 0}; });
        case Scales::kSmall:
            return for_both([&](int i) { return ScaleAdd{f16_at(scales, 2 * place + i), 0}; });
        case Scales::kSmallMin:
            return for_both([&](int i) {
                const int at = 4 * place + 2 * i;
                return ScaleAdd{f16_at(scales, at), f16_at(scales, at + 1)};
            });
        case Scales::kSuper:
            return for_both([&](int i) { return with_min(scales + 4 * place + 2 * i); });
        case Scales::kSuper16:
            return for_both([&](int i) {
                const auto* small = reinterpret_cast<const int8_t*>(scales) + 4 * place + first;
                return ScaleAdd{f16_at(supers, place) * static_cast<float>(small[2 * i]), 0};
            });
        case Scales::kSuper16Min:
            return for_both(
                [&](int i) { return with_min(scales + 8 * place + 2 * (first + 2 * i)); });
        case Scales::kGroup:
            return for_both([&](int i) {
                const int at = 2 * kTileRows * i + 2 * place;
                if (g.group_scale_bytes == 4) {
                    const auto* numbers = reinterpret_cast<const float*>(scales);
                    return ScaleAdd{numbers[at], numbers[at + 1]};
                }
                const uint32_t pair = reinterpret_cast<const uint32_t*>(scales)[at / 2];
                const float2 both = g.group_scale_f16 ? floats_of_f16(pair) : floats_of_bf16(pair);
                return ScaleAdd{both.x, both.y};
            });
    }
}

// Unpacks a warp's part of one chunk, an mma's operand at a time.
template <Codes codes>
class Unpacker {
  public:
    // By all lanes, for the calls that follow; a barrier of the block lies between those of one
    // chunk and the next. scales: room for [4][kTileRows], of which a lane makes two, with what
    // codes have too much taken away.
    __device__ Unpacker(const TileGeometry& g, const uint8_t* chunk, ScaleAdd* scales)
        : codes_(chunk, chunk + code_bytes(codes), lane_of_thread()), scales_(scales) {
        const ChunkPlan plan = chunk_plan(g);
        const int row = lane_of_thread() % kTileRows;
        const auto taken = static_cast<float>(ChunkCodes<codes>::kBias + g.kind.offset);
        const int first = lane_of_thread() / kTileRows;
        ScaleAdd of_row[2];
        scales_of_row(g, chunk + plan.scales, chunk + plan.supers, row, first, of_row);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const auto [scale, add] = of_row[i];
            scales_[(first + 2 * i) * kTileRows + row] = {scale, fmaf(-taken, scale, add)};
        }
        __syncwarp();  // all scales are there
    }

    // Word r of the operand: see cuda/tiles.h.
    __device__ uint32_t word(int mma, int r) const {
        const ScaleAdd s = scales_[mma * kTileRows + lane_of_thread() / 4 + r % 2 * 8];
        float2 code{};
#pragma unroll
        for (int part = 0; part < ChunkCodes<codes>::kParts; part++) {
            uint32_t a[4];
            codes_.operand(mma, part, a);
            const float2 of_part = floats_of_bf16(a[r]);
            code.x = part == 0 ? of_part.x : code.x + of_part.x;
            code.y = part == 0 ? of_part.y : code.y + of_part.y;
        }
        return pair_of_bf16(fmaf(s.scale, code.x, s.add), fmaf(s.scale, code.y, s.add));
    }

  private:
    ChunkCodes<codes> codes_;
    ScaleAdd* scales_;
};

// f16 is rounded as it is.
template <>
class Unpacker<Codes::kF16> {
  public:
    __device__ Unpacker(const TileGeometry&, const uint8_t* chunk, ScaleAdd*) : chunk_(chunk) {}

    __device__ uint32_t word(int mma, int r) const {
        const float2 exact =
            floats_of_f16(word_of(load_words(chunk_ + 512 * mma, lane_of_thread()), r));
        return pair_of_bf16(exact.x, exact.y);
    }

  private:
    const uint8_t* chunk_;
};

}  // namespace ridge::cuda
