"""Line coverage of src/file and src/text by the tests, without any tool but gcov.

    python3 tests/coverage.py [--lines] [--build-only | --report-only]

Builds the tests in build/coverage with gcc's counters, runs the programs of tests/file,
text, fuzz, model, measure, engine and convert, and prints for each source the share of
lines that ran; --lines adds the blocks that did not. Some minutes. Exits 1 below 92 % of
either module."""

import collections
import gzip
import json
import os
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(SOURCE, "build", "coverage")
MODULES = ["src/file", "src/text"]
TESTS = "^(file|text|fuzz|model|measure|engine|convert|golden/files)"
SLOW = "^text/vectors"  # many minutes with counters, for lines that the others run too
MIN_SHARE = 92.0


def run(*args, **more):
    return subprocess.run(args, check=True, cwd=SOURCE, **more)


def build_and_test():
    run("cmake", "-S", SOURCE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DHEARTH_BENCH=OFF",
        "-DCMAKE_C_FLAGS=--coverage -fprofile-update=atomic", "--log-level=WARNING")
    run("cmake", "--build", BUILD, "-j", os.environ.get("JOBS", "2"), stdout=subprocess.DEVNULL)
    for folder, _, names in os.walk(BUILD):
        for name in names:
            if name.endswith(".gcda"):
                os.remove(os.path.join(folder, name))
    run("ctest", "--test-dir", BUILD, "-R", TESTS, "-E", SLOW, "-j", os.environ.get("JOBS", "2"), "--output-on-failure")


def counts():
    """{source: {line: times}} of the sources of the rooms, over all objects."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    for folder, _, names in os.walk(os.path.join(BUILD, "CMakeFiles", "hearth_objects.dir", "src")):
        for name in names:
            if not name.endswith(".gcno"):
                continue
            done = run("gcov", "--json-format", "--stdout", os.path.join(folder, name), stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL)
            data = done.stdout if done.stdout[:2] != b"\x1f\x8b" else gzip.decompress(done.stdout)
            for line in data.splitlines():
                for file in json.loads(line)["files"]:
                    path = os.path.relpath(os.path.join(SOURCE, file["file"]), SOURCE)
                    if os.path.dirname(path) in MODULES:
                        for one in file["lines"]:
                            lines[path][one["line_number"]] += one["count"]
    return lines


def blocks(missed):
    """[3, 4, 9] as '3-4, 9'"""
    runs = []
    for n in missed:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in runs)


def report(show_lines):
    found, low = counts(), False
    for module in MODULES:
        n_line = n_run = 0
        for path in sorted(p for p in found if os.path.dirname(p) == module):
            missed = sorted(n for n, times in found[path].items() if times == 0)
            n, ran = len(found[path]), len(found[path]) - len(missed)
            n_line, n_run = n_line + n, n_run + ran
            print("%5.1f %%  %4d of %4d  %s" % (100.0 * ran / n, ran, n, path))
            if show_lines and missed:
                print("            not run: " + blocks(missed))
        share = 100.0 * n_run / n_line
        low = low or share < MIN_SHARE
        print("%5.1f %%  %4d of %4d  %s together\n" % (share, n_run, n_line, module))
    return 1 if low else 0


def main(args):
    if "--report-only" not in args:
        build_and_test()
    return 0 if "--build-only" in args else report("--lines" in args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
