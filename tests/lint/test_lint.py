"""Rules for the sources and the built library.

    test_lint.py SOURCE_DIR BUILD_DIR

Each rule is a function from what it checks to a list of violations. Each is first given a
small bad example, which must fail, and a good one. docs/architecture.md explains them.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import case, run_cases  # noqa: E402
from js_patterns import slow_patterns  # noqa: E402
from seeded_faults import FAULTS  # noqa: E402

SOURCE, BUILD = sys.argv[1], sys.argv[2]

# A module includes only modules above it (docs/architecture.md).
MODULES = """base file text chat kernels device store model sparse planner forward placement sample constrain draft engine scheduler
           measure convert
           study hub common cli serve""".split()
# These do not include one another; forward and engine join them.
EXCLUSIVE = {"text", "kernels", "device", "store"}


# ---- what the rules check ------------------------------------------------------------

def sources(*folders, suffixes=(".c", ".h")):
    """{path below SOURCE: text}"""
    found = {}
    for folder in folders:
        for parent, _, names in os.walk(os.path.join(SOURCE, folder)):
            for name in names:
                if name.endswith(suffixes):
                    path = os.path.join(parent, name)
                    with open(path, encoding="utf-8") as f:
                        found[os.path.relpath(path, SOURCE)] = f.read()
    assert found, f"no sources in {folders}"
    return found


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(*arguments):
    """Lines of nm as (kind, name); the dots of compilers' copies (f.part.0) are cut off."""
    rows = (line.split() for line in output_of("nm", *arguments).splitlines())
    return [(row[-2], row[-1].split(".")[0]) for row in rows if len(row) >= 2 and not row[-1].endswith(":")]


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


# ---- rules for the sources --------------------------------------------------------------

def module_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] in ("src", "apps") else None


def wrong_includes(files):
    wrong = []
    for path, text in files.items():
        here = module_of(path)
        if here not in MODULES:
            wrong.append(f"{path}: '{here}' is no module")
            continue
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
            there = name.split("/")[0]
            if "/" not in name or there not in MODULES:
                wrong.append(f"{path}: \"{name}\" names no module")
            elif MODULES.index(there) > MODULES.index(here):
                wrong.append(f"{path}: {here} is above {there}")
            elif here != there and {here, there} <= EXCLUSIVE:
                wrong.append(f"{path}: {here} and {there} exclude each other")
    return wrong


def wrong_heads(files):
    """A file begins with a comment of two lines, or of one whole sentence."""
    wrong = []
    for path, text in files.items():
        head = re.match(r"/\*(.*?)\*/", text, re.S)
        words = " ".join(head.group(1).replace("*", " ").split()) if head else ""
        if "\n" not in (head.group(1) if head else "") and not re.match(r"\S+( \S+){2,}.*[.;:]$", words):
            wrong.append(f"{path}: no head that says what the file is for")
    return wrong


def too_long(files):
    counts = {path: text.count("\n") for path, text in files.items()}
    return [f"{path}: {n} lines; 800 is the limit" for path, n in counts.items() if n > 800]


def wrong_marks(files):
    return [f"{path}: {mark}" for path, text in files.items() for mark in re.findall(r"\b(?:TODO|FIXME|XXX)\b", text)]


def literals(text):
    """The texts of a C source: comments, characters and lines of the preprocessor have none."""
    pieces = re.findall(r'/\*.*?\*/|//[^\n]*|\'(?:[^\'\\\n]|\\.)*\'|^[ \t]*#[^\n]*|"((?:[^"\\\n]|\\.)*)"', text, re.S | re.M)
    return [piece for piece in pieces if piece]


# -inf and -infinity are numbers, -of- and -split- parts of names of files.
OPTION = re.compile(r"(?<![\w%.-])--?(?!inf|of-|split-)[A-Za-z][\w-]*")


def options_in_texts(files):
    """An embedder's user has no options of the program: messages of the library name fields."""
    return [f"{path}: {found}" for path, text in files.items() for piece in literals(text) for found in OPTION.findall(piece)]


def functions_of(header):
    return re.findall(r"\b(hearth_\w+)\(", "".join(re.findall(r"^HEARTH_API[^;]*;", without_comments(header), re.M)))


def unused_functions(header, test):
    return [name for name in functions_of(header) if not re.search(rf"\b{name}\(", test)]


# Replaced names, and words that do not occur in plain technical sentences.
OLD_NAMES = re.compile(r"\bhth_(?:(?:" + "|".join("""tape turn tick slice bell keep choice outlook luck mix family attend pick
    coming ahead fetch tree8 tree16 spread cores observation rounding sink map_guard text_cut text_cutter text_lexicon text_pairs
    jinja_tick jinja_build planes walk windows fire plan_wish model_wish hand_over studying gpu_passage gpu_piece gpu_tapes
    gpu_trial gpu_given gpu_filling gpu_notes gpu_play gpu_handoff""".split()) + r")(?:_|\b)|(?:" + "|".join("""row text form
    limit lost neurons firing gpu_place gpu_where gpu_act gpu_cut gpu_room gpu_grain gpu_leave gpu_inherit""".split()) + r")\b)")
OLD_WORDS = re.compile(r"\b(?:foretells?|foretold|whoever|nobody|somebody)\b", re.I)


def old_words(files):
    return [f"{path}: {found}" for path, text in files.items()
            for found in sorted(set(OLD_NAMES.findall(text)) | set(OLD_WORDS.findall(text)))]


def family_names():
    """The architectures that src/model knows, and some others."""
    texts = sources("src/model").values()
    found = {name for text in texts for name in re.findall(r'\.(?:name|architecture)\s*=\s*"([\w.-]+)"', text)}
    return found | {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "opt", "falcon", "bamboo", "phi3", "mistral"}


def architecture_branches(files, names):
    """What differs between architectures is data; forward/ compares no names."""
    wrong = []
    for path, text in files.items():
        code = without_comments(text)
        wrong += [f"{path}: names '{word}'" for word in re.findall(r'"([\w.-]+)"', code) if word in names]
        wrong += [f"{path}: reads {found}" for found in re.findall(r"(?:->|\.)architecture\b|arch(?:->|\.)name\b", code)]
        wrong += [f"{path}: compares texts" for _ in re.findall(r"\b(?:strn?cmp|hth_str_eq|hth_arch_find)\s*\(", code)]
    return wrong


@case
def old_words_do_not_come_back():
    assert len(old_words({"src/a.c": "hth_tape *t; hth_tape_run(t); /* Nobody knows. */"})) >= 2
    assert not old_words({"src/a.c": "hth_options *o; hth_row_range r; /* No other thread reads it. */"})
    assert_none(old_words(sources("src", "apps", "include")))


# Names that do not say what a function does. Two of them in one folder also make a search and a stack trace ambiguous.
VAGUE_NAMES = {"run", "take", "begin", "put", "start", "add", "finish"}


def shared_vague_names(files):
    """Vague names of static functions that more than one file of a folder has."""
    users = {}
    for path, text in files.items():
        for name in set(re.findall(r"^static\b[^;{}()=]*?\b(\w+)\(", without_comments(text), re.M)) & VAGUE_NAMES:
            users.setdefault((os.path.dirname(path), name), []).append(os.path.basename(path))
    return [f"{folder}: '{name}' is a static function of {', '.join(sorted(paths))}; name each after what it does"
            for (folder, name), paths in sorted(users.items()) if len(paths) > 1]


@case
def static_functions_of_a_folder_share_no_vague_name():
    f, g = "static int run(const args *a)\n{\n}\n", "static const char *\nrun(void)\n{\n}\n"
    assert len(shared_vague_names({"src/a/a.c": f, "src/a/b.c": g, "src/a/c.h": "static inline void run(int x) {}\n"})) == 1
    for good in ({"src/a/a.c": f + f, "src/b/b.c": g}, {"src/a/a.c": f, "src/a/b.c": "static int run_b(int run)\n{\n    run(1);\n}\n"},
                 {"src/a/a.c": f, "src/a/b.c": "/*\nstatic int run(void)\n*/ static run_fn *run = NULL;\nint run(int);\n"},
                 {"src/a/a.c": f.replace("run", "add_file"), "src/a/b.c": g.replace("run", "add_file")}):
        assert not shared_vague_names(good), (good, shared_vague_names(good))
    assert_none(shared_vague_names(sources("src", "apps")))


@case
def modules_include_only_modules_above_them():
    assert len(wrong_includes({"src/base/a.c": '#include "file/gguf.h"'})) == 1
    assert len(wrong_includes({"src/kernels/a.c": '#include "text/utf8.h"'})) == 1
    assert len(wrong_includes({"src/store/a.c": ' # include "kernels/kernels.h"'})) == 1
    assert len(wrong_includes({"src/engine/a.c": '#include "../forward/forward.h"'})) == 1
    assert len(wrong_includes({"src/attic/a.c": ""})) == 1
    assert not wrong_includes({"src/forward/a.c": '#include "kernels/kernels.h"\n#include <stdio.h>'})
    assert_none(wrong_includes(sources("src", "apps")))


@case
def every_file_has_a_head():
    assert len(wrong_heads({"a.c": "#include <x.h>\n"})) == 1
    assert len(wrong_heads({"a.c": "/* helpers */\n"})) == 1
    assert not wrong_heads({"a.c": "/* The file says what it is for. */\n"})
    assert not wrong_heads({"a.c": "/* The file says\n * what it is for */\n"})
    assert_none(wrong_heads(sources("src", "apps", "include", "tests", "examples")))


@case
def texts_of_the_library_name_no_options_of_the_program():
    bad = 'f("raise -c"); /* -c */ g("ask for less with --batch"); h("-n, or (--ram)");'
    assert len(options_in_texts({"a.c": bad})) == 4
    good = '#define X "-Wall"\nf("n_ctx, %-5d to -1, -inf; a-b, x -- y, \\"-\\"", \'"\'); /* "--ram" */ g("read-only");'
    assert not options_in_texts({"a.c": good}), options_in_texts({"a.c": good})
    assert_none(options_in_texts(sources("src")))


@case
def a_test_calls_each_function_of_the_interface_wrongly():
    bad = "HEARTH_API void hearth_a_close(hearth_a *a);\nHEARTH_API int hearth_b(int x,\n    int y);"
    assert unused_functions(bad, "hearth_b(0, 0); hearth_a_closes(0);") == ["hearth_a_close"]
    header = "".join(sources("include").values())
    assert len(functions_of(header)) > 80
    assert_none(unused_functions(header, sources("tests")["tests/engine/test_misuse.c"]))


def wrong_comments(files):
    """Functions of the interface without a comment of their own that ends in lines of errors, ownership and threads."""
    return [f"{path}: {name} needs a comment directly before it, which ends in Errors:, Ownership: and Threads:"
            for path, text in files.items()
            for comment, name in re.findall(r"(/\*(?:(?!\*/).)*\*/\n)?^HEARTH_API\s[^;]*?\b(hearth_\w+)\(", text, re.S | re.M)
            if re.findall(r"^ \* (Errors|Ownership|Threads): \S", comment, re.M) != ["Errors", "Ownership", "Threads"]]


@case
def comments_of_the_interface_end_in_three_lines():
    one = "/* Does a.\n * Errors: IO: it fails;\n * MEMORY.\n * Ownership: nothing is kept.\n * Threads: any. */\n"
    f, g = "HEARTH_API int hearth_f(int x,\n    int y);\n", "HEARTH_API const char *hearth_g(void);\n"
    assert not wrong_comments({"a.h": "#define HEARTH_API x\n" + one + f + "\n" + one + g})
    assert len(wrong_comments({"a.h": one + f + g})) == 1
    assert len(wrong_comments({"a.h": one + "typedef int a;\n" + f + one + "\n" + g})) == 2
    for bad in (one.replace("Threads: any.", "Any thread."), one.replace("Ownership: nothing is kept.\n * ", ""),
                one.replace("Errors", "Threads").replace("Threads: any", "Errors: any"), one.replace("IO: it fails;\n * MEMORY.", ""),
                "/* Does a. Errors: none. Ownership: nothing is kept. Threads: any. */\n"):
        assert len(wrong_comments({"a.h": bad + f})) == 1, bad
    headers = sources("include")
    assert sum(text.count("\n * Threads: ") for text in headers.values()) == len(functions_of("".join(headers.values())))
    assert_none(wrong_comments(headers))


@case
def no_source_is_longer_than_800_lines():
    assert len(too_long({"a.c": "\n" * 801})) == 1 and not too_long({"a.c": "\n" * 800})
    assert_none(too_long(sources("src")))


@case
def no_pattern_of_the_page_is_slow():
    def found(pattern):
        return slow_patterns({"page/a.js": f"const s = 'a/b' + x / y; /* a/b */\nif ({pattern}.test(s)) f();"})

    for slow in (r"/^ {0,3}(#{1,6})(?:\s+(.*?))?\s*#*\s*$/", r"/^\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*$/", r"/^ .*[^ ].* $/",
                 r"/\s+$/", r"/^(?:a|b+)*$/", r"/^[\w.]+:\S*$/i", r"/(a+b|^c)/", r"/^[^/]+\/[^a]+$/",
                 r'new RegExp("^" + x)'):
        assert found(slow), slow
    for good in (r"/^\s*$/", r"/\s+/g", r"/^(-{3,}|\*{3,}|_{3,})$/", r"/^https?:\/\/[^\s<>]+/i", r"/[0-9]\w*/y",
                 r"/[\p{L}\p{N}]/u", r"/^a{1,9}a{1,9}b/"):
        assert not found(good), good
    assert_none(slow_patterns(sources("apps/serve/page", suffixes=(".js",))))


@case
def nothing_is_marked_to_be_done():
    assert len(wrong_marks({"a.c": "/* TODO: later */"})) == 1 and not wrong_marks({"a.c": "name-XXXXXX"})
    assert_none(wrong_marks(sources("src", "apps", "include", "tests", "examples")))


@case
def run_names_no_architecture():
    names = family_names()
    assert len(architecture_branches({"a.c": 'if (!strcmp(m->architecture, "llama"))'}, names)) == 3
    assert not architecture_branches({"a.c": '/* as "llama" does */ f("blk");'}, names)
    assert_none(architecture_branches(sources("src/forward"), names))


RULE_READ = re.compile(r"(?:->|\.)arch(?:->|\.)\w|\bhth_arch\b")


@case
def only_the_model_reads_the_rules_of_architectures():
    assert all(RULE_READ.search(text) for text in ("h->arch->rope", "m->hparams.arch->name", "const hth_arch *a = h->arch;"))
    assert not RULE_READ.search("h->architecture")
    files = sources("src/forward", "src/device", "src/engine", "src/planner", "src/placement", "src/measure", "src/store")
    assert_none([f"{path}: {m[0]}" for path, text in files.items() for m in RULE_READ.finditer(text)])


# Headers of C and POSIX, and what other libraries include beside them. A newer version of one of these may include any
# of them, as liburing 2.9 does <sys/wait.h>, so no name of theirs is free at file scope in any file of the project.
SYSTEM_HEADERS = """aio.h arpa/inet.h complex.h ctype.h dirent.h dlfcn.h errno.h fcntl.h fenv.h fnmatch.h ftw.h getopt.h glob.h
    grp.h iconv.h inttypes.h langinfo.h libgen.h libintl.h limits.h locale.h malloc.h math.h monetary.h mqueue.h net/if.h netdb.h
    netinet/in.h netinet/tcp.h nl_types.h poll.h pthread.h pwd.h regex.h sched.h search.h semaphore.h setjmp.h signal.h
    spawn.h stdio.h stdlib.h string.h strings.h sys/epoll.h sys/eventfd.h sys/ioctl.h sys/ipc.h sys/mman.h sys/msg.h
    sys/random.h sys/resource.h sys/select.h sys/sem.h sys/shm.h sys/socket.h sys/stat.h sys/statvfs.h sys/syscall.h sys/time.h
    sys/times.h sys/types.h sys/uio.h sys/un.h sys/utsname.h sys/wait.h syslog.h termios.h threads.h time.h uchar.h
    ucontext.h unistd.h utime.h utmpx.h wchar.h wctype.h wordexp.h""".split()
# Functions of C23, POSIX.1-2017 and 2024 and newer C libraries that the headers of this machine may lack.
NEWER_FUNCTIONS = set("""acospi asinpi atanpi atan2pi cospi sinpi tanpi exp2m1 exp10m1 log2p1 log10p1 logp1 compoundn pown powr
    rootn rsqrt fmaximum fminimum fmaximum_mag fminimum_mag fmaximum_num fminimum_num roundeven strlcpy strlcat wcslcpy wcslcat
    memset_explicit memccpy strdup strndup memalignment free_sized free_aligned_sized timegm timespec_getres uabs ulabs ullabs
    umaxabs call_once mtx_lock thrd_join tss_get strfromd posix_getdents sig2str str2sig dup3 pipe2 accept4 ppoll mkostemp qsort_r
    reallocarray secure_getenv getentropy getlocalename_l tcgetwinsize tcsetwinsize posix_devctl posix_close close_range
    closefrom fdclosedir openat2 sched_setattr sched_getattr pidfd_open pidfd_spawn mseal epoll_pwait2 statx copy_file_range
    arc4random arc4random_buf arc4random_uniform getmsg putmsg getpmsg putpmsg fattach fdetach isastream gets bcopy bcmp bzero
    index rindex gamma scalb ftime ulimit sigpause bsd_signal usleep ualarm vfork wcswcs getwd mktemp ecvt fcvt gcvt gethostbyname
    dbm_open splice tee vmsplice sendfile signalfd timerfd_create memfd_create""".split())


def declared(text):
    """What a file declares at its scope: names of functions, objects and types, and tags as "struct NAME"; tags and enumerators
    of any scope, and macros in small letters."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])+'|/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    names = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+([a-z]\w*)", text, re.M))
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", " ", text, flags=re.M)
    text = re.sub(r"\b(?:__attribute__|__asm__|__extension__|__restrict|__inline|_Noreturn|_Alignas)\b", " ", text)
    names |= {"struct " + tag for tag in re.findall(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", text)}
    for body in re.findall(r"\benum\b[\s\w]*\{([^{}]*)\}", text):
        names |= set(re.findall(r"(?:^|,)\s*([A-Za-z_]\w*)", body))
    n = 1
    while n:
        text, n = re.subn(r"\{[^{}]*\}", "@", text)
    text = re.sub(r"^TEST\w*\((\w+)\)", r"void \1()", text, flags=re.M)
    text = re.sub(r"\)\s*@", ");", text)  # the body of a function
    text = re.sub(r"\(\s*\*\s*(?:const\s+)?(\w+)\s*\)", r" \1 ", text)  # a pointer to a function
    n = 1
    while n:
        text, n = re.subn(r"\([^()]*\)|\[[^\[\]]*\]", " ", text)
    for declaration in text.replace("@", " ").split(";"):
        first, *others = [re.findall(r"[A-Za-z_]\w*", part.split("=")[0]) for part in declaration.split(",")]
        if len(first) > 1 and first[-2] not in ("struct", "union", "enum"):
            names |= {words[-1] for words in (first, *others) if words}
    return names


def system_names():
    """(declared names, macros) of the headers of this machine, and of newer ones."""
    lines = "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in SYSTEM_HEADERS)
    texts = [subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-E", *option, "-x", "c", "-"], input=lines, check=True,
                            capture_output=True, text=True).stdout for option in (("-P",), ("-dM",))]
    macros = set(re.findall(r"^#define ([A-Za-z]\w*)[ (]", texts[1], re.M))
    names = declared(texts[0]) | NEWER_FUNCTIONS
    assert {"wait", "accept", "random", "struct stat", "uint"} <= names and {"ECHO", "MAX_INPUT", "I"} <= macros, "no headers were read"
    return names, macros - names


def taken_names(files, names, macros):
    """Names at file scope that a header of the system may declare, too. main() has one meaning, and tests/preload stands
    in for functions of the C library."""
    wrong = []
    for path, text in files.items():
        if path.startswith("tests/preload/"):
            continue
        found = declared(text)
        wrong += [f"{path}: declares '{name}', a name of C or POSIX" for name in sorted(found & (names | macros) - {"main"})]
    return wrong


@case
def no_file_scope_name_is_one_of_c_or_posix():
    """So that every file compiles behind any of these headers, whichever of them those of libraries include."""
    names, macros = system_names()
    for bad in ("static uint32_t wait(int n)\n{\n    return 1;\n}\n", "static bool\nbind(void *p) { if (p) { f(p); } return 1; }\n",
                "static const char *index = 0, *b;\n", "int a, wait;\n", "typedef struct random {\n    int x;\n} generator, random;\n",
                "typedef struct group {\n    int n;\n} my_group;\n", "typedef void (*signal)(int);\n", "struct a {\n    struct entry {\n        int n;\n    } *e;\n};\n", "TEST(raise)\n{\n}\n",
                "enum { MAX_ROW = 3, ECHO = 4 };\n", "#define send 3\n", "static int I;\n", "enum kind { A, MAX_INPUT };\n", "static int stat[3] = {1, 2};\n",
                "static double rootn(double x) { return x; }\n", "static inline void posix_close(int a) {}\nint b;\n"):
        assert len(taken_names({"a.c": bad}, names, macros)) >= 1, bad
    for good in ("static int f(int wait, struct stat *s)\n{\n    int index = wait;\n    return bind(index, s->time);\n}\n",
                 "typedef struct hth_ops {\n    int (*wait)(int);\n} hth_ops;\n", "/* int wait; */ int a;\n#define X(wait) wait\n",
                 "static const hth_ops ops = {start, wait, .raise = 1};\n", "int main(void) { return 0; }\n", "struct stat;\n",
                 "void f(void)\n{\n    g(\"http://a\");\n    setenv(1);\n}\n",
                 "static struct timespec t;\nextern void f(struct stat *s);\nstatic FILE *out;\n", "static const char *s = \"int wait;\";\n"):
        assert not taken_names({"a.c": good}, names, macros), (good, taken_names({"a.c": good}, names, macros))
    assert_none(taken_names(sources("src", "apps", "include", "tests", "bench", "examples"), names, macros))


@case
def one_function_has_the_texts_of_system_errors():
    """strerror shares a buffer between threads, and strerror_r is two functions: src/base/format_errno.h."""
    callers = [path for path, text in sources("src", "apps").items()
               if re.search(r"\b(?:strerror\w*|perror)\s*\(", without_comments(text))]
    assert callers == ["src/base/format_errno.c"], callers


def vulkan_includes(files):
    """Files that read Vulkan's headers outside its back end, but for the layer of tests below it, and what compiles its
    shaders for GPUs that are not there."""
    knows = "src/device/vulkan/", "tests/device/layer.c", "tests/device/radv_stats.c"
    return [f"{path}: includes <{name}>" for path, text in files.items() if not path.startswith(knows)
            for name in re.findall(r'^\s*#\s*include\s+[<"]((?:vulkan/|vk_)[^>"]+)', text, re.M)]


@case
def one_folder_knows_vulkan():
    assert len(vulkan_includes({"src/forward/a.c": "#include <vulkan/vulkan_core.h>"})) == 1
    assert len(vulkan_includes({"src/device/a.c": ' # include "vulkan/vulkan.h"'})) == 1
    assert not vulkan_includes({"src/device/vulkan/a.h": "#include <vulkan/vulkan_core.h>",
                                "src/device/a.c": '#include "device/vulkan/spirv.h"'})
    assert_none(vulkan_includes(sources("src", "apps", "include", "tests", "bench", "examples")))


def http_includes(files):
    """What the network thread reads of the server, beside its own folder."""
    allowed = {"serve/exchange.h", "serve/reply.h"}
    return [f"{path}: includes {name}" for path, text in files.items() if path.startswith("apps/serve/http/")
            for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M)
            if not name.startswith(("serve/http/", "base/", "common/", "hub/")) and name not in allowed]


@case
def the_network_thread_knows_no_model():
    assert len(http_includes({"apps/serve/http/a.c": '#include "serve/engine.h"\n#include "engine/engine.h"'})) == 2
    assert not http_includes({"apps/serve/http/a.c": '#include "serve/http/server.h"\n#include "serve/exchange.h"',
                              "apps/serve/a.c": '#include "serve/engine.h"'})
    assert_none(http_includes(sources("apps/serve")))


def with_includes(files, path):
    """A program and all that it includes, once each."""
    found, unread = [], [path]
    for path in unread:
        if path in found:
            continue
        found.append(path)
        folder = os.path.dirname(path)
        unread += [os.path.join(folder, name) for name in re.findall(r'^#include "([^"]+)"', files[path], re.M)]
    return found


def stale_spirv(files):
    """SPIR-V of the repository (cmake/coopmat_spirv.cmake) that was compiled from other sources."""
    wrong = []
    for path in files:
        base, words = re.sub(r"\.(comp|spv\.inc)$", "", path), files.get(re.sub(r"\.comp$", ".spv.inc", path))
        if path.endswith(".spv.inc") and base + ".comp" not in files:
            wrong.append(f"{path}: of no shader")
        if not path.endswith((".matrix.comp", ".matrix2.comp")):
            continue
        hashes = sorted(f" * {hashlib.sha256(files[name].encode()).hexdigest()} {os.path.basename(name)}"
                        for name in with_includes(files, path))
        if words is None or sorted(re.findall(r"^ \* [0-9a-f]{64} \S+$", words, re.M)) != hashes:
            wrong.append(f"{path}: it was compiled from other sources; where glslc knows the extensions, a build "
                         "writes them again: cmake -DGLSLC=GLSLC -DPROGRAM=PROGRAM -P cmake/coopmat_spirv.cmake")
    return wrong


@case
def spirv_in_the_repository_belongs_to_its_sources():
    files = {"p/a.matrix.comp": '#include "b.glsl"\n', "p/b.glsl": '#include "c.glsl"\n', "p/c.glsl": "x\n"}
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in files.values()]
    words = "".join(f" * {h} {os.path.basename(name)}\n" for h, name in zip(hashes, files))
    assert not stale_spirv(dict(files, **{"p/a.matrix.spv.inc": words}))
    assert len(stale_spirv(files)) == 1
    assert len(stale_spirv({"p/a.matrix.spv.inc": words})) == 1
    assert len(stale_spirv(dict(files, **{"p/a.matrix.spv.inc": words, "p/c.glsl": "y\n"}))) == 1
    assert len(stale_spirv(dict(files, **{"p/a.matrix.spv.inc": words[:words.rindex(" *")]}))) == 1
    shaders = sources("src/device/vulkan/shaders", suffixes=(".comp", ".glsl", ".spv.inc"))
    assert len(stale_spirv({"p/a.matrix2.comp": "x\n"})) == 1
    assert sum(path.endswith(".spv.inc") for path in shaders) >= 4
    assert_none(stale_spirv(shaders))


# ---- rules for the library ----------------------------------------------------------------

STDIO_OUTPUT = set("""printf fprintf vprintf vfprintf dprintf vdprintf puts fputs putc fputc putchar fwrite
    fwrite_unlocked putc_unlocked putchar_unlocked fputs_unlocked fopen fopen64 freopen fdopen popen perror psignal
    stdout stderr __printf_chk __fprintf_chk __vprintf_chk __vfprintf_chk __dprintf_chk syslog""".split())
# Misuse inside the library is an assertion in debug and sanitizer builds; a release
# library is built with NDEBUG, so that nothing in it can end the process.
ENDINGS = set("exit _exit _Exit quick_exit abort raise kill __assert_fail __assert err errx verr verrx error".split())


def libm_functions():
    names = {name for _, name in symbols("-D", "--defined-only", output_of("gcc", "-print-file-name=libm.so.6").strip())}
    names = {name.split("@")[0] for name in names}
    assert {"exp", "sinf", "fmaf"} <= names, "libm could not be read"
    return names


def libc_functions():
    names = {name for _, name in symbols("-D", "--defined-only", output_of("gcc", "-print-file-name=libc.so.6").strip())}
    assert any(name.startswith("memcpy") for name in names), "libc could not be read"
    return names


def wrong_prefixes(names, prefixes):
    return [f"{name}: begins with none of {', '.join(prefixes)}" for name in names if not name.startswith(prefixes)]


def wrong_calls(names, forbidden):
    return [f"{name}: is called by the library" for name in sorted(set(names)) if name in forbidden]


def wrong_libraries(readelf):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf)
    return [f"{name}: is linked" for name in needed
            if not re.match(r"(libc|libpthread|libpcre2-8|libutf8proc|liburing|ld-linux.*)\.so", name)]


def library_calls(names):
    """Names of neither Hearth nor its compiler nor libc: of other libraries."""
    known = {name.split("@")[0] for name in libc_functions()}
    return {name for name in names if name not in known and not name.startswith(("hth_", "hearth_", "__"))}


def library(name):
    return os.path.join(BUILD, name)


def called():
    return [name.split("@")[0] for kind, name in symbols("-u", library("libhearth.a")) if kind in "Uwv"]


@case
def every_symbol_carries_its_prefix():
    assert len(wrong_prefixes(["hth_base_f", "helper"], ("hearth_", "hth_"))) == 1
    defined = [name for _, name in symbols("-g", "--defined-only", library("libhearth.a"))]
    assert "hearth_model_open" in defined
    assert_none(wrong_prefixes(defined, ("hearth_", "hth_")))


@case
def the_shared_library_exports_the_interface_only():
    exported = [name for _, name in symbols("-D", "--defined-only", library("libhearth.so"))]
    declared = re.findall(r"HEARTH_API[^;]*?\b(hearth_\w+)\s*\(", "".join(sources("include").values()))
    assert len(wrong_prefixes(["hth_alloc"], ("hearth_",))) == 1
    assert_none(wrong_prefixes(exported, ("hearth_",)))
    assert sorted(declared) == sorted(exported), sorted(set(declared) ^ set(exported))


@case
def the_library_uses_no_libm():
    forbidden = libm_functions()
    assert len(wrong_calls(["expf", "memcpy"], forbidden)) == 1
    assert_none(wrong_calls(called(), forbidden))


@case
def the_library_prints_nothing():
    assert len(wrong_calls(["puts", "vsnprintf"], STDIO_OUTPUT)) == 1
    assert_none(wrong_calls(called(), STDIO_OUTPUT))


@case
def the_library_ends_no_process():
    assert len(wrong_calls(["abort", "free"], ENDINGS)) == 1
    assert_none(wrong_calls(called(), ENDINGS))


@case
def the_library_links_libc_pcre2_utf8proc_and_liburing_alone():
    line = " 0x1 (NEEDED)  Shared library: [%s]\n"
    assert len(wrong_libraries(line % "libm.so.6" + line % "libc.so.6")) == 1
    assert_none(wrong_libraries(output_of("readelf", "-d", library("libhearth.so"))))


def vulkan_symbols(names):
    return [f"{name}: is Vulkan's, whose loader is opened at run time" for name in names if re.match("vk[A-Z]", name)]


@case
def the_libraries_need_nothing_of_vulkan():
    assert vulkan_symbols(["vkCreateInstance", "hth_vk_fail", "memcpy"])[0].startswith("vkCreateInstance")
    assert len(vulkan_symbols(["vkCreateInstance", "hth_vk_fail", "memcpy"])) == 1
    assert len(wrong_libraries(" 0x1 (NEEDED)  Shared library: [libvulkan.so.1]\n")) == 1
    for names in (called(), [name for _, name in symbols("-D", "-u", library("libhearth.so"))]):
        assert "memcpy" in {name.split("@")[0] for name in names}, "no symbols were read"
        assert_none(vulkan_symbols(names))


@case
def one_file_each_calls_another_library():
    assert library_calls(["memcpy", "hth_alloc", "jpeg_start"]) == {"jpeg_start"}
    assert_none(wrong_prefixes(sorted(library_calls(called())), ("pcre2_", "utf8proc_", "io_uring_", "_GLOBAL_OFFSET_TABLE_")))
    for prefix, caller in (("pcre2_", "src/text/pretokenizer_pcre2.c"), ("utf8proc_", "src/text/unicode_utf8proc.c"),
                           ("io_uring_", "src/store/disk_uring.c")):
        callers = [path for path, text in sources("src").items() if re.search(r"\b%s\w*\s*\(" % prefix, without_comments(text))]
        assert callers == [caller], callers


def braces(name):
    """All names that a_{b,c}_d stands for."""
    list_ = re.search(r"\{([^{}]*)\}", name)
    if not list_:
        return [name]
    return [full for word in list_[1].split(",") for full in braces(name[:list_.start()] + word + name[list_.end():])]


def missing_cases(document, tests):
    """Names of tests in a document that no test has. Names of keys in it have dots, or are known."""
    written = re.findall(r"`([a-z{][a-z0-9_{},]*_[a-z0-9_{},]+)`", document)
    named = {name for word in written for name in braces(word)} - {"precompiled_charsmap"}
    return sorted(named - set(re.findall(r"^(?:TEST\w*\(|def )(\w+)\(?\)", tests, re.M)))


@case
def the_table_of_faults_names_tests_that_exist():
    assert missing_cases("`gguf_a` `gguf_b` `gguf_c`", "TEST(gguf_a)\ndef gguf_c():\n") == ["gguf_b"]
    assert missing_cases("`a_{b,c}_{d,e}` `{f,g}_h`", "TEST(a_b_d)\nTEST(a_b_e)\nTEST(a_c_e)\nTEST(f_h)\n") == ["a_c_d", "g_h"]
    with open(os.path.join(SOURCE, "docs", "reliability.md"), encoding="utf-8") as f:
        document = f.read()
    for row in [f"{letter}{n}" for letter, last in zip("ABCDEFGHI", (10, 11, 31, 22, 5, 16, 8, 10, 6)) for n in range(1, last + 1)]:
        assert re.search(r"^\| [^|]*\b%s\b" % row, document, re.M), f"docs/reliability.md has no row {row}"
    assert_none(missing_cases(document, "\n".join(sources("tests", suffixes=(".c", ".py")).values())))


# ---- laws over the pages -------------------------------------------------------------------

def tree():
    """All files of the sources, as paths below SOURCE; what is built is none of them."""
    return {os.path.relpath(os.path.join(parent, name), SOURCE) for top in
            "src apps include tests bench bindings deploy docs cmake examples models".split()
            for parent, _, names in os.walk(os.path.join(SOURCE, top)) for name in names if "__pycache__" not in parent}


def pages():
    """{path: text} of what is written for people; the changelog names what is gone."""
    found = dict(sources("docs", suffixes=(".md",)))
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bindings/python/README.md"):
        with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
            found[name] = f.read()
    return found


def unknown_names(files, paths, words):
    """Paths, names of files and identifiers in pages that the sources lack. NAME, LEVEL and the like stand for others."""
    wrong, folders = [], {path[:n.start()] for path in paths for n in re.finditer("/", path)}
    listing = "\n".join("/" + path for path in paths | folders)
    for page, text in files.items():
        named = re.findall(r"(?<![\w/.-])(?:src|apps|include|tests|bench|bindings|deploy|docs|cmake|examples|models)/[\w./*-]*[\w*]", text)
        named += re.findall(r"`([\w./*-]+\.(?:c|h|py|sh|comp|glsl|def|sim))`", text)
        named += ["tests/%s/test_%s.c" % name for name in re.findall(r"build/tests/test_([a-z]+)_(\w+)", text)]
        for name in named:
            pattern = re.sub(r"(?<![A-Z])[A-Z]{4,}(?![A-Z])", "*", name)
            if not re.search("/" + re.escape(pattern).replace(r"\*", "[^/\n]*") + "$", listing, re.M):
                wrong.append(f"{page}: there is no {name}")
        for name in set(re.findall(r"\b(?:hth|HTH|hearth|HEARTH)_\w+", text)):
            if name not in words and not (name.endswith("_") and any(word.startswith(name) for word in words)):
                wrong.append(f"{page}: nothing is called {name}")
    return wrong


@case
def pages_name_what_exists():
    paths, words = {"src/base/a.c", "tests/base/test_b.c"}, {"hth_a", "HTH_B_C"}
    assert not unknown_names({"a.md": "`src/base/*.c` `a.c` src/base hth_a `HTH_B_*` build/tests/test_base_b "
                              "tests/FOLDER/test_NAME.c"}, paths, words)
    assert len(unknown_names({"a.md": "src/base/b.c `b.c` hth_b HTH_C_* build/tests/test_base_a"}, paths, words)) == 5
    texts = sources("src", "apps", "include", "tests", "bench", "bindings", "deploy", "cmake",
                    suffixes=(".c", ".h", ".def", ".comp", ".glsl", ".py", ".cmake", ".txt", ".sh", ".service"))
    assert_none(unknown_names(pages(), tree(), {word for text in texts.values() for word in re.findall(r"\w+", text)}))


def wrong_beginnings(files):
    """After its title a page has the question that it answers."""
    return [f"{page}: begins with no question" for page, text in files.items()
            if not re.match(r"# .+\n\n[^\n]+(?:\n[^\n]+)*\?\n\n", text)]


@case
def pages_begin_with_the_question_that_they_answer():
    assert len(wrong_beginnings({"a.md": "# A\n\nAll is well.\n\nIs it?\n"})) == 1
    assert not wrong_beginnings({"a.md": "# A\n\nHow do I\nbegin?\n\nSo.\n"})
    assert_none(wrong_beginnings(pages()))


def sentences(page):
    """The sentences of a page, without tables, headings and blocks of code. Code in a line counts as one word."""
    text = re.sub(r"^ *```.*?^ *```|^ *\|[^\n]*|^#[^\n]*", "\n", page, flags=re.S | re.M)
    for part in re.split(r"\n(?: *\n)+(?:    [^\n]*\n*)*|^ *(?:[-*>]|\d+\.) ", text, flags=re.M):
        part = re.sub("`[^`]+`", "code", re.sub(r"<!--.*?-->|\]\([^)]*\)", "", part, flags=re.S))
        yield from re.split(r"[.?!][\"')*\]]*\s", part)


def long_sentences(files):
    return [f"{page}: {len(words)} words: {' '.join(words)[:100]}" for page, text in files.items() for s in sentences(text)
            if len(words := re.findall(r"\S*\w\S*", s)) > 35]


@case
def no_sentence_of_a_page_has_more_than_35_words():
    words = "a " * 35
    for bad in (f"{words}b.", f"A.\n\n- {words}\n  `b`.\n- A.", f"A `b.\n\n{words}`b. c`."):
        assert len(long_sentences({"a.md": bad})) == 1, bad
    assert not long_sentences({"a.md": f"# {words}b\n\n{words}.\n{words[2:]}: `b c`.\n\n| {words}b |\n"})
    assert not long_sentences({"a.md": f"A:\n\n```\n{words}b\n```\n\n    {words}b\n\n    {words}b\n\nA.\n- {words[2:]}[b](c d)."})
    assert_none(long_sentences(pages()))


def crowded_map(text):
    """What keeps a reader from finding a file in docs/architecture.md: a long page, and cells with many files."""
    cells = [cell for line in text.split("\n") if line.startswith("|") for cell in line.split("|")]
    n_line = text.count("\n")
    return [f"{n_line} lines; 120 are the limit"] * (n_line > 120) + \
        [f"more than three files:{cell}" for cell in cells if len(re.findall(r"`[\w./*]+\.(?:[ch]|py|def|cmake|glsl|sh|md)\b", cell)) > 3]


def stale_faults(faults):
    """Seeded faults whose text is not in their file once, or whose case is not in their test."""
    found = []
    for fault in faults:
        with open(os.path.join(SOURCE, fault.file), encoding="utf-8") as f:
            n = f.read().count(fault.old)
        folder, name = fault.test.split("/")
        with open(os.path.join(SOURCE, "tests", folder, f"test_{name}.c"), encoding="utf-8") as f:
            has_case = re.search(rf"\({fault.case}\)", f.read())
        if n != 1 or not has_case:
            found.append(f"{fault.name}: its text is {n} times in {fault.file}" if n != 1 else f"{fault.name}: no case {fault.case}")
    return found


@case
def seeded_faults_have_their_text_and_their_case():
    good = FAULTS[0]
    assert len(stale_faults([good._replace(old="no such text"), good._replace(case="no_such_case")])) == 2
    assert_none(stale_faults(FAULTS))


@case
def the_map_of_the_code_is_short():
    assert len(crowded_map("| `a.c`, `b.h`, `c.py`, `d.md` | `e.c` |\n")) == 1 and len(crowded_map("\n" * 121)) == 1
    assert not crowded_map("| `a.c`, `b.h`, `hth_c`, `c.py` | `e.c` |" + "\n" * 120)
    assert_none(crowded_map(pages()["docs/architecture.md"]))


@case
def the_speed_plot_is_of_the_figures_in_performance_tables_md():
    program = os.path.join(SOURCE, "bench", "plot_speed.py")
    with tempfile.TemporaryDirectory() as folder:
        drawn = os.path.join(folder, "speed.svg")
        table = output_of(sys.executable, program, os.path.join(SOURCE, "docs", "performance-tables.md"), drawn)
        assert table.count("\n") > 4 and table in pages()["README.md"], "README.md has another table:\n" + table
        with open(drawn, encoding="utf-8") as new, open(os.path.join(SOURCE, "docs", "speed.svg"), encoding="utf-8") as old:
            assert new.read() == old.read(), "draw it again: bench/plot_speed.py docs/performance-tables.md docs/speed.svg"


# A row of docs/performance-tables.md has an id in its first cell. Elsewhere a marker stands directly behind a figure of that row,
# or in the first cell of a row whose other cells are all of it.
ROW_ID = re.compile(r"<!-- row: ([\w.-]+) -->")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SPEED = re.compile(r"[\d.]+(?: \([\w` ]+\))? (?:times|x as|tokens/s|tokens a second|[MG]B/s|[mµ]s a|% (?:faster|slower))")


def measured_rows(document):
    """{id: the figures of its cells}, and the ids that occur twice."""
    rows, twice = {}, []
    for first, row_id, cells in re.findall(r"^\|([^|\n]*)" + ROW_ID.pattern + r" \|(.*)\|$", document, re.M):
        twice += [row_id] if row_id in rows else []
        rows[row_id] = [float(n) for n in NUMBER.findall(cells)]
    return rows, twice


def wrong_figures(files, rows):
    """Marked figures that their row lacks; a figure with fewer digits is a rounded one."""
    wrong = []
    for page, text in files.items():
        for line in text.split("\n"):
            whole = re.match(r"\|[^|]*(?<!\d)" + ROW_ID.pattern + r" \|(.*)", line)
            found = [(n, whole[1]) for n in NUMBER.findall(whole[2])] if whole else []
            found += re.findall("(" + NUMBER.pattern + ")" + ROW_ID.pattern, line)
            if line.count("<!-- row") != (1 if whole else len(found)):
                wrong.append(f"{page}: a marker is behind no figure: {line}")
            for figure, row_id in found:
                step = 10.0 ** -len(figure.partition(".")[2])
                if row_id not in rows:
                    wrong.append(f"{page}: docs/performance-tables.md has no row {row_id}")
                elif all(abs(n - float(figure)) > step / 2 + 1e-9 for n in rows[row_id]):
                    wrong.append(f"{page}: {figure} is not in row {row_id} of docs/performance-tables.md")
    return wrong


def unmarked_speeds(text):
    """Figures of speed without a marker: in sentences, and in tables whose head has tokens/s."""
    wrong, head = [], ""
    for line in re.sub(r"```.*?```", "", text, flags=re.S).split("\n"):
        head = (head or line) if line.startswith("|") else ""
        is_of_speed = "tokens/s" in head
        is_row = is_of_speed and re.search(r"\| *\d", line)
        wrong += [f"{line}: no marker"] if SPEED.search(line) or is_row and not ROW_ID.search(line) else []
    return wrong


@case
def measured_figures_are_those_of_their_row():
    rows, twice = measured_rows("| a 7B <!-- row: a --> | 1.62 (1.50-1.70), 9 % | 40.0 |\n| b | 5 |\n| c <!-- row: a --> | 7 |\n")
    assert rows == {"a": [7.0]} and twice == ["a"]
    rows = {"a": [1.62, 40.0]}
    good = "1.62<!-- row: a --> or 1.6<!-- row: a --> times\n| 7B <!-- row: a --> | 40.0 | 1.62 |\n| 7B | 40<!-- row: a --> | 9 |"
    assert not wrong_figures({"a.md": good}, rows)
    for bad in ("1.7<!-- row: a -->", "1.63<!-- row: a -->", "1.62<!-- row: b -->", "7B<!-- row: a -->", "1.62 times <!-- row: a -->",
                "1.62<!-- row: a", "| 7B <!-- row: a --> | 40.0 | 1.64 |", "| 7B | 1.62<!-- row: a --> | 41<!-- row: a --> |"):
        assert len(wrong_figures({"a.md": bad}, rows)) == 1, bad
    marked = "1.6<!-- row: a --> times\n| tokens/s | x |\n|---|---|\n| 7B <!-- row: a --> | 40 |\n\n| 7B | 40 |\n```\n5 tokens/s\n```"
    assert not unmarked_speeds(marked), unmarked_speeds(marked)
    assert len(unmarked_speeds(marked + "\n2.1 times as fast, 3 GB/s\n12 tokens/s\n1.6 (exact) times")) == 3
    assert len(unmarked_speeds("| tokens/s | x |\n|---|---|\n| 7B | 40 |")) == 1
    found = pages()
    rows, twice = measured_rows(found.pop("docs/performance-tables.md"))
    assert len(rows) > 20 and not twice, twice
    unused = set(rows) - set(ROW_ID.findall("".join(found.values())))
    assert_none(wrong_figures(found, rows) + unmarked_speeds(found["README.md"]) + [f"no page names row {i}" for i in sorted(unused)])


def assert_none(violations):
    assert not violations, "\n  " + "\n  ".join(violations)


if __name__ == "__main__":
    run_cases(__file__)
