#!/usr/bin/env python3
"""Command lists, dispatches, barriers, waits and bytes over the bus of one token and of a prompt of 512 tokens, of
Hearth and of llama.cpp's Vulkan back end on the same file, counted by one layer (tests/device/layer.c) over lavapipe.

    bench/gpu_counts.py BUILD FOLDER [SHAPE...]

BUILD has hearth, tests/libhearth_test_layer.so and tests/layer. FOLDER keeps the synthetic models; if it has
node_modules with node-llama-cpp and its Vulkan binaries (npm i --ignore-scripts node-llama-cpp@3.21.1
@node-llama-cpp/linux-x64-vulkan@3.21.1), llama.cpp is counted too. The layer lists memory as a card with 8 GB has it,
and accelerated dot products of bytes; dispatches of more than one workgroup are counted and do not run, so results mean
nothing, and a device that is measured seems to be fast: no step is divided by its time. A shape of 7B is still too much
for lavapipe. A count is the difference of two runs, so that loading is in neither; a run before them measures."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = "kind=discrete memory=nvidia dot=2 skip=1"
COLUMNS = ["submits", "lists", "dispatches", "barriers", "waits", "up", "down"]
N_TOKEN, N_TIMES = 8, 2


def counted(build, command, cwd=None, cache=""):
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "count")
        env = dict(os.environ, VK_INSTANCE_LAYERS="VK_LAYER_HEARTH_test", HEARTH_LAYER=f"{WORDS} count={path}",
                   VK_LAYER_PATH=os.path.join(build, "tests", "layer"), VK_LOADER_DRIVERS_SELECT="lvp*",
                   HEARTH_CACHE=cache, GGML_VK_VISIBLE_DEVICES="0", GGML_VK_DISABLE_HOST_VISIBLE_VIDMEM="1")
        done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, timeout=1200)
        if done.returncode:
            sys.exit(f"{command}: {done.stderr.decode(errors='replace')[-500:]}")
        with open(path) as f:
            return {word: int(n) for word, n in (line.split() for line in f)}


def difference(build, command_of, few, many, n, cwd=None, cache=""):
    """What one of n more does."""
    a, b = (counted(build, command_of(x), cwd, cache) for x in (few, many))
    return {word: (b[word] - a[word]) / n for word in COLUMNS}


def hearth(build, model, more):
    def bench(kind, times):
        return [os.path.join(build, "hearth"), "bench", model, "--gpu", "vulkan:0", "-c", "1024", "--batch", "512",
                "--repeat", str(times), *kind, *more]
    token = ["-p", "0", "-n", str(N_TOKEN)]
    prompt = ["-p", "512", "-n", "0"]
    with tempfile.TemporaryDirectory() as cache:
        counted(build, bench(token, 1), cache=cache)
        return (difference(build, lambda x: bench(token, x), 1, 1 + N_TIMES, N_TIMES * N_TOKEN, cache=cache),
                difference(build, lambda x: bench(prompt, x), 1, 1 + N_TIMES, N_TIMES, cache=cache))


def llama(build, folder, model, layers):
    def run(n_prompt, times, n_token):
        return ["node", os.path.join(HERE, "gpu_counts.mjs"), model,
                *map(str, (layers, n_prompt, times, n_token))]
    return (difference(build, lambda x: run(0, 0, x), 2, 2 + N_TOKEN, N_TOKEN, folder),
            difference(build, lambda x: run(512, x, 0), 1, 1 + N_TIMES, N_TIMES, folder))


def show(model, what, placement, counts):
    for of, c in zip(("a token", "512 tokens"), counts):
        bytes_of = [f"{c[way] / 1e6:.2f}" if c[way] >= 1e5 else f"{c[way] / 1e6:.3f}" for way in ("up", "down")]
        print(f"| {model} | {placement} | {what} | {of} | "
              + " | ".join([f"{c[w]:g}" for w in COLUMNS[:5]] + bytes_of) + " |", flush=True)


def main():
    build, folder = map(os.path.abspath, sys.argv[1:3])
    has_peer = os.path.isdir(os.path.join(folder, "node_modules", "node-llama-cpp"))
    print("| shape | on the GPU | | of | submissions | command lists | dispatches | barriers | waits | MB up "
          "| MB down |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for shape in sys.argv[3:] or ["llama-1b"]:
        for packed in (False, True):
            model = os.path.join(folder, f"{shape}{'-packed' * packed}.gguf")
            options = ["--packed", "--ffn", "drelu"] if packed else []
            if not os.path.exists(model):
                subprocess.run([os.path.join(build, "hearth"), "synth", shape, model, "--type", "q4_0", *options],
                               check=True, capture_output=True)
            half = {"llama-1b": 8, "stories-15m": 3}.get(shape, 16)
            if packed:
                vram = ["--vram", str(os.path.getsize(model) * 3 // 4)]
                show(shape, "Hearth", "all, divided evenly", hearth(build, model, [*vram, "--placement", "even"]))
                continue
            for layers in (99, half):
                where = "all" if layers == 99 else f"{layers} layers"
                show(shape, "Hearth", where, hearth(build, model, ["--placement", f"layers:{layers}"]))
                if has_peer:
                    show(shape, "llama.cpp", where, llama(build, folder, model, layers))


main()
