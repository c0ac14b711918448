"""The sandbox of a server that runs: what its threads can do, and that what a server does still works. Called by CTest
with the program's path and the library of tests/preload that tries to break out."""

import errno
import os
import re
import shutil
import sys
import tempfile

from server import MODEL, Server, case, cases, check, run_all, scratch

BREAK_OUT = sys.argv[2]
ASK = {"prompt": "Once upon", "max_tokens": 3, "temperature": 0}


def threads(s):
    """For each thread its name, and whether it has a filter and can get no privileges."""
    found = {}
    for tid in os.listdir(f"/proc/{s.process.pid}/task"):
        with open(f"/proc/{s.process.pid}/task/{tid}/status", encoding="ascii") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        found[tid] = (status["Name"], int(status["Seccomp"]), int(status["NoNewPrivs"]))
    return found


def needs_whole_sandbox(s):
    if any(line and "the sandbox is incomplete" in line for line in s.lines):
        raise cases.Skip("this system has no Landlock or no filters of system calls")


def tried(s, thread):
    """What the preloaded library saw there: numbers of errors."""
    line = s.wait_for(f"break_out {thread}:")
    return {name: int(n) for name, n in re.findall(r"(\w+) (\d+)", line.split(":", 1)[1])}


@case
def every_thread_is_in_it():
    with Server() as s:
        needs_whole_sandbox(s)
        check(s.post("/v1/completions", ASK).status == 200, "an answer")
        found = threads(s).values()
        check(len(found) >= 4 and {"hearth-engine", "hearth-reader"} <= {name for name, *_ in found}, found)
        check(all(seccomp == 2 and no_new == 1 for _, seccomp, no_new in found), found)
        filters = open(f"/proc/{s.process.pid}/status", encoding="ascii").read()
        with open("/proc/self/status", encoding="ascii") as f:
            own = int(re.search(r"Seccomp_filters:\t(\d+)", f.read())[1])
        check(f"Seccomp_filters:\t{own + 2}\n" in filters, "the filter, and the seal after opening", filters)


@case
def what_a_fault_would_be_used_for_is_refused():
    secret = scratch("secret", b"a key")
    with tempfile.TemporaryDirectory() as folder:
        model = shutil.copy(MODEL, folder)
        env = {"LD_PRELOAD": BREAK_OUT, "BREAK_OUT_FILE": secret}
        with Server(model=model, env=env) as s:
            needs_whole_sandbox(s)
            check(s.post("/v1/completions", ASK).status == 200, "an answer")
            for thread in ("hearth-engine", "hearth"):
                check(tried(s, thread) == {"socket": errno.EPERM, "execve": errno.EPERM, "read": errno.EACCES,
                                           "write": errno.EACCES}, tried(s, thread))
        with Server("--no-sandbox", model=model, env=env) as s:
            check(s.post("/v1/completions", ASK).status == 200, "an answer")
            check(tried(s, "hearth") == {"socket": 0, "execve": errno.ENOENT, "read": 0, "write": 0}, "without")
            check(not any(no_new for *_, no_new in threads(s).values()), threads(s))


@case
def models_are_opened_in_turns_and_caches_are_written_in_it():
    with tempfile.TemporaryDirectory() as folder:
        models, blobs, kept, cache = (os.path.join(folder, name) for name in ("models", "blobs", "kept", "cache"))
        os.mkdir(models), os.mkdir(blobs)
        shutil.copy(MODEL, os.path.join(models, "a.gguf"))
        shutil.copy(MODEL, os.path.join(blobs, "sha"))  # as hubs keep them
        os.symlink("../blobs/sha", os.path.join(models, "b.gguf"))
        for _ in range(2):
            with Server("--kv-dir", kept, model=models, env={"HEARTH_CACHE": cache}) as s:
                for name in ("a", "b", "a", "b"):
                    answer = s.post("/v1/completions", {**ASK, "model": name, "prompt": "Once upon a time. " * 12})
                    check(answer.status == 200, name, answer.body, s.lines)
            check(sorted(os.listdir(kept)) == ["a", "b"], os.listdir(kept))
            check(all(os.listdir(os.path.join(kept, name)) for name in "ab"), "requests are kept")
        check(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, "read again", answer.body)


@case
def what_a_system_lacks_is_one_line():
    # A filter as of a container: landlock_create_ruleset does not exist.
    start = ("import ctypes,os,struct,sys; code = struct.pack('=' + 'HBBI' * 4, 32,0,0,0, 21,0,1,444, 6,0,0,0x50026, 6,0,0,0x7fff0000);"
             "text = ctypes.create_string_buffer(code); libc = ctypes.CDLL(None); libc.prctl(38, 1, 0, 0, 0);"
             "libc.prctl(22, 2, struct.pack('=HHIQ', 4, 0, 0, ctypes.addressof(text))); os.execv(sys.argv[1], sys.argv[1:])")
    with Server(wrap=[sys.executable, "-c", start]) as s:
        check(s.post("/v1/completions", ASK).status == 200, "an answer")
        said = [line for line in s.lines if line and "sandbox" in line]
        check(len(said) == 1 and "Landlock" in said[0] and "--no-sandbox" in said[0], s.lines)
        check(all(seccomp == 2 for _, seccomp, _ in threads(s).values()), threads(s))


if __name__ == "__main__":
    run_all(__file__)
