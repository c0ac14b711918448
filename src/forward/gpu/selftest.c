/* The self-test: packs test cases into one buffer, runs them with one command list on the device and one after the
 * other on the host, then compares all bindings byte by byte, including padding around the outputs. One submission
 * holds as many test cases as fit. */
#include "forward/gpu/selftest.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "forward/gpu/shader_params.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RUNS = 64, ALIGNMENT = 256, MAX_BYTES = 4 << 20 };

/* Far more than any device needs, even a CPU device on a busy machine. */
static const uint64_t TIMEOUT_NS = (uint64_t)120 * 1000000000;

typedef struct test_run {
    const hth_pipeline *pipeline;
    hth_gpu_testcase what;
    uint64_t at[HTH_SHADER_MAX_BIND];
} test_run;

typedef struct session {
    hth_device *device;
    hth_buffer *memory;
    uint8_t *bytes, *expected; /* sent to the device and read back; the host's results from the same input */
    uint64_t used, capacity;
    test_run *runs;
    uint32_t n;
    char (*messages)[HTH_GPU_MESSAGE_MAX]; /* output, as hth_gpu_messages */
} session;

/* ---- one round ---------------------------------------------------------------------------------------- */

static void add_case(session *s, const hth_pipeline *pipeline, const hth_gpu_testcase *what)
{
    test_run *t = &s->runs[s->n++];
    uint8_t *bind[HTH_SHADER_MAX_BIND];
    *t = (test_run){.pipeline = pipeline, .what = *what};
    for (uint32_t i = 0; i < what->n_bind; i++) {
        t->at[i] = s->used;
        bind[i] = s->bytes + s->used;
        s->used += (what->bind[i].size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    hth_gpu_testcase_fill(what, bind);
}

static void run_on_host(const session *s, const test_run *t)
{
    hth_dispatch_args call = {.push = t->what.push, .consts = t->what.consts};
    memcpy(call.grid, t->what.grid, sizeof call.grid);
    for (uint32_t i = 0; i < t->what.n_bind; i++)
        call.bind[i] = s->expected + t->at[i], call.size[i] = t->what.bind[i].size;
    hth_shader_ref_table[t->what.id](&call);
}

static void record(const session *s, hth_cmdlist *cmdlist, const test_run *t)
{
    hth_buffer_range bind[HTH_SHADER_MAX_BIND];
    const uint32_t *grid = t->what.grid;
    for (uint32_t i = 0; i < t->what.n_bind; i++)
        bind[i] = (hth_buffer_range){s->memory, t->at[i], t->what.bind[i].size};
    hth_cmdlist_dispatch(cmdlist, t->pipeline, bind, t->what.push, grid[0], grid[1], grid[2]);
}

static hearth_status run_on_device(const session *s, hearth_error *err)
{
    const hth_buffer_range all = {s->memory, 0, s->used};
    hth_cmdlist *cmdlist = NULL;
    hth_fence fence;
    hearth_status st = hth_device_upload(all, s->bytes, err);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(s->device, &cmdlist, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < s->n; i++) record(s, cmdlist, &s->runs[i]);
    st = hth_cmdlist_end(cmdlist, err);
    if (st == HEARTH_OK) st = hth_queue_submit(s->device, (hth_submit_info[]){{.cmdlist = cmdlist}}, 1, &fence, err);
    if (st == HEARTH_OK) st = hth_queue_wait(s->device, fence, TIMEOUT_NS, err);
    if (st == HEARTH_OK) st = hth_device_download(all, s->bytes, err);
    hth_cmdlist_free(cmdlist);
    return st;
}

static bool is_same(const session *s, const test_run *t)
{
    for (uint32_t i = 0; i < t->what.n_bind; i++)
        if (memcmp(s->bytes + t->at[i], s->expected + t->at[i], t->what.bind[i].size) != 0) return false;
    return true;
}

static void compare(session *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const hth_gpu_testcase *what = &s->runs[i].what;
        bool has_type = what->n_weight_row > 0;
        char *note = s->messages[hth_shader_coopmat_level(what->id)];
        if (note[0] || is_same(s, &s->runs[i])) continue;
        snprintf(note, HTH_GPU_MESSAGE_MAX, "%s%s%s differs from the CPU", hth_shader_infos[what->id].name,
                 has_type ? " of " : "", has_type ? hth_type_find(what->type)->name : "");
    }
}

static hearth_status run_round(session *s, hearth_error *err)
{
    if (s->n == 0) return HEARTH_OK;
    memcpy(s->expected, s->bytes, s->used);
    for (uint32_t i = 0; i < s->n; i++) run_on_host(s, &s->runs[i]);
    hearth_status st = run_on_device(s, err);
    if (st == HEARTH_OK) compare(s);
    s->n = 0, s->used = 0;
    return st;
}

/* ---- memory size -------------------------------------------------------------------------------------- */

static uint64_t bytes_of(hth_shader_id id, const uint32_t *consts)
{
    hth_gpu_testcase what;
    return hth_gpu_testcase_of(id, consts, &what) ? hth_gpu_testcase_bytes(&what) : 0;
}

uint64_t hth_gpu_selftest_bytes(hearth_kv_type kv, uint32_t d_head, uint32_t shared)
{
    const uint64_t others = 256 << 10; /* no other shader needs more; a test checks this */
    const uint32_t type = (uint32_t)kv, local = 64;
    uint64_t whole = bytes_of(HTH_SHADER_attn, (const uint32_t[]){d_head, shared, type, 0, local, 1, 1, 1});
    uint64_t split = bytes_of(HTH_SHADER_attn, (const uint32_t[]){d_head, shared, type, 1, local, 1, 0, 1});
    uint64_t reduce = bytes_of(HTH_SHADER_attn_reduce, (const uint32_t[]){d_head, HTH_ACT_BLOCK_256, 1, local, 1});
    uint64_t store =
        bytes_of(HTH_SHADER_rope_store, (const uint32_t[]){d_head, 0, HTH_ROPE_NORM_OWN, type, local, 0, 0, 1});
    return hth_max_u64(hth_max_u64(hth_max_u64(whole, split), reduce), hth_max_u64(store, others));
}

uint64_t hth_gpu_selftest_state_bytes(uint32_t d)
{
    uint64_t delta_net = bytes_of(HTH_SHADER_delta_net, (const uint32_t[]){d, 64}),
             kda = bytes_of(HTH_SHADER_kda, (const uint32_t[]){d, HTH_KDA_MAX_LOCAL});
    return hth_max_u64(delta_net, kda);
}

/* ---- all shaders -------------------------------------------------------------------------------------- */

static hearth_status run_all(session *s, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    const hth_pipeline *p = hth_pipeline_next(s->device, NULL);
    for (; st == HEARTH_OK && p; p = hth_pipeline_next(s->device, p)) {
        hth_gpu_testcase what;
        const uint32_t *consts;
        hth_shader_id id = hth_pipeline_get_info(p, &consts);
        if (!hth_gpu_testcase_of(id, consts, &what)) continue;
        uint64_t bytes = hth_gpu_testcase_bytes(&what);
        if (bytes > s->capacity)
            return hth_fail(err, HEARTH_ERROR_MEMORY, "%s: the test of %s takes %llu bytes, not %llu",
                            hth_device_get_info(s->device)->name, hth_shader_infos[id].name,
                            (unsigned long long)bytes, (unsigned long long)s->capacity);
        if (bytes > s->capacity - s->used || s->n == MAX_RUNS) st = run_round(s, err);
        if (st == HEARTH_OK) add_case(s, p, &what);
    }
    return st == HEARTH_OK ? run_round(s, err) : st;
}

hearth_status hth_gpu_selftest(hth_device *device, hth_buffer *memory, hth_gpu_messages messages,
                               hearth_error *err)
{
    uint64_t size = hth_buffer_size(memory), capacity = size < MAX_BYTES ? size : MAX_BYTES;
    session s = {.device = device, .memory = memory, .capacity = capacity, .messages = messages};
    for (size_t i = 0; i < HTH_N_COOPMAT_LEVEL; i++) messages[i][0] = '\0';
    s.bytes = hth_alloc((size_t)capacity, 1), s.expected = hth_alloc((size_t)capacity, 1);
    s.runs = hth_alloc(MAX_RUNS, sizeof *s.runs);
    bool fits = s.bytes && s.expected && s.runs;
    hearth_status st =
        fits ? run_all(&s, err) : hth_fail_memory(err, 2 * (size_t)capacity, "the test of a device");
    hth_free(s.runs);
    hth_free(s.expected);
    hth_free(s.bytes);
    return st;
}
