#!/usr/bin/env python3
"""Decode speed while another process keeps one core busy, as a share of the same engine's idle speed.

    bench/busy.py [--llama-bench "PATH [OPTION...]"]... MODEL.gguf [-t 2] [-n 32] [--cores 0,1] [--seconds 60]

One process per sample, engines and conditions in turn: idle, then a busy loop pinned to
each of the cores, until every engine has generated for so many seconds under each loop.
Prints one Markdown table: medians (quartiles) in tokens per second, and the share of the
idle median. Only a machine with nothing else to do gives a figure. Timings decide no test."""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LOOP = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"


class Busy:
    """A loop on one core for as long as the block lasts; None: no loop."""

    def __init__(self, core):
        self.core = core

    def __enter__(self):
        self.loop = None
        if self.core is not None:
            self.loop = subprocess.Popen([sys.executable, "-c", LOOP % self.core])

    def __exit__(self, *_):
        if self.loop:
            self.loop.kill()
            self.loop.wait()


def rate_of(command, read):
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {out.returncode}\n{out.stderr}")
    return read(json.loads(out.stdout))


def hearth(args):
    return rate_of([args.hearth, "bench", args.model, "--gpu", "none", "-t", str(args.threads), "-p", "0",
                    "-n", str(args.predict), "--repeat", "1", "--json"] + args.option, lambda j: j["tests"][0]["tokens_per_second"][0])


def peer(words):
    return lambda args: rate_of(words + ["-m", args.model, "-t", str(args.threads), "-p", "0", "-n", str(args.predict),
                                 "-r", "1", "-o", "json"], lambda j: j[0]["avg_ts"])


def shown(samples):
    if len(samples) < 2:
        return f"{samples[0]:.2f}"
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return f"{statistics.median(samples):.2f} ({low:.2f}-{high:.2f})"


def measure(args, engines, conditions):
    """{(engine, core): samples}, core None: idle."""
    samples = {(name, core): [] for name in engines for core in conditions}
    seconds = {key: 0.0 for key in samples}
    while min(seconds.values()) < args.seconds:
        for core in conditions:
            for name, run in engines.items():
                with Busy(core):
                    rate = run(args)
                samples[name, core].append(rate)
                seconds[name, core] += args.predict / rate
    return samples


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    p.add_argument("--option", action="append", default=[], help="passed to hearth bench, such as --option=--no-pin")
    p.add_argument("--llama-bench", action="append", default=[])
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-n", "--predict", type=int, default=32)
    p.add_argument("--cores", default="0,1")
    p.add_argument("--seconds", type=float, default=60.0)
    args = p.parse_args()
    cores = [int(c) for c in args.cores.split(",")]
    engines = {"hearth": hearth}
    for path in args.llama_bench:
        engines[path] = peer(shlex.split(path))
    load = os.getloadavg()[0]
    samples = measure(args, engines, [None] + cores)
    print(f"{os.path.basename(args.model)}, {args.threads} threads, at least {args.seconds:g} s of generation in each "
          f"cell, samples of {args.predict} tokens; load average at the start {load:.2f}\n")
    print("| engine | idle, t/s | " + " | ".join(f"core {c} busy | share" for c in cores) + " |")
    print("|" + "---|" * (2 + 2 * len(cores)))
    for name in engines:
        idle = statistics.median(samples[name, None])
        cells = [name, shown(samples[name, None])]
        for core in cores:
            mine = samples[name, core]
            cells += [shown(mine), f"{100 * statistics.median(mine) / idle:.0f} %"]
        print("| " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
