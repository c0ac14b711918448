#!/usr/bin/env python3
"""Whole tokens of a shape with skipped neurons, beside its dense form and other engines, interleaved.

    bench/sparse_token.py DENSE.gguf PACKED.gguf [--peer NAME=PATH/llama-bench ...] [-t 1] [--repeat 3]

PACKED: `hearth synth SHAPE OUT --packed --rank R`, whose predictors really run, while firing lists
are drawn (`hearth bench --fire`): what a model with that sparsity would read, not what this one says.
One process per sample, all in turn. Prints one Markdown table; decides no test.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def hearth(o, model, *options):
    out = subprocess.run([o.hearth, "bench", model, "-t", str(o.threads), "-p", "0", "-n", str(o.predict), "--repeat",
                          "1", "--json", *options], check=True, capture_output=True, text=True).stdout
    test = json.loads(out)["tests"][0]
    return test["median_tokens_per_second"], test["limit_bytes_per_second"][0] * 1e-9


def peer(o, command):
    out = subprocess.run([*shlex.split(command), "-m", o.dense, "-t", str(o.threads), "-p", "0", "-n", str(o.predict),
                          "-r", "1", "-o", "json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)[-1]["avg_ts"], None


def cases(o):
    """{name: what takes a sample}"""
    found = {"dense": lambda: hearth(o, o.dense)}
    for selector, options in (("predictor", []), ("gate", ["--activation", "reglu"])):
        for sparsity, run in ((50, 64), (80, 64), (90, 64), (95, 64), (90, 1)):
            fire = f"share={(100 - sparsity) / 100},run={run}"
            name = f"{selector}, {sparsity} %, {'runs of 64' if run > 1 else 'random'}"
            found[name] = lambda s=selector, x=options, f=fire: hearth(o, o.packed, "--selector", s, *x, "--fire", f)
    for text in o.peer:
        name, command = text.split("=", 1)
        found[name] = lambda c=command: peer(o, c)
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dense")
    p.add_argument("packed")
    p.add_argument("--hearth", default=os.path.join(ROOT, "build", "hearth"))
    p.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    p.add_argument("-t", "--threads", type=int, default=1)
    p.add_argument("-n", "--predict", type=int, default=16)
    p.add_argument("--repeat", type=int, default=3)
    o = p.parse_args()
    take = cases(o)
    rates = {name: [] for name in take}
    limits = []
    for _ in range(o.repeat):
        for name, sample in take.items():
            rate, limit = sample()
            rates[name].append(rate)
            limits += [limit] if limit else []
    middle = {name: statistics.median(r) for name, r in rates.items()}
    peers = [text.split("=", 1)[0] for text in o.peer]
    print(f"{o.threads} thread(s), {o.repeat} samples; memory {statistics.median(limits):.1f} "
          f"({min(limits):.1f}-{max(limits):.1f}) GB/s; firing lists drawn, synthetic weights\n")
    print("| whole token | tokens/s | times dense |" + "".join(f" times {n} |" for n in peers))
    print("|---|---|---|" + "---|" * len(peers))
    for name, r in rates.items():
        ratios = "".join(f" {middle[name] / middle[n]:.2f} |" for n in peers)
        print(f"| {name} | {middle[name]:.2f} ({min(r):.2f}-{max(r):.2f}) | {middle[name] / middle['dense']:.2f} |{ratios}")


if __name__ == "__main__":
    main()
