#include "base/child_process.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/system.h"
#include "base/timer.h"

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

// What an Error says.
template <class Body>
std::string error_of(const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

TEST(ChildProcess, that_hangs_is_ended) {
    const Timer timer;
    EXPECT_EQ(error_of([] {
                  run_child({"sleep", "100"}, "", 100, 0.3);
              }),
              "sleep: did not end within 0.3 s");
    EXPECT_EQ(error_of([] {
                  run_child({"sh", "-c", "exec >&- 2>&-; sleep 100"}, "", 100, 0.3);
              }),
              "sh: did not end within 0.3 s")
        << "its streams are at their end";
    EXPECT_LT(timer.elapsed_ms(), 60'000) << "none was waited for";
}

TEST(ChildProcess, may_be_given_up) {
    const Timer timer;
    EXPECT_EQ(error_of([] {
                  run_child({"sleep", "100"}, "", 100, kNoTimeLimit, [] { throw Error("enough"); });
              }),
              "enough");
    EXPECT_LT(timer.elapsed_ms(), 60'000);
}

std::unique_ptr<ChildTalk> shell(const std::string& script) {
    prepare_process();
    return ChildTalk::start("the peer", {"sh", "-c", script});
}

constexpr size_t kMaxBytes = 1 << 20;

TEST(ChildTalk, answers_line_by_line) {
    const auto talk = shell("while read line; do echo \"you said $line\"; done");
    ASSERT_TRUE(talk);
    EXPECT_EQ(talk->ask("one", 10, kMaxBytes), "you said one");
    EXPECT_EQ(talk->ask("", 10, kMaxBytes), "you said ");
    EXPECT_EQ(talk->ask("two", 10, kMaxBytes), "you said two");
}

// More than a pipe holds, both ways.
TEST(ChildTalk, takes_and_gives_long_lines) {
    const auto talk = shell("cat");
    const std::string line(600'000, 'x');
    EXPECT_EQ(talk->ask(line, 60, kMaxBytes) == line, true);
}

TEST(ChildTalk, that_ends_is_an_error_with_its_last_words) {
    EXPECT_EQ(
        error_of([] { shell("read line; echo gone >&2; echo; exit 3")->ask("x", 10, kMaxBytes); }),
        "no error")
        << "it had answered with an empty line";
    EXPECT_EQ(
        error_of([] {
            shell("read line; echo first >&2; echo last >&2; exit 3")->ask("x", 10, kMaxBytes);
        }),
        "the peer: ended with status 3: last");
    EXPECT_EQ(error_of([] { shell("read line; kill -9 $$")->ask("x", 10, kMaxBytes); }),
              "the peer: ended by signal 9");
    EXPECT_EQ(error_of([] { shell("exit 0")->ask(std::string(1 << 20, 'x'), 10, kMaxBytes); }),
              "the peer: ended with status 0");
}

TEST(ChildTalk, that_hangs_or_rambles_is_an_error_and_ended) {
    const Timer timer;
    EXPECT_EQ(error_of([] { shell("sleep 100")->ask("x", 0.3, kMaxBytes); }),
              "the peer: no answer within 0.3 s");
    EXPECT_EQ(error_of([] { shell("exec >&-; sleep 100")->ask("x", 10, kMaxBytes); }),
              "the peer: closed its standard output");
    EXPECT_EQ(error_of([] { shell("while :; do printf more; done")->ask("x", 60, 1 << 16); }),
              "the peer: wrote more than 65536 bytes");
    EXPECT_LT(timer.elapsed_ms(), 60'000) << "none was waited for";
}

TEST(ChildTalk, may_be_given_up) {
    const Timer timer;
    const auto talk = shell("sleep 100");
    EXPECT_THROW(talk->ask("x", 60, kMaxBytes, [] { throw Error("enough"); }), Error);
    EXPECT_LT(timer.elapsed_ms(), 30'000);
}

TEST(ChildTalk, with_a_program_that_is_not_there_is_null) {
    EXPECT_FALSE(ChildTalk::start("the peer", {"ridge-has-no-such-program"}));
}

}  // namespace
}  // namespace ridge
