"""The program as a user meets it: every command with good and bad arguments, files,
pipes, signals and environments. Called by CTest with the program's path. Python 3,
standard library only."""

import fcntl
import functools
import base64
import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

HEARTH = os.path.abspath(sys.argv[1])
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(SOURCE, "models", "storyteller-q8_0.gguf")
COMMANDS = ["run", "chat", "tokenize", "detokenize", "inspect", "logits", "perplexity", "compare", "profile",
         "study", "quantize", "predictors", "thresholds", "pack", "synth",
         "bench", "doctor", "devices", "plan", "pull", "list", "rm"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import cases  # noqa: E402: the path is set above

TIMEOUT = 600  # against what hangs: a sanitizer on a busy machine is slow
SCRATCH = None  # a folder of its own for each case


# ---- running ---------------------------------------------------------------------------


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
    if args[:1] == ("run",) and not {"--seed", "--see", "--help"} & set(args):
        args = ("run", "--seed", "0", *args[1:])
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    environment = dict(os.environ, **(env or {}))
    return subprocess.run([HEARTH, *args], input=stdin, env=environment, timeout=TIMEOUT, **more)


def good(*args, **more):
    done = hearth(*args, **more)
    check(done.returncode == 0, args, "exit", done.returncode, done.stderr)
    return done


def failure_line(done, args):
    """The one line that begins with 'hearth: ' among notes on stderr."""
    lines = [l for l in done.stderr.decode("utf-8", "replace").split("\n") if l]
    lines = [l for l in lines if not l.startswith("hearth: warning: ") and "; selector " not in l]
    check(len(lines) == 1 and lines[0].startswith("hearth: "), args, "stderr is", done.stderr)
    check(not re.search(r"[\x00-\x1f\x7f]", lines[0]), args, "control bytes in", lines[0])
    return lines[0]


def bad(status, word, *args, **more):
    done = hearth(*args, **more)
    check(done.returncode == status, args, "exit", done.returncode, done.stderr)
    line = failure_line(done, args)
    check(word in line, args, "lacks", repr(word), line)
    return line


def scratch(name, content=None):
    path = os.path.join(SCRATCH, name)
    if content is not None:
        with open(path, "wb") as f:
            f.write(content)
    return path


def model_bytes():
    with open(MODEL, "rb") as f:
        return f.read()


# ---- help ---------------------------------------------------------------------------------


@case
def help_of_every_command_fits_a_screen():
    for args in [["--help"], ["-h"]] + [[v, "--help"] for v in COMMANDS]:
        lines = good(*args).stdout.decode().split("\n")
        check(len(lines) <= 41, args, len(lines), "lines")
        for line in lines:
            check(len(line) <= 80, args, "too long:", line)


@case
def help_of_a_command_has_two_forms():
    check(good("help", "run").stdout == good("run", "--help").stdout, "help run")
    check(good("help").stdout == good("--help").stdout, "help")
    check(good("help", "nothing").stdout == good("--help").stdout, "help of no command")


@case
def version_man_page_and_completions_print():
    check(re.fullmatch(rb"hearth \d+\.\d+\.\d+\n", good("--version").stdout), "version")
    man = good("--man").stdout
    check(man.startswith(b".TH HEARTH 1"), "man page")
    for command in COMMANDS:
        check(b".SH %s\n" % command.encode() in man, "man page lacks", command)
    for name in [b"HEARTH_CPU", b"HEARTH_PIN", b"HEARTH_CACHE"]:
        check(b".B " + name in man, "man page lacks", name)
    for shell, syntax in [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])]:
        script = good("--completions", shell).stdout
        check(b"run" in script and b"logit-bias" in script, shell)
        try:
            done = subprocess.run(syntax + [scratch(shell, script)], capture_output=True, timeout=TIMEOUT)
        except FileNotFoundError:
            continue  # this shell is not installed
        check(done.returncode == 0, shell, done.stderr)
    bad(2, "bash, zsh, fish", "--completions", "tcsh")
    bad(2, "bash, zsh, fish", "--completions")


# ---- usage ----------------------------------------------------------------------------------


@case
def usage_errors_exit_2():
    check(hearth().returncode == 2, "no arguments")
    for args, word in [
        (["juggle"], "'juggle' is no command"),
        (["--juggle"], "options stand behind a command"),
        (["run", "--juggle"], "--juggle: no such option"),
        (["run", "-Z"], "-Z: no such option"),
        (["run", "-n"], "--predict needs a value"),
        (["run", "--temperature"], "--temperature needs a value"),
        (["run", "--json=yes"], "takes no value"),
        (["run", "-t", "0"], "allowed are 1 to 256"),
        (["run", "-t", "257"], "allowed are"),
        (["bench", "-c", "0"], "-c 0"),
        (["run", "-n", "-2"], "--predict -2: allowed are -1 and 0 to 16777216"),
        (["run", "--seed", "18446744073709551616"], "allowed are -1 and 0 to 2^64 - 2"),
        (["run", "-ngl", "some"], "a whole number, or one of auto|all is wanted"),
        (["run", "-prompt", "a"], "-prompt: no such option; --prompt is the nearest"),
        (["run", "--batch", "0"], "allowed are"),
        (["run", "--kv", "f8"], "one of f16|f32|q8_0"),
        (["run", "--top-p", "1.5"], "allowed are 0 to 1"),
        (["run", "--temperature", "-1"], "allowed are"),
        (["run", "--repeat-last-n", "-2"], "allowed are"),
        (["run", "--stop", ""], "empty"),
        (["run", "-p", ""], "the text is empty"),
        (["run", "-p", "a", "-p", "b"], "given twice"),
        (["run", "--json", "--json"], "given twice"),
        (["run", "--placement", "plan", "--placement", "even"], "given twice"),
        (["run", "-p", "a", "-f", "b"], "contradict"),
        (["run", "-p", "a", "-"], "contradict"),
        (["run", "--greedy", "--temperature", "1"], "contradict"),
        (["run", "-ngl", "1", "--placement", "even"], "--gpu-layers and --placement contradict"),
        (["run", "-q", "--verbose"], "contradict"),
        (["run", "--seed", "18446744073709551615"], "allowed are"),
        (["run", MODEL, "b"], "one argument too many"),
        (["run", MODEL, "-", "c"], "one argument too many"),
        (["tokenize"], "usage: hearth tokenize"),
        (["tokenize", MODEL, "--ids", "--pieces", "-p", "a"], "contradict"),
        (["tokenize", MODEL, "-p", "a", "-f", "b"], "contradict"),
        (["inspect"], "usage:"),
        (["inspect", MODEL, MODEL], "one argument too many"),
        (["logits", MODEL], "needs --ids FILE"),
        (["perplexity", MODEL], "needs -f FILE"),
        (["perplexity", MODEL, "-f", MODEL, "-c", "2"], "scores none"),
        (["compare", MODEL], "needs -f FILE"),
        (["compare", MODEL, "-f", MODEL, "-c", "2"], "scores none"),
        (["run", "--check", "1"], "allowed are 2 to 512"),
        (["run", "--check", "513"], "allowed are"),
        (["quantize", MODEL, scratch("out")], "missing: TYPE; usage: hearth quantize IN OUT TYPE"),
        (["quantize"], "missing: IN OUT TYPE; usage:"),
        (["--versio"], "--version is the nearest"),
        (["quantize", MODEL, scratch("out"), "q9_9"], "q9_9"),
        (["bench", "-p", "0", "-n", "0"], "nothing to do"),
        (["bench", "-p", "1,,2"], "numbers with commas"),
        (["bench", "-p", ",".join(["1"] * 17)], "more than 16"),
        (["bench", "--repeat", "0"], "allowed are"),
        (["bench", "--parallel", "0"], "allowed are"),
        (["bench", "--limits", MODEL], "takes no model"),
        (["bench", "--limits", "-p", "8"], "no use for --prompt"),
        (["bench", "--limits", "-f", MODEL], "no use for --file"),
        (["doctor", MODEL, MODEL], "too many"),
    ]:
        bad(2, word, *args)


@case
def numbers_are_read_strictly():
    for value in ["", "NaN", "1e999", "0x10", "1x", "-2", "+1", " 1", "1 ", "1.5", "18446744073709551616", "8G"]:
        bad(2, "--predict", "run", "-n", value)
        bad(2, "--predict", "run", "--predict=" + value)
    for value in ["", "NaN", "inf", "1e999", "0x10", "1x", " 1", "1,5", "-"]:
        bad(2, "--temperature", "run", "--temperature", value)
    for value in ["", "=", "1", "1=", "=1", "1=NaN", "1=1e999", "x=1", "-1=1", "1=2x", "4294967296=1", "9999=1"]:
        bad(2, "", "run", "-n", "1", "--logit-bias", value)


# What people type, and the option that it is: both together are the same option twice.
SPELLINGS = {
    "temperature": [["--temp", "0"], ["--temp=0"], ["--temperature=0.7"], ["--tempe", "1"]],
    "top-k": [["--top-k", "3"], ["--top-k=3"]],
    "top-p": [["--top-p", "0.5"], ["--top-p=0.5"]],
    "min-p": [["--min-p", "0.2"], ["--min=0.2"]],
    "typical": [["--typical-p", "0.5"], ["--typ=0.5"]],
    "seed": [["--see", "7"], ["--seed=7"], ["--seed", "-1"], ["-s", "7"]],
    "predict": [["-n", "4"], ["-n4"], ["-n=4"], ["-n", "-1"], ["--n-predict", "4"], ["--n-pred", "4"]],
    "ctx": [["-c", "64"], ["-c64"], ["--ctx-size", "64"], ["--ctx-size=64"], ["--context", "64"]],
    "batch": [["-b", "2"], ["--batch-size", "2"], ["--batch=2"]],
    "threads": [["-t", "1"], ["-t1"], ["--threads=1"]],
    "gpu-layers": [["-ngl", "0"], ["-ngl=0"], ["-ngl", "-1"], ["--n-gpu-layers", "0"], ["--gpu-l", "1"]],
    "gpu": [["-dev", "none"], ["--device", "none"], ["--gpu=none"]],
    "model": [["-m", MODEL], ["--model", MODEL], ["--model=" + MODEL], ["-m" + MODEL]],
    "prompt": [["-p", "a"], ["-pa"], ["--prom=a"]],
    "file": [["-f", "a"], ["--file=a"]],
    "special": [["-sp"], ["--spec"]],
    "no-echo": [["--no-display-prompt"], ["--no-e"]],
    "quiet": [["-q"], ["--qui"]],
}


@case
def options_are_taken_as_people_type_them():
    def story(*words):
        return good("run", "-p", "Once", *words).stdout

    values = {"special": [], "no-echo": [], "quiet": [], "gpu": ["none"], "model": [MODEL]}
    for name, typed in SPELLINGS.items():
        for words in typed:
            bad(2, f"--{name} is given twice", "run", *words, "--" + name, *values.get(name, ["1"]))
    for typed, meant in [(["--temp", "0"], ["--greedy"]), (["--top-k=1"], ["--greedy"]), (["-n4"], ["--predict", "4"]),
                         (["-c64", "-n", "-1"], ["--ctx", "64"]), (["-r", "time"], ["--stop", "time"])]:
        check(story(*typed) == story(*meant) != story(), typed, meant)
    stable = good("--man").stdout.decode().replace("\\-", "-").split(".SH STABILITY")[1].split(".B run\n")[1].split(".TP")[0]
    for spelling in ("-n --predict --n-predict", "-c --ctx --ctx-size --context", "--temperature --temp", "--top-k", "--top-p",
                     "--min-p", "--seed", "-t --threads", "--gpu-layers -ngl --n-gpu-layers"):
        check(spelling + ",\n" in stable or stable.endswith(spelling + "\n"), spelling, stable)
    other = scratch("other.gguf", tiny_model())  # -m is obeyed: another model has another name
    check("other.gguf (llama, " in good("run", "-m", other, "-n", "1", "-p", "a").stderr.decode(), "-m")
    check(good("inspect", "-m", other).stdout == good("inspect", other).stdout, "inspect -m")
    check("; 1 thread" not in good("run", "-n", "1", "-p", "a", "-t", "2").stderr.decode(), "-t 2")
    for words in (["-ngl", "0"], ["--n-gpu-layers=0"], ["-dev", "none"]):
        check("on the CPU" in good("run", "-n", "1", "-p", "a", *words).stderr.decode(), words)
    check("kv f32" in good("run", "-n", "1", "-p", "a", "--kv", "F32").stderr.decode(), "--kv F32")
    check(len({story("--seed", str(i), "-n", "20") for i in range(3)}) == 3, "seeds")
    to_the_end = story("-n", "-1")
    check(to_the_end == story() and len(to_the_end) > 200, to_the_end)


@case
def gpu_layers_sets_the_number_of_layers():
    def shown(*words):
        return good("run", MODEL, "--gpu", "null", "-n", "1", "-p", "a", *words).stderr.decode()

    check("2 of 6 layers on " in shown("-ngl", "2"), shown("-ngl", "2"))
    for most in ("99", "all", "ALL", "auto", "-1"):
        check("6 of 6 layers and the head on " in shown("-ngl", most), shown("-ngl", most))
    for most, is_asked in [("2", True), ("all", True), ("auto", False), ("-1", False)]:
        without = good("run", MODEL, "--gpu", "none", "-ngl", most, "-n", "1").stderr.decode()
        check(("no GPU is in use: no layers go there" in without) == is_asked, most, without)


@case
def what_was_meant_is_named():
    bad(2, "--top may be --top-k or --top-p", "run", "--top", "5")
    bad(2, "--top-k is the nearest", "run", "--tpo-k", "5")
    bad(2, "--temperature is the nearest", "run", "--temperatur0", "5")
    for typed, near in [("--tempp", "--temp"), ("--ctxsize", "--ctx-size"), ("--ngl", "-ngl"), ("--topk", "--top-k"),
                        ("--n-gpu-layer s", "--n-gpu-layers"), ("--promt", "--prompt")]:
        bad(2, f"{typed}: no such option; {near} is the nearest;", "run", typed, "5")
    bad(2, "--xyzzy: no such option; see hearth run --help", "run", "--xyzzy", "5")
    bad(2, "-y: no such option; see hearth run --help", "run", "-y", "5")
    bad(2, "run is the nearest", "rnu")
    bad(2, "perplexity is the nearest", "perplexty")
    bad(2, "hearth run " + MODEL + " runs it", MODEL)
    bad(2, "is no command; see hearth --help", "xyzzy")
    for typed, near in [("ls", "list"), ("show", "inspect"), ("remove", "rm"), ("version", "--version")]:
        bad(2, f"{near} is the nearest", typed)
    bad(2, "no server yet", "serve")
    bad(2, "name of the model is empty", "run", "", "-p", "x")
    for typed in ("-prompt=Once", "-predict=5", "-file", "-min-p"):
        bad(2, f"{typed.split('=')[0]}: no such option; --{typed.split('=')[0][1:]} is the nearest", "run", typed, "5")
    check(good("run", "-help").stdout == good("run", "--help").stdout, "-help")
    bad(2, "X is too large", "run", "-n", "1", "--logit-bias", "300=1e39")
    bad(2, "-m: options stand behind a command: hearth run -m", "-m", MODEL)
    bad(2, "-i: to talk with a model: hearth chat", "-i")
    for typed, word in [("-fa", "leave it out"), ("--flash-attn", "leave it out"), ("-i", "hearth chat"),
                        ("--interactive", "hearth chat"), ("-hf", "hearth pull"), ("--mlock", "leave it out"),
                        ("-ctk", "--kv")]:
        check(word in bad(2, typed + ": ", "run", typed, "on"), typed)
    for command, typed, word in [("chat", "-i", "leave it out"), ("chat", "-cnv", "leave it out"), ("chat", "-p", "hearth run"),
                              ("chat", "-st", "one turn"), ("run", "-sys", "hearth chat"), ("run", "-nkvo", "-ngl 0"),
                              ("chat", "-mli", "/multi"), ("run", "--override-kv", "from the file"),
                              ("quantize", "--allow-requantize", "hearth pack --type")]:
        check(word in bad(2, typed + ": ", command, typed, "on"), command, typed)
    bad(2, "-nope: no such option", "run", "-nope")
    bad(2, "--predict 'ope'", "run", "-n=ope")
    bad(2, "--logit-bias 9999=1: the vocabulary has the ids 0 to 2047", "run", "-n", "1", "--logit-bias", "9999=1")
    bad(2, "are both given", "inspect", "-m", MODEL, MODEL)
    bad(2, "--model needs a value", "inspect", "-m")
    bad(2, "--stats takes no value", "run", "--stats=1")


@case
def seeds_are_random_and_printed():
    def seed_of(*words):
        line = subprocess.run([HEARTH, "run", "-n", "1", "-p", "a", *words], capture_output=True, check=True).stderr
        found = re.search(rb"; seed (\d+)\n", line)
        return int(found.group(1)) if found else None

    drawn = [seed_of(), seed_of(), seed_of("--seed", "-1")]
    check(None not in drawn and len(set(drawn)) == 3, drawn)
    check(seed_of("--seed", "12") == 12 and seed_of("--greedy") is None and seed_of("--temp", "0") is None, "given")
    args = [HEARTH, "run", "-n", "12", "-p", "Once", "--json"]
    first = json.loads(subprocess.run(args, capture_output=True, check=True).stdout)
    again = json.loads(subprocess.run([*args, "--seed", str(first["seed"])], capture_output=True, check=True).stdout)
    check(first["ids"] == again["ids"], first, again)


@case
def a_pipe_is_the_prompt():
    told = good("run", "-n", "5", "-p", "Lily went").stdout
    check(good("run", "-n", "5", stdin=b"Lily went\n").stdout == told, "a pipe")
    check(good("run", "-n", "5", "-", stdin=b"Lily went\n").stdout == told, "-")
    check(good("run", "-n", "5", "-f", scratch("prompt", b"Lily went\r\n")).stdout == told, "\\r\\n")
    check(good("run", "-n", "5", stdin=b"\xef\xbb\xbfLily went").stdout == told, "a mark of UTF-8")
    check(good("run", "-n", "5", "-p", "Lily went", stdin=b"Tom\n").stdout == told, "-p counts")
    two = json.loads(good("run", "-n", "1", "--json", stdin=b"A\r\n\r\nB\n\n").stdout)["prompt"]
    check(two == "A\n\nB\n", two)
    check(good("run", "-n", "5", stdin=b"").stdout == good("run", "-n", "5", stdin=b"\n").stdout, "nothing")
    for text in ["Lily".encode("utf-16"), "Lily".encode("utf-16-le"), "Lily".encode("utf-16-be")]:
        check("iconv" in bad(1, "UTF-16", "run", "-n", "1", stdin=text), text)
        check("iconv" in bad(1, "UTF-16", "perplexity", MODEL, "-f", scratch("text", text)), text)


@case
def notes_are_for_those_who_want_them():
    done = good("run", "-n", "5", "-p", "Lily")
    lines = done.stderr.decode().splitlines()
    check(len(lines) == 2 and "; selector " in lines[0] and "generated 5 in " in lines[1], lines)
    check(good("run", "-n", "5", "-p", "Lily", "-q").stderr == b"", "-q")
    check(good("run", "-n", "5", "-p", "Lily", "--quiet").stdout == done.stdout, "--quiet")
    check(b"context of 4 tokens is full" not in good("run", "-c", "4", "-p", "Lily", "-q").stderr, "a note")
    asked = good("run", "-n", "5", "-p", "Lily", "-q", "--check", "4", "--stats").stderr
    check(b"is exact" in asked and b"live neurons by layer" in asked and b"; selector " not in asked, asked)
    check(b"warning: " in good("run", "-c", "9999", "-n", "1", "-p", "Lily", "-q").stderr, "warnings stay")
    ids = scratch("ids", b"1 2 3")
    text = scratch("few", b"Once upon a time there was a dog. " * 30)
    for args in (["logits", MODEL, "--ids", ids, "-o", scratch("out.f32")], ["perplexity", MODEL, "-f", text, "-c", "32"]):
        check("on the CPU" in good(*args).stderr.decode(), args)
    named = scratch("evil\x1b[31mname.gguf", model_bytes())
    for args in (["run", named, "-n", "1", "-p", "a"], ["inspect", named], ["bench", named, "-p", "0", "-n", "1"]):
        done = good(*args)
        check(b"\x1b" not in done.stdout + done.stderr, args, done.stdout[:300], done.stderr)


@case
def only_files_of_hearth_are_replaced():
    f16 = scratch("f16.gguf", tiny_model())
    for args in (["quantize", f16, "OUT", "q8_0"], ["synth", "stories-15m", "OUT"], ["pack", MODEL, "-o", "OUT"]):
        for content in (b"a letter", f16):
            there = scratch("there.gguf", content if isinstance(content, bytes) else open(content, "rb").read())
            words = [there if w == "OUT" else w for w in args]
            before = open(there, "rb").read()
            check("--force" in bad(2, there, *words) and open(there, "rb").read() == before, args)
            good(*words, "--force")
            good(*words)  # its own
            scratch("there.gguf", b"")
            good(*words)  # nothing is lost
    profile, model, page, table, thresholds, placement = (
        scratch(name) for name in ("profile", "model", "page", "table", "thresholds", "placement"))
    words, ids = scratch("words", b"Once upon a time there was a dog. " * 40), scratch("ids", b"1 2 3")
    study = ["study", MODEL, "-f", words, "--scored", "0", "--trained", "0", "--chunks", "1", "-c", "32"]
    good("profile", MODEL, "-f", words, "-c", "32", "-o", profile)
    good("synth", "stories-15m", model)
    good(*study, "-o", page, "--csv", table)
    find = ["thresholds", f16, "-f", words, "-c", "32", "-o"]
    plan = ["plan", MODEL, "--gpu", "sim:" + scratch("quick.sim", QUICK_CARD.encode()), "-c", "256", "-o"]
    good(*find, thresholds), good(*plan, placement)
    writers = {profile: ["profile", MODEL, "-f", words, "-c", "32", "-o"], model: ["synth", "stories-15m"], page: [*study, "-o"],
               table: [*study, "--csv"], thresholds: find, placement: plan, scratch("logits"): ["logits", MODEL, "--ids", ids, "-o"]}
    for there in [profile, model, page, table, thresholds, placement, scratch("note", b"on layer,measure,x,value\n")]:  # a file of another kind stays
        before = open(there, "rb").read()
        for own, args in writers.items():
            if own != there:
                check("--force" in bad(2, "exists", *args, there) and open(there, "rb").read() == before, args, there)
    trained = scratch("trained", model_bytes())  # with keys of Hearth's, but made by training
    for args in (writers[model], ["quantize", f16, trained, "q8_0"][:2]):
        bad(2, "--force", *args, trained, *(["q8_0"] if args[0] == "quantize" else []))
    good("quantize", f16, scratch("quantised"), "q8_0")
    bad(2, "is not a model of hearth synth; --force", "synth", "stories-15m", scratch("quantised"))
    for own, args in writers.items():
        good(*args, own)
        if args[0] == "logits":
            bad(2, "logits exists; --force replaces it", *args, own)
        good(*args, own, "--force")
    foreign = scratch("out.gguf.part", b"of another program")
    good("quantize", f16, scratch("out.gguf"), "q8_0")
    check(open(foreign, "rb").read() == b"of another program", "a foreign part")


@case
def outputs_keep_the_permissions_of_what_they_replace():
    out = scratch("out.gguf")
    good("synth", "stories-15m", out)
    os.chmod(out, 0o640)
    good("synth", "stories-15m", out)
    check(os.stat(out).st_mode & 0o7777 == 0o640, oct(os.stat(out).st_mode))
    os.chmod(out, 0o440)
    if os.geteuid() != 0:  # who may write to it all the same
        bad(1, "out.gguf: cannot replace: Permission denied", "synth", "stories-15m", out)
    bad(1, "cannot write it as .hearth-part first: File name too long", "synth", "stories-15m", scratch("n" * 250))


@case
def a_signal_that_is_ignored_stays_ignored():
    def ignoring():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    words = scratch("words", b"Once upon a time there was a dog. " * 4000)
    p = subprocess.Popen([HEARTH, "perplexity", MODEL, "-f", words], preexec_fn=ignoring, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while b"selector" not in p.stderr.readline():
        pass
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=TIMEOUT)
    check(p.returncode == 0 and b"perplexity" in out, p.returncode, out)


@case
def standard_input_of_a_terminal_ends_once():
    leader, follower = os.openpty()
    p = subprocess.Popen([HEARTH, "tokenize", MODEL], stdin=follower, stdout=subprocess.PIPE)
    os.close(follower)
    os.write(leader, b"Once\n\x04")
    check(p.wait(TIMEOUT) == 0 and p.stdout.read().split(), "no ids")
    os.close(leader)


@case
def links_to_outputs_stay_links():
    os.mkdir(scratch("folder"))
    for target in ("there.gguf", "new.gguf", os.path.join("folder", "deep.gguf"), scratch("absolute.gguf")):
        if target == "there.gguf":
            good("synth", "stories-15m", scratch(target))
        os.symlink(target, scratch("link"))
        os.symlink("link", scratch("link-to-link"))
        good("synth", "stories-15m", scratch("link-to-link"))
        check(os.readlink(scratch("link")) == target and os.readlink(scratch("link-to-link")) == "link", target)
        check(os.path.getsize(os.path.join(SCRATCH, target)) > 1000, target)
        os.remove(scratch("link")), os.remove(scratch("link-to-link"))
    os.symlink("loop", scratch("loop"))
    bad(1, "loop: cannot follow the link", "synth", "stories-15m", scratch("loop"))
    os.symlink("missing/file", scratch("lost"))
    bad(1, "lost: cannot follow the link: No such file", "synth", "stories-15m", scratch("lost"))


@case
def what_a_usage_error_quotes_stays_on_one_line():
    bad(2, "\\x0a", "run", "--a\nb")
    bad(2, "\\x1b[31m", "\x1b[31mrun")
    bad(1, "\\x0a", "inspect", scratch("no\nfile"))


# ---- files ---------------------------------------------------------------------------------------


@case
def files_that_are_no_models_are_refused():
    whole = model_bytes()
    os.mkfifo(scratch("fifo"))
    files = [
        ("missing", None, "No such file"),
        ("empty", b"", "too short"),
        ("three", b"GGU", "too short"),
        ("magic", b"GGML" + whole[4:4096], ""),
        ("html", b"<!DOCTYPE html>" * 9, ""),
        ("version-1", whole[:4] + struct.pack("<I", 1) + whole[8:4096], "version"),
        ("version-4", whole[:4] + struct.pack("<I", 4) + whole[8:4096], "version"),
        ("big-endian", whole[:4] + struct.pack(">I", 3) + whole[8:4096], "big-endian"),
    ]
    for name, content, word in files:
        path = scratch(name, content)
        for args in verbs_on(path):
            start = time.monotonic()
            line = bad(1, word, *args)
            check(name in line, args, "does not name the file:", line)
            check(time.monotonic() - start < 20, args, "took too long")
    for path, word in [(SCRATCH, "folder"), (scratch("fifo"), "regular"), ("/dev/zero", "regular")]:
        for args in verbs_on(path):
            check(path in bad(1, word, *args), args, "does not name the file")


def verbs_on(path):
    """Every command on a model file."""
    ids, text = scratch("ids", b"1 2 3"), scratch("text", b"text " * 99)
    return [
        ["run", path, "-n", "1"],
        ["tokenize", path, "-p", "a"],
        ["detokenize", path, "--ids", ids],
        ["inspect", path],
        ["logits", path, "--ids", ids, "-o", scratch("out.f32")],
        ["perplexity", path, "-f", text],
        ["compare", path, "-f", text],
        ["compare", MODEL, "--against", path, "-f", text],
        ["profile", path, "-f", text, "-o", scratch("out.profile")],
        ["study", path, "-f", text, "-o", scratch("out.html")],
        ["quantize", path, scratch("out.gguf"), "q8_0"],
        ["bench", path, "-n", "1", "-p", "0", "--repeat", "1"],
        ["doctor", path],
    ]


@case
def truncated_files_are_refused_with_the_offset():
    whole = model_bytes()
    for size in [1, 8, 23, 24, 100, 5000, 40000, 60000, len(whole) // 2, len(whole) - 4096]:
        for args in [["run", scratch("cut", whole[:size]), "-n", "1"], ["inspect", scratch("cut")]]:
            line = bad(1, "cut", *args)
            check(re.search(r"\d", line), line)
    check(not os.path.exists(scratch("out.gguf")), "output left behind")


@case
def what_is_not_supported_is_named():
    whole = model_bytes()
    key = b"general.architecture" + struct.pack("<IQ", 8, 5)
    check(whole.count(key + b"llama") == 1, "the test's own model has changed")
    path = scratch("other", whole.replace(key + b"llama", key + b"klama", 1))
    line = bad(1, "'klama'", "run", path, "-n", "1")
    check("supported: llama" in line, line)
    check(b"Cannot be run" in good("inspect", path).stdout, "inspect")
    check(json.loads(good("inspect", path, "--json").stdout)["run"]["possible"] is False, "inspect --json")
    name = b"blk.0.attn_q.weight" + struct.pack("<I", 2)
    at = whole.index(name) + len(name) + 16
    check(whole[at] == 8, "not a Q8_0 tensor")
    path = scratch("type", whole[:at] + struct.pack("<I", 42) + whole[at + 4:])  # Q2_0: smaller, so it fits
    line = bad(1, "Q2_0", "run", path, "-n", "1")
    check("blk.0.attn_q.weight" in line and "Q4_0" in line, line)


@case
def ids_need_no_tokenizer():
    whole, ids = model_bytes(), scratch("ids", b"1 2 3")
    good("logits", MODEL, "--ids", ids, "-o", scratch("expected"))
    expected = open(scratch("expected"), "rb").read()
    at = whole.index(b"tokenizer.ggml.model") + len(b"tokenizer.ggml.model") + 4 + 8
    odd = {"no keys": whole.replace(b"tokenizer.ggml", b"other_text.num"),
           "unknown kind": whole[:at] + b"xxxxx" + whole[at + 5:],
           "no scores": whole.replace(b"tokenizer.ggml.scores", b"tokenizer.ggml.things")}
    for what, content in odd.items():
        path = scratch("odd.gguf", content)
        check(content != whole and len(content) == len(whole), what)
        good("logits", path, "--ids", ids, "-o", scratch("out"), "--force")
        check(open(scratch("out"), "rb").read() == expected, what, "other logits")
        check(b"generate 2 " in good("bench", path, "-p", "2", "-n", "2", "--repeat", "1", "-t", "1").stdout, what)
        check("tokenizer      none: " in good("inspect", path).stdout.decode(), what)
        bad(1, "tokenizer", "run", path, "-n", "1", "-p", "a")


@case
def ids_are_read_strictly():
    for content in [b"-1", b"2048", b"1e3", b"1.0", b"0x1", b"1\x00 2", b"1;2", b"99999999999999999999", b"\xff"]:
        path = scratch("ids", content)
        line = bad(1, "no decimal number below 2048", "logits", MODEL, "--ids", path, "-o", scratch("out.f32"))
        check(path in line and "byte 0" in line, line)
        bad(1, "no decimal number", "detokenize", MODEL, "--ids", path)
    bad(1, "no ids", "logits", MODEL, "--ids", scratch("ids", b" \n"), "-o", scratch("out.f32"))
    bad(1, "context full", "logits", MODEL, "--ids", scratch("ids", b"1 " * 513), "-o", scratch("out.f32"))
    check(not os.path.exists(scratch("out.f32")), "output left behind")
    check(good("detokenize", MODEL, "--ids", scratch("ids", b"")).stdout == b"", "no ids are no text")
    told = good("detokenize", MODEL, "--ids", scratch("ids", b"300 301\n302")).stdout
    check(good("detokenize", MODEL, "--ids", scratch("ids", b"[300, 301,302]\n")).stdout == told, "a list with commas")


def data(path):
    """Of the repository, or made by tests/data/make.py."""
    found = [p for p in (os.path.join(SOURCE, folder, path) for folder in ("tests/data", "build/data")) if os.path.exists(p)]
    check(found, f"no {path} in tests/data or build/data; python3 tests/data/make.py build/data makes the latter")
    return found[0]


@case
def byte_level_vocabularies_tokenize_and_come_back():
    path = data("tokenizers/gpt-2.gguf")
    with open(data("tokenizers/gpt-2.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f][:300:20]
    for line in lines:
        text = base64.b64decode(line["b64"])
        ids = good("tokenize", path, "-f", scratch("t", text)).stdout
        check(ids.split() == [str(i).encode() for i in line["ids"]], ids)
        check(good("detokenize", path, stdin=ids).stdout == text, text)
    pieces = good("tokenize", path, "-p", " \u1234", "--pieces").stdout
    check(pieces == b"32\t \n225\t\\xe1\n136\t\\x88\n180\t\\xb4\n", pieces)
    check(b"words cut as \"gpt-2\" by PCRE2 10." in good("inspect", path).stdout, "inspect")
    shown = json.loads(good("inspect", path, "--json").stdout)["tokenizer"]
    check(shown["kind"] == "gpt2" and shown["tokens"] == 3266 and "Unicode" in shown["engine"], shown)
    lossy = good("tokenize", data("tokenizers/starcoder.gguf"), "-f", scratch("t", b"a\xffb"))
    check(b"1 bytes are not in the vocabulary" in lossy.stderr, lossy.stderr)


# ---- output that cannot be written -------------------------------------------------------------------


@case
def lost_output_is_an_error():
    ids = scratch("ids", b"1 2 3")
    commands = [
        ["run", "-n", "4", "-p", "Once"],
        ["run", "-n", "4", "--json"],
        ["tokenize", MODEL, "-p", "Once"],
        ["detokenize", MODEL, "--ids", ids],
        ["inspect", MODEL],
        ["inspect", MODEL, "--json"],
        ["--help"],
        ["run", "--help"],
        ["--man"],
    ]
    for args in commands:
        with open("/dev/full", "wb") as full:
            done = hearth(*args, stdout=full)
        lost = b"hearth: stdout: No space left on device"
        check(done.returncode == 1 and lost in done.stderr, args, done.returncode, done.stderr)
        done = hearth(*args, stdout=None, preexec_fn=lambda: os.close(1))
        lost = b"hearth: stdout: Bad file descriptor"
        check(done.returncode == 1 and lost in done.stderr, args, done.returncode, done.stderr)


@case
def names_of_files_cannot_drive_a_terminal():
    odd = scratch("a\x1b]0;b\x07\x9bc.gguf", model_bytes())  # U+009B: CSI as one character, C2 9B in UTF-8
    few = scratch("few", open(os.path.join(SOURCE, "docs", "study.md"), "rb").read()[:2000])
    text, none = ["-f", few, "-c", "64"], ["--gpu", "none"]
    no_use = scratch("\x9b\x1b.gguf", tiny_model(more=[(b"extra", (8,))]))
    for args in [["inspect", odd], ["inspect", no_use], ["run", no_use, *none], ["doctor", odd, *none], ["bench", odd, "-p", "1", "-n", "1", "--repeat", "1", *none],
                 ["run", odd, "-n", "1", "-v", *none], ["perplexity", odd, *text, *none],
                 ["list", "--paths"], ["chat", odd, *none], ["plan", odd, "--gpu", "null"],
                 ["pull", odd], ["rm", odd], ["profile", odd, *text, "-o", scratch("p\x1b.profile")]]:
        done = hearth(*args, stdin=b"/help\n/save " + odd.encode() + b"\n/load " + odd.encode() + b"x\n")
        shown = done.stdout + done.stderr
        check(done.returncode in (0, 1) and shown, args, done)
        check(not any(control in shown for control in (b"\x1b", b"\x07", b"\xc2\x9b")), args, done)


@case
def a_closed_pipe_ends_the_run():
    process = subprocess.Popen([HEARTH, "run", "--ignore-eos", "-p", "Once"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    check(process.wait(TIMEOUT) == 128 + signal.SIGPIPE and b"hearth: stdout: " not in stderr, process.returncode, stderr)
    chat = f"yes hello | head -20 | {HEARTH} chat --template chatml -n 3 -q | head -1; echo ${{PIPESTATUS[2]}}"
    check(subprocess.run(["bash", "-c", chat], capture_output=True).stdout.endswith(b"\n141\n"), "chat")


@case
def full_disk_leaves_no_file():
    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

    f16 = scratch("f16.gguf", tiny_model())
    ids = scratch("ids", b"1 2 3 " * 50)
    for args in [["logits", MODEL, "--ids", ids, "-o", scratch("out")], ["quantize", f16, scratch("out"), "f32"]]:
        line = bad(1, "out", *args, preexec_fn=small_files)
        check("large" in line or "space" in line, line)
        check(not os.path.exists(scratch("out")) and not os.path.exists(scratch("out.hearth-part")), "output left behind")
    for path in ["/dev/full", SCRATCH, scratch("no/folder")]:
        check(path in bad(1, "", "logits", MODEL, "--ids", ids, "-o", path), path)
        check(path in bad(1, "", "quantize", f16, path, "f32"), path)
    check(os.path.exists("/dev/full"), "a device was removed")


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


@case
def tensors_that_are_not_used_are_refused_unless_allowed():
    path, packed = scratch("unused.gguf", tiny_model(more=[(b"blk.0.attn_gate.weight", (256, 256))])), scratch("unused.packed")
    for args in [("run", path, "-n", "1", "-p", "a"), ("plan", path, "--gpu", "null"), ("doctor", path, "--gpu", "none"),
                 ("pack", path, "-o", packed)]:
        line = bad(1, "unused.gguf: tensor 'blk.0.attn_gate.weight' (info at byte ", *args)
        check("--allow-unused" in line, line)
        done = good(*args, "--allow-unused")
        check(b"1 of 12 tensors are not used by architecture llama" in done.stderr, args, done.stderr)


# ---- run -------------------------------------------------------------------------------------------


def story(*args, **more):
    return good("run", "--greedy", *args, **more).stdout


@case
def prompts_come_from_anywhere():
    expected = story("-n", "12", "-p", "Once upon a time")
    check(expected.startswith(b"Once upon a time, there was"), expected)
    path = scratch("prompt", b"Once upon a time")
    for args, stdin in [(["-f", path], b""), (["-"], b"Once upon a time"), (["-f", "-"], b"Once upon a time"),
                        ([MODEL, "-"], b"Once upon a time"), ([MODEL, "-p", "Once upon a time"], b"")]:
        check(story("-n", "12", *args, stdin=stdin) == expected, args)
    check(story("-n", "12", "-p", "Once upon a time", "--no-echo") == expected[len("Once upon a time"):], "--no-echo")
    check(story("-n", "0", "-p", "Once upon a time") == b"Once upon a time\n", "-n 0")
    check(len(story("-n", "5")) > 5, "without a prompt the model begins by itself")
    bad(1, "prompt is empty", "run", scratch("no-bos", tiny_model(without_bos=True)))
    bad(1, "the prompt is empty", "run", "-f", scratch("empty-prompt", b""))
    bad(1, "No such file", "run", "-f", scratch("missing"))
    bad(1, "folder", "run", "-f", SCRATCH)


@case
def long_prompts_and_full_contexts_say_so():
    prompt = "one two three four five six seven eight nine"
    bad(1, "the prompt has 16 tokens, and the context has 8", "run", "-c", "8", "-n", "1", "-p", prompt, "--no-echo")
    key = b"llama.context_length" + struct.pack("<I", 4)
    long = scratch("long.gguf", model_bytes().replace(key + struct.pack("<I", 512), key + struct.pack("<I", 20000)))
    for words, n_ctx in [([], 4096), (["-c", "0"], 20000), (["-c", "9"], 9)]:
        check(f'"n_ctx": {n_ctx}'.encode() in good("inspect", long, "--json", *words).stdout, words)
    full = json.loads(good("run", long, "-c", "0", "-n", "5000", "--ignore-eos", "--json", "--gpu", "none").stdout)
    check(full["end"] == "length" and len(full["ids"]) == 5000, full["end"])
    done = good("run", "--greedy", "-c", "16", "-p", "Once upon a time", "--ignore-eos")
    check(b"context of 16 tokens is full; -c takes more" in done.stderr, done.stderr)
    result = json.loads(story("-c", "16", "-p", "Once upon a time", "--json"))
    check(result["end"] == "context full" and len(result["prompt_ids"]) + len(result["ids"]) == 17, result)


@case
def stop_texts_end_the_text_before_them():
    whole = story("-n", "40", "-p", "Once upon a time").decode()
    for stop in [" little", "Lily", "She loved", ", there", "ily. Sh", "ys and e", "s"]:
        for args in [["--stop", stop], ["--stop", "not there at all", "--stop", stop]]:
            text = story("-n", "40", "-p", "Once upon a time", *args).decode()
            expected = whole[: whole.index(stop, len("Once upon a time"))] if stop in whole[16:] else None
            check(expected is not None, stop, "is not in", whole)
            check(text == expected + "\n", stop, repr(text), repr(expected))
            result = json.loads(story("-n", "40", "-p", "Once upon a time", "--json", *args))
            check(result["end"] == "stop text" and result["prompt"] + result["text"] == expected, result)
    check("upon" in story("-n", "2", "-p", "Once upon a time", "--stop", "upon").decode(), "a stop text in the prompt")


@case
def json_is_the_same_generation():
    result = json.loads(story("-n", "30", "-p", "Lily and", "--json"))
    text = story("-n", "30", "-p", "Lily and").decode()
    check(result["prompt"] + result["text"] + "\n" == text, result, text)
    ids = " ".join(map(str, result["prompt_ids"] + result["ids"])).encode()
    check(good("detokenize", MODEL, stdin=ids).stdout.decode() + "\n" == text, "ids")
    check(len(result["ids"]) == 30 and result["end"] == "length", result)
    check(good("tokenize", MODEL, "-p", "Lily and").stdout.split() == [b"%d" % i for i in result["prompt_ids"]], "ids")
    live = json.loads(story("-n", "3", "--json", "--stats"))["live_share"]
    check(len(live) == 6 and all(0 < x < 0.5 for x in live), live)


@case
def one_seed_gives_one_text():
    def ids(*args):
        return json.loads(good("run", "-n", "40", "-p", "The dog", "--json", *args).stdout)["ids"]

    first = ids("--seed", "7")
    for args in [["-t", "1"], ["-t", "2"], ["-t", "3"], ["-t", "2", "--no-pin"], ["--batch", "1"], ["--mmap"],
                 ["-c", "100"]]:
        check(ids("--seed", "7", *args) == first, args)
    check(ids("--seed", "8") != first, "another seed gives another text")
    check(ids("--seed", "18446744073709551614"), "the largest seed")
    for level in ["generic", "avx2", "avx512", "neon", "dotprod", "i8mm"]:
        done = hearth("run", "-n", "40", "-p", "The dog", "--json", "--seed", "7", env={"HEARTH_CPU": level})
        if done.returncode == 0:
            check(json.loads(done.stdout)["ids"] == first, level)
        else:
            check(b"this machine has" in done.stderr, level, done.stderr)


@case
def escapes_are_made_visible():
    escape = str(3 + 0x1B)
    args = ["-n", "3", "-p", "a", "--logit-bias", escape + "=1000"]
    check(story(*args) == b"a" + b"\\x1b" * 3 + b"\n", story(*args))
    check(story(*args, "--raw") == b"a" + b"\x1b" * 3 + b"\n", "--raw")
    check(json.loads(story(*args, "--json"))["text"] == "\x1b" * 3, "--json")
    check(story("-n", "0", "-p", "a\x1b]0;b\x07\x9b") .find(b"\x1b") < 0, "prompts too")


@case
def bans_and_biases_count():
    first = json.loads(story("-n", "1", "-p", "Once", "--json"))["ids"][0]
    banned = json.loads(story("-n", "1", "-p", "Once", "--json", "--logit-bias", "%d=-inf" % first))["ids"][0]
    check(banned != first, "the banned token came")
    check(json.loads(story("-n", "1", "--json", "--logit-bias", "300=1000"))["ids"] == [300], "bias")


@case
def stats_and_start_line_say_what_runs():
    done = good("run", "-n", "3", "-p", "a", "--stats", "-t", "2", "--kv", "f32")
    for word in [b"selector gate: its activation gives zeros", b"2 threads", b"kv f32", b"generated 3 in", b"live neurons by layer"]:
        check(word in done.stderr, word, done.stderr)
    done = good("run", "-n", "3", "-p", "a", "--kv", "q8_0")
    check(b"KV cache q8_0: approximate" in done.stderr, done.stderr)


@case
def a_device_is_named_and_no_share_is_made_up():
    done = good("run", "-n", "3", "-p", "a", "--stats", "--gpu", "null")
    check(b"6 of 6 layers and the head on null" in done.stderr and b"generated 3 in" in done.stderr, done.stderr)
    check(b"beside the CPU (" in done.stderr and b"the rest" not in done.stderr, done.stderr)
    check(b"live neurons" not in done.stderr, done.stderr)
    done = good("run", "-n", "3", "-p", "a", "--stats", "--gpu", "null", "--json")
    check("live_share" not in json.loads(done.stdout), done.stdout)


# A card that costs nothing takes all of a model.
QUICK_CARD = ("name = quick\nvram_bytes = 1G\nbandwidth = 1e14\npcie_up = 1e12\npcie_down = 1e12\npcie_latency_us = 0\n"
              "dispatch_us = 0\nsubmit_us = 0\nwake_us = 0\nflops = 1e15\njitter = 0\nseed = 1\nclock = virtual\n")


@case
def a_plan_shows_the_placement_and_is_applied():
    card = "sim:" + scratch("quick.sim", QUICK_CARD.encode())
    placement = scratch("placement.gguf")
    shown = json.loads(good("plan", MODEL, "--gpu", card, "-c", "256", "-o", placement, "--json").stdout)
    check(shown["simulated"] is True and shown["is_card"] is False and shown["head"] is True, shown)
    check(len(shown["neurons"]) == 6 and 0 < shown["vram_bytes"] <= shown["budget_bytes"], shown)
    check(shown["tokens_per_second"] > shown["tokens_per_second_cpu"] > 0, shown)
    text = good("plan", MODEL, "--gpu", card, "-c", "256", "--what-if").stdout.decode()
    check("simulated quick" in text and "All of it fits there" in text and "MiB there" in text, text)
    check("hearth pack" not in text and "neurons 0 bytes" not in text and "whole layers 4." in text, text)
    # In steps of the model's size, up to all of it.
    steps = json.loads(good("plan", MODEL, "--gpu", card, "-c", "256", "--what-if", "--json").stdout)["what_if"]
    sizes, rates = [s["vram_bytes"] for s in steps], [s["tokens_per_second"] for s in steps]
    check(4 <= len(steps) <= 16 and sizes == [(i + 1) << 20 for i in range(len(steps))], steps)
    check(sizes[-2] < shown["vram_bytes"] + (1 << 20) < sizes[-1] + (1 << 21), steps, shown)
    check(rates == sorted(rates) and rates[0] < rates[-1] == shown["tokens_per_second"], steps, shown)
    done = good("run", MODEL, "--gpu", card, "--placement", placement, "-c", "256", "-n", "3", "-p", "a", "--stats")
    check(b"6 of 6 layers and the head on simulated quick" in done.stderr, done.stderr)
    check(b"the plan expects" in done.stderr, done.stderr)
    check(done.stdout == good("run", MODEL, "--gpu", "none", "-n", "3", "-p", "a").stdout, done.stdout)
    wrong = bad(1, "simulated quick", "run", MODEL, "--gpu", "null", "--placement", placement, "-n", "1", "-p", "a")
    check("hearth plan" in wrong, wrong)
    for auto in [[], ["--gpu", "auto"]]:
        bad(1, "no card", "plan", MODEL, *auto, env=NO_DRIVER)
    bad(2, "hearth bench measures its speed", "plan", MODEL, "--gpu", "none")
    with open(placement, "rb") as f:
        strange = scratch("strange.gguf", f.read().replace(b"simulated quick", b"\x9b31mlated quick"))
    line = bad(1, "strange.gguf was made for \\x9b31mlated quick (", "run", MODEL, "--gpu", card, "--placement", strange)
    check("not for simulated quick (" in line, line)
    unused = good("run", MODEL, "--gpu", "none", "--placement", placement, "-n", "1", "-p", "a").stderr
    check(b"placement.gguf is not used: no GPU is in use" in unused, unused)
    check(shown["tokens_per_second_least"] <= shown["tokens_per_second"] <= shown["tokens_per_second_most"], shown)
    check(shown["fits_ram"] is True and shown["host_bytes"] < 1e8, shown)
    text = good("plan", MODEL, "--gpu", card, "-c", "256", "--vram", "60M", "--ram", "1K").stdout.decode()
    check("They do not fit" in text, text)


@case
def a_plan_for_the_free_memory_of_a_small_gpu_fits():
    card = "sim:" + scratch("small.sim", QUICK_CARD.replace("vram_bytes = 1G", "vram_bytes = 260M").encode())
    placement, args = scratch("small.gguf"), ["-c", "64", "--batch", "8"]
    shown = json.loads(good("plan", MODEL, "--gpu", card, *args, "-o", placement, "--json").stdout)
    check(0 < len(shown["neurons"]) < 6 and shown["budget_bytes"] == 4 << 20 and shown["fits"] is True, shown)
    check("Whole layers only" in good("plan", MODEL, "--gpu", card, *args).stdout.decode(), "a part of it")
    line = bad(1, "small.gguf: it takes ", "run", MODEL, "--gpu", card, "--placement", placement, *args, "--vram", "2M")
    check(", and --vram allows 2.00 MiB: make it again with hearth plan, or give the -c and --batch" in line, line)
    for how in [placement, "plan", "even"]:
        done = good("run", MODEL, "--gpu", card, "--placement", how, *args, "-n", "3", "-p", "a")
        check(b"layers on simulated quick" in done.stderr, how, done.stderr)
        check(done.stdout == good("run", MODEL, "--gpu", "none", "-n", "3", "-p", "a").stdout, how, done.stdout)


@case
def a_plan_without_a_profile_says_what_it_assumes():
    card, packed = "sim:" + scratch("card.sim", QUICK_CARD.encode() + b"host_bandwidth = 1e9\n"), scratch("packed.gguf")
    good("pack", MODEL, "-o", packed)
    args = ["plan", packed, "--gpu", card, "--vram", "4M", "-c", "64", "--batch", "8"]
    check(b"Nothing is known of who fires: 25 % of the neurons" in good(*args).stdout, good(*args))
    check(b"Nothing is known" not in good(*args, "--selector", "dense").stdout, "of dense all is known")
    rates = [json.loads(good(*args, "--json", *more).stdout)["tokens_per_second_cpu"] for more in [[], ["--selector", "dense"]]]
    check(1.2 < rates[0] / rates[1] < 2.5, rates)


@case
def impossible_vram_is_refused_and_more_than_the_gpu_has_is_reported():
    args = ["run", MODEL, "-c", "64", "--batch", "8", "-n", "3", "-p", "a"]
    card = "sim:" + scratch("quick.sim", QUICK_CARD.encode())
    bad(2, "--vram 0: allowed are 1 to 9e+18", *args, "--gpu", card, "--vram", "0")
    for wrong in ["-5", "99999999999G", "9X", "1e", "", "G", "nan"]:
        bad(2, "bytes are wanted: 4096, 500M, 7.5G, or auto", *args, "--gpu", card, "--vram=" + wrong)
    for little in ["1", "4096", "0.001K"]:
        line = bad(1, "hold no layer of this model: the least is --vram", *args, "--gpu", card, "--vram", little)
    # The advice is an option that works as it stands.
    least, whole = re.search(r"the least is --vram (\S+), all of it takes (\S+); a smaller -c or --batch takes less$", line).groups()
    check(b"the rest on the CPU" in good(*args, "--gpu", card, "--vram", least).stderr, least)
    check(b"6 of 6 layers and the head" in good(*args, "--gpu", card, "--vram", whole.lower()).stderr, whole)
    # A plan names the same.
    plan = ["plan", MODEL, "--gpu", card, "--vram", "4096", "-c", "64", "--batch", "8"]
    placed = scratch("none.gguf")
    done = hearth(*plan, "-o", placed)
    check(done.returncode == 1 and not os.path.exists(placed), "a placement of nothing", done)
    check(b"no layer fits there: the least is --vram %s; a smaller -c" % least.encode() in done.stderr, done.stderr)
    check("the least is --vram %s;" % least in good(*plan).stdout.decode(), least)
    planned = good("plan", MODEL, "--gpu", card, "--vram", least, "-c", "64", "--batch", "8").stdout
    check(b"No layer fits" not in planned and b"GPU us" in planned, planned)
    shown = json.loads(good(*plan, "--json").stdout)
    check(shown["fits"] is False and 4096 < shown["least_bytes"] < 1e7, shown)
    for option in ["--gpu-strict", "--placement=x"]:
        bad(2, "no such option; see hearth plan --help", *plan, option)
    done = good(*args, "--gpu", card, "--vram", "8000T")
    check(b"simulated quick has 768.00 MiB free, less than the 8000.00 TiB that --vram allows" in done.stderr, done.stderr)
    check(done.stdout == good(*args, "--gpu", "none").stdout, done.stdout)


@case
def a_gpu_too_small_for_any_model_reports_its_free_memory():
    card = "sim:" + scratch("tiny.sim", QUICK_CARD.replace("vram_bytes = 1G", "vram_bytes = 200M").encode())
    for vram in [[], ["--vram", "100M"]]:
        line = bad(1, "no layer of it fits on simulated quick: the least is ", "run", MODEL, "--gpu", card, *vram)
        check("of its 200.00 MiB 0 bytes are free" in line and "--gpu none" in line and "--vram" not in line, line)
    text = good("plan", MODEL, "--gpu", card).stdout.decode()
    check("0 bytes are free" in text and "No layer fits there: the least is " in text, text)
    check("no model has room there" in findings("--device", card)[1]["gpu"]["fix"], "doctor")


# Where Vulkan's loader finds no driver, whatever the machine has.
NO_DRIVER = {"VK_ICD_FILENAMES": "/nowhere", "VK_DRIVER_FILES": "/nowhere"}


@case
def unknown_devices_and_placements_have_different_messages():
    args = ["run", MODEL, "-n", "1", "-p", "a"]
    bad(1, "the name of a device is empty: auto, none, or a name", *args, "--gpu", "")
    bad(1, "sim: names no file: sim:FILE takes", *args, "--gpu", "sim:")
    bad(1, "nothing: there is no such device; known are null", *args, "--gpu", "nothing")
    dashed = "01234567-89ab-cdef-0123-456789abcdef"
    without = bad(1, "", *args, "--gpu", dashed.replace("-", ""), env=NO_DRIVER)
    for other in [dashed, dashed.upper(), dashed.replace("-", "").upper()]:
        line = bad(1, "", *args, "--gpu", other, env=NO_DRIVER).lower().replace(dashed, dashed.replace("-", ""))
        check(line == without.lower(), line, without)
    text = good("devices", env=NO_DRIVER).stdout.decode()
    check("no GPU: " in text, text)
    if "no driver was found" not in text:  # a build, or a machine, without Vulkan
        check("this build has no Vulkan" in text or "no Vulkan loader" in text, text)
    for device in [["--gpu", "null"], []]:
        for name, why in [("nonsense", "No such file"), (".", "it is a folder"), ("", "No such file")]:
            line = bad(1, "neither plan, even nor layers:N, nor a file that can be read (" + why, *args, *device,
                       "--placement", name, env=NO_DRIVER)
            check("%s: no such placement: " % (name or "''") in line and "model" not in line, line)


@case
def json_shows_the_placement_of_a_model():
    args = [MODEL, "-c", "64", "--batch", "8", "-n", "2", "-p", "a", "--json"]
    alone = json.loads(good("run", *args, "--gpu", "none").stdout)
    check(alone["gpu"] == {"layers": 0, "layers_in_all": 6, "cpu_bits": True}, alone)
    check(alone["decode_tokens_per_second"] > 0 and alone["prompt_tokens_per_second"] > 0, alone)
    gpu = json.loads(good("run", *args, "--gpu", "null", "--vram", "3M").stdout)["gpu"]
    check(gpu["device"] == "null" and 0 < gpu["layers"] < 6 and gpu["head"] is False and gpu["neurons"] == 1, gpu)
    check(gpu["cpu_bits"] is True and gpu["simulated"] is False and 0 < gpu["bytes"] <= 3 << 20, gpu)
    card = "sim:" + scratch("quick.sim", QUICK_CARD.encode())
    placed = scratch("placed.gguf")
    wants = good("plan", MODEL, "--gpu", card, "-c", "64", "--batch", "8", "-o", placed, "--json").stdout
    gpu = json.loads(good("run", *args, "--gpu", card, "--placement", placed).stdout)["gpu"]
    check(abs(gpu["predicted_tokens_per_second"] / json.loads(wants)["tokens_per_second"] - 1) < 1e-4, gpu, wants)
    check(gpu["simulated"] is True and gpu["layers"] == 6 and gpu["head"] is True, gpu)
    text = scratch("text", b"Once upon a time there was a dog. " * 20)
    shown = json.loads(good("perplexity", MODEL, "-f", text, "-c", "32", "--gpu", "null", "--json").stdout)
    check(shown["gpu"]["device"] == "null" and shown["gpu"]["layers"] == 6, shown)
    floats = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
    gpu = json.loads(good("run", floats, *args[1:], "--gpu", "null").stdout)["gpu"]
    check(gpu["cpu_bits"] is False and gpu["cpu_bits_note"].endswith(" is F32"), gpu)


@case
def the_divided_plan_of_the_documentation_is_what_it_shows():
    with open(os.path.join(SOURCE, "docs", "gpu.md"), encoding="utf-8") as f:
        part = f.read().split("\n## A divided model, without a card\n")[1].split("\n## ")[0]
    lines = [l[4:] for l in part.split("\n") if l.startswith("    ")]
    commands = [l for l in lines if l.startswith(("hearth ", "for "))]
    check(len(commands) == 5, commands)
    for folder in ["models", "bench"]:
        os.symlink(os.path.join(SOURCE, folder), scratch(folder))
    path = os.path.dirname(os.path.abspath(HEARTH)) + os.pathsep + os.environ["PATH"]
    done = subprocess.run(["sh", "-ec", "\n".join(commands)], cwd=SCRATCH, env=dict(os.environ, PATH=path),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT)
    text = done.stdout.decode()
    check(done.returncode == 0, text)
    shown = [l for l in lines if l and l not in commands]
    check(len(shown) > 6 and "neurons there" in part, shown)
    for line in shown:  # an ellipsis stands for what differs between machines
        for piece in line.split("…"):
            check(piece.strip() in text, "the documentation shows", repr(piece), "but", text)


@case
def a_simulated_gpu_with_a_host_has_its_own_clock():
    text = QUICK_CARD.replace("bandwidth = 1e14", "bandwidth = 1e9").encode()
    args = ["-c", "64", "--batch", "8", "--vram", "9M", "-n", "5", "-p", "a"]
    for lines, own in [(b"host_bandwidth = 1e9\n", True), (b"", False)]:
        card = "sim:" + scratch("timed.sim", text + lines)
        shown = [json.loads(good("run", MODEL, "--gpu", card, *args, "--json").stdout) for _ in range(2)]
        check(all(s["simulated"] is True and s.get("simulated_seconds", False) is own for s in shown), shown)
        for seconds in ["prompt_seconds", "decode_seconds"]:
            check(not own or 0 < shown[0][seconds] == shown[1][seconds] < 1, shown)
        stats = good("run", MODEL, "--gpu", card, *args, "--stats").stderr
        check((b"simulated quick, by its clock: prompt" in stats) is own and b"simulated quick" in stats, stats)
    # A described host is not measured: every machine makes the same plan.
    card = "sim:" + scratch("timed.sim", text + b"host_bandwidth = 1e9\n")
    plans = [json.loads(good("plan", MODEL, "--gpu", card, "--json", env=env).stdout) for env in [{"HEARTH_CPU": "generic"}, {}]]
    check(plans[0]["calibration"] == plans[1]["calibration"] and plans[0]["neurons"] == plans[1]["neurons"], plans)
    check(plans[0]["calibration"]["staged_bytes_per_second"] == 1e9, plans)
    check(plans[0]["calibration"]["measured_bytes"] > 1000, plans)
    done = good("plan", MODEL, "--gpu", card)
    check(b"measuring" not in done.stderr, done.stderr)


@case
def a_plan_and_a_run_that_makes_one_expect_the_same():
    card = "sim:" + os.path.join(SOURCE, "bench", "devices", "story.sim")
    args = [MODEL, "--gpu", card, "--vram", "4M", "-c", "256", "--batch", "32", "--json"]
    plan = json.loads(good("plan", *args).stdout)
    shown = json.loads(good("run", *args, "--placement", "plan", "-n", "1", "-p", "a").stdout)
    check(shown["gpu"]["predicted_tokens_per_second"] == plan["tokens_per_second"], shown, plan)


@case
def a_warning_and_figures_begin_lines_of_their_own():
    with open(os.path.join(SOURCE, "bench", "devices", "8gb.sim"), "rb") as f:
        card = "sim:" + scratch("lost.sim", f.read() + b"fault = 110:device\n")
    args = ["run", MODEL, "--gpu", card, "-n", "20", "-p", "Once", "--stats"]
    lines = good(*args, stderr=subprocess.STDOUT).stdout.decode().split("\n")
    check(any(l.startswith("hearth: warning: ") and "it goes on on the CPU" in l for l in lines), lines)
    check(any("prompt 2 tokens" in l and l.startswith("hearth: ") for l in lines), lines)
    apart = good(*args)  # the text alone has no line more
    check(apart.stdout.count(b"\n") == 1 and b"it goes on on the CPU" in apart.stderr, apart)


def on_terminal(*args):
    """All that a run writes to a terminal of 80 columns."""
    outer, inner = cases.open_terminal()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = b""
    with subprocess.Popen([HEARTH, *args], stdin=subprocess.DEVNULL, stdout=inner, stderr=inner) as process:
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


@case
def lines_of_a_check_stand_behind_the_text():
    args = ["run", "--greedy", "-n", "20", "-p", "Once upon a time", "--check", "16", "--gpu", "none"]
    text = good(*args).stdout
    for shown in [good(*args, stderr=subprocess.STDOUT).stdout, on_terminal(*args).replace(b"\r\n", b"\n")]:
        lines = shown[shown.index(text) + len(text):].split(b"\n")
        notes = [l for l in lines if l.startswith(b"hearth: ")]
        check(b"check of 16 tokens" in notes[-1] and len(notes) == len([l for l in lines if l]), shown)
        check(shown.count(b"hearth: ") == len(re.findall(rb"(?m)^(?:\r *\r)?hearth: ", shown)), shown)


@case
def progress_stands_before_the_text_and_leaves_its_line_to_warnings():
    def card(submit_us, lines=""):
        text = QUICK_CARD.replace("submit_us = 0", f"submit_us = {submit_us}").replace("clock = virtual", "clock = real")
        return "sim:" + scratch("slow.sim", (text + lines).encode())

    args = ["run", MODEL, "-c", "64", "-n", "1", "-p"]
    done = on_terminal(*args, "Once upon a time there", "--batch", "2", "--gpu", card(800000))
    check(b"prompt [" in done, done)
    check(re.search(rb"\r +\r *Once upon a time there", done), done)
    # Opening takes some 95 calls and a token two, one more or less where a wait was short: about the 33rd of 43 is
    # lost, and progress is shown after two seconds, from about the 20th on.
    done = on_terminal(*args, "a b " * 20, "--batch", "1", "--gpu", card(100000, "fault = 160:device\n"))
    check(re.search(rb"prompt \[.*\r +\rhearth: warning: .* it goes on on the CPU\r\n", done), done)


@case
def a_closed_stream_is_not_reused_for_a_file():
    for args in [["run", MODEL, "-"], ["run", MODEL, "-f", "-"], ["chat", MODEL, "--template", "chatml"]]:
        done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", HEARTH, *args, "-n", "1"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=TIMEOUT)
        check(done.returncode == 1 and b"Bad file descriptor" in done.stderr and not done.stdout, args, done)
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", HEARTH, "run", MODEL, "-n", "1"], stderr=subprocess.PIPE,
                          timeout=TIMEOUT)
    check(done.returncode == 1 and b"stdout: " in done.stderr, done)


@case
def a_context_beyond_what_was_trained_for_is_said():
    done = good("run", MODEL, "-c", "1000", "-n", "1", "-p", "a", "--gpu", "none")
    check(done.stderr.count(b"warning: -c takes 1000 positions, but ") == 1 and b"trained for 512" in done.stderr, done)
    check(b"warning" not in good("run", MODEL, "-n", "1", "-p", "a", "--gpu", "none").stderr, "by itself")


# ---- signals -------------------------------------------------------------------------------------------


@case
def interrupt_ends_a_run_with_what_was_generated():
    for number in [signal.SIGINT, signal.SIGTERM]:
        # Unbuffered: what a buffer has read beyond the 30 bytes, communicate would not see.
        process = subprocess.Popen([HEARTH, "run", "--ignore-eos", "--greedy", "-p", "Once upon a time", "-t", "1"],
                                   bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begin = process.stdout.read(30)
        process.send_signal(number)
        rest, stderr = process.communicate(timeout=TIMEOUT)
        check(process.returncode == 128 + number, process.returncode, stderr)
        text = begin + rest
        check(text.endswith(b"\n") and story("-p", "Once upon a time", "--ignore-eos").startswith(text[:-1]), text)


@case
def interrupts_end_a_chunk_and_a_prompt():
    text = scratch("long.txt", b"Once upon a time there was a little girl. " * 4000)
    model = scratch("slow.gguf", tiny_model(n_layer=16))
    for args in [["perplexity", model, "-f", text, "-c", "16000", "-t", "1"],
                 ["compare", model, "--against", model, "-f", text, "-c", "16000", "-t", "1"],
                 ["bench", model, "-p", "16000", "-c", "16000", "--repeat", "1", "-t", "1"]]:
        for wait in [1, 4, 16, 64]:  # until the model is read, however slow the machine is
            process = subprocess.Popen([HEARTH, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(wait)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=TIMEOUT)
            if b"loading was cancelled" not in err:
                break
        check(process.returncode == 143 and b"interrupted" in err, args, process.returncode, out, err)


@case
def a_hangup_that_is_ignored_stays_ignored():
    process = subprocess.Popen([HEARTH, "run", "-n", "40", "-p", "Once", "-t", "1", "--seed", "0"], stdout=subprocess.PIPE, bufsize=0,
                               stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    begin = process.stdout.read(1)
    process.send_signal(signal.SIGHUP)
    rest, _ = process.communicate(timeout=TIMEOUT)
    check(begin + rest == good("run", "-n", "40", "-p", "Once").stdout, begin, rest)


@case
def interrupt_during_quantize_leaves_no_file():
    path = scratch("large.gguf", tiny_model(n_layer=120))
    process = subprocess.Popen([HEARTH, "quantize", path, scratch("out.gguf"), "q4_0", "-t", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not os.path.exists(scratch("out.gguf.hearth-part")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=TIMEOUT)
    check(process.returncode == 130 and b"hearth: interrupted; nothing was written" in stderr, process.returncode, stderr)
    check(not os.path.exists(scratch("out.gguf")) and not os.path.exists(scratch("out.gguf.hearth-part")), "a file is left")


# ---- the other commands -----------------------------------------------------------------------------------


@case
def every_command_that_runs_takes_the_common_options():
    common = ["-t", "2", "-c", "64", "--kv", "f32", "--mmap", "--batch", "7"]
    text = scratch("text", b"Once upon a time there was a dog. " * 20)
    ids = scratch("ids", b"1 421 434 261 399")
    good("run", MODEL, "-n", "3", *common)
    good("logits", MODEL, "--ids", ids, "-o", scratch("a.f32"), *common)
    good("logits", MODEL, "--ids", ids, "-o", scratch("b.f32"), "-t", "1", "--kv", "f32", "--batch", "1")
    with open(scratch("a.f32"), "rb") as a, open(scratch("b.f32"), "rb") as b:
        bits = a.read()
        check(len(bits) == 5 * 2048 * 4 and bits == b.read(), "logits differ")
    check(re.match(rb"perplexity \d+\.\d{4} \+/- ", good("perplexity", MODEL, "-f", text, *common).stdout), "perplexity")
    done = good("perplexity", MODEL, "-f", "-", "--chunks", "1", "--json", *common, stdin=b"a dog " * 99)
    result = json.loads(done.stdout)
    check(result["windows_scored"] == 1 and result["tokens_scored"] == 31, result)
    bad(1, "a window needs", "perplexity", MODEL, "-f", scratch("ids"), *common)
    result = json.loads(good("bench", MODEL, "-p", "8", "-n", "2", "--repeat", "2", "--json", *common).stdout)
    check([len(t["tokens_per_second"]) for t in result["tests"]] == [2, 2], result)
    check(b"| generate 2 |" in good("bench", "-p", "0", "-n", "2", "--repeat", "1").stdout, "bench as a table")


@case
def compare_reports_the_quality_loss_of_a_mode():
    common = ["-t", "2", "-c", "64"]
    text = scratch("text", b"Once upon a time there was a dog. " * 30)
    done = good("compare", MODEL, "-f", text, *common)
    for words in [b"selector gate: ", b"ratio 1.00000 +/- 0.00000", b"same likeliest token: 100.00 %",
                  b"logits: identical, all bits of all positions", b"| all |"]:
        check(words in done.stdout + done.stderr, words, done.stdout, done.stderr)
    result = json.loads(good("compare", MODEL, "-f", text, "--json", "--chunks", "2", *common).stdout)
    check(result["identical"] and result["windows_scored"] == 2 and result["positions_scored"] == 62, result)
    check(len(result["layers"]) == 6 and all(l["recall"] == 1 and l["cett"] == 0 for l in result["layers"]), result)
    check(result["mode"]["selector"] == "gate" and result["reference"]["selector"] == "dense", result)
    alone = json.loads(good("perplexity", MODEL, "-f", text, "--json", "--chunks", "2", *common).stdout)
    check(result["mode"]["perplexity"] == alone["perplexity"] == result["reference"]["perplexity"], result, alone)
    check(result["mode"]["error"] == alone["error"], result, alone)

    # what approximates besides selectors: the cache, another file
    result = json.loads(good("compare", MODEL, "-f", text, "--json", "--kv", "q8_0", *common).stdout)
    check(not result["identical"] and 0 < result["kl_mean"] < result["kl_largest"] < 1, result)
    check(all(l["recall"] == 1 for l in result["layers"]), result)
    relu = ["compare", MODEL, "--activation", "relu", "--against", MODEL, "-f", text, "--json", *common]
    result = json.loads(good(*relu).stdout)
    check(result["kl_mean"] > 0 and "layers" not in result and result["top1_agreement"] < 1, result)
    check(result["reference"]["model"] == MODEL, result)

    tiny = scratch("tiny.gguf", tiny_model())
    check("there is nothing to compare" in bad(1, "runs dense", "compare", tiny, "-f", text, *common), "dense")
    bad(1, "there is nothing to compare", "compare", MODEL, "--selector", "dense", "-f", text, *common)
    bad(1, "no predictors", "compare", MODEL, "--selector", "predictor", "-f", text, *common)
    bad(1, "vocabulary", "compare", MODEL, "--against", tiny, "-f", text, *common)
    bad(1, "a window needs", "compare", MODEL, "-f", scratch("short", b"short"), *common)


@case
def a_run_is_checked_against_dense():
    def check_line(*args):
        done = good("run", "--greedy", "-n", "20", "-p", "Once upon a time", "--check", "16", *args)
        check(done.stdout == story("-n", "20", "-p", "Once upon a time", *args), "another text with --check")
        lines = [l for l in done.stderr.decode().split("\n") if "check" in l]
        check(len(lines) == 1, done.stderr)
        return lines[0]

    check("check of 16 tokens: selector gate is exact" in check_line(), check_line())
    check("selector dense is exact" in check_line("--selector", "dense"), "dense")
    check("check of 16 tokens: selector gate against dense" in check_line("--kv", "q8_0"), check_line("--kv", "q8_0"))
    done = good("run", "-n", "5", "-p", "Once", "--check", "9", "--json", "--stats")
    check(json.loads(done.stdout)["live_share"] and b"gate is exact" in done.stderr, done)
    check("check of 16 tokens: selector gate is exact" in check_line("--gpu", "null"), check_line("--gpu", "null"))
    rounded = check_line("--gpu", "null", "--kv", "q8_0")
    check("selector gate against dense" in rounded and "recall" not in rounded, rounded)
    done = good("run", "-n", "0", "-p", "Once upon a time there was a dog", "--check", "512")
    check(re.search(rb"check of \d+ tokens: selector gate is exact", done.stderr), done.stderr)


@case
def predictors_are_compared_and_checked():
    model = data("golden/powerinfer/llama-relu.f16.powerinfer.gguf")
    text = scratch("text", b"abc " * 60)
    result = json.loads(good("compare", model, "-f", text, "--json", "-c", "16").stdout)
    check(result["mode"]["selector"] == "predictor" and result["kl_mean"] > 0, result)
    layers = result["layers"]
    check(len(layers) == 2 and all(0.2 < l["recall"] < 0.8 and 0 < l["cett"] < l["cett_largest"] for l in layers), layers)
    check(result["all_layers"]["neurons"] == sum(l["neurons"] for l in layers), result)
    done = good("compare", model, "-f", text, "-c", "16")
    check(b"(approximate)" in done.stderr and b"CETT" in done.stdout, done.stdout, done.stderr)
    done = good("run", model, "--greedy", "-n", "20", "-p", "a", "--ignore-eos", "--check", "16", "-c", "64")
    check(re.search(rb"selector predictor against dense: same likeliest token .* recall \d", done.stderr), done.stderr)
    check(b"warning: the mode names another token" in done.stderr, done.stderr)
    done = good("run", model, "--gpu", "null", "--check", "8", "-n", "4", "-p", "abc", "-c", "64")
    check(b"selector predictor with the bits of null against dense" in done.stderr, done.stderr)
    done = good("run", model, "--gpu", "null", "--selector", "dense", "--check", "8", "-n", "4", "-p", "abc", "-c", "64")
    check(re.search(rb"selector dense (with the bits of null against|is exact: all logits are those of) dense", done.stderr), done.stderr)


def bench(*args, **more):
    return json.loads(good("bench", *args, "--repeat", "2", "--json", **more).stdout)


@measured
def bench_compares_prompts_with_the_peak_and_tokens_with_memory():
    prompt, tokens = bench(MODEL, "-p", "8", "-n", "2", "--selector", "dense")["tests"]
    level = bench(MODEL, "-p", "1", "-n", "0")["cpu"]
    # Multiply-adds of all matrices for eight tokens, of the head for one, two operations each.
    info = json.loads(good("inspect", MODEL, "--json").stdout)
    matrices = {t["name"]: t["dims"][0] * t["dims"][1] for t in info["tensors"] if len(t["dims"]) == 2}
    layers = sum(n for name, n in matrices.items() if name.startswith("blk."))
    head = matrices.get("output.weight", matrices["token_embd.weight"])
    check(prompt["int8_operations"] == 2 * (8 * layers + head) and prompt["fp32_operations"] == 0, prompt)
    check(len(prompt["limit_int8_operations_per_second"]) == 2, prompt)
    check(("share_of_peak" in prompt) == (level != "generic"), prompt)
    check("share_of_limit" in tokens and tokens["kv_bytes"] > 0, tokens)
    check(tokens["bytes_per_second"] > tokens["weight_bytes_per_second"] > 0, tokens)
    sparse = bench(MODEL, "-p", "0", "-n", "2")["tests"][0]  # of the bytes that are there not all are read
    check(not {"share_of_limit", "bytes_per_second", "weight_bytes_per_second"} & set(sparse), sparse)
    shown = good("bench", MODEL, "-p", "0", "-n", "2", "--repeat", "1").stdout.decode()
    check("| - | - | - |" in shown and "only --selector dense has a share" in shown, shown)
    deep = bench(MODEL, "-n", "2", "--depth", "300")["tests"]
    check(len(deep) == 1 and deep[0]["depth"] == 300 and deep[0]["kv_bytes"] > 100 * tokens["kv_bytes"], deep)


@measured
def bench_says_the_share_of_the_limit_in_words():
    def sentence(*words):
        text = good("bench", MODEL, "--repeat", "2", *words).stdout.decode()
        said = re.findall(r"^(.* at ([0-9.]+) of ([0-9.]+) (G\S+): (\d+) % of what this machine's .*\.)$", text, re.M)
        rows = re.findall(r"\| (prompt|generate)[^|]*\|[^|]*\| ([0-9.]+) (G\S+) \| ([0-9.]+) G\S+ \| (\d+) %", text)
        return said, [(used, limit, unit, share) for _, used, unit, limit, share in rows], text

    said, rows, text = sentence("-p", "8", "-n", "4", "--selector", "dense")
    check(len(said) == 1 and "Generation reads weights and cache at" in said[0][0], text)
    check(said[0][1:] == rows[-1] and "GB/s" in said[0], said, rows)
    said, rows, text = sentence("-n", "4", "--parallel", "1,2", "--selector", "dense")
    check(len(said) == 1 and said[0][1:] in rows, said, rows)
    check(int(said[0][4]) == max(int(r[3]) for r in rows), said, rows)
    said, rows, text = sentence("-p", "8", "-n", "0", "--selector", "dense")
    check([s[1:] for s in said] == rows and all("The prompt computes at" in s[0] for s in said), text)
    check(sentence("-n", "4", "-p", "0", "--selector", "gate")[0] == [], "weights that are not read are no share")


@case
def bench_takes_a_device_as_run_does():
    few = [MODEL, "-p", "4", "-n", "2", "-t", "1", "--repeat", "1"]
    known = bench(*few[:-2], "--parallel", "3", "--gpu", "none")
    check(known["gpu"] == {"layers": 0, "layers_in_all": 6, "cpu_bits": True} and "simulated" not in known, known)
    there = bench(*few[:-2], "--parallel", "3", "--gpu", "null")
    check(there["gpu"]["device"] == "null" and there["gpu"]["layers"] == 6 and there["gpu"]["cpu_bits"], there)
    check([t.get("logits_hashes") for t in there["tests"]] == [t.get("logits_hashes") for t in known["tests"]], there)
    check(not any("share_of_limit" in t or "share_of_peak" in t for t in there["tests"]), there)
    text = good("bench", *few, "--gpu", "null", "--vram", "3M", "--placement", "even").stdout.decode()
    check(re.search(r"[1-5] of 6 layers on null \(.*the rest on the CPU", text), text)
    check("The limits of a GPU are not measured" in text and "GOP/s | - | - |" in text, text)
    # A device is given room for what the tests take, not for what a run would.
    deep = bench(MODEL, "-n", "2", "--depth", "600", "--gpu", "null", "-t", "1")
    check(deep["gpu"]["layers"] == 6 and deep["tests"][0]["depth"] == 600, deep)
    card = scratch("quick.sim", QUICK_CARD.replace("bandwidth = 1e14", "bandwidth = 1e9\nhost_bandwidth = 1e9").encode())
    timed = [bench(*few[:-2], "--gpu", "sim:" + card) for _ in range(2)]
    rates = [[t["tokens_per_second"] for t in shown["tests"]] for shown in timed]
    check(timed[0]["simulated"] and timed[0]["simulated_seconds"] and rates[0] == rates[1], timed)
    check("those of its clock" in good("bench", *few, "--gpu", "sim:" + card).stdout.decode(), "its clock")
    for more, option in [(["--gpu", "null"], "--gpu"), (["--vram", "3M"], "--vram"), (["--placement", "even"], "--placement")]:
        for only in [["-f", MODEL], ["--fire", "share=0.1"]]:
            bad(2, "for the CPU alone: leave " + option, "bench", MODEL, "-p", "0", "-n", "2", *only, *more)
    bad(2, "no use for --gpu", "bench", "--limits", "--gpu", "null")
    bad(1, "nothing: there is no such device", "bench", MODEL, "--gpu", "nothing")


@measured
def bench_in_parallel_gives_each_sequence_its_own_logits():
    for more in [[], ["--depth", "40"], ["-t", "1", "--kv", "f32"]]:
        tests = bench(MODEL, "--parallel", "2,3,7", "-n", "5", *more)["tests"]
        check([t["sequences"] for t in tests] == [1, 2, 3, 7], tests)
        check(all(t["factor_against_one"] > 0 for t in tests), tests)
        hashes = tests[3]["logits_hashes"]
        check(len(set(hashes)) == 7, "sequences of different tokens are alike:", hashes)
        for t in tests:
            check(t["logits_hashes"] == hashes[:t["sequences"]], "company changed logits", t, hashes)
    table = good("bench", MODEL, "--parallel", "4", "-n", "2,3", "-p", "4", "--repeat", "1").stdout
    for row in [b"| prompt 4 |", b"| generate 2 x 1 |", b"| generate 3 x 4 |", b"against one"]:
        check(row in table, row, table)


@measured
def bench_prints_the_quality_loss_with_the_speed():
    few = ["-p", "4", "-n", "2", "-t", "1"]
    text = scratch("text", b"Once upon a time there was a dog. " * 200)
    table = good("bench", MODEL, "--kv", "q8_0", "--repeat", "1", *few).stdout
    check(b"| prompt 4, approximate |" in table and b"| generate 2, approximate |" in table, table)
    check(b"-f TEXT prints what that costs" in table and b"ratio" not in table, table)
    price = ["-f", text, "--chunks", "3", "-c", "128"]
    table = good("bench", MODEL, "--kv", "q8_0", "--repeat", "1", *few, *price).stdout
    check(b"(3 windows of 128)" in table and b"same likeliest token" in table, table)
    result = bench(MODEL, "--kv", "q8_0", *few, *price)
    check(all(t["approximate"] for t in result["tests"]), result)
    # The figures are those of hearth compare.
    known = json.loads(good("compare", MODEL, "--kv", "q8_0", "--json", *price).stdout)
    shown = result["price"]
    for key in ["ratio", "ratio_error", "kl_mean", "top1_agreement", "windows_scored", "positions_scored"]:
        check(shown[key] == known[key], key, shown, known)
    check(shown["perplexity"] == known["mode"]["perplexity"] and not shown["exact"] and shown["kl_mean"] > 0, shown)
    check(shown["recall"] == known["all_layers"]["recall"] and shown["cett"] == known["all_layers"]["cett"], shown)
    # Windows hold 2048 tokens where nothing else is asked for.
    shown = bench(MODEL, "--kv", "q8_0", *few, "-f", "-", stdin=b"Once there was a dog. " * 900)["price"]
    check(shown["n_ctx"] == 512 and shown["windows"] > shown["windows_scored"] == 4, shown)

    # what is exact has none: looked at where it skips, said where it is the reference
    table = good("bench", MODEL, "--repeat", "1", *few, *price).stdout
    check(b"| generate 2 |" in table and b"all logits are those of dense (189 positions)" in table, table)
    check(b"approximate" not in table, table)
    result = bench(MODEL, *few, *price)
    check(result["price"]["exact"] and not any(t["approximate"] for t in result["tests"]), result)
    result = bench(MODEL, "--selector", "dense", *few, *price)
    check(result["price"]["of_reference"] and "ratio" not in result["price"], result)
    check(b"Exact, without a price" in good("bench", MODEL, "--selector", "dense", "--repeat", "1", *few, *price).stdout,
          "dense")

    check(scratch("none") in bad(1, "No such file", "bench", MODEL, "-f", scratch("none")), "no text")
    check(scratch("short") in bad(1, "a window needs 512", "bench", MODEL, "-f", scratch("short", b"Once.")), "short")
    bad(2, "of which text", "bench", MODEL, "--chunks", "2")
    bad(2, "have no price", "bench", MODEL, "--fire", "share=0.1", "-f", text)


@case
def bench_reports_the_quality_loss_of_predictors():
    model = data("golden/powerinfer/llama-relu.f16.powerinfer.gguf")
    text = scratch("text", b"abc " * 60)
    shown = bench(model, "-p", "0", "-n", "2", "-f", text, "-c", "16")["price"]
    known = json.loads(good("compare", model, "-f", text, "--json", "-c", "16").stdout)
    check(shown["ratio"] == known["ratio"] and shown["windows_scored"] == known["windows"] == 11, shown, known)
    check(shown["recall"] == known["all_layers"]["recall"] < 0.5 < shown["cett"], shown)
    table = good("bench", model, "-p", "0", "-n", "2", "--repeat", "1").stdout
    check(b"Selector predictor" in table and b"| generate 2, approximate |" in table, table)


@measured
def bench_replays_a_profile():
    text, path = scratch("text", b"Once upon a time there was a dog. He liked to play. " * 60), scratch("story.profile")
    good("profile", MODEL, "-f", text, "-o", path, "-c", "64", "--samples", "100")
    run = [MODEL, "-n", "4", "-t", "1", "--fire"]
    result = bench(*run, f"profile={path}")
    shown = result["replayed_firing_lists"]
    check(shown["profile"] == path and shown["samples"] == 100 and not shown["largest_tenth"], shown)
    check(0 < shown["share"] < 0.5 and "drawn_firing_lists" not in result, result)
    other = bench(*run, f"profile={path},seed=2")["replayed_firing_lists"]
    check(other["first_sample"] != shown["first_sample"] < 100 and other["seed"] == 2, shown, other)
    table = good("bench", *run, f"profile={path}", "--repeat", "1").stdout.decode()
    check(f"replayed from {path}" in table and "drawn" not in table, table)
    drawn = good("bench", *run, "share=0.1", "--repeat", "1").stdout
    check(b"Firing lists drawn" in drawn and b"pproximate" not in drawn, drawn)
    # What approximates besides the lists says so, and has no price either.
    drawn = good("bench", *run, "share=0.1", "--kv", "q8_0", "--repeat", "1").stdout
    check(b"| generate 4, approximate |" in drawn and b"what that costs" not in drawn, drawn)
    approximate = [["--kv", "q8_0"]]
    refusal = hearth("run", "-n", "1", "-p", "a", "--bf16-dot").stderr
    if b"products of bf16 are wanted" not in refusal:  # of this CPU and level
        approximate.append(["--bf16-dot"])
    tests = [bench(*run, "share=0.1", *more)["tests"] for more in [[], *approximate]]
    check([t["approximate"] for (t,) in tests] == [False, True, True][:len(tests)], tests)

    for more in ["share=0.1", "run=8", "skew=1", "sticky=0.5"]:
        bad(2, "the profile says who fires", "bench", *run, f"profile={path},{more}")
    for wrong in ["profile=", "profile", "share=2", "run=8", "share=0.1,seed=x", "share=0.1,run=0", "nothing=1", ""]:
        bad(2, "bench --fire", "bench", *run, wrong)
    bad(1, "No such file", "bench", *run, f"profile={scratch('none')}")
    check("not 'hearth.profile'" in bad(1, MODEL, "bench", *run, f"profile={MODEL}"), "a model")
    good("profile", MODEL, "-f", text, "-o", scratch("bare"), "-c", "64", "--samples", "0")
    bad(1, "no co-activation samples", "bench", *run, f"profile={scratch('bare')}")
    bad(1, "a selector that skips", "bench", *run, f"profile={path}", "--selector", "dense")
    whole = model_bytes()
    moved = scratch("other.gguf", whole[:-1] + bytes([whole[-1] ^ 1]))  # one weight of another model
    bad(1, "the profile of another model", "bench", moved, *run[1:], f"profile={path}")
    relu = ["--activation", "relu"]
    bad(1, "profile it again", "bench", *run, f"profile={path}", *relu)


@case
def bench_reports_a_full_context_before_it_runs():
    start = time.monotonic()
    line = bad(1, "-c leaves room for 64", "bench", MODEL, "--depth", "100000", "-c", "64")
    check("100064 positions" in line and time.monotonic() - start < 20, line)
    line = bad(1, "-c 602 has room", "bench", "no.gguf", "--depth", "600", "-n", "2", "-c", "64")
    check("take 602 positions" in line and "room for 64" in line, "before a model is read:", line)
    done = good("bench", MODEL, "--depth", "600", "-n", "2", "--repeat", "1", "-t", "1")
    check(b"warning: the tests take 602 positions" in done.stderr and b"trained for 512" in done.stderr, done.stderr)
    check(b"warning" not in good("bench", MODEL, "--depth", "500", "-n", "2", "--repeat", "1").stderr, "500 of 512")


@measured
def limits_of_the_machine_are_measured_without_a_model():
    shown = bench("--limits", "-t", "2")
    check([l["threads"] for l in shown["limits"]] == [1, 2], shown)
    for l in shown["limits"]:
        check([m["loop"] for m in l["memory"]] == ["plain", "four streams", "prefetch"], l)
        best = max(m["bytes_per_second"]["median"] for m in l["memory"])
        check(l["bytes_per_second"] == best > 1e7, l)
        for kind in ["int8", "fp32"]:
            peaks = [p["operations_per_second"]["median"] for p in l["peaks"] if p["type"] == kind]
            check(l.get(kind + "_operations_per_second") == max(peaks, default=None), kind, l)
        check("fp32_operations_per_second" in l, l)
    for wait in ["latency_ns", "spinning_thread_ns", "sleeping_thread_ns", "empty_job_ns"]:
        check(0 < shown[wait]["min"] <= shown[wait]["median"] <= shown[wait]["max"], wait, shown)
    low = bench("--limits", "-t", "1", env={"HEARTH_CPU": "generic"})
    check(low["cpu"] == "generic" and len(low["limits"]) == 1 and len(low["limits"][0]["peaks"]) == 1, low)
    text = good("bench", "--limits", "-t", "1", "--repeat", "1").stdout
    check(b"GB/s" in text and b"GOP/s" in text and b"latency of memory" in text, text)


def findings(*args, status=0, **more):
    done = hearth("doctor", "--json", *args, **more)
    check(done.returncode == status, args, "exit", done.returncode, done.stderr)
    shown = json.loads(done.stdout)
    for c in shown["checks"]:
        check(("fix" in c) != c["ok"] and c["text"] and (c["ok"] or c["fix"]), c)
    return shown, {c["name"]: c for c in shown["checks"]}


@measured
def doctor_fits_a_screen_and_names_a_remedy():
    for args in [[], [MODEL], [MODEL, "--mmap", "-t", "1"]]:
        lines = good("doctor", *args).stdout.decode().split("\n")
        check(len(lines) <= 24, args, lines)
        check(all(l.startswith(("ok ", "better: ", " " * 20 + "-> ")) for l in lines[:-3]), lines)
    shown, by_name = findings(MODEL)
    check(list(by_name) == ["cpu", "cores", "load", "memory", "huge pages", "bandwidth", "limits", "gpu", "disk"],
          by_name)
    check(shown["model"]["fits"] and shown["model"]["weight_bytes"] > 5e6, shown)
    check(shown["machine"]["bytes_per_second_1"] > 1e7 and shown["machine"]["memory_bytes"] > 1e8, shown)
    shown, by_name = findings(env={"HEARTH_CPU": "generic"})
    check(shown["machine"]["level"] == "generic", shown)
    if shown["machine"]["machine_level"] != "generic":
        check("unset HEARTH_CPU" in by_name["cpu"]["fix"], by_name["cpu"])
    check("HEARTH_CPU" in bad(1, "no such level", "doctor", env={"HEARTH_CPU": "none"}), "a level that is none")
    first = sorted(os.sched_getaffinity(0))[0]
    shown, by_name = findings(preexec_fn=lambda: os.sched_setaffinity(0, [first]))
    check(shown["machine"]["usable_cpus"] == shown["machine"]["cores"] == shown["machine"]["threads"] == 1, shown)
    if shown["machine"]["online_cpus"] > 1:
        check("taskset" in by_name["cores"]["fix"], by_name["cores"])
    _, by_name = findings("--mmap", MODEL)
    check("--mmap" in by_name["huge pages"]["fix"], by_name)


@measured
def doctor_measures_a_gpu_once_and_again_when_asked():
    cache = scratch("cache")
    shown, by_name = findings("--device", "null", MODEL, env={"HEARTH_CACHE": cache})
    check(by_name["gpu"]["text"].startswith("null") and shown["gpu"]["is_card"] is False, shown)
    first = shown["gpu"]["calibrations"]
    check([c["type"] for c in first] == ["Q8_0"] and first[0]["queued_seconds"] > 0, first)
    check(findings("--device", "null", MODEL, env={"HEARTH_CACHE": cache})[0]["gpu"]["calibrations"] == first, "kept")
    again = findings("--device", "null", "--again", MODEL, env={"HEARTH_CACHE": cache})[0]["gpu"]["calibrations"]
    check(again != first, "measured again")
    kept = os.listdir(cache)
    check(len(kept) == 1 and kept[0].startswith("calibration-"), kept)
    with open(os.path.join(cache, kept[0]), "r+b") as f:
        f.truncate(100)
    shown, _ = findings("--gpu", "null", env={"HEARTH_CACHE": cache})
    check([c["type"] for c in shown["gpu"]["calibrations"]] == ["Q4_0", "Q8_0"], shown["gpu"])
    check(by_name["gpu"]["text"].startswith("null, memory without a limit"), by_name["gpu"])
    check("memory_bytes" not in shown["gpu"] and "free_bytes" not in shown["gpu"], shown["gpu"])
    of_both = os.path.getsize(os.path.join(cache, kept[0]))
    findings("--device", "null", "--again", MODEL, env={"HEARTH_CACHE": cache})
    check(os.path.getsize(os.path.join(cache, kept[0])) < of_both, "Q4_0 is to be measured again, too")


@case
def an_unusable_cache_is_reported_once():
    places = [(scratch("file", b"x"), 1), ("/proc/nope", 1), ("", 0)]
    for place, n in places:
        done = good("doctor", "--gpu", "null", MODEL, env={"HEARTH_CACHE": place})
        check(done.stderr.count(b"nothing is kept there for later runs") == n, place, done.stderr)
    done = good("doctor", "--gpu", "null", MODEL, env={"HEARTH_CACHE": "kept"}, cwd=SCRATCH)
    kept = [os.path.join("kept", name) for name in os.listdir(scratch("kept"))]
    check(not done.stderr.count(b"nothing is kept") and len(kept) == 1, done.stderr)
    os.remove(scratch(kept[0]))
    os.mkdir(scratch(kept[0]))
    done = good("doctor", "--gpu", "null", MODEL, env={"HEARTH_CACHE": "kept"}, cwd=SCRATCH)
    check(f"warning: {kept[0]}: Is a directory: nothing is kept there" in done.stderr.decode(), done.stderr)
    done = good("run", MODEL, "-n", "1", "-p", "a", env={"HEARTH_CACHE": "/proc/nope"})
    check(b"kept" not in done.stderr, "nothing wants to be kept", done.stderr)


@case
def an_interrupt_ends_doctor_at_once():
    process = subprocess.Popen([HEARTH, "doctor", "--gpu", "null"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT)
    check(process.returncode in [-signal.SIGINT, 130] and not stdout and not stderr, process.returncode, stdout, stderr)


@case
def doctor_reports_whatever_becomes_of_the_device():
    shown, by_name = findings("--device", "nothing", status=1)
    check(len(by_name) == 8 and "no such device" in by_name["gpu"]["text"] and not by_name["gpu"]["ok"], by_name)
    check("no such device" in shown["gpu"]["problem"], shown["gpu"])
    shown, by_name = findings("--device", "none")
    check(by_name["gpu"]["ok"] and "as asked for" in by_name["gpu"]["text"], by_name)
    auto = [findings(*args, env=NO_DRIVER)[1]["gpu"] for args in [[], ["--device", "auto"]]]
    check(auto[0] == auto[1] and auto[0]["ok"] and "the CPU does all of it" in auto[0]["text"], auto)


def doctor_sees_a_limit_of_address_space_and_a_busy_neighbour():
    limit = 1 << 32
    _, by_name = findings(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    check("ulimit -v" in by_name["limits"]["fix"], by_name["limits"])
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        shown, by_name = findings()
    finally:
        busy.kill()
        busy.wait()
    check(shown["machine"]["busy_cpus"] > 0.2 and "stop what is not needed" in by_name["load"]["fix"], shown)


with open(HEARTH, "rb") as program:
    if not re.search(rb"__[at]san_init", program.read()):  # a sanitizer takes more address space than that limit
        measured(doctor_sees_a_limit_of_address_space_and_a_busy_neighbour)


def profile(*args, **more):
    """The profile of a text, and its file."""
    out = scratch("out.profile")
    result = json.loads(good("profile", MODEL, "-o", out, "--json", *args, **more).stdout)
    with open(out, "rb") as f:
        content = f.read()
    os.remove(out)
    return result, content


@case
def profiles_count_active_neurons_and_are_not_models():
    text = scratch("text", b"Once upon a time there was a dog. He liked to play in the park. " * 60)
    result, content = profile("-f", text, "-c", "100", "--samples", "64", "-t", "1")
    check(result["tokens"] % 100 == 0 and result["tokens"] > 500 and result["samples"] == 64, result)
    check(result["activation"] == "drelu" and result["settings"] == "kv f16", result)
    check(len(result["layers"]) == 6 and result["tokens_of_an_earlier_run"] == 0, result)
    for layer in result["layers"]:
        check(layer["neurons"] == 768 and 0 < layer["live"] < 0.4 and layer["largest"] > 0, layer)
        check(0.1 < layer["hottest_10"] < layer["hottest_20"] <= 1, layer)
        rarer = "gate" if layer["gate_above_zero"] <= layer["up_above_zero"] else "up"
        check(layer["sparser"] == rarer, layer)
    with open(text, "rb") as f:
        again = profile("-f", "-", "-c", "100", "--samples", "64", "-t", "3", "--batch", "9", "--mmap", stdin=f.read())
    check(again[1] == content, "the file depends on threads, batch or reader")
    check(len(profile("-f", text, "-c", "100", "--samples", "0")[1]) < len(content) - 6 * 768 * 8, "no co-activation samples")
    out = scratch("table.profile")
    table = good("profile", MODEL, "-f", text, "-o", out, "-c", "100").stdout.decode()
    check(len(re.findall(r"^\| \d ", table, re.M)) == 6 and f"{out}: " in table, table)
    bad(1, "a profile, not a model", "run", out, "-n", "1")
    scratch("b.resume", model_bytes())
    bad(1, "not 'hearth.profile'", "profile", MODEL, "-f", text, "-o", scratch("b"), "-c", "100")


@case
def inspect_shows_which_selectors_a_file_supports():
    def shown(path):
        model = json.loads(good("inspect", path, "--json").stdout)["model"]
        return model["selectors"], model["auto_selector"], good("inspect", path).stdout.decode()

    selectors, auto, text = shown(MODEL)
    check(selectors == ["dense", "gate"] and auto == "gate", selectors, auto)
    check("runs with dense, gate; auto takes gate: its activation gives zeros" in text, text)
    check("predictor with a file of hearth predictors, threshold with a file of hearth thresholds" in text, text)
    selectors, auto, text = shown(scratch("tiny.gguf", tiny_model()))
    check(selectors == ["dense"] and auto == "dense" and "no exact zeros; runs with dense;" in text, text)
    check("threshold with a file" in text and "predictor" not in text, text)
    selectors, auto, text = shown(data("golden/powerinfer/llama-relu.f16.powerinfer.gguf"))
    check(selectors == ["dense", "gate", "predictor"] and auto == "predictor", selectors, auto)
    check("predictor (approximate); auto takes predictor: the file was made for it" in text, text)
    for path, names in [(MODEL, ["dense", "gate", "predictor", "threshold"])]:
        for name in names:  # what it says is what a run does
            done = hearth("run", path, "-n", "1", "-p", "a", "--selector", name)
            check((done.returncode == 0) == (name in shown(path)[0]), name, done.stderr)


@case
def inspect_shows_the_files_of_a_model():
    text = scratch("text", b"Once upon a time there was a dog. He liked to play in the park. " * 60)

    def shown(path):
        result = json.loads(good("inspect", path, "--json", "--all").stdout)
        check("model" not in result and result["sidecar"]["known"] and not result["run"]["possible"], result)
        plain = good("inspect", path).stdout.decode()
        check("Belongs to a model" in plain and "Cannot be run" not in plain and "tokenizer" not in plain, plain)
        return result["sidecar"], plain

    path = scratch("story.profile")
    profiled = json.loads(good("profile", MODEL, "-f", text, "-o", path, "-c", "64", "--samples", "40", "--json").stdout)
    s, plain = shown(path)
    check(s["kind"] == "profile" and s["version"] == 1 and s["model_hash"] == profiled["model_hash"], s)
    check(s["layers"] == 6 and s["neurons"] == [768] * 6 and s["activation"] == "drelu", s)
    check(s["tokens"] == profiled["tokens"] and s["samples"] == 40 and s["n_ctx"] == 64, s)
    check(re.search(r"I32 .* \(no weights\)\n", plain) and "not supported" not in plain, plain)
    check(f"{s['tokens']} tokens in windows of 64, 40 samples\n" in plain and s["model_hash"] in plain, plain)

    path = scratch("story.thresholds")
    good("thresholds", MODEL, "-f", text, "-o", path, "--sparsity", "0.9", "-c", "64")
    s, plain = shown(path)
    check(s["kind"] == "thresholds" and s["bytes"] == 6 * 768 * 4 and s["layers"] == 6, s)
    check(s["model_hash"] == profiled["model_hash"] and "run MODEL --thresholds" in plain, plain)
    check("these with --thresholds" in bad(1, "thresholds, not a model", "run", path, "-n", "1"), "run")

    # predictors of ranks 8 and 16, as far as the file says; and a kind that nobody knows
    def sidecar(kind, more=b"", n_more=0):
        def name(x):
            return struct.pack("<Q", len(x)) + x

        tensors, at, infos = [((64, 8), 2048), ((8, 32), 1024), ((64, 16), 4096), ((16, 32), 2048)], 0, b""
        names = [b"blk.0.fc1.weight", b"blk.0.fc2.weight", b"blk.1.fc1.weight", b"blk.1.fc2.weight"]
        for n, (dims, size) in zip(names, tensors):
            infos += name(n) + struct.pack("<IQQIQ", 2, *dims, 0, at)
            at += size
        keys = name(b"general.architecture") + struct.pack("<I", 8) + name(kind)
        keys += name(b"hearth.model.hash") + struct.pack("<IQ", 10, 0xfedcba9876543210)
        head = b"GGUF" + struct.pack("<IQQ", 3, 4, 2 + n_more) + keys + more + infos
        return head + bytes(-len(head) % 32) + bytes(at)

    key = b"hearth.predictor.threshold"
    more = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ2f", 9, 6, 2, -0.5, 0.25)
    s, plain = shown(scratch("p", sidecar(b"hearth.predictors", more, 1)))
    check("these with --predictors" in bad(1, "predictors, not a model", "run", scratch("p"), "-n", "1"), "run")
    check(s["ranks"] == [8, 16] and s["neurons"] == [32, 32] and s["thresholds"] == [-0.5, 0.25], s)
    check(s["bytes"] == 9216 and s["model_hash"] == "fedcba9876543210" and "version" not in s, s)
    check("8 to 16" in plain and "-0.5 to 0.25" in plain and "2 of 32 neurons" in plain, plain)
    s, plain = shown(scratch("p", sidecar(b"hearth.predictors")))
    check(s["thresholds"] == [] and "thresholds  " not in plain, s, plain)

    def text_pair(key, value):
        return struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value

    key = b"hearth.placement.hot"
    more = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ3I", 9, 4, 3, 64, 768, 0)
    key = b"hearth.placement.head"
    more += struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, 1) + text_pair(b"hearth.placement.handoff", b"queued")
    more += text_pair(b"hearth.placement.device", b"a card") + text_pair(b"hearth.placement.driver", b"its \x1bdriver")
    s, plain = shown(scratch("p", sidecar(b"hearth.placement", more, 5)))
    check("this with --placement" in bad(1, "a placement, not a model", "run", scratch("p"), "-n", "1"), "run")
    check(s["kind"] == "placement" and s["layers"] == 3 and s["neurons"] == [64, 768, 0] and s["head"] is True, s)
    check(s["handoff"] == "queued" and s["device"] == "a card" and s["driver"] == "its \x1bdriver", s)
    check("3 of 0 to 768 neurons on the device" in plain and "a card\n" in plain and "its \\x1bdriver" in plain, plain)
    s, plain = shown(scratch("p", sidecar(b"hearth.placement")))
    check(s["layers"] == 0 and s["neurons"] == [] and "head" not in s and "not said" in plain, s, plain)
    path = scratch("odd", sidecar(b"hearth.o\x1bdd"))
    check(b"hearth.o\\x1bdd, which this program does not know" in good("inspect", path).stdout, "an odd kind")
    check(json.loads(good("inspect", path, "--json").stdout)["sidecar"]["known"] is False, "an odd kind")
    check(b"Cannot be run" in good("inspect", scratch("none", sidecar(b"hearth"))).stdout, "no sidecar")


@case
def sidecars_are_never_written_over_by_what_they_serve():
    text, side, ids = scratch("text", b"Once upon a time. " * 200), scratch("side", b"kept"), scratch("ids", b"1 2 3")
    for args in [("logits", MODEL, "--ids", ids), ("study", MODEL, "-f", text), ("profile", MODEL, "-f", text),
                 ("thresholds", MODEL, "-f", text)]:
        for kind in ["predictors", "thresholds"]:
            bad(2, f"the {kind} would be lost", *args, "-o", side, f"--{kind}", side)
    with open(side, "rb") as f:
        check(f.read() == b"kept", "it is as it was")
    bad(2, "needs a name", "profile", MODEL, "-f", text, "-o", "")


@case
def thresholds_leave_out_what_was_asked_or_say_why_not():
    text = os.path.join(SOURCE, "docs", "study.md")

    def shown(share):
        args = ("thresholds", MODEL, "-f", text, "-o", scratch("t"), "-c", "64", "--samples", "64", "--sparsity", share)
        out = good(*args).stdout.decode()
        return float(re.search(r"t: ([0-9.]+) % of the neurons left out", out)[1]), out

    for share in [0.8, 0.97, 0.99]:  # beyond 23 / 24 too, where the largest few lie
        reached, out = shown(str(share))
        check(abs(reached - 100 * share) <= 0.5 and "asked for" not in out, share, out)
    reached, out = shown("0.2")
    layers = [float(x) for x in re.findall(r"\| \d \| ([0-9.]+) % \| 0.000", out)]
    check(len(layers) == 6 and min(layers) > 50, "zeros are left out in every layer", out)
    check(f"asked for 20.0 %, reached {reached} %: {reached} % are exactly zero" in out, out)


@case
def inspect_reads_the_values_of_thresholds():
    def sidecar(*layers):
        def name(x):
            return struct.pack("<Q", len(x)) + x

        infos, data = b"", b""
        for tensor, dims, values in layers:
            infos += name(tensor) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
            data += struct.pack(f"<{len(values)}f", *values)
        keys = name(b"general.architecture") + struct.pack("<I", 8) + name(b"hearth.thresholds")
        keys += name(b"hearth.sidecar.version") + struct.pack("<II", 4, 1)
        keys += name(b"hearth.model.hash") + struct.pack("<IQ", 10, 7)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(layers), 3) + keys + infos
        return scratch("t", head + bytes(-len(head) % 32) + data)

    def floors(i, values):
        return (b"blk.%d.ffn_floor.weight" % i, [len(values)], values)

    def reason(path):
        shown = json.loads(good("inspect", path, "--json").stdout)["sidecar"]
        plain = good("inspect", path).stdout.decode()
        check(shown["possible"] == ("Cannot be used" not in plain) == ("reason" not in shown), shown, plain)
        check("reason" not in shown or f"Cannot be used: {shown['reason']}" in plain, shown, plain)
        return shown.get("reason")

    eight, nan = [0.5] * 8, float("nan")
    check(reason(sidecar(floors(0, eight), floors(1, [0.25] * 16))) is None, "as it should be")
    check("'blk.1.ffn_floor.weight' at" in reason(sidecar(floors(0, eight), floors(1, eight[:5] + [nan, 1, 1]))), "place")
    check("value 5 is nan" in reason(sidecar(floors(0, eight[:5] + [nan, 1, 1]))), "NaN")
    check("value 7 is inf" in reason(sidecar(floors(0, eight[:7] + [float("inf")]))), "infinite")
    check("value 0 is -0.5" in reason(sidecar(floors(0, [-0.5] + eight[1:]))), "negative")
    check("is [4, 2, 1, 1]" in reason(sidecar((b"blk.0.ffn_floor.weight", [4, 2], eight))), "two dimensions")
    check("does not belong" in reason(sidecar(floors(0, eight), floors(2, eight))), "a layer is missing")
    check("does not belong" in reason(sidecar(floors(0, eight), (b"blk.0.fc1.weight", [8], eight))), "a foreign one")
    check("'blk.0.ffn_floor.weight' is missing" in reason(sidecar()), "none")
    huge = sidecar((b"blk.0.ffn_floor.weight", [1 << 34], []))
    os.truncate(huge, (1 << 36) + 4096)  # of holes
    check("[17179869184, 1, 1, 1]; [1048576, 1] is wanted" in reason(huge), "wider than any model")
    check("1025 layers" in reason(sidecar(*(floors(i, [1.0] * 8) for i in range(1025)))), "deeper than any model")


@case
def profiles_of_what_cannot_be_are_refused():
    text, out = scratch("text", b"Once upon a time. " * 200), scratch("out.profile")
    bad(2, "-f FILE and -o OUT", "profile", MODEL, "-f", text)
    bad(2, "-f FILE and -o OUT", "profile", MODEL, "-o", out)
    bad(2, "not one", "profile", MODEL, "-f", text, "-o", "-")
    bad(2, "the text would be lost", "profile", MODEL, "-f", text, "-o", text)
    copy = scratch("model.gguf", model_bytes())
    bad(2, "the model would be lost", "profile", copy, "-f", text, "-o", copy)
    bad(2, "all neurons compute", "profile", MODEL, "-f", text, "-o", out, "--selector", "gate")
    bad(1, "No such file", "profile", MODEL, "-f", scratch("none"), "-o", out)
    bad(1, "/no/such/p", "profile", MODEL, "-f", text, "-o", "/no/such/p")
    check(not os.path.exists(out) and not os.path.exists(out + ".resume"), "a file is left")


def study(page, *args):
    """What a study prints, writes as a table and puts into its page."""
    table = scratch("study.csv")
    result = json.loads(good("study", MODEL, *args, "-o", page, "--csv", table, "--json").stdout)
    with open(table, encoding="utf-8") as f:
        lines = f.read().splitlines()
    with open(page, encoding="utf-8") as f:
        inside = re.search(r'<script type="application/json" id="study">(.*?)</script>', f.read(), re.S)
    return result, lines, inside.group(1)


@case
def studies_say_the_same_in_all_their_forms():
    name = scratch("a <b> & '</script>'".replace("/", ":"), b"Once upon a time there was a dog. He saw Lily. " * 90)
    result, lines, inside = study(scratch("p.html"), "-f", name, "-c", "64", "--steps", "20", "--scored", "2")
    check(json.loads(inside) == result and "<" not in inside and "&" not in inside, "the page holds other figures")
    check(result["text"]["path"] == name and result["text"]["tokens"] % 64 == 0, result["text"])
    check(result["model"]["activation"] == "drelu" and len(result["layers"]) == 6, result["model"])
    check(lines[0] == "layer,measure,x,value", lines[0])
    values = {tuple(line.split(",")[:3]): float(line.split(",")[3]) for line in lines[1:]}
    check(len(values) == len(lines) - 1, "a value twice")
    for layer in result["layers"]:
        i = str(layer["layer"])
        check(values[i, "active", ""] == layer["active"] and 0.02 < layer["active"] < 0.3, layer)
        check(values[i, "cett", "0.1"] == layer["cett"][result["grids"]["kept"].index(0.1)], layer)
        check(values[i, "reused", "5"] == layer["reused"][result["grids"]["before"].index(5)], layer)
        check(len(layer["predictors"]) == (2 if layer["layer"] in (0, 1, 3, 5) else 0), layer)
        for p in layer["predictors"]:
            check(0 < p["recall_top_20"] <= 1 and p["share_of_network"] < 0.13, p)
    rows = result["perplexity"]["rows"]
    check([r["kept"] for r in rows] == [1, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05], rows)
    check(rows[0]["perplexity"] > 1 and values["", "perplexity", "1"] == rows[0]["perplexity"], rows)
    none = json.loads(good("study", MODEL, "-f", name, "-c", "64", "--trained", "0", "--scored", "0", "--json").stdout)
    check(not none["perplexity"]["rows"] and not any(l["predictors"] for l in none["layers"]), none)
    for a, b in zip(none["layers"], result["layers"]):
        check({**a, "predictors": 0} == {**b, "predictors": 0}, "layers depend on what else is asked for")
    text = good("study", MODEL, "-f", name, "-c", "64", "--trained", "0", "-o", scratch("q.html")).stdout.decode()
    short = json.loads(good("study", MODEL, "-f", name, "-c", "8", "--scored", "0", "--json", "--csv",
                            scratch("short.csv")).stdout)
    check(short["layers"][0]["reused"][4:] == [None, None], short["layers"][0]["reused"])  # no 8 tokens are before any
    with open(scratch("short.csv"), encoding="utf-8") as f:
        check(not re.search("^0,reused,(8|16),|nan", f.read(), re.M), "lines of figures that do not exist")
    check("perplexity with the largest 100 % kept" in text and "q.html" in text, text)


@case
def studies_of_what_cannot_be_are_refused():
    text, out = scratch("text", b"Once upon a time. " * 200), scratch("out.html")
    bad(2, "study needs -f FILE", "study", MODEL, "-o", out)
    bad(2, "say where the report goes", "study", MODEL, "-f", text)
    bad(2, "is not one", "study", MODEL, "-f", text, "-o", "-")
    bad(2, "would be lost", "study", MODEL, "-f", text, "-o", text)
    bad(2, "3 is the least window", "study", MODEL, "-f", text, "-o", out, "-c", "2")
    os.symlink("out.html", scratch("link"))
    os.symlink(out, scratch("far"))
    for there in [False, True]:
        for other in [out, os.path.join(SCRATCH, ".", "out.html"), scratch("link"), scratch("far")]:
            bad(2, "are one file", "study", MODEL, "-f", text, "-o", out, "--csv", other)
            bad(2, "are one file", "study", MODEL, "-f", text, "-o", other, "--csv", out)
        bad(2, "are one file", "study", "no.gguf", "-f", text, "-o", "x.html", "--csv", "./x.html", cwd=SCRATCH)
        check(os.path.exists(out) == there, "nothing is written")
        scratch("out.html", b"as it was")
    check(open(out, "rb").read() == b"as it was", "nothing is written")
    os.remove(out)
    bad(2, "all neurons compute", "study", MODEL, "-f", text, "-o", out, "--selector", "gate")
    bad(1, "a window needs 512", "study", MODEL, "-f", scratch("short", b"Once."), "-o", out)
    bad(1, "/no/such/p", "study", MODEL, "-f", text, "-o", "/no/such/p")
    check(not os.path.exists(out), "a file is left")


@case
def every_command_refuses_a_file_that_is_not_text():
    out, empty, newline = scratch("out"), scratch("empty", b""), scratch("newline", b"\n")
    binary, short = scratch("binary", b"GGUF.\0" * 999), scratch("short", b"Once upon a time.")
    late = scratch("late", b"Once upon a time. " * 9999 + b"\0")
    writers = [(command, "-o", out) for command in ("profile", "predictors", "thresholds")]
    writers += [("study", "-o", out), ("study", "--json")]
    for command, *more in [("perplexity",), ("compare",), ("bench", "--kv", "q8_0", "-n", "1", "--repeat", "1"), *writers]:
        for text in (empty, binary, late):
            line = bad(1, text + ": ", command, MODEL, "-f", text, *more)
            check("is empty" in line or "is 0: this is no text" in line, command, line)
        bad(1, "byte 5 is 0", command, MODEL, "-f", binary, *more)
        bad(1, "byte 179982 is 0", command, MODEL, "-f", late, *more)
        bad(1, "byte 3 is 0", command, MODEL, "-f", "-", *more, stdin=b"abc\0" * 999)
        for text in (short, newline) if command != "bench" else ():  # its -c is the context of what it times
            line = bad(1, "a window needs 64", command, MODEL, "-f", text, "-c", "64", *more)
            check(re.search(r"the text has \d+ tokens", line), command, line)
        check(not any(os.path.exists(out + end) for end in ("", ".hearth-part", ".resume")), command, "left a file")


@case
def an_interrupted_profile_goes_on():
    line, out, begun = b"Once upon a time there was a little girl. ", scratch("out.profile"), time.monotonic()
    good("profile", MODEL, "-f", scratch("short.txt", line * 100), "-c", "256", "-t", "1", "-o", scratch("short"))
    n_line = int(100 * 3 / (time.monotonic() - begun))  # some three seconds, with or without a sanitizer
    text = scratch("long.txt", line * max(200, min(n_line, 20000)))
    args = ["profile", MODEL, "-f", text, "-c", "256", "-t", "1"]
    good(*args, "-o", scratch("whole"))
    for wait in [0.05, 0.2, 0.4, 0.8, 1.6]:
        process = subprocess.Popen([HEARTH, *args, "-o", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT)
        kept = os.path.exists(out + ".resume")
        check(process.returncode in (0, 130, -signal.SIGINT), process.returncode, err)
        check((b"tokens are kept in " in err) == kept or process.returncode == -signal.SIGINT, err)
        check(os.path.exists(out) == (process.returncode == 0), "a profile though it was interrupted")
        if kept:
            break
    if kept:
        bad(1, "another context", "profile", MODEL, "-f", text, "-c", "128", "-o", out)
        bad(1, "another type of the KV cache", *args, "-o", out, "--kv", "f32")
        bad(1, "a profile, not a model", "run", out + ".resume")
    done = good(*args, "-o", out)
    check(not kept or b".resume: " in done.stderr and b"going on" in done.stderr, done.stderr)
    with open(out, "rb") as a, open(scratch("whole"), "rb") as b:
        check(a.read() == b.read(), "another profile than that of a run in one piece")
    check(not os.path.exists(out + ".resume"), "the state is left")


@case
def any_bytes_survive_tokenize_and_detokenize():
    random.seed(1)
    texts = [b"", b" ", b"  a ", b"\n", bytes(range(256)), "Zoë 中文 🙂".encode(), b"</s><s>", b"\xff\xfe\x80" * 9]
    texts += [random.randbytes(random.randrange(1, 300)) for _ in range(12)]
    for text in texts:
        ids = good("tokenize", MODEL, stdin=text).stdout
        check(good("detokenize", MODEL, stdin=ids).stdout == text, text, ids)
        check(good("tokenize", MODEL, "-f", scratch("text", text)).stdout == ids, "-f")
    pieces = good("tokenize", MODEL, "-p", "Once upon\x1b", "--pieces", "--no-bos").stdout
    check(b"\x1b" not in pieces and b"\\x1b" in pieces and b"upon" in pieces, pieces)
    check(good("tokenize", MODEL, "-p", "</s>", "--no-bos", "--special").stdout == b"2\n", "--special")
    check(b"</s>" in good("detokenize", MODEL, "--special", stdin=b"2").stdout, "--special")


@case
def quantize_makes_files_that_run():
    source = scratch("source.gguf", tiny_model())
    for kind in ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "f16", "bf16", "f32"]:
        out = scratch(kind + ".gguf")
        check(b"tensors" in good("quantize", source, out, kind).stdout, kind)
        good("run", out, "-n", "2", "-p", "a")
        check(b"are finite" in good("inspect", out, "--check").stdout, kind)
        types = {t["type"] for t in json.loads(good("inspect", out, "--json", "--all").stdout)["tensors"]}
        check(kind.upper() in types, kind, types)
    wide, seen = scratch("wide.gguf"), set()
    good("synth", "stories-15m", wide, "--type", "f16", "--seed", "3")  # rows of 288: no block of 256 fits
    for kind in ["q6_k", "q5_k", "q4_k_m", "q3_k", "q2_k"]:
        done = good("quantize", wide, scratch("small.gguf"), kind, "-t", "2")
        check(b"do not fit blocks" in done.stderr, done.stderr)
        seen |= {t["type"] for t in json.loads(good("inspect", scratch("small.gguf"), "--json").stdout)["tensors"]}
    check({"Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q5_0", "Q5_1", "IQ4_NL", "Q8_0"} <= seen, seen)
    good("quantize", wide, scratch("pure.gguf"), "q4_0", "--pure")
    types = {t["type"] for t in json.loads(good("inspect", scratch("pure.gguf"), "--json").stdout)["tensors"]}
    check(types == {"F32", "Q4_0"}, types)
    for args in [["quantize", wide, "-", "q4_0"], ["synth", "stories-15m", "-"],
                 ["logits", wide, "--ids", scratch("own.ids", b"1"), "-o", "-"]]:
        bad(2, "'-' is not one", *args)
    bad(2, "'q4_k_xl'", "quantize", wide, scratch("unwritten.gguf"), "q4_k_xl")
    good("quantize", source, scratch("kept.gguf"), "q4_0", "--keep-output", "q8_0")
    tensors = json.loads(good("inspect", scratch("kept.gguf"), "--json").stdout)["tensors"]
    check([t["type"] for t in tensors if t["name"] == "token_embd.weight"] == ["Q8_0"], tensors)
    done = good("quantize", wide, scratch("kept.gguf"), "q8_0", "--keep-output", "q6_k")
    check(b"rows of 1 matrix do not fit blocks of the type wanted: Q8_0 instead" in done.stderr, done.stderr)
    bad(1, "quantize starts from F32, F16 or BF16", "quantize", MODEL, scratch("again.gguf"), "q4_0")
    before = open(source, "rb").read()
    bad(2, "the original would be lost", "quantize", source, source, "q8_0")
    bad(1, "MXFP4: this type is read, not written", "quantize", source, scratch("unwritten.gguf"), "mxfp4")
    ids = scratch("own.ids", b"1 2 3")
    bad(2, "it would be lost", "logits", source, "--ids", ids, "-o", source)
    bad(2, "it would be lost", "logits", source, "--ids", ids, "-o", ids)
    bad(2, "the model would be lost", "pack", source, "-o", source)
    bad(2, "the profile would be lost", "pack", source, "--profile", ids, "-o", ids)
    for command in ["predictors", "thresholds", "study"]:
        bad(2, "'-' is not one", command, source, "-f", ids, "-o", "-")
        bad(2, "the model would be lost", command, source, "-f", "-", "-o", source)
        bad(2, "the text would be lost", command, source, "-f", ids, "-o", ids)
    check(open(ids, "rb").read() == b"1 2 3", "the ids are as they were")
    check(open(source, "rb").read() == before, "the source is as it was")


@case
def odd_environments_change_nothing():
    args = ["run", "-n", "8", "-p", "Once", "--seed", "0", "--temperature", "0.5", "--json"]
    expected = json.loads(good(*args).stdout)["ids"]
    for env in [{"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"}, {"LANG": "C"}, {"TERM": "dumb", "COLUMNS": "1"},
                {"NO_COLOR": "1", "TZ": ":odd"}, {"HEARTH_CPU": ""}]:
        check(json.loads(good(*args, env=env).stdout)["ids"] == expected, env)
    # A sanitizer would take the leaks of drivers, which an environment without anything shows, for the program's.
    bare = subprocess.run([HEARTH, *args, "--gpu", "none"], env={}, capture_output=True, timeout=TIMEOUT)
    check(bare.returncode == 0 and json.loads(bare.stdout)["ids"] == expected, bare.stderr)
    for command in [("run", "-n", "1"), ("list",), ("--help",)]:
        line = bad(2, "HEARTH_PIN=of\\x0af: no such value", *command, env={"HEARTH_PIN": "of\nf"})
        check("known: 0 (threads may move), 1" in line, line)
    check(b"HEARTH_PIN" not in good("run", "-n", "1", env={"HEARTH_PIN": "0"}).stderr, "HEARTH_PIN=0")
    line = bad(1, "HEARTH_CPU=nonsense", "run", "-n", "1", env={"HEARTH_CPU": "nonsense"})
    check("known: generic" in line, line)
    done = hearth("run", "-n", "1", stdin=None, preexec_fn=lambda: os.close(0))
    check(done.returncode == 0, "without stdin:", done.stderr)
    bad(1, "-: ", "run", "-", "-n", "1", stdin=None, preexec_fn=lambda: os.close(0))


@case
def run_alone_at_a_terminal_says_what_the_program_is():
    def said(*args, stdin=None):
        """What it wrote on a terminal, which is its stdin too unless another is given."""
        outer, inner = cases.open_terminal()
        with subprocess.Popen([HEARTH, "run", *args], stdin=inner if stdin is None else stdin, stdout=subprocess.PIPE,
                              stderr=inner) as process:
            os.close(inner)
            process.communicate(timeout=TIMEOUT)
        text = os.read(outer, 65536).decode().replace("\r", "")
        os.close(outer)
        check(process.returncode == 0, args, text)
        return text.split("\n")

    lines = said()
    begin = lines.index("hearth runs language models: files of the kind GGUF. Without one it tells a story now,")
    for line, word in zip(lines[begin + 1:begin + 5], ["inside the program", "hearth pull REPO", "hearth chat MODEL", "run --help"]):
        check(word in line and not line.startswith("hearth: "), word, lines)
    check(lines[begin + 5].startswith("hearth: ") and max(map(len, lines[begin:begin + 5])) <= 96, lines)
    for other in [said("-n", "1"), said(stdin=subprocess.DEVNULL)]:
        check(not any("hearth pull" in line for line in other), other)


if __name__ == "__main__":
    cases.run_cases(__file__)
