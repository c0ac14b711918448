"""Mixtures of experts on the command line: what inspect says of them, and commands about single neurons, which refuse
them. Called by CTest with the program's path. Python 3, standard library only."""

import argparse
import json
import os
import re
import sys

from program import HEARTH, QUICK_GPU, SOURCE, cases, case, check, hearth, good, bad, least_ram, scratch, data

MIXTURES = ["mixtral", "mixtral-drelu", "qwen2moe", "ernie4_5-moe", "dots1", "gpt-oss", "smallthinker-4b"]


sys.path.append(os.path.join(SOURCE, "bench"))
import cards  # noqa: E402

CARD = os.path.join(SOURCE, "bench", "devices", "%s.sim")


def mixture(name):
    return data(f"golden/arch/{name}.gguf")


def inspected(path):
    return json.loads(good("inspect", path, "--json", "--all").stdout)


# ---- devices -------------------------------------------------------------------------------------------------


@case
def all_of_a_model_lies_on_a_device_that_can_compute_it():
    path = data("golden/arch/llama-gqa.gguf")
    ops = json.loads(good("inspect", path, "--program", "--json").stdout)["program"]
    first = sum(op["bytes"] for op in ops if op.get("layer") == 0) / sum(op["bytes"] for op in ops)
    for placement, share in ("all", 1.0), ("layers:1", first):
        done = json.loads(good("run", path, "-p", "a", "-n", "1", "--gpu", "null", "--placement", placement, "--json").stdout)
        check(abs(done["gpu"]["product_share"] - share) < 1e-5, placement, done["gpu"], share)
    bad(1, "all", "run", path, "-n", "1", "--gpu", "null", "--placement", "most")


# ---- inspect ---------------------------------------------------------------------------------------------



@case
def inspect_shows_the_operations_of_a_model():
    path = mixture("qwen3moe")
    ops = json.loads(good("inspect", path, "--program", "--json").stdout)["program"]
    layer = [op["operation"] for op in ops if op.get("layer") == 1]
    check(layer == ["norm", "product", "heads", "attend", "product", "norm", "route", "experts", "settle"], layer)
    shown = {t["name"]: t for t in inspected(path)["tensors"]}
    experts = next(op for op in ops if op["operation"] == "experts")
    used = sum(shown[name]["dims"][0] * shown[name]["dims"][1] for name in experts["weights"]) * 3  # of 8
    check(experts["multiply_adds"] == used and experts["bytes"] == 4 * used, experts)
    check(sorted(w for op in ops for w in op["weights"]) ==
          sorted(n for n, t in shown.items() if len(t["dims"]) > 1 and "gate_inp" not in n and "token_embd" not in n), "matrices")
    text = good("inspect", path, "--program").stdout.decode()
    check(text.count("| product |") == 5 and f"{len(ops)} operations" in text, text)


@case
def inspect_counts_what_a_token_uses():
    for name in MIXTURES:
        path = mixture(name)
        shown = inspected(path)
        keys = {v["key"].partition(".")[2]: v.get("value") for v in shown["metadata"]}
        n, used = keys["expert_count"], keys["expert_used_count"]
        weights = active = read = 0
        for t in shown["tensors"]:
            if "attn_output.bias" in t["name"] and name.startswith("ernie"):
                continue  # no logit depends on it
            size, part = 1, (1, 1)
            for d in t["dims"]:
                size *= d
            weights += size
            if "_exps.weight" in t["name"]:
                part = (used, n)
            active += size * part[0] // part[1]
            if t["name"] == "token_embd.weight" and any(o["name"] == "output.weight" for o in shown["tensors"]):
                part = (1, t["dims"][1])
            read += t["bytes"] * part[0] // part[1]
        experts = shown["model"]["experts"]
        check(shown["model"]["n_parameter"] == weights, name, shown["model"]["n_parameter"], weights)
        check(experts["n_parameter_active"] == active < weights, name, experts, active)
        check(experts["token_bytes"] == read, name, experts, read)
        layers = {t["name"].split(".")[1] for t in shown["tensors"] if "_exps.weight" in t["name"]}
        check((experts["n_expert"], experts["n_used"], experts["n_layer"]) == (n, used, len(layers)), name, experts)
        done = good("bench", path, "-p", "0", "-n", "2", "--repeat", "1", "--gpu", "none", "--json")
        check(json.loads(done.stdout)["token_bytes"] == read, name, done.stdout, read)
    text = good("inspect", mixture("ernie4_5-moe")).stdout.decode()
    check("8 of 16 neurons in 2 layers, 3 used for a token by softmax, and a shared one of 24 neurons\n" in text, text)
    check("0.1 M, of which a token uses 0.1 M; it reads 0.28 MiB\n" in text, text)
    check("experts" not in inspected(data("golden/arch/llama-gqa.gguf"))["model"], "a dense model")


@case
def inspect_shows_recurrent_layers_and_their_states():
    path = data("golden/arch/qwen35.gguf")
    model, run = (inspected(path)[part] for part in ("model", "run"))
    check(model["mixers"] == ["delta_net"] * 3 + ["attention", "delta_net"], model["mixers"])
    # 4 layers: 3 inputs of 128 channels; for 2 heads of keys 16 keys of a chunk, twice a state, values and decays
    check(run["state_bytes"] == 4 * 4 * (3 * 128 + 2 * (16 * 32 + 2 * (16 * 16 + 16 * 32 + 32))), run["state_bytes"])
    text = good("inspect", path).stdout.decode()
    check("recurrent      4 of 5 layers: gated DeltaNet, 4 heads of 16\n" in text, text)
    check("(10 copies of " in text, text)
    check(inspected(data("golden/arch/lfm2.gguf"))["model"]["mixers"] == ["short_conv", "attention", "short_conv"], "lfm2")
    check("latent attention of rank 24, keys of 20, values of 10\n" in
          good("inspect", data("golden/arch/deepseek2.gguf")).stdout.decode(), "deepseek2")
    plain = inspected(data("golden/arch/llama-gqa.gguf"))
    check(plain["run"]["state_bytes"] == 0 and set(plain["model"]["mixers"]) == {"attention"}, plain)


@case
def inspect_says_that_a_model_is_a_reranker():
    path = data("golden/rank/qwen3.gguf")
    check(inspected(path)["model"]["reranker"] == {"n_class": 2, "labels": ["yes", "no"]}, inspected(path)["model"])
    text = good("inspect", path).stdout.decode()
    check('  reranker       a head of 2 classes: "yes", "no"; the first one is the score of a document at /v1/rerank of hearth serve\n' in text, text)
    check("reranker" not in inspected(data("golden/arch/qwen3.gguf"))["model"], "a model without a head")


@case
def inspect_offers_no_selector_of_neurons_for_mixtures():
    for name in MIXTURES:
        model = inspected(mixture(name))["model"]
        check(model["sparsity_modes"] == [] and model["selectors"] == ["dense"], name, model)
        text = good("inspect", mixture(name)).stdout.decode()
        check("with a file of" not in text and "gate" not in text, text)
        for selector in ["gate", "predictor", "threshold"]:
            bad(1, "mixtures of", "run", mixture(name), "--selector", selector, "-p", "a", "-n", "1", "--gpu", "none")


@case
def estimated_speeds_count_the_experts_of_a_token():
    names = ["llama-Q4_K", "mixture-Q4_K_M"]
    os.mkdir(scratch("models"))
    for name in names:
        os.symlink(data(f"golden/quant/{name}.gguf"), scratch(f"models/{name}.gguf"))
    env = {"HEARTH_MODELS": scratch("models"), "HOME": scratch(), "HF_HUB_CACHE": scratch("none"),
           "OLLAMA_MODELS": scratch("none")}
    listed = json.loads(good("list", "--json", "--gpu", "none", env=env).stdout)["models"]
    speeds = {m["name"]: m["estimated_tokens_per_second"] for m in listed if m["name"] in names}
    rates = []  # of memory, by which both are estimated
    for name in names:
        path = scratch(f"models/{name}.gguf")
        done = good("bench", path, "-p", "0", "-n", "2", "--repeat", "1", "--gpu", "none", "--json")
        rates.append(json.loads(done.stdout)["token_bytes"] * speeds[name])
    check(0.8 < rates[0] / rates[1] < 1.25, speeds, rates)


# ---- commands about single neurons ---------------------------------------------------------------------------


@case
def commands_about_neurons_refuse_mixtures_before_they_read_weights():
    text, out = scratch("text", b"Once upon a time. " * 100), scratch("out")
    for name in ["mixtral", "mixtral-drelu", "dots1"]:  # SiLU, dReLU, and one with a dense layer
        with open(mixture(name), "rb") as f:
            content = bytearray(f.read())
        content[-64:] = b"\xff" * 64  # NaN, which a model that is loaded or run is refused for
        path = scratch("broken.gguf", bytes(content))
        bad(1, "finite", "run", path, "-n", "1", "-p", "a", "--gpu", "none")
        for command, *more in [("thresholds", "-f", text, "-o", out), ("predictors", "-f", text, "-o", out), ("study", "-f", text, "--json"),
                               ("pack", "-o", out)]:
            line = bad(1, "its layers are mixtures of ", command, path, *more)
            name = "pack without --for-storage" if command == "pack" else command
            check(f"; hearth {name} is for models of dense layers" in line, line)
            check(hearth(command, path, *more).stderr.count(b"\n") == 1, command, "prints more than the refusal")


def recorded(name, *more):
    """The figures of a trace, and its file."""
    text, out = scratch("text", b"Once upon a time there was a cat, and the cat was small. " * 60), scratch(name + ".trace")
    words = ["profile", mixture(name), "-f", text, "-o", out, "-c", "32", *more]
    return json.loads(good(*words, "--json").stdout), out, words


@case
def profiles_of_mixtures_record_the_experts_of_tokens():
    shown, out, words = recorded("dots1", "--tokens", "100")
    check(shown["trace"] == out and shown["tokens"] == 96 and shown["n_ctx"] == 32 and shown["settings"] == "kv f16", shown)
    dense, *layers = shown["layers"]
    check(dense == {"experts": 0, "experts_used": 0} and len(layers) == 2, shown)
    for layer in layers:
        check(layer["experts"] == 8 and layer["experts_used"] == 3, layer)
        check(1 / 8 <= layer["most_used_10"] <= layer["most_used_20"] <= layer["most_used_40"] <= 1, layer)
        check(0 <= layer["sticky"] <= 1 and layer["reuse_distance"] >= 1 and 0 <= layer["uploads_40"] <= 3, layer)
        check(0 < layer["hit_rate_40"] <= 1 and layer["hit_all_40"] <= layer["hit_rate_40"], layer)
    with open(out, "rb") as f:
        content = f.read()
    table = good(*words, "-t", "3", "--batch", "7").stdout.decode()
    check("| 1 | 8 | 3 |" in table and "96 tokens in chunks of 32" in table, table)
    with open(out, "rb") as f:
        check(f.read() == content, "another trace with other threads")
    side = inspected(out)["sidecar"]
    check(side["kind"] == "trace" and side["model_hash"] == shown["model_hash"] and side["tokens"] == 96, side)
    check(side["layers"] == 3 and side["experts"] == [0, 8, 8] and side["n_ctx"] == 32, side)
    text = good("inspect", out).stdout.decode()
    check("3 of 0 to 8 experts" in text and "96 tokens in chunks of 32" in text, text)
    bad(1, "a trace of experts, not a model", "run", out, "-n", "1")


@case
def options_of_profiles_suit_the_model():
    text = scratch("text", b"Once upon a time. " * 40)
    for name, option, words in [("dots1", "--samples", "models without experts"), ("arcee", "--tokens", "mixtures of experts")]:
        bad(1, f"{option} is for {words}", "profile", mixture(name), "-f", text, "-o", scratch("out"), "-c", "32", option, "64")
    bad(1, "fewer than a chunk of 32", "profile", mixture("dots1"), "-f", text, "-o", scratch("out"), "-c", "32", "--tokens", "9")
    other = scratch("other.gguf")
    good("profile", mixture("arcee"), "-f", text, "-o", other, "-c", "32")
    good("profile", mixture("dots1"), "-f", text, "-o", other, "-c", "32")  # a profile replaces a profile
    check(inspected(other)["sidecar"]["kind"] == "trace", other)
    good("profile", mixture("arcee"), "-f", text, "-o", other, "-c", "32")
    check(inspected(other)["sidecar"]["kind"] == "profile", other)
    bad(2, "", "profile", mixture("dots1"), "-f", text, "-o", text, "-c", "32")


@case
def recorded_experts_are_replayed_by_bench():
    shown, out, _ = recorded("qwen3moe")
    run = ["bench", mixture("qwen3moe"), "-p", "0", "-n", "4", "-t", "1", "--gpu", "none", "--repeat", "1"]
    drawn = json.loads(good(*run, "--route", f"trace={out},foreseen=0.5,seed=3", "--json").stdout)["drawn_experts"]
    first = drawn.pop("first_token")
    check(drawn == {"trace": out, "of_another_model": False, "tokens": shown["tokens"], "foreseen": 0.5, "seed": 3}, drawn)
    check(0 <= first < shown["tokens"], first)
    text = good(*run, "--route", f"trace={out},seed=3").stdout.decode()
    check(f"Experts recorded, not chosen by the model: trace {out}, its {shown['tokens']} tokens from number {first} on" in text, text)
    with open(mixture("qwen3moe"), "rb") as f:
        content = bytearray(f.read())
    content[-5] ^= 1  # another model of the same shape
    run[1] = scratch("other.gguf", bytes(content))
    text = good(*run, "--route", f"trace={out}").stdout.decode()
    check(f"trace {out} of another model, its" in text, text)
    check(json.loads(good(*run, "--route", f"trace={out}", "--json").stdout)["drawn_experts"]["of_another_model"], "the same")
    run[1] = mixture("dots1")
    bad(1, "the trace has 2 layers", *run, "--route", f"trace={out}")
    for wrong in [f"trace={out},sticky=0.5", f"uniform,trace={out}", f"file=x,trace={out}", "trace="]:
        bad(2, "bench --route", *run, "--route", wrong)
    bad(1, "No such file", *run, "--route", f"trace={scratch('none')}")
    bad(1, "not 'hearth.trace'", *run, "--route", f"trace={mixture('dots1')}")


@case
def compare_of_mixtures_has_no_table_of_layers():
    text = scratch("text", b"Once upon a time. " * 100)
    args = ["compare", mixture("gpt-oss"), "--kv", "q8_0", "-f", text, "-c", "64", "--chunks", "1"]
    shown = good(*args).stdout.decode()
    check("KL divergence: mean" in shown and "CETT" not in shown and "|" not in shown, shown)
    found = json.loads(good(*args, "--json").stdout)
    check(found["positions_scored"] > 0 and found["kl_mean"] > 0 and not {"layers", "all_layers"} & set(found), found)
    done = good("run", mixture("gpt-oss"), "--kv", "q8_0", "-p", "a", "-n", "20", "--check", "10", "--gpu", "none")
    check(b"check of 10 tokens: selector dense" in done.stderr and b"recall" not in done.stderr, done.stderr)


# ---- quantize --------------------------------------------------------------------------------------------------


@case
def quantize_names_the_matrices_of_mixtures_that_fit_no_block():
    out = scratch("out.gguf")
    done = good("quantize", mixture("mixtral"), out, "q8_0")  # 64 wide, experts of 16 neurons
    check(b": tensor 'blk.0.ffn_down_exps.weight': rows of 16 weights do not fit blocks of Q8_0: F16 instead; "
          b"likewise 1 more\n" in done.stderr and done.stderr.count(b"warning") == 1, done.stderr)
    types = {t["name"].split(".", 2)[-1]: t["type"] for t in inspected(out)["tensors"]}
    check(types["ffn_gate_exps.weight"] == types["ffn_up_exps.weight"] == types["attn_q.weight"] == "Q8_0", types)
    check(types["ffn_down_exps.weight"] == "F16" and types["ffn_gate_inp.weight"] == "F32", types)
    good("run", out, "-p", "a", "-n", "2", "--gpu", "none")


@case
def quantize_gives_experts_alone_mxfp4():
    out = scratch("out.gguf")
    good("quantize", mixture("mixtral"), out, "mxfp4_moe")
    types = {t["name"].split(".", 2)[-1]: t["type"] for t in inspected(out)["tensors"]}
    check(types["ffn_gate_exps.weight"] == types["ffn_up_exps.weight"] == "MXFP4", types)
    check(types["attn_q.weight"] == types["attn_output.weight"] == "Q8_0", types)
    good("run", out, "-p", "a", "-n", "2", "--gpu", "none")


# ---- devices ---------------------------------------------------------------------------------------------------


@case
def experts_are_divided_by_plan():
    """What fits of them lies on the device, the others are the host's, and the text is the CPU's."""
    gpu, model = "sim:" + scratch("quick.gpu", QUICK_GPU.encode()), data("golden/quant/mixture-Q4_K_M.gguf")
    words = ["-c", "128", "--batch", "16", "--gpu", gpu]
    whole = json.loads(good("plan", model, *words, "--json").stdout)
    check(whole["experts"] == [4, 4] and whole["fits"] is True, whole)
    text = ["run", model, "-p", "a", "-n", "12", "--greedy", "-c", "128"]
    wanted = good(*text, "--gpu", "none").stdout
    n_divided = 0
    for part in [0.9, 0.75, 0.6]:
        vram = str(int(whole["vram_bytes"] * part))
        shown = json.loads(good("plan", model, *words, "--vram", vram, "--json").stdout)
        check(shown["vram_bytes"] <= int(vram) and shown["host_bytes"] > whole["host_bytes"], shown)
        n_divided += any(0 < n < 4 for n in shown["experts"])
        for placement in ["plan", "even"]:
            done = good(*text, *words[2:], "--vram", vram, "--placement", placement)
            check(done.stdout == wanted, vram, placement, done.stderr)
    check(n_divided > 0, "none was divided")
    plain = good("plan", model, *words, "--vram", vram).stdout
    check(b"| layers | experts there |" in plain and b"hearth pack" not in plain, plain)


@case
def experts_of_layers_are_kept_on_the_cpu():
    model = data("golden/quant/mixture-Q4_K_M.gguf")
    text = ["run", model, "-p", "a", "-n", "12", "--greedy", "-c", "128"]
    wanted = json.loads(good(*text, "--gpu", "none", "--json").stdout)["text"]
    shares = {}
    for words in [[], ["-ncmoe", "0"], ["--n-cpu-moe", "1"], ["-ncmoe", "2"], ["--cpu-moe"], ["-ngl", "99", "-cmoe"], ["-ncmoe", "all"]]:
        done = json.loads(good(*text, "--gpu", "null", *words, "--json").stdout)
        check(done["text"] == wanted and done["gpu"]["layers"] == 2 and done["gpu"]["head"], words, done)
        shares[" ".join(words)] = done["gpu"]["product_share"]
    check(shares[""] == shares["-ncmoe 0"] == 1 and shares["--n-cpu-moe 1"] > shares["-ncmoe 2"] > 0, shares)
    check(shares["-ncmoe 2"] == shares["--cpu-moe"] == shares["-ngl 99 -cmoe"] == shares["-ncmoe all"], shares)
    bad(2, "--n-cpu-moe and --placement contradict", *text, "-ncmoe", "1", "--placement", "even")
    bad(2, "--cpu-moe and --n-cpu-moe contradict", *text, "-cmoe", "-ncmoe", "1")


@case
def bench_counts_the_experts_of_each_sample():
    run = ["bench", data("golden/quant/mixture-Q4_K_M.gguf"), "-p", "0", "-n", "4", "--repeat", "3", "--json"]
    shown = json.loads(good(*run, "--gpu", "null", "--n-cpu-moe", "1").stdout)
    samples, whole = shown["tests"][0]["experts"], shown["experts"]
    check([s["waits"] for s in samples] == [4] * 3 and whole["waits"] == 16, shown)  # one layer; a sample is not shown
    for s in samples:
        check(s["chosen"] == whole["chosen"] / 4 > 0 and s["on_device"] == s["uploads"] == s["upload_bytes"] == 0, shown)
    for words in [["--gpu", "null"], ["--gpu", "none"]]:
        shown = json.loads(good(*run, *words).stdout)
        check("experts" not in shown and "experts" not in shown["tests"][0], words, shown)


# A card and a host as slow as a small mixture needs them, so that its bytes take most of the time.
SLOW_GPU = ("name = slow\nvram_bytes = 1G\nbandwidth = 2e8\npcie_up = 4e7\npcie_down = 4e7\npcie_latency_us = 2\n"
            "host_bandwidth = 6e7\ndispatch_us = 8\nsubmit_us = 20\nwake_us = 10\nflops = 1e15\njitter = 0\nseed = 1\n"
            "clock = virtual\n")


@case
def a_gpu_without_values_keeps_the_clock_of_one_that_computes():
    """Hits, moves and seconds of drawn experts, in all ways that a layer is divided; and nothing else is computed there."""
    slow, idle = ("sim:" + scratch(name, text.encode()) for name, text in (("slow.sim", SLOW_GPU), ("idle.sim", SLOW_GPU + "values = none\n")))
    model, n_way, room = scratch("eight.gguf"), set(), ["-c", "128", "--batch", "16"]
    good("quantize", mixture("olmoe"), model, "q8_0")
    whole = json.loads(good("plan", model, "--gpu", slow, *room, "--json").stdout)["vram_bytes"]
    for place in ["--cpu-moe"], ["--vram", str(int(whole * 0.9))], ["--vram", str(int(whole * 0.8)), "--placement", "even"]:
        for route in "uniform,sticky=0.3", "uniform,sticky=0.9":
            words = ["bench", model, *place, *room, "--route", route, "-p", "4", "-n", "24", "--repeat", "2", "--json", "--gpu"]
            done = good(*words, idle)
            one, other = json.loads(good(*words, slow).stdout), json.loads(done.stdout)
            check(b"slow without values computes nothing" in done.stderr and "without values" in other["gpu"]["device"], done.stderr)
            for x, y in zip(one["tests"], other["tests"]):
                check(x["tokens_per_second"] == y["tokens_per_second"] and x["experts"] == y["experts"], words, x, y)
            n_way |= {e["uploads"] > 0 for e in other["tests"][-1]["experts"]}
    check(n_way == {False, True}, n_way)
    for words in ["run", model, "-p", "a"], ["bench", model, "-n", "1"], ["perplexity", model, "-f", CARD % "8gb"]:
        bad(1, "without values computes nothing", *words, "--gpu", idle)
    check(b"values = none" in hearth("doctor", "--gpu", idle).stdout + hearth("doctor", "--gpu", idle).stderr, "doctor")
    check(json.loads(good("plan", model, "--gpu", idle, *room, "--json").stdout)["vram_bytes"] == whole, "plan")


def rate_of(*words):
    shown = json.loads(good(*words, "--json").stdout)
    return shown["tests"][0]["tokens_per_second"][0] if "tests" in shown else shown["tokens_per_second"]


@case
def a_plan_is_not_faster_than_the_clock_for_drawn_experts():
    """Nor much slower. Experts that move take most of the host's memory bandwidth; tokens miss different numbers of experts, and
    on the second card device and host take about as long."""
    model, plan, placed, far = *(scratch("thinker" + end) for end in (".gguf", ".plan", ".placement")), []
    good("synth", "smallthinker-4b", model, "--layers", "3", "-q")
    for bandwidth in "360e9", "40e9":
        with open(CARD % "rtx3060-12gb", encoding="ascii") as f:
            text = f.read() + "\nvalues = none\n"
        for key, value in ("bandwidth", bandwidth), ("pcie_up", "6e9"), ("host_bandwidth", "8e9"):
            text = re.sub(f"(?m)^{key} = .*$", f"{key} = {value}", text)
        card = ["--gpu", "sim:" + scratch("card.sim", text.encode()), "-c", "512"]
        good("plan", model, *card, "-o", plan, "--force")
        for n_slot, sticky in (8, 0.6), (12, 0.3), (16, 0.6), (20, 0.6):
            cards.write_placement(cards.Table(argparse.Namespace(hearth=HEARTH), ""), plan, [n_slot] * 3, False, placed)
            words = [model, *card, "--route", f"uniform,sticky={sticky}", "--placement", placed]
            clock = rate_of("bench", *words, "-p", "0", "-n", "256", "--repeat", "1", "--io", "mmap")
            far.append((bandwidth, n_slot, sticky, rate_of("plan", *words) / clock))
    check(all(0.85 <= ratio <= 1.02 for *_, ratio in far), far)
    own = [model, *card, "--route", "uniform,sticky=0.3", "--vram", "400M"]
    check(rate_of("plan", *own, "-o", placed, "--force") == rate_of("plan", *own, "--placement", placed), "its own placement")
    for words in ["-o", placed + "2"], ["--what-if"], ["--gpu", "null,null"]:
        bad(2, "plan --placement: one GPU", "plan", model, "--placement", placed, *words)


@case
def experts_move_between_a_card_memory_and_a_disk():
    """Each chosen expert is in one of the three, those on the card follow the use, and the clock waits for the disk."""
    model, plan, placed = (scratch("thinker" + end) for end in (".gguf", ".plan", ".placement"))
    good("synth", "smallthinker-4b", model, "--layers", "3", "-q")
    with open(CARD % "rtx3060-12gb", "rb") as f:
        card = ["--gpu", "sim:" + scratch("card.sim", f.read() + b"\nvalues = none\n"), "-c", "512"]
    good("plan", model, *card, "-o", plan)
    cards.write_placement(cards.Table(argparse.Namespace(hearth=HEARTH), ""), plan, [8] * 3, False, placed)
    words = ["bench", model, *card, "--placement", placed, "--route", "uniform,sticky=0.6", "-p", "0", "-n", "128", "--repeat", "1"]
    ram, rates = ["--ram", str(int(least_ram(*words)) + (24 << 20))], []
    for disk in "sata", "nvme4":
        shown = json.loads(good(*words, *ram, "--io", "sim:" + disk, "--json").stdout)
        test = shown["tests"][0]
        rates.append((test["tokens_per_second"][0], test["storage"][0]["weight_bytes"]))
        experts, storage = test["experts"][0], test["storage"][0]
        check(experts["chosen"] == experts["on_device"] + storage["hits"] + storage["misses"], test)
        check(experts["uploads"] > 0 and storage["hits"] > 0 and storage["misses"] > 0 and shown["simulated_seconds"], test)
    (slow, read), (fast, _) = rates
    check(128 / slow > read / 0.55e9 * 0.8 and 2 * slow < fast, rates)  # a SATA disk takes so long for its bytes
    if os.environ.get("HEARTH_SANITIZED"):  # the process of a plan is too large for this limit then
        return
    shown = json.loads(good("plan", model, *card, "--placement", placed, *words[words.index("--route"):][:2], *ram, "--io",
                            "sim:nvme4", "--json").stdout)
    expected, whole = shown["storage"], experts["chosen"]
    measured = experts["on_device"] / whole, storage["hits"] / whole, storage["misses"] / whole
    shares = [expected[key] for key in ("on_device", "in_memory", "read")]
    check(abs(shares[0] - measured[0]) < 0.03 and abs(sum(shares) - 1) < 1e-4, shares, measured)
    # the process of a plan is some MiB larger, of 40 that hold experts
    check(abs(shares[2] - measured[2]) < 0.17, shares, measured)
    ends = [expected["tokens_per_second" + end] for end in ("_least", "", "_most")]
    check(ends == sorted(ends) and ends[1] < shown["tokens_per_second"], shown)


@case
def stats_say_where_the_experts_of_tokens_were():
    model, slow, room = scratch("thinker.gguf"), "sim:" + scratch("slow.sim", SLOW_GPU.encode()), ["-c", "64", "--batch", "8"]
    good("synth", "smallthinker-4b", model, "--layers", "2", "-q")
    whole = json.loads(good("plan", model, "--gpu", slow, *room, "--json").stdout)["vram_bytes"]
    text = ["run", model, "-p", "a", "-n", "8", "--greedy", *room, "--stats"]
    gpu = ["--gpu", slow, "--placement", "even", "--vram", str(int(whole * 0.9))]
    ram = ["--ram", least_ram(*text, *gpu)]
    done = good(*text, *gpu, *ram)
    check(done.stdout == good(*text, "--gpu", "none").stdout, done.stdout)
    found = re.search(rb"for each generated token: ([0-9.]+); ([0-9.]+) % of them on the GPU, ([0-9.]+) % in memory, ([0-9.]+) % read", done.stderr)
    check(found, done.stderr)
    n, *shares = (float(x) for x in found.groups())
    used = inspected(model)["model"]["experts"]
    check(abs(sum(shares) - 100) < 0.2 and shares[0] > 0 and shares[2] > 0, shares)
    check(n == used["n_used"] * used["n_layer"], n, used)  # in steps of one token each is asked for once
    check(b"on the GPU, " not in good(*text, "--gpu", "none", *ram).stderr, "no GPU")


@case
def experts_that_a_pattern_names_are_kept_on_the_cpu():
    model = data("golden/quant/mixture-Q4_K_M.gguf")
    text = ["run", model, "-p", "a", "-n", "12", "--greedy", "-c", "128", "--json"]
    wanted = json.loads(good(*text, "--gpu", "none").stdout)["text"]

    def share(*words):
        done = good(*text, "--gpu", "null", *words)
        shown = json.loads(done.stdout)
        check(shown["text"] == wanted and shown["gpu"]["layers"] == 2 and shown["gpu"]["head"], words, shown)
        return shown["gpu"]["product_share"], done.stderr

    none, first, all_ = [share("-ncmoe", n)[0] for n in ["0", "1", "all"]]
    for rules, expected in [(["exps=CPU"], all_),
                            ([r"blk\.0\.ffn_.*_exps\.=CPU"], first),
                            ([r"blk\.(?:0|7)\.ffn_(up|down|gate)_exps\.weight=CUDA_Host"], first),
                            ([r"blk\.\d+\.ffn_up_exps=CPU"], all_),
                            ([r"blk\.1\..*_exps=CUDA0,exps=CPU"], first),
                            ([r"blk\.1\..*_exps=CUDA0", "exps=CPU"], first),
                            (["exps=Vulkan0"], none)]:
        got, stderr = share("-ngl", "99", *[w for rule in rules for w in ["-ot", rule]])
        check(got == expected and (b"by name" in stderr) == (expected == none), rules, got, expected, stderr)
    got, stderr = share("--override-tensor", r"blk\.0\.=CPU")
    check(got == first and b"here 3 tensors of them; 7 others stay" in stderr, got, stderr)
    for rules, message in [("exps", "'exps' names no tensors and their memory"), ("exps=", "'exps=' names no"),
                           ("exps=CPU,", "'' names no"), ("(exps=CPU", "'(exps' is no pattern of names")]:
        for device in ["null", "auto"]:
            bad(1, message, *text, "--gpu", device, "-ot", rules)
    bad(2, "--override-tensor and --placement contradict", *text, "-ot", "exps=CPU", "--placement", "even")
    bad(2, "--n-cpu-moe and --override-tensor contradict", *text, "-ot", "exps=CPU", "-ncmoe", "1")


if __name__ == "__main__":
    cases.run_cases(__file__)
