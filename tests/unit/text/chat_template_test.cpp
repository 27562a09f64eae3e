#include "base/error.h"
#include "chat_files.h"

namespace ridge {
namespace {

ChatTemplate published(const std::string& name) {
    bool llama = name.substr(0, 5) == "llama";
    return ChatTemplate::compile(read_chat_file(name + ".jinja"), name,
                                 llama ? "<|begin_of_text|>" : "", "");
}

ChatInput input_of(const Json& c) {
    ChatInput input;
    input.messages = c["messages"];
    if (c.contains("tools")) input.tools = c["tools"];
    if (c.contains("extra")) input.extra = c["extra"];
    input.add_generation_prompt = c.value("add_generation_prompt", true);
    for (const char* key : {"thinking", "enable_thinking"}) {
        if (c.contains(key)) input.enable_thinking = c[key].get<bool>();
    }
    input.date = "2026-11-29";
    return input;
}

void expect_golden(const std::string& file, size_t n_least) {
    Json golden = read_chat_json(file);
    ASSERT_GE(golden["cases"].size(), n_least);
    for (const Json& c : golden["cases"]) {
        SCOPED_TRACE(c["template"].get<std::string>() + ": " + c["case"].get<std::string>());
        ChatTemplate chat = published(c["template"]);
        if (c.contains("error")) {
            EXPECT_THROW(chat.render(input_of(c)), Error);
            continue;
        }
        try {
            EXPECT_EQ(joined(chat.render(input_of(c))), c["text"].get<std::string>());
        } catch (const Error& e) {
            ADD_FAILURE() << e.what();
        }
    }
}

TEST(ChatTemplate, published_templates_render_as_published) {
    expect_golden("chat.json", 164);
}

TEST(ChatTemplate, published_templates_render_as_with_jinja2) {
    expect_golden("conversations.json", 300);
}

const Json kHello = {{{"role", "user"}, {"content", "hi"}}};
const Json kTurns = {{{"role", "system"}, {"content", "S"}},
                     {{"role", "user"}, {"content", "a"}},
                     {{"role", "assistant"}, {"content", "b"}},
                     {{"role", "user"}, {"content", "c"}}};

std::string render_named(const char* name, const Json& messages, std::optional<bool> thinking = {},
                         bool prompt = true) {
    ChatInput input;
    input.messages = messages;
    input.enable_thinking = thinking;
    input.add_generation_prompt = prompt;
    return joined(ChatTemplate::named(name, "<s>", "</s>").render(input));
}

TEST(NamedTemplates, have_the_well_known_forms) {
    EXPECT_EQ(render_named("llama3", kHello),
              "<s><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
    EXPECT_EQ(render_named("llama3", kTurns, {}, false),
              "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
              "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|>"
              "<|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|>");
    EXPECT_EQ(render_named("chatml", kTurns),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
              "<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
              "<|im_start|>assistant\n");
    EXPECT_EQ(render_named("llama2", kTurns),
              "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST]");
    EXPECT_EQ(render_named("zephyr", kTurns),
              "<|system|>\nS</s>\n<|user|>\na</s>\n<|assistant|>\nb</s>\n<|user|>\nc</s>\n"
              "<|assistant|>\n");
}

TEST(NamedTemplates, qwen3_thinks_unless_told_not_to) {
    const std::string head = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(render_named("qwen3", kHello), head);
    EXPECT_EQ(render_named("qwen3", kHello, true), head);
    EXPECT_EQ(render_named("qwen3", kHello, false), head + "<think>\n\n</think>\n\n");
}

TEST(NamedTemplates, qwen3_agrees_with_the_published_template) {
    Json golden = read_chat_json("chat.json");
    int n = 0;
    for (const Json& c : golden["cases"]) {
        if (c["template"] != "qwen3") continue;
        SCOPED_TRACE(c["case"].get<std::string>());
        EXPECT_EQ(joined(ChatTemplate::named("qwen3", "", "").render(input_of(c))),
                  c["text"].get<std::string>());
        n++;
    }
    EXPECT_GT(n, 50);
}

TEST(NamedTemplates, tools_and_their_calls_appear) {
    Json call = {{"function", {{"name", "f"}, {"arguments", {{"a", 1}}}}}};
    ChatInput input;
    input.messages = {{{"role", "user"}, {"content", "x"}},
                      {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
                      {{"role", "tool"}, {"content", "r"}}};
    input.tools = {{{"name", "f"}}};
    std::string llama = joined(ChatTemplate::named("llama3", "", "").render(input));
    EXPECT_NE(llama.find("{\n    \"name\": \"f\"\n}<|eot_id|>"), std::string::npos);
    EXPECT_NE(llama.find("{\"name\": \"f\", \"parameters\": {\"a\": 1}}<|eot_id|>"),
              std::string::npos);
    EXPECT_NE(llama.find("ipython<|end_header_id|>\n\nr<|eot_id|>"), std::string::npos);
}

TEST(NamedTemplates, another_name_is_an_error_that_lists_them) {
    try {
        ChatTemplate::named("llama9", "", "");
        FAIL();
    } catch (const Error& e) {
        EXPECT_STREQ(e.what(),
                     "chat template 'llama9': unknown name; one of llama3, qwen3, chatml, llama2, "
                     "zephyr");
        EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    }
}

std::string render_messages(const std::string& source, const Json& messages) {
    ChatInput input;
    input.messages = messages;
    return joined(ChatTemplate::compile(source, "test", "", "").render(input));
}

const char* const kPlain =
    "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}";

TEST(ChatMessages, content_in_parts_is_joined_for_a_template_that_wants_text) {
    Json messages = {
        {{"role", "user"},
         {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}}};
    EXPECT_EQ(render_messages(kPlain, messages), "user:a\nb;");
    EXPECT_EQ(
        render_messages("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}", messages),
        "<a><b>");
    EXPECT_EQ(render_messages("{% for p in messages[0]['content'] %}<{{ p['text'] }}>{% endfor %}",
                              messages),
              "<a><b>");
    messages[0]["content"][1] = {{"type", "image"}};
    EXPECT_THROW(render_messages(kPlain, messages), Error);
}

TEST(ChatMessages, null_is_kept_where_the_template_can_take_it) {
    Json messages = {{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", nullptr}}};
    EXPECT_EQ(render_messages(kPlain, messages), "assistant:;");
    EXPECT_EQ(render_messages("{{ messages[0].content is none }}", messages), "True");
    EXPECT_EQ(render_messages("{{ 'tool_calls' in messages[0] }}{{ '' + messages[0].content }}",
                              messages),
              "False");
}

TEST(ChatMessages, reasoning_is_found_under_its_other_names) {
    for (const char* key : {"reasoning", "thinking", "reasoning_content"}) {
        Json messages = {{{"role", "assistant"}, {"content", ""}, {key, "why"}}};
        EXPECT_EQ(render_messages("{{ messages[0].reasoning_content }}", messages), "why");
    }
}

TEST(ChatMessages, what_is_not_a_conversation_is_refused) {
    for (const Json& messages : {Json("hi"), Json::object(), Json{1}, Json{"hi"}}) {
        EXPECT_THROW(render_messages(kPlain, messages), Error) << messages;
    }
    Json deep = 1;
    for (int i = 0; i < 1000; i++) deep = Json::array({deep});
    EXPECT_THROW(render_messages(kPlain, Json::array({{{"role", "x"}, {"content", deep}}})), Error);
    EXPECT_THROW(render_messages(kPlain, {{{"role", "user"}, {"content", "\xff"}}}), Error);
}

TEST(ChatTemplate, sees_dates_tokens_and_further_variables) {
    ChatInput input;
    input.messages = Json::array();
    input.extra = {{"a", 1}, {"bos_token", "[X]"}};
    input.date = "2024-02-29";
    ChatTemplate chat = ChatTemplate::compile(
        "{{ bos_token }}|{{ eos_token is defined }}|{{ a }}|{{ tools is none }}|"
        "{{ strftime_now('%d %b %Y') }}",
        "test", "<s>", "");
    EXPECT_EQ(joined(chat.render(input)), "[X]|False|1|True|29 Feb 2024");
    for (const char* date :
         {"2023-02-29", "2024-13-01", "2024-00-01", "29 Feb 2024", "2024-02-3x", "2024-2-29"}) {
        input.date = date;
        EXPECT_THROW(chat.render(input), Error) << date;
    }
    input.date = "";
    EXPECT_EQ(joined(chat.render(input)).substr(0, 4), "[X]|");
}

TEST(ChatTemplate, knows_what_it_reads) {
    ChatTemplate qwen = published("qwen3");
    EXPECT_TRUE(qwen.mentions("enable_thinking"));
    EXPECT_TRUE(qwen.mentions("tools"));
    EXPECT_FALSE(qwen.mentions("bos_token"));
    EXPECT_FALSE(published("smollm2").mentions("tools"));
    EXPECT_FALSE(ChatTemplate::compile("{% set x = 1 %}{# y #}z", "test", "", "").mentions("x"));
}

TEST(ChatTemplate, spans_alternate_and_none_is_empty) {
    ChatInput input;
    input.messages = kTurns;
    std::vector<RenderedSpan> spans = published("qwen2.5").render(input);
    ASSERT_GT(spans.size(), 5u);
    for (size_t i = 0; i < spans.size(); i++) {
        EXPECT_FALSE(spans[i].text.empty());
        EXPECT_TRUE(i == 0 || spans[i].trusted != spans[i - 1].trusted);
    }
}

TEST(ChatTemplate, may_be_used_again_and_moved) {
    ChatTemplate first = published("qwen3");
    ChatInput input;
    input.messages = kHello;
    std::string text = joined(first.render(input));
    ChatTemplate second = std::move(first);
    EXPECT_EQ(joined(second.render(input)), text);
    EXPECT_EQ(joined(second.render(input)), text);
}

}  // namespace
}  // namespace ridge
