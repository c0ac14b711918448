"""A call that a request demands comes in every form in which models write calls: with arguments of its schema, as a stream
too, and without a mark of the form in its text. Called by CTest with the program's path."""

import json
import os
import re

from server import SOURCE, Server, case, check, events_of, joined_calls, run_all, scratch
import json_schema  # of tests/support, which server.py adds to the path

# By the names of src/chat/call_format.c: what of a template tells the form.
FORMS = {
    "hermes": "<tool_call> tools", "qwen3-coder": "<function= <parameter=", "seed-oss": "<seed:tool_call>", "minimax-m2": "<minimax:tool_call>",
    "atem": "<atem:function_calls> <atem:invoke", "minicpm5": "<function name= <param name=", "deepseek-v3.2": "\uff5cDSML\uff5c",
    "deepseek-v4": "\uff5cDSML\uff5c tool_calls>", "glm-4.5": "<arg_key> <arg_value>", "glm-4.7": "</arg_key><arg_value>", "mistral": "[TOOL_CALLS]",
    "mistral-v11": "[TOOL_CALLS] [ARGS]", "deepseek-v3": "<\uff5ctool\u2581call\u2581begin\uff5c> ```json", "deepseek-v3.1": "<\uff5ctool\u2581call\u2581begin\uff5c>",
    "kimi-k2": "<|tool_call_begin|> <|tool_call_argument_begin|>", "llama-3": "<|start_header_id|> \"parameters\"", "nemotron-v2": "<TOOLCALL>",
    "apriel": "<tool_calls>[", "minimax-m1": "<tool_calls> \"arguments\"", "granite-3.3": "<|tool_call|> tools", "gigachat-3.1": "<|function_call|>",
    "firefunction-v2": "functools[", "command-r": "Action: \"tool_name\"", "command-r7b": "<|START_ACTION|> <|START_RESPONSE|>",
    "command-a": "<|START_ACTION|>", "apertus": "<|tools_prefix|>", "functionary-v3.1": "<function= </function>", "functionary-v3.2": ">>>all recipient",
    "lfm2": "<|tool_call_start|>", "gemma-4": "<|tool_call> <tool_call|>", "harmony": "<|channel|> tools"}
TEMPLATE = ("{# %s #}{%% for m in messages %%}{{ m.role }}: {{ m.content or '' }}\n{%% for t in tools or [] %%}{{ t.function.name }} {%% endfor %%}"
            "{%% for c in m.tool_calls or [] %%}{{ c.function.name }}{{ c.function.arguments }}{%% endfor %%}{%% endfor %%}")
PLAN = {"type": "object", "properties": {
    "who": {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}, "name": {"type": "string", "maxLength": 6}},
            "required": ["age", "name"], "additionalProperties": False},
    "days": {"type": "array", "items": {"enum": ["Mon", "Tue"]}, "minItems": 1, "maxItems": 2}, "mode": {"type": "string", "enum": ["a", "b"]},
    "price": {"type": "number", "minimum": 0, "maximum": 9}, "note": {"type": "string", "minLength": 2, "maxLength": 12}, "on": {"type": "string", "format": "date"}},
    "required": ["who", "days", "mode", "price", "note", "on"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "plan", "parameters": PLAN}}, {"type": "function", "function": {"name": "now"}}]


def wrong_call(call, choice):
    """None, or what is wrong with a call."""
    schema = {"plan": PLAN, "now": {"type": "object", "properties": {}, "additionalProperties": False}}.get(call["name"])
    if schema is None or choice not in ("required", call["name"]):
        return "another function"
    try:
        return json_schema.problem(json.loads(call["arguments"]), schema)
    except ValueError:
        return "no JSON"


@case
def every_form_has_a_template_here():
    with open(os.path.join(SOURCE, "src", "chat", "call_format.c"), encoding="utf-8") as f:
        check(set(re.findall(r"\] = \{\"([a-z0-9.-]+)\", ", f.read())) == set(FORMS))


def called(s, name, choice):
    """The request and the choice of its answer. Harmony may reason before a call, and the model of the tests does not end."""
    for seed in range(40 if name == "harmony" else 1):
        ask = {"messages": [{"role": "user", "content": "Plan."}], "tools": TOOLS, "parallel_tool_calls": False, "temperature": 1.0, "seed": seed,
               "tool_choice": choice if choice == "required" else {"type": "function", "function": {"name": choice}}, "max_tokens": 1000}
        answer = s.post("/v1/chat/completions", ask)
        check(answer.status == 200, name, choice, answer.raw)
        one = answer.json()["choices"][0]
        if one["finish_reason"] != "length":
            break
    return ask, one


@case
def a_call_that_must_be_is_one_in_every_form():
    for name, marks in FORMS.items():
        with Server("-t", "1", "--ctx", "2048", "--template", scratch("form.jinja", (TEMPLATE % marks).encode())) as s:
            for choice in "required", "plan", "now":
                ask, one = called(s, name, choice)
                check(one["finish_reason"] == "tool_calls" and not one["message"]["content"], name, choice, one)
                call, = (c["function"] for c in one["message"]["tool_calls"])
                check(wrong_call(call, choice) is None, name, choice, call, wrong_call(call, choice))
                events = [e for _, e in events_of(s.post("/v1/chat/completions", {**ask, "stream": True}))[:-1]]
                deltas = [e["choices"][0]["delta"] for e in events]
                streamed, = joined_calls(deltas)
                check((streamed["name"], streamed["arguments"]) == (call["name"], call["arguments"]), name, choice, streamed, call)
                check(not any(d.get("content") for d in deltas) and events[-1]["choices"][0]["finish_reason"] == "tool_calls", name, choice, events)


if __name__ == "__main__":
    run_all(__file__)
