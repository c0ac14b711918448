#!/bin/sh
# Builds and runs the tests behind `make test` (short) and `make test-long` (long),
# goes on after failures, and ends with the summary of report.py, which decides the
# exit status. Each configuration leaves cases.tsv, ctest.xml and logs in its folder.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-2}
folders=

note() { printf '\n== %s\n' "$*"; }

# build PRESET FOLDER [TARGET]: false, and a failed case, when it does not build.
build() {
    note "building $1"
    mkdir -p "$2"
    folders="$folders $2"
    rm -f "$2/cases.tsv" "$2/ctest.xml"
    if cmake --preset "$1" --log-level=WARNING >"$2/configure.log" 2>&1 &&
        cmake --build "$2" -j "$jobs" ${3:+--target "$3"} >"$2/build.log" 2>&1; then
        return 0
    fi
    tail -n 40 "$2/configure.log" "$2/build.log"
    printf 'FAIL\tsuite.sh\t%s builds\tsee %s/build.log\n' "$1" "$2" >>"$2/cases.tsv"
    return 1
}

# run FOLDER [CTEST-OPTION...]
run() {
    folder=$1
    shift
    note "testing $folder"
    HEARTH_TEST_REPORT=$PWD/$folder/cases.tsv ctest --test-dir "$folder" -j "$jobs" --output-on-failure \
        --output-junit "$PWD/$folder/ctest.xml" "$@"
}

# fuzz TARGET: new inputs for a minute, from tests/fuzz/NAMEs where that folder exists; a
# crash is a failed case.
fuzz() {
    name=$(basename "$1")
    seeds=tests/fuzz/${name#fuzz_}s
    corpus=build/fuzz/corpus-$name
    note "fuzzing $name"
    mkdir -p "$corpus"
    test -d "$seeds" || seeds=
    if "$1" "$corpus" ${seeds:+"$seeds"} -max_total_time=60 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix=build/fuzz/ >"build/fuzz/$name.log" 2>&1; then
        verdict=ok
    else
        verdict=FAIL
        tail -n 40 "build/fuzz/$name.log"
    fi
    printf '%s\tsuite.sh\t%s for a minute\tbuild/fuzz/%s.log\n' "$verdict" "$name" "$name" >>build/fuzz/cases.tsv
}

case ${1-} in
short)
    build release build && run build
    build asan build/asan && run build/asan -LE long
    ;;
long)
    export HEARTH_LONG=1
    build release build && run build
    for preset in asan ubsan tsan clang; do
        build $preset build/$preset && run build/$preset
    done
    build aarch64 build/aarch64 && run build/aarch64 -R '^(base|kernels|golden|engine)/'
    if build fuzz build/fuzz; then
        for target in build/fuzz/tests/fuzz_*; do
            if [ -x "$target" ]; then fuzz "$target"; fi
        done
    fi
    ;;
*)
    echo "usage: $0 short|long" >&2
    exit 2
    ;;
esac

note "result"
# The names are folders of this script: splitting them is what is wanted.
# shellcheck disable=SC2086
python3 tests/report.py $folders
