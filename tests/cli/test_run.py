"""hearth run and plan as a user meets them: prompts, devices, placements, terminals and signals. Called by CTest with
the program's path. Python 3, standard library only."""

import json
import os
import re
import signal
import struct
import subprocess
import time

from program import (HEARTH, SOURCE, MODEL, TIMEOUT, QUICK_GPU, NO_DRIVER, cases, case, measured, check, hearth,
                     good, bad, least_ram, scratch, model_bytes, data, tiny_model, story, findings, on_terminal)


@case
def prompts_come_from_anywhere():
    expected = story("-n", "12", "-p", "Once upon a time")
    check(expected.startswith(b"Once upon a time, there was"), expected)
    path = scratch("prompt", b"Once upon a time")
    for args, stdin in [(["-f", path], b""), (["-"], b"Once upon a time"), (["-f", "-"], b"Once upon a time"),
                        ([MODEL, "-"], b"Once upon a time"), ([MODEL, "-p", "Once upon a time"], b"")]:
        check(story("-n", "12", *args, stdin=stdin) == expected, args)
    check(story("-n", "12", "-p", "Once upon a time", "--no-echo") == expected[len("Once upon a time"):], "--no-echo")
    check(story("-n", "0", "-p", "Once upon a time") == b"Once upon a time\n", "-n 0")
    check(len(story("-n", "5")) > 5, "without a prompt the model begins by itself")
    bad(1, "prompt is empty", "run", scratch("no-bos", tiny_model(without_bos=True)))
    bad(1, "the prompt is empty", "run", "-f", scratch("empty-prompt", b""))
    bad(1, "No such file", "run", "-f", scratch("missing"))
    bad(1, "folder", "run", "-f", scratch())


@case
def drafts_give_the_same_text():
    for how in [["--greedy"], ["--seed", "3"], ["--seed", "4", "--temperature", "2", "--repeat-penalty", "1.2"],
                ["--seed", "5", "--grammar", 'root ::= ("the cat " | "the dog ")+']]:
        words = ["run", "-p", "The cat sat. The cat sat. The cat", "-n", "60", "--json", *how]
        expected = json.loads(good(*words, "--speculate", "0").stdout)
        check(expected["draft_tokens"] == expected["draft_tokens_accepted"] == 0, expected)
        for more in [[], ["--speculate", "auto"], ["--speculate", "1"], ["--speculate", "15"],
                     ["--speculate", "4", "--draft", MODEL]]:
            result = json.loads(good(*words, *more).stdout)
            check(result["ids"] == expected["ids"] and result["text"] == expected["text"], how, more)
            check(result["draft_tokens_accepted"] <= result["draft_tokens"], result)
            check(more[1:2] in [[], ["auto"]] or result["draft_tokens"] > 0, how, more, result)
    own = json.loads(good("run", "-p", "Once", "-n", "40", "--seed", "2", "--json", "--speculate", "3", "--draft",
                          MODEL).stdout)
    check(own["draft_tokens_accepted"] > 15, own)
    said = good("run", "-p", "The cat sat. The cat sat. The", "-n", "20", "--greedy", "--speculate", "5", "--stats").stderr
    check(re.search(rb"drafts: \d+ tokens evaluated ahead, \d+ of them were the next", said), said)
    other = scratch("other-vocabulary", tiny_model())
    bad(1, "it has a vocabulary of 260 tokens", "run", MODEL, "-p", "a", "--draft", other)
    bad(2, "--speculate 16", "run", "-p", "a", "--speculate", "16")
    bad(2, "contradict", "run", "-p", "a", "--speculate", "0", "--draft", MODEL)
    bad(2, "leave one of them out", "run", "-p", "a", "--ram", "8G", "--draft", MODEL)
    check("No such file" in bad(1, "missing", "run", "-p", "a", "--draft", scratch("missing")), "missing")


@case
def drafts_are_off_where_weights_are_read():
    floats = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
    words = ["run", floats, "-p", "The cat sat. The cat sat. The", "-n", "8", "-c", "64", "--batch", "16", "-t", "1",
             "--greedy", "--gpu", "none"]
    limit = least_ram(*words)
    done = good(*words, "--ram", limit, "--speculate", "4", "--json")
    check(json.loads(done.stdout)["draft_tokens"] == 0 and b"no drafts: weights are read" in done.stderr, done)
    check(b"no drafts" not in good(*words, "--ram", limit).stderr, "by itself nothing is said")


@case
def a_limit_of_memory_gives_the_same_text():
    floats = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
    words = ["run", floats, "-p", "Once upon a time", "-n", "12", "-c", "64", "--batch", "16", "-t", "1", "--seed", "1",
             "--gpu", "none"]

    limit = least_ram(*words)
    expected = json.loads(good(*words, "--json").stdout)
    check("storage" not in expected, expected)
    for io in ["auto", "pread", "sim:nvme4"]:
        result = json.loads(good(*words, "--ram", limit, "--io", io, "--json").stdout)
        storage = result["storage"]
        check(result["ids"] == expected["ids"], io)
        check(result["parts_in_memory"] < result["parts"] and storage["read_bytes"] > 0, result)
        check(0 < storage["cache_bytes"] <= storage["cache_bytes_max"] < int(limit), storage)
        check(("simulated" in result["reader"]) == (io == "sim:nvme4"), result)
    said = good(*words, "--ram", limit, "--stats", "-v").stderr
    check(b" parts of the weights in memory, others read by " in said and b"storage, for each generated token: " in said, said)
    bad(1, "no way to read is called 'floppy'", *words, "--ram", limit, "--io", "floppy")
    text = scratch("studied", b"Once upon a time there was a cat. " * 40)
    for name in ["study", "thresholds"]:
        command = [name, floats, "-f", text, "-o", scratch("out"), "-c", "64", "--batch", "16"]
        bad(1, "leave --ram out", *command, "--ram", least_ram(*command))


@case
def weights_are_read_as_io_or_the_environment_says():
    args = ["run", MODEL, "-p", "a", "-n", "3", "--gpu", "none"]

    def start_line(*more, io=None):
        return good(*args, *more, "-v", env={"HEARTH_IO": io} if io is not None else {}).stderr.decode()

    for more, io in [(["--io", "mmap"], None), (["--mmap"], None), ([], "mmap"), (["--io", "mmap"], "floppy")]:
        check("weights mapped" in start_line(*more, io=io), more, io)
    for more, io in [([], None), ([], ""), ([], "pread"), (["--io", "auto"], "mmap"), (["--io=pread"], "floppy")]:
        check("weights read into memory" in start_line(*more, io=io), more, io)
    wrong = "no way to read is called 'floppy': there are auto, uring, pread, mmap and sim:DISK"
    check(bad(1, wrong, *args, "--io", "floppy") == "hearth: " + wrong, "--io")
    for command in [args, args[2:], ["doctor", MODEL]]:
        command = command if command[0] in ("run", "doctor") else ["run", *command]
        check(bad(1, wrong, *command, env={"HEARTH_IO": "floppy"}) == "hearth: HEARTH_IO=floppy: " + wrong, command)
    text = scratch("text", b"Once upon a time. " * 20)
    for command in [args, ["chat", MODEL], ["bench", MODEL], ["perplexity", MODEL, "-f", text]]:
        bad(2, "--io sim:sd: a simulated disk needs --ram BYTES", *command, "--io", "sim:sd")
    bad(1, "HEARTH_IO=sim:floppy: no simulated disk is called 'floppy'", *args, env={"HEARTH_IO": "sim:floppy"})
    bad(1, "HEARTH_IO=mmap: a limit of memory", *args, "--ram", "8G", env={"HEARTH_IO": "mmap"})
    bad(1, "mapped weights", *args, "--ram", "8G", "--io", "mmap")


@case
def what_the_system_leaves_is_a_limit_too():
    floats = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
    words = [floats, "-c", "64", "--batch", "16", "-t", "1"]
    text = scratch("compared", b"Once upon a time there was a cat. " * 20)
    said = good("run", *words, "--gpu", "none", "-p", "Once upon a time", "-n", "4", "--ram", "auto", "-v").stderr
    check(b"the limit of memory is " in said and b" leaves " in said and b"read into memory" in said, said)
    bad(2, "expected bytes", "run", *words, "--ram", "automatic")
    both = ["compare", *words, "-f", text, "--against", MODEL]
    expected = good(*both).stdout
    least = int(least_ram(*both))
    for ram in ["auto", str(2 * least + (8 << 20))]:  # of two models the first one gets half
        check(good(*both, "--ram", ram).stdout == expected, ram)
    bad(1, "needs at least", *both, "--ram", str(least + (8 << 20)))


@case
def long_prompts_and_full_contexts_say_so():
    prompt = "one two three four five six seven eight nine"
    bad(1, "the prompt has 16 tokens, and the context has 8", "run", "-c", "8", "-n", "1", "-p", prompt, "--no-echo")
    key = b"llama.context_length" + struct.pack("<I", 4)
    long = scratch("long.gguf", model_bytes().replace(key + struct.pack("<I", 512), key + struct.pack("<I", 20000)))
    for words, n_ctx in [([], 4096), (["-c", "0"], 20000), (["-c", "9"], 9)]:
        check(f'"n_ctx": {n_ctx}'.encode() in good("inspect", long, "--json", *words).stdout, words)
    full = json.loads(good("run", long, "-c", "0", "-n", "5000", "--ignore-eos", "--json", "--gpu", "none").stdout)
    check(full["end"] == "length" and len(full["ids"]) == 5000, full["end"])
    done = good("run", "--greedy", "-c", "16", "-p", "Once upon a time", "--ignore-eos")
    check(b"context of 16 tokens is full; -c takes more" in done.stderr, done.stderr)
    result = json.loads(story("-c", "16", "-p", "Once upon a time", "--json"))
    check(result["end"] == "context full" and len(result["prompt_ids"]) + len(result["ids"]) == 17, result)


@case
def stop_texts_end_the_text_before_them():
    whole = story("-n", "40", "-p", "Once upon a time").decode()
    for stop in [" little", "Lily", "She loved", ", there", "ily. Sh", "ys and e", "s"]:
        for args in [["--stop", stop], ["--stop", "not there at all", "--stop", stop]]:
            text = story("-n", "40", "-p", "Once upon a time", *args).decode()
            expected = whole[: whole.index(stop, len("Once upon a time"))] if stop in whole[16:] else None
            check(expected is not None, stop, "is not in", whole)
            check(text == expected + "\n", stop, repr(text), repr(expected))
            result = json.loads(story("-n", "40", "-p", "Once upon a time", "--json", *args))
            check(result["end"] == "stop text" and result["prompt"] + result["text"] == expected, result)
    check("upon" in story("-n", "2", "-p", "Once upon a time", "--stop", "upon").decode(), "a stop text in the prompt")


@case
def json_is_the_same_generation():
    result = json.loads(story("-n", "30", "-p", "Lily and", "--json"))
    text = story("-n", "30", "-p", "Lily and").decode()
    check(result["prompt"] + result["text"] + "\n" == text, result, text)
    ids = " ".join(map(str, result["prompt_ids"] + result["ids"])).encode()
    check(good("detokenize", MODEL, stdin=ids).stdout.decode() + "\n" == text, "ids")
    check(len(result["ids"]) == 30 and result["end"] == "length", result)
    check(good("tokenize", MODEL, "-p", "Lily and").stdout.split() == [b"%d" % i for i in result["prompt_ids"]], "ids")
    live = json.loads(story("-n", "3", "--json", "--stats"))["live_share"]
    check(len(live) == 6 and all(0 < x < 0.5 for x in live), live)


@case
def one_seed_gives_one_text():
    def ids(*args):
        return json.loads(good("run", "-n", "40", "-p", "The dog", "--json", *args).stdout)["ids"]

    first = ids("--seed", "7")
    for args in [["-t", "1"], ["-t", "2"], ["-t", "3"], ["-t", "2", "--no-pin"], ["--batch", "1"], ["--io", "mmap"],
                 ["-c", "100"]]:
        check(ids("--seed", "7", *args) == first, args)
    check(ids("--seed", "8") != first, "another seed gives another text")
    check(ids("--seed", "18446744073709551614"), "the largest seed")
    for level in ["generic", "avx2", "avx512", "neon", "dotprod", "i8mm"]:
        done = hearth("run", "-n", "40", "-p", "The dog", "--json", "--seed", "7", env={"HEARTH_CPU": level})
        if done.returncode == 0:
            check(json.loads(done.stdout)["ids"] == first, level)
        else:
            check(b"this machine has" in done.stderr, level, done.stderr)


@case
def escapes_are_made_visible():
    escape = str(3 + 0x1B)
    args = ["-n", "3", "-p", "a", "--logit-bias", escape + "=1000"]
    check(story(*args) == b"a" + b"\\x1b" * 3 + b"\n", story(*args))
    check(story(*args, "--raw") == b"a" + b"\x1b" * 3 + b"\n", "--raw")
    check(json.loads(story(*args, "--json"))["text"] == "\x1b" * 3, "--json")
    check(story("-n", "0", "-p", "a\x1b]0;b\x07\x9b") .find(b"\x1b") < 0, "prompts too")


@case
def bans_and_biases_count():
    first = json.loads(story("-n", "1", "-p", "Once", "--json"))["ids"][0]
    banned = json.loads(story("-n", "1", "-p", "Once", "--json", "--logit-bias", "%d=-inf" % first))["ids"][0]
    check(banned != first, "the banned token came")
    check(json.loads(story("-n", "1", "--json", "--logit-bias", "300=1000"))["ids"] == [300], "bias")


@case
def stats_and_start_line_say_what_runs():
    done = good("run", "-n", "3", "-p", "a", "--stats", "-t", "2", "--kv", "f32", "-v", "--gpu", "none")
    for word in [b"skips inactive neurons (same result)", b"2 threads", b"KV cache f32", b"generated 3 in", b"live neurons by layer"]:
        check(word in done.stderr, word, done.stderr)
    done = good("run", "-n", "3", "-p", "a", "--kv", "q8_0", "--gpu", "none")
    check(b"\nhearth: approximate results: KV cache in q8_0\n" in done.stderr, done.stderr)
    check(b"computes all neurons" in good("run", MODEL, "-n", "1", "-v", "--selector", "dense").stderr, "dense")


@case
def the_start_line_fits_a_terminal():
    long = scratch("a-very-long-name-of-a-model-with-many-words-\u00e4\u00f6\u00fc-and-a-quantisation-Q4_K_M.gguf", model_bytes())
    card = "sim:" + scratch("card.sim", QUICK_GPU.replace("quick", "a card whose name is long too").encode())
    for model in (MODEL, long):
        for gpu in (["none"], ["null"], ["null", "-ngl", "2"], [card]):
            line = good("run", model, "-n", "1", "-p", "a", "-t", "2", "--gpu", *gpu).stderr.decode().split("\n")[0]
            check(len(line) <= 80 and " M parameters, " in line and "\ufffd" not in line, len(line), line)
    words = ["run", MODEL, "-n", "1", "-p", "a", "--gpu", "none"]
    check(on_terminal(*words).startswith(b"\x1b[2mstoryteller-q8_0.gguf: llama, "), "dim")
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        check(b"\x1b" not in on_terminal(*words, env=plain), plain)
    done = good("run", scratch("model.gguf", model_bytes()), "-n", "1", "-p", "a", "-t", "2", "--gpu", "none").stderr.decode()
    check(done.startswith("model.gguf: llama, 5.2 M parameters, 5.3 MiB, on the CPU (2 threads)\n"), done)


@case
def a_device_is_named_and_no_share_is_made_up():
    done = good("run", "-n", "3", "-p", "a", "--stats", "--gpu", "null", "-v")
    check(b"6 of 6 layers and the head on null" in done.stderr and b"generated 3 in" in done.stderr, done.stderr)
    check(b"beside the CPU\n" in done.stderr and b"the rest" not in done.stderr, done.stderr)
    check(b"live neurons" not in done.stderr, done.stderr)
    done = good("run", "-n", "3", "-p", "a", "--stats", "--gpu", "null", "--json")
    check("live_share" not in json.loads(done.stdout), done.stdout)


@case
def three_levels_give_the_same_text():
    packed = scratch("packed.gguf")
    good("pack", MODEL, "-o", packed)
    card = "sim:" + os.path.join(SOURCE, "bench/devices/story.sim")
    words = ["run", packed, "-p", "Once upon a time", "-n", "12", "-c", "64", "--batch", "16", "-t", "1", "--seed", "1"]
    expected = json.loads(good(*words, "--gpu", "none", "--json").stdout)
    for device in ["null", card]:
        there = ["--gpu", device, "--placement", "even", "--vram", "5M"]
        for _ in range(30):  # what the process takes differs by a MiB, in which a third of this model fits
            limit = least_ram(*words, *there)
            result = json.loads(good(*words, *there, "--ram", limit, "--json").stdout)
            if result["storage"]["misses"] > 0:
                break
        check(result["ids"] == expected["ids"], device)
        check(result["gpu"]["layers"] == 6 and 0 < result["gpu"]["neurons"] < 1 and result["gpu"]["cpu_bits"], result)
        check(result["parts"] > 0 and result["storage"]["misses"] > 0 and result["storage"]["read_bytes"] > 0, result)
        said = good(*words, *there, "--ram", limit, "--stats", "-v").stderr
        check(b"6 of 6 layers with " in said and b" parts of the weights in memory, others read by " in said, said)
        check(b"storage, for each generated token: " in said, said)
        vram = device == "null"  # which has this machine's memory
        check(("--vram, -c" in bad(1, "needs at least", *words, *there, "--ram", "1M")) == vram, device)


@case
def a_plan_shows_the_placement_and_is_applied():
    card = "sim:" + scratch("quick.sim", QUICK_GPU.encode())
    placement = scratch("placement.gguf")
    shown = json.loads(good("plan", MODEL, "--gpu", card, "-c", "256", "-o", placement, "--json").stdout)
    check(shown["simulated"] is True and shown["is_card"] is False and shown["head"] is True, shown)
    check(len(shown["neurons"]) == 6 and 0 < shown["vram_bytes"] <= shown["budget_bytes"], shown)
    check(shown["tokens_per_second"] > shown["tokens_per_second_cpu"] > 0, shown)
    text = good("plan", MODEL, "--gpu", card, "-c", "256", "--what-if").stdout.decode()
    check("simulated quick" in text and "All of it fits there" in text and "MiB there" in text, text)
    check("hearth pack" not in text and "neurons 0 bytes" not in text and "whole layers 4." in text, text)
    # In steps of the model's size, up to all of it.
    steps = json.loads(good("plan", MODEL, "--gpu", card, "-c", "256", "--what-if", "--json").stdout)["what_if"]
    sizes, rates = [s["vram_bytes"] for s in steps], [s["tokens_per_second"] for s in steps]
    check(4 <= len(steps) <= 16 and sizes == [(i + 1) << 20 for i in range(len(steps))], steps)
    check(sizes[-2] < shown["vram_bytes"] + (1 << 20) < sizes[-1] + (1 << 21), steps, shown)
    check(rates == sorted(rates) and rates[0] < rates[-1] == shown["tokens_per_second"], steps, shown)
    several = json.loads(good("plan", MODEL, "--gpu", card, "-c", "256", "--parallel", "16", "--json").stdout)
    counts, speeds = zip(*((s["sequences"], s["tokens_per_second"]) for s in several["by_sequences"]))
    check(counts == (1, 4, 16, 64) and speeds == tuple(sorted(speeds)) and speeds[0] == several["tokens_per_second"], several)
    check(several["planned_sequences"] == 16 and several["tokens_per_second_planned"] == speeds[2], several)
    check(shown["planned_sequences"] == 1 and shown["tokens_per_second_planned"] == shown["tokens_per_second"], shown)
    text = good("plan", MODEL, "--gpu", card, "-c", "256", "--parallel", "16").stdout.decode()
    check("Of several sequences together: " in text and "; placed for 16: " in text, text)
    done = good("run", MODEL, "--gpu", card, "--placement", placement, "-c", "256", "-n", "3", "-p", "a", "--stats", "-v")
    check(b"6 of 6 layers and the head on simulated quick" in done.stderr, done.stderr)
    check(b"the plan expects" in done.stderr, done.stderr)
    check(done.stdout == good("run", MODEL, "--gpu", "none", "-n", "3", "-p", "a").stdout, done.stdout)
    wrong = bad(1, "simulated quick", "run", MODEL, "--gpu", "null", "--placement", placement, "-n", "1", "-p", "a")
    check("hearth plan" in wrong, wrong)
    for auto in [[], ["--gpu", "auto"]]:
        bad(1, "no GPU", "plan", MODEL, *auto, "--what-if", env=NO_DRIVER)
    with open(placement, "rb") as f:
        strange = scratch("strange.gguf", f.read().replace(b"simulated quick", b"\x9b31mlated quick"))
    line = bad(1, "strange.gguf was made for \\x9b31mlated quick (", "run", MODEL, "--gpu", card, "--placement", strange)
    check("not for simulated quick (" in line, line)
    unused = good("run", MODEL, "--gpu", "none", "--placement", placement, "-n", "1", "-p", "a").stderr
    check(b"placement.gguf is not used: no GPU is in use" in unused, unused)
    check(shown["tokens_per_second_least"] <= shown["tokens_per_second"] <= shown["tokens_per_second_most"], shown)
    check(shown["fits_ram"] is True and shown["host_bytes"] < 1e8, shown)
    text = good("plan", MODEL, "--gpu", card, "-c", "256", "--vram", "60M", "--ram", "1K").stdout.decode()
    check("They do not fit" in text, text)


@case
def a_plan_for_the_free_memory_of_a_small_gpu_fits():
    card = "sim:" + scratch("small.sim", QUICK_GPU.replace("vram_bytes = 1G", "vram_bytes = 260M").encode())
    placement, args = scratch("small.gguf"), ["-c", "64", "--batch", "8"]
    shown = json.loads(good("plan", MODEL, "--gpu", card, *args, "-o", placement, "--json").stdout)
    check(0 < len(shown["neurons"]) < 6 and shown["budget_bytes"] == 4 << 20 and shown["fits"] is True, shown)
    check("Whole layers only" in good("plan", MODEL, "--gpu", card, *args).stdout.decode(), "a part of it")
    line = bad(1, "small.gguf: it takes ", "run", MODEL, "--gpu", card, "--placement", placement, *args, "--vram", "2M")
    check(", and --vram allows 2.00 MiB: make it again with hearth plan, or give the -c and --batch" in line, line)
    for how in [placement, "plan", "even"]:
        done = good("run", MODEL, "--gpu", card, "--placement", how, *args, "-n", "3", "-p", "a")
        check(b" of 6 layers on sim" in done.stderr, how, done.stderr)
        check(done.stdout == good("run", MODEL, "--gpu", "none", "-n", "3", "-p", "a").stdout, how, done.stdout)


@measured
def a_plan_without_a_profile_says_what_it_assumes():
    card, packed = "sim:" + scratch("card.sim", QUICK_GPU.encode() + b"host_bandwidth = 1e9\n"), scratch("packed.gguf")
    good("pack", MODEL, "-o", packed)
    args = ["plan", packed, "--gpu", card, "--vram", "4M", "-c", "64", "--batch", "8"]
    check(b"Nothing is known of who fires: 25 % of the neurons" in good(*args).stdout, good(*args))
    check(b"Nothing is known" not in good(*args, "--selector", "dense").stdout, "of dense all is known")
    rates = [json.loads(good(*args, "--json", *more).stdout)["tokens_per_second_cpu"] for more in [[], ["--selector", "dense"]]]
    check(1.2 < rates[0] / rates[1] < 2.5, rates)


@case
def impossible_vram_is_refused_and_more_than_the_gpu_has_is_reported():
    args = ["run", MODEL, "-c", "64", "--batch", "8", "-n", "3", "-p", "a"]
    card = "sim:" + scratch("quick.sim", QUICK_GPU.encode())
    bad(2, "--vram '0': expected bytes, at least 1, ", *args, "--gpu", card, "--vram", "0")
    for wrong in ["-5", "9X", "1e", "", "G", "nan"]:
        said = "expected bytes, at least 1, as 500M or 7.5g, with K, M, G, T or no unit; or auto"
        bad(2, said, *args, "--gpu", card, "--vram=" + wrong)
    for little in ["1", "4096", "0.001K"]:
        line = bad(1, "hold no layer of this model: the least is --vram", *args, "--gpu", card, "--vram", little)
    # The advice is an option that works as it stands.
    least, whole = re.search(r"the least is --vram (\S+), all of it takes (\S+); a smaller -c or --batch takes less$", line).groups()
    check(b"the rest on the CPU" in good(*args, "-v", "--gpu", card, "--vram", least).stderr, least)
    check(b"6 of 6 layers and the head" in good(*args, "-v", "--gpu", card, "--vram", whole.lower()).stderr, whole)
    # A plan names the same.
    plan = ["plan", MODEL, "--gpu", card, "--vram", "4096", "-c", "64", "--batch", "8"]
    placed = scratch("none.gguf")
    done = hearth(*plan, "-o", placed)
    check(done.returncode == 1 and not os.path.exists(placed), "a placement of nothing", done)
    check(b"no layer fits there: the least is --vram %s; a smaller -c" % least.encode() in done.stderr, done.stderr)
    check("the least is --vram %s;" % least in good(*plan).stdout.decode(), least)
    planned = good("plan", MODEL, "--gpu", card, "--vram", least, "-c", "64", "--batch", "8").stdout
    check(b"No layer fits" not in planned and b"GPU us" in planned, planned)
    shown = json.loads(good(*plan, "--json").stdout)
    check(shown["fits"] is False and 4096 < shown["least_bytes"] < 1e7, shown)
    bad(2, "no such option; see hearth plan --help", *plan, "--gpu-strict")
    bad(1, "x: cannot open: No such file or directory; it is no placement: hearth plan writes one", *plan, "--placement=x")
    done = good(*args, "--gpu", card, "--vram", "8000T")
    check(b"simulated quick has 768.00 MiB free, less than the 8000.00 TiB that --vram allows" in done.stderr, done.stderr)
    check(done.stdout == good(*args, "--gpu", "none").stdout, done.stdout)


@case
def a_gpu_too_small_for_any_model_reports_its_free_memory():
    card = "sim:" + scratch("tiny.sim", QUICK_GPU.replace("vram_bytes = 1G", "vram_bytes = 200M").encode())
    for vram in [[], ["--vram", "100M"]]:
        line = bad(1, "no layer of it fits on simulated quick: the least is ", "run", MODEL, "--gpu", card, *vram)
        check("of its 200.00 MiB 0 bytes are free" in line and "--gpu none" in line and "--vram" not in line, line)
    text = good("plan", MODEL, "--gpu", card).stdout.decode()
    check("0 bytes are free" in text and "No layer fits there: the least is " in text, text)
    check("no model has room there" in findings("--device", card)[1]["gpu"]["fix"], "doctor")


# Where Vulkan's loader finds no driver, whatever the machine has.


@case
def unknown_devices_and_placements_have_different_messages():
    args = ["run", MODEL, "-n", "1", "-p", "a"]
    bad(1, "the name of a device is empty: auto, none, or a name", *args, "--gpu", "")
    bad(1, "sim: names no file: sim:FILE takes", *args, "--gpu", "sim:")
    bad(1, "nothing: there is no such device; known are null", *args, "--gpu", "nothing")
    dashed = "01234567-89ab-cdef-0123-456789abcdef"
    without = bad(1, "", *args, "--gpu", dashed.replace("-", ""), env=NO_DRIVER)
    for other in [dashed, dashed.upper(), dashed.replace("-", "").upper()]:
        line = bad(1, "", *args, "--gpu", other, env=NO_DRIVER).lower().replace(dashed, dashed.replace("-", ""))
        check(line == without.lower(), line, without)
    text = good("devices", env=NO_DRIVER).stdout.decode()
    check("no GPU: " in text, text)
    if "no driver was found" not in text:  # a build, or a machine, without Vulkan
        check("this build has no Vulkan" in text or "no Vulkan loader" in text, text)
    for device in [["--gpu", "null"], []]:
        for name, why in [("nonsense", "No such file"), (".", "it is a folder"), ("", "No such file")]:
            line = bad(1, "neither plan, even, all nor layers:N, nor a file that can be read (" + why, *args, *device,
                       "--placement", name, env=NO_DRIVER)
            check("%s: no such placement: " % (name or "''") in line and "model" not in line, line)


@case
def json_shows_the_placement_of_a_model():
    args = [MODEL, "-c", "64", "--batch", "8", "-n", "2", "-p", "a", "--json"]
    alone = json.loads(good("run", *args, "--gpu", "none").stdout)
    check(alone["gpu"] == {"layers": 0, "layers_in_all": 6, "cpu_bits": True}, alone)
    check(alone["decode_tokens_per_second"] > 0 and alone["prompt_tokens_per_second"] > 0, alone)
    gpu = json.loads(good("run", *args, "--gpu", "null", "--vram", "3M").stdout)["gpu"]
    check(gpu["device"] == "null" and 0 < gpu["layers"] < 6 and gpu["head"] is False and gpu["neurons"] == 1, gpu)
    check(gpu["cpu_bits"] is True and gpu["simulated"] is False and 0 < gpu["bytes"] <= 3 << 20, gpu)
    card = "sim:" + scratch("quick.sim", QUICK_GPU.encode())
    placed = scratch("placed.gguf")
    wants = good("plan", MODEL, "--gpu", card, "-c", "64", "--batch", "8", "-o", placed, "--json").stdout
    gpu = json.loads(good("run", *args, "--gpu", card, "--placement", placed).stdout)["gpu"]
    check(abs(gpu["predicted_tokens_per_second"] / json.loads(wants)["tokens_per_second"] - 1) < 1e-4, gpu, wants)
    check(gpu["simulated"] is True and gpu["layers"] == 6 and gpu["head"] is True, gpu)
    text = scratch("text", b"Once upon a time there was a dog. " * 20)
    shown = json.loads(good("perplexity", MODEL, "-f", text, "-c", "32", "--gpu", "null", "--json").stdout)
    check(shown["gpu"]["device"] == "null" and shown["gpu"]["layers"] == 6, shown)
    floats = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
    gpu = json.loads(good("run", floats, *args[1:], "--gpu", "null").stdout)["gpu"]
    check(gpu["cpu_bits"] is False and gpu["cpu_bits_note"].endswith(" is F32"), gpu)


@case
def the_divided_plan_of_the_documentation_is_what_it_shows():
    with open(os.path.join(SOURCE, "docs", "gpu.md"), encoding="utf-8") as f:
        part = f.read().split("\n## A divided model without a GPU\n")[1].split("\n## ")[0]
    lines = [l[4:] for l in part.split("\n") if l.startswith("    ")]
    commands = [l for l in lines if l.startswith(("hearth ", "for "))]
    check(len(commands) == 5, commands)
    for folder in ["models", "bench"]:
        os.symlink(os.path.join(SOURCE, folder), scratch(folder))
    path = os.path.dirname(os.path.abspath(HEARTH)) + os.pathsep + os.environ["PATH"]
    done = subprocess.run(["sh", "-ec", "\n".join(commands)], cwd=scratch(), env=dict(os.environ, PATH=path),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT)
    text = done.stdout.decode()
    check(done.returncode == 0, text)
    shown = [l for l in lines if l and l not in commands]
    check(len(shown) > 6 and "neurons there" in part, shown)
    for line in shown:  # an ellipsis stands for what differs between machines
        for piece in line.split("…"):
            check(piece.strip() in text, "the documentation shows", repr(piece), "but", text)


@case
def a_simulated_gpu_with_a_host_has_its_own_clock():
    text = QUICK_GPU.replace("bandwidth = 1e14", "bandwidth = 1e9").encode()
    args = ["-c", "64", "--batch", "8", "--vram", "9M", "-n", "5", "-p", "a"]
    for lines, own in [(b"host_bandwidth = 1e9\n", True), (b"", False)]:
        card = "sim:" + scratch("timed.sim", text + lines)
        shown = [json.loads(good("run", MODEL, "--gpu", card, *args, "--json").stdout) for _ in range(2)]
        check(all(s["simulated"] is True and s.get("simulated_seconds", False) is own for s in shown), shown)
        for seconds in ["prompt_seconds", "decode_seconds"]:
            check(not own or 0 < shown[0][seconds] == shown[1][seconds] < 1, shown)
        stats = good("run", MODEL, "--gpu", card, *args, "--stats").stderr
        check((b"simulated quick, by its clock: prompt" in stats) is own and b"simulated quick" in stats, stats)
    # A described host is not measured: every machine makes the same plan.
    card = "sim:" + scratch("timed.sim", text + b"host_bandwidth = 1e9\n")
    plans = [json.loads(good("plan", MODEL, "--gpu", card, "--json", env=env).stdout) for env in [{"HEARTH_CPU": "generic"}, {}]]
    check(plans[0]["calibration"] == plans[1]["calibration"] and plans[0]["neurons"] == plans[1]["neurons"], plans)
    check(plans[0]["calibration"]["staged_bytes_per_second"] == 1e9, plans)
    check(plans[0]["calibration"]["measured_bytes"] > 1000, plans)
    done = good("plan", MODEL, "--gpu", card)
    check(b"measuring" not in done.stderr, done.stderr)


@case
def a_plan_and_a_run_that_makes_one_expect_the_same():
    card = "sim:" + os.path.join(SOURCE, "bench", "devices", "story.sim")
    args = [MODEL, "--gpu", card, "--vram", "4M", "-c", "256", "--batch", "32", "--json"]
    plan = json.loads(good("plan", *args).stdout)
    shown = json.loads(good("run", *args, "--placement", "plan", "-n", "1", "-p", "a").stdout)
    check(shown["gpu"]["predicted_tokens_per_second"] == plan["tokens_per_second"], shown, plan)


@case
def a_warning_and_figures_begin_lines_of_their_own():
    with open(os.path.join(SOURCE, "bench", "devices", "8gb.sim"), "rb") as f:
        card = "sim:" + scratch("lost.sim", f.read() + b"fault = 130:device\n")
    args = ["run", MODEL, "--gpu", card, "-n", "20", "-p", "Once", "--stats"]
    lines = good(*args, stderr=subprocess.STDOUT).stdout.decode().split("\n")
    check(any(l.startswith("hearth: warning: ") and "continuing on the CPU" in l for l in lines), lines)
    check(any("prompt 2 tokens" in l and l.startswith("hearth: ") for l in lines), lines)
    apart = good(*args)  # the text alone has no line more
    check(apart.stdout.count(b"\n") == 1 and b"continuing on the CPU" in apart.stderr, apart)


@case
def lines_of_a_check_stand_behind_the_text():
    args = ["run", "--greedy", "-n", "20", "-p", "Once upon a time", "--check", "16", "--gpu", "none"]
    text = good(*args).stdout
    for shown in [good(*args, stderr=subprocess.STDOUT).stdout, re.sub(rb"\x1b\[\d*m", b"", on_terminal(*args).replace(b"\r\n", b"\n"))]:
        lines = shown[shown.index(text) + len(text):].split(b"\n")
        notes = [l for l in lines if l.startswith(b"hearth: ")]
        check(b"check of 16 tokens" in notes[-1] and len(notes) == len([l for l in lines if l]), shown)
        check(shown.count(b"hearth: ") == len(re.findall(rb"(?m)^(?:\r *\r)?hearth: ", shown)), shown)


@case
def progress_stands_before_the_text_and_leaves_its_line_to_warnings():
    def card(submit_us, lines=""):
        text = QUICK_GPU.replace("submit_us = 0", f"submit_us = {submit_us}").replace("clock = virtual", "clock = real")
        return "sim:" + scratch("slow.sim", (text + lines).encode())

    args = ["run", MODEL, "-c", "64", "-n", "1", "-p"]
    done = on_terminal(*args, "Once upon a time there", "--batch", "2", "--gpu", card(800000))
    check(b"prompt [" in done, done)
    check(re.search(rb"\r +\r *Once upon a time there", done), done)
    # Opening takes some 95 calls and a token two, one more or less where a wait was short: about the 33rd of 43 is
    # lost, and progress is shown after two seconds, from about the 20th on.
    done = on_terminal(*args, "a b " * 20, "--batch", "1", "--gpu", card(100000, "fault = 160:device\n"))
    check(re.search(rb"prompt \[.*\r +\rhearth: warning: .* continuing on the CPU\r\n", done), done)


@case
def a_closed_stream_is_not_reused_for_a_file():
    for args in [["run", MODEL, "-"], ["run", MODEL, "-f", "-"], ["chat", MODEL, "--template", "chatml"]]:
        done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", HEARTH, *args, "-n", "1"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=TIMEOUT)
        check(done.returncode == 1 and b"Bad file descriptor" in done.stderr and not done.stdout, args, done)
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", HEARTH, "run", MODEL, "-n", "1"], stderr=subprocess.PIPE,
                          timeout=TIMEOUT)
    check(done.returncode == 1 and b"stdout: " in done.stderr, done)


@case
def a_context_beyond_what_was_trained_for_is_said():
    done = good("run", MODEL, "-c", "1000", "-n", "1", "-p", "a", "--gpu", "none")
    check(done.stderr.count(b"warning: -c takes 1000 positions, but ") == 1 and b"trained for 512" in done.stderr, done)
    check(b"warning" not in good("run", MODEL, "-n", "1", "-p", "a", "--gpu", "none").stderr, "by itself")
    text = scratch("text", b"a dog " * 900)
    done = good("perplexity", MODEL, "-f", text, "-c", "600", "--chunks", "1", "--gpu", "none")
    check(b"warning: -c takes 600 positions, but " in done.stderr and b"trained for 512" in done.stderr, done)


# ---- signals -------------------------------------------------------------------------------------------


@case
def interrupt_ends_a_run_with_what_was_generated():
    for number in [signal.SIGINT, signal.SIGTERM]:
        # Unbuffered: what a buffer has read beyond the 30 bytes, communicate would not see.
        process = subprocess.Popen([HEARTH, "run", "--ignore-eos", "--greedy", "-p", "Once upon a time", "-t", "1"],
                                   bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begin = process.stdout.read(30)
        process.send_signal(number)
        rest, stderr = process.communicate(timeout=TIMEOUT)
        check(process.returncode == 128 + number, process.returncode, stderr)
        text = begin + rest
        check(text.endswith(b"\n") and story("-p", "Once upon a time", "--ignore-eos").startswith(text[:-1]), text)


def interrupted_run(wait):
    """Output of run --json after SIGINT twice, as timeout(1) sends it to a process and its group; seconds between."""
    process = subprocess.Popen([HEARTH, "run", "--ignore-eos", "--greedy", "-p", "Once upon a time", "-n", "100000",
                                "--json", "-c", "100000", "-t", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(wait)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.0001)
    process.send_signal(signal.SIGINT)
    gap = time.monotonic() - begin
    out, err = process.communicate(timeout=TIMEOUT)
    early = process.returncode == -signal.SIGINT and not out  # before the handler was installed
    check(early or process.returncode == 130, process.returncode, err)
    return out, gap


@case
def an_interrupted_run_prints_its_json():
    wait = 0.3
    seen = 0
    while seen < 10:
        out, gap = interrupted_run(wait)
        if gap > 0.05:
            continue  # a busy machine: a second interrupt 0.1 s later ends the program at once
        found = json.loads(out) if out else {"ids": []}
        if not found["ids"] and wait < 64:
            wait *= 2  # until the model is read and runs, however slow the machine is
            continue
        check(found["end"] == "interrupted" and len(found["prompt_ids"]) > 4, found)
        check(0 < len(found["ids"]) < 100000 and found["text"], found)
        seen += 1


@case
def an_interrupt_before_the_model_runs_ends_at_once():
    process = subprocess.Popen([HEARTH, "run", "-f", "-", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    time.sleep(2)  # it waits for the prompt
    process.send_signal(signal.SIGINT)
    check(process.wait(timeout=TIMEOUT) == 130, process.returncode)
    out, err = process.stdout.read(), process.stderr.read()
    process.stdin.close(), process.stdout.close(), process.stderr.close()
    check(out == b"" and err == b"\nhearth: interrupted\n", out, err)


@case
def interrupts_end_a_chunk_and_a_prompt():
    text = scratch("long.txt", b"Once upon a time there was a little girl. " * 4000)
    model = scratch("slow.gguf", tiny_model(n_layer=16))
    for args in [["perplexity", model, "-f", text, "-c", "16000", "-t", "1"],
                 ["compare", model, "--against", model, "-f", text, "-c", "16000", "-t", "1"],
                 ["bench", model, "-p", "16000", "-c", "16000", "--repeat", "1", "-t", "1"]]:
        for wait in [1, 4, 16, 64]:  # until the model is read, however slow the machine is
            process = subprocess.Popen([HEARTH, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(wait)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=TIMEOUT)
            if b"loading was cancelled" not in err:
                break
        check(process.returncode == 143 and b"interrupted" in err, args, process.returncode, out, err)


@case
def a_hangup_that_is_ignored_stays_ignored():
    process = subprocess.Popen([HEARTH, "run", "-n", "40", "-p", "Once", "-t", "1", "--seed", "0"], stdout=subprocess.PIPE, bufsize=0,
                               stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    begin = process.stdout.read(1)
    process.send_signal(signal.SIGHUP)
    rest, _ = process.communicate(timeout=TIMEOUT)
    check(begin + rest == good("run", "-n", "40", "-p", "Once").stdout, begin, rest)


@case
def interrupt_during_quantize_leaves_no_file():
    path = scratch("large.gguf", tiny_model(n_layer=120))
    process = subprocess.Popen([HEARTH, "quantize", path, scratch("out.gguf"), "q4_0", "-t", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not os.path.exists(scratch("out.gguf.hearth-part")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=TIMEOUT)
    check(process.returncode == 130 and b"hearth: interrupted; nothing was written" in stderr, process.returncode, stderr)
    check(not os.path.exists(scratch("out.gguf")) and not os.path.exists(scratch("out.gguf.hearth-part")), "a file is left")


if __name__ == "__main__":
    cases.run_cases(__file__)
