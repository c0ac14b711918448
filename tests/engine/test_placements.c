/* Placement files that do not fit the model, the device or themselves are refused before anything is loaded, by file
 * and field; one that fits is what lies there. Nothing in such a file is trusted. */
#include "base/alloc.h"
#include "convert/pack.h"
#include "engine/engine.h"
#include "sparse/sidecar.h"
#include "support/device/hybrid.h"
#include "support/test.h"

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { N_LAYER = 6, D_FF = 768 };

/* A packed storyteller, and a placement of it that fits. */
typedef struct inputs {
    char model[512], placement[512];
    uint32_t n_hot[N_LAYER + 1];
    hth_placement fits;
} inputs;

static void open_inputs(inputs *in)
{
    const hth_pack_options o = {.n_thread = 2};
    hth_pack_result r;
    *in = (inputs){.n_hot = {256, 768, 0, 256, 512, 768, 0}};
    snprintf(in->model, sizeof in->model, "%s", test_scratch("packed.gguf"));
    snprintf(in->placement, sizeof in->placement, "%s", test_scratch("placement.gguf"));
    in->fits = (hth_placement){.n_layer = N_LAYER, .n_hot = in->n_hot, .head = true, 
                               .devices = {{.submit_on_demand = true, .streams = {{2, 40}, {3, 0}, {7, 63}}}}};
    CHECK_OK(hth_pack(STORYTELLER, in->model, &o, &r, err));
    hybrid_write_placement(in->model, "null", &in->fits, in->placement); /* fills in the names */
}

static void close_inputs(const inputs *in)
{
    remove(in->model);
    remove(in->placement);
}

static hearth_status open_placed(const char *model_path, const hearth_gpu_options *gpu, hearth_model **model,
                                 hearth_error *err)
{
    const hearth_model_options o = {.n_thread = 1, .selector = HEARTH_SELECTOR_DENSE, .gpu = *gpu};
    return hearth_model_open(model_path, &o, model, err);
}

/* Refused with a line that begins with the placement's path; nothing is kept. */
static void expect_refused(const inputs *in, const char *model_path, const hearth_gpu_options *gpu,
                           hearth_status status, const char *words, int line)
{
    CLOSED(hearth_model) *model = NULL;
    hearth_error why = {0};
    uint64_t held = hth_alloc_in_use();
    hearth_status st = open_placed(model_path, gpu, &model, &why);
    if (st != status || model || strstr(why.message, in->placement) != why.message || !strstr(why.message, words))
        test_fail(__FILE__, line, "status '%s', '%s'; expected '%s'", hearth_status_name(st), why.message, words);
    CHECK_INT(hth_alloc_in_use(), held);
}

static hearth_gpu_options placed(const inputs *in)
{
    return (hearth_gpu_options){.device = "null", .n_ctx = 32, .n_batch = 8, .placement = in->placement};
}

static uint64_t hash_of(const char *path)
{
    uint64_t hash = 0;
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, path);
    if (file) CHECK_OK(hth_model_hash(file, &hash, err));
    return hash;
}

TEST(a_placement_that_fits_is_applied)
{
    CLEANUP(close_inputs) inputs in;
    open_inputs(&in);
    uint64_t hash = hash_of(in.model);
    const hearth_gpu_options gpu = placed(&in);
    for (int i = 0; i < 2; i++) {
        in.fits.host_kv = i;
        CHECK_OK(hth_placement_write(&in.fits, hash, in.placement, err));
        CLOSED(hearth_model) *model = OPENED_BY(open_placed, hearth_model, in.model, &gpu);
        if (!model || !CHECK(model->gpu != NULL)) continue;
        const hth_offload_params *p = hth_gpu_get_params(model->gpu);
        CHECK(p->end_layer == N_LAYER && p->head && p->submit_mode == HTH_SUBMIT_ON_DEMAND && p->host_kv == (i > 0));
        CHECK_BYTES(p->n_hot, in.n_hot, N_LAYER * sizeof *in.n_hot);
        CHECK_BYTES(p->streams, in.fits.devices[0].streams, sizeof p->streams);
        uint64_t bytes = 0;
        for (uint32_t l = 0, one; l < N_LAYER; l++)
            one = hth_gpu_cache_bytes(model->model, UINT64_MAX, p, l, &bytes), CHECK(one && (bytes == 0) == (i > 0));
    }
}

/* ---- what does not fit the model or the device -------------------------------------------------- */

/* One change of what fits. */
#define EXPECT(CHANGE, STATUS, WORDS)                                                                        \
    do {                                                                                                     \
        inputs c = in;                                                                                       \
        uint64_t hash = true_hash;                                                                           \
        c.fits.n_hot = c.n_hot;                                                                              \
        CHANGE;                                                                                              \
        CHECK_OK(hth_placement_write(&c.fits, hash, in.placement, err));                                     \
        expect_refused(&in, in.model, &gpu, STATUS, WORDS, __LINE__);                                        \
    } while (0)

TEST(placements_that_do_not_fit_are_refused)
{
    CLEANUP(close_inputs) inputs in;
    open_inputs(&in);
    uint64_t true_hash = hash_of(in.model);
    hearth_gpu_options gpu = placed(&in);
    EXPECT(hash ^= 1, HEARTH_ERROR_ARGUMENT, "hearth.model.hash at ");
    EXPECT(hash ^= 1, HEARTH_ERROR_ARGUMENT, "another model");
    EXPECT(strcpy(c.fits.devices[0].name, "another card"), HEARTH_ERROR_ARGUMENT, "was made for another card (");
    EXPECT(strcpy(c.fits.devices[0].driver, "another driver"), HEARTH_ERROR_ARGUMENT, " (another driver), not for ");
    EXPECT(c.fits.n_layer = N_LAYER + 1, HEARTH_ERROR_FORMAT, "hearth.placement.hot at ");
    EXPECT(c.fits.n_layer = 0, HEARTH_ERROR_FORMAT, ": 1 to 6 numbers are wanted");
    EXPECT(c.n_hot[2] = D_FF + 256, HEARTH_ERROR_FORMAT, "value 2 is 1024: layer 2 has 768 neurons");
    EXPECT(c.n_hot[5] = UINT32_MAX, HEARTH_ERROR_FORMAT, "value 5 is 4294967295: layer 5 has 768 neurons");
    EXPECT(c.n_hot[3] = 100, HEARTH_ERROR_ARGUMENT, "100 neurons of layer 3: they are divided in multiples of 256");
    EXPECT(c.n_hot[0] = 1, HEARTH_ERROR_ARGUMENT, "1 neurons of layer 0");
    EXPECT(c.fits.n_layer = N_LAYER - 1, HEARTH_ERROR_FORMAT, "hearth.placement.head: the head lies there only");
    EXPECT(c.fits.devices[0].streams[1].n_tok = 2, HEARTH_ERROR_FORMAT, "hearth.placement.stream at ");
    EXPECT(c.fits.devices[0].streams[2].cpu_share = 64, HEARTH_ERROR_FORMAT,
           "of tokens, ascending, and of parts of 64");
    gpu.vram = 1 << 20;
    EXPECT((void)0, HEARTH_ERROR_MEMORY,
           " on null, and gpu.vram allows 1.00 MiB: make it again with hearth plan");
}

TEST(a_model_that_is_not_packed_is_not_divided)
{
    CLEANUP(close_inputs) inputs in;
    open_inputs(&in);
    const hearth_gpu_options gpu = placed(&in);
    uint64_t hash = hash_of(STORYTELLER);
    CHECK_OK(hth_placement_write(&in.fits, hash, in.placement, err));
    expect_refused(&in, STORYTELLER, &gpu, HEARTH_ERROR_FORMAT,
                   "value 0 is 256: layer 0 has 768 neurons, which only", __LINE__);
    for (int i = 0; i < N_LAYER; i++) in.n_hot[i] = D_FF;
    CHECK_OK(hth_placement_write(&in.fits, hash, in.placement, err));
    CLOSED(hearth_model) *model = OPENED_BY(open_placed, hearth_model, STORYTELLER, &gpu);
    CHECK(model && model->gpu && hth_gpu_end_layer(model->gpu) == N_LAYER);
}

/* Without a file, such layers stay on the CPU. */
TEST(layers_that_a_device_cannot_hold_are_not_placed_on_it)
{
    CLEANUP(close_inputs) inputs in;
    open_inputs(&in);
    hth_placement p = {.n_layer = 2, .n_hot = in.n_hot};
    const char *path = test_scratch("heads-of-16.gguf");
    in.n_hot[0] = in.n_hot[1] = 256;
    if (hybrid_pack_powerinfer("bamboo", path) && hybrid_write_placement(path, "null", &p, in.placement)) {
        hearth_gpu_options gpu = placed(&in);
        gpu.kv = HEARTH_KV_Q8_0;
        expect_refused(&in, path, &gpu, HEARTH_ERROR_ARGUMENT,
                       "layer 0 cannot lie on a device: its heads are no multiple of 32", __LINE__);
    }
}

/* ---- what is not a placement, or not a whole one ------------------------------------------------ */

typedef enum field { HOT, HEAD, HANDOFF, DEVICE, DRIVER, STREAM, N_FIELD } field;
static const char *const keys[N_FIELD] = {"hearth.placement.hot",     "hearth.placement.head",
                                          "hearth.placement.handoff", "hearth.placement.device",
                                          "hearth.placement.driver",  "hearth.placement.stream"};

/* All fields but one, or with that one as a number of another type. */
static void write_spoilt(const inputs *in, const char *kind, field spoilt, bool missing, const char *handoff)
{
    const char *texts[N_FIELD] = {NULL, NULL, handoff, in->fits.devices[0].name, in->fits.devices[0].driver, NULL};
    CLOSED(hth_gguf_writer) *w = OPENED(hth_gguf_writer, in->placement);
    if (!w) return;
    hth_sidecar_write_head(w, kind, hash_of(in->model));
    for (field f = 0; f < N_FIELD; f++) {
        if (f == spoilt && missing) continue;
        if (f == spoilt) hth_gguf_writer_uint(w, keys[f], f == HEAD ? HTH_GGUF_I32 : HTH_GGUF_U64, 1);
        else if (f == HOT) hth_gguf_writer_array(w, keys[f], HTH_GGUF_U32, in->n_hot, N_LAYER);
        else if (f == STREAM) hth_gguf_writer_array(w, keys[f], HTH_GGUF_U32, in->fits.devices[0].streams, 6);
        else if (f == HEAD) hth_gguf_writer_uint(w, keys[f], HTH_GGUF_U32, 1);
        else hth_gguf_writer_text(w, keys[f], texts[f], strlen(texts[f]));
    }
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK_OK(hth_gguf_writer_finish(w, err));
}

TEST(placements_without_a_field_or_of_another_kind_are_refused)
{
    CLEANUP(close_inputs) inputs in;
    open_inputs(&in);
    const hearth_gpu_options gpu = placed(&in);
    for (field f = 0; f < N_FIELD; f++) {
        write_spoilt(&in, "placement", f, true, "queued");
        if (f != STREAM) expect_refused(&in, in.model, &gpu, HEARTH_ERROR_FORMAT, keys[f], __LINE__);
        if (f == HEAD) continue; /* any type of number that holds 0 or 1 is one */
        write_spoilt(&in, "placement", f, false, "queued");
        expect_refused(&in, in.model, &gpu, HEARTH_ERROR_FORMAT, keys[f], __LINE__);
    }
    write_spoilt(&in, "placement", N_FIELD, false, "thrown");
    expect_refused(&in, in.model, &gpu, HEARTH_ERROR_UNSUPPORTED, "hearth.placement.handoff at ", __LINE__);
    expect_refused(&in, in.model, &gpu, HEARTH_ERROR_UNSUPPORTED, "known are queued and submitted", __LINE__);
    write_spoilt(&in, "profile", N_FIELD, false, "queued");
    expect_refused(&in, in.model, &gpu, HEARTH_ERROR_UNSUPPORTED, "general.architecture at ", __LINE__);
    remove(in.placement);
    expect_refused(&in, in.model, &gpu, HEARTH_ERROR_IO, "", __LINE__);
}

TEST(a_placement_is_no_model_and_a_model_no_placement)
{
    CLEANUP(close_inputs) inputs in;
    hearth_model *model = NULL;
    open_inputs(&in);
    hearth_gpu_options gpu = placed(&in);
    CHECK_FAILS(hearth_model_open(in.placement, NULL, &model, err), HEARTH_ERROR_UNSUPPORTED,
                "a placement, not a model");
    gpu.placement = in.model;
    CHECK_FAILS(open_placed(in.model, &gpu, &model, err), HEARTH_ERROR_UNSUPPORTED, "general.architecture at ");
}

/* ---- damage ------------------------------------------------------------------------------------- */

typedef struct bare {
    hth_gguf *file;
    hth_model *model;
} bare;

/* The placement with other bytes, held against the model alone. */
static hearth_status open_bytes(const inputs *in, const bare *b, const char *bytes, size_t n,
                                hth_placement *p, hearth_error *why)
{
    CHECK(test_write_file(in->placement, bytes, n));
    return hth_placement_open(p, in->placement, b->model, why);
}

static bool is_within_bounds(const hth_placement *p)
{
    bool ok = p->n_layer >= 1 && p->n_layer <= N_LAYER && (!p->head || p->n_layer == N_LAYER);
    for (uint32_t i = 0; ok && i < p->n_layer; i++) ok = p->n_hot[i] <= D_FF;
    const hth_placement_device *d = &p->devices[0];
    for (int i = 0; ok && i < HTH_PLACEMENT_STREAMS; i++) {
        uint32_t n_tok = d->streams[i].n_tok, last = i > 0 ? d->streams[i - 1].n_tok : 0;
        ok = d->streams[i].cpu_share < HTH_PLACEMENT_PARTS && (n_tok == 0 || i == 0 || (last > 0 && n_tok > last));
    }
    return ok && memchr(d->name, 0, sizeof d->name) && memchr(d->driver, 0, sizeof d->driver);
}

TEST(placements_cut_anywhere_or_damaged_at_random_are_refused_or_within_bounds)
{
    enum { N_DAMAGE = 3000 };
    CLEANUP(close_inputs) inputs in;
    bare b = {0};
    size_t n = 0;
    int n_taken = 0;
    test_random r = {4};
    open_inputs(&in);
    FREED char *bytes = test_read_file(in.placement, &n);
    CHECK_OK(hth_gguf_open(in.model, &b.file, err));
    if (b.file) CHECK_OK(hth_model_open(b.file, &(hth_model_overrides){0}, &b.model, err));
    uint64_t held = hth_alloc_in_use();
    for (size_t cut = 0; bytes && b.model && cut + 64 < n; cut++) { /* the padding at the end may go */
        hth_placement p;
        hearth_error why = {0};
        hearth_status st = open_bytes(&in, &b, bytes, cut, &p, &why);
        if (st == HEARTH_OK || strstr(why.message, in.placement) != why.message)
            test_fail(__FILE__, __LINE__, "cut at %zu: '%s'", cut, why.message);
    }
    for (int i = 0; bytes && b.model && i < N_DAMAGE; i++) {
        hth_placement p;
        hearth_error why = {0};
        size_t at = test_random_below(&r, (uint32_t)n);
        char was = bytes[at];
        bytes[at] = (char)test_random_below(&r, 256);
        hearth_status st = open_bytes(&in, &b, bytes, n, &p, &why);
        if (st == HEARTH_OK ? !is_within_bounds(&p) : strstr(why.message, in.placement) != why.message)
            test_fail(__FILE__, __LINE__, "byte %zu is %d: '%s'", at, bytes[at], why.message);
        n_taken += st == HEARTH_OK;
        if (st == HEARTH_OK) hth_placement_close(&p);
        bytes[at] = was;
    }
    CHECK_INT(hth_alloc_in_use(), held);
    printf("     %d of %d damaged ones were taken\n", n_taken, N_DAMAGE);
    CHECK(n_taken < N_DAMAGE);
    hth_model_close(b.model);
    hth_gguf_close(b.file);
}
