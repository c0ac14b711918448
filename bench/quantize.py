#!/usr/bin/env python3
"""Our quantize against llama-quantize: the type of each tensor, the error of each tensor,
and the perplexity of both files, measured by us.

usage: quantize.py HEARTH LLAMA_QUANTIZE MODEL_F32 TEXT N_CTX [TYPE...]

Prints a Markdown table. Needs python3-numpy. Exit status 1 when a target is missed: perplexity at most
1.005 times, error of each tensor at most 1.02 times theirs.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data"))
import gguf  # noqa: E402

TYPES = ("F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S IQ4_NL Q4_1 Q4_0 Q3_K_L Q3_K_M Q3_K_S "
         "Q2_K").split()


def compare(source, mine, theirs):
    """(tensors of another type, largest ratio of errors, its tensor, whole error ratio)."""
    other, worst, where, sums = 0, 0.0, "", np.zeros(2)
    for name, tensor in mine.tensors.items():
        if theirs.tensors[name].type != tensor.type:
            other += 1
            continue
        if source.tensors[name].type == tensor.type:
            continue
        truth = source.get(name).astype(np.float64)
        errors = [np.sqrt(np.mean((file.get(name) - truth) ** 2)) for file in (mine, theirs)]
        sums += [e * e * truth.size for e in errors]
        if errors[1] > 0 and errors[0] / errors[1] > worst:
            worst, where = errors[0] / errors[1], name
    return other, worst, where, float(np.sqrt(sums[0] / sums[1])) if sums[1] > 0 else 1.0


def perplexity(hearth, path, text, n_ctx):
    done = subprocess.run([hearth, "perplexity", path, "-f", text, "-c", n_ctx, "--kv", "f32", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["perplexity"]


def main():
    if len(sys.argv) < 6:
        print(__doc__, file=sys.stderr)
        return 2
    hearth, llama, model, text, n_ctx = sys.argv[1:6]
    source, missed = gguf.read(model), 0
    print("| type | MB | other types | worst tensor | all tensors | perplexity | theirs | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        mine, theirs = os.path.join(folder, "mine.gguf"), os.path.join(folder, "theirs.gguf")
        for kind in sys.argv[6:] or TYPES:
            subprocess.run([hearth, "quantize", model, mine, kind], check=True, capture_output=True)
            subprocess.run([llama, model, theirs, kind], check=True, capture_output=True)
            other, worst, where, whole = compare(source, gguf.read(mine), gguf.read(theirs))
            ours, peer = (perplexity(hearth, p, text, n_ctx) for p in (mine, theirs))
            bad = ours > 1.005 * peer or worst > 1.02 or other
            missed += bool(bad)
            print("| %s | %.1f | %d | %.4f %s | %.4f | %.4f | %.4f | %.4f%s |" %
                  (kind, os.path.getsize(mine) / 1e6, other, worst, where, whole, ours, peer, ours / peer,
                   " **missed**" if bad else ""), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
