"""golden/imatrix: importance matrices of some models of golden/arch, in double precision, rounded once to F32; and one of
these models with gate and up of its experts in one tensor.

NAME.txt is of capital letters, each of which is the token of its byte in all vocabularies of these models; NAME.ids are its
tokens, with those that begin a text. The matrices are of chunks of CHUNK tokens, an incomplete last one left out.
"""
import numpy as np

import arch
import gguf
import vocabulary
from forward import Model

CHUNK, N_CHUNK = 24, 3
# Of experts, shared and grouped ones, joined tensors, latent attention and recurrent layers.
NAMES = ("llama-gqa", "falcon", "mixtral", "qwen35moe", "qwen3next", "lfm2moe", "deepseek2", "bailingmoe2", "gpt-oss")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def tokens_of(file, text):
    """By the rules of vocabulary.py's vocabularies, for capital letters."""
    if file.meta("tokenizer.ggml.model") == "llama":
        return [1, 3 + 256] + [3 + ord(letter) for letter in text]
    bos = [vocabulary.N_VOCAB - 4] if file.meta("tokenizer.ggml.add_bos_token") else []
    return bos + [ord(letter) for letter in text]


def chunks_of(file, ids):
    bos = ids[:1] if file.meta("tokenizer.ggml.add_bos_token") else []
    for first in range(0, CHUNK * N_CHUNK, CHUNK):
        yield bos + ids[first + len(bos):first + CHUNK]


def undecided(model, i_chunk, margin):
    """The first token of the text at which a router is nearly undecided; None: there is none."""
    found = np.flatnonzero(np.min(model.margins, axis=0) < margin) if model.margins else []
    return CHUNK * i_chunk + found[0] if len(found) else None


def settled(m):
    """-> text, ids, squares; letters at which a router is nearly undecided are replaced, from the left."""
    r = np.random.RandomState(m.seed + 700000)
    letters = [LETTERS[i] for i in r.randint(0, 26, CHUNK * N_CHUNK + 5)]
    while True:
        model, ids, last = Model(m.file), tokens_of(m.file, letters), None
        model.squares = {}
        for i, chunk in enumerate(chunks_of(m.file, ids)):
            model.forward(chunk)
            last = undecided(model, i, arch.MARGIN["F32"]) if last is None else last
        if last is None:
            return "".join(letters), ids, model.squares
        at = last - (len(ids) - len(letters))
        assert at >= 0, "what begins a text is undecided: take another seed"
        letters[at] = LETTERS[r.randint(26)]


def matrix_file(squares):
    file = gguf.File()
    file.add("general.type", gguf.STR, "imatrix")
    file.add_array("imatrix.datasets", gguf.STR, ["golden"])
    file.add("imatrix.chunk_count", gguf.U32, N_CHUNK)
    file.add("imatrix.chunk_size", gguf.U32, CHUNK)
    for name in sorted(squares):
        sums, counts = squares[name]
        of_experts = "_exps." in name  # what else has several matrices has one count
        file.add_tensor(name + ".in_sum2", sums if of_experts else sums.reshape(1, -1))
        file.add_tensor(name + ".counts", counts[:, None] if of_experts else counts[:1, None])
    return file


def joined(file, squares):
    """-> the same with the rows of gate and up of the first expert, then those of the second, ..."""
    other, squares = file.copy(), dict(squares)
    for name in [name for name in file.tensors if name.endswith("ffn_gate_exps.weight")]:
        up, both = name.replace("_gate_", "_up_"), name.replace("_gate_", "_gate_up_")
        other.add_tensor(both, np.concatenate([file.get(name), file.get(up)], axis=1))
        squares[both] = squares[name]
        for half in (name, up):
            del other.tensors[half], squares[half]
    return other, squares


def make(folder):
    recipes = arch.recipes()
    for name in NAMES:
        m = recipes[name]()
        text, ids, squares = settled(m)
        # Routers are vectors to Hearth, and are not quantised.
        squares = {n: s for n, s in squares.items() if "ffn_gate_inp" not in n}
        folder.write("golden/imatrix/" + name + ".txt", text.encode())
        folder.write_ids("golden/imatrix/" + name + ".ids", ids)
        folder.write("golden/imatrix/" + name + ".gguf", matrix_file(squares).to_bytes())
        if name == "mixtral":
            model, squares = joined(m.file, squares)
            folder.write("golden/imatrix/joined.model.gguf", model.to_bytes())
            folder.write("golden/imatrix/joined.gguf", matrix_file(squares).to_bytes())
            folder.write("golden/imatrix/joined.txt", text.encode())
            folder.write_ids("golden/imatrix/joined.ids", ids)
