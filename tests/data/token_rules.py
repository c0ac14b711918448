"""Text to ids and back, written from the rules as simply as they can be: the definition that the tokenizers of
src/text are compared with, and nothing that is fast.

A character here is a character of a Python string. A byte that is part of no well-formed sequence is one too: U+DC80
plus the byte, as Python's "surrogateescape" has it. Such a character has no class, so no expression matches it by one.
"""
import re
import sys
import unicodedata

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"
WHITE = " \t\n\v\f\r"  # what special tokens of some vocabularies drop around them


def characters(raw):
    return raw.decode("utf-8", "surrogateescape")


def raw_bytes(text):
    return text.encode("utf-8", "surrogateescape")


# ---- words ---------------------------------------------------------------------------------------------------------


def ranges_of_classes():
    """{"L": "\\u0041-\\u005a...", "Lu": ...}: the characters of every general category, as ranges of a regular expression."""
    found = {}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        for name in (category, category[0]):
            ranges = found.setdefault(name, [])
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return {name: "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges) for name, ranges in found.items()}


def expression(pattern, classes):
    """An expression in PCRE2's syntax as one of Python's, which has neither \\p{} nor \\x{}."""
    out, in_class = "", False
    for part in re.findall(r"\\[px]\{\w+\}|\\.|.", pattern, re.DOTALL):
        if part.startswith("\\x{"):
            part = f"\\U{int(part[3:-1], 16):08x}"
        elif part.startswith("\\p{"):
            part = classes[part[3:-1]] if in_class else "[" + classes[part[3:-1]] + "]"
        elif part == "[" and in_class:
            part = "\\["
        elif part in "[]":
            in_class = part == "["
        out += part
    return re.compile(out)


def read_families(path):
    """{name: [expression of each stage]} of lines "name, stage, pattern"."""
    classes, families = ranges_of_classes(), {}
    with open(path, encoding="utf-8", newline="\n") as f:
        for line in f:
            name, _, pattern = line.rstrip("\n").split("\t", 2)
            families.setdefault(name, []).append(expression(pattern, classes))
    return families


def cut(stages, text):
    """The words of a text: each stage cuts every piece of the one before at its matches and between them."""
    pieces = [text]
    for stage in stages:
        cut_pieces = []
        for piece in pieces:
            at = 0
            for match in stage.finditer(piece):
                cut_pieces += [piece[at:match.start()], match.group()]
                at = match.end()
            cut_pieces.append(piece[at:])
        pieces = [piece for piece in cut_pieces if piece]
    return pieces


# ---- merging -------------------------------------------------------------------------------------------------------


def merge(parts, rank):
    """Joins the neighbours of the lowest rank, the leftmost of equal ones, until no pair has a rank."""
    parts = list(parts)
    while True:
        best = None
        for i in range(len(parts) - 1):
            r = rank(parts[i], parts[i + 1])
            if r is not None and (best is None or r < best[0]):
                best = r, i
        if best is None:
            return parts
        i = best[1]
        parts[i:i + 2] = [parts[i] + parts[i + 1]]


def byte_characters():
    """The printable character that stands for each byte in the texts of byte-level vocabularies."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(0x100 + others.index(b)) for b in range(256)]


BYTE_CHARACTERS = byte_characters()
BYTES = {c: b for b, c in enumerate(BYTE_CHARACTERS)}


class Tokenizer:
    """tokens: (text, type) by id; options as in vocabularies.py."""

    def __init__(self, tokens, add_bos=False, add_eos=False, bos=None, eos=None, drops_behind=(), drops_before=()):
        self.tokens, self.bos, self.eos = tokens, bos if add_bos else None, eos if add_eos else None
        self.drops_behind, self.drops_before = set(drops_behind), set(drops_before)
        self.specials = sorted((i for i, t in enumerate(tokens) if t[1] in (UNKNOWN, CONTROL, USER)),
                               key=lambda i: (-len(raw_bytes(tokens[i][0])), i))
        self.known = {}

    def words_of(self, kinds):
        words = {}
        for i, (text, kind) in enumerate(self.tokens):
            if kind in kinds:
                words.setdefault(text, i)
        return words

    def fragments(self, text, parse):
        """The text as raw strings and ids: the longest special token takes all its places, then the next."""
        parts = [text]
        for i in self.specials:
            special, kind = self.tokens[i]
            if kind != USER and not parse or not special:
                continue
            found = []
            for part in parts:
                while isinstance(part, str) and special in part:
                    before, _, part = part.partition(special)
                    if i in self.drops_before:
                        before = before.rstrip(WHITE)
                    if i in self.drops_behind:
                        part = part.lstrip(WHITE)
                    found += [before, i]
                found.append(part)
            parts = found
        return [part for part in parts if part != ""]

    def encode(self, raw, parse=False, add=False):
        """(ids, number of bytes that the vocabulary cannot hold)"""
        ids, lost = [], 0
        for part in self.fragments(characters(raw), parse):
            if isinstance(part, int):
                ids.append(part)
                continue
            for word in self.cut(part):
                if word not in self.known:
                    self.known[word] = self.encode_word(word)
                ids += self.known[word][0]
                lost += self.known[word][1]
        if add:
            ids = [self.bos] * (self.bos is not None) + ids + [self.eos] * (self.eos is not None)
        return ids, lost


class ByteLevel(Tokenizer):
    def __init__(self, tokens, merges, stages, whole_words=False, **options):
        super().__init__(tokens, **options)
        self.words, self.stages, self.whole_words = self.words_of((NORMAL, UNUSED)), stages, whole_words
        self.rank = {}
        for i, (left, right) in enumerate(merges):
            parts_exist = all(len(p) == 1 or p in self.words for p in (left, right))
            if parts_exist and left + right in self.words:
                self.rank.setdefault((left, right), i)

    def cut(self, fragment):
        return cut(self.stages, fragment)

    def encode_word(self, word):
        mapped = "".join(BYTE_CHARACTERS[b] for b in raw_bytes(word))
        if self.whole_words and mapped in self.words:
            return [self.words[mapped]], 0
        parts = merge(mapped, lambda a, b: self.rank.get((a, b)))
        ids = [self.words[p] for p in parts if p in self.words]
        return ids, len(parts) - len(ids)

    def decode(self, ids):
        out = b""
        for text, kind in (self.tokens[i] for i in ids):
            if kind in (NORMAL, UNUSED):
                out += bytes(BYTES[c] for c in text)
            elif kind == USER:
                out += raw_bytes(text)
        return out


class CharacterLevel(Tokenizer):
    """BPE over characters. escapes: a space is SPACE. whole_lines: a run of line ends that is a token is not merged.
    drops_white: white space is no part of the text."""

    def __init__(self, tokens, merges, escapes=True, whole_lines=False, drops_white=False, lower=False, **options):
        super().__init__(tokens, **options)
        self.words = self.words_of((NORMAL, USER, UNUSED))
        self.escapes, self.whole_lines = escapes, whole_lines
        self.drops_white, self.lower = drops_white, lower
        self.bytes = {int(text[3:5], 16): i for i, (text, kind) in enumerate(tokens) if kind == BYTE}
        self.rank = {}
        for i, (left, right) in enumerate(merges):
            if all(len(p) == 1 or p in self.words for p in (left, right)) and left + right in self.words:
                self.rank.setdefault((left, right), i)

    def cut(self, fragment):
        if self.drops_white:
            return [word for word in self.black_words(fragment) if word]
        return re.findall("[^\n]+|\n+", fragment)

    @staticmethod
    def black_words(text):
        white = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}
        return "".join(" " if c in white else c for c in text).split(" ")

    def encode_word(self, word):
        if self.lower:
            word = "".join(c.lower() for c in word)
        if self.escapes:
            word = word.replace(" ", SPACE)
        if self.whole_lines and word.startswith("\n") and word in self.words:
            return [self.words[word]], 0
        ids, lost = [], 0
        for part in merge(word, lambda a, b: self.rank.get((a, b))):
            raw = raw_bytes(part)
            known = [self.bytes.get(b, self.words.get(chr(b)) if b < 128 else None) for b in raw]
            if part in self.words:
                ids.append(self.words[part])
            elif None in known:
                lost += len(raw)
            else:
                ids += known
        return ids, lost

    def decode(self, ids):
        out = b""
        for text, kind in (self.tokens[i] for i in ids):
            if kind == BYTE:
                out += bytes([int(text[3:5], 16)])
            elif kind in (NORMAL, UNUSED, USER):
                out += raw_bytes(text.replace(SPACE, " ") if self.escapes and kind != USER else text)
        return out


class SentencePiece(Tokenizer):
    def __init__(self, tokens, scores, unknown, space_prefix=True, **options):
        super().__init__(tokens, **options)
        self.scores, self.unknown, self.space_prefix = scores, unknown, space_prefix
        self.words = self.words_of((NORMAL, USER, UNUSED))
        self.bytes = {int(text[3:5], 16): i for i, (text, kind) in enumerate(tokens) if kind == BYTE}
        self.joins = {text[i:i + 2] for text in self.words for i in range(len(text) - 1)}

    def cut(self, fragment):
        """The escaped text in runs. No token holds both characters of a place that is cut, so no merge could cross it."""
        text = (" " * self.space_prefix + fragment).replace(" ", SPACE)
        at = 0
        for i in range(1, len(text)):
            if text[i - 1:i + 1] not in self.joins:
                yield text[at:i]
                at = i
        yield text[at:]

    def rank_of(self, left, right):
        i = self.words.get(left + right)
        return None if i is None else -self.scores[i]

    def encode_word(self, word):
        ids, lost = [], 0
        for part in merge(word, self.rank_of):
            if part in self.words:
                ids.append(self.words[part])
                continue
            for b in raw_bytes(part):
                i = self.bytes.get(b, self.words.get(chr(b)) if b < 128 else None)
                lost += i is None
                ids.append(self.unknown if i is None else i)
        return ids, lost

    def decode(self, ids):
        out, first = b"", True
        for text, kind in (self.tokens[i] for i in ids):
            if kind in (UNKNOWN, CONTROL):
                continue
            piece = bytes([int(text[3:5], 16)]) if kind == BYTE else raw_bytes(text)
            if kind in (NORMAL, UNUSED):
                piece = piece.replace(raw_bytes(SPACE), b" ")
            if first and self.space_prefix and kind != USER:
                piece = piece.removeprefix(b" ")
            out, first = out + piece, False
        return out


class Unigram(Tokenizer):
    """replacements: {text: text} before all else, the longest first. merges: runs of spaces count as one."""

    def __init__(self, tokens, scores, unknown, replacements=None, space_prefix=True, merges=True, **options):
        super().__init__(tokens, **options)
        self.unknown, self.space_prefix, self.merges = unknown, space_prefix, merges
        self.replacements = replacements or {}
        self.longest_key = max(map(len, self.replacements), default=0)
        self.pieces = {text: (i, 0.0 if kind == USER else scores[i])
                       for i, (text, kind) in enumerate(tokens) if kind in (NORMAL, USER)}
        self.longest = max(map(len, self.pieces))
        self.unknown_score = min(scores[i] for i, t in enumerate(tokens) if t[1] == NORMAL) - 10
        found = {int(text[3:5], 16): i for i, (text, kind) in enumerate(tokens) if kind == BYTE}
        self.bytes = found if len(found) == 256 else None

    def replace(self, text):
        out, at = "", 0
        while at < len(text):
            key = next((text[at:at + n] for n in range(self.longest_key, 0, -1) if text[at:at + n] in self.replacements), None)
            c = text[at]
            out += self.replacements[key] if key else "\ufffd" if "\udc80" <= c <= "\udcff" else c
            at += len(key) if key else 1
        return out

    def normalise(self, text):
        text = self.replace(text)
        if self.merges:
            text = " ".join(word for word in text.split(" ") if word)
        first = len(text) - len(text.lstrip(" "))
        if self.space_prefix and first < len(text):
            text = text[:first] + " " + text[first:]
        return text.replace(" ", SPACE)

    def cut(self, fragment):
        yield self.normalise(fragment)

    def encode_word(self, text):
        best = [(0.0, 0, None)] + [None] * len(text)
        for at in range(len(text)):
            ways = [(n, *self.pieces[text[at:at + n]]) for n in range(1, self.longest + 1) if text[at:at + n] in self.pieces
                    and at + n <= len(text)]
            if not ways or ways[0][0] != 1:
                ways.append((1, None, self.unknown_score))
            for n, i, score in ways:
                if best[at + n] is None or best[at][0] + score > best[at + n][0]:
                    best[at + n] = best[at][0] + score, at, i
        pieces, at = [], len(text)
        while at > 0:
            pieces.insert(0, (text[best[at][1]:at], best[at][2]))
            at = best[at][1]
        ids, lost = [], 0
        for piece, i in pieces:
            if i is None and self.bytes:
                ids += [self.bytes[b] for b in raw_bytes(piece)]
            elif i is None:
                lost += len(raw_bytes(piece))
                if not ids or ids[-1] != self.unknown:
                    ids.append(self.unknown)
            else:
                ids.append(i)
        return ids, lost

    decode = SentencePiece.decode


class WordPiece(Tokenizer):
    """A piece that starts a word begins with SPACE. last: the token at the end of a text."""

    def __init__(self, tokens, unknown, lower=True, strip=None, **options):
        super().__init__(tokens, **options)
        self.unknown, self.lower, self.strip = unknown, lower, lower if strip is None else strip
        self.words = self.words_of((NORMAL, USER, UNUSED))
        self.longest = max(map(len, self.words))

    @staticmethod
    def is_chinese(c):
        return any(a <= ord(c) <= b for a, b in (
            (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
            (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)))

    @staticmethod
    def is_punctuation(c):
        return c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" or unicodedata.category(c).startswith("P")

    def normalise(self, text):
        out = ""
        for c in text:
            category = unicodedata.category(c)
            if c in "\0\ufffd" or "\udc80" <= c <= "\udcff" or c not in "\t\n\r" and category in ("Cc", "Cf", "Co"):
                continue
            if c.isspace() or category in ("Zl", "Zp"):
                c = " "
            if self.strip:
                parts = unicodedata.normalize("NFD", c)
                parts = "".join(p for p in parts if unicodedata.category(p) != "Mn")
            else:
                parts = c
            if self.lower:
                parts = "".join(p.lower() for p in parts)
            out += f" {parts} " if self.is_chinese(c) else parts
        return out

    def cut(self, fragment):
        for word in self.normalise(fragment).split(" "):
            part = ""
            for c in word:
                if self.is_punctuation(c):
                    yield from (w for w in (part, c) if w)
                    part = ""
                else:
                    part += c
            if part:
                yield part

    def encode_word(self, word):
        if len(word) > 100:
            return [self.unknown], 0
        ids, rest = [], SPACE + word
        while rest:
            n = next((n for n in range(min(self.longest, len(rest)), 0, -1) if rest[:n] in self.words), 0)
            if n == 0 or ids and rest.startswith(SPACE):
                return [self.unknown], 0
            ids.append(self.words[rest[:n]])
            rest = rest[n:]
        return ids, 0

    def decode(self, ids):
        out = b""
        for text, kind in (self.tokens[i] for i in ids):
            if kind in (NORMAL, UNUSED, USER):
                out += raw_bytes(text.replace(SPACE, " ") if kind != USER else text)
        return out.removeprefix(b" ")
