/* The store of a model that exceeds a limit of memory: it reads items when they are needed, and keeps those of most
 * use. model.c opens it after gpu.c, before load.c. */
#include "engine/streaming.h"

#include "base/alloc.h"
#include "base/fp_state.h"
#include "base/log.h"
#include "engine/struct_size.h"

#include <string.h>

static _Atomic uint64_t test_memory = UINT64_MAX;
void hth_engine_set_store_memory(uint64_t more) { test_memory = more; }

hearth_status hth_engine_open_reader(const hth_gguf *file, const char *io, hth_reader **out,
                                     hearth_error *err)
{
    uint32_t n = hth_gguf_n_part(file);
    hth_disk *disk;
    hth_reader_file *files = hth_alloc(n, sizeof *files);
    if (!files) return hth_fail_memory(err, n * sizeof *files, "files to read");
    for (uint32_t i = 0; i < n; i++)
        files[i] = (hth_reader_file){hth_gguf_part_fd(file, i), hth_gguf_part_path(file, i)};
    hearth_status st = hth_disk_open(io, &disk, err);
    /* However fast a simulated disk is, its bytes come from this one: from the page cache, if they can. */
    bool buffered = hth_disk_is_simulated(io);
    if (st == HEARTH_OK)
        st = hth_reader_open(
            &(hth_reader_options){.files = files, .n_file = n, .disk = disk, .buffered = buffered}, out, err);
    hth_free(files);
    return st;
}

uint32_t hth_engine_n_in_memory(const hearth_model *m)
{
    uint32_t n = hth_store_n_slot(m->streamed.store); /* some may be for items that are on a device */
    return n < m->n_streamed ? n : m->n_streamed;
}

static hearth_status open_store(hearth_model *m, hth_weight_items *list, uint64_t memory, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (hth_engine_streams_bundles(m)) m->streamed.bundles = list->bundles;
    else if (!hth_engine_streams_experts(m)) m->streamed.pieces = list->pieces;
    const hth_store_options store = {.items = list->items,
                                     .n_item = list->n,
                                     .n_group = m->model->hparams.n_layer,
                                     .memory = memory,
                                     .pins = true,
                                     .checksums = list->sums,
                                     .reader = m->streamed.reader,
                                     .cancel = m->cancel};
    if ((st = hth_store_open(&store, &m->streamed.store, err)) != HEARTH_OK) return st;
    list->sums = NULL;
    m->streamed.first_expert = list->first_expert;
    hth_log(HEARTH_LOG_INFO, "%s are read by %s when they are needed: %u of %u fit into memory",
            hth_engine_streams_experts(m) ? "experts" : "pieces of networks",
            hth_reader_name(m->streamed.reader), hth_engine_n_in_memory(m), m->n_streamed);
    return HEARTH_OK;
}

/* Divides memory for tests: the store has `more` bytes beyond its least size, and the limit follows from that. */
static hearth_status divide_for_test(hearth_model *m, const hearth_model_options *o, uint64_t more,
                                     hth_memory_division *d, hearth_error *err)
{
    hearth_model_options all = *o;
    all.ram = UINT64_MAX - 1;
    hearth_status st = hth_engine_divide_memory(m, &all, d, err);
    if (st != HEARTH_OK) return st;
    d->whole = d->fits = false;
    d->store = d->least_store + more;
    d->limit = d->matrices - d->tables + d->rest + d->announced + d->store;
    return HEARTH_OK;
}

hearth_status hth_engine_open_store(hearth_model *m, const hearth_model_options *o, hearth_error *err)
{
    hth_memory_division d;
    uint64_t more = test_memory;
    bool tests = more != UINT64_MAX;
    if (o->ram == 0) return HEARTH_OK;
    hearth_status st = tests ? divide_for_test(m, o, more, &d, err) : hth_engine_divide_memory(m, o, &d, err);
    if (st != HEARTH_OK) return st;
    m->budget.base = d.rest, m->budget.device = hth_engine_device_size(m);
    /* Also after a device is lost: a store that is needed then is opened now. */
    if (d.whole) memset(m->streamed.tables, 0, sizeof m->streamed.tables);
    else st = hth_engine_open_reader(m->file, o->io, &m->streamed.reader, err);
    m->streamed.cancel = m->cancel;
    if (st == HEARTH_OK && !d.fits) st = open_store(m, &d.items, d.store, err);
    if (st == HEARTH_OK) {
        m->budget.limit = tests ? 0 : d.limit;
        m->budget.fixed = d.matrices - (d.whole ? 0 : d.tables) + d.rest + (d.fits ? d.streamed : 0);
        m->budget.announced = d.announced;
    }
    if (st == HEARTH_OK && !d.fits) {
        m->budget.cap.min = d.least_store;
        hth_engine_watch_memory(m, d.store, o->ram == HEARTH_RAM_AUTO);
    }
    hth_memory_division_free(&d);
    return st;
}

void hth_engine_read_in_turn(hearth_model *m) { m->streamed.in_turn = true; }

/* ---- another placement ------------------------------------------------------------------------ */

/* Bytes of the CPU's rows that load.c is going to read. */
static uint64_t size_to_load(const hearth_model *m)
{
    uint64_t size = 0;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (!b->matrix || b->matrix->data || hth_engine_is_streamed(m, b->matrix)) continue;
        size += (b->size - hth_engine_first_row(m, b->matrix) * b->matrix->row_size + 63) & ~(uint64_t)63;
    }
    return size;
}

hearth_status hth_engine_follow_placement(hearth_model *m, hearth_error *err)
{
    const hth_budget *b = &m->budget;
    uint64_t fixed =
        hth_less(b->base, hth_less(b->device, hth_engine_device_size(m))) + m->weights_size + size_to_load(m);
    if (b->base == 0) return HEARTH_OK; /* no limit */
    for (uint32_t i = 0; i < m->n_reloaded; i++) fixed += m->reloaded[i].size;
    if (m->streamed.store)
        hth_engine_find_on_device(m, m->streamed.first_expert, m->streamed.pieces, m->streamed.bundles);
    return hth_engine_change_fixed(m, fixed, err);
}

hearth_status hth_engine_need_weights(const hearth_model *m, const char *what, hearth_error *err)
{
    if (!m->streamed.reader) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s reads all weights in memory: leave hearth_model_options.ram out", hth_gguf_path(m->file),
                    what);
}

static void add_layer(const hearth_model *m, uint32_t i_layer, hearth_storage_stats *stats)
{
    hth_store_counters c = hth_store_get_counters(m->streamed.store, i_layer);
    stats->n_hit += c.n_hit, stats->n_miss += c.n_miss;
    stats->n_guess += c.n_guess, stats->n_guess_used += c.n_guess_used;
    stats->weight_bytes += c.read_size;
    stats->n_stall += c.n_stall, stats->stall_seconds += (double)c.stall_ns * 1e-9;
}

bool hearth_model_get_layer_storage(const hearth_model *m, uint32_t i_layer, hearth_storage_stats *stats)
{
    HTH_FP_SCOPE;
    hearth_storage_stats all = {0};
    if (!m || !hth_engine_can_write_result(&hth_size_of_hearth_storage_stats, stats)) return false;
    bool is_there = m->streamed.store && i_layer < m->model->hparams.n_layer;
    if (is_there) add_layer(m, i_layer, &all);
    hth_engine_write_result(&hth_size_of_hearth_storage_stats, &all, stats);
    return is_there;
}

static void add_all(const hearth_model *m, hearth_storage_stats *stats)
{
    for (uint32_t i = 0; m->streamed.store && i < m->model->hparams.n_layer; i++) add_layer(m, i, stats);
    if (m->streamed.store) {
        stats->cache_bytes = hth_store_memory(m->streamed.store);
        stats->cache_bytes_max = hth_store_max_memory(m->streamed.store);
    }
    hth_reader_stats r = hth_reader_get_stats(m->streamed.reader);
    stats->read_bytes = r.size, stats->n_read = r.n_read;
    stats->n_repeated = r.n_short + r.n_again + r.n_failed;
    stats->read_seconds = (double)r.busy_ns * 1e-9;
    for (uint32_t i = 0; m->streamed.store && i < m->model->hparams.n_layer; i++)
        stats->n_repeated += hth_store_get_counters(m->streamed.store, i).n_wrong;
}

bool hearth_model_get_storage(const hearth_model *m, hearth_storage_stats *stats)
{
    HTH_FP_SCOPE;
    hearth_storage_stats all = {0};
    if (!m || !hth_engine_can_write_result(&hth_size_of_hearth_storage_stats, stats)) return false;
    if (m->streamed.reader) add_all(m, &all);
    hth_engine_write_result(&hth_size_of_hearth_storage_stats, &all, stats);
    return m->streamed.reader != NULL;
}

void hth_engine_close_store(hearth_model *m)
{
    hth_engine_stop_watching(m);
    hth_store_close(m->streamed.store);
    hth_reader_close(m->streamed.reader);
    hth_arena_free(&m->streamed_tables);
}
