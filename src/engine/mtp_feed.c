/* Feeds the block that predicts a token further with the rows of a text (mtp_feed.h). */
#include "engine/mtp_feed.h"

#include "base/alloc.h"
#include "base/checked_math.h"

#include <string.h>

static size_t d_model(const hth_mtp_feed *f) { return f->block->model->model->hparams.d_model; }

size_t hth_mtp_feed_size(const hth_model *model)
{
    return (HTH_MTP_ROWS + 1) * (size_t)model->hparams.d_model * sizeof(float); /* d_model is limited */
}

/* hth_hidden_fn of the block. */
static hearth_status keep_own(void *user, uint32_t at, uint32_t n, const float *rows, hearth_error *err)
{
    hth_mtp_feed *f = user;
    (void)at, (void)err;
    memcpy(f->own, rows + (n - 1) * d_model(f), d_model(f) * sizeof *rows);
    return HEARTH_OK;
}

hearth_status hth_mtp_feed_open(hth_mtp_feed *f, hearth_session *block, hearth_error *err)
{
    *f = (hth_mtp_feed){.block = block};
    f->rows = hth_alloc(HTH_MTP_ROWS * d_model(f), sizeof *f->rows);
    f->own = hth_alloc(d_model(f), sizeof *f->own);
    block->hidden_fn = keep_own, block->hidden_user = f;
    if (f->rows && f->own) return HEARTH_OK;
    hearth_status st = hth_fail_memory(err, hth_mtp_feed_size(block->model->model), "rows for drafts");
    hth_mtp_feed_close(f);
    return st;
}

void hth_mtp_feed_close(hth_mtp_feed *f)
{
    hearth_session_close(f->block);
    hth_free(f->rows);
    hth_free(f->own);
    *f = (hth_mtp_feed){0};
}

void hth_mtp_feed_forget(hth_mtp_feed *f) { f->row_at = f->n_row = f->next = f->n_fed = 0; }

/* ---- what is known ------------------------------------------------------------------------------------- */

static void drop_rows_before(hth_mtp_feed *f, uint32_t position)
{
    if (position <= f->row_at) return;
    uint32_t n = hth_min_u32(position - f->row_at, f->n_row);
    f->n_row -= n, f->row_at = position;
    memmove(f->rows, f->rows + n * d_model(f), f->n_row * d_model(f) * sizeof *f->rows);
}

/* The last n positions that were evaluated are not the text's. */
static void take_back(hth_mtp_feed *f, uint32_t n)
{
    f->next -= n;
    f->n_fed -= hth_min_u32(n, f->n_fed); /* rows before may have been unknown */
}

/* The text goes on with a token at `at`: nothing is known of later positions, and of that before only if the
 * token behind it was this one. */
static void go_to(hth_mtp_feed *f, uint32_t at, int32_t token)
{
    uint32_t n = hearth_session_position(f->block);
    hearth_error ignored;
    if (f->n_fed > n) take_back(f, f->n_fed - n); /* its step failed */
    if (f->next > at) take_back(f, f->next - at);
    if (f->next == at && at > 0 && (f->n_fed == 0 || hearth_session_tokens(f->block)[f->n_fed - 1] != token))
        take_back(f, 1);
    (void)hearth_session_truncate(f->block, f->n_fed, &ignored); /* n_fed is not above its position */
    if (f->row_at > at) f->row_at = at, f->n_row = 0;
    f->n_row = hth_min_u32(f->n_row, at - f->row_at);
    if (f->next < f->row_at) f->next = f->row_at;
}

/* ---- rows of the text ---------------------------------------------------------------------------------- */

/* Evaluates positions before `end`, whose rows are kept before `at` and given from there on. */
static hearth_status evaluate(hth_mtp_feed *f, hearth_batch *batch, const hth_kv_budget *pages,
                              const int32_t *tokens, uint32_t end, uint32_t at, const float *rows,
                              hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && f->next < end) {
        uint32_t n_page[HTH_N_KV_CLASS] = {0}, n = hth_min_u32(end - f->next, HTH_DEFAULT_BATCH),
                 n_kept = f->next < at ? hth_min_u32(at - f->next, n) : 0, next = f->next + n_kept;
        hth_session_count_missing(f->block, n, n_page);
        if (!hth_kv_budget_has(pages, n_page)) break; /* this part of the text is left out */
        st = hth_batch_add(batch, f->block, tokens + f->next + 1, n, false, err);
        if (st != HEARTH_OK) break;
        hth_batch_set_hidden(batch, 0, n_kept, f->rows + (f->next - f->row_at) * d_model(f));
        if (n_kept < n) hth_batch_set_hidden(batch, n_kept, n - n_kept, rows + (next - at) * d_model(f));
        st = hth_batch_run(batch, err);
        if (st == HEARTH_OK) f->next += n, f->n_fed += n;
        else hearth_batch_clear(batch);
    }
    f->next = end;
    return st;
}

hearth_status hth_mtp_feed_note(hth_mtp_feed *f, hearth_batch *batch, const hth_kv_budget *pages,
                                const int32_t *tokens, uint32_t at, uint32_t n, const float *rows,
                                hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    go_to(f, at, tokens[at]);
    if (f->row_at + f->n_row < at) f->row_at = f->next = at, f->n_row = 0;
    if (f->next > 0) drop_rows_before(f, f->next - 1);
    /* Rows of a token and its draft are only kept, as the draft may be wrong; of a longer text all but the last one are
     * evaluated. */
    uint32_t end = n > HTH_DRAFT_MAX + 1 ? at + n - 1 : at;
    if (f->n_row + n > HTH_MTP_ROWS) st = evaluate(f, batch, pages, tokens, end, at, rows, err);
    uint32_t first = f->next > at ? f->next - 1 : at;
    drop_rows_before(f, f->next > 0 ? f->next - 1 : 0);
    uint32_t n_new = at + n - first;
    memcpy(f->rows + f->n_row * d_model(f), rows + (first - at) * d_model(f),
           n_new * d_model(f) * sizeof *rows);
    f->n_row += n_new;
    return st;
}

/* ---- drafts -------------------------------------------------------------------------------------------- */

bool hth_mtp_feed_is_ready(const hth_mtp_feed *f, uint32_t at)
{
    uint32_t first = f->next < at ? f->next : at - 1;
    return at > 0 && f->row_at <= first && f->row_at + f->n_row >= at;
}

uint32_t hth_mtp_feed_settle(hth_mtp_feed *f, const int32_t *tokens, uint32_t at)
{
    go_to(f, at, tokens[at]);
    if (f->next == at) { /* once more, for its logits */
        hearth_error ignored;
        take_back(f, 1);
        (void)hearth_session_truncate(f->block, f->n_fed, &ignored);
    }
    return f->next >= f->row_at && f->row_at + f->n_row >= at ? at - f->next : 0;
}

void hth_mtp_feed_add_rows(hth_mtp_feed *f, hearth_batch *batch, uint32_t n)
{
    hth_batch_set_hidden(batch, 0, n, f->rows + (f->next - f->row_at) * d_model(f));
    f->next += n, f->n_fed += n;
}
