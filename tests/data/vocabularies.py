"""Makes vocabularies of the project's own, and the ids of many texts under each by token_rules.py.

    python3 tests/data/vocabularies.py build/data

Below tokenizers/ of the folder: NAME.gguf; NAME.jsonl, a line for each text of tokenizers/texts.jsonl and
tokenizers/pretok/texts.jsonl and some glued from the vocabulary itself, as plain text; NAME.special.jsonl, texts with
special tokens, recognised; long_runs.jsonl; NAME.english.ids, the ids of text/english.txt in 32 bits each.
The words are learnt from text/english.txt and tokenizers/sample.txt; everything is the same at every run.
"""
import base64
import collections
import heapq
import json
import os
import random
import re
import struct
import sys

import charsmap
import gguf
import token_rules as rules

HERE = os.path.dirname(os.path.abspath(__file__))
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
N_MERGE, N_PIECE, N_ENGLISH = 3000, 2500, 150000

# ---- learning words ------------------------------------------------------------------------------------------------


def learn(words, n):
    """The n most frequent joins of neighbours, one after the other. words: {tuple of symbols: count}."""
    words, counts = [[list(w), c] for w, c in sorted(words.items())], collections.Counter()
    where, merges = collections.defaultdict(set), []
    for i, (symbols, count) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            counts[pair] += count
            where[pair].add(i)
    queue = [(-c, pair) for pair, c in counts.items()]
    heapq.heapify(queue)
    while len(merges) < n and queue:
        count, pair = heapq.heappop(queue)
        if -count != counts[pair] or count == 0:
            continue
        merges.append(pair)
        changed = set()
        for i in sorted(where.pop(pair)):
            symbols, n_word = words[i]
            for old in zip(symbols, symbols[1:]):
                counts[old] -= n_word
                changed.add(old)
            k = 0
            while k + 1 < len(symbols):
                if (symbols[k], symbols[k + 1]) == pair:
                    symbols[k:k + 2] = [symbols[k] + symbols[k + 1]]
                k += 1
            for new in zip(symbols, symbols[1:]):
                counts[new] += n_word
                where[new].add(i)
                changed.add(new)
        for p in changed:
            heapq.heappush(queue, (-counts[p], p))
    return merges


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8", newline="") as f:
        return f.read()


def read_lines(name):
    """The bytes of each line's text."""
    with open(os.path.join(HERE, name), encoding="utf-8", newline="\n") as f:
        lines = [json.loads(line) for line in f]
    return [base64.b64decode(line["b64"]) if "b64" in line else line["text"].encode() for line in lines]


def byte_level_merges(families, text):
    """Learnt from the words of several families, so that a family is known by its ids and not only by its cuts."""
    words = collections.Counter()
    for name in ("gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "bloom"):
        for word in rules.cut(families[name], text):
            words[tuple(rules.BYTE_CHARACTERS[b] for b in word.encode()[:64])] += 1
    return learn(words, N_MERGE)


def sentence_pieces(text):
    """Pieces in the order of being learnt, best first; characters that occur, last."""
    words = collections.Counter()
    for line in text.split("\n"):
        for word in (rules.SPACE + line.replace(" ", " " + rules.SPACE)).split(" "):
            words[tuple(word[:40])] += 1
    characters = sorted({c for word in words for c in word})
    return [a + b for a, b in learn(words, N_PIECE)], [c for c in characters if c != rules.SPACE and ord(c) < 0x4E00]


# ---- vocabularies --------------------------------------------------------------------------------------------------


class Vocabulary:
    """A name, what the file says, and the tokenizer by the rules."""

    def __init__(self, name, kind):
        self.name, self.kv, self.tokens, self.tokenizer = name, gguf.File(), [], None
        self.kv.add("tokenizer.ggml.model", gguf.STR, kind)

    def add(self, text, kind=NORMAL):
        self.tokens.append((text, kind))
        return len(self.tokens) - 1

    def role(self, key, value):
        kind = gguf.BOOL if isinstance(value, bool) else gguf.STR if isinstance(value, str) else gguf.U32
        self.kv.add(key, kind, value)

    def finish(self, tokenizer):
        self.tokenizer = tokenizer
        self.kv.add_array("tokenizer.ggml.tokens", gguf.STR, [text for text, _ in self.tokens])
        self.kv.add_array("tokenizer.ggml.token_type", gguf.I32, [kind for _, kind in self.tokens])
        return self


# Words that are no merge of two others: found only where a pre-tokenizer's vocabularies look up whole words.
WHOLE = [" harvest", " grandfather", "Sherlock", " çuval", "неделя", "12345", "!!?!", " 本", "ing's"]
NAMES = ["<|begin|>", "<|end_of_all|>", "<|turn|>", "<|part|>", "<|part|><", "<|part|><|turn|>", "<|é中|>", "[[", "[[["]


def byte_level(name, merges, families, family=None, pre=None, missing=(), whole_words=False, users=(), controls=(),
               bos=None, eos=None, eot=None, adds_bos=False, states_bos=None, states_eos=None, drops_before=(), n_unused=0):
    """pre: what the file says, None for the name, "" for nothing. missing: bytes without a token. adds_bos: what the name
    says, where the file states nothing."""
    v = Vocabulary(name, "gpt2")
    for b, c in enumerate(rules.BYTE_CHARACTERS):
        if b not in missing:
            v.add(c)
    for left, right in merges:
        v.add(left + right)
    for word in WHOLE:
        v.add("".join(rules.BYTE_CHARACTERS[b] for b in word.encode()))
    ids = {text: v.add(text, CONTROL) for text in controls}
    for text in users:
        v.add(text, USER)
    for i in range(n_unused):
        v.add(f"[PAD{i}]", UNUSED)
    lines = [f"{a} {b}" for a, b in merges]
    lines += [lines[0], "zq zq", lines[7]]  # doubles, and a merge of what are no tokens
    if pre != "":
        v.role("tokenizer.ggml.pre", pre or name)
    v.kv.add_array("tokenizer.ggml.merges", gguf.STR, lines)
    for role, text in (("bos", bos), ("eos", eos), ("eot", eot)):
        if text:
            v.role(f"tokenizer.ggml.{role}_token_id", ids[text])
    for role, states in (("bos", states_bos), ("eos", states_eos)):
        if states is not None:
            v.role(f"tokenizer.ggml.add_{role}_token", states)
    return v.finish(rules.ByteLevel(
        v.tokens, [tuple(line.split(" ")) for line in lines], families[family or name], whole_words,
        add_bos=adds_bos if states_bos is None else states_bos, add_eos=bool(states_eos), bos=ids.get(bos), eos=ids.get(eos),
        drops_before=[ids[text] for text in drops_before]))


def all_byte_level(merges, families):
    def make(name, **options):
        return byte_level(name, merges, families, **options)

    end = dict(controls=["<|endoftext|>"], eos="<|endoftext|>")
    never = (0xC0, 0xC1, *range(0xF5, 0x100))
    yield make("gpt-2", **end, bos="<|endoftext|>")
    yield make("llama-bpe", whole_words=True, controls=NAMES + [f"<|reserved_{i}|>" for i in range(60)], adds_bos=True,
               bos="<|begin|>", eos="<|end_of_all|>", eot="<|turn|>")
    yield make("qwen2", controls=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], eos="<|im_end|>",
               users=["<tool_call>", "</tool_call>", "<tool_call>\n"], n_unused=20)
    yield make("falcon", **end, missing=(3, 4, 5, 0x0B, 0x11, 0x1C, 0xF2, *never))
    yield make("starcoder", **end, missing=(0xF1, *never))
    # Bytes that no well-formed text has are there only as user-defined characters, which are other texts.
    yield make("deepseek-llm", **end, missing=never, users=[chr(b) for b in never], states_bos=True, bos="<|endoftext|>")
    yield make("deepseek-coder", **end, missing=never, users=[chr(b) for b in never])
    yield make("mpt", family="gpt-2", **end, users=[" " * n for n in range(24, 1, -1)])
    yield make("default", pre="", **end)
    yield make("tekken", whole_words=True, controls=["<s>", "</s>", "[INST]", "[/INST]"], adds_bos=True, bos="<s>", eos="</s>")
    yield make("gpt-4o", controls=["<|start|>", "<|end|>", "<|return|>"], eos="<|return|>", states_eos=True)
    yield make("deepseek-v3", controls=["<|first|>", "<|last|>"], bos="<|first|>", eos="<|last|>", states_bos=True,
               states_eos=True)
    yield make("bloom", controls=["<s>", "</s>"], bos="<s>", eos="</s>", states_bos=False)
    yield make("viking", **end)
    yield make("qwen35", controls=["<|im_start|>", "<|im_end|>"], eos="<|im_end|>", users=["e\u0301"])
    yield make("minicpm5", whole_words=True, controls=["<s>", "</s>"], bos="<s>", eos="</s>")
    yield make("chameleon", controls=["<s>", "</s>"], users=["<sentinel:1>"], bos="<s>", eos="</s>", adds_bos=True)
    yield make("cohere2moe", family="tiny_aya", **end)
    yield make("jina-v2-code", family="gpt-2", controls=["<s>", "</s>", "<mask>"], bos="<s>", eos="</s>", states_bos=True,
               drops_before=["<mask>"])


USERS = ["<tool>", "<tool>\n", "\t\t", " = "]


def sentence_piece(name, pieces, characters, prefix=None, tied=False, missing=(), adds_bos=None, adds_eos=None,
                   general_name="", controls=(), users=USERS, drops=False):
    """tied: many scores are equal, and their order is not that of being learnt. missing: bytes without a token."""
    v = Vocabulary(name, "llama")
    v.add("<unk>", UNKNOWN)
    v.add("<s>", CONTROL)
    v.add("</s>", CONTROL)
    for b in range(256):
        if b not in missing:
            v.add(f"<0x{b:02X}>", BYTE)
    scores = [0.0] * len(v.tokens)
    order, draw = list(range(len(pieces))), random.Random(7)
    if tied:
        order = [draw.randrange(len(pieces)) // 100 for _ in pieces]
    runs = [rules.SPACE * n for n in range(2, 17)]
    for text, score in [*zip(pieces, (-float(i) for i in order)), *((run, -1e9) for run in runs if run not in pieces),
                        *((c, -1e6 - i) for i, c in enumerate([rules.SPACE] + characters))]:
        v.add(text)
        scores.append(score)
    v.add("tteet", UNUSED)
    scores.append(-3.0)
    ids = {}
    for text, kind in [(t, CONTROL) for t in controls] + [(t, USER) for t in users]:
        ids[text] = v.add(text, kind)
        scores.append(0.0)
    v.kv.add_array("tokenizer.ggml.scores", gguf.F32, scores)
    v.role("tokenizer.ggml.bos_token_id", 1)
    v.role("tokenizer.ggml.eos_token_id", 2)
    v.role("tokenizer.ggml.unknown_token_id", 0)
    if general_name:
        v.role("general.name", general_name)
    for key, states in (("add_space_prefix", prefix), ("add_bos_token", adds_bos), ("add_eos_token", adds_eos)):
        if states is not None:
            v.role("tokenizer.ggml." + key, states)
    return v.finish(rules.SentencePiece(
        v.tokens, scores, 0, prefix is not False, add_bos=adds_bos is not False, add_eos=bool(adds_eos), bos=1, eos=2,
        drops_behind=[2, *ids.values()] if drops else ()))


def all_sentence_piece(pieces, characters):
    ascii_only = [p for p in pieces if p.replace(rules.SPACE, "").isascii()]
    yield sentence_piece("llama", pieces, characters, users=())
    yield sentence_piece("llama-plain", pieces, characters, prefix=False, tied=True, adds_eos=True)
    yield sentence_piece("llama-few-bytes", ascii_only, [c for c in characters if c.isascii() and c not in "qz"], adds_bos=False,
                         missing=(*range(0x61, 0x72), 0x7A, 0xE4, 0xFF))
    yield sentence_piece("phi-3", pieces, characters, general_name="Phi-3 of the tests", drops=True,
                         controls=["<|endoftext_2|>", "<|user|>", "<|assistant|>", "<|end|>"])


# What SentencePiece's maps do: compatible characters become plain ones, white space a space, some characters nothing.
REPLACEMENTS = {**{chr(0xFF21 + i): chr(0x41 + i) for i in range(26)}, **{chr(0xFF10 + i): str(i) for i in range(10)},
                "\ufb01": "fi", "e\u0301": "é", "a\u0301": "á", "\u2026": "...", "\u2460": "1", "\u2460\u2461": "12",
                "\t": " ", "\n": " ", "\r": " ", "\r\n": " ", "\u00a0": " ", "\u3000": " ", "\u2003": " ", "\u200b": "",
                "\xad": "", "\x01": "", "\u00bd": "1\u20442", "\u212b": "Å", "\u0130": "I\u0307", "\u2028": " x "}


def to_float(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def unigram(name, pieces, characters, prefix=True, merges=True, replacements=None, tied=False, byte_tokens=False, users=(),
            controls=(), adds_bos=None, adds_eos=None, arch=None, drops_before=(), n_unused=0):
    v = Vocabulary(name, "t5")
    for text in ("<pad>", "</s>"):
        v.add(text, CONTROL)
    v.add("<unk>", UNKNOWN)
    scores = [0.0, 0.0, 0.0]
    if byte_tokens:
        for b in range(256):
            v.add(f"<0x{b:02X}>", BYTE)
            scores.append(0.0)
    draw = random.Random(11)
    for i, text in enumerate(pieces + [rules.SPACE] + characters):
        v.add(text)
        scores.append(to_float(-float(i // 64) if tied else -3.0 - draw.random() * i / 200))
    ids = {}
    for texts, kind in ((controls, CONTROL), (users, USER), ([f"[PAD{i}]" for i in range(n_unused)], UNUSED)):
        for text in texts:
            ids[text] = v.add(text, kind)
            scores.append(-10000.0 if kind == UNUSED else 0.0)
    v.kv.add_array("tokenizer.ggml.scores", gguf.F32, scores)
    v.role("tokenizer.ggml.eos_token_id", 1)
    v.role("tokenizer.ggml.unknown_token_id", 2)
    v.role("tokenizer.ggml.add_space_prefix", prefix)
    v.role("tokenizer.ggml.remove_extra_whitespaces", merges)
    if replacements:
        v.kv.add_array("tokenizer.ggml.precompiled_charsmap", gguf.U8, list(charsmap.compile_map(replacements)))
    bos = ids.get("<s>")
    if bos is not None:
        v.role("tokenizer.ggml.bos_token_id", bos)
    for key, states in (("add_bos_token", adds_bos), ("add_eos_token", adds_eos)):
        if states is not None:
            v.role("tokenizer.ggml." + key, states)
    if arch:
        v.role("general.architecture", arch)
    return v.finish(rules.Unigram(
        v.tokens, scores, 2, replacements, prefix, merges, add_bos=bool(adds_bos), add_eos=adds_eos is not False, bos=bos, eos=1,
        drops_before=[ids[text] for text in drops_before]))


def all_unigram(pieces, characters):
    ascii_only = [p for p in pieces if p.replace(rules.SPACE, "").isascii()]
    yield unigram("t5", pieces, characters, replacements=REPLACEMENTS, users=["<extra_1>", "<extra_2>"], n_unused=3)
    yield unigram("t5-plain", ascii_only, [c for c in characters if c.isascii()], prefix=False, merges=False, tied=True,
                  adds_eos=False)
    yield unigram("t5-bytes", ascii_only, [c for c in characters if c.isascii()], merges=False, byte_tokens=True)
    yield unigram("nomic-bert-moe", pieces, characters, replacements=REPLACEMENTS, controls=["<s>", "<mask>"], adds_bos=True,
                  adds_eos=True, arch="nomic-bert-moe", drops_before=["<mask>"])


def word_piece(name, pieces, characters, lower=None, strip=None, roles=None, adds_bos=None, adds_last=None, users=()):
    """roles: ids of cls, sep and unknown by the names of their keys; None: the kind's own, 101, 102 and 100."""
    v = Vocabulary(name, "bert")
    if not roles:
        v.add("[PAD]", CONTROL)
        for i in range(99):
            v.add(f"[unused{i}]")
    ids = {text: v.add(text, CONTROL) for text in ("[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    fold = lower is not False
    texts = [p.lower() if fold else p for p in pieces]
    texts += [mark + c for c in characters for mark in ("", rules.SPACE) if c not in "qz"]
    for text in dict.fromkeys(texts):
        v.add(text)
    for text in users:
        v.add(text, USER)
    for key in roles or ():
        v.role("tokenizer.ggml." + key, ids[roles[key]])
    for key, states in (("normalizer.lowercase", lower), ("normalizer.strip_accents", strip), ("add_bos_token", adds_bos),
                        ("add_eos_token", adds_last)):
        if states is not None:
            v.role("tokenizer.ggml." + key, states)
    return v.finish(rules.WordPiece(v.tokens, ids["[UNK]"], fold, strip, add_bos=adds_bos is not False, bos=ids["[CLS]"],
                                    add_eos=adds_last is not False, eos=ids["[SEP]"]))


def all_word_piece(pieces, characters):
    words = [p for p in pieces if not set(p) & set(".,;:!?'\"-()[]_")]
    yield word_piece("bert", words, characters)
    yield word_piece("bert-cased", words, characters, lower=False, users=["<user>"],
                     roles={"cls_token_id": "[CLS]", "seperator_token_id": "[SEP]", "unknown_token_id": "[UNK]"})
    yield word_piece("bert-accents", words, characters, strip=False, adds_last=False,
                     roles={"bos_token_id": "[CLS]", "cls_token_id": "[MASK]", "seperator_token_id": "[SEP]",
                            "unknown_token_id": "[UNK]"})
    yield word_piece("bert-strip", words, characters, lower=False, strip=True, adds_bos=False,
                     roles={"cls_token_id": "[CLS]", "seperator_token_id": "[SEP]", "unknown_token_id": "[UNK]"})


def character_merges(text):
    """Of lines in which a space is SPACE, so that pieces go across words; and of runs of line ends and tabs."""
    words = collections.Counter()
    for line in text.split("\n"):
        words.update(tuple(part.replace(" ", rules.SPACE)) for part in re.findall(".{1,24}", line))
    merges = learn(words, N_PIECE)
    runs = [(c * n, c) for n in range(1, 8) for c in ("\n", "\t", rules.SPACE)]
    return merges + [run for run in runs if run not in merges]


def character_level(name, merges, characters, kind="gpt2", pre=None, byte_tokens=True, escapes=True, whole_lines=False,
                    drops_white=False, lower=None, controls=(), users=(), bos=None, adds_bos=False, states_bos=None):
    v = Vocabulary(name, kind)
    ids = {text: v.add(text, CONTROL) for text in ("<pad>", "<eos>", *controls)}
    ids["<unk>"] = v.add("<unk>", UNKNOWN)
    if byte_tokens:
        for b in range(256):
            v.add(f"<0x{b:02X}>", BYTE)
    texts = [c for c in characters if c not in "qz"] + [rules.SPACE, "\n", "\t"]
    for text in dict.fromkeys(texts + [a + b for a, b in merges]):
        v.add(text)
    if whole_lines:
        v.add("\n" * 20)
    for text in users:
        ids[text] = v.add(text, USER)
    if pre:
        v.role("tokenizer.ggml.pre", pre)
    v.kv.add_array("tokenizer.ggml.merges", gguf.STR, [f"{a} {b}" for a, b in merges] + ["zq q"])
    v.role("tokenizer.ggml.eos_token_id", ids["<eos>"])
    v.role("tokenizer.ggml.unknown_token_id", ids["<unk>"])
    if bos:
        v.role("tokenizer.ggml.bos_token_id", ids[bos])
    if states_bos is not None:
        v.role("tokenizer.ggml.add_bos_token", states_bos)
    if lower is not None:
        v.role("tokenizer.ggml.normalizer.lowercase", lower)
    return v.finish(rules.CharacterLevel(
        v.tokens, merges, escapes, whole_lines, drops_white, bool(lower),
        add_bos=adds_bos, bos=ids.get(bos), eos=ids["<eos>"]))


def all_character_level(text, characters):
    merges = character_merges(text)
    short = [(a, b) for a, b in merges if rules.SPACE not in a + b and "\n" not in a + b and "\t" not in a]
    yield character_level("gemma4", merges, characters, kind="gemma4", whole_lines=True, controls=["<bos>"], bos="<bos>",
                          users=["<|tool>", "<|\"|>"], adds_bos=True, states_bos=False)
    yield character_level("sarvam-moe", merges, characters, pre="sarvam-moe", controls=["<s>"], bos="<s>", states_bos=True,
                          adds_bos=True)
    yield character_level("whitespace", short, characters, kind="whitespace", pre="whitespace", byte_tokens=False, escapes=False,
                          drops_white=True, lower=True)
    yield character_level("whitespace-cased", short, characters, kind="whitespace", pre="whitespace", byte_tokens=False, escapes=False,
                          drops_white=True)


# ---- texts and their ids -------------------------------------------------------------------------------------------


def glued(v):
    """Entries of the vocabulary side by side: what was learnt as one meets what was not."""
    draw = random.Random(v.name)
    words = [text for text, kind in v.tokens if kind == NORMAL]
    for _ in range(42):
        chosen = [draw.choice(words) for _ in range(draw.randrange(2, 12))]
        if isinstance(v.tokenizer, rules.ByteLevel):
            yield b"".join(bytes(rules.BYTES[c] for c in word) for word in chosen)
        else:
            yield "".join(chosen).replace(rules.SPACE, " ").encode()


def special_texts(v):
    """Texts with the special tokens of a vocabulary: alone, side by side, cut short, inside of each other, in white space."""
    names = [text for text, kind in v.tokens if kind in (CONTROL, USER, UNKNOWN)]
    first, second = names[0], names[min(1, len(names) - 1)]
    yield from ("", "plain text only", " leading", first + first, second + first + second, first[:-1], first[1:], first.upper(),
                first[:2] + first + first[2:], "x" + first[:-1] + second, f"{first}é{second}中{first}", f"1{first}2{second}3",
                f"{first}{rules.SPACE}{second}", f"{first}\0{second}", f"{first} {first}  {first}   {first}", f"\t{first}\t",
                f"{first}\n\n{second}\n", f"{first}  {second}", f"{first}   x   {second}", f"Hello \n{first} \r\nworld")
    for name in names[:12] + names[-6:]:
        yield from (name, name + "text", "text" + name, f" {name} ", f"Hello{name}world", f"{name}\n\ntext\n{name}")
    yield "".join(names) + " and " + " ".join(reversed(names))


def plain_line(v, raw):
    ids, lost = v.tokenizer.encode(raw)
    back = v.tokenizer.decode(ids) == raw
    return {"b64": base64.b64encode(raw).decode(), "ids": ids, "lost": lost, "rt": back}


def special_line(v, text):
    raw = rules.raw_bytes(text)
    return {"text": text, "b64": base64.b64encode(raw).decode(), "plain": v.tokenizer.encode(raw)[0],
            "ids": v.tokenizer.encode(raw, parse=True)[0], "ids_add": v.tokenizer.encode(raw, parse=True, add=True)[0]}


RUNS = [("", "a", 1000000, ""), ("", " ", 1000000, ""), ("", " ", 1000000, "x"), ("", "\n", 1000000, ""), ("", "=", 1000000, ""),
        ("", "0", 1000000, ""), ("", "中", 333333, ""), ("", "ab", 500000, ""), ("", "the ", 250000, ""), ("x", "\t", 100000, "y"),
        ("", "A", 100000, ""), ("", "🙂", 100000, ""), ("", "\u0301", 100000, ""), ("", "a ", 100000, ""), ("", ". ", 100000, ""),
        ("", "'s", 100000, "")]


def long_run(v, prefix, unit, repeat, suffix):
    """The ids of a long run, from those of short ones: behind some beginning the same block comes every `period` units.
    Four lengths of the same residue must show it."""
    def ids_of(n):
        return v.tokenizer.encode((prefix + unit * n + suffix).encode())[0]

    for period in (1, 2, 3, 4, 8, 16, 32, 48, 64, 96):
        n = repeat % period + 2 * period
        few, more = ids_of(n), ids_of(n + period)
        length = len(more) - len(few)
        for head in range(len(few), -1, -1):
            block, tail = more[head:head + length], few[head:]
            if all(ids_of(n + k * period) == few[:head] + block * k + tail for k in (1, 2, 3, 4)):
                count = (repeat - n) // period
                return {"tok": v.name, "prefix": prefix, "unit": unit, "repeat": repeat, "suffix": suffix,
                        "n_ids": len(few) + count * length, "segments": [[few[:head], 1], [block, count], [tail, 1]]}
            if few[:head] != more[:head]:
                continue
    raise ValueError(f"{v.name}: no period in the ids of {unit!r}")


def check_cuts(families):
    """The words by the regular expressions of Python end where the committed lists say, which other engines made."""
    texts = [rules.characters(raw) for raw in read_lines("tokenizers/pretok/texts.jsonl")]
    for name, stages in families.items():
        with open(os.path.join(HERE, f"tokenizers/pretok/{name}.jsonl"), encoding="utf-8") as f:
            wanted = [json.loads(line)["ends"] for line in f]
        for text, ends in zip(texts, wanted, strict=True):
            at, found = 0, []
            for word in rules.cut(stages, text):
                at += len(rules.raw_bytes(word))
                found.append(at)
            if found != ends:
                raise ValueError(f"{name}: {text!r} is cut at {found}, not {ends}")


def make(folder):
    families = rules.read_families(os.path.join(HERE, "tokenizers/pretok/regexes.tsv"))
    check_cuts(families)
    sample, english = read("tokenizers/sample.txt"), read("text/english.txt")
    text = sample + english[:N_ENGLISH]
    texts = read_lines("tokenizers/texts.jsonl") + read_lines("tokenizers/pretok/texts.jsonl")
    whole, long_runs = ("llama", "gpt-2", "llama-bpe", "qwen2"), []
    pieces, characters = sentence_pieces(text)
    for v in [*all_sentence_piece(pieces, characters), *all_unigram(pieces, characters), *all_word_piece(pieces, characters),
              *all_character_level(text, characters),
              *all_byte_level(byte_level_merges(families, text), families)]:
        lines = [plain_line(v, raw) for raw in texts + list(glued(v))]
        specials = [special_line(v, t) for t in special_texts(v)]
        folder.write(f"tokenizers/{v.name}.gguf", v.kv.to_bytes())
        folder.write(f"tokenizers/{v.name}.jsonl", to_lines(lines))
        folder.write(f"tokenizers/{v.name}.special.jsonl", to_lines(specials))
        if v.name in whole:
            ids = v.tokenizer.encode(english.encode())[0]
            folder.write(f"tokenizers/{v.name}.english.ids", struct.pack(f"<{len(ids)}i", *ids))
            long_runs += [long_run(v, *run) for run in RUNS]
    folder.write("tokenizers/long_runs.jsonl", to_lines(long_runs))


def to_lines(objects):
    return "".join(json.dumps(o, separators=(",", ":")) + "\n" for o in objects).encode()


if __name__ == "__main__":
    import make as maker
    make(maker.Folder(sys.argv[1]))
