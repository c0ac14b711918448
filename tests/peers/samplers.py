"""The same distributions as llama.cpp's samplers, over drawn logits, parameters and histories. Called by peers.py.

A case is what comes before the draw: which tokens are left, and how likely each is. Mirostat and tokens that are accepted
go on by what llama.cpp drew; XTC leaves tokens out always or never.

Tolerance. llama.cpp adds the shares of n tokens in float32, each sum off by up to n 2^-24, and Hearth in double precision;
2^-17 more is for exp in float32 of logits that were divided by a temperature. Distributions differ in sum by that share, and
the logarithm of a probability by four times that share of itself, as by the temperature of an entropy. A limit can fall
between two such sums, which changes what is left, and what the limits behind it see: of 50 distributions of a kind one may
differ. Which of equally likely tokens is cut is open in llama.cpp, whose sorting is not stable: sorted probabilities are
compared, and those of tokens whose logit no other one has.

Left out, where llama.cpp's answer is none: typical, dynamic temperature and mirostat 1 after tokens of -infinity, whose
0 log 0 it computes (typical, mirostat 1), or which it counts as possible (dynamic temperature: docs/options.md); mirostat 1 on
logits far from Zipf's law, where its k leaves the range of int.
"""
import os
import struct

import numpy as np

FIELDS = ("n_vocab n_history n_step top_k repeat_last_n dry_last_n dry_allowed_length has_breakers mirostat temperature "
          "typical_p top_p min_p repeat_penalty presence_penalty frequency_penalty top_n_sigma xtc_probability xtc_threshold "
          "dynatemp_range dynatemp_exponent dry_multiplier dry_base mirostat_tau mirostat_eta").split()  # sampler_case.h
N_INT = FIELDS.index("temperature")
OFF = {"n_step": 1, "repeat_last_n": 64, "dry_last_n": 200, "dry_allowed_length": 2, "temperature": 1.0, "typical_p": 1.0,
       "top_p": 1.0, "repeat_penalty": 1.0, "xtc_threshold": 0.1, "dynatemp_exponent": 1.0, "dry_base": 1.75,
       "mirostat_tau": 5.0, "mirostat_eta": 0.1}
VOCABS = (32, 1000, 32000)
N_SET = 6  # of parameters, for each shape and vocabulary
N_STEP = 6  # of texts that go on


# ---- draws -----------------------------------------------------------------------------------------------------------


def flat(draw, n):
    return np.full(n, draw.uniform(-5, 5))


def nearly_flat(draw, n):
    return draw.normal(0, 0.1, n)


def usual(draw, n):
    return draw.normal(0, 3, n)


def peaked(draw, n):
    z = draw.normal(-4, 2, n)
    z[draw.randint(n)] += 25
    return z


def falling(draw, n):
    """Zipf's law."""
    return draw.permutation(-draw.uniform(0.8, 2) * np.log(np.arange(1, n + 1)) + draw.normal(0, 0.05, n))


def ties(draw, n):
    return np.round(draw.normal(0, 2, n))


def banned(draw, n):
    z = draw.normal(0, 3, n)
    z[draw.permutation(n)[:n * 3 // 4]] = -np.inf
    return z


SHAPES = (flat, nearly_flat, usual, peaked, falling, ties, banned)


def top_k(draw):
    return {"top_k": int(draw.choice((1, 2, 10, 31, 40, 129, 500)))}


def top_p(draw):
    return {"top_p": draw.uniform(0.05, 0.999)}


def min_p(draw):
    return {"min_p": draw.choice((1e-4, 0.02, 0.05, 0.3, 0.9)) * draw.uniform(0.9, 1.1)}


def typical(draw):
    return {"typical_p": draw.uniform(0.05, 0.999)}


def temperature(draw):
    return {"temperature": draw.choice((0.1, 0.5, 0.8, 1.5, 5.0))}


def sigma(draw):
    return {"top_n_sigma": draw.uniform(0.2, 4)}


def xtc(draw):
    return {"xtc_probability": float(draw.randint(4) > 0), "xtc_threshold": draw.choice((0.002, 0.05, 0.1, 0.3, 0.6))}


def dynamic(draw):
    return {"temperature": draw.uniform(0.3, 2), "dynatemp_range": draw.uniform(0.05, 2.5),
            "dynatemp_exponent": draw.choice((0.5, 1, 2))}


def penalties(draw):
    return {"repeat_penalty": draw.choice((1, 0.8, 1.1, 1.5)), "presence_penalty": draw.choice((0, -0.5, 0.7)),
            "frequency_penalty": draw.choice((0, 0.05, -0.1)), "repeat_last_n": int(draw.choice((1, 5, 64, 300))),
            "n_history": int(draw.randint(200))}


def dry(draw):
    return {"dry_multiplier": draw.uniform(0.2, 2), "dry_base": draw.choice((1.0, 1.2, 1.75, 3)),
            "dry_allowed_length": int(draw.randint(1, 5)), "dry_last_n": int(draw.choice((4, 60, 400))),
            "n_history": int(draw.randint(400))}


def breakers(draw):
    return {**dry(draw), "has_breakers": 1}


def mirostat(version):
    return lambda draw: {"mirostat": version, "mirostat_tau": draw.uniform(1, 6), "mirostat_eta": draw.uniform(0.05, 1),
                         "temperature": draw.choice((0.8, 1, 1.2)), "n_step": N_STEP}


def together(draw):
    """All at once, without what llama.cpp cannot after top-n-sigma."""
    kinds = (top_k, top_p, min_p, temperature, sigma, xtc, penalties, dry)
    return {key: value for kind in kinds if draw.randint(3) for key, value in kind(draw).items()} | {"n_step": N_STEP}


def filters(draw):
    """Those that top-n-sigma's tokens of -infinity would spoil."""
    kinds = (top_k, typical, top_p, min_p, xtc, dynamic, penalties)
    return {key: value for kind in kinds if draw.randint(3) for key, value in kind(draw).items()} | {"n_step": N_STEP}


FINITE = SHAPES[:-1]
KINDS = {  # what is drawn, for which shapes, and vocabularies
    "top-k": (top_k, SHAPES, VOCABS), "top-p": (top_p, SHAPES, VOCABS), "min-p": (min_p, SHAPES, VOCABS),
    "typical": (typical, FINITE, VOCABS), "temperature": (temperature, SHAPES, VOCABS), "top-n-sigma": (sigma, SHAPES, VOCABS),
    "xtc": (xtc, SHAPES, VOCABS), "dynamic temperature": (dynamic, FINITE, VOCABS), "penalties": (penalties, SHAPES, VOCABS),
    "dry": (dry, SHAPES, VOCABS), "dry with breakers": (breakers, SHAPES, VOCABS[-1:]),
    "mirostat 1": (mirostat(1), (falling,), VOCABS), "mirostat 2": (mirostat(2), SHAPES, VOCABS),
    "chains": (together, SHAPES, VOCABS), "chains without top-n-sigma": (filters, FINITE, VOCABS),
}


def history_of(draw, n, n_vocab, has_breakers):
    """Few ids, so that texts repeat themselves; with breakers some of 32000 that have a line end, a colon, a quote, a star."""
    ids = draw.randint(0, n_vocab, draw.randint(2, 9))
    if has_breakers:
        ids[0] = draw.choice((13, 29901, 29908, 334))
    return ids[draw.randint(0, len(ids), n)]


def cases_of(kind, seed):
    make, shapes, vocabs = KINDS[kind]
    draw = np.random.RandomState([seed, sorted(KINDS).index(kind)])
    for shape in shapes:
        for n_vocab in vocabs:
            for _ in range(N_SET):
                values = {**dict.fromkeys(FIELDS, 0), **OFF, "n_vocab": n_vocab, **make(draw)}
                history = history_of(draw, values["n_history"], n_vocab, values["has_breakers"])
                logits = np.array([shape(draw, n_vocab) for _ in range(values["n_step"])], "<f4")
                yield shape.__name__, values, history, logits


def write_cases(path, cases):
    with open(path, "wb") as f:
        for _, values, history, logits in cases:
            numbers = [values[name] for name in FIELDS]
            f.write(struct.pack(f"<{N_INT}i{len(FIELDS) - N_INT}f", *numbers) + history.astype("<i4").tobytes())
            f.write(logits.tobytes())


# ---- comparison ------------------------------------------------------------------------------------------------------


def read_answer(f, n_vocab):
    """The probability of each token, and which one was drawn."""
    n, drawn = np.fromfile(f, "<i4", 2)
    ids, p = np.fromfile(f, "<i4", n), np.zeros(n_vocab)
    p[ids] = np.fromfile(f, "<f4", n)
    assert n > 0 and len(set(ids)) == n and abs(p.sum() - 1) < 1e-2, (n, p.sum())
    return p, ids[drawn] if drawn >= 0 else -1


def compare_step(ours, theirs, logits):
    """None, or what differs."""
    tolerance = len(logits) * 2**-24 + 2**-17
    values, of, count = np.unique(logits, return_inverse=True, return_counts=True)
    once = count[of] == 1
    for what, a, b in (("shares", np.sort(ours), np.sort(theirs)), ("tokens", ours[once], theirs[once])):
        if np.abs(a - b).sum() / 2 > tolerance:
            return f"{what} differ by {np.abs(a - b).sum() / 2:.1e}"
    both = once & (ours > 1e-30) & (theirs > 1e-30)
    ratio = np.abs(np.log(ours[both] / theirs[both])) / (2 - np.log(theirs[both]))
    return f"logarithms differ by {ratio.max():.1e} of themselves" if ratio.max(initial=0) > 4 * tolerance else None


def compare(kind, llama, ours, vocab, work, seed, must):
    """AssertionError names those that differ, where they are too many."""
    paths = [os.path.join(work, "samplers." + end) for end in ("cases", "theirs", "ours")]
    cases, n, wrong = list(cases_of(kind, seed)), 0, []
    write_cases(paths[0], cases)
    must(llama, "samplers", vocab, *paths[:2])
    must(ours, vocab, *paths)
    with open(paths[1], "rb") as theirs_file, open(paths[2], "rb") as ours_file:
        for shape, values, _, logits in cases:
            steps = [(row, read_answer(theirs_file, len(row)), read_answer(ours_file, len(row))) for row in logits]
            for row, (theirs, drawn), (mine, taken) in steps:
                found, n = compare_step(mine, theirs, row), n + 1
                if found:
                    wrong.append((shape, {k: v for k, v in values.items() if v != OFF.get(k, 0)}, found))
                if found or taken != drawn:  # llama.cpp took one of equal tokens that Hearth cut: the texts part
                    break
        assert not theirs_file.read() and not ours_file.read()
    print(f"     {kind}: {n} distributions, of which {len(wrong)} differ")
    assert len(wrong) * 50 <= n, f"{len(wrong)} of {n} differ: {wrong[:8]}"
    for path in paths:
        os.remove(path)
