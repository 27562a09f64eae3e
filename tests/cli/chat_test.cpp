#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

Result chat(const std::string& lines, const Arguments& more = {}) {
    Setting setting;
    setting.input = lines;
    return run(with({"chat", "-m", tiny_model(), "-n", "5", "--ignore-eos", "-q"}, more), setting);
}

TEST(Chat, answers_each_line_of_a_pipe_without_prompts) {
    Result result = chat("hello\n\nand\n");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_GE(std::count(result.out.begin(), result.out.end(), '\n'), 2);
    EXPECT_EQ(chat("").status, 0);
    EXPECT_EQ(chat("/exit\nnever\n").out, "");
}

TEST(Chat, saves_and_loads_conversations) {
    std::string path = scratch_folder() + "/saved.json";
    Result saved =
        chat("/system be brief\n\"\"\"one\ntwo\n\"\"\"\nthree \\\nfour\n/save " + path + "\n");
    EXPECT_EQ(saved.status, 0) << saved.err;
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    Setting cat;
    Result shown = run({"template", "-m", tiny_model(), "--messages", path, "--json"});
    std::string text = nlohmann::json::parse(shown.out)["text"];
    EXPECT_NE(text.find("be brief"), std::string::npos) << text;
    EXPECT_NE(text.find("one\ntwo<"), std::string::npos) << text;
    EXPECT_NE(text.find("three \nfour<"), std::string::npos) << text;

    std::string again = scratch_folder() + "/again.json";
    Result loaded = chat("/load " + path + "\n/save " + again + "\n/reset\n/system\n");
    EXPECT_EQ(loaded.status, 0) << loaded.err;
    EXPECT_NE(loaded.err.find("be brief"), std::string::npos) << "a reset keeps it";
    EXPECT_EQ(run({"template", "-m", tiny_model(), "--messages", again, "--json"}).out, shown.out);
}

TEST(Chat, takes_what_stands_between_quotes_as_a_message) {
    std::string path = scratch_folder() + "/slash.json";
    Result result = chat("\"\"\"/exit\"\"\"\n\"\"\"\n/reset\nnow\n\"\"\"\n/save " + path + "\n");
    EXPECT_EQ(result.status, 0) << result.err;
    std::string text = run({"template", "-m", tiny_model(), "--messages", path}).out;
    EXPECT_NE(text.find("/exit"), std::string::npos) << text;
    EXPECT_NE(text.find("/reset\nnow"), std::string::npos) << text;
}

TEST(Chat, takes_a_file_in_quotes_or_below_home) {
    std::string path = scratch_folder() + "/q r.json";  // HOME is the scratch folder
    Result result = chat("hi\r\n/save \"~/q r.json\"\r\n/load '" + path + "'\n");
    EXPECT_EQ(result.status, 0) << result.err;
    std::string text = run({"template", "-m", tiny_model(), "--messages", path}).out;
    EXPECT_EQ(text.find('\r'), std::string::npos) << text;
    Setting setting;
    std::string one = write_scratch("one.json", R"([{"role":"user","content":"x"}])");
    setting.input = "/load " + one + "\n";
    EXPECT_EQ(run({"chat", "-m", tiny_model()}, setting).err, "ridge: 1 message loaded\n");
}

TEST(Chat, shows_and_sets_biases) {
    Result result = chat("/set\n/set logit-bias 7-inf\n/set\n/set logit-bias none\n/help\n");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find("logit-bias none\n"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("logit-bias 7-inf\n"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("logit-bias ID"), std::string::npos) << result.err;
    expect_line(chat("/set logit-bias 4096+1\n").err, "/set logit-bias 4096");
}

TEST(Chat, keeps_no_history_without_a_home) {
    if (!Terminal::available()) GTEST_SKIP() << "there are no pseudo-terminals here";
    std::string home = scratch_folder() + "/no/such/home";
    Terminal terminal({"chat", "-m", tiny_model()}, {{"HOME", home}, {"XDG_STATE_HOME", ""}});
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.send("/exit\n");
    EXPECT_EQ(terminal.finish(), 0);
    EXPECT_FALSE(std::filesystem::exists(scratch_folder() + "/no"));
    EXPECT_EQ(terminal.seen().find("history"), std::string::npos) << terminal.seen();
}

TEST(Chat, says_once_that_the_history_cannot_be_kept) {
    if (!Terminal::available()) GTEST_SKIP() << "there are no pseudo-terminals here";
    std::string file = write_scratch("a-file", "x");
    Terminal terminal({"chat", "-m", tiny_model()}, {{"XDG_STATE_HOME", file}});
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.send("/set temp 0.25\n");
    ASSERT_TRUE(terminal.wait_for("the history is not kept")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.send("/exit\n");
    EXPECT_EQ(terminal.finish(), 0);
    EXPECT_EQ(terminal.seen().find("not kept"), terminal.seen().rfind("not kept"));
}

TEST(Chat, fails_line_by_line_and_keeps_the_conversation) {
    std::string path = write_scratch("taken.json", "[]");
    std::string deep = write_scratch("deep.json", std::string(200'000, '['));
    std::string odd = write_scratch("odd.json", R"([{"role":"root","content":"x"}])");
    for (const std::string& line :
         {"/save " + path, "/load " + deep, "/load " + odd, std::string("/load /dev/zero"),
          std::string("/load /no/such"), std::string("/load"), std::string("/set temp nan"),
          std::string("/set"), std::string("/set colour red"), std::string("/frobnicate"),
          std::string("/regen"), std::string("/stats")}) {
        if (line == "/set") continue;
        SCOPED_TRACE(line);
        Result result = chat(line + "\n");
        EXPECT_EQ(result.status, 1);
        EXPECT_EQ(result.out, "");
        expect_line(result.err, "");
    }
    std::string kept = scratch_folder() + "/kept.json";
    chat("/system stays\n/load " + odd + "\n/save " + kept + "\n");
    Result shown = run({"template", "-m", tiny_model(), "--messages", kept});
    EXPECT_NE(shown.out.find("stays"), std::string::npos) << shown.err;
}

TEST(Chat, says_what_to_do_when_the_context_is_full) {
    Result result = chat("the time of the day\n/stats\n", {"-n", "-1", "-c", "64"});
    EXPECT_NE(result.err.find("/reset"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("of 64 positions"), std::string::npos) << result.err;
    std::string words = "the";
    for (int i = 0; i < 100; i++) words += " the";
    Result refused = chat(words + "\n", {"-c", "64"});
    EXPECT_EQ(refused.status, 1);
    EXPECT_EQ(refused.out, "");
    expect_line(refused.err, "the context holds 64");
}

TEST(Chat, computes_only_what_is_new) {
    Result result = chat("a long enough first message\nagain\n/stats\n");
    EXPECT_NE(result.err.find("of them kept"), std::string::npos) << result.err;
}

TEST(Chat, ctrl_c_stops_the_answer_and_not_the_program) {
    if (!Terminal::available()) GTEST_SKIP() << "there are no pseudo-terminals here";
    Terminal terminal({"chat", "-m", tiny_model(), "--ignore-eos", "-c", "100000"});
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.send("the time\n");
    ASSERT_TRUE(terminal.wait_for("the time\r\n"));
    ASSERT_TRUE(terminal.wait_for(" "));
    terminal.send("\x03");
    ASSERT_TRUE(terminal.wait_for("the answer was stopped")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.send("half a line\x03");
    ASSERT_TRUE(terminal.wait_for("^C")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.send("/stats\n");
    ASSERT_TRUE(terminal.wait_for("stop: cancelled")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.send("\x04");
    EXPECT_EQ(terminal.finish(), 0) << terminal.seen();
}

TEST(Chat, remembers_lines_in_a_private_file) {
    if (!Terminal::available()) GTEST_SKIP() << "there are no pseudo-terminals here";
    std::string path = scratch_folder() + "/state/ridge/history";
    std::filesystem::remove(path);
    Terminal first({"chat", "-m", tiny_model(), "-n", "1"});
    ASSERT_TRUE(first.wait_for("> "));
    first.send("/set temp 0.25\n");
    ASSERT_TRUE(first.wait_for("> "));
    first.send("/exit\n");
    EXPECT_EQ(first.finish(), 0);
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    Terminal second({"chat", "-m", tiny_model(), "-n", "1"});
    ASSERT_TRUE(second.wait_for("> "));
    second.send("\x10\x10\n");  // two lines up
    ASSERT_TRUE(second.wait_for("/set temp 0.25")) << second.seen();
    ASSERT_TRUE(second.wait_for("> "));
    second.send("/set\n");
    EXPECT_TRUE(second.wait_for("temp 0.25\r\ntop-k")) << second.seen();
}

}  // namespace
}  // namespace ridge::cli
