"""Requests of programs of npm, asked again without node. Those of clients (openai, @anthropic-ai/sdk, ollama, ai), as
tests/peers/clients.mjs recorded them, get the same status and an answer that has all members it had then, of the same
kinds. The first of agents and frameworks (tests/peers/agents.py) are answered with strict templates, which say whether
they were given all texts. Called by CTest with the program's path."""

import json
import lzma
import os
import re

from server import MODEL, SOURCE, TOOLS, Server, case, chat_model, check, data, events_of, lines_of, run_all, scratch
from strict import FIVE, TEMPLATES, ending

AGENTS = os.path.join(SOURCE, "tests", "data", "serve/agents.jsonl.xz")
# With this end of a prompt the model greets if the prompt has the words of "wanted" in order, and those of "anywhere".
TELLS = ("{% set rest = namespace(text=shown, end='<|say|>') %}{% for w in (wanted or '').split() %}{% if w in rest.text %}"
         "{% set rest.text = rest.text.split(w, 1)[1] %}{% else %}{% set rest.end = '<|lost|>' %}{% endif %}{% endfor %}"
         "{% for w in (anywhere or '').split() %}{% if w not in shown %}{% set rest.end = '<|lost|>' %}{% endif %}{% endfor %}{{ rest.end }}")
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


def texts_of(content):
    """Of a text, or of parts, which may be results with parts of their own."""
    if isinstance(content, str):
        return [] if content.startswith("x-anthropic-billing-header") else [content]
    return [t for part in content or [] for t in texts_of(part.get("text") or part.get("content") or "")]


def words_of(texts):
    """The numbers by which recordings tell texts from one another; short texts have none."""
    return " ".join(w for t in texts for w in re.findall(r"t\d{4}", t)[:1])


def variables_of(body):
    """What the ends of prompts look for."""
    messages = body.get("messages") or body.get("input")
    messages = [{"content": messages}] if isinstance(messages, str) else messages
    said = [body.get("system") or body.get("instructions"), *(m.get("content") or m.get("output") for m in messages)]
    tools = [t.get("function", t) for t in body.get("tools", [])]
    return {"wanted": words_of(t for content in said for t in texts_of(content)),
            "anywhere": words_of(t.get("description") or "" for t in tools if "parameters" in t or "input_schema" in t)}


def answer_of(answer):
    """The text of an answer of any of the three APIs, whole or as events, and whether it calls a function."""
    if answer.headers["content-type"] == "application/json":
        parts = [answer.json()]
    else:
        events = events_of(answer)
        check(events[-1][1] == "[DONE]" or events[-1][0] in ("response.completed", "response.incomplete", "message_stop"), events[-1])
        parts = [e for _, e in events if isinstance(e, dict)]
    text, calls = "", False
    for p in parts:
        messages = [choice.get("delta", choice.get("message")) for choice in p.get("choices", [])]
        items = [*p.get("output", []), *p.get("content", []), p.get("item", {}), p.get("content_block", {})]
        calls = calls or any(m.get("tool_calls") for m in messages) or any(i.get("type") in ("function_call", "tool_use") for i in items)
        text += "".join(m.get("content") or "" for m in messages)
        text += "".join(c["text"] for i in p.get("output", []) for c in i.get("content", []))
        text += "".join(block.get("text", "") for block in p.get("content", []))
        if p.get("type") in ("response.output_text.delta", "content_block_delta"):
            text += p["delta"] if isinstance(p["delta"], str) else p["delta"].get("text", "")
    return text, calls


def format_of(body):
    """What the answer is to be: None, or a schema's."""
    return body.get("response_format") or (body.get("text") or {}).get("format") or (body.get("output_config") or {}).get("format")


@case
def requests_of_agents_are_answered_with_strict_templates():
    with lzma.open(AGENTS, "rt", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    check(len({line["program"] for line in lines}) >= 14 and all("t0" in variables_of(line["body"])["wanted"] for line in lines), len(lines))
    with open(data("serve/caller.gguf"), "rb") as f:
        caller = f.read()
    for name in FIVE[-1:] if os.environ.get("HEARTH_SANITIZED") else FIVE:
        model = scratch("m.gguf", chat_model.with_template(caller, ending(TEMPLATES[name], TELLS)))
        with Server("-t", "1", "-c", "32768", model=model) as s:
            for line in lines:
                body = {**line["body"], "chat_template_kwargs": variables_of(line["body"])}
                forced = format_of(body) or body.get("tool_choice", "auto") not in ("auto", {"type": "auto"})
                if not forced:
                    body.update({k: 8 for k in ("max_tokens", "max_output_tokens", "max_completion_tokens") if k in body})
                answer = s.post(line["path"], body, headers=[f"{k}: {v}" for k, v in line["headers"].items()])
                check(answer.status == 200, name, line["program"], answer.raw[:500])
                text, calls = answer_of(answer)
                is_right = calls or isinstance(json.loads(text), dict) if forced else text == "Hello there!" and not calls
                check(is_right, name, line["program"], text, body["chat_template_kwargs"])


if __name__ == "__main__":
    run_all(__file__)
