#include "base/error.h"
#include "chat_files.h"

// Some 240 small templates, one or more for each expression, statement, filter, test, method and
// rule of whitespace, with what jinja2 makes of them; made by scripts/goldens/chat_cases.py.

namespace ridge {
namespace {

TEST(JinjaGolden, snippets_give_what_jinja2_gives) {
    Json golden = read_chat_json("snippets.json");
    ASSERT_GT(golden["cases"].size(), 200u);
    for (const Json& c : golden["cases"]) {
        std::string source = c["template"];
        SCOPED_TRACE(source);
        if (c.contains("text")) {
            try {
                EXPECT_EQ(text_of(source, golden["variables"]), c["text"].get<std::string>());
            } catch (const Error& e) {
                ADD_FAILURE() << e.what();
            }
        } else {
            EXPECT_NE(error_of(source, golden["variables"]), "");
        }
    }
}

TEST(JinjaErrors, name_the_template_the_line_and_the_thing) {
    EXPECT_EQ(error_of("a\nb\n{{ x|shout }}"), "test: line 3: unknown filter 'shout'");
    EXPECT_EQ(error_of("\n{{ 1 is shiny }}"), "test: line 2: unknown test 'shiny'");
    EXPECT_EQ(error_of("{{ 1 }}\n\n{% fetch x %}"), "test: line 3: unknown statement 'fetch'");
    EXPECT_EQ(error_of("{% include 'x' %}"),
              "test: line 1: the statement 'include' is not supported");
    EXPECT_EQ(error_of("{{ 'a'|urlize }}"), "test: line 1: the filter 'urlize' is not supported");
    EXPECT_EQ(error_of("{{ 'a'.encode() }}"),
              "test: line 1: the str method 'encode' is not supported");
    EXPECT_EQ(error_of("{% if true %}\n{{ 1|shout }}{% endif %}"),
              "test: line 2: unknown filter 'shout'");
    EXPECT_EQ(error_of("{{ 1 }}\n{{ nothing.at_all }}"), "test: line 2: 'nothing' is undefined");
    EXPECT_EQ(error_of("{% for x in [1] %}\n{{ x.a.b }}{% endfor %}"),
              "test: line 2: the value has no attribute or item 'a'");
    EXPECT_EQ(error_of("{{ [].append(1) }}"),
              "test: line 1: access to attribute 'append' is not allowed");
    EXPECT_EQ(error_of("{% macro f() %}\n{{ 1 + 'a' }}\n{% endmacro %}\n\n{{ f() }}"),
              "test: line 2: int + str: these types do not go together");
    EXPECT_EQ(error_of("\n\n{{ raise_exception('no \x1b[2J such role') }}"),
              "test: line 3: no \\x1b[2J such role");
    EXPECT_EQ(error_of("{% if x %}\n"), "test: line 1: the template ends where 'endif' is due");
    EXPECT_EQ(error_of("{{ 'a\nb"), "test: line 1: string without an end");
    EXPECT_EQ(error_of("{{ strftime_now('%Q') }}"),
              "test: line 1: strftime_now: unknown directive '%Q'");
}

TEST(JinjaErrors, what_jinja_decides_only_when_reached_is_no_error_before) {
    EXPECT_EQ(text_of("{% if false %}{{ 1|shout }}{% endif %}ok"), "ok");
    EXPECT_EQ(text_of("{{ 'ok' if true else 1|shout }}"), "ok");
}

TEST(JinjaErrors, a_source_that_is_no_text_is_refused) {
    EXPECT_EQ(error_of("ab\xff"), "test: the template is not UTF-8 at byte 2");
    EXPECT_EQ(error_of(std::string((1 << 20) + 1, 'x')),
              "test: the template has 1048577 bytes, expected at most 1048576");
    EXPECT_EQ(text_of(std::string(1 << 20, 'x')).size(), size_t{1} << 20);
}

TEST(JinjaNumbers, integers_have_64_bits_and_say_so) {
    EXPECT_EQ(text_of("{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}"),
              "9223372036854775807 -9223372036854775808");
    for (const char* source :
         {"{{ 9223372036854775808 }}", "{{ 9223372036854775807 + 1 }}",
          "{{ -9223372036854775807 - 2 }}", "{{ 4611686018427387904 * 2 }}", "{{ 2 ** 63 }}",
          "{{ -(-9223372036854775807 - 1) }}", "{{ (-9223372036854775807 - 1) // -1 }}",
          "{{ (-9223372036854775807 - 1)|abs }}", "{{ '9223372036854775808'|int }}",
          "{{ 1e300|int }}", "{{ big + 1 }}", "{{ '%d' % 1e19 }}"}) {
        EXPECT_NE(error_of(source, {{"big", 18446744073709551615u}}).find("64"), std::string::npos)
            << source;
    }
    EXPECT_EQ(text_of("{{ big }} {{ big|tojson }} {{ big > 1 }} {{ '%d' % big }}",
                      {{"big", 18446744073709551615u}}),
              "18446744073709551615 18446744073709551615 True 18446744073709551615");
}

TEST(JinjaClock, a_given_day_is_midnight_of_that_day) {
    EXPECT_EQ(text_of("{{ strftime_now('%d %b %Y') }}"), "29 Nov 2026");
    EXPECT_EQ(text_of("{{ strftime_now('%A %-d %B %y, %H:%M:%S %p, day %j, week %V of %G') }}"),
              "Sunday 29 November 26, 00:00:00 AM, day 333, week 48 of 2026");
}

}  // namespace
}  // namespace ridge
