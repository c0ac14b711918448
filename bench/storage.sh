#!/bin/sh
# What a limit of memory costs with your model and your disk:
#
#     bench/storage.sh MODEL [BUDGET...]
#
# BUDGET: 4096, 500M, 7.5G, as of --ram (but not auto); by default 90, 75 and 60 % of the file. Prints how fast the disk
# reads the file (bytes past the page cache, as the program reads them), then for each budget what hearth plan expects
# and what was measured: tokens/s, hits, bytes read for a token, and the speed that disk and CPU allow
# (bench/storage.py). Experts of synthetic mixtures are drawn alike, 30 % of them again in the next token.
#
# Each budget takes about ROW_SECONDS for tokens, and the time in which the disk reads the file once, twice if the
# memory holds it: with three budgets five minutes for a file of 10 GB on an idle disk of 1 GB/s. Where that is too
# short for N tokens, fewer are generated, at least 2 after as many of warming up.
#
# Variables: N: tokens to generate (24). ROW_SECONDS (60). CTX: positions of the context (512). THREADS (one for each
# core). IO: as of --io (auto). Needs python3; with root, control groups limit the page cache too.
set -u
if [ $# -lt 1 ] || [ ! -f "$1" ]; then
    sed -n '2,/limit the page cache/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
model=$1
shift
here=$(dirname "$0")
build=$here/../build
make -C "$here/.." build >/dev/null || exit 1
cmake --build "$build" --target bench/read_disk >/dev/null || exit 1
size=$(stat -Lc %s "$model")
[ $# -gt 0 ] || set -- "$((size * 90 / 100))" "$((size * 75 / 100))" "$((size * 60 / 100))"
facts=$("$build/hearth" inspect "$model" --json) || exit 1
work="-n ${N:-24} -c ${CTX:-512} -t ${THREADS:-$(nproc)} --io ${IO:-auto}"
case $facts in *'"experts": {'*'"synthetic '*) work="$work --route uniform,sticky=0.3" ;; esac
echo "$model, $((size / 1000000)) MB"
"$build/bench/read_disk" "$model" "${IO:-auto}" 64 1024 || exit 1
# Several words; the route may be none.
# shellcheck disable=SC2086
for budget; do
    echo
    "$build/hearth" plan "$model" --ram "$budget" --gpu none $work || exit 1
done
echo
# shellcheck disable=SC2086
exec python3 "$here/storage.py" "$model" --ram "$@" $work --repeat 1 --seconds "${ROW_SECONDS:-60}"
