"""The models of golden/arch: one per architecture or convention, dense or of experts, with random weights in F32.

Norm epsilons are unusually large on purpose, sizes of heads, widths and counts unusual: a constant in the place of a
key shows. In every model of experts the ids are chosen so that no router is nearly undecided: rounding cannot change
the experts.
"""
import numpy as np

import gguf
import vocabulary
from forward import Model, ROWS, eps_key, softmax

MARGIN = {"F32": 0.02, "MXFP4": 0.1, "Q4_0": 0.1, "Q4_K": 0.2}  # of routers, in logits, by the type of the experts
FILE_TYPE = {"F32": 0, "Q4_0": 2, "MXFP4": 38}   # general.file_type


class Maker:
    """A file with random weights of such sizes that attention is neither flat nor one-hot, every layer moves the
    residual stream, and logits spread. Keys of the architecture are given as key__name=value."""

    def __init__(self, name, arch, seed, d_model=64, n_layer=2, n_head=4, n_kv=2, d_head=None, d_ff=80, act=None,
                 d_rot=None, tied=False, tokenizer="sentencepiece", pre="default", n_ctx=512, n_ids=64, base=10000.0,
                 eps=0.01, bos=True,
                 experts="F32", post_gain=1.0, **keys):
        self.arch, self.seed, self.random = arch, seed, np.random.RandomState(seed)
        self.draw = self.random.standard_normal
        self.d_model, self.n_layer, self.n_head, self.n_kv = d_model, n_layer, n_head, n_kv
        self.d_head, self.d_ff = d_head or d_model // n_head, d_ff
        self.tied, self.n_ids, self.experts_type, self.post_gain = tied, n_ids, experts, post_gain
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
        self.key(eps_key(arch), eps)
        if ROWS[arch]["rotation"]:
            self.key("rope.dimension_count", d_rot or self.d_head)
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
            self.file.add_array(f"{self.arch}.{name}", kinds[type(value[0])], value)
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
        size = self.post_gain if ".post_" in name else 1.0
        self.put(name + ".weight", (n,), 0.25 * size, mean * size)
        if bias:
            self.bias(name, n, 0.2)

    def embedding(self, n_position=0):
        self.matrix("token_embd", self.d_model, vocabulary.N_VOCAB, self.size)
        if n_position:
            self.matrix("position_embd", self.d_model, n_position, 0.5 * self.size)

    def output(self, norm="output_norm", norm_bias=False, bias=False):
        if norm:
            self.gain(norm, self.d_model, norm_bias)
        if not self.tied:
            self.matrix("output", self.d_model, vocabulary.N_VOCAB, 3.2 / np.sqrt(self.d_model))
        if bias:
            self.bias("output", vocabulary.N_VOCAB, 1.0)

    def attention(self, p, qkv_bias=False, output_bias=False, qk=1.4, joined=False, q_gate=False):
        e, n_q, n_k = self.d_model, self.n_head * self.d_head, self.n_kv * self.d_head
        parts = ("attn_q", n_q * (2 if q_gate else 1), qk), ("attn_k", n_k, qk), ("attn_v", n_k, 1.04)
        for name, n, deviation in [("attn_qkv", n_q + 2 * n_k, qk)] if joined else parts:
            self.matrix(p + name, e, n, deviation / np.sqrt(e))
            if qkv_bias:
                self.bias(p + name, n)
        self.matrix(p + "attn_output", n_q, e, 1.2 * self.size / np.sqrt(n_q))
        if output_bias:
            self.bias(p + "attn_output", e, 0.2 * self.size)

    def qk_norm(self, p, over, gain=1.6):
        """over: "head", "each" head with weights of its own, or "all" heads together"""
        for name, n in (("attn_q_norm", self.n_head), ("attn_k_norm", self.n_kv)):
            shape = {"head": (self.d_head,), "each": (self.d_head, n), "all": (n * self.d_head,)}[over]
            self.put(p + name + ".weight", shape, 0.25, gain)

    def latent_attention(self, p, q_rank, rank, d_nope, d_rope, d_value, qk=1.4, joined=False):
        """q_rank 0: queries at once; joined: keys and values of heads are rows of one tensor"""
        e, h = self.d_model, self.n_head
        n = h * (d_nope + d_rope)
        if q_rank:
            self.matrix(p + "attn_q_a", e, q_rank, 1 / np.sqrt(e))
            self.gain(p + "attn_q_a_norm", q_rank)
        self.matrix(p + ("attn_q_b" if q_rank else "attn_q"), q_rank or e, n, qk / np.sqrt(q_rank or e))
        self.matrix(p + "attn_kv_a_mqa", e, rank + d_rope, qk / np.sqrt(e))
        self.gain(p + "attn_kv_a_norm", rank)
        if joined:
            self.matrix(p + "attn_kv_b", rank, h * (d_nope + d_value), 1.2 / np.sqrt(rank))
        else:
            self.put(p + "attn_k_b.weight", (d_nope, rank, h), qk / np.sqrt(rank))
            self.put(p + "attn_v_b.weight", (rank, d_value, h), 1.04 / np.sqrt(rank))
        self.matrix(p + "attn_output", h * d_value, e, 1.2 * self.size / np.sqrt(h * d_value))

    def short_convolution(self, p, d_conv):
        e = self.d_model
        self.matrix(p + "shortconv.in_proj", e, 3 * e, 1.3 / np.sqrt(e))
        self.put(p + "shortconv.conv.weight", (d_conv, e), 0.8)
        self.matrix(p + "shortconv.out_proj", e, e, self.size / np.sqrt(e))

    def kda(self, p, d_conv, d):
        e, h, inner = self.d_model, self.n_head, self.n_head * d
        for n in "qkv":
            self.matrix(p + "attn_" + n, e, inner, 1.2 / np.sqrt(e))
            self.bias(p + "attn_" + n, inner)  # not used
            self.put(f"{p}ssm_conv1d_{n}.weight", (d_conv, 1, inner), 0.6)
        for n in "fg":
            self.matrix(f"{p}ssm_{n}_a", e, d, 1.2 / np.sqrt(e))
            self.matrix(f"{p}ssm_{n}_b", d, inner, 1.2 / np.sqrt(d))
        self.matrix(p + "ssm_beta", e, h, 1.2 / np.sqrt(e))
        self.file.add_tensor(p + "ssm_a", -np.exp(self.random.uniform(-4, 0.5, h)), "F32")
        self.bias(p + "ssm_dt", inner, 1.0)
        self.gain(p + "ssm_norm", d)
        self.matrix(p + "attn_output", inner, e, 1.3 * self.size / np.sqrt(inner))

    def delta_net(self, p, d_conv, n_key, n_head, d, joined=False):
        """joined: as old converters join tensors"""
        e, inner, n_qkv = self.d_model, n_head * d, (2 * n_key + n_head) * d
        for name, n in [("ssm_in", n_qkv + inner)] if joined else [("attn_qkv", n_qkv), ("attn_gate", inner)]:
            self.matrix(p + name, e, n, 1.2 / np.sqrt(e))
        for name, n in [("ssm_ba", 2 * n_head)] if joined else [("ssm_beta", n_head), ("ssm_alpha", n_head)]:
            self.matrix(p + name, e, n, 1.2 / np.sqrt(e))
        self.put(p + "ssm_conv1d.weight", (d_conv, n_qkv), 0.6)
        self.file.add_tensor(p + "ssm_a", -np.exp(self.random.uniform(-4, 0.5, n_head)), "F32")
        self.bias(p + "ssm_dt", n_head, 1.0)
        self.gain(p + "ssm_norm", d)
        self.matrix(p + "ssm_out", inner, e, 1.3 * self.size / np.sqrt(inner))

    def join(self, p, first, second, name):
        """Rows of two tensors of experts in one, expert by expert."""
        halves = [self.file.get(f"{p}{n}.weight") for n in (first, second)]
        for n in (first, second):
            del self.file.tensors[f"{p}{n}.weight"]
        self.file.add_tensor(f"{p}{name}.weight", np.concatenate(halves, axis=1), "F32")

    def state_space(self, p, form, d_conv, inner, d, n, n_group=1, rank=0, bias=True, norm=True, low_norms=False):
        """form: of forward.py's states; n: heads, or rank of the steps of channels"""
        e, heads = self.d_model, form == "heads"
        n_conv, n_step = inner + (2 * n_group * d if heads else 0), inner if form == "channels" else n
        rank = n if form == "channels" else rank
        self.matrix(p + "ssm_in", e, inner + n_conv + (n if heads else 0), 1.2 / np.sqrt(e))
        self.put(p + "ssm_conv1d.weight", (d_conv, n_conv), 0.6)
        if bias:
            self.bias(p + "ssm_conv1d", n_conv)
        if not heads:
            self.matrix(p + "ssm_x", inner, rank + 2 * d, 2.5 / np.sqrt(inner))
            for name, size in [("dt", rank), ("b", d), ("c", d)] if low_norms else []:
                self.put(f"{p}ssm_{name}_norm" + (".weight" if form == "channels" else ""), (size,), 0.25, 1.0)
            self.matrix(p + "ssm_dt", rank, n_step, 1 / np.sqrt(rank))
        self.bias(p + "ssm_dt", n_step, 1.5)
        shape = (n, 1) if heads else (inner, d) if form == "channels" else (n,)
        self.file.add_tensor(p + "ssm_a", -np.exp(self.random.uniform(-4, 0.5, shape)), "F32")
        self.put(p + "ssm_d", (1, n) if heads else (n_step,), 0.5, 0.5)
        if heads and norm:
            self.put(p + "ssm_norm.weight", (inner // n_group, n_group), 0.25, 1.0)
        self.matrix(p + "ssm_out", inner, e, (1.3 if heads and norm else 0.8) * self.size / np.sqrt(inner))

    def ffn(self, p, tag="", d_ff=None, gated=True, joined=False, bias=False):
        e, f = self.d_model, d_ff or self.d_ff
        for name, n in [("ffn_up", 2 * f)] if joined else [("ffn_gate", f), ("ffn_up", f)] if gated else [("ffn_up", f)]:
            self.matrix(p + name + tag, e, n, 1.28 / np.sqrt(e))
            if bias:
                self.bias(p + name, n)
        self.matrix(p + "ffn_down" + tag, f, e, self.size / np.sqrt(f))
        if bias:
            self.bias(p + "ffn_down", e, 0.2 * self.size)

    def experts(self, p, n, d_ff, deviation=1.28, out=1.0, bias=False, router=2.0, select_bias=0.0, gated=True):
        e, kind = self.d_model, self.experts_type
        self.matrix(p + "ffn_gate_inp", e, n, router / np.sqrt(e))
        if bias:
            self.bias(p + "ffn_gate_inp", n, 0.5)
        if select_bias:
            self.bias(p + "exp_probs_b", n, select_bias)
        for name in ("ffn_gate_exps", "ffn_up_exps") if gated else ("ffn_up_exps",):
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

    def settled_ids(self, file=None, kind=None):
        """-> ids and logits; every id at which a router is nearly undecided is replaced, from the left. file: the model
        with experts of another kind."""
        ids, model, r = self.ids(), Model(file or self.file), np.random.RandomState(self.seed + 900000)
        margin = MARGIN[kind or self.experts_type]
        while True:
            logits = model.forward(ids)
            undecided = np.flatnonzero(np.min(model.margins, axis=0) < margin) if model.margins else []
            if len(undecided) == 0:
                return ids, logits
            ids[undecided[0]] = int(r.randint(3, vocabulary.N_VOCAB - 4))


# ---- architectures ------------------------------------------------------------------------------

def frequencies(n):
    """Llama 3's: long wavelengths are divided by the factor 8, with a ramp between."""
    wavelength = 2 * np.pi / 500000.0 ** (-np.arange(0, n, 2) / n)
    part = np.clip((64 / wavelength - 1) / (4 - 1), 0, 1)
    return 1 / ((1 - part) / 8 + part)


def network(m, before=("attn_norm",), between=("ffn_norm",), after=(), norm_bias=False, outer_norms=("output_norm",),
            n_position=0, freqs=None, joined_qkv=False, qkv_bias=False, output_bias=False, qk=1.4, qk_norm=None, sinks=False,
            gated=True, joined_gate=False, ffn_bias=False, experts=None, head_bias=False, q_gate=False, recurrent=None,
            parts=None, more=None):
    """before, between, after: norms of a layer around attention and network; freqs: divisors of the rotation, by name of
    their tensor; experts: options of a mixture(); recurrent(m, p, i): adds the mixer of layer i, unless it is usual attention;
    parts: of each layer, does it have a mixer, a network?; more(m, p, i): adds what else layer i has"""
    m.embedding(n_position)
    if "token_embd_norm" in outer_norms and ROWS[m.arch]["output_norm"] != "token_embd_norm":
        m.gain("token_embd_norm", m.d_model, norm_bias)
    for name, values in (freqs or {}).items():
        m.file.add_tensor(name + ".weight", values)
    for i in range(m.n_layer):
        p = f"blk.{i}."
        for name in before:
            m.gain(p + name, m.d_model, norm_bias)
        has_mixer, has_network = parts[i] if parts else (True, True)
        if not has_mixer or (recurrent and recurrent(m, p, i)):
            pass
        else:
            m.attention(p, qkv_bias, output_bias, qk, joined_qkv, q_gate)
            if qk_norm:
                m.qk_norm(p, qk_norm)
        if sinks:
            m.put(p + "attn_sinks.weight", (m.n_head,), 1.0, 1.0)
        for name in between:
            m.gain(p + name, m.d_model, norm_bias)
        if not has_network:
            pass
        elif experts is None or not mixture(m, p, i, **experts):
            m.ffn(p, gated=gated, joined=joined_gate, bias=ffn_bias)
        for name in after:
            m.gain(p + name, m.d_model, norm_bias)
        if more:
            more(m, p, i)
    m.output(next((n for n in outer_norms if n == ROWS[m.arch]["output_norm"]), None), norm_bias, head_bias)


def mixture(m, p, i, n, d_ff, shared=0, shared_gate=False, leading=0, step=1, gated=True, **options):
    """False if layer i is dense; shared: neurons of the shared expert."""
    if i < leading or (i + 1) % step > 0:
        return False
    m.experts(p, n, d_ff, gated=gated, **options)
    if shared_gate:
        m.put(p + "ffn_gate_inp_shexp.weight", (m.d_model,), 0.2)
    if shared:
        m.ffn(p, "_shexp", shared, gated)
    return True


def llama(m, **options):
    network(m, **options)


def experts(m, n, d_ff, shared=0, shared_gate=False, router=2.0, out=1.0, leading=0, step=1, select_bias=0.0, **options):
    network(m, experts=dict(n=n, d_ff=d_ff, shared=shared, shared_gate=shared_gate, router=router, out=out, leading=leading,
                            step=step, select_bias=select_bias), **options)


def experts_by_neuron(m, *arguments, **options):
    """Every expert's down matrix has a row per neuron (PowerInfer's --transpose-down)."""
    experts(m, *arguments, **options)
    for name in [n for n in m.file.tensors if n.endswith("ffn_down_exps.weight")]:
        m.file.add_tensor(name, m.file.get(name).transpose(0, 2, 1), m.experts_type)


def laguna(m, *arguments, **options):
    """The first layer has a gate of heads, the others one of values."""
    def gate(m, p, i):
        m.matrix(p + "attn_gate", m.d_model, m.n_head * (m.d_head if i else 1), 1.5 / np.sqrt(m.d_model))
    experts(m, *arguments, qk_norm="head", more=gate, **options)


def mimo2(m, *arguments, d_value=10, **options):
    """Values are narrower than keys; the first layer has no sinks."""
    m.key("attention.value_length", d_value)

    def narrow(m, p, i):
        n = m.n_head * d_value
        m.matrix(p + "attn_v", m.d_model, m.n_kv * d_value, 1.04 / np.sqrt(m.d_model))
        m.bias(p + "attn_v", m.n_kv * d_value)  # not used
        m.matrix(p + "attn_output", n, m.d_model, 1.2 * m.size / np.sqrt(n))
        if i == 0:
            del m.file.tensors[p + "attn_sinks.weight"]
    experts(m, *arguments, sinks=True, qkv_bias=True, more=narrow, **options)


def arctic(m, *arguments, **options):
    def beside(m, p, i):
        m.gain(p + "ffn_norm_exps", m.d_model)
        m.ffn(p, d_ff=m.d_model)
    experts(m, *arguments, more=beside, **options)


def grok(m, *arguments, **options):
    """A dense network beside the experts of the first layer."""
    def beside(m, p, i):
        if i == 0:
            m.ffn(p)
    experts(m, *arguments, between=("attn_output_norm", "ffn_norm"), after=("layer_output_norm",), more=beside, **options)


def talkie(m, **options):
    def factors(m, p, i):
        m.put(p + "attn_q_norm.weight", (1, m.n_head), 0.4, 1.5)
        m.put(p + "layer_output_scale.weight", (1,), 0.1, 0.4)
    network(m, before=(), between=(), outer_norms=(), more=factors, **options)


def gpt_oss(m, n, d_ff):
    network(m, qkv_bias=True, output_bias=True, sinks=True, between=("post_attention_norm",),
            experts=dict(n=n, d_ff=d_ff, deviation=2.9, out=0.35, bias=True))  # so wide that some values pass the clamp at 7


def hybrid(m, layers, n_key=2, n_head=4, d=16, d_conv=4, joined=False, **options):
    """layers: which are recurrent"""
    def mixer(m, p, i):
        if layers[i]:
            m.delta_net(p, d_conv, n_key, n_head, d, joined)
        return layers[i]
    network(m, between=("post_attention_norm",), q_gate=True, qk_norm="head", recurrent=mixer, **options)


def latent(m, q_rank, rank=24, d_nope=12, d_rope=8, d_value=10, joined=False, **options):
    m.key("attention.kv_lora_rank", rank)
    m.key("attention.key_length", d_nope + d_rope if joined else rank + d_rope)
    m.key("attention.value_length", d_value if joined else rank)
    if not joined:
        m.key("attention.key_length_mla", d_nope + d_rope)
        m.key("attention.value_length_mla", d_value)
    if q_rank:
        m.key("attention.q_lora_rank", q_rank)

    def mixer(m, p, i):
        m.latent_attention(p, q_rank, rank, d_nope, d_rope, d_value, joined=joined)
        return True
    network(m, recurrent=mixer, **options)


def deepseek4(m, q_rank, n_group, out_rank, blocks, n_stream=4, n_hashed=0, **options):
    """blocks: positions of a block, of each layer; n_hashed: the first layers, whose experts depend on the token alone"""
    e, d, n_q, d_index = m.d_model, m.d_head, m.n_head * m.d_head, 64
    m.key("attention.q_lora_rank", q_rank)
    m.key("attention.output_group_count", n_group)
    m.key("attention.output_lora_rank", out_rank)
    m.key("attention.compress_ratios", blocks)
    m.key("hyper_connection.count", n_stream)
    m.key("hash_layer_count", n_hashed)
    m.key("attention.indexer.head_count", 2)
    m.key("attention.indexer.key_length", d_index)
    m.key("attention.indexer.top_k", 40)

    def connection(name, n, n_scale):
        m.matrix(name + "_fn", n_stream * e, n, 1.5 / np.sqrt(n_stream * e))
        m.put(name + "_base.weight", (n,), 0.5)
        m.put(name + "_scale.weight", (n_scale,), 0.2, 1.0)

    def mixer(m, p, i):
        m.matrix(p + "attn_q_a", e, q_rank, 1 / np.sqrt(e))
        m.gain(p + "attn_q_a_norm", q_rank)
        m.matrix(p + "attn_q_b", q_rank, n_q, 1 / np.sqrt(q_rank))
        m.matrix(p + "attn_kv", e, d, 1 / np.sqrt(e))
        m.gain(p + "attn_kv_a_norm", d, mean=1.3)
        if blocks[i]:
            n = 2 * d if blocks[i] == 4 else d
            m.matrix(p + "attn_compressor_kv", e, n, 1 / np.sqrt(e))
            m.matrix(p + "attn_compressor_gate", e, n, 1.5 / np.sqrt(e))
            m.put(p + "attn_compressor_ape.weight", (n, blocks[i]), 0.5)
            m.gain(p + "attn_compressor_norm", d, mean=1.3)
        if blocks[i] == 4:  # which blocks are seen, where there are many: not read
            m.matrix(p + "indexer.proj", e, 2, 1 / np.sqrt(e))
            m.matrix(p + "indexer.attn_q_b", q_rank, 2 * d_index, 1 / np.sqrt(q_rank))
            m.matrix(p + "indexer_compressor_kv", e, 2 * d_index, 1 / np.sqrt(e))
            m.matrix(p + "indexer_compressor_gate", e, 2 * d_index, 1 / np.sqrt(e))
            m.put(p + "indexer_compressor_ape.weight", (2 * d_index, 4), 0.5)
            m.gain(p + "indexer_compressor_norm", d_index)
        m.put(p + "attn_output_a.weight", (n_q // n_group, out_rank, n_group), 1 / np.sqrt(n_q // n_group))
        m.matrix(p + "attn_output_b", n_group * out_rank, e, m.size / np.sqrt(n_group * out_rank))
        for name in "attn", "ffn":
            connection(f"{p}hc_{name}", (2 + n_stream) * n_stream, 3)
        if i < n_hashed:
            n, used = m.file.meta("deepseek4.expert_count"), m.file.meta("deepseek4.expert_used_count")
            table = [m.random.permutation(n)[:used] for _ in range(vocabulary.N_VOCAB)]
            m.file.add_tensor(p + "ffn_gate_tid2eid.weight", table, "I32")
        return True
    network(m, recurrent=mixer, sinks=True, **options)
    connection("output_hc", n_stream, 1)
    for i in range(n_hashed):
        del m.file.tensors[f"blk.{i}.exp_probs_b.bias"]


def kimi(m, layers, d_conv=4, d=16, rank=24, d_nope=12, d_rope=8, d_value=10, **options):
    """layers: which are recurrent; the others have latent attention"""
    m.key("kda.head_dim", d)
    m.key("ssm.conv_kernel", d_conv)
    m.key("attention.head_count_kv", [0 if recurrent else 1 for recurrent in layers])
    m.key("attention.kv_lora_rank", rank)
    m.key("attention.key_length_mla", d_nope + d_rope)
    m.key("attention.value_length_mla", d_value)
    m.key("rope.dimension_count", d_rope)

    def mixer(m, p, i):
        m.kda(p, d_conv, d) if layers[i] else m.latent_attention(p, 0, rank, d_nope, d_rope, d_value)
        return True
    network(m, recurrent=mixer, **options)


def gemma4(m, pattern, window_head, layer_embd=0, shared=0, n=0, d_ff=0, base=10000.0, joined=False, **options):
    """pattern: which layers have a window, and heads of window_head values; the last `shared` layers read the cache of others;
    n, d_ff: experts beside the dense network"""
    e, full = m.d_model, m.d_head
    m.key("attention.sliding_window_pattern", pattern)
    m.key("attention.key_length_swa", window_head)
    m.key("attention.value_length_swa", window_head)
    m.key("rope.dimension_count_swa", window_head)
    m.key("rope.freq_base_swa", base)
    m.embedding()
    m.file.add_tensor("rope_freqs.weight", frequencies(full))
    if shared:
        m.key("attention.shared_kv_layers", shared)
    if layer_embd:
        m.key("embedding_length_per_layer_input", layer_embd)
        m.put("per_layer_token_embd.weight", (layer_embd * m.n_layer, vocabulary.N_VOCAB), 0.2)
        m.matrix("per_layer_model_proj", e, layer_embd * m.n_layer, 1.0)
        m.gain("per_layer_proj_norm", layer_embd)
    for i in range(m.n_layer):
        p, own = f"blk.{i}.", i < m.n_layer - shared
        m.d_head = window_head if pattern[i] else full
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.gain(p + name, e)
        m.attention(p)
        m.qk_norm(p, "head", 0.8)  # scores are not scaled
        absent = [] if own and pattern[i] else ["attn_v"] if own else ["attn_k", "attn_v", "attn_k_norm"]  # values are keys
        for name in absent:
            del m.file.tensors[p + name + ".weight"]
        m.ffn(p)
        if n:
            for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                m.gain(p + name, e)
            m.experts(p, n, d_ff, router=2.0)
            m.put(p + "ffn_gate_inp.scale", (e,), 1.0, 8.0)
            m.put(p + "ffn_down_exps.scale", (n,), 0.3, 1.0)
            if joined:
                m.join(p, "ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps")
        if layer_embd:
            m.matrix(p + "inp_gate", e, layer_embd, 1.2 / np.sqrt(e))
            m.matrix(p + "proj", layer_embd, e, 1 / np.sqrt(layer_embd))
            m.gain(p + "post_norm", e)
        m.put(p + "layer_output_scale.weight", (1,), 0.1, 0.8)
    m.d_head = full
    m.output()


def liquid(m, layers, d_conv, **options):
    def mixer(m, p, i):
        if layers[i]:
            m.short_convolution(p, d_conv)
        return layers[i]
    network(m, outer_norms=("token_embd_norm",), qk_norm="head", recurrent=mixer, **options)


def state_spaces(m, form, layers, d_conv, inner, d, n, n_group=1, rank=0, bias=True, norm=True, low_norms=False, beside=False,
           inner_build=network, **options):
    """layers: which have state spaces. They have no attention, unless that is beside."""
    for name, value in (("conv_kernel", d_conv), ("inner_size", inner), ("state_size", d), ("time_step_rank", n)):
        m.key("ssm." + name, value)
    if form == "heads":
        m.key("ssm.group_count", n_group)

    def mixer(m, p, i):
        if layers[i]:
            m.state_space(p, form, d_conv, inner, d, n, n_group, rank, bias, norm, low_norms)
        return layers[i] and not beside
    inner_build(m, recurrent=mixer, **options)


def mamba(m, form, *sizes, **options):
    """No networks; the counts are those of converters."""
    m.key("attention.head_count", 0)
    m.key("feed_forward_length", 0)
    state_spaces(m, form, [True] * m.n_layer, *sizes, between=(), parts=[(True, False)] * m.n_layer, **options)


def nemotron_h(m, kinds, *sizes, **options):
    """kinds: of each layer, states (s), attention (a) or a network (n)"""
    m.key("attention.head_count_kv", [m.n_kv if k == "a" else 0 for k in kinds])
    m.key("feed_forward_length", [m.d_ff if k == "n" else 0 for k in kinds])
    state_spaces(m, "heads", [k == "s" for k in kinds], *sizes, between=(), gated=False, output_bias=True, qkv_bias=True,
           parts=[(k != "n", k == "n") for k in kinds], **options)


def plain(m, between=("ffn_norm",), **options):
    """GPT-2's and its followers': layer norms with biases, no gate, all biases."""
    network(m, **dict(dict(between=between, norm_bias=True, qkv_bias=True, output_bias=True, gated=False, ffn_bias=True),
                      **options))


def falcon(m, two_norms=False):
    network(m, before=("attn_norm", "attn_norm_2") if two_norms else ("attn_norm",), between=(), norm_bias=True,
            joined_qkv=True, gated=False)


def sandwich(m, before=("attn_norm",), between=("ffn_norm",), **options):
    """Norms also behind attention and network."""
    network(m, before=before, between=("post_attention_norm", *between), after=("post_ffw_norm",), **options)


def without_suffix(m, *arguments, **options):
    """plamo3's names of norms behind attention and network."""
    sandwich(m, *arguments, **options)
    for name in [n for n in m.file.tensors if ".post_" in n]:
        m.file.tensors[name.removesuffix(".weight")] = m.file.tensors.pop(name)


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
    add("llama3-rope_freqs", "llama", 105, with_(llama, freqs={"rope_freqs": frequencies(32)}), n_head=2, n_kv=1, d_ff=72,
        base=500000.0, n_ids=96,
        tokenizer="bpe", pre="llama-bpe")
    add("llama-bias", "llama", 106, with_(llama, qkv_bias=True, output_bias=True, ffn_bias=True), **small)
    add("qwen2", "qwen2", 107, with_(llama, qkv_bias=True), d_model=48, n_head=6, **qwen)
    add("qwen3", "qwen3", 108, with_(llama, qk_norm="head"), d_model=48, d_head=32, tied=True, **qwen)
    add("gemma2", "gemma2", 109, with_(sandwich, qk=2.4), d_model=48, d_head=16, n_layer=3, d_ff=64, eps=0.005, tied=True,
        attention__sliding_window=20, attn_logit_softcapping=5.0, final_logit_softcapping=8.0)
    add("falcon", "falcon", 110, falcon, d_ff=96, tied=True, tokenizer="bpe", pre="falcon", bos=False, **small)
    add("falcon-two-norms", "falcon", 111, with_(falcon, True), d_ff=96, tokenizer="bpe", pre="falcon", bos=False)
    add("falcon-relu", "falcon", 112, falcon, d_ff=96, act="relu", tokenizer="bpe", pre="falcon", bos=False, **small)
    add("opt", "opt", 113, with_(plain, n_position=130), d_model=48, n_head=3, n_kv=3, d_ff=96, n_ctx=130, tied=True,
        tokenizer="bpe",
        pre="gpt-2")
    add("bamboo", "bamboo", 114, llama, d_ff=96, **small)
    for i, (tag, act, gated) in enumerate([("drelu", "drelu", True), ("reglu", "reglu", True), ("geglu", "geglu", True),
                                           ("relu2", "relu2", True), ("relu", "relu", False), ("relu2-plain", "relu2", False)]):
        add("llama-" + tag, "llama", 120 + i, with_(llama, gated=gated), d_ff=96, tied=True, act=act, **small)

    # dense: conventions of other architectures, one or more in each
    bpe = dict(tokenizer="bpe", pre="gpt-2", bos=False)
    shallow = dict(small, d_ff=64, tied=True, n_layer=5)
    yarn = dict(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=128,
                rope__scaling__attn_factor=1.3)
    add("arcee", "arcee", 130, with_(llama, gated=False, freqs={"rope_freqs": frequencies(16)}), **small)
    add("smollm3", "smollm3", 131, llama, **shallow)
    add("glm4", "glm4", 132, with_(sandwich, joined_gate=True, qkv_bias=True), d_head=24, d_rot=8, **small)
    add("glm4-sections", "glm4", 133, with_(sandwich, joined_gate=True, qkv_bias=True), d_head=32, d_rot=24,
        rope__dimension_sections=[2, 4, 3, 3], **small)
    add("olmo", "olmo", 134, with_(llama, before=(), between=(), outer_norms=()), attention__clamp_kqv=0.9, **small)
    add("olmo-unlimited", "olmo", 157, with_(llama, before=(), between=(), outer_norms=()), **small)
    add("olmo2", "olmo2", 135, with_(sandwich, before=(), between=(), qk_norm="all"), d_model=48, n_head=3, n_kv=3, d_ff=64,
        n_layer=5, tied=True, n_ids=96, attention__sliding_window=20, **yarn)
    add("granite", "granite", 136, with_(llama, output_bias=True, ffn_bias=True),
        embedding_scale=5.0, residual_scale=0.3, attention__scale=0.7, logit_scale=3.5, rope__scaling__finetuned=False,
        **small)
    add("minicpm", "minicpm", 137, llama, n_layer=3, attention__scale=0.01, rope__scaling__finetuned=False,
        **dict(small, d_ff=64))
    add("qwen", "qwen", 138, with_(llama, joined_qkv=True, qkv_bias=True), d_model=48, n_head=3, n_kv=3,
        feed_forward_length=160, **qwen)
    add("qwen3vl", "qwen3vl", 139, with_(llama, qk_norm="head"), d_model=48, n_head=2, n_kv=1, d_head=32, tied=True,
        rope__dimension_sections=[8, 4, 4, 0], **dict(qwen, base=300.0))
    add("exaone4", "exaone4", 140, with_(sandwich, before=(), between=(), qk_norm="head"), d_model=16, n_head=2, n_kv=1,
        d_ff=8, n_layer=64, post_gain=0.06, tied=True, attention__sliding_window=12)
    add("exaone4-shallow", "exaone4", 141, with_(sandwich, before=(), between=(), qk_norm="head"), n_layer=3,
        attention__sliding_window=12, **dict(small, d_ff=64, tied=True))
    add("hunyuan-dense", "hunyuan-dense", 142, with_(llama, qk_norm="head"), d_head=24, rope__scaling__alpha=50.0,
        rope__dimension_sections=[3, 4, 2, 3], expert_count=1, expert_used_count=1, **small)
    add("gemma3", "gemma3", 143, with_(sandwich, qk_norm="head"), d_model=32, n_head=2, n_kv=1, d_ff=48, n_layer=7, tied=True,
        base=300.0, rope__scaling__type="linear", rope__scaling__factor=8.0, attention__sliding_window=20)
    add("phi2", "phi2", 144, with_(plain, between=(), head_bias=True), d_head=24, d_rot=10, **small)
    add("plamo3", "plamo3", 145, with_(without_suffix, joined_qkv=True, joined_gate=True, qk_norm="head"), d_head=24, d_rot=16,
        n_layer=3, rope__scaling__type="linear", rope__scaling__factor=6.0, rope__freq_base_swa=70.0,
        attention__sliding_window=20, attention__sliding_window_pattern=2, **dict(small, d_ff=48, tied=True))
    add("command-r", "command-r", 146, with_(llama, between=(), qk_norm="each"), logit_scale=0.3, tied=True, d_model=48,
        n_head=6, n_kv=2)
    add("cohere2", "cohere2", 147, with_(llama, between=()), logit_scale=4.0, attention__sliding_window=20, **shallow)
    add("talkie", "talkie", 158, talkie, logit_scale=0.6, **small)
    add("stablelm", "stablelm", 148, with_(llama, norm_bias=True, qk_norm="each"), d_rot=4, **small)
    add("stablelm-parallel", "stablelm", 149, with_(llama, norm_bias=True, between=(), qkv_bias=True), d_rot=4, **small)
    add("cogvlm", "cogvlm", 150, with_(llama, joined_qkv=True), d_rot=8, base=70.0, rope__scaling__type="linear",
        rope__scaling__factor=8.0, d_model=48, n_head=3, n_kv=3)
    add("refact", "refact", 151, with_(llama, output_bias=True, ffn_bias=True), d_model=48, n_head=3, n_kv=1)
    add("jais", "jais", 152, with_(llama, norm_bias=True, joined_qkv=True, qkv_bias=True, output_bias=True, ffn_bias=True,
                                 qk=2.8),
        d_model=48, n_head=3, n_kv=3, attention__max_alibi_bias=5.0, **bpe)
    add("gptneox", "gptneox", 153, with_(plain, joined_qkv=True), d_model=48, n_head=3, n_kv=3, d_rot=6,
        use_parallel_residual=True, **bpe)
    add("gptneox-sequential", "gptneox", 154, with_(plain, joined_qkv=True), d_model=48, n_head=3, n_kv=3, d_rot=6,
        use_parallel_residual=False, **bpe)
    add("gpt2", "gpt2", 155, with_(plain, joined_qkv=True, n_position=70), d_model=48, n_head=3, n_kv=3, n_ctx=70,
        tied=True, **bpe)
    add("bloom", "bloom", 156, with_(plain, joined_qkv=True, outer_norms=("token_embd_norm", "output_norm")), d_model=48,
        n_head=6, n_kv=6, tied=True, **bpe)

    # experts
    add("mixtral", "llama", 201, with_(experts, 8, 16), d_ff=16, expert_count=8, expert_used_count=2)
    add("mixtral-drelu", "llama", 202, with_(experts, 6, 24), d_ff=24, act="drelu", tied=True, expert_count=6,
        expert_used_count=2, **small)
    add("qwen2moe", "qwen2moe", 203, with_(experts, 8, 32, qkv_bias=True, shared=64, shared_gate=True, out=2.0),
        n_kv=4, d_ff=64, expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
        expert_shared_feed_forward_length=64, **qwen)
    add("qwen3moe", "qwen3moe", 204, with_(experts, 8, 32, qk_norm="head"), d_head=16, d_ff=64, expert_count=8,
        expert_used_count=3, expert_feed_forward_length=32, **qwen)
    add("olmoe", "olmoe", 205, with_(experts, 8, 32, qk_norm="all", out=2.0), n_kv=4, d_ff=32,
        tokenizer="bpe", pre="gpt-2", bos=False, expert_count=8, expert_used_count=3)
    thinker = dict(qwen, d_ff=32, base=1500000.0, expert_feed_forward_length=32)
    thinker_4b = dict(thinker, n_head=8, tied=True, expert_count=8, expert_used_count=3, expert_gating_func=2)
    add("smallthinker-4b", "smallthinker", 206, with_(experts, 8, 32, router=4.0), **thinker_4b)
    add("smallthinker-4b-downt", "smallthinker", 206, with_(experts_by_neuron, 8, 32, router=4.0), **thinker_4b)
    thinker_21b = dict(thinker, n_layer=5, expert_count=6, expert_used_count=2)
    add("smallthinker-21b", "smallthinker", 207, with_(experts, 6, 32, router=1.2), n_kv=1, d_head=16, expert_gating_func=1,
        attention__sliding_window=4096, **thinker_21b)
    add("smallthinker-window", "smallthinker", 208, with_(experts, 6, 32, router=1.2), n_kv=1, n_ids=96,
        expert_gating_func=2, attention__sliding_window=20,
        attention__sliding_window_pattern=[False, True, False, True, True], **thinker_21b)
    oss = dict(d_head=32, base=150000.0, tokenizer="bpe", pre="gpt-4o", bos=False, n_ctx=4096, n_ids=96,
               expert_count=6, expert_used_count=3, attention__sliding_window=24, rope__scaling__type="yarn",
               rope__scaling__factor=32.0, rope__scaling__original_context_length=128)
    add("gpt-oss", "gpt-oss", 209, with_(gpt_oss, 6, 24), d_model=48, n_layer=3, d_ff=24, expert_feed_forward_length=24, **oss)
    # conventions of other architectures
    few = dict(d_model=48, n_head=3, tied=True, expert_count=8, expert_used_count=3)
    add("ernie4_5-moe", "ernie4_5-moe", 210, with_(experts, 8, 16, shared=24, leading=1, step=2, select_bias=0.1, out=2.0,
                                                   output_bias=True),
        n_kv=1, n_layer=4, d_ff=48, expert_feed_forward_length=16, expert_shared_feed_forward_length=24,
        leading_dense_block_count=1, interleave_moe_layer_step=2, **few)
    whole = dict(few, d_model=64, n_head=4)  # rows of whole blocks, once quantised
    add("granitemoe", "granitemoe", 211, with_(experts, 8, 32, shared=64, freqs={"rope_freqs": frequencies(16)}),
        n_kv=1, d_ff=32, expert_feed_forward_length=40,
        expert_shared_feed_forward_length=64, embedding_scale=5.0, residual_scale=0.3, attention__scale=0.7, logit_scale=3.5,
        rope__scaling__finetuned=False, **whole)
    keys = dict(expert_feed_forward_length=16, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5)
    add("dots1", "dots1", 212, with_(experts, 8, 16, shared=32, leading=1, select_bias=0.3, router=1.5, qk_norm="head"),
        n_kv=3, d_ff=48, n_layer=3, leading_dense_block_count=1, expert_shared_count=2, **keys, **few)
    add("bailingmoe", "bailingmoe", 213, with_(experts, 8, 16, shared=32, out=2.0), n_kv=1, d_ff=48, expert_shared_count=2,
        leading_dense_block_count=1, expert_gating_func=2, expert_weights_norm=False, expert_weights_scale=1.7,
        expert_feed_forward_length=16, **few)
    add("bailingmoe2", "bailingmoe2", 214, with_(experts, 12, 32, shared=64, leading=1, select_bias=0.3, router=1.5,
                                                 qk_norm="head",
                                                 joined_qkv=True),
        n_kv=1, d_ff=64, d_rot=6, n_layer=3, leading_dense_block_count=1, expert_shared_count=2,
        expert_shared_feed_forward_length=32, expert_group_count=4, expert_group_used_count=2,
        **dict(keys, expert_feed_forward_length=32), **dict(whole, expert_count=12))
    add("glm4moe", "glm4moe", 215, with_(experts, 8, 32, shared=32, leading=1, select_bias=0.3, router=1.5, qkv_bias=True,
                                         between=("post_attention_norm",)),
        n_kv=1, d_ff=96, d_rot=8, n_layer=3, leading_dense_block_count=1, expert_shared_count=1, expert_weights_norm=False,
        expert_feed_forward_length=0, expert_gating_func=0, expert_weights_scale=0.0, **whole)
    add("minimax-m2", "minimax-m2", 216, with_(experts, 8, 32, select_bias=0.3, router=1.5, qk_norm="all"), n_kv=1, d_ff=32,
        d_rot=8, expert_feed_forward_length=32, expert_gating_func=2, expert_weights_norm=False, **whole)
    add("deepseek", "deepseek", 217, with_(experts, 8, 16, shared=32, leading=1, out=2.0), n_kv=1, d_ff=48, n_layer=3,
        leading_dense_block_count=1, expert_shared_count=2, expert_weights_scale=1.7, expert_weights_norm=True,
        expert_feed_forward_length=16, **few)
    add("deepseek2-ocr", "deepseek2-ocr", 226, with_(experts, 8, 16, shared=32, leading=1, select_bias=0.3, router=1.5), n_kv=3,
        d_ff=48, d_rot=8, n_layer=3, leading_dense_block_count=1, expert_shared_count=2, expert_weights_scale=1.7,
        expert_weights_norm=True, expert_gating_func=1, expert_feed_forward_length=16, **few)
    add("hunyuan-moe", "hunyuan-moe", 218, with_(experts, 8, 16, shared=24, qk_norm="head"), n_kv=1, d_ff=16,
        expert_feed_forward_length=40, expert_shared_feed_forward_length=24, **few)
    add("phimoe", "phimoe", 219, with_(experts, 6, 16, norm_bias=True, qkv_bias=True, output_bias=True, head_bias=True,
                                       freqs={"rope_factors_short": frequencies(16),
                                              "rope_factors_long": frequencies(16) * 3}),
        n_kv=1, d_ff=16, rope__scaling__original_context_length=256, rope__scaling__attn_factor=1.2,
        **dict(few, expert_count=6, expert_used_count=2))
    add("dbrx", "dbrx", 220, with_(experts, 8, 16, joined_qkv=True, between=("attn_output_norm",)), n_kv=1, d_ff=16,
        attention__clamp_kqv=0.9, **few)
    add("cohere2moe", "cohere2moe", 221, with_(experts, 8, 16, shared=24, leading=1, between=()), n_kv=1, n_layer=5, d_ff=48,
        n_ids=96, leading_dense_block_count=1, expert_shared_count=2, expert_shared_feed_forward_length=24, logit_scale=0.4,
        attention__sliding_window=20, attention__sliding_window_pattern=3, **keys, **few)
    add("laguna", "laguna", 222, with_(laguna, 8, 16, shared=24, leading=1, select_bias=0.3, router=1.5), n_kv=1, n_layer=3,
        d_ff=48, d_rot=8, n_ids=96, leading_dense_block_count=1, expert_shared_feed_forward_length=24,
        attention__sliding_window=20, rope__dimension_count_swa=12, rope__freq_base_swa=300.0, rope__scaling__type="yarn",
        rope__scaling__factor=4.0, rope__scaling__original_context_length=128, **keys, **few)
    add("mimo2", "mimo2", 225, with_(mimo2, 8, 16, leading=1, select_bias=0.3, router=1.5), n_kv=1, n_layer=3, d_ff=48, d_rot=8,
        d_head=20, n_ids=96, base=500000.0, expert_feed_forward_length=16, attention__value_scale=0.7,
        attention__sliding_window=20, attention__sliding_window_pattern=[False, True, True], rope__dimension_count_swa=8,
        rope__freq_base_swa=300.0, **few)
    add("arctic", "arctic", 223, with_(arctic, 8, 16), n_kv=1, d_ff=16, **few)
    add("grok", "grok", 224, with_(grok, 8, 16), n_kv=1, d_ff=40, expert_feed_forward_length=16, embedding_scale=2.0,
        logit_scale=0.7, attention__output_scale=0.3, attn_logit_softcapping=6.0, final_logit_softcapping=8.0,
        rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=128,
        rope__scaling__yarn_beta_slow=2.0, rope__scaling__yarn_ext_factor=1.0, **few)
    # latent attention
    low = dict(d_model=48, n_head=3, n_kv=1, d_ff=48, d_rot=8, n_ids=96)
    mla = dict(expert_count=8, expert_used_count=3, expert_feed_forward_length=16, expert_shared_count=1,
               leading_dense_block_count=1)
    scaled = dict(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=128)
    joined = dict(n=8, d_ff=16, shared=16, leading=1, router=1.5)
    wide = dict(q_rank=32, rank=32, d_nope=32, d_rope=32, d_value=32)  # rows of whole blocks
    add("deepseek2", "deepseek2", 240, with_(latent, 20, experts=dict(joined, select_bias=0.3)), n_layer=3,
        expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5, rope__scaling__yarn_log_multiplier=0.07,
        **scaled, **mla, **low)
    add("deepseek2-lite", "deepseek2", 241, with_(latent, experts=dict(joined, d_ff=32, shared=32), **dict(wide, q_rank=0)),
        expert_gating_func=1, expert_weights_norm=False, tied=True, **dict(mla, expert_feed_forward_length=32),
        **dict(low, d_model=64, d_ff=64, d_rot=32))
    add("deepseek2-joined", "deepseek2", 247, with_(latent, 20, joined=True, experts=joined), expert_gating_func=1,
        expert_weights_norm=False, tied=True, **mla, **dict(low, n_kv=3, d_ff=96))
    add("minicpm3", "minicpm3", 248, with_(latent, 20, joined=True, freqs={"rope_factors_short": frequencies(8),
                                                                           "rope_factors_long": frequencies(8) * 3}),
        n_layer=3, base=50.0, rope__scaling__original_context_length=256, rope__scaling__attn_factor=1.2,
        **dict(low, n_kv=3, d_ff=144))
    add("plm", "plm", 249, with_(latent, 0, joined=True, gated=False), tied=True, **dict(low, n_kv=3, d_ff=200))
    add("mistral4", "mistral4", 242, with_(latent, experts=dict(joined, d_ff=32, shared=32), **wide), expert_gating_func=1,
        expert_weights_norm=True, rope__scaling__yarn_log_multiplier=0.07, rope__scaling__attn_factor=1.1,
        attention__temperature_scale=0.2, attention__temperature_length=16, **scaled,
        **dict(mla, expert_feed_forward_length=32), **dict(low, d_model=64, d_ff=64, d_rot=32))
    add("glm-dsa", "glm-dsa", 244, with_(latent, 20, experts=joined), expert_gating_func=0, expert_weights_norm=True,
        attention__indexer__top_k=200, **mla, **low)
    add("deepseek4", "deepseek4", 246, with_(deepseek4, 20, 2, 12, [4, 0, 128, 4], n_hashed=1,
                                             experts=dict(n=8, d_ff=16, shared=16, deviation=2.0, router=1.5, select_bias=0.3)),
        n_layer=4, d_head=32, n_head=4, expert_gating_func=4, expert_weights_norm=True, expert_weights_scale=1.5,
        attention__sliding_window=20, attention__compress_rope_freq_base=2000.0, swiglu_clamp_exp=[2.5, 2.0, 1.5, 2.0],
        swiglu_clamp_shexp=[2.0, 1.5, 2.0, 2.5], hyper_connection__sinkhorn_iterations=3, hyper_connection__epsilon=0.01,
        **scaled, **{k: v for k, v in mla.items() if k != "leading_dense_block_count"},
        **{k: v for k, v in low.items() if k not in ("n_head", "n_ids")}, n_ids=140)
    add("llama4", "llama4", 245, with_(experts, 8, 32, shared=32, step=2, freqs={"rope_freqs": frequencies(16)}), n_layer=4,
        n_kv=1, d_ff=64, n_ids=96, expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
        interleave_moe_layer_step=2)
    add("mistral3", "mistral3", 243, llama, attention__temperature_scale=0.2, rope__scaling__yarn_log_multiplier=0.6,
        rope__scaling__yarn_beta_fast=3.0, rope__scaling__yarn_beta_slow=0.2, n_ids=96, **dict(scaled, rope__scaling__original_context_length=24), **small)
    # Gemma 4: layers for which heads, caches and embeddings differ
    four = dict(n_head=3, n_kv=1, d_ff=64, d_head=64, n_ids=96, tied=True, post_gain=0.5, attention__sliding_window=20,
                final_logit_softcapping=8.0)
    add("gemma4", "gemma4", 250, with_(gemma4, [True, True, False, True, False], 32, layer_embd=32, shared=2), n_layer=5,
        **four)
    add("gemma4-moe", "gemma4", 251, with_(gemma4, [True, False, True], 32, n=8, d_ff=32, joined=True, base=300.0), n_layer=3,
        expert_count=8, expert_used_count=3, expert_feed_forward_length=32, **four)
    # recurrent layers
    states = dict(ssm__conv_kernel=4, ssm__state_size=16, ssm__group_count=2, ssm__time_step_rank=4, ssm__inner_size=64)
    mixed = dict(d_model=48, n_head=3, n_kv=1, d_ff=48, n_ids=100, **qwen)
    blocks = dict(mixed, d_model=64, n_head=4, d_ff=64)  # rows of whole blocks, once quantised
    add("qwen35", "qwen35", 230, with_(hybrid, [True, True, True, False, True]), n_layer=5, d_head=16, d_rot=8,
        rope__dimension_sections=[2, 1, 1, 0], **states, **blocks)
    some = dict(expert_count=8, expert_used_count=3, expert_feed_forward_length=32, expert_shared_feed_forward_length=64)
    shared = dict(n=8, d_ff=32, shared=64, shared_gate=True)
    add("qwen35moe", "qwen35moe", 231, with_(hybrid, [False, True, True], n_key=1, n_head=4, d_conv=3, experts=shared),
        n_layer=3, d_head=16, d_rot=8, rope__dimension_sections=[1, 2, 1, 0], attention__recurrent_layers=[False, True, True],
        **dict(states, ssm__conv_kernel=3, ssm__group_count=1), **some, **blocks)
    add("qwen3next", "qwen3next", 232, with_(hybrid, [True, False], joined=True, experts=shared), n_layer=2, d_head=16,
        d_rot=8, full_attention_interval=2, **states, **some, **blocks)
    add("kimi-linear", "kimi-linear", 235, with_(kimi, [True, False, True], d=32, rank=32, d_nope=32, d_rope=32, d_value=32,
                                                 experts=dict(joined, d_ff=32, shared=32, select_bias=0.3)), n_layer=3,
        expert_gating_func=2, expert_weights_scale=1.7, d_model=64, n_head=2, n_kv=1, d_ff=64, n_ids=96,
        **dict(mla, expert_feed_forward_length=32))
    add("lfm2", "lfm2", 233, with_(liquid, [True, False, True], 3), n_layer=3, shortconv__l_cache=3,
        attention__head_count_kv=[0, 1, 0], attention__sliding_window=20, **blocks)
    add("lfm2moe", "lfm2moe", 234, with_(liquid, [True, False, True], 4, experts=dict(n=8, d_ff=32, leading=1, select_bias=0.3,
                                                                                       router=1.5)),
        n_layer=3, shortconv__l_cache=4, attention__head_count_kv=[0, 2, 0], leading_dense_block_count=1, expert_gating_func=2,
        expert_count=8, expert_used_count=3, expert_feed_forward_length=32, **dict(blocks, tied=True, n_kv=2))
    # state spaces
    alone = dict(d_model=48, n_ids=100, **qwen)
    add("mamba", "mamba", 250, with_(mamba, "channels", 4, 96, 6, 32), ssm__dt_b_c_rms=False, **dict(alone, d_model=64))
    add("mamba-normed", "mamba", 251, with_(mamba, "channels", 3, 150, 9, 7), tied=True, ssm__dt_b_c_rms=True, **alone)
    add("mamba2", "mamba2", 252, with_(mamba, "heads", 4, 96, 10, 16, 2), n_layer=3, **dict(alone, d_model=64))
    add("falcon-h1", "falcon-h1", 253, with_(state_spaces, "heads", [True, True], 3, 96, 12, 4, bias=False, norm=False, beside=True,
                                             qkv_bias=True, output_bias=True, ffn_bias=True,
                                             freqs={"rope_freqs": frequencies(16)}), d_rot=8, d_head=16, **blocks)
    add("granitehybrid", "granitehybrid", 254, with_(state_spaces, "heads", [True, False, True], 4, 64, 9, 4, 2, bias=False,
                                                     output_bias=True, freqs={"rope_freqs": frequencies(16)},
                                                     experts=dict(n=8, d_ff=16, shared=24)),
        n_layer=3, n_kv=1, d_ff=16, n_ids=100, attention__head_count_kv=[0, 1, 0], expert_feed_forward_length=40,
        expert_shared_feed_forward_length=24, embedding_scale=5.0, residual_scale=0.3, attention__scale=0.7, **few)
    add("nemotron_h", "nemotron_h", 255, with_(nemotron_h, "sansn", 4, 60, 8, 5, ffn_bias=True), d_head=24, n_layer=5, **mixed)
    add("nemotron_h_moe", "nemotron_h_moe", 256, with_(nemotron_h, "snans", 3, 72, 16, 9, 3,
                                                       experts=dict(n=8, d_ff=16, shared=24, gated=False, select_bias=0.3,
                                                                    router=1.5)),
        n_layer=5, n_kv=1, d_ff=16, n_ids=100, expert_feed_forward_length=16, expert_shared_feed_forward_length=24,
        expert_weights_norm=True, expert_weights_scale=2.5, **few)
    add("jamba", "jamba", 257, with_(state_spaces, "channels", [True, False, True], 4, 96, 7, 3, low_norms=True, qkv_bias=True,
                                     experts=dict(n=8, d_ff=48, step=2, out=2.0)),
        n_layer=3, attention__head_count_kv=[0, 1, 0], expert_count=8, expert_used_count=2, **mixed)
    add("plamo2", "plamo2", 258, with_(state_spaces, "low heads", [True, False, True], 4, 72, 10, 4, rank=64, bias=False,
                                       low_norms=True, inner_build=without_suffix, joined_qkv=True, joined_gate=True, qk_norm="each"),
        n_layer=3, d_head=24, d_rot=16, attention__head_count_kv=[0, 1, 0], ssm__group_count=0, **mixed)
    # with experts of 4 bits: these lie in golden/quant
    # 320 outputs: the sums of experts are divided into units of 256
    add("mixtral-MXFP4", "llama", 301, with_(experts, 6, 64), d_model=320, n_head=5, n_kv=1, d_ff=64, experts="MXFP4",
        expert_count=6, expert_used_count=2)
    # neurons of an expert begin within a cluster of 256, and outputs are more than a unit's 512
    add("smallthinker-downt-Q4_0", "smallthinker", 303, with_(experts_by_neuron, 4, 288, router=4.0), experts="Q4_0",
        **dict(thinker, d_model=544, n_layer=2, n_head=8, d_head=16, d_ff=288, expert_feed_forward_length=288, expert_count=4,
               expert_used_count=2, expert_gating_func=2))
    add("gpt-oss-MXFP4", "gpt-oss", 302, with_(gpt_oss, 6, 32), d_ff=32, experts="MXFP4", expert_feed_forward_length=32, **oss)
    return found


def further(m, between, own=(), **options):
    """Adds a block that predicts a token further to a complete model. own: "norm", "head", "table", in place of those of the
    model; options: of network()"""
    p, e = f"blk.{m.n_layer}.", m.d_model
    for name in ("nextn.enorm", "nextn.hnorm", "attn_norm"):
        m.gain(p + name, e)
    m.matrix(p + "nextn.eh_proj", 2 * e, e, m.size / np.sqrt(2 * e))
    for name, tensor in (("table", "embed_tokens"), ("head", "shared_head_head")):
        if name in own:
            m.matrix(p + "nextn." + tensor, e, vocabulary.N_VOCAB, 3.2 / np.sqrt(e))
    if "norm" in own:
        m.gain(p + "nextn.shared_head_norm", e)
    m.key("block_count", m.n_layer + 1)
    m.key("nextn_predict_layers", 1)
    recurrent, mixed = options.get("recurrent"), options.get("experts")
    if not (recurrent and recurrent(m, p, m.n_layer)):
        m.attention(p, options.get("qkv_bias", False), q_gate=options.get("q_gate", False))
        if options.get("qk_norm"):
            m.qk_norm(p, options["qk_norm"])
    m.gain(p + between, e)
    if not (mixed and mixture(m, p, m.n_layer, **mixed)):
        m.ffn(p)


N_GUESS = 3


def mtp_recipes():
    """The models of golden/mtp: name -> a function that makes one. Their block's router is decided enough."""
    few = dict(d_model=48, n_head=3, tied=True, expert_count=8, expert_used_count=3)
    low = dict(d_model=48, n_head=3, n_kv=1, d_ff=48, n_ids=64)

    def glm4moe():
        m = Maker("glm4moe-mtp", "glm4moe", 415, n_kv=1, d_ff=48, d_rot=8, n_layer=3, leading_dense_block_count=1,
                  expert_shared_count=1, expert_weights_norm=True, expert_feed_forward_length=16, expert_gating_func=2,
                  expert_weights_scale=1.5, **few)
        mixed = dict(n=8, d_ff=16, shared=16, leading=1, select_bias=0.3, router=1.5)
        experts(m, **mixed, qkv_bias=True, between=("post_attention_norm",))
        further(m, "post_attention_norm", qkv_bias=True, experts=mixed)
        return m

    def qwen35():
        layers = [True, True, True, False]
        m = Maker("qwen35-mtp", "qwen35", 430, n_layer=4, d_head=16, d_rot=8, rope__dimension_sections=[2, 1, 1, 0],
                  ssm__conv_kernel=4, ssm__state_size=16, ssm__group_count=2, ssm__time_step_rank=4, ssm__inner_size=64,
                  base=1000000.0, eps=0.005, tokenizer="bpe", pre="qwen2", bos=False, **low)
        hybrid(m, layers)
        further(m, "post_attention_norm", ("norm", "head", "table"), q_gate=True, qk_norm="head")
        return m

    def deepseek2():
        m = Maker("deepseek2-mtp", "deepseek2", 440, n_layer=2, d_rot=8, expert_gating_func=2, expert_weights_norm=True,
                  expert_weights_scale=2.5, expert_count=8, expert_used_count=3, expert_feed_forward_length=16,
                  expert_shared_count=1, leading_dense_block_count=1, rope__scaling__yarn_log_multiplier=0.07,
                  rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=128, **low)
        mixed = dict(n=8, d_ff=16, shared=16, leading=1, router=1.5, select_bias=0.3)
        latent(m, 20, experts=mixed)

        def mixer(m, p, i):
            m.latent_attention(p, 20, 24, 12, 8, 10)
            return True
        further(m, "ffn_norm", ("norm",), recurrent=mixer, experts=mixed)
        return m

    return {"glm4moe": glm4moe, "qwen35": qwen35, "deepseek2": deepseek2}


def make_mtp(folder):
    """NAME.f32: logits of the block, for the rows of the ids and the ids behind them, then for N_GUESS of its own rows and
    the first ids."""
    for name, recipe in mtp_recipes().items():
        m = recipe()
        ids, _ = m.settled_ids()
        model = Model(m.file)
        model.forward(ids)
        rows, tokens, margins = model.rows[:-1], ids[1:], []
        for guess in ids[:N_GUESS] + [None]:
            logits = model.further(tokens, rows)
            margins += [x.min() for x in model.margins]
            tokens, rows = tokens + [guess], np.concatenate([rows, model.rows[-1:]])
        assert min(margins, default=1) > 1e-3, (name, min(margins))
        folder.write("golden/mtp/" + name + ".gguf", m.file.to_bytes())
        folder.write_ids("golden/mtp/" + name + ".ids", ids)
        folder.write_floats("golden/mtp/" + name + ".f32", logits)


RERANK_TEMPLATE = ("<|im_start|>system\nYes or no?<|im_end|>\n<|im_start|>user\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
                   "<|im_start|>assistant\n")
YES, NO = 145, 12


def make_rank(folder):
    """A reranker as converters make one: its head has the rows of two tokens in the table. NAME.f32: the probabilities of
    its classes after each id."""
    m = Maker("qwen3-rank", "qwen3", 460, d_model=48, d_head=32, tied=True, base=1000000.0, eps=0.005, tokenizer="bpe",
              pre="qwen2", bos=False, pooling_type=4, classifier__output_labels=["yes", "no"])
    llama(m, qk_norm="head")
    m.file.add("tokenizer.chat_template.rerank", gguf.STR, RERANK_TEMPLATE)
    table = m.file.get("token_embd.weight")
    m.file.add_tensor("cls.output.weight", table[[YES, NO]], "F32")
    ids, logits = m.settled_ids()
    folder.write("golden/rank/qwen3.gguf", m.file.to_bytes())
    folder.write_ids("golden/rank/qwen3.ids", ids)
    folder.write_floats("golden/rank/qwen3.f32", softmax(np.asarray(logits)[:, [YES, NO]]))


# Not made here: experts of 4 bits (quant.py).
LEFT_OUT = ("mixtral-MXFP4", "gpt-oss-MXFP4", "smallthinker-downt-Q4_0")


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
    make_mtp(folder)
    make_rank(folder)
