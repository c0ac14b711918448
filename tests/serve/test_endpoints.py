"""What the endpoints answer, to whom, and how the command is started. Called by CTest with the program's path."""

import email.utils
import itertools
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

from server import (CHATML, HEARTH, MODEL, TIMEOUT, Answer, Server, bad, case, chat_model, check, events_of, good, hearth,
                    read_all, read_answer, run_all, scratch, until)

KEY = "sk-" + "a1" * 20


def story_with_template():
    with open(MODEL, "rb") as f:
        return scratch("story-chat.gguf", chat_model.with_template(f.read(), CHATML))


# ---- endpoints -----------------------------------------------------------------------------------------------------


@case
def health_models_props_and_slots_answer():
    with Server("--alias", "my model") as s:
        for path in ("/health", "/v1/health"):
            check(s.get(path).json() == {"status": "ok"}, path)
        listed = s.get("/v1/models").json()
        check(listed["object"] == "list" and s.get("/models").json() == listed, listed)
        (model,) = listed["data"]
        check(model["id"] == "my model" and model["object"] == "model" and model["owned_by"] == "hearth", model)
        check(abs(model["created"] - os.stat(MODEL).st_mtime) < 2, model)
        check(model["meta"]["n_vocab"] > 100 and model["meta"]["n_ctx"] <= model["meta"]["n_ctx_train"], model)
        for path in ("/v1/models/my%20model", "/models/my%20model"):
            check(s.get(path).json() == model, path)
        for path in ("/v1/models/my", "/v1/models/my%20model2", "/v1/models/%2e%2e%2fx", "/v1/models/my%2520model"):
            answer = s.get(path)
            check(answer.status == 404 and answer.error()["code"] == "model_not_found", answer.raw)
        props = s.get("/props").json()
        check(props["model"] == "my model" and props["n_ctx"] == model["meta"]["n_ctx"], props)
        check(MODEL not in json.dumps(props) and "story" not in json.dumps(props), props)
        # The defaults are those that requests get: whole numbers and fractions of the same texts.
        params = props["default_generation_settings"]["params"]
        check(params == {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1,
                         "repeat_last_n": 64, "presence_penalty": 0, "frequency_penalty": 0}, params)
        ask = {"prompt": "Once", "max_tokens": 40, "seed": 5}
        texts = [s.post("/v1/completions", body).json()["choices"][0]["text"] for body in (ask, {**ask, **params})]
        check(texts[0] == texts[1], texts)
        check(s.get("/slots").json() == [], "nothing runs")
    with Server("-c", "99") as s:
        check(s.get("/props").json()["n_ctx"] == 99, "-c")
        (model,) = s.get("/v1/models").json()["data"]
        check(model["id"] == os.path.basename(MODEL)[:-5], model)


@case
def tokens_are_those_of_the_command():
    texts = ["Once upon a time", "", " a  b\n", "Ünïcödé 日本語 🙂", "</s> <s> <unk>", "\t\"quoted\\\" \u0001", "a" * 5000]
    with Server() as s:
        for text in texts:
            for special, option in ((False, "--no-bos"), (True, None)):
                done = good("tokenize", MODEL, "-f", scratch("text", text.encode()), "--special", *([option] if option else []))
                wanted = [int(i) for i in done.stdout.split()]
                got = s.post("/tokenize", {"content": text, "add_special": special}).json()
                check(got == {"tokens": wanted}, text[:50], got, wanted)
            pieces = s.post("/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]
            check(all(set(p) == {"id", "piece"} for p in pieces), pieces[:5])
            back = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
            check("<" in text or back.decode().lstrip(" ") == text.lstrip(" "), text[:50], back[:50])
            ids = [p["id"] for p in pieces]
            if text and not text.startswith(" ") and "<" not in text:
                check(s.post("/detokenize", {"tokens": ids}).json() == {"content": text}, text[:50])
        plain = s.post("/tokenize", {"content": "</s>", "parse_special": False}).json()["tokens"]
        check(len(plain) > 1, plain)
        half = s.post("/tokenize", {"content": "🙂", "with_pieces": True}).json()["tokens"]
        check(any(isinstance(p["piece"], list) for p in half), half)
        check(s.post("/detokenize", {"tokens": []}).json() == {"content": ""}, "no tokens")


def wrong(s, path, body, param, words=""):
    answer = s.post(path, body)
    check(answer.status == 400, path, body, answer.raw[:400])
    error = answer.error()
    check(error["type"] == "invalid_request_error" and error["param"] == param and error["code"] is None, body, error)
    check(words in error["message"] and (param or "") in error["message"], body, error)


@case
def wrong_fields_are_named_and_null_means_absent():
    with Server(model=story_with_template()) as s:
        n_vocab = s.get("/v1/models").json()["data"][0]["meta"]["n_vocab"]
        for body, param, words in [
                ({}, "content", "missing"), ({"content": None}, "content", "missing"), ({"content": 1}, "content", "a text"),
                ({"content": ["a"]}, "content", "an array"), ({"content": "a", "add_special": 1}, "add_special", "true or false"),
                ({"content": "a", "with_pieces": "yes"}, "with_pieces", "a text"),
                ({"content": "a", "parse_special": {}}, "parse_special", "an object")]:
            wrong(s, "/tokenize", body, param, words)
        nulls = {"content": "a", "add_special": None, "with_pieces": None, "parse_special": None, "unknown": {"x": [1]}}
        check(s.post("/tokenize", nulls).json() == s.post("/tokenize", {"content": "a"}).json(), "nulls")
        for body, param, words in [
                ({}, "tokens", "missing"), ({"tokens": None}, "tokens", "missing"), ({"tokens": "1"}, "tokens", "an array"),
                ({"tokens": [1, 1.5]}, "tokens[1]", "a whole number is expected, not 1.5"), ({"tokens": [None]}, "tokens[0]", "null"),
                ({"tokens": [1, 2, -1]}, "tokens[2]", "-1"), ({"tokens": [n_vocab]}, "tokens[0]", f"0 to {n_vocab - 1}"),
                ({"tokens": [2**63 - 1]}, "tokens[0]", str(2**63 - 1)), ({"tokens": ["a"]}, "tokens[0]", "a text")]:
            wrong(s, "/detokenize", body, param, words)
        check(s.post("/detokenize", {"tokens": [0, n_vocab - 1]}).status == 200, "the first and the last id")
        user = {"role": "user", "content": "a"}
        for body, param, words in [
                ({}, "messages", "missing"), ({"messages": []}, "messages", "1 to 4096"),
                ({"messages": [user] * 4097}, "messages", "4097"), ({"messages": {}}, "messages", "an object"),
                ({"messages": ["a"]}, "messages[0]", "a text"), ({"messages": [user, {"content": "a"}]}, "messages[1].role", "missing"),
                ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role", "tool, function is expected"),
                ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
                ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "missing"),
                ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "whole number"),
                ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
                 "messages[0].content[0].type", "text alone are supported by this server"),
                ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "missing"),
                ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function", "missing"),
                ({"messages": [user], "tools": [{}]}, "tools[0].function", "missing"),
                ({"messages": [user], "tools": [{"function": {"name": "a<b"}}]}, "tools[0].function.name", "characters"),
                ({"messages": [user], "tools": [{"type": "custom"}]}, "tools[0].type", "custom"),
                ({"messages": [user], "add_generation_prompt": 0}, "add_generation_prompt", "true or false"),
                ({"messages": [user], "chat_template_kwargs": []}, "chat_template_kwargs", "an array"),
                ({"messages": [user], "chat_template_kwargs": {"a": []}}, "chat_template_kwargs", "single values")]:
            wrong(s, "/apply-template", body, param, words)
        ok = {"messages": [user] * 4096, "tools": None, "chat_template_kwargs": {"a": 1, "b": None, "c": True}}
        check(s.post("/apply-template", ok).status == 200, "4096 messages")


@case
def json_is_read_strictly_and_within_bounds():
    deep = b'{"content": "a", "x": ' + b"[" * 62 + b"]" * 62 + b"}"
    with Server() as s:
        for body in (b"", b" ", b"[]", b'"a"', b"1", b"null", b"{", b'{"content": "a"', b'{"content": "a"}}', b'{"content": "a",}',
                     b"{'content': 'a'}", b'{"content": "\xff"}', b'{"content": "\xed\xa0\x80"}', b'{"content": "\0"}',
                     b'{"content": "a", "x": NaN}', b'{"content": "a", "x": 01}',
                     b'{"content": "a", "x": ' + b"[" * 64 + b"]" * 64 + b"}", b'{"x": ' * 100000 + b"1" + b"}" * 100000,
                     b"[" * 1000000, b'{"content": "a", "x": [' + b"{}," * 2000000 + b"1]}",
                     b'{"content": "a", "x": [' + b"1," * 4000000 + b"1]}"):
            began = time.monotonic()
            answer = s.post("/tokenize", body)
            check(answer.status == 400 and answer.error()["type"] == "invalid_request_error", body[:40], answer.raw)
            check(time.monotonic() - began < 20, body[:40], "took long")
        message = s.post("/tokenize", b'{"content":\n "\\q"}').error()["message"]
        check(message == "the body is no JSON: line 2 column 4: no escape begins so", message)
        for body, tokens in ((b'{"content": "\\ud800a"}', "\ufffda"), (b'{"content": "a\\u0000b"}', "a\0b"),
                             (b'{"content": "a", "content": "b"}', "b"), (b'{"content": "b", "x": 1e400}', "b"),
                             (b'{"content": "b", "x": 18446744073709551616, "add_special": false}', "b"),
                             (b'\xef\xbb\xbf{"content": "b", "x": {"a": 1, "a": [2]}}', "b")):
            check(s.post("/tokenize", body).json() == s.post("/tokenize", {"content": tokens}).json(), body)
        check(s.post("/tokenize", deep).status == 200, "64 levels")
        whole = b'{"content": "a\\u00e4\\ud83d\\ude00\\"", "add_special": true}'
        for i in range(len(whole)):
            check(s.post("/tokenize", whole[:i]).status == 400, whole[:i])
        check(s.post("/tokenize", whole).status == 200, whole)
        wide = json.dumps({"content": "a", "x": {str(i): i for i in range(200000)}}).encode()
        check(s.post("/tokenize", wide).status == 200, "200,000 keys")
        check(s.resident() < 1 << 30, s.resident())


@case
def large_bodies_are_read_beside_other_requests():
    large = json.dumps({"content": "b", "x": list(range(600000))}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(large)}\r\n\r\n"
    with Server() as s:
        small = s.post("/tokenize", {"content": "b"}).json()
        check(s.post("/tokenize", large).json() == small, "a large body")
        error = s.post("/tokenize", large[:-1]).error()
        check(error["message"].endswith(f"line 1 column {len(large)}: it ends too early"), error)
        with s.connect() as one:
            for _ in range(2):
                one.sendall(head.encode() + large)
                check(read_answer(one)[0].json() == small, "two on one connection")
        for wait in (0, 0.01, 0.1):
            with s.connect() as gone:
                gone.sendall(head.encode() + large)
                time.sleep(wait)
            check(s.post("/tokenize", {"content": "b"}).json() == small, "the client has left")
        left = s.connect()
        left.sendall(head.encode() + large)  # the server ends while it reads this
    left.close()


@case
def templates_are_applied_by_their_rules():
    with Server(model=story_with_template()) as s:
        check(s.get("/props").json()["chat_template"] == CHATML, s.get("/props").json())
        messages = [{"role": "developer", "content": "be brief"},
                    {"role": "user", "content": [{"type": "text", "text": "Once "}, {"type": "text", "text": "more"}]},
                    {"role": "assistant", "content": None}, {"role": "function", "content": "42"}]
        prompt = ("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nOnce more<|im_end|>\n"
                  "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n")
        check(s.post("/apply-template", {"messages": messages}).json() == {"prompt": prompt + "<|im_start|>assistant\n"}, "all")
        check(s.post("/apply-template", {"messages": messages, "add_generation_prompt": False}).json() == {"prompt": prompt},
              "without the prompt for an answer")
    with open(MODEL, "rb") as f:
        refusing = chat_model.with_template(f.read(), "{{ raise_exception('no ' + flavour) }}")
    with Server(model=scratch("refuses.gguf", refusing)) as s:
        body = {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"flavour": "mint"}}
        answer = s.post("/apply-template", body)
        check(answer.status == 400 and "no mint" in answer.error()["message"], answer.raw)
    with Server() as s:
        answer = s.post("/apply-template", {"messages": [{"role": "user", "content": "a"}]})
        message = answer.error()["message"]
        check(answer.status == 400 and message.startswith("storyteller-q8_0.gguf: tokenizer.chat_template is missing"), message)
        check(message.endswith("; hearth serve MODEL --template NAME gives it one"), message)
        check(os.path.dirname(MODEL) not in message, "the server's folders are not for clients")
        message = s.post("/api/generate", {"prompt": "Once", "stream": False}).json()["error"]
        check("tokenizer.chat_template is missing" in message and message.endswith('; {"raw": true} continues the text as it is'), message)
        check(os.path.dirname(MODEL) not in message, message)
        check(s.post("/api/generate", {"prompt": "Once", "stream": False, "raw": True}).status == 200, "raw")
    with Server(scratch("refuses.gguf", refusing)) as s:
        message = s.post("/v1/chat/completions", {"model": "storyteller-q8_0", "messages": [{"role": "user", "content": "a"}]}).error()["message"]
        check(message.endswith("serve this one alone, by hearth serve MODEL --template NAME"), message)


@case
def a_template_may_be_given():
    ask = {"messages": [{"role": "user", "content": "a"}]}
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ '<answer>' }}"
    own = scratch("own.jinja", source.encode())
    with open(MODEL, "rb") as f:
        wrong = scratch("wrong.gguf", chat_model.with_template(f.read(), "{{ raise_exception('no') }}"))
    for model in MODEL, wrong:
        good("serve", model, "--check", "--port", "0", "--template", own)
        with Server("--template", own, model=model) as s:
            check(s.post("/apply-template", ask).json() == {"prompt": "<user>a<answer>"}, "the prompt")
            check(s.post("/v1/chat/completions", {**ask, "max_tokens": 3, "ignore_eos": True}).json()["usage"]["completion_tokens"] == 3, "an answer")
            props = s.get("/props").json()
            check(props["chat_template"] == source and props["capabilities"]["chat_template"], props)
            listed, = s.get("/v1/models").json()["data"]
            check(listed["meta"]["chat_template"] is True, listed)
            check(s.post("/api/show", {"model": listed["id"]}).json()["template"] == source, "for clients of Ollama")
    with Server("--template", "vicuna") as s:
        check(s.post("/apply-template", ask).json() == {"prompt": "USER: a\nASSISTANT:"}, s.post("/apply-template", ask).raw)
        check(s.get("/props").json()["chat_template"] == "vicuna", "the name")
    broken = scratch("broken.jinja", b"\n{% nonsense %}")
    bad(1, "broken.jinja: chat template, line 2: statement 'nonsense'", "serve", MODEL, "--check", "--port", "0", "--template", broken)
    bad(1, "'nosuch' is not known; there are chatglm4, chatml, ", "serve", MODEL, "--check", "--port", "0", "--template", "nosuch")
    bad(1, "nosuch.jinja: No such file", "serve", MODEL, "--check", "--port", "0", "--template", "./nosuch.jinja")


@case
def metrics_count_requests_by_path_and_status():
    with Server() as s:
        for _ in range(3):
            s.get("/health")
        s.get("/v1/models/nothing")
        s.get("/secret-name")
        s.post("/tokenize", b"{")
        answer = s.get("/metrics")
        text = answer.body.decode()
        check(answer.headers["content-type"].startswith("text/plain; version=0.0.4"), answer.headers)
        for line in ('hearth_http_requests_total{path="/health",code="200"} 3', 'hearth_http_connections 1',
                     'hearth_http_requests_total{path="/v1/models/{id}",code="404"} 1', 'hearth_requests_running 0',
                     'hearth_http_requests_total{path="other",code="404"} 1',
                     'hearth_http_requests_total{path="/tokenize",code="400"} 1'):
            check(line + "\n" in text, line, text)
        check("secret-name" not in text, text)
        resident = int(re.search(r"^hearth_process_resident_bytes (\d+)$", text, re.M)[1])
        check(0.5 < resident / s.resident() < 2, resident)
        check(re.search(r'^hearth_build_info\{version="[\d.]+",cpu="\w+",selector="\w+"\} 1$', text, re.M), text)
        names = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
        for line in text.splitlines():  # the text format: each sample below its description
            check(line.startswith("# ") or re.fullmatch(r'(\w+)(\{(\w+="[^"\\\n]*",?)+\})? [\d.e+-]+', line), line)
            name = line if line.startswith("# ") else re.match(r"\w+", line)[0]
            check(name[:2] == "# " or name in names or re.sub("_(bucket|sum|count)$", "", name) in names, line)


@case
def clients_of_ollama_find_the_model():
    with Server(model=story_with_template()) as s:
        check(s.get("/api/version").json()["hearth"] == good("--version").stdout.decode().split()[1], "version")
        (model,) = s.get("/api/tags").json()["models"]
        check(model["name"] == model["model"] == "story-chat" and model["details"]["format"] == "gguf", model)
        check(model["details"]["quantization_level"] == "Q8_0" and model["size"] > 1000, model)
        check(re.fullmatch(r"[0-9a-f]{16}", model["digest"]), model)
        check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", model["modified_at"]), model)
        for body in ({"model": "story-chat"}, {"name": "story-chat"}, {"model": "story-chat:latest", "verbose": None}):
            shown = s.post("/api/show", body).json()
            check(shown["template"] == CHATML and shown["details"] == model["details"], shown)
            check(shown["model_info"]["general.parameter_count"] > 1000, shown)
        for body, status, words in (({}, 400, "missing"), ({"model": 1}, 400, "a text"), ({"model": "x"}, 404, "not found")):
            answer = s.post("/api/show", body)
            check(answer.status == status and words in answer.json()["error"], answer.raw)
        check(isinstance(s.get("/api/nothing").json()["error"], str), "their form of errors")


# ---- access ---------------------------------------------------------------------------------------------------------


@case
def keys_are_asked_for():
    keys = scratch("keys", f"# two\n{KEY}\n\nother-key\n".encode())
    os.chmod(keys, 0o600)
    with Server("--api-key-file", keys, env={"HEARTH_API_KEY": "third"}) as s:
        for good_one in (KEY, "other-key", "third"):
            for header in (f"Authorization: Bearer {good_one}", f"authorization: bearer   {good_one} ", f"x-api-key: {good_one}"):
                check(s.get("/v1/models", [header]).status == 200, header)
                check(s.post("/tokenize", {"content": "a"}, [header]).status == 200, header)
        slow = json.dumps({"content": "a b " * 2000000}).encode()
        with s.connect() as first:
            first.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nx-api-key: other-key\r\n"
                          b"Content-Length: %d\r\n\r\n" % len(slow) + slow)
            end = time.monotonic() + 60
            while True:
                running = s.get("/slots", ["x-api-key: third"]).json()
                if running or time.monotonic() > end:
                    break
            check(len(running) == 1 and running[0]["path"] == "/tokenize" and running[0]["key"] == 2, running)
            check(running[0]["request_bytes"] == len(slow) and "a b" not in json.dumps(running), running)
            check(read_answer(first)[0].status == 200, "the slow one")
        refused, addresses = set(), itertools.count(1)
        for headers in ([], [f"Authorization: Bearer {KEY[:-1]}"], [f"Authorization: Bearer {KEY}x"], ["Authorization: Bearer"],
                        ["Authorization: Bearer "], [f"Authorization: {KEY}"], [f"Authorization: Basic {KEY}"],
                        [f"Authorization: Bearer {KEY}", "Authorization: Bearer x"], ["Authorization: Bearer x", f"x-api-key: {KEY}"],
                        [f"x-api-key: {KEY}", f"x-api-key: {KEY}"], ["Authorization: Bearer # two"], ["x-api-key: " + "k" * 9000]):
            for path in ("/v1/models", "/metrics", f"/v1/models?key={KEY}", "/nothing"):
                s.source = f"127.1.{len(refused)}.{next(addresses)}"  # so that none of them has too many
                answer = s.get(path, headers + ["x-request-id: same"])
                check(answer.status == 401 and answer.error()["type"] == "authentication_error", headers, answer.raw)
                check(answer.headers["www-authenticate"] == "Bearer", answer.raw)
                refused.add(re.sub(rb"Date: [^\r]*\r\n", b"", answer.raw))
        check(len(refused) == 1, refused)
        check(s.get("/health").status == s.get("/v1/health").status == 200, "health is public")
        check(not [line for line in s.lines if line and (KEY in line or "other-key" in line)], "a key was logged", s.lines)


@case
def an_address_that_guesses_keys_waits():
    """But for a key that was right from there before: it may be the address of a proxy."""
    keys = scratch("keys", f"{KEY}\nother-key\n".encode())
    os.chmod(keys, 0o600)
    with Server("--api-key-file", keys) as s:
        def status(key):
            return s.get("/v1/models", [f"x-api-key: {key}"]).status

        check(status(KEY) == 200, "the right key")
        check([status(f"guess-{i}") for i in range(5)] == [401] * 5, "five wrong ones")
        late = s.get("/v1/models", ["x-api-key: other-key"])
        check(late.status == 429 and 1 <= int(late.headers["retry-after"]) <= 60 and late.error()["type"] == "rate_limit_error", late.raw)
        check(status("guess") == 429 and status(KEY) == 200, "meanwhile")
        check(s.get("/v1/models").status == 401 and s.get("/health").status == 200, "without a key")
        s.source = "127.0.0.2"
        check(status("other-key") == 200 and status("guess") == 401, "another address")


@case
def keys_come_as_a_credential_of_the_service_manager():
    with tempfile.TemporaryDirectory() as folder:
        env, path = {"CREDENTIALS_DIRECTORY": folder}, os.path.join(folder, "hearth-keys")
        with Server(env=env) as s:
            check(s.get("/v1/models").status == 200, "none was passed")
        with open(path, "w", encoding="ascii") as f:
            f.write(KEY)
        os.chmod(path, 0o440)  # with an access list
        with Server(env=env) as s:
            check(s.get("/v1/models").status == 401 and s.get("/v1/models", [f"x-api-key: {KEY}"]).status == 200, "the key")
        given = scratch("keys", b"another-key-of-a-file")
        os.chmod(given, 0o600)
        with Server("--api-key-file", given, env=env) as s:  # what is named
            check(s.get("/v1/models", [f"x-api-key: {KEY}"]).status == 401, "is what counts")
        os.chmod(path, 0o444)
        done = subprocess.run([HEARTH, "serve", "--port", "0", "--check"], env={**os.environ, **env}, capture_output=True, timeout=60)
        check(done.returncode == 1 and b"others can read" in done.stderr, done)


@case
def key_files_and_addresses_are_checked():
    keys = scratch("keys", KEY.encode())
    os.chmod(keys, 0o640)
    bad(1, "chmod 600", "serve", "--port", "0", "--check", "--api-key-file", keys)
    os.chmod(keys, 0o600)
    for content, words in ((b"", "no key"), (b"#\n\n", "no key"), (b"a b\n", "not printable"), (b"k" * 513, "1 to 512"),
                           (b"\xff\n", "not printable")):
        path = scratch("wrong", content)
        os.chmod(path, 0o600)
        bad(1, words, "serve", "--port", "0", "--check", "--api-key-file", path)
    bad(1, "No such file", "serve", "--port", "0", "--check", "--api-key-file", scratch("absent"))
    bad(1, "insecure-no-key", "serve", "--host", "0.0.0.0", "--port", "0", "--check")
    for option in ([], ["--host", "127.0.0.1"], ["--host", "localhost"]):
        good("serve", MODEL, "--port", "0", "--check", *option)
    good("serve", MODEL, "--port", "0", "--check", "--host", "0.0.0.0", "--api-key-file", keys)
    for key in ("a", "short-key-of-15", "aaaaaaaaaaaaaaaaaaaaaaaa"):
        weak = scratch("weak", f"# strong, then weak\n{KEY}\n{key}\n".encode())
        os.chmod(weak, 0o600)
        bad(1, "weak, line 3; a key of at least 16 bytes is needed", "serve", "--host", "0.0.0.0", "--port", "0", "--check", "--api-key-file", weak)
        bad(1, "guess the key of HEARTH_API_KEY", "serve", "--host", "0.0.0.0", "--port", "0", "--check", env={"HEARTH_API_KEY": key})
        good("serve", MODEL, "--port", "0", "--check", "--api-key-file", weak)
    done = good("serve", MODEL, "--port", "0", "--check", "--host", "0.0.0.0", "--insecure-no-key")
    check(b"without a key" in done.stderr, done.stderr)
    bad(1, "--host nowhere.invalid", "serve", "--host", "nowhere.invalid", "--check")
    bad(1, "port", "serve", "--host", "192.0.2.1", "--check")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bad(1, "another program uses it", "serve", "--port", str(taken.getsockname()[1]), "--check")
    for option, value in (("--cors-origin", "*"), ("--cors-origin", "example.org"), ("--cors-origin", "http://a/b"),
                          ("--cors-origin", "http://"), ("--allow-host", "http://a"), ("--allow-host", "")):
        bad(1, option, "serve", "--port", "0", "--check", option, value)
    done = good("serve", "--unix-socket", scratch("s"), "--host", "127.0.0.1", "--port", "0", "--check")
    check(b"unix:" in done.stderr + done.stdout and b"http://127.0.0.1" in done.stderr + done.stdout, done)
    for option, value in (("--kv-dir-seconds", "5"), ("--kv-dir-size", "1G")):
        bad(2, option + " is about the folder of --kv-dir", "serve", "--check", option, value)
    bad(2, "keys are seen by all", "serve", "--api-key", KEY)
    for option in ("--port", "--head-seconds", "--max-connections"):
        bad(2, "allowed are", "serve", option, "-1" if option == "--head-seconds" else "100001")
    refused = hearth("serve", scratch("nothing.gguf"), "--port", "0")
    check(refused.returncode == 1 and b"nothing.gguf" in refused.stderr, refused)
    broken = scratch("broken.gguf", b"GGUF" + bytes(100))
    for more in ([], ["--check"]):
        refused = hearth("serve", broken, "--port", "0", *more)
        check(refused.returncode == 1 and b"broken.gguf" in refused.stderr, refused)


@case
def hosts_and_origins_are_checked():
    with Server("--cors-origin", "https://chat.example", "--cors-origin", "http://localhost:3000", "--allow-host", "my.box") as s:
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1", f"127.0.0.1:{s.port}", "[::1]", "[::1]:80", "my.box:8080"):
            check(s.get("/health", host=host).status == 200, host)
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.7", "[::2]", "localhost:a",
                     "[::1", "[::1]x", ":80", "a@localhost", "localhost:80:80"):
            answer = s.get("/health", host=host)
            check(answer.status == 403 and answer.error()["type"] == "permission_error", host, answer.raw)
        check(s.get("/health", ["Host: "], host=None).status == 403, "an empty host")
        for origin in ("https://chat.example", "http://localhost:3000"):
            answer = s.get("/health", [f"Origin: {origin}"])
            check(answer.headers["access-control-allow-origin"] == origin and answer.headers["vary"] == "Origin", answer.raw)
            answer = s.ask("OPTIONS", "/tokenize", headers=[f"Origin: {origin}", "Access-Control-Request-Method: POST",
                                                            "Access-Control-Request-Headers: authorization, content-type"])
            check(answer.status == 204 and answer.headers["access-control-allow-methods"] == "POST", answer.raw)
            check(answer.headers["access-control-allow-headers"] == "authorization, content-type", answer.raw)
            check("content-length" not in answer.headers and answer.body == b"", answer.raw)
        answer = s.ask("OPTIONS", "/tokenize", headers=["Origin: https://chat.example", "Access-Control-Request-Headers: a\tb"])
        check("access-control-allow-headers" not in answer.headers, answer.raw)
        for origin in ("https://evil.example", "null", "http://chat.example", "https://chat.example.evil", "https://chat.example:1"):
            for method in ("GET", "OPTIONS"):
                answer = s.ask(method, "/health", headers=[f"Origin: {origin}"])
                check(answer.status == 403 and "access-control-allow-origin" not in answer.headers, origin, answer.raw)
        own = s.get("/health", [f"Origin: http://localhost:{s.port}"], host=f"localhost:{s.port}")
        check(own.status == 200 and "access-control-allow-origin" not in own.headers, own.raw)
    with Server() as s:
        check(s.get("/health", ["Origin: https://chat.example"]).status == 403, "none is allowed by default")
        check(s.ask("OPTIONS", "/health").status == 405, "no OPTIONS without --cors-origin")
    with Server("--host", "0.0.0.0", "--port", "0", "--insecure-no-key") as s:
        check(s.get("/health", host="192.0.2.1:80").status == 200, "an address of this machine")
        check(s.get("/health", host="evil.example").status == 403, "a name that was not allowed")


@case
def requests_have_ids_and_lines_without_contents():
    with Server() as s:
        check(s.get("/health", ["x-request-id: my-id_1.2"]).headers["x-request-id"] == "my-id_1.2", "an id of the client's")
        date = s.get("/health").headers["date"]
        check(abs(email.utils.parsedate_to_datetime(date).timestamp() - time.time()) < 60, date)
        made = set()
        for header in (None, "x-request-id: a b", "x-request-id: " + "a" * 65, "x-request-id: \xe4", "x-request-id:"):
            answer = s.get("/health", [header] if header else [])
            check(re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"]), header, answer.raw)
            made.add(answer.headers["x-request-id"])
        check(len(made) == 5, made)
        s.post("/tokenize", {"content": "my secret text"})
        s.get("/a%0d%0ahearth:%20forged%1b[2J?secret=1", ["x-request-id: last"])
        line = s.wait_for(" last")
        check(re.fullmatch(r"hearth: GET /a\\x0d\\x0ahearth: forged\\x1b\[2J 404 \d+ bytes [\d.]+ ms last\n", line), line)
        check(re.fullmatch(r"hearth: POST /tokenize 200 \d+ bytes [\d.]+ ms \w+\n", s.wait_for("/tokenize")), s.lines)
        check("secret" not in "".join(s.lines), s.lines)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(scratch("n"))
        manager.settimeout(TIMEOUT)
        with Server("-q", ready=False, unix=scratch("q"), env={"NOTIFY_SOCKET": scratch("n")}) as s:
            check(manager.recv(100) == b"READY=1", "ready")
            check(s.get("/health").status == 200, "-q")
    check("".join(line or "" for line in s.lines) == "", s.lines)


# ---- sockets and managers -------------------------------------------------------------------------------------------


@case
def it_listens_on_a_unix_socket():
    path = scratch("socket")
    with Server(unix=path) as s:
        check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, oct(os.stat(path).st_mode))
        check(s.get("/health", host="any.thing").status == 200, "no name is a foreign one here")
        check(s.get("/health", host=None).status == 400, "but there is one")
        check(s.post("/tokenize", {"content": "a"}).status == 200, "a call")
        with s.connect() as c:
            c.sendall(b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n"
                      b'{"content": "a"}')
            c.shutdown(socket.SHUT_WR)
            check(Answer(read_all(c)).status == 200, "half closed")
        bad(1, "another program listens there", "serve", "--unix-socket", path, "--check")
    check(not os.path.exists(path), "the socket is removed")
    with Server("--port", "0", "--unix-socket", path) as s:  # what is named is listened on
        check(s.get("/health").status == 200, "by the port")
        s.where = path
        check(s.get("/health").status == 200, "by the socket")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    with Server(unix=path) as s:
        check(s.get("/health").status == 200, "in place of a socket that was left")
    bad(1, "no socket is there", "serve", "--check", "--unix-socket", scratch("file", b""))
    bad(1, "no such file or directory", "serve", "--check", "--unix-socket", scratch("missing") + "/s")
    bad(1, "more than 107", "serve", "--check", "--unix-socket", scratch("a" * 110))


@case
def a_service_manager_is_told_and_passes_sockets():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, tempfile.TemporaryDirectory() as folder:
        manager.bind(os.path.join(folder, "n"))
        manager.settimeout(60)
        with Server(env={"NOTIFY_SOCKET": os.path.join(folder, "n")}) as s:
            check(manager.recv(100) == b"READY=1", "ready")
            check(s.get("/health").status == 200, "it is")
        check(manager.recv(100) == b"STOPPING=1", "stopping")
    # As systemd does it: the socket is descriptor 3, and LISTEN_PID is the program's own.
    start = ("import os,sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1');"
             "os.execv(sys.argv[2], sys.argv[2:])")
    with socket.create_server(("127.0.0.1", 0)) as passed:
        passed.set_inheritable(True)
        with Server(wrap=[sys.executable, "-c", start, str(passed.fileno())], pass_fds=[passed.fileno()]) as s:
            s.port = passed.getsockname()[1]
            check(s.get("/health").status == 200, "on the passed socket")
            check(s.wait_for("listening on").count("http://") == 1, s.lines)
    with socket.socket() as other:
        other.set_inheritable(True)
        done = subprocess.run([sys.executable, "-c", start, str(other.fileno()), HEARTH, "serve", "--check"],
                              pass_fds=[other.fileno()], capture_output=True, timeout=60)
        check(done.returncode == 1 and b"no listening socket" in done.stderr, done)


# ---- large requests ------------------------------------------------------------------------------------------------

STORY = {"prompt": "Once upon a time", "max_tokens": 400, "seed": 7, "temperature": 1.0, "ignore_eos": True, "stream": True}
UNIT = "The quick brown fox, 12 of them, jumps over the lazy dog.\n"


class Streams:
    """Asks for a stream again and again, until the end of a with statement, and counts the parts that come."""

    def __init__(self, s):
        self.server, self.n_part, self.ends, self.bodies = s, 0, False, []
        self.thread = threading.Thread(target=self._read)

    def _read(self):
        while not self.ends:
            with self.server.connect() as c:
                c.sendall(request("/v1/completions", STORY))
                data = b""
                while part := c.recv(65536):
                    data += part
                    self.n_part += part.count(b"data: ")
                self.bodies.append(data)

    def __enter__(self):
        self.thread.start()
        until(lambda: self.n_part > 0)
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()


def request(path, body):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def n_begun(s, path):
    return sum(one["is_processing"] and one["path"] == path for one in s.get("/slots").json())


def begin_large(s, path, body):
    """Sends a request and returns its connection once the engine has it."""
    n, c = n_begun(s, path), s.connect()
    c.sendall(request(path, body))
    until(lambda: n_begun(s, path) > n)
    return c


def texts_of(data):
    return [one["choices"][0]["text"] for _, one in events_of(Answer(data))[:-1] if one["choices"]]


@case
def a_large_request_stops_no_stream():
    """Of /tokenize, /apply-template and chats. The engine sends parts of streams between the time when it has the request and
    its answer; the time itself decides nothing."""
    n = (2 << 20 if os.environ.get("HEARTH_SANITIZED") else 6 << 20) // len(UNIT)
    long, longest = ([{"role": "user", "content": UNIT * k}] for k in (n // 3, (12 << 20) // len(UNIT)))
    with Server("-t", "1", model=story_with_template()) as s:
        two, three = (s.post("/tokenize", {"content": UNIT * k}).json()["tokens"] for k in (2, 3))
        alone = texts_of(s.exchange(request("/v1/completions", STORY)))
        with Streams(s) as streams:
            for path, body in (("/tokenize", {"content": UNIT * n}), ("/apply-template", {"messages": longest}),
                               ("/v1/chat/completions", {"messages": long}), ("/v1/messages/count_tokens", {"messages": long})):
                with begin_large(s, path, body) as c:
                    before = streams.n_part
                    first = c.recv(1)
                    n_part = streams.n_part - before
                    answer = Answer(first + read_all(c))
                check(n_part >= 3, path, n_part)
                if path == "/tokenize":
                    check(answer.json()["tokens"] == two + three[len(two):] * (n - 2), "other tokens")
                elif path == "/apply-template":
                    prompt = f"<|im_start|>user\n{longest[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
                    check(answer.json()["prompt"] == prompt, "another prompt")
                elif path == "/v1/chat/completions":
                    check(answer.status == 400 and answer.error()["code"] == "context_length_exceeded", answer.raw)
                else:
                    check(answer.json()["input_tokens"] > (n // 3) * (len(three) - len(two)), answer.raw)
            few, many = (s.post("/v1/embeddings", {"input": [[5], [6, 7]] * k}).json()["data"] for k in (1, 50))
            check([one["embedding"] for one in many] == [one["embedding"] for one in few] * 50, "other vectors")
        check(streams.bodies and all(texts_of(data) == alone for data in streams.bodies), "another text")


@case
def a_large_request_whose_client_is_gone_is_dropped():
    n = (1 << 20 if os.environ.get("HEARTH_SANITIZED") else 6 << 20) // len(UNIT)
    body, behind = {"content": UNIT * n}, {"content": UNIT * 1000}
    with Server("-t", "1", "--parallel", "1", "--max-waiting", "1") as s:
        waiting = [begin_large(s, "/tokenize", one) for one in (body, behind)]
        refused = s.post("/tokenize", behind)
        check(refused.status == 429 and "2 requests run or wait already" in refused.error()["message"], refused.raw)
        check(s.post("/tokenize", {"content": "a"}).status == 200, "a small one waits")
        for c in waiting:
            c.close()
        until(lambda: s.get("/slots").json() == [])
        check(s.post("/tokenize", behind).status == 200, "nothing works any more")
        for c in [begin_large(s, "/tokenize", one) for one in (body, behind)]:
            c.close()  # the server ends in the midst of the first
    with Server("-t", "1", "--max-request-seconds", "0.01") as s:
        with begin_large(s, "/tokenize", body):
            late = s.post("/tokenize", behind)
            check(late.status == 408 and "waited longer" in late.error()["message"], late.raw)


if __name__ == "__main__":
    run_all(__file__)
