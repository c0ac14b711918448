"""models/storyteller-drelu: the model that the program embeds, its Q8_0 blocks decoded exactly to F32."""
import os

import gguf

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "storyteller-q8_0.gguf")


def floats():
    file = gguf.read(SOURCE)
    out = file.copy()
    for name in file.tensors:
        out.add_tensor(name, file.get(name))
    out.add("general.file_type", gguf.U32, 0)
    del out.kv["general.quantization_version"]
    return out


def make(folder):
    folder.write("models/storyteller-drelu/storyteller-drelu-f32.gguf", floats().to_bytes())
