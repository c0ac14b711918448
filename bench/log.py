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

NOTE = "speed"
# Name, model, what bench is asked for, and the field with the share.
ROWS = [
    ("decode-q4_0", "q4_0.gguf", ["-p", "0", "-n", "16"], "share_of_limit"),
    ("decode-q4_k_m", "q4_k_m.gguf", ["-p", "0", "-n", "16"], "share_of_limit"),
    ("decode-q8_0", "q8_0.gguf", ["-p", "0", "-n", "16"], "share_of_limit"),
    ("decode-drelu-10%", "drelu.gguf", ["-p", "0", "-n", "16", "--fire", "share=0.1"], "share_of_limit"),
    ("prompt-q4_0", "q4_0.gguf", ["-p", "128", "-n", "0"], "share_of_peak"),
    ("prompt-q4_k_m", "q4_k_m.gguf", ["-p", "128", "-n", "0"], "share_of_peak"),
]


def sample(program, model, words, field, threads):
    """One run: tokens a second, the share of the limit that bench took in the same run, and the CPU level."""
    command = [program, "bench", model, "--gpu", "none", "--repeat", "1", "-t", str(threads), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    test = result["tests"][0]
    return test["median_tokens_per_second"], test.get(field, float("nan")), result["cpu"]


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        found = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    return re.sub(r"\s+", "_", found.group(1) if found else platform.machine())


def measure(commit, old, new, models, rounds, threads):
    words = []
    for name, model, asked, field in ROWS:
        ratios, shares = [], []
        for _ in range(rounds):  # interleaved: what disturbs the machine disturbs both
            before, _, _ = sample(old, f"{models}/{model}", asked, field, threads)
            now, share, level = sample(new, f"{models}/{model}", asked, field, threads)
            ratios.append(now / before)
            shares.append(share)
        words.append("%s=%.3f/%.3f(%.3f-%.3f)" % (name, statistics.median(shares), statistics.median(ratios),
                                                  min(ratios), max(ratios)))
        print(words[-1], file=sys.stderr)
    line = " ".join([commit[:12], cpu_name(), level, f"threads={threads}", *words])
    subprocess.run(["git", "notes", f"--ref={NOTE}", "append", "-m", line, commit], check=True)
    print(line)


def lines():
    """All lines, those of older commits first."""
    listed = subprocess.run(["git", "log", "--reverse", f"--notes={NOTE}", "--format=%N"], capture_output=True,
                            text=True, check=True).stdout
    return [line.split() for line in listed.splitlines() if "=" in line]


def draw(path):
    rows = lines()
    width, height, left, top = 900, 420, 60, 30
    colours = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"]
    at_x = lambda i: left + (width - left - 200) * (i / max(1, len(rows) - 1))
    at_y = lambda share: top + (height - 2 * top) * (1 - min(share, 1.2) / 1.2)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>']
    for share in (0, 0.2, 0.4, 0.6, 0.8, 1.0):
        out.append(f'<line x1="{left}" x2="{width - 200}" y1="{at_y(share):.1f}" y2="{at_y(share):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{at_y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for k, (name, *_) in enumerate(ROWS):
        points = []
        for i, words in enumerate(rows):
            found = [w for w in words if w.startswith(name + "=")]
            share = float(found[0].split("=")[1].split("/")[0]) if found else float("nan")
            if share == share:
                points.append((at_x(i), at_y(share)))
        path_of = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path_of}" fill="none" stroke="{colours[k]}"/>')
        out.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[k]}"/>' for x, y in points)
        out.append(f'<text x="{width - 190}" y="{top + 18 * k + 12}" fill="{colours[k]}">{name}</text>')
    for i, words in enumerate(rows):
        out.append(f'<text x="{at_x(i):.1f}" y="{height - 8}" text-anchor="middle" font-size="9">{words[0][:7]}</text>')
    out.append(f'<text x="{left}" y="16">share of the machine\'s limit, by commit</text></svg>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")
    print(f"{path}: {len(rows)} lines")


if __name__ == "__main__":
    if len(sys.argv) == 8 and sys.argv[1] == "measure":
        measure(*sys.argv[2:6], int(sys.argv[6]), int(sys.argv[7]))
    elif len(sys.argv) == 3 and sys.argv[1] == "draw":
        draw(sys.argv[2])
    else:
        sys.exit(__doc__)
