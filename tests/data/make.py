#!/usr/bin/env python3
"""Makes the test data that are not in the repository: random models of every kind and what they compute.

usage: make.py DIRECTORY     writes what is missing or older than these scripts (the build's is build/data)
       make.py --reference   measures the trained models in double precision: writes golden.json beside this script
                             and prints the table of perplexities in README.md; takes seven minutes with OpenBLAS,
                             an hour without

Everything comes from fixed seeds and the embedded model. Logits are float32 [tokens, vocabulary], computed in float64
and rounded once. The last bit of a logit may depend on numpy's library of matrix products.
"""
import fcntl
import hashlib
import importlib.util
import json
import os
import sys

# The same sums in every build, and no more threads than a job of the build is given.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
sys.dont_write_bytecode = True

if importlib.util.find_spec("numpy") is None:
    sys.exit(f"make.py: this Python, {sys.executable}, has no numpy; Debian's package python3-numpy is for /usr/bin/python3")

HERE = os.path.dirname(os.path.abspath(__file__))
STAMP = "made.json"


class Folder:
    """Files below a folder, each replaced at once: tests of another build may be reading them."""

    def __init__(self, root):
        self.root, self.sizes = root, {}

    def write(self, name, raw):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "wb") as f:
            f.write(raw)
        os.replace(path + ".new", path)
        self.sizes[name] = len(raw)

    def write_ids(self, name, ids):
        self.write(name, (" ".join(map(str, ids)) + "\n").encode())

    def write_floats(self, name, values):
        self.write(name, values.astype("<f4").tobytes())


def digest_of_sources():
    """Of all that the files depend on."""
    digest = hashlib.sha256()
    scripts = sorted(name for name in os.listdir(HERE) if name.endswith(".py"))
    texts = ["../../models/storyteller-q8_0.gguf", "text/english.txt", "tokenizers/sample.txt", "tokenizers/texts.jsonl",
             "tokenizers/pretok/texts.jsonl", "tokenizers/pretok/regexes.tsv", "../../src/kernels/quant/grids.c"]
    for path in [os.path.join(HERE, name) for name in scripts + texts]:
        with open(path, "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()


def is_made(root, digest):
    try:
        with open(os.path.join(root, STAMP), encoding="utf-8") as f:
            stamp = json.load(f)
        return stamp["digest"] == digest and all(os.path.getsize(os.path.join(root, name)) == size
                                                 for name, size in stamp["sizes"].items())
    except (OSError, ValueError, KeyError):
        return False


def make(root):
    import arch
    import caller
    import files
    import imatrix
    import powerinfer
    import quant
    import storyteller
    import vocabularies
    os.makedirs(root, exist_ok=True)
    with open(os.path.join(root, ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, digest = os.path.join(root, STAMP), digest_of_sources()
        if is_made(root, digest):
            os.utime(stamp)
            return
        folder = Folder(root)
        for part in (arch, caller, imatrix, quant, files, powerinfer, storyteller, vocabularies):
            part.make(folder)
        folder.write(STAMP, json.dumps({"digest": digest, "sizes": folder.sizes}, indent=0).encode())


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.argv[1] == "--reference":
        import reference
        reference.make()
    else:
        make(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
