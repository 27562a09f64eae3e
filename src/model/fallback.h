#pragma once

#include <string_view>

namespace ridge {

// An override that did not run, since it does not support the model or its cache. All texts live as
// long as the program.
struct Fallback {
    std::string_view node;     // "attention"
    std::string_view skipped;  // the topmost checkpoint that has the node: "prefill_attention"
    std::string_view ran;      // the checkpoint whose entry ran: "plain"; of a default body: "ops"
    std::string_view reason;   // why: "d_head is not a multiple of 16"

    bool operator==(const Fallback&) const = default;
};

}  // namespace ridge
