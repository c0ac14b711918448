"""bench/release.py: what it refuses, that the same commit gives the same bytes, and what its files say. By what the build
folder installs; with HEARTH_LONG by two builds of their own.

    test_release.py SOURCE_DIR BUILD_DIR
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
VERSION = "0.1.0"


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false", "-c", "safe.directory=*"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout.strip()


def clone(folder):
    """The sources with a heading of the version."""
    if not os.path.exists(os.path.join(SOURCE, ".git")):
        raise Skip("the sources are no clone")
    path = os.path.join(folder, "clone")
    git(folder, "clone", "-q", "--no-hardlinks", "--no-tags", SOURCE, path)
    with open(os.path.join(path, "bench", "release.py"), "w", encoding="utf-8") as f, \
            open(os.path.join(SOURCE, "bench", "release.py"), encoding="utf-8") as mine:
        f.write(mine.read())  # the one that is tested, also before it is committed
    change(path, "CHANGELOG.md", "## [Unreleased]", f"## [{VERSION}]")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "a release")
    git(path, "config", "user.name", "a")
    git(path, "config", "user.email", "a@b.example")
    return path


def change(folder, name, old, new):
    path = os.path.join(folder, name)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    assert old in text, (name, old)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new, 1))


def release(folder, *arguments):
    return subprocess.run([sys.executable, os.path.join(folder, "bench", "release.py"), *arguments], capture_output=True, text=True)


def refused(folder, words, version=VERSION):
    done = release(folder, version, os.path.join(folder, "..", "refused"), "--installed-by", BUILD)
    assert done.returncode == 1 and words in done.stderr, (words, done)
    assert not os.path.exists(os.path.join(folder, "..", "refused")), "nothing is written"


def files_of(out):
    found = {}
    for name in sorted(os.listdir(out)):
        with open(os.path.join(out, name), "rb") as f:
            found[name] = f.read()
    return found


@case
def a_release_is_one_clean_commit_of_its_version():
    with tempfile.TemporaryDirectory() as folder:
        source = clone(folder)
        refused(source, "not 9.9.9", "9.9.9")
        with open(os.path.join(source, "left"), "w", encoding="ascii"):
            pass
        refused(source, "changed or untracked")
        os.remove(os.path.join(source, "left"))
        git(source, "tag", f"v{VERSION}")
        refused(source, "tag v0.1.0 already")
        git(source, "tag", "-d", f"v{VERSION}")
        change(source, "CHANGELOG.md", f"## [{VERSION}]", "## [Unreleased]")
        git(source, "commit", "-qam", "not yet")
        refused(source, "no heading '## [0.1.0]'")


@case
def the_same_commit_gives_the_same_bytes():
    by = [] if os.environ.get("HEARTH_LONG") else ["--installed-by", BUILD]
    with tempfile.TemporaryDirectory() as folder:
        source, outs = clone(folder), [os.path.join(folder, name) for name in ("one", "another")]
        for out, more in zip(outs, ([], ["--no-tag"])):  # as one makes it, and as another one makes it again
            done = release(source, VERSION, out, *by, *more)
            assert done.returncode == 0, done.stderr[-3000:]
        assert git(source, "cat-file", "-t", f"v{VERSION}") == "tag", "an annotated one"
        assert git(source, "rev-parse", f"v{VERSION}^{{}}") == git(source, "rev-parse", "HEAD")
        made = files_of(outs[0])
        assert made == files_of(outs[1]), "bytes differ"
        machine = os.uname().machine
        assert sorted(made) == ["SHA256SUMS", f"hearth-{VERSION}-linux-{machine}.cdx.json", f"hearth-{VERSION}-linux-{machine}.tar.gz",
                                f"hearth-{VERSION}.tar.gz"], sorted(made)
        for line in made["SHA256SUMS"].decode().splitlines():
            digest, name = line.split("  ")
            assert hashlib.sha256(made[name]).hexdigest() == digest, name
        assert made["SHA256SUMS"].count(b"\n") == 3
        with tarfile.open(os.path.join(outs[0], f"hearth-{VERSION}.tar.gz")) as tar:
            names = {m.name for m in tar if not m.isdir()}
        assert names == {f"hearth-{VERSION}/{name}" for name in git(source, "ls-files").splitlines()}
        check_program(folder, outs[0], made, machine)


def check_program(folder, out, made, machine):
    """The archive's program runs, and the bill names each library that the loader looks for."""
    with tarfile.open(os.path.join(out, f"hearth-{VERSION}-linux-{machine}.tar.gz")) as tar:
        members = tar.getmembers()
        tar.extractall(folder)
    assert len({m.mtime for m in members}) == 1 and {(m.uid, m.gid, m.uname) for m in members} == {(0, 0, "root")}
    assert {m.mode for m in members if m.isreg()} == {0o755, 0o644}
    program = os.path.join(folder, f"hearth-{VERSION}-linux-{machine}", "bin", "hearth")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert VERSION in said, said
    bill = json.loads(made[f"hearth-{VERSION}-linux-{machine}.cdx.json"])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    about = bill["metadata"]["component"]
    with open(program, "rb") as f:
        assert about["hashes"][0]["content"] == hashlib.sha256(f.read()).hexdigest()
    assert re.search(r"\d+\.\d+", about["properties"][0]["value"]), about  # the compiler
    linked = {c["name"]: c["properties"][0]["value"] for c in bill["components"]}
    dynamic = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(\S+)\]", dynamic))
    assert needed == {name for name, how in linked.items() if how == "shared"} and "libc.so.6" in needed, (needed, linked)
    everything = " ".join(linked)
    for library in ("pcre2", "utf8proc", "xxHash", "vulkan"):  # shared or static, as the build has it
        assert library in everything, linked
    versions = [c["name"] for c in bill["components"] if "version" not in c]
    assert "xxHash" not in versions and len(versions) < len(linked) / 2, versions
    assert {c["bom-ref"] for c in bill["components"]} == set(bill["dependencies"][0]["dependsOn"])


if __name__ == "__main__":
    run_cases(__file__)
