/* A fuzz target for predictors and thresholds: the first byte picks which, the rest is a file (edited_file.h). One that
 * opens has a finite value wherever it has one, and the thresholds that its model needs; one that does not is refused with
 * a line and keeps nothing. Built with libFuzzer by the preset `fuzz`; test_sidecar.c replays seeds and mutations. */
#include "base/alloc.h"
#include "fuzz/tiny_file.h"
#include "sparse/sidecar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(tiny_model *m, int i_layer, const char *rest, uint64_t d0, uint64_t d1)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", i_layer, rest);
    tiny_add_tensor(m, name, 0, d1 ? 2 : 1, d0, d1 ? d1 : 1);
}

static gguf_bytes make_thresholds(const tiny_file *t)
{
    tiny_model m;
    tiny_file_begin(t, &m, "hearth.thresholds");
    for (int i = 0; i < TINY_LAYERS; i++) add(&m, i, "ffn_floor.weight", TINY_D_FF, 0);
    return tiny_take(&m);
}

static gguf_bytes make_predictors(const tiny_file *t)
{
    static const float thresholds[TINY_LAYERS] = {0.5f, -1.0f};
    tiny_model m;
    tiny_file_begin(t, &m, "hearth.predictors");
    tiny_set_text(&m, "hearth.predictor.input", "normed");
    tiny_set_floats(&m, "hearth.predictor.threshold", thresholds, TINY_LAYERS);
    for (int i = 0; i < TINY_LAYERS; i++) {
        add(&m, i, "fc1.weight", TINY_D_MODEL, TINY_RANK);
        add(&m, i, "fc2.weight", TINY_RANK, TINY_D_FF);
        add(&m, i, "fc2.bias", TINY_D_FF, 0);
    }
    return tiny_take(&m);
}

static bool is_finite(float x) { return x - x == 0.0f; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gguf_bytes valid[2];
    static const char *const kinds[] = {"predictors", "thresholds"};
    const tiny_file *t = tiny_file_open();
    char path[40];
    hth_sidecar s;
    hearth_error why = {0};
    if (!valid[0].data) valid[0] = make_predictors(t), valid[1] = make_thresholds(t);
    if (size == 0) return 0;
    unsigned kind = data[0] % 2;
    gguf_bytes b = edited_file(&valid[kind], data + 1, size - 1);
    int fd = memory_file(&b, path);
    uint64_t held = hth_alloc_in_use();
    hearth_status st = hth_sidecar_open(&s, path, kinds[kind], t->model, &why);
    expect((st == HEARTH_OK) == (s.file != NULL) && (st == HEARTH_OK || why.message[0]));
    if (st == HEARTH_OK && kind == 0)
        for (int i = 0; i < TINY_LAYERS; i++) expect(s.thresholds && is_finite(s.thresholds[i]));
    expect(size > 1 || st == HEARTH_OK); /* the file that is edited */
    hth_sidecar_close(&s);
    expect(hth_alloc_in_use() == held);
    close(fd);
    gguf_free(&b);
    return 0;
}
