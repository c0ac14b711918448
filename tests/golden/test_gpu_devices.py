#!/usr/bin/env python3
"""Golden models on devices that are not here (tests/support/devices.py) and on SwiftShader: a selection of the cases of
test_gpu.c and test_hybrid.c has the CPU's bits on each, floats those of the null device. A device that cannot is refused
by a line that names its limit. Some run under synchronisation validation, which has nothing to say. Each program has a
time limit. With HEARTH_LONG=1, as make test-long has it; without, only a refused device and a missing barrier.

    tests/golden/test_gpu_devices.py FOLDER_OF_THE_TESTS FOLDER_OF_THE_LAYER

HEARTH_SWIFTSHADER_ICD: the description of SwiftShader's driver (Debian's chromium-common has it in /usr/lib/chromium, but
compiles for hours, docs/gpu.md); without it its cases are skipped."""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402
from devices import DEVICES, LAYERS_OF_DEBIAN, layer_environment  # noqa: E402

PROGRAMS, LAYER = sys.argv[1:3]
LIMIT_S = 1800  # of a program; one takes a minute or two on a machine that is not loaded
SLOW_LIMIT_S = 7200  # on SwiftShader
N_AT_ONCE = 2

# Program, and what the names of its cases contain. All block types, neurons in rows, several sequences, divided layers;
# halves, whose bits are those of the null device (docs/arithmetic.md 8).
PLAIN = [
    ("golden_gpu", "quantised_models_have_the_bits_of_the_cpu_on_vulkan"),
    ("golden_gpu", "quantised_neurons_in_rows"),
    ("golden_gpu", "sequences_in_one_batch"),
    ("golden_gpu", "half_float_models"),
    ("golden_gpu", "quantised_mixtures"),
    ("golden_gpu", "quantised_hybrids"),
    ("golden_hybrid", "any_placement_on_vulkan"),
]
# Under synchronisation validation where there is one: mixed types, a divided model and a streamed one, experts that
# move or that the device reads.
WATCHED = [("golden_gpu", "packed_mixed_types"), ("golden_hybrid", "host_keeps_the_bits_on_vulkan"),
           ("golden_divided_experts", "any_division_of_experts_on_vulkan")]
LEAST = ("golden_gpu", "sequences_in_one_batch")

MESSAGE = re.compile(r"SYNC-HAZARD|VUID-|UNASSIGNED-|Validation (?:Error|Warning|Performance Warning)")
WATCHES = 'Insert instance layer "VK_LAYER_KHRONOS_validation"'


def run(program, name, environment, limit_s=LIMIT_S):
    """What a case's program wrote. Fails if it does not end."""
    env = {k: v for k, v in os.environ.items() if k not in ("HEARTH_LONG", "HEARTH_TEST_REPORT")}
    env.update({"HEARTH_GPU_BRIEF": "1", "HEARTH_CACHE": ""}, **environment)
    start = time.monotonic()
    try:
        done = subprocess.run([os.path.join(PROGRAMS, "test_" + program), name], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{program} {name}: not done after {limit_s} s: {late.stdout}") from None
    print(f"     {program} {name}: {time.monotonic() - start:.0f} s", flush=True)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def expect_bits(program, name, environment, refused=None, limit_s=LIMIT_S):
    """All cases are ok; or, on a device that is refused, skip with its limit and nothing else."""
    status, said = run(program, name, environment, limit_s)
    verdicts = re.findall(r"^(ok|skip|FAIL) +\S+ (\w+)(?:: (.*))?$", said, re.M)
    if any(verdict == "skip" and "no driver was found" in reason for verdict, _, reason in verdicts):
        raise Skip(verdicts[0][2])
    good = [v == "skip" and refused in reason if refused else v == "ok" for v, _, reason in verdicts]
    assert status == (77 if refused else 0) and good and all(good), f"{program} {name}: status {status}\n{said}"
    return said


def expect_silence(program, name, environment):
    said = expect_bits(program, name, {**environment, "VK_LOADER_DEBUG": "layer"})
    assert WATCHES in said, f"{program} {name}: the validation layer was not loaded\n{said}"
    found = MESSAGE.search(said)
    assert not found, f"{program} {name}: {said[max(0, found.start() - 200):found.start() + 1500]}"


def in_parallel(jobs):
    """Runs all of them to their ends, then raises what failed."""
    with concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as pool:
        futures = [pool.submit(*job) for job in jobs]
    errors = [e for e in (done.exception() for done in futures) if e]
    skips = [e for e in errors if isinstance(e, Skip)]
    if len(errors) > len(skips):
        raise AssertionError("\n".join(str(e) for e in errors))
    if skips:
        raise skips[0]


def want_long():
    if not os.environ.get("HEARTH_LONG"):
        raise Skip("minutes for each device: with HEARTH_LONG only")


def has_validation_layer():
    return os.path.exists(os.path.join(LAYERS_OF_DEBIAN, "VkLayer_khronos_validation.json"))


def on_device(name):
    """The selection under the layer, which reports nothing."""
    def matrix():
        want_long()
        with tempfile.TemporaryDirectory(prefix="hearth-test-") as scratch:
            report = os.path.join(scratch, "report")
            plain = layer_environment(LAYER, DEVICES[name], report)
            watched = layer_environment(LAYER, DEVICES[name], report, validated=True)
            jobs = [(expect_bits, *of, plain) for of in PLAIN]
            jobs += [(expect_silence, *of, watched) if has_validation_layer() else (expect_bits, *of, plain)
                     for of in WATCHED]
            in_parallel(jobs)
            assert not os.path.exists(report), "not allowed: " + open(report, encoding="utf-8").read()
    matrix.__name__ = "golden_models_have_their_bits_on_" + name.replace(" ", "_")
    return matrix


for device in DEVICES:
    case(on_device(device))


@case
def a_device_that_is_refused_names_its_limit():
    env = layer_environment(LAYER, "kind=discrete shared=4096", "")
    expect_bits(*LEAST, env, "attention with heads of 64 takes 6380 bytes of a workgroup's shared memory, it has 4096")


@case
def all_that_runs_on_a_driver_is_ordered():
    """Synchronisation validation of the whole selection, on the driver as it is."""
    want_long()
    if not has_validation_layer():
        raise Skip("no validation layer")
    env = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
           "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"}
    in_parallel([(expect_silence, *of, env) for of in PLAIN + WATCHED])


@case
def a_missing_barrier_is_seen():
    """With the layer above the validation layer, which gets no barriers from it."""
    if not has_validation_layer():
        raise Skip("no validation layer")
    env = {**layer_environment(LAYER, "barriers=0", "", validated=True),
           "VK_INSTANCE_LAYERS": "VK_LAYER_HEARTH_test:VK_LAYER_KHRONOS_validation"}
    _, said = run(*LEAST, env)
    if "no driver was found" in said:
        raise Skip("no driver was found")
    assert "SYNC-HAZARD" in said, said


def swiftshader(scratch, drivers):
    """The environment of a program that finds these of the machine's drivers and SwiftShader."""
    described = os.environ.get("HEARTH_SWIFTSHADER_ICD")
    if not described:
        raise Skip("no HEARTH_SWIFTSHADER_ICD")
    with open(described, encoding="utf-8") as f:
        icd = json.load(f)
    icd["ICD"]["library_path"] = os.path.join(os.path.dirname(described), icd["ICD"]["library_path"])
    path = os.path.join(scratch, "swiftshader_icd.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(icd, f)
    return {"VK_ADD_DRIVER_FILES": path, "VK_LOADER_DRIVERS_SELECT": drivers + "swiftshader_icd*",
            "HEARTH_GPU_FLUSHES": "1"}


@case
def golden_models_have_the_bits_of_the_cpu_on_swiftshader():
    """With HEARTH_LONG the whole selection, which takes an hour; one after another, as it compiles on all CPUs."""
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as scratch:
        env = swiftshader(scratch, "")
        for of in PLAIN + WATCHED if os.environ.get("HEARTH_LONG") else [LEAST]:
            expect_bits(*of, env, limit_s=SLOW_LIMIT_S)


@case
def swiftshader_beside_another_driver_keeps_the_text():
    want_long()
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as scratch:
        expect_bits("engine_two_devices", "devices_of_vulkan_beside_each_other", swiftshader(scratch, "lvp*,"),
                    limit_s=SLOW_LIMIT_S)


if __name__ == "__main__":
    run_cases(__file__)
