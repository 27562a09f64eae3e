#pragma once

#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/gemm_codes.cuh"
#include "cuda/device/gemm_feed.cuh"

// How weights in codes become operands once for many rows of the input.

namespace ridge::cuda {

struct UnpackArgs {
    const uint8_t* weights[3];
    int first_part[3];  // of each, among all; INT32_MAX of those that do not exist
    TileGeometry geometry;
    int part_bytes;  // unpacked
    uint8_t* out;    // [parts] of part_bytes
};

constexpr int kUnpackWarps = 8, kUnpackedAtOnce = 2;

// unpack: a call's weights as tiles of f16, the operands that the gemm would make of them
//   Each warp has chunks of one part.
//   Bytes: the weights', and 2 for each element.
template <Codes codes, Scales scales, int offset>
__global__ void __launch_bounds__(32 * kUnpackWarps)
    unpack_kernel(const __grid_constant__ UnpackArgs a) {
    constexpr TileKind kKind{codes, scales, offset};
    const TileGeometry& g = a.geometry;
    const int part = static_cast<int>(blockIdx.x), lane = lane_of_thread();
    int w = 0;
    while (w < 2 && part >= a.first_part[w + 1]) w++;
    const uint8_t* from = a.weights[w] + int64_t{part - a.first_part[w]} * g.part_bytes;
    const float2 powers = reinterpret_cast<const float2*>(from + g.powers)[lane / 4];
    const float inverse[2] = {inverse_of_power(powers.x), inverse_of_power(powers.y)};
    const int first =
        (static_cast<int>(blockIdx.y) * kUnpackWarps + warp_of_thread()) * kUnpackedAtOnce;
    Unpacker<kKind> unpackers[kUnpackedAtOnce];
#pragma unroll
    for (int i = 0; i < kUnpackedAtOnce; i++) {
        const int chunk = first + i;
        if (chunk < g.n_chunks) unpackers[i].load(g, chunk_of_part<kKind>(g, from, chunk), inverse);
    }
    wait_for_previous_kernel();  // weights are nobody's product, but others may read what was there
    let_next_kernel_start();
    uint8_t* to = a.out + int64_t{part} * a.part_bytes;
#pragma unroll
    for (int i = 0; i < kUnpackedAtOnce; i++) {
        const int chunk = first + i;
        if (chunk >= g.n_chunks) break;
#pragma unroll
        for (int mma = 0; mma < 4; mma++) {
            reinterpret_cast<uint4*>(to + chunk * kOperandBytes + 512 * mma)[lane] =
                unpackers[i].operand(mma);
        }
    }
    if (first == 0 && lane % 4 == 0) {
        reinterpret_cast<float2*>(to + g.n_chunks * kOperandBytes)[lane / 4] = powers;
    }
}

}  // namespace ridge::cuda
