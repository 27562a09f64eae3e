#include "cmd/answer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace ridge {
namespace {

// Standard output is a terminal while this lives.
class TerminalOutput {
  public:
    TerminalOutput() {
        std::fflush(stdout);
        saved_ = dup(STDOUT_FILENO);
        master_ = posix_openpt(O_RDWR | O_NOCTTY);
        if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
        const char* name = ptsname(master_);
        int slave = name == nullptr ? -1 : ::open(name, O_RDWR | O_NOCTTY);
        if (slave < 0) return;
        available_ = dup2(slave, STDOUT_FILENO) >= 0;
        ::close(slave);
    }
    ~TerminalOutput() {
        std::fflush(stdout);
        std::clearerr(stdout);
        dup2(saved_, STDOUT_FILENO);
        ::close(saved_);
        hang_up();
    }
    TerminalOutput(const TerminalOutput&) = delete;

    bool available() const { return available_; }  // a bare container may have no terminals
    void hang_up() {
        if (master_ >= 0) ::close(master_);
        master_ = -1;
    }
    // What has been written and flushed since the last call.
    std::string seen() {
        std::string text;
        char buffer[256];
        pollfd ready{master_, POLLIN, 0};
        while (poll(&ready, 1, 50) == 1) {
            ssize_t n = ::read(master_, buffer, sizeof buffer);
            if (n <= 0) break;
            text.append(buffer, static_cast<size_t>(n));
        }
        return text;
    }

  private:
    int saved_ = -1, master_ = -1;
    bool available_ = false;
};

class AnswerWriterOnATerminal : public testing::Test {
  protected:
    void SetUp() override {
        unsetenv("NO_COLOR");
        OpenOptions options;
        options.model =
            std::string(RIDGE_TESTS_DIR) + "/golden_data/models/qwen3-tied/model-f32.gguf";
        options.n_ctx = 16;
        options.n_threads = 1;
        engine_ = Engine::open(options);
    }
    TokenEvent event(std::string_view text) {
        return {engine_->tokenizer().find(text).value(), text, nullptr};
    }

    std::unique_ptr<Engine> engine_;
};

TEST_F(AnswerWriterOnATerminal, leaves_nothing_dimmed_and_ends_the_line_where_an_error_comes) {
    std::string seen;
    bool available = false;
    {
        TerminalOutput terminal;
        available = terminal.available();
        if (available) {
            Output output;
            StatusLine status(false);
            try {
                AnswerWriter writer(output, status, *engine_);
                writer.write(event("<think>"));
                writer.write(event("the"));
                throw Error("what went wrong");
            } catch (const Error&) {
            }
            seen = terminal.seen();
        }
    }
    if (!available) GTEST_SKIP() << "no pseudo-terminal";
    EXPECT_EQ(seen, "\x1b[2m<think>the\x1b[0m\r\n");
}

TEST_F(AnswerWriterOnATerminal, writes_nothing_at_its_end_where_nothing_is_dimmed) {
    std::string seen;
    bool available = false;
    {
        TerminalOutput terminal;
        available = terminal.available();
        if (available) {
            Output output;
            StatusLine status(false);
            {
                AnswerWriter writer(output, status, *engine_);
                writer.write(event("<think>"));
                writer.write(event("</think>"));
                writer.write(event("the"));
                writer.finish(false);
            }
            {
                AnswerWriter writer(output, status, *engine_);
                writer.write(event("<think>"));
                writer.finish(false);
            }
            seen = terminal.seen();
        }
    }
    if (!available) GTEST_SKIP() << "no pseudo-terminal";
    EXPECT_EQ(seen, "\x1b[2m<think></think>\x1b[0mthe\x1b[2m<think>\x1b[0m");
}

TEST_F(AnswerWriterOnATerminal, ends_quietly_where_the_terminal_has_gone) {
    bool available = false, threw = false;
    {
        TerminalOutput terminal;
        available = terminal.available();
        if (available) {
            Output output;
            StatusLine status(false);
            AnswerWriter writer(output, status, *engine_);
            writer.write(event("<think>"));
            terminal.hang_up();
            try {
                writer.write(event("the"));
            } catch (const Error&) {
                threw = true;
            }
        }
    }
    if (!available) GTEST_SKIP() << "no pseudo-terminal";
    EXPECT_TRUE(threw);
}

// The line at the end of an answer, without what the machine decides.
std::string line_of(const Generation& generation, const AnswerStats& stats) {
    ModelInfo info;
    info.checkpoint = "plain", info.n_threads = 1;
    std::string line = stats_line(info, generation, stats, {});
    return line.substr(0, line.find(" | plain"));
}

TEST(StatsLine, leaves_out_a_rate_that_there_is_none_of) {
    Generation one;
    one.n_prompt = one.n_computed = 1;
    one.prompt_ms = 8, one.generate_ms = 1;
    one.tokens = {7};
    AnswerStats stats;
    stats.prompt_tok_s = 125;
    EXPECT_EQ(line_of(one, stats),
              "load 0 ms | prompt 1 token in 8 ms, 125.0 tok/s | generated 1 token in 1 ms");
    one.tokens = {7, 7};
    stats.generate_tok_s = 500;
    EXPECT_EQ(line_of(one, stats),
              "load 0 ms | prompt 1 token in 8 ms, 125.0 tok/s | generated 2 tokens in 1 ms, 500.0 "
              "tok/s");
}

TEST(StatsLine, says_how_much_of_a_prompt_was_computed) {
    Generation cancelled;
    cancelled.n_prompt = 6063, cancelled.n_computed = 32, cancelled.n_reused = 10;
    cancelled.prompt_ms = 179;
    EXPECT_FALSE(cancelled.prompt_is_whole());
    EXPECT_EQ(
        line_of(cancelled, {}),
        "load 0 ms | prompt 42 of 6063 tokens (10 of them kept) in 179 ms | generated 0 tokens "
        "in 0 ms");
}

}  // namespace
}  // namespace ridge
