"""Runs `hearth serve` for the tests of this folder, and speaks HTTP with it byte by byte. Python 3, standard library
only."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "cli"))
import chat_model  # noqa: E402: the path is set above
import program  # noqa: E402
from program import HEARTH, MODEL, TIMEOUT, bad, case, cases, check, data, good, hearth, scratch  # noqa: E402, F401

CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TOOLS = ("{%- if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<tool_call><|im_end|>\n{% endif %}"
         "{%- for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
         "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
         "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{{ m.tool_call_id or '' }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking %}<think>\n"
         "{% endif %}{% endif %}")


# After so many seconds without a byte an answer does not come. ThreadSanitizer takes more than 60 for the tokens of 16 MiB.
SILENCE = 600 if os.environ.get("HEARTH_SANITIZED") else 60


def until(is_true, seconds=SILENCE):
    """Waits until it is."""
    end = time.monotonic() + seconds
    while not is_true():
        check(time.monotonic() < end, "it did not come")
        time.sleep(0.01)


def is_served():
    """Whether this build has the server."""
    done = subprocess.run([HEARTH, "serve", "--port", "0", "--check"], capture_output=True, timeout=TIMEOUT)
    return b"built without libuv" not in done.stderr


def run_all(path):
    """Runs the cases of a file, or skips them where there is no server."""
    if not is_served():
        cases._cases.clear()

        @cases.case
        def hearth_serve_is_built():
            raise cases.Skip("libuv or a parser of HTTP was missing when this was built")

    cases.run_cases(path)


class Server:
    """A server on a free port, or on a Unix socket, until the end of a with statement, which expects it to stop by
    SIGTERM with status 0."""

    def __init__(self, *options, model=MODEL, unix=None, env=None, ready=True, wrap=(), pass_fds=()):
        self.where, self.source = unix, None  # source: the address from which it is asked
        place = ["--unix-socket", unix] if unix else [] if {"--host", "--port"} & set(options) or pass_fds else ["--port", "0"]
        environment = {**os.environ, "HEARTH_API_KEY": "", **(env or {})}
        self.process = subprocess.Popen([*wrap, HEARTH, "serve", model, *place, *options], env=environment,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, pass_fds=pass_fds)
        self.lines, self.reads = [], threading.Condition()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        if ready:
            self.wait_for("is ready")
        if not unix and ready and not pass_fds:
            self.port = int(re.search(r"http://[^ ,]+:(\d+)", self.wait_for("listening on"))[1])

    def _read(self):
        for line in self.process.stderr:
            with self.reads:
                self.lines.append(line.decode("utf-8", "replace"))
                self.reads.notify_all()
        with self.reads:
            self.lines.append(None)
            self.reads.notify_all()

    def wait_for(self, words, seconds=TIMEOUT):
        """The first line of stderr that contains the words."""
        end = time.monotonic() + seconds
        with self.reads:
            while True:
                for line in self.lines:
                    if line and words in line:
                        return line
                check(None not in self.lines, "the server ended:", self.lines)
                check(self.reads.wait(max(0, end - time.monotonic())), "no line with", words, "in", self.lines)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            status = self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
        self.thread.join()
        if kind is None:
            check(status == 0, "the server ended with", status, self.lines)

    # ---- connections -----------------------------------------------------------------

    def connect(self):
        if self.where:
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.where)
        else:
            s = socket.create_connection(("127.0.0.1", self.port), source_address=self.source and (self.source, 0))
        s.settimeout(SILENCE)
        return s

    def exchange(self, data, pieces=None):
        """Sends bytes and returns all that comes back until the server closes."""
        with self.connect() as s:
            try:
                for piece in pieces or [data]:
                    s.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return read_all(s)

    def ask(self, method, path, body=None, headers=(), version="HTTP/1.1", host="localhost"):
        """One request on a connection of its own: Answer. A body that is no bytes is sent as JSON."""
        lines = [f"{method} {path} {version}"] + ([f"Host: {host}"] if host else []) + ["Connection: close"]
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        names = {name.split(":")[0].lower() for name in headers}
        if body is not None:
            lines += [f"Content-Length: {len(body)}"]
            lines += [] if "content-type" in names else ["Content-Type: application/json"]
        lines += [line for line in headers if not line.lower().startswith("content-type:\0")]
        return Answer(self.exchange("\r\n".join(lines + ["", ""]).encode("latin-1") + (body or b"")))

    def get(self, path, headers=(), **more):
        return self.ask("GET", path, headers=headers, **more)

    def post(self, path, body, headers=(), **more):
        return self.ask("POST", path, body, headers=headers, **more)

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) * 1024


def read_all(s):
    data = b""
    while True:
        try:
            part = s.recv(65536)
        except ConnectionResetError:
            return data
        if not part:
            return data
        data += part


def read_answer(s, data=b""):
    """Reads one answer with a Content-Length from a connection: Answer, and what came after it."""
    while b"\r\n\r\n" not in data:
        part = s.recv(65536)
        check(part, "the connection closed after", data)
        data += part
    head, rest = data.split(b"\r\n\r\n", 1)
    size = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
    while len(rest) < size:
        part = s.recv(65536)
        check(part, "the connection closed after", data)
        rest += part
    return Answer(head + b"\r\n\r\n" + rest[:size]), rest[size:]


class Answer:
    """A single answer: status, headers (names in lower case) and body."""

    def __init__(self, data):
        check(data, "no answer")
        self.raw = data
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        check(lines[0].startswith("HTTP/1.1 "), data)
        self.status = int(lines[0].split(" ")[1])
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            check(name.lower() not in self.headers, "twice:", line)
            self.headers[name.lower()] = value

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error object, whose form is checked."""
        error = self.json()["error"]
        check(set(error) == {"message", "type", "param", "code"}, self.raw)
        check(isinstance(error["message"], str) and error["message"], self.raw)
        check(self.headers["content-type"] == "application/json", self.raw)
        return error


def n_answers(data):
    return len(re.findall(rb"HTTP/1\.[01] \d\d\d ", data))


# ---- streams ----------------------------------------------------------------------------


def joined_calls(deltas):
    """The calls of a stream's parts: id, name, arguments."""
    calls = []
    for part in (c for d in deltas for c in d.get("tool_calls", [])):
        if part["index"] == len(calls):
            check(part["id"] and part["type"] == "function" and part["function"]["arguments"] == "", part)
            calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
        else:
            check(set(part) == {"index", "function"} and part["index"] == len(calls) - 1, part)
            calls[-1]["arguments"] += part["function"]["arguments"]
    return calls


def events_of(answer):
    """The events of a stream: (name, object); the name is None where there is none, and the object a word at the end.
    Comments, which come while the engine is silent for long, are left out."""
    check(answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream"), answer.raw)
    out = []
    *events, end = body_of(answer).split("\n\n")
    check(end == "", events[-1:])
    for e in events:
        if e == ": ping":
            continue
        lines = e.split("\n")
        name = lines.pop(0)[7:] if lines[0].startswith("event: ") else None
        check(len(lines) == 1 and lines[0].startswith("data: "), e)
        out.append((name, lines[0][6:] if lines[0] == "data: [DONE]" else json.loads(lines[0][6:])))
    return out


def body_of(answer):
    body, rest = b"", answer.body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        n = int(size, 16)
        body, rest = body + rest[:n], rest[n + 2:]
    return body.decode()


def lines_of(answer):
    check(answer.status == 200 and answer.headers["content-type"] == "application/x-ndjson", answer.raw)
    return [json.loads(line) for line in body_of(answer).splitlines()]
