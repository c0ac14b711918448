"""GGUF files (versions 2 and 3, little-endian), and PowerInfer's variant of them, whole in memory.

Shapes are in file order: the first number is the length of a row, the dimension that runs fastest in memory.
Arrays have the same shape reversed, as numpy has it.
"""
import collections
import struct

import numpy as np

import blocks

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
FORMATS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q",
           F64: "<d"}

Tensor = collections.namedtuple("Tensor", "type shape raw")


class Array(list):
    """An array of metadata with its type of elements."""

    def __init__(self, kind, items):
        super().__init__(items)
        self.kind = kind


def pack_value(kind, value):
    if kind == STR:
        raw = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(raw)) + raw
    if kind == ARR:
        head = struct.pack("<IQ", value.kind, len(value))
        if value.kind in FORMATS and value.kind != BOOL:
            return head + np.asarray(list(value), FORMATS[value.kind]).tobytes()
        return head + b"".join(pack_value(value.kind, v) for v in value)
    return struct.pack(FORMATS[kind], value)


class Reader:
    """Takes values from bytes, one after the other."""

    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, form):
        values = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return values if len(values) > 1 else values[0]

    def text(self):
        n = self.take("<Q")
        self.at += n
        raw = self.raw[self.at - n:self.at]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def value(self, kind):
        if kind == STR:
            return self.text()
        if kind == ARR:
            kind, n = self.take("<IQ")
            return Array(kind, [self.value(kind) for _ in range(n)])
        value = self.take(FORMATS[kind])
        return bool(value) if kind == BOOL else value


class File:
    """Metadata and tensors in the order of the file. magic is b"GGUF", or b"PWRI" for PowerInfer's."""

    def __init__(self, magic=b"GGUF", version=3, alignment=32):
        self.magic, self.version, self.alignment = magic, version, alignment
        self.kv, self.tensors = {}, {}
        if alignment != 32:
            self.add("general.alignment", U32, alignment)

    def add(self, key, kind, value):
        self.kv[key] = (kind, value)

    def add_array(self, key, kind, items):
        self.kv[key] = (ARR, Array(kind, items))

    def add_tensor(self, name, values, kind="F32"):
        """values: an array of any float type, rounded and packed here."""
        values = np.asarray(values, np.float32)
        blocks.size(kind, values.shape[-1])  # a block is part of one row
        self.tensors[name] = Tensor(kind, tuple(reversed(values.shape)), blocks.quantize(kind, values))

    def copy(self, **options):
        other = File(magic=self.magic, **options)
        other.kv.update(self.kv)
        other.tensors.update(self.tensors)
        return other

    def meta(self, key, default=None):
        return self.kv[key][1] if key in self.kv else default

    def get(self, name):
        """The exact values of a tensor as float32, in the reversed shape."""
        t = self.tensors[name]
        return blocks.dequantize(t.type, t.raw).reshape(tuple(reversed(t.shape)))

    def to_bytes(self):
        out = [self.magic, struct.pack("<IQQ", self.version, len(self.tensors), len(self.kv))]
        for key, (kind, value) in self.kv.items():
            out += [pack_value(STR, key), struct.pack("<I", kind), pack_value(kind, value)]
        offset = 0
        for name, t in self.tensors.items():
            out += [pack_value(STR, name), struct.pack("<I", len(t.shape)), struct.pack(f"<{len(t.shape)}Q", *t.shape),
                    struct.pack("<IQ", blocks.TYPES[t.type].id, offset)]
            offset += len(t.raw) + -len(t.raw) % self.alignment
        head = b"".join(out)
        parts = [head] + [t.raw for t in self.tensors.values()]
        return b"".join(part + b"\0" * (-len(part) % self.alignment) for part in parts)


def read(path):
    with open(path, "rb") as f:
        r = Reader(f.read())
    magic = r.raw[:4]
    r.at = 4
    version, n_tensor, n_kv = r.take("<IQQ")
    if magic not in (b"GGUF", b"PWRI") or version not in (2, 3):
        raise ValueError(f"{path}: magic {magic}, version {version}")
    file = File(magic, version)
    for _ in range(n_kv):
        key, kind = r.text(), r.take("<I")
        file.add(key, kind, r.value(kind))
    file.alignment = file.meta("general.alignment", 32)
    infos = []
    for _ in range(n_tensor):
        name, n_dim = r.text(), r.take("<I")
        shape = [r.take("<Q") for _ in range(n_dim)]
        kind = blocks.NAMES[r.take("<I")]
        infos.append((name, kind, tuple(shape), r.take("<Q")))
    base = r.at + -r.at % file.alignment
    for name, kind, shape, offset in infos:
        raw = r.raw[base + offset:base + offset + blocks.size(kind, int(np.prod(shape)))]
        file.tensors[name] = Tensor(kind, shape, raw)
    return file
