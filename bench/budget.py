#!/usr/bin/env python3
"""Whether --ram holds: the largest memory of a control group in which `hearth run` reads a model with budgets.

    bench/budget.py [--hearth build/hearth] [--limit] MODEL.gguf BUDGET... [-- OPTION...]
    bench/budget.py MODEL.gguf 1.5G 2G -- -c 512 --gpu none -t 2 -n 16

Each budget is run in a new group (memory_group.py), with the model's file dropped from the page cache, so that what is
read through it counts too. The prompt is long enough to use workspaces, caches and, of a mixture, most experts. Without
--limit the group is unlimited, and its peak is compared with the budget, 2 % and 16 MiB. With --limit the group is
limited to the budget: the run must end well. Prints a Markdown table, with what the program wrote to stderr where a
budget did not hold; then it exits with 1."""
import argparse
import hashlib
import os
import subprocess
import sys

from memory_group import MemoryGroup, drop_cached

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "..", "tests", "data", "text", "english.txt")
MIB = 1 << 20


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    if text[-1:].upper() in units:
        return int(float(text[:-1]) * (1 << units[text[-1].upper()]))
    return int(text)


def measure(arguments, budget):
    """The process that ended, or None, and the group's peak."""
    with open(TEXT, encoding="utf-8") as f:
        prompt = f.read(arguments.characters)
    words = [arguments.hearth, "run", arguments.model, "-p", prompt, "--greedy", "--ram", budget, *arguments.options]
    drop_cached(arguments.model)
    with MemoryGroup(parse_size(budget) if arguments.limit else None) as group:
        done = group.run(words, arguments.timeout, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done, group.peak()


def main():
    words, options = sys.argv[1:], []
    if "--" in words:
        words, options = words[:words.index("--")], words[words.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    parser.add_argument("--limit", action="store_true", help="limit the group to the budget")
    parser.add_argument("--characters", type=int, default=240, help="of the prompt")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of a run")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="+", metavar="BUDGET")
    arguments = parser.parse_args(words)
    arguments.options = options or ["-c", "512", "--gpu", "none", "-n", "16"]
    print(f"{os.path.basename(arguments.model)}, {' '.join(arguments.options)}, group "
          f"{'limited to the budget' if arguments.limit else 'unlimited'}\n")
    print("| budget | MiB | peak, MiB | above the budget, MiB | allowed, MiB | holds | text |")
    print("|---|---|---|---|---|---|---|")
    failures = []
    for budget in arguments.budgets:
        done, peak = measure(arguments, budget)
        size = parse_size(budget)
        above, allowed = peak - size, size * 0.02 + 16 * MIB
        holds = done is not None and done.returncode == 0 and above <= allowed
        text = hashlib.sha256(done.stdout).hexdigest()[:8] if done else "-"
        print(f"| {budget} | {size / MIB:.0f} | {peak / MIB:.1f} | {above / MIB:+.1f} | {allowed / MIB:.1f} "
              f"| {'yes' if holds else 'no'} | {text} |", flush=True)
        if not holds:
            failures.append(f"{budget}: " + (f"exit {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}"
                                             if done else "it took too long"))
    print("\n".join(["", *failures]))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
