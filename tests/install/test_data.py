"""The test data of the repository: each file is named by a test, none is large, and what is made can be made.

    test_data.py SOURCE_DIR
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import case, run_cases  # noqa: E402

SOURCE = sys.argv[1]
KEPT, MADE = (os.path.join(SOURCE, folder) for folder in ("tests/data", "build/data"))
MAX_BYTES = 16 << 20


def kept_files():
    """{path below tests/data: bytes}, scripts and descriptions left out"""
    found = {}
    for parent, folders, names in os.walk(KEPT):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(parent, name)
            if not name.endswith((".py", ".md")):
                found[os.path.relpath(path, KEPT)] = os.path.getsize(path)
    return found


def test_sources():
    """The texts of all tests."""
    top = os.path.join(SOURCE, "tests")
    for parent, _, names in os.walk(top):
        if os.path.relpath(parent, top).split(os.sep)[0] == "data":
            continue
        for name in names:
            if name.endswith((".c", ".h", ".py")):
                with open(os.path.join(parent, name), encoding="utf-8") as f:
                    yield f.read()


def patterns(text):
    """The paths of data in a source: literals whose first part is a folder; %s and its like stand for anything."""
    for literal in re.findall(r'"([a-z]+/[^"\\]*)"', text):
        parts = re.split(r"%[-.*0-9]*[a-z]", literal)
        yield re.compile(".+".join(re.escape(part) for part in parts))


def without_a_test(files, texts):
    found = {pattern for text in texts for pattern in patterns(text)}
    return [path for path in files if not any(pattern.fullmatch(path) for pattern in found)]


@case
def every_file_is_named_by_a_test():
    files = ["golden/a.txt", "golden/b-x.txt"]
    assert without_a_test(files, ['open("golden/a.txt")']) == ["golden/b-x.txt"]
    assert without_a_test(files, ['f("golden/%s.txt", x)']) == []
    assert without_a_test(files, ['"b-x.txt" "%s"']) == files
    left = without_a_test(kept_files(), list(test_sources()))
    assert not left, left


@case
def the_repository_stays_small():
    total = sum(kept_files().values())
    assert total <= MAX_BYTES, f"{total} bytes of test data"


@case
def made_data_are_complete():
    with open(os.path.join(MADE, "made.json"), encoding="utf-8") as f:
        sizes = json.load(f)["sizes"]
    wrong = [name for name, size in sizes.items() if os.path.getsize(os.path.join(MADE, name)) != size]
    assert len(sizes) > 100 and not wrong, (len(sizes), wrong)
    assert not set(sizes) & set(kept_files()), "kept and made"


if __name__ == "__main__":
    run_cases(__file__)
