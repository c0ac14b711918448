"""The package script of the front door, run on machines that are made of a folder of
fake commands: nothing missing, missing as root, not root with and without sudo, no apt.

    test_packages.py SOURCE_DIR
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import case, run_cases  # noqa: E402

SCRIPT = os.path.join(sys.argv[1], "cmake", "install-packages.sh")

# A fake command writes down how it was called, then does what its body says.
FAKE = '#!/bin/sh\necho "{name} $*" >>"$LOG"\n{body}\n'
SUDO = 'exec "$@"'
ENV = 'while case $1 in *=*) true ;; *) false ;; esac; do export "$1"; shift; done; exec "$@"'
APT = 'echo "frontend=$DEBIAN_FRONTEND" >>"$LOG"'
BUILD_TOOLS = {"gcc": "exit 0", "cmake": "", "ninja": "", "pkg_config": "exit 0", "glslc": ""}


def run_on(task, user, **commands):
    """Runs the script where only these commands exist (_ stands for -): status, stderr, calls."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        commands["id"] = f"echo {user}"
        for name, body in commands.items():
            name = name.replace("_", "-")
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(FAKE.format(name=name, body=body))
            os.chmod(path, 0o755)
        done = subprocess.run(["/bin/sh", SCRIPT, task], capture_output=True, text=True,
                              env={"PATH": folder, "LOG": log})
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
def an_unknown_task_is_refused():
    status, said, _ = run_on("party", 0, apt_get=APT)
    assert status == 2 and said.startswith("usage:"), said


if __name__ == "__main__":
    run_cases(__file__)
