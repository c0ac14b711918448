/* Runs a step on the device. The host fills the step block, runs the segments of its class (submit.c), and
 * reads the results. In a split layer the device sends a message in mid-layer; the host computes its neurons
 * concurrently, and both sums are added on the device. In steps of many tokens the host's weights may be
 * streamed through the device, all of them or all but its share (weight_stream.c). */
#include "forward/gpu/gpu_int.h"

#include <assert.h>
#include <string.h>

/* ---- step inputs -------------------------------------------------------------------------------------- */

static int bucket_of(const hth_gpu *g, uint32_t n_row)
{
    int c = HTH_GPU_ONE;
    while (hth_gpu_bucket_size(g, c) < n_row) c++;
    return c;
}

/* Numbers of splits for the attention of one token, by layer. */
static void fill_grids(const hth_gpu *g, const hth_batch_token *token)
{
    uint32_t *grids = hth_gpu_mapped(g->workspace.grids_from_host);
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++) {
        const hth_layer *l = &g->model->layers[i];
        if (!g->layers[i].keys.buffer) continue;
        hth_attn seen = {.n_pos = (size_t)token->position + 1,
                         .n_row = 1,
                         .window = hth_attn_window(token->position, l->attn.window, l->attn.chunk)};
        uint32_t n = (uint32_t)(hth_attn_last_split(&seen) - hth_attn_first_split(&seen)) + 1;
        memcpy(grids + 4 * i, (uint32_t[]){n, l->attn.n_head_kv, 1}, 12);
    }
}

/* For command lists of n_row tokens. */
static void fill_tables(const hth_gpu *g, const hth_step *s, uint32_t first, uint32_t n, uint32_t n_row)
{
    const hth_hparams *h = &g->model->hparams;
    hth_gpu_rotations places = hth_gpu_rotations_of(h, n_row);
    float *table = hth_gpu_mapped(g->workspace.table_from_host);
    for (uint32_t t = 0; t < s->n_table; t++) {
        float *cosine = table + t * (size_t)places.of_table, *sine = cosine + places.sines;
        for (size_t i = 0; i < n; i++) {
            hth_rope_row row = hth_fwd_rope_row_of(s, t, first + i);
            memcpy(cosine + i * row.n_pair, row.cosine, row.n_pair * sizeof *cosine);
            memcpy(sine + i * row.n_pair, row.sine, row.n_pair * sizeof *sine);
        }
    }
    for (uint32_t i = 0; h->temperature_scale != 0.0f && i < n; i++)
        table[places.factors + i] = hth_fwd_position_factor(h, s->tokens[first + i].position);
}

/* The pages that a sequence holds up to a position, from word *at of the step block on; table: the word of
 * page 0, which is before that where pages were released. */
static void fill_page_tables(const hth_sequence *s, uint32_t *block, uint32_t position, uint32_t *at,
                             uint32_t table[HTH_N_KV_POSITION_CLASS])
{
    for (int c = 0; c < HTH_N_KV_POSITION_CLASS; c++) {
        const hth_page_table *t = &s->tables[c];
        uint32_t n_page = hth_kv_n_page(position + 1);
        table[c] = *at - t->first;
        for (uint32_t i = t->first; t->n_held > 0 && i < n_page; i++) block[(*at)++] = t->pages[i]->index;
    }
}

/* A run of tokens of a sequence. Those of a step that are not its first ones go on with what it has written. */
static void fill_run(const hth_gpu *g, uint32_t *block, const hth_batch_token *tokens, uint32_t first, uint32_t n)
{
    const hth_sequence *s = tokens[first].seq;
    uint32_t *run = block + g->workspace.runs_at + HTH_RUN_WORDS * block[HTH_STEP_N_RUN]++,
             position = tokens[first].position;
    const hth_kv_page *step = position == s->n_tok ? s->states[HTH_STATE_STEP].now : s->states[HTH_STATE_STEP].next,
                      *chunk = position / HTH_CHUNK == s->n_tok / HTH_CHUNK ? s->states[HTH_STATE_CHUNK].now
                                                                            : s->states[HTH_STATE_CHUNK].next;
    run[HTH_RUN_FIRST] = first, run[HTH_RUN_N_TOK] = n, run[HTH_RUN_POSITION] = position;
    if (step) run[HTH_RUN_STEP_FROM] = step->index, run[HTH_RUN_STEP_TO] = s->states[HTH_STATE_STEP].next->index;
    if (chunk) run[HTH_RUN_CHUNK_FROM] = chunk->index, run[HTH_RUN_CHUNK_TO] = s->states[HTH_STATE_CHUNK].next->index;
}

/* Positions and page tables of n tokens. */
static void fill_rows(const hth_gpu *g, const hth_batch_token *tokens, uint32_t n)
{
    bool has_states = g->workspace.table_at > g->workspace.runs_at;
    uint32_t *block = hth_gpu_mapped(g->workspace.step_from_host), at = g->workspace.table_at, table[HTH_N_KV_POSITION_CLASS];
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && tokens[end].seq == tokens[i].seq;) end++;
        fill_page_tables(tokens[i].seq, block, tokens[end - 1].position, &at, table);
        if (has_states) fill_run(g, block, tokens, i, end - i);
        for (uint32_t k = i; k < end; k++) {
            uint32_t *row = block + HTH_STEP_ROWS + HTH_STEP_ROW_WORDS * k;
            row[HTH_STEP_POSITION] = tokens[k].position;
            memcpy(row + HTH_STEP_TABLE, table, sizeof table);
        }
    }
    assert(at <= g->workspace.slots_at);
}

/* Where the experts of divided layers are during this step. passes: also those that pass through. */
static void fill_slots(const hth_gpu *g, bool passes)
{
    uint32_t *block = hth_gpu_mapped(g->workspace.step_from_host);
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++) {
        const hth_gpu_expert_slots *s = g->layers[i].slots;
        if (!s) continue;
        memcpy(block + s->at, s->policy.slot_of, s->policy.n_expert * sizeof *block);
        block[s->at + s->policy.n_expert] = HTH_STEP_NO_SLOT;
        if (passes && s->n_chunk > 0) hth_gpu_number_missing(s, block + s->at);
        if (s->reads) hth_gpu_fill_spares(s, block + hth_gpu_spares_at(s));
    }
}

/* Experts that the caller gives instead of the routers. */
static void fill_given(const hth_gpu *g, const hth_step *s, uint32_t first, uint32_t n)
{
    const hth_gpu_workspace *ws = &g->workspace;
    uint32_t *block = hth_gpu_mapped(ws->step_from_host);
    for (uint32_t i = g->params.first_layer; g->params.has_given_experts && i < g->params.end_layer; i++) {
        uint32_t n_used = g->model->layers[i].experts.router.n_used, *to = block + ws->given_at + i * ws->given_words;
        for (uint32_t t = 0; t < n && n_used > 0; t++, to += n_used) {
            for (uint32_t k = 0; k < n_used; k++) to[k] = k;
            if (s->route) s->route(s->route_user, i, s->n_tok_done + first + t, false, to);
        }
    }
}

/* Tokens [first, first + n) of the step, for command lists of n_row tokens. */
static void fill_block(const hth_gpu *g, const hth_step *s, uint32_t first, uint32_t n, uint32_t n_row, bool passes)
{
    uint32_t *block = hth_gpu_mapped(g->workspace.step_from_host);
    block[HTH_STEP_N_TOK] = n;
    block[HTH_STEP_N_WANT] = 0;
    block[HTH_STEP_N_RUN] = 0;
    fill_rows(g, s->tokens + first, n);
    fill_slots(g, passes);
    fill_given(g, s, first, n);
    hth_gpu_write_values(g, s, &g->crossings.runs[0], first, n);
    fill_tables(g, s, first, n, n_row);
    if (n == 1) fill_grids(g, &s->tokens[first]);
}

/* Enters the tokens from *next on that want logits into the step block, up to HTH_GPU_HEAD_ROWS. */
static uint32_t fill_wanted(const hth_gpu *g, const hth_batch_token *tokens, uint32_t n, uint32_t *next)
{
    uint32_t *block = hth_gpu_mapped(g->workspace.step_from_host), n_want = 0;
    for (; *next < n && n_want < HTH_GPU_HEAD_ROWS; (*next)++)
        if (tokens[*next].want_logits)
            block[HTH_STEP_ROWS + HTH_STEP_ROW_WORDS * n_want++ + HTH_STEP_WANT] = *next;
    return block[HTH_STEP_N_WANT] = n_want;
}

/* ---- part of a step ----------------------------------------------------------------------------------- */

/* Computes what the device leaves to the host of the logits of n_want tokens, and emits them. */
static hearth_status finish_logits(hth_gpu *g, hth_step *s, uint32_t n_want, hth_logits_sink *to, hearth_error *err)
{
    const hth_program *p = s->program;
    const float *logits = hth_gpu_mapped(g->workspace.result);
    uint32_t i = p->output_norm;
    while (i < p->n_op && g->ops[i].is_on_device) i++;
    if (i < p->n_op) {
        memcpy(hth_fwd_row(s, p->logits, 0), logits, n_want * (size_t)g->model->hparams.n_vocab * sizeof *logits);
        logits = hth_fwd_row(s, p->logits, 0);
    }
    for (; i < p->n_op; i++)
        for (uint32_t t = 0; t < n_want; t++) hth_fwd_compute_row(s, &p->ops[i], t);
    return hth_fwd_emit_logits(s, logits, n_want, to, err);
}

/* Runs the tokens last entered into the step block through the head, and emits their logits. */
static hearth_status emit_logits(hth_gpu *g, hth_step *s, uint32_t n_want, hth_logits_sink *to,
                                 hearth_error *err)
{
    const hth_gpu_step_exec head = {
        .segments = &g->head_segments[n_want > 1], .n_row = n_want, .submit_mode = g->params.submit_mode};
    if (n_want == 0) return HEARTH_OK;
    hearth_status st = hth_gpu_submit_step(g, s, &head, err);
    return st == HEARTH_OK ? finish_logits(g, s, n_want, to, err) : st;
}

/* Delivers the results of n tokens, the first being number `first` of the step: logits, or the residual stream for the next
 * layers. next: first token whose logits were not emitted yet. */
static hearth_status deliver(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, uint32_t next,
                          hth_logits_sink *to, hearth_error *err)
{
    const hth_gpu_host_run *last = &g->crossings.runs[g->crossings.n_run - 1];
    hearth_status st = HEARTH_OK;
    if (last->first == last->end) hth_gpu_read_values(g, s, last, first, n);
    while (g->params.head && st == HEARTH_OK && next < n) {
        uint32_t n_want = fill_wanted(g, s->tokens + first, n, &next);
        st = emit_logits(g, s, n_want, to, err);
    }
    return st;
}

/* The weight stream for n tokens; NULL: none. */
static const hth_weight_stream *stream_for(const hth_gpu *g, uint32_t n)
{
    const hth_weight_stream *found = NULL;
    for (uint32_t i = 0; i < g->n_stream; i++)
        if (n >= g->streams[i].config.n_tok) found = &g->streams[i];
    return found;
}

/* The first logits are computed in the same submission. */
static hearth_status run_tokens(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, hth_logits_sink *to,
                              hearth_error *err)
{
    const hth_weight_stream *stream = g->n_split_layer + g->passing.n_chunk > 0 ? stream_for(g, n) : NULL;
    uint32_t next = 0, n_want;
    g->first_tok = first;
    hth_gpu_end_moves(g, s);
    fill_block(g, s, first, n, stream ? stream->n_row : hth_gpu_bucket_size(g, bucket_of(g, n)), stream != NULL);
    n_want = g->params.head ? fill_wanted(g, s->tokens + first, n, &next) : 0;
    const hth_gpu_step_exec all = {.segments = stream ? &stream->segments : hth_gpu_segments_for(g, s, first, n),
                                   .stream = stream,
                                   .n_row = n,
                                   .submit_mode = g->params.submit_mode,
                                   .next = n_want > 0 ? &g->head_segments[n_want > 1] : NULL};
    if (stream) g->counts.n_streamed++, g->counts.n_streamed_shared += stream->has_share;
    hearth_status st = hth_gpu_submit_step(g, s, &all, err);
    if (st == HEARTH_OK && n_want > 0)
        st = finish_logits(g, s, n_want, to, err);
    if (st == HEARTH_OK) st = deliver(g, s, first, n, next, to, err);
    if (st == HEARTH_OK && stream) st = hth_gpu_count_passing(g, n, err);
    return st == HEARTH_OK && n == 1 && !stream ? hth_gpu_end_reads(g, err) : st;
}

/* Locks g for a step. */
static hearth_status begin(hth_gpu *g, hearth_error *err)
{
    pthread_mutex_lock(&g->step_lock);
    if (g->unloaded)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s is no longer in use", hth_device_get_info(g->device)->name);
    hearth_status st = hth_gpu_wait_idle(g, err);
    return st == HEARTH_OK ? hth_gpu_end_passing(g, err) : st;
}

/* Unlocks g after a step. */
static hearth_status end(hth_gpu *g, hearth_status st)
{
    hth_gpu_note_status(g, st);
    pthread_mutex_unlock(&g->step_lock);
    return st;
}

/* A page of each class. */
static hearth_status copy_page(hth_gpu *g, const hth_kv_copy copies[HTH_STEP_N_COPY], hearth_error *err)
{
    hearth_status st = begin(g, err);
    if (st == HEARTH_OK && !hth_cmdlist_is_empty(g->copy_segment.segments[0].cmdlist)) {
        memcpy((uint32_t *)hth_gpu_mapped(g->workspace.step_from_host) + HTH_STEP_COPY, copies,
               HTH_STEP_N_COPY * sizeof *copies);
        st = hth_gpu_submit_copy(g, err);
    }
    return end(g, st);
}

hearth_status hth_gpu_copy_pages(hth_gpu *first, hth_kv_pool *pool, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    hth_kv_pool_begin_copies(pool);
    while (st == HEARTH_OK) {
        static const hth_kv_class classes[HTH_STEP_N_COPY] = {
            HTH_KV_FULL, HTH_KV_WINDOW,
            [HTH_STEP_COPY_STATES + HTH_STATE_STEP] = (hth_kv_class)(HTH_KV_STATES + HTH_STATE_STEP),
            [HTH_STEP_COPY_STATES + HTH_STATE_CHUNK] = (hth_kv_class)(HTH_KV_STATES + HTH_STATE_CHUNK)};
        hth_kv_copy copies[HTH_STEP_N_COPY] = {0}; /* equal pages: none */
        bool waits[HTH_STEP_N_COPY], any = false;
        for (int i = 0; i < HTH_STEP_N_COPY; i++)
            waits[i] = hth_kv_pool_next_copy(pool, classes[i], &copies[i]), any |= waits[i];
        if (!any) break;
        for (hth_gpu *g = first; g && st == HEARTH_OK; g = g->next) st = copy_page(g, copies, err);
        for (int i = 0; i < HTH_STEP_N_COPY && st == HEARTH_OK; i++)
            if (waits[i]) hth_kv_pool_copy_done(pool, classes[i]);
    }
    hth_kv_pool_end_copies(pool);
    return st;
}

static hearth_status run_part(hth_gpu *g, hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hearth_status st = begin(g, err);
    for (uint32_t first = 0, n; st == HEARTH_OK && first < s->n_tok; first += n) {
        n = s->n_tok - first < g->params.n_row ? s->n_tok - first : g->params.n_row;
        g->counts.n_step++;
        st = run_tokens(g, s, first, n, to, err);
    }
    return end(g, st);
}

hearth_status hth_gpu_run(hth_gpu *first, hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (hth_gpu *g = first; g && st == HEARTH_OK; g = g->next) st = run_part(g, s, to, err);
    return st;
}
