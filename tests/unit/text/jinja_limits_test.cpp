#include <chrono>

#include "base/error.h"
#include "base/timer.h"
#include "chat_files.h"

// Templates that would take for ever, or all memory, or the whole stack.

namespace ridge {
namespace {

std::string repeat(const std::string& text, int n) {
    std::string all;
    for (int i = 0; i < n; i++) all += text;
    return all;
}

// Ends in an Error that says `reason`, before anybody would wait for it.
void expect_refused(const std::string& source, const std::string& reason) {
    SCOPED_TRACE(source.substr(0, 120));
    Timer timer;
    std::string error = error_of(source);
    EXPECT_NE(error.find(reason), std::string::npos) << error;
    EXPECT_LT(timer.elapsed_ms(), 20'000);  // sanitizers and a busy machine included
}

TEST(JinjaLimits, large_values_are_refused_before_they_are_made) {
    expect_refused("{% for i in range(1000000000) %}{% endfor %}", "at most 100000");
    expect_refused("{{ range(-9223372036854775807, 9223372036854775807) }}", "at most 100000");
    expect_refused("{{ 'x' * 10000000000 }}", "more than a template may hold");
    expect_refused("{{ 'x' * 1e10 }}", "do not go together");
    expect_refused("{{ [0] * 10**9 }}", "more than a template may hold");
    expect_refused("{{ (1,) * 9223372036854775807 }}", "more than a template may hold");
    expect_refused("{{ 10 ** 1000000000000 }}", "does not fit");
    expect_refused("{{ '%1000000000d' % 1 }}", "width or precision");
    expect_refused("{{ '{:1000000000}'.format(1) }}", "width or precision");
    expect_refused("{{ '%.1000000000f' % 1 }}", "width or precision");
    expect_refused("{{ 'x'|indent(10**12) }}", "more than a template may hold");
    expect_refused("{{ [1]|tojson(indent=10**12) }}", "more than a template may hold");
    expect_refused("{{ 'x'|center(10**12) }}", "more work");
    expect_refused("{{ 'x'.ljust(10**12) }}", "more work");
    expect_refused("{{ [1]|batch(10**12, 0)|list }}", "more memory");
}

TEST(JinjaLimits, growth_in_a_loop_ends) {
    const std::string head =
        "{% set ns = namespace(s='x') %}{% for i in range(100000) %}{% set ns.s = ";
    const std::string tail = " %}{% endfor %}";
    expect_refused(head + "ns.s + ns.s" + tail, "more memory");
    expect_refused(head + "ns.s ~ ns.s" + tail, "more memory");
    expect_refused(head + "[ns.s, ns.s]|join" + tail, "more memory");
    expect_refused(head + "[ns.s]|list + [ns.s]" + tail + "{{ ns.s }}", "nested");
    expect_refused(head + "'%s%s' % (ns.s, ns.s)" + tail, "more memory");
    expect_refused(head + "'{0}{0}'.format(ns.s)" + tail, "more memory");
    expect_refused(head + "ns.s.replace('x', 'xx')" + tail, "more");
    expect_refused(head + "ns.s.join([ns.s, ns.s])" + tail, "more memory");
    expect_refused(head + "(ns.s, ns.s)" + tail + "{{ ns.s == ns.s }}", "nested");
    expect_refused(
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
        "{% endfor %}{{ ns.s|tojson }}",
        "more");
    expect_refused(
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}"
        "{% endset %}{% endfor %}",
        "more memory");
}

TEST(JinjaLimits, long_loops_and_long_output_end) {
    expect_refused(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "more");
    expect_refused("{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", "writes more than");
    expect_refused("{{ range(100000)|unique|list }}", "more work");
    expect_refused("{% set a = 'a' * 1000000 %}{{ a.rfind('a' * 500000 + 'b') }}", "more work");
}

TEST(JinjaLimits, recursion_ends) {
    expect_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested more than");
    expect_refused("{% macro f(x) %}{{ f([x]) }}{{ f(x) }}{% endmacro %}{{ f(1) }}", "nested");
    expect_refused(
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
        "nested more than");
    expect_refused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested more than");
}

TEST(JinjaLimits, nesting_of_the_source_ends) {
    const int n = 10'000;
    for (const auto& [open, close] :
         std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                          {"[", "]"},
                                                          {"{1: ", "}"},
                                                          {"f(", ")"},
                                                          {"a[", "]"},
                                                          {"-", ""},
                                                          {"- ", ""},
                                                          {"not ", ""},
                                                          {"1 if 1 else ", ""},
                                                          {"1 if ", " else 2"}}) {
        expect_refused("{{ " + repeat(open, n) + "1" + repeat(close, n) + " }}", "nested");
    }
    for (const char* link : {" + 1", "|string", ".a", "[0]", "()", " and 1", " if 1", " ** 1"}) {
        expect_refused("{{ 1" + repeat(link, n) + " }}", "nested");
    }
    expect_refused(repeat("{% if 1 %}", n) + repeat("{% endif %}", n), "nested");
    expect_refused(repeat("{% for x in y %}", n) + repeat("{% endfor %}", n), "nested");
    expect_refused(repeat("{% macro f() %}", n) + repeat("{% endmacro %}", n), "nested");
    expect_refused("{% set " + repeat("(", n) + "x" + repeat(")", n) + " = 1 %}", "nested");
}

TEST(JinjaLimits, what_is_merely_long_is_read) {
    EXPECT_EQ(text_of("{{ 'a'" + repeat(" ~ 'a'", 10'000) + " }}").size(), 10'001u);
    EXPECT_EQ(text_of("{% if 0 %}" + repeat("{% elif 0 %}", 10'000) + "{% endif %}ok"), "ok");
    EXPECT_EQ(text_of(repeat("{{ 1 }}", 40'000)).size(), 40'000u);
    EXPECT_EQ(text_of("{{ [" + repeat("1, ", 50'000) + "]|length }}"), "50000");
    EXPECT_EQ(text_of("{{- 1 -}}" + std::string(1'000'000, ' ') + "x"), "1x");
    EXPECT_EQ(text_of("{% set a = 'a' * 1000000 %}{{ ('a' * 500000 + 'b') in a }}"), "False");
    // Nesting that any template may want.
    EXPECT_EQ(text_of("{{ " + repeat("(", 100) + "1" + repeat(")", 100) + " }}"), "1");
    EXPECT_EQ(text_of("{{ 'a'" + repeat(" + 'a'", 150) + " }}").size(), 151u);
    EXPECT_EQ(text_of("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}"
                      "{{ f(40) }}")
                  .substr(0, 6),
              "403938");
}

TEST(JinjaLimits, a_text_put_together_in_many_steps_takes_linear_memory) {
    EXPECT_EQ(text_of("{% set ns = namespace(s='') %}{% for i in range(100000) %}"
                      "{% set ns.s = ns.s + 'abcdefgh' %}{% endfor %}{{ ns.s|length }}"),
              "800000");
    EXPECT_EQ(text_of("{% set ns = namespace(s='') %}{% for i in range(50000) %}"
                      "{% set ns.s = ns.s + 'abcd' + x %}{% endfor %}{{ ns.s|length }}",
                      {{"x", "efgh"}}),
              "400000");
}

TEST(JinjaLimits, grow_with_the_messages) {
    std::string large(10 << 20, 'x');
    ChatInput input;
    input.messages = {{{"role", "user"}, {"content", large}},
                      {{"role", "assistant"}, {"content", large + "</think>" + large}},
                      {{"role", "user"}, {"content", large}}};
    ChatTemplate qwen = ChatTemplate::compile(read_chat_file("qwen3.jinja"), "qwen3", "", "");
    EXPECT_GT(joined(qwen.render(input)).size(), 3 * large.size());
}

TEST(JinjaLimits, source_is_read_in_linear_time) {
    for (const char* piece : {"{{", "{%", "{#", "{% raw %}", "'", "{{ '", "{%-", " -}}", "\\", "((",
                              "{{ a.b", "|x", "\n", "\xc2\xa0"}) {
        std::string source = repeat(piece, (1 << 20) / static_cast<int>(strlen(piece)));
        Timer timer;
        for (const std::string& whole :
             {source, "{{ 1 }}" + source.substr(16), "{% if " + source.substr(16)}) {
            error_of(whole);
        }
        EXPECT_LT(timer.elapsed_ms(), 60'000) << piece;
    }
}

}  // namespace
}  // namespace ridge
