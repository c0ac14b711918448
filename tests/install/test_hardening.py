"""The program and the shared library are what a distribution's checks expect of them, read from the ELF files.

    test_hardening.py BUILD_DIR
"""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

BUILD = sys.argv[1]
PROGRAM, SHARED, ARCHIVE = (os.path.join(BUILD, name) for name in ("hearth", "libhearth.so", "libhearth.a"))
X86 = os.uname().machine == "x86_64"


def shown(command, *options):
    if not shutil.which(command):
        raise Skip(f"no {command} here (Debian: binutils)")
    return subprocess.run([command, "-W", *options] if command == "readelf" else [command, *options], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def imports(path):
    return {line.split()[-1].split("@")[0] for line in shown("nm", "-D", "--undefined-only", path).splitlines()}


@case
def calls_of_other_libraries_cannot_be_redirected():
    for path in (PROGRAM, SHARED):
        assert re.search(r"^ +GNU_RELRO ", shown("readelf", "-l", path), re.M), path
        dynamic = shown("readelf", "-d", path)
        assert re.search(r"\(FLAGS\).*BIND_NOW", dynamic) and re.search(r"\(FLAGS_1\).*NOW", dynamic), (path, dynamic)


@case
def no_memory_is_writable_and_executable():
    for path in (PROGRAM, SHARED):
        segments = shown("readelf", "-l", path)
        stack = re.search(r"^ +GNU_STACK .*$", segments, re.M).group()
        assert "RWE" not in stack and " E " not in stack, (path, stack)
        assert not re.search(r"^ +LOAD .* (RWE|WE) ", segments, re.M), (path, segments)


@case
def the_program_can_be_loaded_anywhere():
    assert re.search(r"Type: +DYN", shown("readelf", "-h", PROGRAM))
    assert re.search(r"\(FLAGS_1\).*PIE", shown("readelf", "-d", PROGRAM))
    assert "TEXTREL" not in shown("readelf", "-d", PROGRAM) + shown("readelf", "-d", SHARED)


@case
def stacks_and_buffers_are_checked():
    for path in (PROGRAM, SHARED):
        found = imports(path)
        assert "__stack_chk_fail" in found, path
        assert any(name.endswith("_chk") and name.startswith("__") for name in found - {"__stack_chk_fail"}), path


@case
def jumps_have_marked_targets():
    """Of all own files; a whole file is marked where the system's own start files are, too."""
    mark = r"x86 feature: .*IBT.*SHSTK" if X86 else r"AArch64 feature: .*BTI"
    members = shown("ar", "t", ARCHIVE).splitlines()
    marks = len(re.findall(mark, shown("readelf", "-n", ARCHIVE)))
    assert marks == len(members) > 200, (marks, len(members))
    start = subprocess.run(["cc", "-print-file-name=crti.o"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    if re.search(mark, shown("readelf", "-n", start)):
        assert re.search(mark, shown("readelf", "-n", SHARED))


@case
def kernels_check_no_stack():
    """They are hot; their arrays have fixed sizes, and their loops fixed bounds."""
    level = "avx2" if X86 else "neon"
    folder = os.path.join(BUILD, "CMakeFiles/hearth_objects.dir/src/kernels")
    for path in (f"quant/q4_0/{level}.c.o", f"attn/attn_{level}.c.o", f"vector/vector_{level}.c.o"):
        names = shown("nm", "-u", os.path.join(folder, path))
        assert "_chk" not in names, (path, names)
    assert "__stack_chk_fail" in shown("nm", "-u", os.path.join(folder, "../engine/session.c.o"))


if __name__ == "__main__":
    run_cases(__file__)
