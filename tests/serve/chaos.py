#!/usr/bin/env python3
"""Clients that do everything wrong, at once, for as long as asked, beside some that do not: every right request must get
the text that it got alone, the server must not end, and its memory must not grow. Seeded; not a part of make test.

    tests/serve/chaos.py build/hearth [SECONDS] [SEED]
    HEARTH_CHAOS_OPTIONS="--ram 40M" tests/serve/chaos.py build/hearth 3600

Prints figures on the way; exits with 1 at the first difference."""
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
sys.argv = sys.argv[:2]
from server import Server, check, program  # noqa: E402: program.py reads the arguments
from test_apis import CITY, FUNCTIONS, TOOLS, model_with  # noqa: E402

N_CLIENT = 12
MESSAGES = [{"role": "user", "content": "A story about a dog, please."}]
RIGHT = [("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 40}),
         ("/v1/completions", {"prompt": ["A dog", "A cat"], "n": 2, "max_tokens": 20, "logprobs": 2}),
         ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "stop": ["the", "\n"]}),
         ("/v1/completions", {"prompt": "The dog ran. " * 20, "max_tokens": 30, "echo": True, "logprobs": 1}),
         ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 50}),
         ("/v1/chat/completions", {"messages": MESSAGES, "tools": FUNCTIONS, "tool_choice": "required", "max_tokens": 80}),
         ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 120, "response_format": {"type": "json_schema", "json_schema": {"schema": CITY}}}),
         ("/v1/responses", {"input": "A dog", "max_output_tokens": 30}), ("/v1/messages", {"messages": MESSAGES, "max_tokens": 30}),
         ("/api/chat", {"messages": MESSAGES, "stream": False, "options": {"num_predict": 30, "seed": 5}}),
         ("/v1/embeddings", {"input": ["A dog", "A cat and a dog"]}), ("/tokenize", {"content": "A dog"})]
CHANGING = {"id", "created", "created_at", "completed_at", "timings", "usage", "total_duration", "prompt_eval_duration", "eval_duration", "call_id"}


def steady(v):
    """An answer without what changes from one to the next."""
    if isinstance(v, dict):
        return {k: steady(x) for k, x in v.items() if k not in CHANGING}
    return [steady(x) for x in v] if isinstance(v, list) else v


class Chaos:
    def __init__(self, server):
        self.s, self.wrong, self.n_right, self.n_wrong = server, None, 0, 0
        self.lock = threading.Lock()
        # /v1/messages has no seed: at temperature 0 it needs none.
        self.right = [(p, {"seed": 5, "temperature": 0, **b} if p == "/v1/messages" else {"seed": 5, **b}) for p, b in RIGHT]
        self.known = [steady(self.s.post(p, b).json()) for p, b in self.right]
        self.end = time.monotonic() + SECONDS

    def fail(self, *what):
        with self.lock:
            self.wrong = self.wrong or what

    def ask_right(self, r):
        i = r.randrange(len(self.right))
        answer = self.s.post(*self.right[i])
        if answer.status == 429:
            time.sleep(0.1)
            return
        if answer.status != 200 or steady(answer.json()) != self.known[i]:
            self.fail(self.right[i], answer.raw[:2000])
        self.n_right += 1

    def head(self, path, n):
        return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {n}\r\n\r\n".encode()

    def ask_wrong(self, r):
        path, body = r.choice(self.right)
        data = json.dumps({**body, "stream": r.random() < 0.7, "max_tokens": 4000, "ignore_eos": True}).encode()
        kind = r.randrange(8)
        with self.s.connect() as c:
            c.settimeout(20)
            if kind == 0:  # hangs up while the answer comes
                c.sendall(self.head(path, len(data)) + data)
                for _ in range(r.randrange(4)):
                    c.recv(r.randrange(1, 3000))
            elif kind == 1:  # a part of a request
                whole = self.head(path, len(data)) + data
                c.sendall(whole[:r.randrange(len(whole))])
            elif kind == 2:  # noise
                c.sendall(bytes(r.randrange(256) for _ in range(r.randrange(1, 400))))
                c.recv(1000)
            elif kind == 3:  # JSON that is cut or changed
                broken = bytearray(data)
                for _ in range(r.randrange(1, 6)):
                    broken[r.randrange(len(broken))] = r.randrange(256)
                c.sendall(self.head(path, len(broken)) + bytes(broken))
                c.settimeout(1)
                c.recv(4000)
            elif kind == 4:  # a byte at a time, then gone
                for b in (self.head(path, len(data)) + data)[:r.randrange(200)]:
                    c.sendall(bytes([b]))
            elif kind == 5:  # does not read
                c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                c.sendall(self.head(path, len(data)) + data)
                time.sleep(r.random() * 2)
            elif kind == 6:  # reset
                c.sendall(self.head(path, len(data)) + data)
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:  # other paths and methods, many at once
                for _ in range(20):
                    c.sendall(f"{r.choice(['GET', 'PUT', 'POST'])} /{r.choice(['', 'metrics', 'slots', 'v1/models', 'x' * 9000])} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                c.recv(100000)
        self.n_wrong += 1

    def run(self, i):
        r = random.Random(SEED * 1000 + i)
        while time.monotonic() < self.end and not self.wrong:
            try:
                (self.ask_right if i < N_CLIENT // 3 else self.ask_wrong)(r)
            except (OSError, AssertionError) as e:
                if self.s.process.poll() is not None:
                    self.fail("the server ended", self.s.lines[-5:])
                elif i < N_CLIENT // 3:
                    self.fail("a right request", repr(e))


def main():
    model = model_with(TOOLS, "tools.gguf")
    options = ["-t", "1", "--parallel", "4", "--max-waiting", "16", "--write-seconds", "1.5", "--body-seconds", "2", "--head-seconds", "2",
               *os.environ.get("HEARTH_CHAOS_OPTIONS", "").split()]
    with Server(*options, model=model) as s:
        chaos = Chaos(s)
        threads = [threading.Thread(target=chaos.run, args=(i,)) for i in range(N_CLIENT)]
        begin, first, told = time.monotonic(), None, 0.0
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            for t in threads:
                t.join(0.1)
            now = time.monotonic() - begin
            if first is None and now > SECONDS / 3:
                first = s.resident()
            if now - told < SECONDS / 20:
                continue
            told = now
            print(f"{now:7.0f} s: {chaos.n_right} right, {chaos.n_wrong} wrong requests, {s.resident() / 2**20:.1f} MiB", flush=True)
        check(not chaos.wrong, chaos.wrong)
        deadline = time.monotonic() + 30
        while s.get("/slots").json() and time.monotonic() < deadline:
            time.sleep(0.2)
        check(s.get("/slots").json() == [], "requests are left over")
        last = s.resident()
        print(f"memory after a third of the time {first / 2**20:.1f} MiB, at the end {last / 2**20:.1f} MiB ({100 * (last / first - 1):+.1f} %)")
        check(chaos.n_right > 0 and last <= first * 1.01 + (1 << 20), "memory grew")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        program.SCRATCH = folder
        main()
