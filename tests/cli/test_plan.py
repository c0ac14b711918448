"""hearth plan with a limit of memory, and what run and bench print beside it. Called by CTest with the program's path.
Python 3, standard library only."""

import json
import os
import re
import time

from program import MODEL, NO_DRIVER, QUICK_GPU, SOURCE, cases, case, check, data, good, bad, hearth, least_ram, scratch

FLOATS = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
MIXTURE = data("golden/quant/smallthinker-downt-Q4_0.gguf")
SMALL = ["-c", "64", "--batch", "8", "-t", "1"]


def telling(model):
    return ["run", model, "-n", "1", "-p", "a", *SMALL, "--gpu", "none"]


def planned(model, ram, *more):
    return json.loads(good("plan", model, *SMALL, "--gpu", "none", "--ram", ram, "-n", "16", "--json", *more).stdout)


def little_ram(model):
    """Between the least and what all of it takes: some of the weights stay."""
    memory = planned(model, "1T")["memory"]
    return str((memory["least_bytes"] + memory["whole_bytes"]) // 2)


def divided(model, *more):
    """Arguments of a plan, and its text, in which part of the weights is in the file. What the process takes differs by a
    MiB, which may be as much as the weights of a small model."""
    for _ in range(30):
        args = ["plan", model, *SMALL, "--gpu", "none", "--ram", little_ram(model), *more]
        done = hearth(*args)
        if done.returncode == 0 and b"all weights" not in done.stdout:
            return done.stdout.decode()
    raise AssertionError("never divided")


@case
def a_plan_without_a_gpu_divides_the_limit():
    for model in [FLOATS, MIXTURE]:
        for _ in range(30):
            least = little_ram(model)
            shown = planned(model, least)
            memory = shown["memory"]
            if not memory["fits"]:
                break
        check(memory["limit_bytes"] == int(least) and memory["fits"] is False, memory)
        check(memory["least_bytes"] <= int(least) < memory["whole_bytes"], memory)
        check(memory["cached_bytes"] if model == MIXTURE else memory["streamed_bytes"], memory)
        taken = sum(memory[key + "_bytes"] for key in ["resident", "cached", "pinned", "session", "process"])
        check(taken <= memory["limit_bytes"], taken, memory)
        check(0 < shown["tokens_per_second_least"] <= shown["tokens_per_second"] * 1.001, shown)
        check(shown["prompt_read_bytes_first"] > 0 and shown["prompt_tokens_per_second_first"] > 0, shown)
        check(shown["tokens_per_second"] <= shown["tokens_per_second_most"] * 1.001, shown)
        check(shown["limited_by"] in ["cpu", "disk"] and shown["read_bytes"] > 0 and 0 <= shown["hits"] <= 1, shown)
        check(shown["disk"]["bytes_per_second"] > 0 and shown["cpu"][0]["row_bytes_per_second"] > 0, shown)
        check([d["bytes_per_second"] for d in shown["with_disk"]] == [3.5e9, 7e9], shown)
        limits = [m["limit_bytes"] for m in shown["with_memory"]]
        check(len(limits) == 5 and limits == sorted(limits) and limits[-1] == memory["whole_bytes"], limits)
        check(("assumed_experts" in shown) == (model == MIXTURE), shown)
        whole = planned(model, "1T")
        check(whole["memory"]["fits"] and whole["read_bytes"] == 0 and whole["hits"] == 1, whole)
        check("disk" not in whole and whole["with_memory"] == whole["with_disk"] == [], whole)
        check(whole["limited_by"] == "cpu" and whole["memory"]["streamed_bytes"] == 0, whole)


@case
def a_plan_is_read_by_people_too():
    least = little_ram(FLOATS)
    text = good("plan", FLOATS, *SMALL, "--gpu", "none", "--ram", least).stdout.decode()
    for words in ["resident", "in the file", "session", "Measured: ", "Expected: ", "tokens/s", "limits: ", "all in memory",
                  "a disk of 3.5 GB/s", "packed, with predictors"]:
        check(words in text, words, text)
    check("without --profile" in text and "Experts" not in text, text)
    check(re.search(r"latency \d+ us \(\d+ to \d+\)", text), text)
    parts = re.search(r"a token takes ([\d.]+) ms, ([\d.]+) computing and ([\d.]+) waiting for the disk", text)
    if parts:  # None: all of it fits now
        check(abs(float(parts[1]) - float(parts[2]) - float(parts[3])) < 0.11, text)
    text = divided(MIXTURE)
    check("Experts are assumed" in text and "packed" not in text.split("Expected")[1], text)
    simulated = good("plan", FLOATS, *SMALL, "--gpu", "none", "--ram", least, "--io", "sim:sata").stdout.decode()
    check("The disk is simulated." in simulated, simulated)
    text = good("plan", FLOATS, *SMALL, env=NO_DRIVER).stdout.decode()
    check("; no GPU" in text and "all weights" in text and "the CPU limits" in text, text)


@case
def reads_are_those_that_the_environment_says():
    for _ in range(30):
        words = ["plan", FLOATS, *SMALL, "--gpu", "none", "--ram", little_ram(FLOATS)]
        done = hearth(*words, env={"HEARTH_IO": "sim:sata"})
        if done.returncode == 0 and b"all weights" not in done.stdout:
            break
    check(b"The disk is simulated." in done.stdout, done.stdout)
    bad(1, "HEARTH_IO=ftp: no way to read", "plan", FLOATS, "--gpu", "none", env={"HEARTH_IO": "ftp"})


@case
def a_profile_says_what_packing_gives():
    words, profile = scratch("text", b"Once upon a time there was a cat. " * 40), scratch("profile.gguf")
    good("profile", FLOATS, "-f", words, "-o", profile, "-c", "64")
    shown = planned(FLOATS, little_ram(FLOATS), "--profile", profile)
    check(shown["packed_tokens_per_second_most"] > 0, shown)
    bad(1, "profile", "plan", MIXTURE, "--gpu", "none", *SMALL, "--profile", profile)


@case
def drawn_experts_are_those_of_bench():
    spec = ["--route", "uniform,sticky=0.2,seed=3"]
    text = divided(MIXTURE, *spec)
    check("Experts are drawn: uniform, sticky 0.2" in text and "assumed" not in text, text)
    frequencies = scratch("frequencies", b"1 " * 3)
    wrong = ["plan", MIXTURE, *SMALL, "--gpu", "none", "--route", f"file={frequencies}", "--ram"]
    for _ in range(30):
        done = hearth(*wrong, little_ram(MIXTURE))
        if done.returncode == 1 and b"needs at least" not in done.stderr:
            break
    check(b"have a frequency" in done.stderr, done.stderr)
    bad(2, "plan --route 'all'", "plan", MIXTURE, "--gpu", "none", "--route", "all")
    bad(1, "has no experts", "plan", FLOATS, *SMALL, "--gpu", "none", "--ram", little_ram(FLOATS), *spec)


@case
def recorded_experts_are_those_of_bench():
    words, trace = scratch("text", b"Once upon a time there was a cat. " * 40), scratch("trace")
    good("profile", MIXTURE, "-f", words, "-o", trace, "-c", "64")
    spec = ["--route", f"trace={trace}"]
    text = divided(MIXTURE, *spec)
    check(f"Experts are recorded: trace {trace}, its" in text and "assumed" not in text, text)
    shown = planned(MIXTURE, little_ram(MIXTURE), *spec)
    check(shown["drawn_experts"]["trace"] == trace and "assumed_experts" not in shown, shown)
    other = data("golden/arch/dots1.gguf")
    for _ in range(30):
        done = hearth("plan", other, *SMALL, "--gpu", "none", *spec, "--ram", little_ram(other))
        if done.returncode == 1 and b"needs at least" not in done.stderr:
            break
    check(b"layers" in done.stderr and b"the trace has" in done.stderr, done.stderr)


@case
def a_plan_with_a_gpu_says_whether_the_rest_fits_into_memory():
    card, packed = "sim:" + scratch("quick.sim", QUICK_GPU.encode() + b"host_bandwidth = 1e9\n"), scratch("packed.gguf")
    good("pack", FLOATS, "-o", packed)
    words = ["plan", packed, *SMALL, "--gpu", card, "--vram", "5M"]
    whole = json.loads(good(*words, "--ram", "1G", "--json").stdout)
    check(whole["fits_ram"] is True and b"They do not fit" not in good(*words, "--ram", "1G").stdout, whole)
    for ram in ["9M", "1K"]:
        shown = json.loads(good(*words, "--ram", ram, "--json").stdout)
        check(shown["fits_ram"] is False and shown["host_bytes"] > shown["ram_bytes"], shown)
        check(shown == {**whole, "fits_ram": False, "ram_bytes": shown["ram_bytes"]}, "another placement", shown, whole)
        text = good(*words, "--ram", ram).stdout
        check(b"They do not fit: with this --ram a run reads the rest from storage" in text, text)
    for mapped in ["--io=mmap", "--mmap"]:
        line = bad(1, "a limit of memory cannot be combined with mapped weights", *words, "--ram", "9M", mapped)
        check("no way to read" not in line, line)
        good(*words, mapped)
    bad(1, "no way to read is called 'ftp'", *words, "--io", "ftp")
    bad(1, "needs at least ", *words[:-2], "--vram", "100K", "--ram", "9M") # no layer fits there: as without a GPU
    bad(1, "has no experts", *words, "--route=uniform")
    for option in ["--prompt=8", "--predict=8"]:
        bad(2, f"plan with a GPU: {option.partition('=')[0]} is for plans without one", *words, option)


@case
def two_gpus_are_in_one_plan():
    card = "sim:" + scratch("quick.sim", QUICK_GPU.encode())
    packed, placement = scratch("packed.gguf"), scratch("two.placement")
    good("pack", FLOATS, "--type", "q8_0", "-o", packed)
    two = ["--gpu", f"{card},{card}", "--vram", "3M,4M"]
    words = ["plan", packed, *SMALL, *two]
    shown = json.loads(good(*words, "--json", "-o", placement).stdout)
    first, second = shown["devices"]
    check(0 < first["end_layer"] < second["end_layer"] <= len(shown["neurons"]), shown)
    check(0 < first["vram_bytes"] <= 3 << 20 and 0 < second["vram_bytes"] <= 4 << 20, shown)
    check((first["budget_bytes"], second["budget_bytes"]) == (3 << 20, 4 << 20), shown)
    one = json.loads(good("plan", packed, *SMALL, "--gpu", card, "--vram", "3M", "--json").stdout)
    check(shown["tokens_per_second"] > one["tokens_per_second"] and "devices" not in one, one, shown)
    text = good(*words).stdout.decode()
    for name in ["GPU 1", "GPU 2"]:
        check("on " + name in text and f"\nOn {name}, simulated quick: " in text, text)
    inspected = json.loads(good("inspect", placement, "--json").stdout)["sidecar"]["devices"]
    check([d["end_layer"] for d in inspected] == [first["end_layer"], second["end_layer"]], inspected)
    check([d["device"] for d in inspected] == ["simulated quick"] * 2, inspected)
    plain = good("inspect", placement).stdout.decode()
    check(plain.count("its layers") == 2 and f"0 to {first['end_layer'] - 1}\n" in plain, plain)
    run = ["run", packed, "-p", "a", "-n", "8", "--greedy", *SMALL]
    wanted = good(*run, "--gpu", "none").stdout
    for more in [[], ["--placement", placement], ["--placement", "even"], ["--placement", "layers:5"]]:
        done = good(*run, *two, *more, "-v")
        check(done.stdout == wanted and b"the CPU's bits" in done.stderr, done.stderr)
        check(b" and simulated quick (layers " in done.stderr, done.stderr)
    bad(1, "was made for 2 GPUs, and --gpu names 1", *run, "--gpu", card, "--placement", placement)
    bad(1, "2 limits of memory, and ", *run, "--gpu", card, "--vram", "3M,4M")
    bad(2, "--what-if: sizes of one GPU", *words, "--what-if")
    bad(1, "one device is expected here, not several", "list", "--gpu", "null,null")
    bad(2, "--vram '': expected bytes", *run, "--gpu", card, "--vram", "3M,")


@case
def the_faster_gpu_has_what_fits_on_either():
    """A run plans as hearth plan does, though all of it fits on the first one."""
    words = QUICK_GPU.replace("quick", "slow").replace("bandwidth = 1e14", "bandwidth = 1e9")
    slow = "sim:" + scratch("slow.sim", words.encode())
    quick = "sim:" + scratch("quick.sim", QUICK_GPU.encode())
    for devices, idle in ((f"{slow},{quick}", 0), (f"{quick},{slow}", 1)):
        shown = json.loads(good("plan", MODEL, *SMALL, "--gpu", devices, "--json").stdout)["devices"]
        check([d["vram_bytes"] == 0 for d in shown] == [i == idle for i in range(2)], shown)
        done = good("run", MODEL, "-p", "a", "-n", "2", *SMALL, "--gpu", devices, "--placement", "plan")
        check(b" on simulated quick\n" in done.stderr and b"on simulated slow\n" not in done.stderr, done.stderr)


@case
def a_plan_takes_the_faster_home_of_keys_and_values():
    """Memory for a part of the weights and a long context: without a cache more layers lie there. With more memory, or a
    short context, the cache stays with its layers."""
    card, placement = "sim:" + os.path.join(SOURCE, "bench", "devices", "story.sim"), scratch("kv.placement")
    few = [MODEL, "--batch", "8", "-t", "1", "--gpu", card]
    words = [*few, "-c", "2048"]

    def plan(vram, *more, words=words):
        return json.loads(good("plan", *words, "--vram", vram, "--json", *more).stdout)

    for shown, on_host in (plan("5M"), True), (plan("12M"), False), (plan("8M", words=[*few, "-c", "64"]), False):
        check(shown["host_kv"] is on_host and 0 < shown["tokens_per_second_other_kv"] < shown["tokens_per_second"], shown)
    shown, here = plan("5M", "-o", placement), plan("12M", "--no-kv-offload")
    with_cache = plan("12M")
    check(here["host_kv"] is True and "tokens_per_second_other_kv" not in here, here)
    check(abs(here["tokens_per_second"] - with_cache["tokens_per_second_other_kv"]) < 0.01, here, with_cache)
    text = good("plan", *words, "--vram", "5M").stdout.decode()
    other = f"with its layers: {shown['tokens_per_second_other_kv']:.2f} tokens/s"
    check(f"KV cache: in host memory, where the CPU computes attention; {other}\n" in text, text)
    check(", caches 0 bytes, " in text, text)
    check(json.loads(good("inspect", placement, "--json").stdout)["sidecar"]["host_kv"] is True, "inspect")
    check("in host memory" in good("inspect", placement).stdout.decode(), "inspect")
    run = ["run", *words, "--vram", "5M", "-p", "Once upon a time", "-n", "12", "--greedy"]
    wanted = good("run", MODEL, *run[-5:], "--gpu", "none").stdout
    there = {}
    for how in [], ["--placement", placement], ["-nkvo"]:
        done = good(*run, *how)
        check(done.stdout == wanted and (b", KV in RAM, " in done.stderr) == bool(how), how, done.stderr)
        there[len(how)] = json.loads(good(*run, *how, "--json").stdout)["gpu"]
    check(there[2]["host_kv"] and there[1]["host_kv"] and not there[0]["host_kv"], there)
    check(there[2]["layers"] > there[0]["layers"] and there[1]["layers"] > there[0]["layers"], there)


@case
def what_cannot_lie_on_a_gpu_is_planned_without_it():
    card = "sim:" + scratch("quick.sim", QUICK_GPU.encode())
    words = ["plan", data("golden/arch/deepseek4.gguf"), *SMALL, "--predict", "8", "--route", "uniform"]
    for more in [[], ["--vram", "5M"], ["--ram", "1G"]]:
        text = good(*words, "--gpu", card, *more).stdout.decode()
        check("no shader mixes residual streams" in text.partition("\n")[0] and "GPU us" not in text, text)
    shown = json.loads(good(*words, "--gpu", card, "--json").stdout)
    check(shown["no_gpu"] == "no shader mixes residual streams" and "memory" in shown, shown)
    bad(1, "no.sim", *words, "--gpu", "sim:" + scratch("no.sim"))
    bad(1, "cannot lie on a device: no shader mixes residual streams", *words[:-4], "--gpu", card, "--what-if")


@case
def prompts_take_larger_steps_where_the_limit_has_room():
    model = scratch("15m.gguf")
    good("synth", "stories-15m", model, "--type", "f32", "-q")
    words = ["plan", model, "-t", "1", "-c", "2048", "--gpu", "none", "--predict", "1", "--prompt", "0", "--json"]

    def memory(*more):
        return json.loads(good(*words, *more).stdout)["memory"]

    all_there = memory("--ram", "1T")
    little = str(all_there["whole_bytes"] - (3 << 20))
    some, least, more = [memory("--ram", little, *batch)
                         for batch in [[], ["--batch", "256"], ["--batch", "512"]]]
    check(least["session_bytes"] < some["session_bytes"] == more["session_bytes"], some, least, more)
    check(more["session_bytes"] - least["session_bytes"] <= int(little) // 16, least, more, little)
    check(some["least_bytes"] < more["least_bytes"], "a smaller limit has smaller steps", some, more)
    check(all_there["session_bytes"] == memory("--ram", "1T", "--batch", "256")["session_bytes"], all_there)
    told = ["run", model, "-p", "Once upon a time " * 100, "-n", "8", "-c", "2048", "-t", "2", "--gpu", "none"]
    check(good(*told, "--ram", little).stdout == good(*told).stdout, "another text than in memory")


@case
def limits_that_a_run_refuses_are_refused():
    for command in ["plan", "run"]:
        line = bad(1, "needs at least ", command, FLOATS, *SMALL, "--gpu", "none", "--ram", "1M")
        check("the limit is 1.00 MiB; -c and --batch make it less" in line, line)
    bad(1, "no way to read is called 'ftp'", "plan", FLOATS, "--gpu", "none", "--io", "ftp")
    for option in ["--what-if", "--out=" + scratch("placement"), "--vram=1G"]:
        bad(2, "plan --gpu none: nothing is placed; leave " + option.partition("=")[0], "plan", FLOATS, "--gpu", "none", option)


@case
def no_gpu_is_advised_where_its_driver_takes_memory():
    words = ["run", FLOATS, *SMALL, "-n", "1", "-p", "a", "--ram", "1M"]
    has_driver = b"vulkan:" in good("devices").stdout
    line = bad(1, "needs at least ", *words)
    check(("; --gpu none, -c and --batch make it less" in line) == has_driver, line)
    check("; -c and --batch make it less" in bad(1, "needs at least ", *words, env=NO_DRIVER), "no driver")


@case
def mapped_weights_have_no_limit_to_plan():
    for how in [{"args": ["--io", "mmap"]}, {"args": ["--mmap"]}, {"env": {"HEARTH_IO": "mmap"}}]:
        words = ["plan", FLOATS, *SMALL, "--gpu", "none", *how.pop("args", [])]
        line = bad(1, "plan divides a limit of memory, which mapped weights have none of", *words, **how)
        check("cannot be combined" not in line, line)
        bad(1, "a limit of memory cannot be combined with mapped weights", *words, "--ram", "1G", **how)


@case
def cores_are_measured_again_when_that_is_asked_for():
    cache = scratch("cache")
    words = ["plan", FLOATS, *SMALL, "--gpu", "none", "--ram", "1T"]

    def rates(*more):
        shown = json.loads(good(*words, "--json", *more, env={"HEARTH_CACHE": cache}).stdout)
        return shown["cpu"]

    first = rates()
    check(abs(first[0]["measured_at"] - time.time()) < 600, first)
    time.sleep(1.1)
    check(rates() == first, "cached", first)
    again = rates("--again")
    check(again[0]["measured_at"] > first[0]["measured_at"] and rates() == again, first, again)
    text = good(*words, env={"HEARTH_CACHE": cache}).stdout.decode()
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(again[0]["measured_at"]))
    check(f"The cores were measured {at}; if other programs were running then, --again measures again" in text, text)


@case
def the_lists_of_bench_leave_the_session_that_is_announced():
    """The least memory of small sessions is some MiB below that of the usual ones."""
    words = ["bench", FLOATS, "-t", "1", "--gpu", "none", "-p", "0", "-n", "4", "--ram", "1K"]

    def least(*more):
        return int(bad(1, "needs at least ", *words, *more).partition(" bytes)")[0].rpartition("(")[2])

    usual = least("-c", "4096", "--batch", "256")
    for lists in [["-f", MODEL], ["--fire", "share=0.1"]]:
        check(least("-c", "64", "--batch", "8", *lists) < usual - (4 << 20), lists, usual)


if not os.environ.get("HEARTH_SANITIZED"):  # it takes more memory in this process than in the forked one that measures

    @case
    def stats_show_what_was_expected():
        least = least_ram("run", FLOATS, "-n", "4", "-p", "a", *SMALL, "--gpu", "none")
        words = ["run", FLOATS, "-n", "4", "-p", "a", *SMALL, "--gpu", "none", "--seed", "1"]
        done = good(*words, "--ram", least, "--stats")
        check(b"with this memory, " in done.stderr and b"were expected" in done.stderr, done.stderr)
        check(b"were expected" not in good(*words, "--ram", least).stderr, "without --stats")
        check(b"were expected" not in good(*words, "--ram", "1T", "--stats").stderr, "all in memory")
        shown = json.loads(good(*words, "--ram", least, "--stats", "--json").stdout)
        check(0 < shown["expected_tokens_per_second_least"] <= shown["expected_tokens_per_second"] * 1.001, shown)
        bench = ["bench", FLOATS, *SMALL, "--gpu", "none", "-p", "0", "-n", "8", "--repeat", "1"]
        shown = json.loads(good(*bench, "--ram", least, "--json").stdout)
        check(shown["expected_tokens_per_second"] > 0, shown)
        check(b"are expected of the first generation that is measured, with a filled cache" in good(*bench, "--ram", least).stdout, "as text")
        check("expected_tokens_per_second" not in json.loads(good(*bench, "--json").stdout), "without a limit")

    @case
    def nothing_is_expected_of_what_is_not_predicted():
        card, packed = "sim:" + scratch("quick.sim", QUICK_GPU.encode()), scratch("packed.gguf")
        good("pack", FLOATS, "-o", packed)
        words = ["run", packed, "-n", "2", "-p", "a", *SMALL, "--gpu", card, "--vram", "5M", "--stats"]
        done = good(*words, "--ram", least_ram(*words))
        line = b"no speed was expected with this memory: a part of the model may lie on a GPU"
        check(line in done.stderr and b"were expected" not in done.stderr, done.stderr)
        check(b"no speed was expected" not in good(*words, "--ram", "1T").stderr, "all in memory")
        bench = ["bench", packed, *SMALL, "--gpu", "none", "-p", "0", "-n", "8", "--repeat", "1"]
        limit = ["--ram", least_ram(*bench), "--json"]
        for more in [[], ["--fire", "share=0.1"], ["--in-turn"]]:
            shown = json.loads(good(*bench, *limit, *more).stdout)
            check(shown["parts"] > 0 and ("expected_tokens_per_second" in shown) == (not more), more, shown)

    @case
    def warnings_are_there_once():
        words = ["run", FLOATS, "-n", "1", "-p", "a", *SMALL, "--gpu", "none", "--gpu-layers", "1"]
        done = good(*words, "--ram", least_ram(*words), "--stats")
        check(done.stderr.count(b"no layers go there") == 1 and b"were expected" in done.stderr, done.stderr)


if __name__ == "__main__":
    cases.run_cases(__file__)
