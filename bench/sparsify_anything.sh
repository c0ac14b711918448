#!/bin/sh
# An ordinary GGUF becomes a profiled, predicted, packed and compared model:
#
#     bench/sparsify_anything.sh MODEL TEXT [FOLDER]
#
# Models whose activation gives zeros get predictors, the others thresholds that leave out half of the
# neurons. What comes out lies in FOLDER (default: sparse-MODEL beside the text): profile.gguf,
# predictors.gguf or thresholds.gguf, packed.gguf, and what packing and skipping cost in compare.txt.
# HEARTH: the program; TYPE: of the packed matrices (default: as they are); CHUNKS: windows compared.
set -eu

[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
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
    beside="--predictors $folder/predictors.gguf"
else
    step "thresholds"
    "$hearth" thresholds "$model" -f "$text" -o "$folder/thresholds.gguf" --sparsity "${SPARSITY:-0.5}"
    beside="--thresholds $folder/thresholds.gguf"
fi

step "packing"
# shellcheck disable=SC2086 # options without spaces
"$hearth" pack "$model" ${TYPE:+--type $TYPE} --profile "$folder/profile.gguf" $beside -o "$folder/packed.gguf"

step "what packing cost: all neurons of both files"
"$hearth" compare "$folder/packed.gguf" --selector dense --against "$model" -f "$text" -c 256 \
    --chunks "${CHUNKS:-40}" | tee "$folder/compare.txt"
step "what skipping costs, on the packed file"
"$hearth" compare "$folder/packed.gguf" -f "$text" -c 256 --chunks "${CHUNKS:-40}" | tee -a "$folder/compare.txt"

step "speed, dense and as packed (small models live in a cache: the ratio may be below 1)"
"$hearth" bench "$model" --selector dense -t 1 -p 0 -n 64
"$hearth" bench "$folder/packed.gguf" -t 1 -p 0 -n 64
