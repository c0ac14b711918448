"""hearth pull, list, rm, and names of models in place of paths, as a user meets them, against a hub of the
test's own (tests/support/hub_server.py) that breaks off, lies, redirects and refuses. Called by CTest with the
program's path. Python 3, standard library only."""

import fcntl
import functools
import hashlib
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time

from program import HEARTH, SOURCE, MODEL, cases, check
from hub_server import COMMIT, Fault, HubServer

TIMEOUT = 300
REPO, NAME = "org/Some-Model-GGUF", "org/Some-Model-GGUF:Q4_0"
FILE = "some-model-Q4_0.gguf"
CONTENT = random.Random(7).randbytes(400_000)
SHA = hashlib.sha256(CONTENT).hexdigest()
scratch = hub = None  # a folder and a hub of its own for each case


def case(function):
    @functools.wraps(function)
    def with_scratch():
        global scratch, hub
        with tempfile.TemporaryDirectory(prefix="hearth-test-") as scratch, HubServer() as hub:
            hub.add(REPO, {FILE: CONTENT, "mmproj-some-model-Q4_0.gguf": b"not it"})
            function()

    return cases.case(with_scratch)


def environment(**more):
    own = {"HF_HOME": os.path.join(scratch, "hf"), "HF_ENDPOINT": hub.endpoint,
           "HEARTH_CACHE": os.path.join(scratch, "kept"), "NO_PROXY": "*"}
    return cases.clean_environment(scratch, **{**own, **more})


def hearth(*args, env=None, **more):
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    done = subprocess.run([HEARTH, *args], env=environment(**(env or {})), timeout=TIMEOUT,
                          stdin=subprocess.DEVNULL, **more)
    if b"was built without" in done.stderr:
        raise cases.Skip(done.stderr.decode().strip())
    return done


def needs_pull():
    """Skips a case that starts the program by other means, where it was built without libcurl."""
    hearth("pull", REPO, "--retries", "0", env={"HF_ENDPOINT": "http://127.0.0.1:1"})


def said(done):
    return done.stdout.decode("utf-8", "replace") + done.stderr.decode("utf-8", "replace")


def good(*args, **more):
    done = hearth(*args, **more)
    check(done.returncode == 0, args, "exit", done.returncode, said(done))
    return done


def bad(status, word, *args, **more):
    """Its last line on stderr, which holds the word."""
    done = hearth(*args, **more)
    check(done.returncode == status, args, "exit", done.returncode, said(done))
    text = done.stderr.decode()
    check(not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text), args, "control bytes in", text)
    line = text.rstrip("\n").split("\n")[-1]
    check(line.startswith("hearth: ") and word in line, args, "lacks", repr(word), text)
    return text


def pull(*args, **more):
    return good("pull", *args, **more)


def cached(*parts, repo=REPO):
    return os.path.join(scratch, "hf", "hub", "models--" + repo.replace("/", "--"), *parts)


def blob(sha=SHA):
    return cached("blobs", sha)


def content_of(path):
    with open(path, "rb") as f:
        return f.read()


def check_pulled(content=CONTENT, file=FILE):
    link = cached("snapshots", COMMIT, file)
    check(content_of(link) == content, "another content")
    check(not os.path.exists(blob(hashlib.sha256(content).hexdigest()) + ".incomplete"), "the part is left")


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(content)
    return path


# ---- what pull brings ---------------------------------------------------------------------------------


@case
def pull_writes_the_layout_of_huggingface_hub():
    text = pull(REPO).stdout.decode()
    check(NAME in text and "SHA-256 checked" in text and f"hearth chat {NAME}" in text, text)
    check_pulled()
    link = cached("snapshots", COMMIT, FILE)
    check(os.readlink(link) == f"../../blobs/{SHA}", os.readlink(link))
    check(content_of(cached("refs", "main")) == COMMIT.encode(), "refs/main")
    check(os.path.exists(os.path.join(scratch, "hf", "hub", ".locks", "models--org--Some-Model-GGUF", SHA + ".lock")), "no lock")
    check(sorted(os.listdir(cached("blobs"))) == [SHA], os.listdir(cached("blobs")))


@case
def files_in_folders_have_links_that_lead_to_blobs():
    hub.add("org/deep", {"a/b/m-Q8_0.gguf": CONTENT})
    pull("org/deep:q8_0")
    link = cached("snapshots", COMMIT, "a", "b", "m-Q8_0.gguf", repo="org/deep")
    check(os.readlink(link) == f"../../../../blobs/{SHA}" and content_of(link) == CONTENT, os.readlink(link))


@case
def pull_tells_programs_what_it_brought():
    answer = json.loads(pull(REPO, "--json").stdout)
    check(answer["name"] == NAME and answer["path"] == cached("snapshots", COMMIT, FILE), answer)
    check(answer["size_bytes"] == answer["loaded_bytes"] == len(CONTENT) and answer["sha256_verified"], answer)


@case
def a_cache_is_found_by_each_variable():
    for variable, folder in [("HF_HUB_CACHE", "x"), ("HF_HOME", "y"), ("XDG_CACHE_HOME", "z"), (None, "home")]:
        at = os.path.join(scratch, folder)
        env = {"HF_HOME": "", "HOME": at}
        if variable:
            env[variable] = at
        pull(REPO, env=env)
        below = {"x": "", "y": "hub", "z": "huggingface/hub", "home": ".cache/huggingface/hub"}[folder]
        check(os.path.exists(os.path.join(at, below, "models--org--Some-Model-GGUF", "blobs", SHA)), variable)


@case
def what_is_there_is_not_loaded_again():
    pull(REPO)
    n = len(hub.of_kind("content"))
    text = pull(NAME).stdout.decode()
    check("there already" in text and len(hub.of_kind("content")) == n == 1, text)


@case
def what_other_programs_brought_is_not_loaded_again():
    write(blob(), CONTENT)  # as huggingface_hub leaves a blob of another revision
    pull(REPO)
    check_pulled()
    shutil.rmtree(cached())
    write(cached("snapshots", COMMIT, FILE), CONTENT)  # as it does where there are no links
    pull(REPO)
    check(hub.of_kind("content") == [] and not os.path.islink(cached("snapshots", COMMIT, FILE)), "was loaded")


@case
def a_blob_of_another_size_is_loaded_again():
    write(blob(), CONTENT[:-1])
    pull(REPO)
    check_pulled()


@case
def a_link_that_leads_nowhere_is_made_good():
    os.makedirs(cached("snapshots", COMMIT))
    os.symlink("../../blobs/gone", cached("snapshots", COMMIT, FILE))
    pull(REPO)
    check_pulled()


@case
def a_revision_is_a_branch_a_tag_or_a_commit():
    other = "f" * 40
    hub.add("org/rev", {FILE: CONTENT}, commit=other, revisions=("main", "v1.0", "refs/pr/1"))
    for revision in ("v1.0", "refs/pr/1", other):
        pull("org/rev", "--revision", revision)
    check(content_of(cached("refs", "v1.0", repo="org/rev")) == other.encode(), "refs/v1.0")
    check(content_of(cached("refs", "refs", "pr", "1", repo="org/rev")) == other.encode(), "refs/refs/pr/1")
    check(not os.path.exists(cached("refs", other, repo="org/rev")), "a commit needs no ref")
    bad(1, "has no revision 'v2'", "pull", "org/rev", "--revision", "v2")
    bad(1, "is no name of a branch", "pull", "org/rev", "--revision", "../x")


@case
def all_parts_of_a_split_model_come():
    parts = {f"big-Q8_0-0000{i}-of-00003.gguf": CONTENT[i * 1000:] for i in (1, 2, 3)}
    hub.add("org/big", dict(parts, **{"other-Q4_0.gguf": b"x"}))
    text = pull("org/big:Q8_0", "--json").stdout
    check(json.loads(text)["size_bytes"] == sum(map(len, parts.values())), text)
    check(json.loads(text)["name"] == "org/big:Q8_0" and json.loads(text)["path"].endswith("-00001-of-00003.gguf"), text)
    for name, content in parts.items():
        check(content_of(cached("snapshots", COMMIT, name, repo="org/big")) == content, name)
    del parts["big-Q8_0-00002-of-00003.gguf"]
    hub.add("org/less", parts)
    bad(1, "has no part 2 of the 3", "pull", "org/less")


@case
def without_a_quantisation_the_usual_one_comes():
    hub.add("org/many", {"m-Q8_0.gguf": b"eight", "m-Q4_K_M.gguf": b"four", "m-F16.gguf": b"long"})
    check(b"org/many:Q4_K_M" in pull("org/many").stdout, "default")
    hub.add("org/two", {"m-Q2_K.gguf": b"two" * 1000, "m-Q3_K_S.gguf": b"three"})
    text = bad(1, "2 files could be meant", "pull", "org/two")
    check("Q2_K" in text and "2.93 KiB" in text and "m-Q3_K_S.gguf" in text, text)
    check(b"org/two:Q3_K_S" in pull("org/two:m-Q3_K_S.gguf").stdout, "by file")
    text = bad(1, "has no file of 'Q5_0'", "pull", "org/many:Q5_0")
    check("Q8_0" in text and "m-F16.gguf" in text, text)
    hub.add("org/none", {"mmproj-Q4_0.gguf": b"x", "m.imatrix.gguf": b"y"})
    bad(1, "has no GGUF file of a model", "pull", "org/none")


@case
def addresses_of_the_hub_are_repositories_too():
    pull("hf.co/" + NAME)
    pull("https://huggingface.co/" + REPO)
    check_pulled()


@case
def lists_of_files_go_on_over_pages():
    hub.page = 2
    pull(REPO)
    check(len(hub.of_kind("tree")) == 2, hub.of_kind("tree"))
    hub.faults.append(Fault("tree", headers={"Link": '<http://localhost:1/api/models/x>; rel="next"'}))
    bad(1, "where hearth does not go", "pull", REPO)


@case
def a_file_outside_of_lfs_has_its_size_checked():
    hub.add("org/small", {FILE: b"tiny"}, lfs=False)
    text = pull("org/small").stdout.decode()
    check("its size checked" in text, text)
    check(os.listdir(cached("blobs", repo="org/small")) == [hashlib.sha1(b"tiny").hexdigest()], "name")


# ---- connections that break ------------------------------------------------------------------------------


@case
def a_broken_connection_is_continued_where_it_broke():
    hub.faults.append(Fault("content", cut=150_000))
    text = said(pull(REPO))
    check("trying again in 1 s" in text, text)
    check_pulled()
    ranges = [headers.get("Range") for _, _, headers in hub.of_kind("content")]
    check(ranges == [None, "bytes=150000-"], ranges)


@case
def what_came_is_kept_for_the_next_time():
    hub.faults.append(Fault("content", cut=150_000))
    bad(1, "what came is kept", "pull", REPO, "--retries", "0")
    check(os.path.getsize(blob() + ".incomplete") == 150_000 and not os.path.exists(blob()), "the part")
    text = said(pull(REPO))
    check("146.48 KiB of 390.63 KiB are there already" in text, text)
    check(hub.of_kind("content")[-1][2]["Range"] == "bytes=150000-", "the range")
    check_pulled()


@case
def a_part_that_is_whole_is_only_checked():
    write(blob() + ".incomplete", CONTENT)
    pull(REPO)
    check(hub.of_kind("content") == [], "was loaded")
    check_pulled()


@case
def a_server_without_ranges_begins_again():
    write(blob() + ".incomplete", CONTENT[:1000])
    hub.faults.append(Fault("content", no_range=True))
    pull(REPO)
    check_pulled()


@case
def a_range_that_cannot_be_had_begins_again():
    write(blob() + ".incomplete", CONTENT[:1000])
    hub.faults.append(Fault("content", status=416))
    pull(REPO)
    check([h.get("Range") for _, _, h in hub.of_kind("content")] == ["bytes=1000-", None], "ranges")
    check_pulled()
    os.remove(blob())
    hub.faults.append(Fault("content", times=9, status=416))
    bad(1, "answers 416", "pull", REPO)


@case
def other_bytes_than_those_asked_for_are_not_taken():
    for headers in ({"Content-Range": "bytes 0-398999/400000"}, {"Content-Range": "bytes 1000-1999/2000"},
                    {"Content-Range": "nonsense"}):
        write(blob() + ".incomplete", CONTENT[:1000])
        hub.faults.append(Fault("content", headers=headers))
        pull(REPO)
        check_pulled()
        os.remove(blob())


@case
def parts_that_are_longer_than_the_file_begin_again():
    write(blob() + ".incomplete", CONTENT + b"more")
    pull(REPO)
    check_pulled()


@case
def a_wrong_part_is_found_and_deleted():
    write(blob() + ".incomplete", b"x" * 1000)
    bad(1, "what came is wrong, and deleted", "pull", REPO)
    check(not os.path.exists(blob()) and not os.path.exists(blob() + ".incomplete"), "something is left")
    pull(REPO)
    check_pulled()


@case
def a_silent_server_is_given_up():
    hub.faults.append(Fault("content", cut=100_000, hang=30))
    start = time.monotonic()
    text = said(pull(REPO, "--timeout", "1"))
    check(time.monotonic() - start < 20 and "trying again" in text, text)
    check(hub.of_kind("content")[-1][2]["Range"] == "bytes=100000-", "the range")
    check_pulled()
    hub.faults.append(Fault("revision", cut=0, hang=30))
    bad(1, "127.0.0.1", "pull", REPO, "--timeout", "1", "--retries", "0")


@case
def a_server_that_is_not_there_is_said_at_once():
    start = time.monotonic()
    bad(1, "127.0.0.1:1", "pull", REPO, env={"HF_ENDPOINT": "http://127.0.0.1:1"})
    check(time.monotonic() - start < 10, "it waited")


@case
def two_at_once_load_once():
    needs_pull()
    hub.faults.append(Fault("content", slow=0.1))
    both = [subprocess.Popen([HEARTH, "pull", REPO], env=environment(), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE) for _ in range(2)]
    texts = [b"".join(p.communicate(timeout=TIMEOUT)).decode() for p in both]
    check([p.returncode for p in both] == [0, 0], texts)
    check(len(hub.of_kind("content")) == 1, "loaded", len(hub.of_kind("content")))
    check(sum("waiting for it" in text for text in texts) == 1, texts)
    check_pulled()


def stop(number, status):
    needs_pull()
    hub.faults.append(Fault("content", slow=0.2))
    p = subprocess.Popen([HEARTH, "pull", REPO], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    part = blob() + ".incomplete"
    deadline = time.monotonic() + 60
    while not (os.path.exists(part) and os.path.getsize(part) > 0) and time.monotonic() < deadline:
        time.sleep(0.02)
    p.send_signal(number)
    text = p.communicate(timeout=TIMEOUT)[1].decode()
    check(p.returncode == status and "are kept; the same command goes on from there" in text, p.returncode, text)
    check(0 < os.path.getsize(part) < len(CONTENT) and not os.path.exists(blob()), "the part")


@case
def ctrl_c_keeps_what_came():
    stop(signal.SIGINT, 130)
    kept = os.path.getsize(blob() + ".incomplete")
    pull(REPO)
    check(hub.of_kind("content")[-1][2]["Range"] == f"bytes={kept}-", "the range")
    check_pulled()


@case
def ctrl_c_ends_waiting_too():
    needs_pull()
    hub.faults.append(Fault("revision", status=429, headers={"Retry-After": "500"}))
    p = subprocess.Popen([HEARTH, "pull", REPO], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not hub.of_kind("revision") and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    p.send_signal(signal.SIGINT)
    start = time.monotonic()
    p.communicate(timeout=TIMEOUT)
    check(p.returncode == 130 and time.monotonic() - start < 5, p.returncode)


@case
def a_full_disk_is_said_and_what_came_is_kept():
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    text = bad(1, "the same command goes on from there", "pull", REPO, preexec_fn=limit)
    check("File too large" in text and "292.97 KiB more are needed" in text, text)
    check(os.path.getsize(blob() + ".incomplete") == 100_000, "the part")
    pull(REPO)
    check(hub.of_kind("content")[-1][2]["Range"] == "bytes=100000-", "the range")
    check_pulled()


@case
def a_model_that_cannot_fit_is_refused_before_it_comes():
    entry = [{"type": "file", "path": FILE, "oid": "1" * 40, "size": 1 << 49, "lfs": {"oid": SHA, "size": 1 << 49}}]
    hub.faults.append(Fault("tree", body=json.dumps(entry).encode()))
    text = bad(1, "are free where", "pull", REPO)
    check("512.00 TiB more" in text and not hub.of_kind("content"), text)


@case
def a_folder_that_cannot_be_written_is_named():
    if os.geteuid() == 0:
        write(os.path.join(scratch, "hf"), b"a file where a folder should be")
    else:
        os.makedirs(os.path.join(scratch, "hf"), mode=0o555)
    bad(1, os.path.join(scratch, "hf"), "pull", REPO)


@case
def a_long_download_shows_rate_and_time_left():
    hub.faults.append(Fault("content", slow=0.15))
    check(pull(REPO).stderr == b"", "without a terminal")
    good("rm", NAME)
    hub.faults.append(Fault("content", slow=0.15))
    text = pull(REPO, "--verbose").stderr.decode()
    check(re.fullmatch(r"(loading +\d+ %  0\.\d/0\.4 MiB  \d\.\d MiB/s  \d+ s left\n)+", text), "--verbose:", text)
    good("rm", NAME)
    hub.faults.append(Fault("content", slow=0.15))
    terminal, line = cases.open_terminal()
    p = subprocess.Popen([HEARTH, "pull", REPO], env=environment(), stdout=subprocess.PIPE, stderr=line)
    os.close(line)
    text = b""
    while p.poll() is None:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                text += os.read(terminal, 65536)
            except OSError:  # the program is gone
                break
    p.communicate(timeout=TIMEOUT)
    check(p.returncode == 0, text)
    check(re.search(rb"\rloading \[#+\.*\] +\d+ %  0\.\d/0\.4 MiB  \d\.\d MiB/s  \d+ s left", text), text)
    check_pulled()


# ---- servers that lie -------------------------------------------------------------------------------------


@case
def sizes_that_differ_are_not_believed():
    for fault in (Fault("resolve", headers={"X-Linked-Size": "399999"}),
                  Fault("content", change=lambda body: body[:-1]),
                  Fault("content", change=lambda body: body + b"x"),
                  Fault("content", change=lambda body: body + b"x", no_length=True)):
        hub.faults[:] = [fault]
        if fault.kind == "resolve":
            fault.status = 302
            fault.headers["Location"] = f"http://localhost:{hub.contents.server_address[1]}/blobs/{SHA}"
        text = bad(1, "nothing of it can be believed", "pull", REPO)
        check("announced 400000 bytes" in text and not os.path.exists(blob()), text)
        shutil.rmtree(cached(), ignore_errors=True)


@case
def an_answer_without_a_length_that_ends_early_is_continued():
    hub.faults.append(Fault("content", change=lambda body: body[:100_000], no_length=True))
    pull(REPO)
    check_pulled()


@case
def another_content_is_deleted():
    hub.faults.append(Fault("content", change=lambda body: b"y" + body[1:]))
    text = bad(1, "what came is wrong, and deleted", "pull", REPO)
    check(SHA in text, text)
    check(os.listdir(cached("blobs")) == [], os.listdir(cached("blobs")))
    check(not os.path.exists(cached("snapshots", COMMIT, FILE)), "it has a name")


@case
def names_that_lead_out_of_the_cache_are_refused():
    before = sorted(os.listdir(scratch))
    for path in ("../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "a\\evil.gguf", "a//evil.gguf",
                 "evil\x1b[31m.gguf", "x" * 600 + ".gguf", "./evil.gguf"):
        hub.add("org/evil", {path: CONTENT})
        text = bad(1, "which no cache can hold", "pull", "org/evil")
        check("\x1b" not in text, text)
    check(sorted(os.listdir(scratch)) == before, os.listdir(scratch))


@case
def what_is_announced_must_be_sound():
    lfs = {"oid": SHA, "size": 400_000}
    for entry, word in [({"path": FILE}, "without type or path"), ({"type": "file"}, "without type or path"),
                        ({"type": 1, "path": []}, "without type or path"), (7, "without type or path"),
                        ({"type": "file", "path": FILE, "lfs": lfs | {"oid": "../" + SHA[3:]}}, "no hash"),
                        ({"type": "file", "path": FILE, "lfs": lfs | {"oid": SHA.upper()}}, "no hash"),
                        ({"type": "file", "path": FILE, "lfs": 5}, "no possible size"),
                        ({"type": "file", "path": FILE, "lfs": lfs | {"size": -1}}, "no possible size"),
                        ({"type": "file", "path": FILE, "lfs": lfs | {"size": 0}}, "no possible size"),
                        ({"type": "file", "path": FILE, "lfs": lfs | {"size": 1.5}}, "no possible size"),
                        ({"type": "file", "path": FILE, "lfs": lfs | {"size": 1 << 60}}, "no possible size"),
                        ({"type": "file", "path": FILE, "oid": "/" * 40, "size": 5}, "no hash")]:
        hub.faults[:] = [Fault("tree", body=json.dumps([entry]).encode())]
        bad(1, word, "pull", REPO)
    hub.faults[:] = [Fault("tree", body=b'{"no": "list"}')]
    bad(1, "no list", "pull", REPO)
    for sha in ("../../..", COMMIT[:-1], COMMIT.upper() + "x", 5, None):
        hub.faults[:] = [Fault("revision", body=json.dumps({"sha": sha}).encode())]
        bad(1, "says no commit", "pull", REPO)


@case
def malformed_answers_are_refused():
    """Seeded changes of right answers: refused in one line, or the right file comes."""
    r = random.Random(11)
    right = {"revision": json.dumps({"sha": COMMIT}).encode(),
             "tree": json.dumps([{"type": "file", "path": FILE, "size": 400_000, "oid": "1" * 40,
                                  "lfs": {"oid": SHA, "size": 400_000}}]).encode()}
    deep = b"[" * 100_000
    for i in range(60):
        kind = r.choice(["revision", "tree"])
        body = bytearray(right[kind])
        for _ in range(r.randrange(1, 6)):
            at = r.randrange(len(body))
            r.choice([lambda: body.__setitem__(at, r.randrange(256)), lambda: body.__delitem__(slice(at, at + 9)),
                      lambda: body.insert(at, r.choice(b'{}[]",:\\0\x00\x1b'))])()
            if not body:
                body = bytearray(b"{")
        hub.faults[:] = [Fault(kind, body=deep if i % 20 == 19 else bytes(body))]
        done = hearth("pull", REPO)
        check(done.returncode in (0, 1), body, said(done))
        check(not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", done.stderr), body, done.stderr)
        if done.returncode == 0:
            check(os.path.exists(blob()), body)
        else:
            check(done.stderr.startswith(b"hearth: "), done.stderr)


# ---- refusals -----------------------------------------------------------------------------------------------


@case
def a_private_repository_wants_a_token():
    hub.token = "hf_secretsecret"
    hub.add("org/private", {FILE: CONTENT}, private=True)
    check("HF_TOKEN is not set" in bad(1, "(401)", "pull", "org/private"), "without")
    text = bad(1, "does not open it", "pull", "org/private", env={"HF_TOKEN": "hf_wrongwrong"})
    check("hf_wrong" not in text, "the token is shown")
    pull("org/private", env={"HF_TOKEN": "hf_secretsecret\n"})
    for _, path, headers in hub.of_kind("content"):
        check("Authorization" not in headers, "the token went to another host", path)
    check(hub.of_kind("resolve")[-1][2].get("Authorization") == "Bearer hf_secretsecret", "not to the hub")
    bad(1, "HF_TOKEN: holds what no token can hold", "pull", REPO, env={"HF_TOKEN": "a\r\nX-Evil: 1"})


@case
def a_token_goes_to_no_other_port_of_the_same_host():
    hub.token, hub.contents_host = "hf_secret", "127.0.0.1"
    pull(REPO, env={"HF_TOKEN": "hf_secret"})
    check("Authorization" not in hub.of_kind("content")[0][2], "the token went to another port")
    check("Authorization" in hub.of_kind("revision")[0][2], "the hub did not get it")


@case
def redirects_go_to_addresses_of_the_web_and_end():
    for where, word in (("file:///etc/passwd", "where hearth does not go"), ("ftp://localhost/x", "where hearth does not go"),
                        ("", "where hearth does not go"), (f"/{REPO}/resolve/{COMMIT}/{FILE}", "redirects more than 8 times")):
        hub.redirect = where
        hub.faults[:] = [Fault("resolve", status=302, headers={"Location": where} if where else {})] if not where else []
        bad(1, word, "pull", REPO)
    check(not os.path.exists(blob()), "something came")


@case
def redirects_within_the_hub_keep_the_token():
    hub.token = "hf_secret"
    hub.add("org/renamed", {FILE: CONTENT}, private=True)
    hub.faults.append(Fault("resolve", status=307, headers={"Location": f"/org/renamed/resolve/{COMMIT}/{FILE}"}))
    pull(REPO, env={"HF_TOKEN": "hf_secret"})
    check_pulled()


@case
def what_is_not_there_is_said():
    bad(1, "(401)", "pull", "org/nothing")
    hub.faults.append(Fault("revision", status=404))
    bad(1, "no such repository", "pull", REPO)
    hub.faults.append(Fault("revision", status=403, headers={"X-Error-Code": "GatedRepo"}))
    check("put your token in HF_TOKEN" in bad(1, "ask for access", "pull", REPO), "gated")
    hub.faults.append(Fault("resolve", status=404))
    bad(1, f"has no file {FILE} any more", "pull", REPO)
    hub.faults.append(Fault("resolve", status=401))
    bad(1, "(401)", "pull", REPO)
    hub.faults.append(Fault("content", status=418))
    bad(1, "answers 418", "pull", REPO)


@case
def a_busy_server_is_given_the_time_that_it_asks_for():
    hub.faults += [Fault("revision", status=429, headers={"Retry-After": "2"}),
                   Fault("content", status=429, headers={"Retry-After": "1"})]
    start = time.monotonic()
    text = said(pull(REPO))
    check(time.monotonic() - start >= 3 and "answers 429; trying again in 2 s" in text, text)
    check_pulled()
    hub.faults.append(Fault("revision", status=429, headers={"Retry-After": "7200"}))
    bad(1, "asks to wait for 7200 s", "pull", REPO)
    hub.faults.append(Fault("revision", times=2, status=429))
    bad(1, "answers 429, after 1 more attempts", "pull", REPO, "--retries", "1")


@case
def a_failing_server_is_asked_again():
    hub.faults += [Fault("revision", status=500), Fault("tree", status=503), Fault("content", status=500),
                   Fault("content", close=True)]
    pull(REPO)
    check_pulled()
    hub.faults.append(Fault("tree", times=99, status=500))
    start = time.monotonic()
    bad(1, "answers 500, after 2 more attempts", "pull", REPO, "--retries", "2")
    check(3 <= time.monotonic() - start < 30, "waited", time.monotonic() - start)


@case
def an_answer_without_end_is_refused():
    hub.faults.append(Fault("revision", body=b"[" * (65 << 20)))
    bad(1, "has no end", "pull", REPO)


@case
def wrong_usage_of_pull_is_said():
    for what in ("", "a/b/c", "../x", "org/name:", "org/name:../x", "-", "org/na me", "org\x1b/x", "ftp://x/y"):
        wrong = "is no address" if "://" in what else "behind ':'" if ":" in what else "names no repository"
        bad(1, wrong, "pull", "--", what)
    bad(2, "usage: hearth pull", "pull")
    bad(1, "HF_ENDPOINT", "pull", REPO, env={"HF_ENDPOINT": "localhost"})
    bad(1, "HF_ENDPOINT", "pull", REPO, env={"HF_ENDPOINT": "file:///tmp"})


# ---- list ----------------------------------------------------------------------------------------------------


def ollama(root, name, content, host="host.example", **layer):
    needs_pull()  # for which JSON is read, too
    digest = hashlib.sha256(content).hexdigest()
    layers = [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64},
              {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": len(content)}]
    layers[1].update(layer)
    write(os.path.join(root, "manifests", host, *name.split("/")), json.dumps({"layers": layers}).encode())
    return write(os.path.join(root, "blobs", "sha256-" + digest), content)


def fill_places():
    """A model in every place: {name: place}."""
    model = content_of(MODEL)
    # Bytes behind the end make files that differ.
    hub.add("org/tale", {"tale-Q8_0.gguf": model})
    pull("org/tale")
    ollama(os.path.join(scratch, "ollama"), "library/tale/1b", model + b"o")
    ollama(os.path.join(scratch, "ollama"), "someone/tale/latest", model + b"oo")
    write(os.path.join(scratch, ".lmstudio", "models", "pub", "repo", "lm-tale.gguf"), model + b"l")
    write(os.path.join(scratch, ".cache", "lm-studio", "models", "pub", "repo", "old-tale.gguf"), model + b"ll")
    write(os.path.join(scratch, ".cache", "llama.cpp", "org_tale.gguf"), model + b"c")
    write(os.path.join(scratch, "mine", "deep", "my-tale.gguf"), model + b"m")
    write(os.path.join(scratch, "yours", "your-tale.gguf"), model + b"y")
    return {"org/tale:Q8_0": "Hugging Face cache", "tale:1b": "Ollama", "host.example/someone/tale:latest": "Ollama",
            "pub/repo/lm-tale": "LM Studio", "pub/repo/old-tale": "LM Studio", "org_tale": "llama.cpp",
            "deep/my-tale": "HEARTH_MODELS", "your-tale": "HEARTH_MODELS"}


def folders():
    return {"HEARTH_MODELS": f"{scratch}/mine:{scratch}/yours::{scratch}/nowhere"}


def listed(**env):
    return {m["name"]: m for m in json.loads(good("list", "--json", env=env).stdout)["models"]}


def kept_files():
    """{name: what differs once it is written again}"""
    return {f.name: (f.stat().st_ino, f.stat().st_mtime_ns) for f in os.scandir(os.path.join(scratch, "kept"))}


@case
def an_empty_list_says_how_to_get_a_model():
    lines = good("list").stdout.decode().splitlines()
    check(len(lines) == 2 and re.fullmatch(r"  hearth pull \S+/\S+:\S+", lines[1]), lines)
    check(listed() == {}, "not empty")


@case
def models_of_all_places_are_listed():
    places = fill_places()
    check(f"warning: HEARTH_MODELS: {scratch}/nowhere: No such file" in good("list", env=folders()).stderr.decode(), "a lost folder")
    found = listed(**folders())
    check({name: m["place"] for name, m in found.items()} == places, found)
    for name, m in found.items():
        check(m["runs"] and m["family"] == "llama" and m["type"] == "Q8_0" and m["why"] in ("",) or m["tight"], m)
        check(m["size_bytes"] == os.path.getsize(m["path"]) and m["memory_bytes"] > m["size_bytes"] / 2, m)
        check(m["estimated_tokens_per_second"] > 1, m)
    text = good("list", "--paths", env=folders()).stdout.decode()
    for name in places:
        check(re.search(rf"^{re.escape(name)} +llama +Q8_0 +5\.\d+ MiB +(yes|tight) +about \d+ tokens/s", text, re.M), text)
    check("estimate" in text and found["tale:1b"]["path"] in text, text)


@case
def places_are_named_by_variables():
    model = content_of(MODEL)
    ollama(os.path.join(scratch, "o"), "library/x/y", model)
    write(os.path.join(scratch, "l", "z.gguf"), model + b"z")
    check(set(listed(OLLAMA_MODELS=f"{scratch}/o", LLAMA_CACHE=f"{scratch}/l")) == {"x:y", "z"}, "variables")


@case
def a_second_list_reads_no_model_and_measures_nothing():
    """What either finds out would be kept, in a new file."""
    for i in range(10):
        write(os.path.join(scratch, "m", f"{i}.gguf"), content_of(MODEL) + bytes([i]))
    env = {"HEARTH_MODELS": os.path.join(scratch, "m")}
    first, before = listed(**env), kept_files()
    check(len(first) == 10 and "models" in before, first, before)
    check(listed(**env).keys() == first.keys() and kept_files() == before, kept_files(), before)
    write(os.path.join(scratch, "m", "10.gguf"), content_of(MODEL))
    check(len(listed(**env)) == 11, "eleven")
    changed = {name for name, now in kept_files().items() if now != before[name]}
    check(changed == {"models"}, changed)


@case
def speeds_with_a_gpu_are_those_of_plan():
    write(os.path.join(scratch, "m", "x.gguf"), content_of(MODEL))
    env = {"HEARTH_MODELS": os.path.join(scratch, "m")}
    card = "sim:" + os.path.join(SOURCE, "bench", "devices", "story.sim")
    answer = json.loads(good("list", "--json", "--gpu", card, "--vram", "8M", env=env).stdout)
    plan = json.loads(good("plan", MODEL, "--json", "--gpu", card, "--vram", "8M").stdout)
    model = answer["models"][0]
    check(answer["gpu_simulated"] and "simulated" in answer["gpu"] and model["on_gpu"], answer)
    expected = plan["tokens_per_second"]
    check(abs(model["estimated_tokens_per_second"] / expected - 1) < 0.01, model, expected)
    text = good("list", "--gpu", card, "--vram", "8M", env=env).stdout.decode()
    check("tokens/s, with the GPU" in text and "its figures come from its description" in text, text)
    check(not json.loads(good("list", "--json", "--gpu", "none", env=env).stdout)["models"][0]["on_gpu"], "none")
    bad(1, "no such device", "list", "--gpu", "nonsense", env=env)


@case
def a_changed_file_is_looked_at_again():
    model = content_of(MODEL)
    path = write(os.path.join(scratch, "m", "x.gguf"), model)
    env = {"HEARTH_MODELS": os.path.join(scratch, "m")}
    first = listed(**env)["x"]
    check(first["runs"] and listed(**env)["x"] == first, "what is kept differs")
    stamp = os.stat(path)
    write(path, model.replace(b"llama", b"lxama"))  # of the same size, and with the same time of change
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    check(not listed(**env)["x"]["runs"], "what was kept is said")
    check(listed(**env, HEARTH_CACHE="")["x"]["family"] == "lxama", "without anything kept")


@case
def broken_models_are_listed_with_the_reason():
    model = content_of(MODEL)
    files = {"cut.gguf": model[:100_000], "empty.gguf": b"", "text.gguf": b"no model at all" * 10,
             "other.gguf": model.replace(b"llama", b"lxama"),
             "half-00001-of-00002.gguf": model, "\x1b[31mred\u00fc.gguf": model, "mmproj-x.gguf": model,
             "x.imatrix.gguf": model, "not.bin": model, ".hidden.gguf": model}
    for name, content in files.items():
        write(os.path.join(scratch, "m", name), content)
    os.symlink("nowhere", os.path.join(scratch, "m", "lost.gguf"))
    os.symlink(".", os.path.join(scratch, "m", "loop"))
    os.mkfifo(os.path.join(scratch, "m", "pipe.gguf"))
    found = listed(HEARTH_MODELS=os.path.join(scratch, "m"))
    red = found.pop("\x1b[31mred\u00fc")  # odd by its name alone
    check(red["runs"] and set(found) == {"cut", "empty", "text", "other", "half"}, set(found))
    check(not any(m["runs"] for m in found.values()) and all(m["why"] for m in found.values()), found)
    text = good("list", "--paths", env={"HEARTH_MODELS": os.path.join(scratch, "m")}).stdout
    check(text.count("\\x1b[31mred\u00fc".encode()) == 2 and b"\x1b" not in text, text)
    check("lxama" in found["other"]["why"] and found["other"]["family"] == "lxama", found["other"])
    check("1 of its 2 parts" in found["half"]["why"], found["half"])
    check("estimated_tokens_per_second" not in found["cut"], found["cut"])
    text = good("list", env={"HEARTH_MODELS": os.path.join(scratch, "m")}).stdout.decode()
    check(re.search(r"^other .* no +.*lxama", text, re.M) and "\x1b" not in text, text)


@case
def c1_controls_of_paths_do_not_reach_the_terminal():
    c1 = "\u009b"  # begins an escape sequence, as ESC [ does
    folder = os.path.join(scratch, "m" * 200, c1)  # which a message does not show from its beginning
    write(os.path.join(folder, "x.gguf"), b"no model")
    text = good("list", "--paths", env={"HEARTH_MODELS": folder}).stdout.decode()
    check(re.search(r"^x .* no +header: .*\n    HEARTH_MODELS: .*/\\xc2\\x9b/x.gguf$", text, re.M) and c1 not in text, text)


@case
def ctrl_c_ends_list_without_a_table():
    """The first model takes half a second, in which the rate of its type is measured."""
    write(os.path.join(scratch, "m", "a.gguf"), content_of(MODEL))
    p = subprocess.Popen([HEARTH, "list", "--gpu", "none"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=environment(HEARTH_MODELS=os.path.join(scratch, "m"), HEARTH_CACHE=""))
    time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    text, _ = p.communicate(timeout=TIMEOUT)
    check(p.returncode == -signal.SIGINT and text == b"" or p.returncode == 0, p.returncode, text)


@case
def broken_manifests_are_left_out():
    root = os.path.join(scratch, "ollama")
    model = content_of(MODEL)
    ollama(root, "library/good/1", model)
    ollama(root, "library/evil/1", model, digest="sha256:../../" + "0" * 58)
    ollama(root, "library/evil/2", model, digest=7)
    ollama(root, "library/evil/3", model, mediaType=None)
    ollama(root, "library/evil/4", model, digest="sha256:" + "0" * 64)
    for i, text in enumerate([b"", b"{", b"[]", b"null", b'{"layers": {}}', b'{"layers": [1, null]}', b"\xff" * 50,
                              b"[" * 100_000, b" " * (2 << 20)]):
        write(os.path.join(root, "manifests", "h", "library", "bad", str(i)), text)
    check(set(listed()) == {"good:1"}, set(listed()))


@case
def a_model_that_lies_in_two_places_is_listed_once():
    pull(REPO)
    folder = os.path.join(scratch, "links")
    os.mkdir(folder)
    os.symlink(cached("snapshots", COMMIT, FILE), os.path.join(folder, "again.gguf"))
    found = listed(HEARTH_MODELS=folder)
    check(set(found) == {NAME}, found)


@case
def split_models_are_listed_with_all_their_bytes():
    for i in (1, 2):
        write(os.path.join(scratch, "m", f"big-0000{i}-of-00002.gguf"), CONTENT[:i * 1000])
    found = listed(HEARTH_MODELS=os.path.join(scratch, "m"))
    check(set(found) == {"big"} and found["big"]["size_bytes"] == 3000 and found["big"]["parts"] == 2, found)


@case
def the_newest_snapshot_counts():
    new = "a" * 40
    pull(REPO)
    hub.add(REPO, {FILE: CONTENT[::-1]}, commit=new)
    pull(REPO)
    found = listed()
    check(set(found) == {NAME} and new in found[NAME]["path"], found)


@case
def equal_quantisations_are_told_apart_by_file():
    hub.add("org/two", {"a-Q4_0.gguf": b"first", "b-Q4_0.gguf": b"second"})
    check(b"org/two:Q4_0" in pull("org/two:a-Q4_0.gguf").stdout, "one")
    check(b"org/two:b-Q4_0.gguf" in pull("org/two:b-Q4_0.gguf").stdout, "the other")
    check(set(listed()) == {"org/two:a-Q4_0.gguf", "org/two:b-Q4_0.gguf"}, listed())


# ---- --hf-repo, cp ----------------------------------------------------------------------------------------------


def story():
    with open(MODEL, "rb") as f:
        return f.read()


@case
def a_repository_is_pulled_and_run():
    hub.add("org/story", {"story-Q8_0.gguf": story()})
    told = good("run", MODEL, "-p", "Once", "-n", "6", "--greedy").stdout
    ask = ["-p", "Once", "-n", "6", "--greedy"]
    check(good("run", "-hf", "org/story:Q8_0", *ask).stdout == told, "-hf")
    nothing = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    for words in (["--hf-repo", "org/story:Q8_0"], ["-hf", "org/story"], ["-hf", "ORG/Story", "--offline"],
                  ["-hfr", "org/story:q8_0"]):
        check(good("run", *words, *ask, env=nothing).stdout == told, "what is here needs no network", words)
    check(good("run", "-hf", "org/story", "--hf-file", "story-Q8_0.gguf", *ask).stdout == told, "--hf-file")
    check(b"llama" in good("inspect", "-hf", "org/story").stdout, "inspect")
    check(b"all is well" in good("serve", "-hf", "org/story", "--check", "--port", "0").stderr, "serve")
    for address in "hf.co/org/story:Q8_0", "HF.co/org/story", "huggingface.co/ORG/Story:q8_0", "https://huggingface.co/org/story":
        check(good("run", address, *ask, env=nothing).stdout == told, "as Ollama names it", address)
    check(b"llama" in good("inspect", "-m", "hf.co/org/story").stdout, "by -m")
    bad(1, "hf.co/org/other is not on this machine", "run", "hf.co/org/other", "--offline")
    hub.add("org/second", {"second-Q8_0.gguf": story()})
    check(good("run", "hf.co/org/second", *ask).stdout == told and "org/second:Q8_0" in listed(), "it is pulled")
    bad(1, "is not on this machine", "run", "-hf", "org/other", "--offline")
    bad(2, "--model and --hf-repo contradict", "run", "-hf", "org/story", "-m", MODEL)
    bad(2, "--hf-repo says of which repository", "run", MODEL, "--hf-file", "a.gguf")
    bad(1, "org/nowhere", "run", "-hf", "org/nowhere")


@case
def names_of_ollama_are_told_from_repositories():
    for name in ("llama3.2", "llama3.2:1b", "smollm2"):
        text = bad(1, "expected ORG/NAME", "pull", name, env={"HF_ENDPOINT": "http://127.0.0.1:1"})
        check("127.0.0.1" not in text, "the hub was asked", text)


@case
def a_copy_shares_its_bytes():
    needs_pull()
    pull(REPO)
    check(f"{NAME} is small:Q4_0 too" in good("cp", "some-model", "small").stdout.decode(), "cp")
    good("cp", NAME, "me/other")
    check(set(listed()) == {NAME, "small:Q4_0", "me/other:Q4_0"}, listed())
    path = listed()["small:Q4_0"]["path"]
    check(content_of(path) == CONTENT and os.stat(path).st_nlink == 3, os.stat(path))
    check("0 bytes freed" in good("rm", NAME).stdout.decode(), "rm of one")
    check(set(listed()) == {"small:Q4_0", "me/other:Q4_0"} and content_of(path) == CONTENT, listed())
    good("rm", "small")
    check("390.63 KiB freed" in good("rm", "me/other").stdout.decode(), "rm of the last")
    check(listed() == {}, listed())


@case
def what_cannot_be_copied_is_refused():
    pull(REPO)
    write(os.path.join(scratch, "m", "there.gguf"), CONTENT)
    here = {"HEARTH_MODELS": os.path.join(scratch, "m")}
    bad(1, "is not of hearth pull", "cp", "there", "b", env=here)
    bad(1, "no model is called so", "cp", "nothing", "b")
    bad(1, "this is a file; a model by its name in hearth list is expected", "cp", MODEL, "b")
    bad(1, "NAME alone is expected", "cp", NAME, "b:Q8_0")
    bad(1, "names no repository", "cp", NAME, "../b")
    check(set(listed()) == {NAME}, listed())


# ---- rm ---------------------------------------------------------------------------------------------------------


def everything():
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(scratch, "hf"))
                  for name in names)


@case
def rm_takes_away_begun_downloads():
    write(cached("blobs", "0" * 64 + ".incomplete"), b"x" * 5000)
    write(cached("refs", "main"), b"0" * 40)
    check("removed the begun download of " + REPO in good("rm", REPO).stdout.decode(), "rm")
    check(not os.path.exists(cached("blobs")), "it is still there")
    bad(1, "no model is called so", "rm", REPO)


@case
def rm_takes_away_all_that_pull_brought():
    pull(REPO)
    write(cached("blobs", "0" * 64 + ".incomplete"), b"begun")
    write(cached(".no_exist", COMMIT, "config.json"), b"")
    text = good("rm", "some-model").stdout.decode()
    check(f"removed {NAME}: 390.6" in text and "KiB freed" in text, text)
    check(everything() == [] and not os.path.exists(cached()), everything())
    bad(1, "no model is called so", "rm", "some-model")


@case
def rm_keeps_what_others_use():
    hub.add(REPO, {FILE: CONTENT, "some-model-Q8_0.gguf": b"eight"})
    pull(REPO)
    pull(REPO + ":Q8_0")
    write(cached("snapshots", COMMIT, "config.json"), b"{}")
    good("rm", NAME)
    check(set(listed()) == {REPO + ":Q8_0"}, listed())
    check(os.listdir(cached("blobs")) == [hashlib.sha256(b"eight").hexdigest()], os.listdir(cached("blobs")))
    check(content_of(cached("refs", "main")) == COMMIT.encode(), "refs")
    good("rm", REPO + ":Q8_0")
    check(os.listdir(cached("snapshots", COMMIT)) == ["config.json"], "the file of another program is gone")


@case
def rm_keeps_a_blob_that_another_link_needs():
    hub.add(REPO, {FILE: CONTENT, "copy/other-Q5_0.gguf": CONTENT})
    pull(REPO)
    os.makedirs(cached("snapshots", COMMIT, "copy"))
    os.symlink(f"../../../blobs/{SHA}", cached("snapshots", COMMIT, "copy", "tokenizer.bin"))
    text = good("rm", NAME).stdout.decode()
    check("0 bytes freed" in text and os.path.exists(blob()), text)
    check(content_of(cached("snapshots", COMMIT, "copy", "tokenizer.bin")) == CONTENT, "the other link")


@case
def rm_takes_all_snapshots_and_all_parts():
    parts = {f"big-Q8_0-0000{i}-of-00002.gguf": CONTENT[i:] for i in (1, 2)}
    hub.add("org/big", parts)
    pull("org/big")
    hub.add("org/big", {name: content + b"new" for name, content in parts.items()}, commit="b" * 40)
    pull("org/big")
    good("rm", "org/big:q8_0")
    check(everything() == [], everything())


@case
def rm_follows_no_link_out_of_the_cache():
    precious = write(os.path.join(scratch, "precious.gguf"), CONTENT)
    os.makedirs(cached("snapshots", COMMIT))
    os.symlink(precious, cached("snapshots", COMMIT, FILE))
    os.symlink(scratch, cached("refs"))
    text = good("rm", NAME).stdout.decode()
    check("0 bytes freed" in text and content_of(precious) == CONTENT, text)
    check(not os.path.lexists(cached("snapshots", COMMIT, FILE)) and os.path.exists(scratch), "the link")


@case
def rm_refuses_what_it_did_not_bring():
    fill_places()
    for name in ("tale:1b", "lm-tale", "org_tale", "your-tale"):
        text = bad(1, "is not of hearth pull", "rm", name, env=folders())
        check(".gguf" in text or "sha256-" in text, text)
    bad(1, "is not of hearth pull", "rm", MODEL)
    bad(1, "could be", "rm", "tale", env=folders())
    check(len(listed(**folders())) == 8, "something is gone")
    good("rm", "org/tale:Q8_0", env=folders())
    check(len(listed(**folders())) == 7, "more is gone")


def lock_of(sha):
    return os.path.join(scratch, "hf", "hub", ".locks", "models--org--Some-Model-GGUF", sha + ".lock")


@case
def rm_refuses_what_is_being_loaded():
    pull(REPO)
    with open(lock_of(SHA), "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        bad(1, "another program is bringing it", "rm", NAME)
    check_pulled()
    good("rm", NAME)


@case
def rm_keeps_another_file_of_the_repository_that_is_being_loaded():
    pull(REPO)
    other = "a" * 64
    for sha in (other, "b" * 64):
        write(blob(sha) + ".incomplete", b"begun")
    with open(lock_of(other), "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        good("rm", NAME)
        check(os.listdir(cached("blobs")) == [other + ".incomplete"], os.listdir(cached("blobs")))
        os.remove(blob(other) + ".incomplete")  # as before its first byte
        write(cached("snapshots", COMMIT, FILE), CONTENT)
        good("rm", NAME)
        check(os.path.samestat(os.stat(lock_of(other)), os.fstat(f.fileno())), "the lock is another")
    check([lock_of(other)] == everything(), everything())


# ---- names in place of paths --------------------------------------------------------------------------------------


@case
def commands_take_names():
    fill_places()
    env = folders()
    for name in ("org/tale:Q8_0", "ORG/TALE:q8_0", "tale:1b", "lm-tale", "your"):
        check(good("tokenize", name, "-p", "Once upon", env=env).stdout ==
              good("tokenize", MODEL, "-p", "Once upon").stdout, name)
    text = good("run", "org_tale", "-p", "Once", "-n", "4", "--seed", "3", env=env).stdout
    check(text == good("run", MODEL, "-p", "Once", "-n", "4", "--seed", "3").stdout, text)
    check(b"llama" in good("inspect", "your-tale", env=env).stdout, "inspect")
    good("detokenize", "your-tale", "--ids", write(os.path.join(scratch, "ids"), b"5 6"), env=env)
    good("quantize", "your-tale", os.path.join(scratch, "out.gguf"), "q4_0", env=env)
    text = write(os.path.join(scratch, "text"), b"Once upon a time there was a fox. " * 30)
    good("perplexity", "your-tale", "-f", text, "-c", "64", env=env)
    good("compare", MODEL, "-f", text, "--against", "your-tale", "-c", "64", env=env)


@case
def names_that_could_be_several_or_none_are_said():
    write(os.path.join(scratch, "one", "my-tale.gguf"), b"")
    bad(1, "is it my-tale?", "inspect", "TLAE", env={"HEARTH_MODELS": f"{scratch}/one"})
    fill_places()
    text = bad(1, "could be 2 models", "tokenize", "repo/", "-p", "x", env=folders())
    check("pub/repo/lm-tale" in text and "pub/repo/old-tale" in text, text)
    check("is it your-tale?" in bad(1, "no model is called so", "inspect", "your-tael", env=folders()), "near")
    check("hearth list" in bad(1, "no model is called so", "inspect", "zzzzzzzz", env=folders()), "far")
    check("hearth pull some/thing:Q4_0" in bad(1, "no model", "inspect", "some/thing:Q4_0", env=folders()), "to pull")
    bad(1, "No such file", "inspect", "missing.gguf", env=folders())
    bad(1, "No such file", "inspect", "./missing", env=folders())
    bad(1, "No such file", "inspect", os.path.join(scratch, "missing"), env=folders())


@case
def equal_names_are_told_apart_by_path():
    for folder in ("mine", "yours"):
        write(os.path.join(scratch, folder, "same.gguf"), content_of(MODEL) + folder.encode())
    env = folders()
    text = bad(1, "name the path", "inspect", "same", env=env)
    check(f"{scratch}/mine/same.gguf" in text and f"{scratch}/yours/same.gguf" in text, text)
    good("inspect", f"{scratch}/mine/same.gguf", env=env)


@case
def a_path_comes_before_a_name():
    write(os.path.join(scratch, "mine", "tale.gguf"), b"broken")
    shutil.copy(MODEL, os.path.join(scratch, "tale"))
    good("inspect", "tale", env=folders(), cwd=scratch)
    bad(1, "mine/tale.gguf: ", "inspect", "tale", env=folders())


@case
def a_model_given_by_name_is_not_written_over():
    fill_places()
    path = f"{scratch}/yours/your-tale.gguf"
    before = content_of(path)
    bad(2, "would be lost", "quantize", "your-tale", path, "q4_0", env=folders())
    check(content_of(path) == before, "it is lost")


if __name__ == "__main__":
    cases.run_cases(__file__)
