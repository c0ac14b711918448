"""Devices that are not here: what tests/device/layer.c makes of a Vulkan driver, as its words (HEARTH_LAYER). Tests of
the program (tests/cli/test_devices.py) and of golden files (tests/golden/test_gpu_devices.py) run on all of them; the
table in docs/gpu.md says what they are."""
import os

# What reports of such devices say: memory, queues, limits, subgroups, float controls, small types.
DEVICES = {
    "a GeForce": "kind=discrete memory=nvidia queues=2 subgroup=32 shared=49152 invocations=1024 difference=2147483647",
    "a Radeon with a window of 256 MiB": "kind=discrete memory=radv queues=2 subgroup=64 shared=65536 "
                                         "difference=2147483647",
    "an Arc": "kind=discrete memory=anv queues=1 subgroup=16 groups=65535 shared=65536 invocations=1024",
    "an Adreno": "kind=integrated memory=adreno queues=1 subgroup=64 shared=32768 groups=65535 floats=0 "
                 "binding=134217728 small=0",
    "the least of Vulkan": "kind=discrete memory=least queues=1 binding=134217728 allocation=1073741824 groups=65535 "
                           "shared=16384 invocations=128 alignment=256 difference=2147483647 floats=0 dot=0 small=0",
    "subgroups of 4": "kind=integrated memory=adreno subgroup=4",
    "subgroups of 128": "kind=integrated memory=adreno subgroup=128",
    "no integer dot products": "kind=discrete memory=radv dot=0",
    "no float controls": "kind=integrated memory=anv floats=0",
    "a Mali": "kind=integrated memory=adreno queues=1 subgroup=16 shared=32768 groups=65535 invocations=512 floats=0 "
              "small=0",
    "a Mac": "kind=integrated memory=anv subgroup=32 shared=32768 allocation=4294967296 floats=0",
    "a small card": "kind=discrete memory=nvidia heap=536870912",
}
LAYERS_OF_DEBIAN = "/usr/share/vulkan/explicit_layer.d"


def layer_environment(folder, words, report, validated=False):
    """Of a program under the layer in that folder, which writes to `report` what the device does not allow. validated:
    with synchronisation validation above it, which knows the limits of the device as the program does."""
    layers = ["VK_LAYER_KHRONOS_validation"] if validated else []
    return {"VK_INSTANCE_LAYERS": os.pathsep.join(layers + ["VK_LAYER_HEARTH_test"]),
            "VK_LAYER_PATH": f"{folder}:{LAYERS_OF_DEBIAN}",
            "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
            "HEARTH_LAYER": f"{words} report={report}"}
