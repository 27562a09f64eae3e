#include "cases/random_weights.h"

#include <cstring>

#include "cases/random.h"
#include "format/affine.h"

namespace ridge {
namespace {

constexpr int64_t kDistinctRows = 251;  // a prime: no tile's height
constexpr uint64_t kBiasStream = uint64_t{1} << 40;

Tensor tensor_of(FormatId format, const char* name) {
    Tensor tensor;
    tensor.name = name;
    tensor.format = &format_of(format);
    tensor.layout = &row_major_layout();
    return tensor;
}

}  // namespace

std::byte* RandomWeights::allocate(int64_t n_bytes) {
    return bytes_.emplace_back(static_cast<size_t>(n_bytes)).data();
}

Tensor RandomWeights::matrix(const CaseWeight& weight, int64_t d_in, float scale, uint64_t stream) {
    const bool affine = is_affine(weight.format);
    const int n_planes = affine ? 3 : 1;
    Tensor tensor = tensor_of(weight.format, "weight");
    tensor.n_dims = 2;
    tensor.shape = {weight.d_out, d_in};
    tensor.group_size = affine ? weight.group_size : 0;
    tensor.scale_format = weight.scale_format;
    std::byte* plane[3] = {};
    int64_t stride[3] = {row_bytes(*tensor.format, d_in)};
    if (affine) {
        stride[1] = row_bytes(format_of(weight.scale_format), d_in / weight.group_size);
        stride[2] = stride[1];
    }
    for (int p = 0; p < n_planes; p++) {
        plane[p] = allocate(stride[p] * weight.d_out);
        tensor.planes[p] = {plane[p], stride[p]};
    }
    std::vector<float> row(static_cast<size_t>(d_in));
    for (int64_t j = 0; j < weight.d_out; j++) {
        std::byte* at[3] = {plane[0] + j * stride[0], plane[1] + j * stride[1],
                            plane[2] + j * stride[2]};
        if (j >= kDistinctRows) {
            for (int p = 0; p < n_planes; p++) {
                memcpy(at[p], plane[p] + j % kDistinctRows * stride[p],
                       static_cast<size_t>(stride[p]));
            }
            continue;
        }
        Random random(seed_, stream + (static_cast<uint64_t>(j) << 16));
        for (float& x : row) x = scale * random.normal();
        if (affine) {
            encode_affine(row.data(), d_in, weight.format == FormatId::kAffine4 ? 4 : 8,
                          weight.group_size, weight.scale_format, at[0], at[1], at[2]);
        } else {
            tensor.format->encode_row(row.data(), d_in, at[0]);
        }
    }
    return tensor;
}

Tensor RandomWeights::vector(int64_t n, float mean, float scale, uint64_t stream) {
    const int64_t n_bytes = n * static_cast<int64_t>(sizeof(float));
    std::byte* bytes = allocate(n_bytes);
    Random random(seed_, stream);
    for (int64_t i = 0; i < n; i++) {
        reinterpret_cast<float*>(bytes)[i] = mean + scale * random.normal();
    }
    Tensor tensor = tensor_of(FormatId::kF32, "vector");
    tensor.n_dims = 1;
    tensor.shape = {n};
    tensor.planes[0] = {bytes, n_bytes};
    return tensor;
}

Linear RandomWeights::linear(const CaseWeight& weight, int64_t d_in, float scale, uint64_t stream) {
    Linear linear{matrix(weight, d_in, scale, stream), {}};
    if (weight.bias) linear.bias = vector(weight.d_out, 0, scale, stream + kBiasStream);
    return linear;
}

}  // namespace ridge
