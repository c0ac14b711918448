"""The command chat as a person meets it: at a terminal (Python's pty), and from a pipe.
Called by CTest with the program's path. Python 3, standard library only."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import termios
import time
import unittest.mock

from program import HEARTH, SOURCE, check
from cases import Skip, case, clean_environment, open_terminal, run_cases
from chat_model import with_template

TIMEOUT = 60
# Each message and each answer on a line of its own; the system text first.
TEMPLATE = """{% for m in messages %}{{ m.content + ('\\n' if m.role != 'assistant' else eos_token) }}{% endfor %}"""
FOLDER = None  # of the whole run
MODEL = None


def make_model(name, template, **more):
    with open(os.path.join(SOURCE, "models", "storyteller-q8_0.gguf"), "rb") as f:
        data = f.read()
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as f:
        f.write(with_template(data, template, **more))
    return path


def environment(**more):
    own = {"XDG_STATE_HOME": os.path.join(FOLDER, "state"), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    return clean_environment(FOLDER, **{**own, **more})


@case
def the_tests_ignore_settings_of_the_user():
    mine = os.path.join(FOLDER, "mine")
    users = ["HF_HOME", "HF_TOKEN", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME",
             "HEARTH_MODELS", "HEARTH_HISTORY", "HEARTH_CACHE", "HTTPS_PROXY", "https_proxy", "HOME"]
    with unittest.mock.patch.dict(os.environ, dict.fromkeys(users, mine)):
        check(mine not in environment().values(), environment())
        check(environment(HEARTH_MODELS=mine)["HEARTH_MODELS"] == mine, "what a case wants counts")


# ---- from a pipe ---------------------------------------------------------------------------


def pipe(text, *args, status=0, model=None):
    text = text.encode() if isinstance(text, str) else text
    done = subprocess.run([HEARTH, "chat", model or MODEL, *args], input=text, capture_output=True,
                          timeout=TIMEOUT, env=environment())
    check(done.returncode == status, args, "exit", done.returncode, done.stderr)
    return done.stdout.decode(), done.stderr.decode()


def counts(stderr):
    """What --stats says of each answer: (were there, read, written)."""
    return [tuple(map(int, m)) for m in re.findall(r"(\d+) tokens were there, (\d+) read, (\d+) written", stderr)]


@case
def a_pipe_gives_one_answer_for_each_line():
    out, err = pipe("Once upon a time\n\nThe dog\n", "-n", "8", "--greedy")
    check(out.count("\n") >= 2 and out.endswith("\n"), repr(out))
    check(">" not in out and "hearth:" not in out, "noise on stdout", repr(out))
    check(len(err.strip().split("\n")) == 1, err)
    again, _ = pipe("Once upon a time\nThe dog", "-n", "8", "--greedy")
    check(out == again, "a last line without a newline", repr(again))


@case
def only_the_new_turn_is_read():
    _, err = pipe("Once upon a time\nThe dog\nThe cat\n", "-n", "12", "--greedy", "--stats")
    turns = counts(err)
    check(len(turns) == 3, err)
    for (there, read, written), (next_there, next_read, _) in zip(turns, turns[1:]):
        check(next_there >= there + read and next_read < 20, turns)
    check(turns[2][0] > 30, turns)


@case
def drafts_change_no_answer():
    text = "The cat sat. The cat sat.\nOnce\n/regenerate\n/undo\nThe cat sat. The cat\n"
    for how in (["--greedy"], ["--seed", "5"]):
        out, err = pipe(text, "-n", "30", *how, "--speculate", "0", "--stats")
        for more in ([], ["--speculate", "6"], ["--speculate", "3", "--draft", MODEL]):
            drafted, said = pipe(text, "-n", "30", *how, *more, "--stats")
            check(drafted == out and counts(said) == counts(err), how, more, drafted, out)
            check(not more or "tokens evaluated ahead" in said, said)


@case
def answers_do_not_depend_on_what_was_kept():
    """The third answer is that of a fresh program that loads the first two turns."""
    path = os.path.join(FOLDER, "turns.jsonl")
    out, _ = pipe(f"Once\nThe dog\n/save {path}\nThe cat\n", "-n", "10", "--greedy")
    check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "others can read the conversation")
    fresh, _ = pipe(f"/load {path}\nThe cat\n", "-n", "10", "--greedy")
    check(out.endswith(fresh) and len(fresh) > 10, repr(out), repr(fresh))


@case
def a_loaded_conversation_is_not_evaluated_again():
    path = os.path.join(FOLDER, "kept.jsonl")
    how = ["-n", "12", "--seed", "4", "--repeat-penalty", "1.3", "--repeat-last-n", "-1", "--stats", "--gpu", "none"]
    _, err = pipe(f"Once upon a time\nThe dog\n/save {path}\n", *how)
    (n_saved,) = re.findall(r"4 messages are in \S+, and (\d+) computed tokens in \S+kept.jsonl.session\n", err)
    text = f"/load {path}\nThe cat\nThe girl\n"
    out, err = pipe(text, *how)
    check(f"the conversation has 4 messages, of which {n_saved} tokens are computed" in err, err)
    check(counts(err)[0][0] == int(n_saved) and counts(err)[0][1] < 20, err)
    for n_thread in ("1", "3"):
        check(pipe(text, *how, "-t", n_thread)[0] == out, n_thread)
    begin, _ = pipe(f"Tell me\n{text}", *how, "--system", "Be brief")
    check(begin.endswith(out), "after another conversation", begin, out)
    session = path + ".session"
    with open(session, "rb") as f:
        whole = f.read()
    for content, word in [(whole[:-9], "damaged"), (b"a letter", "not a saved session"), (None, None)]:
        os.remove(session)
        if content is not None:
            with open(session, "wb") as f:
                f.write(content)
        again, err = pipe(text, *how)
        check(again == out and counts(err)[0][0] == 0, word, err)
        check((word is None) == ("the messages are read again" not in err) and (word or "") in err, word, err)
    with open(session, "wb") as f:
        f.write(whole)
    _, err = pipe(text, *how, "--kv", "f32")
    check("another type of KV cache" in err and counts(err)[0][0] == 0, err)
    with open(path, "r+", encoding="utf-8") as f:  # another second message: what is before it is common
        lines = f.read().split("\n")
        f.seek(0)
        f.write("\n".join([*lines[:2], lines[2].replace("dog", "pig"), *lines[3:]]))
    out, err = pipe(text, *how)
    check(0 < counts(err)[0][0] < int(n_saved) - 10, err)
    os.remove(session)
    check(pipe(text, *how)[0] == out, "edited messages")


@case
def a_saved_conversation_holds_nothing_else():
    """Of the tokens that the session has evaluated only those of the messages are written."""
    path, how = os.path.join(FOLDER, "clean.jsonl"), ["-n", "6", "--greedy", "--gpu", "none"]
    session = path + ".session"

    def files():
        with open(path, "rb") as messages, open(session, "rb") as computed:
            return messages.read(), computed.read()

    pipe(f"Hello\n/save {path}\n", *how)
    want = files()
    for before in ["A secret\n/reset\nHello\n", "Hello\nA secret\n/undo\n"]:
        pipe(f"{before}/save {path}\n", *how)
        check(files()[0] == want[0], before)
        # Without logits, and perhaps with the last token of the answer, which only a further turn evaluates.
        check(len(files()[1]) - len(want[1]) in (0, -2048 * 4, -2048 * 4 + 4), before, len(files()[1]), len(want[1]))
    os.remove(session)
    for text in [f"/save {path}\n", f"Hello\n/reset\n/save {path}\n"]:  # an earlier conversation is not lost
        _, err = pipe(text, *how, status=1)
        check("nothing is saved: the conversation has no messages" in err and not os.path.exists(session), err)
    with open(path, "rb") as messages:
        check(messages.read() == want[0], "the saved conversation was replaced")
    with open(session, "wb") as f:
        f.write(b"a letter")
    _, err = pipe(f"Hello\n/save {path}\n", *how)
    check("stays as it is: it is not a saved session" in err and "2 messages are in" in err, err)
    with open(session, "rb") as f:
        check(f.read() == b"a letter", "it was replaced")
    os.remove(session)
    _, err = pipe(f"Hello\n/save {path}\n", "-n", "6", "--gpu", "null")
    check("2 messages are in" in err and not os.path.exists(session), err)
    pipe(f"/load {path}\nThe cat\n", *how)


@case
def commands_do_what_help_says():
    path = os.path.join(FOLDER, "saved.jsonl")
    text = f"/system Be brief \"now\" é\nHello\n/save {path}\n/reset\nHello\n/save {path}2\n/system\n/save {path}3\n/help\n/exit\nnever\n"
    _, err = pipe(text, "-n", "4", "--seed", "3", "--stats")
    with open(path, encoding="utf-8") as f:
        saved = [json.loads(line) for line in f]
    check([m["role"] for m in saved] == ["system", "user", "assistant"], saved)
    check(saved[0]["content"] == 'Be brief "now" é' and saved[1]["content"] == "Hello", saved)
    with open(path + "2", encoding="utf-8") as f:
        check([json.loads(line) for line in f] == saved, "the same seed tells the same after /reset")
    with open(path + "3", encoding="utf-8") as f:
        check([json.loads(line)["role"] for line in f] == ["user", "assistant"], "/system without a text")
    check("/multi" in err and len(counts(err)) == 2, err)
    check(not os.path.exists(path + ".hearth-part"), "an unfinished file stayed")


@case
def formats_by_name_take_no_variables():
    _, err = pipe("Hello\n", "--template", "chatml", "--template-vars", "{}", status=2)
    check("the format chatml takes none" in err, err)


@case
def what_is_no_conversation_is_not_overwritten():
    path = os.path.join(FOLDER, "precious.gguf")
    with open(path, "wb") as f:
        f.write(b"GGUF and more")
    pipe(f"Hello\n/save {path}\n", "-n", "2", status=1)
    with open(path, "rb") as f:
        check(f.read() == b"GGUF and more", "a file that is no conversation")
    pipe("Hello\n/save /dev/full\n", "-n", "2", status=1)
    check(not os.path.isfile("/dev/full"), "a device")
    link = os.path.join(FOLDER, "link")
    os.symlink(path, link)
    pipe(f"Hello\n/save {link}\n", "-n", "2", status=1)
    check(os.path.islink(link), "a link")
    with open(path + ".json.part", "w") as f:
        f.write("of another program")
    pipe(f"Hello\n/save {path}.json\n/save {path}.json\n", "-n", "2")
    with open(path + ".json.part") as f:
        check(f.read() == "of another program", "a file with a name of its own")


@case
def a_saved_conversation_is_checked_when_it_is_loaded():
    path = os.path.join(FOLDER, "bad.jsonl")
    good = '{"content": "a\\u00e9\\ud83d\\ude42\\n\\"\\\\\\/", "role": "user"}\n\n{"role":"assistant","content":""}'
    for text, says in [('{"role": "user"}', "missing"), ("[]", "expected {"), ('{"role": "user", "content": "a', "not closed"),
                       ('{"role": "a b", "content": ""}', "one word"), ('{"role": "user", "content": "\\x"}', "escape"),
                       ('{"role": "user", "content": ""} x', "follows"), ('{"role": "user", "content": "\\ud800"}', "half"),
                       ('{"role": "user", "x": ""}', "not known"), ('{"role": "user", "content": 5}', "expected a text"),
                       ('{"role": "user", "content": "\\u12g4"}', "digits"), ('{"role": "user" "content": ""}', "}"),
                       (good + "\nx", "line 4")]:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        _, err = pipe(f"/load {path}\n", status=1)
        check(says in err and "bad.jsonl: line" in err, text, err)
    with open(path, "w", encoding="utf-8") as f:
        f.write(good)
    pipe(f"/load {path}\n/save {path}2\n")
    with open(path + "2", encoding="utf-8") as f:
        check(json.loads(f.readline())["content"] == 'aé🙂\n"\\/', "escapes")
    pipe("/load /nowhere/file\n", status=1)
    fifo = os.path.join(FOLDER, "fifo")
    os.mkfifo(fifo)
    for path in [fifo, FOLDER]:
        _, err = pipe(f"/load {path}\n", status=1)
        check(f"{path}: not a regular file" in err, err)
    pipe("Hello\n/save /nowhere/file\n", "-n", "2", status=1)
    pipe("/save\n", status=1)
    pipe("/what\n", status=1)
    pipe("/reset now\n", status=1)


@case
def lines_go_on_behind_a_backslash_and_in_blocks():
    path = os.path.join(FOLDER, "lines.jsonl")
    pipe(f"one\\\ntwo\n/multi\nthree\n\n/exit\n.\n//exit\n/multi\n/exit\n.\n/multi\n// four\n.\n/save {path}\n", "-n", "2")
    with open(path, encoding="utf-8") as f:
        said = [m["content"] for m in map(json.loads, f) if m["role"] == "user"]
    check(said == ["one\ntwo", "three\n\n/exit", "/exit", "/exit", "// four"], said)
    for left_open in ["/multi\nfour\nfive\n", "four\\\nfive"]:
        _, err = pipe(left_open, "-n", "2", "--stats")
        check(len(counts(err)) == 1, "the end of the input ends a message", left_open, err)


def tokens_of_an_answer_ask_for_no_terminal():
    """isatty is a system call; the progress of reading the model needs some, on a busy machine dozens."""
    if not shutil.which("strace"):
        raise Skip("no strace here")
    counted = []
    for n in ("5", "205"):
        log = os.path.join(FOLDER, "calls")
        done = subprocess.run(["strace", "-f", "-e", "trace=ioctl", "-o", log, HEARTH, "chat", MODEL, "-n", n, "--gpu", "none",
                               "--logit-bias", "2=-inf", "--stats"], input=b"Once\n", capture_output=True, timeout=TIMEOUT, env=environment())
        with open(log) as f:
            calls = f.read()
        if "+++ exited" not in calls:
            raise Skip("strace may not trace here")
        check(counts(done.stderr.decode())[0][2] == int(n), done.stderr)
        counted.append(calls.count("TCGETS"))
    check(counted[1] < counted[0] + 150, counted)


if not os.environ.get("HEARTH_SANITIZED"):  # strace disturbs sanitizers
    case(tokens_of_an_answer_ask_for_no_terminal)


@case
def lines_from_windows_are_read_as_others_are():
    path = os.path.join(FOLDER, "windows.jsonl")
    text = f"one\\\ntwo\n/multi\nthree\n.\nfour\n/undo\na\rb\n/save {path}\n"
    out, _ = pipe(text, "-n", "2", "--greedy")
    with open(path, "rb") as f:
        saved = f.read()
    check([json.loads(line)["content"] for line in saved.splitlines()][::2] == ["one\ntwo", "three", "a\rb"], saved)
    check(pipe("\ufeff" + text.replace("\n", "\r\n"), "-n", "2", "--greedy")[0] == out, "another answer")
    with open(path, "rb") as f:
        check(f.read() == saved, "other messages")
    pipe("Hello\n/undo\r", "-n", "2")
    for code in ("utf-16", "utf-16-be", "utf-16-le"):
        out, err = pipe("Once upon a time\n".encode(code), "-n", "2", status=1)
        check("stdin: is UTF-16, expected UTF-8; convert it: iconv" in err and not out, code, out, err)


@case
def special_texts_in_messages_are_text():
    """</s> in a message is not the token that the template writes."""
    _, err = pipe("a</s>b\n", "-n", "1", "--stats")
    (_, read, _), = counts(err)
    check(read > 5, "as a token it would be less", err)


@case
def a_full_context_is_one_line():
    _, err = pipe("Once upon a time there was a dog\n", "-c", "24", "--greedy")
    check("the context of 24 tokens is full; /reset begins again" in err, err)
    _, err = pipe("word " * 40 + "\nHello\n", "-c", "24", "-n", "2", status=1)
    check("tokens, and 24 fit" in err, err)


@case
def a_full_context_drops_the_oldest_turns_unless_it_must_not():
    path = os.path.join(FOLDER, "shifted.jsonl")
    turns = "".join(f"Tell me of the dog number {i}\n" for i in range(12))
    out, err = pipe(f"{turns}/save {path}\n", "-c", "96", "-n", "16", "--greedy", "--system", "Be kind")
    check(err.count("oldest messages are dropped") == 1 and "is full; /reset" not in err, err)
    with open(path, encoding="utf-8") as f:
        saved = [json.loads(line) for line in f]
    check(saved[0] == {"role": "system", "content": "Be kind"} and saved[1]["role"] == "user", saved)
    check(saved[-2]["content"] == "Tell me of the dog number 11" and 3 < len(saved) < 25, saved)
    # In the midst of an answer: it goes on, and a fresh program that loads what is left gives the next one's bits.
    _, err = pipe("Once\nTell\n", "-c", "64", "-n", "90", "--greedy", "--logit-bias", "2=-inf", "--stats")
    check([c[2] for c in counts(err)][0] <= 64 and "context of 64 tokens is full" in err, err)
    _, err = pipe("One two three\nTell\n", "-c", "64", "-n", "50", "--greedy", "--logit-bias", "2=-inf", "--stats")
    check(counts(err)[1][2] == 50 and "oldest messages" in err, err)
    _, err = pipe(turns, "-c", "96", "-n", "16", "--greedy", "--no-shift", status=1)
    check("oldest messages" not in err and ("96 fit" in err or "is full; /reset" in err), err)


@case
def an_answer_is_taken_back_or_given_again():
    path = os.path.join(FOLDER, "undone.jsonl")
    out, err = pipe(f"Once upon a time\nThe dog\n/undo\n/save {path}\n", "-n", "8", "--seed", "3")
    with open(path, encoding="utf-8") as f:
        saved = [json.loads(line) for line in f]
    check([m["role"] for m in saved] == ["user", "assistant"], saved)
    out, err = pipe(f"Once upon a time\n/regenerate\n/regenerate\n/save {path}\n", "-n", "12", "--seed", "3")
    answers = out.strip().split("\n")
    check(len(answers) == 3 and len(set(answers)) > 1, out)
    with open(path, encoding="utf-8") as f:
        saved = [json.loads(line) for line in f]
    check(len(saved) == 2 and saved[1]["content"].strip() == answers[2].strip(), saved, answers)
    _, err = pipe("/undo\n/regenerate\n", status=1)
    check(err.count("there is no answer yet") == 2, err)


def save_conversation(name, *contents):
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding="utf-8") as f:
        for i, content in enumerate(contents):
            f.write(json.dumps({"role": ["user", "assistant"][i % 2], "content": content}) + "\n")
    return path


@case
def an_answer_stays_until_there_is_another():
    path = save_conversation("stays.jsonl", "Tell me a story about a dog and a cat. " * 20, "No.")
    _, err = pipe(f"/load {path}\n/regenerate\n/save {path}2\n", "-c", "64", status=1)
    check("and 64 fit" in err and "the last answer stays" in err, err)
    with open(path) as before, open(path + "2") as after:
        check(list(map(json.loads, after)) == list(map(json.loads, before)), "after an error")


@case
def templates_are_chosen_by_name_and_by_file():
    path = os.path.join(FOLDER, "own.jinja")
    with open(path, "w", encoding="utf-8") as f:
        f.write("{{ messages[-1].content }}")
    out, err = pipe("Once\n", "--template", path, "-n", "3", "--greedy", "--stats")
    check(counts(err)[0][1] < 5 and out, err)
    _, err = pipe("Once\n", "--template", "chatml", "-n", "3", "--stats")
    check(counts(err)[0][1] > 15, "chatml writes more", err)
    with open(path, "w", encoding="utf-8") as f:
        f.write("{% if wordy is defined and wordy %}{{ 'word ' * 20 }}{% endif %}{{ messages[0].content }}")
    _, err = pipe("Once\n", "--template", path, "-n", "1", "--stats", "--template-vars", '{"wordy": true}')
    check(counts(err)[0][1] > 20, err)
    _, err = pipe("Once\n", "--template", path, "--template-vars", "{wordy}", status=1)
    check("chat template: no JSON: line 1 column 2: a name in quotation marks is expected" in err, err)
    _, err = pipe("", "--template", "nosuch", status=1)
    check("'nosuch' is not known; there are chatglm4, chatml, " in err, err)
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n{% nonsense %}")
    _, err = pipe("", "--template", path, status=1)
    check("chat template, line 2: statement 'nonsense' is not known" in err, err)


@case
def a_model_without_a_template_is_not_guessed_for():
    for args in [[os.path.join(SOURCE, "models", "storyteller-q8_0.gguf")]]:
        done = subprocess.run([HEARTH, "chat", *args], input=b"", capture_output=True, timeout=TIMEOUT, env=environment())
        err = done.stderr.decode()
        check(done.returncode == 1 and err.count("\n") == 1, done)
        check(err.startswith("hearth: hearth run continues a text with this model; --template chatml, ") and
              "it was not made for chat" in err and len(err) < 240, err)
    done = subprocess.run([HEARTH, "chat", "--template", "vicuna", "-n", "3"], input=b"Hi\n", capture_output=True, timeout=TIMEOUT,
                          env=environment())
    check(done.returncode == 0 and done.stdout, "the story model can be made to", done)


@case
def a_template_that_cannot_be_parsed_falls_back():
    broken = make_model("broken.gguf", "{% for m in messages %}<|im_start|>{% nonsense %}")
    _, err = pipe("Hi\n", "-n", "2", "--stats", model=broken)
    check("warning" in err and "line 1: statement 'nonsense'" in err and "the format 'chatml' takes its place" in err, err)
    broken = make_model("broken2.gguf", "{% nonsense %}")
    _, err = pipe("Hi\n", model=broken, status=1)
    check("statement 'nonsense' is not known" in err and "formats by name: chatml" in err, err)


@case
def a_refused_message_is_taken_back():
    refusing = make_model("refusing.gguf", "{% if messages|length > 1 %}{{ raise_exception('one only') }}{% endif %}{{ messages[0].content }}")
    out, err = pipe("Hi\nThere\n/reset\nAgain\n", "-n", "2", model=refusing, status=1)
    check(err.count("it refuses these messages: one only") == 1, err)
    check(out.count("\n") >= 2, repr(out))


@case
def a_closed_output_ends():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([HEARTH, "chat", MODEL, "-n", "5"], input=b"Hi\n", stdout=write_end, stderr=subprocess.PIPE, timeout=TIMEOUT,
                          env=environment())
    os.close(write_end)
    check(done.returncode == 128 + signal.SIGPIPE, done)


@case
def ctrl_c_ends_what_comes_from_a_pipe():
    child = subprocess.Popen([HEARTH, "chat", MODEL, "--greedy", "--logit-bias", "2=-inf"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=environment())
    child.stdin.write(b"Once\nThe dog\n")
    child.stdin.flush()
    check(child.stdout.read(20), "an answer begins")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=TIMEOUT)
    check(child.returncode == 130, child.returncode)


# ---- at a terminal -----------------------------------------------------------------------------


def as_job_of_a_shell():
    """Returns in a child, a job in the foreground. The parent does as a shell: while the job is stopped it has the
    terminal, in its own modes, and a line goes on with the job; it ends as the job does."""
    modes = termios.tcgetattr(0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        return
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpid())
        termios.tcsetattr(0, termios.TCSADRAIN, modes)
        if not os.WIFSTOPPED(status):
            os._exit(os.waitstatus_to_exitcode(status))
        os.write(1, b"[stopped]\n")
        os.read(0, 100)
        os.tcsetpgrp(0, job)
        os.kill(-job, signal.SIGCONT)


class Terminal:
    """The program in a terminal of its own: what it wrote so far, and keys for it."""

    def __init__(self, *args, model=None, columns=80, sign="> ", is_job=False, **more):
        self.text = ""
        for fd in open_terminal():
            os.close(fd)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                if is_job:
                    as_job_of_a_shell()
                os.execvpe(HEARTH, [HEARTH, "chat", *([MODEL] if model is None else model), *args], environment(**more))
            finally:
                os._exit(127)
        self.resize(columns)
        self.prompt(sign)

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.text += data.decode("utf-8", "replace").replace("\r", "")
        return bool(data)

    def wait_for(self, word, seconds=20):
        """Reads up to word, behind what was waited for before; returns what came before it."""
        end = time.monotonic() + seconds
        while word not in self.text:
            if time.monotonic() > end or (not self.read(0.2) and self.gone()):
                raise AssertionError(f"{word!r} did not come: {self.text!r}")
        before, self.text = self.text.split(word, 1)
        return before

    def prompt(self, sign="\n> "):
        """Waits for the prompt, and until the program reads keys one by one."""
        before = self.wait_for(sign)
        time.sleep(0.1)
        return before

    def gone(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
            self.pid = None
        return self.pid is None

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        """The exit status, once it has ended by itself."""
        end = time.monotonic() + 20
        while self.pid is not None and time.monotonic() < end:
            self.read(0.1)
            self.gone()
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"it goes on: {self.text!r}")
        os.close(self.fd)
        return self.status


def slow_card():
    """A simulated GPU that takes 20 ms for a token, so that a key comes in time."""
    path = os.path.join(FOLDER, "slow.sim")
    with open(path, "w") as f:
        f.write("name = slow\nvram_bytes = 1G\nbandwidth = 1e14\npcie_up = 1e12\npcie_down = 1e12\npcie_latency_us = 0\n"
                "dispatch_us = 0\nsubmit_us = 20000\nwake_us = 0\nflops = 1e15\njitter = 0\nseed = 1\nclock = real\n")
    return "sim:" + path


@case
def a_terminal_has_a_prompt_and_ctrl_d_ends():
    t = Terminal("-n", "5", "--greedy")
    t.type("Once upon\r")
    t.wait_for("Once upon\n")
    answer = t.prompt()
    check(len(answer.strip()) > 5, repr(answer))
    t.type("\x04")
    check(t.end() == 0, t.status)


@case
def without_a_model_one_of_the_list_is_chosen():
    os.makedirs(FOLDER + "/only", exist_ok=True)
    os.link(MODEL, FOLDER + "/only/chat.gguf")
    t = Terminal("-n", "2", model=[], sign="Which one? [1-1] ", HEARTH_MODELS=FOLDER + "/only")
    t.type("7\r")
    t.wait_for("Which one? [1-1] ")
    t.type("1\r")
    t.wait_for("hearth: chat by: template of the file")
    t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)
    for folder, word in [(FOLDER + "/only", "(1 are there)"), ("", "hearth pull ")]:
        done = subprocess.run([HEARTH, "chat"], input=b"", capture_output=True, env=environment(HEARTH_MODELS=folder))
        check(done.returncode in (1, 2) and word in done.stderr.decode(), done.returncode, done.stderr)
        check(len(done.stderr.splitlines()) <= 2, done.stderr)


@case
def ctrl_c_stops_the_answer_and_not_the_program():
    t = Terminal("--greedy", "--logit-bias", "2=-inf")
    t.type("Once upon a time\r")
    t.wait_for("time\n")
    t.wait_for(" ")
    t.type("\x03")
    t.wait_for("hearth: stopped")
    t.prompt()
    t.type("/reset\r")
    t.wait_for("begins again")
    t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)


@case
def figures_stand_below_an_answer_while_it_comes():
    for columns in (80, 15):  # too few for figures
        words = ["--gpu", slow_card(), "-n", "60", "--greedy", "--logit-bias", "2=-inf", "--stats", "live"]
        t = Terminal(*words, columns=columns)
        t.type("Once upon a time\r")
        answer = t.prompt()
        drawn = re.findall(r"\x1b7\n\x1b\[\?7l\x1b\[2m(.*?)\x1b\[m\x1b\[\?7h\x1b8", answer)
        check(all(re.fullmatch(r"\d+\.\d tokens/s", figures) for figures in drawn), drawn)
        check(bool(drawn) == (columns == 80), columns, drawn)
        end = answer.rindex("tokens were there") if columns == 80 else len(answer)
        check(not drawn or answer.rindex("\x1b[J", 0, end) > answer.rindex("tokens/s"), "it is erased", answer[-300:])
        t.type("\x04")
        check(t.end() == 0, t.status)


@case
def ctrl_c_before_the_first_token_keeps_the_last_answer():
    path = save_conversation("kept.jsonl", "Tell me a story about a dog and a cat. " * 20, "No.")
    t = Terminal("--gpu", slow_card(), "--batch", "1")
    t.type(f"/load {path}\r")
    t.wait_for("has 2 messages")
    t.prompt()
    t.type("/regenerate\r")
    t.wait_for("/regenerate\n")
    time.sleep(0.3)
    t.type("\x03")
    t.wait_for("hearth: stopped\nhearth: the last answer stays")
    t.prompt()
    t.type(f"/save {path}2\r")
    t.wait_for("2 messages are in")
    t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)
    with open(path) as before, open(path + "2") as after:
        check(list(map(json.loads, after)) == list(map(json.loads, before)), "the conversation is another")


@case
def ctrl_c_at_the_prompt_clears_the_line_and_twice_ends():
    path = os.path.join(FOLDER, "cleared.jsonl")
    t = Terminal("-n", "3")
    t.type("forget this")
    t.wait_for("this")
    t.type("\x03")
    t.prompt()
    time.sleep(1.1)
    t.type("keep\r")
    t.wait_for("keep")
    t.prompt()
    t.type(f"/save {path}\r")
    t.wait_for("messages are in")
    t.prompt()
    with open(path, encoding="utf-8") as f:
        check(json.loads(f.readline())["content"] == "keep", "the line was cleared")
    t.type("\x03")
    t.prompt()
    t.type("\x03")
    check(t.end() == 130, t.status)


@case
def the_line_can_be_edited_and_comes_back():
    if not has_editor():
        raise Skip("built without libedit")
    path = os.path.join(FOLDER, "edited.jsonl")
    t = Terminal("-n", "2")
    t.type("wrld é日本\x01hello \x05!\x1b[D\x1b[D\x1b[D\x7f\x1b[C\r")
    t.prompt()
    t.type("\x1b[A\r")
    t.prompt()
    t.type(f"/save {path}\r")
    t.wait_for("messages are in")
    t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)
    with open(path, encoding="utf-8") as f:
        said = [m["content"] for m in map(json.loads, f) if m["role"] == "user"]
    check(said == ["hello wrld 日本!"] * 2, said)


def has_editor():
    return "libedit" in subprocess.run(["ldd", HEARTH], capture_output=True, text=True).stdout


@case
def the_history_is_kept_for_its_owner_alone():
    if not has_editor():
        raise Skip("built without libedit")
    for key, wanted in [("first message\r", None), ("\x1b[A\r", "first message")]:
        t = Terminal("-n", "2")
        t.type(key)
        t.wait_for(wanted or "first message")
        t.prompt()
        t.type("\x04")
        check(t.end() == 0, t.status)
    path = os.path.join(FOLDER, "state", "hearth", "history")
    check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, oct(os.stat(path).st_mode))
    check(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700, "the folder")


@case
def the_history_lies_where_it_is_said_to_or_nowhere():
    if not has_editor():
        raise Skip("built without libedit")
    own, none, fifo, device, link, new, letter = (os.path.join(FOLDER, "history-" + name) for name in
                                                  ("own", "none", "fifo", "device", "link", "new", "letter"))
    with open(letter, "w") as f:
        f.write("dear")
    with open(own + ".part", "w") as f:
        f.write("of another program")
    os.mkfifo(fifo)
    links = {device: "/dev/null", link: "history-own", new: "history-later"}
    for path, target in links.items():
        os.symlink(target, path)
    for args, more, path in [(["--no-history"], {"XDG_STATE_HOME": none}, None),
                             ([], {"HEARTH_HISTORY": "", "XDG_STATE_HOME": none}, None),
                             (["--no-history"], {"HEARTH_HISTORY": none}, None),
                             ([], {"HEARTH_HISTORY": fifo}, None), ([], {"HEARTH_HISTORY": device}, None),
                             ([], {"HEARTH_HISTORY": letter}, None),
                             ([], {"HEARTH_HISTORY": own}, own), ([], {"HEARTH_HISTORY": link}, link),
                             ([], {"HEARTH_HISTORY": new}, new)]:
        t = Terminal("-n", "2", *args, **more)
        t.type("/help\r")
        t.wait_for("What was typed is kept in %s (--no-history" % (path or "no file"))
        t.prompt()
        t.type("a message\r")
        t.wait_for("a message\n")
        t.prompt()
        t.type("\x04")
        check(t.end() == 0, t.status)
        check(not os.path.exists(none), args, more, "a file or a folder was made")
        check(path is None or "message" in open(path).read(), "nothing is kept")
    check(stat.S_ISFIFO(os.stat(fifo).st_mode) and stat.S_ISCHR(os.stat(device).st_mode), "they are what they were")
    check({path: os.readlink(path) for path in links} == links, "links stay")
    with open(letter) as f:
        check(f.read() == "dear", "a file that is no history")
    with open(own + ".part") as f:
        check(f.read() == "of another program", "a file with a name of its own")


@case
def a_line_can_be_edited_after_a_stop_and_a_resize():
    """A shell sets the terminal its own way while the program is stopped."""
    if not has_editor():
        raise Skip("built without libedit")
    path = os.path.join(FOLDER, "resumed.jsonl")
    t = Terminal("-n", "2")
    edits = termios.tcgetattr(t.fd)
    t.type("world")
    t.wait_for("world")
    os.kill(t.pid, signal.SIGSTOP)
    os.waitpid(t.pid, os.WUNTRACED)
    line_mode = termios.tcgetattr(t.fd)
    line_mode[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(t.fd, termios.TCSANOW, line_mode)
    os.kill(t.pid, signal.SIGCONT)
    t.wait_for("> world")
    check(termios.tcgetattr(t.fd)[3] == edits[3], "the terminal does not edit")
    t.type("\x01hello \r")
    t.prompt()
    long = "a line that is longer than the terminal is wide once it is made narrow"
    t.type(long)
    t.wait_for("narrow")
    t.resize(30)
    os.kill(t.pid, signal.SIGWINCH)
    redrawn = t.wait_for("narrow")
    check("\x1b[2A" in redrawn and "\x1b[J" in redrawn and redrawn.count("a line") == 1, repr(redrawn))
    t.type("\r")
    t.prompt()
    t.resize(80)
    t.type(f"/save {path}\r")
    t.wait_for("messages are in")
    t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)
    with open(path, encoding="utf-8") as f:
        said = [m["content"] for m in map(json.loads, f) if m["role"] == "user"]
    check(said == ["hello world", long], said)


@case
def ctrl_z_stops_and_fg_goes_on():
    """At the prompt, and in an answer; lines can be edited behind both."""
    path = os.path.join(FOLDER, "job.jsonl")
    t = Terminal("--greedy", "--logit-bias", "2=-inf", "--gpu", slow_card(), is_job=True)

    def stop_and_go_on():
        t.type("\x1a")
        t.wait_for("[stopped]\n")
        t.type("fg\n")
        t.wait_for("fg\n")

    if has_editor():
        t.type("world")
        t.wait_for("world")
        stop_and_go_on()
        t.wait_for("> world")
        t.type("\x01hello ")
        t.wait_for("o")
    else:  # a terminal drops an unfinished line
        t.type("hello world")
    t.type("\r")
    t.wait_for("\n")
    t.wait_for(" ")
    stop_and_go_on()
    t.wait_for(" ")
    t.type("\x03")
    t.wait_for("hearth: stopped")
    t.prompt()
    t.type(f"{path}\x01/save \r" if has_editor() else f"/save {path}\r")
    t.wait_for("2 messages are in")
    t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)
    with open(path, encoding="utf-8") as f:
        check(json.loads(f.readline())["content"] == "hello world", "the line is another")


@case
def what_is_pasted_is_one_message():
    path = os.path.join(FOLDER, "pasted.jsonl")
    t = Terminal("-n", "2")
    t.type("line one\rline two\rline three\r")
    t.wait_for("three")
    t.prompt()
    t.type(f"/save {path}\r")
    t.wait_for("messages are in")
    t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)
    with open(path, encoding="utf-8") as f:
        said = [m["content"] for m in map(json.loads, f) if m["role"] == "user"]
    check(said == ["line one\nline two\nline three"], said)


def wrapped_answer(columns, resize=None):
    t = Terminal("-n", "60", "--greedy", columns=columns)
    if resize:
        t.resize(resize)  # before the answer: how far it is by then is not ours to say
    t.type("Once\r")
    t.wait_for("Once\n")
    lines = (t.prompt() + "\n").split("\n")
    t.type("\x04")
    check(t.end() == 0, t.status)
    return lines


@case
def answers_are_wrapped_at_spaces():
    wide, narrow = wrapped_answer(200), wrapped_answer(30)
    check(max(map(len, narrow)) <= 30 and len(narrow) > len(wide), narrow)
    check(" ".join(" ".join(narrow).split()) == " ".join(" ".join(wide).split()), narrow, wide)
    check(all(len(line) + 1 + len(following.split(" ")[0]) > 30 or not following
              for line, following in zip(narrow, narrow[1:]) if line and line in " ".join(wide) and not line.endswith((".", '"'))), narrow)
    check(max(map(len, wrapped_answer(200, resize=24))) <= 24, "a resized terminal")


@case
def reasoning_is_dim_on_a_terminal_alone():
    """The generation prompt begins the reasoning, and the model, which was not trained for it, never ends it."""
    thinks = TEMPLATE + "{% if add_generation_prompt %}<think>\n{% elif false %}</think>{% endif %}"
    model = [make_model("thinks.gguf", thinks)]

    def answer(model, **more):
        t = Terminal("-n", "20", "--greedy", model=model, **more)
        t.type("Once\r")
        t.wait_for("Once\n")
        text = t.prompt()
        t.type("\x04")
        check(t.end() == 0, t.status)
        return text

    dim = answer(model)
    check(dim.startswith("\x1b[2m") and dim.count("\x1b") == 2 and "\x1b[22m" in dim, dim)
    plain = dim.replace("\x1b[2m", "").replace("\x1b[22m", "")
    check(answer(model, NO_COLOR="1") == plain and answer(model, TERM="dumb") == plain, plain)
    check("\x1b" not in answer(None), "there is no reasoning")
    out, _ = pipe("Once\n", "-n", "20", "--greedy", model=model[0])
    check(" ".join(out.split()) == " ".join(plain.split()), out, plain)


@case
def calls_stand_on_lines_of_their_own():
    """The story model goes on with the same tokens, which have the marks of gpt-oss and a call as texts here."""
    begins = "<|start|>assistant<|channel|>"
    texts = {"\u2581upon": "<|channel|>analysis<|message|>Well.<|end|>", "\u2581a": begins + "commentary to=functions.find<|message|>",
             "\u2581time": '{"a": 1}<|call|>' + begins + "final<|message|>Found."}
    model = [make_model("harmony.gguf", "{{ messages[-1].content }}{# <|channel|> tools #}", renamed=list(texts.items()))]
    t = Terminal("-n", "3", "--greedy", model=model)
    t.type("Once\r")
    t.wait_for("Once\n")
    answer = t.prompt()
    t.type("\x04")
    check(t.end() == 0, t.status)
    plain = answer.replace("\x1b[2m", "").replace("\x1b[22m", "")
    check(plain.split("\n")[:3] == ["Well.", 'find {"a": 1}', "Found."] and answer != plain, answer)


@case
def a_signal_to_end_ends():
    for number in (signal.SIGTERM, signal.SIGHUP):
        t = Terminal("-n", "5")
        os.kill(t.pid, number)
        check(t.end() == 128 + number, t.status)


@case
def the_terminal_is_left_as_it_was():
    for early, keys in ((b"", b"\x04"), (b"\x04", b"\x04"), (b"", b"\x03"), (b"", b"/exit\r")):
        outer, inner = open_terminal()
        before = termios.tcgetattr(inner)
        os.write(outer, early)
        child = subprocess.Popen([HEARTH, "chat", MODEL], stdin=inner, stdout=inner, stderr=subprocess.DEVNULL, env=environment(),
                                 start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        end, typed = time.monotonic() + 20, 0.0
        while child.poll() is None and time.monotonic() < end:
            if select.select([outer], [], [], 0.1)[0]:
                os.read(outer, 4096)
            elif time.monotonic() - typed > 0.5:  # Ctrl-C is wanted twice
                typed = time.monotonic()
                os.write(outer, keys)
        check(child.poll() is not None, "it goes on after", early, keys)
        check(termios.tcgetattr(inner) == before, early, keys)
        os.close(outer)
        os.close(inner)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hearth-chat-") as FOLDER:
        MODEL = make_model("chat.gguf", TEMPLATE)
        run_cases(__file__)
