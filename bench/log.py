"""What bench/log.sh measures, and the plot of its lines.

    log.py measure COMMIT OLD NEW MODELS ROUNDS THREADS   adds the line of COMMIT to its note
    log.py draw OUT.svg                                    draws the lines of all notes

Python's standard library only.
"""

import json
import platform
import re
import statistics
import subprocess
import sys
from html import escape

NOTE = "speed"
RATE = "median_tokens_per_second"
# Name, model, what bench is asked for, and the field that is logged. Where neurons are left out, a share of the limit would
# count weights that were not read: there it is the rate.
ROWS = [
    ("decode-q4_0", "q4_0.gguf", ["-p", "0", "-n", "16"], "share_of_limit"),
    ("decode-q4_k_m", "q4_k_m.gguf", ["-p", "0", "-n", "16"], "share_of_limit"),
    ("decode-q8_0", "q8_0.gguf", ["-p", "0", "-n", "16"], "share_of_limit"),
    ("decode-drelu-10%-tokens/s", "drelu.gguf", ["-p", "0", "-n", "16", "--fire", "share=0.1"], RATE),
    ("prompt-q4_0", "q4_0.gguf", ["-p", "128", "-n", "0"], "share_of_peak"),
    ("prompt-q4_k_m", "q4_k_m.gguf", ["-p", "128", "-n", "0"], "share_of_peak"),
]


def sample(program, model, words, field, threads):
    """One run: tokens a second, what is logged of the same run, and the CPU level."""
    command = [program, "bench", model, "--gpu", "none", "--repeat", "1", "-t", str(threads), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    test = result["tests"][0]
    return test[RATE], test.get(field, float("nan")), result["cpu"]


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        found = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    return re.sub(r"\s+", "_", found.group(1) if found else platform.machine())


def measure(commit, old, new, models, rounds, threads):
    words = []
    for name, model, asked, field in ROWS:
        ratios, values = [], []
        for _ in range(rounds):  # interleaved: what disturbs the machine disturbs both
            before, _, _ = sample(old, f"{models}/{model}", asked, field, threads)
            now, value, level = sample(new, f"{models}/{model}", asked, field, threads)
            ratios.append(now / before)
            values.append(value)
        words.append("%s=%.3f/%.3f(%.3f-%.3f)" % (name, statistics.median(values), statistics.median(ratios),
                                                  min(ratios), max(ratios)))
        print(words[-1], file=sys.stderr)
    line = " ".join([commit[:12], cpu_name(), level, f"threads={threads}", *words])
    subprocess.run(["git", "notes", f"--ref={NOTE}", "append", "-m", line, commit], check=True)
    print(line)


def lines():
    """All lines, those of older commits first."""
    listed = subprocess.run(["git", "log", "--reverse", f"--notes={NOTE}", "--format=%N"], capture_output=True,
                            text=True, check=True).stdout
    return [line for line in listed.splitlines() if " threads=" in line]


def parse(line):
    """COMMIT CPU LEVEL threads=N NAME=VALUE/RATIO(MIN-MAX) ...: the commit, the machine, {name: value}."""
    commit, cpu, level, threads, *words = line.split()
    values = {name: found.split("/")[0] for name, found in (word.split("=") for word in words)}
    return commit, f"{cpu} {level} {threads}", {name: float(v) for name, v in values.items() if v != "nan"}


WIDTH, HEIGHT, LEFT, RIGHT, GAP = 1000, 260, 60, 300, 40
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"]
DASHES = ["none", "6 3", "2 3", "8 3 2 3"]  # of machines


def panel(top, title, names, log, shown):
    """The values of some rows by commit: a line for each row and machine."""
    commits = list(dict.fromkeys(commit for commit, _, _ in log))
    machines = list(dict.fromkeys(machine for _, machine, _ in log))
    highest = max([1.0] + [values[name] for _, _, values in log for name in names if name in values])
    at_x = lambda i: LEFT + (WIDTH - LEFT - RIGHT) * (i / max(1, len(commits) - 1))
    at_y = lambda value: top + HEIGHT * (1 - value / highest)
    out = [f'<text x="{LEFT}" y="{top - 10}">{title}</text>']
    for i in range(6):
        value = highest * i / 5
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(value):.1f}" y2="{at_y(value):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{at_y(value) + 4:.1f}" text-anchor="end">{value:{shown}}</text>')
    for k, name in enumerate(names):
        for m, machine in enumerate(machines):
            points = [(at_x(commits.index(commit)), at_y(values[name])) for commit, where, values in log
                      if where == machine and name in values]
            path_of = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path_of}" fill="none" stroke="{COLOURS[k]}" '
                       f'stroke-dasharray="{DASHES[m % len(DASHES)]}"/>')
            out.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[k]}"/>' for x, y in points)
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{top + 18 * k + 12}" fill="{COLOURS[k]}">{name}</text>')
    for m, machine in enumerate(machines):
        y = top + 18 * (len(names) + m) + 20
        out.append(f'<line x1="{WIDTH - RIGHT + 10}" x2="{WIDTH - RIGHT + 40}" y1="{y - 4}" y2="{y - 4}" stroke="black" '
                   f'stroke-dasharray="{DASHES[m % len(DASHES)]}"/>'
                   f'<text x="{WIDTH - RIGHT + 46}" y="{y}" font-size="9">{escape(machine)}</text>')
    for i, commit in enumerate(commits):
        out.append(f'<text x="{at_x(i):.1f}" y="{top + HEIGHT + 14}" text-anchor="middle" font-size="9">{commit[:7]}</text>')
    return out


def picture(log):
    """The parsed lines as SVG: shares of limits, and below them rates."""
    rates = [name for name, _, _, field in ROWS if field == RATE]
    shares = [name for name, *_ in ROWS if name not in rates]
    height = 2 * (HEIGHT + 2 * GAP)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *panel(GAP, "share of the machine's limit, by commit", shares, log, ".0%"),
        *panel(HEIGHT + 3 * GAP, "tokens/s, by commit", rates, log, ".1f"), "</svg>"]) + "\n"


def draw(path):
    log = [parse(line) for line in lines()]
    with open(path, "w", encoding="utf-8") as f:
        f.write(picture(log))
    print(f"{path}: {len(log)} lines")


if __name__ == "__main__":
    if len(sys.argv) == 8 and sys.argv[1] == "measure":
        measure(*sys.argv[2:6], int(sys.argv[6]), int(sys.argv[7]))
    elif len(sys.argv) == 3 and sys.argv[1] == "draw":
        draw(sys.argv[2])
    else:
        sys.exit(__doc__)
