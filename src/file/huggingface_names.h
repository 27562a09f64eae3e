#pragma once

#include <string>
#include <string_view>

namespace ridge {

// The GGUF name of a tensor of a Llama, Qwen2 or Qwen3 checkpoint as transformers names it:
// "model.layers.3.self_attn.q_proj.weight" gives "blk.3.attn_q.weight". A name that is none of them
// is returned as it is.
std::string canonical_name(std::string_view huggingface_name);

}  // namespace ridge
