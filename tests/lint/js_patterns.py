"""Regular expressions of JavaScript whose time grows faster than their text. Called by test_lint.py.

Two unbounded repetitions that match a common character divide a run of it in as many ways as it is long, and a matcher
tries them all where the rest does not match. A search is such a repetition too: it begins at every character.
"""

import re
import re._constants as ops
import re._parser as parser

# Whatever a class of a pattern can tell apart.
SAMPLE = [chr(i) for i in range(9, 127)] + list("\u00a0\u00e9\u2028\u4e00")
SKIPPED = r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`"
LITERAL = re.compile(SKIPPED + r"|(?<=[(,=:\[!&|?{};\n>])\s*/(?![*/])((?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/([a-z]*)", re.S)


def literals(source):
    """(pattern, flags) of each."""
    return [m.groups() for m in LITERAL.finditer(source) if m[1]]


def in_class(items, char):
    kinds = {ops.CATEGORY_SPACE: str.isspace, ops.CATEGORY_DIGIT: str.isdigit,
             ops.CATEGORY_WORD: lambda c: c.isalnum() or c == "_"}
    opposites = {ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE, ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
                 ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD}

    def has(op, value):
        if op is ops.LITERAL:
            return ord(char) == value
        if op is ops.RANGE:
            return value[0] <= ord(char) <= value[1]
        return not kinds[opposites[value]](char) if value in opposites else kinds[value](char)

    return any(has(*item) for item in items if item[0] is not ops.NEGATE) != (items[0][0] is ops.NEGATE)


def parts(op, value):
    """The sequences inside an item, one for each alternative."""
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        return [value[2]]
    if op is ops.SUBPATTERN:
        return [value[3]]
    return value[1] if op is ops.BRANCH else []


def characters(sequence):
    """Those of the sample that it can match somewhere."""
    found = set()
    for op, value in sequence:
        if op is ops.ANY:
            found |= set(SAMPLE) - set("\n\r\u2028")
        elif op is ops.LITERAL:
            found.add(chr(value))
        elif op is ops.NOT_LITERAL:
            found |= set(SAMPLE) - {chr(value)}
        elif op is ops.IN:
            found |= {c for c in SAMPLE if in_class(value, c)}
        for part in parts(op, value):
            found |= characters(part)
    return found


def repetitions(sequence, is_last=True):
    """For each way through the alternatives: [(characters, whether nothing follows)] of unbounded repetitions."""
    ways = [[]]
    for i, (op, value) in enumerate(sequence):
        ends = is_last and i == len(sequence) - 1
        is_repeat = op in (ops.MAX_REPEAT, ops.MIN_REPEAT) and value[1] is ops.MAXREPEAT
        own = [(characters(value[2]), ends)] if is_repeat else []
        inner = [own + way for part in parts(op, value) for way in repetitions(part, ends and not is_repeat)] or [own]
        ways = [way + more for way in ways for more in inner]
    return ways


def is_anchored(sequence):
    """Whether it can match at one place alone."""
    op, value = sequence[0]
    return (op, value) == (ops.AT, ops.AT_BEGINNING) or bool(parts(op, value)) and all(map(is_anchored, parts(op, value)))


def is_slow(pattern, flags):
    parsed = parser.parse(re.sub(r"\\p\{\w+\}", r"\\w", pattern))  # Python has no classes of Unicode
    searches = "y" not in flags and not is_anchored(parsed)
    for way in repetitions(parsed):
        if searches and any(not ends for _, ends in way):
            return True
        if any(one & other for i, (one, _) in enumerate(way) for other, _ in way[:i]):
            return True
    return False


def slow_patterns(files):
    wrong = []
    for path, text in files.items():
        wrong += [f"{path}: /{p}/{flags}" for p, flags in literals(text) if is_slow(p, flags)]
        wrong += [f"{path}: a pattern that is made by RegExp() cannot be checked" for _ in re.findall(r"\bRegExp\(", text)]
    return wrong
