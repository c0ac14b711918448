/* Each binding is a slice in the midst of a buffer of its own; what lies around it must stay as it was. The validation
 * layer watches unless HEARTH_NO_VALIDATION is set, for a GPU on a machine without the layer. */
#include "support/device/shaders.h"

#include "forward/gpu/shader_params.h"
#include "support/test.h"

enum { GUARD = 256, LONG_ENOUGH_S = 120 };

bool shaders_are_few(const char *name) { return strcmp(name, "null") != 0 && !test_is_long(); }

hth_device *shaders_open(const char *name) { return shaders_open_as(&(hth_device_spec){.name = name}); }

hth_device *shaders_open_as(const hth_device_spec *as)
{
    hth_device *d = NULL;
    hearth_error err = {0};
    hth_device_spec spec = *as;
    const char *name = spec.name;
    spec.shader_refs = hth_shader_ref_table, spec.validation = getenv("HEARTH_NO_VALIDATION") == NULL;
    hearth_status st = hth_device_open(&spec, &d, &err);
    if (st == HEARTH_ERROR_UNSUPPORTED && strcmp(name, "null") != 0) test_skip("%s", err.message);
    else if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", name, err.message);
    else if (test_driver_flushes(hth_device_get_info(d)->driver)) {
        test_skip("%s loses subnormals", hth_device_get_info(d)->driver);
        hth_device_close(d), d = NULL;
    }
    return d;
}

void shaders_close(hth_device *d)
{
    if (d && hth_device_state(d).n_validation_error > 0)
        test_fail(__FILE__, __LINE__, "the validation layer complained %llu times",
                  (unsigned long long)hth_device_state(d).n_validation_error);
    hth_device_close(d);
}

/* ---- one run ------------------------------------------------------------------------------------- */

typedef struct bound {
    char access;
    size_t size; /* of the slice, whole words */
    uint8_t *bytes;
    hth_buffer *buffer;
    hth_buffer_range slice;
} bound;

static hearth_status put(hth_device *d, const shaders_binding *from, char access, bound *b,
                         hearth_error *err)
{
    b->access = access;
    b->size = from->size < 4 ? 4 : (from->size + 3) / 4 * 4;
    b->bytes = malloc(b->size + 2 * GUARD);
    memset(b->bytes, SHADERS_POISON, b->size + 2 * GUARD);
    if (access != 'w' && from->size > 0) memcpy(b->bytes + GUARD, from->data, from->size);
    hearth_status st = hth_buffer_new(d, HTH_MEMORY_DEVICE, b->size + 2 * GUARD, "a binding", &b->buffer, err);
    if (st != HEARTH_OK) return st;
    b->slice = (hth_buffer_range){b->buffer, GUARD, b->size};
    return hth_device_upload((hth_buffer_range){b->buffer, 0, 0}, b->bytes, err);
}

static bool is_poison(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != SHADERS_POISON) return false;
    return true;
}

static hearth_status get(const bound *b, const shaders_binding *to, size_t i_bind, hearth_error *err)
{
    hearth_status st = hth_device_download((hth_buffer_range){b->buffer, 0, 0}, b->bytes, err);
    if (st != HEARTH_OK) return st;
    if (!is_poison(b->bytes, GUARD) || !is_poison(b->bytes + GUARD + b->size, GUARD))
        return hth_fail(err, HEARTH_ERROR_DEVICE, "bytes beside binding %zu were written", i_bind);
    if (b->access != 'r' && to->size > 0) memcpy(to->data, b->bytes + GUARD, to->size);
    return st;
}

/* Records it with the grid in memory. */
static hearth_status dispatch_indirect(hth_device *d, hth_cmdlist *cmdlist, const hth_pipeline *pipeline,
                                       const hth_buffer_range *bind, const shaders_run *run, hth_buffer **grid,
                                       hearth_error *err)
{
    hearth_status st = hth_buffer_new(d, HTH_MEMORY_UPLOAD, sizeof run->grid, "a grid", grid, err);
    if (st != HEARTH_OK) return st;
    memcpy(hth_buffer_map(*grid), run->grid, sizeof run->grid);
    hth_cmdlist_dispatch_indirect(cmdlist, pipeline, bind, run->push, (hth_buffer_range){*grid, 0, 0});
    hth_cmdlist_hint_bytes(cmdlist, run->read_bytes);
    return HEARTH_OK;
}

static hearth_status run_once(hth_device *d, const shaders_run *run, const bound *bounds, size_t n,
                              hth_cmdlist **cmdlist, hth_buffer **grid, hearth_error *err)
{
    const hth_pipeline *pipeline;
    hth_buffer_range ranges[HTH_SHADER_MAX_BIND];
    hth_fence fence;
    for (size_t i = 0; i < n; i++) ranges[i] = bounds[i].slice;
    hearth_status st = hth_pipeline_get(d, run->id, run->consts, &pipeline, err);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(d, cmdlist, err);
    if (st != HEARTH_OK) return st;
    if (run->read_bytes > 0) st = dispatch_indirect(d, *cmdlist, pipeline, ranges, run, grid, err);
    else hth_cmdlist_dispatch(*cmdlist, pipeline, ranges, run->push, run->grid[0], run->grid[1], run->grid[2]);
    if (st == HEARTH_OK) st = hth_cmdlist_end(*cmdlist, err);
    if (st == HEARTH_OK) st = hth_queue_submit(d, (hth_submit_info[]){{.cmdlist = *cmdlist}}, 1, &fence, err);
    return st == HEARTH_OK ? hth_queue_wait(d, fence, LONG_ENOUGH_S * (uint64_t)1000000000, err) : st;
}

bool shaders_do(hth_device *d, const shaders_run *run)
{
    const char *access = hth_shader_infos[run->id].bindings;
    bound bounds[HTH_SHADER_MAX_BIND] = {{0}};
    hth_cmdlist *cmdlist = NULL;
    hth_buffer *grid = NULL;
    hearth_error err = {0};
    hearth_status st = HEARTH_OK;
    size_t n = strlen(access);
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) st = put(d, &run->bind[i], access[i], &bounds[i], &err);
    if (st == HEARTH_OK) st = run_once(d, run, bounds, n, &cmdlist, &grid, &err);
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) st = get(&bounds[i], &run->bind[i], i, &err);
    hth_cmdlist_free(cmdlist);
    hth_buffer_free(grid);
    for (size_t i = 0; i < n; i++) {
        hth_buffer_free(bounds[i].buffer);
        free(bounds[i].bytes);
    }
    if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", hth_shader_infos[run->id].name, err.message);
    return st == HEARTH_OK;
}

/* ---- errors -------------------------------------------------------------------------------------- */

static hth_shader_id off;

static void off_by_one(const hth_dispatch_args *c)
{
    const char *access = hth_shader_infos[off].bindings;
    uint32_t *changed = NULL, *before[HTH_SHADER_MAX_BIND] = {0};
    for (size_t i = 0; access[i]; i++) {
        before[i] = malloc(c->size[i]);
        memcpy(before[i], c->bind[i], c->size[i]);
    }
    hth_shader_ref_table[off](c);
    for (size_t i = 0; access[i]; i++) {
        uint32_t *now = c->bind[i];
        for (size_t k = 0; k < c->size[i] / 4; k++)
            if (before[i][k] != now[k]) changed = now + k;
        free(before[i]);
    }
    if (changed) *changed ^= 1;
}

hth_shader_ref_fn *const *shaders_off_by_one(hth_shader_id id)
{
    static hth_shader_ref_fn *functions[HTH_N_SHADER];
    memcpy(functions, hth_shader_ref_table, sizeof functions);
    off = id;
    if (id < HTH_N_SHADER) functions[id] = off_by_one;
    return functions;
}
