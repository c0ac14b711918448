#!/usr/bin/env python3
"""Whether --ram holds, and at what speed: `hearth run` and `hearth bench` with budgets in control groups.

    bench/budget.py [--hearth build/hearth] [--limit | --speed] MODEL.gguf BUDGET... [-- OPTION...]
    bench/budget.py MODEL.gguf 1.5G 2G -- -c 512 --gpu none -t 2 -n 16
    bench/budget.py --table bench/budget-table.json --models FOLDER [--limit | --speed]

Each budget is run in a new group (memory_group.py), with the model's file dropped from the page cache, so that what is
read through it counts too. The prompt is long enough to use workspaces, caches and, of a mixture, most experts. Without
--limit the group is unlimited, and its peak is compared with the budget, 2 % and 16 MiB. With --limit the group is
limited to the budget: the run must end well. With --speed tokens are generated in a group that is limited to exactly
the budget and without a group, in turn, --repeat times: the median of the ratios must be 0.95 at least.
The table holds five budgets for each of three shapes: a mixture, a dense model, a packed sparse one. Prints Markdown
tables, with what the program wrote to stderr where a budget did not hold; then it exits with 1. Without a control group
nothing is measured: it exits with 2."""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys

from memory_group import MIB, MemoryGroup, allowed_peak, drop_cached, parse_size

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "..", "tests", "data", "text", "english.txt")
SPEED_TARGET = 0.95


def require(group):
    """Ends the program where the system has no group, which the group has said."""
    if not group.path:
        sys.exit(2)


# ---- peaks ------------------------------------------------------------------------------------


def measure(arguments, row, budget):
    """The process that ended, or None, and the group's peak."""
    with open(TEXT, encoding="utf-8") as f:
        prompt = f.read(arguments.characters)
    words = [arguments.hearth, "run", row["path"], "-p", prompt, "--greedy", "--ram", budget, *row["run"]]
    drop_cached(row["path"])
    with MemoryGroup(parse_size(budget) if arguments.limit else None) as group:
        require(group)
        done = group.run(words, arguments.timeout, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        peak = group.peak()
    if not peak:
        print("the control group does not tell its peak", file=sys.stderr)
        sys.exit(2)
    return done, peak


def peaks(arguments, row):
    limit = "limited to the budget" if arguments.limit else "unlimited"
    print(f"{row['model']}, {' '.join(row['run'])}, group {limit}\n")
    print("| budget | MiB | peak, MiB | above the budget, MiB | allowed, MiB | holds | text |\n" + "|---" * 7 + "|")
    failures = []
    for budget in row["budgets"]:
        done, peak = measure(arguments, row, budget)
        size = parse_size(budget)
        allowed = allowed_peak(size)
        holds = done is not None and done.returncode == 0 and peak <= allowed
        text = hashlib.sha256(done.stdout).hexdigest()[:8] if done else "-"
        print(f"| {budget} | {size / MIB:.0f} | {peak / MIB:.1f} | {(peak - size) / MIB:+.1f} "
              f"| {(allowed - size) / MIB:.1f} | {'yes' if holds else 'no'} | {text} |", flush=True)
        if not holds:
            failures.append(f"{budget}: " + (f"exit {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}"
                                             if done else "it took too long"))
    return failures


# ---- speed ------------------------------------------------------------------------------------


def rate(arguments, row, budget, run):
    """Tokens per second, or what went wrong."""
    gpu = [] if "--gpu" in row["bench"] else ["--gpu", "none"]
    words = [arguments.hearth, "bench", row["path"], *gpu, "-p", "0", *row["bench"], "--ram", budget, "--repeat", "1",
             "--json"]
    drop_cached(row["path"])
    try:
        done = run(words, timeout=arguments.timeout, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode != 0:
        return f"exit {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}" if done else "it took too long"
    return json.loads(done.stdout)["tests"][0]["median_tokens_per_second"]


def speeds(arguments, row):
    print(f"{row['model']}, {' '.join(row['bench'])}, in turn, {arguments.repeat} times\n")
    print("| budget | tokens/s without a group | limited to the budget | ratio | target |\n" + "|---" * 5 + "|")
    failures = []
    for budget in row["budgets"]:
        free, limited = [], []
        for _ in range(arguments.repeat):
            free.append(rate(arguments, row, budget, subprocess.run))
            with MemoryGroup(parse_size(budget)) as group:
                require(group)
                limited.append(rate(arguments, row, budget, group.run))
        wrong = [f"{budget}: {r}" for r in free + limited if isinstance(r, str)]
        if wrong:
            print(f"| {budget} | - | - | - | missed |", flush=True)
            failures += wrong[:1]
            continue
        ratio = statistics.median(b / a for a, b in zip(free, limited))
        print(f"| {budget} | {statistics.median(free):.2f} | {statistics.median(limited):.2f} | {ratio:.2f} "
              f"| {SPEED_TARGET}: {'met' if ratio >= SPEED_TARGET else 'missed'} |", flush=True)
        if ratio < SPEED_TARGET:
            failures.append(f"{budget}: {ratio:.3f} of the speed")
    return failures


def rows_of(parser, arguments, options):
    if bool(arguments.table) == bool(arguments.model and arguments.budgets):
        parser.error("a MODEL with a BUDGET, or --table")
    rows = [{"model": arguments.model, "budgets": arguments.budgets}]
    if arguments.table:
        with open(arguments.table, encoding="utf-8") as f:
            rows = json.load(f)
    elif options:
        rows[0]["run"] = rows[0]["bench"] = options
    for row in rows:
        row["path"], row["model"] = os.path.join(arguments.models, row["model"]), os.path.basename(row["model"])
        row.setdefault("run", ["-c", "512", "--gpu", "none", "-n", "16"])
        row.setdefault("bench", ["-n", "16"])
        try:
            for budget in row["budgets"]:
                parse_size(budget)
        except ValueError as error:
            parser.error(str(error))
    return rows


def main():
    words, options = sys.argv[1:], []
    if "--" in words:
        words, options = words[:words.index("--")], words[words.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--limit", action="store_true", help="limit the group to the budget")
    kind.add_argument("--speed", action="store_true", help="tokens/s in a limited group beside none")
    parser.add_argument("--repeat", type=int, default=3, help="pairs of --speed")
    parser.add_argument("--characters", type=int, default=240, help="of the prompt")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of a run")
    parser.add_argument("--table")
    parser.add_argument("--models", default=".", help="the folder of the models of the table")
    parser.add_argument("model", nargs="?")
    parser.add_argument("budgets", nargs="*", metavar="BUDGET")
    arguments = parser.parse_args(words)
    n_failed = 0
    for row in rows_of(parser, arguments, options):
        if not os.path.exists(row["path"]):
            print(f"no {row['model']}\n")
            n_failed += 1
            continue
        failures = speeds(arguments, row) if arguments.speed else peaks(arguments, row)
        print("\n".join(["", *failures]))
        n_failed += len(failures)
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
