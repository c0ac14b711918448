"""Two small but complete vocabularies of 288 entries, SentencePiece style and byte-level BPE."""
import gguf

N_VOCAB = 288
PIECES = ["\u2581", "e", "t", "a", "o", "i", "n", "s", "h", "r", "d", "l", "\u2581t", "he", "\u2581the", "\u2581a", "in",
          "er", "an", "re", "on", "nd", "\u2581and", "\u2581s", "st", "is", "or", "\u2581o", "ll"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]


def sentencepiece(file):
    """<unk> <s> </s>, 256 bytes, 29 pieces; every longer one is the join of two others."""
    # The earlier in the list, the better the score; single characters come last.
    order = sorted(PIECES, key=lambda piece: len(piece) == 1)
    file.add("tokenizer.ggml.model", gguf.STR, "llama")
    file.add("tokenizer.ggml.pre", gguf.STR, "default")
    file.add_array("tokenizer.ggml.tokens", gguf.STR,
                   ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + PIECES)
    file.add_array("tokenizer.ggml.scores", gguf.F32, [0.0] * 259 + [-float(order.index(p)) for p in PIECES])
    file.add_array("tokenizer.ggml.token_type", gguf.I32, [2, 3, 3] + [6] * 256 + [1] * len(PIECES))
    file.add("tokenizer.ggml.bos_token_id", gguf.U32, 1)
    file.add("tokenizer.ggml.eos_token_id", gguf.U32, 2)
    file.add("tokenizer.ggml.unknown_token_id", gguf.U32, 0)
    file.add("tokenizer.ggml.add_bos_token", gguf.BOOL, True)
    file.add("tokenizer.ggml.add_eos_token", gguf.BOOL, False)


def byte_characters():
    """The 256 printable characters that stand for bytes in GPT-2's vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def byte_level(file, pre, add_bos):
    """256 bytes, 28 merges, 4 special tokens at the end."""
    characters = byte_characters()
    s = characters[32]
    merges = [(s, "t"), ("h", "e"), (s + "t", "he"), (s, "a"), ("i", "n"), ("e", "r"), ("a", "n"), ("o", "n"), ("r", "e"),
              ("n", "d"), (s + "a", "nd"), (s, "s"), ("s", "t"), ("i", "s"), ("o", "r"), (s, "o"), ("l", "l"), ("e", "n"),
              ("a", "t"), (s, "w"), (s, "h"), (s, "c"), ("o", "u"), ("i", "t"), ("e", "s"), (s, "b"), (s, "f"), ("in", "g")]
    pieces = characters + [a + b for a, b in merges]
    file.add("tokenizer.ggml.model", gguf.STR, "gpt2")
    file.add("tokenizer.ggml.pre", gguf.STR, pre)
    file.add_array("tokenizer.ggml.tokens", gguf.STR, pieces + SPECIAL)
    file.add_array("tokenizer.ggml.token_type", gguf.I32, [1] * len(pieces) + [3] * len(SPECIAL))
    file.add_array("tokenizer.ggml.merges", gguf.STR, [a + " " + b for a, b in merges])
    file.add("tokenizer.ggml.bos_token_id", gguf.U32, N_VOCAB - 4)
    file.add("tokenizer.ggml.eos_token_id", gguf.U32, N_VOCAB - 2)
    file.add("tokenizer.ggml.padding_token_id", gguf.U32, N_VOCAB - 1)
    file.add("tokenizer.ggml.add_bos_token", gguf.BOOL, add_bos)
