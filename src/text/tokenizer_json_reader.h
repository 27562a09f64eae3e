#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ridge {

// A tokenizer.json, read in one pass. The vocabulary and the merges, nearly all of the file, are
// kept as plain arrays; the rest as a JSON value without model.vocab and model.merges.
struct TokenizerJson {
    struct Entry {
        size_t begin, n_bytes;  // in `text`
        int64_t id;
    };
    struct MergePair {
        size_t begin, n_left, n_right;  // in `text`, one behind the other
    };

    JsonMap rest;
    bool has_vocab = false, has_merges = false;
    std::string text;
    std::vector<Entry> vocab;       // in file order
    std::vector<MergePair> merges;  // in order of rank

    std::string_view text_of(const Entry& entry) const {
        return std::string_view(text).substr(entry.begin, entry.n_bytes);
    }
    std::string_view left_of(const MergePair& pair) const {
        return std::string_view(text).substr(pair.begin, pair.n_left);
    }
    std::string_view right_of(const MergePair& pair) const {
        return std::string_view(text).substr(pair.begin + pair.n_left, pair.n_right);
    }
};

// Throws Error for what is not JSON, for a vocabulary that is not an object of integers, and for
// merges that are neither "left right" nor ["left", "right"]. `file` names it in errors.
TokenizerJson read_tokenizer_json(std::string_view json, const std::string& file);

}  // namespace ridge
