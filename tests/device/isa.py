"""RADV's instructions as text: what they are, and how a pipeline loads the bytes of a buffer, for test_compiler.py.

A loop is slow where few bytes are on their way at the same time. What counts is how many loads a loop has issued when
it first waits for one of them; loads return in their order, and vmcnt(N) waits until N are left."""
import re

WIDTHS = {"byte": 1, "ubyte": 1, "sbyte": 1, "u8": 1, "i8": 1, "short": 2, "ushort": 2, "sshort": 2, "u16": 2,
          "i16": 2, "b16": 2, "dword": 4, "b32": 4, "dwordx2": 8, "b64": 8, "dwordx3": 12, "b96": 12, "dwordx4": 16,
          "b128": 16}


def instructions(text):
    """(name, operands) of a disassembly, suffixes of encodings cut off; both halves of a dual one. A label: (None, [its
    name])."""
    for line in text.splitlines():
        line = re.split(r"\s*(?:;|//)", line)[0].strip()
        label = re.match(r"(\w+):$", line)
        if label:
            yield None, [label.group(1)]
        for part in line.split(" :: "):
            m = re.match(r"\s*([a-z]\w+)\s*(.*)$", part)
            if m and m.group(1)[:2] in ("v_", "s_", "ds", "bu", "gl", "fl", "sc", "im"):
                name = re.sub(r"_(?:e32|e64|dpp|sdwa|e64_dpp|e32_dpp)$", "", m.group(1)).replace("v_dual_", "v_")
                yield name, [x.strip() for x in m.group(2).split(",")]


def registers(operand):
    """Those of an operand in their order: v4, or v[4:7]."""
    m = re.fullmatch(r"([vs])\[(\d+):(\d+)\]", operand)
    return [f"{m.group(1)}{i}" for i in range(int(m.group(2)), int(m.group(3)) + 1)] if m else [operand]


def descriptors(listed):
    """Of each load through a descriptor, {index: binding}. A descriptor is four words of its set, in the order of
    bindings, and is in the scalar registers that the text wrote last."""
    word_of, found = {}, {}
    for i, (name, operands) in enumerate(listed):
        m = re.match(r"s_load_(?:dword(?:x\d+)?|b\d+)$", name or "")
        if m:
            offset = operands[2].split()[0] if len(operands) > 2 else "null"
            at = 0 if offset in ("null", "off") else int(offset, 0) if re.match(r"0x|\d", offset) else None
            for k, register in enumerate(registers(operands[0])):
                word_of[register] = None if at is None else at // 4 + k
        elif re.match(r"(?:buffer|tbuffer)_load", name or ""):
            word = word_of.get(registers(operands[2])[0])
            found[i] = None if word is None else word // 4
    return found


def loops(listed):
    """[(first, last)] by their jumps back, those of one label together."""
    labels = {operands[0]: i for i, (name, operands) in enumerate(listed) if name is None}
    last = {}
    for i, (name, operands) in enumerate(listed):
        if name and re.match(r"s_c?branch", name) and labels.get(operands[-1], i) < i:
            last[labels[operands[-1]]] = i
    return list(last.items())


def left_after(name, operands):
    """How many loads an instruction lets be on their way; none: it does not wait for them."""
    if name == "s_waitcnt":
        m = re.search(r"vmcnt\((\d+)\)", " ".join(operands))
        return int(m.group(1)) if m else None
    if name == "s_wait_loadcnt":
        return int(operands[0], 0)
    return int(operands[0], 0) >> 8 if name == "s_wait_loadcnt_dscnt" else None


def path_through(body):
    """Indices of what runs where no condition jumps: the second way of an if is skipped."""
    labels = {operands[0]: i for i, (name, operands) in enumerate(body) if name is None}
    path, i = [], 0
    while i < len(body):
        path.append(i)
        name, operands = body[i]
        i = max(i + 1, labels.get(operands[-1], 0) if name == "s_branch" else 0)
    return path


def in_flight(body, width_of, n_way):
    """Bytes of each load of a body, {index in it: bytes}, that it has issued when it first waits for one of them, on
    its last way through."""
    queue = []
    for way in range(n_way):
        for i in path_through(body):
            name, operands = body[i]
            if name and re.match(r"(?:t?buffer|global|flat|scratch|image)_load", name):
                queue.append(width_of.get(i, 0))
            left = left_after(name, operands)
            if left is not None and left < len(queue):
                if way == n_way - 1 and any(queue[:len(queue) - left]):
                    return queue
                queue = queue[len(queue) - left:]
    return queue


def loads_of(text, binding):
    """Of the innermost loop that loads most bytes of a buffer in one way through, the whole text if no loop does:
    (bytes of its widest loads, how many of these are on their way at the first wait for a load of the buffer)."""
    listed = list(instructions(text))
    width_of = {i: WIDTHS[re.sub(r".*_load_(?:d16_(?:hi_)?)?", "", listed[i][0])]
                for i, of in descriptors(listed).items() if of == binding}
    whole, known, bodies = (0, len(listed) - 1), loops(listed), {}
    for i, width in width_of.items():
        around = [x for x in known if x[0] < i < x[1]]
        bodies.setdefault(min(around, key=lambda x: x[1] - x[0]) if around else whole, {})[i] = width
    if not bodies:
        return 0, 0
    # A loop, if there is one, which runs for a second time with the loads that the first has left.
    first, last = body = max(bodies, key=lambda x: (x != whole, sum(bodies[x].values())))
    widest = max(bodies[body].values())
    widths = {i - first: n for i, n in bodies[body].items()}
    return widest, in_flight(listed[first:last + 1], widths, 1 if body == whole else 2).count(widest)
