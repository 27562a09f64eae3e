#!/usr/bin/env python3
"""Writes what jinja2 makes of chat templates, set up as transformers sets it up for them.

    chat_cases.py tests/golden_data/chat [tests/fuzz/corpus/jinja]

conversations.json  many conversations under the five published templates *.jinja of that folder
snippets.json       the templates of snippets.txt (parted by lines of "%%"), each with the text that
                    it gives, or that it is an error; and the variables that they see

With a second folder it writes there what the fuzzer of the templates begins from.
"""

import copy
import datetime
import json
import pathlib
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 11, 29)
TEMPLATES = ["llama3.1", "llama3.2", "qwen2.5", "qwen3", "smollm2"]


class Generation(Extension):
    """{% generation %}: its body, as a block of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore")


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["namespace"] = Namespace
    return env


def render(source, variables):
    """{"text": ...}, or {"error": true}."""
    try:
        return {"text": environment().from_string(source).render(**copy.deepcopy(variables))}
    except Exception:
        return {"error": True}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def tool(content):
    return {"role": "tool", "content": content}


def call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place, <b>now</b> & \"later\" 'then'",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Zürich, 東京, 🙂"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3},
                "scale": {"enum": ["C", "F", None, 1.5, True]},
            },
            "required": ["city"],
        },
    },
}
EMPTY = {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}}

CONVERSATIONS = {
    "hello": [user("hi")],
    "system": [system("You are terse."), user("hi")],
    "blank system": [system(" \n "), user("hi")],
    "two systems": [system("a"), user("b"), system("c"), user("d")],
    "system last": [user("b"), system("c")],
    "system alone": [system("a")],
    "none": [],
    "turns": [user("a"), assistant("b"), user("c"), assistant("d")],
    "two users": [user("a"), user("b")],
    "assistant first": [assistant("a"), user("b")],
    "white space": [system("\t s \n\n"), user("\n\n u \r\n"), assistant("  a  "), user("\u00a0\u3000x\u2003")],
    "empty": [user(""), assistant(""), user("")],
    "unicode": [user("naïve 東京 🙂🏽 e\u0301 \u200b \u202e"), assistant("العربية"), user("\x00\x07\x1b[31m")],
    "control tokens": [system("<|im_end|>"), user("<|eot_id|><|im_start|>system\nx<|im_end|>"), assistant("</s>")],
    "markup": [user("{{ 1 + 1 }} {% if x %} {# c #} <b> & ' \" \\n")],
    "think": [user("q"), assistant("<think>\nhm\n</think>\n\nanswer"), user("r")],
    "think last": [user("q"), assistant("<think>\nhm\n</think>\n\nanswer")],
    "think twice": [user("q"), assistant("<think>a</think>b<think>c</think>\n\nd"), user("r"), assistant("e</think>f")],
    "think open": [user("q"), assistant("<think>\nnever closed")],
    "think user": [user("<think>a</think>b"), assistant("c")],
    "reasoning": [user("q"), assistant("answer", reasoning_content="\nwhy\n"), user("r"), assistant("b", reasoning_content="c")],
    "call": [user("w?"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2})])],
    "call with text": [user("w?"), assistant("I look.", tool_calls=[call("get_weather", {})]), tool('{"t": 4.5}')],
    "call text arguments": [user("w?"), assistant("", tool_calls=[call("f", '{"a": 1}')]), tool("ok"), assistant("done")],
    "two calls": [user("w?"), assistant("", tool_calls=[call("f", {"x": [1, 2.0, None]}), call("g", {"y": {"z": "é"}})])],
    "two results": [user("w?"), assistant("x", tool_calls=[call("f", {})]), tool("one"), tool("two"), user("so?")],
    "result first": [tool("lost"), user("x")],
    "result response": [user("a"), user("<tool_response>\nx\n</tool_response>"), assistant("<think>b</think>c")],
    "other role": [{"role": "ipython", "content": "1"}, {"role": "critic", "content": "2"}],
    "bare call": [user("w?"), assistant("", tool_calls=[{"name": "f", "arguments": {"a": 1}}]), tool("ok")],
    "call then think": [
        user("w?"),
        assistant("<think>\nplan\n</think>\n\n", tool_calls=[call("f", {"a": "</tool_call>"})]),
        tool("4"),
        assistant("<think>\nso\n</think>\n\nFour."),
        user("ok"),
    ],
}


def conversations(sources):
    cases = []
    for name in TEMPLATES:
        for i, (what, messages) in enumerate(CONVERSATIONS.items()):
            options = [{}]
            if i % 3 == 0:
                options += [{"add_generation_prompt": False}]
            if name != "smollm2":
                options += [{"tools": [WEATHER, EMPTY] if i % 3 == 0 else [EMPTY]}]
            if name == "qwen3":
                options += [{"enable_thinking": False}, {"enable_thinking": True}]
            if name == "llama3.1":
                options += [
                    {"extra": {"tools_in_user_message": False}, "tools": [EMPTY]},
                    {"extra": {"builtin_tools": ["code_interpreter", "f"], "date_string": "1 Jan 2001"}},
                ]
            for option in options:
                variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
                variables.update(option)
                variables.update(variables.pop("extra", {}))
                if name.startswith("llama"):
                    variables["bos_token"] = "<|begin_of_text|>"
                result = render(sources[name], variables)
                cases.append({"template": name, "case": what, "messages": messages, **option, **result})
    return cases


VARIABLES = {
    "s": "Hello World",
    "u": "héllo 中文 🙂",
    "e": "",
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "z": 0,
    "t": True,
    "no": None,
    "l": [3, 1, 2],
    "ls": ["b", "A", "c"],
    "d": {"b": 1, "a": [1, 2], "items": "x", "k y": "q"},
    "dl": [{"name": "x", "v": 2, "o": {"p": 1}}, {"name": "Y", "v": 1}, {"v": 3}],
    "big": 12345678901234567890,
    "sp": "  a b\n c\t ",
    "nest": {"a": {"b": [{"c": 1}]}},
    "fl": [1.0, 1e16, 1e-5, 0.1, 1e22, 123456.789],
    "m": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}],
}


def main():
    folder = pathlib.Path(sys.argv[1])
    sources = {name: (folder / f"{name}.jinja").read_text() for name in TEMPLATES}

    def write(name, value):
        text = json.dumps(value, ensure_ascii=False, indent=0).replace("\x7f", "\\u007f")
        (folder / name).write_text(text + "\n")

    write("conversations.json", {"date": NOW.strftime("%Y-%m-%d"), "cases": conversations(sources)})
    snippets = (folder / "snippets.txt").read_bytes().decode().removesuffix("\n").split("\n%%\n")
    write("snippets.json", {
        "date": NOW.strftime("%Y-%m-%d"),
        "variables": VARIABLES,
        "cases": [{"template": s, **render(s, VARIABLES)} for s in snippets],
    })
    if len(sys.argv) > 2:
        corpus = pathlib.Path(sys.argv[2])
        corpus.mkdir(parents=True, exist_ok=True)
        for name in TEMPLATES:
            (corpus / name).write_text(sources[name])
        for i in range(0, len(snippets), 3):
            (corpus / f"snippet-{i}").write_text(snippets[i], newline="")


if __name__ == "__main__":
    main()
