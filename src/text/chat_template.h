#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/jinja/runtime.h"

namespace ridge {

namespace jinja {
struct Program;
}

// Text of one origin. Trusted text was written by the template (or is the BOS or EOS token): a
// control token in it counts. The rest came from a message, a tool or an argument and is plain
// text, whatever it looks like.
struct RenderedSpan {
    std::string text;
    bool trusted;
};

// The whole text of a rendered conversation.
std::string joined(const std::vector<RenderedSpan>& spans);

struct ChatInput {
    Json messages;  // array of objects: role, content, and what the template knows beside
    Json tools;     // null, or an array
    bool add_generation_prompt = true;
    std::optional<bool> enable_thinking;  // set only when the user said so
    Json extra;                           // further variables, an object; may be null
    std::string date;  // "2026-11-29": what strftime_now sees, at midnight; empty: now
};

// A model's chat template: a Jinja template, evaluated as jinja2 does when transformers sets it up
// (sandboxed and immutable, trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes,
// raise_exception, strftime_now, generation blocks).
//
// Differences, all on the strict side: integers have 64 bits (an overflow is an Error), what a run
// may use is bounded (jinja::Limits, grown with the messages), inheritance, includes and a few
// filters that write HTML are not supported.
class ChatTemplate {
  public:
    // `name_for_messages` is the file or model that the template comes from: every error reads
    // "<name>: line <n>: ...". An empty token is one that the model does not have.
    static ChatTemplate compile(std::string source, std::string name_for_messages,
                                std::string bos_token, std::string eos_token);
    // The same from a file of at most 1 MiB.
    static ChatTemplate read_file(const std::string& path, std::string bos_token,
                                  std::string eos_token);
    // One of the built-in templates; Error listing them for another name.
    static ChatTemplate named(std::string_view name, std::string bos_token, std::string eos_token);

    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;
    ~ChatTemplate();

    // Neighbouring spans differ in origin, none is empty. The template sees the messages as they
    // are, but for this:
    // - reasoning that a message has under `thinking` or `reasoning` is also reasoning_content;
    // - content in parts of {type: "text", text} is joined by newlines, unless the template reads
    //   such parts itself;
    // - where a message has a null and the template fails, it runs again with null content made
    //   empty and every other null left out.
    std::vector<RenderedSpan> render(const ChatInput& input,
                                     const jinja::Limits& limits = {}) const;

    // Does the template read this variable, for example enable_thinking or tools?
    bool mentions(std::string_view variable) const;

  private:
    ChatTemplate();
    std::vector<RenderedSpan> run(const ChatInput& input, const Json& messages,
                                  const jinja::Limits& limits) const;

    std::unique_ptr<jinja::Program> program_;
    std::string bos_token_, eos_token_;
};

}  // namespace ridge
