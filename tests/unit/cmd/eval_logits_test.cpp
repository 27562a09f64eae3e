#include "cmd/eval_logits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"
#include "support/error_of.h"
#include "support/seed.h"
#include "support/temporary_folder.h"

namespace ridge {
namespace {

constexpr int kVocab = 7;

std::vector<Token> counting(size_t n) {
    std::vector<Token> tokens(n);
    for (size_t i = 0; i < n; i++) tokens[i] = static_cast<Token>(i % kVocab);
    return tokens;
}

EvalWindows windows_of(size_t n_tokens, int64_t window, int64_t max_positions = 0) {
    return cut_windows(counting(n_tokens), window, std::nullopt, max_positions, "text");
}

std::vector<float> numbers(int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    std::iota(values.begin(), values.end(), 0.5f);
    return values;
}

// A good file of `windows`; its bytes are also `bytes`.
std::string write_good(const TemporaryFolder& folder, const EvalWindows& windows) {
    std::string path = folder.path("good.logits");
    LogitsWriter writer(path, true, "a model", kVocab, windows);
    writer.append(numbers(windows.n_positions * kVocab));
    writer.commit();
    return path;
}

TEST(CutWindows, leaves_out_what_fills_none_and_puts_bos_first) {
    EvalWindows windows = cut_windows(counting(27), 8, 99, 0, "text");
    EXPECT_EQ(windows.n_windows(), 3);
    EXPECT_EQ(windows.first_scored(), 4);
    EXPECT_EQ(windows.scored_of_window(), 3);
    EXPECT_EQ(windows.n_positions, 9);
    for (size_t i = 0; i < 24; i++)
        EXPECT_EQ(windows.tokens[i], i % 8 == 0 ? 99 : static_cast<Token>(i % kVocab));
    windows = windows_of(27, 9);
    EXPECT_EQ(windows.first_scored(), 4);
    EXPECT_EQ(windows.n_positions, 12);
}

TEST(CutWindows, keeps_as_many_windows_as_the_positions_need) {
    for (int64_t most = 1; most < 20; most++) {
        EvalWindows windows = windows_of(27, 8, most);
        EXPECT_EQ(windows.n_positions, std::min<int64_t>(most, 9));
        EXPECT_EQ(windows.n_windows(), (windows.n_positions + 2) / 3);
    }
}

TEST(CutWindows, says_what_would_fit) {
    EXPECT_EQ(error_of([] { windows_of(5, 8); }),
              "text: 5 tokens, expected at least the 8 of one window; try -c 5");
    EXPECT_NE(error_of([] { windows_of(2, 8); }).find("text: 2 tokens"), std::string::npos);
}

TEST(LogitsFile, gives_back_what_was_written) {
    TemporaryFolder folder;
    EvalWindows windows = windows_of(27, 8, 8);
    LogitsFile file = LogitsFile::open(write_good(folder, windows));
    EXPECT_EQ(file.source(), "a model");
    EXPECT_EQ(file.n_vocab(), kVocab);
    EXPECT_EQ(file.windows().tokens, windows.tokens);
    EXPECT_EQ(file.windows().n_positions, 8);
    std::vector<float> want = numbers(8 * kVocab);
    for (int64_t i = 0; i < 8; i++) {
        std::span<const float> row = file.row(i);
        ASSERT_EQ(row.size(), size_t{kVocab});
        EXPECT_EQ(std::memcmp(row.data(), want.data() + i * kVocab, row.size_bytes()), 0);
    }
    file.check_holds(windows, kVocab);
    file.check_holds(windows_of(27, 8, 2), kVocab);  // fewer are as good
}

TEST(LogitsFile, says_how_it_does_not_match) {
    TemporaryFolder folder;
    LogitsFile file = LogitsFile::open(write_good(folder, windows_of(27, 8)));
    auto said = [&](const EvalWindows& windows, int n_vocab, const char* part) {
        std::string message = error_of([&] { file.check_holds(windows, n_vocab); });
        EXPECT_NE(message.find(part), std::string::npos) << message;
        EXPECT_NE(message.find("good.logits: "), std::string::npos) << message;
    };
    said(windows_of(27, 8), 8, "has logits of 7 tokens, the model's vocabulary has 8");
    said(windows_of(27, 9), kVocab, "try -c 8");
    said(windows_of(32, 8), kVocab, "try --max-positions 9");
    EvalWindows other = windows_of(27, 8);
    other.tokens[10] = 6;
    said(other, kVocab, "another text: its token 10 is 3, expected 6");
}

TEST(LogitsFile, leaves_an_existing_file_alone_and_nothing_behind) {
    TemporaryFolder folder;
    std::string path = folder.write("mine", "precious");
    EvalWindows windows = windows_of(27, 8);
    EXPECT_NE(error_of([&] { LogitsWriter(path, false, "", kVocab, windows); }).find("exists"),
              std::string::npos);
    { LogitsWriter unfinished(path, true, "", kVocab, windows); }
    EXPECT_EQ(folder.read("mine"), "precious");
    EXPECT_EQ(list_folder(folder.path()).size(), 1u);
}

// Each wrong number is refused by name; a file of another length by both lengths.
TEST(LogitsFile, refuses_hostile_headers_in_one_line) {
    TemporaryFolder folder;
    write_good(folder, windows_of(27, 8));
    const std::string good = folder.read("good.logits");
    struct Bad {
        size_t offset, n_bytes;
        uint64_t value;
        const char* said;
    };
    for (Bad bad : {Bad{0, 1, 'X', "its first bytes are not \"RidgeLog\""},
                    Bad{8, 4, 2, "the version is 2"}, Bad{12, 4, 0, "the vocabulary is 0"},
                    Bad{12, 4, 0xffffffff, "the vocabulary is 4294967295"},
                    Bad{12, 4, 1u << 30, "expected"}, Bad{12, 4, 6, "is 476 bytes, expected 440"},
                    Bad{16, 4, 0, "the window is 0"}, Bad{16, 4, 3, "the window is 3"},
                    Bad{16, 4, 1u << 30, "expected"}, Bad{20, 4, 0, "the number of windows is 0"},
                    Bad{20, 4, 1u << 30, "expected"}, Bad{24, 8, 0, "the number of positions is 0"},
                    Bad{24, 8, 10, "the number of positions is 10, expected 1 to 9"},
                    Bad{24, 8, ~uint64_t{0}, "the number of positions"},
                    Bad{128, 4, 7, "token 7 is not in the vocabulary"},
                    Bad{220, 4, 0xffffffff, "token -1 is not in the vocabulary"}}) {
        std::string bytes = good;
        std::memcpy(bytes.data() + bad.offset, &bad.value, bad.n_bytes);
        std::string path = folder.write("bad", bytes);
        std::string message = error_of([&] { LogitsFile::open(path); });
        EXPECT_NE(message.find(bad.said), std::string::npos) << bad.offset << ": " << message;
        EXPECT_EQ(message.find('\n'), std::string::npos);
    }
    // Sizes whose product does not fit into 64 bits.
    std::string bytes = good;
    const uint32_t many = 1u << 30;
    const uint64_t positions = uint64_t{1} << 58;
    for (size_t offset : {size_t{12}, size_t{16}, size_t{20}})
        std::memcpy(bytes.data() + offset, &many, sizeof many);
    std::memcpy(bytes.data() + 24, &positions, sizeof positions);
    std::string path = folder.write("vast", bytes);
    EXPECT_NE(error_of([&] { LogitsFile::open(path); }).find("more than 2^64"), std::string::npos);
}

TEST(LogitsFile, bears_every_cut_and_random_damage) {
    TemporaryFolder folder;
    write_good(folder, windows_of(27, 8));
    const std::string good = folder.read("good.logits");
    for (size_t n = 0; n < good.size(); n++) {
        std::string path = folder.write("cut", good.substr(0, n));
        EXPECT_NE(error_of([&] { LogitsFile::open(path); }), "no error") << n;
    }
    std::string longer = folder.write("longer", good + "x");
    EXPECT_NE(error_of([&] { LogitsFile::open(longer); }).find("expected 476"), std::string::npos);
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < 500; i++) {
        std::string bytes = good;
        bytes[random() % 224] = static_cast<char>(random());
        std::string path = folder.write("damaged", bytes);
        try {
            LogitsFile file = LogitsFile::open(path);
            EXPECT_EQ(file.row(file.windows().n_positions - 1).size(), size_t{kVocab});
        } catch (const Error&) {
        }
    }
    EXPECT_NE(error_of([&] { LogitsFile::open(folder.path()); }), "no error");
    EXPECT_NE(error_of([&] { LogitsFile::open(folder.path("none")); }), "no error");
}

TEST(LogitsFile, shows_no_control_characters_of_its_source) {
    TemporaryFolder folder;
    EvalWindows windows = windows_of(27, 8);
    std::string path = folder.path("steering");
    {
        LogitsWriter writer(path, false, "\x1b[2J" + std::string(200, 'x'), kVocab, windows);
        writer.append(numbers(windows.n_positions * kVocab));
        writer.commit();
    }
    EXPECT_EQ(LogitsFile::open(path).source(), "\\x1b[2J" + std::string(92, 'x'));
}

}  // namespace
}  // namespace ridge
