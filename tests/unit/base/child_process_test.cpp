#include "base/child_process.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/system.h"

namespace ridge {
namespace {

TEST(ChildProcess, gets_its_input_and_gives_what_it_wrote) {
    const auto result = run_child({"sh", "-c", "cat; echo no >&2; exit 3"}, "some text", 100);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->output, "some text");
    EXPECT_EQ(result->errors, "no\n");
    EXPECT_EQ(result->status, 3);
}

// More than a pipe holds, both ways at once.
TEST(ChildProcess, reads_and_writes_much_at_the_same_time) {
    const std::string input(5 << 20, 'x');
    const auto result = run_child({"cat"}, input, input.size());
    ASSERT_TRUE(result);
    EXPECT_EQ(result->output == input, true);
    EXPECT_EQ(result->status, 0);
}

TEST(ChildProcess, may_leave_its_input_unread) {
    prepare_process();
    const auto result = run_child({"true"}, std::string(1 << 20, 'x'), 100);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 0);
}

TEST(ChildProcess, that_is_not_there_is_none) {
    EXPECT_FALSE(run_child({"ridge-has-no-such-program"}, "", 100));
}

TEST(ChildProcess, ended_by_a_signal_says_which) {
    EXPECT_EQ(run_child({"sh", "-c", "kill -TERM $$"}, "", 100)->status, 128 + 15);
    EXPECT_EQ(run_child({"sh", "-c", "kill -PIPE $$"}, "", 100)->status, 128 + 13);
}

TEST(ChildProcess, that_writes_without_end_is_ended) {
    EXPECT_THROW(run_child({"sh", "-c", "while :; do echo more; done"}, "", 1 << 16), Error);
}

}  // namespace
}  // namespace ridge
