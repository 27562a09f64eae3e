#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "support/temporary_folder.h"
#include "tokenizer_files.h"

// Ids under the vocabularies of real models. They are too large to be kept here; each test runs
// where it finds its vocabulary.

namespace ridge {
namespace {

struct Table {
    std::string key;   // in the JSON
    std::string file;  // in $RIDGE_VOCABULARIES
};

void PrintTo(const Table& table, std::ostream* out) {
    *out << table.key;
}

class TokenTable : public testing::TestWithParam<Table> {
  protected:
    // Opens the vocabulary; nothing, and a line that says how to provide it, where it is absent.
    std::optional<Tokenizer> open() {
        const Table& table = GetParam();
        if (table.file.ends_with(".gguf")) {
            std::string path = cache_folder() + "/models/" + table.file;
            if (file_kind(path) == FileKind::kRegular) {
                return Tokenizer::open(ModelFile::open(path));
            }
            missing_ = path + " is absent; scripts/demo fetches it";
            return std::nullopt;
        }
        const char* folder = std::getenv("RIDGE_VOCABULARIES");
        std::string packed = folder == nullptr ? "" : std::string(folder) + "/" + table.file;
        if (folder == nullptr || file_kind(packed) != FileKind::kRegular) {
            missing_ = "set RIDGE_VOCABULARIES to a folder with " + table.file +
                       " (the model's tokenizer.json, compressed)";
            return std::nullopt;
        }
        std::string json = temporary_.path("tokenizer.json");
        std::string command = "xz -dc '" + packed + "' > '" + json + "'";
        EXPECT_EQ(std::system(command.c_str()), 0) << command;
        return Tokenizer::open_json(json);
    }

    TemporaryFolder temporary_;
    std::string missing_;
};

TEST_P(TokenTable, has_the_official_ids) {
    std::optional<Tokenizer> tokenizer = open();
    if (!tokenizer) GTEST_SKIP() << missing_;
    int n_texts = 0;
    for (const char* name : {"tokens", "tokens-large"}) {
        std::string path = std::string(RIDGE_TESTS_DIR) + "/golden_data/tokens/" + name + ".json";
        const JsonMap tables = read_json_file(path);
        for (const JsonMap& row : tables["cases"]) {
            if (!row.contains(GetParam().key)) continue;
            std::string text = row["text"];
            Ids ids = tokenizer->encode(text, {.add_bos = false});
            EXPECT_EQ(ids, row[GetParam().key].get<Ids>()) << testing::PrintToString(text);
            n_texts++;
        }
    }
    EXPECT_GE(n_texts, 600);
}

INSTANTIATE_TEST_SUITE_P(All, TokenTable,
                         testing::Values(Table{"llama3", "llama3.1-tokenizer.json.xz"},
                                         Table{"qwen3", "qwen3-tokenizer.json.xz"},
                                         Table{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"}),
                         [](const auto& info) { return info.param.key; });

}  // namespace
}  // namespace ridge
