/* The table of driver faults: how versions are read, and which devices an entry concerns. */
#include "device/driver_faults.h"
#include "support/test.h"

#include <string.h>

enum { AMD_PROPRIETARY = 1, RADV = 3, NVIDIA = 4, INTEL_WINDOWS = 5, ANV = 6, LAVAPIPE = 13, MOLTENVK = 14 };

static uint32_t vulkan_version(uint32_t major, uint32_t minor, uint32_t patch)
{
    return major << 22 | minor << 12 | patch;
}

static uint32_t nvidia_version(uint32_t a, uint32_t b, uint32_t c) { return a << 22 | b << 14 | c << 6; }

static hth_device_info device(uint32_t driver, uint32_t version, hth_device_kind kind, const char *name)
{
    hth_device_info info = {.kind = kind, .driver_id = driver, .driver_version = version};
    snprintf(info.name, sizeof info.name, "%s", name);
    return info;
}

/* Whether a fault of the device has the words. */
static bool is_told(const hth_device_info *info, const char *words)
{
    for (const hth_driver_fault *f = NULL; (f = hth_driver_fault_next(info, f));)
        if (strstr(f->fault, words)) return true;
    return false;
}

/* Raw numbers as reports of such devices list them. */
TEST(versions_are_read_as_their_makers_write_them)
{
    static const struct {
        uint32_t driver, raw;
        const char *text;
    } cases[] = {
        {RADV, 100663301u, "24.0.5"},
        {RADV, 25u << 22 | 7, "25.0.7"},
        {NVIDIA, 2372747776u, "565.181.8"},
        {NVIDIA, 580u << 22 | 159u << 14 | 4u << 6, "580.159.4"},
        {INTEL_WINDOWS, 1663644u, "101.8860"},
        {MOLTENVK, 10211u, "1.2.11"},
        {AMD_PROPRIETARY, 8388996u, "2.0.388"},
        {NVIDIA, 615u << 22 | 71u << 14 | 9u << 6 | 1, "615.71.9.1"},
        {ANV, 0, "0.0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[48];
        hth_device_info info = device(cases[i].driver, cases[i].raw, HTH_DEVICE_DISCRETE, "");
        hth_driver_version_format(hth_driver_version_of(&info), text);
        CHECK_TEXT(text, cases[i].text);
    }
    hth_device_info mesa = device(LAVAPIPE, 1, HTH_DEVICE_CPU, "llvmpipe");
    CHECK(is_told(&mesa, "65,535"));
    snprintf(mesa.driver, sizeof mesa.driver, "llvmpipe Mesa 26.2.6 (LLVM 19.1.7)");
    CHECK(!is_told(&mesa, "65,535") && is_told(&mesa, "subnormals"));
}

TEST(a_fault_ends_with_the_version_that_repaired_it)
{
    hth_device_info d =
        device(RADV, vulkan_version(26, 0, 4), HTH_DEVICE_DISCRETE, "AMD Radeon RX 6900 XT (RADV NAVI21)");
    CHECK(is_told(&d, "damage"));
    d.driver_version = vulkan_version(26, 0, 5);
    CHECK(!is_told(&d, "damage"));
    d.driver_version = vulkan_version(25, 0, 6);
    CHECK(!is_told(&d, "damage"));
    CHECK(is_told(&d, "over-committed"));
    d.driver_id = ANV;
    CHECK(!is_told(&d, "over-committed"));
    d = device(NVIDIA, nvidia_version(615, 71, 8), HTH_DEVICE_DISCRETE, "NVIDIA GeForce RTX 4090");
    CHECK(is_told(&d, "now and then"));
    d.driver_version = nvidia_version(615, 71, 9);
    CHECK(!is_told(&d, "now and then"));
    CHECK(is_told(&d, "subnormals"));
}

TEST(a_fault_concerns_its_devices_alone)
{
    hth_device_info d = device(NVIDIA, nvidia_version(610, 43, 2), HTH_DEVICE_INTEGRATED, "NVIDIA GB10");
    CHECK(is_told(&d, "too much memory"));
    snprintf(d.name, sizeof d.name, "NVIDIA GeForce RTX 4090");
    CHECK(!is_told(&d, "too much memory"));
    d = device(AMD_PROPRIETARY, vulkan_version(2, 0, 388), HTH_DEVICE_INTEGRATED,
               "AMD Radeon(TM) 860M Graphics");
    CHECK_INT(hth_driver_avoided(&d), HTH_FEATURE_COOPMAT);
    d.kind = HTH_DEVICE_DISCRETE;
    CHECK_INT(hth_driver_avoided(&d), 0);
    d = device(0, 0, HTH_DEVICE_REF, "null");
    CHECK(hth_driver_fault_next(&d, NULL) == NULL);
}

TEST(every_entry_is_whole_and_can_be_met)
{
    size_t n;
    const hth_driver_fault *all = hth_driver_faults(&n);
    CHECK(n >= 12);
    for (size_t i = 0; i < n; i++) {
        const hth_driver_fault *f = &all[i];
        CHECK(f->driver > 0 && f->fault && f->hearth && f->sources);
        CHECK(!f->remedy || f->remedy[0]);
        /* A device that has it: the first version, or none. */
        uint32_t raw = vulkan_version(f->first.part[0], f->first.part[1], f->first.part[2]);
        if (f->driver == NVIDIA) raw = nvidia_version(f->first.part[0], f->first.part[1], f->first.part[2]);
        if (f->driver == INTEL_WINDOWS) raw = f->first.part[0] << 14 | f->first.part[1];
        hth_device_info d =
            device(f->driver, raw, f->only_integrated ? HTH_DEVICE_INTEGRATED : HTH_DEVICE_DISCRETE,
                   f->device ? f->device : "a device");
        const hth_driver_fault *found = NULL;
        while ((found = hth_driver_fault_next(&d, found)) && found != f) continue;
        CHECK(found == f);
    }
}
