"""The forward pass of every architecture of the golden files, in double precision.

Written to be read: no cache, no batches, all positions at once, every intermediate value float64. Conventions of the
formats are those of the GGUF converters (llama.cpp, PowerInfer); README.md lists what differs between architectures.
"""
from types import SimpleNamespace

import numpy as np


# ---- functions --------------------------------------------------------------------------------

def sigmoid(x): return 1 / (1 + np.exp(-x))
def silu(x): return x * sigmoid(x)
def relu(x): return np.maximum(x, 0)
def relu2(x): return relu(x) ** 2
def gelu(x): return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))


def normalise(x, eps, subtract_mean, weight=None, bias=None):
    if subtract_mean:
        x = x - x.mean(axis=-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def clamped_swiglu(g, u):
    g, u = np.minimum(g, 7), np.clip(u, -7, 7)
    return g * sigmoid(1.702 * g) * (u + 1)


# The names of hearth.ffn.activation, (gate, up) -> hidden; without a gate tensor f(up).
GATED = {"swiglu": silu, "silu": silu, "reglu": relu, "relu": relu, "geglu": gelu, "gelu": gelu, "relu2": relu2}
PLAIN = {"silu": silu, "swiglu": silu, "gelu": gelu, "relu": relu, "relu2": relu2}


def activation(name, gated):
    if name == "clamped":
        return clamped_swiglu
    if not gated:
        return lambda g, u: PLAIN[name](u)
    if name == "drelu":
        return lambda g, u: relu(g) * relu(u)
    return lambda g, u: GATED[name](g) * u


class Rope:
    """Rotates the pairs (2i, 2i+1), or with halves (i, i + n/2), but for those of index still."""

    def __init__(self, halves, n, base, scaling="none", factor=1.0, n_ctx=0, attn_factor=1.0, freqs=None, still=(),
                 yarn_size=None, turns=(32.0, 1.0)):
        i = np.arange(n // 2)
        theta = base ** (-2.0 * i / n)
        if freqs is not None:
            theta = theta / freqs
        size = attn_factor
        if scaling == "linear":
            theta = theta / factor
        elif scaling == "yarn":
            def dimension(turns): return n * np.log(n_ctx / (turns * 2 * np.pi)) / (2 * np.log(base))
            low, high = max(0.0, np.floor(dimension(turns[0]))), min(n - 1.0, np.ceil(dimension(turns[1])))
            keep = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)
            theta = theta / factor * (1 - keep) + theta * keep
            size *= 1 + 0.1 * np.log(factor) if yarn_size is None else yarn_size
        theta = np.where(np.isin(i, still), 0.0, theta)
        self.halves, self.n, self.theta, self.size = halves, n, theta, size

    def __call__(self, x):
        """x: [tokens, heads, dimensions], from position 0 on"""
        angle = np.arange(len(x))[:, None] * self.theta[None, :]
        c, s = (np.cos(angle) * self.size)[:, None, :], (np.sin(angle) * self.size)[:, None, :]
        h = self.n // 2
        first, second = (slice(0, h), slice(h, self.n)) if self.halves else (slice(0, self.n, 2), slice(1, self.n, 2))
        u, v, y = x[..., first], x[..., second], x.copy()
        y[..., first], y[..., second] = u * c - v * s, u * s + v * c
        return y


def still_pairs(kind, sizes, n):
    """Which of n pairs stay where they are: they belong to a section whose position is 0 for text."""
    sector = np.arange(n) % sum(sizes)
    if kind == "blocks":
        return np.flatnonzero(sector >= sum(sizes[:3]))
    return np.flatnonzero(sector >= 3 * np.asarray(sizes)[sector % 3])


def alibi_slopes(n_head, largest):
    """Press et al. 2022. Heads beyond a power of two lie between the first ones."""
    n = 1 << (n_head.bit_length() - 1)
    exponents = [largest * (h + 1) / n if h < n else largest / 2 * (2 * (h - n) + 1) / n for h in range(n_head)]
    return 2.0 ** -np.asarray(exponents)


def attention(q, k, v, scale, window=0, cap=0.0, sinks=None, slopes=None):
    """q [T, H, d], k [T, G, d], v [T, G, e] -> [T, H * e]. Position p sees max(0, p - window + 1) .. p."""
    n_tok, n_head, _ = q.shape
    repeat = n_head // k.shape[1]
    distance = np.arange(n_tok)[:, None] - np.arange(n_tok)[None, :]
    hidden = (distance < 0) | (distance >= window) if window else distance < 0
    out = np.empty((n_tok, n_head, v.shape[2]))
    for h in range(n_head):
        s = q[:, h] @ k[:, h // repeat].T * scale
        if cap:
            s = cap * np.tanh(s / cap)
        if slopes is not None:
            s = s - slopes[h] * distance
        s[hidden] = -np.inf
        if sinks is not None:  # one more score per head, which carries no value
            s = np.concatenate([s, np.full((n_tok, 1), sinks[h])], axis=1)
        out[:, h] = softmax(s)[:, :n_tok] @ v[:, h // repeat]
    return out.reshape(n_tok, -1)


# ---- architectures ----------------------------------------------------------------------------

POST_NORMS = ("post_attention_norm", "post_ffw_norm")

USUAL = dict(
    rotation="neighbours",  # or "halves", or None
    sections=None,          # "blocks", "interleaved"; "decide": blocks and halves if the file states sections
    finetuned=False,        # nothing rotates if rope.scaling.finetuned is false
    factors=True,           # the divisors of the file apply
    alpha=False,            # rope.scaling.alpha raises the base
    fixed_rope=False,       # all of a head rotates by base 10000, whatever the keys say
    rotates=lambda i, near, any_near: True,  # layer i; near: it has a window, any_near: some layer has one
    windows=None,           # WINDOWS below; None: attention.sliding_window means nothing
    norm="rms",             # or "layer", which subtracts the mean; biases: those that the file has
    pre_norms=True,
    post_norms=None,        # of the outputs of attention and network: their names
    ffn_norm="ffn_norm",
    parallel="no",          # "shared": attention and network read attn_norm; "key": if the file says so, and each has
                            # its norm; "tensors": shared without a tensor ffn_norm
    qk_norm=None,           # of each "head", of "each" with weights of its own, of "all" heads together
    qk_norm_after=False,    # after the rotation
    qk_norm_plain=False,    # without weights, of heads that rotate
    clamps=False,           # queries, keys and values
    alibi=lambda m: 0.0,
    score=lambda m: 1 / np.sqrt(m.d_head),
    embedding=lambda m: 1.0, residual=lambda m: 1.0, logits=lambda m: 1.0,  # factors
    positions=None,         # learned: the row of the first
    act="swiglu",
    joined=False,           # ffn_up has the rows of the gate, then its own
    unused=(),              # biases that are not added
    experts=None,           # EXPERTS below
    gate=None,              # of the outputs of heads, or of values, as attn_gate has rows: a function of its product
    value_scale=False,      # attention.value_scale multiplies values
    adds_embedding=False,   # embeddings are normalised; times layer_output_scale they are added after each layer
    leading_rotate=False,   # the first leading_dense_block_count layers do in any case
    beside=None,            # factor of the sum of a dense network and of experts, where a layer has both
    turns=lambda m: (32.0, 1.0), # of YaRN
    q_gate=False,           # attn_q has for each head its queries, then a gate, whose sigmoid multiplies its output
    recurrent=None,         # layers without attention: "convolution", those without heads of keys; "delta", all but every
                            # 4th, or what attention.recurrent_layers says; "states", those without heads of keys
    alternates=True,        # delta: head h has keys h mod n, else h / (heads / n)
    states=None,            # of "heads" (Mamba-2), of "channels" (Mamba), of "low heads" (PLaMo 2)
    everywhere=None,        # all layers have states: "alone", or "beside" attention, both with the same input
    layers="full",          # "mixer": without networks; "either": a network where feed_forward_length is not 0, else a mixer
    eps=None,               # key of the epsilon
    output_norm="output_norm",
    gemma4=False,           # values are normalised, or keys; the last layers share them; both networks; layer embeddings
    latent=False,           # attention over latent vectors (DeepSeek-V2)
    deepseek4=False,        # deepseek4.py
    yarn=lambda m, log: (1.0, 1.0),  # factors of rotated vectors and of scores, of the logarithm of YaRN's factor
    temperature=None,       # key of the length by which queries grow
)

# Of the layers without a window: one in a period, which is the last, or the first. other_base: of layers with one,
# which are not scaled; unscaled: the same with the base of all layers.
WINDOWS = dict(period=0, size=0, dense_first=False, n_layer=None, unscaled=False, other_base=None)

# "key": what the file says. score: "softmax", "sigmoid", or "chosen", the softmax of the chosen logits.
# before: they read the stream before the mixer, and a dense network is beside; shared: weight of the shared one, and of the
# sum of the others.
EXPERTS = dict(score="softmax", normalise=True, scale=False, reads_layer_input=False, apply_router_weight_on_input=False, before=False, shared=1.0)


def softplus(x): return np.log1p(np.exp(x))


def scale_key(name, usual=lambda m: 1.0):
    """A factor of a key, where 0 means that there is none."""
    return lambda m: m.key(name, 0.0) or usual(m)


def a_row(base=None, windows=None, experts=None, **fields):
    row = dict(base or USUAL, **fields)
    if windows is not None:
        row["windows"] = dict(WINDOWS, **windows)
    if experts is not None:
        row["experts"] = dict(EXPERTS, **experts)
    return row


HALVES = a_row(rotation="halves")
PLAIN_GELU = a_row(norm="layer", act="gelu", rotation=None)
GRANITE = a_row(embedding=scale_key("embedding_scale"), residual=scale_key("residual_scale"),
                logits=lambda m: 1 / m.key("logit_scale"), score=scale_key("attention.scale", USUAL["score"]), experts={})
BY_KEYS = dict(normalise="key", scale="key")


def yarn_turns(m, fast):
    return m.key("rope.scaling.yarn_beta_fast", fast), m.key("rope.scaling.yarn_beta_slow", 1.0)


def latent_yarn(m, log, apart):
    """apart: vectors are not scaled, whatever the multiplier is"""
    multiplier = m.key("rope.scaling.yarn_log_multiplier", 0.0) / 0.1
    size = (1 + 0.1 * (multiplier if apart and multiplier else 1.0) * log) / (1 + 0.1 * multiplier * log)
    return size, size * m.key("rope.scaling.attn_factor", 1.0) * (1 + 0.1 * multiplier * log)


DEEPSEEK = a_row(latent=True, temperature="attention.temperature_length", experts=dict(score="key", **BY_KEYS))
QWEN_HYBRID = a_row(HALVES, qk_norm="head", q_gate=True, ffn_norm="post_attention_norm", recurrent="delta", experts={})
MAMBA = a_row(rotation=None, recurrent="states", everywhere="alone", layers="mixer")
NEMOTRON_H = a_row(rotation=None, act="relu2", recurrent="states", states="heads", layers="either",
                   experts=dict(score="sigmoid", **BY_KEYS))
LIQUID = a_row(HALVES, qk_norm="head", windows=dict(size=0), recurrent="convolution", output_norm="token_embd_norm")
COHERE = a_row(norm="layer", parallel="shared", logits=scale_key("logit_scale"))

ROWS = {
    "llama": a_row(experts={}),
    "bamboo": a_row(act="drelu"),
    "arcee": a_row(act="relu2"),
    "smollm3": a_row(rotates=lambda i, near, any_near: i % 4 != 3),
    "glm4": a_row(sections="decide", post_norms=POST_NORMS, joined=True),
    "ernie4_5-moe": a_row(unused=("attn_output.bias",), experts={}),
    "olmo": a_row(norm="layer", clamps=True),
    "olmo2": a_row(HALVES, pre_norms=False, post_norms=POST_NORMS, qk_norm="all", windows=dict(period=4, unscaled=True)),
    "olmoe": a_row(HALVES, qk_norm="all", experts=dict(normalise=False)),
    "granite": a_row(GRANITE, finetuned=True),
    "granitemoe": GRANITE,
    "minicpm": a_row(GRANITE, score=USUAL["score"], embedding=scale_key("embedding_scale", lambda m: 12.0),
                     residual=scale_key("residual_scale", lambda m: 1.4 / np.sqrt(m.n_layer)),
                     logits=lambda m: 1 / scale_key("logit_scale", lambda m: 256 / m.n_embd)(m)),
    "minicpm3": a_row(HALVES, latent=True, embedding=lambda m: 12.0, residual=lambda m: 1.4 / np.sqrt(m.n_layer),
                      logits=lambda m: 256 / m.n_embd),
    "qwen": HALVES,
    "qwen2": HALVES,
    "qwen2moe": a_row(HALVES, experts=dict(normalise=False)),
    "qwen3": a_row(HALVES, qk_norm="head"),
    "qwen3vl": a_row(HALVES, qk_norm="head", sections="interleaved"),
    "qwen3moe": a_row(HALVES, qk_norm="head", experts={}),
    "qwen3next": a_row(QWEN_HYBRID, alternates=False),
    "qwen35": a_row(QWEN_HYBRID, sections="interleaved"),
    "qwen35moe": a_row(QWEN_HYBRID, sections="interleaved"),
    "mamba": a_row(MAMBA, states="channels"),
    "mamba2": a_row(MAMBA, states="heads"),
    "falcon-h1": a_row(HALVES, recurrent="states", states="heads", everywhere="beside", factors=False,
                       unused=("attn_output.bias",)),
    "granitehybrid": a_row(GRANITE, recurrent="states", states="heads", finetuned=True,
                           logits=lambda m: 1 / scale_key("logit_scale")(m)),
    "nemotron_h": a_row(NEMOTRON_H, eps="attention.layer_norm_epsilon"),
    "nemotron_h_moe": NEMOTRON_H,
    "jamba": a_row(rotation=None, recurrent="states", states="channels", experts=dict(normalise=False)),
    "plamo2": a_row(HALVES, recurrent="states", states="low heads", qk_norm="each", post_norms=POST_NORMS, joined=True),
    "lfm2": LIQUID,
    "lfm2moe": a_row(LIQUID, experts=dict(score="key")),
    "deepseek2": a_row(DEEPSEEK, yarn=lambda m, log: latent_yarn(m, log, True)),
    "mistral4": a_row(DEEPSEEK, yarn=lambda m, log: latent_yarn(m, log, False)),
    "plm": a_row(latent=True, act="relu2"),
    "mistral3": a_row(experts={}, temperature="rope.scaling.original_context_length", turns=lambda m: yarn_turns(m, 32.0),
                      yarn=lambda m, log: ((1 + 0.1 * log) / (1 + 0.1 * m.key("rope.scaling.yarn_log_multiplier", 0.0) * log), 1)),
    "exaone4": a_row(HALVES, pre_norms=False, post_norms=POST_NORMS, qk_norm="head", windows=dict(period=4, size=4096, n_layer=64),
                     rotates=lambda i, near, any_near: near or not any_near),
    "hunyuan-dense": a_row(HALVES, qk_norm="head", qk_norm_after=True, sections="decide", alpha=True),
    "hunyuan-moe": a_row(HALVES, qk_norm="head", qk_norm_after=True, experts={}),
    "dots1": a_row(HALVES, qk_norm="head", experts=dict(score="key", **BY_KEYS)),
    "bailingmoe": a_row(experts=BY_KEYS),
    "bailingmoe2": a_row(HALVES, qk_norm="head", experts=dict(score="key", **BY_KEYS)),
    "glm4moe": a_row(HALVES, qk_norm="head", ffn_norm="post_attention_norm", sections="decide",
                     experts=dict(score="key", **BY_KEYS)),
    "minimax-m2": a_row(HALVES, qk_norm="all", experts=dict(score="key")),
    "mimo2": a_row(HALVES, windows=dict(unscaled=True), unused=("attn_q.bias", "attn_k.bias", "attn_v.bias"),
                   value_scale=True, experts=dict(score="sigmoid")),
    "deepseek": a_row(experts=dict(normalise=False, scale="key")),
    "deepseek2-ocr": a_row(HALVES, fixed_rope=True, experts=dict(score="key", **BY_KEYS)),
    "smallthinker": a_row(HALVES, act="reglu", windows=dict(period=4, dense_first=True),
                          rotates=lambda i, near, any_near: i % 4 != 0 or not any_near,
                          experts=dict(score="key", reads_layer_input=True)),
    "gpt-oss": a_row(HALVES, act="clamped", windows=dict(period=2), ffn_norm="post_attention_norm",
                     experts=dict(score="chosen", normalise=False)),
    "gemma2": a_row(HALVES, act="geglu", post_norms=POST_NORMS, windows=dict(period=2), embedding=lambda m: np.sqrt(m.n_embd)),
    "gemma3": a_row(HALVES, act="geglu", post_norms=POST_NORMS, qk_norm="head", windows=dict(period=6, other_base=10000.0),
                    embedding=lambda m: np.sqrt(m.n_embd)),
    "kimi-linear": a_row(rotation=None, latent=True, recurrent="kda", unused=("attn_q.bias", "attn_k.bias", "attn_v.bias"),
                         experts=dict(score="key", scale="key")),
    "llama4": a_row(qk_norm="head", qk_norm_after=True, qk_norm_plain=True, rotates=lambda i, near, any_near: i % 4 != 3,
                    experts=dict(score="sigmoid", normalise=False, apply_router_weight_on_input=True)),
    "deepseek4": a_row(windows=dict(unscaled=True), yarn=lambda m, log: (1.0, 1.0), deepseek4=True,
                       experts=dict(score="key", **BY_KEYS)),
    "glm-dsa": a_row(DEEPSEEK, yarn=lambda m, log: latent_yarn(m, log, False)),
    "gemma4": a_row(HALVES, act="geglu", post_norms=POST_NORMS, qk_norm="head", windows=dict(other_base=10000.0), gemma4=True,
                    embedding=lambda m: np.sqrt(m.n_embd), score=lambda m: 1.0, experts={}),
    "phi2": a_row(PLAIN_GELU, rotation="halves", parallel="shared"),
    "phimoe": a_row(HALVES, experts={}),
    "plamo3": a_row(HALVES, qk_norm="head", post_norms=POST_NORMS, joined=True, windows=dict(period=8, other_base=10000.0)),
    "command-r": a_row(COHERE, qk_norm="each"),
    "cohere2": a_row(COHERE, windows=dict(period=4), rotates=lambda i, near, any_near: near),
    # RMS norms: files state which
    "cohere2moe": a_row(COHERE, norm="rms", windows=dict(period=4, dense_first=True), rotates=lambda i, near, any_near: near,
                        leading_rotate=True, experts=dict(score="key", shared=0.5, **BY_KEYS)),
    "laguna": a_row(HALVES, qk_norm="head", gate=softplus, windows=dict(period=4, dense_first=True, unscaled=True),
                    experts=dict(score="key", **BY_KEYS)),
    "arctic": a_row(experts=dict(before=True)),
    "grok": a_row(HALVES, act="geglu", post_norms=("attn_output_norm", "layer_output_norm"), beside=np.sqrt(0.5),
                  score=lambda m: m.key("attention.output_scale", 0.08838834764831845), experts={},
                  embedding=lambda m: m.key("embedding_scale", 78.38367176906169),
                  logits=lambda m: m.key("logit_scale", 0.5773502691896257),
                  turns=lambda m: yarn_turns(m, 8.0)),
    "talkie": a_row(HALVES, qk_norm="head", qk_norm_after=True, adds_embedding=True, logits=scale_key("logit_scale")),
    "stablelm": a_row(HALVES, norm="layer", parallel="tensors", qk_norm="each"),
    "cogvlm": a_row(HALVES, fixed_rope=True),
    "dbrx": a_row(HALVES, norm="layer", ffn_norm="attn_output_norm", clamps=True, experts={}),
    "refact": a_row(rotation=None, alibi=lambda m: 8.0,
                    unused=("attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias")),
    "jais": a_row(norm="layer", rotation=None, alibi=lambda m: m.key("attention.max_alibi_bias", 0.0),
                  score=lambda m: 1 / m.d_head),
    "gptneox": a_row(PLAIN_GELU, rotation="halves", parallel="key"),
    "gpt2": a_row(PLAIN_GELU, positions=0),
    "bloom": a_row(PLAIN_GELU, alibi=lambda m: 8.0),
    "falcon": a_row(PLAIN_GELU, rotation="halves", parallel="shared"),
    "opt": a_row(PLAIN_GELU, act="relu", positions=2),
}


def eps_key(arch):
    if ROWS[arch]["eps"]:
        return ROWS[arch]["eps"]
    return "attention.layer_norm_epsilon" if ROWS[arch]["norm"] == "layer" else "attention.layer_norm_rms_epsilon"


# ---- the model --------------------------------------------------------------------------------

# PowerInfer's models were retrained; its files do not say so.
POWERINFER_ACTIVATIONS = {"bamboo": "drelu", "falcon": "relu", "opt": "relu", "llama": "reglu"}


class Model:
    """A file of gguf.py. margins: how decided each router was, filled by forward(). squares, if it is a dictionary: of each
    matrix the sums of the squares of its inputs [slices, columns], and how many these were [slices]."""

    def __init__(self, file):
        self.file, self.cache, self.margins, self.squares = file, {}, [], None
        self.arch = file.meta("general.architecture")
        self.row = SimpleNamespace(**ROWS[self.arch])
        self.read_shape()
        self.read_rotation()
        self.read_windows()

    def key(self, name, default=None):
        return self.file.meta(f"{self.arch}.{name}", default)

    def has(self, name):
        return name in self.file.tensors

    def get(self, name):
        """The tensor in doubles; None without it."""
        if name not in self.cache and self.has(name):
            self.cache[name] = self.file.get(name).astype(np.float64)
        return self.cache.get(name)

    def read_shape(self):
        key = self.key
        powerinfer = self.file.magic == b"PWRI"
        self.n_further = key("nextn_predict_layers", 0)  # blocks behind the layers
        self.n_layer, self.n_embd, self.n_head = key("block_count") - self.n_further, key("embedding_length"), key("attention.head_count")
        self.n_kv = key("attention.head_count_kv", self.n_head)
        self.recurrent = [False] * (self.n_layer + self.n_further)
        self.has_mixer, self.has_network = [True] * self.n_layer, [True] * self.n_layer
        if self.row.recurrent == "delta":
            step = key("full_attention_interval", 4)
            self.recurrent = key("attention.recurrent_layers", [i % step != step - 1 for i in range(self.n_layer)])
            self.recurrent = self.recurrent[:self.n_layer] + [False] * self.n_further
        if self.row.recurrent in ("convolution", "kda"):
            self.recurrent, self.n_kv = [n == 0 for n in self.n_kv], max(self.n_kv)
        if self.row.recurrent == "states":
            self.read_states()
        self.d_head = key("attention.key_length", self.n_embd // self.n_head if self.n_head else 0)
        # PowerInfer's converter writes no epsilon for opt, and its engine takes 0.
        self.eps = key(eps_key(self.arch), 0.0 if powerinfer else None)
        self.gated = self.has("blk.0.ffn_gate.weight") or self.has("blk.0.ffn_gate_exps.weight") or self.row.joined
        usual = POWERINFER_ACTIVATIONS[self.arch] if powerinfer else self.row.act
        self.act = activation(self.file.meta("hearth.ffn.activation", usual), self.gated)
        self.threshold = self.file.meta("powerinfer.sparse_threshold", 0.0)

    def read_states(self):
        """Which layers have states, attention, a network."""
        each = lambda n: n if isinstance(n, list) else [n] * self.n_layer
        kv, width = each(self.n_kv), each(self.key("feed_forward_length", 0))
        self.n_head, self.n_kv = max(each(self.n_head)), max(kv)
        self.recurrent = [self.row.everywhere is not None or n == 0 for n in kv]
        if self.row.layers == "mixer":
            self.has_network = [False] * self.n_layer
        if self.row.layers == "either":
            self.has_network = [f > 0 for f in width]
            self.has_mixer = [f == 0 for f in width]

    def read_rotation(self):
        """Of layers without a window, and of those with one."""
        key, row = self.key, self.row
        self.rope = self.near_rope = None
        if row.rotation is None or (row.finetuned and not key("rope.scaling.finetuned", True)):
            return
        halves, n, base = row.rotation == "halves", key("rope.dimension_count", self.d_head), key("rope.freq_base", 10000.0)
        near_base, base = base, key("attention.compress_rope_freq_base", base)
        if row.fixed_rope:
            self.rope = Rope(halves, self.d_head, 10000.0)
            return
        if row.alpha and key("rope.scaling.alpha", 0.0) > 0:
            base *= key("rope.scaling.alpha") ** (self.d_head / (self.d_head - 2))
        sections, kind = key("rope.dimension_sections", [0, 0, 0, 0]), row.sections
        if kind == "decide":
            kind = "blocks" if sections[0] > 0 and sections[1] > 0 else None
            halves = halves or kind is not None
        still = still_pairs(kind, sections, n // 2) if kind else ()
        freqs = self.get("rope_freqs.weight") if row.factors else None
        if freqs is None:
            freqs = self.get("rope_factors_short.weight")  # contexts of the tests are short
        self.rope = Rope(halves, n, base, key("rope.scaling.type", "linear"), key("rope.scaling.factor", 1.0),
                         key("rope.scaling.original_context_length", key("context_length")),
                         key("rope.scaling.attn_factor", 1.0), freqs, still, self.yarn_sizes()[0], row.turns(self))
        self.near_rope = self.rope
        if row.windows and row.windows["unscaled"]:
            self.near_rope = Rope(halves, key("rope.dimension_count_swa", n), key("rope.freq_base_swa", near_base))
        elif row.windows and row.windows["other_base"]:
            n = key("rope.dimension_count_swa", n) if row.gemma4 else n
            self.near_rope = Rope(halves, n, key("rope.freq_base_swa", row.windows["other_base"]))

    def yarn_sizes(self):
        if self.key("rope.scaling.type") != "yarn":
            return 1.0, 1.0
        log = np.log(self.key("rope.scaling.factor"))
        return self.row.yarn(self, log) if self.row.yarn != USUAL["yarn"] else (1 + 0.1 * log, 1.0)

    def read_windows(self):
        """Of each layer: does it rotate, and how far does it see (0: to the beginning)?"""
        layers, rule = range(self.n_layer), self.row.windows
        self.windows = [0 for _ in layers]
        if rule and rule["n_layer"] in (None, self.n_layer):
            size = self.key("attention.sliding_window", rule["size"])
            slides = self.key("attention.sliding_window_pattern", rule["period"])
            if not isinstance(slides, list):
                slides = [slides == 0 or i % slides != (0 if rule["dense_first"] else slides - 1) for i in layers]
            self.windows = [size if s else 0 for s in slides]
        any_near = any(self.windows)
        leading = self.key("leading_dense_block_count", 0) if self.row.leading_rotate else 0
        self.rotates = [self.rope is not None and (i < leading or self.row.rotates(i, self.windows[i] > 0, any_near))
                        for i in layers] + [self.rope is not None] * self.n_further
        self.windows += [0] * self.n_further  # of the models that are tested

    def note(self, name, x, i_slice=0, n_slice=1):
        """x [tokens, columns] are inputs of a matrix, or of one of several in a tensor."""
        if self.squares is None:
            return
        sums, counts = self.squares.setdefault(name + ".weight", (np.zeros((n_slice, x.shape[1])), np.zeros(n_slice)))
        sums[i_slice] += (x * x).sum(axis=0)
        counts[i_slice] += len(x)

    def linear(self, x, name):
        self.note(name, x)
        y, bias = x @ self.get(name + ".weight").T, self.get(name + ".bias")
        return y if bias is None or name.split(".", 2)[-1] + ".bias" in self.row.unused else y + bias

    def norm(self, x, name):
        """Without parameters if the file has none. plamo3 omits the suffix of some names."""
        weight = self.get(name + ".weight" if self.has(name + ".weight") else name)
        return normalise(x, self.eps, self.row.norm == "layer", weight, self.get(name + ".bias"))

    def qk_norm(self, q, k, p):
        if self.row.qk_norm_plain:
            return normalise(q, self.eps, False), normalise(k, self.eps, False)
        if not self.has(p + "attn_q_norm.weight"):
            return q, k
        layer = self.row.norm == "layer"
        return [normalise(y, self.eps, layer, self.get(f"{p}attn_{n}_norm.weight")) for y, n in ((q, "q"), (k, "k"))]

    def attention(self, x, i):
        p, row = f"blk.{i}.", self.row
        if self.has(p + "attn_qkv.weight"):
            n_q, n_k = self.n_head * self.d_head, self.n_kv * self.d_head
            q, k, v = np.split(self.linear(x, p + "attn_qkv"), [n_q, n_q + n_k], axis=1)
        else:
            q, k, v = (self.linear(x, p + n) if self.has(p + n + ".weight") else None for n in ("attn_q", "attn_k", "attn_v"))
        if row.gemma4:
            return self.gemma4_attention(q, k, v, i)
        limit = self.key("attention.clamp_kqv", 0.0) if row.clamps else 0.0
        if limit:
            q, k, v = (np.clip(y, -limit, limit) for y in (q, k, v))
        if row.qk_norm == "all":
            q, k = self.qk_norm(q, k, p)
        gate = None
        if row.q_gate:
            q, gate = np.split(q.reshape(len(x), self.n_head, -1), 2, axis=2)
        q, k, v = (y.reshape(len(x), n, -1) for y, n in ((q, self.n_head), (k, self.n_kv), (v, self.n_kv)))
        if row.value_scale:
            v = v * (self.key("attention.value_scale", 0.0) or 1.0)
        by_head = row.qk_norm in ("head", "each")
        if by_head and not row.qk_norm_after:
            q, k = self.qk_norm(q, k, p)
        if self.rotates[i]:
            rope = self.near_rope if self.windows[i] else self.rope
            q, k = rope(q), rope(k)
        if by_head and row.qk_norm_after and (self.rotates[i] or not row.qk_norm_plain):
            q, k = self.qk_norm(q, k, p)
        q = self.heat(q)
        cap = self.key("attn_logit_softcapping", 50.0) if self.arch in ("gemma2", "grok") else 0.0
        largest = row.alibi(self)
        y = attention(q, k, v, row.score(self), self.windows[i], cap, self.get(p + "attn_sinks.weight"),
                      alibi_slopes(self.n_head, largest) if largest else None)
        if gate is not None:
            y = y * sigmoid(gate.reshape(y.shape))
        if row.gate:
            gate = row.gate(self.linear(x, p + "attn_gate"))
            y = y * np.repeat(gate, y.shape[1] // gate.shape[1], axis=1)
        return self.linear(y, p + "attn_output")

    def heat(self, q):
        """Queries [T, H, d] grow with their position."""
        scale = self.key("attention.temperature_scale", 0.0) if self.row.temperature else 0.0
        if not scale:
            return q
        steps = np.arange(len(q)) // self.key(self.row.temperature)
        return q * (1 + scale * np.log(steps + 1.0))[:, None, None]

    def latent_attention(self, x, i):
        """With the keys and values of every head."""
        p, n_tok, d_rope = f"blk.{i}.", len(x), self.key("rope.dimension_count")
        d_key, rank = self.key("attention.key_length_mla", self.key("attention.key_length")), self.key("attention.kv_lora_rank")
        q = x
        if self.has(p + "attn_q_a.weight"):
            q = self.norm(self.linear(x, p + "attn_q_a"), p + "attn_q_a_norm")
        q = self.linear(q, p + ("attn_q_b" if self.has(p + "attn_q_b.weight") else "attn_q"))
        nope, rotated = np.split(q.reshape(n_tok, self.n_head, d_key), [d_key - d_rope], axis=2)
        c, k = np.split(self.linear(x, p + "attn_kv_a_mqa"), [rank], axis=1)
        rope = self.rope or (lambda y: y)
        c, k = self.norm(c, p + "attn_kv_a_norm"), rope(k[:, None])
        if self.has(p + "attn_kv_b.weight"):
            both = (c @ self.get(p + "attn_kv_b.weight").T).reshape(n_tok, self.n_head, -1)
            keys, values = np.split(both, [d_key - d_rope], axis=2)
        else:
            keys = np.einsum("hri,tr->thi", self.get(p + "attn_k_b.weight"), c)
            values = np.einsum("hjr,tr->thj", self.get(p + "attn_v_b.weight"), c)
        q = self.heat(np.concatenate([nope, rope(rotated)], axis=2))
        k = np.concatenate([keys, np.repeat(k, self.n_head, axis=1)], axis=2)
        scale = self.yarn_sizes()[1] ** 2 / np.sqrt(d_key)
        if self.squares is not None:  # of the absorbed form, in which k_b multiplies queries, and v_b what attention gives
            seen = attention(q, k, np.repeat(c[:, None], self.n_head, axis=1), scale).reshape(n_tok, self.n_head, -1)
            for h in range(self.n_head):
                self.note(p + "attn_k_b", q[:, h, :nope.shape[2]], h, self.n_head)
                self.note(p + "attn_v_b", seen[:, h], h, self.n_head)
        return self.linear(attention(q, k, values, scale), p + "attn_output")

    def convolve(self, x, name):
        """Each channel over the last tokens; before the first there are zeros."""
        taps = self.get(name)
        taps = taps.reshape(len(x[0]), -1)
        x = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1])), x])
        return sum(x[j:j + len(x) - taps.shape[1] + 1] * taps[:, j] for j in range(taps.shape[1]))

    def short_convolution(self, x, i):
        p = f"blk.{i}.shortconv."
        b, c, x = np.split(self.linear(x, p + "in_proj"), 3, axis=1)
        return self.linear(c * self.convolve(b * x, p + "conv.weight"), p + "out_proj")

    def delta_net(self, x, i):
        """The recurrence, token by token (Yang et al. 2024)."""
        p, n_tok = f"blk.{i}.", len(x)
        n_key, n_head, d = self.key("ssm.group_count"), self.key("ssm.time_step_rank"), self.key("ssm.state_size")
        shared = n_head // n_key
        if self.has(p + "attn_qkv.weight"):
            qkv, z = self.linear(x, p + "attn_qkv"), self.linear(x, p + "attn_gate").reshape(n_tok, n_head, d)
        else:
            parts = self.linear(x, p + "ssm_in").reshape(n_tok, n_key, -1)
            parts, z = np.split(parts, [2 * d + shared * d], axis=2)
            qkv = np.concatenate([part.reshape(n_tok, -1) for part in np.split(parts, [d, 2 * d], axis=2)], axis=1)
            z = z.reshape(n_tok, n_head, d)
        if self.has(p + "ssm_ba.weight"):
            rates = self.linear(x, p + "ssm_ba").reshape(n_tok, n_key, 2, shared)
            beta, decay = (rates[:, :, j].reshape(n_tok, n_head) for j in (0, 1))
        else:
            beta, decay = self.linear(x, p + "ssm_beta"), self.linear(x, p + "ssm_alpha")
        beta, decay = sigmoid(beta), np.exp(self.get(p + "ssm_a") * np.log1p(np.exp(decay + self.get(p + "ssm_dt.bias"))))
        q, k, v = np.split(silu(self.convolve(qkv, p + "ssm_conv1d.weight")), [n_key * d, 2 * n_key * d], axis=1)
        q, k = (y.reshape(n_tok, n_key, d) for y in (q, k))
        q, k = (y / np.sqrt((y * y).sum(axis=2, keepdims=True) + self.eps) for y in (q, k))
        v, out = v.reshape(n_tok, n_head, d), np.empty((n_tok, n_head, d))
        for h in range(n_head):
            state, key = np.zeros((d, d)), h % n_key if self.row.alternates else h // shared
            for t in range(n_tok):
                state = state * decay[t, h]
                state = state + np.outer(k[t, key], beta[t, h] * (v[t, h] - k[t, key] @ state))
                out[t, h] = q[t, key] @ state / np.sqrt(d)
        out = normalise(out, self.eps, False, self.get(p + "ssm_norm.weight")) * silu(z)
        return self.linear(out.reshape(n_tok, -1), p + "ssm_out")

    def kda(self, x, i):
        """The delta rule with a decay for each dimension of keys (Kimi Team 2025)."""
        p, n_tok, d, h = f"blk.{i}.", len(x), self.key("kda.head_dim"), self.n_head
        q, k, v = (silu(self.convolve(self.linear(x, f"{p}attn_{n}"), f"{p}ssm_conv1d_{n}.weight")).reshape(n_tok, h, d)
                   for n in "qkv")
        q, k = (y / np.sqrt((y * y).sum(axis=2, keepdims=True) + self.eps) for y in (q, k))
        f = self.linear(self.linear(x, p + "ssm_f_a"), p + "ssm_f_b") + self.get(p + "ssm_dt.bias")
        decay = np.exp(self.get(p + "ssm_a")[:, None] * np.log1p(np.exp(f.reshape(n_tok, h, d))))
        beta, out = sigmoid(self.linear(x, p + "ssm_beta")), np.empty((n_tok, h, d))
        for j in range(h):
            state = np.zeros((d, d))
            for t in range(n_tok):
                state = state * decay[t, j][:, None]
                state = state + np.outer(k[t, j], beta[t, j] * (v[t, j] - k[t, j] @ state))
                out[t, j] = q[t, j] @ state / np.sqrt(d)
        gate = sigmoid(self.linear(self.linear(x, p + "ssm_g_a"), p + "ssm_g_b")).reshape(out.shape)
        out = normalise(out, self.eps, False, self.get(p + "ssm_norm.weight")) * gate
        return self.linear(out.reshape(n_tok, -1), p + "attn_output")

    def state_space(self, x, i):
        """The recurrence, token by token (Gu and Dao 2023; Dao and Gu 2024)."""
        p, n_tok, kind = f"blk.{i}.", len(x), self.row.states
        inner, d, n = self.key("ssm.inner_size"), self.key("ssm.state_size"), self.key("ssm.time_step_rank")
        n_group = self.key("ssm.group_count") if kind == "heads" else 1
        rows = self.linear(x, p + "ssm_in")
        if kind == "heads":
            z, u, dt = np.split(rows, [inner, 2 * inner + 2 * n_group * d], axis=1)
            dt = dt + self.get(p + "ssm_dt.bias")
        elif kind == "channels":
            u, z = np.split(rows, 2, axis=1)
        else:
            z, u = (rows.reshape(n_tok, n, 2, inner // n)[:, :, j].reshape(n_tok, inner) for j in (0, 1))
        u, bias = self.convolve(u, p + "ssm_conv1d.weight"), self.get(p + "ssm_conv1d.bias")
        u = silu(u if bias is None else u + bias)
        if kind == "heads":
            u, b, c = np.split(u, [inner, inner + n_group * d], axis=1)
        else:
            low = self.linear(u, p + "ssm_x")
            dt, b, c = np.split(low, [low.shape[1] - 2 * d, low.shape[1] - d], axis=1) if kind == "channels" else \
                [np.split(low, [d, 2 * d], axis=1)[j] for j in (2, 0, 1)]
            if self.has(p + "ssm_b_norm.weight") or self.has(p + "ssm_b_norm") or self.key("ssm.dt_b_c_rms", False):
                dt, b, c = (self.norm(y, f"{p}ssm_{name}_norm") for y, name in ((dt, "dt"), (b, "b"), (c, "c")))
            dt = self.linear(dt, p + "ssm_dt")
        dt = np.log1p(np.exp(dt))
        a, share = self.get(p + "ssm_a"), self.get(p + "ssm_d").reshape(-1)
        a, of_step = a.reshape(dt.shape[1], -1), inner // dt.shape[1]
        b, c = (np.repeat(y.reshape(n_tok, n_group, d), inner // n_group, axis=1) for y in (b, c))
        state, out = np.zeros((inner, d)), np.empty((n_tok, inner))
        for t in range(n_tok):
            delta = np.repeat(dt[t], of_step)
            state = state * np.repeat(np.exp(dt[t][:, None] * a), of_step, axis=0) + (delta * u[t])[:, None] * b[t]
            out[t] = (state * c[t]).sum(axis=1) + np.repeat(share, of_step) * u[t]
        out = out * silu(z)
        if self.has(p + "ssm_norm.weight"):
            grouped = out.reshape(n_tok, n_group, -1)
            out = normalise(grouped, self.eps, False, self.get(p + "ssm_norm.weight")).reshape(n_tok, inner)
        return self.linear(out, p + "ssm_out")

    def mixer(self, x, i):
        if self.row.everywhere == "beside":
            return self.attention(x, i) + self.state_space(x, i)
        if self.recurrent[i] and self.row.states:
            return self.state_space(x, i)
        if not self.recurrent[i]:
            return self.latent_attention(x, i) if self.row.latent else self.attention(x, i)
        return {"delta": self.delta_net, "kda": self.kda, "convolution": self.short_convolution}[self.row.recurrent](x, i)

    def gemma4_attention(self, q, k, v, i):
        p, shared = f"blk.{i}.", self.key("attention.shared_kv_layers", 0)
        first = self.n_layer - shared
        rope = self.near_rope if self.windows[i] else self.rope

        def heads(y, n, weight):
            return normalise(y.reshape(len(y), n, -1), self.eps, False, weight)
        q = rope(heads(q, self.n_head, self.get(p + "attn_q_norm.weight")))
        if i < first:
            self.kept[i] = (rope(heads(k, self.n_kv, self.get(p + "attn_k_norm.weight"))),
                            heads(k if v is None else v, self.n_kv, None))
        k, v = self.kept[i if i < first else first - (2 if self.windows[i] else 1)]
        return self.linear(attention(q, k, v, 1.0, self.windows[i]), p + "attn_output")

    def live(self, x, i):
        """Scores of PowerInfer's predictor; a neuron is computed where its score is not below the threshold."""
        return relu(x @ self.get(f"blk.{i}.fc1.weight").T) @ self.get(f"blk.{i}.fc2.weight").T

    def dense_ffn(self, x, p, tag="", live=None):
        up, gate = self.linear(x, p + "ffn_up" + tag), None
        if self.row.joined:
            gate, up = np.split(up, 2, axis=1)
        elif self.gated:
            gate = self.linear(x, p + "ffn_gate" + tag)
        hidden = self.limited(p, "shexp", gate, up)
        if live is not None:
            hidden = np.where(live, hidden, 0)
        if not self.has(p + "ffn_down_t.weight"):
            return self.linear(hidden, p + "ffn_down" + tag)
        y, bias = hidden @ self.get(p + "ffn_down_t.weight"), self.get(p + "ffn_down_t.bias")  # a row per neuron
        return y if bias is None else y + bias

    def best_groups(self, choice):
        """The scores by which experts are chosen, without those outside the best groups of experts: a group is as good
        as its two best experts."""
        n_group = self.key("expert_group_count", 0)
        if n_group <= 1:
            return choice
        members = choice.reshape(len(choice), n_group, -1)
        quality = np.sort(members, axis=2)[:, :, -2:].sum(axis=2)
        order, n_used = np.argsort(-quality, axis=1, kind="stable"), self.key("expert_group_used_count")
        last, next_one = (np.take_along_axis(quality, order[:, n_used + j:n_used + j + 1], axis=1)[:, 0] for j in (-1, 0))
        self.margins.append(2 * (last - next_one))  # as below, of two scores
        members = members.copy()
        np.put_along_axis(members, order[:, n_used:, None], -np.inf, axis=1)
        return members.reshape(choice.shape)

    def choose_experts(self, x, p):
        """Indices and weights of the experts, [tokens, experts used]."""
        rule, n = self.row.experts, self.key("expert_used_count")
        if self.row.gemma4:
            x = normalise(x, self.eps, False) / np.sqrt(self.n_embd) * self.get(p + "ffn_gate_inp.scale")
        z, select = self.linear(x, p + "ffn_gate_inp"), self.get(p + "exp_probs_b.bias")
        kind = rule["score"]
        if kind == "key":
            kind = {0: "sigmoid", 1: "softmax", 2: "sigmoid", 3: "chosen", 4: "root"}[self.key("expert_gating_func", 0)]
        scores = {"softmax": softmax, "sigmoid": sigmoid, "chosen": lambda z: z,
                  "root": lambda z: np.sqrt(np.log1p(np.exp(z)))}[kind](z)
        choice = self.best_groups(z if select is None else scores + select)
        order = np.argsort(-choice, axis=1, kind="stable")
        chosen = order[:, :n]
        if self.has(p + "ffn_gate_tid2eid.weight"):
            chosen = self.get(p + "ffn_gate_tid2eid.weight").astype(int)[self.ids]
        else:
            last, next_one = (np.take_along_axis(choice, order[:, i:i + 1], axis=1)[:, 0] for i in (n - 1, n))
            # In logits: the slopes of softmax and sigmoid are at most 1/4.
            self.margins.append((last - next_one) * (1 if select is None else 4))
        weights = np.take_along_axis(scores, chosen, axis=1)
        if kind == "chosen":
            weights = softmax(weights)
        if self.key("expert_weights_norm", False) if rule["normalise"] == "key" else rule["normalise"]:
            weights = weights / weights.sum(axis=1, keepdims=True)
        scale = self.key("expert_weights_scale", 0.0) if rule["scale"] else 0.0
        by_expert = self.get(p + "ffn_down_exps.scale")
        return chosen, weights * (scale or 1.0) * (1.0 if by_expert is None else by_expert[chosen])

    def limited(self, p, which, gate, up):
        """The activation of gate and up, which deepseek4 limits."""
        if self.row.deepseek4:
            limit = self.key("swiglu_clamp_" + which)[int(p.split(".")[1])]
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return self.act(gate, up)

    def experts_ffn(self, x, p, router_input):
        chosen, weights = self.choose_experts(router_input, p)
        gate, up, down = (self.get(f"{p}ffn_{n}_exps.weight") for n in ("gate", "up", "down"))  # gate: or None
        if up is None:
            gate, up = np.split(self.get(p + "ffn_gate_up_exps.weight"), 2, axis=1)
        biases = [self.get(f"{p}ffn_{n}_exps.bias") for n in ("gate", "up", "down")]
        if self.arch == "smallthinker" and down.shape == up.shape:  # a row per neuron
            down = down.transpose(0, 2, 1)
        out = np.zeros((len(x), down.shape[1]))
        for e in range(len(up)):
            tokens, places = np.nonzero(chosen == e)
            g, u, d = (b[e] if b is not None else 0 for b in biases)
            before, after = x[tokens], weights[tokens, places, None]
            if self.row.experts["apply_router_weight_on_input"]:
                before, after = before * after, 1
            hidden = self.limited(p, "exp", None if gate is None else before @ gate[e].T + g, before @ up[e].T + u)
            for name, seen in (("gate", before), ("up", before), ("down", hidden)):
                if name != "gate" or gate is not None:
                    self.note(f"{p}ffn_{name}_exps", seen, e, len(up))
            out[tokens] += after * (hidden @ down[e].T + d)
        if self.has(p + "ffn_up_shexp.weight"):
            gate = self.get(p + "ffn_gate_inp_shexp.weight")
            share = self.row.experts["shared"]
            out = share * out + (share if gate is None else sigmoid(x @ gate)[:, None]) * self.dense_ffn(x, p, "_shexp")
        return out

    # ---- the parts of a pass ----

    def embed(self, ids):
        h = self.get("token_embd.weight")[ids] * self.row.embedding(self)
        if self.row.positions is not None:
            h = h + self.get("position_embd.weight")[np.arange(len(ids)) + self.row.positions]
        if self.row.adds_embedding:
            return normalise(h, self.eps, False)
        before = self.has("token_embd_norm.weight") and self.row.output_norm != "token_embd_norm"
        return self.norm(h, "token_embd_norm") if before else h

    def layer_embeddings(self, h, ids):
        """[tokens, layers, width], or None"""
        width = self.key("embedding_length_per_layer_input", 0)
        if not width:
            return None
        own = self.get("per_layer_token_embd.weight")[ids].reshape(len(ids), self.n_layer, width) * np.sqrt(width)
        made = (self.linear(h, "per_layer_model_proj") / np.sqrt(self.n_embd)).reshape(own.shape)
        return (self.norm(made, "per_layer_proj_norm") + own) / np.sqrt(2)

    def before_ffn(self, h, i):
        """-> input of the network, what its output is added to, input of the predictor"""
        p, row = f"blk.{i}.", self.row
        x = self.norm(h, p + "attn_norm") if row.pre_norms else h
        if row.parallel == "key" and self.key("use_parallel_residual"):
            return self.norm(h, p + row.ffn_norm), h + self.attention(x, i), h
        if row.parallel == "shared" or (row.parallel == "tensors" and not self.has(p + "ffn_norm.weight")):
            beside = self.norm(h, p + "attn_norm_2") if self.has(p + "attn_norm_2.weight") else x
            return x, h + self.attention(beside, i), h
        out = self.mixer(x, i)
        if row.post_norms:
            out = self.norm(out, p + row.post_norms[0])
        middle = h + row.residual(self) * out
        return self.norm(middle, p + row.ffn_norm) if row.pre_norms else middle, middle, middle

    def ffn(self, x, i, router_input, live=None):
        p, row = f"blk.{i}.", self.row
        if row.gemma4 and self.has(p + "ffn_gate_inp.weight"):
            h = router_input  # the stream before the network
            out = self.norm(self.dense_ffn(x, p), p + "post_ffw_norm_1")
            out = out + self.norm(self.experts_ffn(self.norm(h, p + "pre_ffw_norm_2"), p, h), p + "post_ffw_norm_2")
        elif row.experts and row.experts["before"]:
            before = self.norm(router_input, p + "ffn_norm_exps")
            out = self.dense_ffn(x, p) + self.experts_ffn(before, p, before)
        elif row.beside and self.has(p + "ffn_up.weight"):
            out = row.beside * (self.dense_ffn(x, p) + self.experts_ffn(x, p, x))
        elif self.has(p + "ffn_gate_inp.weight"):
            out = self.experts_ffn(x, p, router_input if row.experts["reads_layer_input"] else x)
        else:
            out = self.dense_ffn(x, p, live=live)
        return row.residual(self) * (self.norm(out, p + row.post_norms[1]) if row.post_norms else out)

    def head(self, h, norm=None, name=None):
        """norm, name: of the norm and the matrix, if they are not the usual ones"""
        h = self.rows = self.norm(h, norm or self.row.output_norm)
        name = name or ("output" if self.has("output.weight") else "token_embd")
        self.note(name, h)
        z = h @ self.get(name + ".weight").T
        if self.has("output.bias"):
            z = z + self.get("output.bias")
        z = z * self.row.logits(self)
        if self.arch in ("gemma2", "gemma4", "grok"):
            cap = self.key("final_logit_softcapping", 30.0)
            z = cap * np.tanh(z / cap)
        return z

    def forward(self, ids, predicted=True):
        """-> logits [tokens, vocabulary]. With predictors in the file and predicted also which neurons were computed:
        self.marked [layers, tokens, neurons]."""
        self.margins, self.marked, self.kept, self.ids = [], [], {}, np.asarray(ids)
        h = embedded = self.embed(self.ids)
        if self.row.deepseek4:
            import deepseek4  # it needs this module
            return self.head(deepseek4.layers(self, h))
        extra = self.layer_embeddings(h, np.asarray(ids)) if self.row.gemma4 else None
        for i in range(self.n_layer):
            if not (self.has_mixer[i] and self.has_network[i]):
                x = self.norm(h, f"blk.{i}.attn_norm")
                h = h + (self.mixer(x, i) if self.has_mixer[i] else self.ffn(x, i, h))
                continue
            x, rest, seen = self.before_ffn(h, i)
            live = None
            if predicted and self.has(f"blk.{i}.fc1.weight"):
                live = self.live(seen, i) >= self.threshold
                self.marked.append(live)
            h = rest + self.ffn(x, i, rest if self.row.gemma4 else h, live)
            if extra is not None:
                h = h + self.norm(self.linear(gelu(self.linear(h, f"blk.{i}.inp_gate")) * extra[:, i], f"blk.{i}.proj"),
                                  f"blk.{i}.post_norm")
            if self.has(f"blk.{i}.layer_output_scale.weight"):
                scale = self.get(f"blk.{i}.layer_output_scale.weight")
                h = h + scale * embedded if self.row.adds_embedding else h * scale
        return self.head(h)

    def further(self, ids, rows):
        """The block behind the layers, which predicts a token further. ids: the tokens behind those to which the rows
        [tokens, n_embd] belong; rows: self.rows of the layers, or of this -> logits"""
        p = f"blk.{self.n_layer}."

        def own(name, usual):
            return p + "nextn." + name if self.has(f"{p}nextn.{name}.weight") else usual
        self.margins, self.ids = [], np.asarray(ids)
        e = self.get(own("embed_tokens", "token_embd") + ".weight")[self.ids]
        h = self.linear(np.concatenate([self.norm(e, p + "nextn.enorm"), self.norm(rows, p + "nextn.hnorm")], axis=1),
                        p + "nextn.eh_proj")
        x, rest, _ = self.before_ffn(h, self.n_layer)
        return self.head(rest + self.ffn(x, self.n_layer, h), own("shared_head_norm", None), own("shared_head_head", None))
