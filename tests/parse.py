"""Every C file of a build by another compiler, without code: its warnings are errors.

    python3 tests/parse.py BUILD_DIR COMPILER JOBS

The flags are those of compile_commands.json. A compiler's warnings come from parsing but for a few, which
`make test-long` has: it builds and tests with Clang. Exit status 1 when a file has a warning.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def command_of(entry, compiler):
    """The arguments of GCC as Clang takes them, without what compiles."""
    flags, skips = [], 0
    for flag in shlex.split(entry["command"]):
        if skips or flag == "-c":
            skips = 0
        elif flag == "-o":
            skips = 1
        else:
            flags.append(flag)
    first = next(i for i, flag in enumerate(flags) if flag.startswith("-"))  # behind the compiler and what launches it
    return [compiler, *flags[first:], "-fsyntax-only", "-Werror", "-Qunused-arguments", "-Wno-unknown-warning-option"]


def main(build, compiler, jobs):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)

    def parse(entry):
        return subprocess.run(command_of(entry, compiler), cwd=entry["directory"], capture_output=True, text=True)

    bad = subprocess.run([compiler, "-Wall", "-Werror", "-fsyntax-only", "-xc", "-"], input="static int unused;\n",
                         capture_output=True, text=True)
    assert "unused" in bad.stderr and bad.returncode != 0, f"{compiler} finds nothing: {bad.stderr}"
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        failed = [done.stderr for done in pool.map(parse, entries) if done.returncode != 0]
    print("".join(failed) + f"{len(entries)} files, {len(failed)} with warnings")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
