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
    Node<Call> node("count");
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

TEST(Tables, default_bodies_are_called_by_the_nodes_that_they_call) {
    Tables tables;
    add_default_bodies(tables);
    EXPECT_EQ(tables.stages.attn_in.entries().back().checkpoint, "ops");
    EXPECT_EQ(tables.layer.entries().back().checkpoint, "stages");
    EXPECT_EQ(tables.step.entries().back().checkpoint, "layers");
}

}  // namespace
}  // namespace ridge
