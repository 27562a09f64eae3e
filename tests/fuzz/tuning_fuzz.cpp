// Reads the input as a file of choices, and writes what came of it, which must come back the same;
// every choice is looked up and shown.

#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "engine/tuning_cache.h"

namespace ridge {
namespace {

void use(const TuningCache& cache) {
    const Tuning tuning = cache.tuning();
    for (const MatmulChoice& choice : cache.matmuls) {
        CHECK(tuning.of(choice.call) == choice.values);
        call_text(choice.call);
    }
    for (const AttentionChoice& choice : cache.attentions) {
        CHECK(tuning.of(choice.call) == choice.values);
        call_text(choice.call);
    }
    const std::string text = tuning_text(cache);
    const TuningCache again = parse_tuning(text, "again");
    CHECK(again.key == cache.key && again.n_choices() == cache.n_choices());
    CHECK(again.n_changes() == cache.n_changes() && tuning_text(again) == text);
    CHECK(tuning_path("folder", cache.key).find('/', 7) == std::string::npos);
}

}  // namespace
}  // namespace ridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    using namespace ridge;
    try {
        use(parse_tuning({reinterpret_cast<const char*>(data), n_bytes}, "fuzz"));
    } catch (const Error&) {
    }
    return 0;
}
