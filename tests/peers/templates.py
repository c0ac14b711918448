"""The conversations of tests/serve/test_templates.py with each chat template of llama.cpp's repository: every text and
every call stands in the prompt, in order, or the template's own words refuse it, at most one of fourteen. And the calls
that a template writes are read from its text again.

    templates.py HEARTH TEMPLATES     TEMPLATES: a folder of .jinja files; tests/peers_chat lies beside HEARTH
"""

import glob
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.abspath(sys.argv[2])
sys.path[:0] = [os.path.join(HERE, "..", "serve"), os.path.join(HERE, "..", "support")]
from cases import Skip, case, run_cases  # noqa: E402
from server import Server  # noqa: E402
from test_templates import SHAPES, texts  # noqa: E402


def lacks(prompt, messages):
    """What of a conversation a prompt lacks."""
    at = 0
    for word in texts(messages):
        if prompt.count(word) != 1 or prompt.find(word, at) < 0:
            return f"{word} stands there {prompt.count(word)} times, or too early"
        at = prompt.find(word, at)
    for call in (c["function"] for m in messages for c in m.get("tool_calls", [])):
        for word in re.findall(r"[a-z]{3,}", call["arguments"] + " " + call["name"]):
            if word not in prompt:
                return f"{word} of a call"
    return None


@case
def templates_of_others_take_all_conversations():
    paths = sorted(glob.glob(os.path.join(FOLDER, "*.jinja")))
    refused, wrong, n = [], [], 0
    if not paths:
        raise Skip("no templates in " + FOLDER)
    for path in paths:
        with Server("-t", "1", "--template", path) as s:
            for shape, messages in SHAPES.items():
                n += 1
                answer, name = s.post("/apply-template", {"messages": messages}), f"{os.path.basename(path)}, {shape}"
                if answer.status == 200:
                    missing = lacks(answer.json()["prompt"], messages)
                    wrong += [f"{name}: {missing}"] if missing else []
                else:
                    refused.append(f"{name}: {answer.error()['message']}")
    print(f"     {n} conversations with {len(paths)} templates: {len(refused)} refused")
    print("".join(f"     {line}\n" for line in refused), end="")
    assert not wrong, wrong
    assert len(refused) <= n // 14, refused


def function(name, **properties):
    parameters = {"type": "object", "properties": {key: {"type": kind, "description": key} for key, kind in properties.items()},
                  "required": [next(iter(properties))]}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


FUNCTIONS = [function("look", place="string", n="integer", flag="boolean", code="string", list="array", o="object"), function("hear", sound="string")]
for schema, more in (("list", {"items": {"type": "string"}}), ("o", {"additionalProperties": {"type": "string"}})):
    FUNCTIONS[0]["function"]["parameters"]["properties"][schema].update(more)
LOOK = ("look", {"place": "Lima, it's \"big\" {x}", "n": 12, "flag": True, "code": "007", "list": ["a b", "c"], "o": {"a": "x, y"}})
HEAR = ("hear", {"sound": "a\nb"})
# What has one call in an answer: several become answers of their own (docs/serving.md, rule "calls").
ONE_CALL = ["llama-3", "harmony", "gigachat-3.1"]
# Templates of which the format of calls is not known, or that show no functions: those models get Hermes' form.
UNKNOWN = ["GigaChat3-10B-A1.8B", "HuggingFaceTB-SmolLM3-3B", "Kimi-K3", "MiniMax-M3", "google-gemma-2-2b-it", "llama-cpp-rwkv-world",
           "microsoft-Phi-3.5-mini-instruct", "tencent-Hy3", "upstage-Solar-Open-100B"]


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_again(path, calls):
    """The format, and the calls that are read from what a template writes of them."""
    members = {"tool_calls": [{"id": f"abcdefgh{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                              for i, (name, arguments) in enumerate(calls)]}
    command = [os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "tests", "peers_chat"), "calls", path, json.dumps(FUNCTIONS), json.dumps(members)]
    for none in ([], ["none"]):
        done = subprocess.run(command + none, capture_output=True, text=True)
        name, *parts = done.stdout.split("\x1e")
        if parts:
            break
    return name, [(part.split("\t", 1)[0], value_of(part.split("\t", 1)[1])) for part in parts]


@case
def calls_that_templates_write_are_read_again():
    paths = sorted(glob.glob(os.path.join(FOLDER, "*.jinja")))
    formats, wrong, n = {}, [], 0
    if not paths:
        raise Skip("no templates in " + FOLDER)
    for path in paths:
        for calls in ([LOOK], [HEAR], [LOOK, HEAR]):
            name, got = read_again(path, calls)
            template = os.path.basename(path).removesuffix(".jinja")
            formats.setdefault(name, set()).add(template)
            if template in UNKNOWN or (name in ONE_CALL and len(calls) > 1):
                continue
            n += 1
            wrong += [] if got == calls else [f"{template}: {name} gives {got}, not {calls}"]
    for name, templates in sorted(formats.items()):
        print(f"     {name}: {', '.join(sorted(templates))}")
    print(f"     {n} answers with calls: {n - len(wrong)} read again")
    assert not wrong, wrong


if __name__ == "__main__":
    run_cases(__file__)
