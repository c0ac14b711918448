#!/usr/bin/env python3
"""Mixtures of experts on the cards of bench/devices: what slots gain whose experts move while a model runs.

    bench/cards.py HEARTH FOLDER [--cards rtx3060-12gb,...] [--hosts 40,80] [--shapes qwen3-30b-a3b,...]
        [--sticky 0.1,0.3,0.6] [--routing uniform,skewed] [--frequencies FILE] [--slots 0.4] [--layers L] [-n 128]
        [--computed] [--keep]

Every figure is simulated, of random weights and of drawn experts. "base" has all experts on the CPU and the rest on the
card; its time does not depend on which experts are drawn. "slots" has slots on the card for a share of each layer's
experts, and the CPU computes those that miss. "reads" has as many slots, and the card reads those that miss from the
host's memory. A run generates N tokens that are not counted, in which the slots settle, and N that are.

The cards compute nothing (`values = none`, bench/devices/README.md): their clocks take what they move and read from the
drawn experts alone. --computed lets them compute, which gives the same figures and takes some thousand times as long.
The memory of a card is not a limit here; "GPU memory" says what "slots" takes of it.

Models are written to FOLDER, whole or with their first L layers, and removed, but with --keep.

"uniform" draws experts from all alike. "skewed" draws the expert of rank r with a frequency of (1 + r)^-0.7, or as the
rows of --frequencies say: numbers behind the last word of a line, one line for each layer. Where lines or numbers do not
fit the shape, layers take lines at even distances, sorted and resampled. Ranks are dealt differently in each layer.

"plan / clock" is what `hearth plan --placement` expects of "base" and of "slots", in tokens/s, relative to the clock:
below 1 the plan errs to the slow side.
Prints a Markdown table."""
import argparse
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

DEVICES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "devices")
CARDS = "rtx3060-12gb,rtx4060ti-16gb,rx7600-8gb,b580-12gb"
SHAPES = {"qwen3-30b-a3b": "q4_k_m", "gpt-oss-20b": "mxfp4_moe", "qwen35-35b-a3b": "q4_k_m", "gemma4-26b-a4b": "q4_k_m"}
TARGET = 1.8
SKEW = 0.7
FEW = 4  # tokens where each takes the same time
WAYS = ("base", "slots", "reads")


class Table:
    """What all runs share: the program, the options and the files that go."""

    def __init__(self, options, scratch):
        self.o, self.scratch = options, scratch

    def hearth(self, *words):
        done = subprocess.run([self.o.hearth, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-800:]}")
        return json.loads(done.stdout) if "--json" in words else None

    def path(self, name):
        return os.path.join(self.scratch, name)


# ---- files ------------------------------------------------------------------------------------


@contextlib.contextmanager
def model_of(table, shape):
    """The path of a synthetic model, which is written unless it is there."""
    path = os.path.join(table.o.folder, f"{shape}-{table.o.layers or 'all'}.gguf")
    if not os.path.exists(path):
        layers = ["--layers", table.o.layers] if table.o.layers else []
        table.hearth("synth", shape, path, "--type", SHAPES[shape], *layers, "-t", 1, "-q")
    try:
        yield path
    finally:
        if not table.o.keep:
            os.remove(path)


def describe(table, card, host):
    """The description of a card whose host reads so many GB/s; the rate of the link to it, and its memory."""
    with open(os.path.join(DEVICES, card + ".sim"), encoding="utf-8") as f:
        text = f.read()
    was = {key: re.search(rf"^{key} *= *(\S+)", text, re.M)[1] for key in ("pcie_up", "vram_bytes")}
    for key, value in (("host_bandwidth", f"{host}e9"), ("vram_bytes", "256G")):
        text, n = re.subn(rf"^{key} *=.*$", f"{key} = {value}", text, flags=re.M)
        if n != 1:
            sys.exit(f"{card}.sim: {n} lines {key}")
    path = table.path(f"{card}-{host}.sim")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text + ("" if table.o.computed else "\nvalues = none\n"))
    return path, float(was["pcie_up"]), float(was["vram_bytes"].rstrip("G")) * 2 ** 30


def text_of(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pair(key, value):
    """A key of a GGUF file: text, a number of 32 or 64 bits, or a list of numbers."""
    if isinstance(value, str):
        return text_of(key) + struct.pack("<I", 8) + text_of(value)
    if isinstance(value, list):
        return text_of(key) + struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value)
    return text_of(key) + (struct.pack("<II", 4, value) if value < 1 << 32 else struct.pack("<IQ", 10, value))


def write_placement(table, plan, hot, reads, path):
    """A placement for the model and the device of a plan (src/planner/placement.c)."""
    made_for = table.hearth("inspect", plan, "--json")["sidecar"]
    pairs = {"general.architecture": "hearth.placement", "hearth.sidecar.version": made_for["version"],
             "hearth.model.hash": int(made_for["model_hash"], 16), "hearth.placement.hot": hot,
             "hearth.placement.head": 1, "hearth.placement.handoff": "queued",
             "hearth.placement.device": made_for["devices"][0]["device"],
             "hearth.placement.driver": made_for["devices"][0]["driver"]}
    if reads:
        pairs["hearth.placement.reads"] = list(range(len(hot)))
    with open(path, "wb") as f:
        f.write(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)) + b"".join(pair(k, v) for k, v in pairs.items()))


def placements_of(table, model, sim, n_layer, n_expert):
    """The files that place a model, by way."""
    plan = table.path("plan")
    table.hearth("plan", model, "--gpu", "sim:" + sim, "-c", 256, "-o", plan, "--force")
    n_slot = {"base": 0, "slots": round(table.o.slots * n_expert), "reads": round(table.o.slots * n_expert)}
    for way in WAYS:
        write_placement(table, plan, [n_slot[way]] * n_layer, way == "reads", table.path(way))
    return {way: table.path(way) for way in WAYS}


# ---- routing ----------------------------------------------------------------------------------


def rows_of(path):
    """The numbers behind the last word of each line."""
    number = r"[0-9.]+(?:e[+-]?[0-9]+)?"
    with open(path, encoding="utf-8") as f:
        ends = [re.search(rf"(?<![\w.])(?:{number}[\s,;]+)*{number}$", line.strip(), re.I) for line in f]
    rows = [[float(x) for x in re.split(r"[\s,;]+", end[0])] for end in ends if end]
    return [row for row in rows if len(row) > 1] or sys.exit(f"{path}: no line has numbers")


def resampled(row, n):
    ordered = sorted(row, reverse=True)
    return [ordered[min(int((r + 0.5) * len(row) / n), len(row) - 1)] for r in range(n)]


def frequencies(table, n_layer, n_expert):
    """For each layer: the frequencies of its experts."""
    rows = rows_of(table.o.frequencies) if table.o.frequencies else [[(1 + r) ** -SKEW for r in range(n_expert)]]
    if len(rows) == n_layer and {len(row) for row in rows} == {n_expert}:
        return rows
    rows = [resampled(rows[i * len(rows) // n_layer], n_expert) for i in range(n_layer)]
    return [[row[(37 * e + 11 * i) % n_expert] for e in range(n_expert)] for i, row in enumerate(rows)]


def route_of(table, routing, sticky, n_layer, n_expert):
    if routing == "uniform":
        return f"uniform,sticky={sticky}"
    path = table.path("frequencies")
    with open(path, "w", encoding="ascii") as f:
        f.writelines(" ".join(map(str, row)) + "\n" for row in frequencies(table, n_layer, n_expert))
    return f"file={path},sticky={sticky}"


# ---- measurement ------------------------------------------------------------------------------


def measure(table, model, sim, place, route, n):
    """Tokens/s by the simulated clock, and the experts of these tokens."""
    done = table.hearth("bench", model, "--gpu", "sim:" + sim, "--placement", place, "--route", route, "-p", 0, "-n", n,
                        "--repeat", 1, *([] if table.o.computed else ["--io", "mmap"]), "-t", 1, "--json")
    if not done.get("simulated_seconds"):
        sys.exit(f"{model}: these are not seconds of the simulated clock")
    test = done["tests"][0]
    e = test["experts"][0]
    return {"rate": test["tokens_per_second"][0], "hits": e["on_device"] / max(e["chosen"], 1),
            "bytes": e["upload_bytes"] / n, "waits": e["waits"] / n}


def expect(table, model, sim, place, route, n):
    """What a plan expects of the same tokens."""
    return table.hearth("plan", model, "--gpu", "sim:" + sim, "--placement", place, "--route", route, "-c", 2 * n, "-t", 1,
                        "--json")


def print_row(cells, shown, plans, link, memory):
    def each(key, form, ways=WAYS, factor=1.0):
        return " / ".join(form.format(shown[way][key] * factor) for way in ways)
    for way in WAYS:
        shown[way]["link"] = shown[way]["bytes"] * shown[way]["rate"] / link
    gain = shown["slots"]["rate"] / shown["base"]["rate"]
    size = plans["slots"]["vram_bytes"]
    cells += [each("rate", "{:.1f}"), f"{gain:.2f}", "met" if gain >= TARGET else "missed",
              " / ".join(f"{plans[way]['tokens_per_second'] / shown[way]['rate']:.2f}" for way in plans),
              each("hits", "{:.0%}", WAYS[1:]), each("bytes", "{:.0f}", WAYS[1:], 1e-6), each("link", "{:.0%}", WAYS[1:]),
              f"{size / 2 ** 30:.1f}{'' if size <= memory else ', too much'}"]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_shape(table, shape):
    o = table.o
    with model_of(table, shape) as model:
        known = table.hearth("inspect", model, "--json")["model"]
        n_layer, n_expert = known["n_layer"], known["experts"]["n_expert"]
        for card in o.cards.split(","):
            for host in o.hosts.split(","):
                sim, link, memory = describe(table, card, host)
                places = placements_of(table, model, sim, n_layer, n_expert)
                base = measure(table, model, sim, places["base"], "uniform", FEW)
                base_plan = expect(table, model, sim, places["base"], "uniform", FEW)
                for routing in o.routing.split(","):
                    for sticky in o.sticky.split(","):
                        route = route_of(table, routing, sticky, n_layer, n_expert)
                        shown = {way: measure(table, model, sim, places[way], route, o.n) for way in WAYS[1:]}
                        plans = {"base": base_plan, "slots": expect(table, model, sim, places["slots"], route, o.n)}
                        print_row([card, host, f"{shape} {SHAPES[shape].upper()}", routing, sticky], {"base": base, **shown},
                                  plans, link, memory)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hearth")
    p.add_argument("folder")
    for name, value in (("cards", CARDS), ("hosts", "40,80"), ("shapes", ",".join(SHAPES)), ("sticky", "0.1,0.3,0.6"),
                        ("routing", "uniform,skewed")):
        p.add_argument("--" + name, default=value, help=f"default {value}")
    p.add_argument("--frequencies")
    p.add_argument("--slots", type=float, default=0.4)
    p.add_argument("--layers", type=int)
    p.add_argument("-n", type=int, default=128)
    p.add_argument("--computed", action="store_true")
    p.add_argument("--keep", action="store_true")
    o = p.parse_args()
    unknown = set(o.shapes.split(",")) - set(SHAPES)
    if unknown or not 0.0 < o.slots < 1.0:
        p.error(f"--shapes are some of {', '.join(SHAPES)}; --slots is between 0 and 1")
    print(f"**Simulated**, synthetic weights, drawn experts; slots for {100 * o.slots:.0f} % of each layer's experts; "
          f"{o.n} tokens after {o.n} that are not counted.\n")
    print("| card | host, GB/s | shape | routing | sticky | tokens/s: base / slots / reads | slots to base | "
          f"{TARGET} | plan / clock: base / slots | hits: slots / reads | MB moved for a token | share of the link "
          "| GPU memory, GiB |\n" + "|---" * 13 + "|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for shape in o.shapes.split(","):
            print_shape(Table(o, scratch), shape)


if __name__ == "__main__":
    sys.exit(main())
