#!/usr/bin/env python3
"""Our quantize against llama-quantize: the type of each tensor, the error of each tensor,
and the perplexity of both files, measured by us.

usage: quantize.py HEARTH LLAMA_QUANTIZE MODEL_F32 TEXT N_CTX [--imatrix FILE] [TYPE...]

Prints a Markdown table. Needs python3-numpy. Exit status 1 when a target is missed: perplexity at most
1.005 times, error of each tensor at most 1.02 times theirs. With an importance matrix both quantise by it, errors are
weighted by it, and the divergence (KL) from MODEL_F32 replaces the perplexity: at most 1.1 times theirs; and errors at
most 1.05 times.
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

TYPES = ("F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S IQ4_NL IQ4_XS Q4_1 Q4_0 Q3_K_L Q3_K_M Q3_K_S IQ3_M "
         "IQ3_S Q2_K TQ2_0 TQ1_0 MXFP4_MOE").split()
WEIGHTED = "IQ3_XS IQ3_XXS Q2_K_S IQ2_M IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S".split()  # need an importance matrix


def weights_of(path):
    """{name of a tensor: weights of its columns}"""
    file = gguf.read(path)
    names = [name[:-len(".in_sum2")] for name in file.tensors if name.endswith(".in_sum2")]
    return {name: np.maximum(file.get(name + ".in_sum2").astype(np.float64), 1e-30) for name in names}


def compare(source, mine, theirs, weights):
    """(tensors of another type, largest ratio of errors, its tensor, whole error ratio)."""
    other, worst, where, sums = 0, 0.0, "", np.zeros(2)
    for name, tensor in mine.tensors.items():
        if theirs.tensors[name].type != tensor.type:
            other += 1
            continue
        if source.tensors[name].type == tensor.type:
            continue
        truth = source.get(name).astype(np.float64)
        weight = weights.get(name, np.ones(1))
        weight = weight / weight.mean(axis=-1, keepdims=True)  # of each expert by itself, as quantize does
        if truth.ndim == 3 and weight.ndim == 2:
            weight = weight[:, None, :]
        errors = [np.sqrt(np.mean(weight * (file.get(name) - truth) ** 2)) for file in (mine, theirs)]
        sums += [e * e * truth.size for e in errors]
        if errors[1] > 0 and errors[0] / errors[1] > worst:
            worst, where = errors[0] / errors[1], name
    return other, worst, where, float(np.sqrt(sums[0] / sums[1])) if sums[1] > 0 else 1.0


def perplexity(hearth, path, text, n_ctx):
    done = subprocess.run([hearth, "perplexity", path, "-f", text, "-c", n_ctx, "--kv", "f32", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["perplexity"]


def divergence(hearth, path, model, text, n_ctx):
    done = subprocess.run([hearth, "compare", path, "--against", model, "-f", text, "-c", n_ctx, "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["kl_mean"]


def main():
    matrix = []
    if "--imatrix" in sys.argv:
        at = sys.argv.index("--imatrix")
        matrix = sys.argv[at:at + 2]
        del sys.argv[at:at + 2]
    if len(sys.argv) < 6 or len(matrix) == 1:
        print(__doc__, file=sys.stderr)
        return 2
    hearth, llama, model, text, n_ctx = sys.argv[1:6]
    source, missed = gguf.read(model), 0
    weights, worst_allowed, most = (weights_of(matrix[1]), 1.05, 1.1) if matrix else ({}, 1.02, 1.005)
    print("| type | MB | other types | worst tensor | all tensors | %s | theirs | ratio |" % ("KL" if matrix else "perplexity"))
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        mine, theirs = os.path.join(folder, "mine.gguf"), os.path.join(folder, "theirs.gguf")
        for kind in sys.argv[6:] or TYPES + (WEIGHTED if matrix else []):
            subprocess.run([hearth, "quantize", model, mine, kind, *matrix], check=True, capture_output=True)
            subprocess.run([llama, *matrix, model, theirs, kind], check=True, capture_output=True)
            other, worst, where, whole = compare(source, gguf.read(mine), gguf.read(theirs), weights)
            ours, peer = (divergence(hearth, p, model, text, n_ctx) if matrix else perplexity(hearth, p, text, n_ctx)
                          for p in (mine, theirs))
            bad = ours > most * peer or worst > worst_allowed or other
            missed += bool(bad)
            print("| %s | %.1f | %d | %.4f %s | %.4f | %.5f | %.5f | %.4f%s |" %
                  (kind, os.path.getsize(mine) / 1e6, other, worst, where, whole, ours, peer, ours / peer,
                   " **missed**" if bad else ""), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
