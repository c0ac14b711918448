/* A fuzz target for placements: a file (edited_file.h). One that opens places layers and neurons that its model has, on
 * devices in order. Built with libFuzzer by the preset `fuzz`; test_placement.c replays seeds and mutations. */
#include "base/alloc.h"
#include "fuzz/tiny_file.h"
#include "planner/placement.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static gguf_bytes make_placement(const tiny_file *t)
{
    static uint32_t n_hot[TINY_LAYERS] = {TINY_D_FF, TINY_D_FF};
    const hth_placement p = {.n_layer = TINY_LAYERS,
                             .n_hot = n_hot,
                             .read_experts = {{2}},
                             .devices = {{"vulkan:0", "driver 1", 1, true, {{8, 16}, {64, 0}}},
                                         {"vulkan:1", "driver 1", TINY_LAYERS, false, {{0}}}},
                             .n_device = 2,
                             .seconds = 0.5};
    char path[60];
    snprintf(path, sizeof path, "/tmp/hearth-fuzz-%d.placement", (int)getpid());
    expect(hth_placement_write(&p, t->hash, path, NULL) == HEARTH_OK);
    return take_file(path);
}

static void check(const hth_placement *p)
{
    uint32_t end = 0;
    expect(p->n_layer > 0 && p->n_layer <= TINY_LAYERS && p->n_device > 0 && p->n_device <= HEARTH_MAX_GPU);
    /* it is not packed, so that its layers are not divided */
    for (uint32_t i = 0; i < p->n_layer; i++) expect(p->n_hot[i] == TINY_D_FF);
    for (uint32_t i = p->n_layer; i < HTH_MAX_LAYER; i++) expect(!hth_layer_set_has(&p->read_experts, i));
    for (uint32_t i = 0; i < p->n_device; end = p->devices[i++].end_layer) {
        const hth_placement_device *d = &p->devices[i];
        expect(d->end_layer >= end && d->end_layer <= p->n_layer && hth_placement_streams_valid(d->streams));
        expect(memchr(d->name, '\0', sizeof d->name) && memchr(d->driver, '\0', sizeof d->driver));
    }
    expect(end == p->n_layer && p->seconds >= 0.0 && p->seconds <= 1e6 && (!p->head || p->n_layer == TINY_LAYERS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gguf_bytes valid;
    const tiny_file *t = tiny_file_open();
    char path[40];
    hth_placement p;
    hearth_error why = {0};
    if (!valid.data) valid = make_placement(t);
    gguf_bytes b = edited_file(&valid, data, size);
    int fd = memory_file(&b, path);
    uint64_t held = hth_alloc_in_use();
    hearth_status st = hth_placement_open(&p, path, t->model, &why);
    if (st == HEARTH_OK) check(&p);
    else expect(why.message[0] && !p.n_hot);
    expect(size > 0 || st == HEARTH_OK); /* the file that is edited */
    hth_placement_close(&p);
    expect(hth_alloc_in_use() == held);
    close(fd);
    gguf_free(&b);
    return 0;
}
