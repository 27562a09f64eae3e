#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// out[i, h] = sum_p softmax_p(q[i, h] . K[p] / sqrt(d_head)) V[p], p = 0 .. position[i]
//   q, out [n_rows, n_heads, d_head] f32; n_heads / n_kv_heads heads share each K and V; position
//   -1 gives zeros. Prompt rows by blocks of them on tensor units, with K, V and the operands made
//   of q and of weights in 16 bits; decode rows as decode_attention.h has it.
void prefill_attention(Step& s, Heads q, KvLayer kv, Heads out);
// Why it does not serve, empty where it does.
std::string_view unfit_for_prefill_attention(const Step& s, const Heads& q, const KvLayer& kv,
                                             const Heads& out);

// How many segments of positions get blocks of threads of their own where a launch has n_rows rows
// of one sequence, the last at `last_position`; 0: blocks take all that their rows see. The results
// are the same, which tests show.
int segments_apart(const Caps& caps, const KvLayer& kv, int n_heads, int n_rows, int last_position);

}  // namespace ridge::cuda
