#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tuning.h"

namespace ridge {

struct TuningInfo;

// Choices of `ridge tune` in a file, one for each device.

// What choices were measured on. They are for nothing else.
struct TuningKey {
    std::string backend;  // "cpu", "cuda"
    std::string device;   // the processor's name, or the GPU's
    std::string isa;      // of the CPU's kernels; else empty
    int n_threads = 0;    // of the CPU's; else 0
    std::string build;    // version and commit

    bool operator==(const TuningKey&) const = default;
};
// `gpu`: its name, empty where the processor runs.
TuningKey tuning_key(std::string_view gpu, std::string_view isa, int n_threads,
                     std::string_view build);

// A choice, and the time of a call without and with it, which say why.
template <class Call, class T>
struct TuningChoice {
    Call call;
    T values;
    double before_ns = 0, after_ns = 0;
};
using MatmulChoice = TuningChoice<MatmulCall, MatmulTuning>;
using AttentionChoice = TuningChoice<AttentionCall, AttentionTuning>;

struct TuningCache {
    TuningKey key;
    std::string time;  // "2026-11-30T14:05:11Z": of the last choice
    std::vector<MatmulChoice> matmuls;
    std::vector<AttentionChoice> attentions;

    size_t n_choices() const { return matmuls.size() + attentions.size(); }
    size_t n_changes() const;  // of these, such as differ from what runs without them
    Tuning tuning() const;
    // In place of the choice for the same call, where there is one; of the oldest, where there are
    // more than a file may have.
    void add(const MatmulChoice& choice);
    void add(const AttentionChoice& choice);
};

// "ahead_kib 12, grain_kib 64": what differs from the defaults; empty: nothing.
std::string changes_text(const MatmulTuning& values);
std::string changes_text(const AttentionTuning& values);
std::string device_text(const TuningKey& key);  // "AMD EPYC, avx512, 2 threads"
std::string call_text(const MatmulCall& call);
std::string call_text(const AttentionCall& call);

// The file of a device, in `folder`. The build is not in its name: a new one takes its place.
std::string tuning_path(const std::string& folder, const TuningKey& key);

std::string tuning_text(const TuningCache& cache);
// Error in one line that begins with `what` for anything that tuning_text() does not write.
TuningCache parse_tuning(std::string_view text, std::string_view what);
// Adds these choices to what the file of their key holds by now, which another process may have
// added to. A file that load_tuning() ignores is replaced. Written whole or not at all. Makes the
// folder.
void add_to_tuning(const std::string& folder, const TuningCache& found);

struct LoadedTuning {
    std::optional<TuningCache> cache;
    std::string ignored;  // why a file that is there is not used; one line
};
// What of it the engine tells.
TuningInfo tuning_info(const LoadedTuning& loaded);
// What is there for the key. Never an Error: a model runs without.
LoadedTuning load_tuning(const std::string& folder, const TuningKey& key);

}  // namespace ridge
