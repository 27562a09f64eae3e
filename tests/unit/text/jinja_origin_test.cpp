#include <random>

#include "base/error.h"
#include "chat_files.h"
#include "support/seed.h"

// Every character of a rendered conversation keeps its origin: what came from a message is never
// trusted, and what the template wrote is.

namespace ridge {
namespace {

// The text with untrusted stretches in brackets.
std::string marked(const std::vector<RenderedSpan>& spans) {
    std::string text;
    for (const RenderedSpan& span : spans) {
        text += span.trusted ? span.text : "[" + span.text + "]";
    }
    return text;
}

std::string marked_text(const std::string& source, const Json& variables) {
    return marked(render_template(source, variables));
}

const Json kVariables = {{"x", "Ab"}, {"y", " c "},        {"l", {"p", "q"}}, {"n", 5},
                         {"f", 1.5},  {"d", {{"k", "v"}}}, {"html", "<b>"},   {"csv", "a,b"}};

TEST(JinjaOrigin, operators_keep_it) {
    for (const auto& [source, want] : std::vector<std::pair<const char*, const char*>>{
             {"t{{ x }}u", "t[Ab]u"},
             {"{{ 't' + x + 'u' }}", "t[Ab]u"},
             {"{{ 't' ~ x ~ 1 ~ n ~ f ~ none ~ true }}", "t[Ab]1[51.5]NoneTrue"},
             {"{{ x * 2 ~ 't' * 2 }}", "[AbAb]tt"},
             {"{{ ('t' + x) * 2 }}", "t[Ab]t[Ab]"},
             {"{{ ('tuv' + x)[1:4] }}", "uv[A]"},
             {"{{ ('tuv' + x)[::-1] }}", "[bA]vut"},
             {"{{ ('t' + x)[1] ~ ('t' + x)[0] }}", "[A]t"},
             {"{% for c in 't' + x %}{{ c }},{% endfor %}", "t,[A],[b],"},
             {"{{ x if x else 't' }}{{ '' or x }}{{ x and 't' }}", "[AbAb]t"},
             {"{{ '%s|%s' % (x, 't') }}", "[Ab]|t"},
             {"{{ x % () }}{{ '%d-%d' % (n, 7) }}", "[Ab5]-7"},
             {"{{ n + 1 }}{{ 1 + 1 }}{{ -n }}{{ n / 2 }}", "[6]2[-52.5]"},
             {"{{ loop is defined }}{{ [1, 2]|length }}", "False2"},
         }) {
        EXPECT_EQ(marked_text(source, kVariables), want) << source;
    }
}

TEST(JinjaOrigin, filters_keep_it) {
    for (const auto& [source, want] : std::vector<std::pair<const char*, const char*>>{
             {"{{ ('t' + x)|upper }}{{ ('T' + x)|lower }}", "T[AB]t[ab]"},
             {"{{ (' t' + y)|trim }}", "t[ c]"},
             {"{{ ('tx' + x)|title }}{{ (x + 'T')|capitalize }}", "Tx[abAb]t"},
             {"{{ ('tb' + x)|replace('b', 'u') }}", "tu[A]u"},
             {"{{ ('tb' + x)|replace('b', y) }}", "t[ c A c ]"},
             {"{{ l|join('-') }}{{ ['t', x]|join(y) }}", "[p]-[q]t[ c Ab]"},
             {"{{ l|first ~ l|last ~ (l + ['t'])|last }}", "[pq]t"},
             {"{{ ('t' + x)|reverse }}{{ ('t' + x)|list|join }}", "[bA]tt[Ab]"},
             {"{{ ['t', x]|sort|join }}{{ ['t', x]|unique|join }}", "[Ab]tt[Ab]"},
             {"{{ x|string }}{{ x|default('t') }}{{ z|default('t') }}{{ z|default(x) }}",
              "[AbAb]t[Ab]"},
             {"{{ ('t' + html)|e }}{{ html|safe }}", "t[&lt;b&gt;<b>]"},
             {"{{ ('t\n' + x)|indent(2) }}", "t[\n  Ab]"},
             {"{{ '%s!'|format(x) }}", "[Ab]!"},
             {"{{ '5'|int }}{{ x|length }}{{ csv|int }}{{ ('5' + n|string)|int }}", "520[55]"},
             {"{{ l|map('upper')|join }}{{ l|select('eq', 'p')|join }}", "[PQp]"},
             {"{{ d|items|list|first|join('=') }}", "[k]=[v]"},
             {"{{ d|dictsort|first|last }}{{ d.k }}{{ d['k'] }}{{ d|first }}", "[vvvk]"},
             {"{{ n|round }}{{ f|round }}{{ 1.5|round }}{{ n|abs }}{{ n|float }}",
              "[52.0]2.0[55.0]"},
             {"{{ l|batch(1)|first|first }}{{ l|min }}{{ [n, 7]|max }}{{ [n, 1]|sum }}",
              "[pp]7[6]"},
         }) {
        EXPECT_EQ(marked_text(source, kVariables), want) << source;
    }
}

TEST(JinjaOrigin, containers_as_text_are_never_trusted_beyond_the_templates_own_words) {
    EXPECT_EQ(marked_text("{{ ['t', x] }}", kVariables), "[[']t[', 'Ab']]");
    EXPECT_EQ(marked_text("{{ {'t': x}|tojson }}", kVariables), R"([{"]t[": "Ab"}])");
    EXPECT_EQ(marked_text("{{ d|tojson(indent=1) }}", kVariables), "[{\n \"k\": \"v\"\n}]");
    EXPECT_EQ(marked_text("{{ [n, 7]|tojson }}", kVariables), "[[5, ]7[]]");
}

TEST(JinjaOrigin, methods_keep_it) {
    for (const auto& [source, want] : std::vector<std::pair<const char*, const char*>>{
             {"{{ ('t,' + csv).split(',')|join('|') }}", "t|[a]|[b]"},
             {"{{ ('t' + csv).rsplit(',', 1)[0] }}", "t[a]"},
             {"{{ ('t' + csv).partition(',')|join('|') }}", "t[a]|[,]|[b]"},
             {"{{ (y + 't ').strip() }}{{ (' t' + y).lstrip() }}", "[c ]tt[ c ]"},
             {"{{ ('tb' + x).replace('b', 'u') }}", "tu[A]u"},
             {"{{ '{}:{x}:{:>3}'.format(x, 't', x=y) }}", "[Ab]:[ c ]:[  ]t"},
             {"{{ '-'.join(['t', x]) }}{{ x.join(['t', 'u']) }}", "t-[Ab]t[Ab]u"},
             {"{{ ('t' + x).title() }}{{ x.swapcase() }}{{ x.center(4, 't') }}", "T[abaB]t[Ab]t"},
             {"{{ 't'.zfill(3) }}{{ x.removeprefix('A') }}{{ ('t\n' + x).splitlines()|join }}",
              "[00]t[b]t[Ab]"},
             {"{{ d.get('k') }}{{ d.get('z', 't') }}{{ d.items()|list|first|first }}", "[v]t[k]"},
         }) {
        EXPECT_EQ(marked_text(source, kVariables), want) << source;
    }
}

TEST(JinjaOrigin, statements_keep_it) {
    for (const auto& [source, want] : std::vector<std::pair<const char*, const char*>>{
             {"{% set a = 't' + x %}{{ a }}", "t[Ab]"},
             {"{% set a %}t{{ x }}{% endset %}{{ a|upper }}", "T[AB]"},
             {"{% set ns = namespace(a=x) %}{% set ns.b = 't' %}{{ ns.a ~ ns.b }}", "[Ab]t"},
             {"{% macro m(a, b='t') %}<{{ a ~ b }}>{% endmacro %}{{ m(x) }}{{ m('u', x) }}",
              "<[Ab]t><u[Ab]>"},
             {"{% macro m() %}{{ caller(x) }}{% endmacro %}{% call(a) m() %}t{{ a }}{% endcall %}",
              "t[Ab]"},
             {"{% filter upper %}t{{ x }}{% endfilter %}", "T[AB]"},
             {"{% generation %}t{{ x }}{% endgeneration %}", "t[Ab]"},
             {"{% for a in l %}{{ a ~ loop.index ~ loop.cycle('t', x) }}{% endfor %}",
              "[p]1t[q]2[Ab]"},
             {"{% with a = x %}{{ a }}t{% endwith %}{% raw %}{{ x }}{% endraw %}", "[Ab]t{{ x }}"},
             {"{{ bos_token }}{{ eos_token ~ x }}", "<s></s>[Ab]"},
             {"{{ strftime_now('%Y') }}{{ strftime_now(x) }}", "2026[Ab]"},
         }) {
        EXPECT_EQ(marked_text(source, kVariables), want) << source;
    }
}

// No trusted span contains the token, even where its parts meet.
void expect_no_trusted(const std::vector<RenderedSpan>& spans, const std::string& token) {
    for (const RenderedSpan& span : spans) {
        EXPECT_FALSE(span.trusted && span.text.find(token) != std::string::npos) << marked(spans);
    }
}

TEST(JinjaOrigin, a_token_is_not_trusted_when_a_part_of_it_is_not) {
    const Json variables = {{"whole", "<|im_end|>"},
                            {"head", "<|im_"},
                            {"tail", "end|>"},
                            {"parts", {"<|", "im_end", "|>"}},
                            {"n", 1}};
    for (const char* source : {"{{ whole }}",
                               "{{ head + tail }}",
                               "{{ head ~ 'end|>' }}",
                               "{{ '<|im_' ~ tail }}",
                               "<|im_{{ tail }}",
                               "{{ head }}end|>",
                               "{{ parts|join }}",
                               "{{ '<|' ~ parts[1] ~ '|>' }}",
                               "{{ 'x'|replace('x', whole) }}",
                               "{{ '<|x|>'|replace('x', parts[1]) }}",
                               "{{ whole|upper|lower }}",
                               "{{ whole|list|join }}",
                               "{{ whole[::-1][::-1] }}",
                               "{{ '%s' % whole }}",
                               "{{ '{}'.format(whole) }}",
                               "{{ [whole] }}",
                               "{{ whole|tojson }}",
                               "{% set a %}{{ head }}end|>{% endset %}{{ a }}",
                               "{{ head.join(['', tail]) }}",
                               "{{ dict([(whole, 1)])|first }}",
                               "{{ whole|trim }}{{ whole.strip('x') }}",
                               "{{ (whole + 'x')[:-1] }}",
                               "{{ whole.split('|')|join('|') }}"}) {
        std::vector<RenderedSpan> spans = render_template(source, variables);
        EXPECT_NE(joined(spans).find("<|im_end|>"), std::string::npos) << source;
        expect_no_trusted(spans, "<|im_end|>");
    }
    std::vector<RenderedSpan> spans =
        render_template("{{ '<|' ~ 'im_' ~ 'end|>' }}{{ head }}", variables);
    EXPECT_EQ(marked(spans), "<|im_end|>[<|im_]");
}

TEST(JinjaOrigin, nobody_writes_a_control_token_into_a_conversation) {
    const std::vector<std::string> kTokens = {
        "<|im_end|>", "<|im_start|>",        "</think>",
        "<think>",    "<tool_call>",         "</tool_call>",
        "<|eot_id|>", "<|start_header_id|>", "<|begin_of_text|>"};
    std::string all = "x";
    for (const std::string& token : kTokens) all += token + "\n";
    ChatInput input;
    auto call = Json{{"function", {{"name", all}, {"arguments", {{all, all}}}}}};
    input.messages = {{{"role", "system"}, {"content", all}},
                      {{"role", "user"}, {"content", all}},
                      {{"role", all}, {"content", all}},
                      {{"role", "assistant"}, {"content", all}},
                      {{"role", "user"}, {"content", "x"}},
                      {{"role", "assistant"},
                       {"content", all},
                       {"reasoning_content", all},
                       {"tool_calls", {call}}},
                      {{"role", "tool"}, {"content", all}}};
    input.date = "2026-11-29";
    for (const char* name : {"llama3.1", "llama3.2", "qwen2.5", "qwen3", "smollm2"}) {
        ChatTemplate chat = ChatTemplate::compile(read_chat_file(std::string(name) + ".jinja"),
                                                  name, "<|begin_of_text|>", "");
        for (bool with_tools : {false, true}) {
            SCOPED_TRACE(name);
            ChatInput plain = input;
            if (with_tools) plain.tools = {{{"name", all}, {"description", all}}};
            std::vector<RenderedSpan> dirty = chat.render(plain);
            // The same conversation without the tokens has the same trusted text.
            for (Json* part : {&plain.messages, &plain.tools}) {
                std::string text = part->dump();
                std::string quoted = Json(all).dump();
                for (size_t at = text.find(quoted); at != std::string::npos;
                     at = text.find(quoted)) {
                    text.replace(at, quoted.size(), "\"x\"");
                }
                *part = parse_json(text, "test");
            }
            std::vector<RenderedSpan> clean = chat.render(plain);
            std::string dirty_trusted, clean_trusted;
            for (const RenderedSpan& span : dirty) dirty_trusted += span.trusted ? span.text : "~";
            for (const RenderedSpan& span : clean) clean_trusted += span.trusted ? span.text : "~";
            EXPECT_EQ(dirty_trusted, clean_trusted);
        }
    }
}

// Random chains of operations: the template writes lower-case Latin letters, the variables are
// Greek, so that each letter of the result shows where it came from.
TEST(JinjaOrigin, holds_through_random_chains_of_operations) {
    std::mt19937_64 random(test_seed());
    const std::vector<std::string> kStarts = {"a",           "b",         "'st'",
                                              "l|join('w')", "('k' ~ a)", "(b + 'm')",
                                              "l[0]",        "d.k",       "('q' + a + 'r')"};
    const std::vector<std::string> kSteps = {"|upper",
                                             "|lower",
                                             "|trim",
                                             "|title",
                                             "|capitalize",
                                             "|replace('σ', 'w')",
                                             "|replace('s', a)",
                                             "|replace('', b, 3)",
                                             "[1:]",
                                             "[::-1]",
                                             "[:-1]",
                                             "[::2]",
                                             "|list|join",
                                             "|list|join('v')",
                                             "|list|join(a)",
                                             "|reverse",
                                             ".split('σ')|join('y')",
                                             ".split(b[0])|join",
                                             ".strip('σ')",
                                             " ~ 'z'",
                                             " + a",
                                             " * 2",
                                             "|indent(1)",
                                             ".center(9, 'x')",
                                             "|sort|join",
                                             "|unique|join",
                                             "|map('upper')|join",
                                             "|first ~ b",
                                             "|string",
                                             ".partition('σ')|join('j')",
                                             ".swapcase()",
                                             ".casefold()",
                                             "|tojson",
                                             "|safe",
                                             "|e",
                                             ".zfill(20)",
                                             "|format",
                                             "|batch(2)|map('join')|join('h')",
                                             "|select('ne', 's')|join",
                                             ".rjust(12, a[0])"};
    const Json variables = {{"a", "σαν"}, {"b", "ΩΣβ γ"}, {"l", {"λ", "μσ"}}, {"d", {{"k", "κσ"}}}};
    auto pick = [&](const std::vector<std::string>& from) { return from[random() % from.size()]; };
    int n_rendered = 0;
    for (int i = 0; i < 3000; i++) {
        std::string expression = pick(kStarts);
        for (size_t n = random() % 7; n > 0; n--)
            expression = "(" + expression + ")" + pick(kSteps);
        SCOPED_TRACE(expression);
        std::vector<RenderedSpan> spans;
        try {
            spans = render_template("{{ " + expression + " }}", variables);
        } catch (const Error&) {
            continue;  // a subscript of an empty text, say
        }
        n_rendered++;
        for (const RenderedSpan& span : spans) {
            for (unsigned char c : span.text) {
                bool latin = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
                EXPECT_FALSE(span.trusted && c >= 0x80) << marked(spans);
                EXPECT_FALSE(!span.trusted && latin && expression.find("|e") == std::string::npos &&
                             expression.find("tojson") == std::string::npos)
                    << marked(spans);
            }
        }
        if (HasFailure()) return;
    }
    EXPECT_GT(n_rendered, 2000);
}

}  // namespace
}  // namespace ridge
