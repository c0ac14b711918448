"""The report behind `make test` counts what ran, and nothing that failed is lost: not a
program that crashed, nor one that is not there. CTest itself writes what is read here.

    test_report.py SOURCE_DIR
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import case, run_cases  # noqa: E402

REPORT = os.path.join(sys.argv[1], "tests", "report.py")


def report_on(cases, commands=()):
    """The report over these lines of cases.tsv and these CTest commands: (status, lines)."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "cases.tsv"), "w", encoding="utf-8") as f:
            f.writelines("\t".join(row) + "\n" for row in cases)
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
            for i, command in enumerate(commands):
                f.write(f'add_test(t{i} {command})\nset_tests_properties(t{i} PROPERTIES SKIP_RETURN_CODE 77)\n')
        subprocess.run(["ctest", "--test-dir", folder, "--output-junit", os.path.join(folder, "ctest.xml")],
                       capture_output=True, check=False)
        done = subprocess.run([sys.executable, REPORT, folder], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()


GOOD = ("ok", "test_a.c", "adds", "")


@case
def report_counts_cases():
    skips = [("skip", "test_a.c", "reads", "no card"), ("skip", "test_b.c", "x", "no card"), ("skip", "test_b.c", "y", "one core")]
    status, lines = report_on([GOOD, *skips])
    assert status == 0 and lines[-1] == "1 passed, 0 failed, 2 skipped (3 cases)", lines
    assert "  skipped 2: no card" in lines and "  skipped 1: one core" in lines


@case
def report_without_skips_is_short():
    status, lines = report_on([GOOD, GOOD])
    assert status == 0 and lines[-1] == "2 passed, 0 failed", lines


@case
def report_names_the_slowest_cases():
    rows = [("ok", "test_a.c", f"case{i}", "", f"{i / 2:.2f}") for i in range(25)]
    status, lines = report_on([GOOD, *rows])
    at = lines.index("150 s of CPU time in all cases; most of it in:")
    assert status == 0 and lines[at + 1].split() == ["12.0", "s", lines[at + 1].split()[2], "test_a.c", "case24"], lines
    assert len(lines) == at + 22 and lines[-2].split()[0] == "2.5", lines


@case
def report_fails_with_a_failed_case():
    status, lines = report_on([GOOD, ("FAIL", "test_a.c", "subtracts", "")], ['sh "-c" "echo FAIL test_a.c; exit 1"'])
    assert status == 1 and lines[-1] == "1 passed, 1 failed", lines
    assert "  FAILED test_a.c subtracts" in lines


@case
def report_counts_programs_that_died():
    status, lines = report_on([GOOD], ['sh "-c" "kill -SEGV $$"', '/nowhere/program', 'sh "-c" "exit 0"'])
    assert status == 1 and lines[-1] == "1 passed, 2 failed", lines


@case
def report_does_not_count_skipped_programs():
    status, lines = report_on([GOOD], ['sh "-c" "exit 77"'])
    assert status == 0 and lines[-1] == "1 passed, 0 failed", lines


@case
def report_fails_when_nothing_ran():
    status, lines = report_on([])
    assert status == 1 and lines[-1] == "0 passed, 1 failed", lines


if __name__ == "__main__":
    run_cases(__file__)
