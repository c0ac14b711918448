#!/usr/bin/env python3
"""Hits of the policies of src/store on drawn experts, beside the best policy that knows the future.

    bench/store_policies.py MODEL... --routing FOLDER [--sticky 0 0.3] [--share 0.2 0.35 0.5 0.7]

For each model, and each data set of the frequencies that suit it (as bench/storage.py): bench/store_policies, whose
figures are percent of all uses. Prints one Markdown table, and how often the learned policy is above LRU, and within
ten points of Belady. The draws of successive tokens are independent but for what is sticky: there, no policy that does
not know the future hits more than the frequencies themselves (static), which it has to learn."""
import argparse
import os
import subprocess

import storage


def tables(model, info, folder, dataset, sticky, shares):
    words = storage.route_of({"dataset": dataset, "sticky": sticky}, info, folder)
    path = words[1].partition("file=")[2].partition(",")[0]
    done = subprocess.run([os.path.join(storage.BUILD, "bench", "store_policies"), model, path, str(sticky), *shares],
                          stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines()[2:]:
        yield [c.strip() for c in line.strip("| ").split("|")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--routing", required=True)
    p.add_argument("--sticky", nargs="+", type=float, default=[0.0, 0.3])
    p.add_argument("--share", nargs="+", default=["0.2", "0.35", "0.5", "0.7"])
    a = p.parse_args()
    n = n_above = n_near = 0
    print("| model | experts drawn from | sticky | share in memory | learned | LRU | static | Belady |\n" + "|---" * 8 + "|")
    for model in a.models:
        info = storage.facts_of(model)
        for dataset in ("Wiki", "Wiki-ZH", "GSM8K", "HumanEval"):
            for sticky in a.sticky:
                for cells in tables(model, info, a.routing, dataset, sticky, a.share):
                    print("| " + " | ".join([os.path.basename(model), dataset, str(sticky), *cells]) + " |", flush=True)
                    learned, lru, _, best = map(float, cells[1:])
                    n, n_above, n_near = n + 1, n_above + (learned > lru), n_near + (best - learned <= 10.0)
    print(f"\nThe learned policy is above LRU in {n_above} of {n}, and within ten points of Belady in {n_near}.")


if __name__ == "__main__":
    main()
