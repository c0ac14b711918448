"""The conversations of tests/serve/test_templates.py with each chat template of llama.cpp's repository: every text and
every call stands in the prompt, in order, or the template's own words refuse it, at most one of fourteen.

    templates.py HEARTH TEMPLATES     TEMPLATES: a folder of .jinja files
"""

import glob
import os
import re
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


if __name__ == "__main__":
    run_cases(__file__)
