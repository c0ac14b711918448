/* Rows of gate and up on a device, of neurons that a selector has ruled out by then: they are not read. A
 * simulated GPU's clock goes by the bytes of the rows that are marked, and functions of C are called with
 * such rows in unreadable memory. */
#include "engine/engine.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"
#include "support/engine.h"
#include "support/guard.h"
#include "support/device/hybrid.h"
#include "support/test.h"

/* ---- by the clock of a GPU ------------------------------------------------------------------------- */

/* A byte a nanosecond, and next to nothing for all else. */
#define SIM_GPU                                                                                                 \
    "name = bytes\nvram_bytes = 1G\nbandwidth = 1e9\npcie_up = 1e12\npcie_down = 1e12\n"                     \
    "pcie_latency_us = 0\ndispatch_us = 0\nsubmit_us = 0\nwake_us = 0\nflops = 1e12\n"                       \
    "jitter = 0\nseed = 1\nclock = virtual\n"

enum { N_ID = 24, N_VOCAB = 2048, D_MODEL = 288, D_FF = 768, N_LAYER = 6, FEW = 8, MANY = 12 };

static bool write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fputs(text, f);
    return fclose(f) == 0;
}

/* Nanoseconds of the GPU for the ids, so many at once. */
static uint64_t time_of(const char *path, const char *sim_gpu, hearth_selector selector, uint32_t n_batch)
{
    char device[600];
    int32_t ids[N_ID];
    test_random r = {9};
    snprintf(device, sizeof device, "sim:%s", sim_gpu);
    const hearth_model_options o = {.n_thread = 2, .selector = selector,
                                    .gpu = {.device = device, .n_ctx = 2 * N_ID, .n_batch = N_ID, .kv = HEARTH_KV_F16}};
    const engine_setting s = {.n_thread = 2, .n_batch = n_batch, .kv = HEARTH_KV_F16, .selector = selector};
    for (int i = 0; i < N_ID; i++) ids[i] = (int32_t)test_random_below(&r, N_VOCAB);
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    if (!model || !CHECK(model->gpu && hth_gpu_get_params(model->gpu)->end_layer == N_LAYER)) return 0;
    uint64_t start = hth_device_time(model->devices[0].device);
    FREED float *logits = engine_model_logits(model, &s, ids, N_ID);
    uint64_t took = hth_device_time(model->devices[0].device) - start;
    CHECK(logits != NULL);
    return took;
}

TEST(single_tokens_read_active_rows_and_prompts_read_all)
{
    /* Of a neuron's three rows, in Q8_0. */
    const uint64_t row = D_MODEL / 32 * 34, all = (uint64_t)N_ID * N_LAYER * D_FF * 3 * row;
    const char *path = test_scratch("live.gguf"), *sim_gpu = test_scratch("live.sim");
    if (!CHECK(write_text(sim_gpu, SIM_GPU)) || !hybrid_pack_storyteller("q8_0", path)) return;
    uint64_t dense = time_of(path, sim_gpu, HEARTH_SELECTOR_DENSE, 1);
    uint64_t gate = time_of(path, sim_gpu, HEARTH_SELECTOR_GATE, 1);
    uint64_t predictor = time_of(path, sim_gpu, HEARTH_SELECTOR_PREDICTOR, 1);
    uint64_t threshold = time_of(path, sim_gpu, HEARTH_SELECTOR_THRESHOLD, 1);
    fprintf(stderr, "  %.0f KB of rows; dense %.0f us, gate %.0f, predictor %.0f, threshold %.0f\n",
            (double)all * 1e-3, (double)dense * 1e-3, (double)gate * 1e-3, (double)predictor * 1e-3,
            (double)threshold * 1e-3);
    CHECK(dense > all);
    /* The gate is read whole; more than half of its neurons are off. The thresholds leave a tenth. */
    CHECK(gate < dense - all / 3 && gate > dense - all * 2 / 3);
    CHECK(threshold < gate && threshold > dense - all * 2 / 3);
    CHECK(predictor < dense - all / 3);

    CHECK(time_of(path, sim_gpu, HEARTH_SELECTOR_GATE, FEW) < time_of(path, sim_gpu, HEARTH_SELECTOR_DENSE, FEW));
    CHECK_INT(time_of(path, sim_gpu, HEARTH_SELECTOR_GATE, MANY), time_of(path, sim_gpu, HEARTH_SELECTOR_DENSE, MANY));
}

/* ---- matrices in parts ------------------------------------------------------------------------------ */

/* Bytes that a binding may have; 0: as many as the device says. */
static uint64_t max;

hearth_status __real_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);
hearth_status __wrap_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);

hearth_status __wrap_hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err)
{
    hearth_status st = __real_hth_device_open(spec, out, err);
    if (st == HEARTH_OK && max > 0) ((hth_device_info *)(uintptr_t)hth_device_get_info(*out))->max_binding_size = max;
    return st;
}

static float *logits_on(const char *path, const char *device, hearth_selector selector, uint32_t n_batch)
{
    int32_t ids[N_ID];
    test_random r = {11};
    const hearth_model_options o = {
        .n_thread = 2,
        .selector = selector,
        .gpu = {.device = device, .n_ctx = 2 * N_ID, .n_batch = n_batch, .kv = HEARTH_KV_F16}};
    const engine_setting s = {.n_thread = 2, .n_batch = n_batch, .kv = HEARTH_KV_F16, .selector = selector};
    for (int i = 0; i < N_ID; i++) ids[i] = (int32_t)test_random_below(&r, N_VOCAB);
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    if (!model) return NULL;
    float *logits = engine_model_logits(model, &s, ids, N_ID);
    return logits;
}

/* 512 rows at most: the second of three parts has the last rows of gate and the first of up. */
TEST(active_rows_of_matrices_in_parts_have_the_bits_of_the_cpu)
{
    static const hearth_selector selectors[] = {HEARTH_SELECTOR_GATE, HEARTH_SELECTOR_PREDICTOR,
                                                HEARTH_SELECTOR_THRESHOLD};
    const char *path = test_scratch("parts.gguf");
    if (!hybrid_pack_storyteller("q8_0", path)) return;
    for (size_t i = 0; i < 3; i++)
        for (uint32_t n_batch = 1; n_batch <= 5; n_batch += 4) {
            float *expected = logits_on(path, "none", selectors[i], n_batch);
            max = (uint64_t)200 << 10;
            float *got = logits_on(path, "null", selectors[i], n_batch);
            max = 0;
            if (expected && got) CHECK_BYTES(got, expected, (size_t)N_ID * N_VOCAB * sizeof *got);
            free(expected), free(got);
        }
}

/* ---- rows in unreadable memory -------------------------------------------------------------------------- */

typedef struct unread {
    hth_shader_id id;
    hth_dispatch_args call;
} unread;

static void call_it(void *arg)
{
    const unread *u = arg;
    hth_shader_ref_table[u->id](&u->call);
}

/* Rows of a page each of which all but the live ones are unreadable. */
static void try_unread(hth_type type, hth_shader_id id, const uint32_t *consts, const void *push,
                       size_t n_row, size_t n_col, uint32_t mask)
{
    const size_t page = guard_page_size(), n_bind = strlen(hth_shader_infos[id].bindings);
    uint32_t step[HTH_STEP_ROWS] = {[HTH_STEP_N_TOK] = 1}, live = mask;
    hth_soa_layout places;
    guard g;
    unread u = {.id = id, .call = {.push = push, .consts = consts, .grid = {1, 1, 1}}};
    float *y = calloc(n_row, sizeof *y), *zeros = calloc(n_col, sizeof *zeros);
    CHECK(hth_soa_layout_init(type, n_row, n_col, &places));
    guard_open(&g, (size_t)places.size + page);
    uint8_t *w = guard_place(&g, (size_t)places.size / page * page + page, GUARD_BEFORE, 0);
    memset(w, 0, (size_t)places.size);
    for (size_t i = 0; i < n_bind; i++) u.call.bind[i] = zeros;
    u.call.bind[0] = step, u.call.bind[1] = w, u.call.bind[n_bind - 2] = y, u.call.bind[n_bind - 1] = &live;
    for (size_t i = 0; i < n_row; i++) guard_protect(w + i * page, page, mask >> i & 1);
    bool done = guard_call(call_it, &u);
    if (!done) test_fail(__FILE__, __LINE__, "%s reads other rows than %x", hth_shader_infos[id].name, mask);
    live |= 1u << 3;
    if (!(mask >> 3 & 1)) CHECK(!guard_call(call_it, &u)); /* that one would be missed */
    guard_protect(w, n_row * page, true);
    guard_close(&g);
    free(y), free(zeros);
}

TEST(inactive_rows_are_not_read)
{
    static const uint32_t masks[] = {0, 1, 0x80, 0x55, 0xaa, 0x42, 0xff};
    enum { N_ROW = 8 };
    const uint32_t page = (uint32_t)guard_page_size();
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        uint32_t consts[HTH_ROWS_N_CONST] = {64, 1, 1, 0, 8};
        hth_quant_desc desc;
        hth_soa_layout places;
        CHECK(hth_quant_desc_of(HTH_TYPE_Q8_0, &desc) && hth_soa_layout_init(HTH_TYPE_Q8_0, N_ROW, page, &places));
        memcpy(consts + HTH_ROWS_FORMAT, &desc, sizeof desc);
        const hth_push_mul_mat_vec_q_sparse quantised = {
            {.n_row = N_ROW, .n_block = page / 32, .y_stride = N_ROW, .at = places.offsets}, {0, 0}};
        try_unread(HTH_TYPE_Q8_0, HTH_SHADER_mul_mat_vec_q_sparse, consts, &quantised, N_ROW, page, masks[i]);
        const uint32_t of_floats[] = {64, 1, 1, 0, 8, HTH_TYPE_F32};
        const hth_push_mul_mat_vec_f_sparse floats = {
            {.n_row = N_ROW, .n_col = page / 4, .y_stride = N_ROW, .row_words = page / 4}, {0, 0}};
        try_unread(HTH_TYPE_F32, HTH_SHADER_mul_mat_vec_f_sparse, of_floats, &floats, N_ROW, page / 4, masks[i]);
    }
}
