#!/usr/bin/env python3
"""Makes small models of gemma3 and phi3 and what they compute, in double precision.

usage: reference.py DIRECTORY          writes NAME.gguf, NAME*.ids, NAME*.f32
       reference.py --check DIRECTORY  makes them again and compares (logits to 1e-6)

Written from the descriptions of the models alone (gemma 3: arXiv:2503.19786; phi 3:
arXiv:2404.14219, LongRoPE: arXiv:2402.13753; conventions of the files as their GGUF
converters write them) with Python's standard library; nothing is shared with the
engine. Weights are random halves, so that every reader sees the same numbers.
"""
import array
import math
import os
import random
import struct
import sys
import tempfile

# ---- GGUF ---------------------------------------------------------------------------

U32, F32, TEXT, ARRAY, I32, BOOL = 4, 6, 8, 9, 5, 7


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind, value):
    if kind == TEXT:
        return text(value)
    return struct.pack({U32: "<I", F32: "<f", I32: "<i", BOOL: "<?"}[kind], value)


def write_gguf(path, keys, tensors):
    """keys: (name, kind, value), value a list for an array; tensors: (name, dims, floats)."""
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for name, kind, value in keys:
        out.append(text(name))
        if isinstance(value, list):
            out.append(struct.pack("<IIQ", ARRAY, kind, len(value)))
            out.extend(scalar(kind, v) for v in value)
        else:
            out.append(struct.pack("<I", kind) + scalar(kind, value))
    blobs, at = [], 0
    for name, dims, values in tensors:
        half = len(dims) == 2
        blob = struct.pack("<%d%s" % (len(values), "e" if half else "f"), *values)
        blob += b"\0" * (-len(blob) % 32)
        out.append(text(name) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims))
        out.append(struct.pack("<IQ", 1 if half else 0, at))
        blobs.append(blob)
        at += len(blob)
    head = b"".join(out)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + b"".join(blobs))


# ---- weights ------------------------------------------------------------------------


def as_half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def as_float(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Weights:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tensors = []

    def matrix(self, name, n_in, n_out, scale=1.0):
        size = scale / math.sqrt(n_in)
        rows = [[as_half(self.random.gauss(0.0, size)) for _ in range(n_in)] for _ in range(n_out)]
        self.tensors.append((name + ".weight", [n_in, n_out], [x for row in rows for x in row]))
        return rows

    def vector(self, name, n, centre=1.0, spread=0.2):
        values = [as_float(centre + self.random.gauss(0.0, spread)) for _ in range(n)]
        self.tensors.append((name + ".weight", [n], values))
        return values


# ---- arithmetic -----------------------------------------------------------------------


def times(matrix, x):
    return [math.fsum(w * v for w, v in zip(row, x)) for row in matrix]


def rms_norm(x, weight, eps):
    root = math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
    return [v / root * w for v, w in zip(x, weight)]


def silu(x):
    return x / (1.0 + math.exp(-x))


def gelu(x):
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def rotate(head, position, frequencies, factor):
    """Pairs are (i, i + n/2) of the first 2 * len(frequencies) dimensions."""
    n = len(frequencies)
    out = list(head)
    for i, theta in enumerate(frequencies):
        c, s = factor * math.cos(position * theta), factor * math.sin(position * theta)
        out[i] = head[i] * c - head[i + n] * s
        out[i + n] = head[i] * s + head[i + n] * c
    return out


def attend(query, keys, values, first, scale):
    scores = [scale * math.fsum(a * b for a, b in zip(query, k)) for k in keys[first:]]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    return [math.fsum(w * v[i] for w, v in zip(weights, values[first:])) / total for i in range(len(query))]


class Model:
    """One token at a time; what a family does differently is in its layers."""

    def __init__(self, seed, name, d_model, n_layer, n_head, n_kv, d_head, d_ff, n_vocab, context, eps):
        self.name, self.d_model, self.n_layer, self.d_ff = name, d_model, n_layer, d_ff
        self.n_head, self.n_kv, self.d_head, self.n_vocab, self.eps = n_head, n_kv, d_head, n_vocab, as_float(eps)
        self.w = Weights(seed)
        self.keys = [("general.architecture", TEXT, name), ("general.name", TEXT, "synthetic truth of " + name)]
        for key, kind, value in (
            ("context_length", U32, context), ("embedding_length", U32, d_model), ("block_count", U32, n_layer),
            ("feed_forward_length", U32, d_ff), ("attention.head_count", U32, n_head),
            ("attention.head_count_kv", U32, n_kv), ("attention.key_length", U32, d_head),
            ("attention.value_length", U32, d_head), ("attention.layer_norm_rms_epsilon", F32, eps),
        ):
            self.key(key, kind, value)
        self.embedding = self.w.matrix("token_embd", d_model, n_vocab, scale=2.0)
        self.layers = [self.make_layer(i) for i in range(n_layer)]
        self.output_norm = self.w.vector("output_norm", d_model)

    def key(self, name, kind, value):
        self.keys.append((self.name + "." + name, kind, value))

    def logits(self, ids, context):
        cache = [([], []) for _ in self.layers]
        return [self.step(i, p, cache, context) for p, i in enumerate(ids)]

    def heads(self, x, n):
        return [x[i * self.d_head:(i + 1) * self.d_head] for i in range(n)]

    def attention(self, i_layer, x, position, cache, window, turn, scale):
        """x is normed; turn(head, which) prepares queries and keys."""
        layer = self.layers[i_layer]
        q, k, v = layer["q"], layer["k"], layer["v"]
        queries = [turn(h, "q") for h in self.heads(times(q, x), self.n_head)]
        keys, values = cache[i_layer]
        keys.append([turn(h, "k") for h in self.heads(times(k, x), self.n_kv)])
        values.append(self.heads(times(v, x), self.n_kv))
        first = max(0, position - window + 1) if window else 0
        out = []
        for j, query in enumerate(queries):
            g = j * self.n_kv // self.n_head
            out += attend(query, [row[g] for row in keys], [row[g] for row in values], first, scale)
        return times(layer["o"], out)


class Gemma3(Model):
    """Norms before and after both blocks and on the heads of q and k; five layers of six see a window
    and rotate by base 10000; the others are scaled linearly; GeGLU; tied; embedding times sqrt(d)."""

    WINDOW, PERIOD, BASE, FACTOR = 11, 6, 250000.0, 8.0

    def __init__(self):
        super().__init__(3, "gemma3", d_model=32, n_layer=7, n_head=4, n_kv=2, d_head=12, d_ff=40, n_vocab=64,
                         context=128, eps=0.01)
        self.key("attention.sliding_window", U32, self.WINDOW)
        self.key("rope.freq_base", F32, self.BASE)
        self.key("rope.scaling.type", TEXT, "linear")
        self.key("rope.scaling.factor", F32, self.FACTOR)

    def make_layer(self, i):
        b, e, q, kv = "blk.%d." % i, self.d_model, self.n_head * self.d_head, self.n_kv * self.d_head
        w = self.w
        return {
            "norm": w.vector(b + "attn_norm", e), "q": w.matrix(b + "attn_q", e, q, 2.0),
            "k": w.matrix(b + "attn_k", e, kv, 2.0), "v": w.matrix(b + "attn_v", e, kv),
            "q_norm": w.vector(b + "attn_q_norm", self.d_head), "k_norm": w.vector(b + "attn_k_norm", self.d_head),
            "o": w.matrix(b + "attn_output", q, e), "post": w.vector(b + "post_attention_norm", e),
            "ffn_norm": w.vector(b + "ffn_norm", e), "gate": w.matrix(b + "ffn_gate", e, self.d_ff),
            "up": w.matrix(b + "ffn_up", e, self.d_ff), "down": w.matrix(b + "ffn_down", self.d_ff, e),
            "ffn_post": w.vector(b + "post_ffw_norm", e),
        }

    def step(self, token, position, cache, context):
        half = self.d_head // 2
        x = [math.sqrt(self.d_model) * v for v in self.embedding[token]]
        for i, l in enumerate(self.layers):
            slides = i % self.PERIOD < self.PERIOD - 1
            base, factor = (10000.0, 1.0) if slides else (self.BASE, self.FACTOR)
            theta = [base ** (-j / half) / factor for j in range(half)]

            def turn(head, which, l=l, theta=theta):
                return rotate(rms_norm(head, l[which + "_norm"], self.eps), position, theta, 1.0)

            out = self.attention(i, rms_norm(x, l["norm"], self.eps), position, cache,
                                 self.WINDOW if slides else 0, turn, 1.0 / math.sqrt(self.d_head))
            x = [a + b for a, b in zip(x, rms_norm(out, l["post"], self.eps))]
            y = rms_norm(x, l["ffn_norm"], self.eps)
            hidden = [gelu(g) * u for g, u in zip(times(l["gate"], y), times(l["up"], y))]
            x = [a + b for a, b in zip(x, rms_norm(times(l["down"], hidden), l["ffn_post"], self.eps))]
        return times(self.embedding, rms_norm(x, self.output_norm, self.eps))


class Phi3(Model):
    """q, k and v in one matrix, gate and up in another; part of a head rotates; all layers see a window."""

    WINDOW, N_ROT, ORIGINAL, ATTN_FACTOR = 21, 12, 32, 1.25

    def __init__(self, long_rope):
        self.long_rope = long_rope
        super().__init__(5 + long_rope, "phi3", d_model=48, n_layer=2, n_head=3, n_kv=1, d_head=16, d_ff=80,
                         n_vocab=64, context=128, eps=0.005)
        self.output = self.w.matrix("output", self.d_model, self.n_vocab)
        self.key("rope.dimension_count", U32, self.N_ROT)
        self.short = self.long = [1.0] * (self.N_ROT // 2)
        self.factor, self.window = 1.0, self.WINDOW
        if not long_rope:
            self.key("attention.sliding_window", U32, self.WINDOW)
            return
        self.window = 0
        self.key("rope.scaling.type", TEXT, "longrope")
        self.key("rope.scaling.original_context_length", U32, self.ORIGINAL)
        self.key("rope.scaling.attn_factor", F32, self.ATTN_FACTOR)
        self.factor = self.ATTN_FACTOR
        self.short = self.w.vector("rope_factors_short", self.N_ROT // 2, 1.3, 0.1)
        self.long = self.w.vector("rope_factors_long", self.N_ROT // 2, 4.0, 1.0)

    def make_layer(self, i):
        b, e, q, kv = "blk.%d." % i, self.d_model, self.n_head * self.d_head, self.n_kv * self.d_head
        w = self.w
        layer = {"norm": w.vector(b + "attn_norm", e)}
        rows = w.matrix(b + "attn_qkv", e, q + 2 * kv, 1.5)
        layer["q"], layer["k"], layer["v"] = rows[:q], rows[q:q + kv], rows[q + kv:]
        layer["o"] = w.matrix(b + "attn_output", q, e)
        layer["ffn_norm"] = w.vector(b + "ffn_norm", e)
        rows = w.matrix(b + "ffn_up", e, 2 * self.d_ff)
        layer["gate"], layer["up"] = rows[:self.d_ff], rows[self.d_ff:]
        layer["down"] = w.matrix(b + "ffn_down", self.d_ff, e)
        return layer

    def step(self, token, position, cache, context):
        half = self.N_ROT // 2
        divisors = self.long if context > self.ORIGINAL else self.short
        theta = [10000.0 ** (-j / half) / divisors[j] for j in range(half)]
        x = list(self.embedding[token])
        for i, l in enumerate(self.layers):
            out = self.attention(i, rms_norm(x, l["norm"], self.eps), position, cache, self.window,
                                 lambda head, which: rotate(head, position, theta, self.factor),
                                 1.0 / math.sqrt(self.d_head))
            x = [a + b for a, b in zip(x, out)]
            y = rms_norm(x, l["ffn_norm"], self.eps)
            hidden = [silu(g) * u for g, u in zip(times(l["gate"], y), times(l["up"], y))]
            x = [a + b for a, b in zip(x, times(l["down"], hidden))]
        return times(self.output, rms_norm(x, self.output_norm, self.eps))


# ---- files ------------------------------------------------------------------------------


def write_truth(directory, name, model, n_ids, seed):
    source = random.Random(seed)
    ids = [source.randrange(model.n_vocab) for _ in range(n_ids)]
    with open(os.path.join(directory, name + ".ids"), "w") as f:
        f.write(" ".join(map(str, ids)) + "\n")
    rows = model.logits(ids, n_ids)
    with open(os.path.join(directory, name + ".f32"), "wb") as f:
        f.write(array.array("f", [x for row in rows for x in row]).tobytes())


def make(directory):
    gemma3, phi3, longrope = Gemma3(), Phi3(False), Phi3(True)
    for name, model in (("gemma3", gemma3), ("phi3", phi3), ("phi3-longrope", longrope)):
        write_gguf(os.path.join(directory, name + ".gguf"), model.keys, model.w.tensors)
    write_truth(directory, "gemma3", gemma3, 40, 101)
    write_truth(directory, "phi3", phi3, 56, 102)
    write_truth(directory, "phi3-longrope-short", longrope, 32, 103)
    write_truth(directory, "phi3-longrope-long", longrope, 33, 104)


def differ(mine, theirs):
    a, b = open(mine, "rb").read(), open(theirs, "rb").read()
    if not mine.endswith(".f32") or len(a) != len(b):
        return a != b
    x, y = array.array("f", a), array.array("f", b)
    return max(abs(p - q) for p, q in zip(x, y)) > 1e-6 * max(map(abs, y))


def main():
    if len(sys.argv) == 2 and sys.argv[1] != "--check":
        make(sys.argv[1])
        return 0
    if len(sys.argv) != 3 or sys.argv[1] != "--check":
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as again:
        make(again)
        names = sorted(os.listdir(again))
        wrong = [n for n in names if differ(os.path.join(again, n), os.path.join(sys.argv[2], n))]
    for name in wrong:
        print("%s: not what this script makes" % name)
    print("%d files compared, %d differ" % (len(names), len(wrong)))
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
