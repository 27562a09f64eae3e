#include "text/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"
#include "text/named_templates.h"

namespace ridge {
namespace {

using jinja::Pair;
using jinja::Runtime;
using jinja::Str;
using jinja::Value;

constexpr size_t kMaxInputBytes = size_t{256} << 20;

// Bytes of text in a JSON value, for the limits; also its depth, since it may have been built by
// hand.
size_t count_bytes(const Json& json, int depth_left, std::string_view what) {
    if (depth_left == 0) throw Error("{}: nested deeper than {} levels", what, kMaxJsonDepth);
    size_t n = sizeof(Value);
    if (json.is_string()) n += json.get_ref<const std::string&>().size();
    for (const auto& [key, value] : json.items()) {
        if (json.is_object()) n += sizeof(Value) + key.size();
        if (json.is_structured()) n += count_bytes(value, depth_left - 1, what);
    }
    return n;
}

// JSON as values of the template: the text is not copied, and none of it is trusted.
class FromJson {
  public:
    explicit FromJson(Runtime& rt) : rt_(rt) {}

    Value convert(const Json& json) {
        rt_.step();
        switch (json.type()) {
            case Json::value_t::boolean:
                return Value::of(json.get<bool>(), false);
            case Json::value_t::number_integer:
                return Value::of_int(json.get<int64_t>(), false);
            case Json::value_t::number_unsigned:
                return from_unsigned(json.get<uint64_t>());
            case Json::value_t::number_float:
                return Value::of_real(json.get<double>(), false);
            case Json::value_t::string:
                return Value::of(text(json.get_ref<const std::string&>()));
            case Json::value_t::array: {
                Value* data = rt_.create<Value>(json.size());
                size_t i = 0;
                for (const Json& item : json) data[i++] = convert(item);
                return Value::list(data, json.size());
            }
            case Json::value_t::object: {
                Pair* data = rt_.create<Pair>(json.size());
                size_t i = 0;
                for (const auto& [key, value] : json.items()) {
                    data[i++] = {Value::of(text(key)), convert(value)};
                }
                return Value::dict(data, json.size());
            }
            default:
                return Value::none(false);
        }
    }

  private:
    static Value from_unsigned(uint64_t n) {
        if (n <= static_cast<uint64_t>(INT64_MAX)) {
            return Value::of_int(static_cast<int64_t>(n), false);
        }
        Value value = Value::of_kind(jinja::Kind::kBigInt);
        value.big = n;
        value.trusted = false;
        return value;
    }

    static Str text(const std::string& s) {
        size_t bad = jinja::find_invalid_utf8(s);
        if (bad != std::string::npos) {
            throw Error("'{}' in a message is not UTF-8 at byte {}", printable(s, 60), bad);
        }
        return Str::of(s, false);
    }

    Runtime& rt_;
};

bool is_text_part(const Json& part) {
    if (!part.is_object()) return false;
    auto type = part.find("type"), text = part.find("text");
    return type != part.end() && *type == "text" && text != part.end() && text->is_string();
}

// The parts' text, or nothing where one is something else.
std::optional<std::string> join_parts(const Json& parts) {
    if (!std::all_of(parts.begin(), parts.end(), is_text_part)) return std::nullopt;
    std::string joined;
    for (const Json& part : parts) {
        if (&part != &parts.front()) joined += '\n';
        joined += part["text"].get_ref<const std::string&>();
    }
    return joined;
}

// The name under which templates read it, whatever the message calls its reasoning.
void add_reasoning(Json& message) {
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
        auto at = message.find(key);
        if (at == message.end() || at->is_null()) continue;
        Json reasoning = *at;
        message["reasoning_content"] = std::move(reasoning);
        return;
    }
}

Json prepare_messages(const Json& given, bool reads_parts) {
    Json messages = Json::array();
    for (size_t i = 0; i < given.size(); i++) {
        if (!given[i].is_object()) throw Error("message {} is not an object", i);
        Json message = given[i];
        auto content = message.find("content");
        if (content != message.end() && content->is_array() && !reads_parts) {
            std::optional<std::string> text = join_parts(*content);
            if (text) *content = std::move(*text);
        }
        add_reasoning(message);
        messages.push_back(std::move(message));
    }
    return messages;
}

// For templates that do not expect null: content becomes empty, any other such key goes. Empty when
// there is none.
std::optional<Json> without_nulls(const Json& messages) {
    bool found = false;
    Json result = Json::array();
    for (const Json& message : messages) {
        Json kept = Json::object();
        for (const auto& [key, value] : message.items()) {
            found = found || value.is_null();
            if (!value.is_null()) kept[key] = value;
            if (value.is_null() && key == "content") kept[key] = "";
        }
        result.push_back(std::move(kept));
    }
    return found ? std::optional<Json>(std::move(result)) : std::nullopt;
}

std::vector<RenderedSpan> spans_of(const jinja::TextBuilder& out) {
    std::vector<RenderedSpan> spans;
    size_t begin = 0;
    for (const jinja::TextBuilder::Run& run : out.runs()) {
        spans.push_back({out.text().substr(begin, run.end - begin), run.trusted});
        begin = run.end;
    }
    return spans;
}

}  // namespace

std::string joined(const std::vector<RenderedSpan>& spans) {
    std::string text;
    for (const RenderedSpan& span : spans) text += span.text;
    return text;
}

ChatTemplate::ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::read_file(const std::string& path, std::string bos_token,
                                     std::string eos_token) {
    return compile(ridge::read_file(path, jinja::kMaxTemplateBytes), printable(path),
                   std::move(bos_token), std::move(eos_token));
}

ChatTemplate ChatTemplate::compile(std::string source, std::string name_for_messages,
                                   std::string bos_token, std::string eos_token) {
    if (source.find_first_not_of(" \t\r\n") == std::string::npos) {
        throw Error("{}: the chat template is empty", printable(name_for_messages));
    }
    ChatTemplate result;
    result.program_ = jinja::parse(std::move(source), std::move(name_for_messages));
    for (const std::string* token : {&bos_token, &eos_token}) {
        if (jinja::find_invalid_utf8(*token) != std::string::npos) {
            throw Error("{}: the token '{}' is not UTF-8", result.program_->name,
                        printable(*token));
        }
    }
    result.bos_token_ = std::move(bos_token);
    result.eos_token_ = std::move(eos_token);
    return result;
}

ChatTemplate ChatTemplate::named(std::string_view name, std::string bos_token,
                                 std::string eos_token) {
    std::string known;
    for (const NamedTemplate& row : named_templates()) {
        if (row.name == name) {
            return compile(std::string(row.source), "chat template " + std::string(name),
                           std::move(bos_token), std::move(eos_token));
        }
        known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    throw Error(ErrorKind::kUsage, "chat template '{}': unknown name; one of {}",
                printable(name, 60), known);
}

std::vector<RenderedSpan> ChatTemplate::render(const ChatInput& input,
                                               const jinja::Limits& limits) const {
    if (!input.messages.is_array()) throw Error("messages: expected an array of objects");
    if (!input.tools.is_null() && !input.tools.is_array()) throw Error("tools: expected an array");
    if (!input.extra.is_null() && !input.extra.is_object()) {
        throw Error("chat template variables: expected an object");
    }
    size_t n_bytes = count_bytes(input.messages, kMaxJsonDepth, "messages") +
                     count_bytes(input.tools, kMaxJsonDepth, "tools") +
                     count_bytes(input.extra, kMaxJsonDepth, "chat template variables");
    if (n_bytes > kMaxInputBytes) {
        throw Error("the conversation has {} bytes, expected at most {}", n_bytes, kMaxInputBytes);
    }
    jinja::Limits grown = limits;
    grown.max_steps += n_bytes;
    grown.max_memory_bytes += 8 * n_bytes;
    grown.max_output_bytes += 4 * n_bytes;

    Json messages = prepare_messages(input.messages, program_->reads_text_parts);
    try {
        return run(input, messages, grown);
    } catch (const Error&) {
        std::optional<Json> plain = without_nulls(messages);
        if (!plain) throw;
        return run(input, *plain, grown);
    }
}

std::vector<RenderedSpan> ChatTemplate::run(const ChatInput& input, const Json& messages,
                                            const jinja::Limits& limits) const {
    Runtime rt(limits, program_->name);
    jinja::CivilTime now =
        input.date.empty() ? jinja::local_time_now() : jinja::parse_date(input.date);
    jinja::Interpreter interpreter(rt, *program_, now);
    FromJson from_json(rt);
    auto set = [&](std::string_view name, const Value& value) {
        interpreter.set_global(name, value);
    };
    if (!bos_token_.empty()) set("bos_token", Value::of(Str::of(bos_token_, true)));
    if (!eos_token_.empty()) set("eos_token", Value::of(Str::of(eos_token_, true)));
    // As transformers does: no tools and no documents are None, not undefined.
    set("documents", Value::none());
    set("add_generation_prompt", Value::of(input.add_generation_prompt));
    if (input.enable_thinking) set("enable_thinking", Value::of(*input.enable_thinking));
    if (!input.extra.is_null()) {
        for (const auto& [name, value] : input.extra.items()) set(name, from_json.convert(value));
    }
    set("tools", from_json.convert(input.tools));
    set("messages", from_json.convert(messages));

    jinja::TextBuilder out(rt, jinja::TextBuilder::Use::kOutput);
    interpreter.run(out);
    return spans_of(out);
}

bool ChatTemplate::mentions(std::string_view variable) const {
    auto at = program_->ids.find(std::string(variable));
    return at != program_->ids.end() && program_->loaded[at->second];
}

}  // namespace ridge
