"""The program as a user meets it: help, usage, files and output. Called by CTest with the program's path. Python 3,
standard library only."""

import base64
import json
import os
import re
import resource
import signal
import struct
import subprocess
import time

from program import (HEARTH, SOURCE, MODEL, COMMANDS, TIMEOUT, QUICK_GPU, cases, case, check, hearth, good, bad,
                     scratch, model_bytes, data, tiny_model, story)


# ---- help ---------------------------------------------------------------------------------


@case
def help_of_every_command_fits_a_screen():
    for args in [["--help"], ["-h"]] + [[v, "--help"] for v in COMMANDS]:
        lines = good(*args).stdout.decode().split("\n")
        named = re.findall(r"^ +(?:-\w, )?(--[\w-]+) ", good(*args).stdout.decode(), re.M)
        check(len(named) == len(set(named)), args, "an option twice", named)
        check(len(lines) <= 46, args, len(lines), "lines")
        for line in lines:
            check(len(line) <= 80, args, "too long:", line)


@case
def help_of_a_command_has_two_forms():
    check(good("help", "run").stdout == good("run", "--help").stdout, "help run")
    check(good("help").stdout == good("--help").stdout, "help")
    check(good("help", "nothing").stdout == good("--help").stdout, "help of no command")


@case
def help_of_synth_names_every_shape():
    shapes = bad(2, "is not known; known: ", "synth", "llama-2b", scratch("out")).split("known: ")[1].split(", ")
    words = re.split(r"[\s,.:]+", good("synth", "--help").stdout.decode())
    check(len(shapes) >= 13 and set(shapes) <= set(words), set(shapes) - set(words))


@case
def version_man_page_and_completions_print():
    check(re.fullmatch(rb"hearth \d+\.\d+\.\d+\n", good("--version").stdout), "version")
    man = good("--man").stdout
    check(man.startswith(b".TH HEARTH 1"), "man page")
    for command in COMMANDS:
        check(b".SH %s\n" % command.encode() in man, "man page lacks", command)
        about = man.split(b".SH %s\n" % command.encode())[1].split(b".SH ")[0]
        told = ("inspect", "compare", "profile", "study", "predictors", "thresholds", "pack", "synth", "devices")
        check(command not in told or b"experts" in about.replace(b"\n", b" "), "man page of", command, "lacks experts")
    check(b"A signal while a model or a prompt is read" in man, "man page lacks signals")
    for name in [b"HEARTH_CPU", b"HEARTH_PIN", b"HEARTH_HUGE_PAGES", b"HEARTH_IO", b"HEARTH_CACHE"]:
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
        (["run", "-ngl", "some"], "expected a whole number, or one of auto|all"),
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
        (["run", "--io", "pread", "--mmap"], "--io and --mmap contradict"),
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
        (["quantize", MODEL, "Q4_K_M"], "missing: OUT, the file to write, before 'Q4_K_M'"),
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
    "special": [["-sp"], ["--speci"]],
    "draft": [["-md", "a"], ["--model-draft=a"]],
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
    check("other.gguf: llama, " in good("run", "-m", other, "-n", "1", "-p", "a").stderr.decode(), "-m")
    check(good("inspect", "-m", other).stdout == good("inspect", other).stdout, "inspect -m")
    check("(2 threads)" in good("run", "-n", "1", "-p", "a", "-t", "2", "--gpu", "none").stderr.decode(), "-t 2")
    for words in (["-ngl", "0"], ["--n-gpu-layers=0"], ["-dev", "none"]):
        check("on the CPU" in good("run", "-n", "1", "-p", "a", *words).stderr.decode(), words)
    check("KV cache f32" in good("run", "-n", "1", "-p", "a", "--kv", "F32", "-v").stderr.decode(), "--kv F32")
    check(len({story("--seed", str(i), "-n", "20") for i in range(3)}) == 3, "seeds")
    to_the_end = story("-n", "-1")
    check(to_the_end == story() and len(to_the_end) > 200, to_the_end)


@case
def gpu_layers_sets_the_number_of_layers():
    def shown(*words):
        return good("run", MODEL, "--gpu", "null", "-n", "1", "-p", "a", "-v", *words).stderr.decode()

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
    bad(2, "hearth serve MODEL", "run", "--port", "8080")
    bad(2, "--api-key-file FILE, or HEARTH_API_KEY", "serve", "--api-key", "secret")
    bad(2, "name of the model is empty", "run", "", "-p", "x")
    for typed in ("-prompt=Once", "-predict=5", "-file", "-min-p"):
        bad(2, f"{typed.split('=')[0]}: no such option; --{typed.split('=')[0][1:]} is the nearest", "run", typed, "5")
    check(good("run", "-help").stdout == good("run", "--help").stdout, "-help")
    bad(2, "X is too large", "run", "-n", "1", "--logit-bias", "300=1e39")
    bad(2, "-m: options stand behind a command: hearth run -m", "-m", MODEL)
    bad(2, "-i: to talk with a model: hearth chat", "-i")
    for command, typed, word in [("chat", "-mli", "/multi"), ("run", "--mmproj", "reads text alone"), ("run", "--hf-token", "HF_TOKEN"),
                              ("run", "--yarn-beta-fast", "--override-kv"), ("bench", "-cnv", "hearth chat"),
                              ("quantize", "--leave-output-tensor", "--keep-output"), ("chat", "--grammar", "hearth run")]:
        check(word in bad(2, typed + ": ", command, typed, "on"), command, typed)
    bad(2, "-nope: no such option", "run", "-nope")
    bad(2, "--predict 'ope'", "run", "-n=ope")
    bad(2, "--logit-bias 9999=1: the vocabulary has the ids 0 to 2047", "run", "-n", "1", "--logit-bias", "9999=1")
    bad(2, "are both given", "inspect", "-m", MODEL, MODEL)
    bad(2, "--model needs a value", "inspect", "-m")
    bad(2, "--stats '1': expected one of live", "run", "--stats=1")
    for typed in (["--stats"], ["--stats", MODEL], ["--stats", "live"], ["--stats=LIVE"], ["--stats", "live", MODEL]):
        done = good("run", "-n", "1", "-p", "a", *typed)
        check(b"live neurons by layer" in done.stderr and b"\x1b" not in done.stderr, typed, done.stderr)
    bad(2, "expected one of live", "chat", "--stats=")


@case
def seeds_are_random_and_printed():
    def seed_of(*words):
        line = subprocess.run([HEARTH, "run", "-n", "1", "-p", "a", *words], capture_output=True, check=True).stderr
        found = re.search(rb"; again: --seed (\d+)\n$", line)
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
    check(len(lines) == 2 and " M parameters, " in lines[0] and "generated 5 in " in lines[1], lines)
    check(good("run", "-n", "5", "-p", "Lily", "-q").stderr == b"", "-q")
    check(good("run", "-n", "5", "-p", "Lily", "--quiet").stdout == done.stdout, "--quiet")
    check(b"context of 4 tokens is full" not in good("run", "-c", "4", "-p", "Lily", "-q").stderr, "a note")
    asked = good("run", "-n", "5", "-p", "Lily", "-q", "--check", "4", "--stats").stderr
    check(b"is exact" in asked and b"live neurons by layer" in asked and b" M parameters, " not in asked, asked)
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
    profile, model, page, table, thresholds, placement, matrix = (
        scratch(name) for name in ("profile", "model", "page", "table", "thresholds", "placement", "matrix"))
    words, ids = scratch("words", b"Once upon a time there was a dog. " * 40), scratch("ids", b"1 2 3")
    study = ["study", MODEL, "-f", words, "--scored", "0", "--trained", "0", "--chunks", "1", "-c", "32"]
    good("profile", MODEL, "-f", words, "-c", "32", "-o", profile)
    good("synth", "stories-15m", model)
    good(*study, "-o", page, "--csv", table)
    find = ["thresholds", f16, "-f", words, "-c", "32", "-o"]
    plan = ["plan", MODEL, "--gpu", "sim:" + scratch("quick.sim", QUICK_GPU.encode()), "-c", "256", "-o"]
    weigh = ["imatrix", f16, "-f", words, "-c", "32", "-o"]
    good(*find, thresholds), good(*plan, placement), good(*weigh, matrix)
    writers = {profile: ["profile", MODEL, "-f", words, "-c", "32", "-o"], model: ["synth", "stories-15m"], page: [*study, "-o"],
               table: [*study, "--csv"], thresholds: find, placement: plan, matrix: weigh, scratch("logits"): ["logits", MODEL, "--ids", ids, "-o"]}
    for there in [profile, model, page, table, thresholds, placement, matrix, scratch("note", b"on layer,measure,x,value\n")]:  # a file of another kind stays
        before = open(there, "rb").read()
        for own, args in writers.items():
            if own != there:
                check("--force" in bad(2, "exists", *args, there) and open(there, "rb").read() == before, args, there)
    trained = scratch("trained", model_bytes())  # with keys of Hearth's, but made by training
    for args in (writers[model], ["quantize", f16, trained, "q8_0"][:2]):
        bad(2, "--force", *args, trained, *(["q8_0"] if args[0] == "quantize" else []))
    good("quantize", f16, scratch("quantised"), "q8_0")
    bad(2, "is not a model of hearth synth; --force", "synth", "stories-15m", scratch("quantised"))
    bad(2, "stories-15m has 6 layers, not 7", "synth", "stories-15m", scratch("seven"), "--layers", "7")
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
    while b" M parameters, " not in p.stderr.readline():
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
        check(os.path.getsize(scratch(target)) > 1000, target)
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
    for path, word in [(scratch(), "folder"), (scratch("fifo"), "regular"), ("/dev/zero", "regular")]:
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
        ["imatrix", path, "-f", text, "-o", scratch("out.imatrix")],
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
    bad(1, "'klama'", "inspect", path, "--program")
    check("program" not in json.loads(good("inspect", path, "--program", "--json").stdout), "inspect --program --json")
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
    bad(1, "do not fit into a context of 512; raise -c", "logits", MODEL, "--ids", scratch("ids", b"1 " * 513), "-o", scratch("out.f32"))
    check(not os.path.exists(scratch("out.f32")), "output left behind")
    check(good("detokenize", MODEL, "--ids", scratch("ids", b"")).stdout == b"", "no ids are no text")
    told = good("detokenize", MODEL, "--ids", scratch("ids", b"300 301\n302")).stdout
    check(good("detokenize", MODEL, "--ids", scratch("ids", b"[300, 301,302]\n")).stdout == told, "a list with commas")


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
    for name, kind, title in (("gemma4", "gemma4", "BPE of characters"), ("sarvam-moe", "gpt2", "BPE of characters"),
                              ("t5", "t5", "Unigram"), ("llama", "llama", "SentencePiece"), ("whitespace-cased", "whitespace", "BPE")):
        path = data(f"tokenizers/{name}.gguf")
        check(f"tokenizer      {title}".encode() in good("inspect", path).stdout, title)
        check(json.loads(good("inspect", path, "--json").stdout)["tokenizer"]["kind"] == kind, kind)
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
    for path in ["/dev/full", scratch(), scratch("no/folder")]:
        check(path in bad(1, "", "logits", MODEL, "--ids", ids, "-o", path), path)
        check(path in bad(1, "", "quantize", f16, path, "f32"), path)
    check(os.path.exists("/dev/full"), "a device was removed")


@case
def tensors_that_are_not_used_are_refused_unless_allowed():
    path, packed = scratch("unused.gguf", tiny_model(more=[(b"blk.0.attn_gate.weight", (256, 256))])), scratch("unused.packed")
    for args in [("run", path, "-n", "1", "-p", "a"), ("plan", path, "--gpu", "null"), ("doctor", path, "--gpu", "none"),
                 ("pack", path, "-o", packed)]:
        line = bad(1, "unused.gguf: tensor 'blk.0.attn_gate.weight' (info at byte ", *args)
        check("--allow-unused" in line, line)
        done = good(*args, "--allow-unused")
        check(b"1 of 12 tensors are not used by architecture llama" in done.stderr, args, done.stderr)


if __name__ == "__main__":
    cases.run_cases(__file__)
