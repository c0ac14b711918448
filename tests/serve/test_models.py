"""Several models in one server: which are listed, which request gets which, how they take turns, and what limits of memory
allow. Called by CTest with the program's path."""

import json
import os
import re
import shutil
import struct
import threading
import time

from server import (CHATML, HEARTH, MODEL, SILENCE, Server, bad, case, chat_model, check, good, read_all, run_all, scratch,
                    until)
from program import least_ram

STORY = "Once upon a time"
LONG = 600 if os.environ.get("HEARTH_SANITIZED") else 5000  # tokens of an answer that takes a while
OPTIONS = ("-t", "1", "-c", "8192")  # which has room for it


def with_marks(marks):
    with open(MODEL, "rb") as f:
        return chat_model.with_template(f.read(), CHATML.replace("im_", marks))


def folder(*names):
    """A folder of models with these names, whose templates have the name in their marks."""
    path = scratch("models")
    os.makedirs(path, exist_ok=True)
    for name in names:
        with open(os.path.join(path, name + ".gguf"), "wb") as f:
            f.write(with_marks(name + "_"))
    return path


def sidecar():
    key, value = b"general.architecture", b"hearth.profile"
    pair = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair


def states(s):
    return {m["id"]: m["meta"]["loaded"] for m in s.get("/v1/models").json()["data"]}


def ask(s, model=None, tokens=8, **more):
    body = {"prompt": STORY, "max_tokens": tokens, "seed": 7, "temperature": 1.0, "ignore_eos": True, **more}
    return s.post("/v1/completions", body if model is None else {"model": model, **body})


def text_of(answer):
    check(answer.status == 200, answer.raw)
    return answer.json()["choices"][0]["text"]


def template_of(s, **more):
    answer = s.post("/apply-template", {"messages": [{"role": "user", "content": "a"}], **more})
    check(answer.status == 200, answer.raw)
    return re.match(r"<\|(\w+)_start", answer.json()["prompt"])[1]


class Stream:
    """A long completion that is being read, until the end of a with statement."""

    def __init__(self, s, model, tokens=LONG):
        body = json.dumps({"model": model, "prompt": STORY, "max_tokens": tokens, "seed": 7, "temperature": 1.0,
                           "ignore_eos": True, "stream": True}).encode()
        self.socket = s.connect()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.data = b""
        while b"data: " not in self.data:
            part = self.socket.recv(4096)
            check(part, "no stream", self.data)
            self.data += part

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def rest(self):
        self.data += read_all(self.socket)
        check(b"data: [DONE]" in self.data, self.data[-500:])
        events = re.findall(rb"data: (\{.*\})\n", self.data)
        return "".join(json.loads(e)["choices"][0]["text"] for e in events)


def later(function):
    """Runs a function in a thread; the value of its result is there after join."""
    result = []
    thread = threading.Thread(target=lambda: result.append((function(), time.monotonic())), daemon=True)
    thread.start()
    thread.result = result
    return thread


# ---- the list --------------------------------------------------------------------------------------------------------


@case
def a_folder_is_listed_and_loads_what_is_asked_for():
    path = folder("zebra", "apple", "mango")
    for name, content in (("side.gguf", sidecar()), ("broken.gguf", b"GGUF" + bytes(100)), ("mmproj-x.gguf", with_marks("x")),
                          ("part-00002-of-00002.gguf", with_marks("x")), ("notes.txt", b"")):
        with open(os.path.join(path, name), "wb") as f:
            f.write(content)
    with Server(model=path) as s:
        check(states(s) == {"apple": True, "mango": False, "zebra": False}, s.get("/v1/models").raw)
        check("broken.gguf" in s.wait_for("left out") and not [x for x in s.lines if x and "side.gguf" in x], s.lines)
        tags = s.get("/api/tags").json()["models"]
        check([(t["name"], t["meta"]["loaded"]) for t in tags] == [("apple", True), ("mango", False), ("zebra", False)], tags)
        check(all(t["details"]["quantization_level"] == "Q8_0" and t["size"] > 1000 for t in tags), tags)
        digests = [t["digest"] for t in tags]
        check(all(re.fullmatch("[0-9a-f]{16}", d) for d in digests) and len(set(digests)) == 3, digests)
        metas = [{k: v for k, v in m["meta"].items() if k != "loaded"} for m in s.get("/v1/models").json()["data"]]
        check(metas[0] == metas[1] == metas[2] and metas[0]["n_params"] > 1000 and metas[0]["chat_template"], metas)
        shown = s.post("/api/show", {"model": "mango"}).json()
        check("mango_start" in shown["template"] and "tools" in shown["capabilities"] and not states(s)["mango"], shown)
        check(template_of(s) == "apple", "no name: the one that is loaded")
        for name in ("zebra", "zebra:latest"):
            check(template_of(s, model=name) == "zebra", name)
        check(states(s) == {"apple": False, "mango": False, "zebra": True}, states(s))
        check([t["digest"] for t in s.get("/api/tags").json()["models"]] == digests, "the same, loaded or not")
        check(template_of(s) == template_of(s, model=None) == "zebra", "the one that is loaded now")
        check(s.get("/props").json()["model"] == s.get("/stats").json()["model"] == "zebra", s.get("/props").raw)
        answer = ask(s, "mango").json()
        check(answer["model"] == "mango" and s.get("/v1/models/mango").json()["meta"]["loaded"], answer)
        answer = s.post("/api/chat", {"model": "apple:latest", "messages": []}).json()
        check(answer["model"] == "apple" and answer["done_reason"] == "load" and states(s)["apple"], answer)
        text = s.get("/metrics").body.decode()
        check("hearth_models_loaded 1\n" in text and "hearth_generated_tokens_total 8\n" in text, text)
        whole = text_of(ask(s, "zebra"))
    with Server(model=os.path.join(path, "zebra.gguf")) as s:
        check(text_of(ask(s, "zebra")) == text_of(ask(s, "any other")) == whole, "the text of a server of its own")
        check(states(s) == {"zebra": True}, states(s))


@case
def an_unknown_name_is_refused_in_the_form_of_the_api():
    messages = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    with Server(model=folder("a", "b")) as s:
        for path, body in (("/v1/chat/completions", messages), ("/v1/completions", {"prompt": "a"}),
                           ("/v1/responses", {"input": "a"}), ("/v1/embeddings", {"input": "a"}), ("/tokenize", {"content": "a"}),
                           ("/apply-template", messages)):
            for name in ("c", "A", "b:1", "b:latest:latest", ""):
                answer = s.post(path, {"model": name, **body})
                error = answer.error()
                check(answer.status == 404 and error["code"] == "model_not_found" and error["param"] == "model", path, answer.raw)
            answer = s.post(path, {"model": 7, **body})
            check(answer.status == 400 and answer.error()["param"] == "model", path, answer.raw)
            check(s.post(path, {"model": None, **body}).status == 200, path, "null means absent")
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            answer = s.post(path, {"model": "c", **messages})
            check(answer.status == 404 and answer.json()["type"] == "error", answer.raw)
            check(answer.json()["error"]["type"] == "not_found_error", answer.raw)
        for path in ("/api/chat", "/api/generate", "/api/show", "/api/embed"):
            answer = s.post(path, {"model": "c", **messages})
            check(answer.status == 404 and "'c' was not found" in answer.json()["error"], answer.raw)
        check(s.get("/v1/models/c").error()["code"] == "model_not_found", "c")
        check(s.post("/tokenize", b"{").status == 400, "no JSON")
        check(states(s) == {"a": True, "b": False}, "nothing was loaded for them")


@case
def what_belongs_to_one_model_is_refused_with_several():
    path = folder("a", "b")
    a, b = (os.path.join(path, name) for name in ("a.gguf", "b.gguf"))
    for option, value in (("--alias", "x"), ("--template", "chatml"), ("--draft", a), ("--predictors", a), ("--thresholds", a)):
        bad(2, f"{option} belongs to one model, and 2 are served", "serve", a, b, option, value, "--port", "0", "--check")
    bad(1, "two models have the name a", "serve", path, a, "--port", "0", "--check")
    os.makedirs(scratch("empty"))
    bad(1, "no models lie in this folder", "serve", scratch("empty"), "--port", "0", "--check")
    bad(1, "No such file", "serve", a, scratch("nothing.gguf"), "--port", "0", "--check")
    good("serve", path, "--port", "0", "--check")
    bad(2, "--alias '': a name is expected", "serve", a, "--alias", "", "--port", "0", "--check")
    with Server(b, model=a) as s:
        check(states(s) == {"a": True, "b": False}, "in the order of the command")
    os.remove(b)
    with Server("--alias", "x", model=path) as s:
        check(states(s) == {"x": True} and ask(s, "whatever").status == 200, "one model has any name")


# ---- turns ------------------------------------------------------------------------------------------------------------


@case
def a_model_with_requests_stays_and_others_wait():
    with Server(*OPTIONS, model=folder("a", "b")) as s:
        alone = text_of(ask(s, "a", LONG))
        with Stream(s, "a") as first:
            waiting = [later(lambda: ask(s, "b")) for _ in range(3)]
            until(lambda: len(s.get("/slots").json()) == 4)
            with Stream(s, "a", 8) as other:  # the loaded one takes requests meanwhile
                check(len(other.rest()) > 0 and not waiting[0].result, "a was not served first")
            check(states(s) == {"a": True, "b": False}, states(s))
            check(first.rest() == alone, "the text of a stream")
            ended = time.monotonic()
        for thread in waiting:
            thread.join(SILENCE)
            answer, when = thread.result[0]
            check(answer.json()["model"] == "b" and when > ended - 0.5, answer.raw)
        check(states(s) == {"a": False, "b": True}, states(s))
        with Stream(s, "b") as first:
            gone = Stream(s, "b", 8)
            gone.socket.close()
            body = json.dumps({"model": "a", "prompt": "a"}).encode()
            with s.connect() as c:  # a client that hangs up before its model is loaded
                c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          b"Content-Length: %d\r\n\r\n" % len(body) + body)
                until(lambda: len(s.get("/slots").json()) >= 2)
            first.rest()
        until(lambda: s.get("/slots").json() == [])
        check(states(s) == {"a": False, "b": True}, "nothing is loaded for who is gone")


@case
def no_request_waits_for_ever():
    with Server(*OPTIONS, model=folder("a", "b")) as s:
        stop = threading.Event()

        def keep_busy(tokens):  # three clients that always ask, so that a hardly ever has no request
            while not stop.is_set():
                check(ask(s, "a", tokens).status == 200, "a")

        busy = [later(lambda n=n: keep_busy(n)) for n in (LONG // 7, LONG // 5, LONG // 3)]
        until(lambda: len(s.get("/slots").json()) >= 2)
        began = time.monotonic()
        answer = ask(s, "b")
        waited = time.monotonic() - began
        check(answer.json()["model"] == "b" and waited < 60, waited)
        stop.set()
        for thread in busy:
            thread.join(120)
            check(thread.result, "a was not served again")


@case
def those_that_wait_are_counted():
    with Server(*OPTIONS, "--parallel", "1", "--max-waiting", "1", model=folder("a", "b")) as s:
        with Stream(s, "a") as first:
            waiting = [later(lambda: ask(s, "b")) for _ in range(2)]
            until(lambda: len(s.get("/slots").json()) == 3)
            answer = ask(s, "b")
            check(answer.status == 429 and int(answer.headers["retry-after"]) > 0, answer.raw)
            first.rest()
        for thread in waiting:
            thread.join(SILENCE)
            check(thread.result[0][0].status == 200, thread.result)
    with Server(*OPTIONS, "--max-request-seconds", "0.5", model=folder("a", "b")) as s:
        with Stream(s, "a"):
            answer = ask(s, "b")
            check(answer.status in (200, 408), answer.raw)  # a ends by the same limit


@case
def a_server_that_stops_loads_nothing_more():
    with Server(*OPTIONS, "--shutdown-seconds", str(SILENCE), model=folder("a", "b")) as s:
        with Stream(s, "a") as first:
            waiting = later(lambda: ask(s, "b"))
            until(lambda: len(s.get("/slots").json()) == 2)
            s.process.terminate()
            waiting.join(SILENCE)
            answer = waiting.result[0][0]
            check(answer.status == 503 and "stops" in answer.error()["message"], answer.raw)
            first.rest()
            s.process.wait(SILENCE)  # a second signal would end it at once


@case
def a_model_that_cannot_be_loaded_is_tried_again():
    path = folder("a", "b")
    b = os.path.join(path, "b.gguf")
    with Server(model=path) as s:
        os.rename(b, scratch("elsewhere"))
        answer = ask(s, "b")
        message = answer.error()["message"]
        check(answer.status == 503 and "the model b cannot be loaded" in message and "No such file" in message, answer.raw)
        check(scratch() not in message, message)
        with open(b, "wb") as f:
            f.write(b"GGUF" + bytes(100))
        answer = ask(s, "b")
        check(answer.status == 400 and "version" in answer.error()["message"], answer.raw)
        check(ask(s, "a").status == 200, "the other one is served")
        os.rename(scratch("elsewhere"), b)
        check(ask(s, "b").json()["model"] == "b", "again")


# ---- memory --------------------------------------------------------------------------------------------------------------


@case
def several_are_loaded_at_once_if_they_may():
    with Server(*OPTIONS, "--max-models", "2", model=folder("a", "b", "c")) as s:
        first = text_of(ask(s, "a"))
        check(text_of(ask(s, "b")) == first and states(s) == {"a": True, "b": True, "c": False}, states(s))
        for path in ("/props", "/stats"):
            both = s.get(path).json()
            check(both["model"] == "a" and [m["model"] for m in both["models"]] == ["a", "b"], both)
        ask(s, "a")
        before = figures(s)
        ask(s, "c")
        check(states(s) == {"a": True, "b": False, "c": True}, "b was used least recently", states(s))
        check(figures(s)["hearth_generated_tokens_total"] == before["hearth_generated_tokens_total"] + 8, before)
        check(before["hearth_models_loaded"] == 2, before)
        with Stream(s, "a") as one, Stream(s, "c") as other:
            check(one.rest() == other.rest(), "two streams of two models")


def figures(s):
    time.sleep(0.05)
    return {k: float(v) for k, v in re.findall(r"^(\w+) ([\d.e+]+)$", s.get("/metrics").body.decode(), re.M)}


@case
def a_limit_of_memory_is_for_all_of_them():
    path = folder("a", "b")
    least = int(least_ram("serve", os.path.join(path, "a.gguf"), "--gpu", "none", "--port", "0", "--check"))
    with open(HEARTH, "rb") as f:  # of ThreadSanitizer, which has megabytes for each thread
        is_threads = b"__tsan_init" in f.read()
    left_behind = (28 if is_threads else 16 if os.environ.get("HEARTH_SANITIZED") else 4) << 20  # by what is closed
    small = ["--max-models", "2", "--gpu", "none", "--ram", str(least + left_behind)]
    with Server(*small, model=path) as s:
        for name in ("a", "b", "a"):
            text_of(ask(s, name))
            check(sum(states(s).values()) == 1, "both do not fit", states(s))
    with Server(*small[:-1], str(4 * least), model=path) as s:
        for name in ("a", "b", "a"):
            text_of(ask(s, name))
        check(sum(states(s).values()) == 2, "both fit", states(s))


@case
def what_is_checked_then_starts():
    model = folder("a") + "/a.gguf"
    for options in ([], ["-c", "64"], ["-c", "512", "--batch", "64"]):
        command = ["serve", model, "--gpu", "none", "--port", "0", "--check", *options]
        least = int(least_ram(*command))
        for more in (0, 1, 3, 8, 16, 24, 40, 80):
            if more < 16 and os.environ.get("HEARTH_SANITIZED"):
                continue  # the memory of a sanitizer is another one at each start
            ram = str(least + (more << 20))
            good(*command, "--ram", ram)
            if more not in (0, 8, 16, 40):
                continue
            with Server("-t", "1", "--gpu", "none", "--ram", ram, *options, model=model) as s:
                threads = [later(lambda i=i: ask(s, seed=i, prompt=f"{i} times")) for i in range(4)]
                for thread in threads:
                    thread.join(SILENCE)
                    text_of(thread.result[0][0])


@case
def each_model_keeps_its_cache():
    path, kept = folder("a", "b"), scratch("kept")
    os.makedirs(kept, mode=0o700)
    words = {"prompt": STORY + ", " + "there was a dog. " * 20, "max_tokens": 4, "seed": 1}

    def cached(s, model):
        answer = s.post("/v1/completions", {"model": model, **words}).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    with Server("--kv-dir", kept, model=path) as s:
        check(cached(s, "a") == 0 and cached(s, "b") == 0, "nothing yet")
        check(os.listdir(os.path.join(kept, "a")) and cached(s, "a") > 50, "after another model")
    check(sorted(os.listdir(kept)) == ["a", "b"], os.listdir(kept))
    with Server("--kv-dir", kept, model=path) as s:
        check(cached(s, "b") > 50, "after a restart")
    shutil.rmtree(kept)


if __name__ == "__main__":
    run_all(__file__)
