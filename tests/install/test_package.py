"""Debian packages of what was built: what is in them, and programs that are compiled with what they install. The
library is not compiled again: a build folder for /usr gets the files of BUILD_DIR.

    test_package.py SOURCE_DIR BUILD_DIR
"""

import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MODEL = os.path.join(SOURCE, "models", "storyteller-q8_0.gguf")
EXAMPLES = {f"share/doc/hearth/examples/{name}" for name in os.listdir(os.path.join(SOURCE, "examples"))}
PROMPT, N_TOKEN, SEED = "Once upon a time", "60", "7"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PKG_CONFIG", "CMAKE_", "CFLAGS", "LDFLAGS", "DESTDIR"))}
with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as f:
    VERSION = re.search(r"project\(hearth VERSION ([0-9.]+)", f.read()).group(1)
MINOR = VERSION.rpartition(".")[0]
PACKAGES = ("hearth", f"libhearth{MINOR}", "libhearth-dev")
HAS_TOOLS = all(map(shutil.which, ("dpkg-shlibdeps", "dpkg-deb", "file")))


def packaged(function):
    """A case about the packages."""
    @functools.wraps(function)
    def run():
        if not HAS_TOOLS:
            raise Skip("no tools for packages here (Debian: dpkg-dev, file)")
        function()
    return case(run)


def output_of(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=CLEAN | more.pop("env", {}), **more).stdout


def make_packages():
    """Packages, and the tree ROOT that they install."""
    folder = os.path.join(FOLDER, "build")
    output_of("cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_PREFIX=/usr",
              "-DHEARTH_TESTS=OFF", "-DHEARTH_BENCH=OFF")
    for path in ["hearth", "libhearth.a", *map(os.path.basename, glob.glob(os.path.join(BUILD, "libhearth.so*")))]:
        shutil.copy2(os.path.join(BUILD, path), os.path.join(folder, path), follow_symlinks=False)
    shutil.copytree(os.path.join(BUILD, "manual"), os.path.join(folder, "manual"), dirs_exist_ok=True)
    output_of("cpack", "-G", "DEB", cwd=folder, stderr=subprocess.STDOUT)
    found = {os.path.basename(path).split("_")[0]: path for path in glob.glob(os.path.join(folder, "*.deb"))}
    for package in found.values():
        output_of("dpkg-deb", "-x", package, ROOT)
    return found


def files_of(name):
    return {line.split()[5].removeprefix("./usr/") for line in output_of("dpkg-deb", "-c", DEBS[name]).splitlines()
            if not line.startswith("d")}


def field(name, key):
    return output_of("dpkg-deb", "-f", DEBS[name], key).strip()


def story_of(program, **environment):
    return output_of(program, MODEL, PROMPT, N_TOKEN, SEED, env=environment)


def story_of_hearth():
    return output_of(os.path.join(ROOT, "usr/bin/hearth"), "run", MODEL, "-p", PROMPT, "-n", N_TOKEN, "--seed", SEED,
                     stderr=subprocess.DEVNULL)


@packaged
def packages_are_complete():
    assert set(DEBS) == set(PACKAGES), DEBS
    lib = os.path.relpath(LIB, os.path.join(ROOT, "usr"))
    wanted = {
        "hearth": {"bin/hearth", "share/man/man1/hearth.1", "share/bash-completion/completions/hearth",
                   "share/zsh/vendor-completions/_hearth", "share/fish/vendor_completions.d/hearth.fish",
                   "lib/systemd/system/hearth.service", "lib/systemd/system/hearth.socket", "share/doc/hearth/LICENSE",
                   "share/doc/hearth/README.md", "share/doc/hearth/docs/serving.md"},
        PACKAGES[1]: {f"{lib}/libhearth.so.{MINOR}", f"{lib}/libhearth.so.{VERSION}", "share/doc/libhearth/LICENSE"},
        "libhearth-dev": {f"{lib}/libhearth.so", f"{lib}/libhearth.a", "include/hearth/hearth.h", "include/hearth/base.h",
                          f"{lib}/pkgconfig/hearth.pc", "share/man/man3/hearth.3", "share/man/man3/hearth_model_open.3",
                          f"{lib}/cmake/hearth/hearth-config.cmake", *EXAMPLES},
    }
    for name, files in wanted.items():
        assert files <= files_of(name), (name, files - files_of(name))
    assert files_of(PACKAGES[1]) == wanted[PACKAGES[1]]
    everything = [path for name in PACKAGES for path in files_of(name)]
    assert len(everything) == len(set(everything)), "a file of two packages"


@packaged
def packages_name_what_they_need():
    for name in PACKAGES:
        assert field(name, "Version") == VERSION and field(name, "Maintainer").startswith("Hearth developers <"), name
        assert field(name, "Description"), name
    for name in ("hearth", PACKAGES[1]):
        needs = field(name, "Depends")
        assert all(library in needs for library in ("libc6 (>=", "libpcre2-8-0", "libutf8proc")), (name, needs)
    assert "libhearth" not in field("hearth", "Depends"), "the program contains the library"
    assert field("libhearth-dev", "Depends") == f"{PACKAGES[1]} (= {VERSION})"


@packaged
def programs_are_stripped_and_use_shared_libraries():
    for path in ("bin/hearth", os.path.relpath(os.path.realpath(os.path.join(LIB, "libhearth.so")), os.path.join(ROOT, "usr"))):
        path = os.path.join(ROOT, "usr", path)
        sections = output_of("readelf", "-S", "-W", path)
        assert ".debug_info" not in sections and ".symtab" not in sections, path
        dynamic = output_of("readelf", "-d", path)
        assert "libpcre2-8.so" in dynamic and "libutf8proc.so" in dynamic and "RUNPATH" not in dynamic, dynamic


@packaged
def the_packaged_program_runs():
    story = story_of_hearth()
    assert len(story) > 100, story


@packaged
def pkg_config_names_no_folder_of_the_system():
    """Nor definitions of other libraries, nor their packages: they are not there in a folder of this file alone."""
    alone = {"PKG_CONFIG_LIBDIR": os.path.join(LIB, "pkgconfig")}
    assert output_of("pkg-config", "--cflags", "hearth", env=alone).strip() == ""
    assert output_of("pkg-config", "--libs", "hearth", env=alone).strip() == "-lhearth"
    private = output_of("pkg-config", "--static", "--libs", "hearth", env=alone).split()
    assert private[0] == "-lhearth" and {"-lpcre2-8", "-lutf8proc", "-pthread"} <= set(private), private
    assert not [word for word in private if word.startswith("-L")], private


@packaged
def pkg_config_compiles_the_example():
    flags = output_of("pkg-config", "--cflags", "--libs", "hearth", env={
        "PKG_CONFIG_LIBDIR": os.path.join(LIB, "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": ROOT}).split()
    program = os.path.join(FOLDER, "story")
    folders = [f"-I{ROOT}/usr/include", f"-L{LIB}"]
    output_of("cc", "-std=c17", "-Wall", "-Wextra", "-Werror", os.path.join(SOURCE, "examples/story.c"), *folders, *flags,
              "-o", program)
    assert story_of(program, LD_LIBRARY_PATH=LIB) == story_of_hearth()


USER = """cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(hearth {minor} REQUIRED {components})
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
"""


def user(components="", *options, **environment):
    """A project that finds the package, configured: its folder, and what CMake said."""
    source = tempfile.mkdtemp(dir=FOLDER)
    with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as f:
        f.write(USER.format(components=components, source=SOURCE, minor=MINOR))
    with open(os.path.join(source, "plusplus.cpp"), "w", encoding="utf-8") as f:
        f.write("#include <hearth/hearth.h>\n#include <cstdio>\nint main() { std::puts(hearth_version()); }\n")
    folder = os.path.join(source, "build")
    done = subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={ROOT}/usr", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN | environment)
    return folder, done.returncode, " ".join(done.stdout.split())


def builds(shared, *options, **environment):
    folder, status, said = user(*options, **environment)
    assert status == 0, said
    output_of("cmake", "--build", folder)
    for name in ("story", "plusplus") if shutil.which("c++") else ("story",):
        needs = f"libhearth.so.{MINOR}" in output_of("readelf", "-d", os.path.join(folder, name))
        assert needs == shared, (name, options)
    return folder


@packaged
def find_package_finds_both_libraries():
    alone = {"PKG_CONFIG_LIBDIR": os.path.join(LIB, "pkgconfig")}
    folder = builds(True, **alone)
    assert story_of(os.path.join(folder, "story")) == story_of_hearth(), "with the shared library, which needs no other package"
    if shutil.which("c++"):
        assert output_of(os.path.join(folder, "plusplus")) == VERSION + "\n"
    folder = builds(False, "", "-DBUILD_SHARED_LIBS=OFF")
    assert story_of(os.path.join(folder, "story")) == story_of_hearth(), "with the static library"
    _, status, said = user("COMPONENTS static", **alone)
    assert status != 0 and "needs libpcre2-8" in said and "COMPONENTS shared does without it" in said, said
    _, status, said = user("COMPONENTS shared", "-DBUILD_SHARED_LIBS=OFF", **alone)
    assert status == 0, said
    _, status, said = user("COMPONENTS gpu")
    assert status != 0 and "COMPONENTS gpu: there is one of shared" in said, said


@packaged
def find_package_refuses_another_minor_version():
    source = user()[0].removesuffix("/build")
    with open(os.path.join(source, "CMakeLists.txt"), encoding="utf-8") as f:
        text = f.read()
    with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as f:
        f.write(text.replace(f"hearth {MINOR} ", f"hearth {MINOR}9 "))
    done = subprocess.run(["cmake", source], cwd=os.path.join(source, "build"), capture_output=True, text=True, env=CLEAN)
    assert done.returncode != 0 and f"version: {VERSION}" in done.stderr, done.stderr


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hearth-package-") as FOLDER:
        if HAS_TOOLS:
            ROOT = os.path.join(FOLDER, "root")
            DEBS = make_packages()
            (LIB,) = [os.path.dirname(path) for path in glob.glob(os.path.join(ROOT, "usr/lib/**/libhearth.so"), recursive=True)]
        run_cases(__file__)
