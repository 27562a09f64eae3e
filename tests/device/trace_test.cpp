#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device_options.h"
#include "engine/bench_session.h"
#include "engine/device_ceilings.h"
#include "engine/engine_impl.h"
#include "model/step_trace.h"
#include "model/tables.h"
#include "support/wrapped_backend.h"

// What a GPU tells of its steps and of itself. Needs a GPU.

namespace ridge {
namespace {

constexpr int64_t kDepth = 70;

std::unique_ptr<BenchSession> open_at(const char* checkpoint, int n_sequences = 1) {
    auto session =
        BenchSession::open(synth_options("Q4_K", 256, checkpoint),
                           std::vector<int64_t>(static_cast<size_t>(n_sequences), kDepth + 16), 64);
    session->fill(n_sequences, kDepth);
    return session;
}

void run_step(BenchSession& session, bool is_prompt) {
    if (is_prompt) {
        session.prompt(0, 64);
    } else {
        session.decode(1, kDepth, 1);
    }
}

// Every call has its place within its caller, and kernels take time.
void expect_whole(const StepTrace& trace, int n_layers) {
    EXPECT_TRUE(trace.is_on_device());
    EXPECT_GT(trace.elapsed_ns(), 0);
    std::map<std::string, int> n_calls;
    int64_t kernels_ns = 0, before_ns = trace.begin_ns();
    int n_launches = 0;
    for (const NodeSpan& span : trace.spans()) {
        n_calls[std::string(span.node)]++;
        n_launches += span.n_launches;
        EXPECT_LE(span.begin_ns, span.end_ns) << span.node;
        EXPECT_LE(span.end_ns, trace.begin_ns() + trace.elapsed_ns()) << span.node;
        EXPECT_GE(span.own_ns(), 0) << span.node << " by " << span.checkpoint;
        if (span.parent >= 0) {
            const NodeSpan& parent = trace.spans()[static_cast<size_t>(span.parent)];
            EXPECT_GE(span.begin_ns, parent.begin_ns) << span.node << " in " << parent.node;
            EXPECT_LE(span.end_ns, parent.end_ns) << span.node << " in " << parent.node;
        }
        if (span.n_children > 0 || is_default_body(span.checkpoint)) continue;
        EXPECT_GE(span.begin_ns, before_ns) << span.node << ": kernels follow on one another";
        before_ns = span.end_ns;
        EXPECT_GT(span.elapsed_ns(), 0) << span.node << " by " << span.checkpoint;
        EXPECT_GE(span.n_launches, 1) << span.node << " by " << span.checkpoint;
        kernels_ns += span.elapsed_ns();
    }
    EXPECT_GT(kernels_ns, 0);
    EXPECT_LE(kernels_ns, trace.elapsed_ns());
    EXPECT_EQ(n_launches, static_cast<int>(trace.all_launches().size()));
    for (const Launch& launch : trace.all_launches()) {
        if (launch.n_threads == 0) continue;  // a copy
        EXPECT_GE(launch.blocks[0] * launch.blocks[1] * launch.blocks[2], 1u) << launch.name;
        EXPECT_LE(launch.n_threads, 1024u) << launch.name;
    }
    EXPECT_EQ(n_calls["embed_rows"], 1);
    EXPECT_EQ(n_calls["sample"], 1);
    EXPECT_GE(n_calls["attn"], n_layers);
    EXPECT_GE(n_calls["ffn_in"], n_layers);
}

TEST(DeviceTrace, tells_of_every_node_of_a_step) {
    for (const char* checkpoint : {"plain", "decode_attention", "prefill_attention", "graph"}) {
        SCOPED_TRACE(checkpoint);
        auto session = open_at(checkpoint);
        StepTrace trace;
        session->set_trace(&trace);
        for (int i = 0; i < 3; i++) {
            session->decode(1, kDepth, 1);
            expect_whole(trace, session->model().config.n_layers);
        }
        session->prompt(0, 64);
        expect_whole(trace, session->model().config.n_layers);
    }
}

TEST(DeviceTrace, a_layer_of_decode_rows_is_five_kernels) {
    auto session = open_at("graph");
    StepTrace trace;
    session->set_trace(&trace);
    session->decode(1, kDepth, 1);
    session->decode(1, kDepth, 1);
    for (const char* stage : {"attn_in", "attn", "attn_out", "ffn_in", "ffn_out"}) {
        int n = 0;
        for (const NodeSpan& span : trace.spans()) {
            if (span.node != stage) continue;
            EXPECT_EQ(span.checkpoint, "fused") << stage;
            EXPECT_EQ(span.n_launches, 1) << stage;
            n++;
        }
        EXPECT_EQ(n, session->model().config.n_layers) << stage;
    }
    EXPECT_EQ(trace.spans()[0].skipped, "graph");
    EXPECT_EQ(trace.spans()[0].reason, kTracedByCalls);
}

TEST(DeviceTrace, changes_no_token) {
    for (const char* checkpoint : {"plain", "sample", "graph"}) {
        auto traced = open_at(checkpoint, 2), plain = open_at(checkpoint, 2);
        StepTrace trace;
        traced->set_trace(&trace);
        for (int i = 0; i < 2; i++) {
            EXPECT_EQ(traced->decode(2, kDepth, 8), plain->decode(2, kDepth, 8)) << checkpoint;
            EXPECT_EQ(traced->prompt(0, kDepth), plain->prompt(0, kDepth)) << checkpoint;
        }
    }
}

class TracingBackend : public WrappedBackend {
  public:
    TracingBackend(std::unique_ptr<Backend> inner, StepTrace* trace)
        : WrappedBackend(std::move(inner)), trace_(trace) {}

    Ticket step(const Model& model, const KvCache& kv, const Batch& batch) override {
        Batch traced = batch;
        traced.trace = trace_;
        return WrappedBackend::step(model, kv, traced);
    }

  private:
    StepTrace* trace_;
};

// Logits of prompt rows, and of decode rows, one after the other. `trace` of every step, or null.
std::vector<float> logits_of(const char* checkpoint, StepTrace* trace) {
    Capacity capacity;
    capacity.wrap_backend = [&](std::unique_ptr<Backend> inner) {
        return std::make_unique<TracingBackend>(std::move(inner), trace);
    };
    const auto engine =
        Engine::Impl::open(synth_options("Q4_K", 256, checkpoint), capacity, {}, {});
    std::vector<Token> tokens;
    for (Token i = 0; i < 20; i++) tokens.push_back(3 + i * 37 % 1000);
    std::vector<float> all;
    for (const RowClass row_class : {RowClass::kPrompt, RowClass::kDecode}) {
        Sequence sequence = engine->new_sequence();
        engine->evaluate(sequence, tokens,
                         [&](int64_t, std::span<const float> logits) {
                             all.insert(all.end(), logits.begin(), logits.end());
                         },
                         {.row_class = row_class});
    }
    return all;
}

TEST(DeviceTrace, changes_no_bit_of_logits) {
    for (const char* checkpoint : {"plain", "gemm", "graph"}) {
        StepTrace trace;
        EXPECT_TRUE(logits_of(checkpoint, &trace) == logits_of(checkpoint, nullptr)) << checkpoint;
        EXPECT_TRUE(trace.is_on_device());
    }
}

TEST(DeviceTrace, reads_what_a_node_computed) {
    StepTrace trace;
    std::vector<float> of_head;
    trace.on_end = [&](const NodeSpan& span) {
        if (span.node != "head") return;
        if (span.parent >= 0 && trace.spans()[static_cast<size_t>(span.parent)].node == "head") {
            return;  // what an entry leaves to the one below
        }
        StepTrace::HostCopy room;
        const Rows rows = trace.on_host(span.work.out, room);
        for (int64_t i = 0; i < rows.n_rows; i++) {
            of_head.insert(of_head.end(), rows.row<float>(i), rows.row<float>(i) + rows.n_cols);
        }
    };
    const std::vector<float> logits = logits_of("fused", &trace);
    // A default body tells of no rows: those of prompts come from the product within it.
    ASSERT_FALSE(of_head.empty());
    ASSERT_LE(of_head.size(), logits.size());
    EXPECT_TRUE(std::equal(of_head.rbegin(), of_head.rend(), logits.rbegin()));
}

// The whole step, then calls of one node alone.
TEST(DeviceTrace, times_steps_and_parts_of_them_in_graphs) {
    for (const char* checkpoint : {"plain", "gemm", "graph"}) {
        SCOPED_TRACE(checkpoint);
        auto session = open_at(checkpoint);
        StepTrace trace;
        session->set_trace(&trace);
        for (const bool is_prompt : {false, true}) {
            const auto step = [&] { run_step(*session, is_prompt); };
            step();  // warms up
            step();
            const size_t n_launches = trace.all_launches().size();
            std::vector<bool> calls;
            for (const NodeSpan& span : trace.spans()) {
                const bool is_within = span.parent >= 0 && calls[static_cast<size_t>(span.parent)];
                calls.push_back(is_within || span.node == "ffn_out");
            }
            const bool host_draws = std::string_view(checkpoint) == "plain";

            trace.graph.n_times = 5;
            step();
            ASSERT_EQ(trace.graph.unfit, "");
            EXPECT_EQ(trace.all_launches().size(), n_launches - (host_draws ? 1 : 0));
            ASSERT_GE(trace.graph.samples_ns.size(), 3u);
            const double whole_ns =
                *std::min_element(trace.graph.samples_ns.begin(), trace.graph.samples_ns.end());
            EXPECT_GT(whole_ns, 0);

            trace.graph.calls = calls;
            step();
            ASSERT_EQ(trace.graph.unfit, "");
            EXPECT_LT(trace.all_launches().size(), n_launches);
            for (const Launch& launch : trace.all_launches()) {
                EXPECT_TRUE(calls[static_cast<size_t>(launch.span)]) << launch.name;
            }
            EXPECT_GE(trace.all_launches().size(),
                      static_cast<size_t>(session->model().config.n_layers));
            ASSERT_GE(trace.graph.samples_ns.size(), 3u);
            EXPECT_LT(
                *std::min_element(trace.graph.samples_ns.begin(), trace.graph.samples_ns.end()),
                whole_ns);
            trace.graph = {};
            step();  // and traced again
            EXPECT_EQ(trace.all_launches().size(), n_launches);
        }
    }
}

// At every checkpoint: entries that do a part of the layer's work lead to what was asked for.
TEST(DeviceTrace, runs_a_stage_alone) {
    for (const char* checkpoint : {"plain", "gemm", "fused", "graph"}) {
        SCOPED_TRACE(checkpoint);
        auto session = open_at(checkpoint);
        const auto n_layers = static_cast<size_t>(session->model().config.n_layers);
        StepTrace trace;
        session->set_trace(&trace);
        for (const bool is_prompt : {false, true}) {
            SCOPED_TRACE(is_prompt ? "prompt" : "decode");
            const auto step = [&] { run_step(*session, is_prompt); };
            step();  // whole: the trace learns what calls what
            const auto n_within = [&](const std::string& name) {
                size_t n = 0;
                for (const Launch& launch : trace.all_launches()) {
                    int at = launch.span;
                    while (at >= 0 && trace.spans()[static_cast<size_t>(at)].node != name) {
                        at = trace.spans()[static_cast<size_t>(at)].parent;
                    }
                    n += at >= 0 ? 1 : 0;
                }
                return n;
            };
            const size_t n_launches = trace.all_launches().size();
            for (const char* node : {"attn_in", "attn", "ffn_in", "layer", "head"}) {
                SCOPED_TRACE(node);
                step();
                ASSERT_EQ(trace.all_launches().size(), n_launches) << "whole again";
                const size_t wanted = n_within(node);
                EXPECT_GE(wanted, std::string_view(node) == "head" ? 1u : n_layers);
                trace.only = {node};
                for (const int n_times : {0, 3}) {  // traced, captured
                    trace.graph.n_times = n_times;
                    step();
                    EXPECT_EQ(trace.all_launches().size(), wanted);
                    EXPECT_EQ(n_within(node), wanted);
                    EXPECT_EQ(trace.graph.unfit, "");
                    EXPECT_EQ(trace.graph.samples_ns.empty(), n_times == 0);
                }
                trace.graph = {};
                trace.only.clear();
            }
        }
    }
}

const Ceiling& ceiling_of(const Ceilings& all, CeilingKind kind, std::string_view name) {
    const auto found = std::find_if(all.list.begin(), all.list.end(), [&](const Ceiling& c) {
        return c.kind == kind && c.name == name;
    });
    EXPECT_NE(found, all.list.end()) << name;
    return found == all.list.end() ? all.list.front() : *found;
}

TEST(DeviceCeilings, are_positive_and_in_order) {
    OpenOptions options;
    options.device = synth_options("Q4_K", 256).device;
    int n_between = 0;
    const DeviceCeilings measured =
        measure_device_ceilings(options, {.progress = {}, .between = [&](double) { n_between++; }});
    const Ceilings& all = measured.ceilings;
    ASSERT_FALSE(all.list.empty());
    EXPECT_GE(n_between, 3);
    for (const Ceiling& c : all.list) {
        EXPECT_GT(c.rate, 0) << c.name;
        EXPECT_EQ(c.n_threads, 0) << c.name;
        EXPECT_TRUE(c.theoretical == 0 || c.rate < 1.02 * c.theoretical) << c.name << " " << c.rate;
    }
    const auto read = [&](const char* name) {
        return ceiling_of(all, CeilingKind::kRead, name).rate;
    };
    EXPECT_GE(read("L2"), read("memory"));
    EXPECT_GE(read("shared memory"), read("L2"));
    const auto arithmetic = [&](const char* name) {
        return ceiling_of(all, CeilingKind::kArithmetic, name).rate;
    };
    EXPECT_GE(arithmetic("f16 tensor"), 2 * arithmetic("f32"));
    EXPECT_NEAR(arithmetic("bf16 tensor") / arithmetic("f16 tensor"), 1, 0.1);
    EXPECT_GE(arithmetic("int8 tensor"), arithmetic("f16 tensor"));
    EXPECT_GT(all.dispatch_us, 0.1);
    EXPECT_LT(all.dispatch_us, 20);
}

}  // namespace
}  // namespace ridge
