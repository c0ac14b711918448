"""Shows that the short tests find faults: each fault of support/seeded_faults.py is put into the sources, and the case
of a test that it names must fail.

    python3 tests/seeded.py BUILD [NAME...]          (tests/suite.sh seeded)

Builds the programs with their data and runs their cases, which must pass. Then, for each fault or for those whose names
hold a NAME, it writes the fault into the file, builds the one program, runs the one case and writes the file back, also after an
error or Ctrl-C. A fault is found where the case fails, crashes, or hangs: after 20 s and ten times its time without
the fault. A fault that does not compile, or whose old text is not in the file once, is a failure of the list.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "support"))
import cases  # noqa: E402
import seeded_faults  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = os.environ.get("JOBS", "2")
SKIPPED = 77


def target_of(fault):
    return "test_" + fault.test.replace("/", "_")


def build(folder, targets):
    """What the compiler says if it fails, else None."""
    done = subprocess.run(["cmake", "--build", folder, "-j", JOBS, "--target", *targets], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "\n".join(done.stdout.splitlines()[-20:]) if done.returncode else None


def run(folder, fault, timeout):
    """Exit status and seconds; None: it hangs."""
    began = time.monotonic()
    environment = {**os.environ, "HEARTH_TEST_REPORT": "", "HEARTH_CACHE": ""}
    command = [os.path.join(folder, "tests", target_of(fault)), fault.case]
    program = subprocess.Popen(command, cwd=folder, env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        return program.wait(timeout), time.monotonic() - began
    except subprocess.TimeoutExpired:
        return None, time.monotonic() - began
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # and what it has started
        program.wait()


@contextlib.contextmanager
def seeded(fault):
    path = os.path.join(SOURCE, fault.file)
    with open(path, encoding="utf-8") as f:
        original = f.read()
    n = original.count(fault.old)
    assert n == 1, f"{fault.file} has the old text {n} times"
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(original.replace(fault.old, fault.new))
        yield
    finally:
        with open(path, "w", encoding="utf-8") as f:  # its new time has the next build compile it again
            f.write(original)


def lacks_cpu(fault):
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return fault.cpu and f" {fault.cpu} " not in f.read().replace("\n", " ")


def check(folder, fault, before):
    if lacks_cpu(fault):
        raise cases.Skip(f"this CPU has no {fault.cpu}")
    status, seconds = before[fault.test, fault.case]
    if status == SKIPPED:
        raise cases.Skip(f"{fault.test} {fault.case} is skipped on this machine")
    assert status == 0, f"{fault.test} {fault.case} fails without the fault"
    with seeded(fault):
        words = build(folder, [target_of(fault)])
        assert words is None, f"it does not compile:\n{words}"
        status, seconds = run(folder, fault, 20 + 10 * seconds)
    assert status not in (0, SKIPPED), f"MISSED by {fault.test} {fault.case}"
    how = "hangs" if status is None else "crashes" if status < 0 else "fails"
    print(f"{fault.test} {fault.case} {how} after {seconds:.1f} s:", flush=True)


def main(folder, *parts):
    folder = os.path.abspath(folder)
    faults = [fault for fault in seeded_faults.FAULTS if any(part in fault.name for part in parts or [""])]
    assert len({fault.name for fault in faults}) == len(faults), "two faults have one name"
    targets = ["test_data", *sorted({target_of(fault) for fault in faults})]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    words = build(folder, targets)
    if words:
        sys.exit(f"the tests do not build without a fault:\n{words}")
    before = {}
    for fault in faults:
        if (fault.test, fault.case) not in before:
            before[fault.test, fault.case] = run(folder, fault, 1800)

    for fault in faults:
        def found(fault=fault):
            check(folder, fault, before)
        found.__name__ = f"{fault.name} is found"
        cases.case(found)
    try:
        cases.run_cases(__file__)
    finally:
        print("building the programs without faults", flush=True)
        build(folder, targets)


if __name__ == "__main__":
    main(*sys.argv[1:])
