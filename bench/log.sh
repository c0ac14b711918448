#!/bin/sh
# The speed log: one line for each commit, kept as git notes (refs/notes/speed), outside the main history.
#
#     bench/log.sh [COMMIT]       measure COMMIT (HEAD) beside the commit before it, add its line
#     bench/log.sh show           the lines, oldest first
#     bench/log.sh draw OUT.svg   a plot of them
#
# A line has the commit, the machine and, for six fixed rows, the share of the machine's limit that was reached (of memory for
# generation, of the instructions' peak for prompts; tokens/s where neurons are left out) and the ratio to the commit before, both
# measured in one interleaved run: medians of ROUNDS (5) rounds, with the spread of the ratio. Shares compare commits over time,
# ratios say what a commit did.
#
# Variables: THREADS (all cores), ROUNDS. Builds and synthetic models stay in build/log. To share the log: git push ORIGIN
# refs/notes/speed.
set -eu
cd "$(dirname "$0")/.."
log=build/log
note=speed

case ${1-} in
show)
    git log --reverse --notes=$note --format=%N | grep =
    exit
    ;;
draw) exec python3 bench/log.py draw "${2:?expected the name of an SVG file}" ;;
esac

commit=$(git rev-parse --verify "${1:-HEAD}^{commit}")
before=$(git rev-parse --verify "$commit^")
mkdir -p $log/models

# program COMMIT: builds it once, in a checkout of its own, which goes again.
program() {
    built=$log/$1/hearth
    if [ ! -x "$built" ]; then
        rm -rf "$log/$1"
        git worktree add --detach --force "$log/$1" "$1" >&2
        cmake -S "$log/$1" -B "$log/$1/build" --preset release -DHEARTH_TESTS=OFF -DHEARTH_BENCH=OFF >"$log/configure.log"
        cmake --build "$log/$1/build" -j "$(nproc)" --target hearth_program >&2
        cp "$log/$1/build/hearth" "$log/hearth-$1"
        git worktree remove --force "$log/$1"
        mkdir -p "$log/$1"
        mv "$log/hearth-$1" "$built"
    fi
    echo "$built"
}
old=$(program "$before")
new=$(program "$commit")

# model NAME OPTION...: a synthetic one, made once.
model() {
    name=$1
    shift
    [ -f "$log/models/$name" ] || "$new" synth llama-1b "$log/models/$name" "$@" >&2
}
model q4_0.gguf --type q4_0
model q4_k_m.gguf --type q4_k_m
model q8_0.gguf --type q8_0
model drelu.gguf --type q4_0 --packed --ffn drelu

exec python3 bench/log.py measure "$commit" "$old" "$new" $log/models "${ROUNDS:-5}" "${THREADS:-$(nproc)}"
