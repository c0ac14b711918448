#!/bin/bash -eu
# Builds every fuzz target of tests/fuzz to $OUT, each with its seeds, and beside them the libraries that the machine which
# runs them may lack. $CC, $CFLAGS and $LIB_FUZZING_ENGINE are as ClusterFuzzLite and OSS-Fuzz give them. make test SUITE=ci
# runs it too, with kernels that are built already ($HEARTH_KERNELS_FROM).
source=$(cd "$(dirname "$0")" && pwd)
[ -e "$source/CMakeLists.txt" ] || source=$(dirname "$source")
[ -e "$source/CMakeLists.txt" ] || source=$SRC/hearth
build=${WORK:-/tmp}/hearth

# shellcheck disable=SC2016
export LDFLAGS="${LDFLAGS:-} -Wl,-rpath,\$ORIGIN/lib"
cmake -S "$source" -B "$build" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=None -DHEARTH_FUZZ=ON -DHEARTH_BENCH=OFF \
    -DHEARTH_STATIC_DEPS=ON -DHEARTH_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" -DHEARTH_KERNELS_FROM="${HEARTH_KERNELS_FROM:-}"
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target fuzzers

mkdir -p "$OUT/lib"
for target in "$build"/tests/fuzz_*; do
    [ -x "$target" ] || continue
    name=$(basename "$target")
    cp "$target" "$OUT/"
    seeds=$source/tests/fuzz/corpus/${name#fuzz_}
    if [ -d "$seeds" ]; then (cd "$seeds" && python3 -m zipfile -c "$OUT/${name}_seed_corpus.zip" ./*); fi
    ldd "$target" | awk '$3 ~ /^\// && $3 !~ /\/lib(c|m|dl|rt|pthread|gcc_s|resolv)[.]so/ {print $3}' | xargs -r cp -uL -t "$OUT/lib"
done
