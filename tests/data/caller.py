"""A model that calls functions by itself, for suites that want one: what comes next depends on the last token alone.

    python3 tests/peers/caller.py OUT.gguf

Behind a question with functions it writes a call of get_weather, else a greeting. Tokens are columns of an identity
matrix, the layer adds nothing, and the output matrix has a large value for each token and the one that follows it.
"""
import os
import sys

import numpy as np

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")]
sys.dont_write_bytecode = True
import gguf  # noqa: E402: the path is set above

D_MODEL, N_HEAD, D_FF, NEXT = 320, 10, 32, 2.0
CONTROL = ["<|im_start|>", "<|im_end|>", "<|call|>", "<|say|>"]
CALL = ["<tool_call>\n", "{\"name\": \"", "get_weather", "\", \"arguments\": ", "{\"location\": ", "\"San Francisco, CA\"", "}}",
        "\n</tool_call>"]
GREETING = ["Hello", " there", "!"]
TEMPLATE = ("{%- if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<tool_call>{...}</tool_call><|im_end|>\n{% endif %}"
            "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
            "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
            "{{ '<|call|>' if tools and messages[-1].role == 'user' else '<|say|>' }}{% endif %}")
BYTES = [f"<0x{i:02X}>" for i in range(256)]
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *CONTROL, *CALL, *GREETING]


def followers():
    ids = {t: i for i, t in enumerate(TOKENS)}
    follows = np.full(len(TOKENS), ids["<|im_end|>"])
    for chain in (["<|call|>", *CALL], ["<|say|>", *GREETING]):
        for a, b in zip(chain, chain[1:]):
            follows[ids[a]] = ids[b]
    return follows


def add_vocabulary(file):
    n_text = len(CALL) + len(GREETING)
    file.add("tokenizer.ggml.model", gguf.STR, "llama")
    file.add_array("tokenizer.ggml.tokens", gguf.STR, TOKENS)
    file.add_array("tokenizer.ggml.scores", gguf.F32, [0.0] * len(TOKENS))
    file.add_array("tokenizer.ggml.token_type", gguf.I32, [2, 3, 3] + [6] * 256 + [3] * len(CONTROL) + [4] * n_text)
    for name, token in (("bos", "<s>"), ("eos", "<|im_end|>"), ("unknown", "<unk>")):
        file.add(f"tokenizer.ggml.{name}_token_id", gguf.U32, TOKENS.index(token))
    file.add("tokenizer.chat_template", gguf.STR, TEMPLATE)


def make():
    file, n = gguf.File(), len(TOKENS)
    file.add("general.architecture", gguf.STR, "llama")
    for key, value in (("context_length", 4096), ("embedding_length", D_MODEL), ("block_count", 1), ("feed_forward_length", D_FF),
                       ("attention.head_count", N_HEAD), ("attention.head_count_kv", N_HEAD), ("rope.dimension_count", D_MODEL // N_HEAD)):
        file.add("llama." + key, gguf.U32, value)
    file.add("llama.attention.layer_norm_rms_epsilon", gguf.F32, 1e-5)
    add_vocabulary(file)
    file.add_tensor("token_embd.weight", np.eye(n, D_MODEL))
    file.add_tensor("output_norm.weight", np.ones(D_MODEL))
    output = np.zeros((n, D_MODEL))
    output[followers(), np.arange(n)] = NEXT
    file.add_tensor("output.weight", output)
    for name, shape in (("attn_q", (D_MODEL, D_MODEL)), ("attn_k", (D_MODEL, D_MODEL)), ("attn_v", (D_MODEL, D_MODEL)),
                        ("attn_output", (D_MODEL, D_MODEL)), ("ffn_gate", (D_FF, D_MODEL)), ("ffn_up", (D_FF, D_MODEL)),
                        ("ffn_down", (D_MODEL, D_FF))):
        file.add_tensor(f"blk.0.{name}.weight", np.zeros(shape))
    for name in ("attn_norm", "ffn_norm"):
        file.add_tensor(f"blk.0.{name}.weight", np.ones(D_MODEL))
    return file


def main(out):
    with open(out, "wb") as f:
        f.write(make().to_bytes())


if __name__ == "__main__":
    main(sys.argv[1])
