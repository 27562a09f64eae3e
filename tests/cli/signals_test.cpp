#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

// An empty folder of this name.
std::string fresh_folder(const std::string& name) {
    std::string folder = scratch_folder() + "/" + name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    return folder;
}

// As soon as the program has made a file there, under whatever name.
Setting signal_once_writing(int number, const std::string& folder) {
    Setting setting;
    setting.signal = number;
    setting.interrupt_when = [folder] { return !std::filesystem::is_empty(folder); };
    return setting;
}

TEST(Signals, that_ask_to_end_leave_no_file_and_their_own_status) {
    std::string words;
    for (int i = 0; i < 20000; i++) words += "word" + std::to_string(i) + " ";
    const std::string text = write_scratch("many.txt", words), folder = fresh_folder("signals");
    for (auto [number, status] :
         {std::pair(SIGINT, 130), std::pair(SIGTERM, 143), std::pair(SIGHUP, 129)}) {
        for (const Arguments& arguments :
             {Arguments{"synth", "llama-3.2-1b", "--format", "Q8_0", "-o", folder + "/x"},
              Arguments{"eval", "-m", tiny_model(), "-f", text, "--save-logits", folder + "/x"}}) {
            SCOPED_TRACE(arguments[0] + ", signal " + std::to_string(number));
            Result result = run(arguments, signal_once_writing(number, folder));
            EXPECT_EQ(result.status, status);
            EXPECT_EQ(result.out + result.err, "");
            EXPECT_TRUE(std::filesystem::is_empty(folder));
        }
    }
}

TEST(Signals, sigterm_keeps_the_text_of_run_and_ends_a_chat) {
    Setting setting;
    setting.signal = SIGTERM;
    setting.interrupt_after = " ";
    Result result = run(
        {"run", "-m", tiny_model(), "--raw", "-p", "the", "--ignore-eos", "-c", "100000"}, setting);
    EXPECT_EQ(result.status, 143);
    EXPECT_NE(result.err.find("stop: cancelled"), std::string::npos) << result.err;
    setting.input = "hi\n";
    result = run({"chat", "-m", tiny_model(), "--ignore-eos", "-c", "100000"}, setting);
    EXPECT_EQ(result.status, 143);
}

TEST(Signals, a_file_beyond_the_limit_is_an_error_and_is_not_left) {
    const std::string folder = fresh_folder("limited");
    Setting setting;
    setting.max_file_bytes = 100'000;
    expect_error({"synth", "tiny-llama3", "--format", "Q4_0", "-o", folder + "/x"}, 1,
                 "/x: cannot write: File too large", setting);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace ridge::cli
