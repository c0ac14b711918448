"""What `make install` leaves behind is complete and works: the example, built against
the installed library, tells the story that the installed program tells.

    test_install.py SOURCE_DIR BUILD_DIR
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, BUILD = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "storyteller-q8_0.gguf")
EXAMPLES = {f"share/doc/hearth/examples/{name}" for name in os.listdir(os.path.join(SOURCE, "examples"))}
PROMPT, N_TOKEN, SEED = "Once upon a time", "60", "7"


def output_of(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **more).stdout


def functions():
    """The names of all functions of the library."""
    folder, text = os.path.join(SOURCE, "include/hearth"), ""
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            text += f.read()
    return re.findall(r"^HEARTH_API [^(;]*\b(hearth_\w+)\(", text, re.M)


def need(command):
    if not shutil.which(command):
        raise Skip(f"no {command} here")


def example(prefix, name, *link):
    """Builds the example by pkg-config and returns the path of the program."""
    need("pkg-config")
    (folder,) = [parent for parent, _, names in os.walk(prefix) if "hearth.pc" in names]
    settings = dict(os.environ, PKG_CONFIG_PATH=folder)
    flags = output_of("pkg-config", "--cflags", "--libs", *link, "hearth", env=settings, text=True).split()
    if "--static" in link:
        at = flags.index("-lhearth")
        flags[at:at + 1] = ["-Wl,-Bstatic", "-lhearth", "-Wl,-Bdynamic"]
    program = os.path.join(prefix, name)
    subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", os.path.join(SOURCE, "examples", "story.c"),
                    *flags, "-o", program], check=True)
    return program


def libdir_of(prefix):
    (folder,) = [parent for parent, _, names in os.walk(prefix) if "libhearth.so" in names]
    return folder


def zsh_completions():
    """Its folder is another one where the build folder is that of packages."""
    return next(path for path in (f"share/zsh/{name}/_hearth" for name in ("vendor-completions", "site-functions"))
                if os.path.exists(os.path.join(PREFIX, path)) or "site" in path)


def story_of(program, prefix):
    settings = dict(os.environ, LD_LIBRARY_PATH=libdir_of(prefix))
    return output_of(program, MODEL, PROMPT, N_TOKEN, SEED, env=settings)


def story_of_hearth(prefix):
    return output_of(os.path.join(prefix, "bin", "hearth"), "run", MODEL, "-p", PROMPT, "-n", N_TOKEN, "--seed", SEED,
                     stderr=subprocess.DEVNULL)


def tells_the_same_story(*link):
    program = example(PREFIX, "story" + "".join(link), *link)
    needs_library = b"libhearth.so" in output_of("readelf", "-d", program)
    assert needs_library == (not link), "linked with the other library"
    story = story_of(program, PREFIX)
    assert story == story_of_hearth(PREFIX), story
    assert len(story) > 100, story


@case
def install_is_complete():
    wanted = {"bin/hearth", "include/hearth/hearth.h", "include/hearth/base.h", "share/man/man1/hearth.1", zsh_completions(),
              "share/man/man3/hearth.3", *(f"share/man/man3/{name}.3" for name in functions()),
              "share/bash-completion/completions/hearth", "share/fish/vendor_completions.d/hearth.fish",
              "lib/systemd/system/hearth.service", "share/doc/hearth/LICENSE", "share/doc/hearth/docs/serving.md",
              *EXAMPLES}
    lib = os.path.relpath(libdir_of(PREFIX), PREFIX)
    wanted |= {f"{lib}/libhearth.a", f"{lib}/libhearth.so", f"{lib}/pkgconfig/hearth.pc",
               f"{lib}/cmake/hearth/hearth-config.cmake"}
    missing = [path for path in wanted if not os.path.getsize(os.path.join(PREFIX, path))]
    assert not missing, missing


@case
def install_respects_destdir():
    with tempfile.TemporaryDirectory(prefix="hearth-stage-") as stage:
        output_of("cmake", "--install", BUILD, "--prefix", "/usr/local", env=dict(os.environ, DESTDIR=stage))
        assert os.path.exists(os.path.join(stage, "usr/local/bin/hearth"))


@case
def the_program_needs_no_other_target():
    """make run builds neither the shared library nor tests and manuals."""
    made = output_of("ninja", "-C", BUILD, "-t", "inputs", "hearth_program", text=True).splitlines()
    assert any(path.endswith("libhearth.a") for path in made)
    others = [path for path in made if path.startswith(("tests/", "bench/", "manual/")) or "libhearth.so" in path]
    assert not others, others[:9]


@case
def make_install_installs_no_packages():
    for target in ("install", "uninstall", "deb"):
        lines = output_of("make", "-n", "-C", SOURCE, target, "DESTDIR=/stage", text=True)
        assert "cmake" in lines and "install-packages" not in lines, lines
    assert "install-packages" in output_of("make", "-n", "-C", SOURCE, "build", text=True)


@case
def uninstall_removes_what_was_installed_and_no_more():
    with tempfile.TemporaryDirectory(prefix="hearth-stage-") as stage:
        settings = dict(os.environ, DESTDIR=stage)
        output_of("cmake", "--install", BUILD, "--prefix", "/opt/x", env=settings)
        manifest = shutil.copy(os.path.join(BUILD, "install_manifest.txt"), stage)
        other = os.path.join(stage, "opt/x/share/doc/hearth/notes")
        with open(other, "w", encoding="utf-8"):
            pass
        remove = ("cmake", f"-DMANIFEST={manifest}", "-P", os.path.join(SOURCE, "cmake", "uninstall.cmake"))
        output_of(*remove, env=settings)
        left = [os.path.join(folder, name) for folder, _, names in os.walk(stage) for name in names]
        assert left == [other], left
        assert not os.path.exists(os.path.join(stage, "opt/x/include/hearth")), "an empty folder"
        done = subprocess.run(remove, env=settings, capture_output=True, text=True)
        assert done.returncode != 0 and "nothing was installed" in " ".join(done.stderr.split()), done


@case
def components_are_parts_of_the_whole():
    def files(*component):
        with tempfile.TemporaryDirectory(prefix="hearth-stage-") as stage:
            output_of("cmake", "--install", BUILD, "--prefix", stage, *component)
            return {os.path.relpath(os.path.join(folder, name), stage) for folder, _, names in os.walk(stage) for name in names}

    parts = [files("--component", name) for name in ("runtime", "library", "development")]
    assert set.union(*parts) == files() and sum(map(len, parts)) == len(files())


@case
def example_on_the_shared_library_tells_the_same_story():
    tells_the_same_story()


@case
def example_on_the_static_library_tells_the_same_story():
    tells_the_same_story("--static")


@case
def example_reports_errors_in_one_line():
    program = example(PREFIX, "story-errors", "--static")
    done = subprocess.run([program, "/nowhere.gguf", PROMPT, N_TOKEN, SEED], capture_output=True, text=True)
    assert done.returncode == 1 and re.fullmatch(r"story: /nowhere\.gguf: .+\n", done.stderr), done


@case
def installed_program_needs_no_other_file():
    story = output_of(os.path.join(PREFIX, "bin", "hearth"), "run", "-p", PROMPT, "-n", N_TOKEN, "--seed", SEED,
                      stderr=subprocess.DEVNULL, cwd="/", env={"PATH": "/nowhere"})
    assert story == story_of_hearth(PREFIX), story


def read_page(name):
    """A page of the manual as a terminal shows it, without its faces."""
    need("groff")
    page = os.path.join(PREFIX, "share/man", name)
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou", page], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@case
def man_page_is_clean_roff():
    assert "tokenize" in read_page("man1/hearth.1")


@case
def manual_of_the_library_has_every_function_with_its_three_lines():
    """The headers' bytes that roff would take for its own are there as they are."""
    page = read_page("man3/hearth.3")
    indent = re.search(r"^( +)(?:const )?\w+ \*?hearth_\w+\(", page, re.M)[1]  # each groff has another
    rest = rf"(?:(?!\n{indent}\S).)*\n +"  # up to the next declaration
    shown = re.findall(rf"^{indent}(?:const )?\w+ \*?(hearth_\w+)\({rest}Errors:{rest}Ownership:{rest}Threads:", page, re.M | re.S)
    assert len(shown) > 80 and sorted(shown) == sorted(functions()), sorted(set(shown) ^ set(functions()))
    for name in shown:
        with open(os.path.join(PREFIX, "share/man/man3", f"{name}.3"), encoding="utf-8") as f:
            assert f.read() == ".so man3/hearth.3\n", name
    for text in (r"appear\s+as\s+\\xNN", r"char message\[600\];", "pkg-config --cflags --libs hearth",
                 "EXPERIMENTAL\n   hearth/experimental.h", "story.c", r"hearth\(1\)"):
        assert re.search(text, page), text


@case
def the_manual_escapes_what_roff_takes_for_its_own():
    comments = {"hearth.h": "/* Head.\n *\n * Words. .so /etc/passwd\n * 'br\n */\n/* A ring. */\n#include <hearth/a.h>\n",
                "a.h": "/* File. */\n\n/* .. dots;\n * .sp 9 [x] \\fBy\\fP\n * 'in `a`\n * Errors: .x; y.\n * Ownership: none.\n"
                       " * Threads: any. */\nHEARTH_API int hearth_f(int a,\n                        char b[2]);\n",
                "new.h": "/* New. */\n\n#define HEARTH_N 'n' /* \\n; ' */\n"}
    with tempfile.TemporaryDirectory(prefix="hearth-manual-") as folder:
        os.makedirs(os.path.join(folder, "include/hearth"))
        for name, text in comments.items():
            with open(os.path.join(folder, "include/hearth", name), "w", encoding="utf-8") as f:
                f.write(text)
        out = os.path.join(folder, "man3")
        output_of("cmake", f"-DSOURCE={folder}", "-DVERSION=1.2.3", f"-DOUT={out}", "-P", os.path.join(SOURCE, "cmake/manual.cmake"))
        assert sorted(os.listdir(out)) == ["hearth.3", "hearth_f.3"]
        page = " ".join(read_page(os.path.join(out, "hearth.3")).split())
    for text in ("Words .so /etc/passwd 'br A ring hearth/a.h File. int hearth_f(int a, char b[2]); .. dots; .sp 9 [x] \\fBy\\fP 'in "
                 "`a` Errors: .x; y. Ownership: none. Threads: any. EXPERIMENTAL", r"New. #define HEARTH_N 'n' /* \n; ' */"):
        assert text in page, page


@case
def pkg_config_finds_a_tree_that_was_moved():
    need("pkg-config")
    with tempfile.TemporaryDirectory(prefix="hearth-moved-") as moved:
        shutil.copytree(libdir_of(PREFIX), os.path.join(moved, os.path.relpath(libdir_of(PREFIX), PREFIX)), symlinks=True)
        settings = dict(os.environ, PKG_CONFIG_PATH=os.path.join(libdir_of(moved), "pkgconfig"))
        flags = output_of("pkg-config", "--cflags", "--libs", "hearth", env=settings, text=True).split()
        assert [os.path.normpath(word[2:]) for word in flags[:2]] == [os.path.join(moved, "include"), libdir_of(moved)], flags
        assert flags[2:] == ["-lhearth"], flags


@case
def completions_are_accepted_by_their_shells():
    scripts = {"bash": "share/bash-completion/completions/hearth", "zsh": zsh_completions(),
               "fish": "share/fish/vendor_completions.d/hearth.fish"}
    for shell, path in scripts.items():
        path = os.path.join(PREFIX, path)
        with open(path, encoding="utf-8") as f:
            assert "perplexity" in f.read(), path
        if shutil.which(shell):
            subprocess.run([shell, "-n", path], check=True)


if __name__ == "__main__":
    # What make uninstall needs is of the user's own installation.
    kept = os.path.join(BUILD, "install_manifest.txt")
    own = open(kept, "rb").read() if os.path.exists(kept) else None
    try:
        with tempfile.TemporaryDirectory(prefix="hearth-install-") as PREFIX:
            output_of("cmake", "--install", BUILD, "--prefix", PREFIX)
            run_cases(__file__)
    finally:
        os.unlink(kept)
        if own is not None:
            with open(kept, "wb") as manifest:
                manifest.write(own)
