"""hearth run with --ram while things go wrong: kills, a file that becomes shorter, a disk that is slow, or full, limits
of memory that are none. Called by CTest with the program's path. Python 3, standard library only."""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

from program import HEARTH, TIMEOUT, cases, case, check, good, bad, failure_line, least_ram, scratch, data

LONG = os.environ.get("HEARTH_LONG") and not os.environ.get("HEARTH_SANITIZED")
FLOATS = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")


def telling(model, n="16"):
    return ["run", model, "-p", "Once upon a time", "-n", n, "-c", "128", "--batch", "16", "-t", "1", "--seed", "1",
            "--ignore-eos", "--gpu", "none"]


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def shared_memory_of(process):
    """Segments that a process made, and names in /dev/shm that are ours, as far as the machine has them."""
    segments, named = [], []
    if os.path.exists("/proc/sysvipc/shm"):
        with open("/proc/sysvipc/shm", encoding="ascii") as f:
            segments = [line for line in f if line.split()[4] == str(process.pid)]
    if os.path.isdir("/dev/shm"):
        named = [name for name in os.listdir("/dev/shm") if "hearth" in name]
    return segments + named


def members_of_group(group):
    """Processes of a group that run; where init does not wait for those that have ended, they stay zombies."""
    members = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as f:
                state, _, of_group = f.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of_group) == group and state not in "ZX":
            members.append(int(pid))
    return members


def has_threads(pid):
    try:
        return len(os.listdir("/proc/%d/task" % pid)) > 1
    except OSError:
        return False


def living_of_group(group):
    """Processes of a group that run 10 s after its leader has ended. A sanitizer looks for leaks by a process of its
    own, which ends a moment later than one that is killed meanwhile."""
    end = time.monotonic() + 10
    while (living := members_of_group(group)) and time.monotonic() < end:
        time.sleep(0.01)
    return living


def files_below(folder):
    return sorted(os.path.join(parent, name) for parent, folders, names in os.walk(folder) for name in names + folders)


# After a signal, before the handler is set, and where the run had ended by itself.
STATUS = {signal.SIGKILL: {-9, 0}, signal.SIGINT: {130, -2, 0}, signal.SIGTERM: {143, -15, 0}}


@case
def a_killed_run_leaves_nothing_behind():
    random.seed(16)
    model = shutil.copy(FLOATS, scratch("model.gguf"))
    os.mkdir(scratch("tmp"))
    env = {**os.environ, "HOME": scratch("tmp"), "TMPDIR": scratch("tmp"), "HEARTH_CACHE": scratch("tmp")}
    words, limit = telling(model), least_ram(*telling(model))
    slowest, killed = 0, {number: 0 for number in STATUS}
    whole, expected = digest(model), good(*words, "--ram", limit).stdout
    readers, seconds = ["auto", "pread", "sim:sata"], {}
    for io in readers:
        start = time.monotonic()
        good(*words, "--ram", limit, "--io", io)
        seconds[io] = time.monotonic() - start
    files = files_below(scratch())
    i, wanted = 0, 1000 if LONG else 20
    while sum(killed.values()) < wanted:
        i += 1
        check(i < 5 * wanted, "too late", killed)
        number, io = list(STATUS)[i % 3], readers[i // 3 % 3]
        process = subprocess.Popen([HEARTH, *words, "--ram", limit, "--io", io], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=env, cwd=scratch("tmp"), start_new_session=True)
        time.sleep(random.uniform(0, seconds[io]))
        process.send_signal(number)
        start = time.monotonic()
        out, err = process.communicate(timeout=TIMEOUT)
        slowest = max(slowest, time.monotonic() - start)
        about = ("kill", i, number, io, "exit", process.returncode)
        check(process.returncode in STATUS[number], *about, err)
        killed[number] += process.returncode != 0
        check(number == signal.SIGKILL or not out or out.endswith(b"\n"), *about, out)
        check(files_below(scratch()) == files, *about, "left", set(files_below(scratch())) - set(files))
        check(not shared_memory_of(process), *about, shared_memory_of(process))
        left = living_of_group(process.pid)
        check(not left, *about, "left", left)
    print("     killed: %s of %d, whose runs take %.2f s; the slowest end took %.0f ms"
          % (", ".join(map(str, killed.values())), i, max(seconds.values()), slowest * 1000))
    check(slowest < 10, slowest)
    check(digest(model) == whole, "the model is another one")
    check(good(*words, "--ram", limit).stdout == expected, "another text than before")


@case
def what_measures_for_a_run_ends_with_it():
    """--stats measures the disk in a process of its own, which is stopped here, so that it cannot end by itself.
    With a sanitizer a model that a run reads fits into the memory of the smaller process, which measures no disk."""
    if os.environ.get("HEARTH_SANITIZED"):
        return
    words = [*telling(FLOATS), "--ram", least_ram(*telling(FLOATS)), "--io", "sim:sd", "--stats"]
    process = subprocess.Popen([HEARTH, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    others = []
    while not others and process.poll() is None:
        others = [pid for pid in members_of_group(process.pid) if pid != process.pid and has_threads(pid)]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    left = living_of_group(process.pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    check(others and not left, "measured", others, "left", left)


@case
def a_file_that_becomes_shorter_ends_the_text_with_one_line():
    model = shutil.copy(FLOATS, scratch("model.gguf"))
    words = telling(model, "100000")
    words[words.index("-c") + 1] = "512"
    session = scratch("session")
    for io in ["auto", "pread", "sim:sata"]:
        shutil.copyfile(FLOATS, model)
        limit = least_ram(*words)
        process = subprocess.Popen([HEARTH, *words, "--ram", limit, "--io", io, "-q", "--no-echo", "--save-session",
                                    session], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = os.read(process.stdout.fileno(), 1)
        os.truncate(model, 100000)
        out, err = process.communicate(timeout=TIMEOUT)
        line = failure_line(subprocess.CompletedProcess(words, process.returncode, out, err), words)
        check(process.returncode == 1 and first, io, process.returncode)
        check("model.gguf: ends at or before byte" in line and "the file became shorter" in line, io, line)
        check(out.endswith(b"\n"), io, out)
        shutil.copyfile(FLOATS, model)
        again = [*words[:words.index("-p")], *words[words.index("-c"):], "-n", "1", "--session", session, "--json"]
        saved = json.loads(good(*again).stdout)
        check(saved["prompt_tokens_reused"] > 0, io, "the session was saved", saved)
        os.unlink(session)


@case
def a_replaced_or_deleted_file_tells_the_same_text():
    model = scratch("model.gguf")
    shutil.copyfile(FLOATS, model)
    words, limit = telling(model, "40"), least_ram(*telling(model))
    expected = good(*words, "--ram", limit).stdout
    for change in [os.unlink, lambda path: os.replace(scratch("other", b"another file"), path)]:
        shutil.copyfile(FLOATS, model)
        process = subprocess.Popen([HEARTH, *words, "--ram", limit, "--io", "sim:sata"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        first = os.read(process.stdout.fileno(), 1)
        change(model)
        out, err = process.communicate(timeout=TIMEOUT)
        check(process.returncode == 0 and first + out == expected, process.returncode, out, err)


@case
def slow_and_full_disks_tell_the_same_text():
    """Generating writes no file: none may have a byte."""
    words = [*telling(FLOATS, "3"), "--ram", least_ram(*telling(FLOATS, "3"))]
    expected = good(*words).stdout
    check(good(*words, "--io", "sim:sd").stdout == expected, "a slow disk")
    full = good(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    check(full.stdout == expected, full.stdout)


@case
def limits_of_memory_that_are_none_are_refused():
    for much in ["9223372036854775807", "99999999999999G", "99999999T", "18446744073709551616"]:
        bad(2, f"--ram '{much}': too large, expected at most 9000000000000000000 bytes", *telling(FLOATS), "--ram", much)
    for wrong in ["-1", "1e99", "some", "", "0x10", "1 G", "2GB", "0", "0K"]:
        line = bad(2, f"--ram '{wrong}': expected bytes, at least 1, ", *telling(FLOATS), "--ram=" + wrong)
        check("K, M, G, T" in line and "auto" in line, line)
    for little in ["1", "1K", "1M"]:
        line = bad(1, f"{os.path.basename(FLOATS)}: needs at least ", *telling(FLOATS), "--ram", little)
        check("; -c and --batch make it less" in line, line)
    in_memory = json.loads(good(*telling(FLOATS), "--ram", "8000000T", "--json").stdout)
    check("storage" not in in_memory, in_memory)


if __name__ == "__main__":
    cases.run_cases(__file__)
