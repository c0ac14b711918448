/* A load for each row; the caller waits for all of them. embed.c calls it. */
#include "store/table_rows.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/thread.h"

#include <string.h>

struct hth_table_rows {
    hth_reader *reader;
    const volatile int *cancel;
    hth_row_table table;
    size_t buffer_size; /* bytes of a row's buffer */
    uint32_t n_max;
    uint8_t *memory;
    hth_load *loads; /* [n_max] */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint32_t n_running;     /* guarded by lock */
    bool cancelled;         /* the last wait: its reads may run on */
    const hth_load *failed; /* guarded by lock: one of those that did, or NULL */
};

/* Bytes of a row wherever it begins. */
static bool buffer_size_of(const hth_row_table *table, size_t *size)
{
    const hth_extent anywhere = {.offset = HTH_BUFFER_ALIGN - 1, .size = table->row_size};
    return hth_reader_buffer_size(&anywhere, 1, size);
}

bool hth_table_rows_size(const hth_row_table *table, uint32_t n_max, size_t *size)
{
    size_t each;
    *size = 0;
    return table->row_size == 0 ||
           (buffer_size_of(table, &each) && hth_mul_size(each + sizeof(hth_load), n_max, size));
}

hearth_status hth_table_rows_open(hth_reader *reader, const hth_row_table *table, uint32_t n_max,
                                  const volatile int *cancel, hth_table_rows **out, hearth_error *err)
{
    size_t size;
    *out = NULL;
    if (!hth_table_rows_size(table, n_max, &size)) return hth_fail_memory(err, SIZE_MAX, "rows of tables");
    hth_table_rows *r = hth_alloc(1, sizeof *r);
    if (!r) return hth_fail_memory(err, sizeof *r, "rows of tables");
    *r = (hth_table_rows){.reader = reader, .cancel = cancel, .table = *table, .n_max = n_max};
    pthread_mutex_init(&r->lock, NULL);
    hth_cond_init(&r->ended);
    buffer_size_of(table, &r->buffer_size);
    r->loads = hth_alloc(n_max, sizeof *r->loads);
    r->memory = hth_pages_alloc(r->buffer_size * n_max);
    if (r->loads && r->memory) {
        *out = r;
        return HEARTH_OK;
    }
    hth_table_rows_close(r);
    return hth_fail_memory(err, size, "rows of tables");
}

static void wait_for_all(hth_table_rows *r)
{
    while (r->n_running > 0) pthread_cond_wait(&r->ended, &r->lock);
}

void hth_table_rows_close(hth_table_rows *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    wait_for_all(r);
    pthread_mutex_unlock(&r->lock);
    hth_pages_free(r->memory, r->buffer_size * r->n_max);
    hth_free(r->loads);
    pthread_cond_destroy(&r->ended);
    pthread_mutex_destroy(&r->lock);
    hth_free(r);
}

/* Called by the reader's thread. */
static void end_load(hth_load *load)
{
    hth_table_rows *r = load->user;
    pthread_mutex_lock(&r->lock);
    if (load->failed) r->failed = load;
    if (--r->n_running == 0) pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
}

void hth_table_rows_start(hth_table_rows *r, uint32_t i, uint64_t i_row)
{
    hth_extent extent = r->table.extent;
    extent.offset += i_row * r->table.row_size;
    extent.size = r->table.row_size;
    pthread_mutex_lock(&r->lock);
    if (r->cancelled) wait_for_all(r), r->cancelled = false, r->failed = NULL;
    r->n_running++;
    pthread_mutex_unlock(&r->lock);
    r->loads[i] = (hth_load){
        .extents = {extent}, .n_extent = 1, .to = r->memory + i * r->buffer_size, .done = end_load, .user = r};
    hth_reader_start(r->reader, &r->loads[i]);
}

hearth_status hth_table_rows_wait(hth_table_rows *r, hearth_error *err)
{
    pthread_mutex_lock(&r->lock);
    while (r->n_running > 0 && !hth_is_cancelled(r->cancel)) hth_cond_wait_poll(&r->ended, &r->lock);
    r->cancelled = r->n_running > 0;
    const hth_load *failed = r->failed;
    r->failed = NULL;
    pthread_mutex_unlock(&r->lock);
    if (r->cancelled) return hth_fail_cancelled(err);
    return failed ? hth_reader_describe(r->reader, &failed->failure, err) : HEARTH_OK;
}

const uint8_t *hth_table_rows_get(const hth_table_rows *r, uint32_t i) { return r->loads[i].data[0]; }
