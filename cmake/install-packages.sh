#!/bin/sh
# Installs the Debian packages that are missing for a task, and says which and why.
#
#     cmake/install-packages.sh build|test|test-ci|test-levels|test-long|test-peers
#
# What is needed is looked for by itself (a command, a header), not by package, so
# that tools from elsewhere count. Without apt it names what is missing and exits 1.
set -eu

missing=
has() { command -v "$1" >/dev/null 2>&1; }
has_header() { echo "#include <$1>" | gcc -E - >/dev/null 2>&1; }
has_layer() { ls "/usr/share/vulkan/$1"* >/dev/null 2>&1; }
has_module() { has pkg-config && pkg-config --exists "$1"; }
# Of the build's Python: the first one that has it (tests/CMakeLists.txt).
has_numpy() { python3 -c 'import numpy' 2>/dev/null || /usr/bin/python3 -c 'import numpy' 2>/dev/null; }
has_for_pytest() { python3 -c 'import pytest, filelock, requests' 2>/dev/null || /usr/bin/python3 -c "import $1" 2>/dev/null; }
has_fuzzer() { test -e "$(clang -print-runtime-dir 2>/dev/null)/libclang_rt.fuzzer-$(uname -m).a"; }

# need PACKAGE REASON TEST...: notes the package unless the test succeeds.
need() {
    package=$1 reason=$2
    shift 2
    if ! "$@"; then
        missing="$missing $package"
        echo "missing: $package ($reason)" >&2
    fi
}

need_for_build() {
    need gcc "the compiler" has gcc
    need libc6-dev "headers of the C library" has_header stdio.h
    need cmake "configures the build" has cmake
    need ninja-build "runs the build" has ninja
    need pkg-config "finds PCRE2 and utf8proc" has pkg-config
    need libxxhash-dev "hashing" has_header xxhash.h
    need libpcre2-dev "cuts text for byte-level tokenizers" has_module libpcre2-8
    need libutf8proc-dev "knows characters for WordPiece tokenizers" has_module libutf8proc
    need liburing-dev "reads storage by io_uring" has_header liburing.h
    need libedit-dev "line editing in chat" has_module libedit
    need libcurl4-openssl-dev "hearth pull brings models" has_module libcurl
    need libjansson-dev "reads JSON schemas, and what hubs and Ollama say of models" has_module jansson
    need libuv1-dev "the event loop of hearth serve" has_module libuv
    need libhttp-parser-dev "reads requests to hearth serve" has_header http_parser.h
    need libvulkan-dev "headers of Vulkan" has_header vulkan/vulkan_core.h
    need glslc "compiles the programs of GPUs" has glslc
}

need_for_test() {
    need_for_build
    need python3 "the lint and the report" has python3
    need python3-numpy "makes models and computes what they must give" has_numpy
    need dpkg-dev "makes Debian packages" has dpkg-shlibdeps
    need binutils "the lint of symbols" has nm
    need strace "shows that the token loop makes no system calls" has strace
    need groff-base "reads the manual page as a check" has groff
    need zsh "completes commands as a check" has zsh
    need fish "completes commands as a check" has fish
    need mesa-vulkan-drivers "a Vulkan device on the CPU" has_layer icd.d/lvp_icd
    need vulkan-validationlayers "watches the use of Vulkan" has_layer explicit_layer.d/VkLayer_khronos_validation
}

need_for_test_ci() {
    need_for_test
    need clang "the second compiler, and the fuzz targets" has clang
}

need_for_test_levels() {
    need_for_test
    need qemu-user "runs tests on other CPUs" has qemu-x86_64
}

need_for_test_long() {
    need_for_test_ci
    need libclang-rt-14-dev "sanitizers and fuzzer of clang" has_fuzzer
    need gcc-aarch64-linux-gnu "cross build for Arm" has aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross "the C library for Arm" test -e /usr/aarch64-linux-gnu/include/stdio.h
    need qemu-user "runs the Arm build" has qemu-aarch64
    need chromium "uses the page of hearth serve" has chromium
    need prometheus "checks metrics and rules" has promtool
}

need_for_test_peers() {
    need_for_build
    need python3 "runs the comparison" has python3
    need python3-numpy "reads and writes models" has_numpy
    need npm "fetches the package that holds llama.cpp, and clients of the server" has npm
    need nodejs "runs clients of the server" has node
    need python3-pytest "runs llama.cpp's tests of its server" has_for_pytest pytest
    need python3-filelock "of the same tests" has_for_pytest filelock
    need python3-requests "of the same tests" has_for_pytest requests
    need git "unpacks its sources" has git
    need g++ "compiles it" has g++
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
test -n "$missing" || exit 0

if ! has apt-get; then
    echo "There is no apt here: install what is missing (Debian's names above), then try again." >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! has sudo; then
        echo "Only root can install packages, and there is no sudo. As root: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "installing:$missing" >&2
$as_root apt-get update -q
# The names are words of this script: splitting them is what is wanted.
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
