"""Writes own-NAME.jsonl, what Python's Jinja2 makes of own-NAME.jinja for each conversation, and tools.jsonl, what it makes
of the templates that know tools for conversations with tools, calls and results.

    python3 make_cases.py        (needs the module jinja2)

The conversations and the field "llamacpp" (what llama.cpp's built-in code for the same format writes) stay as they are in
the files; the field "jinja", or "jinja_error" where the template refuses, is replaced.
"""
import datetime
import glob
import json
import os

import jinja2
import jinja2.sandbox

HERE = os.path.dirname(os.path.abspath(__file__))
DEEPSEEK = ("<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>")
ENDS = {"deepseek": (DEEPSEEK[0], "<|EOT|>"), "deepseek2": DEEPSEEK, "deepseek3": DEEPSEEK, "gemma": ("<bos>", "<eos>"),
        "llama3": ("<|begin_of_text|>", "<|eot_id|>"), "llama-3.2": ("<|begin_of_text|>", "<|eot_id|>")}

WITH_TOOLS = {"qwen2.5": "<|im_end|>", "qwen3": "<|im_end|>", "mistral-v3": "</s>", "mistral-v3-tekken": "</s>",
              "own-llama-3.2": "<|eot_id|>"}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city, \"now\".",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Z\u00fcrich", "Bern"]},
                                                   "days": {"type": ["integer", "null"], "minimum": 1}}, "required": ["city"]}}}]


def call(arguments, number):
    return {"type": "function", "id": f"call0000{number}", "function": {"name": "get_weather", "arguments": arguments}}


def result(text, number):
    return {"role": "tool", "name": "get_weather", "content": text, "tool_call_id": f"call0000{number}"}


SYSTEM, ASK = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it warm in Z\u00fcrich?"}
FIRST = [{"role": "assistant", "content": "", "tool_calls": [call({"city": "Z\u00fcrich", "days": None}, 1)]}, result('{"t": 21.5}', 1)]
SECOND = [{"role": "user", "content": "And in Bern?"},
          {"role": "assistant", "content": "", "tool_calls": [call({"city": "Bern"}, 2), call({"city": "Bern", "days": 3}, 3)]},
          result("20 <|im_end|>", 2), result("\"rain\"\n", 3)]
CONVERSATIONS = {
    "asks": [SYSTEM, ASK],
    "called": [ASK, *FIRST],
    "answered": [SYSTEM, ASK, *FIRST, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Thanks"}],
    "several": [SYSTEM, ASK, *FIRST, {"role": "assistant", "content": "Yes."}, *SECOND],
}


def refuse(message):
    raise jinja2.TemplateError(message)


def main():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    env.globals.update(raise_exception=refuse, strftime_now=datetime.datetime(2024, 7, 26, 12).strftime)
    for path in sorted(glob.glob(os.path.join(HERE, "own-*.jinja"))):
        bos, eos = ENDS.get(os.path.basename(path)[4:-6], ("<s>", "</s>"))
        with open(path, encoding="utf-8") as f:
            template = env.from_string(f.read())
        with open(path[:-6] + ".jsonl", encoding="utf-8") as f:
            cases = [json.loads(line) for line in f]
        for case in cases:
            case.pop("jinja", None)
            case.pop("jinja_error", None)
            try:
                case["jinja"] = template.render(messages=case["messages"], bos_token=bos, eos_token=eos,
                                                add_generation_prompt=case["add_generation_prompt"])
            except jinja2.TemplateError as error:
                case["jinja_error"] = str(error)
        with open(path[:-6] + ".jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n" for case in cases)
    with open(os.path.join(HERE, "tools.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n" for case in cases_with_tools(env))


def cases_with_tools(env):
    for name, eos in WITH_TOOLS.items():
        with open(os.path.join(HERE, name + ".jinja"), encoding="utf-8") as f:
            template = env.from_string(f.read())
        for i, (conv, messages) in enumerate(CONVERSATIONS.items()):
            variables = {"messages": messages, "tools": TOOLS, "add_generation_prompt": i > 0, "bos_token": "<s>", "eos_token": eos}
            case = {"template": name, "conv": conv, "variables": json.dumps(variables, ensure_ascii=False)}
            try:
                case["jinja"] = template.render(**json.loads(case["variables"]))
            except jinja2.TemplateError as error:
                case["jinja_error"] = str(error)
            yield case


main()
