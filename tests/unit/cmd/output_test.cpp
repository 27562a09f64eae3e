#include "cmd/output.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/json.h"
#include "cmd/logits_hash.h"

namespace ridge {
namespace {

TEST(DumpJson, replaces_what_is_not_utf8) {
    Json json;
    json["text"] =
        "a\xff"
        "b\xe6\xbc";
    EXPECT_EQ(dump_json(json),
              "{\"text\":\"a\xef\xbf\xbd"
              "b\xef\xbf\xbd\"}");
}

TEST(DumpJson, escapes_every_control_where_a_terminal_would_see_it) {
    Json json =
        "\x1b[2J\x7f\xc2\x9b"
        "31m \xc3\xa9";
    EXPECT_EQ(dump_json(json, true), "\"\\u001b[2J\\u007f\\u009b31m \xc3\xa9\"");
    EXPECT_EQ(Json::parse(dump_json(json, true)), json) << "it stays the same value";
}

TEST(LogitsHash, is_fnv_1a_over_the_bytes) {
    EXPECT_EQ(logits_hash({}), "cbf29ce484222325");
    // The bytes "aaaa", as Python computes it.
    std::vector<float> logits = {std::bit_cast<float>(0x61616161u)};
    EXPECT_EQ(logits_hash(logits), "f5216183ea912259");
    logits[0] = 0.0f;
    std::string zero = logits_hash(logits);
    logits[0] = -0.0f;
    EXPECT_NE(logits_hash(logits), zero) << "every bit counts";
}

}  // namespace
}  // namespace ridge
