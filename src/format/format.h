#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ridge {

// How the numbers of a weight are stored. One row of the table in format.cpp each.
enum class FormatId : uint8_t {
    kF32,
    kF16,
    kBF16,
    kQ4_0,
    kQ4_1,
    kQ5_0,
    kQ5_1,
    kQ8_0,
    kQ2_K,
    kQ3_K,
    kQ4_K,
    kQ5_K,
    kQ6_K,
    kIQ4_NL,
    kIQ4_XS,
    kAffine4,
    kAffine8,
};
constexpr int kNumFormats = 17;

// Where one row's bytes lie. GGUF and safetensors formats use the first plane alone; affine formats
// use three.
struct RowPlanes {
    const std::byte* codes;   // blocks; affine: [n * bits / 32] uint32, low bits first
    const std::byte* scales;  // affine: [n / group_size], in `scale_format`
    const std::byte* biases;  // affine: [n / group_size], in `scale_format`
    int group_size;           // affine: 32, 64 or 128
    FormatId scale_format;    // affine: F32, F16 or BF16
};

struct Format {
    FormatId id;
    std::string_view name;  // as llama.cpp prints it: "Q4_K", "BF16", "affine4"
    int gguf_type;          // ggml_type in a GGUF file; -1 where GGUF has none
    int block_elements;     // elements of one block; a row is a whole number of blocks (affine: of
                            // group_size)
    int block_bytes;        // bytes of one block (affine: of the codes of block_elements elements)

    // out[i] = element i of the row, float32, bit for bit what the format's reference dequantiser
    // gives.
    void (*decode_row)(const RowPlanes& row, int64_t n, float* out);
    // Quantises n floats to the row's blocks. Null for affine formats, whose planes are written by
    // encode_affine.
    void (*encode_row)(const float* x, int64_t n, std::byte* blocks);
};

std::span<const Format> formats();  // all, in the order of FormatId
const Format& format_of(FormatId id);
const Format* find_format(std::string_view name);     // "q4_k", "Q4_K"; null: unknown
const Format* find_gguf_format(uint32_t gguf_type);   // null: not one of ours
std::string_view gguf_type_name(uint32_t gguf_type);  // "IQ2_XXS"; "unknown" for no known type

// Bytes of a row of n elements in the first plane; n is a whole number of blocks.
int64_t row_bytes(const Format& format, int64_t n);

}  // namespace ridge
