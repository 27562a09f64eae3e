#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cmd/progression_report.h"
#include "cmd/step_profile.h"
#include "cmd/trace_report.h"
#include "cmd/trace_timeline.h"
#include "model/step.h"
#include "model/tables.h"
#include "support/host_step.h"

// Traces of a device that works behind the host, made up here: a kernel takes 1,000 ns, and a mark
// comes 100 ns behind what was before it.

namespace ridge {
namespace {

class MadeUpClock : public DeviceClock {
  public:
    int mark() override {
        at_ns_ += ns_.empty() ? 0 : 100;
        ns_.push_back(at_ns_);
        return static_cast<int>(ns_.size()) - 1;
    }
    void read(const Rows& rows, float* to) override {
        std::fill_n(to, rows.n_rows * rows.n_cols, 7.0f);
    }
    void run_kernel() { at_ns_ += 1000; }
    void clear() { ns_.clear(), at_ns_ = 0; }
    const std::vector<int64_t>& ns() const { return ns_; }

  private:
    std::vector<int64_t> ns_;
    int64_t at_ns_ = 0;
};

// Two layers. In each a body of stages calls an entry that leaves its work to the one below, whose
// two ops have a kernel each, and a fused stage with two kernels. Then a node that draws.
class DeviceStep {
  public:
    DeviceStep() {
        for (Layer& layer : layers_) layer.index = static_cast<int>(&layer - layers_);
        self_ = this;
        op_.set("plain", [](Step& s) { self_->launch(s, "op"); });
        stage_.set("ops", [](Step& s, const Layer&) {
            self_->op_(s);
            self_->op_(s);
        });
        stage_.set("fused",
                   [](Step& s, const Layer& layer) { self_->stage_.below("fused", s, layer); });
        fused_.set("fused", [](Step& s, const Layer&) {
            self_->launch(s, "first");
            self_->launch(s, "second");
        });
        draw_.set("plain", [](Step&) {});  // notes nothing
    }

    // As a backend does it: traced, or captured where the trace asks for that.
    void run(StepTrace& trace) {
        Step step = host_.step();
        step.trace = &trace;
        const bool captures = trace.graph.n_times > 0;
        if (captures) {
            trace.begin_captured();
        } else {
            clock_.clear();
            clock_.mark();
            trace.begin_on_device(&clock_, 1);
        }
        n_kernels_ = 0;
        for (const Layer& layer : layers_) {
            stage_(step, layer);
            fused_(step, layer);
        }
        draw_(step);
        if (captures) {
            if (n_kernels_ == 0) {
                trace.graph.unfit = "nothing";
            } else {
                trace.graph.samples_ns.assign(3, 500.0 * n_kernels_);  // nothing lies between them
            }
        } else {
            trace.end_on_device(clock_.ns());
        }
    }
    int n_kernels() const { return n_kernels_; }

  private:
    void launch(Step& s, const char* name) {
        if (!s.trace->launches(name, {132, 2, 1}, 256, 2048)) return;
        clock_.run_kernel();
        n_kernels_++;
    }

    static inline DeviceStep* self_ = nullptr;
    HostStep host_;
    MadeUpClock clock_;
    int n_kernels_ = 0;
    Layer layers_[2];
    Node<void(Step&)> op_{"rms_norm", [](const Step&) { return Work{.weight_bytes = 10}; }};
    Node<void(Step&, const Layer&)> stage_{
        "attn_in", [](const Step&, const Layer&) { return Work{.weight_bytes = 20}; }};
    Node<void(Step&, const Layer&)> fused_{
        "ffn_in", [](const Step&, const Layer&) { return Work{.weight_bytes = 300, .flops = 5}; }};
    Node<void(Step&)> draw_{"sample", [](const Step&) { return Work{}; }};
};

TEST(DeviceTrace, gives_every_call_the_time_between_its_marks) {
    DeviceStep step;
    StepTrace trace;
    step.run(trace);
    ASSERT_TRUE(trace.is_on_device());
    ASSERT_EQ(trace.spans().size(), 2u * 5 + 1);
    EXPECT_EQ(trace.all_launches().size(), 8u);
    const int64_t begin_ns = trace.begin_ns();
    // attn_in by fused, by ops, its two ops, ffn_in.
    const NodeSpan* spans = trace.spans().data();
    EXPECT_EQ(spans[0].begin_ns, begin_ns) << "the first mark serves the first call";
    EXPECT_EQ(spans[2].begin_ns - begin_ns, 0);
    EXPECT_EQ(spans[2].end_ns - begin_ns, 1100);
    EXPECT_EQ(spans[3].begin_ns - begin_ns, 1100) << "an end serves the next call";
    EXPECT_EQ(spans[3].end_ns - begin_ns, 2200);
    EXPECT_EQ(spans[1].begin_ns, spans[2].begin_ns) << "a default body's time is that of its calls";
    EXPECT_EQ(spans[1].end_ns, spans[3].end_ns);
    EXPECT_EQ(spans[0].end_ns, spans[3].end_ns);
    EXPECT_EQ(spans[0].own_ns(), 0);
    EXPECT_EQ(spans[4].elapsed_ns(), 2100) << "two kernels in one call";
    EXPECT_EQ(spans[4].n_launches, 2);
    EXPECT_EQ(spans[10].elapsed_ns(), 100) << "a call without a kernel has marks of its own";
    EXPECT_EQ(trace.elapsed_ns(), spans[10].end_ns - begin_ns);
    EXPECT_TRUE(trace.only_calls(spans[0]));
    EXPECT_TRUE(trace.only_calls(spans[1]));
    EXPECT_FALSE(trace.only_calls(spans[4]));
    EXPECT_FALSE(trace.only_calls(spans[10]));
}

TEST(DeviceTrace, reads_rows_through_the_clock) {
    DeviceStep step;
    StepTrace trace;
    step.run(trace);
    std::vector<float> on_device(6);
    const Buffer buffer(on_device.data(), 24, [](void*, size_t) {});
    StepTrace::HostCopy room;
    const Rows rows = trace.on_host({&buffer, 0, DType::kF32, 2, 2, 3}, room);
    EXPECT_EQ(rows.stride, 2);
    EXPECT_EQ(rows.row<float>(1)[1], 7.0f);
}

TEST(DeviceTrace, captures_the_calls_that_were_asked_for) {
    DeviceStep step;
    StepTrace trace;
    step.run(trace);
    const size_t n_spans = trace.spans().size();
    auto captured = [&](std::vector<bool> calls) {
        trace.graph = {3, std::move(calls), {}, {}};
        step.run(trace);
        EXPECT_EQ(trace.spans().size(), n_spans) << "calls keep their places";
        return std::exchange(trace.graph, {});
    };
    EXPECT_EQ(captured({}).samples_ns.size(), 3u);
    EXPECT_EQ(step.n_kernels(), 8);
    std::vector<bool> calls(n_spans);
    calls[4] = true;
    EXPECT_EQ(captured(calls).samples_ns.size(), 3u);
    EXPECT_EQ(step.n_kernels(), 2);
    calls[4] = false, calls[3] = calls[8] = true;
    captured(calls);
    EXPECT_EQ(step.n_kernels(), 2);
    std::fill(calls.begin(), calls.end(), false);
    EXPECT_EQ(captured(calls).unfit, "nothing");
    EXPECT_EQ(step.n_kernels(), 0);
    step.run(trace);
    EXPECT_EQ(step.n_kernels(), 8) << "traced again";
}

std::vector<std::string> kernels_of(const StepTrace& trace) {
    std::vector<std::string> names;
    for (const Launch& launch : trace.all_launches()) names.emplace_back(launch.name);
    return names;
}

// "fused" of attn_in leads to its ops, which only a step that was traced whole can tell.
TEST(DeviceTrace, calls_what_leads_to_a_node_that_was_asked_for) {
    DeviceStep step;
    StepTrace trace;
    trace.only = {"rms_norm"};
    step.run(trace);
    EXPECT_TRUE(kernels_of(trace).empty()) << "nothing is known yet";
    trace.only.clear();
    step.run(trace);
    trace.only = {"rms_norm"};
    for (const bool is_captured : {false, true}) {
        trace.graph.n_times = is_captured ? 3 : 0;
        step.run(trace);
        EXPECT_EQ(kernels_of(trace), std::vector<std::string>(4, "op"));
        EXPECT_EQ(step.n_kernels(), 4);
    }
    trace.graph = {};
    StepProfile profile;
    step.run(trace);
    EXPECT_EQ(trace.spans()[0].checkpoint, "fused");
    EXPECT_TRUE(trace.spans()[0].leads);
    EXPECT_EQ(trace.spans()[0].elapsed_ns(), 2200) << "that of its calls";
    profile.add(trace);
    ASSERT_EQ(profile.groups().size(), 1u);
    EXPECT_EQ(profile.groups()[0].node, "rms_norm");
    trace.only = {"ffn_in"};
    step.run(trace);
    EXPECT_EQ(kernels_of(trace), (std::vector<std::string>{"first", "second", "first", "second"}));
    EXPECT_TRUE(trace.only_calls(trace.spans()[0])) << "it led nowhere";
    EXPECT_EQ(trace.spans()[0].elapsed_ns(), 0);
}

// A layer whose entry runs a kernel for the work of two stages each, and one that is no stage's.
class DeviceLayer {
  public:
    DeviceLayer() {
        layer_.set("fused", [](Step& s) {
            auto part = [&](const char* node, const char* kernel) {
                trace_part(
                    s.trace, node, "fused", [] { return Work{.weight_bytes = 7}; },
                    [&] {
                        s.trace->launches(kernel, {1, 1, 1}, 32, 0);
                    });
            };
            part("attn_in", "projections");
            s.trace->launches("of the layer", {1, 1, 1}, 32, 0);
            part("attn", "scores");
        });
    }
    void run(StepTrace& trace) {
        Step step = host_.step();
        step.trace = &trace;
        clock_.clear();
        clock_.mark();
        trace.begin_on_device(&clock_, 1);
        layer_(step);
        trace.end_on_device(clock_.ns());
    }

  private:
    HostStep host_;
    MadeUpClock clock_;
    Node<void(Step&)> layer_{"layer", [](const Step&) { return Work{.weight_bytes = 20}; }};
};

TEST(DeviceTrace, runs_a_part_of_an_entry_alone) {
    using Names = std::vector<std::string>;
    DeviceLayer layer;
    StepTrace trace;
    layer.run(trace);
    EXPECT_EQ(kernels_of(trace), (Names{"projections", "of the layer", "scores"}));
    for (const auto& [only, kernels] :
         {std::pair(Names{"attn"}, Names{"scores"}),
          std::pair(Names{"attn_in"}, Names{"projections"}),
          std::pair(Names{"attn_in", "attn"}, Names{"projections", "scores"}),
          std::pair(Names{"layer"}, Names{"projections", "of the layer", "scores"}),
          std::pair(Names{"ffn_in"}, Names{})}) {
        trace.only = only;
        layer.run(trace);
        EXPECT_EQ(kernels_of(trace), kernels) << only.front();
        StepProfile profile;
        profile.add(trace);
        EXPECT_EQ(profile.n_dispatches(), static_cast<int64_t>(kernels.size()));
        EXPECT_EQ(profile.groups().size(), kernels.size()) << only.front();
    }
}

TracedStepKind profiled_step() {
    DeviceStep step;
    StepTrace trace;
    TracedStepKind kind;
    for (int i = 0; i < 3; i++) {
        step.run(trace);
        kind.profile.add(trace);
    }
    kind.profile.time_on_device(trace, [&] { step.run(trace); }, {5000, 5000});
    return kind;
}

TEST(DeviceProfile, takes_times_of_kernels_alone_in_graphs) {
    const TracedStepKind kind = profiled_step();
    const StepProfile& profile = kind.profile;
    EXPECT_TRUE(profile.is_on_device());
    ASSERT_EQ(profile.groups().size(), 3u) << "what leaves its work to others has no row";
    const NodeGroup &op = profile.groups()[0], &fused = profile.groups()[1],
                    &draw = profile.groups()[2];
    EXPECT_EQ(op.n_calls, 4);
    EXPECT_EQ(op.n_launches, 4);
    EXPECT_EQ(op.work.weight_bytes, 40);
    EXPECT_TRUE(op.in_graph);
    EXPECT_EQ(op.median_ns(), 2000);
    EXPECT_EQ(median_of(op.one_by_one_ns), 4400);
    EXPECT_EQ(fused.launches.size(), 2u) << "of one call";
    EXPECT_EQ(fused.n_launches, 4);
    EXPECT_EQ(launches_text(fused.launches), "first 132*2 x 256, 2 KiB; second 132*2 x 256, 2 KiB");
    EXPECT_FALSE(draw.in_graph) << "nothing of it can be captured";
    EXPECT_EQ(draw.median_ns(), 100);
    EXPECT_EQ(profile.n_dispatches(), 8);
    EXPECT_EQ(profile.median_ns(), 5000) << "as it runs";
    EXPECT_EQ(median_of(profile.graph_ns()), 4000);
    EXPECT_EQ(median_of(profile.one_by_one_ns()), 8700);
    EXPECT_EQ(profile.kernels_ns(), 4100);
    EXPECT_EQ(profile.between_ns(), 900);
    EXPECT_NEAR(profile.idle_share(), 0.18, 1e-9);
}

TEST(DeviceProfile, is_told_with_launches_and_what_its_times_are) {
    TracedStepKind kind = profiled_step();
    const std::string text = step_table(kind, 100);
    for (const char* part :
         {"5.0 us", "as it runs", "one by one", "first 132*2 x 256, 2 KiB", "8 kernels a step",
          "the step in one graph takes 4.0 us", "idle: 18.0 % of the step"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
    TracedCheckpoint checkpoint;
    checkpoint.read_gbps = 100;
    checkpoint.steps.push_back(kind);
    const Json json = trace_json({&checkpoint, 1});
    const Json& step = json["checkpoints"][0]["steps"][0]["step"];
    EXPECT_EQ(step["on_device"], true);
    EXPECT_EQ(step["n_dispatches"], 8);
    EXPECT_EQ(step["nodes"][1]["launches"][0]["blocks"], Json({132, 2, 1}));
    EXPECT_EQ(step["nodes"][1]["launches"][0]["shared_bytes"], 2048);
    EXPECT_EQ(step["nodes"][1]["in_graph"], true);
    EXPECT_EQ(step["nodes"][2]["in_graph"], false);
}

TEST(DeviceTimeline, has_a_track_of_kernels_and_none_of_threads) {
    DeviceStep step;
    StepTrace trace;
    step.run(trace);
    Timeline timeline("ridge");
    timeline.add("a step", trace);
    std::set<std::string> tracks;
    int n_kernels = 0;
    const Json json = parse_json(timeline.text(), "timeline");
    for (const Json& event : json.at("traceEvents")) {
        if (event["name"] == "thread_name") tracks.insert(event["args"]["name"]);
        if (event["ph"] != "X" || event["cat"] != "kernel") continue;
        n_kernels++;
        EXPECT_GT(event["dur"].get<double>(), 0);
        EXPECT_TRUE(event["args"].contains("launches"));
    }
    EXPECT_EQ(tracks, (std::set<std::string>{"nodes", "kernels"}));
    EXPECT_EQ(n_kernels, 6) << "calls with kernels of their own";
}

// A whole step that is captured has no kernels of its own: the model's rate alone is judged.
TEST(Progression, judges_an_entry_of_the_whole_step_by_the_model) {
    auto entry = [](const char* name, double rate) {
        ProgressionTest test{"tg16", std::vector<double>(5, rate), {}};
        StepFacts facts;
        facts.on_device = true, facts.n_dispatches = 80, facts.whole = "graph";
        facts.groups = {{"ffn_in", "ffn_in", "fused", 1000}};
        test.facts.assign(5, facts);
        return ProgressionEntry{name, {test}, {}, true};
    };
    EXPECT_EQ(verdict_of(entry("fused", 100), entry("graph", 120)), "keep");
    EXPECT_EQ(verdict_of(entry("fused", 100), entry("graph", 90)), "drop: slower in tg16");
    EXPECT_EQ(verdict_of(entry("fused", 100), entry("other", 120)),
              "drop: none of its kernels ran");
    const std::string table = progression_table({entry("fused", 100), entry("graph", 120)}, 1);
    EXPECT_NE(table.find("idle, %"), std::string::npos);
}

}  // namespace
}  // namespace ridge
