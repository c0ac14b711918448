#!/usr/bin/env python3
"""Runs the program on devices that are not here: tests/device/layer.c changes what a driver says and does. The text is
the CPU's, or one line says what the device lacks; the program always ends.

    tests/cli/test_devices.py build/hearth FOLDER_OF_THE_LAYER"""
import ctypes.util
import functools
import glob
import json
import os
import re
import shutil
import sys
import time

LAYER = sys.argv[2]
sys.argv = sys.argv[:2]
from program import MODEL, case, cases, check, data, hearth, scratch  # noqa: E402: program.py reads the arguments
from devices import DEVICES, layer_environment  # noqa: E402: program.py knows its folder

LONG = bool(os.environ.get("HEARTH_LONG"))
WORDS = ["run", MODEL, "-p", "Once upon a time", "-n", "12", "--greedy", "-c", "64", "--batch", "8", "-v"]


@functools.cache
def has_driver():
    return b"vulkan:0" in hearth("devices").stdout


def with_layer(words, *args, more=()):
    """Runs the program under the layer, which must report no call that the device does not allow. more: of the
    environment."""
    report = scratch("report")
    if not has_driver():
        raise cases.Skip("no Vulkan driver")
    if os.path.exists(report):
        os.remove(report)
    env = {**layer_environment(LAYER, words, report), "HEARTH_CACHE": scratch("cache"), **dict(more)}
    r = hearth(*args, env=env)
    check(not os.path.exists(report), words, "not allowed:", os.path.exists(report) and open(report).read())
    return r


def text_of_the_cpu():
    r = hearth(*WORDS, "--gpu", "none")
    check(r.returncode == 0, r.stderr)
    return r.stdout


def same_text(words, *more):
    """The CPU's text, and what was said."""
    r = with_layer(words, *WORDS, "--gpu", "vulkan:0", *more)
    check(r.returncode == 0, words, r.returncode, r.stderr)
    check(r.stdout == text_of_the_cpu(), words, r.stdout, r.stderr)
    return r.stderr.decode()


def known_faults(words):
    r = with_layer(words, "doctor", "--gpu", "vulkan:0", "--json")
    check(r.returncode == 0, r.stderr)
    doctor = json.loads(r.stdout)
    text = with_layer(words, "doctor", "--gpu", "vulkan:0").stdout.decode()
    for known in doctor["gpu"]["driver_faults"]:
        check(known["fault"] in text and known["hearth"] in text and known["sources"] in text, text)
    return doctor["gpu"], next(c for c in doctor["checks"] if c["name"] == "driver"), text


@case
def doctor_tells_what_is_known_of_a_driver():
    gpu, line, _ = known_faults(f"driver=4:{610 << 22 | 43 << 14 | 2 << 6}")
    check(gpu["driver_version"] == "610.43.2" and len(gpu["driver_faults"]) == 2, gpu)
    check(not line["ok"] and line["fix"] == "update to 615.71.09 or later", line)
    gpu, line, text = known_faults(f"driver=4:{620 << 22}")
    check(len(gpu["driver_faults"]) == 1 and line["ok"] and "1 known fault, below" in text, gpu, text)
    gpu, line, text = known_faults(f"driver=24:{26 << 22}")
    check(not gpu["driver_faults"] and "no fault of it is known" in text, gpu, text)


@case
def dozen_is_no_card():
    r = with_layer("kind=discrete driver=23:1", "devices")
    check(b"(integrated)" in r.stdout and b"--gpu auto takes it" not in r.stdout, r.stdout)


@case
def the_layer_changes_what_devices_says():
    r = with_layer("kind=discrete name=Test-Card memory=nvidia", "devices")
    check(b"Test-Card (card), 8.00 GiB" in r.stdout, r.stdout)
    r = with_layer("kind=other name=Test-Card", "devices")
    check(b"card)" not in r.stdout and b"--gpu auto takes it" not in r.stdout, r.stdout)


@case
def devices_says_whether_dot_products_are_instructions():
    slow = b"dot products of bytes are no instruction"
    for words, is_said in (("kind=discrete dot=0", True), ("kind=integrated dot=0", True), ("kind=cpu dot=0", False)):
        check((slow in with_layer(words, "devices").stdout) == is_said, words)
        check(json.loads(with_layer(words, "devices", "--json").stdout)["devices"][0]["fast_dot"] is False, words)


@case
def texts_are_the_cpus_on_all_devices():
    devices = list(DEVICES.items())
    for name, words in devices if LONG else devices[::3]:
        said = same_text(words + " name=Test-Device")
        check("on Test-Device" in said and "failed" not in said, name, said)


# A dense model, a mixture, states of a recurrence, sinks with windows, latent attention; all but the first are random.
FAMILIES = ["storyteller", "qwen3moe", "qwen35", "gpt-oss", "deepseek2-lite"]


def of_family(name):
    """A file of that family with quantised matrices."""
    path = scratch(name + ".gguf")
    if name == "storyteller":
        return MODEL
    if not os.path.exists(path):
        r = hearth("quantize", data(f"golden/arch/{name}.gguf"), path, "q8_0")
        check(r.returncode == 0, name, r.stderr)
    return path


def only_line(name, output, word):
    found = [line for line in output.decode("utf-8", "replace").splitlines() if word in line]
    check(len(found) == 1, name, f"not one line with '{word}':", output)
    return found[0]


def run_and_plan(name, words, family):
    """What lies where is in one line of each. One layer alone leaves the others and the head to the CPU."""
    path = of_family(family)
    there = ["--gpu", "vulkan:0", "-c", "64", "--batch", "8"]
    text = hearth("run", path, *WORDS[2:], "--gpu", "none").stdout
    check(text, family)
    planned = with_layer(words, "plan", path, *there)
    check(planned.returncode == 0, name, family, planned.stderr)
    check("workspace" in only_line(name, planned.stdout, "On the GPU: "), planned.stdout)
    for placement, where in ([], "on Test"), (["--placement", "layers:1"], "1 of "):
        r = with_layer(words, "run", path, *WORDS[2:], "--gpu", "vulkan:0", *placement)
        check(r.returncode == 0 and r.stdout == text, name, family, placement, r.returncode, r.stdout, text, r.stderr)
        line = only_line(name, r.stderr, " parameters, ")
        check(where in line and "on Test" in line and b"failed" not in r.stderr, name, family, r.stderr)


def families_on(name):
    def five_families():
        if not LONG:
            raise cases.Skip("a minute or more for each device: with HEARTH_LONG only")
        for family in FAMILIES:
            start = time.monotonic()
            run_and_plan(name, DEVICES[name] + " name=Test", family)
            print(f"     {name}, {family}: {time.monotonic() - start:.0f} s", flush=True)
    five_families.__name__ = "five_families_are_planned_and_run_on_" + name.replace(" ", "_")
    return five_families


for device in DEVICES:
    case(families_on(device))


def two_drivers():
    """The environment of two devices of lavapipe: of its library and of a copy of it."""
    manifests = glob.glob("/usr/share/vulkan/icd.d/lvp*.json")
    if not manifests:
        raise cases.Skip("lavapipe's manifest is not at its usual place")
    icd = json.load(open(manifests[0]))
    library = icd["ICD"]["library_path"]
    if "/" not in library:  # the linker finds it
        library = ctypes.util.find_library(re.fullmatch(r"lib(.*)\.so", library)[1]) or library
        library = glob.glob(f"/usr/lib*/**/{library}", recursive=True)[0]
    copy = shutil.copy(library, scratch("lvp2.so"))
    icd["ICD"]["library_path"] = copy
    second = scratch("lvp2.json", json.dumps(icd).encode())
    return {"VK_ICD_FILENAMES": f"{manifests[0]}:{second}", "VK_DRIVER_FILES": f"{manifests[0]}:{second}"}


@case
def auto_takes_the_card_with_most_memory():
    drivers = two_drivers()
    for heaps, takes in (((4, 8), 1), ((8, 4), 0), ((8, 8), 0)):
        words = " ".join(f"name{i}=Card-{i} heap{i}={heap << 30}" for i, heap in enumerate(heaps))
        r = with_layer("kind=discrete " + words, *WORDS, more=drivers)
        check(r.returncode == 0 and f"on Card-{takes} ".encode() in r.stderr, heaps, r.stderr)
        check(r.stdout == text_of_the_cpu(), heaps, r.stdout)
        r = with_layer("kind=discrete " + words, "devices", more=drivers)
        cards = r.stdout.decode().split("vulkan:")[1:]
        check(["--gpu auto takes it" in c for c in cards] == [i == takes for i in range(2)], heaps, r.stdout)
        check("by name: --gpu auto takes the one with most memory" in cards[1 - takes], heaps, r.stdout)
    r = with_layer("kind0=integrated kind1=discrete name1=Card-1", *WORDS, more=drivers)
    check(b"on Card-1 " in r.stderr, r.stderr)


@case
def two_cards_have_layers_of_one_model():
    drivers = two_drivers()
    cards = "kind=discrete name0=Card-0 name1=Card-1 "
    both = [*WORDS, "--gpu", "vulkan:0,vulkan:1", "--vram", "3M,64M"]
    shared = b"6 of 6 layers and the head on Card-0 (layers 0 to "
    less = b"it goes on with less: "
    for lost, placement, says in (("", "even", shared), ("", "layers:7", shared),
                                  (" lost0=14", "even", less + b"6 of 6 layers on Card-1,"),
                                  (" lost1=14", "layers:7", less),
                                  (" lost0=14 lost1=14", "even", b"continuing on the CPU")):
        r = with_layer(cards + "uuid0=1 uuid1=2" + lost, *both, "--placement", placement, more=drivers)
        check(r.returncode == 0 and r.stdout == text_of_the_cpu(), lost, placement, r.stdout, r.stderr)
        check(shared in r.stderr and says in r.stderr, lost, placement, r.stderr)
    r = with_layer(cards + "uuid=1", *both, more=drivers)
    check(r.returncode == 1 and b"GPUs 1 and 2 of the list are the same: " in r.stderr, r.stderr)


@case
def a_divided_model_on_a_card_keeps_the_text():
    """The threads of the CPU stay awake there, which they do beside no driver that computes on the CPU."""
    packed = scratch("packed.gguf")
    check(hearth("pack", MODEL, "-o", packed).returncode == 0, "pack")
    there = ["--gpu", "vulkan:0", "--placement", "even", "--vram", "6M"]
    r = with_layer("kind=discrete name=Test-Device", "run", packed, *WORDS[2:], *there)
    check(r.returncode == 0 and b"6 of 6 layers with " in r.stderr and b"on Test-Device" in r.stderr, r.stderr)
    check(r.stdout == hearth("run", packed, *WORDS[2:], "--gpu", "none").stdout, r.stdout)


@case
def a_card_with_small_bindings_is_measured():
    words = "kind=discrete memory=nvidia binding=134217728 name=Test-Device"
    r = with_layer(words, "doctor", "--gpu", "vulkan:0", "--again")
    check(r.returncode == 0 and b"bound" not in r.stderr and b"GB/s" in r.stdout, r.stdout, r.stderr)


@case
def auto_takes_cards_alone():
    for kind in ("discrete", "integrated", "virtual", "other", "cpu"):
        r = with_layer(f"kind={kind} name=Test-Device", *WORDS)
        takes = kind == "discrete"
        check(r.returncode == 0 and (b"on Test-Device" in r.stderr) == takes, kind, r.stderr)


@case
def reads_of_memory_that_is_written_only_are_noticed():
    """That the layer would show them: if all memory reads as poison, nothing seems to have run."""
    r = with_layer("kind=discrete memory=nvidia poison=all", *WORDS, "--gpu", "vulkan:0")
    check(r.returncode != 0 and b"it did not run" in r.stderr, r.returncode, r.stderr)


@case
def shared_memory_that_does_not_hold_attention_is_refused():
    r = with_layer("kind=discrete shared=4096 name=Test-Device", *WORDS, "--gpu", "vulkan:0")
    check(r.returncode != 0 and b"attention with heads of " in r.stderr and b"it has 4096" in r.stderr, r.stderr)
    r = with_layer("kind=discrete shared=4096 name=Test-Device", *WORDS)
    check(r.returncode == 0 and r.stdout == text_of_the_cpu(), r.stderr)
    check(b"attention with heads of " in r.stderr and b"it has 4096" in r.stderr, r.stderr)


def measured():
    return {path: os.stat(path).st_mtime_ns for path in glob.glob(scratch("cache") + "/prompts-*")}


@case
def a_gpu_is_measured_once_and_a_device_that_computes_on_the_cpu_never():
    shutil.rmtree(scratch("cache"), ignore_errors=True)
    same_text("kind=cpu name=Test-Device")
    check(not measured(), measured())
    for kind in ("integrated", "discrete"):
        before = measured()
        same_text(f"kind={kind} name=Test-Device")
        now = measured()
        check(len(now) == len(before) + 1, kind, before, now)
        same_text(f"kind={kind} name=Test-Device")
        check(measured() == now, kind, now, measured())
    r = with_layer("kind=discrete name=Test-Device", *WORDS, "--gpu", "vulkan:0", more={"HEARTH_CACHE": ""})
    check(r.returncode == 0 and r.stdout == text_of_the_cpu(), r.stderr)


SUBMISSIONS = 9, 14, 20  # steps at the beginning of a generation, and in its midst


def same_text_of_known(words):
    """Behind a run that measured the device, whose submissions are not counted so."""
    same_text("kind=discrete")
    return same_text(words)


@case
def a_lost_device_costs_no_text():
    for n in SUBMISSIONS:
        said = same_text_of_known(f"kind=discrete lost={n}")
        check("it was lost" in said, n, said)


@case
def a_step_that_did_not_run_costs_no_text():
    """A driver says after a reset that the work was done."""
    for n in SUBMISSIONS:
        said = same_text_of_known(f"kind=discrete jump={n}")
        check("it did not run" in said, n, said)


@case
def a_device_that_hangs_costs_no_text_and_the_program_ends():
    same_text("kind=discrete")
    start = time.monotonic()
    said = same_text("kind=discrete hang=14")
    check("is not done after 10.0 s" in said, said)
    check(time.monotonic() - start < 60, time.monotonic() - start)


@case
def a_device_that_fails_its_first_submission_is_not_opened():
    """That of halves (src/device/vulkan/half_probe.c): by name an error, else the CPU computes."""
    for word, says in (("lost", b"it was lost"), ("jump", b"it did not run"), ("hang", b"is not done after 10.0 s")):
        r = with_layer(f"kind=discrete {word}=1", *WORDS, "--gpu", "vulkan:0")
        check(r.returncode == 1 and says in r.stderr, word, r.stderr)
    r = with_layer("kind=discrete lost=1", *WORDS)
    check(r.returncode == 0 and r.stdout == text_of_the_cpu(), r.stdout, r.stderr)
    check(b"it was lost" in r.stderr and b"all of it runs on the CPU" in r.stderr, r.stderr)


@case
def a_wrong_placement_is_an_error_on_a_card_that_auto_found():
    r = with_layer("kind=discrete", *WORDS, "--placement", __file__)
    check(r.returncode == 1 and b"it is no placement: hearth plan writes one" in r.stderr, r.stderr)


if __name__ == "__main__":
    cases.run_cases(__file__)
