"""The summary at the end of `make test`.

    python3 tests/report.py FOLDER...

Each folder holds cases.tsv (one line per case: ok|FAIL|skip, file, name, reason, seconds of CPU
time; written by test.c and cases.py, without the seconds by suite.sh) and ctest.xml. A program that failed without naming a failed case
(it crashed, timed out or was not built) counts as one failed case. A part of the machine
that is missing counts as one skip, however many cases need it. The last line is
"N passed, N failed" (", N skipped (N cases)"); exit status 1 when one failed or none ran.
Before it stand the cases that took most CPU time.
"""

import collections
import os
import sys
import xml.etree.ElementTree as xml

Case = collections.namedtuple("Case", "verdict file name reason seconds", defaults=["0"])
N_SLOWEST = 20


def read_cases(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as f:
        rows = [line.rstrip("\n").split("\t", 4) for line in f]
    return [Case(*row) for row in rows if len(row) >= 4]


def read_silent_failures(path):
    """Programs that failed, by CTest, without a line that begins with FAIL."""
    if not os.path.exists(path):
        return []
    found = []
    for test in xml.parse(path).getroot().iter("testcase"):
        failure, skipped = test.find("failure"), test.find("skipped")
        # A program that is not there is "notrun", as is one that skipped itself.
        missing = test.get("status") == "notrun" and not skipped.get("message", "").startswith("SKIP_")
        if failure is None and not missing and test.get("status") != "fail":
            continue
        output = test.findtext("system-out") or ""
        if not any(line.startswith("FAIL ") for line in output.splitlines()):
            found.append(Case("FAIL", "ctest", test.get("name"), "crashed, timed out or did not start"))
    return found


def skip_reasons(cases):
    return collections.Counter(case.reason for case in cases if case.verdict == "skip")


def print_slowest(times):
    """times: (seconds, folder, case)"""
    print(f"{sum(seconds for seconds, _, _ in times):.0f} s of CPU time in all cases; most of it in:")
    for seconds, folder, case in sorted(times, reverse=True)[:N_SLOWEST]:
        print(f"  {seconds:6.1f} s  {folder}  {case.file} {case.name}")


def main(folders):
    total, skips, times = collections.Counter(), collections.Counter(), []
    for folder in folders:
        cases = read_cases(os.path.join(folder, "cases.tsv"))
        cases += read_silent_failures(os.path.join(folder, "ctest.xml"))
        counts = collections.Counter(case.verdict for case in cases)
        total += counts
        times += [(float(case.seconds), folder, case) for case in cases]
        print(f"{folder}: {counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
        if not cases:
            print(f"  FAILED: nothing ran in {folder}")
            total["FAIL"] += 1
        for case in cases:
            if case.verdict == "FAIL":
                print(f"  FAILED {case.file} {case.name} {case.reason}".rstrip())
        for reason, n in sorted(skip_reasons(cases).items(), key=lambda item: (-item[1], item[0])):
            print(f"  skipped {n}: {reason}")
        skips += skip_reasons(cases)
    print_slowest(times)
    skipped = f", {len(skips)} skipped ({total['skip']} cases)" if skips else ""
    print(f"{total['ok']} passed, {total['FAIL']} failed{skipped}")
    return 1 if total["FAIL"] or not total["ok"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
