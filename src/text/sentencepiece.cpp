#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "text/tokenizer_spec.h"

namespace ridge {
namespace {

// SentencePiece's own limit is 16 characters unless the trainer is told otherwise. The bound keeps
// the number of ways to cut a token in two in proportion to the file.
constexpr size_t kMaxPieceBytes = 256;

// ranks[token]: 0 for the highest score, equal for equal scores.
std::vector<uint32_t> ranks_of(const std::vector<float>& scores) {
    std::vector<float> distinct = scores;
    std::sort(distinct.begin(), distinct.end(), std::greater<>());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<uint32_t> ranks;
    ranks.reserve(scores.size());
    for (float score : scores) {
        auto place = std::lower_bound(distinct.begin(), distinct.end(), score, std::greater<>());
        ranks.push_back(static_cast<uint32_t>(place - distinct.begin()));
    }
    return ranks;
}

// The symbol that text is: a token, or a single character; -1: none.
Token symbol_of(const TokenizerSpec& spec, std::string_view text) {
    if (std::optional<Token> token = spec.vocabulary.find_normal(text)) return *token;
    Utf8Char c = decode_utf8(text);
    if (!c.valid || c.n_bytes != text.size()) return -1;
    auto found = spec.characters.find(c.code);
    return found == spec.characters.end() ? -1 : found->second;
}

}  // namespace

void add_score_merges(TokenizerSpec& spec, const std::vector<float>& scores) {
    const Vocabulary& vocabulary = spec.vocabulary;
    CHECK(scores.size() == static_cast<size_t>(vocabulary.size()));
    std::vector<uint32_t> ranks = ranks_of(scores);
    std::vector<Merge> merges;
    for (Token id = 0; id < vocabulary.size(); id++) {
        std::string_view text = vocabulary.bytes(id);
        // Of equal tokens the lowest id stands for all. A token without text comes of no merge.
        if (text.empty() || vocabulary.type(id) != TokenType::kNormal ||
            vocabulary.find_normal(text) != id) {
            continue;
        }
        if (text.size() > kMaxPieceBytes) {
            throw Error("{}: token {} \"{}\" has {} bytes, expected at most {}", spec.file, id,
                        printable(text, 40), text.size(), kMaxPieceBytes);
        }
        for (size_t cut = 0;;) {
            cut += decode_utf8(text.substr(cut)).n_bytes;
            if (cut >= text.size()) break;
            Token left = symbol_of(spec, text.substr(0, cut));
            if (left < 0) continue;
            Token right = symbol_of(spec, text.substr(cut));
            if (right < 0) continue;
            merges.push_back({left, right, id, ranks[static_cast<size_t>(id)]});
        }
    }
    spec.merges.reserve(merges.size());
    for (const Merge& merge : merges) spec.merges.add(merge);
}

}  // namespace ridge
