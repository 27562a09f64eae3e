#include "model/tuning.h"

#include <algorithm>
#include <tuple>

#include "model/step.h"

namespace ridge {
namespace {

constexpr RowClass kDecode = RowClass::kDecode, kPrompt = RowClass::kPrompt;

// Bounds are of what is worth measuring, and of what memory for a step is planned for.
constexpr TuningParameter<MatmulTuning> kMatmul[] = {
    {"ahead_kib", &MatmulTuning::ahead_kib, 0, 64, 1, "cpu", kDecode},
    {"grain_kib", &MatmulTuning::grain_kib, 1, 4096, 1, "cpu", kDecode},
    {"slice_blocks", &MatmulTuning::slice_blocks, 0, 64, 8, "cpu", kPrompt},
    {"few_rows", &MatmulTuning::few_rows, 0, kFewPromptRows, 1, "cpu", kPrompt},
    {"panels", &MatmulTuning::panels, 1, 8, 1, "cpu", kPrompt},
    {"way", &MatmulTuning::way, 0, 5, 1, "cuda", kPrompt},
};
constexpr TuningParameter<AttentionTuning> kAttention[] = {
    {"thread_items", &AttentionTuning::thread_items, 1, 256, 1, "cpu", kDecode},
    {"block_rows", &AttentionTuning::block_rows, 0, 512, 1, "cpu", kPrompt},
    {"tiles_an_sm", &AttentionTuning::tiles_an_sm, 0, 64, 1, "cuda", kPrompt},
};

auto place_of(auto& choices, const auto& call) {
    return std::lower_bound(choices.begin(), choices.end(), call,
                            [](const auto& choice, const auto& c) { return choice.first < c; });
}

template <class Call, class T>
void set_choice(std::vector<std::pair<Call, T>>& choices, const Call& call, const T& values) {
    const auto at = place_of(choices, call);
    if (at != choices.end() && at->first == call) {
        at->second = values;
    } else {
        choices.insert(at, {call, values});
    }
}

template <class Call, class T>
const T& choice_of(const std::vector<std::pair<Call, T>>& choices, const Call& call) {
    static constexpr T kUntuned{};
    const auto at = place_of(choices, call);
    return at != choices.end() && at->first == call ? at->second : kUntuned;
}

}  // namespace

std::strong_ordering MatmulCall::operator<=>(const MatmulCall& other) const {
    const auto rest = [](const MatmulCall& c) {
        return std::tie(c.d_in, c.size, c.row_class, c.weights[0], c.weights[1], c.weights[2]);
    };
    return rest(*this) <=> rest(other);
}

MatmulCall matmul_call(RowClass row_class, int size, int64_t d_in, const LinearGroup& weights) {
    MatmulCall call{row_class, size, d_in, {}};
    for (size_t i = 0; i < static_cast<size_t>(weights.n_weights); i++) {
        const Tensor& weight = weights.weights[i]->weight;
        call.weights[i] = {weight.n_rows(), weight.format->id};
    }
    return call;
}

AttentionCall attention_call(RowClass row_class, int size, int64_t n_heads, const KvLayer& kv) {
    return {row_class,  size,      static_cast<int>(n_heads), kv.n_kv_heads, kv.d_head,
            kv.k_dtype, kv.v_dtype};
}

std::span<const TuningParameter<MatmulTuning>> parameters_of(const MatmulTuning*) {
    return kMatmul;
}
std::span<const TuningParameter<AttentionTuning>> parameters_of(const AttentionTuning*) {
    return kAttention;
}

void Tuning::set(const MatmulCall& call, const MatmulTuning& values) {
    set_choice(matmuls_, call, values);
}
void Tuning::set(const AttentionCall& call, const AttentionTuning& values) {
    set_choice(attentions_, call, values);
}
const MatmulTuning& Tuning::of(const MatmulCall& call) const {
    return choice_of(matmuls_, call);
}
const AttentionTuning& Tuning::of(const AttentionCall& call) const {
    return choice_of(attentions_, call);
}

static const Tuning kNothingChosen;

const MatmulTuning& tuning_of(const Step& s, const MatmulCall& call) {
    return (s.tables.tuning != nullptr ? *s.tables.tuning : kNothingChosen).of(call);
}
const AttentionTuning& tuning_of(const Step& s, const AttentionCall& call) {
    return (s.tables.tuning != nullptr ? *s.tables.tuning : kNothingChosen).of(call);
}

}  // namespace ridge
