"""One allocation fails while the server answers: that request may fail, the server does not. Called by CTest with the
program's path and the library of tests/preload."""

import json
import os
import sys

from server import CHATML, MODEL, Answer, Server, case, chat_model, check, run_all, scratch

FAIL_MALLOC = sys.argv[2]


def ask_everything(s, strict):
    """One request to each endpoint, on connections of their own, and two on one. An answer is the right one, 503, or a
    closed connection; strict: the right one. Returns how many were not."""
    n_other = 0
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    for method, path, body, status in [
            ("GET", "/health", None, 200), ("GET", "/v1/models", None, 200), ("GET", "/v1/models/x", None, 404),
            ("GET", "/props", None, 200), ("GET", "/slots", None, 200), ("GET", "/metrics", None, 200),
            ("GET", "/api/tags", None, 200), ("GET", "/nothing", None, 404),
            ("POST", "/tokenize", {"content": "Once upon", "with_pieces": True}, 200), ("POST", "/tokenize", {}, 400),
            ("POST", "/detokenize", {"tokens": [400, 401]}, 200), ("POST", "/api/show", {"model": "story"}, 200),
            ("POST", "/apply-template", {"messages": messages, "chat_template_kwargs": {"a": 1}}, 200)]:
        lines = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        data = b"" if body is None else json.dumps(body).encode()
        got = s.exchange((lines + (f"Content-Length: {len(data)}\r\n" if data else "") + "\r\n").encode() + data)
        allowed = (status,) if strict else (status, 503)
        check(not got and not strict or Answer(got).status in allowed, method, path, got)
        check(not got or Answer(got).status != 503 or "error" in Answer(got).json(), got)
        n_other += not got or Answer(got).status != status
    return n_other


def count(model, asks):
    """How many allocations a run makes."""
    report = scratch("count")
    env = {"LD_PRELOAD": FAIL_MALLOC, "FAIL_REPORT": report}
    with Server("--alias", "story", "--gpu", "none", model=model, env=env) as s:
        if asks:
            ask_everything(s, True)
    with open(report, encoding="ascii") as f:
        return int(f.read().split()[0])


@case
def a_failed_allocation_costs_one_answer_at_most():
    with open(MODEL, "rb") as f:
        model = scratch("story.gguf", chat_model.with_template(f.read(), CHATML))
    first, last = count(model, False) + 1, count(model, True)
    step = 1 if os.environ.get("HEARTH_LONG") else max(1, (last - first) // 40)
    print(f"     allocations {first} to {last}, each {step}th")
    for n in range(first, last, step):
        env = {"LD_PRELOAD": FAIL_MALLOC, "FAIL_ALLOCATION": str(n)}
        with Server("--alias", "story", "--gpu", "none", model=model, env=env) as s:
            # The allocation that fails is one of the second round if the first made fewer than when they were counted.
            n_other = ask_everything(s, False) + ask_everything(s, False)
            check(n_other <= 1, n, "allocation", n_other, "answers")
            ask_everything(s, True)


if __name__ == "__main__":
    run_all(__file__)
