#include "cmd/command_line.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/error.h"
#include "cmd/values.h"

namespace ridge {
namespace {

// A small command with every kind of option.
struct Sample {
    std::string prompt, file, system;
    std::vector<std::string> stops;
    int64_t n = -1, top = -1;
    bool json = false, raw = false;
    CommandLine line{"sample", "A sample.", "ridge sample"};

    Sample() {
        line.text("-p,--prompt", "TEXT", "a text", prompt);
        line.text("-f,--file", "FILE", "a file", file);
        line.text("-sys,--system-prompt", "TEXT", "a text", system);
        line.value("--stop", "TEXT", "repeatable",
                   [this](Where, const std::string& text) { stops.push_back(text); });
        line.value("-n,--n-predict", "N", "a number", [this](Where where, const std::string& text) {
            n = parse_integer(where, text, -1, 100);
        });
        line.flag("--json", "a flag", json);
        line.flag("--raw", "a flag", raw);
        line.value("--top", "N", "a number", [this](Where where, const std::string& text) {
            top = parse_integer(where, text, 0, 9);
        });
        line.needs("--top", "--json");
        line.at_most_one({"--prompt", "--file"});
        line.at_most_one({"--json", "--raw"});
    }

    void parse(const std::vector<std::string>& arguments) { ASSERT_TRUE(line.parse(arguments)); }
    std::string error(const std::vector<std::string>& arguments) {
        try {
            line.parse(arguments);
        } catch (const Error& e) {
            EXPECT_EQ(e.kind(), ErrorKind::kUsage);
            return e.what();
        }
        return "no error";
    }
};

struct Variable {
    const char* name;
    Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
    ~Variable() { unsetenv(name); }
};

TEST(CommandLine, takes_values_exactly_as_given) {
    for (const char* value : {"", "{}", "[1,2]", "[]", "%%", "-x", "--json", "--", "-sys", "a=b",
                              "\"q\"", "'", "`", " ", "\n", "--prompt=x", "-5", "@file"}) {
        SCOPED_TRACE(value);
        Sample apart, joined, aliased;
        apart.parse({"-p", value});
        EXPECT_EQ(apart.prompt, value);
        joined.parse({std::string("--prompt=") + value});
        EXPECT_EQ(joined.prompt, value);
        aliased.parse({"-sys", value});
        EXPECT_EQ(aliased.system, value);
    }
}

TEST(CommandLine, knows_both_spellings_and_keeps_every_repetition) {
    Sample s;
    s.parse({"-n5", "--stop", "a", "--json", "--stop=b", "--stop", ""});
    EXPECT_EQ(s.n, 5);
    EXPECT_TRUE(s.json);
    EXPECT_EQ(s.stops, (std::vector<std::string>{"a", "b", ""}));
    EXPECT_TRUE(s.line.given("--stop"));
    EXPECT_FALSE(s.line.given("--prompt"));
}

TEST(CommandLine, the_last_of_a_repeated_option_counts) {
    Sample s;
    s.parse({"-n", "5", "-n", "-1"});
    EXPECT_EQ(s.n, -1);
}

TEST(CommandLine, says_in_one_line_what_is_wrong) {
    EXPECT_EQ(Sample().error({"--promt", "x"}),
              "sample: unknown option --promt; did you mean --prompt?");
    EXPECT_EQ(Sample().error({"--zzzzzzzz"}),
              "sample: unknown option --zzzzzzzz; see ridge sample --help");
    EXPECT_EQ(Sample().error({"word"}),
              "sample: unexpected argument \"word\"; see ridge sample --help");
    EXPECT_EQ(Sample().error({"-p"}), "sample: -p needs a value: TEXT");
    EXPECT_EQ(Sample().error({"--json=1"}), "sample: --json takes no value");
    EXPECT_EQ(Sample().error({"-p", "x", "-f", "y"}),
              "sample: --prompt and --file exclude each other");
    EXPECT_EQ(Sample().error({"-n", "1x"}),
              "--n-predict \"1x\": expected a whole number from -1 to 100");
    EXPECT_EQ(Sample().error({"--top", "3"}), "sample: --top needs --json");
    EXPECT_EQ(Sample().error({"-nx", "1"}),
              "sample: unexpected argument \"1\" after -nx; did you mean -n?");
    EXPECT_EQ(Sample().error({"-promp", "x"}),
              "sample: unexpected argument \"x\" after -promp; did you mean --prompt?");
    EXPECT_EQ(Sample().error({"-n5", "x"}),
              "sample: unexpected argument \"x\" after -n5; see ridge sample --help");
    EXPECT_EQ(Sample().error({"\x1b[1m"}),
              "sample: unexpected argument \"\\x1b[1m\"; see ridge sample --help");
}

TEST(CommandLine, takes_what_is_missing_from_the_environment) {
    Variable n("RIDGE_N_PREDICT", "7"), system("RIDGE_SYSTEM_PROMPT", "-x"),
        json("RIDGE_JSON", "on");
    Variable empty("RIDGE_PROMPT", "");
    Sample s;
    s.parse({});
    EXPECT_EQ(s.n, 7);
    EXPECT_EQ(s.system, "-x");
    EXPECT_TRUE(s.json);
    EXPECT_TRUE(s.line.given("--json"));
    EXPECT_FALSE(s.line.given("--prompt")) << "an empty variable is as good as none";
    Sample argued;
    argued.parse({"-n", "3"});
    EXPECT_EQ(argued.n, 3) << "arguments win";
}

TEST(CommandLine, each_long_name_has_a_variable_and_the_last_ones_comes_first) {
    std::string format;
    auto error = [&] {
        CommandLine line("sample", "A sample.", "ridge sample");
        line.value("-o,--output-format,--output", "FORMAT", "a format",
                   [&](Where where, const std::string& text) {
                       format = parse_choice(where, text, {"md", "csv"});
                   });
        try {
            line.parse({});
        } catch (const Error& e) {
            return std::string(e.what());
        }
        for (const auto& [spelling, variable] : line.from_variables()) format += " " + variable;
        return std::string("no error");
    };
    Variable other("RIDGE_OUTPUT_FORMAT", "csv");
    EXPECT_EQ(error(), "no error");
    EXPECT_EQ(format, "csv RIDGE_OUTPUT_FORMAT RIDGE_OUTPUT_FORMAT RIDGE_OUTPUT_FORMAT");
    Variable own("RIDGE_OUTPUT", "xml");
    EXPECT_EQ(error(), "RIDGE_OUTPUT \"xml\": expected one of md, csv");
}

TEST(CommandLine, a_bad_variable_is_reported_by_its_name) {
    {
        Variable n("RIDGE_N_PREDICT", "many");
        EXPECT_EQ(Sample().error({}),
                  "RIDGE_N_PREDICT \"many\": expected a whole number from -1 to 100");
        EXPECT_EQ(Sample().error({"-n", "1"}), "no error");
    }
    Variable json("RIDGE_JSON", "maybe");
    EXPECT_EQ(Sample().error({}),
              "RIDGE_JSON \"maybe\": expected 1, true, yes or on, or 0, false, no or off");
}

TEST(CommandLine, a_variable_that_means_nothing_is_not_looked_at) {
    Variable top("RIDGE_TOP", "many");
    EXPECT_EQ(Sample().error({}), "no error");
    EXPECT_EQ(Sample().error({"--json"}),
              "RIDGE_TOP \"many\": expected a whole number from 0 to 9");
}

// What blame_variables() makes of an Error that the command throws.
std::string blamed(const CommandLine& line, ErrorKind kind, const std::string& message) {
    try {
        blame_variables(line.from_variables(), [&]() -> int { throw Error(kind, "{}", message); });
    } catch (const Error& e) {
        EXPECT_EQ(e.kind(), kind);
        return e.what();
    }
    return "no error";
}

TEST(CommandLine, an_error_of_the_command_is_put_down_to_the_variable) {
    Variable n("RIDGE_N_PREDICT", "7"), file("RIDGE_FILE", "x");
    Sample s;
    s.parse({"-f", "y"});
    EXPECT_EQ(blamed(s.line, ErrorKind::kUsage, "-n 7: too many"), "RIDGE_N_PREDICT 7: too many");
    EXPECT_EQ(blamed(s.line, ErrorKind::kUsage, "--n-predict: no"), "RIDGE_N_PREDICT: no");
    EXPECT_EQ(blamed(s.line, ErrorKind::kUsage, "--file y: no"), "--file y: no") << "an argument";
    EXPECT_EQ(blamed(s.line, ErrorKind::kUsage, "-nx 7"), "-nx 7");
    EXPECT_EQ(blamed(s.line, ErrorKind::kFailure, "-n 7"), "-n 7") << "a file may have that name";
    EXPECT_EQ(blame_variables(s.line.from_variables(), [] { return 3; }), 3);
}

TEST(CommandLine, a_variable_gives_way_to_an_argument_that_excludes_it) {
    Variable file("RIDGE_FILE", "x"), raw("RIDGE_RAW", "1");
    Sample s;
    s.parse({"-p", "text", "--json"});
    EXPECT_FALSE(s.line.given("--file"));
    EXPECT_FALSE(s.raw);
    Sample alone;
    alone.parse({});
    EXPECT_EQ(alone.file, "x");
    EXPECT_TRUE(alone.raw);
}

TEST(CommandLine, guesses_the_word_that_was_meant) {
    std::vector<std::string> words = {"run", "chat", "tokenize", "template", "inspect"};
    EXPECT_EQ(nearest("rum", words), "run");
    EXPECT_EQ(nearest("tokenise", words), "tokenize");
    EXPECT_EQ(nearest("temp", words), "template");
    EXPECT_EQ(nearest("serve", words), "");
    EXPECT_EQ(nearest("", words), "");
    EXPECT_EQ(nearest(std::string(1'000'000, 'x'), words), "");
}

}  // namespace
}  // namespace ridge
