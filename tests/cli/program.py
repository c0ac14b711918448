"""Runs the program for the tests of this folder, which import it: good and bad arguments, scratch files, small models
and devices. Python 3, standard library only."""

import fcntl
import functools
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import termios

HEARTH = os.path.abspath(sys.argv[1])
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(SOURCE, "models", "storyteller-q8_0.gguf")
COMMANDS = ["run", "chat", "serve", "tokenize", "detokenize", "inspect", "logits", "perplexity", "compare", "profile",
         "study", "imatrix", "quantize", "predictors", "thresholds", "pack", "synth",
         "bench", "doctor", "devices", "plan", "pull", "list", "cp", "rm", "ps", "stop"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import cases  # noqa: E402: the path is set above

TIMEOUT = 600  # against what hangs: a sanitizer on a busy machine is slow
SCRATCH = None  # a folder of its own for each case
# What the program measures of this machine is kept for all cases of a test: measuring takes longer than most calls. A
# case that counts measurements has a cache of its own.
CACHE = tempfile.TemporaryDirectory(prefix="hearth-cache-")


def case(function):
    """A case with a folder of its own for files."""

    @functools.wraps(function)
    def with_scratch():
        global SCRATCH
        with tempfile.TemporaryDirectory(prefix="hearth-test-") as SCRATCH:
            function()

    return cases.case(with_scratch)


def measured(function):
    """A case that measures for seconds, which a sanitizer makes minutes: what measures has tests of its own
    (tests/measure), so with one only the long suite has it."""
    slow = os.environ.get("HEARTH_SANITIZED") and not os.environ.get("HEARTH_LONG")
    return function if slow else case(function)


def check(ok, *what):
    if not ok:
        raise AssertionError(" ".join(str(w) for w in what))


def hearth(*args, stdin=b"", env=None, **more):
    """Runs the program to its end; more goes to subprocess.run. Texts are drawn by seed 0 unless a seed is given."""
    if args[:1] == ("run",) and not {"--seed", "--see", "-s", "--help"} & set(args):
        args = ("run", "--seed", "0", *args[1:])
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    environment = {**os.environ, "HEARTH_CACHE": CACHE.name, **(env or {})}
    return subprocess.run([HEARTH, *args], input=stdin, env=environment, timeout=TIMEOUT, **more)


def good(*args, **more):
    done = hearth(*args, **more)
    check(done.returncode == 0, args, "exit", done.returncode, done.stderr)
    return done


def is_note(line):
    """A warning, or one of the lines at the start."""
    known = ("hearth: warning: ", "hearth: approximate results: ", "hearth: results may differ ")
    return line.startswith(known) or " M parameters, " in line or " parts of the weights in memory, " in line


def failure_line(done, args):
    """The one line that begins with 'hearth: ' among notes on stderr."""
    lines = [l for l in done.stderr.decode("utf-8", "replace").split("\n") if l and not is_note(l)]
    check(len(lines) == 1 and lines[0].startswith("hearth: "), args, "stderr is", done.stderr)
    check(not re.search(r"[\x00-\x1f\x7f]", lines[0]), args, "control bytes in", lines[0])
    return lines[0]


def bad(status, word, *args, **more):
    done = hearth(*args, **more)
    check(done.returncode == status, args, "exit", done.returncode, done.stderr)
    line = failure_line(done, args)
    check(word in line, args, "lacks", repr(word), line)
    return line


def least_ram(*command):
    """A little more memory than the least that --ram takes, as a refusal names it."""
    refused = bad(1, "needs at least", *command, "--ram", "1M")
    return str(int(re.search(r"\((\d+) bytes\)", refused)[1]) + (1 << 20))


def scratch(name="", content=None):
    """A path in the folder of the case (without a name: the folder), with that content."""
    path = os.path.join(SCRATCH, name)
    if content is not None:
        with open(path, "wb") as f:
            f.write(content)
    return path


def model_bytes():
    with open(MODEL, "rb") as f:
        return f.read()


def data(path):
    """Of the repository, or made by tests/data/make.py."""
    found = [p for p in (os.path.join(SOURCE, folder, path) for folder in ("tests/data", "build/data")) if os.path.exists(p)]
    check(found, f"no {path} in tests/data or build/data; python3 tests/data/make.py build/data makes the latter")
    return found[0]


def tiny_model(n_layer=1, without_bos=False, more=()):
    """A llama in F16 of a size that quantize needs a moment for; its weights are zeros."""
    e, f, v = 256, 1024, 260

    def text(s):
        return struct.pack("<Q", len(s)) + s

    def pair(key, kind, value):
        return text(key) + struct.pack("<I", kind) + value

    tokens = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)] + [b"a"]
    kinds = [2, 3, 3] + [6] * 256 + [1]
    keys = [
        pair(b"general.architecture", 8, text(b"llama")),
        pair(b"llama.block_count", 4, struct.pack("<I", n_layer)),
        pair(b"llama.context_length", 4, struct.pack("<I", 64)),
        pair(b"llama.embedding_length", 4, struct.pack("<I", e)),
        pair(b"llama.feed_forward_length", 4, struct.pack("<I", f)),
        pair(b"llama.attention.head_count", 4, struct.pack("<I", 4)),
        pair(b"llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        pair(b"tokenizer.ggml.model", 8, text(b"llama")),
        pair(b"tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, v) + b"".join(map(text, tokens))),
        pair(b"tokenizer.ggml.scores", 9, struct.pack("<IQ%df" % v, 6, v, *[0.0] * v)),
        pair(b"tokenizer.ggml.token_type", 9, struct.pack("<IQ%di" % v, 5, v, *kinds)),
        pair(b"tokenizer.ggml.add_bos_token", 7, b"\0" if without_bos else b"\1"),
    ]
    tensors = [(b"token_embd.weight", (e, v)), (b"output_norm.weight", (e,))]
    for i in range(n_layer):
        b = b"blk.%d." % i
        tensors += [(b + n + b".weight", (e,)) for n in (b"attn_norm", b"ffn_norm")]
        tensors += [(b + n + b".weight", (e, e)) for n in (b"attn_q", b"attn_k", b"attn_v", b"attn_output")]
        tensors += [(b + b"ffn_gate.weight", (e, f)), (b + b"ffn_up.weight", (e, f)), (b + b"ffn_down.weight", (f, e))]
    tensors += more
    infos, at = b"", 0
    for name, dims in tensors:
        infos += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, 1, at)
        at += 2 * dims[0] * (dims[1] if len(dims) > 1 else 1)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    return head + bytes(-len(head) % 32) + bytes(at)


def on_terminal(*args, env=None):
    """All that a run writes to a terminal of 80 columns."""
    outer, inner = cases.open_terminal()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = b""
    with subprocess.Popen([HEARTH, *args], stdin=subprocess.DEVNULL, stdout=inner, stderr=inner,
                          env={**os.environ, "TERM": "xterm", "HEARTH_CACHE": CACHE.name, **(env or {})}) as process:
        os.close(inner)
        while True:
            try:
                piece = os.read(outer, 65536)
            except OSError:  # the program has closed it
                break
            shown += piece
    os.close(outer)
    check(process.returncode == 0, args, shown)
    return shown


def story(*args, **more):
    return good("run", "--greedy", *args, **more).stdout


# A GPU whose costs are zero takes all of a model.
QUICK_GPU = ("name = quick\nvram_bytes = 1G\nbandwidth = 1e14\npcie_up = 1e12\npcie_down = 1e12\npcie_latency_us = 0\n"
              "dispatch_us = 0\nsubmit_us = 0\nwake_us = 0\nflops = 1e15\njitter = 0\nseed = 1\nclock = virtual\n")


NO_DRIVER = {"VK_ICD_FILENAMES": "/nowhere", "VK_DRIVER_FILES": "/nowhere"}


def findings(*args, status=0, **more):
    done = hearth("doctor", "--json", *args, **more)
    check(done.returncode == status, args, "exit", done.returncode, done.stderr)
    shown = json.loads(done.stdout)
    for c in shown["checks"]:
        check(("fix" in c) != c["ok"] and c["text"] and (c["ok"] or c["fix"]), c)
    return shown, {c["name"]: c for c in shown["checks"]}
