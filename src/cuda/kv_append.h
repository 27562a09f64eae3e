#pragma once

#include "model/tables.h"

namespace ridge::cuda {

// cache[slot[i]] = k[i], v[i]; slot -1 is skipped        k, v [n_rows, n_kv_heads, d_head] f32
void kv_append(Step& s, Heads k, Heads v, KvLayer kv);

}  // namespace ridge::cuda
