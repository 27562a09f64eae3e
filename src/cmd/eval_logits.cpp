#include "cmd/eval_logits.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/error.h"
#include "base/printable.h"

namespace ridge {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written as memory has it");

constexpr std::string_view kMagic = "RidgeLog";
constexpr uint32_t kVersion = 1;
constexpr size_t kSourceBytes = 96;
constexpr int64_t kMaxVocab = int64_t{1} << 30, kMaxWindow = int64_t{1} << 30;

struct Header {
    char magic[8];
    uint32_t version, n_vocab, window, n_windows;
    uint64_t n_positions;
    char source[kSourceBytes];
};
static_assert(sizeof(Header) == 128);

}  // namespace

EvalWindows cut_windows(std::vector<Token> tokens, int64_t window, std::optional<Token> bos,
                        int64_t max_positions, std::string_view what) {
    CHECK(window >= kMinWindow && max_positions >= 0);
    EvalWindows windows;
    windows.window = window;
    int64_t n_windows = static_cast<int64_t>(tokens.size()) / window;
    const auto n_tokens = static_cast<int64_t>(tokens.size());
    if (n_tokens < kMinWindow) {
        throw Error("{}: {}, expected at least the {} of the smallest window", what,
                    counted(n_tokens, "token"), kMinWindow);
    }
    if (n_windows == 0) {
        throw Error("{}: {} tokens, expected at least the {} of one window; try -c {}", what,
                    n_tokens, window, n_tokens);
    }
    const int64_t each = windows.scored_of_window();
    if (max_positions > 0) n_windows = std::min(n_windows, (max_positions - 1) / each + 1);
    tokens.resize(static_cast<size_t>(n_windows * window));
    if (bos) {
        for (int64_t i = 0; i < n_windows; i++) tokens[static_cast<size_t>(i * window)] = *bos;
    }
    windows.tokens = std::move(tokens);
    windows.n_positions = n_windows * each;
    if (max_positions > 0) windows.n_positions = std::min(windows.n_positions, max_positions);
    return windows;
}

LogitsWriter::LogitsWriter(const std::string& path, bool replace, std::string_view source,
                           int n_vocab, const EvalWindows& windows)
    : file_(path, replace) {
    Header header = {};
    std::memcpy(header.magic, kMagic.data(), kMagic.size());
    header.version = kVersion;
    header.n_vocab = static_cast<uint32_t>(n_vocab);
    header.window = static_cast<uint32_t>(windows.window);
    header.n_windows = static_cast<uint32_t>(windows.n_windows());
    header.n_positions = static_cast<uint64_t>(windows.n_positions);
    std::memcpy(header.source, source.data(), std::min(source.size(), kSourceBytes));
    file_.append({reinterpret_cast<const char*>(&header), sizeof header});
    file_.append(as_bytes(std::span<const Token>(windows.tokens)));
}

LogitsFile LogitsFile::open(const std::string& path) {
    LogitsFile logits;
    logits.file_ = MappedFile::open(path);
    logits.read_header();
    logits.read_tokens();
    return logits;
}

// Every size that follows from the header is held against the file's before it is used.
void LogitsFile::read_header() {
    std::span<const std::byte> bytes = file_.bytes();
    const std::string name = printable(path());
    Header header;
    if (bytes.size() < sizeof header ||
        std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
        throw Error("{}: is no file of saved logits (its first bytes are not \"{}\")", name,
                    kMagic);
    }
    std::memcpy(&header, bytes.data(), sizeof header);
    auto check = [&](const char* what, int64_t value, int64_t min, int64_t max) {
        if (value >= min && value <= max) return;
        throw Error("{}: {} is {}, expected {} to {}", name, what, value, min, max);
    };
    check("the version", header.version, kVersion, kVersion);
    check("the number of tokens in the vocabulary", header.n_vocab, 1, kMaxVocab);
    check("the window", header.window, kMinWindow, kMaxWindow);
    check("the number of windows", header.n_windows, 1, kMaxWindow);
    const uint64_t scored = header.window - 1 - header.window / 2;
    if (header.n_positions == 0 || header.n_positions > header.n_windows * scored) {
        throw Error("{}: the number of positions is {}, expected 1 to {}", name, header.n_positions,
                    header.n_windows * scored);
    }
    std::optional<uint64_t> size =
        checked_mul(header.n_positions, uint64_t{header.n_vocab} * sizeof(float));
    const uint64_t n_tokens = uint64_t{header.n_windows} * header.window;
    if (size) size = checked_add(*size, sizeof header + n_tokens * sizeof(Token));
    if (!size || *size != bytes.size()) {
        throw Error("{}: is {} bytes, expected {} ({} windows of {} tokens, {} positions of {})",
                    name, bytes.size(), size ? fmt::to_string(*size) : "more than 2^64",
                    header.n_windows, header.window, header.n_positions, header.n_vocab);
    }
    n_vocab_ = static_cast<int>(header.n_vocab);
    windows_.window = header.window;
    windows_.n_positions = static_cast<int64_t>(header.n_positions);
    windows_.tokens.resize(static_cast<size_t>(n_tokens));
    source_ = printable({header.source, strnlen(header.source, kSourceBytes)});
}

void LogitsFile::read_tokens() {
    const std::byte* at = file_.bytes().data() + sizeof(Header);
    const size_t n_bytes = windows_.tokens.size() * sizeof(Token);
    std::memcpy(windows_.tokens.data(), at, n_bytes);
    for (Token token : windows_.tokens) {
        if (token >= 0 && token < n_vocab_) continue;
        throw Error("{}: token {} is not in the vocabulary, expected 0 to {}", printable(path()),
                    token, n_vocab_ - 1);
    }
    rows_ = reinterpret_cast<const float*>(at + n_bytes);  // mapped at a page: 4 divides the offset
}

std::span<const float> LogitsFile::row(int64_t position) const {
    CHECK(position >= 0 && position < windows_.n_positions);
    return {rows_ + position * n_vocab_, static_cast<size_t>(n_vocab_)};
}

void LogitsFile::check_holds(const EvalWindows& windows, int n_vocab) const {
    const std::string name = printable(path());
    if (n_vocab != n_vocab_) {
        throw Error("{}: has logits of {} tokens, the model's vocabulary has {}", name, n_vocab_,
                    n_vocab);
    }
    if (windows.window != windows_.window) {
        throw Error("{}: was made with windows of {} tokens, expected {}; try -c {}", name,
                    windows_.window, windows.window, windows_.window);
    }
    if (windows.n_positions > windows_.n_positions) {
        throw Error("{}: holds {} positions, expected {}; try --max-positions {}", name,
                    windows_.n_positions, windows.n_positions, windows_.n_positions);
    }
    auto differs = std::mismatch(windows.tokens.begin(), windows.tokens.end(),
                                 windows_.tokens.begin(), windows_.tokens.end());
    if (differs.first == windows.tokens.end()) return;
    throw Error("{}: was made of another text: its token {} is {}, expected {}", name,
                differs.first - windows.tokens.begin(), *differs.second, *differs.first);
}

}  // namespace ridge
