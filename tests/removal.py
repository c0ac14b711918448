"""Shows that no test passes without its data: each data file is removed, and a test that reads it must fail.

    python3 tests/removal.py BUILD [PART]          (tests/suite.sh removal)

Every program of the short suite, and the script that makes data, runs once under strace, which notes the files that it
opens; logs of an earlier run are taken again. Then each file of tests/data and build/data, or each whose path holds
PART, is moved away while the fastest programs that opened it run again. A file is a case: it passes where one of
them fails. Files that no program opened fail.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "support"))
import cases  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = [os.path.join(SOURCE, folder) for folder in ("tests/data", "build/data")]
# Sources of the data and descriptions; what CMake reads to know whether the data are old.
NO_DATA = (".py", ".pyc", ".md", "made.json")
# They read the folder itself, whatever lies in it.
READ_ALL = {"install/data", "reference/again"}


def data_files(part):
    found = []
    for folder in FOLDERS:
        for parent, _, names in os.walk(folder):
            found += [os.path.join(parent, name) for name in names if not name.endswith(NO_DATA) and name[0] != "."]
    return sorted(path for path in found if part in path)


def programs(build):
    """{name: command and environment} of the short suite."""
    listed = json.loads(subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-LE", "long"], check=True,
                                       capture_output=True, text=True).stdout)
    python = sys.executable if importlib.util.find_spec("numpy") else "/usr/bin/python3"
    make = [python, os.path.join(SOURCE, "tests", "data", "make.py"), os.path.join(build, "removal", "data")]
    found = {"make.py": (make, dict(os.environ), build)}
    for test in listed["tests"]:
        values = {p["name"]: p["value"] for p in test.get("properties", [])}
        if "command" not in test or test["name"] in READ_ALL or values.get("DISABLED"):
            continue
        environment = dict(item.split("=", 1) for item in values.get("ENVIRONMENT", []))
        found[test["name"]] = (test["command"], {**os.environ, **environment, "HEARTH_CACHE": ""},
                               values.get("WORKING_DIRECTORY", build))
    return found


def run(program, before=()):
    command, environment, folder = program
    return subprocess.run([*before, *command], env={**environment, "HEARTH_TEST_REPORT": ""}, cwd=folder,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=3600).returncode


def readers(build, work):
    """{path: [(seconds, program)]}: who opens what."""
    found = {}
    for name, program in programs(build).items():
        log = os.path.join(work, name.replace("/", "-") + ".opened")
        began = time.monotonic()
        if not os.path.exists(log + ".seconds"):
            status = run(program, ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=open,openat", "-e", "signal=none",
                                   "-o", log])
            if status not in (0, 77):
                print(f"{name} fails with its data, under strace", flush=True)
                continue
            with open(log + ".seconds", "w", encoding="utf-8") as f:
                f.write(str(time.monotonic() - began))
        with open(log + ".seconds", encoding="utf-8") as f:
            seconds = float(f.read())
        with open(log, encoding="utf-8", errors="replace") as f:
            opened = {os.path.normpath(os.path.join(program[2], path))
                      for path in re.findall(r'open(?:at)?\([^"]*"([^"]+)"[^)]*\) = \d', f.read())}
        for path in opened:
            found.setdefault(path, []).append((seconds, name, program))
    return found


def check(path, found):
    assert path in found, "no test opens it"
    away = path + ".removed"
    os.rename(path, away)
    try:
        for _, name, program in sorted(found[path], key=lambda reader: reader[0])[:4]:
            if run(program) not in (0, 77):
                return name
    finally:
        os.rename(away, path)
    raise AssertionError("its tests pass without it")


def main(build, part=""):
    build = os.path.abspath(build)
    work = os.path.join(build, "removal")
    os.makedirs(work, exist_ok=True)
    found = readers(build, work)
    for path in data_files(part):
        def removed(path=path):
            check(path, found)
        removed.__name__ = os.path.relpath(path, SOURCE) + " is missed"
        cases.case(removed)
    cases.run_cases(__file__)


if __name__ == "__main__":
    main(*sys.argv[1:])
