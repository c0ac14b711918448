"""The models and logits in tests/reference/data are what reference.py makes.

    test_again.py SOURCE_DIR
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import case, run_cases  # noqa: E402

HERE = os.path.join(sys.argv[1], "tests", "reference")


@case
def truth_is_what_its_script_makes():
    done = subprocess.run([sys.executable, os.path.join(HERE, "reference.py"), "--check", os.path.join(HERE, "data")],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("11 files compared"), done.stdout


run_cases(__file__)
