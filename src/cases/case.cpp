#include "cases/case.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "format/affine.h"
#include "model/dtype_names.h"
#include "model/work.h"

namespace ridge {
namespace {

constexpr std::string_view kOpNames[kNumOps] = {
    "embed_rows", "rms_norm", "matmul", "rope", "kv_append", "attention", "swiglu", "add", "sample",
};

int64_t weight_row_bytes(const CaseWeight& w, int64_t d_in) {
    int64_t n_bytes = row_bytes(format_of(w.format), d_in);
    if (is_affine(w.format)) {
        n_bytes += 2 * row_bytes(format_of(w.scale_format), d_in / w.group_size);
    }
    return n_bytes;
}

std::string matmul_name(const Case& c) {
    std::string name = fmt::format("{} rows x {} ->", c.n_rows, c.d_in);
    for (const CaseWeight& w : c.weights) {
        name += fmt::format(" {} {}", w.d_out, format_of(w.format).name);
        if (is_affine(w.format)) {
            name += fmt::format("/{} {}", w.group_size, format_of(w.scale_format).name);
        }
        if (w.bias) name += "+bias";
    }
    return name;
}

std::string sequences_name(const Case& c) {
    std::string name =
        fmt::format("heads {}/{} of {}, {} {} {}", c.n_heads, c.n_kv_heads, c.d_head,
                    dtype_name(c.k_dtype), dtype_name(c.v_dtype), c.paged ? "paged" : "contiguous");
    if (c.masked) name += " masked";
    if (c.exact) name += " exact";
    for (const CaseSequence& s : c.sequences) {
        name += fmt::format(", {}{} of {}", s.row_class == RowClass::kDecode ? "d" : "p", s.n_rows,
                            s.n_ctx);
    }
    return name;
}

std::string shape_name(const Case& c) {
    switch (c.op) {
        case Op::kMatmul:
        case Op::kEmbedRows:
            return matmul_name(c);
        case Op::kRmsNorm:
            return fmt::format("{} rows x {} x {}, eps {}", c.n_rows, c.n_heads, c.d_in, c.eps);
        case Op::kRope:
            return fmt::format("{} rows x {} x {}, d_rope {}, {}, from position {}", c.n_rows,
                               c.n_heads, c.d_head, c.d_rope,
                               c.rope_style == RopeStyle::kHalfSplit ? "half-split" : "interleaved",
                               c.positions[0]);
        case Op::kKvAppend:
        case Op::kAttention:
            return sequences_name(c);
        default:
            return fmt::format("{} rows x {}", c.n_rows, c.d_in);
    }
}

// Activations of one row that the operator reads and writes, in elements of f32.
int64_t activations(const Case& c) {
    switch (c.op) {
        case Op::kEmbedRows:
            return c.d_in;
        case Op::kMatmul: {
            int64_t n = c.d_in;
            for (const CaseWeight& w : c.weights) n += w.d_out;
            return n;
        }
        case Op::kRmsNorm:
            return 2 * c.n_heads * c.d_in;
        case Op::kRope:
            return 2 * int64_t{c.n_heads} * c.d_rope;
        case Op::kKvAppend:
            return 2 * int64_t{c.n_kv_heads} * c.d_head;
        case Op::kAttention:
            return 2 * int64_t{c.n_heads} * c.d_head;
        case Op::kSwiglu:
        case Op::kAdd:
            return 3 * c.d_in;
        case Op::kSample:
            return c.d_in;
    }
    return 0;
}

void count_weights(Case& c) {
    if (c.op == Op::kEmbedRows) c.bytes += c.n_rows * weight_row_bytes(c.weights[0], c.d_in);
    if (c.op == Op::kRmsNorm) c.bytes += 4 * c.d_in;
    if (c.op == Op::kMatmul) {
        for (const CaseWeight& w : c.weights) {
            c.bytes += w.d_out * (weight_row_bytes(w, c.d_in) + (w.bias ? 4 : 0));
            c.flops += 2 * c.n_rows * c.d_in * w.d_out;
        }
    }
}

// Keys and values: attention reads a sequence's once for all its rows and heads.
void count_cache(Case& c) {
    const int64_t position_bytes =
        c.n_kv_heads * (kv_head_bytes(c.k_dtype, c.d_head) + kv_head_bytes(c.v_dtype, c.d_head));
    if (c.op == Op::kKvAppend) c.bytes += c.n_rows * position_bytes;
    if (c.op != Op::kAttention) return;
    for (const CaseSequence& s : c.sequences) {
        c.bytes += s.n_ctx * position_bytes;
        // Row r sees n_ctx - n_rows + r + 1 positions.
        const int64_t seen = s.n_rows * (s.n_ctx - s.n_rows) + s.n_rows * (s.n_rows + 1) / 2;
        c.flops += attention_flops(c.d_head) * c.n_heads * seen;
    }
}

int64_t flops_per_row(const Case& c) {
    switch (c.op) {
        case Op::kRmsNorm:
            return kRmsNormFlops * c.n_heads * c.d_in;
        case Op::kRope:
            return kRopeFlops * c.n_heads * c.d_rope;
        case Op::kSwiglu:
            return kSwigluFlops * c.d_in;
        case Op::kAdd:
            return c.d_in;
        default:
            return 0;
    }
}

}  // namespace

std::string_view op_name(Op op) {
    return kOpNames[static_cast<size_t>(op)];
}

std::vector<std::string> formats_of(const Case& c) {
    if (!c.sequences.empty()) {
        std::string name(dtype_name(c.k_dtype));
        if (c.v_dtype != c.k_dtype) name += fmt::format(" {}", dtype_name(c.v_dtype));
        return {name};
    }
    if (c.weights.empty()) return {"f32"};
    std::vector<std::string> names;
    for (const CaseWeight& w : c.weights) {
        std::string name(format_of(w.format).name);
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(std::move(name));
        }
    }
    return names;
}

Case finish_case(Case c, std::string_view note) {
    if (!c.sequences.empty()) {
        c.n_rows = 0;
        for (const CaseSequence& s : c.sequences) {
            CHECK(s.n_rows >= 1 && s.n_rows <= s.n_ctx);
            c.n_rows += s.n_rows;
        }
    }
    c.name = fmt::format("{}: {}", op_name(c.op), shape_name(c));
    if (!note.empty()) c.name += fmt::format(" ({})", note);
    c.bytes = 4 * c.n_rows * activations(c);
    c.flops = c.n_rows * flops_per_row(c);
    count_weights(c);
    count_cache(c);
    return c;
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    add_row_cases(cases);
    add_matmul_cases(cases);
    add_rope_cases(cases);
    add_attention_cases(cases);
    add_sample_cases(cases);
    return cases;
}

}  // namespace ridge
