#!/bin/sh
# What a GPU reaches, in parts of at most nine minutes each, the most important first:
#
#     bench/gpu.sh DEVICE FOLDER [PART...]
#
# DEVICE is a name from hearth devices (vulkan:0). Parts, all of them by default:
#     bits     the same logits as the CPU: golden files, then a synthetic model
#     machine  rates, handoff (median, 99th of 100) and programs, as plans are computed from (hearth doctor --json)
#     decode   a synthetic 8B shape wholly on the device: tokens/s
#     prefill  the same shape: prompts of 512 and 2048 tokens
#     hybrid   packed synthetic 7B and 13B shapes with 4, 6 and 8 GiB: predicted and measured
#     divided  prompts of the packed 7B shape at 4 GiB: by a plan, whose weights may pass through, and evenly
#     memory   too little of it, and more than there is: what is said
# Each leaves its results in FOLDER/PART.*; synthetic weights are labelled by the program. HEARTH: the program;
# SIZE=small: a 1B shape in place of the larger ones, for a dry run (a CPU that plays the GPU); DATA: the
# folder of golden files; MODELS: where synthetic models are kept between runs (default: FOLDER).
set -u

[ $# -ge 2 ] || { sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }
device=$1 folder=$2
shift 2
here=$(dirname "$0")
hearth=${HEARTH:-$here/../build/hearth}
data=${DATA:-$here/../../shared/data}
models=${MODELS:-$folder}
small=${SIZE:-}
mkdir -p "$folder" "$models"

step() { printf '\n== %s\n' "$1"; }
# synth NAME SHAPE OPTION...: a synthetic model, made once.
synth() {
    out=$models/$1 shape=$2
    shift 2
    [ -f "$out" ] || { "$hearth" synth "$shape" "$out.new" "$@" >&2 && mv "$out.new" "$out"; }
    echo "$out"
}
dense() { if [ "$small" ]; then synth 1b.gguf llama-1b --type q8_0; else synth 8b.gguf llama3-8b --type q4_0; fi; }
packed() { if [ "$small" ]; then synth 1bp.gguf llama-1b --type q8_0 --packed --ffn drelu; else synth "$1p.gguf" "llama-$1" --type q4_0 --packed --ffn drelu; fi; }

bits() {
    for ids in "$data"/golden/quant/*.ids; do
        gguf=${ids%.ids}.gguf
        "$hearth" logits "$gguf" --ids "$ids" -o "$folder/cpu.f32" --gpu none 2>/dev/null &&
            "$hearth" logits "$gguf" --ids "$ids" -o "$folder/gpu.f32" --gpu "$device" 2>"$folder/bits.err" || { cat "$folder/bits.err"; continue; }
        if cmp -s "$folder/cpu.f32" "$folder/gpu.f32"; then verdict=equal; else verdict=DIFFERENT; fi
        echo "$(basename "$gguf") $verdict"
    done
    rm -f "$folder/cpu.f32" "$folder/gpu.f32"
}

machine() { "$hearth" doctor "$(packed 7b)" --device "$device" --again --json; }

# Tokens/s as run --stats says them.
decode() { "$hearth" run "$(dense)" --gpu "$device" -c 512 -n "${N:-128}" --greedy --stats -p "a" 2>&1 >/dev/null | tail -n 12; }

prefill() {
    for n in 512 2048; do
        [ "$small" ] && n=64
        text=$(yes a | head -n "$n" | tr '\n' ' ')
        "$hearth" run "$(dense)" --gpu "$device" -c 4096 -n 1 --greedy --stats -p "$text" 2>&1 >/dev/null | tail -n 12
        [ "$small" ] && break
    done
}

hybrid() {
    for shape in 7b ${small:-13b}; do
        [ "$shape" = "$small" ] && break
        for vram in ${VRAM:-4G 6G 8G}; do
            [ "$small" ] && vram=700M
            placement=$folder/hybrid-$shape-$vram.gguf
            "$hearth" plan "$(packed "$shape")" --gpu "$device" --vram "$vram" -c 1024 -o "$placement"
            # Where nothing gains, what fits is divided evenly all the same.
            set --
            [ -f "$placement" ] && set -- --placement "$placement"
            "$hearth" run "$(packed "$shape")" --gpu "$device" --vram "$vram" "$@" -c 1024 -n "${N:-64}" --greedy --stats -p "a" 2>&1 >/dev/null | tail -n 12
            [ "$small" ] && break
        done
    done
}

divided() {
    n=1024 vram=4G
    [ "$small" ] && n=64 vram=700M
    text=$(yes a | head -n "$n" | tr '\n' ' ')
    "$hearth" plan "$(packed 7b)" --gpu "$device" --vram $vram -c 2048 | grep -e Expected -e Prompts -e there
    for placement in plan even; do
        "$hearth" run "$(packed 7b)" --gpu "$device" --vram $vram --placement $placement -c 2048 -n 1 --greedy --stats -p "$text" 2>&1 >/dev/null | tail -n 4
    done
}

memory() {
    for vram in 1 1M 4096G; do
        "$hearth" run "$(dense)" --gpu "$device" --vram $vram -c 256 -n 2 --greedy -p "a" 2>&1 >/dev/null | tail -n 3
    done
}

# A part is run by this script anew, so that its time can be bounded.
if [ "${GPU_PART:-}" ]; then
    $GPU_PART
    exit
fi

[ $# -gt 0 ] || set -- bits machine decode prefill hybrid divided memory
for part in "$@"; do
    case $part in
    bits | machine | decode | prefill | hybrid | divided | memory) ;;
    *)
        echo "gpu.sh: no part '$part'" >&2
        exit 2
        ;;
    esac
    step "$part"
    GPU_PART=$part timeout 540 sh "$0" "$device" "$folder" >"$folder/$part.txt" 2>"$folder/$part.log"
    echo "status $?" >>"$folder/$part.txt"
    cat "$folder/$part.txt"
done
