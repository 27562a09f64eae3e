#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/fallback.h"
#include "model/kv_cache.h"
#include "model/rope_table.h"
#include "model/rows.h"
#include "model/step_trace.h"
#include "model/weights.h"
#include "model/work.h"

namespace ridge {

struct Step;
class Tuning;

// Notes in the step's list of fallbacks, where it has one, what it does not hold yet.
void note_fallback(Step& step, const Fallback& fallback);
// Where the step's calls are noted; null: nowhere.
StepTrace* trace_of(const Step& step);

// Whether an entry of this name calls other nodes and does nothing itself.
constexpr bool is_default_body(std::string_view checkpoint) {
    return checkpoint == "ops" || checkpoint == "stages" || checkpoint == "layers";
}

// A node of the tree step > layers > stages > ops: the plain body at the bottom, overrides above
// it, the newest last. A call runs the topmost entry that supports the step, and notes which one
// does not; nothing below an entry is ever removed.
template <class Signature>
class Node;

template <class... Args>
class Node<void(Step&, Args...)> {
  public:
    using Fn = void (*)(Step&, Args...);
    // Why an entry does not support the step, a text that lives as long as the program; empty: it
    // does.
    using Unfit = std::string_view (*)(const Step&, const Args&...);
    struct Entry {
        std::string_view checkpoint;
        Fn fn;
        Unfit unfit;  // null: the entry supports every step
    };

    using WorkOf = Work (*)(const Step&, const Args&...);

    // name: a text that lives as long as the program.
    Node(const char* name, WorkOf work) : name_(name), work_(work) {}

    void set(std::string_view checkpoint, Fn fn, Unfit unfit = nullptr) {
        entries_.push_back({checkpoint, fn, unfit});
    }
    void operator()(Step& step, Args... args) const { run(entries_.size(), step, args...); }
    // What would run if the entry of `checkpoint` were not there: for an override that handles a
    // part of its cases.
    void below(std::string_view checkpoint, Step& step, Args... args) const {
        size_t n = entries_.size();
        while (n > 0 && entries_[n - 1].checkpoint != checkpoint) n--;
        CHECK(n > 0);
        run(n - 1, step, args...);
    }
    // What a call would run: `skipped` and `reason` are empty where that is the topmost entry.
    Fallback plan(const Step& step, const Args&... args) const {
        Fallback result{name_, {}, {}, {}};
        for (size_t n = entries_.size(); n > 0; n--) {
            const Entry& entry = entries_[n - 1];
            result.ran = entry.checkpoint;
            const std::string_view unfit =
                entry.unfit == nullptr ? std::string_view() : entry.unfit(step, args...);
            if (unfit.empty()) return result;
            if (result.reason.empty()) result.skipped = entry.checkpoint, result.reason = unfit;
        }
        CHECK(!"a node without an entry for this step");
        return result;
    }
    std::span<const Entry> entries() const { return entries_; }
    const char* name() const { return name_; }

  private:
    void run(size_t n, Step& step, Args... args) const {
        std::string_view skipped, reason;  // of the topmost entry, where it does not run
        while (n > 0) {
            const Entry& entry = entries_[--n];
            const std::string_view unfit =
                entry.unfit == nullptr ? std::string_view() : entry.unfit(step, args...);
            if (unfit.empty()) {
                if (!reason.empty())
                    note_fallback(step, {name_, skipped, entry.checkpoint, reason});
                return call(entry, skipped, reason, step, args...);
            }
            if (reason.empty()) skipped = entry.checkpoint, reason = unfit;
        }
        CHECK(!"a node without an entry for this step");
    }
    void call(const Entry& entry, std::string_view skipped, std::string_view reason, Step& step,
              Args... args) const {
        StepTrace* trace = trace_of(step);
        if (trace == nullptr) return entry.fn(step, args...);
        if (!trace->wants(name_, entry.checkpoint)) return;
        // A default body's work is that of the calls that it makes.
        trace->begin(name_, entry.checkpoint, skipped, reason,
                     is_default_body(entry.checkpoint) ? Work{.layer = layer_of(args...)}
                                                       : work_(step, args...));
        entry.fn(step, args...);
        trace->end();
    }

    static int layer_of(const auto& first, const auto&...) {
        if constexpr (std::is_same_v<decltype(first), const Layer&>) return first.index;
        return -1;
    }
    static int layer_of() { return -1; }

    const char* name_;
    WorkOf work_;
    std::vector<Entry> entries_;
};

// One to three weights that read the same input. Their outputs stand side by side in one row.
struct LinearGroup {
    std::array<const Linear*, 3> weights{};
    int n_weights = 0;

    LinearGroup(const Linear& a) : weights{&a}, n_weights(1) {}  // NOLINT: a group of one
    LinearGroup(const Linear& a, const Linear& b) : weights{&a, &b}, n_weights(2) {}
    LinearGroup(const Linear& a, const Linear& b, const Linear& c)
        : weights{&a, &b, &c}, n_weights(3) {}

    int64_t d_out() const {
        int64_t n = 0;
        for (int i = 0; i < n_weights; i++) n += weights[i]->weight.n_rows();
        return n;
    }
};

using Tokens = std::span<const Token>;
using Positions = std::span<const int32_t>;

// The operators of a decoder, one equation each. Activations are float32 unless the kernel's header
// says otherwise.
struct Ops {
    // out[i] = table[token[i]]                                     table [n_vocab, d_model], out
    // [n_rows, d_model]
    Node<void(Step&, const Tensor& table, Tokens token, Rows out)> embed_rows{"embed_rows",
                                                                              embed_rows_work};
    // out[i, h] = x[i, h] / sqrt(mean(x[i, h]^2) + eps) * weight   x, out [n_rows, n_heads,
    // d_head]; may be the same
    Node<void(Step&, Heads x, const Tensor& weight, float eps, Heads out)> rms_norm{"rms_norm",
                                                                                    rms_norm_work};
    // out[i, j] = sum_k x[i, k] * w[j, k] + bias[j]                x [n_rows, d_in], out [n_rows,
    // sum of d_out]
    Node<void(Step&, Rows x, LinearGroup weights, Rows out)> matmul{"matmul", matmul_work};
    // rotates pairs of x[i, h] by position[i] * frequency[pair]    x [n_rows, n_heads, d_head], in
    // place
    Node<void(Step&, Heads x, Positions position, const RopeTable& table)> rope{"rope", rope_work};
    // cache[slot[i]] = k[i], v[i]                                  k, v [n_rows, n_kv_heads,
    // d_head]; slot -1: skipped
    Node<void(Step&, Heads k, Heads v, KvLayer kv)> kv_append{"kv_append", kv_append_work};
    // out[i, h] = softmax(q[i, h] . K[0..position[i]] / sqrt(d_head)) V    q, out [n_rows, n_heads,
    // d_head]
    Node<void(Step&, Heads q, KvLayer kv, Heads out)> attention{"attention", attention_work};
    // out[i, j] = silu(gate_up[i, j]) * gate_up[i, d_ff + j]       gate_up [n_rows, 2 * d_ff], out
    // [n_rows, d_ff]
    Node<void(Step&, Rows gate_up, Rows out)> swiglu{"swiglu", swiglu_work};
    // x[i] += y[i]                                                 x, y [n_rows, d]
    Node<void(Step&, Rows y, Rows x)> add{"add", add_work};
    // drawn[i] from logits[i] as batch.sample_rows[i] says         logits [n_logit_rows, n_vocab],
    // overwritten
    Node<void(Step&, Rows logits, std::span<Sampled> drawn)> sample{"sample", sample_work};
};

// The five stages of a layer, and the head. x is the residual [n_rows, d_model] f32; the default
// bodies are in stages.cpp.
struct Stages {
    // norm, projections, (q/k norm), RoPE, K and V into the cache. qkv [n_rows, d_q + 2 * d_kv]:
    // its first d_q columns are the queries; the others are the stage's own and hold nothing
    // afterwards.
    Node<void(Step&, const Layer&, Rows x, Rows qkv, KvLayer kv)> attn_in{"attn_in", attn_in_work};
    // attention over the cache                                       q, out [n_rows, d_q]
    Node<void(Step&, const Layer&, Rows q, KvLayer kv, Rows out)> attn{"attn", attn_work};
    // x += a O                                                       a [n_rows, d_q]
    Node<void(Step&, const Layer&, Rows a, Rows x)> attn_out{"attn_out", attn_out_work};
    // out = silu(n gate) * (n up), n = norm(x)                       out [n_rows, d_ff]
    Node<void(Step&, const Layer&, Rows x, Rows out)> ffn_in{"ffn_in", ffn_in_work};
    // x += f down                                                    f [n_rows, d_ff]
    Node<void(Step&, const Layer&, Rows f, Rows x)> ffn_out{"ffn_out", ffn_out_work};
    // norm and LM head of batch.logit_rows                           logits [n_logit_rows, n_vocab]
    // f32
    Node<void(Step&, const Weights&, Rows x, Rows logits)> head{"head", head_work};
};

struct Tables {
    Ops ops;
    Stages stages;
    // How the weights of matmuls lie in memory: prepared so before the first step.
    const Layout* matmul_layout = &row_major_layout();
    // What the backend's own kernels need beside: the CPU's functions for one instruction set.
    const void* kernels = nullptr;
    // How calls are shared out and blocked, where that was measured; null: as ever.
    const Tuning* tuning = nullptr;
    // Called by the plain bodies around each stage, with its name: profilers show it. Or null.
    void (*begin_range)(const char* name) = nullptr;
    void (*end_range)() = nullptr;
    // A whole layer, and a whole step: plain bodies run the stages, and the layers.
    Node<void(Step&, const Layer&, Rows x, KvLayer kv)> layer{"layer", layer_work};
    Node<void(Step&, const Weights&, const KvCache&, Rows logits)> step{"step", step_work};
};

// What the machine has, as far as checkpoints ask.
struct Caps {
    int n_threads = 1;
    const void* kernels = nullptr;  // becomes Tables::kernels where a checkpoint uses them
    std::string_view isa{};         // their instruction set: "avx512"
};

// A named set of overrides; each list begins with the plain entry, which fills every node.
struct Checkpoint {
    std::string_view name, summary;
    void (*apply)(Tables&, const Caps&);
};

// Tables with every checkpoint of the list up to `name` applied, all of them where it is empty. An
// unknown name is an Error that lists the known ones.
Tables resolve_tables(std::span<const Checkpoint> list, std::string_view name, const Caps& caps);

// The five stages of a layer with their scratch, the first two by the given functions: they are one
// where an override of the layer leaves a part of attn_in to attn. qkv as in Stages::attn_in.
struct AttentionStages {
    void (*attn_in)(Step&, const Layer&, Rows x, Rows qkv, KvLayer kv);
    void (*attn)(Step&, const Layer&, Rows qkv, KvLayer kv, Rows out);
};
void run_stages(Step& s, const Layer& layer, Rows x, KvLayer kv, const AttentionStages& attention);

// The default bodies of stages, layer and step, under the name of the nodes that they call: "ops",
// "stages" and "layers".
void add_default_bodies(Tables& tables);

}  // namespace ridge
