"""How tests/peers/peers.py gets llama.cpp, by commands that stand in for npm, tar and git: of the package that is
meant, and whole, whenever it was stopped before.

    test_fetch.py SOURCE_DIR
"""

import hashlib
import os
import sys
import tempfile

SOURCE = sys.argv[1]
sys.path[:0] = [os.path.join(SOURCE, "tests", name) for name in ("support", "peers")]
sys.argv[1:] = ["build", "work", "1"]
import peers  # noqa: E402: it reads the arguments
from cases import case, run_cases  # noqa: E402

ARCHIVE = b"the package"
HEADER = "ggml/src/ggml-cpu/vec.h"
MODELS = "tests/test-llama-archs.cpp"
COMMANDS = {"npm": f"printf '{ARCHIVE.decode()}' >a.tgz; echo a.tgz", "tar": "true",
            "git": f'mkdir -p "$4/{HEADER[:-6]}" "$4/tests"; printf "#define GGML_GELU_FP16\\nint x;\\n" >"$4/{HEADER}"; '
                   f'printf "LLM_KV_EXPERT_COUNT, uint32_t(2)\\n" >"$4/{MODELS}"'}

MENDED = ["int x;\n", "LLM_KV_EXPERT_COUNT, uint32_t(8)\n"]


def fetch(sha512, **commands):
    """Fetches into a folder of its own, then again without faults: what failed the first time, and both mended files."""
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as folder:
        os.environ["PATH"], path = f"{folder}/bin:{os.environ['PATH']}", os.environ["PATH"]
        os.mkdir(f"{folder}/bin")
        peers.work, peers.source, failures = folder, f"{folder}/llama.cpp", []
        for faults, peers.SHA512 in (commands, sha512), ({}, hashlib.sha512(ARCHIVE).hexdigest()):
            for name, body in {**COMMANDS, "sed": 'exec /bin/sed "$@"', **faults}.items():
                with open(f"{folder}/bin/{name}", "w", encoding="utf-8") as f:
                    f.write(f"#!/bin/sh\n{body}\n")
                os.chmod(f.name, 0o755)
            try:
                peers.fetch()
            except AssertionError as e:
                failures.append(str(e))
        os.environ["PATH"] = path
        texts = []
        for name in HEADER, MODELS:
            with open(f"{peers.source}/{name}", encoding="utf-8") as f:
                texts.append(f.read())
        return failures, texts


@case
def another_package_is_refused():
    failures, texts = fetch("0" * 128)
    assert len(failures) == 1 and "a.tgz: its SHA-512 is" in failures[0], failures
    assert texts == MENDED, texts


@case
def a_fetch_that_was_stopped_is_repeated():
    failures, texts = fetch(hashlib.sha512(ARCHIVE).hexdigest(), sed="exit 1")
    assert len(failures) == 1 and texts == MENDED, (failures, texts)


if __name__ == "__main__":
    run_cases(__file__)
