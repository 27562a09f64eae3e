#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"

namespace ridge {
namespace {

// Hangul syllables compose by arithmetic (The Unicode Standard, section 3.12).
constexpr uint32_t kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11a7, kSBase = 0xac00;
constexpr uint32_t kNumL = 19, kNumV = 21, kNumT = 28, kNumS = kNumL * kNumV * kNumT;

// Nothing above has a decomposition, a combining class or a composition.
constexpr uint32_t kTableEnd = 0x30000;
constexpr int kMaxDecomposition = 8;  // the longest canonical one has 4 code points

struct CodeRange {
    uint32_t first, last;
};

// Marks and composites that came after Unicode 9, the version by which the published tokenizers
// compose: these take them for characters that neither move nor compose.
constexpr CodeRange kLateCodes[] = {
    {0x07fd, 0x07fd},   {0x0897, 0x089f},   {0x08ca, 0x08d3},   {0x09fe, 0x09fe},
    {0x0c3c, 0x0c3c},   {0x0d3b, 0x0d3c},   {0x0eba, 0x0eba},   {0x1715, 0x1715},
    {0x1abf, 0x1aeb},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efa, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11380, 0x113e2},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
    {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16100, 0x1612f}, {0x16d40, 0x16d6c}, {0x16ff0, 0x16ff1},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef},
};

bool is_late(uint32_t code) {
    auto after = std::upper_bound(
        std::begin(kLateCodes), std::end(kLateCodes), code,
        [](uint32_t value, const CodeRange& range) { return value < range.first; });
    return after != std::begin(kLateCodes) && code <= std::prev(after)->last;
}

int decompose(uint32_t code, utf8proc_int32_t (&out)[kMaxDecomposition]) {
    int boundary = 0;
    auto n = is_late(code)
                 ? 0
                 : utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), out,
                                           kMaxDecomposition, UTF8PROC_DECOMPOSE, &boundary);
    if (n >= 1 && n <= kMaxDecomposition) return static_cast<int>(n);
    out[0] = static_cast<utf8proc_int32_t>(code);
    return 1;
}

uint8_t combining_class(uint32_t code) {
    if (is_late(code)) return 0;
    return static_cast<uint8_t>(
        utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class);
}

// What the composed form of a decomposition is where that is one code point; else 0.
uint32_t composed(const utf8proc_int32_t* codes, int n) {
    utf8proc_int32_t buffer[kMaxDecomposition];
    std::copy(codes, codes + n, buffer);
    auto n_left = utf8proc_normalize_utf32(
        buffer, n, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return n_left == 1 ? static_cast<uint32_t>(buffer[0]) : 0;
}

uint64_t pair_key(uint32_t first, uint32_t second) {
    return uint64_t{first} << 32 | second;
}

struct CompositionTables {
    // Code points that may change, or may change what stands before them: all but starters that
    // are their own composed form and are not the second half of a composition.
    std::bitset<kTableEnd> unsafe;
    std::unordered_map<uint64_t, uint32_t> pairs;  // pair_key(first, second) -> composite

    CompositionTables() {
        for (uint32_t code = 0x80; code < kTableEnd; code++) {
            if (code >= kSBase && code < kSBase + kNumS) continue;
            if (combining_class(code) != 0) unsafe.set(code);
            utf8proc_int32_t parts[kMaxDecomposition];
            int n = decompose(code, parts);
            if (n == 1) {
                if (static_cast<uint32_t>(parts[0]) != code) unsafe.set(code);
            } else if (composed(parts, n) == code) {
                uint32_t second = static_cast<uint32_t>(parts[n - 1]);
                pairs.emplace(pair_key(composed(parts, n - 1), second), code);
                unsafe.set(second);
            } else {
                unsafe.set(code);
            }
        }
        for (uint32_t i = 0; i < kNumV; i++) unsafe.set(kVBase + i);
        for (uint32_t i = 1; i < kNumT; i++) unsafe.set(kTBase + i);
    }
};

const CompositionTables& tables() {
    static const auto built = std::make_unique<const CompositionTables>();
    return *built;
}

bool is_unsafe(uint32_t code) {
    return code >= 0x300 && code < kTableEnd && tables().unsafe.test(code);
}

// The composite of two code points; 0: none.
uint32_t compose_pair(uint32_t first, uint32_t second) {
    if (first - kLBase < kNumL && second - kVBase < kNumV) {
        return kSBase + ((first - kLBase) * kNumV + (second - kVBase)) * kNumT;
    }
    if (first - kSBase < kNumS && (first - kSBase) % kNumT == 0 && second - kTBase < kNumT &&
        second != kTBase) {
        return first + (second - kTBase);
    }
    auto found = tables().pairs.find(pair_key(first, second));
    return found == tables().pairs.end() ? 0 : found->second;
}

struct CodePoint {
    uint32_t code;
    uint8_t combining_class;
};

// Puts each run of marks in canonical order: by combining class, equal ones as they were.
void order_marks(std::vector<CodePoint>& codes) {
    auto by_class = [](const CodePoint& a, const CodePoint& b) {
        return a.combining_class < b.combining_class;
    };
    for (size_t i = 0; i < codes.size();) {
        if (codes[i].combining_class == 0) {
            i++;
            continue;
        }
        size_t end = i;
        while (end < codes.size() && codes[end].combining_class != 0) end++;
        std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(i),
                         codes.begin() + static_cast<ptrdiff_t>(end), by_class);
        i = end;
    }
}

// Joins each code point to the last starter unless one between them has its class or a higher one.
void compose(std::vector<CodePoint>& codes) {
    size_t n_kept = 0, starter = SIZE_MAX;
    int last_class = -1;  // of what was kept since the starter; -1: nothing
    for (CodePoint c : codes) {
        if (starter != SIZE_MAX && last_class < c.combining_class) {
            if (uint32_t joined = compose_pair(codes[starter].code, c.code)) {
                codes[starter].code = joined;
                continue;
            }
        }
        if (c.combining_class == 0) {
            starter = n_kept;
            last_class = -1;
        } else {
            last_class = c.combining_class;
        }
        codes[n_kept++] = c;
    }
    codes.resize(n_kept);
}

// One stretch of valid text that composes with nothing around it.
void append_composed(std::string_view text, std::vector<CodePoint>& scratch, std::string& out) {
    scratch.clear();
    for (size_t at = 0; at < text.size();) {
        Utf8Char c = decode_utf8(text.substr(at));
        at += c.n_bytes;
        utf8proc_int32_t parts[kMaxDecomposition];
        int n = decompose(c.code, parts);
        for (int i = 0; i < n; i++) {
            uint32_t code = static_cast<uint32_t>(parts[i]);
            scratch.push_back({code, combining_class(code)});
        }
    }
    order_marks(scratch);
    compose(scratch);
    for (const CodePoint& c : scratch) append_utf8(out, c.code);
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        // Lead bytes below 0xCC stand for code points below U+0300: all are their own composition.
        if (static_cast<uint8_t>(text[at]) < 0xcc) {
            at++;
            continue;
        }
        Utf8Char c = decode_utf8(text.substr(at));
        if (c.valid && is_unsafe(c.code)) return false;
        at += c.n_bytes;
    }
    return true;
}

std::string nfc(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    std::vector<CodePoint> scratch;
    size_t safe = 0;  // start of the last character that begins a stretch
    bool changes = false;
    auto flush = [&](size_t end) {
        std::string_view stretch = text.substr(safe, end - safe);
        if (changes) {
            append_composed(stretch, scratch, out);
        } else {
            out += stretch;
        }
        safe = end;
        changes = false;
    };
    for (size_t at = 0; at < text.size();) {
        Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid) {
            flush(at);
            out += text.substr(at, c.n_bytes);
            safe = at + c.n_bytes;
        } else if (is_unsafe(c.code)) {
            changes = true;
        } else {
            flush(at);
        }
        at += c.n_bytes;
    }
    flush(text.size());
    return out;
}

}  // namespace ridge
