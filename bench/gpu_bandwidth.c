/* What a device copies a second: within its memory, and over the bus both ways. bench/gpu.sh compares with the first
 * what a model reads for a token; hearth doctor has the rates of the shaders.
 *
 *     gpu_bandwidth DEVICE
 *
 * Prints three lines of a word and bytes per second: memory (read plus written), up, down. Medians of five runs. */
#include "base/sample_stats.h"
#include "device/device.h"
#include "forward/gpu/shader_params.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_RUN = 5, N_COPY = 8, WARM_NS = 300000000 };

static void check(hearth_status st, const hearth_error *err)
{
    if (st == HEARTH_OK) return;
    fprintf(stderr, "gpu_bandwidth: %s\n", err->message);
    exit(1);
}

static hth_cmdlist *begin(hth_device *device)
{
    hearth_error err;
    hth_cmdlist *list;
    check(hth_cmdlist_begin(device, &list, &err), &err);
    return list;
}

/* Bytes per second of a list that copies `bytes`. Runs of the first 0.3 s are not counted: an idle device's clock is
 * low. Frees the list. */
static double rate_of(hth_device *device, hth_cmdlist *list, uint64_t bytes)
{
    hearth_error err;
    double rates[N_RUN];
    check(hth_cmdlist_end(list, &err), &err);
    for (uint64_t i = 0, first = hth_device_time(device); i < N_RUN;) {
        hth_fence done;
        uint64_t start = hth_device_time(device);
        check(hth_queue_submit(device, &(hth_submit_info){.cmdlist = list}, 1, &done, &err), &err);
        check(hth_queue_wait(device, done, hth_device_submit_timeout_ns(hth_device_get_info(device)), &err), &err);
        uint64_t end = hth_device_time(device), ns = end - start;
        if (end - first > WARM_NS) rates[i++] = (double)bytes * 1e9 / (double)(ns > 0 ? ns : 1);
    }
    hth_cmdlist_free(list);
    return hth_sample_stats_of(rates, N_RUN).median;
}

/* Of copies from one kind of memory to another by the driver, or, within the device, by a shader where that is faster:
 * drivers copy slowly on some queues. */
static double rate(hth_device *device, hth_memory from, hth_memory to, uint64_t size)
{
    hearth_error err;
    hth_buffer *a, *b;
    const hth_pipeline *pipeline;
    check(hth_buffer_new(device, from, size, "copies", &a, &err), &err);
    check(hth_buffer_new(device, to, size, "copies", &b, &err), &err);
    const hth_buffer_range bind[] = {{a, 0, size}, {b, 0, size}};
    hth_cmdlist *list = begin(device);
    for (int i = 0; i < N_COPY; i++) {
        hth_cmdlist_copy(list, bind[0], bind[1]);
        hth_cmdlist_barrier(list, bind + 1, 1);
    }
    double fastest = rate_of(device, list, N_COPY * size);
    bool within = from == HTH_MEMORY_DEVICE && to == HTH_MEMORY_DEVICE &&
                  size <= hth_device_get_info(device)->max_binding_size;
    if (within && hth_pipeline_get(device, HTH_SHADER_copy, NULL, &pipeline, &err) == HEARTH_OK) {
        const uint32_t n = (uint32_t)(size / 4), n_group = 32768;
        list = begin(device);
        for (int i = 0; i < N_COPY; i++) {
            hth_cmdlist_dispatch(list, pipeline, bind, &n, n_group, 1, 1);
            hth_cmdlist_barrier(list, bind + 1, 1);
        }
        double by_shader = rate_of(device, list, N_COPY * size);
        if (by_shader > fastest) fastest = by_shader;
    }
    hth_buffer_free(a);
    hth_buffer_free(b);
    return fastest;
}

int main(int argc, char **argv)
{
    hearth_error err;
    hth_device *device;
    if (argc != 2) {
        fprintf(stderr, "gpu_bandwidth DEVICE\n");
        return 2;
    }
    check(hth_device_open(&(hth_device_spec){.name = argv[1], .shader_refs = hth_shader_ref_table}, &device,
                          &err),
          &err);
    /* Larger than any cache of a card, where there is room. */
    uint64_t size = (uint64_t)256 << 20, room = hth_device_budget(device) / 8;
    if (hth_device_get_info(device)->kind != HTH_DEVICE_DISCRETE) size = (uint64_t)32 << 20;
    if (size > room) size = room & ~(uint64_t)4095;
    printf("memory %.4g\n", 2.0 * rate(device, HTH_MEMORY_DEVICE, HTH_MEMORY_DEVICE, size));
    printf("up %.4g\n", rate(device, HTH_MEMORY_UPLOAD, HTH_MEMORY_DEVICE, size));
    printf("down %.4g\n", rate(device, HTH_MEMORY_DEVICE, HTH_MEMORY_READBACK, size));
    hth_device_close(device);
    return 0;
}
