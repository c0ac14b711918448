"""hearth compare, bench and doctor as a user meets them. Called by CTest with the program's path. Python 3, standard
library only."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

from program import (HEARTH, MODEL, TIMEOUT, QUICK_GPU, NO_DRIVER, cases, case, measured, check, hearth, good,
                     bad, least_ram, scratch, model_bytes, data, tiny_model, story, findings, on_terminal)


@case
def every_command_that_runs_takes_the_common_options():
    common = ["-t", "2", "-c", "64", "--kv", "f32", "--mmap", "--batch", "7"]
    text = scratch("text", b"Once upon a time there was a dog. " * 20)
    ids = scratch("ids", b"1 421 434 261 399")
    good("run", MODEL, "-n", "3", *common)
    good("logits", MODEL, "--ids", ids, "-o", scratch("a.f32"), *common)
    good("logits", MODEL, "--ids", ids, "-o", scratch("b.f32"), "-t", "1", "--kv", "f32", "--batch", "1")
    with open(scratch("a.f32"), "rb") as a, open(scratch("b.f32"), "rb") as b:
        bits = a.read()
        check(len(bits) == 5 * 2048 * 4 and bits == b.read(), "logits differ")
    check(re.match(rb"perplexity \d+\.\d{4} \+/- ", good("perplexity", MODEL, "-f", text, *common).stdout), "perplexity")
    done = good("perplexity", MODEL, "-f", "-", "--chunks", "1", "--json", *common, stdin=b"a dog " * 99)
    result = json.loads(done.stdout)
    check(result["chunks_scored"] == 1 and result["tokens_scored"] == 31, result)
    bad(1, "a chunk needs", "perplexity", MODEL, "-f", scratch("ids"), *common)
    result = json.loads(good("bench", MODEL, "-p", "8", "-n", "2", "--repeat", "2", "--json", *common).stdout)
    check([len(t["tokens_per_second"]) for t in result["tests"]] == [2, 2], result)
    check(b"| generate 2 |" in good("bench", "-p", "0", "-n", "2", "--repeat", "1").stdout, "bench as a table")


@case
def compare_reports_the_quality_loss_of_a_mode():
    common = ["-t", "2", "-c", "64"]
    text = scratch("text", b"Once upon a time there was a dog. " * 30)
    done = good("compare", MODEL, "-f", text, "-v", *common)
    for words in [b"skips inactive neurons (same result)", b"ratio 1.00000 +/- 0.00000", b"same likeliest token: 100.00 %",
                  b"logits: identical, all bits of all positions", b"| all |"]:
        check(words in done.stdout + done.stderr, words, done.stdout, done.stderr)
    result = json.loads(good("compare", MODEL, "-f", text, "--json", "--chunks", "2", *common).stdout)
    check(result["identical"] and result["chunks_scored"] == 2 and result["positions_scored"] == 62, result)
    check(len(result["layers"]) == 6 and all(l["recall"] == 1 and l["cett"] == 0 for l in result["layers"]), result)
    check(result["mode"]["selector"] == "gate" and result["reference"]["selector"] == "dense", result)
    alone = json.loads(good("perplexity", MODEL, "-f", text, "--json", "--chunks", "2", *common).stdout)
    check(result["mode"]["perplexity"] == alone["perplexity"] == result["reference"]["perplexity"], result, alone)
    check(result["mode"]["error"] == alone["error"], result, alone)

    # what approximates besides selectors: the cache, another file
    result = json.loads(good("compare", MODEL, "-f", text, "--json", "--kv", "q8_0", *common).stdout)
    check(not result["identical"] and 0 < result["kl_mean"] < result["kl_largest"] < 1, result)
    check(all(l["recall"] == 1 for l in result["layers"]), result)
    relu = ["compare", MODEL, "--activation", "relu", "--against", MODEL, "-f", text, "--json", *common]
    result = json.loads(good(*relu).stdout)
    check(result["kl_mean"] > 0 and "layers" not in result and result["top1_agreement"] < 1, result)
    check(result["reference"]["model"] == MODEL, result)

    tiny = scratch("tiny.gguf", tiny_model())
    check("there is nothing to compare" in bad(1, "runs dense", "compare", tiny, "-f", text, *common), "dense")
    bad(1, "there is nothing to compare", "compare", MODEL, "--selector", "dense", "-f", text, *common)
    bad(1, "no predictors", "compare", MODEL, "--selector", "predictor", "-f", text, *common)
    bad(1, "vocabulary", "compare", MODEL, "--against", tiny, "-f", text, *common)
    bad(1, "a chunk needs", "compare", MODEL, "-f", scratch("short", b"short"), *common)


@case
def a_run_is_checked_against_dense():
    def check_line(*args):
        done = good("run", "--greedy", "-n", "20", "-p", "Once upon a time", "--check", "16", *args)
        check(done.stdout == story("-n", "20", "-p", "Once upon a time", *args), "another text with --check")
        lines = [l for l in done.stderr.decode().split("\n") if "check" in l]
        check(len(lines) == 1, done.stderr)
        return lines[0]

    check("check of 16 tokens: selector gate is exact" in check_line(), check_line())
    check("selector dense is exact" in check_line("--selector", "dense"), "dense")
    check("check of 16 tokens: selector gate against dense" in check_line("--kv", "q8_0"), check_line("--kv", "q8_0"))
    done = good("run", "-n", "5", "-p", "Once", "--check", "9", "--json", "--stats")
    check(json.loads(done.stdout)["live_share"] and b"gate is exact" in done.stderr, done)
    check("check of 16 tokens: selector gate is exact" in check_line("--gpu", "null"), check_line("--gpu", "null"))
    rounded = check_line("--gpu", "null", "--kv", "q8_0")
    check("selector gate against dense" in rounded and "recall" not in rounded, rounded)
    done = good("run", "-n", "0", "-p", "Once upon a time there was a dog", "--check", "512")
    check(re.search(rb"check of \d+ tokens: selector gate is exact", done.stderr), done.stderr)


@case
def predictors_are_compared_and_checked():
    model = data("golden/powerinfer/llama-relu.f16.powerinfer.gguf")
    text = scratch("text", b"abc " * 60)
    result = json.loads(good("compare", model, "-f", text, "--json", "-c", "16").stdout)
    check(result["mode"]["selector"] == "predictor" and result["kl_mean"] > 0, result)
    layers = result["layers"]
    check(len(layers) == 2 and all(0.2 < l["recall"] < 0.8 and 0 < l["cett"] < l["cett_largest"] for l in layers), layers)
    check(result["all_layers"]["neurons"] == sum(l["neurons"] for l in layers), result)
    done = good("compare", model, "-f", text, "-c", "16")
    check(b"approximate results: skips predicted neurons\n" in done.stderr and b"CETT" in done.stdout, done.stdout, done.stderr)
    done = good("run", model, "--greedy", "-n", "20", "-p", "a", "--ignore-eos", "--check", "16", "-c", "64")
    check(re.search(rb"selector predictor against dense: same likeliest token .* recall \d", done.stderr), done.stderr)
    check(b"warning: the mode names another token" in done.stderr, done.stderr)
    done = good("run", model, "--gpu", "null", "--check", "8", "-n", "4", "-p", "abc", "-c", "64")
    check(b"selector predictor with the bits of null against dense" in done.stderr, done.stderr)
    done = good("run", model, "--gpu", "null", "--selector", "dense", "--check", "8", "-n", "4", "-p", "abc", "-c", "64")
    check(re.search(rb"selector dense (with the bits of null against|is exact: all logits are those of) dense", done.stderr), done.stderr)


def bench(*args, **more):
    return json.loads(good("bench", *args, "--repeat", "2", "--json", **more).stdout)


@measured
def bench_compares_prompts_with_the_peak_and_tokens_with_memory():
    prompt, tokens = bench(MODEL, "-p", "8", "-n", "2", "--selector", "dense")["tests"]
    level = bench(MODEL, "-p", "1", "-n", "0")["cpu"]
    # Multiply-adds of all matrices for eight tokens, of the head for one, two operations each.
    info = json.loads(good("inspect", MODEL, "--json").stdout)
    matrices = {t["name"]: t["dims"][0] * t["dims"][1] for t in info["tensors"] if len(t["dims"]) == 2}
    layers = sum(n for name, n in matrices.items() if name.startswith("blk."))
    head = matrices.get("output.weight", matrices["token_embd.weight"])
    check(prompt["int8_operations"] == 2 * (8 * layers + head) and prompt["fp32_operations"] == 0, prompt)
    check(len(prompt["limit_int8_operations_per_second"]) == 2, prompt)
    check(("share_of_peak" in prompt) == (level != "generic"), prompt)
    check("share_of_limit" in tokens and tokens["kv_bytes"] > 0, tokens)
    check(tokens["bytes_per_second"] > tokens["weight_bytes_per_second"] > 0, tokens)
    sparse = bench(MODEL, "-p", "0", "-n", "2")["tests"][0]  # of the bytes that are there not all are read
    check(not {"share_of_limit", "bytes_per_second", "weight_bytes_per_second"} & set(sparse), sparse)
    shown = good("bench", MODEL, "-p", "0", "-n", "2", "--repeat", "1").stdout.decode()
    check("| - | - | - |" in shown and "only --selector dense has a share" in shown, shown)
    deep = bench(MODEL, "-n", "2", "--depth", "300")["tests"]
    check(len(deep) == 1 and deep[0]["depth"] == 300 and deep[0]["kv_bytes"] > 100 * tokens["kv_bytes"], deep)


@measured
def bench_says_the_share_of_the_limit_in_words():
    def sentence(*words):
        text = good("bench", MODEL, "--repeat", "2", *words).stdout.decode()
        said = re.findall(r"^(.* at ([0-9.]+) of ([0-9.]+) (G\S+): (\d+) % of what this machine's .*\.)$", text, re.M)
        rows = re.findall(r"\| (prompt|generate)[^|]*\|[^|]*\| ([0-9.]+) (G\S+) \| ([0-9.]+) G\S+ \| (\d+) %", text)
        return said, [(used, limit, unit, share) for _, used, unit, limit, share in rows], text

    said, rows, text = sentence("-p", "8", "-n", "4", "--selector", "dense")
    check(len(said) == 1 and "Generation reads weights and cache at" in said[0][0], text)
    check(said[0][1:] == rows[-1] and "GB/s" in said[0], said, rows)
    said, rows, text = sentence("-n", "4", "--parallel", "1,2", "--selector", "dense")
    check(len(said) == 1 and said[0][1:] in rows, said, rows)
    check(int(said[0][4]) == max(int(r[3]) for r in rows), said, rows)
    said, rows, text = sentence("-p", "8", "-n", "0", "--selector", "dense")
    check([s[1:] for s in said] == rows and all("The prompt computes at" in s[0] for s in said), text)
    check(sentence("-n", "4", "-p", "0", "--selector", "gate")[0] == [], "weights that are not read are no share")


@case
def bench_takes_a_device_as_run_does():
    few = [MODEL, "-p", "4", "-n", "2", "-t", "1", "--repeat", "1"]
    known = bench(*few[:-2], "--parallel", "3", "--gpu", "none")
    check(known["gpu"] == {"layers": 0, "layers_in_all": 6, "cpu_bits": True} and "simulated" not in known, known)
    there = bench(*few[:-2], "--parallel", "3", "--gpu", "null")
    check(there["gpu"]["device"] == "null" and there["gpu"]["layers"] == 6 and there["gpu"]["cpu_bits"], there)
    check([t.get("logits_hashes") for t in there["tests"]] == [t.get("logits_hashes") for t in known["tests"]], there)
    check(not any("share_of_limit" in t or "share_of_peak" in t for t in there["tests"]), there)
    text = good("bench", *few, "--gpu", "null", "--vram", "3M", "--placement", "even").stdout.decode()
    check(re.search(r"[1-5] of 6 layers on null \(.*the rest on the CPU", text), text)
    check("The limits of a GPU are not measured" in text and "GOP/s | - | - |" in text, text)
    # A device is given room for what the tests take, not for what a run would.
    deep = bench(MODEL, "-n", "2", "--depth", "600", "--gpu", "null", "-t", "1")
    check(deep["gpu"]["layers"] == 6 and deep["tests"][0]["depth"] == 600, deep)
    card = scratch("quick.sim", QUICK_GPU.replace("bandwidth = 1e14", "bandwidth = 1e9\nhost_bandwidth = 1e9").encode())
    timed = [bench(*few[:-2], "--gpu", "sim:" + card) for _ in range(2)]
    rates = [[t["tokens_per_second"] for t in shown["tests"]] for shown in timed]
    check(timed[0]["simulated"] and timed[0]["simulated_seconds"] and rates[0] == rates[1], timed)
    check("those of its clock" in good("bench", *few, "--gpu", "sim:" + card).stdout.decode(), "its clock")
    for more, option in [(["--gpu", "null"], "--gpu"), (["--vram", "3M"], "--vram"), (["--placement", "even"], "--placement")]:
        for only in [["-f", MODEL], ["--fire", "share=0.1"]]:
            bad(2, "for the CPU alone: leave " + option, "bench", MODEL, "-p", "0", "-n", "2", *only, *more)
    bad(2, "no use for --gpu", "bench", "--limits", "--gpu", "null")
    bad(1, "nothing: there is no such device", "bench", MODEL, "--gpu", "nothing")


@measured
def bench_in_parallel_gives_each_sequence_its_own_logits():
    for more in [[], ["--depth", "40"], ["-t", "1", "--kv", "f32"]]:
        tests = bench(MODEL, "--parallel", "2,3,7", "-n", "5", *more)["tests"]
        check([t["sequences"] for t in tests] == [1, 2, 3, 7], tests)
        check(all(t["factor_against_one"] > 0 for t in tests), tests)
        hashes = tests[3]["logits_hashes"]
        check(len(set(hashes)) == 7, "sequences of different tokens are alike:", hashes)
        for t in tests:
            check(t["logits_hashes"] == hashes[:t["sequences"]], "company changed logits", t, hashes)
    table = good("bench", MODEL, "--parallel", "4", "-n", "2,3", "-p", "4", "--repeat", "1").stdout
    for row in [b"| prompt 4 |", b"| generate 2 x 1 |", b"| generate 3 x 4 |", b"against one"]:
        check(row in table, row, table)


@measured
def bench_prints_the_quality_loss_with_the_speed():
    few = ["-p", "4", "-n", "2", "-t", "1"]
    text = scratch("text", b"Once upon a time there was a dog. " * 200)
    table = good("bench", MODEL, "--kv", "q8_0", "--repeat", "1", *few).stdout
    check(b"| prompt 4, approximate |" in table and b"| generate 2, approximate |" in table, table)
    check(b"-f TEXT prints what that costs" in table and b"ratio" not in table, table)
    quality = ["-f", text, "--chunks", "3", "-c", "128"]
    table = good("bench", MODEL, "--kv", "q8_0", "--repeat", "1", *few, *quality).stdout
    check(b"(3 chunks of 128)" in table and b"same likeliest token" in table, table)
    result = bench(MODEL, "--kv", "q8_0", *few, *quality)
    check(all(t["approximate"] for t in result["tests"]), result)
    # The figures are those of hearth compare.
    known = json.loads(good("compare", MODEL, "--kv", "q8_0", "--json", *quality).stdout)
    shown = result["quality"]
    for key in ["ratio", "ratio_error", "kl_mean", "top1_agreement", "chunks_scored", "positions_scored"]:
        check(shown[key] == known[key], key, shown, known)
    check(shown["perplexity"] == known["mode"]["perplexity"] and not shown["exact"] and shown["kl_mean"] > 0, shown)
    check(shown["recall"] == known["all_layers"]["recall"] and shown["cett"] == known["all_layers"]["cett"], shown)
    # Chunks hold 2048 tokens where nothing else is asked for.
    shown = bench(MODEL, "--kv", "q8_0", *few, "-f", "-", stdin=b"Once there was a dog. " * 900)["quality"]
    check(shown["n_ctx"] == 512 and shown["chunks"] > shown["chunks_scored"] == 4, shown)

    # what is exact has none: looked at where it skips, said where it is the reference
    table = good("bench", MODEL, "--repeat", "1", *few, *quality).stdout
    check(b"| generate 2 |" in table and b"all logits are those of dense (189 positions)" in table, table)
    check(b"approximate" not in table, table)
    result = bench(MODEL, *few, *quality)
    check(result["quality"]["exact"] and not any(t["approximate"] for t in result["tests"]), result)
    result = bench(MODEL, "--selector", "dense", *few, *quality)
    check(result["quality"]["of_reference"] and "ratio" not in result["quality"], result)
    check(b"Exact, without a loss" in good("bench", MODEL, "--selector", "dense", "--repeat", "1", *few, *quality).stdout,
          "dense")

    check(scratch("none") in bad(1, "No such file", "bench", MODEL, "-f", scratch("none")), "no text")
    check(scratch("short") in bad(1, "a chunk needs 512", "bench", MODEL, "-f", scratch("short", b"Once.")), "short")
    bad(2, "of which text", "bench", MODEL, "--chunks", "2")
    bad(2, "have no quality", "bench", MODEL, "--fire", "share=0.1", "-f", text)


@case
def bench_reports_the_quality_loss_of_predictors():
    model = data("golden/powerinfer/llama-relu.f16.powerinfer.gguf")
    text = scratch("text", b"abc " * 60)
    shown = bench(model, "-p", "0", "-n", "2", "-f", text, "-c", "16")["quality"]
    known = json.loads(good("compare", model, "-f", text, "--json", "-c", "16").stdout)
    check(shown["ratio"] == known["ratio"] and shown["chunks_scored"] == known["chunks"] == 11, shown, known)
    check(shown["recall"] == known["all_layers"]["recall"] < 0.5 < shown["cett"], shown)
    table = good("bench", model, "-p", "0", "-n", "2", "--repeat", "1").stdout
    check(b"Selector predictor" in table and b"| generate 2, approximate |" in table, table)


@case
def bench_draws_experts():
    mixture = data("golden/arch/qwen3moe.gguf")
    run = [mixture, "-p", "0", "-n", "4", "-t", "1", "--gpu", "none"]
    result = bench(*run, "--route", "uniform,sticky=0.25,foreseen=1,seed=3")
    check(result["drawn_experts"] == {"sticky": 0.25, "foreseen": 1, "seed": 3} and "storage" not in result["tests"][0],
          result)
    path = scratch("frequencies", b"1, 2 3\n" * 400)
    bad(1, "1200 frequencies, the model has", "bench", *run, "--route", f"file={path}")
    bad(1, "number 2, 'x', is not a frequency", "bench", *run, "--route", f"file={scratch('word', b'1 x')}")
    bad(1, "No such file", "bench", *run, "--route", f"file={scratch('none')}")
    for wrong in ["", "sticky=0.5", "uniform,sticky=2", "uniform,foreseen=-1", "uniform,file=x", "uniformly", "file="]:
        bad(2, "bench --route", "bench", *run, "--route", wrong)
    bad(1, "has no experts", "bench", MODEL, *run[1:], "--route", "uniform")
    bad(2, "have no quality", "bench", *run, "--route", "uniform", "--parallel", "2")
    table = good("bench", *run, "--route", "uniform", "--repeat", "1").stdout
    check(b"Experts drawn, not chosen by the model: uniform, sticky 0" in table, table)


@case
def bench_tells_what_a_limit_of_memory_costs():
    floats = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
    words = ["bench", floats, "-p", "4", "-n", "4", "-c", "64", "--batch", "16", "-t", "1", "--gpu", "none",
             "--repeat", "2"]
    limit = least_ram(*words)
    result = json.loads(good(*words, "--ram", limit, "--json").stdout)
    check(0 < result["parts_in_memory"] < result["parts"] and result["reader"], result)
    for test in result["tests"]:
        check(len(test["storage"]) == 2 and test["storage"][0]["weight_bytes"] > 0, test)
        check("limit_bytes_per_second" not in test and "share_of_limit" not in test, test)
    table = good(*words, "--ram", limit).stdout
    check(b"parts of the weights fit into memory" in table and table.count(b"| generate 4 |") == 2, table)
    for ram, has_probes in ("200M", False), ("2G", True):  # which take 512 MiB
        result = json.loads(good(*words, "--ram", ram, "--json").stdout)
        check("parts" not in result, ram, result)
        for test in result["tests"]:
            check(("limit_bytes_per_second" in test) == has_probes, ram, test)
            check(("share_of_limit" in test or "share_of_peak" in test) <= has_probes, ram, test)


@measured
def bench_replays_a_profile():
    text, path = scratch("text", b"Once upon a time there was a dog. He liked to play. " * 60), scratch("story.profile")
    good("profile", MODEL, "-f", text, "-o", path, "-c", "64", "--samples", "100")
    run = [MODEL, "-n", "4", "-t", "1", "--fire"]
    result = bench(*run, f"profile={path}")
    shown = result["replayed_firing_lists"]
    check(shown["profile"] == path and shown["samples"] == 100 and not shown["largest_tenth"], shown)
    check(0 < shown["share"] < 0.5 and "drawn_firing_lists" not in result, result)
    other = bench(*run, f"profile={path},seed=2")["replayed_firing_lists"]
    check(other["first_sample"] != shown["first_sample"] < 100 and other["seed"] == 2, shown, other)
    table = good("bench", *run, f"profile={path}", "--repeat", "1").stdout.decode()
    check(f"replayed from {path}" in table and "drawn" not in table, table)
    drawn = good("bench", *run, "share=0.1", "--repeat", "1").stdout
    check(b"Firing lists drawn" in drawn and b"pproximate" not in drawn, drawn)
    # What approximates besides the lists says so, and has no quality either.
    drawn = good("bench", *run, "share=0.1", "--kv", "q8_0", "--repeat", "1").stdout
    check(b"| generate 4, approximate |" in drawn and b"what that costs" not in drawn, drawn)
    approximate = [["--kv", "q8_0"]]
    refusal = hearth("run", "-n", "1", "-p", "a", "--bf16-dot").stderr
    if b"products of bf16 are wanted" not in refusal:  # of this CPU and level
        approximate.append(["--bf16-dot"])
    tests = [bench(*run, "share=0.1", *more)["tests"] for more in [[], *approximate]]
    check([t["approximate"] for (t,) in tests] == [False, True, True][:len(tests)], tests)

    for more in ["share=0.1", "run=8", "skew=1", "sticky=0.5"]:
        bad(2, "the profile says who fires", "bench", *run, f"profile={path},{more}")
    for wrong in ["profile=", "profile", "share=2", "run=8", "share=0.1,seed=x", "share=0.1,run=0", "nothing=1", ""]:
        bad(2, "bench --fire", "bench", *run, wrong)
    bad(1, "No such file", "bench", *run, f"profile={scratch('none')}")
    check("not 'hearth.profile'" in bad(1, MODEL, "bench", *run, f"profile={MODEL}"), "a model")
    good("profile", MODEL, "-f", text, "-o", scratch("bare"), "-c", "64", "--samples", "0")
    bad(1, "no co-activation samples", "bench", *run, f"profile={scratch('bare')}")
    bad(1, "a selector that skips", "bench", *run, f"profile={path}", "--selector", "dense")
    whole = model_bytes()
    moved = scratch("other.gguf", whole[:-1] + bytes([whole[-1] ^ 1]))  # one weight of another model
    bad(1, "the profile of another model", "bench", moved, *run[1:], f"profile={path}")
    relu = ["--activation", "relu"]
    bad(1, "profile it again", "bench", *run, f"profile={path}", *relu)


@case
def bench_reports_a_full_context_before_it_runs():
    start = time.monotonic()
    line = bad(1, "-c leaves room for 64", "bench", MODEL, "--depth", "100000", "-c", "64")
    check("100064 positions" in line and time.monotonic() - start < 20, line)
    line = bad(1, "-c 602 has room", "bench", "no.gguf", "--depth", "600", "-n", "2", "-c", "64")
    check("take 602 positions" in line and "room for 64" in line, "before a model is read:", line)
    done = good("bench", MODEL, "--depth", "600", "-n", "2", "--repeat", "1", "-t", "1")
    check(b"warning: the tests take 602 positions" in done.stderr and b"trained for 512" in done.stderr, done.stderr)
    check(b"warning" not in good("bench", MODEL, "--depth", "500", "-n", "2", "--repeat", "1").stderr, "500 of 512")


@measured
def limits_of_the_machine_are_measured_without_a_model():
    shown = bench("--limits", "-t", "2")
    check([l["threads"] for l in shown["limits"]] == [1, 2], shown)
    for l in shown["limits"]:
        check([m["loop"] for m in l["memory"]] == ["plain", "four streams", "prefetch"], l)
        best = max(m["bytes_per_second"]["median"] for m in l["memory"])
        check(l["bytes_per_second"] == best > 1e7, l)
        for kind in ["int8", "fp32"]:
            peaks = [p["operations_per_second"]["median"] for p in l["peaks"] if p["type"] == kind]
            check(l.get(kind + "_operations_per_second") == max(peaks, default=None), kind, l)
        check("fp32_operations_per_second" in l, l)
    for wait in ["latency_ns", "spinning_thread_ns", "sleeping_thread_ns", "empty_job_ns"]:
        check(0 < shown[wait]["min"] <= shown[wait]["median"] <= shown[wait]["max"], wait, shown)
    low = bench("--limits", "-t", "1", env={"HEARTH_CPU": "generic"})
    check(low["cpu"] == "generic" and len(low["limits"]) == 1 and len(low["limits"][0]["peaks"]) == 1, low)
    text = good("bench", "--limits", "-t", "1", "--repeat", "1").stdout
    check(b"GB/s" in text and b"GOP/s" in text and b"latency of memory" in text, text)


@measured
def doctor_fits_a_screen_and_names_a_remedy():
    for args in [[], [MODEL], [MODEL, "--mmap", "-t", "1"]]:
        lines = good("doctor", *args).stdout.decode().split("\n")
        check(len(lines) <= 24, args, lines)
        check(all(l.startswith(("ok ", "better: ", " " * 20 + "-> ")) for l in lines[:-3]), lines)
    shown, by_name = findings(MODEL)
    check(list(by_name) == ["cpu", "cores", "load", "memory", "huge pages", "bandwidth", "limits", "gpu", "disk"],
          by_name)
    check(shown["model"]["fits"] and shown["model"]["weight_bytes"] > 5e6, shown)
    check(shown["machine"]["bytes_per_second_1"] > 1e7 and shown["machine"]["memory_bytes"] > 1e8, shown)
    shown, by_name = findings(env={"HEARTH_CPU": "generic"})
    check(shown["machine"]["level"] == "generic", shown)
    if shown["machine"]["machine_level"] != "generic":
        check("unset HEARTH_CPU" in by_name["cpu"]["fix"], by_name["cpu"])
    check("HEARTH_CPU" in bad(1, "no such level", "doctor", env={"HEARTH_CPU": "none"}), "a level that is none")
    first = sorted(os.sched_getaffinity(0))[0]
    shown, by_name = findings(preexec_fn=lambda: os.sched_setaffinity(0, [first]))
    check(shown["machine"]["usable_cpus"] == shown["machine"]["cores"] == shown["machine"]["threads"] == 1, shown)
    if shown["machine"]["online_cpus"] > 1:
        check("taskset" in by_name["cores"]["fix"], by_name["cores"])
    _, by_name = findings("--mmap", MODEL)
    check("--io mmap" in by_name["huge pages"]["fix"], by_name)


@measured
def doctor_measures_a_gpu_once_and_again_when_asked():
    cache = scratch("cache")
    shown, by_name = findings("--device", "null", MODEL, env={"HEARTH_CACHE": cache})
    check(by_name["gpu"]["text"].startswith("null") and shown["gpu"]["is_card"] is False, shown)
    first = shown["gpu"]["calibrations"]
    check([c["type"] for c in first] == ["Q8_0"] and first[0]["queued_seconds"] > 0, first)
    check(findings("--device", "null", MODEL, env={"HEARTH_CACHE": cache})[0]["gpu"]["calibrations"] == first, "kept")
    again = findings("--device", "null", "--again", MODEL, env={"HEARTH_CACHE": cache})[0]["gpu"]["calibrations"]
    check(again != first, "measured again")
    kept = os.listdir(cache)
    check(len(kept) == 1 and kept[0].startswith("calibration-"), kept)
    with open(os.path.join(cache, kept[0]), "r+b") as f:
        f.truncate(100)
    shown, _ = findings("--gpu", "null", env={"HEARTH_CACHE": cache})
    check([c["type"] for c in shown["gpu"]["calibrations"]] == ["Q4_0", "Q8_0"], shown["gpu"])
    check(by_name["gpu"]["text"].startswith("null, memory without a limit"), by_name["gpu"])
    check("memory_bytes" not in shown["gpu"] and "free_bytes" not in shown["gpu"], shown["gpu"])
    of_both = os.path.getsize(os.path.join(cache, kept[0]))
    findings("--device", "null", "--again", MODEL, env={"HEARTH_CACHE": cache})
    check(os.path.getsize(os.path.join(cache, kept[0])) < of_both, "Q4_0 is to be measured again, too")


@case
def an_unusable_cache_is_reported_once():
    places = [(scratch("file", b"x"), 1), ("/proc/nope", 1), ("", 0)]
    for place, n in places:
        done = good("doctor", "--gpu", "null", MODEL, env={"HEARTH_CACHE": place})
        check(done.stderr.count(b"nothing is kept there for later runs") == n, place, done.stderr)
    done = good("doctor", "--gpu", "null", MODEL, env={"HEARTH_CACHE": "kept"}, cwd=scratch())
    kept = [os.path.join("kept", name) for name in os.listdir(scratch("kept"))]
    check(not done.stderr.count(b"nothing is kept") and len(kept) == 1, done.stderr)
    os.remove(scratch(kept[0]))
    os.mkdir(scratch(kept[0]))
    done = good("doctor", "--gpu", "null", MODEL, env={"HEARTH_CACHE": "kept"}, cwd=scratch())
    check(f"warning: {kept[0]}: Is a directory: nothing is kept there" in done.stderr.decode(), done.stderr)
    done = good("run", MODEL, "-n", "1", "-p", "a", env={"HEARTH_CACHE": "/proc/nope"})
    check(b"kept" not in done.stderr, "nothing wants to be kept", done.stderr)


@case
def an_interrupt_ends_doctor_at_once():
    process = subprocess.Popen([HEARTH, "doctor", "--gpu", "null"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT)
    check(process.returncode in [-signal.SIGINT, 130] and not stdout and not stderr, process.returncode, stdout, stderr)


@case
def doctor_reports_whatever_becomes_of_the_device():
    shown, by_name = findings("--device", "nothing", status=1)
    check(len(by_name) == 8 and "no such device" in by_name["gpu"]["text"] and not by_name["gpu"]["ok"], by_name)
    check("no such device" in shown["gpu"]["problem"], shown["gpu"])
    shown, by_name = findings("--device", "none")
    check(by_name["gpu"]["ok"] and "as asked for" in by_name["gpu"]["text"], by_name)
    auto = [findings(*args, env=NO_DRIVER)[1]["gpu"] for args in [[], ["--device", "auto"]]]
    check(auto[0] == auto[1] and auto[0]["ok"] and "the CPU does all of it" in auto[0]["text"], auto)


def doctor_sees_a_limit_of_address_space_and_a_busy_neighbour():
    limit = 1 << 32
    _, by_name = findings(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    check("ulimit -v" in by_name["limits"]["fix"], by_name["limits"])
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        shown, by_name = findings()
    finally:
        busy.kill()
        busy.wait()
    check(shown["machine"]["busy_cpus"] > 0.2 and "stop what is not needed" in by_name["load"]["fix"], shown)


with open(HEARTH, "rb") as program:
    if not re.search(rb"__[at]san_init", program.read()):  # a sanitizer takes more address space than that limit
        measured(doctor_sees_a_limit_of_address_space_and_a_busy_neighbour)


@case
def tables_are_drawn_on_a_terminal_and_markdown_elsewhere():
    words = ["bench", MODEL, "-p", "8,64", "-n", "4", "-r", "1", "--gpu", "none"]
    piped, shown = good(*words).stdout.decode(), on_terminal(*words).decode()
    check("\n| test | tokens/s, " in piped and "\n|---|---|" in piped and "\n| generate 4 | " in piped, piped)
    check("\u2588" not in piped and "|" not in shown, piped, shown)
    lines = re.sub(r"\x1b\[\d*m", "", shown).split("\r\n")
    drawn = [l for l in lines if l.startswith(("test ", "prompt ", "generate "))]
    check(len(drawn) == 7 and all(len(l) <= 80 for l in drawn), drawn)  # the table, then a bar for each row
    rates = {l.split("  ")[0]: float(re.search(r"  +(\d+\.\d+) \(", l)[1]) for l in drawn[1:4]}
    bars = {l.split("  ")[0]: l.count("\u2588") for l in drawn[4:]}
    fastest = max(rates, key=rates.get)
    check(bars[fastest] == 30 == max(bars.values()) and set(bars) == set(rates), bars, rates)
    for name, n in bars.items():
        check(abs(n - 30 * rates[name] / rates[fastest]) <= 1, name, bars, rates)


@case
def memory_is_shown_as_bars_on_a_terminal():
    check("\u2588" not in good("inspect", MODEL).stdout.decode(), "a pipe")
    rows = re.findall(r"  (weights|KV cache|workspace|together) +(\d+\.\d+) MiB  (\S+)", on_terminal("inspect", MODEL).decode())
    found = {name: (float(size), bar) for name, size, bar in rows}
    check(len(found) == 4 and found["together"][1] == "\u2588" * 30, found)
    for name, (size, bar) in found.items():
        check(abs(len(bar) - 30 * size / found["together"][0]) <= 1, name, found)
    card = "sim:" + scratch("card.sim", QUICK_GPU.encode())
    plan = on_terminal("plan", MODEL, "--gpu", card, "-c", "256").decode()
    check(re.search(r"  attention, layers +\S+ [KM]iB  \u2588", plan) and re.search(r"  workspace +\S+ [KM]iB  \S", plan), plan)
    check("\u2588" not in good("plan", MODEL, "--gpu", card, "-c", "256").stdout.decode(), "a pipe")


if __name__ == "__main__":
    cases.run_cases(__file__)
