#include "cmd/verify_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "base/files.h"
#include "cases/golden.h"
#include "cases/random.h"
#include "model/synth.h"

namespace ridge {
namespace {

constexpr int64_t kPromptTokens = 70, kDecodeTokens = 6;  // more than a strip, a tile, a cache page
constexpr int64_t kContext = 1024;
// Of a model of a real one's size: of two prompts, of one where nothing but plain loops computes.
constexpr int64_t kLargePositions = 64, kSlowPositions = 16;
constexpr std::string_view kSmolLm2 = "smollm2-135m";
const char kSmolFile[] = "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

// With a float32 cache. Kernels that round activations to 8 or 16 bits are some 1% from the
// reference on random weights; what that means on real ones is for `ridge eval` to say.
constexpr double kSumsError = 1e-5, kRoundedError = 0.1;
// Of a model of real weights, of which single positions lie between two answers.
constexpr double kRealModelError = 0.5;

bool is_reference(std::string_view checkpoint) {
    return checkpoint == "ref" || checkpoint == "plain";
}

// Of F32 weights nothing is rounded on the CPU; tensor units always do.
bool rounds(const ModelInfo& info) {
    return !is_reference(info.checkpoint) && (info.format != "F32" || info.device != "cpu");
}

struct Variant {
    std::string checkpoint, isa;
};

std::vector<Variant> variants_of(const OpenOptions& open, const VerifyFilter& filter) {
    std::vector<Variant> variants;
    const std::vector<std::string> checkpoints = checkpoint_names(open.device);
    for (const std::string& name : checkpoints) {
        if (filter.wants_checkpoint(name)) variants.push_back({name, open.cpu_isa});
    }
    if (open.device != "cpu" || !open.cpu_isa.empty()) return variants;
    std::vector<std::string> isas = cpu_isa_names();
    isas.pop_back();
    for (const std::string& isa : isas) {
        if (filter.wants_checkpoint(checkpoints.back())) {
            variants.push_back({checkpoints.back(), isa});
        }
    }
    return variants;
}

std::unique_ptr<Engine> open_variant(OpenOptions open, const ModelWork& work,
                                     const Variant& variant) {
    open.model = work.model, open.synth_seed = work.seed;
    open.checkpoint = variant.checkpoint, open.cpu_isa = variant.isa;
    open.cache_type_k = open.cache_type_v = "f32";
    open.n_ctx = kContext;
    return Engine::open(open);
}

ModelLogits logits_of(Engine& engine, uint64_t seed) {
    Random random(seed);
    std::vector<Token> tokens;
    for (int64_t i = 0; i < kPromptTokens + kDecodeTokens; i++) {
        tokens.push_back(static_cast<Token>(random.below(engine.config().n_vocab)));
    }
    ModelLogits logits;
    auto visit = [&](int64_t, std::span<const float> row) {
        logits.emplace_back(row.begin(), row.end());
    };
    Sequence sequence = engine.new_sequence();
    const std::span<const Token> all = tokens;
    engine.evaluate(sequence, all.first(kPromptTokens), visit);
    engine.evaluate(sequence, all.subspan(kPromptTokens), visit, {.row_class = RowClass::kDecode});
    return logits;
}

// What is the same for every variant of a model.
class ModelCheck {
  public:
    ModelCheck(const OpenOptions& open, const std::string& backend, const ModelWork& work,
               const VerifyFilter& filter, const VerifyEvents& events, VerifyReport& report)
        : open_(open),
          backend_(backend),
          work_(work),
          filter_(filter),
          events_(events),
          report_(report) {}

    void run() {
        if (!work_.golden.empty()) {
            golden_ = read_golden(work_.golden);
        } else {
            OpenOptions on_cpu = open_;
            on_cpu.device = "cpu";
            want_ = logits_of(*open_variant(on_cpu, work_, {"ref", ""}), work_.seed);
        }
        for (const Variant& variant : variants_of(open_, filter_)) {
            if (work_.golden.empty()) {
                check_against_reference(variant);
            } else {
                check_against_golden(variant);
            }
            events_.alive();
        }
    }

  private:
    void add(const Engine& engine, std::string_view claim, const VerifyFigures& figures,
             const std::string& case_name, const std::string& fault) {
        const ModelInfo& info = engine.info();
        const bool one_for_all = is_reference(info.checkpoint) || info.isa.empty();
        VerifyFilter any;
        add_case(report_,
                 {.backend = backend_,
                  .node = std::string(kStepNode),
                  .checkpoint = info.checkpoint,
                  .isa = one_for_all || backend_ != "cpu" ? "" : info.isa,
                  .claim = std::string(claim)},
                 {work_.label}, any, figures, case_name, fault, events_);
    }

    void check_against_reference(const Variant& variant) {
        const std::string name =
            fmt::format("{} {}, {} rows of a prompt, {} of decode", work_.label, work_.format,
                        kPromptTokens, kDecodeTokens);
        const auto engine = open_variant(open_, work_, variant);
        const ModelLogits got = logits_of(*engine, work_.seed);
        const LogitsDifference difference = compare_logits(want_, got);
        std::string fault = difference.fault;
        const double most = rounds(engine->info()) ? kRoundedError : kSumsError;
        if (fault.empty() && !(difference.relative_l2 < most)) {
            fault = fmt::format(
                "logits differ by a relative L2 of {:.3g}, expected below {:.3g}; most at position "
                "{}; the most probable token is the same at {} of {} positions",
                difference.relative_l2, most, difference.worst_position, difference.n_argmax,
                got.size());
        }
        add(*engine, claim_name(Claim::kAgrees),
            {.worst = difference.worst,
             .relative_l2 = difference.relative_l2,
             .from_exact = difference.relative_l2},
            name, fault);
        if (backend_ != "cpu") return;
        OpenOptions other = open_;
        other.n_threads = engine->info().n_threads == 3 ? 2 : 3;
        const auto on_other = open_variant(other, work_, variant);
        fault = first_other_logit(got, logits_of(*on_other, work_.seed));
        if (!fault.empty()) fault = fmt::format("on {} threads: {}", other.n_threads, fault);
        add(*engine, claim_name(Claim::kThreads), {}, name, fault);
    }

    void check_against_golden(const Variant& variant) {
        const auto engine = open_variant(open_, work_, variant);
        const bool slow = work_.is_large && is_reference(engine->info().checkpoint);
        const double most = !rounds(engine->info()) ? kGoldenError
                            : work_.is_large        ? kRealModelError
                                                    : kRoundedGoldenError;
        const size_t n_prompts = golden_.prompts.size();
        for (size_t i = 0; i < n_prompts; i++) {
            if (slow && i > 0) break;
            if (work_.is_large && i > 0 && i != work_.seed % n_prompts) continue;
            const GoldenPrompt& prompt = golden_.prompts[i];
            GoldenCheck check(golden_, prompt, most,
                              slow             ? kSlowPositions
                              : work_.is_large ? kLargePositions
                                               : INT64_MAX);
            Sequence sequence = engine->new_sequence();
            engine->evaluate(sequence, check.tokens(),
                             [&](int64_t position, std::span<const float> logits) {
                                 check.see(position, logits);
                             });
            add(*engine, kGoldenClaim,
                {.worst = check.worst(), .relative_l2 = check.worst(), .from_exact = check.worst()},
                fmt::format("{}, {}", work_.model, prompt.name), check.fault());
            events_.alive();
        }
    }

    const OpenOptions& open_;
    const std::string& backend_;
    const ModelWork& work_;
    const VerifyFilter& filter_;
    const VerifyEvents& events_;
    VerifyReport& report_;
    Golden golden_;
    ModelLogits want_;
};

double square(double x) {
    return x * x;
}

void add_goldens(const std::string& folder, uint64_t seed, std::vector<ModelWork>& all) {
    for (const std::string& name : list_folder(folder)) {
        const std::string golden = folder + "/" + name;
        if (file_kind(golden + "/golden.json") != FileKind::kRegular) continue;
        if (name == kSmolLm2) {
            const std::string file = cache_folder() + kSmolFile;
            if (file_kind(file) != FileKind::kRegular) continue;
            all.push_back(
                {.label = name, .model = file, .golden = golden, .seed = seed, .is_large = true});
            continue;
        }
        for (const std::string& file : read_golden(golden).files) {
            all.push_back({.label = name, .model = golden + "/" + file, .golden = golden});
        }
    }
}

}  // namespace

std::vector<std::string> verify_model_names() {
    std::vector<std::string> names = synth_names();
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("tiny-"); });
    return names;
}

std::vector<std::string> verify_model_formats() {
    return synth_formats();
}

std::vector<ModelWork> model_work(const VerifyFilter& filter, const std::string& goldens,
                                  uint64_t seed) {
    std::vector<ModelWork> all, taken;
    if (!filter.wants_op(kStepNode)) return taken;
    const std::vector<std::string> names = verify_model_names();
    for (const std::string& format : verify_model_formats()) {
        const size_t index = all.size();
        const std::string& name = names[(index + seed) % names.size()];
        all.push_back({.label = name,
                       .model = fmt::format("synth:{}:{}", name, format),
                       .format = format,
                       .seed = seed + 1 + index});
    }
    if (file_kind(goldens) == FileKind::kDirectory) add_goldens(goldens, seed, all);
    const auto most = static_cast<int64_t>(all.size());  // so that one is taken
    for (size_t i = 0; i < all.size(); i++) {
        ModelWork& one = all[i];
        if (!is_taken(i, std::min(filter.thin, most), seed)) continue;
        if (!filter.wants_format({one.label, one.format})) continue;
        if (filter.wants_case(one.label + " " + one.format)) taken.push_back(std::move(one));
    }
    return taken;
}

void verify_model(const OpenOptions& open, const std::string& backend, const ModelWork& work,
                  const VerifyFilter& filter, const VerifyEvents& events, VerifyReport& report) {
    ModelCheck(open, backend, work, filter, events, report).run();
    events.done(work.label + " " + work.format);
}

LogitsDifference compare_logits(const ModelLogits& want, const ModelLogits& got) {
    LogitsDifference result;
    if (want.size() != got.size()) {
        result.fault = fmt::format("{} positions, expected {}", got.size(), want.size());
        return result;
    }
    double all_errors = 0, all_sizes = 0;
    for (size_t i = 0; i < want.size(); i++) {
        double error = 0, size = 0;
        for (size_t j = 0; j < want[i].size(); j++) {
            if (!std::isfinite(got[i][j]) && result.fault.empty()) {
                result.fault = fmt::format("position {}: logit {} is {}", i, j, got[i][j]);
            }
            error += square(double{got[i][j]} - double{want[i][j]});
            size += square(double{want[i][j]});
        }
        all_errors += error, all_sizes += size;
        if (const double here = std::sqrt(error / size); here > result.worst) {
            result.worst = here, result.worst_position = static_cast<int64_t>(i);
        }
        auto argmax = [](const std::vector<float>& row) {
            return std::max_element(row.begin(), row.end()) - row.begin();
        };
        result.n_argmax += argmax(want[i]) == argmax(got[i]) ? 1 : 0;
    }
    result.relative_l2 = std::sqrt(all_errors / all_sizes);
    return result;
}

std::string first_other_logit(const ModelLogits& want, const ModelLogits& got) {
    if (want.size() != got.size()) {
        return fmt::format("{} positions, expected {}", got.size(), want.size());
    }
    for (size_t i = 0; i < want.size(); i++) {
        for (size_t j = 0; j < want[i].size(); j++) {
            if (std::bit_cast<uint32_t>(want[i][j]) == std::bit_cast<uint32_t>(got[i][j])) continue;
            return fmt::format("position {}, logit {}: {}, expected {}", i, j, got[i][j],
                               want[i][j]);
        }
    }
    return {};
}

}  // namespace ridge
