#!/usr/bin/env python3
"""Decode and prompt speed of hearth beside llama.cpp's llama-bench, interleaved.

    bench/peers.py --llama-bench PATH [--llama-bench PATH2] MODEL.gguf...
        [-t 1] [-n 32] [-p 0] [--repeat 5]

One process per sample, engines in turn, so that a change of the machine's mood
hits all alike. Prints one Markdown table: medians with their spread, and the
ratio of hearth to the fastest peer of each row. Timings decide no test."""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def hearth(args, model, kind, n):
    other = "-n" if kind == "-p" else "-p"
    out = subprocess.run([args.hearth, "bench", model, "-t", str(args.threads), kind, str(n), other, "0",
                          "--repeat", "1", "--json"], capture_output=True, text=True)
    if out.returncode != 0:
        return None, None
    test = json.loads(out.stdout)["tests"][0]
    return test["tokens_per_second"][0], test["limit_bytes_per_second"][0]


def peer(path, args, model, kind, n):
    other = "-n" if kind == "-p" else "-p"
    out = subprocess.run([path, "-m", model, "-t", str(args.threads), kind, str(n), other, "0", "-r", "1",
                          "-o", "json"], capture_output=True, text=True)
    if out.returncode != 0:
        return None
    return json.loads(out.stdout)[0]["avg_ts"]


def shown(samples):
    good = [s for s in samples if s is not None]
    if not good:
        return "failed"
    return f"{statistics.median(good):.2f} ({min(good):.2f}-{max(good):.2f})"


def measure(args, model, kind, n):
    ours, limits, theirs = [], [], [[] for _ in args.llama_bench]
    for _ in range(args.repeat):
        rate, limit = hearth(args, model, kind, n)
        ours.append(rate)
        limits.append(limit)
        for i, path in enumerate(args.llama_bench):
            theirs[i].append(peer(path, args, model, kind, n))
    medians = [statistics.median([s for s in t if s is not None] or [0]) for t in theirs]
    best = max(medians)
    mine = statistics.median([s for s in ours if s is not None] or [0])
    ratio = f"{mine / best:.2f}" if best else "-"
    limit = statistics.median([s for s in limits if s is not None] or [0]) * 1e-9
    name = os.path.basename(model)
    what = "prompt" if kind == "-p" else "generate"
    cells = [name, f"{what} {n}", shown(ours)] + [shown(t) for t in theirs] + [ratio, f"{limit:.1f}"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    p.add_argument("--llama-bench", action="append", default=[])
    p.add_argument("-t", "--threads", type=int, default=1)
    p.add_argument("-n", "--predict", type=int, default=32)
    p.add_argument("-p", "--prompt", type=int, default=0)
    p.add_argument("--repeat", type=int, default=5)
    args = p.parse_args()
    names = [f"llama.cpp {i + 1}" for i in range(len(args.llama_bench))]
    header = ["model", "test", "hearth, t/s"] + names + ["ratio to the best", "load-only GB/s"]
    print(f"{args.threads} thread(s), medians (min-max) of {args.repeat} interleaved samples")
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for model in args.models:
        if args.predict:
            measure(args, model, "-n", args.predict)
        if args.prompt:
            measure(args, model, "-p", args.prompt)
    return 0


if __name__ == "__main__":
    sys.exit(main())
