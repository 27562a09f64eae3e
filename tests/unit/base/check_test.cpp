#include "base/check.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ridge {
namespace {

TEST(CheckDeathTest, a_failed_check_names_its_condition_and_place) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    int n_rows = 0;
    CHECK(n_rows == 0);
    EXPECT_DEATH(CHECK(n_rows > 0),
                 "^tests/unit/base/check_test.cpp:[0-9]+: CHECK failed: n_rows > 0");
}

TEST(ErrorTest, the_message_is_formatted_and_the_kind_is_kept) {
    Error failure("{}: tensor {} is {}", "a.gguf", "x", 3);
    EXPECT_EQ(std::string(failure.what()), "a.gguf: tensor x is 3");
    EXPECT_EQ(failure.kind(), ErrorKind::kFailure);
    EXPECT_EQ(Error(ErrorKind::kUsage, "--kv q3: unknown").kind(), ErrorKind::kUsage);
}

}  // namespace
}  // namespace ridge
