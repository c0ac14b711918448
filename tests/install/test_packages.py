"""The package script of the front door, run on machines that are made of a folder of fake commands: nothing missing,
missing as root, not root with and without sudo, other package managers, HEARTH_INSTALL=no, a terminal.

    test_packages.py SOURCE_DIR
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import case, open_terminal, run_cases  # noqa: E402

SCRIPT = os.path.join(sys.argv[1], "cmake", "install-packages.sh")

# A fake command writes down how it was called, then does what its body says.
FAKE = '#!/bin/sh\necho "{name} $*" >>"$LOG"\n{body}\n'
SUDO = 'exec "$@"'
ENV = 'while case $1 in *=*) true ;; *) false ;; esac; do export "$1"; shift; done; exec "$@"'
APT = 'echo "frontend=$DEBIAN_FRONTEND" >>"$LOG"'
BUILD_TOOLS = {"gcc": "exit 0", "cmake": "", "ninja": "", "pkg_config": "exit 0", "glslc": ""}
# Of a Debian that has neither llhttp nor glslc.
APT_CACHE = 'case $2 in libllhttp-dev | glslc) exit 100 ;; esac'
# All that is required; pkg-config knows PCRE2 alone.
REQUIRED = dict(BUILD_TOOLS, pkg_config='test "$2" = libpcre2-8', glslc=None,
                gcc='while read -r line; do case $line in *stdio.h* | *xxhash.h*) exit 0 ;; esac; done; exit 1')
MANAGERS = {"apt_get": "apt-get install", "dnf": "dnf install", "pacman": "pacman -S", "zypper": "zypper install",
            "apk": "apk add"}
LIBUV = {"apt_get": "libuv1-dev", "dnf": "libuv-devel", "pacman": "libuv", "zypper": "libuv-devel", "apk": "libuv-dev"}
NINJA = {"apt_get": "ninja-build", "dnf": "ninja-build", "pacman": "ninja", "zypper": "ninja", "apk": "samurai"}


def run_on(task, user, terminal=None, install=None, **commands):
    """Runs the script where only these commands exist (_ stands for -; None: it does not): status, stderr, calls.
    terminal: a file descriptor of one, which is its stdin and stderr."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        commands["id"] = f"echo {user}"
        for name, body in commands.items():
            if body is None:
                continue
            name = name.replace("_", "-")
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(FAKE.format(name=name, body=body))
            os.chmod(path, 0o755)
        done = subprocess.run(["/bin/sh", SCRIPT, task], stdin=subprocess.DEVNULL if terminal is None else terminal,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE if terminal is None else terminal, text=True,
                              env={"PATH": folder, "LOG": log, **({"HEARTH_INSTALL": install} if install else {})})
        calls = ""
        if os.path.exists(log):
            with open(log, encoding="utf-8") as f:
                calls = f.read()
        return done.returncode, done.stderr, calls


@case
def nothing_missing_calls_nothing():
    status, said, calls = run_on("build", 0, apt_get=APT, env=ENV, **BUILD_TOOLS)
    assert status == 0 and said == "" and "apt-get" not in calls, (status, said, calls)


@case
def missing_as_root_is_installed_by_apt():
    status, said, calls = run_on("build", 0, apt_get=APT, env=ENV, gcc="exit 0", pkg_config="")
    assert status == 0, said
    assert "missing: cmake (configures the build)" in said and "missing: ninja-build" in said
    assert "apt-get update" in calls and "sudo" not in calls
    line = next(line for line in calls.splitlines() if line.startswith("apt-get install"))
    assert line.endswith("--no-install-recommends cmake ninja-build glslc") and " -y " in line, line
    assert "frontend=noninteractive" in calls


@case
def a_bare_machine_gets_compiler_and_headers():
    status, said, calls = run_on("build", 0, apt_get=APT, env=ENV)
    assert status == 0 and "gcc libc6-dev cmake ninja-build pkg-config libxxhash-dev libpcre2-dev libutf8proc-dev liburing-dev libedit-dev" in calls, (said, calls)


@case
def tests_need_more_than_the_build():
    status, said, calls = run_on("test", 0, apt_get=APT, env=ENV, **BUILD_TOOLS)
    assert status == 0 and " python3 " in calls and "binutils strace" in calls, (said, calls)
    status, said, calls = run_on("test-long", 0, apt_get=APT, env=ENV, **BUILD_TOOLS)
    assert status == 0 and "clang" in calls and "qemu-user" in calls, (said, calls)


@case
def other_users_go_through_sudo():
    status, said, calls = run_on("build", 1000, apt_get=APT, env=ENV, sudo=SUDO, gcc="exit 0", cmake="", pkg_config="")
    assert status == 0, said
    assert "sudo apt-get update" in calls and "sudo env DEBIAN_FRONTEND=noninteractive apt-get install" in calls, calls
    assert "frontend=noninteractive" in calls


@case
def without_root_and_sudo_the_command_is_named():
    status, said, calls = run_on("build", 1000, apt_get=APT, env=ENV, gcc="exit 0", cmake="", pkg_config="")
    assert status == 1 and "apt-get install ninja-build" in said and "apt-get" not in calls, (said, calls)


@case
def without_apt_the_missing_is_named():
    status, said, _ = run_on("build", 0, env=ENV, gcc="exit 0", ninja="", pkg_config="")
    assert status == 1 and "missing: cmake" in said and "no apt" in said, said
    assert "ninja-build" not in said


@case
def a_failing_apt_fails():
    status, _, _ = run_on("build", 0, apt_get="exit 100", env=ENV, gcc="exit 0", cmake="", pkg_config="")
    assert status == 100, status


@case
def a_failing_apt_does_not_stop_a_build_that_lacks_optional_packages():
    status, said, _ = run_on("build", 0, apt_get="exit 100", env=ENV, **REQUIRED)
    assert status == 0 and "built without hearth pull: libcurl4-openssl-dev is missing" in said, (status, said)


@case
def every_manager_has_its_command_and_its_names():
    for manager, command in MANAGERS.items():
        for tools, expected, code in ((REQUIRED, LIBUV[manager], 0), (dict(REQUIRED, ninja=None), NINJA[manager], 1)):
            status, said, calls = run_on("build", 1000, env=ENV, **{manager: "exit 1"}, **tools)
            line = re.search(r"As root: (.*)", said)
            assert line and line.group(1).startswith(command + " "), said
            assert expected in line.group(1).split() and status == code, (manager, status, said)
            assert f"{manager} " not in calls.replace("-", "_"), calls
            assert ("built without hearth serve: " + LIBUV[manager] + " is missing" in said) == (code == 0), said


@case
def every_row_of_the_table_has_all_names():
    with open(SCRIPT, encoding="utf-8") as f:
        text = f.read()
    rows = [line.split("|") for line in re.search(r"packages='\n(.*?)\n'", text, re.S).group(1).splitlines()]
    assert len(rows) > 30 and all(len(row) == 8 and all(row[2:]) and row[3] != "-" for row in rows), rows
    keys = [row[0] for row in rows]
    assert set(keys) == set(re.findall(r"^    need (\w+) ", text, re.M)) and len(keys) == len(set(keys)), keys


@case
def optional_packages_are_optional():
    status, said, _ = run_on("build", 0, env=ENV, **REQUIRED)
    assert status == 0 and "no apt" in said, (status, said)
    for part in ("hearth serve: libllhttp-dev or libhttp-parser-dev", "GPUs: glslc", "WordPiece tokenizers: libutf8proc-dev",
                 "line editing in chat: libedit-dev", "hearth pull: libcurl4-openssl-dev"):
        assert f"built without {part} is missing\n" in said, (part, said)
    for tool in ("cmake", "ninja", "pkg_config"):
        status, said, _ = run_on("build", 0, env=ENV, **dict(REQUIRED, **{tool: None}))
        assert status == 1 and "built without" not in said, (tool, status, said)


@case
def tests_need_their_tools():
    status, said, _ = run_on("test", 0, env=ENV, **REQUIRED)
    assert status == 1 and "missing: python3 (" in said and "missing: strace (" in said, (status, said)


@case
def what_the_distribution_lacks_is_left_out_if_it_is_optional():
    status, said, calls = run_on("build", 0, apt_get=APT, apt_cache=APT_CACHE, env=ENV, **REQUIRED)
    line = next(line for line in calls.splitlines() if line.startswith("apt-get install"))
    assert status == 0 and "libhttp-parser-dev" in line and "libllhttp-dev" not in line and "glslc" not in line, (said, calls)
    assert "built without GPUs: glslc is missing" in said and "hearth serve" not in said[said.index("installed by"):], said
    status, said, calls = run_on("build", 0, apt_get=APT, apt_cache='test "$2" != cmake', env=ENV, **dict(REQUIRED, cmake=None))
    assert status == 1 and "has no cmake" in said, (status, said)


@case
def the_newer_of_two_packages_is_taken_where_there_are_both():
    status, said, calls = run_on("build", 0, apt_get=APT, apt_cache="exit 0", env=ENV, **REQUIRED)
    assert status == 0 and " libllhttp-dev" in calls and "libhttp-parser-dev" not in calls.replace("show libhttp", ""), (said, calls)


@case
def hearth_install_no_lists_and_stops():
    status, said, calls = run_on("build", 0, install="no", apt_get=APT, env=ENV, **dict(REQUIRED, ninja=None))
    assert status == 1 and "apt-get" not in calls, (status, calls)
    assert "missing: ninja-build" in said and re.search(r"As root: apt-get install ninja-build .*libuv1-dev", said), said
    status, said, calls = run_on("build", 0, install="no", apt_get=APT, env=ENV, **REQUIRED)
    assert status == 0 and "apt-get" not in calls and "built without GPUs: libvulkan-dev is missing" in said, (status, said)


@case
def a_terminal_gets_five_seconds_and_others_none():
    for there in (False, True):
        ours, theirs = open_terminal()
        try:
            status, said, calls = run_on("build", 0, theirs if there else None, apt_get=APT, env=ENV, sleep="", **REQUIRED)
            said = os.read(ours, 65536).decode() if there else said
        finally:
            os.close(ours)
            os.close(theirs)
        assert status == 0 and ("sleep 5" in calls) == there and ("Ctrl-C" in said) == there, (there, said, calls)
        order = [calls.find(word) for word in ("sleep 5", "apt-get update", "apt-get install")]
        assert order == sorted(order) and "libuv1-dev" in said[said.index("to be installed"):], (said, calls)


@case
def ctrl_c_in_that_time_installs_nothing():
    ours, theirs = open_terminal()
    try:
        status, _, calls = run_on("build", 0, theirs, apt_get=APT, env=ENV, sleep="kill -INT $$; kill -INT $PPID", **REQUIRED)
    finally:
        os.close(ours)
        os.close(theirs)
    assert status != 0 and "sleep 5" in calls and "apt-get" not in calls, (status, calls)


@case
def an_old_cmake_is_named_with_what_to_do():
    for version, code in (("3.22.1", 1), ("3.24.4", 1), ("2.8.12", 1), ("3.9.6", 1), ("3.25.0", 0), ("3.31.6", 0), ("4.2.1", 0)):
        status, said, _ = run_on("build", 0, apt_get=APT, env=ENV, **dict(BUILD_TOOLS, cmake=f"echo cmake version {version}"))
        assert status == code and (f"cmake 3.25 is needed, and this is {version}: " in said) == (code == 1), (version, status, said)


@case
def an_unknown_task_is_refused():
    status, said, _ = run_on("party", 0, apt_get=APT)
    assert status == 2 and said.startswith("usage:"), said


if __name__ == "__main__":
    run_cases(__file__)
