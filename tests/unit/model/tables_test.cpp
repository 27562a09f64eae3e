#include "model/tables.h"

#include <gtest/gtest.h>

#include "support/host_step.h"

namespace ridge {
namespace {

using Call = void(Step&, int& ran);

std::string_view is_odd(const Step&, int& ran) {
    return ran % 2 == 1 ? "the number is odd" : "";
}
std::string_view is_large(const Step&, int& ran) {
    return ran > 100 ? "the number is large" : "";
}

// Three entries, each of which leaves its number.
Node<Call> three_entries() {
    Node<Call> node("count", [](const Step&, int& ran) { return Work{.n_rows = ran}; });
    node.set("first", [](Step&, int& ran) { ran = 1; });
    node.set(
        "second", [](Step&, int& ran) { ran = 2; }, is_large);
    node.set(
        "third", [](Step&, int& ran) { ran = 3; }, is_odd);
    return node;
}

TEST(Node, runs_the_topmost_entry_that_supports_the_step) {
    HostStep host;
    Step step = host.step();
    const Node<Call> node = three_entries();
    for (auto [number, expected] :
         {std::pair(4, 3), std::pair(200, 3), std::pair(5, 2), std::pair(201, 1)}) {
        int ran = number;
        node(step, ran);
        EXPECT_EQ(ran, expected) << number;
    }
    int ran = 4;
    node.below("third", step, ran);
    EXPECT_EQ(ran, 2);
}

TEST(Node, a_dry_run_notes_once_what_it_skipped_what_ran_and_why) {
    HostStep host;
    Step step = host.step(true);
    std::vector<Fallback> fallbacks;
    step.fallbacks = &fallbacks;
    const Node<Call> node = three_entries();
    for (int number : {4, 5, 7, 201, 203, 4}) node(step, number);
    EXPECT_EQ(fallbacks, (std::vector<Fallback>{
                             {"count", "third", "second", "the number is odd"},
                             {"count", "third", "first", "the number is odd"},
                         }));
    int large = 200;
    fallbacks.clear();
    node.below("third", step, large);
    EXPECT_EQ(fallbacks,
              (std::vector<Fallback>{{"count", "second", "first", "the number is large"}}));
}

TEST(Node, a_trace_notes_what_ran_instead_and_what_it_had_to_do) {
    HostStep host;
    Step step = host.step();
    StepTrace trace;
    std::vector<int64_t> ended;
    trace.on_end = [&](const NodeSpan& span) { ended.push_back(span.work.n_rows); };
    {
        TracedStep traced(&trace, step.pool);
        step.trace = &trace;
        for (int number : {4, 5}) three_entries()(step, number);
    }
    ASSERT_EQ(trace.spans().size(), 2u);
    const NodeSpan &first = trace.spans()[0], &second = trace.spans()[1];
    EXPECT_EQ(first.node, "count");
    EXPECT_EQ(first.checkpoint, "third");
    EXPECT_EQ(first.reason, "");
    EXPECT_EQ(second.checkpoint, "second");
    EXPECT_EQ(second.skipped, "third");
    EXPECT_EQ(second.reason, "the number is odd");
    EXPECT_LE(trace.begin_ns(), first.begin_ns);
    EXPECT_LE(first.end_ns, second.begin_ns);
    EXPECT_LE(second.end_ns, trace.begin_ns() + trace.elapsed_ns());
    EXPECT_EQ(ended, (std::vector<int64_t>{4, 5})) << "work is counted before the call";
}

// A stage of two ops, in a layer.
TEST(Node, a_trace_knows_within_which_call_another_was_made) {
    using Nothing = void(Step&);
    using Numbered = void(Step&, int& layer);
    Node<Nothing> op("op", [](const Step&) { return Work{}; });
    op.set("plain", [](Step&) {});
    static const Node<Nothing>* inner;
    inner = &op;
    Node<Numbered> stage("stage", [](const Step&, int& layer) { return Work{.layer = layer}; });
    stage.set("plain", [](Step& s, int&) {
        (*inner)(s);
        (*inner)(s);
    });
    HostStep host;
    Step step = host.step();
    StepTrace trace;
    {
        TracedStep traced(&trace, step.pool);
        step.trace = &trace;
        int layer = 7;
        stage(step, layer);
        op(step);
    }
    ASSERT_EQ(trace.spans().size(), 4u);
    const auto spans = trace.spans();
    EXPECT_EQ(spans[0].n_children, 2);
    EXPECT_EQ(spans[0].children_ns, spans[1].elapsed_ns() + spans[2].elapsed_ns());
    EXPECT_EQ(spans[0].own_ns(), spans[0].elapsed_ns() - spans[0].children_ns);
    for (int i : {1, 2}) {
        EXPECT_EQ(spans[static_cast<size_t>(i)].parent, 0);
        EXPECT_EQ(spans[static_cast<size_t>(i)].layer, 7) << "that of the call around it";
    }
    EXPECT_EQ(spans[3].parent, -1);
    EXPECT_EQ(spans[3].layer, -1);
}

TEST(Tables, default_bodies_are_called_by_the_nodes_that_they_call) {
    Tables tables;
    add_default_bodies(tables);
    EXPECT_EQ(tables.stages.attn_in.entries().back().checkpoint, "ops");
    EXPECT_EQ(tables.layer.entries().back().checkpoint, "stages");
    EXPECT_EQ(tables.step.entries().back().checkpoint, "layers");
}

}  // namespace
}  // namespace ridge
