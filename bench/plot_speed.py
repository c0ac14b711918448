#!/usr/bin/env python3
"""Draws rows of docs/performance-tables.md ("Beside llama.cpp and ik_llama.cpp") for README.md.

    bench/plot_speed.py docs/performance-tables.md docs/speed.svg    writes the plot, prints the table of README.md

tests/lint compares both with the files. Python's standard library only.
"""

import re
import sys

ROWS = ["7B Q4_0 decode, 1 thread", "7B Q8_0 decode, 1 thread", "7B Q4_K decode, 1 thread", "1B F16 decode, 1 thread",
        "1B Q4_0 decode, 2 threads", "1B Q8_0 decode, 2 threads", "1B Q4_0 prefill 128, 1 thread",
        "1B Q4_K prefill 128, 1 thread", "1B F16 prefill 128, 1 thread"]
ENGINES = ["Hearth", "llama.cpp", "ik_llama.cpp"]
COLOURS = ["#c2410c", "#64748b", "#94a3b8"]
LEFT, BAR, GAP, SCALE = 220, 13, 12, 160  # pixels; SCALE: the length of a bar of 1


def read(document):
    """[(work, its marker, [tokens/s of each engine, as written])]"""
    found = []
    for work in ROWS:
        row = re.search(r"^\| %s (<!-- row: \S+ -->) \|(.*)\|$" % re.escape(work), document, re.M)
        cells = row.group(2).split("|")
        found.append((work, row.group(1), [re.match(r"\s*([0-9.]+) \(", cell).group(1) for cell in cells[1:4]]))
    return found


def table(rows):
    lines = ["| tokens/s | Hearth | llama.cpp | ik_llama.cpp |", "|---|---|---|---|"]
    lines += ["| %s %s | %s |" % (work, marker, " | ".join(rates)) for work, marker, rates in rows]
    return "\n".join(lines) + "\n"


def svg(rows):
    """Bars of each engine's rate relative to llama.cpp's."""
    height = 60 + len(rows) * (3 * BAR + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="720" height="{height}" fill="#ffffff"/>']
    for i, (engine, colour) in enumerate(zip(ENGINES, COLOURS)):
        out.append(f'<rect x="{LEFT + 110 * i}" y="12" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{LEFT + 17 + 110 * i}" y="22">{engine}</text>')
    y = 38
    for work, _, rates in rows:
        out.append(f'<text x="{LEFT - 8}" y="{y + 24}" text-anchor="end">{work}</text>')
        for rate, colour in zip(rates, COLOURS):
            width = float(rate) / float(rates[1]) * SCALE
            out.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 1}" fill="{colour}"/>'
                       f'<text x="{LEFT + width + 5:.1f}" y="{y + 10}" font-size="10">{rate}</text>')
            y += BAR
        y += GAP
    out.append(f'<text x="{LEFT}" y="{y + 6}" font-size="11">tokens/s; length relative to llama.cpp</text></svg>')
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as f:
        shown = read(f.read())
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(svg(shown))
    print(table(shown), end="")
