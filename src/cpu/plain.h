#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge {

// The CPU's plain operators: one simple kernel each, float32 activations, all threads of the pool,
// any instruction set. A row's sums run in one order, whatever the number of rows and threads.
void add_plain_ops(Tables& tables, std::string_view checkpoint);

namespace plain {

void embed_rows(Step& s, const Tensor& table, Tokens token, Rows out);
void rms_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out);
void matmul(Step& s, Rows x, LinearGroup weights, Rows out);
void rope(Step& s, Heads x, Positions position, const RopeTable& table);
void kv_append(Step& s, Heads k, Heads v, KvLayer kv);
void attention(Step& s, Heads q, KvLayer kv, Heads out);
void swiglu(Step& s, Rows gate_up, Rows out);
void add(Step& s, Rows y, Rows x);

}  // namespace plain
}  // namespace ridge
