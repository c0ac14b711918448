#!/bin/sh
# What a limit of memory costs with your model and your disk, in about five minutes:
#
#     bench/storage.sh MODEL [BUDGET...]
#
# BUDGET: as of --ram; by default 90, 75 and 60 % of the file. Prints how fast the disk reads the file (bytes past the page
# cache, as the program reads them), then for each budget what hearth plan expects and what was measured: tokens/s, hits,
# bytes read for a token, and the speed that disk and CPU allow (bench/storage.py). Experts of synthetic models are drawn
# alike, 30 % of them again in the next token.
#
# Variables: N: tokens to generate (24). THREADS (one for each core). IO: as of --io (auto). Needs python3; with root, control
# groups limit the page cache too.
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
route=
if "$build/hearth" inspect "$model" --json | grep -q '"synthetic '; then route='--route uniform,sticky=0.3'; fi
echo "$model, $((size / 1000000)) MB"
"$build/bench/read_disk" "$model" "${IO:-auto}" 64 1024 || exit 1
for budget; do
    echo
    "$build/hearth" plan "$model" --ram "$budget" --gpu none --io "${IO:-auto}" || exit 1
done
echo
# Several words, or none.
# shellcheck disable=SC2086
exec python3 "$here/storage.py" "$model" --ram "$@" -n "${N:-24}" -t "${THREADS:-$(nproc)}" --io "${IO:-auto}" $route
