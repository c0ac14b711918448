"""Compiles a map of byte strings to replacements, in the form that SentencePiece keeps in its models: 32 bits with the size of
a trie, the trie as a double array as of the library darts-clone, and the replacements, each with a NUL at its end."""
import struct


def trie_of(strings):
    """Nested: {byte: node}; a string's value at byte 0."""
    root = {}
    for text, value in strings.items():
        node = root
        for byte in text:
            node = node.setdefault(byte, {})
        node[0] = value
    return root


def double_array(root):
    """Units: the byte that leads here, whether a string ends here, the distance to the children. The child for a byte is at
    the parent's index, exclusive or the distance, exclusive or the byte. Bases differ, so no child has two parents."""
    units, used, bases = {0: 0}, {0}, set()
    queue = [(0, root)]
    while queue:
        index, node = queue.pop(0)
        base = 1
        while base in bases or any(base ^ byte in used for byte in node):
            base += 1
        bases.add(base)
        distance = index ^ base
        assert distance < 1 << 21
        units[index] |= distance << 10 | (0 in node) << 8
        for byte, child in sorted(node.items()):
            used.add(base ^ byte)
            units[base ^ byte] = 1 << 31 | child if byte == 0 else byte
            if byte:
                queue.append((base ^ byte, child))
    # A free unit must not look like a child of any node: byte 0 leads nowhere.
    return [units.get(i, 0) for i in range((max(units) | 255) + 1)]


def compile_map(replacements):
    """{text: replacement} as bytes."""
    texts, places = b"", {}
    for text in sorted(set(replacements.values())):
        places[text] = len(texts)
        texts += text.encode() + b"\0"
    units = double_array(trie_of({key.encode(): places[value] for key, value in replacements.items()}))
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + texts
