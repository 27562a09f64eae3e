#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/format.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/rows.h"
#include "model/sample_params.h"

namespace ridge {

// The operators of Ops (model/tables.h).
enum class Op : uint8_t {
    kEmbedRows,
    kRmsNorm,
    kMatmul,
    kRope,
    kKvAppend,
    kAttention,
    kSwiglu,
    kAdd,
    kSample,
};
constexpr int kNumOps = 9;
std::string_view op_name(Op op);  // as the node is called: "rms_norm"

// What a case's activations are. Every row has numbers of its own, which depend on the seed and on
// the row (in attention: on the sequence and the position) alone, so that a row of one case comes
// back in another that differs in its company only.
enum class Fill : uint8_t {
    kNormal,    // scale * a normal variable
    kConstant,  // scale
    kOutlier,   // normal; one element of each row is +scale or -scale
    kSigns,     // +scale, -scale, +0 and -0 in turn, then normal ones
};

// One weight of a matmul, or the table of embed_rows. [d_out, d_in]
struct CaseWeight {
    int64_t d_out = 0;
    FormatId format = FormatId::kF32;
    bool bias = false;
    int group_size = 64;                     // affine formats
    FormatId scale_format = FormatId::kF16;  // affine formats
};

// One sequence of a batch: its last n_rows positions of n_ctx are the step's rows.
struct CaseSequence {
    int64_t n_ctx = 0;
    int32_t n_rows = 0;
    RowClass row_class = RowClass::kDecode;
    uint64_t id = 0;  // its data: the same id has the same keys, values and queries in every case
};

// One call of one operator: shapes, inputs, how exact the result must be, and what it costs. Read
// by the kernel test, and by whatever times or draws kernels, so that what is timed is tested.
struct Case {
    std::string name{};
    Op op = Op::kAdd;

    int64_t n_rows = 1;  // of all sequences together where there are sequences
    int64_t d_in = 0;    // d_model, d_head of a norm, d_ff of swiglu, n_vocab of sample
    std::vector<CaseWeight> weights{};       // matmul: 1 to 3; embed_rows: 1
    int n_heads = 1;                         // rms_norm, rope, attention
    int n_kv_heads = 1;                      // kv_append, attention
    int d_head = 0;                          // rope, kv_append, attention
    RowClass row_class = RowClass::kDecode;  // where there are no sequences

    float eps = 1e-5f;  // rms_norm

    std::vector<int32_t> positions{};  // rope: [n_rows]
    RopeStyle rope_style = RopeStyle::kHalfSplit;
    int d_rope = 0;
    double rope_theta = 10000;
    std::vector<float> rope_factors{};

    std::vector<CaseSequence> sequences{};  // kv_append, attention
    bool paged = false;                     // pages in random order; else contiguous views
    bool masked = false;                    // every third row has position -1 and slot -1
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;
    bool exact = false;  // attention: as of a layer whose weights are F32
    // attention: of this position V is infinite, of either sign, or NaN, and K of the first head is
    int64_t nonfinite_position = -1;

    std::vector<SampleParams> params{};  // sample: [n_rows]

    Fill fill = Fill::kNormal;
    float scale = 1;         // of activations; of logits
    float weight_scale = 1;  // of weights, whose elements are normal

    // Greatest error of an element, relative to its own size, or where results cancel to its size
    // plus the root mean square of its row. 0: bit for bit, the sign of 0 and the payload of NaN
    // included.
    float tolerance = 0;
    bool cancels = false;

    int64_t bytes = 0;  // memory traffic of a kernel that reads and writes everything once
    int64_t flops = 0;  // a multiplication and an addition are two
};

// The formats that the case is about, each once: of its weights ("Q4_K"), of its cache ("f16", or
// "bf16 f16" of K and V), of its activations elsewhere ("f32").
std::vector<std::string> formats_of(const Case& c);

// Every case of every operator.
std::vector<Case> all_cases();

// The cases of one file each, appended.
void add_row_cases(std::vector<Case>& cases);  // embed_rows, rms_norm, swiglu, add
void add_matmul_cases(std::vector<Case>& cases);
void add_rope_cases(std::vector<Case>& cases);
void add_attention_cases(std::vector<Case>& cases);  // and kv_append
void add_sample_cases(std::vector<Case>& cases);

// Fills in name, bytes and flops of a case that has everything else.
Case finish_case(Case c, std::string_view note = {});

}  // namespace ridge
