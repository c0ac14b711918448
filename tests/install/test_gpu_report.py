"""bench/gpu.sh with tiny models on the null device: its parts end well, and the report has what they found. A part with
a mixture of experts takes a minute: HEARTH_LONG has it.

    test_gpu_report.py SOURCE_DIR BUILD_DIR
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, BUILD = (os.path.abspath(folder) for folder in sys.argv[1:3])


def report_of(*parts, **more):
    """The report of these parts, and the exit status."""
    for needed in ("hearth", os.path.join("data", "golden")):
        if not os.path.exists(os.path.join(BUILD, needed)):
            raise Skip(f"no {needed} in the build folder")
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as folder:
        environment = {**os.environ, "HEARTH": os.path.join(BUILD, "hearth"), "DATA": os.path.join(BUILD, "data"),
                       "SIZE": "small", "SECONDS_ALL": "400", **more}
        done = subprocess.run(["sh", os.path.join(SOURCE, "bench", "gpu.sh"), "null", folder, *parts], env=environment,
                              capture_output=True, text=True, timeout=580)
        with open(os.path.join(folder, "report.txt"), encoding="utf-8") as f:
            return f.read(), done.returncode


@case
def the_report_has_bits_and_a_divided_model():
    report, status = report_of("bits", "divided", "memory")
    assert status == 0 and "FAILED" not in report and "DIFFERENT" not in report, report
    assert "mixture-Q4_K_M: equal, strict" in report and "synthetic 15M Q4_0, divided: equal, strict" in report, report
    assert "even " in report and " of their neurons" in report, report


@case
def a_part_that_cannot_run_is_told():
    report, status = report_of("peers", PEERS="")
    assert status == 1 and "FAILED: PEERS is not set" in report, report


@case
def the_report_has_a_mixture_and_its_experts():
    if not os.environ.get("HEARTH_LONG"):
        raise Skip("takes a minute: with HEARTH_LONG only")
    report, status = report_of("experts")
    assert status == 0 and "divided: equal, strict" in report, report
    assert "the plan expects" in report and "% of the chosen experts on the device" in report, report


if __name__ == "__main__":
    run_cases(__file__)
