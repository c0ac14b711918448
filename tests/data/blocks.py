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

import numpy as np

Type = collections.namedtuple("Type", "id n_element n_byte")
TYPES = {
    "F32": Type(0, 1, 4), "F16": Type(1, 1, 2), "Q4_0": Type(2, 32, 18), "Q4_1": Type(3, 32, 20), "Q5_0": Type(6, 32, 22),
    "Q5_1": Type(7, 32, 24), "Q8_0": Type(8, 32, 34), "Q2_K": Type(10, 256, 84), "Q3_K": Type(11, 256, 110),
    "Q4_K": Type(12, 256, 144), "Q5_K": Type(13, 256, 176), "Q6_K": Type(14, 256, 210), "IQ4_NL": Type(20, 32, 18),
    "IQ4_XS": Type(23, 256, 136), "BF16": Type(30, 1, 2), "MXFP4": Type(39, 32, 17), "I32": Type(26, 1, 4),
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


CODECS = {
    "F32": (get_f32, put_f32), "F16": (get_half, put_f16), "BF16": (get_bf16, put_bf16), "Q8_0": (get_q8_0, put_q8_0),
    "Q4_0": (get_q4_0, put_q4_0), "Q4_1": (get_q4_1, put_q4_1), "Q5_0": (get_q5_0, put_q5_0), "Q5_1": (get_q5_1, put_q5_1),
    "IQ4_NL": (get_iq4_nl, put_iq4_nl), "MXFP4": (get_mxfp4, put_mxfp4), "Q2_K": (get_q2_k, put_q2_k),
    "Q3_K": (get_q3_k, put_q3_k), "Q4_K": (get_q4_k, put_q4_k), "Q5_K": (get_q5_k, put_q5_k), "Q6_K": (get_q6_k, put_q6_k),
    "IQ4_XS": (get_iq4_xs, put_iq4_xs), "I32": (get_i32, put_i32),
}


def dequantize(kind, raw):
    """bytes -> the exact values as float32, one after the other"""
    b = np.frombuffer(raw, np.uint8).reshape(-1, TYPES[kind].n_byte)
    return CODECS[kind][0](b).reshape(-1).astype(np.float32)


def quantize(kind, x):
    """floats, whole blocks of them -> bytes"""
    size(kind, np.size(x))
    return CODECS[kind][1](np.ascontiguousarray(x, np.float32).reshape(-1, TYPES[kind].n_element)).tobytes()
