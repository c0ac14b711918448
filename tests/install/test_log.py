"""The speed log: bench/log.sh over a program that stands in for hearth, in a repository of the test's own, and the
plot of lines that are made up.

    test_log.py SOURCE_DIR
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

BENCH = os.path.join(sys.argv[1], "bench")
sys.path.insert(0, BENCH)
import log  # noqa: E402: bench/log.py

# Makes models; says how fast they are: the share of decode with neurons left out counts what is not read.
FAKE = """#!%s
import json, sys
if sys.argv[1] == "synth":
    open(sys.argv[3], "w").close()
else:
    rate, share = %r, 1.4 if "--fire" in sys.argv else 0.5
    field = "share_of_peak" if "128" in sys.argv else "share_of_limit"
    print(json.dumps({"cpu": "made-up", "tests": [{"median_tokens_per_second": rate, field: share}]}))
"""
ENV = {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
       "ROUNDS": "2", "THREADS": "3", "GIT_CONFIG_GLOBAL": os.devnull,
       **{f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}


def call(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENV)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout.strip()


def words_of(line):
    return dict(word.split("=") for word in line.split() if "=" in word)


@case
def a_line_for_a_commit_is_kept_shown_and_drawn():
    if not shutil.which("git"):
        raise Skip("no git")
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as folder:
        shutil.copytree(BENCH, os.path.join(folder, "bench"), ignore=lambda _, names: [n for n in names if "log." not in n])
        call(folder, "git", "init", "-q")
        commits = []
        for rate in (10.0, 20.0):
            call(folder, "git", "commit", "-q", "--allow-empty", "-m", str(rate))
            commits.append(call(folder, "git", "rev-parse", "HEAD"))
            program = os.path.join(folder, "build", "log", commits[-1], "hearth")
            os.makedirs(os.path.dirname(program))
            with open(program, "w", encoding="utf-8") as f:
                f.write(FAKE % (sys.executable, rate))
            os.chmod(program, 0o755)
        line = call(folder, "bench/log.sh")
        assert line.startswith(commits[-1][:12]) and " made-up threads=3 " in line, line
        words = words_of(line)
        assert words["decode-q4_0"] == words["prompt-q4_k_m"] == "0.500/2.000(2.000-2.000)", line
        assert words["decode-drelu-10%-tokens/s"] == "20.000/2.000(2.000-2.000)", line
        call(folder, "bench/log.sh")
        assert call(folder, "bench/log.sh", "show").splitlines() == [line, line]
        assert "2 lines" in call(folder, "bench/log.sh", "draw", "log.svg")
        with open(os.path.join(folder, "log.svg"), encoding="utf-8") as f:
            assert f.read() == log.picture([log.parse(line)] * 2)


def circles(svg, name):
    """The points of a row, which its colour tells among those of its panel: [(x, y)]"""
    colour = re.search(rf'fill="(#\w+)">{re.escape(name)}<', svg).group(1)
    panel = svg.split("tokens/s, by commit")[name.endswith("tokens/s")]
    found = re.findall(rf'<circle cx="([\d.]+)" cy="([\d.]+)" r="3" fill="{colour}"', panel)
    return [tuple(map(float, point)) for point in found]


@case
def machines_have_lines_of_their_own_and_values_are_not_cut():
    lines = [log.parse(line) for line in (
        "aaa a&b avx2 threads=2 decode-q4_0=0.500/1.0(1.0-1.0) decode-drelu-10%-tokens/s=12.000/1.0(1.0-1.0)",
        "aaa c avx2 threads=8 decode-q4_0=1.500/1.0(1.0-1.0) decode-q8_0=nan/1.0(1.0-1.0)",
        "bbb a&b avx2 threads=2 decode-q4_0=0.750/1.0(1.0-1.0) decode-drelu-10%-tokens/s=24.000/1.0(1.0-1.0)",
        "bbb a&b avx2 threads=4 decode-drelu-10%=9.000/1.0(1.0-1.0)")]
    svg = log.picture(lines)
    (x1, half), (x2, three_quarters), (x3, beyond) = circles(svg, "decode-q4_0")
    assert x1 == x3 < x2 and abs((half - beyond) - 4 * (half - three_quarters)) < 0.3, svg
    assert circles(svg, "decode-q8_0") == [] and svg.count("<polyline") == 3 * len(log.ROWS), svg
    assert len(circles(svg, "decode-drelu-10%-tokens/s")) == 2 and "a&amp;b avx2 threads=2" in svg, svg
    assert ">24.0<" in svg and ">150%<" in svg, svg


if __name__ == "__main__":
    run_cases(__file__)
