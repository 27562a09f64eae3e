#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/timer.h"
#include "cmd/step_dump.h"
#include "cmd/step_profile.h"
#include "cmd/trace_report.h"
#include "cmd/trace_timeline.h"
#include "model/step.h"
#include "model/tables.h"
#include "support/error_of.h"
#include "support/host_step.h"
#include "support/temporary_folder.h"

namespace ridge {
namespace {

void pass_ns(int64_t ns) {
    const int64_t end_ns = monotonic_ns() + ns;
    while (monotonic_ns() < end_ns) {
    }
}

// A step of two layers, each a stage of a default body that calls an op twice, and of a fused stage
// that calls the op once and does something itself.
class TracedHost {
  public:
    TracedHost() {
        for (Layer& layer : layers_) layer.index = static_cast<int>(&layer - layers_);
        op_.set("plain", [](Step& s) {
            s.pool.parallel_for(8, 1, [](int64_t, int64_t, int) {});
            if (n_calls_until_slow_-- == 0) pass_ns(kSlowNs);
        });
        whole_.set("ops", [](Step& s, const Layer&) {
            (*op_of_)(s);
            (*op_of_)(s);
        });
        fused_.set("fused", [](Step& s, const Layer&) { (*op_of_)(s); });
        op_of_ = &op_;
    }

    static constexpr int64_t kSlowNs = 50'000'000;

    // Of the op's calls, three a layer, one may be slow; -1: none.
    const StepTrace& run(int slow_call = -1) {
        n_calls_until_slow_ = slow_call;
        Step step = host_.step();
        TracedStep traced(&trace_, host_.pool);
        step.trace = &trace_;
        for (const Layer& layer : layers_) {
            whole_(step, layer);
            fused_(step, layer);
        }
        return trace_;
    }

  private:
    using Op = Node<void(Step&)>;
    using Stage = Node<void(Step&, const Layer&)>;

    static inline int n_calls_until_slow_ = -1;
    static inline const Op* op_of_ = nullptr;
    HostStep host_;
    StepTrace trace_;
    Layer layers_[2];
    Op op_{"rms_norm", [](const Step&) { return Work{.weight_bytes = 100, .flops = 7}; }};
    Stage whole_{"attn_in", [](const Step&, const Layer&) { return Work{.weight_bytes = 1}; }};
    Stage fused_{"ffn_in", [](const Step&, const Layer& layer) {
                     return Work{.weight_bytes = 350, .flops = 5, .layer = layer.index};
                 }};
};

TEST(StepProfile, counts_calls_and_work_once_over_all_layers) {
    TracedHost host;
    StepProfile profile;
    for (int i = 0; i < 3; i++) profile.add(host.run());
    ASSERT_EQ(profile.groups().size(), 3u);
    const NodeGroup &op = profile.groups()[0], &fused = profile.groups()[1],
                    &op_of_fused = profile.groups()[2];
    EXPECT_EQ(op.stage, "attn_in");
    EXPECT_EQ(op.node, "rms_norm");
    EXPECT_EQ(op.n_calls, 4);
    EXPECT_EQ(op.work.weight_bytes, 400);
    EXPECT_EQ(op.work.flops, 28);
    EXPECT_EQ(fused.checkpoint, "fused");
    EXPECT_EQ(fused.n_calls, 2);
    EXPECT_EQ(fused.work.weight_bytes, 2 * 250) << "what the op in it did is counted there";
    EXPECT_EQ(fused.work.flops, 0) << "no less than nothing";
    EXPECT_EQ(op_of_fused.stage, "ffn_in");
    EXPECT_EQ(op_of_fused.n_calls, 2);
    EXPECT_EQ(profile.n_samples(), 3u);
    EXPECT_EQ(profile.n_dispatches(), 6);
    for (size_t i = 0; i < 3; i++) {
        double sum = 0;
        for (const NodeGroup& group : profile.groups()) sum += group.samples_ns[i];
        EXPECT_LE(sum, profile.samples_ns()[i]);
    }
}

// An override of a layer that runs the default stages has nothing left to itself.
TEST(StepProfile, counts_work_below_a_default_body_once) {
    ThreadPool pool(1);
    StepTrace trace;
    {
        TracedStep traced(&trace, pool);
        trace.begin("layer", "plain", {}, {}, {.weight_bytes = 100});
        trace.begin("layer", "stages", {}, {}, {});
        trace.begin("ffn_in", "ops", {}, {}, {});
        trace.begin("matmul", "gemm", {}, {}, {.weight_bytes = 100});
        for (int i = 0; i < 4; i++) trace.end();
    }
    StepProfile profile;
    profile.add(trace);
    EXPECT_EQ(profile.groups().size(), 2u);
    EXPECT_EQ(profile.work().weight_bytes, 100);
}

TEST(StepProfile, threads_that_have_no_work_wait) {
    ThreadPool pool(2);
    StepTrace trace;
    {
        TracedStep traced(&trace, pool);
        pass_ns(2'000'000);
    }
    EXPECT_NEAR(idle_share_of(trace), 0.5, 1e-9) << "the caller worked all the time";
}

TEST(Replay, tells_which_nodes_have_kernels_of_their_own) {
    ThreadPool pool(1);
    StepTrace trace;
    {
        TracedStep traced(&trace, pool);
        for (const char* node : {"step", "layer", "ffn_in"}) trace.begin(node, "ops", {}, {}, {});
        trace.begin("matmul", "gemm", {}, {}, {});
        for (int i = 0; i < 4; i++) trace.end();
    }
    const std::vector<std::string> there = {"matmul", "layer"}, missing = {"ffn_in", "swiglu"};
    check_replay(there, trace.spans(), "decode step");
    try {
        check_replay(missing, trace.spans(), "decode step");
        FAIL() << "swiglu was not called";
    } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kUsage);
        EXPECT_STREQ(e.what(),
                     "--replay swiglu: no kernel of this name runs in a decode step; expected one "
                     "of layer, ffn_in, matmul, or an earlier --checkpoint");
    }
    const std::vector<std::string> all = replayable_nodes();
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
    EXPECT_EQ(std::count(all.begin(), all.end(), "step"), 0) << "which is no part of itself";
}

TEST(Median, of_even_and_odd_numbers) {
    EXPECT_EQ(median_of({3}), 3);
    EXPECT_EQ(median_of({5, 1, 3}), 3);
    EXPECT_EQ(median_of({4, 1, 3, 2}), 2.5);
}

// What the format's description demands of every event, and what makes a viewer nest calls.
TEST(Timeline, follows_the_chrome_trace_format) {
    TracedHost host;
    Timeline timeline("ridge \"tiny\"");
    timeline.add("a step", host.run());
    timeline.add("another", host.run());
    const Json json = parse_json(timeline.text(), "timeline");
    std::set<std::string> named_tracks;
    std::map<int, std::vector<std::pair<double, double>>> spans;  // of a track: begin, end
    int n_steps = 0;
    for (const Json& event : json.at("traceEvents")) {
        ASSERT_TRUE(event.at("name").is_string());
        ASSERT_TRUE(event.at("pid").is_number_integer());
        ASSERT_TRUE(event.at("tid").is_number_integer());
        ASSERT_TRUE(event.at("args").is_object());
        if (event.at("ph") == "M") {
            EXPECT_TRUE(event.at("args").at("name").is_string());
            named_tracks.insert(event.at("name").get<std::string>() + event.at("tid").dump());
            continue;
        }
        ASSERT_EQ(event.at("ph"), "X");
        ASSERT_TRUE(event.at("cat").is_string());
        const double ts = event.at("ts"), dur = event.at("dur");
        EXPECT_GE(ts, 0);
        EXPECT_GE(dur, 0);
        spans[event.at("tid").get<int>()].emplace_back(ts, ts + dur);
        n_steps += event.at("cat") == "step" ? 1 : 0;
    }
    EXPECT_EQ(n_steps, 2);
    EXPECT_TRUE(named_tracks.contains("process_name1"));
    for (const auto& [track, of_track] : spans) {
        EXPECT_TRUE(named_tracks.contains("thread_name" + std::to_string(track)));
        for (const auto& [begin, end] : of_track) {
            for (const auto& [b, e] : of_track) {
                const bool apart = e <= begin || end <= b;
                const bool nested = (begin <= b && e <= end) || (b <= begin && end <= e);
                EXPECT_TRUE(apart || nested) << "track " << track << ": " << begin << " to " << end
                                             << " and " << b << " to " << e;
            }
        }
    }
    EXPECT_EQ(spans.size(), 2u) << "nodes, and one thread";
}

TEST(StepDump, writes_arrays_as_numpy_reads_them) {
    Matrix matrix(3, 2, {1, 2, 3, 4, 5, 6});
    const std::string file = npy_of(matrix.rows());
    ASSERT_GE(file.size(), 10u);
    EXPECT_EQ(file.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const size_t header =
        static_cast<unsigned char>(file[8]) + 256u * static_cast<unsigned char>(file[9]);
    EXPECT_EQ((10 + header) % 64, 0u);
    EXPECT_EQ(file[10 + header - 1], '\n');
    EXPECT_NE(file.find("'shape': (3, 2)"), std::string::npos);
    ASSERT_EQ(file.size(), 10 + header + 6 * sizeof(float));
    EXPECT_EQ(memcmp(file.data() + 10 + header, matrix.values.data(), 6 * sizeof(float)), 0);
}

TEST(StepDump, lists_what_it_wrote) {
    TemporaryFolder folder;
    Matrix matrix(1, 2, {1, 2});
    StepDump dump(folder.path("deep/er"));
    NodeSpan span;
    span.node = "matmul", span.checkpoint = "gemm", span.layer = 3;
    dump.add(span, "attn_in", span.work.out);  // without a result
    span.work.out = matrix.rows();
    dump.add(span, "attn_in", span.work.out);
    const std::vector<Token> tokens = {5, 6};
    dump.finish("a step", tokens, 1, 4);
    const Json index = parse_json(folder.read("deep/er/index.json"), "index");
    EXPECT_EQ(index["tokens"], Json({5, 6}));
    EXPECT_EQ(index["first_position"], 1);
    EXPECT_EQ(index["n_sequences"], 4);
    ASSERT_EQ(index["nodes"].size(), 1u);
    EXPECT_EQ(index["nodes"][0]["file"], "0000.layer3.attn_in.matmul.npy");
    EXPECT_EQ(folder.read("deep/er/0000.layer3.attn_in.matmul.npy"), npy_of(matrix.rows()));
}

TEST(StepDump, that_is_not_finished_leaves_nothing) {
    TemporaryFolder folder;
    Matrix matrix(1, 2, {1, 2});
    NodeSpan span;
    span.node = "matmul", span.checkpoint = "gemm", span.layer = 3;
    span.work.out = matrix.rows();
    StepDump(folder.path("deep/er")).add(span, "attn_in", span.work.out);
    EXPECT_EQ(file_kind(folder.path("deep")), FileKind::kMissing);
    make_folders(folder.path("kept"));
    folder.write("kept/other", "x");
    folder.write("kept/index.json", "{}");
    StepDump(folder.path("kept"));
    EXPECT_EQ(list_folder(folder.path("kept")), std::vector<std::string>({"index.json", "other"}));
    StepDump(folder.path("kept")).add(span, "attn_in", span.work.out);
    EXPECT_EQ(list_folder(folder.path("kept")), std::vector<std::string>{"other"})
        << "an index would list files that were replaced";
}

TEST(StepDump, says_where_it_cannot_write) {
    TemporaryFolder folder;
    folder.write("file", "x");
    EXPECT_NE(error_of([&] { StepDump dump(folder.path("file")); }).find("/file: cannot make"),
              std::string::npos);
    make_folders(folder.path("busy/index.json"));
    EXPECT_NE(error_of([&] { StepDump dump(folder.path("busy")); }).find("/busy/index.json: is a"),
              std::string::npos);
}

// Each step is held up in another stage: medians of stages know nothing of it, that of steps does.
TEST(StepTable, tells_where_medians_leave_a_part_of_the_step_out) {
    TracedHost host;
    TracedStepKind step;
    step.profile.add(host.run());
    EXPECT_EQ(step_table(step, 1).find("disturbed"), std::string::npos) << "one sample is all";
    TracedStepKind disturbed;
    for (int slow_call : {-1, 0, 2}) disturbed.profile.add(host.run(slow_call));
    EXPECT_GE(disturbed.profile.median_ns(), TracedHost::kSlowNs);
    const std::string table = step_table(disturbed, 1);
    EXPECT_NE(table.find("disturbed: the rows' medians together are "), std::string::npos) << table;
}

// Checkpoints side by side: the gap is measured from what bytes take at the wall's rate.
TEST(Attribution, names_the_group_that_is_farthest_above_its_bytes) {
    TracedHost host;
    std::vector<TracedCheckpoint> checkpoints(1);
    checkpoints[0].read_gbps = 1e-9;  // a byte a second: nothing is above it
    checkpoints[0].steps.resize(1);
    checkpoints[0].steps[0].profile.add(host.run());
    Attribution slow = attribution_of(checkpoints, 0);
    EXPECT_EQ(slow.next_gap, "between");
    checkpoints[0].read_gbps = 1e18;  // bytes take no time
    Attribution fast = attribution_of(checkpoints, 0);
    const auto largest = std::max_element(fast.ns[0].begin(), fast.ns[0].end());
    EXPECT_EQ(fast.next_gap, fast.groups[static_cast<size_t>(largest - fast.ns[0].begin())]);
    double sum = 0;
    for (double ns : fast.ns[0]) sum += ns;
    EXPECT_NEAR(sum, checkpoints[0].steps[0].profile.median_ns(), 1) << "every part of it is there";
}

}  // namespace
}  // namespace ridge
