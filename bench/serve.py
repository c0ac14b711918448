#!/usr/bin/env python3
"""How fast a server answers: `hearth serve`, and another one of OpenAI's protocol beside it, in turn.

    bench/serve.py [--hearth build/hearth] [--peer "llama-server -np 16 ..."] [--only WORDS] MODEL.gguf [-- OPTION...]

What is measured, each --repeat times, medians:
  one stream      tokens per second of a request alone, beside `hearth bench` of the same model and length
  streams         tokens per second of 2, 4 and 16 streams together, by the first one's
  second turn     time to the first token of a conversation's next turn, beside that of its new tokens alone
  gap             the longest pause of a stream while a long prompt comes in, beside the longest without
  health          /health while 16 streams run: p50, p99, of requests at random times (Poisson)
  arrivals        requests at random times: time to the first token, between tokens and in all, p50, p95, p99
Prompts and lengths are seeded. Both servers are on this machine, and so is the client: its share of the CPU is printed.
OPTIONs are given to `hearth serve` and `hearth bench` (-t 2). Prints Markdown tables."""
import argparse
import http.client
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ("time person year way day thing man world life hand part child eye woman place work week case point company "
         "number group problem fact").split()


def text_of(seed, n_word):
    r = random.Random(seed)
    return " ".join(r.choice(WORDS) for _ in range(n_word))


class Running:
    """A server from its command until the end of a with statement; PORT in the command is its port."""

    def __init__(self, words, port):
        self.port = port
        self.process = subprocess.Popen([w.replace("PORT", str(port)) for w in words], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(1200):
            time.sleep(0.25)
            if self.process.poll() is not None:
                sys.exit("the server ended")
            try:
                if self.get("/health")[0] == 200:
                    return self
            except OSError:
                pass
        sys.exit("the server does not become ready")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def get(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        begin = time.monotonic()
        c.request("GET", path)
        answer = c.getresponse()
        body = answer.read()
        c.close()
        return answer.status, body, time.monotonic() - begin

    def stream(self, prompt, n_token, seed=1, chat=None, on_token=None):
        """Times of the tokens of a completion, or of a chat, after its request, and what the server says of it."""
        body = {"max_tokens": n_token, "seed": seed, "temperature": 0.8, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}, "cache_prompt": True}
        body |= {"messages": chat} if chat else {"prompt": prompt}
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        begin, times, last, text = time.monotonic(), [], {}, []
        c.request("POST", "/v1/chat/completions" if chat else "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = c.getresponse()
        if answer.status != 200:
            sys.exit(f"{answer.status}: {answer.read()[:300]}")
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            last = event if event.get("usage") else last
            for choice in event["choices"]:
                part = choice.get("text") or choice.get("delta", {}).get("content")
                if part:
                    times.append(time.monotonic() - begin)
                    text.append(part)
                    if on_token:
                        on_token()
        c.close()
        return times, last.get("usage", {}), "".join(text)


def together(server, n, n_token, n_word=24):
    """Tokens per second of n streams, while all of them generate: from the last one's first token to the first one's
    last."""
    out, threads = [None] * n, []
    begin = time.monotonic()

    def run(i):
        at = time.monotonic() - begin
        out[i] = [at + t for t in server.stream(text_of(100 + i, n_word), n_token, seed=i)[0]]
    for i in range(n):
        threads.append(threading.Thread(target=run, args=(i,)))
        threads[-1].start()
    for t in threads:
        t.join()
    first, last = max(o[0] for o in out), min(o[-1] for o in out)
    return sum(first < t <= last for o in out for t in o) / (last - first)


def percentiles(values):
    v = sorted(values)
    return [v[min(len(v) - 1, int(len(v) * p))] for p in (0.5, 0.95, 0.99)]


class Bench:
    def __init__(self, arguments):
        self.a = arguments
        self.hearth = [arguments.hearth, "serve", arguments.model, "--port", "PORT", "-c", str(arguments.context), *arguments.options]
        self.servers = {"hearth": self.hearth}
        if arguments.peer:
            self.servers["peer"] = shlex.split(arguments.peer)

    def each(self, fn):
        """Medians of fn for each server, in turn."""
        seen = {name: [] for name in self.servers}
        for i in range(self.a.repeat):
            for k, (name, words) in enumerate(self.servers.items()):
                with Running(words, self.a.port + (2 * i + k) % 40) as s:
                    seen[name].append(fn(s))
        return {name: [statistics.median(x) for x in zip(*rows)] for name, rows in seen.items()}

    def one_stream(self):
        n = self.a.tokens
        words = [self.a.hearth, "bench", self.a.model, "-p", "0", "-n", str(n), "--repeat", "1", "--json", *self.a.bench_options]
        direct, served = [], []
        for i in range(self.a.repeat):
            done = subprocess.run(words, capture_output=True, check=True)
            direct.append(json.loads(done.stdout)["tests"][0]["median_tokens_per_second"])
            with Running(self.hearth, self.a.port + i) as s:
                served.append(together(s, 1, n + 1, 1))
        ratio = statistics.median(b / a for a, b in zip(direct, served))
        print(f"\n| one stream | tokens/s |\n|---|---|\n| hearth bench | {statistics.median(direct):.2f} |\n"
              f"| hearth serve | {statistics.median(served):.2f} |\n| ratio (target 0.98) | {ratio:.3f} |", flush=True)

    def streams(self):
        def fn(s):
            together(s, 1, 8)
            return [together(s, n, self.a.tokens) for n in (1, 2, 4, 16)]
        rows = self.each(fn)
        print("\n| streams | 1 | 2 | 4 | 16 |\n|---|---|---|---|---|")
        for name, v in rows.items():
            print(f"| {name}, tokens/s | " + " | ".join(f"{x:.2f}" for x in v) + " |")
            print(f"| {name}, by one stream (targets 1.6, 2.4, 4.3) | 1 | " + " | ".join(f"{x / v[0]:.2f}" for x in v[1:]) + " |")
        if "peer" in rows:
            print(f"| hearth by peer, 16 streams (target 1.4) | | | | {rows['hearth'][3] / rows['peer'][3]:.2f} |")
        sys.stdout.flush()

    def second_turn(self):
        def fn(s):
            begun = text_of(7, self.a.turn)
            times, usage, text = s.stream(begun, 16)
            more = begun + text + text_of(8, 40)
            second, used, _ = s.stream(more, 4)
            new = used["prompt_tokens"] - used.get("prompt_tokens_details", {}).get("cached_tokens", 0)
            alone, _, _ = s.stream(text_of(9, 400)[:int(new * len(more) / used["prompt_tokens"])], 4)
            return times[0], second[0], alone[0], usage["prompt_tokens"], new
        print("\n| second turn | first turn, s | second turn, s | its new tokens alone, s | tokens | new |\n|---|---|---|---|---|---|")
        for name, v in self.each(fn).items():
            print(f"| {name} | {v[0]:.3f} | {v[1]:.3f} | {v[2]:.3f} | {v[3]:.0f} | {v[4]:.0f} |", flush=True)

    def gap(self):
        def fn(s):
            def longest(with_prompt):
                times = []

                def on_token():
                    times.append(time.monotonic())
                runner = threading.Thread(target=s.stream, args=(text_of(1, 20), self.a.gap_tokens), kwargs={"on_token": on_token})
                runner.start()
                while len(times) < 10:
                    time.sleep(0.005)
                if with_prompt:
                    s.stream(text_of(random.random(), self.a.prompt), 2)
                runner.join()
                return max(b - a for a, b in zip(times[5:], times[6:]))
            return longest(False) * 1e3, longest(True) * 1e3
        print("\n| longest gap, ms | without | while a long prompt comes in | more (target 150) |\n|---|---|---|---|")
        for name, v in self.each(fn).items():
            print(f"| {name} | {v[0]:.0f} | {v[1]:.0f} | {v[1] - v[0]:.0f} |", flush=True)

    def health(self):
        def fn(s):
            threads = [threading.Thread(target=s.stream, args=(text_of(i, 24), self.a.tokens), kwargs={"seed": i}) for i in range(16)]
            for t in threads:
                t.start()
            r, seen = random.Random(1), []
            while any(t.is_alive() for t in threads):
                time.sleep(r.expovariate(50))
                seen.append(s.get("/health")[2] * 1e3)
            return [*percentiles(seen), len(seen)]
        print("\n| /health beside 16 streams, ms | p50 | p95 | p99 (target 10) | requests |\n|---|---|---|---|---|")
        for name, v in self.each(fn).items():
            print(f"| {name} | {v[0]:.2f} | {v[1]:.2f} | {v[2]:.2f} | {v[3]:.0f} |", flush=True)

    def arrivals(self):
        def fn(s):
            r, threads, seen = random.Random(3), [], []
            for i in range(self.a.requests):
                time.sleep(r.expovariate(self.a.rate))

                def run(i=i):
                    times, _, _ = s.stream(text_of(i, 8 + i * 7 % 60), 8 + i * 13 % 40, seed=i)
                    seen.append((times[0], times[-1], [b - a for a, b in zip(times, times[1:])]))
                threads.append(threading.Thread(target=run))
                threads[-1].start()
            for t in threads:
                t.join()
            return [*percentiles([x[0] for x in seen]), *percentiles([g for x in seen for g in x[2]]), *percentiles([x[1] for x in seen])]
        print(f"\n| {self.a.requests} requests, {self.a.rate}/s, s | first token p50 | p95 | p99 | between p50 | p95 | p99 | in all p50 | p95 | p99 |")
        print("|---" * 10 + "|")
        for name, v in self.each(fn).items():
            print(f"| {name} | " + " | ".join(f"{x:.3f}" for x in v) + " |", flush=True)


def main():
    own, options = (sys.argv[1:], []) if "--" not in sys.argv else (sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    p.add_argument("--peer", help="command of another server; PORT is its port")
    p.add_argument("--only", default="", help="one of one_stream, streams, second_turn, gap, health, arrivals; default: all")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--port", type=int, default=19800, help="the first of 40")
    p.add_argument("--context", type=int, default=8192)
    p.add_argument("--tokens", type=int, default=128, help="of each stream")
    p.add_argument("--turn", type=int, default=1500, help="words of the first turn")
    p.add_argument("--prompt", type=int, default=1650, help="words of the long prompt")
    p.add_argument("--gap-tokens", type=int, default=400, help="of the stream beside it")
    p.add_argument("--requests", type=int, default=100)
    p.add_argument("--rate", type=float, default=0.5, help="requests a second")
    a = p.parse_args(own)
    a.options, a.bench_options = options, list(options)
    if "--speculate" in options:  # bench makes no drafts
        at = options.index("--speculate")
        a.bench_options = options[:at] + options[at + 2:]
    bench = Bench(a)
    level = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo", encoding="ascii").read())
    print(f"{os.path.basename(a.model)}, {' '.join(options)}, {level[1] if level else 'unknown CPU'}, {os.cpu_count()} threads of the machine")
    begin, used = time.monotonic(), time.process_time()
    for name in ("one_stream", "streams", "second_turn", "gap", "health", "arrivals"):
        if a.only in ("", name):
            getattr(bench, name)()
    print(f"\nThe client used {100 * (time.process_time() - used) / (time.monotonic() - begin):.0f} % of a core.")


if __name__ == "__main__":
    main()
