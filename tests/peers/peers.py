"""The same answers as llama.cpp's: ids under its test vocabularies, chat formats, samplers, logits of random models, scores
of a reranker.

    python3 tests/peers/peers.py BUILD WORK SEED      (make test-peers)

BUILD has hearth, tests/peers_chat and tests/peers_sampler. WORK keeps llama.cpp v0.5.0, as the npm package node-llama-cpp
3.22.1 carries it, and its build; both are made where they are missing. SEED decides the weights and the ids of the random
models, and what samplers get. Each comparison is a case as in tests/support/cases.py; what Hearth does not support is listed
at the end, and no case.
"""
import glob
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
try:
    import numpy as np
except ModuleNotFoundError:  # a Python of another origin may lie before Debian's, which has python3-numpy
    if sys.executable == "/usr/bin/python3":
        raise
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
sys.path[:0] = [os.path.join(ROOT, "tests", "support"), os.path.join(ROOT, "tests", "data")]
sys.dont_write_bytecode = True
import cases  # noqa: E402: the path is set above
import gguf  # noqa: E402
import samplers  # noqa: E402

PACKAGE = "node-llama-cpp@3.22.1"
SHA512 = ("6e5b488a9b9699cd76dc7eed30880318a4ac4ab866865418795502e3c5d38d55"
          "bb5c624988927209d95333343f2e25a83e4183a5c2f816f883a60c3ba9f4e20f")  # of its archive
N_ID, SMALLEST, N_EXPERT = 96, 2e-5, 8
build, work, seed = (os.path.abspath(p) if i < 2 else int(p) for i, p in enumerate(sys.argv[1:4]))
source = os.path.join(work, "llama.cpp")
unsupported = {"vocabulary": [], "template": [], "model": []}


def call(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, timeout=3600, **options)


def must(*command, **options):
    done = call(*command, **options)
    if done.returncode:
        raise AssertionError(" ".join(map(str, command))[:300] + ": " + done.stderr.decode(errors="replace")[-2000:])
    return done


# ---- llama.cpp -----------------------------------------------------------------------------------------------------


def fetch():
    if os.path.isdir(source):
        return
    done, part = must("npm", "pack", "--silent", PACKAGE, cwd=work), source + ".part"
    archive = done.stdout.decode().split()[-1]
    with open(os.path.join(work, archive), "rb") as f:
        found = hashlib.sha512(f.read()).hexdigest()
    assert found == SHA512, f"{archive}: its SHA-512 is {found}, and {SHA512} is expected"
    must("tar", "xzf", archive, "package/llama/gitRelease.bundle", cwd=work)
    shutil.rmtree(part, ignore_errors=True)
    must("git", "clone", "-q", "package/llama/gitRelease.bundle", part, cwd=work)
    # GELU by a table of halves is no reference: it is off by some 1e-4. Without this line it is computed.
    must("sed", "-i", "/^#define GGML_GELU_FP16$/d", os.path.join(part, "ggml", "src", "ggml-cpu", "vec.h"))
    # Enough experts that choosing counts, and both kinds of Gemma 4, which are left out there.
    must("sed", "-i", "-E", "-e", r"s/(LLM_KV_EXPERT_COUNT, +uint32_t\()2/\18/; s/(LLM_KV_EXPERT_USED_COUNT, +uint32_t\()2/\13/",
         "-e", r"s/arch == LLM_ARCH_GEMMA4 \|\| (arch == LLM_ARCH_GEMMA4_ASSISTANT)/\1/",
         "-e", r"s/(SLIDING_WINDOW_PATTERN, )uint32_t\(5\)/\1std::vector<uint32_t>({1, 1, 1, 1, 0})/",
         "-e", r"s/^( *)case LLM_ARCH_GRANITE_MOE:$/&\n\1case LLM_ARCH_GEMMA4:/",
         os.path.join(part, "tests", "test-llama-archs.cpp"))
    os.rename(part, source)


def compile_llama():
    jobs = os.environ.get("JOBS", "2")
    if not os.path.exists(os.path.join(work, "build", "bin", "test-llama-archs")):
        print("building llama.cpp: some ten minutes on two cores", flush=True)
        must("cmake", "-S", source, "-B", "build", "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_BUILD_TESTS=ON", "-DLLAMA_CURL=OFF",
             cwd=work)
        must("cmake", "--build", "build", "-j", jobs, "--target", "test-llama-archs", cwd=work)
    library = os.path.join(work, "build", "bin")
    must("cc", "-std=c17", "-O2", "-I", os.path.join(source, "include"), "-I", os.path.join(source, "ggml", "include"),
         os.path.join(HERE, "llama.c"), "-o", os.path.join(work, "llama"), "-L" + library, "-lllama", "-lggml", "-lggml-base",
         "-Wl,-rpath," + library)


# ---- ids -----------------------------------------------------------------------------------------------------------


def compare_ids(path):
    """Texts of NAME.gguf.inp, each ended by a line of its own (of gemma-4, all but the last); NAME.gguf.out has the ids
    of one in each line."""
    with open(path + ".inp", "rb") as f:
        texts = f.read().removesuffix(b"\n__ggml_vocab_test__\n").split(b"\n__ggml_vocab_test__\n")
    with open(path + ".out", encoding="utf-8") as f:
        lines = f.read().split("\n")[:-1]
    assert len(texts) == len(lines) >= 40, (len(texts), len(lines))
    for text, line in zip(texts, lines):
        done = must(os.path.join(build, "hearth"), "tokenize", path, "--no-bos", input=text)
        assert done.stdout.split() == line.encode().split(), (text, done.stdout, line)
    print(f"     {os.path.basename(path)}: {len(texts)} texts")


def add_vocabularies():
    for path in sorted(glob.glob(os.path.join(source, "models", "ggml-vocab-*.gguf"))):
        name = os.path.basename(path)[len("ggml-vocab-"):-len(".gguf")]
        done = call(os.path.join(build, "hearth"), "tokenize", path, input=b"a")
        if done.returncode and any(said in done.stderr for said in (b"this version has tokenizers of kinds", b"known are")):
            unsupported["vocabulary"].append(name)
        elif os.path.exists(path + ".out"):
            add_case("ids of " + name, compare_ids, path)
        else:
            add_case(f"a text under {name}, which has no list of ids", must, os.path.join(build, "hearth"), "tokenize", path,
                     "-p", "a b")


# ---- chat ----------------------------------------------------------------------------------------------------------


def conversations():
    with open(os.path.join(ROOT, "tests", "data", "chat", "chatml.jsonl"), encoding="utf-8") as f:
        for case in map(json.loads, f):
            texts = [t for m in case["messages"] for t in (m["role"], m["content"])]
            if not any("\0" in t for t in texts):
                yield str(int(case["add_generation_prompt"])), *texts


def compare_format(name):
    n = 0
    for conversation in conversations():
        ours = must(os.path.join(build, "tests", "peers_chat"), "format", name, *conversation).stdout
        theirs = must(os.path.join(work, "llama"), "chat", name, *conversation).stdout
        assert ours == theirs, (conversation, ours, theirs)
        n += 1
    assert n >= 20, n


def render_template(path):
    """Conversations are rendered, or refused by the template's own words, by a template that knows of users at least."""
    n_rendered = 0
    for conversation in conversations():
        done = call(os.path.join(build, "tests", "peers_chat"), "template", path, *conversation)
        assert done.returncode in (0, 3), done.stderr
        n_rendered += done.returncode == 0 and bool(done.stdout)
    assert n_rendered > 0


def add_chat():
    for name in must(os.path.join(build, "tests", "peers_chat"), "formats").stdout.decode().split():
        if call(os.path.join(work, "llama"), "chat", name, "0").returncode == 0:
            add_case("format " + name, compare_format, name)
        else:
            print(f"llama.cpp has no format {name}")
    for path in sorted(glob.glob(os.path.join(source, "models", "templates", "*.jinja"))):
        name = os.path.basename(path)[:-6]
        if call(os.path.join(build, "tests", "peers_chat"), "template", path, "1", "user", "a").returncode == 4:
            unsupported["template"].append(name)
        else:
            add_case("template " + name, render_template, path)


# ---- samplers ------------------------------------------------------------------------------------------------------


def compare_samplers(kind):
    samplers.compare(kind, os.path.join(work, "llama"), os.path.join(build, "tests", "peers_sampler"),
                     os.path.join(source, "models", "ggml-vocab-llama-spm.gguf"), work, seed, must)


def add_samplers():
    for kind in samplers.KINDS:
        add_case("samplers: " + kind, compare_samplers, kind)


# ---- logits --------------------------------------------------------------------------------------------------------


def weights(name, shape):
    """Random values under which each part of a model counts: around 1 for norms and scales, of size 1 behind a product."""
    draw = np.random.RandomState((zlib.crc32(name.encode()) + 7919 * seed) % 2**32)
    z, last = draw.standard_normal(tuple(reversed(shape))), name.rsplit(".", 1)[-1]
    if "rope_freqs" in name or "rope_factors" in name:
        return np.exp(np.abs(z) / 2)
    if "ssm_a" in name.split("."):
        return -np.abs(0.6 + 0.3 * z)
    if "norm" in name and last == "weight":
        return 1 + z / 4
    if z.size == 1 or last == "scale":
        return 1 + z / 10
    if last == "bias":
        return z / 5
    if "token_embd" in name or "position_embd" in name or "sinks" in name:
        return z
    if len(shape) == 1:
        return z / 2
    return (2.0 if "ffn_gate_inp" in name else 1.3) * z / np.sqrt(shape[0])


def complete_gemma4(file):
    """What llama.cpp's writer leaves out."""
    embedding, width = file.tensors["blk.0.inp_gate.weight"].shape
    all_layers = width * file.kv["gemma4.block_count"][1]
    file.add("gemma4.embedding_length_per_layer_input", gguf.U32, width)
    file.add("gemma4.attention.shared_kv_layers", gguf.U32, 0)
    for name, shape in (("token_embd", (all_layers, file.kv["gemma4.vocab_size"][1])),
                        ("model_proj", (embedding, all_layers)), ("proj_norm", (width,))):
        file.add_tensor(f"per_layer_{name}.weight", np.zeros(shape[::-1]))


def dress(path, out):
    """The same model with other weights. The scales of tensors go, which published files of these types do not have, but
    for Gemma 4's own."""
    file = gguf.read(path)
    for key in [k for k, (kind, value) in file.kv.items() if kind == gguf.ARR and not value]:
        del file.kv[key]
    kept = ()
    if file.kv["general.architecture"][1] == "gemma4":
        complete_gemma4(file)
        kept = ("ffn_gate_inp.scale", "ffn_down_exps.scale")
    for name, tensor in list(file.tensors.items()):
        if name.endswith((".scale", ".input_scale")) and not name.endswith(kept):
            del file.tensors[name]
        else:
            file.add_tensor(name, weights(name, tensor.shape), tensor.type)
    with open(out, "wb") as f:
        f.write(file.to_bytes())


def largest_difference(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max()) if a.size == b.size else np.inf


def compare_logits(path, ids, ours):
    theirs = {}
    for way in ("whole", "single"):
        out = f"{path}.{way}"
        must(os.path.join(work, "llama"), "logits", path, ids, out, way)
        theirs[way] = np.fromfile(out, "<f4")
        os.remove(out)
    own = largest_difference(theirs["single"], theirs["whole"])
    found = largest_difference(np.fromfile(ours, "<f4"), theirs["whole"])
    print(f"     {os.path.basename(path)}: {found:.1e}; llama.cpp by itself {own:.1e}")
    assert theirs["whole"].size and np.isfinite(theirs["whole"]).all()
    assert found <= max(SMALLEST, N_EXPERT * min(own, 1e-2)), (found, own)


def add_models():
    """Of every architecture that llama.cpp can make at random; those that hearth refuses are listed at the end."""
    folder = os.path.join(work, f"models-{seed}")
    os.makedirs(folder, exist_ok=True)
    must(os.path.join(work, "build", "bin", "test-llama-archs"), "-s", seed, "-o", folder)
    draw, ids = random.Random(seed), os.path.join(folder, "ids")
    with open(ids, "w", encoding="utf-8") as f:
        print(*(draw.randrange(128) for _ in range(N_ID)), file=f)
    paths = sorted(path for path in glob.glob(os.path.join(folder, "*.gguf")) if not path.endswith("-dressed.gguf"))
    assert len(paths) > 100, len(paths)
    for path in paths:
        add_model(os.path.basename(path)[:-5], path, path[:-5] + "-dressed.gguf", ids)


def add_model(name, path, dressed, ids):
    def logits():
        return call(os.path.join(build, "hearth"), "logits", dressed, "--ids", ids, "--kv", "f32", "--gpu", "none", "-o",
                    dressed + ".ours", "--force")

    def compare():
        done = logits()
        assert done.returncode == 0, done.stderr
        compare_logits(dressed, ids, dressed + ".ours")

    dress(path, dressed)
    tried = logits()
    if tried.returncode and any(said in tried.stderr for said in (b"supported", b"has no experts here", b"is not used by architecture")):
        unsupported["model"].append(name)
    else:
        add_case("logits of " + name, compare)


def compare_scores():
    """The classes of the reranker of golden/rank, which test_rank.c compares with Hearth's."""
    path, out = os.path.join(build, "data", "golden", "rank", "qwen3"), os.path.join(work, "rank.f32")
    must(os.path.join(work, "llama"), "rank", path + ".gguf", path + ".ids", out)
    found = largest_difference(np.fromfile(out, "<f4"), np.fromfile(path + ".f32", "<f4"))
    print(f"     {found:.1e}")
    assert found <= SMALLEST, found


# ---- blocks --------------------------------------------------------------------------------------------------------


def compare_blocks(path):
    """The kept blocks and hashes, which test_codec.c compares with Hearth's floats, are still those of llama.cpp."""
    kind, out = os.path.basename(path)[len("blocks-"):-len(".bin")], os.path.join(work, "blocks.bin")
    must(os.path.join(work, "llama"), "blocks", kind.lower(), out)
    with open(path, "rb") as kept, open(out, "rb") as made:
        assert kept.read() == made.read(), kind


def add_blocks():
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", "data", "golden", "blocks-*.bin"))):
        add_case("floats of " + os.path.basename(path), compare_blocks, path)


# ---- cases ---------------------------------------------------------------------------------------------------------


def add_case(name, function, *args):
    def run():
        function(*args)
    run.__name__ = name
    cases.case(run)


def main():
    os.makedirs(work, exist_ok=True)
    fetch()
    compile_llama()
    add_vocabularies()
    add_chat()
    add_samplers()
    add_models()
    add_blocks()
    add_case("scores of a reranker", compare_scores)
    for what, names in unsupported.items():
        print(f"not supported, {what}: {', '.join(names) or 'none'}", flush=True)
    cases.run_cases("peers.py")


if __name__ == "__main__":
    main()
