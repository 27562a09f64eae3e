#include "cuda/ceilings.h"

#include <gtest/gtest.h>

namespace ridge::cuda {
namespace {

TEST(CudaCeilings, peaks_are_told_of_devices_that_are_known_by_their_whole_names) {
    EXPECT_EQ(peaks_of("NVIDIA H200").memory, 4800);
    EXPECT_EQ(peaks_of("NVIDIA H200").tensor_int8, 2 * peaks_of("NVIDIA H200").tensor_16);
    EXPECT_EQ(peaks_of("NVIDIA H200 NVL").memory, 0) << "whose clocks are others";
    EXPECT_EQ(peaks_of("").f32, 0);
}

TEST(CudaCeilings, products_stand_before_tensor_units_where_kernels_use_them) {
    const Format &q4 = format_of(FormatId::kQ4_K), &f32 = format_of(FormatId::kF32);
    EXPECT_EQ(arithmetic_of("matmul", "plain", &q4), "f32");
    EXPECT_EQ(arithmetic_of("matmul", "matvec", &q4), "f16 tensor");
    EXPECT_EQ(arithmetic_of("matmul", "gemm", &f32), "f32") << "which has no tiles";
    EXPECT_EQ(arithmetic_of("ffn_in", "fused", &q4), "f16 tensor");
    EXPECT_EQ(arithmetic_of("attn", "fused", nullptr), "f16 tensor");
    EXPECT_EQ(arithmetic_of("attention", "plain", nullptr), "f32");
    EXPECT_EQ(arithmetic_of("rms_norm", "rms_norm", nullptr), "f32");
    EXPECT_EQ(arithmetic_of("embed_rows", "matvec", &q4), "f32");
}

}  // namespace
}  // namespace ridge::cuda
