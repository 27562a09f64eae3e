#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/mapped_file.h"
#include "text/token.h"

namespace ridge {

// A text as `ridge eval` scores it: windows of equally many tokens, each read afresh. The tokens of
// the first half of a window are context; of the second half each but the last is scored by how
// well the next one is predicted. (Figures of llama.cpp's llama-perplexity are made the same way.)
struct EvalWindows {
    int64_t window = 0;         // tokens of one, at least kMinWindow
    std::vector<Token> tokens;  // [n_windows * window]
    int64_t n_positions = 0;    // scored: of the last window perhaps not all

    int64_t n_windows() const { return static_cast<int64_t>(tokens.size()) / window; }
    int64_t first_scored() const { return window / 2; }
    int64_t scored_of_window() const { return window - 1 - first_scored(); }
};
constexpr int64_t kMinWindow = 4;

// Cuts tokens into windows; what does not fill one is left out. `bos` takes the place of the first
// token of each. At most `max_positions` are scored (0: no limit). Error, that names `what`, where
// there is not one window.
EvalWindows cut_windows(std::vector<Token> tokens, int64_t window, std::optional<Token> bos,
                        int64_t max_positions, std::string_view what);

// Files of saved logits, little-endian:
//
//     offset  bytes
//          0  8      "RidgeLog"
//          8  4      version, 1
//         12  4      n_vocab
//         16  4      tokens of a window
//         20  4      n_windows
//         24  8      n_positions, that are scored
//         32  96     what made them, UTF-8, padded with zeros
//        128         tokens, int32 [n_windows, window]
//                    logits, float32 [n_positions, n_vocab]: window by window, in order
//
// and nothing behind.
class LogitsWriter {
  public:
    // `source` says what made the logits, and is cut to fit. An existing file is an error unless
    // `replace`.
    LogitsWriter(const std::string& path, bool replace, std::string_view source, int n_vocab,
                 const EvalWindows& windows);
    void append(std::span<const float> rows) { file_.append(as_bytes(rows)); }
    void commit() { file_.commit(); }  // without it there is no file

  private:
    template <class T>
    static std::string_view as_bytes(std::span<const T> values) {
        return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
    }
    FileWriter file_;
};

class LogitsFile {
  public:
    // Error, in one line, for anything that is not such a file.
    static LogitsFile open(const std::string& path);

    const std::string& path() const { return file_.path(); }
    const std::string& source() const { return source_; }  // printable
    int n_vocab() const { return n_vocab_; }
    const EvalWindows& windows() const { return windows_; }
    std::span<const float> row(int64_t position) const;  // [n_vocab], of the nth scored position

    // Error where it does not hold every position of `windows` of a model of n_vocab tokens.
    void check_holds(const EvalWindows& windows, int n_vocab) const;

  private:
    LogitsFile() = default;
    void read_header();
    void read_tokens();

    MappedFile file_;
    std::string source_;
    int n_vocab_ = 0;
    EvalWindows windows_;
    const float* rows_ = nullptr;  // [n_positions, n_vocab]
};

}  // namespace ridge
