#!/usr/bin/env python3
"""Models larger than memory: what a limit costs, beside what the disk and the cores allow.

    bench/storage.py --table bench/storage-table.json --models FOLDER [--routing FOLDER]
        [--peer 'llama.cpp=PATH/llama-bench'] [--repeat 3] [--only WORDS] [-t 2]
    bench/storage.py MODEL --ram BYTES... [--io HOW] [--route SPEC] [-n 64] [-p 0] [-c N]
        [--seconds S] [--repeat 3] [-t 2]

For each row, in turn: the model with --ram, its file dropped from the page cache, in a control group whose limit is
that budget; the disk with reads as large as an expert's or a piece's; the plan; the peer; and last, since it reads the
whole file, which caches below this system then have, the model in memory: what the cores allow (- if the machine's
memory does not hold it; then the disk alone counts). Allowed is 1 / max(time in memory, missed bytes of the run / disk
bandwidth), and a target is judged twice: by the bandwidth of the run's own reads, while any of them ran, since disks
of virtual machines change between two measurements, and by that of the disk alone. Hidden is the part of the time of
reads in which the run did not wait, of what its computation could hide: (reads - waits) / min(reads, time of the run
without waits), at most 1. The group's peak is judged against the budget, 2 % and 16 MiB; its limit keeps it below (a
run that needs more is killed, and the row has no figures): bench/budget.py has groups without a limit. --seconds: fewer
tokens are generated, at least 2, where the plan expects them and as many of warming up to take longer.
A peer reads by mmap in a group with the same limit; its routers have random weights, which choose almost the same
experts for every token, so its figure flatters it. --routing holds st_4B_expert_frequencies.csv and
st_21B_expert_frequencies.csv: experts are drawn from them (hearth bench --route); other shapes draw from the sorted
frequencies of the 21B, resampled. A simulated disk takes its bytes from the page cache, without a limit; its
copying takes a core at 7 GB/s, which a real disk does not: with "threads" 1 in a row another core is there for it.
Prints one Markdown table: medians (min-max). Decides no test. Without root there are no groups."""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

from memory_group import MIB, MemoryGroup, allowed_peak, available_memory, drop_cached, keep_cached, parse_size

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "build")
SCRATCH = tempfile.TemporaryDirectory()


def hearth(*words, group=None):
    """The JSON that the program prints, or None."""
    command = [os.path.join(BUILD, "hearth"), *[str(w) for w in words]]
    run = group.run if group else subprocess.run
    done = run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done and done.returncode == 0 else None


# ---- routing ----------------------------------------------------------------------------------


def frequencies(folder, dataset, info):
    """For each layer with experts: their frequencies."""
    n_layer, n_expert = info["experts"]["n_layer"], info["experts"]["n_expert"]
    name = "st_4B" if n_expert == 32 else "st_21B"
    with open(os.path.join(folder, name + "_expert_frequencies.csv"), encoding="utf-8") as f:
        rows = [[float(x) for x in r[2:]] for r in csv.reader(f) if r[1] == dataset]
    if (len(rows), len(rows[0])) != (n_layer, n_expert):
        curves = [sorted(r, reverse=True) for r in rows]
        at = [min(int((e + 0.5) * len(rows[0]) / n_expert), len(rows[0]) - 1) for e in range(n_expert)]
        rows = [[curves[i % len(curves)][k] for k in at] for i in range(n_layer)]
    return rows


def route_of(row, info, folder):
    """The words of hearth bench for a row's routing."""
    if "experts" not in info or "dataset" not in row:
        return []
    more = ",".join(f"{key}={row[key]}" for key in ("sticky", "foreseen", "seed") if key in row)
    if row["dataset"] == "uniform":
        return ["--route", f"uniform,{more}"]
    path = os.path.join(SCRATCH.name, f"{row['dataset']}-{info['experts']['n_layer']}-{info['experts']['n_expert']}")
    with open(path, "w", encoding="ascii") as f:
        f.writelines(" ".join(map(str, r)) + "\n" for r in frequencies(folder, row["dataset"], info))
    return ["--route", f"file={path},{more}"]


# ---- samples ----------------------------------------------------------------------------------


def disk_rate(path, io, size):
    """Bytes per second of reads of this many bytes at random places, as the model's reader makes them."""
    done = subprocess.run([os.path.join(BUILD, "bench", "read_disk"), path, io, str(max(4, size >> 10))],
                          stdout=subprocess.PIPE, text=True, check=True)
    cells = [c.strip() for c in done.stdout.strip().splitlines()[-1].split("|")]
    return float(cells[2]) * 1e9, float(cells[4])


def extent_size(info):
    """Bytes that are read together: an expert's matrix, or a piece; the reader asks for at most 1 MiB at once."""
    if "experts" not in info:
        return 1 << 20
    e = info["experts"]
    rest = info["feed_forward_bytes"] / (e["n_layer"] * e["n_expert"] * 3)
    return min(int(rest), 1 << 20)


def facts_of(path):
    shown = hearth("inspect", path, "--json")
    if shown is None:
        return None
    bytes_of = {r["name"]: r["bytes"] for r in shown["roles"]}
    return dict(shown["model"], feed_forward_bytes=bytes_of["feed-forward"])


def bench(row, *more, group=None):
    kind = ["-p", row["n"], "-n", 0] if row["kind"] == "prompt" else ["-p", 0, "-n", row["n"]]
    whole = hearth("bench", row["path"], "--gpu", "none", "-t", row["threads"], *kind, *row["route"],
                   *row.get("options", []), "--json", *more, group=group)
    return whole and dict(whole, **whole["tests"][0])


def resident_rate(row):
    """None: the machine does not hold it, so its file would be read for each token."""
    if os.path.getsize(row["path"]) > available_memory():
        return None
    done = bench(row, "--repeat", 1, "--ram", "auto")
    return done["median_tokens_per_second"] if done and "parts" not in done else None


def limited(row):
    simulated = row["io"].startswith("sim:")
    (keep_cached if simulated else drop_cached)(row["path"])
    with MemoryGroup(None if simulated else row["bytes"]) as group:
        done = bench(row, "--repeat", 1, "--ram", row["bytes"], "--io", row["io"], group=group)
        return done and dict(done, peak=group.peak())


def peer_rate(row, words):
    if not words:
        return None
    drop_cached(row["path"])
    kind = ["-p", row["n"], "-n", 0] if row["kind"] == "prompt" else ["-p", 0, "-n", 8]
    with MemoryGroup(row["bytes"]) as group:
        done = group.run([*words, "-m", row["path"], "-t", row["threads"], "-r", 1, "-o", "json", *kind], timeout=240,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        return json.loads(done.stdout)[-1]["avg_ts"]
    except (AttributeError, ValueError, IndexError):
        return None


NO_READS = {"weight_bytes": 0, "read_bytes": 0, "hits": 1, "misses": 0, "read_seconds": 0.0, "wait_seconds": 0.0}


def planned_rate(row):
    """Tokens per second that hearth plan expects."""
    plan = hearth("plan", row["path"], "--gpu", "none", "-t", row["threads"], "--ram", row["bytes"], "--io", row["io"],
                  *row["route"], *row.get("options", []), "--json", "-p" if row["kind"] == "prompt" else "-n", row["n"])
    return plan and plan["prompt_tokens_per_second" if row["kind"] == "prompt" else "tokens_per_second"]


def shorten(row, seconds):
    """Fewer tokens, if these and as many of warming up are expected to take longer."""
    rate = planned_rate(row)
    if rate:
        row["n"] = max(2, min(row["n"], int(rate * seconds / 2)))


def sample(row, peer):
    s = {"limited": limited(row)}
    if row["io"].startswith("sim:"):
        keep_cached(row["path"])
    s["disk"], s["cores"] = disk_rate(row["path"], row["io"], extent_size(row["info"]))
    s["planned"] = planned_rate(row)
    s["peer"] = peer_rate(row, peer)
    s["resident"] = row.get("resident") or resident_rate(row)
    if s["limited"]:
        reads = s["limited"]["storage"][0] if "parts" in s["limited"] else NO_READS
        s["missed"] = reads["weight_bytes"] / row["n"]
        if reads["read_seconds"] > 0.0:
            s["own"] = reads["read_bytes"] / reads["read_seconds"]
        s["hits"] = reads["hits"] / max(reads["hits"] + reads["misses"], 1)
        s["rate"], s["peak"] = s["limited"]["median_tokens_per_second"], s["limited"]["peak"]
        could = min(reads["read_seconds"], row["n"] / s["rate"] - reads["wait_seconds"])
        if could > 0.0:
            s["hidden"] = min(max(reads["read_seconds"] - reads["wait_seconds"], 0.0) / could, 1.0)
        computing = 1.0 / s["resident"] if s["resident"] else 0.0
        for name, disk in ("allowed", s.get("own", s["disk"])), ("allowed alone", s["disk"]):
            if max(computing, s["missed"]) > 0.0:
                s[name] = 1.0 / max(computing, s["missed"] / disk)
        if s["planned"]:
            s["accuracy"] = s["planned"] / s["rate"]
    return s


# ---- the table --------------------------------------------------------------------------------


def spread(samples, key, form):
    found = [s[key] for s in samples if s.get(key) is not None]
    if not found:
        return "-"
    middle = form.format(statistics.median(found))
    return middle if len(found) == 1 else f"{middle} ({form.format(min(found))}-{form.format(max(found))})"


def verdict(row, samples):
    target, words = row.get("target", {}), []

    def judge(name, value, wanted, at_most=False, form=".2f"):
        met = value <= wanted if at_most else value >= wanted
        words.append(f"{name} {value:{form}} of {wanted:{form if at_most else ''}}: {'met' if met else 'missed'}")
    middle = {key: statistics.median([s[key] for s in samples if s.get(key)] or [0.0])
              for key in ("rate", "resident", "peer", "hidden")}
    for key, name in ("allowed", "allowed"), ("allowed alone", "by the disk alone"):
        shares = [s["rate"] / s[key] for s in samples if key in s]
        if "allowed" in target and shares:
            judge(name, statistics.median(shares), target["allowed"])
    if "resident" in target and middle["resident"]:
        judge("in memory", middle["rate"] / middle["resident"], target["resident"])
    if "peer" in target and middle["peer"]:
        judge("peer", middle["rate"] / middle["peer"], target["peer"])
    if "hidden" in target and any("hidden" in s for s in samples):
        judge("hidden", middle["hidden"], target["hidden"])
    peak = max(s.get("peak", 0) for s in samples)
    if peak and not row["io"].startswith("sim:"):  # whose group has the file's page cache too
        judge("peak, MiB,", peak / MIB, allowed_peak(row["bytes"]) / MIB, at_most=True, form=".0f")
    return "; ".join(words) or "-"


def print_row(row, samples):
    routing = "" if not row["route"] else ", " + row["dataset"] + "".join(
        f", {key} {row[key]}" for key in ("sticky", "foreseen") if row.get(key))
    threads = "" if row["threads"] == 2 else f", {row['threads']} thread{'s' * (row['threads'] > 1)}"
    cells = [f"{row['row']}{routing}{threads}", spread(samples, "rate", "{:.2f}"), spread(samples, "hits", "{:.3f}"),
             spread([{"m": s["missed"] / 1e6} for s in samples if "missed" in s], "m", "{:.1f}"),
             spread([{"d": s["own"] / 1e9} for s in samples if "own" in s], "d", "{:.2f}"),
             spread([{"d": s["disk"] / 1e9} for s in samples], "d", "{:.2f}"), spread(samples, "cores", "{:.2f}"),
             spread(samples, "hidden", "{:.2f}"),
             spread(samples, "resident", "{:.2f}"), spread(samples, "allowed", "{:.2f}"),
             f"{spread(samples, 'planned', '{:.2f}')}, {spread(samples, 'accuracy', '{:.2f}')} of measured",
             spread(samples, "peer", "{:.2f}"), verdict(row, samples)]
    print("| " + " | ".join(cells) + " |", flush=True)


def rows_of(a):
    if not a.table:
        kind = ("prompt", a.prompt) if a.prompt else ("generate", a.predict)
        return [{"row": f"{os.path.basename(a.model)}, {ram}", "model": a.model, "ram": ram, "kind": kind[0],
                 "n": kind[1], "io": a.io, "spec": a.route, "options": ["-c", a.ctx] if a.ctx else []} for ram in a.ram]
    with open(a.table, encoding="utf-8") as f:
        return [r for r in json.load(f) if not a.only or a.only in r["row"]]


def complete(row, a):
    """False: the model is not there."""
    row["path"] = os.path.join(a.models, row["model"])
    if not os.path.exists(row["path"]):
        print(f"| {row['row']} | no {row['model']} |", flush=True)
        return False
    row["info"], row["threads"] = facts_of(row["path"]), row.get("threads", a.threads)
    row["io"], row["kind"] = row.get("io") or "auto", row.get("kind", "generate")
    row["bytes"] = parse_size(row["ram"]) if "ram" in row else int(row["share"] * os.path.getsize(row["path"]))
    spec = row.pop("spec", None)
    row["route"] = ["--route", spec] if spec else route_of(row, row["info"], a.routing)
    row.setdefault("dataset", spec)
    if a.seconds:
        shorten(row, a.seconds)
    return True


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?")
    p.add_argument("--ram", nargs="+", default=[])
    p.add_argument("--io", default="auto")
    p.add_argument("--route")
    p.add_argument("-n", "--predict", type=int, default=64)
    p.add_argument("-p", "--prompt", type=int, default=0)
    p.add_argument("-c", "--ctx", type=int)
    p.add_argument("--table")
    p.add_argument("--models", default=".")
    p.add_argument("--routing", default=".")
    p.add_argument("--peer", default="")
    p.add_argument("--only")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--seconds", type=float)
    p.add_argument("-t", "--threads", type=int, default=2)
    a = p.parse_args()
    if bool(a.table) == bool(a.model) or bool(a.model) != bool(a.ram):
        p.error("a MODEL with --ram, or --table")
    try:
        for text in a.ram:
            parse_size(text)
    except ValueError as error:
        p.error(f"--ram {error}")
    peer = a.peer.partition("=")[2].split()
    version = subprocess.run([os.path.join(BUILD, "hearth"), "--version"], capture_output=True, text=True, check=True)
    print(f"{version.stdout.strip()}, {a.threads} threads; peer {a.peer or 'none'}\n")
    print("| work | tokens/s | in memory when asked for | MB read for a token | GB/s of its reads | disk alone, GB/s "
          "| cores for reading | hidden | tokens/s in memory | allowed | planned | peer by mmap | targets |\n"
          + "|---" * 13 + "|", flush=True)
    for row in rows_of(a):
        if complete(row, a):
            print_row(row, [sample(row, peer) for _ in range(a.repeat)])


if __name__ == "__main__":
    sys.exit(main())
