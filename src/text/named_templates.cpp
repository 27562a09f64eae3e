#include "text/named_templates.h"

namespace ridge {
namespace {

// <|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>, without a header of its own for the
// date. Tools are listed in the system message; calls and results are JSON.
constexpr std::string_view kLlama3 = R"jinja({{- bos_token -}}
{%- macro header(role) -%}
    <|start_header_id|>{{ role }}<|end_header_id|>{{ '\n\n' }}
{%- endmacro -%}
{%- set ns = namespace(system='', rest=messages) -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set ns.system = messages[0].content | trim -%}
    {%- set ns.rest = messages[1:] -%}
{%- endif -%}
{%- if ns.system or tools or (messages and messages[0].role == 'system') -%}
    {{- header('system') ~ ns.system -}}
    {%- if tools -%}
        {{- '\n\n' if ns.system -}}
        {{- 'You can call these functions. To call one, answer with JSON alone: ' -}}
        {{- '{"name": the function, "parameters": a dictionary of argument names and values}.' -}}
        {%- for tool in tools -%}{{- '\n\n' ~ tool | tojson(indent=4) -}}{%- endfor -%}
    {%- endif -%}
    {{- '<|eot_id|>' -}}
{%- endif -%}
{%- for message in ns.rest -%}
    {%- if message.tool_calls -%}
        {{- header('assistant') -}}
        {%- for call in message.tool_calls -%}
            {%- set call = call.function or call -%}
            {{- '\n' if not loop.first -}}
            {{- '{"name": ' ~ call.name | tojson ~ ', "parameters": ' -}}
            {{- (call.arguments if call.arguments is string else call.arguments | tojson) ~ '}' -}}
        {%- endfor -%}
    {%- elif message.role in ('tool', 'ipython') -%}
        {{- header('ipython') ~ message.content -}}
    {%- else -%}
        {{- header(message.role) ~ message.content | trim -}}
    {%- endif -%}
    {{- '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- header('assistant') -}}{%- endif -%}
)jinja";

// ChatML with tools between <tools> tags, calls as <tool_call>, and thinking between <think> tags:
// of earlier turns it is dropped, and with enable_thinking false an empty one is put first.
constexpr std::string_view kQwen3 = R"jinja(
{%- set first_system = messages and messages[0].role == 'system' -%}
{%- if first_system or tools -%}
    {{- '<|im_start|>system\n' -}}
    {{- messages[0].content if first_system -}}
    {%- if tools -%}
        {{- '\n\n' if first_system -}}
        {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' -}}
        {{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' -}}
        {%- for tool in tools -%}{{- '\n' ~ tool | tojson -}}{%- endfor -%}
        {{- '\n</tools>\n\nFor each function call, return a json object with function name and ' -}}
        {{- 'arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n' -}}
        {{- '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' -}}
    {%- endif -%}
    {{- '<|im_end|>\n' -}}
{%- endif -%}
{%- set ns = namespace(last_query=messages | length - 1, open=true) -%}
{%- for message in messages[::-1] -%}
    {%- if ns.open and message.role == 'user' -%}
        {%- set ns.open = false -%}
        {%- set ns.last_query = messages | length - loop.index -%}
    {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- set text = message.content or '' -%}
        {%- set reasoning = message.reasoning_content or '' -%}
        {%- if not reasoning and '</think>' in text -%}
            {%- set parts = text.split('</think>') -%}
            {%- set reasoning = parts[0].split('<think>')[-1] -%}
            {%- set text = parts[-1].lstrip('\n') -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- if loop.index0 > ns.last_query and (loop.last or reasoning) -%}
            {{- '<think>\n' ~ reasoning.strip('\n') ~ '\n</think>\n\n' ~ text.lstrip('\n') -}}
        {%- else -%}
            {{- text -}}
        {%- endif -%}
        {%- for call in message.tool_calls or [] -%}
            {%- set call = call.function or call -%}
            {{- '\n' if text or not loop.first -}}
            {{- '<tool_call>\n{"name": ' ~ call.name | tojson ~ ', "arguments": ' -}}
            {{- call.arguments if call.arguments is string else call.arguments | tojson -}}
            {{- '}\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- elif message.role == 'tool' -%}
        {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' -}}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' -}}
        {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' -}}
    {%- elif not (first_system and loop.first) -%}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
    {{- '<think>\n\n</think>\n\n' if enable_thinking is defined and enable_thinking is false -}}
{%- endif -%}
)jinja";

constexpr std::string_view kChatMl = R"jinja(
{%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\n' if add_generation_prompt -}}
)jinja";

// <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nhi [/INST] answer </s>; every exchange begins with BOS.
constexpr std::string_view kLlama2 = R"jinja(
{%- set ns = namespace(system='', rest=messages, next='user') -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set ns.system = '<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' -%}
    {%- set ns.rest = messages[1:] -%}
{%- endif -%}
{%- for message in ns.rest -%}
    {%- if message.role != ns.next -%}
        {{- raise_exception('messages must go user, assistant, user, ... after an optional system message') -}}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        {{- bos_token ~ '[INST] ' ~ ((ns.system if loop.first else '') ~ message.content) | trim ~ ' [/INST]' -}}
        {%- set ns.next = 'assistant' -%}
    {%- else -%}
        {{- ' ' ~ message.content | trim ~ ' ' ~ eos_token -}}
        {%- set ns.next = 'user' -%}
    {%- endif -%}
{%- endfor -%}
)jinja";

// <|user|>\nhi</s>\n<|assistant|>\n
constexpr std::string_view kZephyr = R"jinja(
{%- for message in messages -%}
    {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ eos_token ~ '\n' -}}
{%- endfor -%}
{{- '<|assistant|>\n' if add_generation_prompt -}}
)jinja";

constexpr NamedTemplate kTemplates[] = {
    {"llama3", kLlama3}, {"qwen3", kQwen3},   {"chatml", kChatMl},
    {"llama2", kLlama2}, {"zephyr", kZephyr},
};

}  // namespace

std::span<const NamedTemplate> named_templates() {
    return kTemplates;
}

}  // namespace ridge
