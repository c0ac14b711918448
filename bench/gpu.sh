#!/bin/sh
# Report of a new GPU: what it computes and how fast, within ten minutes, as one report to paste into an issue.
#
#     bench/gpu.sh DEVICE FOLDER [PART...]
#
# DEVICE is a name from hearth devices (vulkan:0), null or sim:FILE. FOLDER/report.txt is the report. Parts, all by
# default, and the seconds of each; what a part leaves of its seconds is the next ones':
#     about    30   machine, device, driver and what is known of it, measured bandwidth, rates of hearth doctor
#     bits    110   logits beside the CPU's: golden files, the most common types first, then synthetic weights; greedy
#                   text
#     decode  110   tokens/s of synthetic models by type, beside the bandwidth that was measured; power
#     prompts  50   prompts of 512 and 2048 tokens
#     divided 100   a packed model with less memory than it needs: by a plan, by whole layers, by even shares;
#                   predicted and measured
#     experts 130   a mixture of experts, whole and with some 40 % of its experts there: tokens/s, predicted and
#                   measured, prompts, shares of the experts, logits beside the CPU's
#     memory   20   too little of it is refused, more than there is allowed
#     peers   240   only if it is named: rows of bench/gpu-table.json beside PEERS, interleaved
# FOLDER/PART.txt is what a part found, PART.log what else was said. A part ends with 0; 1 where something failed,
# differed or was not there; 124 at the end of its time, with what it had until then. This ends with 1 where a part did
# not end with 0, and with 130 at Ctrl-C, then too with a report. Synthetic weights are labelled.
#
# Variables: HEARTH: the program (build/hearth; bench/gpu_bandwidth lies beside it). DATA: the folder above golden
# (build/data).
# MODELS: keeps synthetic models (FOLDER; up to 30 GB). SECONDS_ALL: of all parts together (550, with SIZE=small twice
# that). VRAM: of the part divided (4G). PEERS: of bench/peers.py, as llama.cpp=PATH/llama-bench. SIZE=small: tiny
# shapes, a dry run in some minutes on a CPU that plays the GPU.
# Functions are called by name, and of some programs only what they say on stderr is wanted.
# shellcheck disable=SC2317,SC2069
set -u
export LC_ALL=C # figures with a decimal point

usage() {
    sed -n '2,/plays the GPU/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
[ $# -ge 2 ] || usage
device=$1 folder=$2
shift 2
case $device in *,*) echo "$0: $device: one device is expected, not several" >&2; exit 2 ;; esac
case ${SECONDS_ALL:-550} in *[!0-9]*) echo "$0: SECONDS_ALL=$SECONDS_ALL is no number of seconds" >&2; exit 2 ;; esac
here=$(dirname "$0")
hearth=${HEARTH:-$here/../build/hearth}
bandwidth=$(dirname "$hearth")/bench/gpu_bandwidth
data=${DATA:-$here/../build/data}
models=${MODELS:-$folder}
small=${SIZE:-}
scratch=$folder/gpu.sh.scratch

# ---- what parts are made of ---------------------------------------------------------------------

bad=0
fail() {
    echo "$*"
    bad=1
}
has() { command -v "$1" >/dev/null 2>&1; }

# json FILE KEY: the first value of a key, without its quotes.
json() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\"]*[^\",]\)\"\{0,1\},\{0,1\}$/\1/p" "$1" | head -n 1; }
# speeds FILE: of a bench, one line of a test: tokens of the prompt, tokens generated, tokens/s.
speeds() {
    awk -F'[:,]' '/"prompt":/ { p = $2 + 0 } /"generate":/ { g = $2 + 0 }
        /"median_tokens_per_second":/ { print p, g, $2 + 0 }' "$1"
}
# on_device FILE: how much of a model is on the device, of a bench.
on_device() {
    awk -F'[:,]' '/"layers":/ { n = $2 + 0 } /"layers_in_all":/ { all = $2 + 0 } /"neurons":/ { share = $2 + 0 }
        /"head": true/ { head = " and the head" }
        END { printf "%d of %d layers%s", n, all, head
              if (n && share < 1) printf " with %.0f %% of their neurons", 100 * share }' "$1"
}

# synth NAME SHAPE OPTION...: a synthetic model, made once.
synth() {
    out=$models/$1 shape=$2
    shift 2
    [ -f "$out" ] || "$hearth" synth "$shape" "$out" "$@" >&2 || return
    echo "$out"
}
# GB of the device that are free, and a quarter of what the disk of the models has.
room() {
    vram=$(awk -F'[:,]' '/"gpu":/ { gpu = 1 } gpu && /"free_bytes":/ { print $2; exit }' \
        "$folder/doctor.json" 2>/dev/null)
    disk=$(df -Pk "$models" | awk 'NR == 2 { print $4 / 4 * 1024 }')
    awk -v a="${vram:-1e18}" -v b="${disk:-0}" 'BEGIN { printf "%d", (a < b ? a : b) / 1e9 }'
}
# The largest shape that fits whole.
large() {
    if [ "$small" ]; then synth 15m-q4_0.gguf stories-15m --type q4_0
    elif [ "$(room)" -ge 7 ]; then synth 8b-q4_0.gguf llama3-8b --type q4_0
    elif [ "$(room)" -ge 4 ]; then synth 4b-q4_0.gguf qwen3-4b --type q4_0
    else synth 1b-q4_0.gguf llama-1b --type q4_0; fi
}
packed() {
    if [ "$small" ]; then synth 15mp-q4_0.gguf stories-15m --type q4_0 --packed --ffn drelu
    else synth 7bp-q4_0.gguf llama-7b --type q4_0 --packed --ffn drelu; fi
}
# A mixture of experts that fits whole: Qwen3.6-35B-A3B's shape, or its first layers.
mixture() {
    n=$(($(room) * 10 / 6))
    if [ "$small" ]; then synth 30b-1-q4_k_m.gguf qwen3-30b-a3b --type q4_k_m --layers 1
    elif [ "$n" -ge 40 ]; then synth qwen35-35b-a3b-q4_k_m.gguf qwen35-35b-a3b --type q4_k_m
    else synth "qwen35-35b-a3b-$n-q4_k_m.gguf" qwen35-35b-a3b --type q4_k_m --layers "$n"; fi
}

# ---- power ------------------------------------------------------------------------------------

# How power is read of this device: "smi ID", "watt FILE" (microwatts) or "joule FILE" (microjoules so far); nothing: it
# is not.
find_power() {
    "$hearth" devices --json 2>/dev/null | sed -n "\|\"device\": \"$device\"|,/}/p" >"$scratch/device"
    driver=$(json "$scratch/device" driver) uuid=$(json "$scratch/device" uuid)
    case $driver in
    NVIDIA*)
        has nvidia-smi || return
        id=$(echo "$uuid" | sed 's/^\(.\{8\}\)\(.\{4\}\)\(.\{4\}\)\(.\{4\}\)/GPU-\1-\2-\3-\4-/')
        nvidia-smi -i "$id" -L >/dev/null 2>&1 || id=0
        echo "smi $id"
        ;;
    radv* | AMD* | *Intel*)
        for hwmon in /sys/class/drm/card*/device/hwmon/hwmon*; do
            case $driver/$(cat "$hwmon/name" 2>/dev/null) in
            radv*/amdgpu | AMD*/amdgpu | *Intel*/i915 | *Intel*/xe) ;;
            *) continue ;;
            esac
            for file in power1_average power1_input; do
                [ -r "$hwmon/$file" ] && echo "watt $hwmon/$file" && return
            done
            [ -r "$hwmon/energy1_input" ] && echo "joule $hwmon/energy1_input" && return
        done
        ;;
    esac
}
# One sample: seconds, and watts or, marked so, joules.
sample_power() {
    case $power in
    smi*) echo "$(date +%s.%N) $(nvidia-smi -i "${power#smi }" --query-gpu=power.draw --format=csv,noheader,nounits)" ;;
    watt*) echo "$(date +%s.%N) $(cat "${power#watt }") u" ;;
    joule*) echo "$(date +%s.%N) $(cat "${power#joule }") j" ;;
    esac
}
# Samples until it is told to end; in the background of a measurement.
watch_power() { while sample_power; do sleep 0.5; done >"$scratch/power"; }
watts_said() {
    [ "$power" ] || return
    awk '$3 == "j" { if (t) add(($2 - e) * 1e-6 / ($1 - t)); t = $1; e = $2; next }
        $2 + 0 > 0 { add($3 == "u" ? $2 * 1e-6 : $2) }
        function add(w) { n++; sum += w; if (w > most) most = w }
        END {
            if (n) printf "; %.0f W on average, %.0f at most", sum / n, most
            else printf "; no power reading"
        }' "$scratch/power"
}

# measure JSON OPTION...: a bench, with the power meanwhile.
measure() {
    to=$1
    shift
    : >"$scratch/power"
    watcher=''
    [ -z "$power" ] || { watch_power & watcher=$!; }
    "$hearth" bench "$@" --gpu "$device" --json >"$to" 2>"$scratch/err"
    status=$?
    [ -z "$watcher" ] || { kill "$watcher" && wait "$watcher"; } 2>/dev/null
    grep '^hearth: warning: ' "$scratch/err" | grep -v quantization_version
    [ "$status" = 0 ] || fail "FAILED: $(tail -n 1 "$scratch/err")"
    return "$status"
}

# ---- parts --------------------------------------------------------------------------------------

about() {
    echo "hearth    $("$hearth" --version), commit $(git -C "$here" log -1 --format=%h 2>/dev/null || echo 'not known')"
    echo "machine   $(uname -srm), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs"
    "$hearth" devices | sed -n "\|^$device |,/^[^ ]/p" | sed '1b; /^[^ ]/d'
    has nvidia-smi && nvidia-smi --format=csv,noheader \
        --query-gpu=name,driver_version,pstate,clocks.max.sm,clocks.max.mem,pcie.link.gen.max,pcie.link.width.max
    [ -f "$bandwidth" ] || echo "no $bandwidth: bandwidth is not measured (ninja -C build gpu_bandwidth)"
    [ ! -f "$bandwidth" ] || "$bandwidth" "$device" >"$folder/bandwidth" || fail "FAILED: $bandwidth"
    [ ! -s "$folder/bandwidth" ] || awk '
        { printf "%s%s %.1f GB/s", (NR == 1 ? "copies    " : ", "), $1, $2 * 1e-9 }
        END { print "" }' "$folder/bandwidth"
    idle=$(sample_power | awk '{ print ($3 == "j" ? "not read" : ($3 == "u" ? $2 * 1e-6 : $2) " W") }')
    if [ "$power" ]; then echo "power     by $power; idle $idle"; else echo "power     no power reading"; fi
    "$hearth" doctor --gpu "$device" --json >"$folder/doctor.json" || bad=1
    sed -n 's/^ *"\([a-z]*\)": "\(.*\)",\{0,1\}$/\1 \2/p' "$folder/doctor.json" | awk '
        { word = $1; sub(/^[a-z]* /, "") }
        word == "name" { name = $0 }
        word == "text" { printf "%-10s%s\n", (name == "huge pages" ? "pages" : name), $0 }
        word == "fix" { print "          -> " $0 }
        word == "fault" { printf "known     %s.", $0 }
        word == "hearth" { printf " Here: %s.", $0 }
        word == "sources" { print " [" $0 "]" }'
}

# How far floats of A are from those of B, by the largest of them, as tests/golden counts it. Fails beyond LIMIT.
distance() {
    limit=$3
    od -An -v -tf4 -w4 "$1" >"$1.text"
    od -An -v -tf4 -w4 "$2" | paste "$1.text" - | awk -v limit="$limit" '
        NF != 2 || /[nN]/ { odd++; next }
        { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
        { size = $1 > size ? $1 : -$1 > size ? -$1 : size; n += d > 0 }
        END {
            printf "%d of %d logits differ", n + odd, NR
            if (odd) printf ", %d are no numbers or missing", odd
            else printf ", by %.1e of the largest", size ? most / size : 0
            exit odd || !(most <= limit * size)
        }'
}

# compare NAME MODEL IDS OPTION...: logits of the CPU beside the device's, which have its bits unless weights are floats.
# Where some are floats, a last digit may round an input of the quantised ones otherwise.
compare() {
    name=$1 model=$2 ids=$3
    shift 3
    cpu=$scratch/cpu.f32 gpu=$scratch/gpu.f32 err=$scratch/err floats=''
    case $name in *F32 | *F16) allowed=2e-4 ;; *) allowed=2e-2 ;; esac
    if ! "$hearth" logits "$model" --ids "$ids" -o "$cpu" --force --gpu none 2>"$err"; then
        why=$("$hearth" inspect "$model" 2>/dev/null | sed -n 's/^Cannot be run: //p')
        if [ "$why" ]; then echo "$name: not run by this version: $why"
        else fail "$name: FAILED on the CPU: $(cat "$err")"; fi
        return
    fi
    if ! "$hearth" logits "$model" --ids "$ids" -o "$gpu" --force --gpu "$device" "$@" --gpu-strict 2>"$err"; then
        floats=$(sed -n "s/.*would not give the CPU's bits: \([^;]*\).*/\1/p" "$err")
        case $floats in
        *"is F32" | *"is F16" | *"is BF16") ;;
        *)
            fail "$name: FAILED: $(cat "$err")"
            return
            ;;
        esac
        if ! "$hearth" logits "$model" --ids "$ids" -o "$gpu" --force --gpu "$device" "$@" 2>"$err"; then
            fail "$name: FAILED: $(cat "$err")"
            return
        fi
    fi
    cat "$err" >&2
    absent=$(sed -n 's/.*nothing of it lies on .*: //p' "$err")
    odd=$(grep '^hearth: warning: ' "$err" | grep -v 'quantization_version\|nothing of it lies')
    [ -z "$odd" ] || fail "$odd"
    if [ "$absent" ]; then echo "$name: on the CPU: $absent"
    elif cmp -s "$cpu" "$gpu"; then
        if [ "$floats" ]; then echo "$name: equal; not strict: $floats"; else echo "$name: equal, strict"; fi
    elif words=$(distance "$cpu" "$gpu" "$allowed") && [ "$floats" ]; then
        echo "$name: $words ($allowed is allowed); not strict: $floats"
    else fail "$name: DIFFERENT: $words"; fi
}

# same NAME OPTION...: greedy text of the CPU and of the device.
same() {
    name=$1
    shift
    "$hearth" run "$@" --greedy --gpu none >"$scratch/cpu.text" 2>/dev/null
    if ! "$hearth" run "$@" --greedy --gpu "$device" >"$scratch/gpu.text" 2>"$scratch/err"; then
        fail "$name: FAILED: $(tail -n 1 "$scratch/err")"
    elif [ -s "$scratch/cpu.text" ] && cmp -s "$scratch/cpu.text" "$scratch/gpu.text"; then echo "$name: equal"
    else fail "$name: DIFFERENT"; fi
}

bits() {
    same "greedy text, 64 tokens" -p "Once upon a time" -n 64
    n=0
    golden=$data/golden/quant
    for ids in "$golden"/llama-Q4_0.ids "$golden"/llama-Q4_K.ids "$golden"/llama-Q8_0.ids "$golden"/llama-F16.ids \
        "$golden"/*.ids; do
        name=$(basename "${ids%.ids}")
        { [ -f "$ids" ] && ! grep -qx "$name" "$scratch/done" 2>/dev/null; } || continue
        echo "$name" >>"$scratch/done"
        compare "$name" "${ids%.ids}.gguf" "$ids"
        n=$((n + 1))
    done
    [ "$n" -gt 0 ] || fail "FAILED: no golden files in $golden: python3 tests/data/make.py build/data makes them"
    ids=$scratch/ids
    seq 1 40 >"$ids"
    model=$(synth 15m-q4_0.gguf stories-15m --type q4_0) || return
    compare "synthetic 15M Q4_0" "$model" "$ids"
    model=$(synth 15mp-q4_0.gguf stories-15m --type q4_0 --packed --ffn drelu) || return
    compare "synthetic 15M Q4_0, divided" "$model" "$ids" --vram 25M --placement even -v
    grep -q 'of their neurons' "$err" || fail "FAILED: no layer was divided"
    [ ! "$small" ] || return 0
    model=$(synth 1b-q4_0.gguf llama-1b --type q4_0) || return
    compare "synthetic 1B Q4_0" "$model" "$ids"
}

# decode_of TYPE MODEL
decode_of() {
    [ "$2" ] || return
    measure "$scratch/bench" "$2" -p 0 -n "$n_token" --repeat "$n_repeat" -c 512 || return
    bytes=$(json "$scratch/bench" token_bytes)
    rate=$(awk '$1 == "memory" { print $2 }' "$folder/bandwidth" 2>/dev/null)
    where=$(on_device "$scratch/bench")
    speeds "$scratch/bench" | awk -v type="$1" -v model="$(basename "$2")" -v bytes="$bytes" -v rate="${rate:-0}" \
        -v where="$where" '
        { printf "%-5s %-14s %8.1f tokens/s, %.2f GB each: %.1f GB/s", type, model, $3, bytes * 1e-9, bytes * $3 * 1e-9
          if (rate > 0) printf ", %.2f of the bandwidth", bytes * $3 / rate
          printf "; %s", where }'
    watts_said
    echo
}
decode() {
    n_token=128 n_repeat=3
    [ "$small" ] && n_token=4 n_repeat=1
    decode_of Q4_0 "$(large)"
    if [ "$small" ]; then
        decode_of Q8_0 "$(synth 15m-q8_0.gguf stories-15m --type q8_0)"
        decode_of F16 "$(synth 15m-f16.gguf stories-15m --type f16)"
        echo "Q4_K, Q6_K: not with SIZE=small"
        return
    fi
    size=1b shape=llama-1b
    [ "$(room)" -lt 11 ] || size=4b shape=qwen3-4b
    for type in Q4_K Q8_0 F16 Q6_K; do
        low=$(echo "$type" | tr '[:upper:]' '[:lower:]')
        decode_of "$type" "$(synth "$size-$low.gguf" "$shape" --type "$low" --pure)"
        [ "${MODELS:-}" ] || rm -f "$models/$size-$low.gguf"
    done
}

prompts() {
    model=$(large) || return
    lengths=512,2048 n_repeat=2
    [ "$small" ] && lengths=64 n_repeat=1
    measure "$scratch/bench" "$model" -p "$lengths" -n 0 --repeat "$n_repeat" -c 4096 || return
    where=$(on_device "$scratch/bench")
    speeds "$scratch/bench" | while read -r p _ rate; do
        echo "prompt of $p: $rate tokens/s; $(basename "$model"), $where"
    done
    [ -z "$power" ] || echo "power: $(watts_said | sed 's/^; //')"
}

divided() {
    vram=${VRAM:-4G} p=512 n=32
    [ "$small" ] && vram=${VRAM:-30M} p=32 n=4
    model=$(packed) || return
    placement=$folder/divided.placement way=$folder/divided.placement
    rm -f "$placement"
    if "$hearth" plan "$model" --gpu "$device" --vram "$vram" -c 1024 -o "$placement" --json >"$scratch/plan" \
        2>"$scratch/err" &&
        [ -f "$placement" ]; then
        for key in '' _least _most _cpu; do json "$scratch/plan" "tokens_per_second$key"; done | xargs \
            printf 'the plan expects %s tokens/s (%s to %s), the CPU alone %s\n'
    elif grep -q 'nothing gains by lying there' "$scratch/err"; then
        echo "no plan: nothing gains by lying there"
        way=''
    else
        fail "FAILED: hearth plan: $(tail -n 1 "$scratch/err")"
        way=''
    fi
    for how in $way layers:999 even; do
        measure "$scratch/bench" "$model" --vram "$vram" --placement "$how" -c 1024 -p "$p" -n "$n" --repeat 1 ||
            continue
        where=$(on_device "$scratch/bench") words=$how
        [ "$how" != "$placement" ] || words='by the plan'
        speeds "$scratch/bench" | awk -v how="$words" -v where="$where" '
            $1 { p = $1 " tokens of a prompt " $3 "/s" }
            $2 { printf "%-12s generated %s/s, %s; %s", how, $3, p, where }'
        watts_said
        echo
    done
    echo "$(basename "$model"), --vram $vram; the CPU's part by $(nproc) CPUs"
}

# experts_of: of a bench, what became of the experts of its last test.
experts_of() {
    awk -F'[:,]' '/"chosen":/ { all = $2 } /"on_device":/ { there = $2 } /"upload_bytes":/ { bytes = $2 }
        /"waits":/ { waits = $2 }
        END { if (all) printf "%.0f %% of the chosen experts on the device, %.0f MB moved, %d waits for the CPU", \
                  100 * there / all, bytes * 1e-6, waits }' "$1"
}
experts() {
    n_token=128 n_repeat=2 lengths=512,2048 share=52
    [ "$small" ] && n_token=4 n_repeat=1 lengths=64 share=48
    model=$(mixture) || return
    vram=$(($(wc -c <"$model") * share / 100))
    decode_of whole "$model"
    "$hearth" plan "$model" --gpu "$device" --vram "$vram" -c 4096 --json >"$scratch/plan" 2>"$scratch/err" ||
        tail -n 1 "$scratch/err"
    for key in '' _least _most; do json "$scratch/plan" "tokens_per_second$key"; done | xargs \
        printf "with --vram $vram the plan expects %s tokens/s (%s to %s)\n"
    measure "$scratch/bench" "$model" --vram "$vram" -c 4096 -p "$lengths" -n "$n_token" --repeat "$n_repeat" || return
    speeds "$scratch/bench" | while read -r p n rate; do
        if [ "$n" -gt 0 ]; then echo "generated: $rate tokens/s"; else echo "prompt of $p: $rate tokens/s"; fi
    done
    echo "$(experts_of "$scratch/bench"); $(basename "$model")$(watts_said)"
    seq 1 40 >"$scratch/ids"
    compare "$(basename "$model"), divided" "$model" "$scratch/ids" --vram "$vram"
}

# Rows whose model the parts before it left out say so.
peers() {
    [ "${PEERS:-}" ] || { fail "FAILED: PEERS is not set" && return; }
    python3 "$here/peers.py" --hearth "$hearth" --gpu "$device" --table "$here/gpu-table.json" --models "$models" \
        --peer "$PEERS" --repeat 3 --seconds "$PART_SECONDS" 2>"$scratch/err" || fail "FAILED: $(tail -n 1 "$scratch/err")"
}

memory() {
    model=$(large) || return
    for vram in 1 1M; do
        said=$("$hearth" run "$model" --gpu "$device" --vram "$vram" -c 256 -n 2 --greedy -p "a" 2>&1 >/dev/null)
        [ $? = 1 ] || fail "FAILED: --vram $vram was not refused"
        echo "--vram $vram: $(echo "$said" | tail -n 1)"
    done
    said=$("$hearth" run "$model" --gpu "$device" --vram 4096G -c 256 -n 2 --greedy -p "a" 2>&1 >/dev/null) ||
        fail "FAILED: --vram 4096G"
    echo "--vram 4096G: $(echo "$said" | tail -n 1)"
}

# A part is run by this script again, in a group of its own, so that its time can be bounded. It waits for the program, which is
# told to end at the same moment and says what it has reached.
if [ "${GPU_PART:-}" ]; then
    trap 'exit 143' TERM
    # A program or a device that is not there is found before models are written.
    if said=$("$hearth" run --gpu "$device" -c 64 -n 1 -p a 2>&1 >/dev/null); then
        power=$(find_power)
        $GPU_PART && exit $bad
    else echo "FAILED: $said"; fi
    exit 1
fi

# ---- all of them --------------------------------------------------------------------------------

seconds_of() {
    case $1 in
    about) echo 30 ;; bits) echo 110 ;; decode) echo 110 ;; prompts) echo 50 ;; divided) echo 100 ;; experts) echo 130 ;;
    memory) echo 20 ;; peers) echo 240 ;;
    *) return 1 ;;
    esac
}
[ $# -gt 0 ] || set -- about bits decode prompts divided experts memory
sum=0
for part in "$@"; do
    seconds=$(seconds_of "$part") || { echo "gpu.sh: no part '$part'" >&2 && exit 2; }
    sum=$((sum + seconds))
done
[ -z "$small" ] || slow=2
all=${SECONDS_ALL:-$((sum * ${slow:-1}))}
case $device in auto | none) echo "gpu.sh: '$device' may be the CPU: expected a name from hearth devices" >&2 && exit 2 ;; esac
for tool in awk cmp od paste sed timeout; do
    has $tool || { echo "gpu.sh: no $tool on this machine" >&2 && exit 2; }
done
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

failed=0 share=0 begin=$(date +%s)
echo "bench/gpu.sh $device, $(date -u '+%Y-%m-%d %H:%M UTC')${small:+, SIZE=$small}; speeds are of synthetic weights" \
    >"$folder/report.txt"
for part in "$@"; do
    printf '\n== %s\n' "$part"
    now=$(date +%s) share=$((share + $(seconds_of "$part")))
    limit=$((all * share / sum - (now - begin)))
    [ "$limit" -ge 1 ] || limit=1
    rm -rf "$scratch" && mkdir "$scratch" || exit 1
    GPU_PART=$part PART_SECONDS=$limit timeout -k 5 "$limit" sh "$0" "$device" "$folder" >"$folder/$part.txt" 2>"$folder/$part.log" &
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
    [ "$status" = 0 ] && grep -q '^hearth: warning: .*\(on the CPU\|goes on with less\|less is placed there\)' "$folder/$part.txt" && status=1
    [ "$status" = 137 ] && status=124
    line="$part: $status, $(($(date +%s) - now)) s"
    [ "$status" = 124 ] && line="$line: its time was over"
    cat "$folder/$part.txt"
    echo "$line"
    { printf '\n== %s\n' "$line" && cat "$folder/$part.txt"; } >>"$folder/report.txt"
    [ "$status" = 0 ] || { failed=1 && tail -n 3 "$folder/$part.log" >&2; }
    [ -z "$signal" ] || break
done
printf '\nThe report: %s\n' "$folder/report.txt"
[ -z "$signal" ] || exit "$signal"
exit $failed
