"""Writes own-NAME.jsonl, what Python's Jinja2 makes of own-NAME.jinja for each conversation.

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


main()
