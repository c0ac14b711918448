"""A model for tests of chat: the story model of the repository with one key more,
tokenizer.chat_template. GGUF is taken apart just as far as that needs."""

import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TEXT, ARRAY = 8, 9


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def skip_text(self):
        n = self.take("Q")
        self.at += n

    def skip_value(self, kind):
        if kind == TEXT:
            self.skip_text()
        elif kind == ARRAY:
            element, n = self.take("I"), self.take("Q")
            for _ in range(n):
                self.skip_value(element)
        else:
            self.at += SIZES[kind]


def with_template(data, template, more=(), renamed=()):
    """The bytes of a GGUF file with that template; more: pairs of a key and a u32 or a text to be added; renamed: pairs of texts, of which
    the second stands where the first did, once in the file."""
    r = Reader(data)
    assert data[:4] == b"GGUF"
    r.at = 8
    n_tensor, n_pair = r.take("Q"), r.take("Q")
    for _ in range(n_pair):
        r.skip_text()
        r.skip_value(r.take("I"))
    pairs_end = r.at
    for _ in range(n_tensor):
        r.skip_text()
        n_dim = r.take("I")
        r.at += 8 * n_dim + 4 + 8
    info_end, align = r.at, 32
    added = b"" if template is None else text("tokenizer.chat_template") + struct.pack("<I", TEXT) + text(template)
    for key, value in more:
        added += text(key) + (struct.pack("<I", TEXT) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value))
    n_added = (template is not None) + len(more)
    head = data[:16] + struct.pack("<Q", n_pair + n_added) + data[24:pairs_end] + added + data[pairs_end:info_end]
    for old, new in renamed:
        assert head.count(text(old)) == 1, old
        head = head.replace(text(old), text(new))
    pad = -len(head) % align
    return head + bytes(pad) + data[info_end + (-info_end % align):]
