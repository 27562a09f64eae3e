#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cli/program.h"

namespace ridge::cli {

// `text` is one whole line, says `part`, and holds nothing that could steer a terminal.
inline void expect_line(const std::string& text, const std::string& part) {
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_EQ(text.rfind("ridge: ", 0), 0u) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text << "lacks: " << part;
    for (char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

inline void expect_error(const Arguments& arguments, int status, const std::string& part,
                         const Setting& setting = {}) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    Result result = run(arguments, setting);
    EXPECT_EQ(result.status, status);
    EXPECT_EQ(result.out, "");
    expect_line(result.err, part);
}

inline Arguments with(Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

// A greedy continuation of `n` tokens by the tiny model, without statistics.
inline Arguments continuation(const std::string& n) {
    return {"run", "-m", tiny_model(), "--raw", "--greedy", "--ignore-eos", "-n", n, "-q"};
}

}  // namespace ridge::cli
