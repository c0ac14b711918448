"""What the build decides when it is configured: systems and flags that are refused, flags of build types, cross builds,
and what a project gets that adds Hearth to itself. Nothing is compiled, but with HEARTH_LONG=1, as make test-long has it.

    test_configure.py SOURCE_DIR PROGRAM
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, PROGRAM = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
KERNEL, PLAIN = "src/kernels/quant/q4_0/ref.c", "src/engine/session.c"
BITS = "-ffp-contract=off"
# Of the machine, not of the test.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("CFLAGS", "LDFLAGS", "PKG_CONFIG", "CMAKE_", "CC"))}


def configure(*options, source=SOURCE, **environment):
    """A new folder that is configured so, with what CMake said."""
    folder = tempfile.mkdtemp(dir=FOLDER)
    done = subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                           "-DHEARTH_TESTS=OFF", "-DHEARTH_BENCH=OFF", *options], env={**CLEAN, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return folder, done.returncode, " ".join(done.stdout.split())


def configured(*options, **more):
    folder, status, said = configure(*options, **more)
    assert status == 0, said
    return folder, said


def refused(expected, *options, **environment):
    _, status, said = configure(*options, **environment)
    assert status != 0, (options, environment, "was accepted")
    assert expected in said, (options, environment, said[-1000:])


def commands(folder, source, config=""):
    """The words of the command that compiles a file."""
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as f:
        found = [e["command"] for e in json.load(f) if e["file"] == source and f"/{config}" in e["command"].split(" -o ")[1]]
    assert len(found) == 1, (source, config, found)
    return shlex.split(found[0])


def of(folder, name, config=""):
    path = os.path.join(SOURCE, name)
    return commands(folder, path if os.path.exists(path) else os.path.join(folder, name), config)


def last_level(words):
    return [word for word in words if word.startswith("-O")][-1]


@case
def other_systems_are_refused_by_name():
    for system in ("Windows", "Darwin", "FreeBSD"):
        refused(f"CMAKE_SYSTEM_NAME is {system}: Hearth is for Linux", f"-DCMAKE_SYSTEM_NAME={system}")
    for name, reason in [("riscv64", ":"), ("i686", ", which has 32 bits"), ("armv7l", ", which has 32 bits"),
                         ("s390x", ", which is big-endian")]:
        refused(f"CMAKE_SYSTEM_PROCESSOR is '{name}'{reason}", "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={name}")
    refused("flags have -m32", "-DCMAKE_C_FLAGS=-m32")
    refused("flags have -mx32", CFLAGS="-O2 -mx32")


@case
def a_processor_has_several_names():
    machine = os.uname().machine
    name, other = ("AMD64", "arm64") if machine == "x86_64" else ("ARM64", "amd64")
    folder, _ = configured("-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={name}", "-DHEARTH_PCRE2=OFF")
    level = "avx512" if machine == "x86_64" else "neon"
    assert of(folder, f"src/kernels/attn/attn_{level}.c"), "kernels of the processor"
    refused("does not compile for", "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={other}", "-DHEARTH_PCRE2=OFF")


@case
def flags_that_change_bits_are_refused():
    for flag in ("-ffast-math", "-Ofast", "-ffp-contract=fast", "-funsafe-math-optimizations"):
        refused(f"the flag {flag} changes results", f"-DCMAKE_C_FLAGS=-O2 {flag} -g")
    refused("the flag -fassociative-math", "-DCMAKE_C_FLAGS_RELEASE=-O3 -fassociative-math")
    refused("the flag -mrecip=all", "-DCMAKE_BUILD_TYPE=Gentoo", "-DCMAKE_C_FLAGS_GENTOO=-mrecip=all")
    refused("the flag -ffinite-math-only", CFLAGS="-ffinite-math-only")
    refused("the flag -ffast-math", CC="cc -ffast-math")
    refused("the flag -ffast-math", LDFLAGS="-ffast-math"), "it changes the state of the processor"


@case
def flags_of_users_are_obeyed():
    march = "-march=x86-64-v3" if os.uname().machine == "x86_64" else "-march=armv8.2-a"
    folder, _ = configured("-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_C_FLAGS_RELEASE=-O1 {march} -fno-math-errno",
                           CFLAGS="-pipe -fno-stack-protector -D_FORTIFY_SOURCE=1")
    words = of(folder, PLAIN)
    assert last_level(words) == "-O1" and {march, "-pipe", "-fno-math-errno"} < set(words), words
    assert "-fstack-protector-strong" not in words and "-D_FORTIFY_SOURCE=1" in words, words
    assert not any(word in words for word in ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-D_FORTIFY_SOURCE=2")), words
    assert words.index(BITS) > words.index(march) and "-Werror" not in words, words
    assert last_level(of(folder, KERNEL)) == "-O3"


@case
def the_name_of_a_build_type_decides_nothing():
    types = ["None", "Release", "RelWithDebInfo", "MinSizeRel", "Gentoo", "Debug"]
    folder, _ = configured("-G", "Ninja Multi-Config", "-DCMAKE_CONFIGURATION_TYPES=" + ";".join(types), CFLAGS="-g -O2")
    for build in types:
        kernel, plain = of(folder, KERNEL, build), of(folder, PLAIN, build)
        assert ("-DNDEBUG" in plain) == ("-DNDEBUG" in kernel) == (build != "Debug"), (build, plain)
        assert ("-O3" in kernel) == (build != "Debug"), (build, kernel)
        assert BITS in kernel and BITS in plain, build
    folder, _ = configured("-DCMAKE_BUILD_TYPE=None", CFLAGS="-Og")
    assert last_level(of(folder, KERNEL)) == "-Og", "for a debugger"
    folder, _ = configured("-DHEARTH_SANITIZE=address")
    words = of(folder, PLAIN)
    assert words.index("-UNDEBUG") > max([i for i, w in enumerate(words) if w == "-DNDEBUG"], default=0), words
    assert "-fstack-protector-strong" not in words and "-U_FORTIFY_SOURCE" not in words, words


@case
def warnings_are_errors_for_developers_alone():
    with open(os.path.join(SOURCE, "CMakePresets.json"), encoding="utf-8") as f:
        presets = {p["name"]: p for p in json.load(f)["configurePresets"]}

    def strict(name):
        p = presets[name]
        own = p.get("cacheVariables", {}).get("HEARTH_WERROR")
        return own if own or "inherits" not in p else strict(p["inherits"])

    assert strict("release") is None
    assert all(strict(name) == "ON" for name in presets if name not in ("base", "release")), presets
    assert presets["ci"]["binaryDir"] == presets["release"]["binaryDir"]


FAKE_PC = "Name: {0}\nDescription: {0}\nVersion: 99\nLibs: -L{1} -l{0}\nCflags: -isystem {1}/include-{0}\n"


@case
def cross_builds_ask_the_pkg_config_of_their_target():
    cross = ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={os.uname().machine}"]
    folder, said = configured(*cross, "-DHEARTH_PCRE2=OFF")
    assert "cross build without a pkg-config of the target" in said and "no man page and no completions" in said, said
    assert of(folder, "src/text/unicode_none.c")
    with open(os.path.join(folder, "build.ninja"), encoding="utf-8") as f:
        assert "libutf8proc" not in f.read(), "a library of this machine"
    refused("cross builds: of the target", *cross)

    target = os.path.join(FOLDER, "target")
    os.makedirs(target)
    for module in ("libpcre2-8", "libutf8proc", "liburing"):
        with open(os.path.join(target, module + ".pc"), "w", encoding="utf-8") as f:
            f.write(FAKE_PC.format(module.removeprefix("lib"), target))
        os.makedirs(f"{target}/include-{module.removeprefix('lib')}")
        with open(f"{target}/lib{module.removeprefix('lib')}.so", "wb"):
            pass
    folder, said = configured(*cross, f"-DHEARTH_HOST_PROGRAM={PROGRAM}", "-DHEARTH_SERVE=OFF", PKG_CONFIG_LIBDIR=target)
    assert "without a pkg-config" not in said, said
    assert f"{target}/include-uring" in of(folder, "src/store/disk_uring.c")
    with open(os.path.join(folder, "build.ninja"), encoding="utf-8") as f:
        text = f.read()
    assert f"{target}/libutf8proc.so" in text, "the library of the target"
    assert f"{PROGRAM} --man" in text, [line for line in text.splitlines() if "--man" in line]

    tools = os.path.join(FOLDER, "tools")
    os.makedirs(tools)
    os.symlink(shutil.which("cc"), os.path.join(tools, "x86_64-tool-linux-gcc"))
    script = os.path.join(tools, "x86_64-tool-linux-pkg-config")
    with open(script, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\nPKG_CONFIG_LIBDIR={target} exec pkg-config "$@"\n')
    os.chmod(script, 0o755)
    folder, said = configured(*cross, f"-DCMAKE_C_COMPILER={tools}/x86_64-tool-linux-gcc", "-DHEARTH_SERVE=OFF",
                              PATH=f"{tools}:{os.environ['PATH']}")
    assert f"{target}/include-uring" in of(folder, "src/store/disk_uring.c"), said


@case
def archives_are_linked_by_name():
    folder, status, said = configure("-DHEARTH_STATIC_DEPS=ON")
    if status != 0 and "ARCHIVE" in said:
        raise Skip("there are no archives of PCRE2, utf8proc and liburing here")
    assert status == 0, said
    assert {"libpcre2-8.a", "libutf8proc.a"} <= linked(folder, "hearth") and "libpcre2-8.so" not in linked(folder, "hearth")
    folder, _ = configured()
    assert {"libpcre2-8.so", "libutf8proc.so"} <= linked(folder, "hearth") and "libpcre2-8.a" not in linked(folder, "hearth")


def linked(folder, name):
    """The names of the libraries that a target is linked with."""
    with open(os.path.join(folder, "build.ninja"), encoding="utf-8") as f:
        (block,) = [b for b in f.read().split("\n\n") if f"\nbuild {name}: C_EXECUTABLE" in "\n" + b]
    line = next(line for line in block.splitlines() if "LINK_LIBRARIES =" in line)
    return {os.path.basename(word) for word in line.split()}


PARENT = """cmake_minimum_required(VERSION 3.25)
project(parent C)
{options}
{add}
add_executable(story {source}/examples/story.c)
set(targets story)
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  add_executable(plusplus plusplus.cpp)
  list(APPEND targets plusplus)
endif()
foreach(target ${{targets}})
  target_link_libraries(${{target}} PRIVATE hearth::hearth)
endforeach()
foreach(name CMAKE_BUILD_TYPE CMAKE_C_STANDARD CMAKE_POSITION_INDEPENDENT_CODE CMAKE_C_FLAGS_RELEASE BUILD_TESTING)
  message(STATUS "${{name}}=[${{${{name}}}}]")
endforeach()
"""
ADD = {"add_subdirectory": 'add_subdirectory("{source}" hearth)',
       "FetchContent": 'include(FetchContent)\nFetchContent_Declare(hearth SOURCE_DIR "{source}")\n'
                       'FetchContent_MakeAvailable(hearth)'}


def parent(way, options=""):
    folder = tempfile.mkdtemp(dir=FOLDER)
    with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as f:
        f.write(PARENT.format(source=SOURCE, add=ADD[way].format(source=SOURCE), options=options))
    with open(os.path.join(folder, "plusplus.cpp"), "w", encoding="utf-8") as f:
        f.write("#include <hearth/hearth.h>\nint main() { return hearth_version()[0] == 0; }\n")
    return folder


def build_of(folder):
    """The names of all that ninja would make by default."""
    out = subprocess.run(["ninja", "-C", folder, "-t", "inputs", "all"], check=True, stdout=subprocess.PIPE, text=True)
    return out.stdout.splitlines()


@case
def a_project_that_adds_hearth_keeps_its_own_settings():
    for way in ADD:
        source = parent(way)
        folder = os.path.join(source, "build")
        done = subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"],
                              env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = done.stdout
        assert done.returncode == 0, said
        for name in ("CMAKE_BUILD_TYPE", "CMAKE_C_STANDARD", "CMAKE_POSITION_INDEPENDENT_CODE", "BUILD_TESTING"):
            assert f"{name}=[]" in said, said
        assert "CMAKE_C_FLAGS_RELEASE=[-O3 -DNDEBUG]" in said, said
        made = build_of(folder)
        assert any(name.endswith("story.c.o") for name in made) and any(name.endswith("libhearth.a") for name in made)
        others = [name for name in made if "tests/" in name or "apps/" in name or "bench/" in name or name.endswith(".so")
                  and "libhearth" in name]
        assert not others, others
        words = commands(folder, os.path.join(SOURCE, "examples", "story.c"))
        leaked = [w for w in words if w.startswith(("-W", "-f", "-std", "-D", "-O", "-U"))]
        assert not leaked and any(w.endswith("/include") for w in words), words
        files = [os.path.join(SOURCE, "examples", "story.c")]
        if shutil.which("c++"):
            files.append(os.path.join(source, "plusplus.cpp"))
        for file in files:
            words = commands(folder, file)
            subprocess.run([*words[:words.index("-o")], "-fsyntax-only", words[-1]], check=True, cwd=folder)
        for root, _, names in os.walk(folder):
            for name in names:
                if name == "cmake_install.cmake":
                    with open(os.path.join(root, name), encoding="utf-8") as f:
                        assert "hearth.h" not in f.read(), "it installs itself"


@case
def a_project_that_adds_hearth_chooses_the_library():
    settings = "set(BUILD_SHARED_LIBS ON)\nset(HEARTH_INSTALL ON)\nset(CMAKE_UNITY_BUILD ON)\nset(CMAKE_C_STANDARD 90)"
    folder, _ = configured(source=parent("add_subdirectory", settings))
    words = commands(folder, os.path.join(SOURCE, PLAIN))
    assert "-std=c17" in words and not any("unity" in word for word in words), words
    made = build_of(folder)
    assert any("libhearth.so" in name for name in made) and not any("libhearth.a" in name for name in made)
    assert any(name.startswith("libhearth.so") for name in linked(folder, "story")), linked(folder, "story")
    _, status, said = configure(source=parent("add_subdirectory", "add_compile_options(-O2 $<$<CONFIG:Release>:-ffast-math>)"))
    assert status != 0 and "the flag -ffast-math changes results" in said, said


@case
def a_project_that_adds_hearth_is_built():
    if not os.environ.get("HEARTH_LONG"):
        raise Skip("compiles the library: with HEARTH_LONG only")
    folder, _ = configured("-DCMAKE_BUILD_TYPE=MinSizeRel", source=parent("FetchContent"))
    subprocess.run(["cmake", "--build", folder, "-j", "2"], check=True, stdout=subprocess.DEVNULL)
    if shutil.which("c++"):
        subprocess.run([os.path.join(folder, "plusplus")], check=True)
    model, prompt = os.path.join(SOURCE, "models", "storyteller-q8_0.gguf"), "Once upon a time"
    story = subprocess.run([os.path.join(folder, "story"), model, prompt, "60", "7"], check=True, stdout=subprocess.PIPE).stdout
    own = subprocess.run([PROGRAM, "run", model, "-p", prompt, "-n", "60", "--seed", "7"], check=True, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL).stdout
    assert story == own, story


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hearth-configure-") as FOLDER:
        run_cases(__file__)
