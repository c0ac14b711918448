#!/usr/bin/env python3
"""Mixtures of experts on a card of bench/devices, in memory and on a disk at once: where the experts of a token are.

    bench/tiers.py HEARTH FOLDER [--before HEARTH] [--card rtx3060-12gb] [--host 40] [--disks nvme4,sata]
        [--shape qwen3-30b-a3b] [--layers 16] [--slots 0.25] [--memory 0.3,0.5] [--sticky 0.3,0.6]
        [--routing uniform,skewed] [-n 128] [--keep]

Every figure is simulated, of random weights and of drawn experts, as those of bench/cards.py, which says how experts are
drawn. The card has slots for a share of each layer's experts, memory (--ram) holds about the share --memory of all, and
the disk is a simulated one. The card computes nothing, and its clock waits for the disk as docs/streaming.md says.
A run generates N tokens that are not counted and N that are. --before is another program, whose tokens/s stand first.
Prints a Markdown table."""
import argparse
import re
import subprocess
import sys
import tempfile

import cards


def ram_for(table, words, share):
    """--ram with which about this share of all experts is in memory: what is refused names the least."""
    refused = subprocess.run([table.o.hearth, *words, "--ram", "1M"], stderr=subprocess.PIPE, text=True).stderr
    least = int(re.search(r"\((\d+) bytes\)", refused)[1])
    per_part = table.experts_bytes / table.n_part
    return str(int(least + share * table.n_part * per_part))


def measure(hearth, table, words, ram, disk):
    o = argparse.Namespace(**{**vars(table.o), "hearth": hearth})
    done = cards.Table(o, table.scratch).hearth(*words, "--ram", ram, "--io", "sim:" + disk, "--json")
    if not done.get("simulated_seconds"):
        sys.exit("these are not seconds of the simulated clock")
    return done, done["tests"][0]


def print_row(table, words, route, cells, share, disk):
    o = table.o
    words = [*words, "--route", route]
    ram = ram_for(table, words, share)
    done, test = measure(o.hearth, table, words, ram, disk)
    before = measure(o.before, table, words, ram, disk)[1] if o.before else None
    tiers = [test["experts"][0]["on_device"], test["storage"][0]["hits"], test["storage"][0]["misses"]]
    rate = test["tokens_per_second"][0]
    shown = f"{rate:.1f}"
    if before:
        was = before["tokens_per_second"][0]
        shown = f"{was:.1f} / {shown} | {rate / was:.2f}"
    cells = [*cells, f"{done['parts_in_memory'] / table.n_part:.0%}", disk, shown,
             " / ".join(f"{n / sum(tiers):.0%}" for n in tiers), f"{test['storage'][0]['weight_bytes'] / o.n * 1e-6:.0f}",
             f"{test['experts'][0]['upload_bytes'] / o.n * 1e-6:.1f}"]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_table(table):
    o = table.o
    with cards.model_of(table, o.shape) as model:
        known = table.hearth("inspect", model, "--json", "--all")
        n_layer, n_expert = known["model"]["n_layer"], known["model"]["experts"]["n_expert"]
        table.n_part = n_layer * n_expert
        table.experts_bytes = sum(t["bytes"] for t in known["tensors"] if "_exps.weight" in t["name"])
        sim = cards.describe(table, o.card, o.host)[0]
        place = cards.placements_of(table, model, sim, n_layer, n_expert)["slots"]
        words = ["bench", model, "--gpu", "sim:" + sim, "--placement", place, "-p", "0", "-n", str(o.n), "--repeat", "1", "-t", "1"]
        for routing in o.routing.split(","):
            for sticky in o.sticky.split(","):
                route = cards.route_of(table, routing, sticky, n_layer, n_expert)
                for share in o.memory.split(","):
                    for disk in o.disks.split(","):
                        print_row(table, words, route, [routing, sticky], float(share), disk)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hearth")
    p.add_argument("folder")
    for name, value in (("card", "rtx3060-12gb"), ("host", "40"), ("disks", "nvme4,sata"), ("shape", "qwen3-30b-a3b"),
                        ("memory", "0.3,0.5"), ("sticky", "0.3,0.6"), ("routing", "uniform,skewed")):
        p.add_argument("--" + name, default=value, help=f"default {value}")
    p.add_argument("--before")
    p.add_argument("--frequencies")
    p.add_argument("--slots", type=float, default=0.25)
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("-n", type=int, default=128)
    p.add_argument("--keep", action="store_true")
    o = p.parse_args()
    o.computed = False
    if o.shape not in cards.SHAPES or not 0.0 < o.slots < 1.0:
        p.error(f"--shape is one of {', '.join(cards.SHAPES)}; --slots is between 0 and 1")
    print(f"**Simulated**, synthetic weights, drawn experts: {o.shape}, {o.layers} layers, {o.card}, slots for "
          f"{o.slots:.0%} of the experts, a host of {o.host} GB/s; {o.n} tokens after {o.n} that are not counted.\n")
    head = ["routing", "sticky", "in memory", "disk", "tokens/s" + (": before / now | factor" if o.before else ""),
            "experts: card / memory / disk", "MB read for a token", "MB moved"]
    print("| " + " | ".join(head) + " |\n" + "|---" * (len(head) + bool(o.before)) + "|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        print_table(cards.Table(o, scratch))


if __name__ == "__main__":
    sys.exit(main())
