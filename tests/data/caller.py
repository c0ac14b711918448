"""A model that answers by a chain: what comes next depends on the last token alone, and so on where its template ends.

    python3 tests/data/caller.py OUT.gguf          (make.py writes serve/caller.gguf)

Behind <|call|> it writes a call of a function, behind <|say|> a greeting, behind <|lost|> a word that tells of a missing
text. The file has no template, and the call the texts NAME, ARGUMENTS and MORE: chat_model.with_template adds the one
and renames the others. A call of five tokens is cut within the arguments. Long prompts are few tokens and little work: filler, words of schemas and of English are tokens, and
one layer adds nothing to embeddings of few columns, to which the output matrix has the token that follows.
"""
import collections
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    sys.path[:0] = [HERE]
    sys.dont_write_bytecode = True
import gguf  # noqa: E402: the path is set above

D_MODEL, N_HEAD, D_FF, NEXT = 64, 2, 32, 6.0
CONTROL = ["<|im_start|>", "<|im_end|>", "<|call|>", "<|say|>", "<|lost|>"]
CHAINS = [["<|call|>", "<tool_call>\n", "{\"name\": \"", "NAME", "\", \"arguments\": ", "ARGUMENTS", "MORE", "}", "\n</tool_call>"],
          ["<|say|>", "Hello", " there", "!"],
          ["<|lost|>", "Missing"]]
RUNS = [c * (1 << i) for c, n in (("x", 9), ("a", 5)) for i in range(1, n)]
KINDS = [f'"type": "{kind}", "description": "' for kind in ("string", "boolean", "number", "object")]
SCHEMAS = ["\\n", '\\"', '", "', '"}, "', '": {"', '": "', '"type": "', '", "type": "string"}, "', '"type": "object", "properties": {"',
           '"items": {"type": "', '"additionalProperties": ', '"$schema": "https://json-schema.org/draft/2020-12/schema", "',
           '"required": ["', '"enum": ["', '"description": "', '{"type": "function", "function": {"name": "', '", "parameters": {']
BYTES = [f"<0x{i:02X}>" for i in range(256)]
ANSWERS = [t for chain in CHAINS for t in chain[1:]]


def common_words():
    with open(os.path.join(HERE, "text", "english.txt"), encoding="utf-8") as f:
        words = collections.Counter(re.findall(" [a-z]{2,}", f.read()))
    return [w for w, _ in words.most_common(512) if w not in ANSWERS]


DEFINED = [*ANSWERS, *RUNS, *KINDS, *SCHEMAS, *common_words()]
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, "\u2581", *CONTROL, *DEFINED]


def matrices():
    """The embeddings and the output: a column for each token of a chain, the last one for all others, which end an answer."""
    ids, in_chains = {t: i for i, t in enumerate(TOKENS)}, [t for chain in CHAINS for t in chain]
    column = {t: i for i, t in enumerate(in_chains)}
    embeddings, output = np.zeros((len(TOKENS), D_MODEL)), np.zeros((len(TOKENS), D_MODEL))
    for t, i in ids.items():
        embeddings[i, column.get(t, D_MODEL - 1)] = 1.0
    output[ids["<|im_end|>"], D_MODEL - 1] = NEXT
    for chain in CHAINS:
        for a, b in zip(chain, [*chain[1:], "<|im_end|>"]):
            output[ids[b], column[a]] = NEXT
    output[ids[f"<0x{ord('{'):02X}>"], column["<|say|>"]] = NEXT / 2  # where a schema forbids the greeting
    return embeddings, output


def add_vocabulary(file):
    file.add("tokenizer.ggml.model", gguf.STR, "llama")
    file.add_array("tokenizer.ggml.tokens", gguf.STR, TOKENS)
    file.add_array("tokenizer.ggml.scores", gguf.F32, [0.0] * len(TOKENS))
    file.add_array("tokenizer.ggml.token_type", gguf.I32, [2, 3, 3] + [6] * 256 + [1] + [3] * len(CONTROL) + [4] * len(DEFINED))
    for name, token in (("bos", "<s>"), ("eos", "<|im_end|>"), ("unknown", "<unk>")):
        file.add(f"tokenizer.ggml.{name}_token_id", gguf.U32, TOKENS.index(token))


def model():
    file = gguf.File()
    file.add("general.architecture", gguf.STR, "llama")
    for key, value in (("context_length", 1 << 18), ("embedding_length", D_MODEL), ("block_count", 1), ("feed_forward_length", D_FF),
                       ("attention.head_count", N_HEAD), ("attention.head_count_kv", N_HEAD), ("rope.dimension_count", D_MODEL // N_HEAD)):
        file.add("llama." + key, gguf.U32, value)
    file.add("llama.attention.layer_norm_rms_epsilon", gguf.F32, 1e-5)
    add_vocabulary(file)
    embeddings, output = matrices()
    file.add_tensor("token_embd.weight", embeddings)
    file.add_tensor("output_norm.weight", np.ones(D_MODEL))
    file.add_tensor("output.weight", output)
    for name, shape in (("attn_q", (D_MODEL, D_MODEL)), ("attn_k", (D_MODEL, D_MODEL)), ("attn_v", (D_MODEL, D_MODEL)),
                        ("attn_output", (D_MODEL, D_MODEL)), ("ffn_gate", (D_FF, D_MODEL)), ("ffn_up", (D_FF, D_MODEL)),
                        ("ffn_down", (D_MODEL, D_FF))):
        file.add_tensor(f"blk.0.{name}.weight", np.zeros(shape))
    for name in ("attn_norm", "ffn_norm"):
        file.add_tensor(f"blk.0.{name}.weight", np.ones(D_MODEL))
    return file.to_bytes()


def make(folder):
    folder.write("serve/caller.gguf", model())


def main(out):
    with open(out, "wb") as f:
        f.write(model())


if __name__ == "__main__":
    main(sys.argv[1])
