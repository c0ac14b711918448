"""hearth imatrix on the command line: what it writes, combines and refuses. Called by CTest with the program's path.
Python 3, standard library only."""

import json
import os
import re
import struct

from program import cases, case, check, good, bad, scratch, data

MIXTURE = "golden/arch/mixtral.gguf"


def letters(n):
    return bytes(65 + i * i % 26 for i in range(n))


def computed(name, *args):
    """A matrix of a text of capital letters."""
    path, out = scratch("text.txt", letters(140)), scratch(name)
    done = good("imatrix", data(MIXTURE), "-f", path, "-o", out, "-c", "32", *args)
    return out, done.stdout.decode()


def content(path):
    with open(path, "rb") as f:
        return f.read()


@case
def imatrix_says_what_it_wrote():
    out, said = computed("a.imatrix")
    check(said == f"{out}: 14 tensors, 4 chunks of 32 tokens\n", said)
    out, said = computed("b.imatrix", "--process-output", "--chunks", "2", "--from-chunk", "1")
    check(said == f"{out}: 15 tensors, 2 chunks of 32 tokens\n", said)
    check(b"output.weight.in_sum2" in content(out) and b"text.txt" in content(out), "not in the file")
    shown = good("inspect", out).stdout
    check(b"imatrix" in shown, shown)


@case
def imatrix_of_any_threads_and_batch_is_the_same():
    one, _ = computed("a.imatrix", "-t", "1", "--batch", "3")
    other, _ = computed("b.imatrix", "-t", "3", "--batch", "32")
    check(content(one) == content(other), "other bytes")


@case
def imatrices_combine():
    whole, _ = computed("whole", "--chunks", "3")
    first, _ = computed("first", "--chunks", "2")
    last, said = computed("last", "--chunks", "1", "--from-chunk", "2", "--in-file", first)
    check("3 chunks of 32" in said, said)
    # The sums in the file of the first run are rounded to F32.
    sums = [struct.unpack("<500f", content(path)[-2000:]) for path in (whole, last)]
    check(all(abs(a - b) <= 3e-7 * a for a, b in zip(*sums)), "a run that goes on has other sums")
    out = scratch("combined")
    said = good("imatrix", "--in-file", first, "--in-file", whole, "-o", out).stdout.decode()
    check(said == f"{out}: 14 tensors, 5 chunks of 32 tokens\n", said)


@case
def matrices_of_other_tensors_are_mentioned():
    layers, _ = computed("layers")
    output, _ = computed("output", "--process-output")
    for files, warning in (((layers, layers), b""), ((layers, output), b"only here is a tensor 'output.weight'"),
                           ((output, layers), b"has no tensor 'output.weight', which those before have")):
        done = good("imatrix", "--in-file", files[0], "--in-file", files[1], "-o", scratch("both"), "--force")
        check(warning in done.stderr and (done.stderr != b"") == (warning != b""), files, done.stderr)


@case
def experts_without_a_token_are_mentioned():
    path, out = scratch("text.txt", b"A" * 40), scratch("a.imatrix")
    done = good("imatrix", data(MIXTURE), "-f", path, "-o", out, "-c", "16", "--chunks", "1")
    check(b"matrices of experts had no token, first in blk.0.ffn_down_exps.weight" in done.stderr, done.stderr)


@case
def imatrix_refuses_what_it_cannot_do():
    text, out, model = scratch("text.txt", letters(100)), scratch("a.imatrix"), data(MIXTURE)
    matrix, _ = computed("m.imatrix")
    other = scratch("other.imatrix")
    good("imatrix", data("golden/arch/llama-gqa.gguf"), "-f", text, "-o", other, "-c", "32")
    bad(2, "needs -o", "imatrix", model, "-f", text)
    bad(2, "needs -f FILE, or matrices", "imatrix", model, "-o", out)
    bad(2, "needs the model", "imatrix", "-f", text, "-o", out)
    bad(2, "needs -f FILE", "imatrix", model, "--in-file", matrix, "-o", out)
    bad(2, "is read and written", "imatrix", "--in-file", matrix, "-o", matrix)
    bad(2, "is read and written", "imatrix", model, "-f", text, "-o", text)
    bad(2, "--selector gate", "imatrix", model, "-f", text, "-o", out, "--selector", "gate")
    bad(1, "chunks of 32 tokens; the first 9", "imatrix", model, "-f", text, "-o", out, "-c", "32", "--from-chunk", "9")
    bad(1, "is no importance matrix", "imatrix", "--in-file", model, "-o", out)
    bad(1, "neither GGUF nor an importance matrix", "imatrix", "--in-file", text, "-o", out)
    line = bad(1, "of another model", "imatrix", model, "-f", text, "-o", out, "-c", "32", "--in-file", other)
    check("other.imatrix: tensor 'blk.0.ffn_down.weight' is not in" in line, line)
    deep = scratch("deep.imatrix")
    good("imatrix", data("golden/arch/qwen2moe.gguf"), "-f", text, "-o", deep, "-c", "32")
    line = bad(1, "of another model", "imatrix", "--in-file", matrix, "--in-file", deep, "-o", out)
    check("deep.imatrix: tensor 'blk." in line, line)
    check(not os.path.exists(out), "something was written")


@case
def quantize_rounds_by_importance():
    model, text = data(MIXTURE), scratch("text.txt", letters(140))
    matrix, _ = computed("m.imatrix")
    plain, made = scratch("plain.gguf"), scratch("made.gguf")
    good("quantize", model, plain, "q4_0")
    said = good("quantize", model, made, "q4_0", "--imatrix", matrix).stdout.decode()
    check(re.search(r": \d+ tensors, \d+ changed, \d+ of them by importance; ", said), said)
    check(content(plain) != content(made), "importance made no difference")
    shown = good("inspect", made).stdout.decode()
    check("quantize.imatrix.file" in shown and "text.txt" in shown, shown)
    good("perplexity", made, "-f", text, "-c", "32")


@case
def quantize_writes_grid_types_by_importance():
    model, text, matrix = data("golden/quant/llama-IQ4_XS.gguf"), scratch("text.txt", letters(140)), scratch("w.imatrix")
    made, again = scratch("made.gguf"), scratch("again.gguf")
    good("imatrix", model, "-f", text, "-o", matrix, "-c", "32")
    for kind in ("iq3_m", "iq3_s", "iq3_xs", "iq3_xxs", "iq2_m", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s"):
        good("quantize", model, made, kind, "--imatrix", matrix, "-t", "1")
        good("quantize", model, again, kind, "--imatrix", matrix, "-t", "3")
        check(content(made) == content(again), kind, "other bytes with other threads")
        types = {t["type"] for t in json.loads(good("inspect", made, "--json", "--all").stdout)["tensors"]}
        check(any(t.startswith(kind[:3].upper()) for t in types), kind, types)
        good("perplexity", made, "-f", text, "-c", "32")
        if kind in ("iq3_m", "iq3_s"):
            good("quantize", model, made, kind)
        else:
            line = bad(1, "needs an importance matrix", "quantize", model, again, kind)
            check("tensor 'blk.0." in line and "--imatrix" in line, line)
    bad(1, "IQ2_XS: this type needs an importance matrix: hearth quantize takes one", "pack", model, "-o", scratch("p.gguf"),
        "--type", "iq2_xs")


@case
def quantize_refuses_importance_that_does_not_fit():
    model, out, matrix = data(MIXTURE), scratch("made.gguf"), scratch("m.imatrix")
    text = scratch("text.txt", letters(140))
    good("imatrix", data("golden/arch/llama-gqa.gguf"), "-f", text, "-o", matrix, "-c", "32")
    line = bad(1, "of another model", "quantize", model, out, "q4_0", "--imatrix", matrix)
    check("m.imatrix: tensor 'blk.0." in line, line)
    bad(1, "neither GGUF nor an importance matrix", "quantize", model, out, "q4_0", "--imatrix", text)
    bad(1, "is no importance matrix", "quantize", model, out, "q4_0", "--imatrix", model)
    bad(2, "is read and written", "quantize", model, matrix, "q4_0", "--imatrix", matrix)
    check(not os.path.exists(out), "something was written")


@case
def imatrix_replaces_its_own_files_only():
    text, model = scratch("text.txt", letters(100)), data(MIXTURE)
    matrix, _ = computed("m.imatrix")
    good("imatrix", model, "-f", text, "-o", matrix, "-c", "32")
    bad(2, "is not an importance matrix", "imatrix", model, "-f", matrix, "-o", text, "-c", "32")
    made = scratch("made.gguf")
    good("quantize", model, made, "f16")
    bad(2, "is not an importance matrix", "imatrix", model, "-f", text, "-o", made, "-c", "32")
    bad(2, "is not a model", "quantize", model, matrix, "f16")
    good("imatrix", model, "-f", text, "-o", made, "-c", "32", "--force")


if __name__ == "__main__":
    cases.run_cases(__file__)
