"""The models of golden/arch: one per architecture or convention, dense or of experts, with random weights in F32.

Norm epsilons are unusually large on purpose, sizes of heads, widths and counts unusual: a constant in the place of a
key shows. In every model of experts the ids are chosen so that no router is nearly undecided: rounding cannot change
the experts.
"""
import numpy as np

import gguf
import vocabulary
from forward import Model

MARGIN = {"F32": 0.02, "MXFP4": 0.1}  # of routers, in logits, by the type of the experts
FILE_TYPE = {"F32": 0, "MXFP4": 38}   # general.file_type


class Maker:
    """A file with random weights of such sizes that attention is neither flat nor one-hot, every layer moves the
    residual stream, and logits spread. Keys of the architecture are given as key__name=value."""

    def __init__(self, name, arch, seed, d_model=64, n_layer=2, n_head=4, n_kv=2, d_head=None, d_ff=80, act=None,
                 tied=False, tokenizer="sentencepiece", pre="default", n_ctx=512, n_ids=64, base=10000.0, eps=0.01, bos=True,
                 experts="F32", **keys):
        self.arch, self.seed, self.random = arch, seed, np.random.RandomState(seed)
        self.draw = self.random.standard_normal
        self.d_model, self.n_layer, self.n_head, self.n_kv = d_model, n_layer, n_head, n_kv
        self.d_head, self.d_ff = d_head or d_model // n_head, d_ff
        self.tied, self.n_ids, self.experts_type = tied, n_ids, experts
        self.first_id = (1 if tokenizer == "sentencepiece" else vocabulary.N_VOCAB - 4) if bos else None
        self.size = 0.4 if tied else 1.0  # of the residual stream, which all outputs of layers follow
        self.file = gguf.File()
        self.file.add("general.architecture", gguf.STR, arch)
        self.file.add("general.name", gguf.STR, "golden " + name)
        self.file.add("general.file_type", gguf.U32, FILE_TYPE[experts])
        self.key("context_length", n_ctx)
        self.key("embedding_length", d_model)
        self.key("block_count", n_layer)
        self.key("feed_forward_length", d_ff)
        self.key("attention.head_count", n_head)
        self.key("attention.head_count_kv", n_kv)
        if self.d_head * n_head != d_model:
            self.key("attention.key_length", self.d_head)
            self.key("attention.value_length", self.d_head)
        self.key("attention.layer_norm_epsilon" if arch in ("falcon", "opt") else "attention.layer_norm_rms_epsilon", eps)
        if arch != "opt":
            self.key("rope.dimension_count", self.d_head)
            self.key("rope.freq_base", base)
        for name, value in keys.items():
            self.key(name.replace("__", "."), value)
        if act:
            self.file.add("hearth.ffn.activation", gguf.STR, act)
        if tokenizer == "sentencepiece":
            vocabulary.sentencepiece(self.file)
        else:
            vocabulary.byte_level(self.file, pre, bos)

    def key(self, name, value):
        kinds = {bool: gguf.BOOL, float: gguf.F32, str: gguf.STR, int: gguf.U32}
        if isinstance(value, list):
            self.file.add_array(f"{self.arch}.{name}", gguf.BOOL, value)
        else:
            self.file.add(f"{self.arch}.{name}", kinds[type(value)], value)

    # ---- tensors ----

    def put(self, name, shape, deviation, mean=0.0, kind="F32"):
        values = mean + deviation * self.draw(int(np.prod(shape)))
        self.file.add_tensor(name, values.reshape(tuple(reversed(shape))), kind)

    def matrix(self, name, n_in, n_out, deviation):
        self.put(name + ".weight", (n_in, n_out), deviation)

    def bias(self, name, n, deviation=0.3):
        self.put(name + ".bias", (n,), deviation)

    def gain(self, name, n, bias=False, mean=1.0):
        """Weights of a norm: around the mean, some far from it."""
        self.put(name + ".weight", (n,), 0.25, mean)
        if bias:
            self.bias(name, n, 0.2)

    def embedding(self, n_position=0):
        self.matrix("token_embd", self.d_model, vocabulary.N_VOCAB, self.size)
        if n_position:
            self.matrix("position_embd", self.d_model, n_position, 0.5 * self.size)

    def output(self, bias=False):
        self.gain("output_norm", self.d_model, bias)
        if not self.tied:
            self.matrix("output", self.d_model, vocabulary.N_VOCAB, 3.2 / np.sqrt(self.d_model))

    def attention(self, p, qkv_bias=False, output_bias=False, qk=1.4):
        e, n_q, n_k = self.d_model, self.n_head * self.d_head, self.n_kv * self.d_head
        for name, n, deviation in (("attn_q", n_q, qk), ("attn_k", n_k, qk), ("attn_v", n_k, 1.04)):
            self.matrix(p + name, e, n, deviation / np.sqrt(e))
            if qkv_bias:
                self.bias(p + name, n)
        self.matrix(p + "attn_output", n_q, e, 1.2 * self.size / np.sqrt(n_q))
        if output_bias:
            self.bias(p + "attn_output", e, 0.2 * self.size)

    def qk_norm(self, p, over):
        """over: "head", or "all" heads together"""
        for name, n in (("attn_q_norm", self.n_head), ("attn_k_norm", self.n_kv)):
            self.gain(p + name, self.d_head if over == "head" else n * self.d_head, mean=1.6)

    def ffn(self, p, tag="", d_ff=None, gated=True, bias=False):
        e, f = self.d_model, d_ff or self.d_ff
        for name in ["ffn_gate", "ffn_up"] if gated else ["ffn_up"]:
            self.matrix(p + name + tag, e, f, 1.28 / np.sqrt(e))
            if bias:
                self.bias(p + name, f)
        self.matrix(p + "ffn_down" + tag, f, e, self.size / np.sqrt(f))
        if bias:
            self.bias(p + "ffn_down", e, 0.2 * self.size)

    def experts(self, p, n, d_ff, deviation=1.28, out=1.0, bias=False, router=2.0):
        e, kind = self.d_model, self.experts_type
        self.matrix(p + "ffn_gate_inp", e, n, router / np.sqrt(e))
        if bias:
            self.bias(p + "ffn_gate_inp", n, 0.5)
        for name in ("ffn_gate_exps", "ffn_up_exps"):
            self.put(f"{p}{name}.weight", (e, d_ff, n), deviation / np.sqrt(e), kind=kind)
            if bias:
                self.put(f"{p}{name}.bias", (d_ff, n), 0.3)
        self.put(p + "ffn_down_exps.weight", (d_ff, e, n), out * self.size / np.sqrt(d_ff), kind=kind)
        if bias:
            self.put(p + "ffn_down_exps.bias", (e, n), 0.2)

    # ---- ids ----

    def ids(self):
        """Random, with repeats close together, so that attention finds something."""
        r = np.random.RandomState(self.seed + 500000)
        ids = r.randint(0, vocabulary.N_VOCAB, self.n_ids)
        for i in range(8, self.n_ids, 7):
            ids[i] = ids[i - r.randint(1, 8)]
        if self.first_id is not None:
            ids[0] = self.first_id
        return ids.tolist()

    def settled_ids(self):
        """-> ids and logits; every id at which a router is nearly undecided is replaced, from the left."""
        ids, model, r = self.ids(), Model(self.file), np.random.RandomState(self.seed + 900000)
        while True:
            logits = model.forward(ids)
            undecided = np.flatnonzero(np.min(model.margins, axis=0) < MARGIN[self.experts_type]) if model.margins else []
            if len(undecided) == 0:
                return ids, logits
            ids[undecided[0]] = int(r.randint(3, vocabulary.N_VOCAB - 4))


# ---- architectures ------------------------------------------------------------------------------

def frequencies(n):
    """Llama 3's: long wavelengths are divided by the factor 8, with a ramp between."""
    wavelength = 2 * np.pi / 500000.0 ** (-np.arange(0, n, 2) / n)
    part = np.clip((64 / wavelength - 1) / (4 - 1), 0, 1)
    return 1 / ((1 - part) / 8 + part)


def llama(m, qkv_bias=False, output_bias=False, ffn_bias=False, gated=True, freqs=False, qk_norm=None):
    m.embedding()
    if freqs:
        m.file.add_tensor("rope_freqs.weight", frequencies(m.d_head))
    for i in range(m.n_layer):
        p = f"blk.{i}."
        m.gain(p + "attn_norm", m.d_model)
        m.attention(p, qkv_bias, output_bias)
        if qk_norm:
            m.qk_norm(p, qk_norm)
        m.gain(p + "ffn_norm", m.d_model)
        m.ffn(p, gated=gated, bias=ffn_bias)
    m.output()


def experts(m, n, d_ff, qk_norm=None, qkv_bias=False, shared=0, router=2.0, out=1.0):
    m.embedding()
    for i in range(m.n_layer):
        p = f"blk.{i}."
        m.gain(p + "attn_norm", m.d_model)
        m.attention(p, qkv_bias)
        if qk_norm:
            m.qk_norm(p, qk_norm)
        m.gain(p + "ffn_norm", m.d_model)
        m.experts(p, n, d_ff, router=router, out=out)
        if shared:
            m.put(p + "ffn_gate_inp_shexp.weight", (m.d_model,), 0.2)
            m.ffn(p, "_shexp", shared)
    m.output()


def experts_by_neuron(m, *arguments, **options):
    """Every expert's down matrix has a row per neuron (PowerInfer's --transpose-down)."""
    experts(m, *arguments, **options)
    for name in [n for n in m.file.tensors if n.endswith("ffn_down_exps.weight")]:
        m.file.add_tensor(name, m.file.get(name).transpose(0, 2, 1))


def gpt_oss(m, n, d_ff):
    m.embedding()
    for i in range(m.n_layer):
        p = f"blk.{i}."
        m.gain(p + "attn_norm", m.d_model)
        m.attention(p, True, True)
        m.put(p + "attn_sinks.weight", (m.n_head,), 1.0, 1.0)
        m.gain(p + "post_attention_norm", m.d_model)
        m.experts(p, n, d_ff, deviation=2.9, out=0.35, bias=True)  # so wide that some values pass the clamp at 7
    m.output()


def falcon(m, two_norms=False):
    m.embedding()
    for i in range(m.n_layer):
        p = f"blk.{i}."
        m.gain(p + "attn_norm", m.d_model, True)
        if two_norms:
            m.gain(p + "attn_norm_2", m.d_model, True)
        n_q = m.n_head * m.d_head
        m.matrix(p + "attn_qkv", m.d_model, n_q + 2 * m.n_kv * m.d_head, 1.4 / np.sqrt(m.d_model))
        m.matrix(p + "attn_output", n_q, m.d_model, 1.2 * m.size / np.sqrt(n_q))
        m.ffn(p, gated=False)
    m.output(True)


def opt(m, n_position):
    m.embedding(n_position)
    for i in range(m.n_layer):
        p = f"blk.{i}."
        m.gain(p + "attn_norm", m.d_model, True)
        m.attention(p, True, True)
        m.gain(p + "ffn_norm", m.d_model, True)
        m.ffn(p, gated=False, bias=True)
    m.output(True)


def gemma2(m):
    m.embedding()
    for i in range(m.n_layer):
        p = f"blk.{i}."
        m.gain(p + "attn_norm", m.d_model)
        m.attention(p, qk=2.4)
        m.gain(p + "post_attention_norm", m.d_model)
        m.gain(p + "ffn_norm", m.d_model)
        m.ffn(p)
        m.gain(p + "post_ffw_norm", m.d_model)
    m.output()


def recipes():
    """{name: function that makes the Maker}"""
    found = {}

    def add(name, arch, seed, build, **shape):
        def make():
            m = Maker(name, arch, seed, **shape)
            build(m)
            return m
        found[name] = make

    def with_(build, *arguments, **options):
        return lambda m: build(m, *arguments, **options)

    small = dict(d_model=48, n_head=3, n_kv=1)
    qwen = dict(base=1000000.0, eps=0.005, tokenizer="bpe", pre="qwen2", bos=False)
    # dense
    add("llama-gqa", "llama", 101, llama, n_layer=3, d_ff=72)
    add("llama-mha-tied", "llama", 102, llama, n_kv=4, tied=True, eps=0.005)
    add("llama-rope-linear", "llama", 103, llama, n_ids=96, rope__scaling__type="linear", rope__scaling__factor=4.0, **small)
    add("llama-yarn", "llama", 104, llama, d_head=32, n_ids=96, n_ctx=1024, rope__scaling__type="yarn",
        rope__scaling__factor=4.0, rope__scaling__original_context_length=256, rope__scaling__attn_factor=1.1, **small)
    add("llama3-rope_freqs", "llama", 105, with_(llama, freqs=True), n_head=2, n_kv=1, d_ff=72, base=500000.0, n_ids=96,
        tokenizer="bpe", pre="llama-bpe")
    add("llama-bias", "llama", 106, with_(llama, True, True, True), **small)
    add("qwen2", "qwen2", 107, with_(llama, True), d_model=48, n_head=6, **qwen)
    add("qwen3", "qwen3", 108, with_(llama, qk_norm="head"), d_model=48, d_head=32, tied=True, **qwen)
    add("gemma2", "gemma2", 109, gemma2, d_model=48, d_head=16, n_layer=3, d_ff=64, eps=0.005, tied=True,
        attention__sliding_window=20, attn_logit_softcapping=5.0, final_logit_softcapping=8.0)
    add("falcon", "falcon", 110, falcon, d_ff=96, tied=True, tokenizer="bpe", pre="falcon", bos=False, **small)
    add("falcon-two-norms", "falcon", 111, with_(falcon, True), d_ff=96, tokenizer="bpe", pre="falcon", bos=False)
    add("falcon-relu", "falcon", 112, falcon, d_ff=96, act="relu", tokenizer="bpe", pre="falcon", bos=False, **small)
    add("opt", "opt", 113, with_(opt, 130), d_model=48, n_head=3, n_kv=3, d_ff=96, n_ctx=130, tied=True, tokenizer="bpe",
        pre="gpt-2")
    add("bamboo", "bamboo", 114, llama, d_ff=96, **small)
    for i, (tag, act, gated) in enumerate([("drelu", "drelu", True), ("reglu", "reglu", True), ("geglu", "geglu", True),
                                           ("relu2", "relu2", True), ("relu", "relu", False), ("relu2-plain", "relu2", False)]):
        add("llama-" + tag, "llama", 120 + i, with_(llama, gated=gated), d_ff=96, tied=True, act=act, **small)

    # experts
    add("mixtral", "llama", 201, with_(experts, 8, 16), d_ff=16, expert_count=8, expert_used_count=2)
    add("mixtral-drelu", "llama", 202, with_(experts, 6, 24), d_ff=24, act="drelu", tied=True, expert_count=6,
        expert_used_count=2, **small)
    add("qwen2moe", "qwen2moe", 203, with_(experts, 8, 16, qkv_bias=True, shared=40, out=2.0), d_model=48, n_head=3, n_kv=3,
        d_ff=40, expert_count=8, expert_used_count=3, expert_feed_forward_length=16, expert_shared_feed_forward_length=40,
        **qwen)
    add("qwen3moe", "qwen3moe", 204, with_(experts, 8, 16, qk_norm="head"), d_model=48, d_head=16, d_ff=48, expert_count=8,
        expert_used_count=3, expert_feed_forward_length=16, **qwen)
    add("olmoe", "olmoe", 205, with_(experts, 8, 16, qk_norm="all", out=2.0), d_model=48, n_head=3, n_kv=3, d_ff=16,
        tokenizer="bpe", pre="gpt-2", bos=False, expert_count=8, expert_used_count=3)
    thinker = dict(qwen, d_model=48, d_ff=16, base=1500000.0, expert_feed_forward_length=16)
    thinker_4b = dict(thinker, n_head=6, tied=True, expert_count=8, expert_used_count=3, expert_gating_func=2)
    add("smallthinker-4b", "smallthinker", 206, with_(experts, 8, 16, router=4.0), **thinker_4b)
    add("smallthinker-4b-downt", "smallthinker", 206, with_(experts_by_neuron, 8, 16, router=4.0), **thinker_4b)
    thinker_21b = dict(thinker, n_layer=5, expert_count=6, expert_used_count=2)
    add("smallthinker-21b", "smallthinker", 207, with_(experts, 6, 16, router=1.2), n_kv=1, d_head=16, expert_gating_func=1,
        attention__sliding_window=4096, **thinker_21b)
    add("smallthinker-window", "smallthinker", 208, with_(experts, 6, 16, router=1.2), n_head=3, n_kv=1, n_ids=96,
        expert_gating_func=2, attention__sliding_window=20,
        attention__sliding_window_pattern=[False, True, False, True, True], **thinker_21b)
    oss = dict(d_head=32, base=150000.0, tokenizer="bpe", pre="gpt-4o", bos=False, n_ctx=4096, n_ids=96,
               expert_count=6, expert_used_count=3, attention__sliding_window=24, rope__scaling__type="yarn",
               rope__scaling__factor=32.0, rope__scaling__original_context_length=128)
    add("gpt-oss", "gpt-oss", 209, with_(gpt_oss, 6, 24), d_model=48, n_layer=3, d_ff=24, expert_feed_forward_length=24, **oss)
    # with experts of 4 bits: these lie in golden/quant
    add("mixtral-MXFP4", "llama", 301, with_(experts, 6, 64), d_ff=64, experts="MXFP4", expert_count=6, expert_used_count=2)
    add("gpt-oss-MXFP4", "gpt-oss", 302, with_(gpt_oss, 6, 32), d_ff=32, experts="MXFP4", expert_feed_forward_length=32, **oss)
    return found


# Not made: experts of 4 bits, and experts with a row of down per neuron.
LEFT_OUT = ("mixtral-MXFP4", "gpt-oss-MXFP4", "smallthinker-4b-downt")


def make(folder):
    """folder: a function that writes NAME, bytes."""
    for name, recipe in recipes().items():
        if name in LEFT_OUT:
            continue
        m = recipe()
        ids, logits = m.settled_ids()
        folder.write("golden/arch/" + name + ".gguf", m.file.to_bytes())
        folder.write_ids("golden/arch/" + name + ".ids", ids)
        folder.write_floats("golden/arch/" + name + ".f32", logits)
