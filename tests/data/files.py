"""golden/files: one tiny llama model in five forms of GGUF, all of which have the logits of tiny.f32."""
import random

import arch
import gguf
from gguf import Array


def parts(file):
    """Three files: all metadata in the first; 7 tensors, 1, and the rest."""
    names = list(file.tensors)
    for i, some in enumerate((names[:7], names[7:8], names[8:])):
        part = file.copy()
        part.tensors = {name: file.tensors[name] for name in some}
        if i > 0:
            part.kv = {}
        part.add("split.no", gguf.U16, i)
        part.add("split.count", gguf.U16, 3)
        part.add("split.tensors.count", gguf.I32, len(names))
        yield part


def add_extremes(file):
    """Every type of value with its ends, alone and in arrays; arrays and texts that are long, empty or no UTF-8."""
    integers = {"u8": (gguf.U8, 0, 8), "i8": (gguf.I8, 1, 8), "u16": (gguf.U16, 0, 16), "i16": (gguf.I16, 1, 16),
                "u32": (gguf.U32, 0, 32), "i32": (gguf.I32, 1, 32), "u64": (gguf.U64, 0, 64), "i64": (gguf.I64, 1, 64)}
    for name, (kind, signed, bits) in integers.items():
        low, high = (-2 ** (bits - 1), 2 ** (bits - 1) - 1) if signed else (0, 2 ** bits - 1)
        file.add(f"zz.{name}.min", kind, low)
        file.add(f"zz.{name}.max", kind, high)
        file.add_array(f"zz.{name}.array", kind, [low, high] + [i % 100 for i in range(998)])
    file.add_array("zz.f32.array", gguf.F32, [1e-45, -0.0, 3.4028234e38, 0.5] * 5000)
    file.add_array("zz.f64.array", gguf.F64, [5e-324, 1.7976931348623157e308, 0.1, -1.0] * 250)
    file.add("zz.f64", gguf.F64, 0.1)
    file.add_array("zz.bool.array", gguf.BOOL, [True, False, False] * 100)
    file.add_array("zz.string.array", gguf.STR, [f"piece {i // 7}" for i in range(60000)])
    file.add("zz.string.empty", gguf.STR, "")
    file.add("zz.string.long", gguf.STR, "all work and no play " * 5000)
    file.add("zz.string.utf8", gguf.STR, "\u00dcn\u00efcode \u6587\u5b57 \U0001f642 \n\t\"quoted\" \\ \x01")
    file.add("zz.string.bytes", gguf.STR, bytes([0xff, 0xfe, 0, 0x80, 0x41]))
    file.add_array("zz.array.empty.strings", gguf.STR, [])
    file.add_array("zz.array.empty.u32", gguf.U32, [])
    file.add("zz." + "long." * 60 + "key", gguf.U32, 7)
    for i in range(2000):
        file.add(f"zz.many.{i:04d}", gguf.U32, i)


def make(folder):
    m = arch.Maker("tiny", "llama", 601, d_model=32, d_ff=48, n_ids=32, tied=True)
    arch.llama(m)
    ids, logits = m.settled_ids()
    file = m.file
    folder.write_ids("golden/files/tiny.ids", ids)
    folder.write_floats("golden/files/tiny.f32", logits)
    folder.write("golden/files/tiny.gguf", file.to_bytes())
    folder.write("golden/files/tiny-v2.gguf", file.copy(version=2).to_bytes())
    for i, part in enumerate(parts(file)):
        folder.write(f"golden/files/tiny-{i + 1:05d}-of-00003.gguf", part.to_bytes())

    much = file.copy(alignment=4096)
    names = random.Random(602).sample(list(file.tensors), len(file.tensors))
    much.tensors = {name: file.tensors[name] for name in names}
    add_extremes(much)
    folder.write("golden/files/tiny-meta.gguf", much.to_bytes())

    nested = file.copy()
    nested.add_array("zz.nested", gguf.ARR, [Array(gguf.U32, [1, 2, 3]), Array(gguf.STR, ["a", "bc"]),
                                             Array(gguf.ARR, [Array(gguf.U8, [9]), Array(gguf.F64, [])])])
    folder.write("golden/files/tiny-nested.gguf", nested.to_bytes())
