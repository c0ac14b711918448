"""Seeded texts for the page's markdown, where there is node. Called by CTest with the folder of the sources."""

import os
import shutil
import subprocess
import sys

SOURCE = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import cases  # noqa: E402: the path is set above

SCRIPT, PAGE = os.path.join(SOURCE, "tests", "fuzz", "fuzz_markdown.mjs"), os.path.join(SOURCE, "apps", "serve", "page")


@cases.case
def any_text_becomes_known_elements_in_time():
    node = shutil.which("node")
    if not node:
        raise cases.Skip("there is no node (Debian: nodejs)")
    seed, count = (os.urandom(3).hex(), "20000") if os.environ.get("HEARTH_LONG") else ("20261129", "1500")
    done = subprocess.run([node, SCRIPT, PAGE, str(int(seed, 16)), count], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout, end="")


if __name__ == "__main__":
    cases.run_cases(__file__)
