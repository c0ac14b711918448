"""Requests of the clients of npm (openai, @anthropic-ai/sdk, ollama, ai), as tests/peers/clients.mjs recorded them: asked
again, without node, they get the same status and an answer that has all members it had then, of the same kinds. Called by
CTest with the program's path."""

import json
import os

from server import MODEL, SOURCE, TOOLS, Server, case, chat_model, check, events_of, lines_of, run_all, scratch

RECORDED = os.path.join(SOURCE, "tests", "data", "serve/clients.jsonl")
KINDS = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def form_of(value, path="", out=None):
    """The paths of members and the kinds of their values, as clients.mjs has them."""
    out = set() if out is None else out
    if isinstance(value, list):
        for v in value:
            form_of(v, path + "[]", out)
    elif isinstance(value, dict):
        for k, v in value.items():
            form_of(v, f"{path}.{k}" if path else k, out)
    else:
        out.add(f"{path} {KINDS[type(value)]}")
    return out


def form_of_answer(answer, kind):
    if kind == "application/json":
        return form_of(answer.json())
    events = [e for _, e in events_of(answer) if isinstance(e, dict)] if kind == "text/event-stream" else lines_of(answer)
    return set().union(*(form_of(e) for e in events))


@case
def recorded_requests_get_the_answers_of_then():
    with open(RECORDED, encoding="utf-8") as f:
        kept, *lines = map(json.loads, f)
    with open(MODEL, "rb") as f:
        model = scratch("tools.gguf", chat_model.with_template(f.read(), TOOLS))
    asked = set()
    with Server("-t", "1", model=model) as s:
        for line in lines:
            headers = [f"{k}: {v}" for k, v in kept["headers"][line["headers"]].items()]
            answer = s.ask(line["method"], line["path"], line["body"].encode() if line["method"] == "POST" else None, headers=headers)
            check(answer.status == line["status"], line, answer.raw[:2000])
            check(answer.headers["content-type"].split(";")[0] == line["type"], line, answer.headers)
            missing = set(kept["forms"][line["form"]]) - form_of_answer(answer, line["type"])
            check(not missing, line["case"], line["path"], "lacks", sorted(missing), answer.raw[:2000])
            asked.add(line["path"])
    check({"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/api/chat", "/api/generate"} <= asked, asked)


if __name__ == "__main__":
    run_all(__file__)
