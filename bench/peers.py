#!/usr/bin/env python3
"""Hearth beside other engines and beside the machine's limits, interleaved.

    bench/peers.py --peer llama.cpp=PATH/llama-bench --peer 'ik=PATH/llama-bench -rtr 1' MODEL.gguf...
        [-t 1] [-n 32] [-p 0] [--repeat 5]
    bench/peers.py --table bench/table.json --models FOLDER --peer ... [--batched 'ik=PATH/llama-batched-bench -rtr']
        [--only WORDS]
    bench/peers.py --gpu vulkan:0 --table bench/gpu-table.json --models FOLDER --peer ... [--seconds 300]

A peer is NAME=llama-bench and options of its own. One process per sample (neighbouring rows
of one model with as many threads share it), engines in turn, so that a change of the machine's
load affects all alike; before each sample `hearth bench --limits` measures the limit with the
same threads. With --gpu Hearth has that device, and no limit is measured. A row of a table has "options" of
`hearth bench`, "peer_options" of llama-bench, and "threads", without which it has one for each CPU. After --seconds no row begins. Prints one Markdown table:
medians (min-max), shares of the limit, targets met or missed. A row that asks for what
a peer does not offer shows '-'; a run that ends badly shows 'failed'. Decides no test."""
import argparse
import datetime
import itertools
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRATCH = tempfile.TemporaryDirectory()  # where programs run: some leave logs


def command_of(words):
    """A program, by a path that holds in any folder, and its options."""
    program, *options = shlex.split(words)
    return [os.path.abspath(program) if os.sep in program else program, *options]


def run(command, cpus, stderr=subprocess.PIPE):
    """What a command writes to stdout, or None where it fails; on the given CPUs alone."""
    pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    out = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=pin,
                         cwd=SCRATCH.name)
    return out.stdout if out.returncode == 0 else None


def median(samples):
    good = [s for s in samples if s is not None]
    return statistics.median(good) if good else None


# ---- engines: each gives one sample of a row, or None ----------------------------------------


def lengths_of(rows):
    """Options of hearth bench and llama-bench for rows of one process."""
    lengths = {kind: ",".join(str(r["n"]) for r in rows if r["kind"] == kind) or "0" for kind in ("prompt", "generate")}
    return ["-p", lengths["prompt"], "-n", lengths["generate"]]


def test_of(row, tests, prompt, generate):
    """The test of a row, by the names that a program gives its lengths."""
    wanted = {prompt: 0, generate: 0, **{prompt if row["kind"] == "prompt" else generate: row["n"]}}
    return next((t for t in tests if all(t[key] == n for key, n in wanted.items())), None)


class Hearth:
    name = "hearth"

    def __init__(self, words, n_pass, gpu):
        self.command, self.n_pass, self.gpu, self.facts, self.clocks = command_of(words), n_pass, gpu, {}, []

    def bench(self, row, *more):
        out = run([*self.command, "bench", row["path"], "--gpu", self.gpu, "-t", row["threads"], "--repeat", "1",
                   "--json", *more], row["cpus"])
        if out is None:
            return []
        whole = json.loads(out)
        return [dict(test, token_bytes=whole["token_bytes"]) for test in whole["tests"]]

    def rates(self, rows):
        row = rows[0]
        tests = self.bench(row, *lengths_of(rows), *row.get("options", []),
                           *(["--depth", row["depth"]] if "depth" in row else []))
        found = [test_of(r, tests, "prompt", "generate") for r in rows]
        self.facts.update({r["row"]: test for r, test in zip(rows, found) if test})
        return [test and test["tokens_per_second"][0] for test in found]

    def factor(self, row):
        tests = self.bench(row, "-n", row["n"], "--parallel", row["sequences"])
        return tests[-1]["factor_against_one"] if tests else None

    def load(self, row):
        """By the logits of one token: synthetic models have no vocabulary for a text."""
        with tempfile.TemporaryDirectory() as folder:
            ids, out = os.path.join(folder, "ids"), os.path.join(folder, "logits")
            with open(ids, "w", encoding="utf-8") as f:
                f.write("1")
            start = time.monotonic()
            done = run([*self.command, "logits", row["path"], "--gpu", self.gpu, "-t", row["threads"], "--ids", ids, "-o", out, "--force"],
                       row["cpus"])
            return None if done is None else time.monotonic() - start

    def limits(self, row):
        done = json.loads(run([*self.command, "bench", "--limits", "-t", row["threads"], "--repeat", self.n_pass,
                               "--json"], row["cpus"]))
        self.clocks += [done["clock_hz"]["median"] * 1e-9] if "clock_hz" in done else []
        return done


class Peer:
    """llama-bench of llama.cpp, and of its relatives, whose options differ a little."""

    def __init__(self, words, batched):
        self.name, _, command = words.partition("=")
        self.command = command_of(command)
        self.batched = next((command_of(c) for n, _, c in (b.partition("=") for b in batched) if n == self.name), None)
        done = subprocess.run([self.command[0], "--help"], capture_output=True, text=True)
        self.help, self.version = done.stdout + done.stderr, "?"

    def bench(self, row, *more):
        out = run([*self.command, "-m", row["path"], "-t", row["threads"], "-r", "1", "-o", "json",
                   *row.get("peer_options", []), *more], row["cpus"])
        try:
            tests = json.loads(out)
            self.version = f"{tests[-1].get('build_commit', '?')} ({tests[-1].get('build_number', '?')})"
        except (TypeError, ValueError, IndexError):
            return []
        return tests

    def rates(self, rows):
        row = rows[0]
        if "depth" not in row:
            tests = self.bench(row, *lengths_of(rows))
            found = [test_of(r, tests, "n_prompt", "n_gen") for r in rows]
        elif "--n-depth" in self.help:
            found = self.bench(row, *lengths_of(rows), "-d", row["depth"])[-1:]
        else:
            found = self.bench(row, "-p", "0", "-n", "0", "-gp", f"{row['depth']},{row['n']}")[-1:]
        return [test and test["avg_ts"] for test in found or [None]]

    def factor(self, row):
        """By its llama-batched-bench, whose options are others."""
        if not self.batched:
            return "-"
        n_ctx = (16 + row["n"]) * row["sequences"]
        out = run([*self.batched, "-m", row["path"], "-t", row["threads"], "-tb", row["threads"], "-c", n_ctx,
                   "-npp", "16", "-ntg", row["n"], "-npl", f"1,{row['sequences']}"], row["cpus"],
                  stderr=subprocess.STDOUT)
        lines = [[c.strip() for c in l.split("|")] for l in (out or "").splitlines() if l.startswith("|")]
        rates = {c[3]: float(c[8]) for c in lines if len(c) > 8 and c[3].isdigit()}
        one, all_of_them = rates.get("1"), rates.get(str(row["sequences"]))
        return all_of_them / one if one and all_of_them else None

    def load(self, row):
        cold = ["--no-warmup"] if "--no-warmup" in self.help else ["-w", "0"]
        start = time.monotonic()
        done = self.bench(row, "-p", "0", "-n", "1", *cold)
        return time.monotonic() - start if done else None


# ---- rows ----------------------------------------------------------------------------------------


def busy_rate(engine, row):
    """Tokens per second while a loop keeps the first CPU, as a share of those without it."""
    idle = engine.rates([row])[0]
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                            preexec_fn=lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]))
    try:
        busy = engine.rates([row])[0]
    finally:
        loop.kill()
        loop.wait()
    return busy / idle if busy and idle else None


SAMPLES = {"load": lambda e, r: e.load(r), "parallel": lambda e, r: e.factor(r), "busy": busy_rate}
UNITS = {"generate": " t/s", "prompt": " t/s", "load": " s", "parallel": " times one", "busy": " of idle"}


def spread(samples, digits, unit):
    return f"{statistics.median(samples):.{digits}f} ({min(samples):.{digits}f}-{max(samples):.{digits}f}){unit}"


def limit_of(row, probes, facts):
    """Tokens per second that the limit allows, and the probes that say so."""
    if row["kind"] == "generate":
        rates = [p["limits"][-1]["bytes_per_second"] * 1e-9 for p in probes]
        size = facts["token_bytes"] + facts["kv_bytes"]
        return statistics.median(rates) * 1e9 / size, spread(rates, 1, " GB/s")
    seconds, names = 0.0, []
    for kind in ["int8", "fp32"]:
        if facts[f"{kind}_operations"]:
            peak = "bf16" if kind == "fp32" and "--bf16-dot" in row.get("options", []) else kind
            rates = [p["limits"][-1].get(f"{peak}_operations_per_second", 0) * 1e-9 for p in probes]
            if not min(rates):
                return None, "no peak"
            seconds += facts[f"{kind}_operations"] / (statistics.median(rates) * 1e9)
            names.append(f"{peak} {spread(rates, 0, ' GOP/s')}")
    return row["n"] / seconds, ", ".join(names)


def cell(samples, row, allowed):
    if "-" in samples:
        return "-"
    good = [s for s in samples if s is not None]
    if not good:
        return "failed"
    text = spread(good, 1 if statistics.median(good) >= 100 else 2, UNITS[row["kind"]])
    lost = f", {len(samples) - len(good)} failed" if len(good) < len(samples) else ""
    return text + lost + (f" = **{100 * statistics.median(good) / allowed:.0f} %**" if allowed else "")


def judge(row, ours, theirs, allowed, shares):
    """Words for the target, and whether it was met: True, False, None where it cannot be told."""
    target, words, results = row.get("target", {}), [], []
    share = ours / allowed if ours and allowed else None
    if "share" in target:
        words.append(f"{100 * target['share']:.0f} %")
        results.append(None if not allowed else bool(share and share >= target["share"]))
    for key, unit in [("rate", " t/s"), ("factor", " times one"), ("of_idle", " of idle")]:
        if key in target:
            words.append(f"{target[key]}{unit}")
            results.append(bool(ours and ours >= target[key]))
    if "share_of_row" in target:
        other, part = target["share_of_row"]
        words.append(f"{100 * part:.0f} % of the share of '{other}'")
        known = shares.get(other)
        results.append(None if not known or not allowed else bool(share and share >= part * known))
    for name, ratio in target.get("ratio", {}).items():
        words.append(f"{ratio} times {name}")
        their = theirs.get(name)
        results.append(None if not their else bool(ours and ours >= ratio * their))
    if target.get("not_slower"):
        words.append("no slower than any")
        known = [t for t in theirs.values() if t]
        results.append(None if not known else bool(ours and ours <= min(known)))
    verdict = "-" if not results else "missed" if False in results else "not compared" if None in results else "met"
    return ", ".join(words) or "-", verdict


def is_rate(row):
    return row["kind"] in ("generate", "prompt")


def process_of(row):
    """Neighbouring rows for which this is equal are measured by one process of each engine."""
    alone = not is_rate(row) or "depth" in row
    return str([row["row"] if alone else "", *(row.get(key) for key in ("path", "threads", "options", "peer_options", "peers", "repeat"))])


def measure(rows, hearth, peers, repeat, shares):
    """Measures the rows of one process, prints them, and returns the verdicts."""
    row, probes = rows[0], []
    compared = [e for e in peers if e.name in row.get("peers", [e.name])]
    engines = [hearth, *compared]
    samples = [{e.name: [] for e in engines} for _ in rows]
    if row["kind"] == "load":  # the file is in the page cache, the memory was in use
        for e in engines:
            e.load(row)
    for _ in range(row.get("repeat", repeat)):
        for e in engines:
            if is_rate(row) and hearth.gpu == "none":
                probes.append(hearth.limits(row))
            found = e.rates(rows) if is_rate(row) else [SAMPLES[row["kind"]](e, row)]
            for of_row, sample in zip(samples, found):
                of_row[e.name].append(sample)
    return [print_row(r, of_row, hearth, peers, compared, probes, shares) for r, of_row in zip(rows, samples)]


def print_row(row, samples, hearth, peers, compared, probes, shares):
    ours = median(samples["hearth"])
    theirs = {e.name: median([s for s in samples[e.name] if s != "-"]) for e in compared}
    allowed, limit = limit_of(row, probes, hearth.facts[row["row"]]) if probes and ours else (None, "-")
    if allowed:
        shares[row["row"]] = ours / allowed
    words, verdict = judge(row, ours, theirs, allowed, shares)
    best = max(theirs.values(), key=lambda t: t or 0, default=None) if row["kind"] != "load" else min(
        [t for t in theirs.values() if t], default=None)
    ratio = f"{ours / best:.2f}" if ours and best else "-"
    cells = [row["row"], limit, *(cell(samples.get(e.name, "-"), row, allowed) for e in [hearth, *peers]), ratio, words, verdict]
    print("| " + " | ".join(cells) + " |", flush=True)
    return verdict


def rows_of(args):
    """Rows of the table, or those that the command line makes of its models."""
    if args.table:
        with open(args.table, encoding="utf-8") as f:
            rows = json.load(f)
        rows = [r for r in rows if all(w in r["row"] for w in args.only.split())]
    else:
        rows = [dict(row=f"{os.path.basename(m)}, {kind} {n}", model=m, kind=kind, n=n, threads=args.threads)
                for m in args.models for kind, n in [("generate", args.predict), ("prompt", args.prompt)] if n]
    for r in rows:
        r["path"] = os.path.abspath(os.path.join(args.folder if args.table else "", r["model"]))
        r.setdefault("threads", os.cpu_count())
        # One thread stays away from the first CPU, which tends to take the interrupts.
        r["cpus"] = [max(os.sched_getaffinity(0))] if r["threads"] == 1 else None
    return rows


def print_machine(hearth, when):
    done = json.loads(run([*hearth.command, "doctor", "--json"], None))
    machine, load = done["machine"], next(c["text"] for c in done["checks"] if c["name"] == "load")
    commit = (shutil.which("git") and run(["git", "-C", HERE, "describe", "--always", "--dirty"], None)) or "of unknown commit"
    print(f"{when}: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {machine['cpu_name']}, "
          f"{machine['cores']} cores, {machine['memory_bytes'] * 1e-9:.0f} GB, {load}; level {machine['level']}, "
          f"hearth {commit.strip()}  ", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*")
    p.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    p.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    p.add_argument("--batched", action="append", default=[], metavar="NAME=COMMAND", help="a peer's llama-batched-bench")
    p.add_argument("--table", metavar="FILE")
    p.add_argument("--models", dest="folder", default=".", metavar="FOLDER")
    p.add_argument("--gpu", default="none", metavar="DEVICE", help="of Hearth; peers have options of their own")
    p.add_argument("--seconds", type=float, default=float("inf"), help="after them no row begins")
    p.add_argument("--only", default="", metavar="WORDS", help="rows whose name has all of them")
    p.add_argument("-t", "--threads", type=int, default=1)
    p.add_argument("-n", "--predict", type=int, default=32)
    p.add_argument("-p", "--prompt", type=int, default=0)
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--passes", type=int, default=3, help="of the probe before each sample; default 3")
    args = p.parse_args()
    end = time.monotonic() + args.seconds
    hearth, rows = Hearth(args.hearth, args.passes, args.gpu), rows_of(args)
    peers = [Peer(words, args.batched) for words in args.peer]
    print_machine(hearth, "begun")
    print(f"command: `{shlex.join(sys.argv)}`  \nmedians (min-max) of {args.repeat} interleaved samples\n")
    header = ["work", "limit", "hearth", *(e.name for e in peers), "to the best", "target", "result"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)
    shares, verdicts = {}, []
    for _, group in itertools.groupby(rows, process_of):
        group = list(group)
        reason = f"no {group[0]['path']}" if not os.path.exists(group[0]["path"]) else "no time left"
        if os.path.exists(group[0]["path"]) and time.monotonic() < end:
            verdicts += measure(group, hearth, peers, args.repeat, shares)
            continue
        for row in group:
            print(f"| {row['row']} |" + " - |" * (len(header) - 2) + f" {reason} |", flush=True)
    print()
    print_machine(hearth, "ended")
    if hearth.clocks:
        print(f"clock of {len(hearth.clocks)} probes: {spread(hearth.clocks, 2, ' GHz')}  ")
    print("peers: " + ("; ".join(f"{e.name} {e.version}: `{shlex.join(e.command)}`" for e in peers) or "none"))
    print(", ".join(f"{verdicts.count(v)} {v}" for v in ["met", "missed", "not compared"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
