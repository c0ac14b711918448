#!/usr/bin/env python3
"""Mixtures of experts on the cards of bench/devices: what slots gain whose experts move while a model runs.

    bench/cards.py HEARTH FOLDER [--cards rtx3060-12gb,...] [--hosts 40,80] [--shapes qwen3-30b-a3b,...]
        [--sticky 0.1,0.3,0.6] [--routing uniform,skewed] [--frequencies FILE] [--slots 0.4] [--layers L] [-n 64] [-t 2] [--keep]

Every figure is simulated, of random weights and of drawn experts. "base" has all experts on the CPU and the rest on the
card; its time does not depend on which experts are drawn. "slots" has slots on the card for a share of each layer's
experts, and the CPU computes those that miss. "reads" has as many slots, and the card reads those that miss from the
host's memory. A run generates N tokens that are not counted, in which the slots settle, and N that are.

Models are written to FOLDER and removed, but with --keep. They have the first layers of a shape. Figures are scaled to
all layers: the time of a token is fixed + (measured - fixed) * layers of the shape / layers measured. The fixed part is
that of the head, of the start and of the end of a step. It is twice the time of a model of one layer less that of two
layers, with all matrices in Q6_K, which keep the type of the head. With few layers the head takes a larger part of a
step than it does in the whole shape, and experts move meanwhile: "slots" then looks better than it is. "link" shows it:
the bytes that move in a second, as scaled, relative to pcie_up. Above 100 % no card does it: more --layers are needed.

"uniform" draws experts from all alike. "skewed" draws the expert of rank r with a frequency of (1 + r)^-0.7, or as the
rows of --frequencies say: numbers behind the last word of a line, one line for each layer. Where lines or numbers do not
fit the shape, layers take lines at even distances, sorted and resampled. Ranks are dealt differently in each layer.
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
# Layers of the shape, layers measured, and types. Those measured keep the pattern of layers, and of Q4_K_M the share of
# matrices with more bits, but of gemma4-26b-a4b, where a third has them and not a half. gpt-oss has MXFP4 in its experts.
SHAPES = {"qwen3-30b-a3b": (48, 8, "q4_k_m"), "gpt-oss-20b": (24, 8, "mxfp4_moe"), "qwen35-35b-a3b": (40, 8, "q4_k_m"),
          "gemma4-26b-a4b": (30, 6, "q4_k_m")}
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
def model_of(table, shape, n_layer, kind):
    """The path of a synthetic model, which is written unless it is there."""
    path = os.path.join(table.o.folder, f"{shape}-{n_layer}-{kind}.gguf")
    if not os.path.exists(path):
        table.hearth("synth", shape, path, "--type", kind, "--layers", n_layer, "-t", table.o.threads, "-q")
    try:
        yield path
    finally:
        if not table.o.keep:
            os.remove(path)


def describe(table, card, host):
    """The description of a card whose host reads so many GB/s, and the rate of the link to it."""
    with open(os.path.join(DEVICES, card + ".sim"), encoding="utf-8") as f:
        text, n = re.subn(r"^host_bandwidth *=.*$", f"host_bandwidth = {host}e9", f.read(), flags=re.M)
    if n != 1:
        sys.exit(f"{card}.sim: {n} lines host_bandwidth")
    path = table.path(f"{card}-{host}.sim")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path, float(re.search(r"^pcie_up *= *(\S+)", text, re.M)[1])


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
    """The words that place a model, by way."""
    plan = table.path("plan")
    table.hearth("plan", model, "--gpu", "sim:" + sim, "-o", plan, "--force")
    n_slot = round(table.o.slots * n_expert)
    words = {"base": ["--cpu-moe"]}
    for way in WAYS[1:]:
        path = table.path(way)
        write_placement(table, plan, [n_slot] * n_layer, way == "reads", path)
        words[way] = ["--placement", path]
    return words


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
    """Seconds of a token by the simulated clock, and the experts of these tokens."""
    done = table.hearth("bench", model, "--gpu", "sim:" + sim, *place, "--route", route, "-p", 0, "-n", n, "--repeat", 1,
                        "-t", table.o.threads, "--json")
    if not done.get("simulated_seconds"):
        sys.exit(f"{model}: these are not seconds of the simulated clock")
    test = done["tests"][0]
    return {"seconds": 1.0 / test["tokens_per_second"][0], **test["experts"][0], "n": n}


def fixed_seconds(table, one, two, sim):
    """Seconds of a token without its layers."""
    t1, t2 = (measure(table, path, sim, ["--cpu-moe"], "uniform", FEW)["seconds"] for path in (one, two))
    return 2 * t1 - t2


def scaled(m, fixed, scale):
    """A measurement for all layers of the shape."""
    return {"rate": 1.0 / (fixed + (m["seconds"] - fixed) * scale), "hits": m["on_device"] / max(m["chosen"], 1),
            "bytes": m["upload_bytes"] * scale / m["n"], "waits": m["waits"] * scale / m["n"]}


def print_row(cells, shown, link):
    def each(key, form, ways=WAYS, factor=1.0):
        return " / ".join(form.format(shown[way][key] * factor) for way in ways)
    for way in WAYS:
        shown[way]["link"] = shown[way]["bytes"] * shown[way]["rate"] / link
    best = max(WAYS, key=lambda way: shown[way]["rate"])
    cells += [each("rate", "{:.1f}"), f"{shown[best]['rate'] / shown['base']['rate']:.2f}, {best}",
              each("hits", "{:.0%}", WAYS[1:]), each("bytes", "{:.0f}", WAYS[1:], 1e-6), each("link", "{:.0%}", WAYS[1:]),
              each("waits", "{:.1f}")]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_shape(table, shape):
    o = table.o
    n_all, n_layer, kind = SHAPES[shape]
    n_layer = o.layers or n_layer
    with model_of(table, shape, n_layer, kind) as model, model_of(table, shape, 1, "q6_k") as one, \
            model_of(table, shape, 2, "q6_k") as two:
        n_expert = table.hearth("inspect", model, "--json")["model"]["experts"]["n_expert"]
        for card in o.cards.split(","):
            for host in o.hosts.split(","):
                sim, link = describe(table, card, host)
                fixed = fixed_seconds(table, one, two, sim)
                places = placements_of(table, model, sim, n_layer, n_expert)
                base = measure(table, model, sim, places["base"], "uniform", FEW)
                for routing in o.routing.split(","):
                    for sticky in o.sticky.split(","):
                        route = route_of(table, routing, sticky, n_layer, n_expert)
                        runs = {way: measure(table, model, sim, places[way], route, o.n) for way in WAYS[1:]}
                        shown = {way: scaled(m, fixed, n_all / n_layer) for way, m in {"base": base, **runs}.items()}
                        print_row([card, host, f"{shape} {kind.upper()}", routing, sticky], shown, link)


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
    p.add_argument("-n", type=int, default=64)
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("--keep", action="store_true")
    o = p.parse_args()
    unknown = set(o.shapes.split(",")) - set(SHAPES)
    if unknown or not 0.0 < o.slots < 1.0:
        p.error(f"--shapes are some of {', '.join(SHAPES)}; --slots is between 0 and 1")
    print(f"**Simulated**, synthetic weights, drawn experts; slots for {100 * o.slots:.0f} % of each layer's experts; "
          f"{o.n} tokens after {o.n} that are not counted; scaled to all layers of the shape.\n")
    print("| card | host, GB/s | shape | routing | sticky | tokens/s: base / slots / reads | best to base "
          "| hits: slots / reads | MB moved for a token | link | waits for the CPU: base / slots / reads |\n" + "|---" * 11 + "|",
          flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for shape in o.shapes.split(","):
            print_shape(Table(o, scratch), shape)


if __name__ == "__main__":
    sys.exit(main())
