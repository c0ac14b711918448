"""golden/powerinfer: small models in PowerInfer's format ("PWRI") with activation predictors.

Metadata and the order of tensors are those of PowerInfer's converters. The predictors are random and select about half
of the neurons that would fire, so a wrong selection cannot pass. Every score of the prompt is at least 0.06 away from
the threshold, in both stored types, so rounding changes no selection. tests/golden/test_powerinfer.c holds distances
which PowerInfer's own engine has on these very files: a change of their bytes invalidates them.
"""
import collections

import numpy as np

import blocks
import gguf
import vocabulary
from forward import Model

Spec = collections.namedtuple("Spec", "name arch seed d_model n_layer n_head n_kv threshold shift base types")
SPECS = [
    # llama whose gate has a ReLU, with grouped KV heads
    Spec("llama-relu", "llama", 4101, 64, 2, 4, 2, 0.35, 0.0, 10000.0, ("f16", "q4_0")),
    # dReLU; a threshold below zero, another base of the rotation
    Spec("bamboo", "bamboo", 4202, 32, 2, 2, 1, -0.10, -0.20, 50000.0, ("f16", "q4_0")),
    # biases, learned positions, tied head; no threshold in the file (so 0), no epsilon (so 0)
    Spec("opt", "opt", 4303, 32, 2, 2, 2, None, -0.16, None, ("f16", "q4_0")),
    # the layout of 40B: two norms, attention beside the network; its width is 4 d_model by definition
    Spec("falcon", "falcon", 4404, 256, 1, 4, 2, -0.25, -0.35, None, ("q4_0",)),
]
N_VOCAB = 288
D_FF = 1024  # at 1000 and below PowerInfer's engine takes another path
RANK = 32
N_POSITION = 12
MARGIN = 0.06

PIECES = ("\u2581the \u2581a \u2581of er in \u2581to on es or \u2581and st en re an al it is ar \u2581he ing ed \u2581s "
          "\u2581w \u2581b \u2581c \u2581f \u2581p \u2581m \u2581th").split()[:N_VOCAB - 259]
MERGES = [("t", "h"), ("i", "n"), ("e", "r"), ("a", "n"), ("o", "n"), ("r", "e"), ("\u0120", "th"), ("\u0120", "a"),
          ("e", "s"), ("o", "r"), ("a", "t"), ("e", "n"), ("i", "t"), ("i", "s"), ("\u0120", "s"), ("\u0120", "w"),
          ("\u0120", "o"), ("e", "d"), ("a", "l"), ("\u0120th", "e"), ("in", "g"), ("o", "u"), ("\u0120", "b"),
          ("\u0120", "c"), ("\u0120", "f"), ("\u0120", "m"), ("\u0120", "p"), ("a", "r"), ("s", "t"), ("an", "d"),
          ("\u0120", "in")]


def prompt(s):
    first = {"llama": 1, "bamboo": 1, "opt": 2, "falcon": 11}[s.arch]
    ids = [first] + [int(i) for i in np.random.RandomState(s.seed + 7).randint(4, N_VOCAB, N_POSITION - 1)]
    ids[9] = ids[3]  # a token again at another position
    return ids


# ---- metadata -----------------------------------------------------------------------------------

def add_vocabulary(file, arch):
    def tokens(model, pieces, kinds, key, kind, items):
        file.add("tokenizer.ggml.model", gguf.STR, model)
        file.add_array("tokenizer.ggml.tokens", gguf.STR, pieces)
        if key == "scores":
            file.add_array("tokenizer.ggml.scores", kind, items)
        file.add_array("tokenizer.ggml.token_type", gguf.I32, kinds)
        if key == "merges":
            file.add_array("tokenizer.ggml.merges", kind, items)

    if arch in ("llama", "bamboo"):
        tokens("llama", ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + PIECES,
               [2, 3, 3] + [6] * 256 + [1] * len(PIECES), "scores", gguf.F32,
               [0.0] * 259 + [-float(i) for i in range(len(PIECES))])
        special = {"bos": 1, "eos": 2}
    else:
        named = ["<s>", "<pad>", "</s>", "<unk>"] if arch == "opt" else ["<|endoftext|>"]
        merges = MERGES[:N_VOCAB - 256 - len(named)]
        tokens("gpt2", named + vocabulary.byte_characters() + [a + b for a, b in merges],
               [3] * len(named) + [1] * (N_VOCAB - len(named)), "merges", gguf.STR, [a + " " + b for a, b in merges])
        special = {"bos": 2, "eos": 2, "padding": 1} if arch == "opt" else {"bos": 11, "eos": 11}
    for name, token in special.items():
        file.add(f"tokenizer.ggml.{name}_token_id", gguf.U32, token)


def empty_file(s, quantised):
    file = gguf.File(magic=b"PWRI")

    def u32(name, value): file.add(f"{s.arch}.{name}", gguf.U32, value)
    def f32(name, value): file.add(f"{s.arch}.{name}", gguf.F32, value)
    file.add("general.architecture", gguf.STR, s.arch)
    file.add("general.name", gguf.STR, {"opt": "opt", "falcon": "Falcon"}.get(s.arch, s.name))
    u32("context_length", {"opt": 2050, "falcon": 2048}.get(s.arch, 64))
    if s.arch == "falcon":
        file.add("falcon.tensor_data_layout", gguf.STR, "jploski")
    u32("embedding_length", s.d_model)
    if s.arch == "falcon":
        u32("feed_forward_length", D_FF)
    u32("block_count", s.n_layer)
    if s.arch != "falcon":
        u32("feed_forward_length", D_FF)
    if s.base:
        u32("rope.dimension_count", s.d_model // s.n_head)
    u32("attention.head_count", s.n_head)
    if s.arch != "opt":
        u32("attention.head_count_kv", s.n_kv)
        f32("attention.layer_norm_epsilon" if s.arch == "falcon" else "attention.layer_norm_rms_epsilon", 1e-5)
    if s.base:
        f32("rope.freq_base", s.base)
    file.add("general.file_type", gguf.U32, 2 if quantised else 1)
    if s.threshold is not None:
        # As the file holds it: a comparison with this value decides.
        file.add("powerinfer.sparse_threshold", gguf.F32, float(np.float32(s.threshold)))
    add_vocabulary(file, s.arch)
    if quantised:
        file.add("general.quantization_version", gguf.U32, 2)
    return file


# ---- weights ------------------------------------------------------------------------------------

def as_half(x): return x.astype(np.float16).astype(np.float32)


class Weights:
    """Random weights in the order of the converters' tensors; matrices are halves. None: a predictor's second matrix,
    which is chosen later."""

    def __init__(self, s):
        self.s, self.random, self.tensors = s, np.random.RandomState(s.seed), []

    def matrix(self, n_out, n_in, size=1.0):
        return as_half(self.random.standard_normal((n_out, n_in)) * size / np.sqrt(n_in))

    def vector(self, n, mean, deviation):
        return (mean + deviation * self.random.standard_normal(n)).astype(np.float32)

    def add(self, name, values):
        self.tensors.append((name, values))

    def layer(self, i, names):
        s, e, n_k = self.s, self.s.d_model, self.s.n_kv * (self.s.d_model // self.s.n_head)
        down = 2.2 * np.sqrt(1.0 / 8) if s.arch in ("llama", "bamboo") else 0.6
        makers = {
            "attn_q": lambda: self.matrix(e, e, 1.5), "attn_output": lambda: self.matrix(e, e, 0.8),
            "attn_k": lambda: self.matrix(n_k, e, 1.5), "attn_v": lambda: self.matrix(n_k, e),
            "attn_qkv": lambda: self.matrix(e + 2 * n_k, e, 1.3), "ffn_gate": lambda: self.matrix(D_FF, e),
            "ffn_up": lambda: self.matrix(D_FF, e), "ffn_down_t": lambda: self.matrix(e, D_FF, down).T,
        }
        for name in names:
            self.add(f"blk.{i}.{name}.weight", makers[name]() if name in makers else self.vector(e, 1.0, 0.15))
            if s.arch == "opt" or s.arch == "falcon" and name.startswith("attn_norm"):
                self.add(f"blk.{i}.{name}.bias", self.vector(D_FF if name == "ffn_up" else e, 0.0, 0.15))

    def predictors(self):
        for i in range(self.s.n_layer):
            self.add(f"blk.{i}.fc1.weight", self.matrix(RANK, self.s.d_model))
            self.add(f"blk.{i}.fc2.weight", None)

    def all(self):
        s, e = self.s, self.s.d_model
        embedding = as_half(self.random.standard_normal((N_VOCAB, e)))
        if s.arch in ("opt", "falcon"):
            self.predictors()
        self.add("token_embd.weight", embedding)
        if s.arch == "opt":
            self.add("position_embd.weight", as_half(0.3 * self.random.standard_normal((2050, e))))
            self.add("output_norm.weight", self.vector(e, 0.4, 0.05))
            self.add("output_norm.bias", self.vector(e, 0.0, 0.05))
        names = {"opt": "attn_k attn_v attn_q attn_output attn_norm ffn_up ffn_down_t ffn_norm",
                 "falcon": "attn_qkv attn_output ffn_up ffn_down_t attn_norm_2 attn_norm"}
        usual = "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down_t attn_norm ffn_norm"
        for i in range(s.n_layer):
            self.layer(i, names.get(s.arch, usual).split())
        if s.arch != "opt":
            self.add("output_norm.weight", self.vector(e, 1.0, 0.15))
            if s.arch == "falcon":
                self.add("output_norm.bias", self.vector(e, 0.0, 0.1))
            self.add("output.weight", self.matrix(N_VOCAB, e, 2.0))
        if s.arch not in ("opt", "falcon"):
            self.predictors()
        return self.tensors


def stored_type(name, values, quantised):
    """What PowerInfer's converters and its quantizer choose."""
    if values.ndim == 1:
        return "F32"
    return ("Q8_0" if name == "output.weight" else "Q4_0") if quantised else "F16"


class Candidate:
    """The model in one stored type, run layer by layer while its predictors are chosen."""

    def __init__(self, s, tensors, quantised):
        self.file, self.quantised = empty_file(s, quantised), quantised
        for name, values in tensors:
            if values is not None:
                self.file.add_tensor(name, values, stored_type(name, values, quantised))
        self.model = Model(self.file)
        self.h = self.model.embed(prompt(s))

    def enter(self, i):
        self.i = i
        self.x, self.rest, seen = self.model.before_ffn(self.h, i)
        self.seen = np.maximum(seen @ self.model.get(f"blk.{i}.fc1.weight").T, 0)

    def scores(self, rows):
        kind = stored_type("fc2", rows, self.quantised)
        return self.seen @ blocks.dequantize(kind, blocks.quantize(kind, rows)).reshape(rows.shape).astype(np.float64).T

    def leave(self, rows):
        self.file.add_tensor(f"blk.{self.i}.fc2.weight", rows, stored_type("fc2", rows, self.quantised))
        self.h = self.rest + self.model.ffn(self.x, self.i, None, self.scores(rows) >= self.model.threshold)


def choose_predictors(s, candidates):
    """{name: matrix}: rows are drawn again until no score of the prompt is near the threshold in any of the types."""
    r, chosen = np.random.RandomState(s.seed + 1), {}
    for i in range(s.n_layer):
        for c in candidates:
            c.enter(i)
        rows, todo = np.zeros((D_FF, RANK), np.float32), np.arange(D_FF)
        while len(todo):
            rows[todo] = as_half((r.standard_normal((len(todo), RANK)) + s.shift) / np.sqrt(RANK))
            near = [np.abs(c.scores(rows[todo]) - c.model.threshold).min(axis=0) < MARGIN for c in candidates]
            todo = todo[np.any(near, axis=0)]
        for c in candidates:
            c.leave(rows)
        chosen[f"blk.{i}.fc2.weight"] = rows
    return chosen


def make(folder):
    for s in SPECS:
        ids, tensors = prompt(s), Weights(s).all()
        chosen = choose_predictors(s, [Candidate(s, tensors, False), Candidate(s, tensors, True)])
        folder.write_ids(f"golden/powerinfer/{s.name}.ids", ids)
        for kind in s.types:
            file = empty_file(s, kind == "q4_0")
            for name, values in tensors:
                values = chosen[name] if values is None else values
                file.add_tensor(name, values, stored_type(name, values, kind == "q4_0"))
            at, model = f"golden/powerinfer/{s.name}.{kind}", Model(file)
            folder.write(at + ".powerinfer.gguf", file.to_bytes())
            folder.write(at + ".logits.f64", model.forward(ids).astype("<f8").tobytes())
            live = np.transpose(model.marked, (1, 0, 2)).reshape(len(ids), -1)
            folder.write(at + ".live.bin", np.packbits(live, axis=1, bitorder="little").tobytes())
            folder.write_floats(at + ".dense.f32", model.forward(ids, predicted=False))
