#!/bin/sh
# Builds and runs the tests behind `make test` (short; ci: under sanitizers too, and parsed by Clang), `make test-levels`
# (levels), `make test-long` (long; sweep: a part of it), `make test-peers` (peers), `make fuzz`, removal (that no test
# passes without its data) and seeded (that the short tests find faults), goes on after failures, and ends with the
# summary of report.py, which decides the exit status. Each configuration leaves cases.tsv, ctest.xml and logs in its
# folder.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-2}
tests=$((jobs + 1)) # at once: a test waits for devices and clocks an eighth of its time
folders=

note() { printf '\n== %s\n' "$*"; }

# What ninja has done, a line for 50 steps.
steps() {
    awk -F '[][/]' '/^\[[0-9]+\/[0-9]+\]/ && $2 >= due { printf "   %d of %d steps\n", $2, $3; fflush(); due = $2 + 50 }'
}

# build PRESET FOLDER [TARGET]: false, and a failed case, when it does not build. $kernels: a folder whose kernels are
# linked, or empty.
kernels=
build() {
    note "building $1"
    mkdir -p "$2"
    folders="$folders $2"
    rm -f "$2/cases.tsv" "$2/ctest.xml"
    echo 1 >"$2/build.status"
    : >"$2/build.log"
    if cmake --preset "$1" -DHEARTH_KERNELS_FROM="$kernels" --log-level=WARNING >"$2/configure.log" 2>&1; then
        {
            cmake --build "$2" -j "$jobs" ${3:+--target "$3"} 2>&1
            echo $? >"$2/build.status"
        } | tee "$2/build.log" | steps
    fi
    if [ "$(cat "$2/build.status")" = 0 ]; then return 0; fi
    tail -n 40 "$2/configure.log" "$2/build.log"
    printf 'FAIL\tsuite.sh\t%s builds\tsee %s/build.log\n' "$1" "$2" >>"$2/cases.tsv"
    return 1
}

# parse COMPILER: what it says of every file of the release build.
parse() {
    note "parsing by $1"
    mkdir -p "build/$1"
    folders="$folders build/$1"
    verdict=FAIL
    if python3 tests/parse.py build "$1" "$jobs"; then verdict=ok; fi
    printf '%s\tsuite.sh\t%s parses all without a warning\t\n' $verdict "$1" >"build/$1/cases.tsv"
}

# run FOLDER [CTEST-OPTION...]
run() {
    folder=$1
    shift
    note "testing $folder"
    HEARTH_TEST_REPORT=$PWD/$folder/cases.tsv ctest --test-dir "$folder" -j "$tests" --output-on-failure \
        --output-junit "$PWD/$folder/ctest.xml" "$@"
}

# level LEVEL [CTEST-OPTION...]: all tests again by the kernels of a level.
level() {
    level=$1
    shift
    mkdir -p build/levels/"$level"
    rm -f build/levels/"$level"/cases.tsv
    folders="$folders build/levels/$level"
    note "testing build, HEARTH_CPU=$level"
    HEARTH_CPU=$level HEARTH_TEST_REPORT=$PWD/build/levels/$level/cases.tsv ctest --test-dir build -j "$tests" \
        --output-on-failure --output-junit "$PWD/build/levels/$level/ctest.xml" "$@"
}
# What plain C would take many minutes for, and other tests show of it: whole texts, drivers on the CPU.
slow_without_vectors='^(golden/(gpu|perplexity|hybrid)|engine/shrinking|install/|lint/|reference/again)'

# emulated CPU: the programs of tests on a CPU that qemu-user describes (Haswell: AVX2 at most; Nehalem: no AVX), and
# the program itself. Left out is what cannot be there (drivers, which compile for the CPU that they find; signals of
# a mapped file; several processes), what measures time, and what would take an emulator over ten minutes.
emulated() {
    mkdir -p build/levels/"$1"
    rm -f build/levels/"$1"/cases.tsv
    folders="$folders build/levels/$1"
    note "testing build on an emulated $1"
    for program in build/tests/test_*; do
        case $(basename "$program" | cut -c6-) in
        forward_gpu_*) continue ;;           # without a driver there is nothing to test
        convert_predictors) continue ;; # trains for longer than that
        base_* | file_* | text_* | kernels_* | model_* | sample_* | sparse_* | convert_* | forward_* | chat_* | hub_*) ;;
        golden_arch | golden_files | golden_models | golden_quant | golden_powerinfer) ;;
        engine_batches | engine_chat | engine_info | engine_layout | engine_long | engine_mutations) ;;
        *) continue ;;
        esac
        [ -x "$program" ] || continue
        log=build/levels/$1/$(basename "$program").log
        if ! HEARTH_CACHE='' HEARTH_EMULATED=1 VK_DRIVER_FILES=/nowhere VK_ICD_FILENAMES=/nowhere \
            HEARTH_TEST_REPORT=$PWD/build/levels/$1/cases.tsv timeout 1800 \
            qemu-x86_64 -cpu "$1" "$program" >"$log" 2>&1; then
            grep -q '^FAIL' "$log" ||
                printf 'FAIL\tsuite.sh\t%s on %s\tsee %s\n' "$(basename "$program")" "$1" "$log" >>build/levels/"$1"/cases.tsv
            grep -a -B 4 '^FAIL' "$log"
        fi
    done
    story="run --seed 1 -n 60 -p Once -q --gpu none"
    verdict=FAIL
    # Its words are arguments.
    # shellcheck disable=SC2086
    if [ "$(qemu-x86_64 -cpu "$1" build/hearth $story)" = "$(build/hearth $story)" ]; then verdict=ok; fi
    printf '%s\tsuite.sh\tthe program tells the same story on %s\t\n' $verdict "$1" >>build/levels/"$1"/cases.tsv
}

# sweep FOLDER: the programs of devices once more on lavapipe, compiled for vectors of each width and run by each
# number of threads, nothing taken from the driver's cache. A case for each; the driver's name says the width.
sweep() {
    for width in 128 256 512; do
        for threads in 0 1 3; do
            name="programs on lavapipe: vectors of $width bits, $threads threads"
            log=$1/sweep-$width-$threads.log
            verdict=FAIL
            reason="see $log"
            note "$name"
            if LP_NATIVE_VECTOR_WIDTH=$width LP_NUM_THREADS=$threads MESA_SHADER_CACHE_DISABLE=true \
                ctest --test-dir "$1" -j "$jobs" -V -R '^(forward/gpu_|device/)' >"$log" 2>&1; then
                if grep -q "llvmpipe (.*, $width bits)" "$log"; then
                    verdict=ok
                elif ! grep -q llvmpipe "$log"; then
                    verdict=skip
                    reason="no lavapipe"
                fi
            else
                grep -a -B 4 '^[0-9]*: FAIL' "$log"
            fi
            printf '%s\tsuite.sh\t%s\t%s\n' "$verdict" "$name" "$reason" >>"$1/cases.tsv"
        done
    done
}

# fuzz TARGET: new inputs for $FUZZ_SECONDS, from the seeds in tests/fuzz/corpus and what
# earlier runs found; a crash is a failed case.
fuzz() {
    name=$(basename "$1")
    seeds=tests/fuzz/corpus/${name#fuzz_}
    found=build/fuzz/corpus/$name
    mkdir -p "$found"
    [ -d "$seeds" ] || seeds=
    note "fuzzing $name for $seconds s"
    # No $seeds is no argument.
    # shellcheck disable=SC2086
    if "$1" -max_total_time="$seconds" -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix=build/fuzz/ \
        "$found" $seeds >"build/fuzz/$name.log" 2>&1; then
        verdict=ok
    else
        verdict=FAIL
        tail -n 40 "build/fuzz/$name.log"
    fi
    grep -a '^stat::number_of_executed_units' "build/fuzz/$name.log"
    printf '%s\tsuite.sh\t%s for %s s\tbuild/fuzz/%s.log\n' "$verdict" "$name" "$seconds" "$name" >>build/fuzz/cases.tsv
}

# Every target, one after the other.
fuzz_all() {
    seconds=$1
    build fuzz build/fuzz fuzzers || return
    for target in build/fuzz/tests/fuzz_*; do
        if [ -x "$target" ]; then fuzz "$target"; fi
    done
}

# What services of continuous fuzzing build: every target links, and passes its seeds. Without optimisation and sanitizers,
# which build/asan has.
fuzz_build() {
    folder=build/fuzzers out=$PWD/build/fuzzers/out verdict=FAIL
    note "building $folder"
    mkdir -p "$out"
    folders="$folders $folder"
    if CC=clang CFLAGS="-O0 -fsanitize=fuzzer-no-link" LIB_FUZZING_ENGINE=-fsanitize=fuzzer OUT=$out WORK=$PWD/$folder JOBS=$jobs \
        HEARTH_KERNELS_FROM=$kernels .clusterfuzzlite/build.sh >"$folder/build.log" 2>&1; then
        verdict=ok
    else
        tail -n 20 "$folder/build.log"
    fi
    printf '%s\tsuite.sh\t.clusterfuzzlite/build.sh builds\tsee %s/build.log\n' $verdict $folder >"$folder/cases.tsv"
    for target in tests/fuzz/fuzz_*.c; do
        name=$(basename "$target" .c) verdict=FAIL
        seeds=tests/fuzz/corpus/${name#fuzz_}
        [ -d "$seeds" ] || seeds=
        # shellcheck disable=SC2086
        if "$out/$name" -runs=0 $seeds >"$folder/$name.log" 2>&1; then verdict=ok; fi
        printf '%s\tsuite.sh\t%s passes its seeds\t%s/%s.log\n' $verdict "$name" $folder "$name" >>"$folder/cases.tsv"
    done
}

case ${1-} in
short | ci)
    if [ "$1" = ci ]; then preset=ci; else preset=release; fi # warnings are errors in ci
    build $preset build && run build
    if [ "$1" = ci ]; then
        kernels=$PWD/build # which tests/kernels has proved there
        build asan build/asan && run build/asan -LE long -E '^kernels/'
        parse clang
        fuzz_build
    fi
    ;;
levels)
    if build release build; then
        level avx2
        level generic -E "$slow_without_vectors"
        emulated Haswell
        emulated Nehalem
    fi
    ;;
long)
    export HEARTH_LONG=1
    released=
    if build release build; then
        released=1
        run build
    fi
    for preset in asan ubsan tsan clang; do
        build $preset build/$preset && run build/$preset
    done
    unset HEARTH_LONG # what follows is emulated, bounded by the clock, or the same nine times
    if [ -n "$released" ]; then sweep build; fi
    build aarch64 build/aarch64 && run build/aarch64 -R '^(base|kernels|golden|engine|reference)/'
    fuzz_all 60
    ;;
sweep)
    build release build && sweep build
    ;;
removal)
    if build release build; then
        mkdir -p build/removal
        rm -f build/removal/cases.tsv
        folders=build/removal
        HEARTH_TEST_REPORT=$PWD/build/removal/cases.tsv python3 tests/removal.py build
    fi
    ;;
seeded)
    folders=build/seeded
    mkdir -p build/seeded
    rm -f build/seeded/cases.tsv
    if cmake --preset release --log-level=WARNING >build/seeded/configure.log 2>&1; then
        JOBS=$jobs HEARTH_TEST_REPORT=$PWD/build/seeded/cases.tsv python3 tests/seeded.py build
    fi
    ;;
peers)
    if build release build hearth_program && cmake --build build -j "$jobs" --target peers_chat peers_sampler test_data >>build/build.log 2>&1; then
        mkdir -p build/peers
        rm -f build/peers/cases.tsv
        note "testing build/peers"
        HEARTH_TEST_REPORT=$PWD/build/peers/cases.tsv python3 tests/peers/peers.py build build/peers "${SEED:-1}"
        note "suites of others, against build/hearth serve"
        HEARTH_TEST_REPORT=$PWD/build/peers/cases.tsv python3 tests/peers/serving.py build build/peers
        note "templates of llama.cpp"
        HEARTH_TEST_REPORT=$PWD/build/peers/cases.tsv python3 tests/peers/templates.py build/hearth \
            build/peers/llama.cpp/models/templates
        folders=build/peers
    fi
    ;;
fuzz)
    fuzz_all "${FUZZ_SECONDS:-600}"
    ;;
*)
    echo "usage: $0 short|ci|levels|long|sweep|removal|seeded|peers|fuzz" >&2
    exit 2
    ;;
esac

note "result"
# The names are folders of this script: splitting them is what is wanted.
# shellcheck disable=SC2086
python3 tests/report.py $folders
