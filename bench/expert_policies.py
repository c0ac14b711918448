#!/usr/bin/env python3
"""Hits of the policy of experts' slots (src/store/expert_policy.h) on drawn experts, beside other policies.

    bench/expert_policies.py --routing FOLDER [--share 0.4] [--half-life 128] [--min-gain 0.7] [--sweep]

FOLDER holds st_4B_ and st_21B_expert_frequencies.csv, as for bench/storage.py. For shapes of mixtures, the frequencies of
a text and a stickiness: bench/expert_policies, whose head says what its figures are. "subjects": the four data sets in
turn, 1024 tokens each, of shapes that the files have; others draw from the sorted frequencies. --sweep: half-lives
for smallthinker-21b instead, each the mean over the stickiness, and over Wiki and Wiki-ZH. Markdown."""
import argparse
import os
import subprocess
import tempfile

import storage

SHAPES = {"smallthinker-4b": (32, 32, 4), "smallthinker-21b": (52, 64, 6), "qwen3-30b-a3b": (48, 128, 8)}
DATASETS = ("Wiki", "Wiki-ZH", "GSM8K", "HumanEval")
STICKY = (0.1, 0.3, 0.6)
COLUMNS = ("1 upload", "2", "4", "any number", "no miss", "LRU", "LFU", "static", "Belady")


def cells_of(shape, sticky, share, half_life, min_gain, files):
    words = [os.path.join(storage.BUILD, "bench", "expert_policies"), ",".join(map(str, shape)), str(sticky), str(share),
             str(half_life), str(min_gain), *files]
    line = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [c.strip() for c in line.strip().strip("|").split("|")]


def cases(folder, scratch):
    """(name of the shape, its numbers, what is drawn from, files)"""
    for name, shape in SHAPES.items():
        info = {"experts": {"n_layer": shape[0], "n_expert": shape[1]}}
        files = {}
        for dataset in DATASETS:
            files[dataset] = os.path.join(scratch, f"{dataset}-{shape[0]}-{shape[1]}")
            with open(files[dataset], "w", encoding="ascii") as f:
                f.writelines(" ".join(map(str, r)) + "\n" for r in storage.frequencies(folder, dataset, info))
        yield name, shape, "uniform", ["uniform"]
        yield name, shape, "Wiki", [files["Wiki"]]
        yield name, shape, "Wiki-ZH", [files["Wiki-ZH"]]
        if name.startswith("smallthinker"):
            yield name, shape, "subjects", list(files.values())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--routing", required=True)
    p.add_argument("--share", type=float, default=0.4)
    p.add_argument("--half-life", type=int, default=128)
    p.add_argument("--min-gain", type=float, default=0.7)
    p.add_argument("--sweep", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        every = list(cases(a.routing, scratch))
        if not a.sweep:
            print("| shape | drawn from | sticky | " + " | ".join(COLUMNS) + " |\n" + "|---" * (3 + len(COLUMNS)) + "|")
            for name, shape, drawn, files in every:
                for sticky in STICKY:
                    cells = cells_of(shape, sticky, a.share, a.half_life, a.min_gain, files)
                    print("| " + " | ".join([name, drawn, str(sticky), *cells]) + " |", flush=True)
            return
        print("| half-life | one text, 1 upload | 2 | any number | subjects, 1 upload | 2 | any number |\n" + "|---" * 7 + "|")
        for half_life in (64, 128, 256):
            sums = {"text": [], "subjects": []}
            for name, shape, drawn, files in every:
                for sticky in STICKY if name == "smallthinker-21b" and drawn != "uniform" else ():
                    cells = cells_of(shape, sticky, a.share, half_life, a.min_gain, files)
                    figures = [[float(x.strip("()")) for x in cells[k].split()] for k in (0, 1, 3)]  # hits, uploads, cost
                    sums["subjects" if drawn == "subjects" else "text"].append(figures)
            shown = ["{:.1f} ({:.2f}) {:.2f}".format(*(sum(f[k][i] for f in s) / len(s) for i in range(3)))
                     for s in sums.values() for k in range(3)]
            print(f"| {half_life} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
