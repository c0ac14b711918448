"""The forward pass of every architecture of the golden files, in double precision.

Written to be read: no cache, no batches, all positions at once, every intermediate value float64. Conventions of the
formats are those of the GGUF converters (llama.cpp, PowerInfer); README.md lists what differs between architectures.
"""
import numpy as np


# ---- functions --------------------------------------------------------------------------------

def sigmoid(x): return 1 / (1 + np.exp(-x))
def silu(x): return x * sigmoid(x)
def relu(x): return np.maximum(x, 0)
def relu2(x): return relu(x) ** 2
def gelu(x): return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    x = x - x.mean(axis=-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
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
    """Rotates the pairs (2i, 2i+1), or with halves (i, i + n/2)."""

    def __init__(self, halves, n, base, scaling="none", factor=1.0, n_ctx=0, attn_factor=1.0, freqs=None):
        i = np.arange(n // 2)
        theta = base ** (-2.0 * i / n)
        if freqs is not None:
            theta = theta / freqs
        size = attn_factor
        if scaling == "linear":
            theta = theta / factor
        elif scaling == "yarn":
            def dimension(turns): return n * np.log(n_ctx / (turns * 2 * np.pi)) / (2 * np.log(base))
            low, high = max(0.0, np.floor(dimension(32))), min(n - 1.0, np.ceil(dimension(1)))
            keep = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)
            theta = theta / factor * (1 - keep) + theta * keep
            size *= 1 + 0.1 * np.log(factor)
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


def attention(q, k, v, scale, window=0, cap=0.0, sinks=None):
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
        s[hidden] = -np.inf
        if sinks is not None:  # one more score per head, which carries no value
            s = np.concatenate([s, np.full((n_tok, 1), sinks[h])], axis=1)
        out[:, h] = softmax(s)[:, :n_tok] @ v[:, h // repeat]
    return out.reshape(n_tok, -1)


# ---- the model --------------------------------------------------------------------------------

HALVES = {"qwen2", "qwen3", "gemma2", "falcon", "qwen2moe", "qwen3moe", "olmoe", "smallthinker", "gpt-oss"}
WINDOWS = {"smallthinker", "gpt-oss", "gemma2"}  # the others ignore attention.sliding_window
ACTIVATIONS = {"bamboo": "drelu", "gemma2": "geglu", "falcon": "gelu", "opt": "relu", "smallthinker": "reglu",
               "gpt-oss": "clamped"}
# PowerInfer's models were retrained; its files do not say so.
POWERINFER_ACTIVATIONS = {"bamboo": "drelu", "falcon": "relu", "opt": "relu", "llama": "reglu"}


class Model:
    """A file of gguf.py. margins: how decided each router was, filled by forward()."""

    def __init__(self, file):
        self.file, self.cache, self.margins = file, {}, []
        self.arch = file.meta("general.architecture")
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
        self.n_layer, self.n_embd, self.n_head = key("block_count"), key("embedding_length"), key("attention.head_count")
        self.n_kv = key("attention.head_count_kv", self.n_head)
        self.d_head = key("attention.key_length", self.n_embd // self.n_head)
        # PowerInfer's converter writes no epsilon for opt, and its engine takes 0.
        self.eps = (key("attention.layer_norm_epsilon", 0.0 if powerinfer else 1e-5) if self.arch in ("falcon", "opt")
                    else key("attention.layer_norm_rms_epsilon"))
        self.gated = self.has("blk.0.ffn_gate.weight") or self.has("blk.0.ffn_gate_exps.weight")
        usual = (POWERINFER_ACTIVATIONS if powerinfer else ACTIVATIONS).get(self.arch, "swiglu")
        self.act = activation(self.file.meta("hearth.ffn.activation", usual), self.gated)
        self.threshold = self.file.meta("powerinfer.sparse_threshold", 0.0)

    def read_rotation(self):
        key = self.key
        self.rope = None
        if self.arch != "opt":
            scaling = key("rope.scaling.type", "linear")
            self.rope = Rope(self.arch in HALVES, key("rope.dimension_count", self.d_head), key("rope.freq_base", 10000.0),
                             scaling, key("rope.scaling.factor", 1.0),
                             key("rope.scaling.original_context_length", key("context_length")),
                             key("rope.scaling.attn_factor", 1.0), self.get("rope_freqs.weight"))

    def read_windows(self):
        """Of each layer: does it rotate, and how far does it see (0: to the beginning)?"""
        layers, window = range(self.n_layer), self.key("attention.sliding_window", 0)
        self.rotates, self.windows = [self.rope is not None for _ in layers], [0 for _ in layers]
        if self.arch not in WINDOWS or not window:
            return
        pattern = self.key("attention.sliding_window_pattern")
        if pattern:
            slides = pattern
        elif self.arch == "smallthinker":
            slides = [i % 4 != 0 for i in layers]
        else:
            slides = [i % 2 == 0 for i in layers]
        self.windows = [window if s else 0 for s in slides]
        if self.arch == "smallthinker":
            self.rotates = [i % 4 != 0 for i in layers]

    def linear(self, x, name):
        y, bias = x @ self.get(name + ".weight").T, self.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name):
        weight = self.get(name + ".weight")
        if self.arch in ("falcon", "opt"):
            return layer_norm(x, weight, self.get(name + ".bias"), self.eps)
        return rms_norm(x, weight, self.eps)

    def attention(self, x, i):
        p = f"blk.{i}."
        if self.has(p + "attn_qkv.weight"):
            n_q, n_k = self.n_head * self.d_head, self.n_kv * self.d_head
            q, k, v = np.split(self.linear(x, p + "attn_qkv"), [n_q, n_q + n_k], axis=1)
        else:
            q, k, v = (self.linear(x, p + n) for n in ("attn_q", "attn_k", "attn_v"))
        if self.arch == "olmoe":  # all heads together
            q, k = (rms_norm(y, self.get(p + n), self.eps) for y, n in ((q, "attn_q_norm.weight"), (k, "attn_k_norm.weight")))
        q, k, v = (y.reshape(len(x), n, -1) for y, n in ((q, self.n_head), (k, self.n_kv), (v, self.n_kv)))
        if self.arch in ("qwen3", "qwen3moe"):  # head by head
            q, k = (rms_norm(y, self.get(p + n), self.eps) for y, n in ((q, "attn_q_norm.weight"), (k, "attn_k_norm.weight")))
        if self.rotates[i]:
            q, k = self.rope(q), self.rope(k)
        cap = self.key("attn_logit_softcapping", 50.0) if self.arch == "gemma2" else 0.0
        y = attention(q, k, v, 1 / np.sqrt(self.d_head), self.windows[i], cap, self.get(p + "attn_sinks.weight"))
        return self.linear(y, p + "attn_output")

    def live(self, x, i):
        """Scores of PowerInfer's predictor; a neuron is computed where its score is not below the threshold."""
        return relu(x @ self.get(f"blk.{i}.fc1.weight").T) @ self.get(f"blk.{i}.fc2.weight").T

    def dense_ffn(self, x, p, tag="", live=None):
        up = self.linear(x, p + "ffn_up" + tag)
        hidden = self.act(self.linear(x, p + "ffn_gate" + tag) if self.gated else None, up)
        if live is not None:
            hidden = np.where(live, hidden, 0)
        if not self.has(p + "ffn_down_t.weight"):
            return self.linear(hidden, p + "ffn_down" + tag)
        y, bias = hidden @ self.get(p + "ffn_down_t.weight"), self.get(p + "ffn_down_t.bias")  # a row per neuron
        return y if bias is None else y + bias

    def choose_experts(self, x, p):
        """Indices and weights of the experts, [tokens, experts used]."""
        n = self.key("expert_used_count")
        z = self.linear(x, p + "ffn_gate_inp")
        order = np.argsort(-z, axis=1, kind="stable")
        chosen = order[:, :n]
        scores, left_out = (np.take_along_axis(z, e, axis=1) for e in (chosen, order[:, n:n + 1]))
        self.margins.append(scores[:, -1] - left_out[:, 0])
        if self.arch == "smallthinker" and self.key("expert_gating_func", 2) == 2:
            weights = sigmoid(scores)
            return chosen, weights / weights.sum(axis=1, keepdims=True)
        if self.arch in ("olmoe", "qwen2moe"):  # of all experts, not of the chosen ones
            return chosen, np.take_along_axis(softmax(z), chosen, axis=1)
        return chosen, softmax(scores)

    def experts_ffn(self, x, p, router_input):
        chosen, weights = self.choose_experts(router_input, p)
        gate, up, down = (self.get(f"{p}ffn_{n}_exps.weight") for n in ("gate", "up", "down"))
        biases = [self.get(f"{p}ffn_{n}_exps.bias") for n in ("gate", "up", "down")]
        if self.arch == "smallthinker" and down.shape == up.shape:  # a row per neuron
            down = down.transpose(0, 2, 1)
        out = np.zeros((len(x), down.shape[1]))
        for e in range(len(gate)):
            tokens, places = np.nonzero(chosen == e)
            g, u, d = (b[e] if b is not None else 0 for b in biases)
            hidden = self.act(x[tokens] @ gate[e].T + g, x[tokens] @ up[e].T + u)
            out[tokens] += weights[tokens, places, None] * (hidden @ down[e].T + d)
        if self.arch == "qwen2moe":
            gate_shared = sigmoid(x @ self.get(p + "ffn_gate_inp_shexp.weight"))
            out += gate_shared[:, None] * self.dense_ffn(x, p, "_shexp")
        return out

    # ---- the parts of a pass ----

    def embed(self, ids):
        h = self.get("token_embd.weight")[ids]
        if self.arch == "opt":
            h = h + self.get("position_embd.weight")[np.arange(len(ids)) + 2]
        return h * np.sqrt(self.n_embd) if self.arch == "gemma2" else h

    def before_ffn(self, h, i):
        """-> input of the network, what its output is added to, input of the predictor"""
        p = f"blk.{i}."
        x = self.norm(h, p + "attn_norm")
        if self.arch == "falcon":  # attention and network side by side
            beside = self.norm(h, p + "attn_norm_2") if self.has(p + "attn_norm_2.weight") else x
            return x, h + self.attention(beside, i), h
        out = self.attention(x, i)
        if self.arch == "gemma2":
            out = self.norm(out, p + "post_attention_norm")
        middle = h + out
        name = "post_attention_norm" if self.arch == "gpt-oss" else "ffn_norm"
        return self.norm(middle, p + name), middle, middle

    def ffn(self, x, i, router_input, live=None):
        p = f"blk.{i}."
        if self.has(p + "ffn_gate_inp.weight"):
            out = self.experts_ffn(x, p, router_input if self.arch == "smallthinker" else x)
        else:
            out = self.dense_ffn(x, p, live=live)
        return self.norm(out, p + "post_ffw_norm") if self.arch == "gemma2" else out

    def head(self, h):
        h = self.norm(h, "output_norm")
        z = h @ self.get("output.weight" if self.has("output.weight") else "token_embd.weight").T
        if self.arch == "gemma2":
            cap = self.key("final_logit_softcapping", 30.0)
            z = cap * np.tanh(z / cap)
        return z

    def forward(self, ids, predicted=True):
        """-> logits [tokens, vocabulary]. With predictors in the file and predicted also which neurons were computed:
        self.marked [layers, tokens, neurons]."""
        self.margins, self.marked = [], []
        h = self.embed(np.asarray(ids))
        for i in range(self.n_layer):
            x, rest, seen = self.before_ffn(h, i)
            live = None
            if predicted and self.has(f"blk.{i}.fc1.weight"):
                live = self.live(seen, i) >= self.threshold
                self.marked.append(live)
            h = rest + self.ffn(x, i, h, live)
        return self.head(h)
