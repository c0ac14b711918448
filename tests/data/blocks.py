"""Block types of GGUF: exact decoding, and simple rounding to the nearest.

The layouts are those of the format's definition (ggml). "Nibbles": element j < n/2 is the low half of byte j,
element j + n/2 the high half.

dequantize() computes in float64 and rounds once to float32. A product of a half-precision scale and its small integers
fits into 24 bits, so only the final sum of the types with a minimum is rounded: an implementation with or without
fused multiply-add has the same bits.

quantize() is no match for the searches of real quantizers. It needs none: what is tested is how a given file is
computed, and the truth is computed from the decoded weights.
"""
import collections
import os
import re

import numpy as np

Type = collections.namedtuple("Type", "id n_element n_byte")
TYPES = {
    "F32": Type(0, 1, 4), "F16": Type(1, 1, 2), "Q4_0": Type(2, 32, 18), "Q4_1": Type(3, 32, 20), "Q5_0": Type(6, 32, 22),
    "Q5_1": Type(7, 32, 24), "Q8_0": Type(8, 32, 34), "Q2_K": Type(10, 256, 84), "Q3_K": Type(11, 256, 110),
    "Q4_K": Type(12, 256, 144), "Q5_K": Type(13, 256, 176), "Q6_K": Type(14, 256, 210), "IQ4_NL": Type(20, 32, 18),
    "IQ4_XS": Type(23, 256, 136), "BF16": Type(30, 1, 2), "MXFP4": Type(39, 32, 17), "IQ2_XXS": Type(16, 256, 66),
    "IQ2_XS": Type(17, 256, 74), "IQ2_S": Type(22, 256, 82), "IQ3_XXS": Type(18, 256, 98), "IQ3_S": Type(21, 256, 110),
    "IQ1_S": Type(19, 256, 50), "IQ1_M": Type(29, 256, 56), "TQ1_0": Type(34, 256, 54), "TQ2_0": Type(35, 256, 66),
    "NVFP4": Type(40, 64, 36), "I32": Type(26, 1, 4),
}
NAMES = {t.id: name for name, t in TYPES.items()}

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def size(kind, n):
    """Bytes of n elements."""
    t = TYPES[kind]
    if n % t.n_element:
        raise ValueError(f"{n} elements are no whole blocks of {kind}")
    return n // t.n_element * t.n_byte


# ---- fields -----------------------------------------------------------------------------------
# Columns of bytes, one row per block; get_ and put_ are inverse to each other.

def get_half(b):
    return np.ascontiguousarray(b).view("<f2").astype(np.float64)


def put_half(x):
    """n values -> n x 2 bytes, and the n x 1 values that these hold"""
    b = np.asarray(x, np.float64).astype(np.float32).astype("<f2").reshape(-1, 1).view(np.uint8)
    return b, get_half(b)


def get_nibbles(b):
    return np.concatenate([b & 15, b >> 4], axis=-1)


def put_nibbles(q):
    n = q.shape[-1] // 2
    return (q[..., :n] | q[..., n:] << 4).astype(np.uint8)


def get_bits(b):
    """n x 4 bytes -> n x 32: bit j of the word in column j"""
    return np.unpackbits(np.ascontiguousarray(b), axis=1, bitorder="little")


def put_bits(bits):
    return np.packbits(bits.astype(np.uint8), axis=1, bitorder="little")


def get_pairs(b):
    """n x 32k bytes of four two-bit numbers each -> n x k x 4 x 32"""
    b = b.reshape(len(b), -1, 1, 32)
    return b >> (2 * np.arange(4, dtype=np.uint8)).reshape(1, 1, 4, 1) & 3


def put_pairs(q):
    return (q << np.array([0, 2, 4, 6]).reshape(1, 1, 4, 1)).sum(axis=2).astype(np.uint8).reshape(len(q), -1)


def get_scales_k(b):
    """Q4_K, Q5_K: 12 bytes -> 8 scales and 8 minima of 6 bits"""
    b = b.astype(np.int64)
    lo, mid, hi = b[:, 0:4], b[:, 4:8], b[:, 8:12]
    return (np.concatenate([lo & 63, hi & 15 | lo >> 6 << 4], axis=1),
            np.concatenate([mid & 63, hi >> 4 | mid >> 6 << 4], axis=1))


def put_scales_k(sc, mn):
    return np.concatenate([sc[:, :4] | sc[:, 4:] >> 4 << 6, mn[:, :4] | mn[:, 4:] >> 4 << 6,
                           sc[:, 4:] & 15 | (mn[:, 4:] & 15) << 4], axis=1).astype(np.uint8)


def get_scales_q3(b):
    """12 bytes -> 16 scales of 6 bits"""
    low = np.concatenate([b[:, :8] & 15, b[:, :8] >> 4], axis=1)
    high = np.concatenate([b[:, 8:] >> k & 3 for k in (0, 2, 4, 6)], axis=1)
    return (low | high << 4).astype(np.int64)


def put_scales_q3(sc):
    low, high = sc & 15, (sc >> 4).reshape(-1, 4, 4)
    return np.concatenate([low[:, :8] | low[:, 8:] << 4, (high << np.array([0, 2, 4, 6]).reshape(1, 4, 1)).sum(axis=1)],
                          axis=1).astype(np.uint8)


# ---- decoding -----------------------------------------------------------------------------------

def get_i32(b):
    return np.ascontiguousarray(b).view("<i4")


def put_i32(x):
    return np.asarray(x).astype("<i4").reshape(-1, 1).view(np.uint8)


def get_f32(b): return b.view("<f4").astype(np.float64)
def get_bf16(b): return (b.view("<u2").astype(np.uint32) << 16).view("<f4").astype(np.float64)
def get_q8_0(b): return get_half(b[:, :2]) * b[:, 2:].view(np.int8)
def get_q4_0(b): return get_half(b[:, :2]) * (get_nibbles(b[:, 2:]) - 8.0)
def get_q4_1(b): return get_half(b[:, :2]) * get_nibbles(b[:, 4:]) + get_half(b[:, 2:4])
def get_q5_0(b): return get_half(b[:, :2]) * (get_nibbles(b[:, 6:]) + 16.0 * get_bits(b[:, 2:6]) - 16)
def get_q5_1(b): return get_half(b[:, :2]) * (get_nibbles(b[:, 8:]) + 16.0 * get_bits(b[:, 4:8])) + get_half(b[:, 2:4])
def get_iq4_nl(b): return get_half(b[:, :2]) * IQ4[get_nibbles(b[:, 2:])]
def get_mxfp4(b): return np.exp2(b[:, :1] - 127.0) * FP4[get_nibbles(b[:, 1:])]


def get_q2_k(b):
    q = get_pairs(b[:, 16:80]).reshape(-1, 16, 16)
    d, dm = get_half(b[:, 80:82]), get_half(b[:, 82:84])
    return (d * (b[:, :16] & 15))[:, :, None] * q - (dm * (b[:, :16] >> 4))[:, :, None]


def get_q3_k(b):
    high = b[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    q = get_pairs(b[:, 32:96]).reshape(-1, 16, 16) + 4.0 * high.reshape(-1, 16, 16) - 4
    return (get_half(b[:, 108:110]) * (get_scales_q3(b[:, 96:108]) - 32))[:, :, None] * q


def get_q45_k(b, q):
    sc, mn = get_scales_k(b[:, 4:16])
    return (get_half(b[:, :2]) * sc)[:, :, None] * q - (get_half(b[:, 2:4]) * mn)[:, :, None]


def get_q4_k(b):
    return get_q45_k(b, get_nibbles(b[:, 16:144].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def get_q5_k(b):
    high = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    return get_q45_k(b, get_nibbles(b[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32) + 16.0 * high)


def get_q6_k(b):
    low = get_nibbles(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 16, 16)
    q = (low | get_pairs(b[:, 128:192]).reshape(-1, 16, 16) << 4) - 32.0
    return (get_half(b[:, 208:210]) * b[:, 192:208].view(np.int8))[:, :, None] * q


def get_iq4_xs(b):
    k = np.arange(8)
    high = np.ascontiguousarray(b[:, 2:4]).view("<u2").astype(np.int64) >> 2 * k & 3
    low = b[:, 4:8].astype(np.int64)[:, k // 2] >> 4 * (k % 2) & 15
    return (get_half(b[:, :2]) * ((low | high << 4) - 32))[:, :, None] * IQ4[get_nibbles(b[:, 8:136].reshape(-1, 8, 16))]


# Types with a grid: a block has 32 (IQ3: 64) indices of entries, whose eight (four) weights are numbers of a small set.
# The entries come from the C source; tests/kernels/test_codec.c holds those to llama.cpp's floats.

GRIDS_C = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/kernels/quant/grids.c")


def read_grid(start, n, width, values):
    """The n codes after `start`, as rows of the values that their digits select; octal digits for eight values."""
    with open(GRIDS_C, encoding="utf-8") as f:
        text = f.read()
    codes = re.findall(r"\b[0-9a-f]{4}\b", text[text.index(start) + len(start):])[:n]
    bits, base = (3, 8) if len(values) == 8 else (2, 16)
    codes = np.array([int(code, base) for code in codes]).reshape(-1, 1)
    return np.array([*values, 0], np.float64)[codes >> bits * np.arange(width) & (1 << bits) - 1]


IQ2_VALUES = [8, 25, 43]
GRIDS = {
    "IQ2_XXS": read_grid("define IQ2_XXS_CODES", 256, 8, IQ2_VALUES),
    "IQ2_XS": read_grid("define IQ2_XS_CODES", 512, 8, IQ2_VALUES),
    "IQ2_S": read_grid("define IQ2_S_CODES", 1024, 8, IQ2_VALUES),
    "IQ3_XXS": read_grid("define IQ3_XXS_CODES", 256, 4, [4, 12, 20, 28, 36, 44, 52, 62]),
    "IQ3_S": read_grid("define IQ3_S_CODES", 512, 4, [1, 3, 5, 7, 9, 11, 13, 15]),
    "IQ1": read_grid("define IQ1_CODES", 2048, 8, [-8, 0, 8]),
}


def words(b, kind):
    return np.ascontiguousarray(b).view(kind).astype(np.int64)


def each_nibble(b):
    """n x k bytes -> n x 2k, the low half of a byte first"""
    return np.stack([b & 15, b >> 4], axis=-1).reshape(len(b), -1).astype(np.int64)


def seven_signs(seven):
    """n x 32 numbers of seven bits -> n x 256 factors, an even number of them -1 in every eight"""
    bits = seven[:, :, None] >> np.arange(8) & 1
    bits[:, :, 7] = bits.sum(axis=2) % 2
    return 1 - 2 * bits.reshape(len(seven), 256)


def eight_signs(b):
    return 1.0 - 2.0 * get_bits(b)


def with_grid(d, s, q):
    """Weights of scale d, the integers 2 s + 1 (8 or 16 of a block) and q."""
    scale = np.repeat(2 * s + 1, 256 // s.shape[1], axis=1)
    return d * scale * q.reshape(len(q), 256)


def get_iq2_xxs(b):
    pairs = words(b[:, 2:], "<u4").reshape(-1, 8, 2)
    index = pairs[:, :, :1] >> 8 * np.arange(4) & 255
    signs = seven_signs((pairs[:, :, 1:] >> 7 * np.arange(4) & 127).reshape(-1, 32))
    return with_grid(get_half(b[:, :2]) / 8, pairs[:, :, 1] >> 28,
                     GRIDS["IQ2_XXS"][index.reshape(-1, 32)].reshape(-1, 256) * signs)


def get_iq2_xs(b):
    both = words(b[:, 2:66], "<u2")
    q = GRIDS["IQ2_XS"][both & 511].reshape(-1, 256) * seven_signs(both >> 9)
    return with_grid(get_half(b[:, :2]) / 8, each_nibble(b[:, 66:]), q)


def get_iq2_s(b):
    high = (b[:, 66:74, None] >> 2 * np.arange(4) & 3).reshape(-1, 32).astype(np.int64)
    q = GRIDS["IQ2_S"][b[:, 2:34] | high << 8].reshape(-1, 256) * eight_signs(b[:, 34:66])
    return with_grid(get_half(b[:, :2]) / 8, each_nibble(b[:, 74:]), q)


def get_iq3_xxs(b):
    word = words(b[:, 66:], "<u4")
    signs = seven_signs((word[:, :, None] >> 7 * np.arange(4) & 127).reshape(-1, 32))
    return with_grid(get_half(b[:, :2]) / 4, word >> 28, GRIDS["IQ3_XXS"][b[:, 2:66]].reshape(-1, 256) * signs)


def get_iq3_s(b):
    index = b[:, 2:66] | get_bits(b[:, 66:74]).astype(np.int64) << 8
    q = GRIDS["IQ3_S"][index].reshape(-1, 256) * eight_signs(b[:, 74:106])
    return with_grid(get_half(b[:, :2]), each_nibble(b[:, 106:]), q)


def get_iq1_s(b):
    high = words(b[:, 34:], "<u2")
    index = b[:, 2:34] | (high[:, :, None] >> 3 * np.arange(4) & 7).reshape(-1, 32) << 8
    q = GRIDS["IQ1"][index].reshape(-1, 8, 32) + (1 - 2 * (high >> 15))[:, :, None]
    return with_grid(get_half(b[:, :2]) / 8, high >> 12 & 7, q)


def get_iq1_m(b):
    four, scales = each_nibble(b[:, 32:48]), words(b[:, 48:], "<u2")
    d = (scales >> 12 << 4 * np.arange(4)).sum(axis=1).astype("<u2").reshape(-1, 1)
    q = GRIDS["IQ1"][b[:, :32] | (four & 7) << 8] + (1 - 2 * (four >> 3))[:, :, None]
    return with_grid(get_half(d.view(np.uint8)) / 8, (scales[:, :, None] >> 3 * np.arange(4) & 7).reshape(-1, 16), q)


def get_tq1_0(b):
    def digits(part, n):
        """Digits 0 .. n - 1 to the base 3 of byte / 256, digit by digit"""
        x = part[:, None, :].astype(np.int64) * 3 ** np.arange(n).reshape(1, n, 1) & 255
        return (x * 3 >> 8).reshape(len(part), -1)
    q = np.concatenate([digits(b[:, :32], 5), digits(b[:, 32:48], 5), digits(b[:, 48:52], 4)], axis=1)
    return get_half(b[:, 52:54]) * (q - 1.0)


def get_tq2_0(b):
    return get_half(b[:, 64:66]) * (get_pairs(b[:, :64]).reshape(-1, 256) - 1.0)


E4M3 = np.array([(e & 7) * 2.0 ** -9 if e < 8 else (8 + (e & 7)) * 2.0 ** ((e >> 3) - 10) for e in range(127)] + [0])


def get_nvfp4(b):
    """The top bit of a scale is not used, but a scale of all ones is a number where that bit is set."""
    scale = np.where(b[:, :4] == 255, 480, E4M3[b[:, :4] & 127])
    return scale[:, :, None] * FP4[get_nibbles(b[:, 4:].reshape(-1, 4, 8))]


# ---- encoding -----------------------------------------------------------------------------------
# x: float32, a row per block.

def divide(a, b):
    """a / b; 0 where b is 0"""
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape), where=b != 0)


def extreme(x):
    """The value of largest magnitude along the last axis, with its sign."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)[..., 0]


def nearest(x, table):
    return np.abs(x[..., None] - table).argmin(axis=-1)


def integers(x, low, high):
    return np.clip(np.rint(x), low, high).astype(np.int64)


def put_f32(x): return x.astype("<f4").view(np.uint8)
def put_f16(x): return x.astype("<f2").view(np.uint8)


def put_bf16(x):
    u = x.astype("<f4").view("<u4").astype(np.uint64)
    return (u + 0x7fff + (u >> 16 & 1) >> 16).astype("<u2").view(np.uint8)


def put_q4_0(x):
    """The bits of PowerInfer's quantizer: its published files are the reference of golden/powerinfer."""
    d = (extreme(x) / np.float32(-8)).astype(np.float32)
    inverse = divide(1, d).astype(np.float32)
    # One rounding for product and sum, as a build with fused multiply-add has it.
    q = np.minimum(15, (x.astype(np.float64) * inverse[:, None] + 8.5).astype(np.float32).astype(np.int8)).astype(np.uint8)
    return np.concatenate([put_half(d)[0], put_nibbles(q)], axis=1)


def put_q8_0(x):
    """As put_q4_0: halves are rounded away from zero."""
    d = (np.abs(x).max(axis=1) / np.float32(127)).astype(np.float32)
    y = x * divide(1, d).astype(np.float32)[:, None]
    q = np.trunc(y + np.copysign(np.float32(0.5), y)).astype(np.int8)
    return np.concatenate([put_half(d)[0], q.view(np.uint8)], axis=1)


def with_minimum(x, most):
    """Scale, minimum (as bytes) and numbers of 0 .. most."""
    m_raw, m = put_half(x.min(axis=1))
    d_raw, d = put_half(divide(x.max(axis=1) - m[:, 0], most))
    return np.concatenate([d_raw, m_raw], axis=1), integers(divide(x - m, d), 0, most)


def put_q4_1(x):
    head, q = with_minimum(x, 15)
    return np.concatenate([head, put_nibbles(q)], axis=1)


def put_q5_0(x):
    raw, d = put_half(extreme(x) / -16)
    q = integers(divide(x, d) + 16, 0, 31)
    return np.concatenate([raw, put_bits(q >> 4), put_nibbles(q & 15)], axis=1)


def put_q5_1(x):
    head, q = with_minimum(x, 31)
    return np.concatenate([head, put_bits(q >> 4), put_nibbles(q & 15)], axis=1)


def put_iq4_nl(x):
    raw, d = put_half(extreme(x) / IQ4[0])
    return np.concatenate([raw, put_nibbles(nearest(divide(x, d), IQ4))], axis=1)


def put_mxfp4(x):
    """Exponent floor(log2(largest)) - 2; a tie goes to the even code; a block of zeros has the exponent byte 0."""
    x = x.astype(np.float64)
    top = np.abs(x).max(axis=1)
    e = np.where(top > 0, np.floor(np.log2(np.where(top > 0, top, 1))) - 2 + 127, 0).clip(0, 254)
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    code = order[nearest(np.abs(x / np.exp2(e - 127)[:, None]), FP4[order])]
    code |= np.where((x < 0) & (code > 0), 8, 0)
    return np.concatenate([e[:, None].astype(np.uint8), put_nibbles(code)], axis=1)


def signed_scales(x, most, low, high):
    """Of sub-blocks whose extreme becomes `most`: the half as bytes, integer scales of low .. high, x in their units."""
    s = extreme(x) / most
    raw, d = put_half(extreme(s) / low)
    sc = integers(divide(s, d), low, high)
    return raw, sc, divide(x, (d * sc)[:, :, None])


def scales_and_minima(x, n_scale, most):
    """Of sub-blocks x >= -minimum: halves as bytes, scales and minima of 0 .. n_scale, numbers of 0 .. most."""
    m = np.maximum(0, -x.min(axis=2))
    dm_raw, dm = put_half(m.max(axis=1) / n_scale)
    mn = integers(divide(m, dm), 0, n_scale)
    s = np.maximum(0, x.max(axis=2) + dm * mn) / most
    d_raw, d = put_half(s.max(axis=1) / n_scale)
    sc = integers(divide(s, d), 0, n_scale)
    q = integers(divide(x + (dm * mn)[:, :, None], (d * sc)[:, :, None]), 0, most)
    return np.concatenate([d_raw, dm_raw], axis=1), sc, mn, q


def put_q2_k(x):
    head, sc, mn, q = scales_and_minima(x.reshape(-1, 16, 16), 15, 3)
    return np.concatenate([(sc | mn << 4).astype(np.uint8), put_pairs(q.reshape(-1, 2, 4, 32)), head], axis=1)


def put_q3_k(x):
    raw, sc, y = signed_scales(x.reshape(-1, 16, 16), -4, -32, 31)
    q = integers(y, -4, 3).reshape(-1, 8, 32) + 4
    high = ((q >> 2) << np.arange(8).reshape(1, 8, 1)).sum(axis=1).astype(np.uint8)
    return np.concatenate([high, put_pairs((q & 3).reshape(-1, 2, 4, 32)), put_scales_q3(sc + 32), raw], axis=1)


def put_q4_k(x):
    head, sc, mn, q = scales_and_minima(x.reshape(-1, 8, 32), 63, 15)
    return np.concatenate([head, put_scales_k(sc, mn), put_nibbles(q.reshape(-1, 4, 64)).reshape(-1, 128)], axis=1)


def put_q5_k(x):
    head, sc, mn, q = scales_and_minima(x.reshape(-1, 8, 32), 63, 31)
    high = ((q >> 4) << np.arange(8).reshape(1, 8, 1)).sum(axis=1).astype(np.uint8)
    low = put_nibbles((q & 15).reshape(-1, 4, 64)).reshape(-1, 128)
    return np.concatenate([head, put_scales_k(sc, mn), high, low], axis=1)


def put_q6_k(x):
    raw, sc, y = signed_scales(x.reshape(-1, 16, 16), -32, -128, 127)
    q = integers(y, -32, 31).reshape(-1, 2, 4, 32) + 32
    low = put_nibbles((q & 15).reshape(-1, 2, 128)).reshape(-1, 128)
    return np.concatenate([low, put_pairs(q >> 4), sc.astype(np.int8).view(np.uint8), raw], axis=1)


def put_iq4_xs(x):
    raw, sc, y = signed_scales(x.reshape(-1, 8, 32), IQ4[0], -32, 31)
    sc = sc + 32
    high = ((sc >> 4) << 2 * np.arange(8)).sum(axis=1).astype("<u2").reshape(-1, 1).view(np.uint8)
    low = (sc & 15).reshape(-1, 4, 2)
    return np.concatenate([raw, high, (low[:, :, 0] | low[:, :, 1] << 4).astype(np.uint8),
                           put_nibbles(nearest(y, IQ4)).reshape(-1, 128)], axis=1)


def odd_scales(x, unit, n_sub, n_scale, largest):
    """Of n_sub parts of a block: the half as bytes, s of 0 .. n_scale, x in units of d * unit * (2 s + 1)."""
    x = x.reshape(len(x), n_sub, -1).astype(np.float64)
    top = np.abs(x).max(axis=2) / largest
    raw, d = put_half(top.max(axis=1) / (unit * (2 * n_scale + 1)))
    s = integers((divide(top, d * unit) - 1) / 2, 0, n_scale)
    return raw, s, divide(x, (d * unit * (2 * s + 1))[:, :, None]).reshape(len(x), 256)


def nearest_entries(x, grid):
    """n x 256 -> the indices of the nearest entries of a grid"""
    x = x.reshape(-1, grid.shape[1]).astype(np.float32)
    found = np.concatenate([(part @ grid.T.astype(np.float32) - (grid ** 2).sum(axis=1) / 2).argmax(axis=1)
                            for part in np.array_split(x, 1 + len(x) // 8192)])
    return found.reshape(-1, 256 // grid.shape[1])


def even_signs(x):
    """Seven signs of every eight, and x without signs; where their number is odd, the smallest x takes another."""
    x = x.reshape(-1, 8).copy()
    odd, rows = (x < 0).sum(axis=1) % 2, np.arange(len(x))
    smallest = np.abs(x).argmin(axis=1)
    x[rows, smallest] *= 1 - 2 * odd
    minus = x < 0
    minus[rows, smallest] ^= (odd == 1) & (x[rows, smallest] == 0)
    return ((minus[:, :7] << np.arange(7)).sum(axis=1).reshape(-1, 32), np.abs(x).reshape(-1, 256))


def sign_words(seven, s):
    """Four times seven signs and a scale of four bits in each of eight words"""
    return ((seven.reshape(-1, 8, 4) << 7 * np.arange(4)).sum(axis=2) | s << 28).astype("<u4").view(np.uint8)


def put_iq2_xxs(x):
    raw, s, y = odd_scales(x, 1 / 8, 8, 15, 43)
    seven, y = even_signs(y)
    index = nearest_entries(y, GRIDS["IQ2_XXS"]).astype(np.uint8).reshape(-1, 8, 4)
    return np.concatenate([raw, np.concatenate([index, sign_words(seven, s).reshape(-1, 8, 4)], axis=2).reshape(-1, 64)], axis=1)


def put_iq2_xs(x):
    raw, s, y = odd_scales(x, 1 / 8, 16, 15, 43)
    seven, y = even_signs(y)
    both = nearest_entries(y, GRIDS["IQ2_XS"]) | seven << 9
    return np.concatenate([raw, both.astype("<u2").view(np.uint8), put_nibbles(np.concatenate([s[:, ::2], s[:, 1::2]], axis=1))],
                          axis=1)


def put_iq2_s(x):
    raw, s, y = odd_scales(x, 1 / 8, 16, 15, 43)
    index = nearest_entries(np.abs(y), GRIDS["IQ2_S"])
    high = ((index >> 8).reshape(-1, 8, 4) << 2 * np.arange(4)).sum(axis=2)
    return np.concatenate([raw, (index & 255).astype(np.uint8), put_bits(y < 0), high.astype(np.uint8),
                           put_nibbles(np.concatenate([s[:, ::2], s[:, 1::2]], axis=1))], axis=1)


def put_iq3_xxs(x):
    raw, s, y = odd_scales(x, 1 / 4, 8, 15, 62)
    seven, y = even_signs(y)
    return np.concatenate([raw, nearest_entries(y, GRIDS["IQ3_XXS"]).astype(np.uint8), sign_words(seven, s)], axis=1)


def put_iq3_s(x):
    raw, s, y = odd_scales(x, 1, 8, 15, 15)
    index = nearest_entries(np.abs(y), GRIDS["IQ3_S"])
    return np.concatenate([raw, (index & 255).astype(np.uint8), put_bits(index >> 8), put_bits(y < 0),
                           put_nibbles(np.concatenate([s[:, ::2], s[:, 1::2]], axis=1))], axis=1)


def shifted_entries(y, n_shift):
    """Indices, and whether 1 is subtracted (else added): of n_shift parts of a block, by the smaller error."""
    best = [nearest_entries(y - shift, GRIDS["IQ1"]) for shift in (1, -1)]
    error = [((GRIDS["IQ1"][i].reshape(-1, 256) + shift - y) ** 2).reshape(len(y), n_shift, -1).sum(axis=2)
             for i, shift in zip(best, (1, -1))]
    minus = error[1] < error[0]
    return np.where(np.repeat(minus, 32 // n_shift, axis=1), best[1], best[0]), minus.astype(np.int64)


def put_iq1_s(x):
    raw, s, y = odd_scales(x, 1 / 8, 8, 7, 9)
    index, minus = shifted_entries(y, 8)
    high = ((index >> 8).reshape(-1, 8, 4) << 3 * np.arange(4)).sum(axis=2) | s << 12 | minus << 15
    return np.concatenate([raw, (index & 255).astype(np.uint8), high.astype("<u2").view(np.uint8)], axis=1)


def put_iq1_m(x):
    raw, s, y = odd_scales(x, 1 / 8, 16, 7, 9)
    index, minus = shifted_entries(y, 32)
    four = index >> 8 | minus << 3
    scales = (s.reshape(-1, 4, 4) << 3 * np.arange(4)).sum(axis=2) | (words(raw, "<u2") >> 4 * np.arange(4) & 15) << 12
    return np.concatenate([(index & 255).astype(np.uint8), put_nibbles(np.concatenate([four[:, ::2], four[:, 1::2]], axis=1)),
                           scales.astype("<u2").view(np.uint8)], axis=1)


def ternary(x):
    raw, d = put_half(np.abs(x).mean(axis=1) * 1.6)
    return raw, integers(divide(x, d), -1, 1) + 1


def put_tq1_0(x):
    raw, q = ternary(x)

    def bytes_of(part, n):
        number = (part.reshape(len(part), n, -1) * 3 ** (4 - np.arange(n)).reshape(1, n, 1)).sum(axis=1)
        return ((number * 256 + 242) // 243).astype(np.uint8)
    return np.concatenate([bytes_of(q[:, :160], 5), bytes_of(q[:, 160:240], 5), bytes_of(q[:, 240:], 4), raw], axis=1)


def put_tq2_0(x):
    raw, q = ternary(x)
    return np.concatenate([put_pairs(q.reshape(-1, 2, 4, 32)), raw], axis=1)


def put_nvfp4(x):
    x = x.reshape(-1, 4, 16).astype(np.float64)
    scale = nearest(np.abs(x).max(axis=2) / 6, E4M3[:127])
    code = nearest(np.abs(divide(x, E4M3[scale][:, :, None])), FP4[:8])
    code |= np.where((x < 0) & (code > 0), 8, 0)
    return np.concatenate([scale.astype(np.uint8), put_nibbles(code).reshape(-1, 32)], axis=1)


CODECS = {
    "F32": (get_f32, put_f32), "F16": (get_half, put_f16), "BF16": (get_bf16, put_bf16), "Q8_0": (get_q8_0, put_q8_0),
    "Q4_0": (get_q4_0, put_q4_0), "Q4_1": (get_q4_1, put_q4_1), "Q5_0": (get_q5_0, put_q5_0), "Q5_1": (get_q5_1, put_q5_1),
    "IQ4_NL": (get_iq4_nl, put_iq4_nl), "MXFP4": (get_mxfp4, put_mxfp4), "Q2_K": (get_q2_k, put_q2_k),
    "Q3_K": (get_q3_k, put_q3_k), "Q4_K": (get_q4_k, put_q4_k), "Q5_K": (get_q5_k, put_q5_k), "Q6_K": (get_q6_k, put_q6_k),
    "IQ4_XS": (get_iq4_xs, put_iq4_xs), "IQ2_XXS": (get_iq2_xxs, put_iq2_xxs), "IQ2_XS": (get_iq2_xs, put_iq2_xs),
    "IQ2_S": (get_iq2_s, put_iq2_s), "IQ3_XXS": (get_iq3_xxs, put_iq3_xxs), "IQ3_S": (get_iq3_s, put_iq3_s),
    "IQ1_S": (get_iq1_s, put_iq1_s), "IQ1_M": (get_iq1_m, put_iq1_m), "TQ1_0": (get_tq1_0, put_tq1_0),
    "TQ2_0": (get_tq2_0, put_tq2_0), "NVFP4": (get_nvfp4, put_nvfp4), "I32": (get_i32, put_i32),
}


def dequantize(kind, raw):
    """bytes -> the exact values as float32, one after the other"""
    b = np.frombuffer(raw, np.uint8).reshape(-1, TYPES[kind].n_byte)
    return CODECS[kind][0](b).reshape(-1).astype(np.float32)


def quantize(kind, x):
    """floats, whole blocks of them -> bytes"""
    size(kind, np.size(x))
    return CODECS[kind][1](np.ascontiguousarray(x, np.float32).reshape(-1, TYPES[kind].n_element)).tobytes()
