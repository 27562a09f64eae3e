#include "format/format.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "format/affine.h"
#include "format/decode.h"
#include "format/encode.h"
#include "format/float_rows.h"

namespace ridge {
namespace {

template <class Block, int kElements>
void decode_blocks(const RowPlanes& row, int64_t n, float* out) {
    CHECK(n >= 0 && n % kElements == 0);
    const auto* blocks = reinterpret_cast<const Block*>(row.codes);
    for (int64_t i = 0; i < n / kElements; i++) decode_block(blocks[i], out + kElements * i);
}

template <class Block, int kElements>
void encode_blocks(const float* x, int64_t n, std::byte* out) {
    CHECK(n >= 0 && n % kElements == 0);
    auto* blocks = reinterpret_cast<Block*>(out);
    for (int64_t i = 0; i < n / kElements; i++) encode_block(x + kElements * i, blocks[i]);
}

void decode_f32_row(const RowPlanes& row, int64_t n, float* out) {
    CHECK(n >= 0);
    memcpy(out, row.codes, static_cast<size_t>(n) * sizeof(float));
}
void encode_f32_row(const float* x, int64_t n, std::byte* out) {
    CHECK(n >= 0);
    memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
}

void decode_f16_row(const RowPlanes& row, int64_t n, float* out) {
    f16_row_to_float(row.codes, n, out);
}
void decode_bf16_row(const RowPlanes& row, int64_t n, float* out) {
    bf16_row_to_float(row.codes, n, out);
}

// Infinities and NaNs stay what they are; finite numbers stay finite.
void encode_f16_row(const float* x, int64_t n, std::byte* out) {
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits = finite(x[i]) == x[i] ? finite_f16(x[i]) : to_f16(x[i]).bits;
        memcpy(out + 2 * i, &bits, sizeof(bits));
    }
}
void encode_bf16_row(const float* x, int64_t n, std::byte* out) {
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits = finite(x[i]) == x[i] ? finite_bf16(x[i]) : to_bf16(x[i]).bits;
        memcpy(out + 2 * i, &bits, sizeof(bits));
    }
}

template <class Block, int kElements>
constexpr Format block_format(FormatId id, std::string_view name, int gguf_type) {
    return {id,
            name,
            gguf_type,
            kElements,
            sizeof(Block),
            decode_blocks<Block, kElements>,
            encode_blocks<Block, kElements>};
}

// In the order of FormatId. The types are those of ggml's file format.
constexpr Format kFormats[] = {
    {FormatId::kF32, "F32", 0, 1, 4, decode_f32_row, encode_f32_row},
    {FormatId::kF16, "F16", 1, 1, 2, decode_f16_row, encode_f16_row},
    {FormatId::kBF16, "BF16", 30, 1, 2, decode_bf16_row, encode_bf16_row},
    block_format<BlockQ4_0, kSmallBlock>(FormatId::kQ4_0, "Q4_0", 2),
    block_format<BlockQ4_1, kSmallBlock>(FormatId::kQ4_1, "Q4_1", 3),
    block_format<BlockQ5_0, kSmallBlock>(FormatId::kQ5_0, "Q5_0", 6),
    block_format<BlockQ5_1, kSmallBlock>(FormatId::kQ5_1, "Q5_1", 7),
    block_format<BlockQ8_0, kSmallBlock>(FormatId::kQ8_0, "Q8_0", 8),
    block_format<BlockQ2_K, kSuperBlock>(FormatId::kQ2_K, "Q2_K", 10),
    block_format<BlockQ3_K, kSuperBlock>(FormatId::kQ3_K, "Q3_K", 11),
    block_format<BlockQ4_K, kSuperBlock>(FormatId::kQ4_K, "Q4_K", 12),
    block_format<BlockQ5_K, kSuperBlock>(FormatId::kQ5_K, "Q5_K", 13),
    block_format<BlockQ6_K, kSuperBlock>(FormatId::kQ6_K, "Q6_K", 14),
    block_format<BlockIQ4_NL, kSmallBlock>(FormatId::kIQ4_NL, "IQ4_NL", 20),
    block_format<BlockIQ4_XS, kSuperBlock>(FormatId::kIQ4_XS, "IQ4_XS", 23),
    // A group is at least 32 elements, so 32 is what any row is a multiple of.
    {FormatId::kAffine4, "affine4", -1, 32, 16, decode_affine4_row, nullptr},
    {FormatId::kAffine8, "affine8", -1, 32, 32, decode_affine8_row, nullptr},
};
static_assert(std::size(kFormats) == kNumFormats);

// Every type that a GGUF file may name, those that were withdrawn included: they do turn up.
struct GgufType {
    uint32_t type;
    std::string_view name;
};
constexpr GgufType kGgufTypes[] = {
    {0, "F32"},     {1, "F16"},         {2, "Q4_0"},        {3, "Q4_1"},        {4, "Q4_2"},
    {5, "Q4_3"},    {6, "Q5_0"},        {7, "Q5_1"},        {8, "Q8_0"},        {9, "Q8_1"},
    {10, "Q2_K"},   {11, "Q3_K"},       {12, "Q4_K"},       {13, "Q5_K"},       {14, "Q6_K"},
    {15, "Q8_K"},   {16, "IQ2_XXS"},    {17, "IQ2_XS"},     {18, "IQ3_XXS"},    {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"},      {22, "IQ2_S"},      {23, "IQ4_XS"},     {24, "I8"},
    {25, "I16"},    {26, "I32"},        {27, "I64"},        {28, "F64"},        {29, "IQ1_M"},
    {30, "BF16"},   {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},
    {35, "TQ2_0"},  {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {39, "MXFP4"},
    {40, "NVFP4"},  {41, "Q1_0"},
};

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::span<const Format> formats() {
    return kFormats;
}

const Format& format_of(FormatId id) {
    const auto index = static_cast<size_t>(id);
    CHECK(index < std::size(kFormats) && kFormats[index].id == id);
    return kFormats[index];
}

const Format* find_format(std::string_view name) {
    for (const Format& format : kFormats) {
        if (std::equal(name.begin(), name.end(), format.name.begin(), format.name.end(),
                       [](char a, char b) { return lower(a) == lower(b); })) {
            return &format;
        }
    }
    return nullptr;
}

const Format* find_gguf_format(uint32_t gguf_type) {
    for (const Format& format : kFormats) {
        if (format.gguf_type >= 0 && static_cast<uint32_t>(format.gguf_type) == gguf_type) {
            return &format;
        }
    }
    return nullptr;
}

std::string_view gguf_type_name(uint32_t gguf_type) {
    for (const GgufType& known : kGgufTypes) {
        if (known.type == gguf_type) return known.name;
    }
    return "unknown";
}

int64_t row_bytes(const Format& format, int64_t n) {
    CHECK(n >= 0 && n % format.block_elements == 0);
    return n / format.block_elements * format.block_bytes;
}

}  // namespace ridge
