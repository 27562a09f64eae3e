#include "cmd/logits_hash.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>

namespace ridge {

std::string logits_hash(std::span<const float> logits) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (float logit : logits) {
        auto bits = std::bit_cast<uint32_t>(logit);
        for (int shift = 0; shift < 32; shift += 8) {
            hash ^= bits >> shift & 0xffu;
            hash *= 0x100000001b3u;
        }
    }
    return fmt::format("{:016x}", hash);
}

}  // namespace ridge
