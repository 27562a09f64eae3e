#pragma once

#include "cuda/device/matvec_input.cuh"
#include "cuda/device/tile_stream.cuh"

// What becomes of the sums of a matvec kernel's warps: they are added in the warps' order, and
// stored.

namespace ridge::cuda::matvec {

// The products of a unit, in the order of columns, then rows: which of them number n is.
struct Products {
    const int n, row_bits;

    __device__ explicit Products(const MatvecArgs& a)
        : n(a.unit_tiles * kTileRows * a.n_rows), row_bits(a.unit_tiles == 1 ? 4 : 5) {
        static_assert(kTileRows == 1 << 4);
    }
    __device__ int row(int number) const { return number & ((1 << row_bits) - 1); }
    __device__ int column(int number) const { return number >> row_bits; }
};

// What a thread knows of the product of a unit that it stores before there is one.
template <bool kHasPowers>
struct Target {
    float* out = nullptr;  // null: there is none
    float bias = 0, power = 1;
    float up_bias = 0, up_power = 1;  // with kSwiglu

    __device__ void find(const MatvecArgs& a, const Products& products, int unit, int number) {
        out = nullptr;
        if (number >= products.n || unit >= a.n_units) return;
        const TileWeight& weight = weight_of(a, unit);
        const int j = tile_of(a, unit) * kTileRows + products.row(number);
        if (j >= weight.n_rows) return;
        out = a.out + (products.column(number) * a.out_stride + weight.column + j);
        bias = weight.bias != nullptr ? weight.bias[j] : 0;
        if (kHasPowers) power = power_of(a, weight, j);
        if (a.epilogue != Epilogue::kSwiglu) return;
        up_bias = a.weights[1].bias != nullptr ? a.weights[1].bias[j] : 0;
        if (kHasPowers) up_power = power_of(a, a.weights[1], j);
    }
    // before: what is added to. p: the product; with kSwiglu gate's, and up's.
    __device__ void store(const MatvecArgs& a, float before, float p, float up) const {
        p = fmaf(p, power, bias);
        if (a.epilogue == Epilogue::kSwiglu) {
            p = __fdividef(p, 1 + __expf(-p)) * fmaf(up, up_power, up_bias);
        }
        *out = before + p;
    }

  private:
    __device__ static float power_of(const MatvecArgs& a, const TileWeight& weight, int j) {
        const uint8_t* part =
            weight.data + static_cast<int64_t>(j / kTileRows) * a.geometry.part_bytes;
        return tile_power(a.geometry, part, j % kTileRows);
    }
};

// The sums of a unit's warps in shared memory: [kWarps][kSides][kTileRows][kSumColumns].
template <class Chunk, int kWarps, int kSides, int kSumColumns = kColumns>
struct WarpSums {
    static constexpr int kOfSide = kTileRows * kSumColumns, kOfWarp = kSides * kOfSide,
                         kOfUnit = kWarps * kOfWarp;

    // Of f16, a lane's of columns 2 t and 2 t + 1, of rows g and g + 8. mine: of column 2 t and row
    // g; inverse: what they are multiplied by.
    __device__ static void put(float* mine, const float (&total)[kSides][4], float2 inverse) {
#pragma unroll
        for (int side = 0; side < kSides; side++, mine += kOfSide) {
            *reinterpret_cast<float2*>(mine) =
                make_float2(total[side][0] * inverse.x, total[side][1] * inverse.y);
            *reinterpret_cast<float2*>(mine + 8 * kColumns) =
                make_float2(total[side][2] * inverse.x, total[side][3] * inverse.y);
        }
    }
    // Of codes, a lane's of one column, of the n / 2 that it has {rows g, rows g + 8} of. mine: of
    // row g.
    template <int n>
    __device__ static void put_column(float* mine, const float (&total)[kSides][n], int which,
                                      float inverse) {
#pragma unroll
        for (int side = 0; side < kSides; side++, mine += kOfSide) {
            mine[0] = total[side][which] * inverse;
            mine[8 * kSumColumns] = total[side][n / 2 + which] * (1.0f / Chunk::kUpper) * inverse;
        }
    }
    // A product, and where sides are two weights the second one's. Rows of a pair of tiles lie one
    // behind the other as the sides do.
    __device__ static float2 add(const float* of_warp, int unit_tiles) {
        float2 p = make_float2(0, 0);
#pragma unroll
        for (int w = 0; w < kWarps; w++) {
            p.x += of_warp[w * kOfWarp];
            if (kSides == 2 && unit_tiles == 1) p.y += of_warp[w * kOfWarp + kOfSide];
        }
        return p;
    }
};

// What products of a normed row are multiplied by.
template <int kWarps, class Plan>
__device__ __forceinline__ float norm_scale(const MatvecArgs& a, const uint8_t* shared, int row) {
    const auto* squares =
        reinterpret_cast<const float4*>(shared + Plan::squares(a)) + row * (kWarps / 4);
    float square = 0;
#pragma unroll
    for (int w = 0; w < kWarps / 4; w++) {
        square += (squares[w].x + squares[w].y) + (squares[w].z + squares[w].w);
    }
    return rsqrtf(fmaf(square, a.per_element, a.eps));
}

// Adds and stores the product of this thread, if it has one of the unit whose warps' sums are
// complete behind a barrier.
template <class Sums, int kWarps, int kSumColumns, class Plan, class Target>
__device__ __forceinline__ void store_product(const MatvecArgs& a, const uint8_t* shared,
                                              const Products& products, int number,
                                              const float* of_unit, const Target& target,
                                              float before) {
    if (target.out == nullptr) return;
    const int column = kSumColumns == 1 ? 0 : products.column(number);
    float2 p = Sums::add(of_unit + products.row(number) * kSumColumns + column, a.unit_tiles);
    if (a.norm != nullptr) {
        const float scale = norm_scale<kWarps, Plan>(a, shared, column);
        p.x *= scale, p.y *= scale;
    }
    target.store(a, before, p.x, p.y);
}
// What is added to, which kernels before may have stored: asked for early, as it takes its time.
template <class Target>
__device__ __forceinline__ void load_before(const MatvecArgs& a, const Target& target,
                                            float& before) {
    if (a.epilogue == Epilogue::kAdd && target.out != nullptr) before = *target.out;
}

}  // namespace ridge::cuda::matvec
