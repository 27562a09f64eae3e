#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "file/gguf_writer.h"
#include "file/model_file.h"
#include "text/tokenizer.h"

namespace ridge {

using Ids = std::vector<Token>;

inline std::string golden_folder() {
    return std::string(RIDGE_TESTS_DIR) + "/golden_data/tokenizers/";
}

inline JsonMap read_json_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    return JsonMap::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

// What a GGUF file says of a byte-level vocabulary, taken from a tokenizer.json; tests change one
// thing of it.
struct GgufTokenizer {
    std::string model = "gpt2", pre;
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    std::vector<float> scores;
    std::vector<std::pair<std::string, uint32_t>> ids;  // key without "tokenizer.ggml."
    std::vector<std::pair<std::string, bool>> flags;

    MappedFile image() const {
        GgufWriter writer;
        writer.add_string("general.architecture", "llama");
        if (!model.empty()) writer.add_string("tokenizer.ggml.model", model);
        if (!pre.empty()) writer.add_string("tokenizer.ggml.pre", pre);
        writer.add_strings("tokenizer.ggml.tokens", tokens);
        if (!types.empty()) writer.add_i32s("tokenizer.ggml.token_type", types);
        if (!merges.empty()) writer.add_strings("tokenizer.ggml.merges", merges);
        if (!scores.empty()) writer.add_f32s("tokenizer.ggml.scores", scores);
        for (const auto& [key, value] : ids) writer.add_u32("tokenizer.ggml." + key, value);
        for (const auto& [key, value] : flags) writer.add_bool("tokenizer.ggml." + key, value);
        return writer.build("small.gguf");
    }
    Tokenizer open(const std::string& pre_override = "") const {
        return Tokenizer::open(ModelFile::from_memory(image()), pre_override);
    }
};

inline GgufTokenizer gguf_of_json(const JsonMap& json, const std::string& pre) {
    GgufTokenizer out;
    out.pre = pre;
    size_t n = json["model"]["vocab"].size();
    for (const auto& added : json["added_tokens"]) {
        n = std::max(n, added["id"].get<size_t>() + 1);
    }
    out.tokens.resize(n);
    out.types.assign(n, 1);
    for (const auto& [text, id] : json["model"]["vocab"].items()) {
        out.tokens[id.get<size_t>()] = text;
    }
    for (const auto& added : json["added_tokens"]) {
        out.tokens[added["id"].get<size_t>()] = added["content"];
        out.types[added["id"].get<size_t>()] = added["special"].get<bool>() ? 3 : 4;
    }
    for (const auto& merge : json["model"]["merges"]) {
        out.merges.push_back(merge.is_string()
                                 ? merge.get<std::string>()
                                 : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    return out;
}

// The message of the Error that `action` throws; fails where it throws none.
template <class Action>
std::string error_of(Action action) {
    try {
        action();
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "no Error";
    return {};
}

inline void expect_has(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
        EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
    }
}

}  // namespace ridge
