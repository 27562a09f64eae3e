#include "engine/tuning_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace ridge {
namespace {

TuningKey cpu_key() {
    return {"cpu", "A Processor (TM) of 3.0 GHz", "avx2", 4, "0.1.0 abc"};
}

MatmulCall gate_and_up() {
    MatmulCall call{RowClass::kDecode, 1, 576, {}};
    call.weights[0] = call.weights[1] = {1536, FormatId::kQ4_1};
    return call;
}

TuningCache small_cache() {
    TuningCache cache;
    cache.key = cpu_key();
    cache.time = "2026-11-30T14:05:11Z";
    MatmulChoice matmul{gate_and_up(), {}, 300, 200};
    matmul.values.ahead_kib = 12, matmul.values.grain_kib = 64;
    cache.add(matmul);
    AttentionChoice attention{{RowClass::kPrompt, kFewPrompts, 9, 3, 64}, {}, 50, 50};
    cache.add(attention);
    return cache;
}

// What is wrong with the file after one change of it; empty: nothing.
std::string fault_after(const std::function<void(Json&)>& change) {
    Json json = parse_json(tuning_text(small_cache()), "a test");
    change(json);
    try {
        parse_tuning(json.dump(), "tuning.json");
    } catch (const Error& e) {
        return e.what();
    }
    return {};
}

std::string new_folder() {
    static int n = 0;
    std::string folder =
        testing::TempDir() + "ridge-tuning-" + std::to_string(getpid()) + "-" + std::to_string(n++);
    make_folders(folder);
    return folder;
}

void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

TEST(TuningCache, comes_back_as_it_was_written) {
    const TuningCache cache = small_cache(), again = parse_tuning(tuning_text(cache), "a test");
    EXPECT_EQ(again.key, cache.key);
    EXPECT_EQ(again.time, cache.time);
    ASSERT_EQ(again.matmuls.size(), 1u);
    EXPECT_EQ(again.matmuls[0].call, cache.matmuls[0].call);
    EXPECT_EQ(again.matmuls[0].values, cache.matmuls[0].values);
    EXPECT_EQ(again.matmuls[0].before_ns, 300);
    EXPECT_EQ(again.matmuls[0].after_ns, 200);
    ASSERT_EQ(again.attentions.size(), 1u);
    EXPECT_EQ(again.attentions[0].call, cache.attentions[0].call);
    EXPECT_EQ(again.attentions[0].values, AttentionTuning());
    EXPECT_EQ(tuning_text(again), tuning_text(cache));
    EXPECT_EQ(again.n_choices(), 2u);
    EXPECT_EQ(again.n_changes(), 1u) << "the other one is what runs without it";
}

TEST(TuningCache, a_new_choice_takes_the_place_of_the_one_for_the_same_call) {
    TuningCache cache = small_cache();
    cache.add(MatmulChoice{gate_and_up(), {}, 300, 300});
    ASSERT_EQ(cache.matmuls.size(), 1u);
    EXPECT_EQ(cache.matmuls[0].values, MatmulTuning());
    MatmulCall other = gate_and_up();
    other.size = 2;
    cache.add(MatmulChoice{other, {}, 1, 1});
    EXPECT_EQ(cache.matmuls.size(), 2u);
}

TEST(TuningCache, a_full_one_forgets_the_oldest_and_its_file_can_be_read) {
    const std::string folder = new_folder();
    TuningCache cache = small_cache();
    for (int64_t d_in = 1; d_in <= 1100; d_in++) {
        MatmulChoice choice{gate_and_up(), {}, 1234567.89012, 1234567.89012};
        choice.call.d_in = d_in, choice.call.weights[2] = {1'000'000, FormatId::kAffine4};
        choice.values.ahead_kib = 12, choice.values.grain_kib = 4096;
        cache.add(choice);
    }
    add_to_tuning(folder, cache);
    const LoadedTuning loaded = load_tuning(folder, cpu_key());
    ASSERT_TRUE(loaded.cache.has_value()) << loaded.ignored;
    EXPECT_EQ(loaded.cache->n_choices(), cache.n_choices());
    EXPECT_EQ(loaded.cache->matmuls.back().call.d_in, 1100);
    EXPECT_LT(loaded.cache->matmuls.size(), 1100u);
    EXPECT_EQ(loaded.cache->tuning().of(gate_and_up()), MatmulTuning());
}

TEST(TuningCache, says_what_a_call_and_its_changes_are) {
    const TuningCache cache = small_cache();
    EXPECT_EQ(call_text(cache.matmuls[0].call), "matmul: 576 x Q4_1 1536 + Q4_1 1536, 1 row");
    EXPECT_EQ(changes_text(cache.matmuls[0].values), "ahead_kib 12, grain_kib 64");
    EXPECT_EQ(changes_text(MatmulTuning()), "");
    EXPECT_EQ(call_text(cache.attentions[0].call),
              "attention: 9 heads of 64, 3 of K and V in f16, prompts to 64 rows");
}

TEST(TuningCache, every_value_of_a_file_is_checked) {
    EXPECT_EQ(fault_after([](Json&) {}), "");
    const auto at = [](Json& json) -> Json& { return json["choices"][0]; };
    const std::pair<std::function<void(Json&)>, const char*> faults[] = {
        {[](Json& j) { j = Json::array(); }, "tuning.json is array, expected an object"},
        {[](Json& j) { j["version"] = 2; }, "version is 2, expected 1 to 1"},
        {[](Json& j) { j.erase("build"); }, "tuning.json has no build"},
        {[](Json& j) { j["backend"] = "abacus"; },
         "backend is \"abacus\", expected one of cpu, cuda"},
        {[](Json& j) { j["device"] = 7; }, "device is number, expected a string"},
        {[](Json& j) { j["device"] = std::string(300, 'x'); }, "device has 300 bytes"},
        {[](Json& j) { j["n_threads"] = 1u << 31; }, "n_threads is 2147483648, expected 0 to 1024"},
        {[](Json& j) { j["choices"] = 1; }, "choices is number, expected an array"},
        {[](Json& j) { j["choices"] = Json(std::vector<int>(2049)); },
         "it has 2049 choices, expected at most 2048"},
        {[&](Json& j) { at(j)["values"] = 1; }, "choice 1: values is number, expected an object"},
        {[](Json& j) { j["choices"][1] = nullptr; }, "choice 2 is null, expected an object"},
        {[&](Json& j) { at(j)["op"] = "softmax"; },
         "choice 1: op is \"softmax\", expected one of matmul"},
        {[&](Json& j) { at(j)["rows"] = "many"; },
         "rows is \"many\", expected one of prompt, decode"},
        {[&](Json& j) { at(j)["size"] = -1; }, "size is -1, expected 0 to"},
        {[&](Json& j) { at(j)["d_in"] = 0; }, "d_in is 0, expected 1 to"},
        {[&](Json& j) { at(j)["d_in"] = 1e300; }, "d_in is 1e+300, expected 1 to"},
        {[&](Json& j) { at(j)["d_in"] = UINT64_MAX; }, "d_in is 18446744073709551615, expected"},
        {[&](Json& j) { at(j)["weights"] = Json::array(); }, "expected one to three weights"},
        {[&](Json& j) { at(j)["weights"][0]["format"] = "Q99"; }, "unknown format \"Q99\""},
        {[&](Json& j) { at(j)["weights"][0]["d_out"] = "8"; }, "d_out is \"8\", expected 1 to"},
        {[&](Json& j) { at(j)["values"]["ahead_kib"] = 65; }, "ahead_kib is 65, expected 0 to 64"},
        {[&](Json& j) { at(j)["values"]["ahead_kib"] = 1.5; }, "ahead_kib is 1.5, expected 0"},
        {[&](Json& j) { at(j)["values"]["slice_blocks"] = 8; },
         "\"slice_blocks\" is no value of such a call"},
        {[&](Json& j) { at(j)["values"]["way"] = 1; }, "\"way\" is no value of such a call"},
        {[&](Json& j) { at(j)["values"]["\x1b[2J"] = 1; }, "\"\\x1b[2J\" is no value"},
        {[&](Json& j) {
             at(j)["rows"] = "prompt";
             at(j)["values"] = {{"slice_blocks", 12}};
         },
         "slice_blocks is 12, expected a multiple of 8"},
        {[&](Json& j) { at(j)["before_ns"] = -1; }, "before_ns is -1, expected nanoseconds"},
        {[&](Json& j) { at(j)["after_ns"] = nullptr; }, "after_ns is null, expected nanoseconds"},
        {[](Json& j) { j["choices"][1]["type_k"] = "q3"; },
         "type_k is \"q3\", expected one of f32"},
        {[](Json& j) { j["choices"][1]["n_heads"] = 1 << 30; }, "n_heads is 1073741824, expected"},
    };
    for (const auto& [change, what] : faults) {
        const std::string fault = fault_after(change);
        EXPECT_NE(fault.find(what), std::string::npos) << "\"" << fault << "\" lacks " << what;
        EXPECT_EQ(fault.find('\n'), std::string::npos);
        EXPECT_EQ(fault.find('\x1b'), std::string::npos);
    }
}

TEST(TuningCache, texts_that_are_no_such_files_are_errors) {
    const std::string whole = tuning_text(small_cache());
    for (const std::string& text :
         {std::string(), std::string("{"), std::string("null"), std::string(70, '['),
          whole.substr(0, whole.size() / 2), whole + "x", "\xff" + whole}) {
        EXPECT_THROW(parse_tuning(text, "a test"), Error) << text.substr(0, 40);
    }
}

TEST(TuningCache, has_a_file_for_each_device) {
    const std::string path = tuning_path("/folder", cpu_key());
    EXPECT_EQ(path, "/folder/cpu-a-processor-tm-of-3-0-ghz-avx2-4-threads.json");
    TuningKey other = cpu_key();
    other.build = "0.2.0 def";
    EXPECT_EQ(tuning_path("/folder", other), path) << "a new build writes over the old one's";
    other.n_threads = 1;
    EXPECT_NE(tuning_path("/folder", other), path);
    const TuningKey gpu = tuning_key("NVIDIA H200", "avx2", 4, "b");
    EXPECT_EQ(tuning_path("/folder", gpu), "/folder/cuda-nvidia-h200.json");
    EXPECT_EQ(gpu.n_threads, 0) << "which are nothing to a GPU";
    TuningKey hostile = cpu_key();
    hostile.device = "../../etc/\n";
    EXPECT_EQ(tuning_path("/folder", hostile), "/folder/cpu-etc-avx2-4-threads.json");
}

TEST(TuningCache, is_found_again_and_no_other_device_s_or_build_s) {
    const std::string folder = new_folder() + "/deeper";
    EXPECT_FALSE(load_tuning(folder, cpu_key()).cache.has_value());
    EXPECT_EQ(load_tuning(folder, cpu_key()).ignored, "") << "nothing is there, and nothing said";
    add_to_tuning(folder, small_cache());
    const LoadedTuning loaded = load_tuning(folder, cpu_key());
    ASSERT_TRUE(loaded.cache.has_value()) << loaded.ignored;
    EXPECT_EQ(loaded.cache->tuning().of(gate_and_up()).ahead_kib, 12);

    TuningKey newer = cpu_key();
    newer.build = "0.1.0 def";
    const LoadedTuning stale = load_tuning(folder, newer);
    EXPECT_FALSE(stale.cache.has_value());
    EXPECT_NE(stale.ignored.find("was measured with build 0.1.0 abc, and this is 0.1.0 def"),
              std::string::npos)
        << stale.ignored;

    TuningCache of_another = small_cache();
    of_another.key.device = "Another";
    put(tuning_path(folder, cpu_key()), tuning_text(of_another));
    const LoadedTuning wrong = load_tuning(folder, cpu_key());
    EXPECT_FALSE(wrong.cache.has_value());
    EXPECT_NE(wrong.ignored.find("is for another device, Another, avx2, 4 threads"),
              std::string::npos)
        << wrong.ignored;
    EXPECT_FALSE(load_tuning("", cpu_key()).cache.has_value()) << "without a home";
}

TEST(TuningCache, what_cannot_be_read_is_ignored_in_one_line) {
    const std::string folder = new_folder(), path = tuning_path(folder, cpu_key());
    put(path, "{\"version\": 1}\n");
    EXPECT_NE(load_tuning(folder, cpu_key()).ignored.find("has no backend"), std::string::npos);
    put(path, std::string((4 << 20) + 1, ' '));
    EXPECT_NE(load_tuning(folder, cpu_key()).ignored.find("larger than"), std::string::npos);
    ASSERT_EQ(std::remove(path.c_str()), 0);
    make_folders(path);
    const std::string folder_there = load_tuning(folder, cpu_key()).ignored;
    EXPECT_EQ(folder_there.rfind("tuning ignored: ", 0), 0u) << folder_there;
    EXPECT_EQ(folder_there.find('\n'), std::string::npos);
    ASSERT_EQ(rmdir(path.c_str()), 0);
    // One that somebody holds open for writing has no end.
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const int held = open(path.c_str(), O_RDWR);
    ASSERT_GE(held, 0);
    EXPECT_NE(load_tuning(folder, cpu_key()).ignored.find("is a device, a FIFO or a socket"),
              std::string::npos);
    close(held);
}

TEST(TuningCache, choices_of_two_that_run_at_once_add_up) {
    const std::string folder = new_folder();
    constexpr int64_t kEach = 40;
    const auto add = [&](int64_t first) {
        TuningCache found;
        found.key = cpu_key();
        for (int64_t d_in = first; d_in < first + kEach; d_in++) {
            MatmulChoice choice{gate_and_up(), {}, 2, 1};
            choice.call.d_in = d_in;
            found.add(choice);
            add_to_tuning(folder, found);
        }
    };
    std::thread one(add, 1), other(add, 1001);
    one.join(), other.join();
    const LoadedTuning loaded = load_tuning(folder, cpu_key());
    ASSERT_TRUE(loaded.cache.has_value()) << loaded.ignored;
    EXPECT_EQ(loaded.cache->matmuls.size(), 2 * static_cast<size_t>(kEach));
}

TEST(TuningCache, choices_take_the_place_of_a_file_that_is_not_for_them) {
    const std::string folder = new_folder();
    TuningCache older = small_cache();
    older.key.build = "0.0.9 old";
    add_to_tuning(folder, older);
    TuningCache found;
    found.key = cpu_key();
    found.add(MatmulChoice{gate_and_up(), {}, 2, 1});
    add_to_tuning(folder, found);
    const LoadedTuning loaded = load_tuning(folder, cpu_key());
    ASSERT_TRUE(loaded.cache.has_value()) << loaded.ignored;
    EXPECT_EQ(loaded.cache->n_choices(), 1u);
}

}  // namespace
}  // namespace ridge
