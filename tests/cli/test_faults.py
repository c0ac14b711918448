"""The program under faults: malformed files through every command, allocations that fail,
little stack, closed streams, kills. Called by CTest with the program's path and, in plain
release builds, the library that makes allocations fail (tests/preload). The ids are the
rows of docs/reliability.md. Python 3, standard library only."""

import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import time

from program import HEARTH, SOURCE, case, cases, check, scratch
import chat_model

FAIL_MALLOC = sys.argv[2] if len(sys.argv) > 2 else None
LONG = bool(os.environ.get("HEARTH_LONG"))
TIMEOUT = 120


def hearth(args, stdin=b"", env=None, **more):
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([HEARTH, *args], input=stdin, env=dict(os.environ, **(env or {})), timeout=TIMEOUT, **more)


def failure_lines(done):
    lines = [l for l in done.stderr.decode("utf-8", "replace").split("\n") if l]
    return [l for l in lines if not l.startswith("hearth: warning: ") and " M parameters, " not in l]


# ---- a model, and one thing wrong with it --------------------------------------------------

U32, I32, F32, TEXT, ARRAY = 4, 5, 6, 8, 9
D, FF, HEADS = 32, 64, 4
TOKENS = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)] + [b"a"]


def text(s):
    return struct.pack("<Q", len(s)) + s


def u32(v):
    return U32, struct.pack("<I", v)


def f32(v):
    return F32, struct.pack("<f", v)


def keys_of_a_llama():
    n = len(TOKENS)
    return {
        "general.architecture": (TEXT, text(b"llama")),
        "general.alignment": u32(32),
        "hearth.ffn.activation": (TEXT, text(b"reglu")),  # with zeros, for predictors
        "llama.block_count": u32(1),
        "llama.context_length": u32(64),
        "llama.embedding_length": u32(D),
        "llama.feed_forward_length": u32(FF),
        "llama.attention.head_count": u32(HEADS),
        "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
        "tokenizer.ggml.model": (TEXT, text(b"llama")),
        "tokenizer.ggml.tokens": (ARRAY, struct.pack("<IQ", TEXT, n) + b"".join(map(text, TOKENS))),
        "tokenizer.ggml.scores": (ARRAY, struct.pack("<IQ%df" % n, F32, n, *[0.0] * n)),
        "tokenizer.ggml.token_type": (ARRAY, struct.pack("<IQ%di" % n, I32, n, *[2, 3, 3] + [6] * 256 + [1])),
        "tokenizer.chat_template": (TEXT, text(b"{% for m in messages %}{{ m.content }}{% endfor %}")),
    }


def tensors_of_a_llama():
    """name: [dims, type, offset or None]"""
    t = {"token_embd.weight": [D, len(TOKENS)], "output_norm.weight": [D]}
    t.update({"blk.0.%s.weight" % n: [D] for n in ("attn_norm", "ffn_norm")})
    t.update({"blk.0.%s.weight" % n: [D, D] for n in ("attn_q", "attn_k", "attn_v", "attn_output")})
    t.update({"blk.0.ffn_gate.weight": [D, FF], "blk.0.ffn_up.weight": [D, FF], "blk.0.ffn_down.weight": [FF, D]})
    return {name: [dims, 0, None] for name, dims in t.items()}


def build(keys, tensors, weight=0.0):
    infos, at = b"", 0
    for name, (dims, kind, offset) in tensors.items():
        infos += text(name.encode()) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, at if offset is None else offset)
        n = 1
        for d in dims:
            n *= d
        at += n * 4 if n < 2**30 else 0
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(text(k.encode()) + struct.pack("<I", kind) + value for k, (kind, value) in keys.items()) + infos
    return head + bytes(-len(head) % 32) + struct.pack("<f", weight) * (at // 4)


def with_keys(**changes):
    """A key is named with __ for a dot; None takes it away."""
    keys = keys_of_a_llama()
    for name, value in changes.items():
        name = name.replace("__", ".")
        keys.pop(name, None)
        if value is not None:
            keys[name] = value
    return build(keys, tensors_of_a_llama())


def with_tensor(name, dims=None, kind=0, offset=None, gone=False):
    tensors = tensors_of_a_llama()
    tensors[name] = [dims or tensors[name][0], kind, offset]
    if gone:
        del tensors[name]
    return build(keys_of_a_llama(), tensors)


def malformed():
    """(id, bytes, word of the line, who refuses: 'all', 'model' or 'text')"""
    whole = with_keys()
    norm = build(keys_of_a_llama(), {k: v for k, v in sorted(tensors_of_a_llama().items(), key=lambda t: "norm" in t[0])})
    norm = norm[:-4] + struct.pack("<f", float("inf"))
    return [
        ("A1", b"GG", "too short", "all"),
        ("A2", whole[:3000], "byte", "all"),
        ("A3", whole[:-5000], "past the end of the file", "all"),
        ("A5", b"PK\3\4" + whole[4:], "ZIP", "all"),
        ("A6", whole[:4] + struct.pack("<I", 4) + whole[8:], "version at byte 4", "all"),
        ("B2", whole[:8] + struct.pack("<Q", 2**63) + whole[16:], "number of tensors", "all"),
        ("B3", whole[:16] + struct.pack("<Q", 7) + whole[24:], "byte", "all"),
        ("B5", whole.replace(text(b"llama"), struct.pack("<Q", 2**64 - 8) + b"llama", 1), "text length", "all"),
        ("B7", with_keys(x=(ARRAY, struct.pack("<IQ", 4, 2**62))), "number of elements", "all"),
        ("C1", with_keys(x=(13, b"")), "'x'", "all"),
        ("C4", with_keys(x=(7, b"\2")), "'x'", "all"),
        ("C8", with_keys(llama__block_count=None), "llama.block_count", "model"),
        ("C9", with_keys(llama__embedding_length=(TEXT, text(b"32"))), "llama.embedding_length", "model"),
        ("C10", with_keys(general__architecture=(TEXT, text(b"lama\x1b[31m"))), "lama\\x1b", "model"),
        ("C12", with_keys(general__alignment=u32(7)), "general.alignment", "all"),
        ("C15", with_keys(llama__block_count=u32(2)), "blk.1.", "model"),
        ("C18", with_keys(llama__attention__head_count_kv=u32(3)), "head_count_kv", "model"),
        ("C21", with_keys(llama__rope__freq_base=f32(float("nan"))), "rope.freq_base", "model"),
        ("C24", with_keys(llama__expert_count=u32(8)), "expert_used_count", "model"),
        ("C26", with_keys(hearth__layout=u32(1)), "hearth.layout", "model"),
        ("D2", with_tensor("output_norm.weight", [0]), "dimension 0", "all"),
        ("D3", with_tensor("output_norm.weight", [2**32, 2**32]), "multiply to more", "all"),
        ("D4", with_tensor("blk.0.attn_q.weight", kind=99), "unknown type 99", "all"),
        ("D5", with_tensor("blk.0.attn_q.weight", offset=33), "multiple of the alignment", "all"),
        ("D6", with_tensor("blk.0.attn_q.weight", offset=2**64 - 32), "past the end", "all"),
        ("D8", with_tensor("blk.0.attn_q.weight", offset=0), "overlap", "all"),
        ("D12", with_tensor("blk.0.attn_q\0weight", [1]), "NUL", "all"),
        ("D14", with_tensor("blk.0.ffn_up.weight", gone=True), "'blk.0.ffn_up.weight' is missing", "model"),
        ("D15", with_tensor("blk.0.ffn_down.weight", [FF, D // 2]), "blk.0.ffn_down.weight", "model"),
        ("E4", norm, "weight 31 is inf", "model"),
        ("F1", with_keys(tokenizer__ggml__model=(TEXT, text(b"rwkv"))), "tokenizer.ggml.model", "text"),
        ("F2", with_keys(tokenizer__ggml__tokens=None), "tokenizer.ggml.tokens", "text"),
        ("F5", with_keys(tokenizer__ggml__scores=(ARRAY, struct.pack("<IQ", F32, 0))), "tokenizer.ggml.scores", "text"),
        ("F8", with_keys(tokenizer__ggml__bos_token_id=(TEXT, text(b"1"))), "bos_token_id", "text"),
        ("H1", with_keys(hearth__pack__version=u32(2)), "hearth.pack.version", "model"),
        ("H2", with_keys(hearth__selector=(TEXT, text(b"gates\x1b"))), "gates\\x1b", "model"),
        ("H3", with_keys(hearth__predictor__threshold=(ARRAY, struct.pack("<IQf", F32, 1, float("nan")))),
         "predictor.threshold", "model"),
        ("G3", with_keys(split__count=u32(3), split__no=u32(0)), "the name must end in", "all"),
    ]


def verbs_on(path):
    """name: (arguments, stdin); whatever they write goes to the scratch file out."""
    ids, words, out = scratch("ids", b"1 2 3"), scratch("text", b"aaaa " * 99), scratch("out")
    return {
        "run": (["run", path, "-n", "1", "-p", "a", "--seed", "0"], b""),
        "chat": (["chat", path, "-n", "1", "--seed", "0"], b"a\n"),
        "tokenize": (["tokenize", path, "-p", "a"], b""),
        "detokenize": (["detokenize", path, "--ids", ids], b""),
        "inspect": (["inspect", path], b""),
        "check": (["inspect", path, "--check"], b""),
        "json": (["inspect", path, "--json", "--all"], b""),
        "logits": (["logits", path, "--ids", ids, "-o", out, "--force"], b""),
        "perplexity": (["perplexity", path, "-f", words, "-c", "32"], b""),
        "compare": (["compare", path, "--against", path, "-f", words, "-c", "32"], b""),
        "profile": (["profile", path, "-f", words, "-c", "32", "-o", out, "--force"], b""),
        "study": (["study", path, "-f", words, "-c", "32", "-o", out, "--force"], b""),
        "imatrix": (["imatrix", path, "-f", words, "-c", "32", "-o", out, "--force"], b""),
        "predictors": (["predictors", path, "-f", words, "-c", "32", "-o", out, "--steps", "2", "--force"], b""),
        "thresholds": (["thresholds", path, "-f", words, "-c", "32", "-o", out, "--force"], b""),
        "pack": (["pack", path, "-o", out, "--force"], b""),
        "quantize": (["quantize", path, out, "q8_0", "--force"], b""),
        "bench": (["bench", path, "-n", "1", "-p", "0", "--repeat", "1"], b""),
        "doctor": (["doctor", path], b""),
    }


MUST_REFUSE = {
    "all": {"run", "chat", "tokenize", "detokenize", "inspect", "check", "json", "logits", "perplexity", "compare",
            "profile", "study", "imatrix", "predictors", "thresholds", "pack", "quantize", "bench", "doctor"},
    "model": {"run", "chat", "logits", "perplexity", "compare", "profile", "study", "imatrix", "predictors", "thresholds",
              "bench", "doctor"},
    "text": {"run", "chat", "tokenize", "detokenize", "perplexity", "compare", "profile", "study", "imatrix", "predictors",
             "thresholds"},
}


def nothing_left(*what):
    for name in ["out", "out.hearth-part", "out.resume"]:
        check(not os.path.exists(scratch(name)), *what, "left", name)


@case
def the_model_of_these_cases_is_whole():
    path = scratch("whole", with_keys())
    for name, (args, stdin) in verbs_on(path).items():
        done = hearth(args, stdin)
        check(done.returncode == 0, name, done.returncode, done.stderr)


@case
def malformed_files_through_every_command():
    slowest = (0, "")
    n = 0
    for row, content, word, who in malformed():
        path = scratch("bad-" + row, content)
        for name, (args, stdin) in verbs_on(path).items():
            if name in ("bench", "doctor") and name not in MUST_REFUSE[who]:
                continue  # they would measure for seconds
            if os.path.exists(scratch("out")):
                os.remove(scratch("out"))
            start = time.monotonic()
            done = hearth(args, stdin)
            slowest = max(slowest, (time.monotonic() - start, row + " " + name))
            n += 1
            check(done.returncode in (0, 1), row, name, "exit", done.returncode, done.stderr)
            if name not in MUST_REFUSE[who]:
                continue
            lines = failure_lines(done)
            check(done.returncode == 1 and len(lines) == 1, row, name, "exit", done.returncode, "lines", lines)
            check(lines[0].startswith("hearth: ") and path in lines[0] and word in lines[0], row, name, lines[0])
            check(not re.search(r"[\x00-\x1f\x7f]", lines[0]), row, name, "control bytes in", repr(lines[0]))
            nothing_left(row, name)
    print("     %d runs; the slowest took %.0f ms (%s)" % (n, slowest[0] * 1000, slowest[1]))
    check(slowest[0] < 20, slowest)


@case
def sidecars_that_do_not_fit_are_refused_by_every_command():
    path, words = scratch("model.gguf", with_keys()), scratch("text", b"aaaa " * 99)
    takers = {"profile": ["pack"], "predictors": ["pack", "run", "compare", "perplexity"],
              "thresholds": ["pack", "run", "compare", "perplexity"]}
    made = {}
    for kind in takers:
        done = hearth([kind, path, "-f", words, "-c", "32", "-o", scratch("made"), "--force"])
        check(done.returncode == 0, kind, done.stderr)
        with open(scratch("made"), "rb") as f:
            made[kind] = f.read()
    n = 0
    for kind, commands in takers.items():
        whole = made[kind]
        version, model = (whole.index(key) + len(key) + 4 for key in (b"hearth.sidecar.version", b"hearth.model.hash"))
        bad = {"version": (whole[:version] + b"\2" + whole[version + 1:], "hearth.sidecar.version at "),
               "hash": (whole[:model] + bytes(8) + whole[model + 8:], "of another model: hearth.model.hash at "),
               "kind": (made["thresholds" if kind != "thresholds" else "profile"], "general.architecture at "),
               "a model": (with_keys(), "general.architecture at "), "empty": (b"", "too short"),
               "cut": (whole[:len(whole) // 2], "byte"), "no GGUF": (b"aaaa " * 99, "")}
        for what, (content, word) in bad.items():
            side = scratch("side", content)
            for command in commands:
                more = {"pack": ["-o", scratch("out")], "run": ["-p", "a", "-n", "1"]}.get(command, ["-f", words, "-c", "32"])
                done = hearth([command, path, *more, "--" + kind, side])
                lines = failure_lines(done)
                check(done.returncode == 1 and len(lines) == 1, kind, what, command, "exit", done.returncode, lines)
                check(side in lines[0] and word in lines[0], kind, what, command, lines[0])
                nothing_left(kind, what, command)
                n += 1
    print("     %d runs" % n)


@case
def weights_that_are_not_finite_are_found_by_check_and_end_a_run():  # E1
    content = build(keys_of_a_llama(), tensors_of_a_llama(), 0.5)
    path = scratch("nan.gguf", content[:-4] + struct.pack("<f", float("nan")))
    done = hearth(["inspect", path, "--check"])
    check(done.returncode == 1 and b"blk.0.ffn_down.weight" in done.stderr, done.stderr)
    done = hearth(["run", path, "-p", "a", "--no-echo", "-n", "4"])
    check(done.returncode == 1 and b"finite" in done.stderr, done.returncode, done.stderr)


@case
def inspect_says_what_is_odd_but_legal():  # A4, C7, D9
    whole = with_keys()
    shown = hearth(["inspect", scratch("more", whole + b"x" * 77)])
    check(b"77 bytes lie after the last tensor" in shown.stdout, shown.stdout)
    tensors = tensors_of_a_llama()
    last = len(whole) + 64
    tensors["blk.0.attn_q.weight"][2] = last - last % 32
    content = build(keys_of_a_llama(), tensors) + bytes(last + 4 * D * D)
    shown = hearth(["inspect", scratch("order", content)])
    check(b"another order than the directory" in shown.stdout, shown.stdout, shown.stderr)
    tensors = {k: v for k, v in tensors.items() if not k.startswith("blk.0.attn_q")}
    tensors["blk.0.attn_q.weight"] = [[D, D], 0, last - last % 32]
    shown = hearth(["inspect", scratch("gap", build(keys_of_a_llama(), tensors) + bytes(last + 4 * D * D))])
    check(re.search(rb"\n\d+ bytes lie between tensors\n", shown.stdout), shown.stdout, shown.stderr)
    name = b"\xff\x1b[31m\xc3\xa9\xc2\x9b\0z"
    path = scratch("name", with_keys(general__name=(TEXT, text(name))))
    shown = hearth(["inspect", path])
    check(b'"\\xff\\x1b[31m\xc3\xa9\\xc2\\x9b\\x00z"' in shown.stdout, shown.stdout)
    shown = hearth(["inspect", path, "--json", "--all"])
    check(json.loads(shown.stdout)["run"]["possible"] is True, shown.stdout)
    check(hearth(["run", path, "-n", "1", "-p", "a"]).returncode == 0, "a name hinders nothing")


# ---- R1, R2: allocations of the whole program ------------------------------------------------------


def story_model():
    with open(os.path.join(SOURCE, "models", "storyteller-q8_0.gguf"), "rb") as f:
        return f.read()


def fail_allocation(args, stdin, n, sticky):
    if os.path.exists(scratch("out")):
        os.remove(scratch("out"))
    env = {"LD_PRELOAD": FAIL_MALLOC, "FAIL_ALLOCATION": str(n), "FAIL_REPORT": scratch("count")}
    if sticky:
        env["FAIL_STICKY"] = "1"
    return hearth(args, stdin, env)


def content_of_output():
    if not os.path.exists(scratch("out")):
        return None
    with open(scratch("out"), "rb") as f:
        return f.read()


def every_command_survives_allocations_that_fail():
    path = scratch("whole.gguf", build(keys_of_a_llama(), tensors_of_a_llama(), 0.25))
    commands = verbs_on(path)
    commands["run on threads"] = (["run", path, "-n", "2", "-p", "a", "-t", "3", "--mmap", "--stop", "zz", "--greedy"], b"")
    commands["run"][0].append("--greedy")
    saved, session = ["run", path, "-n", "1", "-p", "aaa", "--greedy", "-t", "1"], scratch("session")
    check(hearth([*saved, "--gpu", "none", "--save-session", session]).returncode == 0, "a session")
    commands["run of a session"] = ([*saved, "--session", session, "--save-session", scratch("out"), "--stats"], b"")
    commands["synth"] = (["synth", "stories-15m", scratch("out"), "-t", "1"], b"")
    for name in ("run", "run on threads", "run of a session", "chat", "logits", "perplexity"):
        commands[name][0].extend(["--gpu", "none"])  # a driver's own allocations are its affair
    del commands["bench"], commands["doctor"]  # they measure for seconds; their allocations are those of run
    for name, (args, stdin) in commands.items():
        whole = fail_allocation(args, stdin, 0, False)
        check(whole.returncode == 0, name, whole.stderr)
        with open(scratch("count")) as f:
            n_allocation = int(f.read())
        out = content_of_output()
        for sticky in (False, True):
            n_run = n_allocation if LONG else min(n_allocation, 8 if name == "synth" else 25)
            for i in range(n_run):
                n = 1 + i * n_allocation // n_run
                done = fail_allocation(args, stdin, n, sticky)
                about = (name, "allocation", n, "of", n_allocation, "and all behind" if sticky else "")
                check(done.returncode in (0, 1), *about, "exit", done.returncode, done.stderr)
                lines = failure_lines(done)
                if done.returncode == 0:  # it could do without, as a buffer of stdio can; chat says it and goes on
                    same = done.stdout == whole.stdout or name in ("quantize", "synth")  # which tell the time
                    check(same or (name == "chat" and lines), *about, done.stdout, done.stderr)
                    check(content_of_output() == out, *about, "wrote another file")
                    continue
                check(len(lines) >= 1 and all(l.startswith("hearth: ") for l in lines), *about, done.stderr)
                nothing_left(*about)
        print("     %s: %d allocations, %d of them failed" % (name, n_allocation, n_run))


if FAIL_MALLOC:  # in plain release builds: a sanitizer has an allocator of its own
    case(every_command_survives_allocations_that_fail)


# ---- R6, R7, R9, R11: what the shell may have taken away ---------------------------------------------


def limit(kind, n):
    return lambda: resource.setrlimit(kind, (n, n))


@case
def a_stack_of_256_kib_holds_every_verb():
    with_template = chat_model.with_template(story_model(), "{% for m in messages %}{{ m.content }}{% endfor %}")
    path = scratch("story.gguf", with_template)
    commands = verbs_on(path)
    commands["quantize"] = (["quantize", scratch("f32.gguf", with_keys()), scratch("out"), "q4_0", "--force"], b"")
    for name, (args, stdin) in commands.items():
        done = hearth(args, stdin, preexec_fn=limit(resource.RLIMIT_STACK, 256 << 10))
        check(done.returncode == 0, name, done.returncode, done.stderr)


@case
def few_descriptors_are_enough_or_named():
    path = scratch("whole.gguf", with_keys())
    for n in (3, 5, 8):
        for name, (args, stdin) in verbs_on(path).items():
            done = hearth(args, stdin, preexec_fn=limit(resource.RLIMIT_NOFILE, n))
            check(done.returncode == 0 or (done.returncode in (1, 127) and done.stderr), name, n, done.returncode, done.stderr)
            if os.path.exists(scratch("out")):
                os.remove(scratch("out"))
        if n == 8:
            check(done.returncode == 0, "eight descriptors are enough:", done.stderr)


@case
def a_closed_stderr_loses_nothing():
    args = ["run", "--greedy", "-n", "8", "-p", "Once", "--stats"]
    expected = hearth(args).stdout
    done = hearth(args, stderr=None, preexec_fn=lambda: os.close(2))
    check(done.returncode == 0 and done.stdout == expected, done.returncode, done.stdout)
    with open("/dev/full", "wb") as full:
        done = hearth(args, stderr=full)
    check(done.returncode == 0 and done.stdout == expected, done.returncode, done.stdout)


# ---- R12, R16: signals at any moment --------------------------------------------------------------------


@case
def interrupts_at_any_moment_end_a_run_cleanly():
    random.seed(12)
    slowest = 0
    for _ in range(1000 if LONG else 15):
        process = subprocess.Popen([HEARTH, "run", "--ignore-eos", "-p", "Once", "-t", "1"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        time.sleep(random.uniform(0, 0.12))
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = process.communicate(timeout=TIMEOUT)
        slowest = max(slowest, time.monotonic() - start)
        # before the handler is set, the signal ends the program as it ends any
        check(process.returncode in (0, 1, 130, -signal.SIGINT), process.returncode, err)
        check(process.returncode != 0 or out.endswith(b"\n"), out)
    print("     the slowest end took %.0f ms" % (slowest * 1000))
    check(slowest < 10, slowest)


@case
def a_killed_writer_leaves_the_old_file_or_the_new():
    random.seed(16)
    out, source = scratch("out"), scratch("f32.gguf", with_keys())
    text = ["-f", scratch("text", b"aaaa " * 99), "-c", "32"]
    long = ["-f", scratch("long", b"aaaa " * 2000), "-c", "64"]  # more than predictors may keep in memory
    beside = {"predictors": scratch("q"), "thresholds": scratch("t"), "profile": scratch("p")}
    for command, path in beside.items():
        check(hearth([command, source, *text, "-o", path]).returncode == 0, command)
    packing = [word for command, path in beside.items() for word in ("--" + command, path)]
    writers = {"quantize": ["quantize", source, out, "q8_0"], "synth": ["synth", "stories-15m", out, "--type", "q8_0"],
               "logits": ["logits", source, "--ids", scratch("ids", b"1 2 3 " * 10), "-o", out],
               "profile": ["profile", source, *text, "-o", out],
               "study": ["study", source, *text, "-o", out],
               "run": ["run", source, "-n", "3", "-p", "aaaa", "--greedy", "--gpu", "none", "--save-session", out],
               "imatrix": ["imatrix", source, *text, "-o", out],
               "predictors": ["predictors", source, *long, "-o", out, "--memory", "1", "--steps", "20"],
               "thresholds": ["thresholds", source, *text, "-o", out],
               "pack": ["pack", source, "-o", out, *packing]}
    for args in writers.values():
        args.append("--force")  # the old file is of another kind
    n_killed = 0
    known = {"out", "out.hearth-part", "out.resume", *os.listdir(scratch())}
    for name, args in writers.items():
        check(hearth(args).returncode == 0, name)
        with open(out, "rb") as f:
            whole = f.read()
        start = time.monotonic()
        hearth(args)
        duration = time.monotonic() - start
        for i in range(1000 if LONG else 8):
            old = b"the old file" if i % 2 else None
            if old:
                scratch("out", old)
            elif os.path.exists(out):
                os.remove(out)
            process = subprocess.Popen([HEARTH, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, 1.1 * duration))
            process.kill()
            n_killed += process.wait(TIMEOUT) == -signal.SIGKILL
            found = None
            if os.path.exists(out):
                with open(out, "rb") as f:
                    found = f.read()
            check(found in (old, whole), name, "kill", i, "left", None if found is None else len(found), "bytes")
            check(set(os.listdir(scratch())) <= known, name, "kill", i, "left", set(os.listdir(scratch())) - known)
        check(hearth(args).returncode == 0, name, "after kills")
        with open(out, "rb") as f:
            check(f.read() == whole, name, "after kills: another file")
        check(not os.path.exists(out + ".hearth-part"), name, "left its part")
    print("     %d kills" % n_killed)
    check(n_killed > 0, "no kill came in time")


if __name__ == "__main__":
    cases.run_cases(__file__)
