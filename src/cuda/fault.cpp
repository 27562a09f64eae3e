#include "cuda/fault.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace ridge {

Fault parse_fault(std::string_view text) {
    constexpr std::pair<std::string_view, Fault::Kind> kAlone[] = {
        {"", Fault::kNone},
        {"no-driver", Fault::kNoDriver},
        {"bad-driver", Fault::kBadDriver},
        {"no-gpu", Fault::kNoGpu},
        {"too-old", Fault::kTooOld},
        {"full", Fault::kNoContext},
    };
    constexpr std::pair<std::string_view, Fault::Kind> kCounted[] = {
        {"full@", Fault::kFull},
        {"lost@", Fault::kLost},
    };
    for (const auto& [name, kind] : kAlone) {
        if (text == name) return {kind, 0};
    }
    for (const auto& [name, kind] : kCounted) {
        if (!text.starts_with(name)) continue;
        Fault fault{kind, 0};
        const char* end = text.data() + text.size();
        const auto [at, error] = std::from_chars(text.data() + name.size(), end, fault.after);
        if (error == std::errc() && at == end && fault.after >= 0) return fault;
    }
    throw Error(ErrorKind::kUsage,
                "RIDGE_CUDA_FAULT \"{}\": expected no-driver, bad-driver, no-gpu, too-old, "
                "full, full@N or lost@N",
                printable(text, 80));
}

Fault fault_from_environment() {
    const char* text = std::getenv("RIDGE_CUDA_FAULT");
    return parse_fault(text == nullptr ? "" : text);
}

}  // namespace ridge
