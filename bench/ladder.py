#!/usr/bin/env python3
"""What each way to read a sparse dense model from storage gains: the ladder of PowerInfer-2 (Xue et al. 2024, Figure 14:
0.40, 1.09, 4.18, 9.60 tokens/s for a 7B model with dReLU, half of its networks in flash).

    bench/ladder.py PLAIN STORED [--io sim:ufs4] [--share 0.5] [--fire share=0.1,run=64] [-n 16] [-t 2] [--repeat 3]

PLAIN is a model with a transposed down and predictors, STORED the same packed with `hearth pack --for-storage`:

    hearth synth llama-7b plain.gguf --packed --rank 1024 --ffn drelu
    hearth pack plain.gguf --for-storage -o stored.gguf

| step | how it is run |
|---|---|
| none | PLAIN, every neuron (--selector dense), read and computed in turn (--in-turn), the least memory and 8 MiB |
| bundles | STORED, what the predictor names (--selector predictor --fire), in turn, the least memory and 8 MiB |
| cache | the same with memory for a share of the networks |
| pipeline | the same without --in-turn: what has arrived is computed while the rest is read, what follows is guessed |

The least memory is what `hearth` names when it refuses less. With --fire the lists of active neurons are drawn, since
those of random weights mean nothing; every figure of synthetic weights and of a simulated disk is labelled so. A
simulated disk takes its bytes from the page cache, into which the file is read before. Prints a Markdown table: medians
of tokens/s, their ratio to the step before, which should be the paper's at least, megabytes read for a token, the share
of the time that waits for reads, in the last step the paper's 13.7 % at most. Decides no test."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

from memory_group import drop_cached, keep_cached

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build")
MORE = 8 << 20
PAPER = {"none": 0.40, "bundles": 1.09, "cache": 4.18, "pipeline": 9.60}
PAPER_WAIT = 0.137


def run(*words):
    command = [os.path.join(BUILD, "hearth"), *[str(w) for w in words]]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def words_of(a, path, step):
    words = ["bench", path, "--gpu", "none", "-t", a.threads, "-n", a.predict, "-p", 0, "--io", a.io]
    words += ["--selector", "dense"] if step == "none" else ["--selector", "predictor", "--fire", a.fire]
    return words + (["--in-turn"] if step != "pipeline" else [])


def least_of(a, path, step):
    """Bytes that a refusal names."""
    said = run(*words_of(a, path, step), "--ram", 1).stderr
    found = re.search(r"\((\d+) bytes\)", said)
    if not found:
        sys.exit(f"{path}: no least memory in: {said.strip()}")
    return int(found.group(1))


def ffn_bytes(path):
    shown = json.loads(run("inspect", path, "--json").stdout)
    return sum(r["bytes"] for r in shown["roles"] if r["name"] == "feed-forward")


def judged(text, met):
    return f"{text}: {'met' if met else 'missed'}"


def sample(a, path, step, ram):
    (keep_cached if a.io.startswith("sim:") else drop_cached)(path)
    done = run(*words_of(a, path, step), "--ram", ram, "--repeat", 1, "--json")
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr.strip()}")
    whole = json.loads(done.stdout)
    if "parts" not in whole:
        sys.exit(f"{path}: {ram} bytes hold all of it: nothing is read")
    test, reads = whole["tests"][0], whole["tests"][0]["storage"][0]
    rate = test["median_tokens_per_second"]
    return {"rate": rate, "read": reads["weight_bytes"] / a.predict / 1e6,
            "wait": reads["wait_seconds"] * rate / a.predict, "simulated": a.io.startswith("sim:"),
            "synthetic": whole.get("synthetic_weights", False)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("plain")
    p.add_argument("stored")
    p.add_argument("--io", default="sim:ufs4")
    p.add_argument("--share", type=float, default=0.5)
    p.add_argument("--fire", default="share=0.1,run=64")
    p.add_argument("-n", "--predict", type=int, default=16)
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=3)
    a = p.parse_args()
    rams = {}
    for step, path in (("none", a.plain), ("bundles", a.stored)):
        rams[step] = least_of(a, path, step) + MORE
    rams["cache"] = rams["pipeline"] = rams["bundles"] + int(a.share * ffn_bytes(a.stored))
    print("| step | tokens/s | to the step before | tokens/s in the paper | MB read for a token | waits for reads | --ram, MB |")
    print("|---" * 7 + "|", flush=True)
    before, labels = None, set()
    for step in PAPER:
        found = [sample(a, a.plain if step == "none" else a.stored, step, rams[step]) for _ in range(a.repeat)]
        rate, read, wait = (statistics.median(f[key] for f in found) for key in ("rate", "read", "wait"))
        labels |= {word for word in ("synthetic", "simulated") if found[0][word]}
        ratio, waits = "-", f"{100 * wait:.1f} %"
        if before:
            paper = PAPER[step] / PAPER[before[0]]
            ratio = judged(f"{rate / before[1]:.2f} of {paper:.2f}", rate / before[1] >= paper)
        if step == "pipeline":
            waits = judged(f"{waits} of {100 * PAPER_WAIT:.1f} %", wait <= PAPER_WAIT)
        print(f"| {step} | {rate:.2f} | {ratio} | {PAPER[step]:.2f} | {read:.1f} | {waits} | {rams[step] / 1e6:.0f} |",
              flush=True)
        before = (step, rate)
    print(f"\n{a.io}, --fire {a.fire}, {a.threads} threads, {a.repeat} runs of {a.predict} tokens; "
          f"{' and '.join(sorted(labels)) or 'measured'}")


if __name__ == "__main__":
    sys.exit(main())
