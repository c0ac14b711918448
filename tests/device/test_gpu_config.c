/* Descriptions of GPUs: what is refused, each at its line; what is taken; the GPUs that are shipped. */
#include "base/alloc.h"
#include "device/simulated/simulated_int.h"
#include "support/device/sim_gpu.h"
#include "support/test.h"

/* The lines of SIM_GPU_EXACT with line `at` (from 1) replaced. */
static void with_line(char out[2000], int at, const char *line)
{
    const char *from = SIM_GPU_EXACT;
    size_t n = 0;
    for (int i = 1; *from; i++) {
        size_t length = strcspn(from, "\n");
        n += (size_t)snprintf(out + n, 2000 - n, "%.*s\n", i == at ? (int)strlen(line) : (int)length,
                              i == at ? line : from);
        from += length + 1;
    }
}

TEST(descriptions_are_refused_at_their_line)
{
    static const struct {
        int at;
        const char *line, *words;
    } cases[] = {
        {1, "name =", ":1: name: found , expected 1 to 63"},
        {1, "name = 0123456789012345678901234567890123456789012345678901234567890123", ":1: name"},
        {1, "name = a\tb", ":1: name"},
        {1, "name = caf\xc3\xa9", ":1: name"},
        {2, "vram_bytes = 0", ":2: vram_bytes: found 0, expected 1 to 2^50"},
        {2, "vram_bytes = 8T", ":2: vram_bytes"},
        {2, "vram_bytes = G", ":2: vram_bytes"},
        {2, "vram_bytes = 1e16", ":2: vram_bytes"},
        {2, "vram_bytes = -8G", ":2: vram_bytes"},
        {3, "bandwidth = 0", ":3: bandwidth: found 0, expected 1e6 to 1e15 a second"},
        {3, "bandwidth = nan", ":3: bandwidth"},
        {3, "bandwidth = inf", ":3: bandwidth"},
        {3, "bandwidth = 1e99", ":3: bandwidth"},
        {3, "bandwidth = 1e", ":3: bandwidth"},
        {3, "bandwidth = 1.", ":3: bandwidth"},
        {3, "bandwidth = 1e9 5", ":3: bandwidth"},
        {3, "bandwidth = 0x10", ":3: bandwidth"},
        {3, "bandwidth = 1.2.3e9", ":3: bandwidth"},
        {3, "bandwidth = 1000000000.0000001", ":3: bandwidth"},
        {3, "bandwidth", ":3: bandwidth: is not of the form key = value"},
        {3, "bandwith = 1e9", ":3: bandwith: no such key"},
        {3, "= 1e9", ":3: : no such key"},
        {3, "\x01 = 1", ":3: \\x01: no such key"},
        {3, "# bandwidth = 1e9", ":13: ends without bandwidth"},
        {4, "bandwidth = 1e9", ":4: bandwidth: stands there twice"},
        {6, "pcie_latency_us = 1e7", ":6: pcie_latency_us"},
        {7, "dispatch_us = -1", ":7: dispatch_us"},
        {11, "jitter = 1", ":11: jitter"},
        {12, "seed = 1.5", ":12: seed"},
        {12, "seed = 1234567890123456", ":12: seed"},
        {13, "clock = wall", ":13: clock: found wall, expected virtual or real"},
        {13, "clock = virtual\nmax_binding_bytes = 0", ":14: max_binding_bytes: found 0, expected 1 to 2^50"},
        {13, "clock = virtual\nmax_binding_bytes = 4G\nmax_binding_bytes = 4G", ":15: max_binding_bytes: stands there"},
        {13, "clock = virtual\npinned_bytes = -1", ":14: pinned_bytes: found -1, expected 0 to 2^50"},
        {13, "clock = virtual\npinned_bytes = 2e15", ":14: pinned_bytes"},
        {13, "clock = virtual\nvalues = some", ":14: values: found some, expected computed or none"},
        {13, "clock = virtual\nfault = 0:memory", ":14: fault"},
        {13, "clock = virtual\nfault = 1:fire", ":14: fault: found 1:fire, expected CALL:memory"},
        {13, "clock = virtual\nfault = memory", ":14: fault"},
        {13, "clock = virtual\nbudget_bytes_at = 0:5", ":14: budget_bytes_at"},
        {13, "clock = virtual\nbudget_bytes_at = 5", ":14: budget_bytes_at"},
        {13, "clock = virtual\nbudget_bytes_at = 5:", ":14: budget_bytes_at"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2000];
        hth_device *d;
        hearth_error why = {0};
        uint64_t held = hth_alloc_in_use();
        with_line(text, cases[i].at, cases[i].line);
        hearth_status st = sim_gpu_open(text, 0, NULL, &d, &why);
        if (st != HEARTH_ERROR_FORMAT || d || !strstr(why.message, cases[i].words))
            test_fail(__FILE__, __LINE__, "%s: %d: %s", cases[i].line, (int)st, why.message);
        CHECK(strstr(why.message, "described.sim:") != NULL);
        CHECK_INT(hth_alloc_in_use(), held);
    }
}

TEST(descriptions_may_hold_comments_and_ends_of_lines_of_any_kind)
{
    hth_sim_gpu gpu;
    static const char text[] =
        "# a card\r\n\r\n\tname = a card, 8 GB # of ours\r\nvram_bytes=1.5G\nbandwidth = 2.5e9\n"
        "pcie_up = 25000000\npcie_down = 12.5e7\npcie_latency_us = 0.5\ndispatch_us = 0\n"
        "submit_us = 20\nwake_us = 10\nflops = 1e13\njitter = 0.05\nseed = 42\nclock = real";
    CHECK_OK(hth_sim_describe_text("card", text, strlen(text), &gpu, err));
    CHECK_TEXT(gpu.name, "a card, 8 GB");
    CHECK_INT(gpu.vram_bytes, 3 << 29);
    CHECK(gpu.bandwidth == 2.5e9 && gpu.pcie_up == 25e6 && gpu.pcie_down == 125e6);
    CHECK(gpu.pcie_latency_ns == 500.0 && gpu.dispatch_ns == 0.0 && gpu.submit_ns == 20e3 && gpu.wake_ns == 10e3);
    CHECK(gpu.flops == 1e13 && gpu.jitter == 0.05 && gpu.seed == 42 && gpu.wall_clock);
    CHECK(gpu.host_bandwidth == 0.0 && gpu.host_products == 0.0 && gpu.max_binding_bytes == 0 && gpu.pinned_bytes == UINT64_MAX && !gpu.no_values);
    static const char more[] = SIM_GPU_EXACT "host_bandwidth = 3e9\nhost_products = 5e11\nmax_binding_bytes = 4G\npinned_bytes = 0\nvalues = none\n";
    CHECK_OK(hth_sim_describe_text("card", more, strlen(more), &gpu, err));
    CHECK(gpu.host_bandwidth == 3e9 && gpu.host_products == 5e11 && gpu.max_binding_bytes == (uint64_t)4 << 30 && gpu.pinned_bytes == 0 && gpu.no_values);
    hth_device *d;
    hearth_error why;
    CHECK(sim_gpu_open(more, 0, NULL, &d, &why) == HEARTH_ERROR_UNSUPPORTED && strstr(why.message, "it computes nothing"));
}

TEST(too_many_faults_and_too_large_descriptions_are_refused)
{
    static char text[80000];
    hth_device *d;
    hearth_error why;
    size_t n = (size_t)snprintf(text, sizeof text, "%s", SIM_GPU_EXACT);
    for (int i = 0; i <= HTH_SIM_MAX_FAULTS; i++) n += (size_t)snprintf(text + n, 100, "fault = 1000:memory\n");
    CHECK(sim_gpu_open(text, 0, NULL, &d, &why) == HEARTH_ERROR_FORMAT && strstr(why.message, ":78: fault"));
    n = (size_t)snprintf(text, sizeof text, "%s", SIM_GPU_EXACT);
    for (int i = 0; i <= HTH_SIM_MAX_BUDGETS; i++) n += (size_t)snprintf(text + n, 100, "budget_bytes_at = 9:1M\n");
    CHECK(sim_gpu_open(text, 0, NULL, &d, &why) == HEARTH_ERROR_FORMAT && strstr(why.message, ":30: budget_bytes_at"));

    n = (size_t)snprintf(text, sizeof text, "%s", SIM_GPU_EXACT);
    memset(text + n, '#', 65536 - n);
    text[65536] = '\0';
    CHECK_OK(sim_gpu_open(text, 0, NULL, &d, err));
    hth_device_close(d);
    strcat(text, "#");
    CHECK(sim_gpu_open(text, 0, NULL, &d, &why) == HEARTH_ERROR_FORMAT &&
          strstr(why.message, ":1: more than 65536 bytes"));
}

TEST(descriptions_that_cannot_be_read_are_named)
{
    hth_device *d;
    hearth_error why;
    CHECK(hth_device_open(&(hth_device_spec){.name = "sim:/no/such.sim"}, &d, &why) == HEARTH_ERROR_IO);
    CHECK(strstr(why.message, "/no/such.sim: cannot open") && d == NULL);
    CHECK(hth_device_open(&(hth_device_spec){.name = "sim:/"}, &d, &why) == HEARTH_ERROR_IO);
    CHECK(strstr(why.message, "must be a regular file") != NULL);
    CHECK(hth_device_open(&(hth_device_spec){.name = "sim:"}, &d, &why) == HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(why.message, "sim: names no file") != NULL);
    CHECK(hth_device_open(&(hth_device_spec){.name = ""}, &d, &why) == HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(why.message, "the name of a device is empty") != NULL);
}

/* In memory of exactly its size. */
static void describe_bytes(const char *bytes, size_t n, size_t *n_taken)
{
    hth_sim_gpu gpu;
    hearth_error why = {0};
    FREED char *copy_of = malloc(n > 0 ? n : 1);
    memcpy(copy_of, bytes, n);
    hearth_status st = hth_sim_describe_text("card", copy_of, n, &gpu, &why);
    CHECK(st == HEARTH_OK || (st == HEARTH_ERROR_FORMAT && strncmp(why.message, "card:", 5) == 0));
    if (st == HEARTH_OK) CHECK(gpu.bandwidth >= 1e6 && gpu.vram_bytes > 0 && gpu.jitter <= 0.9);
    *n_taken += st == HEARTH_OK;
}

TEST(any_description_is_taken_or_refused)
{
    static const char whole[] = SIM_GPU_EXACT "fault = 3:memory\nbudget_bytes_at = 2:5M\n";
    test_random r = {20261123};
    size_t n_taken = 0, n = sizeof whole - 1, n_refused = 0;
    for (size_t cut = 0; cut < n; cut++) describe_bytes(whole, cut, &n_taken);
    CHECK(n_taken > 0 && n_taken < 60);
    n_taken = 0;
    for (int i = 0; i < 20000; i++) {
        char text[sizeof whole];
        memcpy(text, whole, n);
        for (uint32_t k = 0, m = 1 + test_random_below(&r, 3); k < m; k++)
            text[test_random_below(&r, (uint32_t)n)] = (char)test_random_below(&r, 256);
        describe_bytes(text, n, &n_taken);
        n_refused = (size_t)i + 1 - n_taken;
    }
    CHECK(n_taken > 100 && n_refused > 100);
}

TEST(shipped_gpu_descriptions_match_their_names)
{
    static const struct {
        const char *file, *name;
        double bandwidth, pcie, host, flops;
        uint64_t vram_bytes, max_binding_bytes;
    } cards[] = {{"8gb", "8 GB 272 GB/s PCIe 4 x8", 272e9, 13e9, 60e9, 15e12, 8, 0},
                 {"12gb", "12 GB 504 GB/s PCIe 4 x16", 504e9, 25e9, 60e9, 29e12, 12, 0},
                 {"24gb", "24 GB 1008 GB/s PCIe 4 x16", 1008e9, 25e9, 60e9, 83e12, 24, 0},
                 {"rtx3060-12gb", "NVIDIA GeForce RTX 3060 12 GB", 360e9, 25e9, 40e9, 12.7e12, 12, 4},
                 {"rtx4060ti-16gb", "NVIDIA GeForce RTX 4060 Ti 16 GB", 288e9, 13e9, 40e9, 22.1e12, 16, 4},
                 {"rx7600-8gb", "AMD Radeon RX 7600 8 GB", 288e9, 13e9, 40e9, 21.75e12, 8, 4},
                 {"b580-12gb", "Intel Arc B580 12 GB", 456e9, 13e9, 40e9, 13.7e12, 12, 4}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        char path[1100];
        hth_sim_gpu gpu;
        snprintf(path, sizeof path, "%s/bench/devices/%s.sim", HEARTH_SOURCE_DIR, cards[i].file);
        CHECK_OK(hth_sim_describe(path, &gpu, err));
        CHECK_TEXT(gpu.name, cards[i].name);
        CHECK_INT(gpu.vram_bytes, cards[i].vram_bytes << 30);
        CHECK_INT(gpu.max_binding_bytes, cards[i].max_binding_bytes << 30);
        CHECK(gpu.bandwidth == cards[i].bandwidth && gpu.pcie_up == cards[i].pcie);
        CHECK(gpu.host_bandwidth == cards[i].host && gpu.flops == cards[i].flops);
        CHECK(gpu.pcie_down == gpu.pcie_up && gpu.submit_ns == 20e3 && gpu.wake_ns == 10e3);
        CHECK(!gpu.wall_clock && gpu.jitter == 0.0 && gpu.n_fault == 0 && gpu.n_budget == 0);
    }
}
