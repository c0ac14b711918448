#!/bin/sh
# What a GPU reaches, in parts of at most nine minutes each, the most important first:
#
#     bench/gpu.sh DEVICE FOLDER [PART...]
#
# DEVICE is a name from hearth devices (vulkan:0), null or sim:FILE. Parts, all of them by default:
#     bits     logits beside the CPU's: golden files, then synthetic weights, whole and divided; equal, or near where weights are floats
#     machine  rates, handoff (median, 99th of 100) and programs, as plans are computed from (hearth doctor --json)
#     decode   a synthetic 8B shape, all of it on the device if it fits: tokens/s
#     prefill  the same shape: prompts of 512 and 2048 tokens
#     hybrid   packed synthetic 7B and 13B shapes with 4, 6 and 8 GiB: predicted by a plan and measured; evenly where nothing gains
#     divided  prompts of the packed 7B shape at 4 GiB: by a plan, whose weights may pass through, and evenly
#     memory   too little of it is refused, more than there is allowed: what is said
# FOLDER/PART.txt is what a part found (of machine: JSON and nothing else), PART.log what else was said. FOLDER/status has a line for
# each part with its seconds and its status: 0; 1 where something failed, differed, or was not there; 124 at the end of its time.
# This ends with 1 where a part did not end with 0, and with 130 at Ctrl-C. Synthetic weights are labelled by the program.
#
# Variables: HEARTH: the program (build/hearth). DATA: the folder above golden (build/data beside bench). MODELS: keeps
# synthetic models (FOLDER). N: tokens to generate (decode 128, hybrid 64). VRAM: sizes for hybrid ("4G 6G 8G"). LIMIT: seconds for a
# part (540). SIZE=small: a 1B shape in place of the larger ones, 700M and short prompts: a dry run (a CPU that plays the GPU).
# Functions are called by name, and of a run only what it says on stderr is wanted.
# shellcheck disable=SC2317,SC2069
set -u

usage() {
    sed -n '2,/dry run/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
[ $# -ge 2 ] || usage
device=$1 folder=$2
shift 2
here=$(dirname "$0")
hearth=${HEARTH:-$here/../build/hearth}
data=${DATA:-$here/../build/data}
models=${MODELS:-$folder}
small=${SIZE:-}
limit=${LIMIT:-540}
scratch=$folder/gpu.sh.scratch

# ---- models -----------------------------------------------------------------------------------

# synth NAME SHAPE OPTION...: a synthetic model, made once.
synth() {
    out=$models/$1 shape=$2
    shift 2
    [ -f "$out" ] || "$hearth" synth "$shape" "$out" "$@" >&2 || return
    echo "$out"
}
dense() { if [ "$small" ]; then synth 1b.gguf llama-1b --type q8_0; else synth 8b.gguf llama3-8b --type q4_0; fi; }
packed() { if [ "$small" ]; then synth 1bp.gguf llama-1b --type q8_0 --packed --ffn drelu; else synth "$1p.gguf" "llama-$1" --type q4_0 --packed --ffn drelu; fi; }

# ---- what parts are made of ---------------------------------------------------------------------

bad=0
fail() {
    echo "$*"
    bad=1
}

# What run says of itself, to the end whatever becomes of it; its text is of no interest.
tell() { "$hearth" run "$@" --gpu "$device" --greedy --stats 2>&1 >/dev/null || fail "FAILED: hearth run ended with $?"; }

# How far floats of A are from those of B, by the largest of them, as tests/golden counts it. Fails beyond 2e-4.
distance() {
    od -An -v -tf4 -w4 "$1" >"$1.text"
    od -An -v -tf4 -w4 "$2" | paste "$1.text" - | awk '
        NF != 2 || /[nN]/ { odd++; next }
        { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
        { size = $1 > size ? $1 : -$1 > size ? -$1 : size; n += d > 0 }
        END {
            printf "%d of %d logits differ", n + odd, NR
            if (odd) printf ", %d are no numbers or missing", odd
            else printf ", by %.1e of the largest", size ? most / size : 0
            exit odd || !(most <= 2e-4 * size)
        }'
}

# compare NAME MODEL IDS OPTION...: logits of the CPU beside the device's, which have its bits unless weights are floats.
compare() {
    name=$1 model=$2 ids=$3
    shift 3
    cpu=$scratch/cpu.f32 gpu=$scratch/gpu.f32 err=$scratch/err floats=''
    if ! "$hearth" logits "$model" --ids "$ids" -o "$cpu" --force --gpu none 2>"$err"; then
        why=$("$hearth" inspect "$model" 2>/dev/null | sed -n 's/^Cannot be run: //p')
        if [ "$why" ]; then echo "$name not run by this version: $why"; else fail "$name FAILED on the CPU: $(cat "$err")"; fi
        return
    fi
    if ! "$hearth" logits "$model" --ids "$ids" -o "$gpu" --force --gpu "$device" "$@" --gpu-strict 2>"$err"; then
        case $(cat "$err") in
        *"would not give the CPU's bits: "*" is F32;"* | *"would not give the CPU's bits: "*F16";"*) floats=1 ;;
        *"would not give the CPU's bits"*) fail "$name $(cat "$err")" ;;
        *)
            fail "$name FAILED: $(cat "$err")"
            return
            ;;
        esac
        if ! "$hearth" logits "$model" --ids "$ids" -o "$gpu" --force --gpu "$device" "$@" 2>"$err"; then
            fail "$name FAILED: $(cat "$err")"
            return
        fi
    fi
    cat "$err"
    if cmp -s "$cpu" "$gpu"; then
        echo "$name equal"
    elif words=$(distance "$cpu" "$gpu") && [ "$floats" ]; then
        echo "$name floats: $words, 2e-04 is allowed"
    else
        fail "$name DIFFERENT: $words"
    fi
}

# ---- parts --------------------------------------------------------------------------------------

bits() {
    n=0
    for ids in "$data"/golden/quant/*.ids; do
        [ -f "$ids" ] || continue
        gguf=${ids%.ids}.gguf n=$((n + 1))
        compare "$(basename "$gguf")" "$gguf" "$ids"
    done
    [ "$n" -gt 0 ] || fail "FAILED: no golden files in $data/golden/quant: python3 tests/data/make.py build/data makes them"
    ids=$scratch/ids
    seq 1 40 >"$ids"
    model=$(synth 15m-q4_0.gguf stories-15m --type q4_0) || return
    compare "synthetic 15M" "$model" "$ids"
    model=$(synth 15mp-q4_0.gguf stories-15m --type q4_0 --packed --ffn drelu) || return
    compare "synthetic 15M, divided" "$model" "$ids" --vram 20M --placement even
    [ ! "$small" ] || return 0
    model=$(synth 1b-q4_0.gguf llama-1b --type q4_0) || return
    compare "synthetic 1B" "$model" "$ids"
}

machine() {
    model=$(packed 7b) || return
    "$hearth" doctor "$model" --gpu "$device" --again --json || bad=1
}

decode() {
    model=$(dense) || return
    tell "$model" -c 512 -n "${N:-128}" -p "a"
}

prefill() {
    model=$(dense) || return
    lengths="512 2048"
    [ "$small" ] && lengths=64
    for n in $lengths; do
        tell "$model" -c 4096 -n 1 -p "$(yes a | head -n "$n" | tr '\n' ' ')"
    done
}

hybrid() {
    shapes="7b 13b" sizes=${VRAM:-4G 6G 8G}
    [ "$small" ] && shapes=1b sizes=${VRAM:-700M}
    for shape in $shapes; do
        model=$(packed "$shape") || return
        for vram in $sizes; do
            placement=$folder/hybrid-$shape-$vram.placement how=plan
            rm -f "$placement"
            if "$hearth" plan "$model" --gpu "$device" --vram "$vram" -c 1024 -o "$placement" 2>"$scratch/err"; then
                how=$placement
            elif grep -q 'nothing gains by lying there' "$scratch/err"; then
                # What fits is divided evenly all the same.
                how=even
            else fail "FAILED: hearth plan"; fi
            cat "$scratch/err"
            tell "$model" --vram "$vram" --placement "$how" -c 1024 -n "${N:-64}" -p "a"
        done
    done
}

divided() {
    n=1024 vram=4G
    [ "$small" ] && n=64 vram=700M
    model=$(packed 7b) || return
    "$hearth" plan "$model" --gpu "$device" --vram "$vram" -c 2048 2>&1 || fail "FAILED: hearth plan"
    for placement in plan even; do
        tell "$model" --vram "$vram" --placement "$placement" -c 2048 -n 1 -p "$(yes a | head -n "$n" | tr '\n' ' ')"
    done
}

memory() {
    model=$(dense) || return
    for vram in 1 1M; do
        "$hearth" run "$model" --gpu "$device" --vram "$vram" -c 256 -n 2 --greedy -p "a" 2>&1 >/dev/null
        [ $? = 1 ] || fail "FAILED: --vram $vram was not refused"
    done
    tell "$model" --vram 4096G -c 256 -n 2 -p "a"
}

# A part is run by this script again, in a group of its own, so that its time can be bounded. It waits for the program, which is
# told to end at the same moment and says what it has reached.
if [ "${GPU_PART:-}" ]; then
    trap 'exit 143' TERM
    # A program or a device that is not there is found before models are written.
    if said=$("$hearth" run --gpu "$device" -c 64 -n 1 -p a 2>&1 >/dev/null); then
        $GPU_PART && exit $bad
    elif [ "$GPU_PART" = machine ]; then echo "FAILED: $said" >&2
    else echo "FAILED: $said"; fi
    exit 1
fi

# ---- all of them --------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- bits machine decode prefill hybrid divided memory
for part in "$@"; do
    case $part in
    bits | machine | decode | prefill | hybrid | divided | memory) ;;
    *)
        echo "gpu.sh: no part '$part'" >&2
        exit 2
        ;;
    esac
done
case $device in auto | none) echo "gpu.sh: '$device' may be the CPU: expected a name from hearth devices" >&2 && exit 2 ;; esac
for made in "$folder" "$models"; do mkdir -p "$made" || exit 1; done

child='' signal=''
# hear STATUS: this ends with it; the part's whole group is told, and the loop below sees to the rest.
hear() {
    signal=$1
    [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap 'hear 129' HUP
trap 'hear 130' INT
trap 'hear 143' TERM

# A second for what must be put away; a step of a slow device takes longer.
end_group() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -s 0 -- "-$child" 2>/dev/null || return
        sleep 0.1
    done
    kill -s KILL -- "-$child" 2>/dev/null
}

failed=0
for part in "$@"; do
    printf '\n== %s\n' "$part"
    begin=$(date +%s)
    rm -rf "$scratch" && mkdir "$scratch" || exit 1
    GPU_PART=$part timeout -k 20 "$limit" sh "$0" "$device" "$folder" >"$folder/$part.txt" 2>"$folder/$part.log" &
    child=$!
    [ "$signal" ] || wait "$child"
    status=$?
    end_group
    [ -z "$signal" ] || status=interrupted
    child=''
    rm -rf "$scratch"
    # Progress is told in lines where there is no terminal; they say nothing afterwards.
    sed -i '/^[a-z ]* *[0-9]* %.* s left$/d' "$folder/$part.txt"
    # Results of the CPU are none of the device's.
    [ "$status" = 0 ] && grep -q '^hearth: warning: .*\(on the CPU\|with less there\|less is placed there\)' "$folder/$part.txt" && status=1
    [ "$status" = 137 ] && status=124
    line="$part: $status, $(($(date +%s) - begin)) s"
    [ "$status" = 124 ] && line="$line: its time was over"
    { grep -v "^$part:" "$folder/status" 2>/dev/null; echo "$line"; } >"$folder/status.new" && mv "$folder/status.new" "$folder/status"
    cat "$folder/$part.txt"
    echo "$line"
    [ "$status" = 0 ] || { failed=1 && tail -n 3 "$folder/$part.log" >&2; }
    [ -z "$signal" ] || exit "$signal"
done
exit $failed
