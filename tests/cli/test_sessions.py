"""Saved sessions of hearth run: the text is that of a run without them, only what is new is evaluated, and files that
do not fit are refused. Called by CTest with the program's path. Python 3, standard library only."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from program import HEARTH, MODEL, TIMEOUT, cases, case, check, good, bad, least_ram, scratch, data, tiny_model

PROMPT = "Once upon a time there was a little girl who had a dog, a cat and a big red ball"


def models():
    """Attention, windows, recurrent layers alone and beside attention, experts."""
    return [MODEL] + [data(f"golden/arch/{name}.gguf") for name in ("gemma2", "qwen35", "mamba2", "lfm2", "qwen3moe")]


def is_recurrent(model):
    return any(name in model for name in ("qwen35", "mamba2", "lfm2"))


def run(model, *args, gpu="none"):
    words = ["run", model, "-c", "256", "--gpu", gpu, "--seed", "7", "--ignore-eos", "--json", *args]
    return json.loads(good(*words).stdout)


def ids(result):
    return result["prompt_ids"] + result["ids"]


@case
def a_loaded_session_gives_the_text_of_a_run_without_it():
    file = scratch("session")
    how = ["-n", "20", "--repeat-penalty", "1.3", "--repeat-last-n", "-1", "-p"]
    for model in models():
        first = run(model, "--save-session", file, *how, PROMPT)
        check(ids(first) == ids(run(model, *how, PROMPT)), model, "saving changes nothing")
        for text in [PROMPT, PROMPT + " and a horse", PROMPT[:-5], PROMPT[:30] + "her mother", "Another one"]:
            want = run(model, *how, text)
            for n_thread in ("1", "3"):
                got = run(model, "--session", file, "-t", n_thread, *how, text)
                check(ids(got) == ids(want) and got["text"] == want["text"], model, text, n_thread)
                had, n = ids(first), len(got["prompt_ids"])
                same = next((i for i in range(n) if i == len(had) or had[i] != got["prompt_ids"][i]), n)
                expected = min(same, n - 1)
                reused = got["prompt_tokens_reused"]
                check(reused <= expected if is_recurrent(model) else reused == expected, model, text, reused, expected)


@case
def a_longer_prompt_is_evaluated_from_the_end_of_the_saved_one():
    file = scratch("session")
    for model in models():
        n_saved = len(ids(run(model, "-p", PROMPT, "-n", "0", "--save-session", file)))
        got = run(model, "-p", PROMPT + " and a horse", "-n", "9", "--session", file)
        check(got["prompt_tokens_reused"] == n_saved < len(got["prompt_ids"]), model, got)
        check(ids(got) == ids(run(model, "-p", PROMPT + " and a horse", "-n", "9")), model)
        again = run(model, "-p", PROMPT, "-n", "9", "--session", file)
        check(again["prompt_tokens_reused"] == n_saved, model, "its last logits are in the file", again)
    stats = good("run", MODEL, "-p", PROMPT, "-n", "1", "-c", "256", "--gpu", "none", "--session", scratch("other"),
                 "--save-session", scratch("other"), "--stats").stderr
    check(b" is not there yet: it is made at the end" in stats and b" tokens (0 reused) in " in stats, stats)
    os.mkdir(scratch("folder"))
    for n in range(2):
        stats = good("run", MODEL, "-p", PROMPT, "-n", "1", "-c", "256", "--gpu", "none", "--session", scratch("other"),
                     "--save-session", scratch("other"), "--stats").stderr
        check(re.search(rb"prompt (\d+) tokens \((\d+) reused\) in ", stats) and b"(0 reused)" not in stats, n, stats)
    good("run", MODEL, "-p", PROMPT, "-n", "1", "-c", "256", "--gpu", "none", "--session", scratch("folder/../third"),
         "--save-session", scratch("third"))
    check(os.path.exists(scratch("third")), "one file by two names")


@case
def without_a_prompt_the_session_goes_on():
    file = scratch("session")
    for model in models():
        whole = run(model, "-p", PROMPT, "-n", "20", "--greedy")
        run(model, "-p", PROMPT, "-n", "8", "--greedy", "--save-session", file)
        rest = run(model, "-n", "12", "--greedy", "--session", file)
        check(ids(rest) == ids(whole) and len(rest["ids"]) == 12, model, rest, whole)
        check(rest["prompt_tokens_reused"] == len(rest["prompt_ids"]), model, rest)
    words = ["run", "-c", "256", "--gpu", "none", "--greedy"]
    want = good(*words, "-p", PROMPT, "-n", "20").stdout
    good(*words, "-p", PROMPT, "-n", "8", "--save-session", file)
    check(good(*words, "-n", "12", "--session", file).stdout == want, "the text of the session is shown")
    check(want.endswith(good(*words, "-n", "12", "--session", file, "--no-echo").stdout), "--no-echo")


@case
def weights_in_memory_and_in_the_file_share_sessions():
    model, file = data("golden/arch/qwen3moe.gguf"), scratch("session")
    refused = bad(1, "needs at least", "run", model, "-c", "256", "--gpu", "none", "-p", "a", "--ram", "1M")
    limit = ["--ram", str(int(re.search(r"\((\d+) bytes\)", refused)[1]) + (8 << 20))]
    want = run(model, "-p", PROMPT, "-n", "20")
    for before, after in [([], limit), (limit, []), (limit, [*limit, "--io", "pread", "-t", "1"])]:
        run(model, "-p", PROMPT[:40], "-n", "3", "--save-session", file, *before)
        got = run(model, "-p", PROMPT, "-n", "20", "--session", file, *after)
        check(ids(got) == ids(want) and got["prompt_tokens_reused"] > 10, before, after, got)


@case
def what_lies_on_a_device_is_computed_again():
    file = scratch("session")
    want = ids(run(MODEL, "-p", PROMPT, "-n", "10"))
    for before, after in [("null", "none"), ("none", "null"), ("null", "null")]:
        words = ["run", MODEL, "-c", "256", "--gpu", before, "-p", PROMPT, "-n", "2", "--save-session", file]
        check((b"without what lies on the GPU" in good(*words).stderr) == (before == "null"), before)
        got = run(MODEL, "-p", PROMPT, "-n", "10", "--session", file, gpu=after)
        check(ids(got) == want and got["prompt_tokens_reused"] == 0, before, after, got)


@case
def sessions_that_do_not_fit_are_refused():
    file, other = scratch("session"), scratch("other.gguf", tiny_model())
    words = ["run", MODEL, "-c", "256", "--gpu", "none", "-p", PROMPT]
    good(*words, "-n", "20", "--save-session", file)
    with open(file, "rb") as f:
        whole = f.read()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for name, content, word in [("empty", b"", "not a saved session of Hearth"), ("text", b"a letter" * 99, "not a"),
                                ("cut", whole[:-9], "damaged"), ("short", whole[:100], "not a saved session"),
                                ("longer", whole + b"x", "damaged"), ("flipped", bytes(flipped), "checksum")]:
        line = bad(1, word, *words, "--session", scratch(name, content))
        check(scratch(name) + ": " in line, line)
    bad(1, "No such file or directory", *words, "--session", scratch("nowhere"))
    bad(1, "No such file or directory", *words, "--session", scratch("nowhere"), "--save-session", scratch("elsewhere"))
    bad(1, "not a regular file", *words, "--session", scratch())
    bad(1, "another model", "run", other, "-p", "a", "--gpu", "none", "--session", file)
    bad(1, "another type of KV cache", *words, "--session", file, "--kv", "f32")
    bad(1, "another selector", *words, "--session", file, "--selector", "dense")
    line = bad(1, "tokens do not fit into a context of 32; raise -c", "run", MODEL, "-c", "32", "--gpu", "none",
               "-p", "a", "--session", file)
    check(file in line, line)


@case
def a_target_that_cannot_be_written_is_said_before_the_work():
    words = ["run", MODEL, "-c", "256", "--gpu", "none", "-p", PROMPT, "-n", "2"]
    letter, model = scratch("letter", b"Dear reader"), scratch("model.gguf", tiny_model())
    for status, word, out in [(1, "No such file", scratch("nowhere/session")), (1, "not a regular file", scratch()),
                              (2, "not a saved session; --force", letter), (2, "a name", ""), (2, "'-' is not", "-")]:
        bad(status, word, *words, "--save-session", out)
    bad(2, "the model would be lost", "run", model, "-p", "a", "--save-session", model)
    bad(2, "the text would be lost", "run", MODEL, "-f", letter, "--save-session", letter, "--force")
    good(*words, "--save-session", letter, "--force")
    good(*words, "--save-session", letter)
    # A disk that is full at the end: the text is there, and the old file.
    with open(letter, "rb") as f:
        before = f.read()
    done = subprocess.run([HEARTH, *words, "--save-session", letter], capture_output=True, timeout=TIMEOUT,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)))
    check(done.returncode == 1 and done.stdout.startswith(PROMPT.encode()) and b"File too large" in done.stderr, done)
    with open(letter, "rb") as f:
        check(f.read() == before and not os.path.exists(letter + ".hearth-part"), "the old file stays")


@case
def a_folder_for_reading_takes_no_file():
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro none "$0" && exec "$@"', scratch()]
    if not shutil.which("unshare") or subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        raise cases.Skip("nothing can be mounted here")
    words = [HEARTH, "run", MODEL, "--gpu", "none", "-p", PROMPT, "-n", "2", "--save-session", scratch("session")]
    done = subprocess.run([*mount, *words], capture_output=True, timeout=TIMEOUT)
    check(done.returncode == 1, done)
    check(b"session: cannot create (as .hearth-part): Read-only file system" in done.stderr, done)


@case
def ctrl_c_saves_what_was_evaluated():
    file = scratch("session")
    process = subprocess.Popen([HEARTH, "run", MODEL, "--ignore-eos", "--greedy", "-p", PROMPT, "-t", "1",
                                "-n", "100000", "-c", "100000", "--gpu", "none", "--save-session", file], bufsize=0,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    begin = process.stdout.read(len(PROMPT) + 30)
    process.send_signal(signal.SIGINT)
    text, err = process.communicate(timeout=TIMEOUT)
    check(process.returncode == 130, process.returncode, err)
    text = (begin + text).decode()
    words = ["run", MODEL, "--greedy", "--ignore-eos", "-c", "100000", "--gpu", "none", "--session", file, "--json"]
    rest = json.loads(good(*words, "-n", "5").stdout)
    shown = good("detokenize", MODEL, stdin=" ".join(map(str, rest["prompt_ids"])).encode()).stdout.decode()
    # The last token that was shown may not be evaluated any more.
    check(text.startswith(shown), shown[-50:], text[-50:])
    check((shown + rest["text"]).startswith(text[:-1]), shown[-50:], text[-50:], rest["text"])
    check(rest["prompt_tokens_reused"] >= len(rest["prompt_ids"]) - 1 and len(rest["ids"]) == 5, rest)
    check(b"holds %d tokens" % len(rest["prompt_ids"]) in err, err)


@case
def an_interrupted_prompt_counts_what_was_evaluated():
    model, file = data("models/storyteller-drelu/storyteller-drelu-f32.gguf"), scratch("session")
    words = ["run", model, "-p", PROMPT * 200, "-n", "1", "-c", "8192", "-t", "1", "--gpu", "none"]
    words += ["--save-session", file]
    for batch in ["16", "8192"]:
        limit = least_ram(*words, "--batch", batch)
        process = subprocess.Popen([HEARTH, *words, "--batch", batch, "--ram", limit, "--io", "sim:sd"], bufsize=0,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        err = (first + process.communicate(timeout=TIMEOUT)[1]).decode()
        check(process.returncode == 130, batch, process.returncode, err)
        found = re.search(r"prompt (\d+) of (\d+) tokens in ([\d.]+) s \(([\d.]+)/s\); generated 0 ", err)
        check(found, batch, err)
        n, n_all, seconds, rate = int(found[1]), int(found[2]), float(found[3]), float(found[4])
        check(n % int(batch) == 0 and n < n_all and abs(rate - n / seconds) < 0.1 + 0.01 * rate, batch, err)
        check((f"{file} holds {n} tokens" in err) == os.path.exists(file) == (n > 0), batch, err)
        check(("session is not written: no token was evaluated" in err) == (n == 0), batch, err)
        check(batch == "16" or n == 0, batch, err)
        if n > 0:
            os.unlink(file)


if __name__ == "__main__":
    cases.run_cases(__file__)
