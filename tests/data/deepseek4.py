"""DeepSeek V4's parts of a forward pass, in double precision: attention over a window and over blocks of positions, and
several residual streams. forward.py calls them.
"""
import numpy as np

from forward import normalise, sigmoid, softmax


def block_keys(m, x, p, n):
    """[blocks, d]: of each dimension the mean of the tokens' values, weighted by the softmax of their scores. Blocks of 4
    overlap: the first half of the dimensions of the tokens before is part of them too."""
    d, n_block = m.d_head, len(x) // n
    values = m.linear(x, p + "attn_compressor_kv")[:n_block * n].reshape(n_block, n, -1)
    scores = m.linear(x, p + "attn_compressor_gate")[:n_block * n].reshape(n_block, n, -1) + \
        m.get(p + "attn_compressor_ape.weight")
    keys = np.empty((n_block, d))
    for b in range(n_block):
        value, score = values[b][:, -d:], scores[b][:, -d:]
        if values.shape[2] > d and b > 0:
            value, score = np.concatenate([values[b - 1][:, :d], value]), np.concatenate([scores[b - 1][:, :d], score])
        keys[b] = (softmax(score.T) * value.T).sum(axis=1)
    return m.norm(keys, p + "attn_compressor_norm")


def turn(m, rope, x, positions, back=False):
    """Rotates the last dimensions of heads [T, H, d]."""
    n, sign = rope.n, -1 if back else 1
    angle = sign * np.asarray(positions)[:, None] * rope.theta[None, :]
    c, s = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    y, at = x.copy(), m.d_head - n
    u, v = x[..., at::2], x[..., at + 1::2]
    y[..., at::2], y[..., at + 1::2] = u * c - v * s, u * s + v * c
    return y


def attention(m, x, i):
    p, n_tok, d = f"blk.{i}.", len(x), m.d_head
    n = m.key("attention.compress_ratios")[i]
    rope, positions = m.rope if n else m.near_rope, np.arange(n_tok)
    q = m.linear(m.norm(m.linear(x, p + "attn_q_a"), p + "attn_q_a_norm"), p + "attn_q_b")
    q = turn(m, rope, normalise(q.reshape(n_tok, m.n_head, d), m.eps, False), positions)
    keys = turn(m, rope, m.norm(m.linear(x, p + "attn_kv"), p + "attn_kv_a_norm")[:, None], positions)[:, 0]
    distance = positions[:, None] - positions[None, :]
    hidden = (distance < 0) | (distance >= m.windows[i])
    if n:
        blocks = block_keys(m, x, p, n)
        blocks = turn(m, rope, blocks[:, None], np.arange(len(blocks)) * n)[:, 0]
        keys = np.concatenate([keys, blocks])
        hidden = np.concatenate([hidden, np.arange(len(blocks))[None, :] >= ((positions + 1) // n)[:, None]], axis=1)
    out, sinks = np.empty((n_tok, m.n_head, d)), m.get(p + "attn_sinks.weight")
    for h in range(m.n_head):
        s = q[:, h] @ keys.T / np.sqrt(d)
        s[hidden] = -np.inf
        s = np.concatenate([s, np.full((n_tok, 1), sinks[h])], axis=1)
        out[:, h] = softmax(s)[:, :-1] @ keys
    out = turn(m, rope, out, positions, back=True).reshape(n_tok, m.key("attention.output_group_count"), -1)
    low = np.einsum("tgi,gri->tgr", out, m.get(p + "attn_output_a.weight").reshape(out.shape[1], -1, out.shape[2]))
    return m.linear(low.reshape(n_tok, -1), p + "attn_output_b")


def weights(m, streams, name):
    """Of the inputs [T, n], of the output [T, n], and of old streams in new ones [T, from, to]; the head has the first."""
    n_tok, n, eps = len(streams), streams.shape[1], m.key("hyper_connection.epsilon")
    z = normalise(streams.reshape(n_tok, -1), m.eps, False) @ m.get(name + "_fn.weight").T
    scale, base = m.get(name + "_scale.weight"), m.get(name + "_base.weight")
    part = lambda first, end, k: z[:, first:end] * scale[k] + base[first:end]
    inputs = sigmoid(part(0, n, 0)) + eps
    if z.shape[1] == n:
        return inputs, None, None
    mix = softmax(part(2 * n, z.shape[1], 2).reshape(n_tok, n, n)) + eps
    mix = mix / (mix.sum(axis=1, keepdims=True) + eps)
    for _ in range(m.key("hyper_connection.sinkhorn_iterations") - 1):
        mix = mix / (mix.sum(axis=2, keepdims=True) + eps)
        mix = mix / (mix.sum(axis=1, keepdims=True) + eps)
    return inputs, 2 * sigmoid(part(n, 2 * n, 1)), mix


def layers(m, h):
    """From embeddings to the input of the last norm."""
    streams = np.repeat(h[:, None], m.key("hyper_connection.count"), axis=1)
    for i in range(m.n_layer):
        for name, block in ("attn", lambda x: attention(m, x, i)), ("ffn", lambda x: m.ffn(x, i, None)):
            inputs, output, mix = weights(m, streams, f"blk.{i}.hc_{name}")
            y = block(m.norm(np.einsum("tn,tnd->td", inputs, streams), f"blk.{i}.{name}_norm"))
            streams = output[:, :, None] * y[:, None] + np.einsum("tfo,tfd->tod", mix, streams)
    return np.einsum("tn,tnd->td", weights(m, streams, "output_hc")[0], streams)
