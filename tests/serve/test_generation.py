"""What /v1/chat/completions and /v1/completions answer: the text of hearth run, whole or as a stream, alone or among
others, after an earlier request and after a restart. Called by CTest with the program's path."""

import array
import fcntl
import json
import math
import os
import re
import threading
import time

import server
from server import CHATML, MODEL, TOOLS, Server, bad, case, chat_model, check, good, program, run_all, scratch, until

FLOATS = program.data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
STORY = "Once upon a time"


def story_with_template(template=CHATML):
    with open(MODEL, "rb") as f:
        return scratch("story-chat.gguf", chat_model.with_template(f.read(), template))


def events_of(answer):
    """The objects of a stream without names, whose end is checked."""
    *events, end = server.events_of(answer)
    check(end == (None, "[DONE]") and all(name is None for name, _ in events), events)
    return [e for _, e in events]


def text_of(events, chat=False):
    parts = [c["delta"].get("content", "") if chat else c["text"] for e in events for c in e["choices"]]
    return "".join(parts)


def asked(**more):
    return {"prompt": STORY, "max_tokens": 40, "seed": 7, "temperature": 1.0, **more}


@case
def the_text_is_that_of_the_command():
    with Server("-t", "1") as s:
        for seed, temperature in ((7, 1.0), (8, 1.5), (0, 0.0)):
            told = good("run", MODEL, "-p", STORY, "-n", "40", "--seed", str(seed), "--temp", str(temperature), "-q").stdout
            answer = s.post("/v1/completions", asked(seed=seed, temperature=temperature))
            check(answer.status == 200, answer.raw)
            whole = answer.json()
            check(STORY + whole["choices"][0]["text"] == told.decode().rstrip("\n"), whole, told)
            events = events_of(s.post("/v1/completions", asked(seed=seed, temperature=temperature, stream=True)))
            check(text_of(events) == whole["choices"][0]["text"], events, whole)
            check(whole["object"] == "text_completion" and whole["seed"] == seed, whole)
            n = len(s.post("/tokenize", {"content": STORY, "add_special": True}).json()["tokens"])
            usage = whole["usage"]
            check(usage["prompt_tokens"] == n and usage["total_tokens"] == n + usage["completion_tokens"], whole)
        ids = s.post("/tokenize", {"content": STORY, "add_special": True}).json()["tokens"]
        check(s.post("/completions", asked(prompt=ids)).json()["choices"] ==
              s.post("/v1/completions", asked(prompt=[STORY])).json()["choices"], "ids and an array of a text")


@case
def a_chat_stream_has_its_events_in_order():
    messages = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "A dog, please."}]
    with Server("-t", "1", model=story_with_template()) as s:
        ask = {"messages": messages, "max_tokens": 30, "seed": 5, "temperature": 1.0}
        whole = s.post("/v1/chat/completions", {**ask, "stream": False, "stop": None, "n": 1}).json()
        message = whole["choices"][0]["message"]
        check(whole["object"] == "chat.completion" and message["role"] == "assistant", whole)
        check(re.fullmatch("chatcmpl-[0-9a-f]{32}", whole["id"]), whole)
        events = events_of(s.post("/v1/chat/completions", {**ask, "stream": True,
                                                           "stream_options": {"include_usage": True}}))
        first, *parts, last, usage = events
        check(len({e["id"] for e in events}) == 1 and {e["object"] for e in events} == {"chat.completion.chunk"}, events)
        check(first["choices"][0]["delta"] == {"role": "assistant", "content": ""}, first)
        check(all(e["choices"][0]["finish_reason"] is None and e["usage"] is None for e in [first, *parts]), events)
        check(last["choices"][0]["delta"] == {} and last["choices"][0]["finish_reason"] == "length", last)
        check(usage["choices"] == [] and usage["usage"]["completion_tokens"] == 30, usage)
        check(usage["usage"]["prompt_tokens_details"]["cached_tokens"] == whole["usage"]["prompt_tokens"] - 1, usage)
        check(text_of(events, chat=True) == message["content"], events, whole)
        check("usage" not in events_of(s.post("/v1/chat/completions", {**ask, "stream": True}))[0], "not asked for")
        prompt = s.post("/apply-template", {"messages": messages}).json()["prompt"]
        plain = s.post("/v1/completions", {**ask, "messages": None, "prompt": prompt}).json()
        check(plain["choices"][0]["text"].strip() == message["content"].strip(), plain, whole)


def softmax_log(logits, token):
    most = max(logits)
    return logits[token] - most - math.log(sum(math.exp(x - most) for x in logits))


@case
def log_probabilities_are_those_of_the_logits():
    with Server("-t", "1", model=story_with_template()) as s:
        whole = s.post("/v1/completions", asked(max_tokens=6, logprobs=3)).json()["choices"][0]
        probs = whole["logprobs"]
        check("".join(probs["tokens"]) == whole["text"], whole)
        check([len(t) for t in probs["top_logprobs"]] == [3] * 6 and probs["text_offset"][0] == 0, probs)
        ids = s.post("/tokenize", {"content": STORY, "add_special": True}).json()["tokens"]
        path, out = scratch("ids", " ".join(map(str, ids)).encode()), scratch("rows", b"")
        good("logits", MODEL, "--ids", path, "-o", out, "--force", "-q")
        with open(out, "rb") as f:
            rows = array.array("f", f.read())
        last = rows[len(rows) // len(ids) * (len(ids) - 1):]
        events = events_of(s.post("/v1/completions", asked(max_tokens=6, logprobs=3, stream=True)))
        streamed = [x for e in events for x in e["choices"][0]["logprobs"]["token_logprobs"]]
        check(streamed == probs["token_logprobs"] and all(x <= 0 for x in streamed), streamed, probs)
        best = s.post("/v1/completions", asked(max_tokens=6, logprobs=1, temperature=0)).json()["choices"][0]["logprobs"]
        for lp, top in zip(best["token_logprobs"], best["top_logprobs"]):
            check(list(top.values()) == [lp], best)
        check(abs(best["token_logprobs"][0] - softmax_log(last, last.index(max(last)))) < 1e-5, best)
        ask = {"messages": [{"role": "user", "content": "A dog"}], "max_tokens": 5, "seed": 1, "logprobs": True,
               "top_logprobs": 20}
        content = s.post("/v1/chat/completions", ask).json()["choices"][0]["logprobs"]["content"]
        check(len(content) == 5 and all(len(c["top_logprobs"]) == 20 for c in content), content)
        check(all(bytes(c["bytes"]).decode() == c["token"] for c in content), content)
        check(all(a["logprob"] >= b["logprob"] for c in content for a, b in zip(c["top_logprobs"], c["top_logprobs"][1:])),
              content)
        events = events_of(s.post("/v1/chat/completions", {**ask, "stream": True}))
        check([x for e in events for x in (e["choices"][0]["logprobs"] or {"content": []})["content"]] == content, events)
        wrong = s.post("/v1/chat/completions", {**ask, "logprobs": False})
        check(wrong.status == 400 and wrong.error()["param"] == "top_logprobs", wrong.raw)


def metrics(s):
    """Counters of the engine are noted after each step, when an answer may be there already."""
    return dict(line.rsplit(" ", 1) for line in s.get("/metrics").body.decode().splitlines() if line[0] != "#")


@case
def drafts_change_no_answer_and_are_counted():
    repeats = "The cat sat. The cat sat. The cat sat. The"
    asks = [asked(prompt=repeats, seed=k, temperature=k % 3, max_tokens=40, logprobs=1) for k in range(6)]
    with Server("-t", "1", "--speculate", "0") as s:
        expected = [s.post("/v1/completions", ask).json() for ask in asks]
        check(all("draft_n" not in e["timings"] for e in expected), expected)
    for more in (["--speculate", "4"], ["--speculate", "3", "--draft", MODEL]):
        with Server("-t", "1", *more) as s:
            answers = [None] * len(asks)

            def ask_one(k):
                answers[k] = s.post("/v1/completions", asks[k]).json()

            threads = [threading.Thread(target=ask_one, args=(k,)) for k in range(len(asks))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for a, e in zip(answers, expected):
                check(a["choices"] == e["choices"], a, e)
            n = [(a["timings"].get("draft_n", 0), a["timings"].get("draft_n_accepted", 0)) for a in answers]
            check(all(0 <= right <= all_ for all_, right in n) and any(right for _, right in n), n)
            until(lambda: int(metrics(s)["hearth_draft_tokens_total"]) >= sum(a for a, _ in n))
            figures = metrics(s)
            check(int(figures["hearth_draft_tokens_total"]) == sum(a for a, _ in n), figures, n)
            check(int(figures["hearth_draft_accepted_tokens_total"]) == sum(b for _, b in n), figures, n)


@case
def biases_and_figures_count():
    with Server("-t", "1") as s:
        plain = s.post("/v1/completions", asked(max_tokens=1, temperature=0, logprobs=2)).json()["choices"][0]["logprobs"]
        first, second = plain["top_logprobs"][0]
        ids = {w: s.post("/tokenize", {"content": STORY + w}).json()["tokens"][-1] for w in (first, second)}
        banned = s.post("/v1/completions", asked(max_tokens=1, temperature=0, logit_bias={str(ids[first]): -100})).json()
        check(banned["choices"][0]["text"] == second, plain, banned)
        for wrong in ([5], [[5]], [[5, 1, 2]], [[-1, 1]], [["a", True]], [[5, 101]], [[None, 1]], [["a " * 2000, 1]], {"-1": 1}, {"99999999": 1}, {"1": 101}, {"1": "a"}, {"x": 101}):
            answer = s.post("/v1/completions", asked(logit_bias=wrong))
            check(answer.status == 400 and answer.error()["param"] == "logit_bias", wrong, answer.raw)
        s.post("/v1/completions", asked(max_tokens=10, temperature=0))
        until(lambda: int(metrics(s)["hearth_generated_tokens_total"]) >= 12)
        figures = metrics(s)
        check(int(figures["hearth_generated_tokens_total"]) == 12, figures)
        check(int(figures["hearth_prefix_hits_tokens_total"]) > 0, figures)
        check(int(figures["hearth_time_to_first_token_seconds_count"]) == 3, figures)
        check(int(figures["hearth_inter_token_seconds_count"]) == 9, figures)
        check(int(figures['hearth_generated_tokens_per_request_bucket{le="1"}']) == 2, figures)
        check(figures['hearth_request_seconds_bucket{le="+Inf"}'] == figures["hearth_request_seconds_count"], figures)
        for listed in [[ids[first], False]], [[ids[first], -100], [ids[second], 0.5]], [[first, False]], {first: -100}:
            answer = s.post("/v1/completions", asked(max_tokens=1, temperature=0, logit_bias=listed)).json()
            check(answer["choices"][0]["text"] == second, listed, answer)


@case
def formats_of_answers_hold():
    schema = {"type": "object", "properties": {"name": {"enum": ["dog", "cat"]}, "age": {"type": "integer", "minimum": 1,
                                                                                        "maximum": 20}},
              "required": ["name", "age"], "additionalProperties": False}
    named = {"type": "json_schema", "json_schema": {"name": "animal", "schema": schema, "strict": True}}
    with Server("-t", "1", model=story_with_template()) as s:
        for k in range(8):
            ask = {"messages": [{"role": "user", "content": "An animal"}], "seed": k, "temperature": 2, "max_tokens": 60,
                   "response_format": named, "stream": k % 2 == 1}
            answer = s.post("/v1/chat/completions", ask)
            text = text_of(events_of(answer), chat=True) if k % 2 else answer.json()["choices"][0]["message"]["content"]
            animal = json.loads(text)
            check(set(animal) == {"name", "age"} and animal["name"] in ("dog", "cat") and 1 <= animal["age"] <= 20, text)
        words = s.post("/v1/completions", asked(grammar='root ::= "yes" | "no"', ignore_eos=True)).json()["choices"][0]
        check(words["text"] in ("yes", "no") and words["finish_reason"] == "stop", words)
        loose = s.post("/v1/completions", asked(max_tokens=200, response_format={"type": "json_object"})).json()["choices"][0]
        check(loose["text"][0] == "{" and (loose["finish_reason"] == "length" or isinstance(json.loads(loose["text"]), dict)),
              loose)


@case
def a_schema_that_takes_long_delays_no_other_request():
    """It is compiled beside the engine thread, for about a second, before it is refused."""
    slow = asked(json_schema={"enum": ["%x" % (k * 2654435761 % 2 ** 40) for k in range(15000)]})
    data = json.dumps(slow).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"

    def is_compiling(s):
        found = s.get("/slots").json()
        return [(one["is_processing"], one["model"]) for one in found] == [(True, "storyteller-q8_0")]

    with Server("-t", "1") as s:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(s.post("/v1/completions", slow)))
        thread.start()
        until(lambda: is_compiling(s))
        check(s.post("/v1/completions", asked(max_tokens=2)).status == 200, "no answer")
        check(is_compiling(s), "the other request has waited for it")
        thread.join()
        check(answers[0].status == 400 and "too complex" in answers[0].error()["message"], answers[0].raw)
        gone = s.connect()
        gone.sendall(head.encode() + data)
        until(lambda: is_compiling(s))
        gone.close()
        until(lambda: s.get("/slots").json() == [])
        words = asked(grammar='root ::= "yes" | "no"', ignore_eos=True)
        check(s.post("/v1/completions", words).json()["choices"][0]["text"] in ("yes", "no"), "nothing works any more")
        last = s.connect()
        last.sendall(head.encode() + data)
        until(lambda: is_compiling(s))  # the server ends in the midst of it
        last.close()
    with Server("-t", "1", "--max-request-seconds", "0.1") as s:
        late = s.post("/v1/completions", slow)
        check(late.status == 408 and late.headers["x-should-retry"] == "false", late.raw)


@case
def stop_strings_end_the_text_before_them():
    with Server("-t", "1") as s:
        text = s.post("/v1/completions", asked(max_tokens=60)).json()["choices"][0]["text"]
        for at in range(1, len(text) - 8, 5):
            for size in (1, 3, 8):
                stop = text[at:at + size]
                if not stop.strip():
                    continue
                for stream in (False, True):
                    answer = s.post("/v1/completions", asked(max_tokens=60, stop=["\u0001no", stop], stream=stream))
                    events = events_of(answer) if stream else [answer.json()]
                    check(text_of(events) == text[:text.index(stop)], stop, events)
                    check(events[-1]["choices"][0]["finish_reason"] == "stop", stop, events)


@case
def others_beside_change_nothing():
    with Server("-t", "2", "--parallel", "6") as s:
        asks = [asked(prompt=STORY + word * (k % 5), seed=k, stream=k % 3 == 0)
                for k, word in enumerate([" the", " a dog", " and", " in", " one"] * 3)]
        alone = [text_of(events_of(a)) if ask["stream"] else a.json()["choices"][0]["text"]
                 for ask in asks for a in [s.post("/v1/completions", ask)]]
        among = [None] * len(asks)

        def run(k):
            answer = s.post("/v1/completions", asks[k])
            among[k] = text_of(events_of(answer)) if asks[k]["stream"] else answer.json()["choices"][0]["text"]

        for _ in range(3):
            threads = [threading.Thread(target=run, args=(k,)) for k in range(len(asks))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            check(among == alone, among, alone)


@case
def a_restart_finds_the_cache():
    folder = os.path.join(os.path.dirname(scratch("x", b"")), "kept-cache")  # which the server makes
    ask = asked(prompt=STORY + " there was a little dog who lived in a house." * 3)
    with Server("-t", "1", "--kv-dir", folder) as s:
        before = s.post("/v1/completions", ask).json()
        check(before["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, before)
    check(len(os.listdir(folder)) == 1 and os.stat(folder).st_mode & 0o777 == 0o700, os.listdir(folder))
    check(os.stat(os.path.join(folder, os.listdir(folder)[0])).st_mode & 0o777 == 0o600, "others can read it")
    with Server("-t", "1", "--kv-dir", folder) as s:
        after = s.post("/v1/completions", ask).json()
        check(after["choices"] == before["choices"], after, before)
        n = after["usage"]["prompt_tokens"]
        check(after["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1, after)


@case
def the_cache_belongs_to_a_key_and_not_to_its_line():
    folder = os.path.join(os.path.dirname(scratch("x", b"")), "kept-owners")
    keys = scratch("keys", b"")
    os.chmod(keys, 0o600)

    def cached(s, key):
        usage = s.post("/v1/completions", asked(prompt=[5 + k % 200 for k in range(60)], max_tokens=1), [f"x-api-key: {key}"]).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    for lines, expected in (("alice\nbob\n", {"alice": 0}), ("bob\n", {"bob": 0}), ("carol\nbob\nalice\n", {"alice": 59, "carol": 0})):
        with open(keys, "w", encoding="ascii") as f:
            f.write(lines)
        with Server("-t", "1", "--kv-dir", folder, "--api-key-file", keys) as s:
            for key, n in expected.items():
                check(cached(s, key) == n, lines, key)


@case
def a_folder_that_others_can_open_is_refused():
    folder = os.path.join(os.path.dirname(scratch("x", b"")), "kept-open")
    os.makedirs(folder, exist_ok=True)
    for mode in (0o777, 0o755, 0o710):
        os.chmod(folder, mode)
        bad(1, f"its mode is {mode:04o}", "serve", MODEL, "--port", "0", "--check", "--kv-dir", folder)
    os.chmod(folder, 0o700)
    good("serve", MODEL, "--port", "0", "--check", "--kv-dir", folder)


@case
def what_a_killed_server_began_to_write_is_removed():
    """At the next start; a file that another program still writes counts, and stays."""
    folder = os.path.join(os.path.dirname(scratch("x", b"")), "kept-parts")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    left, written = (os.path.join(folder, f"{i:016x}-{i:016x}.kv.hearth-part") for i in (1, 2))
    other = os.path.join(folder, "mine.hearth-part")
    for path in left, written, other:
        with open(path, "wb") as f:
            f.write(bytes(1000))
    with open(written, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with Server("-t", "1", "--kv-dir", folder, "--kv-dir-size", "1000") as s:
            check(not os.path.exists(left) and os.path.exists(other), os.listdir(folder))
            check(s.post("/v1/completions", asked(prompt=[5, 6, 7], max_tokens=1)).status == 200, "no answer")
        check(os.path.exists(written) and not any(n.endswith(".kv") for n in os.listdir(folder)), os.listdir(folder))


@case
def a_folder_that_cannot_be_written_is_named():
    file = scratch("no-folder", b"")
    for folder in (os.path.join(file, "kept"), os.path.join(file + "-missing", "kept"), file, "/proc"):
        for more in ((), ("--check",)):
            bad(1, f"--kv-dir {folder}: ", "serve", MODEL, "--port", "0", "--kv-dir", folder, *more)


@case
def models_with_one_folder_keep_their_own_files():
    """Of the same tokens; one model is another one by its arithmetic alone."""
    folder = os.path.join(os.path.dirname(scratch("x", b"")), "kept-shared")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    first, second = ([5 + (7 * k) % (200 + i) for k in range(60)] for i in range(2))

    def cached(s, ids):
        return s.post("/v1/completions", asked(prompt=ids, max_tokens=1)).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    kinds = ((MODEL, "f16"), (MODEL, "q8_0"), (FLOATS, "f16"))
    for model, kv in kinds:
        with Server("-t", "1", "--kv-dir", folder, "--kv", kv, model=model) as s:
            check(cached(s, first) == 0 and cached(s, second) < 59, model, kv)
    check(len(whole_files(folder)) == 6, whole_files(folder))
    for model, kv in kinds:
        with Server("-t", "1", "--kv-dir", folder, "--kv", kv, model=model) as s:
            check(cached(s, first) == 59 and cached(s, second) == 59, model, kv)
            longer = first + second  # in the place of its own shorter one
            check(cached(s, longer) >= 59, model, kv)
    check(len(whole_files(folder)) == 6, whole_files(folder))


def whole_files(folder):
    """The files of a folder, unless one is being written."""
    names = os.listdir(folder)
    return [] if any(name.endswith("-part") for name in names) else sorted(names)


def written_last(folder):
    """When the one file of a folder was written, once nothing has been written for a second."""
    seen = []

    def is_quiet():
        names = whole_files(folder)
        try:
            seen.append((names, os.stat(os.path.join(folder, names[0])).st_mtime_ns))
        except (IndexError, FileNotFoundError):  # it is being written, or was replaced
            seen.append(None)
        time.sleep(0.25)
        return len(seen) >= 5 and seen[-1] is not None and all(s == seen[-1] for s in seen[-5:])
    until(is_quiet)
    return seen[-1][1]


@case
def a_server_without_requests_writes_its_cache():
    folder = os.path.join(os.path.dirname(scratch("x", b"")), "kept-idle")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    ids = [5 + k % 200 for k in range(60)]
    ask = asked(prompt=ids, max_tokens=1)
    with Server("-t", "1", "--kv-dir", folder, "--kv-dir-seconds", "0.2") as s:
        check(s.post("/v1/completions", ask).status == 200, "no answer")
        until(lambda: len(whole_files(folder)) == 1)
        first = whole_files(folder)
        check(s.post("/v1/completions", asked(prompt=ids + ids, max_tokens=1)).status == 200, "no answer")
        until(lambda: len(whole_files(folder)) == 1 and whole_files(folder) != first)  # the longer one in its place
        before = written_last(folder)
        s.process.kill()
        s.process.wait()
        s.process.returncode = 0  # it was meant
    with Server("-t", "1", "--kv-dir", folder, "--kv-dir-seconds", "1000") as s:
        after = s.post("/v1/completions", asked(prompt=ids + ids + [7], max_tokens=1)).json()
        check(after["usage"]["prompt_tokens_details"]["cached_tokens"] == 120, after)
        time.sleep(0.5)
        check(len(whole_files(folder)) == 1, "written too early")
        check(os.stat(os.path.join(folder, whole_files(folder)[0])).st_mtime_ns == before, "written too early")
    check(len(whole_files(folder)) == 1, whole_files(folder))


@case
def a_prompt_is_repeated_with_its_probabilities():
    with Server("-t", "1") as s:
        ask = asked(max_tokens=6, logprobs=2, echo=True)
        whole = s.post("/v1/completions", ask).json()["choices"][0]
        probs = whole["logprobs"]
        ids = s.post("/tokenize", {"content": STORY, "add_special": True}).json()["tokens"]
        check(whole["text"].startswith(STORY) and len(probs["tokens"]) == len(ids) + 6, whole)
        check(probs["token_logprobs"][0] is None and probs["top_logprobs"][0] is None, probs)
        check(all(x <= 0 for x in probs["token_logprobs"][1:]) and probs["text_offset"] == sorted(probs["text_offset"]), probs)
        path, out = scratch("ids", " ".join(map(str, ids)).encode()), scratch("rows", b"")
        good("logits", MODEL, "--ids", path, "-o", out, "--force", "-q")
        with open(out, "rb") as f:
            rows = array.array("f", f.read())
        n = len(rows) // len(ids)
        for i in range(1, len(ids)):
            row = rows[n * (i - 1):n * i]
            check(abs(probs["token_logprobs"][i] - softmax_log(row, ids[i])) < 1e-5, i, probs)
        plain = s.post("/v1/completions", {**ask, "echo": False}).json()["choices"][0]
        check(STORY + plain["text"] == whole["text"] and probs["token_logprobs"][len(ids):] == plain["logprobs"]["token_logprobs"], plain, whole)
        events = events_of(s.post("/v1/completions", {**ask, "stream": True, "n": 2}))
        first = [c for e in events for c in e["choices"] if c["index"] == 0]
        check("".join(c["text"] for c in first) == whole["text"], events)
        check([x for c in first for x in c["logprobs"]["token_logprobs"]] == probs["token_logprobs"], events)
        events = events_of(s.post("/v1/completions", {**ask, "stream": True, "logprobs": None}))
        check("".join(c["text"] for e in events for c in e["choices"]) == whole["text"], events)
        by_ids = s.post("/v1/completions", {**ask, "prompt": [ids, ids], "logprobs": None}).json()["choices"]
        check(all(c["text"] == whole["text"] for c in by_ids), by_ids)


@case
def names_of_long_tokens_are_whole():
    ask = {"max_tokens": 1, "logprobs": 5, "temperature": 0}
    with Server("-t", "1") as s:
        ids = s.post("/tokenize", {"content": STORY, "add_special": True}).json()["tokens"]
        found, = s.post("/v1/completions", {**ask, "prompt": ids}).json()["choices"][0]["logprobs"]["top_logprobs"]
    names = list(found)
    long = {names[0]: "a" * 700 + "b", names[1]: "a" * 700 + "c"}
    with open(MODEL, "rb") as f:
        renamed = [(old.replace(" ", "\u2581"), new) for old, new in long.items()]
        model = scratch("long-tokens.gguf", chat_model.with_template(f.read(), None, renamed=renamed))
    with Server("-t", "1", model=model) as s:
        again, = s.post("/v1/completions", {**ask, "prompt": ids}).json()["choices"][0]["logprobs"]["top_logprobs"]
    check(again == {long.get(name, name): value for name, value in found.items()}, again, found)


@case
def choices_begin_after_one_that_ends_at_once():
    with Server("-t", "1") as s:
        ends = {"2": 100}  # the end of a text is the first token
        for more in {"n": 3}, {"n": 2, "prompt": [STORY, "A dog"]}:
            whole = s.post("/v1/completions", asked(logit_bias=ends, **more)).json()
            check(all(c["text"] == "" and c["finish_reason"] == "stop" for c in whole["choices"]), whole)
            check(whole["usage"]["completion_tokens"] == 0, whole)


@case
def a_prompt_alone_is_evaluated_or_scored():
    with Server("-t", "1", model=story_with_template()) as s:
        scored = s.post("/v1/completions", asked(max_tokens=6, logprobs=2, echo=True)).json()["choices"][0]["logprobs"]
        ids = s.post("/tokenize", {"content": STORY, "add_special": True}).json()["tokens"]
        before = s.get("/stats").json()["generated_tokens"]
        ask = asked(max_tokens=0, logprobs=2, echo=True)
        whole = s.post("/v1/completions", ask).json()
        choice, = whole["choices"]
        check(choice["text"] == STORY and choice["finish_reason"] == "length", whole)
        check(whole["usage"]["prompt_tokens"] == len(ids) and whole["usage"]["completion_tokens"] == 0, whole)
        check(choice["logprobs"] == {k: v[:len(ids)] for k, v in scored.items()}, choice, scored)
        two = s.post("/v1/completions", {**ask, "prompt": [STORY, ids], "n": 2}).json()["choices"]
        check([c["index"] for c in two] == [0, 1, 2, 3] and all(c["logprobs"] == choice["logprobs"] for c in two), two)
        events = events_of(s.post("/v1/completions", {**ask, "stream": True, "stream_options": {"include_usage": True}}))
        check(text_of(events) == STORY and events[-1]["usage"] == whole["usage"], events)
        check([x for e in events for c in e["choices"] for x in c["logprobs"]["token_logprobs"]] == choice["logprobs"]["token_logprobs"], events)
        check([c["finish_reason"] for e in events for c in e["choices"]][-1] == "length", events)
        echo = s.post("/v1/completions", asked(max_tokens=0, echo=True)).json()["choices"][0]
        check(echo["text"] == STORY and echo["finish_reason"] == "length" and echo["logprobs"] is None, echo)
        # Without echo it is evaluated for the next request.
        tale = STORY + " with a red hat, and the hat was too big for it"
        nothing = s.post("/v1/completions", asked(prompt=tale, max_tokens=0, n=2)).json()
        check(all(c["text"] == "" and c["finish_reason"] == "length" for c in nothing["choices"]), nothing)
        more = s.post("/v1/completions", asked(prompt=tale + ". It", max_tokens=1)).json()["usage"]
        check(more["prompt_tokens_details"]["cached_tokens"] == nothing["usage"]["prompt_tokens"], more, nothing)
        chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 0}
        answer = s.post("/v1/chat/completions", {**chat, "response_format": {"type": "json_object"}}).json()["choices"][0]
        check(answer["message"]["content"] in ("", None) and answer["finish_reason"] == "length", answer)
        events = events_of(s.post("/v1/chat/completions", {**chat, "stream": True, "return_progress": True}))
        check(text_of(events, chat=True) == "" and events[-1]["choices"][0]["finish_reason"] == "length", events)
        done = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        check(done and done[-1]["processed"] == done[-1]["total"], events)
        message = s.post("/v1/messages", {**chat, "model": "any"}).json()
        check(message["content"] == [] and message["stop_reason"] == "max_tokens" and message["usage"]["output_tokens"] == 0, message)
        response = s.post("/v1/responses", {"input": "Hello", "max_output_tokens": 0}).json()
        check(response["status"] == "incomplete" and response["usage"]["output_tokens"] == 0, response)
        check(s.get("/stats").json()["generated_tokens"] == before + 1, before)


@case
def samplers_of_llama_cpp_are_taken():
    with Server("-t", "1", "-c", "128") as s:
        def text(**more):
            answer = s.post("/v1/completions", asked(**{"prompt": "the dog and the cat, the dog and the", "max_tokens": 12, "seed": 3, **more}))
            check(answer.status == 200, more, answer.raw)
            return answer.json()["choices"][0]["text"]
        greedy, drawn = text(temperature=0), text(temperature=1.0)
        neutral = {"dry_multiplier": 0, "xtc_probability": 0, "top_n_sigma": 0, "dynatemp_range": 0, "mirostat": 0, "dry_sequence_breakers": ["\n"]}
        check(text(temperature=0, **neutral) == greedy and text(temperature=1.0, **neutral) == drawn, "off")
        check(text(temperature=0, top_n_sigma=-1, dry_penalty_last_n=0, dry_multiplier=9) == greedy, "off by their ranges")
        check(text(temperature=1.0, top_n_sigma=0.001) == greedy, "the largest logits")
        check(text(temperature=0, dry_multiplier=50.0, dry_allowed_length=1) != greedy, "repetitions are weakened")
        check(text(temperature=0, dry_multiplier=50.0, dry_allowed_length=2, dry_sequence_breakers=[" the", " dog", " and", "the"]) == greedy, "breakers")
        for more in ({"xtc_probability": 1.0, "xtc_threshold": 0.01}, {"dynatemp_range": 0.9, "dynatemp_exponent": 2.0}, {"mirostat": 1, "mirostat_tau": 2.0},
                     {"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5}):
            check(text(temperature=1.0, **more) == text(temperature=1.0, **more), more)
        check(text(temperature=1.0, xtc_probability=1.0, xtc_threshold=0.01, top_k=0, min_p=0, top_p=1) != drawn, "the likeliest are left out")


@case
def control_tokens_are_known_by_their_names():
    with Server("-t", "1", "-c", "64") as s:
        def ask(prompt, **more):
            answer = s.post("/v1/completions", asked(**{"prompt": prompt, "max_tokens": 8, "seed": 3, **more})).json()
            return answer["usage"], answer["choices"][0]
        plain, marked = ask("ab")[0]["prompt_tokens"], ask("a<s>b")[0]["prompt_tokens"]
        check(marked == ask("a<s>b", parse_special=True)[0]["prompt_tokens"], "the usual")
        check(plain <= marked < ask("a<s>b", parse_special=False)[0]["prompt_tokens"], plain, marked)
        texts = [s.post("/v1/embeddings", {"input": "a<s>b", **more}).json()["usage"]["prompt_tokens"] for more in ({}, {"parse_special": False})]
        check(texts[0] < texts[1], texts)
        forced = {"logit_bias": {"1": 100}, "temperature": 0}
        usage, choice = ask("a", **forced)
        check(usage["completion_tokens"] == 8 and choice["text"] == "" and choice["finish_reason"] == "length", choice)
        for more in ({}, {"stream": True}):
            answer = s.post("/v1/completions", asked(prompt="a", max_tokens=8, stop=["x", "<s>"], **forced, **more))
            choice = (answer.json() if not more else [e for e in events_of(answer) if e["choices"]][-1])["choices"][0]
            check(choice["text"] == "" and choice["finish_reason"] == "stop", choice)


@case
def numbers_are_taken_as_other_servers_take_them():
    with Server("-t", "1", "-c", "64") as s:
        def text(**more):
            answer = s.post("/v1/completions", asked(**{"max_tokens": 8, "seed": 3, "temperature": 1.0, **more}))
            check(answer.status == 200, more, answer.raw)
            return answer.json()["choices"][0]["text"]
        usual = text()
        for more in ({"max_tokens": 8.0}, {"seed": 3.0, "top_k": 4e1}, {"stop": ""}, {"stop": [""]}, {"stop": []}, {"stop": None}, {"functions": []},
                     {"guided_json": None, "function_call": ""}):
            check(text(**more) == usual, more)
        check(text(top_k=-1) == text(top_k=0), "no limit")
        check(text(top_p=0) == text(top_k=1) == text(temperature=0), "the likeliest token")
        check(text(max_tokens=-1, stop=["", usual[-3:]]) == usual[:usual.index(usual[-3:])], "no limit but the stop text")
        number = json.loads(text(max_tokens=60, guided_json={"type": "integer", "minimum": 10, "maximum": 12}))
        check(10 <= number <= 12, number)


@case
def what_is_wrong_is_named():
    wrong = [({"temperature": 6}, "temperature"), ({"temperature": "hot"}, "temperature"), ({"top_p": -0.1}, "top_p"),
             ({"top_k": -2}, "top_k"), ({"max_tokens": -2}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
             ({"presence_penalty": 3}, "presence_penalty"), ({"stop": [1]}, "stop"),
             ({"stop": ["a"] * 17}, "stop"), ({"stop": "a" * 257}, "stop"), ({"n": 9}, "n"), ({"seed": "x"}, "seed"),
             ({"stream": 1}, "stream"), ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
             ({"logprobs": 6}, "logprobs"), ({"logprobs": True}, "logprobs"), ({"suffix": "x"}, "suffix"), ({"echo": 1}, "echo"), ({"prompt": 5}, "prompt"),
             ({"prompt": [1, -1]}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": None}, "prompt"),
             ({"prompt": ["a", 1.5]}, "prompt"), ({"prompt": ["a", []]}, "prompt"), ({"prompt": {"prompt_string": 1}}, "prompt"),
             ({"prompt": {"prompt_string": "a", "multimodal_data": ["eA=="]}}, "prompt"),
             ({"prompt": [{"prompt_string": "a", "multimodal_data": "eA=="}]}, "prompt"), ({"prompt": ["a"] * 65}, "prompt"), ({"guided_json": "{"}, "guided_json"),
             *(({name: value}, name) for name, value in (
                 ("mirostat", 3), ("xtc_probability", 1.5), ("dry_multiplier", -1), ("dry_sequence_breakers", [1]), ("dry_sequence_breakers", [""]),
                 ("dry_sequence_breakers", ["a"] * 65), ("dry_penalty_last_n", -2), ("top_n_sigma", "x"),
                 ("guided_regex", "a+"), ("guided_choice", ["a"]), ("guided_grammar", "root ::= x"), ("structured_outputs", {"choice": ["a"]}),
                 ("functions", [{"name": "f"}]), ("function_call", {"name": "f"}), ("ebnf", "x"), ("stop_token_ids", [1]), ("min_tokens", 3)))]
    with Server("-t", "1", "-c", "64", model=story_with_template()) as s:
        for more, param in wrong:
            answer = s.post("/v1/completions", asked(**more))
            check(answer.status == 400 and answer.error()["param"] == param, more, answer.raw)
        for more, param in (({"tools": [{"type": "function"}]}, "tools[0].function"), ({"tool_choice": "required"}, "tool_choice"), (
                            {"response_format": {"type": "x"}},
                                                                           "response_format.type"),
                            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
                            ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
                            ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {"type": "null"}}}}},
                             "response_format"), ({"grammar": "root ::= ("}, "grammar"),
                            ({"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}, "grammar"),
                            ({"messages": []}, "messages"), ({"chat_template_kwargs": {"a": []}}, "chat_template_kwargs")):
            answer = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], **more})
            check(answer.status == 400 and answer.error()["param"] == param, more, answer.raw)
        long = s.post("/v1/completions", asked(prompt="dog " * 100))
        check(long.status == 400 and long.error()["code"] == "context_length_exceeded", long.raw)
        check("exceeds the available context size of 64: give a shorter prompt" in long.error()["message"], long.raw)
        for more in {"echo": True}, {"echo": True, "logprobs": 1}, {"echo": True, "logprobs": 1, "stream": True}:
            long = s.post("/v1/completions", asked(prompt="dog " * 100, **more))
            check(long.status == 400 and long.error()["code"] == "context_length_exceeded", more, long.raw)
        whole = s.post("/v1/completions", asked(max_tokens=None, max_completion_tokens=1.5))
        check("a whole number is expected, not 1.5" in whole.error()["message"], whole.raw)
        full = s.post("/v1/completions", asked(max_tokens=None, ignore_eos=True, max_completion_tokens=1000)).json()
        check(full["choices"][0]["finish_reason"] == "length" and full["usage"]["total_tokens"] == 65, full)
        least = s.post("/v1/completions", asked(temperature=0, top_p=1, min_p=0, top_k=0, repeat_penalty=1.0, user="me",
                                                metadata={"a": 1}, logprobs=None, best_of=None, max_tokens=1)).json()
        check(least["usage"]["completion_tokens"] == 1, least)


# Fields that would change the answer, of the protocols of others; a value that changes nothing.
NOT_OFFERED = {"guided_regex": ("a+", ""), "stop_regex": ("a", ""), "samplers": (["temperature", "top_k"], "edskypmxt"), "tfs_z": (0.9, 1.0), "top_a": (0.1, 0.0),
               "no_repeat_ngram_size": (2, 0), "guidance_scale": (1.5, 1), "negative_prompt": ("x", ""), "lora": ([{"id": 0, "scale": 1}], []),
               "chat_template": ("{{ messages }}", None), "documents": ([{"text": "x"}], []), "modalities": (["text", "audio"], ["text"]), "do_sample": (False, True),
               "skip_special_tokens": (False, True), "include_stop_str_in_output": (True, False), "banned_tokens": (["a"], []),
               "suffix": ("x", ""), "post_sampling_probs": (True, False), "function_call": ({"name": "f"}, "none"), "truncate_prompt_tokens": (5, -1), "max_new_tokens": (3, None)}
MISPLACED = {"/v1/chat/completions": {"options": ({"num_predict": 1}, {}), "format": ("json", ""), "system": ("x", ""), "best_of": (2, 1), "echo": (True, False),
                                      "stop_sequences": (["a"], [])},
             "/v1/completions": {"options": ({"num_predict": 1}, {}), "format": ("json", ""), "best_of": (2, 1)},
             "/v1/messages": {"mcp_servers": ([{"type": "url"}], []), "container": ("x", ""), "response_format": ({"type": "json_object"}, None), "grammar": ('root ::= "a"', ""), "stop": (["a"], []), "n": (2, 1)},
             "/v1/responses": {"response_format": ({"type": "json_object"}, None), "logit_bias": ({"5": 1}, {}), "prompt": ({"id": "x"}, {}),
                               "messages": ([{"role": "user", "content": "a"}], [])}}


@case
def what_would_change_the_answer_is_refused_by_name_in_each_api():
    ask = {"messages": [{"role": "user", "content": "a"}]}
    least = {"/v1/chat/completions": {**ask, "n_predict": 1}, "/v1/completions": asked(max_tokens=1), "/v1/messages": {**ask, "max_tokens": 1},
             "/v1/responses": {"input": "a", "max_output_tokens": 1}}
    with Server("-t", "1", "-c", "64", model=story_with_template()) as s:
        for path, body in least.items():
            offered = {**NOT_OFFERED, **MISPLACED[path]}
            for name, (value, _) in offered.items():
                answer = s.post(path, {**body, name: value})
                check(answer.status == 400 and f"{name}: " in answer.error()["message"], path, name, answer.raw)
            usual = s.post(path, {**body, **{name: value for name, (_, value) in offered.items()}})
            check(usual.status == 200, path, usual.raw)
            made = usual.json()["usage"]
            check(made.get("completion_tokens", made.get("output_tokens")) == 1, path, usual.raw)
        for name in "n_predict", "max_output_tokens", "max_tokens", "max_completion_tokens":
            for path, body in ("/v1/chat/completions", ask), ("/v1/responses", {"input": "a"}):
                made = s.post(path, {**body, name: 2}).json()["usage"]
                check(made.get("completion_tokens", made.get("output_tokens")) == 2, path, name, made)
        # of samplers some can be named, in the usual order; the others are off
        hot = {"seed": 3, "temperature": 5, "top_k": 0, "top_p": 1, "min_p": 0, "n_predict": 6}
        for path, body in ("/v1/completions", asked()), ("/completion", {"prompt": "Once"}):
            def text(**more):
                made = s.post(path, {**body, **hot, **more}).json()
                return made["content"] if "content" in made else made["choices"][0]["text"]
            greedy = text(temperature=0)
            for samplers in ["top_k", "temperature"], "kt", "k", ["top_k", "top_p"]:
                check(text(samplers=samplers, top_k=1) == greedy, path, samplers)
            for samplers in ["temperature"], "t", "edsypmxt":
                check(text(samplers=samplers, top_k=1) == text(samplers=samplers) != greedy, path, samplers)
            check(text(samplers=[]) == text() and text(samplers=["top_k"]) == text(temperature=1), path)
        for samplers in "tk", ["top_k", "other"], ["infill"], "kz", [3], 7, {"top_k": 1}:
            answer = s.post("/completion", {"prompt": "a", "samplers": samplers})
            check(answer.status == 400 and answer.error()["param"] == "samplers", samplers, answer.raw)
        check(s.post("/completion", {"prompt": "a", "n_predict": -2, "max_tokens": 1}).status == 200, "no limit")
        foo = s.post("/v1/messages", {**ask, "max_tokens": 1, "thinking": {"type": "foo"}})
        check(foo.status == 400 and "thinking.type: " in foo.error()["message"], foo.raw)
        for name, value in ("context", [1, 2]), ("template", "{{ .Prompt }}"):
            generate = s.post("/api/generate", {"prompt": "a", "stream": False, "options": {"num_predict": 1}, name: value})
            check(generate.status == 400 and f"{name}: " in generate.raw.decode(), generate.raw)
        inner = s.post("/api/chat", {**ask, "options": {"num_predict": 1, "tfs_z": 0.5}})
        check(inner.status == 400 and "options.tfs_z: " in inner.raw.decode(), inner.raw)


@case
def a_client_that_hangs_up_is_not_answered_on():
    with Server("-t", "1", "-c", "0", "--parallel", "1", "--max-waiting", "2") as s:
        body = json.dumps(asked(max_tokens=100000, ignore_eos=True, stream=True)).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        first, second, third = s.connect(), s.connect(), s.connect()
        first.sendall(head + body)
        check(first.recv(1000), "no answer")
        for other in (second, third):
            other.sendall(head + body)
        end = time.monotonic() + 30
        while len(s.get("/slots").json()) < 3 and time.monotonic() < end:
            time.sleep(0.02)
        busy = s.post("/v1/completions", asked())
        check(busy.status == 429 and busy.headers["retry-after"] and busy.error()["type"] == "rate_limit_error", busy.raw)
        for other in (first, second, third):
            other.close()
        while s.get("/slots").json() and time.monotonic() < end:
            time.sleep(0.02)
        check(s.get("/slots").json() == [], "the requests of clients that are gone still run")
        check(s.post("/v1/completions", asked()).status == 200, "nothing works any more")


@case
def a_context_beyond_the_trained_one_is_named():
    for n in (512, 513):
        with Server("-t", "1", "-c", str(n)) as s:
            s.wait_for("is ready")
            warned = [line for line in s.lines if line and f"-c takes {n} positions" in line and "was trained for 512" in line]
            check(len(warned) == (n > 512), n, s.lines)


@case
def a_burst_is_refused_only_beyond_its_room():
    for options, most in ((("--parallel", "4", "--max-waiting", "4"), 8), ((), 80)):
        with Server("-t", "1", "-c", "64", *options) as s:
            for n in (most, most + 8):
                answers, ready = [], threading.Barrier(n)

                def ask():
                    ready.wait()
                    answers.append(s.post("/v1/completions", asked(max_tokens=2)).status)

                threads = [threading.Thread(target=ask) for _ in range(n)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                # Of more than have room some may come when others are over.
                check(answers.count(200) >= most and set(answers) <= {200, 429}, options, n, answers)


@case
def a_long_prompt_ends_when_its_client_hangs_up():
    """Within the time of a small unit of work, not of a step of 256 tokens. The time itself decides nothing: it is shown."""
    with Server("-t", "1", "-c", "0", "--parallel", "1", model=MODEL) as s:
        n = s.get("/props").json()["n_ctx"] - 8
        body = json.dumps(asked(prompt=[5] * n, max_tokens=1)).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        for _ in range(5):
            c = s.connect()
            c.sendall(head + body)
            while not s.get("/slots").json():
                pass
            c.close()
            start = time.monotonic()
            while s.get("/slots").json():
                check(time.monotonic() - start < 30, "it still runs")
        print(f"     free {(time.monotonic() - start) * 1e3:.0f} ms after the client was gone")
        answer = s.post("/v1/completions", asked())
        check(answer.status == 200, answer.raw)


def told(s, **more):
    answer = s.post("/v1/completions", {"prompt": STORY, **more})
    check(answer.status == 200, answer.raw)
    return answer.json()["choices"][0]["text"]


@case
def requests_that_say_nothing_have_the_options_of_the_server():
    def story(*words):
        return good("run", MODEL, "-p", STORY, "-n", "40", "-q", "--gpu", "none", *words).stdout.decode().rstrip("\n")[len(STORY):]

    sampling = ["--temp", "1.5", "--top-k", "30", "--top-p", "0.9", "--min-p", "0.01", "--repeat-penalty", "1.2", "--seed", "7"]
    with Server("-t", "1", "-n", "40", "--gpu", "none", *sampling) as s:
        own = story(*sampling)
        check(told(s) == own == told(s), own)
        check(told(s, seed=8) == story(*sampling[:-1], "8") != own, "a request's seed goes before")
        check(told(s, temperature=0, repeat_penalty=1.0) == story("--greedy"), "a request's temperature goes before")
        check(len(told(s, max_tokens=3)) < len(told(s, max_tokens=9)) < len(own), "a request's length goes before")
    keys = ["temp=float:0", "top_k=int:5"]
    of_file = [w for k in keys for w in ("--override-kv", "general.sampling." + k)]
    with Server("-t", "1", "-n", "40", "--gpu", "none", *of_file) as s:
        check(told(s) == story("--greedy"), "the file's")
        check(told(s, temperature=1.5, seed=3) == story("--temp", "1.5", "--top-k", "5", "--seed", "3"), "one of the file's")
    with Server("-t", "1", "-n", "40", "--gpu", "none", "--temp", "1.5", "--seed", "3", *of_file) as s:
        check(told(s) == story("--temp", "1.5", "--top-k", "5", "--seed", "3"), "options go before the file's")
        seeds = {s.post("/v1/completions", asked(prompt="a", max_tokens=1, seed=-1)).json()["seed"] for _ in range(3)}
        check(len(seeds) == 3 and 3 not in seeds, "a negative seed is a random one, whatever the server's", seeds)


@case
def templates_have_the_variables_of_the_server():
    def prompt(s, **more):
        return s.post("/apply-template", {"messages": [{"role": "user", "content": "a"}], **more}).json()["prompt"]

    with Server("-t", "1", model=story_with_template(TOOLS)) as s:
        plain, thinks = prompt(s), prompt(s, chat_template_kwargs={"enable_thinking": True})
        check(thinks == plain + "<think>\n", plain, thinks)
    for words in (["--reasoning", "on"], ["--chat-template-kwargs", '{"enable_thinking":true}']):
        with Server("-t", "1", *words, model=story_with_template(TOOLS)) as s:
            check(prompt(s) == thinks, words)
            check(prompt(s, chat_template_kwargs={"enable_thinking": False}) != thinks, "a request's goes before")
    bad(2, "an object is expected", "serve", MODEL, "--check", "--port", "0", "--template-vars", "[1]")
    bad(2, "--template-vars: no JSON", "serve", MODEL, "--check", "--port", "0", "--template-vars", "{")


@case
def a_server_may_have_no_page():
    with Server("-t", "1", "--no-webui") as s:
        check(s.get("/").status == 404 and s.get("/health").status == 200, s.get("/").raw)


@case
def ps_and_stop_ask_a_server():
    def ask(*words, **env):
        return program.hearth(*words, env={"HEARTH_API_KEY": "", **env})

    with Server("-t", "1", "--alias", "story") as s:
        port = ["--port", str(s.port)]
        shown = ask("ps", *port)
        check(shown.returncode == 0 and re.search(rb"^story +\S+ MiB +\d+$", shown.stdout, re.M), shown)
        check(json.loads(ask("ps", "--json", *port).stdout)["models"][0]["name"] == "story", "--json")
        refused = ask("stop", "other", *port)
        check(refused.returncode == 1 and b"'other' is not in memory" in refused.stderr, refused)
        stopped = ask("stop", "story", *port)
        check(stopped.returncode == 0 and b"story leaves memory" in stopped.stderr, stopped)
        until(lambda: b"story" not in ask("ps", *port).stdout)
    none = ask("ps", "--port", "1")
    check(none.returncode == 1 and b"hearth serve MODEL starts a server" in none.stderr, none)
    key = "0123456789abcdef0123456789abcdef"
    with Server("-t", "1", unix=scratch("s"), env={"HEARTH_API_KEY": key}):
        place = ["--unix-socket", scratch("s")]
        check(b"HEARTH_API_KEY" in ask("ps", *place).stderr, "no key")
        check(ask("ps", *place, HEARTH_API_KEY=key).returncode == 0, "the key")


if __name__ == "__main__":
    run_all(__file__)
