#!/usr/bin/env python3
"""Whether --ram holds: the largest memory of a control group in which `hearth run` reads a model with budgets.

    bench/budget.py [--hearth build/hearth] [--limit] MODEL.gguf BUDGET... [-- OPTION...]
    bench/budget.py MODEL.gguf 1.5G 2G -- -c 512 --gpu none -t 2 -n 16

The prompt is long enough to use workspaces, caches and, of a mixture, most experts. Each budget
is run in a new group (Linux, control groups of version 1 or 2; making one needs the permission, as root has
it). The model's file is dropped from the page cache before, so that what the run reads through it counts too. Without
--limit the group is unlimited, and its peak is compared with the budget, 2 % and 16 MiB. With --limit the group is
limited to the budget: the run must end well. Prints a Markdown table, with the lines that the program wrote for what
failed; exits with 1 if a budget did not hold."""
import argparse
import hashlib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "..", "tests", "data", "text", "english.txt")
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
MIB = 1 << 20


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    if text[-1:].upper() in units:
        return int(float(text[:-1]) * (1 << units[text[-1].upper()]))
    return int(text)


class Group:
    """A control group of its own, removed at the end."""

    def __init__(self, parent, limit):
        self.is_v2 = os.path.exists(os.path.join(parent, "cgroup.controllers"))
        self.path = os.path.join(parent, f"hearth-budget-{os.getpid()}")
        os.mkdir(self.path)
        if limit:
            self.write("memory.max" if self.is_v2 else "memory.limit_in_bytes", limit)
        if limit and self.is_v2 and os.path.exists(os.path.join(self.path, "memory.swap.max")):
            self.write("memory.swap.max", 0)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def peak(self):
        name = "memory.peak" if self.is_v2 else "memory.max_usage_in_bytes"
        with open(os.path.join(self.path, name), encoding="ascii") as f:
            return int(f.read())

    def close(self):
        if not self.is_v2:
            self.write("memory.force_empty", 0)
        os.rmdir(self.path)


def drop_cached(path):
    with open(path, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(arguments, budget):
    drop_cached(arguments.model)
    group = Group(arguments.parent, parse_size(budget) if arguments.limit else 0)
    try:
        with open(TEXT, encoding="utf-8") as f:
            prompt = f.read(arguments.characters)
        words = [arguments.hearth, "run", arguments.model, "-p", prompt, "--greedy", "--ram", budget]
        done = subprocess.run([*words, *arguments.options], stdin=subprocess.DEVNULL, capture_output=True,
                              preexec_fn=group.enter, timeout=arguments.timeout, check=False)
        return done, group.peak()
    finally:
        group.close()


def main():
    words, options = sys.argv[1:], []
    if "--" in words:
        words, options = words[:words.index("--")], words[words.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    parser.add_argument("--limit", action="store_true", help="limit the group to the budget")
    parser.add_argument("--parent", default=V1 if os.path.isdir(V1) else V2, help="folder of the group above")
    parser.add_argument("--characters", type=int, default=240, help="of the prompt")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of a run")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="+", metavar="BUDGET")
    arguments = parser.parse_args(words)
    arguments.options = options or ["-c", "512", "--gpu", "none", "-n", "16"]
    print(f"{os.path.basename(arguments.model)}, {' '.join(arguments.options)}, group "
          f"{'limited to the budget' if arguments.limit else 'unlimited'}\n")
    print("| budget | MiB | peak, MiB | above the budget, MiB | allowed, MiB | holds | text |\n|---|---|---|---|---|---|---|")
    failures = []
    for budget in arguments.budgets:
        done, peak = measure(arguments, budget)
        size = parse_size(budget)
        above, allowed = peak - size, size * 0.02 + 16 * MIB
        holds = done.returncode == 0 and above <= allowed
        text = hashlib.sha256(done.stdout).hexdigest()[:8]
        print(f"| {budget} | {size / MIB:.0f} | {peak / MIB:.1f} | {above / MIB:+.1f} | {allowed / MIB:.1f} "
              f"| {'yes' if holds else 'no'} | {text} |", flush=True)
        if not holds:
            failures.append(f"{budget}: exit {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}")
    print("\n".join(["", *failures]) if failures else "")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
