"""golden/quant: one model in every block type with the logits of its decoded weights, and blocks with their values."""
import struct

import numpy as np

import arch
import blocks
import gguf
from forward import Model

# general.file_type of each type, and whether its model has one layer or two. The types of 256 elements need rows of 512;
# the others have both shapes.
FILE_TYPES = {"F16": (1, 1), "BF16": (32, 1), "Q8_0": (7, 1), "Q4_0": (2, 2), "Q4_1": (3, 1), "Q5_0": (8, 1),
              "Q5_1": (9, 1), "Q2_K": (10, 2), "Q3_K": (12, 2), "Q4_K": (15, 2), "Q5_K": (17, 2), "Q6_K": (18, 2),
              "IQ4_NL": (25, 1), "IQ4_XS": (30, 2), "MXFP4": (38, 2), "IQ2_XXS": (19, 2), "IQ2_XS": (20, 2),
              "IQ2_S": (28, 2), "IQ3_XXS": (23, 2), "IQ3_S": (26, 2), "IQ1_S": (24, 2), "IQ1_M": (31, 2), "TQ1_0": (36, 2),
              "TQ2_0": (37, 2), "NVFP4": (39, 2)}

# Largest relative rms error that rounding to a type may make of these weights: a field at a wrong place makes more.
LARGEST_ERROR = {"F16": 3e-4, "BF16": 2e-3, "Q8_0": 0.01, "Q6_K": 0.03, "Q5_0": 0.07, "Q5_1": 0.06, "Q5_K": 0.06,
                 "Q4_0": 0.13, "Q4_1": 0.11, "Q4_K": 0.11, "IQ4_NL": 0.11, "IQ4_XS": 0.11, "MXFP4": 0.15, "Q3_K": 0.21,
                 "Q2_K": 0.4, "IQ2_XXS": 0.45, "IQ2_XS": 0.37, "IQ2_S": 0.34, "IQ3_XXS": 0.23, "IQ3_S": 0.17,
                 "IQ1_S": 0.68, "IQ1_M": 0.56, "TQ1_0": 0.6, "TQ2_0": 0.6, "NVFP4": 0.12}

# Where the halves of a block lie.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def floats(n_layer):
    """The model before it is quantised. Its weights have heavier tails than a Gaussian, as trained ones have."""
    m = arch.Maker("llama-quant", "llama", 400 + n_layer, d_model=256, n_kv=1, n_layer=n_layer, d_ff=256 * n_layer,
                   tied=True, eps=1e-5)
    tail = np.random.RandomState(410 + n_layer)
    m.draw = lambda n: m.random.standard_normal(n) * np.sqrt(3.0 / tail.chisquare(5, n))
    arch.llama(m)
    return m


def quantised(file, kind):
    """All matrices in the type, vectors in F32."""
    out = file.copy()
    out.add("general.file_type", gguf.U32, FILE_TYPES[kind][0])
    for name, t in file.tensors.items():
        if len(t.shape) > 1:
            values = file.get(name)
            out.add_tensor(name, values, kind)
            error = np.sqrt(((out.get(name) - values) ** 2).mean() / (values ** 2).mean())
            if error > LARGEST_ERROR[kind]:
                raise ValueError(f"{kind}, {name}: rounding makes {error:.3f}")
    return out


# Types of a mixture of experts as llama-quantize chooses them for Q4_K_M (more bits for values, and for down in some
# layers), with a shared expert in Q8_0. The router and vectors stay F32.
MIX = {"output": "Q6_K", "blk.0.ffn_down_exps": "Q6_K", ".attn_v": "Q6_K", "_shexp": "Q8_0", "_inp": "F32"}


def mixture():
    """-> the Maker of a mixture of experts, and its file in these types"""
    m = arch.Maker("mixture-Q4_K_M", "qwen2moe", 420, d_model=256, n_head=4, n_kv=1, n_layer=2, d_ff=256, eps=1e-5,
                   expert_count=4, expert_used_count=2, expert_feed_forward_length=256,
                   expert_shared_feed_forward_length=32)
    arch.experts(m, 4, 256, qkv_bias=True, shared=32, shared_gate=True, out=2.0)
    out = m.file.copy()
    out.add("general.file_type", gguf.U32, FILE_TYPES["Q4_K"][0])
    for name, t in m.file.tensors.items():
        fits = [part for part in MIX if name.startswith(part) or part[0] in "._" and part in name]
        kind = MIX[fits[0]] if fits else "Q4_K"
        if len(t.shape) > 1 and kind != "F32":
            out.add_tensor(name, m.file.get(name), kind)
    return m, out


def random_halves(r, n):
    """Finite: a third of ordinary size, a third of any bits, the rest extremes."""
    usual = (r.standard_normal(n) * 0.05).astype(np.float16).view(np.uint16)
    any_bits = r.randint(0, 65536, n).astype(np.uint16)
    any_bits = np.where(any_bits >> 10 & 31 == 31, any_bits & 0xbfff, any_bits).astype(np.uint16)
    ends = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x7bff, 0xfbff, 0x3c00, 0xbc00], np.uint16)
    ends = ends[r.randint(0, len(ends), n)]
    return np.choose(r.randint(0, 3, n), [usual, any_bits, ends]).astype("<u2")


def random_blocks(kind, n, seed):
    """Random bits with finite scales of every size."""
    r = np.random.RandomState(seed)
    if kind == "F16":
        return random_halves(r, n).tobytes()
    if kind == "BF16":
        u = r.randint(0, 65536, n).astype(np.uint16)
        u = np.where(u >> 7 & 255 == 255, u & 0xbfff, u).astype("<u2")
        u[:8] = [0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f]  # zeros, subnormals, smallest normal, largest
        return u.tobytes()
    b = r.randint(0, 256, (n, blocks.TYPES[kind].n_byte)).astype(np.uint8)
    if kind == "MXFP4":
        b[:, 0] = r.randint(100, 140, n)
        # 0 and 1 give subnormal floats; 252 is the largest exponent that cannot overflow.
        b[:12, 0] = [0, 1, 2, 3, 126, 127, 128, 129, 251, 252, 252, 0]
        return b.tobytes()
    for k, at in enumerate(HALVES[kind]):
        h = random_halves(r, n)
        h[:4] = [[0x0001, 0x8001, 0x7bff, 0xfbff], [0x03ff, 0x7bff, 0x8001, 0x0000]][k]
        b[:, at:at + 2] = h.view(np.uint8).reshape(n, 2)
    b[4, :] = 0  # all bits clear; all bits set but for the scales
    b[5, :] = 255
    for at in HALVES[kind]:
        b[5, at:at + 2] = np.array([0x3555], "<u2").view(np.uint8)
    return b.tobytes()


def block_file(kind, seed):
    """"HBLK", type, blocks, elements and bytes of a block; the blocks; their values as floats"""
    t = blocks.TYPES[kind]
    n = 64 if t.n_element > 1 else 2048
    raw = random_blocks(kind, n, seed)
    values = blocks.dequantize(kind, raw)
    if not np.isfinite(values).all():
        raise ValueError(f"{kind}: a value is not finite")
    return b"HBLK" + struct.pack("<IIII", t.id, n, t.n_element, t.n_byte) + raw + values.astype("<f4").tobytes()


def make(folder):
    models = {n_layer: floats(n_layer) for n_layer in (1, 2)}
    ids = models[2].ids()
    for kind, (_, n_layer) in FILE_TYPES.items():
        file = quantised(models[n_layer].file, kind)
        folder.write(f"golden/quant/llama-{kind}.gguf", file.to_bytes())
        folder.write_ids(f"golden/quant/llama-{kind}.ids", ids)
        folder.write_floats(f"golden/quant/llama-{kind}.logits.f32", Model(file).forward(ids))
    made = arch.recipes()
    mixtures = {name: (made[name](), None, "MXFP4") for name in ("mixtral-MXFP4", "gpt-oss-MXFP4")}
    mixtures["smallthinker-downt-Q4_0"] = (made["smallthinker-downt-Q4_0"](), None, "Q4_0")
    mixtures["mixture-Q4_K_M"] = (*mixture(), "Q4_K")
    for name, (m, file, kind) in mixtures.items():
        ids, logits = m.settled_ids(file, kind)
        folder.write(f"golden/quant/{name}.gguf", (file or m.file).to_bytes())
        folder.write_ids(f"golden/quant/{name}.ids", ids)
        folder.write_floats(f"golden/quant/{name}.logits.f32", logits)
    for i, kind in enumerate([*HALVES, "MXFP4", "F16", "BF16"]):
        folder.write(f"golden/quant/blocks-{kind}.bin", block_file(kind, 500 + i))
