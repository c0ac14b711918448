#!/bin/sh
# An ordinary GGUF becomes a profiled, predicted, packed and compared model:
#
#     bench/sparsify_anything.sh MODEL TEXT [FOLDER]
#
# Models whose activation gives zeros get predictors, the others thresholds that leave out half of the
# neurons. What comes out lies in FOLDER (default: sparse-MODEL, here): profile.gguf,
# predictors.gguf or thresholds.gguf, packed.gguf, and what packing and skipping cost in compare.txt.
# The text that they are made from is the text of the comparison: another one may cost more.
# HEARTH: the program; TYPE: of the packed matrices (default: as they are); CHUNKS: chunks compared.
set -eu

[ $# -ge 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1 text=$2
name=$(basename "$model" .gguf)
folder=${3:-sparse-$name}
hearth=${HEARTH:-$(dirname "$0")/../build/hearth}
mkdir -p "$folder"

step() { printf '\n== %s\n' "$1"; }

step "which neurons fire"
"$hearth" profile "$model" -f "$text" -o "$folder/profile.gguf"

if "$hearth" inspect "$model" --json | grep -q '"exact_zeros": true'; then
    step "predictors"
    "$hearth" predictors "$model" -f "$text" -o "$folder/predictors.gguf" --recall "${RECALL:-0.9}"
    set -- --predictors "$folder/predictors.gguf"
else
    step "thresholds"
    "$hearth" thresholds "$model" -f "$text" -o "$folder/thresholds.gguf" --sparsity "${SPARSITY:-0.5}"
    set -- --thresholds "$folder/thresholds.gguf"
fi

step "packing"
"$hearth" pack "$model" ${TYPE:+--type "$TYPE"} --profile "$folder/profile.gguf" "$@" -o "$folder/packed.gguf"

step "what packing cost: all neurons of both files"
"$hearth" compare "$folder/packed.gguf" --selector dense --against "$model" -f "$text" -c 256 \
    --chunks "${CHUNKS:-40}" | tee "$folder/compare.txt"
step "what skipping costs, on the packed file"
"$hearth" compare "$folder/packed.gguf" -f "$text" -c 256 --chunks "${CHUNKS:-40}" | tee -a "$folder/compare.txt"

step "speed, dense and as packed (small models live in a cache: the ratio may be below 1)"
"$hearth" bench "$model" --gpu none --selector dense -t 1 -p 0 -n 64
"$hearth" bench "$folder/packed.gguf" --gpu none -t 1 -p 0 -n 64
