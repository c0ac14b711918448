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

enum { N_RUN = 5, N_COPY = 8 };

static void check(hearth_status st, const hearth_error *err)
{
    if (st == HEARTH_OK) return;
    fprintf(stderr, "gpu_bandwidth: %s\n", err->message);
    exit(1);
}

/* Bytes per second of copies from one kind of memory to another. The first run is not counted. */
static double rate(hth_device *device, hth_memory from, hth_memory to, uint64_t size)
{
    hearth_error err;
    hth_buffer *a, *b;
    hth_cmdlist *list;
    double rates[N_RUN];
    check(hth_buffer_new(device, from, size, "copies", &a, &err), &err);
    check(hth_buffer_new(device, to, size, "copies", &b, &err), &err);
    check(hth_cmdlist_begin(device, &list, &err), &err);
    for (int i = 0; i < N_COPY; i++) {
        hth_cmdlist_copy(list, (hth_buffer_range){a, 0, size}, (hth_buffer_range){b, 0, size});
        hth_cmdlist_barrier(list, &(hth_buffer_range){b, 0, size}, 1);
    }
    check(hth_cmdlist_end(list, &err), &err);
    for (int i = -1; i < N_RUN; i++) {
        hth_fence done;
        uint64_t start = hth_device_time(device);
        check(hth_queue_submit(device, &(hth_submit_info){.cmdlist = list}, 1, &done, &err), &err);
        check(hth_queue_wait(device, done, hth_device_submit_timeout_ns(hth_device_get_info(device)), &err), &err);
        uint64_t ns = hth_device_time(device) - start;
        if (i >= 0) rates[i] = (double)(N_COPY * size) * 1e9 / (double)(ns > 0 ? ns : 1);
    }
    hth_cmdlist_free(list);
    hth_buffer_free(a);
    hth_buffer_free(b);
    return hth_sample_stats_of(rates, N_RUN).median;
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
