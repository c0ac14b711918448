#!/bin/sh
# Installs the packages that are missing for a task where there is apt, and says which and why before.
#
#     cmake/install-packages.sh build|test|test-ci|test-levels|test-long|test-peers
#
# What is needed is looked for by itself (a command, a header), not by package, so that tools from elsewhere count.
# On a terminal it waits five seconds for Ctrl-C. With HEARTH_INSTALL=no, without apt, and without root and sudo it
# names the command that installs the packages of this system. It ends with 1 only if something is missing without
# which nothing is built or tested; else it says what is built without.
set -eu

# One row a package: what `need` calls it, the part of Hearth that is left out without it (none: it is required), why,
# and its names for apt, dnf, pacman, zypper and apk. A/B: A, or B where the distribution has no A. -: as for apt.
packages='
gcc||the compiler|gcc|gcc|gcc|gcc|gcc
libc||headers of the C library|libc6-dev|glibc-devel|glibc|glibc-devel|musl-dev
cmake||configures the build|cmake|cmake|cmake|cmake|cmake
ninja||runs the build|ninja-build|ninja-build|ninja|ninja|samurai
pkgconfig||finds libraries|pkg-config|pkgconf-pkg-config|pkgconf|pkg-config|pkgconf
xxhash||hashing|libxxhash-dev|xxhash-devel|xxhash|xxhash-devel|xxhash-dev
pcre2||cuts text for byte-level tokenizers|libpcre2-dev|pcre2-devel|pcre2|pcre2-devel|pcre2-dev
utf8proc|WordPiece tokenizers|knows characters|libutf8proc-dev|utf8proc-devel|libutf8proc|utf8proc-devel|utf8proc-dev
liburing|reads by io_uring|reads storage|liburing-dev|liburing-devel|liburing|liburing-devel|liburing-dev
libedit|line editing in chat|edits lines|libedit-dev|libedit-devel|libedit|libedit-devel|libedit-dev
curl|hearth pull|brings models|libcurl4-openssl-dev|libcurl-devel|curl|libcurl-devel|curl-dev
libuv|hearth serve|the event loop|libuv1-dev|libuv-devel|libuv|libuv-devel|libuv-dev
http|hearth serve|reads requests|libllhttp-dev/libhttp-parser-dev|llhttp-devel|llhttp|llhttp-devel|llhttp-dev
vulkan|GPUs|headers of Vulkan|libvulkan-dev|vulkan-headers|vulkan-headers|vulkan-headers|vulkan-headers
glslc|GPUs|compiles the programs of GPUs|glslc|glslc|shaderc|shaderc|shaderc
python||the lint and the report|python3|python3|python|python3|python3
numpy||makes models and computes what they must give|python3-numpy|python3-numpy|python-numpy|python3-numpy|py3-numpy
binutils||the lint of symbols|binutils|binutils|binutils|binutils|binutils
strace||shows that the token loop makes no system calls|strace|strace|strace|strace|strace
groff||reads the manual page as a check|groff-base|groff-base|groff|groff|groff
dpkg|tests of Debian packages|makes them|dpkg-dev|dpkg-dev|dpkg|dpkg|dpkg-dev
file|tests of Debian packages|tells CPack what a program is|file|file|file|file|file
zsh|tests of completions|completes commands|zsh|zsh|zsh|zsh|zsh
fish|tests of completions|completes commands|fish|fish|fish|fish|fish
venv|tests of pip|installs the package for Python|python3-venv|python3|python|python3|python3
mypy|tests of the types for Python|checks them|mypy|python3-mypy|mypy|python3-mypy|py3-mypy
lavapipe|tests of GPUs on this machine|a Vulkan device on the CPU|mesa-vulkan-drivers|mesa-vulkan-drivers|vulkan-swrast|libvulkan_lvp|mesa-vulkan-swrast
layers|checks of calls of Vulkan|the validation layer|vulkan-validationlayers|vulkan-validation-layers|vulkan-validation-layers|vulkan-validationlayers|vulkan-validation-layers
clang||the second compiler, and the fuzz targets|clang|clang|clang|clang|clang
qemu||runs tests on other CPUs|qemu-user|qemu-user|qemu-user|qemu-linux-user|qemu-x86_64
fuzzer||sanitizers and fuzzer of clang|libclang-rt-dev/libclang-rt-14-dev|compiler-rt|compiler-rt|clang|compiler-rt
arm||cross build for Arm|gcc-aarch64-linux-gnu|gcc-aarch64-linux-gnu|aarch64-linux-gnu-gcc|cross-aarch64-gcc14|-
armlibc||the C library for Arm|libc6-dev-arm64-cross|-|aarch64-linux-gnu-glibc|-|-
chromium||uses the page of hearth serve|chromium|chromium|chromium|chromium|chromium
prometheus||checks metrics and rules|prometheus|-|prometheus|-|prometheus
npm||fetches the package that holds llama.cpp, and clients of the server|npm|npm|npm|npm|npm
node||runs clients of the server|nodejs|nodejs|nodejs|nodejs|nodejs
pytest||runs the tests that llama.cpp has of its server|python3-pytest|python3-pytest|python-pytest|python3-pytest|py3-pytest
filelock||of the same tests|python3-filelock|python3-filelock|python-filelock|python3-filelock|py3-filelock
requests||of the same tests|python3-requests|python3-requests|python-requests|python3-requests|py3-requests
git||unpacks sources|git|git|git|git|git
cxx||compiles llama.cpp|g++|gcc-c++|gcc|gcc-c++|g++
'

has() { command -v "$1" >/dev/null 2>&1; }
has_header() { echo "#include <$1>" | gcc -E - >/dev/null 2>&1; }
has_layer() { ls "/usr/share/vulkan/$1"* >/dev/null 2>&1; }
has_module() { has pkg-config && pkg-config --exists "$1"; }
has_http_parser() { has_module libllhttp || has_header http_parser.h; }
# Of the build's Python: the first one that has it (tests/CMakeLists.txt).
has_numpy() { python3 -c 'import numpy' 2>/dev/null || /usr/bin/python3 -c 'import numpy' 2>/dev/null; }
has_for_pytest() { python3 -c 'import pytest, filelock, requests' 2>/dev/null || /usr/bin/python3 -c "import $1" 2>/dev/null; }
has_fuzzer() { test -e "$(clang -print-runtime-dir 2>/dev/null)/libclang_rt.fuzzer-$(uname -m).a"; }

manager=none
for m in apt-get dnf pacman zypper apk; do
    has $m && manager=$m && break
done

# Sets part, reason and name, of this system's packages, from the row of a key.
find_package() {
    while IFS='|' read -r key part reason apt dnf pacman zypper apk; do
        test "$key" != "$1" || break
    done <<EOF
$packages
EOF
    case $manager in
    dnf) name=$dnf ;;
    pacman) name=$pacman ;;
    zypper) name=$zypper ;;
    apk) name=$apk ;;
    *) name=$apt ;;
    esac
    test "$name" != - || name=$apt
}

missing= # keys
# need KEY TEST...: notes the package unless the test succeeds.
need() {
    wanted=$1
    shift
    if ! "$@"; then
        missing="$missing $wanted"
        find_package "$wanted"
        echo "missing: $(with_or "$name") ($reason${part:+, for $part})" >&2
    fi
}

# "A or B" of A/B
with_or() {
    case $1 in
    */*) echo "${1%%/*} or ${1#*/}" ;;
    *) echo "$1" ;;
    esac
}

need_for_build() {
    need gcc has gcc
    need libc has_header stdio.h
    need cmake has cmake
    need ninja has ninja
    need pkgconfig has pkg-config
    need xxhash has_header xxhash.h
    need pcre2 has_module libpcre2-8
    need utf8proc has_module libutf8proc
    need liburing has_header liburing.h
    need libedit has_module libedit
    need curl has_module libcurl
    need libuv has_module libuv
    need http has_http_parser
    need vulkan has_header vulkan/vulkan_core.h
    need glslc has glslc
}

need_for_test() {
    need_for_build
    need python has python3
    need numpy has_numpy
    need binutils has nm
    need strace has strace
    need groff has groff
    need dpkg has dpkg-shlibdeps
    need file has file
    need zsh has zsh
    need fish has fish
    need venv python3 -c 'import ensurepip'
    need mypy has mypy
    need lavapipe has_layer icd.d/lvp_icd
    need layers has_layer explicit_layer.d/VkLayer_khronos_validation
}

need_for_test_ci() {
    need_for_test
    need clang has clang
    need fuzzer has_fuzzer
}

need_for_test_levels() {
    need_for_test
    need qemu has qemu-x86_64
}

need_for_test_long() {
    need_for_test_ci
    need arm has aarch64-linux-gnu-gcc
    need armlibc test -e /usr/aarch64-linux-gnu/include/stdio.h
    need qemu has qemu-aarch64
    need chromium has chromium
    need prometheus has promtool
}

need_for_test_peers() {
    need_for_build
    need python has python3
    need numpy has_numpy
    need npm has npm
    need node has node
    need pytest has_for_pytest pytest
    need filelock has_for_pytest filelock
    need requests has_for_pytest requests
    need git has git
    need cxx has g++
}

case ${1-} in
build) need_for_build ;;
test) need_for_test ;;
test-ci) need_for_test_ci ;;
test-levels) need_for_test_levels ;;
test-long) need_for_test_long ;;
test-peers) need_for_test_peers ;;
*)
    echo "usage: $0 build|test|test-ci|test-levels|test-long|test-peers" >&2
    exit 2
    ;;
esac

# Ubuntu 22.04 has 3.22, and no package brings another one.
version=$(has cmake && cmake --version 2>/dev/null) || version=
case $version in
"cmake version 3."[0-9].* | "cmake version 3.1"[0-9].* | "cmake version 3.2"[0-4].* | "cmake version 2."*)
    version=${version#cmake version }
    echo "cmake 3.25 is needed, and this is ${version%%[!0-9.]*}: take a newer one, as from pip install cmake" >&2
    exit 1
    ;;
esac
test -n "$missing" || exit 0

# Says what the build goes without, or ends with a status if something in $missing is required.
go_without() {
    required=
    for k in $missing; do
        find_package "$k"
        test -n "$part" || required="$required $(with_or "$name")"
    done
    test -z "$required" || exit "$1"
    for k in $missing; do
        find_package "$k"
        echo "built without $part: $(with_or "$name") is missing" >&2
    done
    exit 0
}

# Nothing is installed, for a reason: says how to do it.
name_command() {
    names=
    for k in $missing; do
        find_package "$k"
        names="$names ${name%%/*}"
    done
    case $manager in
    none) echo "$1: install what is missing (Debian's names above), then try again." >&2 ;;
    pacman) echo "$1. As root: pacman -S$names" >&2 ;;
    apk) echo "$1. As root: apk add$names" >&2 ;;
    *) echo "$1. As root: $manager install$names" >&2 ;;
    esac
    go_without 1
}

as_root=
test "$(id -u)" = 0 || as_root=sudo
test "${HEARTH_INSTALL-}" != no || name_command "HEARTH_INSTALL=no: nothing is installed"
test "$manager" = apt-get || name_command "There is no apt here"
test -z "$as_root" || has sudo || name_command "Only root can install packages, and there is no sudo"

names=
for k in $missing; do
    find_package "$k"
    names="$names $name"
done
echo "to be installed by apt-get:$names" >&2
if test -t 0 && test -t 2; then
    echo "In five seconds; Ctrl-C ends this, and HEARTH_INSTALL=no builds with what is there." >&2
    sleep 5
fi

# The first of A/B that the distribution has; nothing: none.
known_name() {
    for n in ${1%%/*} ${1#*/}; do
        if ! has apt-cache || apt-cache show "$n" >/dev/null 2>&1; then
            echo "$n"
            return
        fi
    done
}

$as_root apt-get update -q || go_without $?
names=
unknown=
for k in $missing; do
    find_package "$k"
    n=$(known_name "$name")
    if test -n "$n"; then
        names="$names $n"
    else
        unknown="$unknown $k"
        echo "this distribution has no $(with_or "$name")" >&2
    fi
done
# The names are words of this script: splitting them is what is wanted.
# shellcheck disable=SC2086
test -z "$names" ||
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $names || go_without $?
test -z "$unknown" || {
    missing=$unknown
    go_without 1
}
