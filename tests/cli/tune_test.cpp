#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

using Json = nlohmann::ordered_json;

// A cache of the test's own.
Setting with_cache(const std::string& name) {
    Setting setting;
    setting.environment["XDG_CACHE_HOME"] = scratch_folder() + "/tune-cache-" + name;
    return setting;
}

std::vector<std::string> files_of(const Setting& setting) {
    const std::string folder = setting.environment.at("XDG_CACHE_HOME") + "/ridge/tuning";
    std::vector<std::string> files;
    if (!std::filesystem::exists(folder)) return files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        files.push_back(entry.path());
    }
    return files;
}

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

const Arguments kWhere = {"--device", "cpu", "-t", "2"};

Arguments tune(const Arguments& more) {
    return with(with({"tune", "-m", tiny_model()}, kWhere), more);
}
// Two calls, in a second or two.
Arguments tune_attention(const Arguments& more = {}) {
    return with(tune({"--op", "attention", "-B", "1", "-d", "7", "-p", "8"}), more);
}

Arguments run_tiny(const Arguments& more) {
    return with(
        with({"run", "-m", tiny_model(), "--raw", "--greedy", "-n", "3", "--ids", "1,2,3,4,5,6,7"},
             kWhere),
        more);
}

TEST(Tune, keeps_what_it_finds_shows_it_and_later_runs_use_it) {
    const Setting setting = with_cache("found");
    const Result result = run(tune_attention({"--json"}), setting);
    ASSERT_EQ(result.status, 0) << result.err;
    expect_line(result.err, "tuned 2 of 2 calls in ");
    const Json json = Json::parse(result.out);
    ASSERT_EQ(json["calls"].size(), 2u);
    for (const Json& call : json["calls"]) {
        EXPECT_EQ(call["op"], "attention");
        for (const Json& one : call["cases"]) {
            EXPECT_GT(one["before_ns"], 0);
            EXPECT_LE(one["after_ns"], one["before_ns"]) << "faster, or as it was";
        }
    }
    const std::vector<std::string> files = files_of(setting);
    ASSERT_EQ(files.size(), 1u);
    EXPECT_EQ(json["file"], files[0]);
    struct stat status {};
    ASSERT_EQ(stat(files[0].c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);

    const Result shown = run(with({"tune", "--show"}, kWhere), setting);
    ASSERT_EQ(shown.status, 0) << shown.err;
    EXPECT_EQ(shown.err, "");
    EXPECT_NE(shown.out.find("prompts to 64 rows"), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find(files[0]), std::string::npos) << shown.out;
    const Result as_json = run(with({"tune", "--show", "--json"}, kWhere), setting);
    EXPECT_EQ(Json::parse(as_json.out), Json::parse(read(files[0])));

    const Result tuned = run(run_tiny({}), setting);
    EXPECT_NE(tuned.err.find(", 2 threads, tuned |"), std::string::npos) << tuned.err;
    const Result untuned = run(run_tiny({"--no-tuning"}), setting);
    EXPECT_EQ(untuned.err.find("tuned"), std::string::npos) << untuned.err;
    EXPECT_EQ(tuned.out, untuned.out);
    const Result other = run(with(run_tiny({}), {"-t", "1"}), setting);
    EXPECT_EQ(other.err.find("tuned"), std::string::npos) << "measured with two threads";

    const Arguments bench = with({"bench", "-m", tiny_model(), "-p", "0", "-n", "2", "-r", "1"},
                                 with(kWhere, {"-o", "json"}));
    const Json with_tuning = Json::parse(run(bench, setting).out);
    EXPECT_EQ(with_tuning[0]["tuning"]["n_choices"], 2);
    const Json without = Json::parse(run(with(bench, {"--no-tuning"}), setting).out);
    EXPECT_TRUE(without[0]["tuning"].is_null());
}

// Choices as far from the defaults as files may have them, for every call of the model.
TEST(Tune, no_choice_changes_a_bit_of_the_logits) {
    const Setting setting = with_cache("extreme");
    ASSERT_EQ(
        run(tune({"-B", "1", "-d", "7", "-p", "8,70", "--budget", "30", "-q"}), setting).status, 0);
    const std::vector<std::string> files = files_of(setting);
    ASSERT_EQ(files.size(), 1u);
    const Json kept = Json::parse(read(files[0]));
    ASSERT_GT(kept["choices"].size(), 4u);
    std::string ids = "1";
    for (int i = 2; i < 150; i++) ids += "," + std::to_string(i);
    auto hash = [&](const Arguments& prompt, const Arguments& more) {
        const Result result = run(with(with({"run", "-m", tiny_model(), "--raw", "--greedy", "-n",
                                             "3", "--json", "--logits-hash"},
                                            with(kWhere, more)),
                                       prompt),
                                  setting);
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(result.err.find("ignored"), std::string::npos) << result.err;
        const Json json = Json::parse(result.out);
        return json["logits_hash"].get<std::string>() + json["tokens"].dump();
    };
    for (const bool most : {false, true}) {
        Json extreme = kept;
        for (Json& choice : extreme["choices"]) {
            Json values = Json::object();
            const bool prompt = choice["rows"] == "prompt";
            if (choice["op"] == "matmul" && prompt) {
                values = {{"few_rows", most ? 64 : 0}, {"slice_blocks", most ? 64 : 8}};
            } else if (choice["op"] == "matmul") {
                values = {{"ahead_kib", most ? 64 : 1}, {"grain_kib", most ? 4096 : 1}};
            } else if (prompt) {
                values = {{"block_rows", most ? 512 : 1}};
            } else {
                values = {{"thread_items", most ? 256 : 1}};
            }
            choice["values"] = values;
        }
        write(files[0], extreme.dump());
        for (const Arguments& prompt :
             {Arguments{"--ids", "1,2,3,4,5,6,7"}, Arguments{"--ids", ids}}) {
            EXPECT_EQ(hash(prompt, {}), hash(prompt, {"--no-tuning"}));
        }
    }
}

TEST(Tune, what_is_stale_or_wrong_is_ignored_in_one_line) {
    const Setting setting = with_cache("wrong");
    const Result first_run = run(tune_attention({"-q"}), setting);
    ASSERT_EQ(first_run.status, 0) << first_run.err;
    const std::vector<std::string> files = files_of(setting);
    ASSERT_EQ(files.size(), 1u);
    const Json kept = Json::parse(read(files[0]));
    Json stale = kept, wrong = kept, out_of_range = kept;
    stale["build"] = "0.0.1 an-older-one";
    wrong["device"] = "Another \x1b[2J processor";
    out_of_range["choices"][0]["values"] = {{"thread_items", 1000000000}};
    const std::string untuned = run(run_tiny({"--no-tuning"}), setting).out;
    for (const auto& [bytes, why] :
         {std::pair(stale.dump(), "was measured with build 0.0.1 an-older-one, and this is"),
          std::pair(wrong.dump(), "is for another device, Another \\x1b[2J processor, "),
          std::pair(out_of_range.dump(), "thread_items is 1000000000, expected 1 to 256"),
          std::pair(std::string("{\"version\":"), "tuning ignored: "),
          std::pair(std::string(200, '['), "tuning ignored: "),
          std::pair(std::string("\xff\xfe\0x", 4), "tuning ignored: "),
          std::pair(std::string(5 << 20, ' '), "is larger than"), std::pair(std::string(), "")}) {
        SCOPED_TRACE(why);
        write(files[0], bytes);
        const Result result = run(run_tiny({}), setting);
        EXPECT_EQ(result.status, 0);
        EXPECT_EQ(result.out, untuned);
        const std::string first = result.err.substr(0, result.err.find('\n') + 1);
        expect_line(first, why);
        expect_line(first, "tuning ignored: ");
        EXPECT_EQ(result.err.find("ignored", first.size()), std::string::npos) << result.err;
        EXPECT_EQ(run(run_tiny({"-q"}), setting).err, "");
        const Result quiet = run(run_tiny({"--no-tuning"}), setting);
        EXPECT_EQ(quiet.err.find("ignored"), std::string::npos) << "it was not looked at";
        expect_error(with({"tune", "--show"}, kWhere), 1, "tuning ignored: ", setting);
    }
    const Result again = run(tune_attention(), setting);
    EXPECT_EQ(again.status, 0);
    EXPECT_EQ(run(with({"tune", "--show"}, kWhere), setting).status, 0) << "a whole one again";
}

TEST(Tune, choices_for_other_calls_stay) {
    const Setting setting = with_cache("other");
    ASSERT_EQ(run(tune_attention({"-q"}), setting).status, 0);
    ASSERT_EQ(
        run(tune({"--op", "attention", "-B", "1", "-d", "300", "-p", "70", "-q"}), setting).status,
        0);
    const std::vector<std::string> files = files_of(setting);
    ASSERT_EQ(files.size(), 1u);
    EXPECT_EQ(Json::parse(read(files[0]))["choices"].size(), 4u);
}

TEST(Tune, ctrl_c_leaves_what_was_found) {
    Setting setting = with_cache("interrupted");
    setting.interrupt_when = [&] {  // once something is kept
        const std::vector<std::string> files = files_of(setting);
        return files.size() == 1 && files[0].ends_with(".json");
    };
    const Result result = run(tune({"-B", "1,2,3,4", "--budget", "300"}), setting);
    EXPECT_EQ(result.status, 130) << result.err;
    EXPECT_NE(result.out.find("| before, us |"), std::string::npos) << result.out;
    EXPECT_NE(result.err.find("ridge: tuned "), std::string::npos) << result.err;
    const std::vector<std::string> files = files_of(setting);
    ASSERT_EQ(files.size(), 1u) << "and no temporary file";
    EXPECT_GE(Json::parse(read(files[0]))["choices"].size(), 1u);
}

TEST(Tune, what_can_no_longer_be_kept_is_shown) {
    Setting setting = with_cache("lost");
    const std::string folder = setting.environment.at("XDG_CACHE_HOME") + "/ridge/tuning";
    std::string file;
    // A folder takes the file's place once something is kept.
    setting.interrupt_when = [&] {
        const std::vector<std::string> files = files_of(setting);
        if (file.empty() && files.size() == 1 && files[0].ends_with(".json")) {
            file = files[0];
            std::filesystem::remove(file);
            std::filesystem::create_directory(file);
        }
        return false;
    };
    const Result result = run(tune({"--op", "attention", "-B", "1,2", "-d", "7,300"}), setting);
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.out.find("| before, us |"), std::string::npos) << result.out;
    expect_line(result.err, ": is a directory, expected the name of a file");
}

TEST(Tune, ends_when_its_time_is_over) {
    // On a machine that is busy a second may be over before the first call has been measured.
    int n_tuned = 0;
    for (int budget = 1; n_tuned == 0 && budget <= 256; budget *= 4) {
        const Setting setting = with_cache("budget" + std::to_string(budget));
        const Result result = run(tune({"--budget", std::to_string(budget)}), setting);
        ASSERT_EQ(result.status, 0) << result.err;
        expect_line(result.err, "; a larger --budget does more");
        ASSERT_EQ(sscanf(result.err.c_str(), "ridge: tuned %d of ", &n_tuned), 1) << result.err;
        const std::vector<std::string> files = files_of(setting);
        ASSERT_EQ(files.size(), n_tuned > 0 ? 1u : 0u);
        if (n_tuned == 0) continue;
        EXPECT_EQ(Json::parse(read(files[0]))["choices"].size(), static_cast<size_t>(n_tuned));
    }
    EXPECT_GT(n_tuned, 0);
}

TEST(Tune, runs_without_a_home_and_keeps_nothing) {
    Setting setting;
    setting.environment["HOME"] = "";
    const Result result = run(tune_attention(), setting);
    EXPECT_EQ(result.status, 0) << result.err;
    expect_line(result.err, "nothing was kept, since there is no home folder");
}

TEST(Tune, measures_nothing_that_it_could_not_keep) {
    Setting setting;
    setting.environment["XDG_CACHE_HOME"] = tiny_model();  // a file
    expect_error(tune_attention(), 1, "cannot make the folder", setting);
}

TEST(Tune, refuses_what_it_does_not_know) {
    expect_error({"tune"}, 2, "tune: no model: give -m MODEL");
    expect_error(tune({"--op", "softmax"}), 2, "--op \"softmax\": expected one of matmul");
    expect_error(tune({"--budget", "0"}), 2, "--budget \"0\": expected a whole number from 1");
    expect_error(tune({"-p", "0"}), 2, "--n-prompt \"0\"");
    expect_error({"tune", "--show", "--device", "abacus"}, 2,
                 "--device \"abacus\": expected one of");
    for (const Arguments& measured :
         {Arguments{"-m", "nosuch"}, {"--op", "matmul"}, {"-d", "7"}, {"--budget", "5"}}) {
        expect_error(with({"tune", "--show"}, measured), 2, "tune: --show and --");
    }
    expect_error(tune({"--device", "abacus"}), 2, "--device \"abacus\": expected one of");
    expect_error(with({"tune", "--show"}, kWhere), 1,
                 ", 2 threads yet; ridge tune -m MODEL measures it", with_cache("empty"));
}

}  // namespace
}  // namespace ridge::cli
