/* Allocates the workspace of a step: the memory of all values, and the scratch memory of operations. */
#include "forward/forward_int.h"

#include "base/checked_math.h"
#include "base/format_bytes.h"
#include "kernels/vector/math.h"

/* Bump allocator that runs over all buffers twice: with memory NULL to compute the size, then to assign addresses. */
typedef struct bump {
    uint8_t *memory;
    size_t used;
    bool overflow;
} bump;

static void *bump_alloc(bump *c, size_t n, size_t size)
{
    size_t bytes = 0, end = 0;
    if (!hth_mul_size(n, size, &bytes) || !hth_add_size(c->used, bytes, &end) || end > SIZE_MAX - 64) {
        c->overflow = true;
        return NULL;
    }
    void *p = c->memory ? c->memory + c->used : NULL;
    c->used = (end + 63) & ~(size_t)63;
    return p;
}

/* The widest value that attention reads queries from. */
static size_t widest_queries(const hth_program *p)
{
    size_t widest = 0;
    for (uint32_t i = 0; i < p->n_op; i++)
        if (p->ops[i].kind == HTH_OP_ATTEND && p->values[p->ops[i].in[0].value].width > widest)
            widest = p->values[p->ops[i].in[0].value].width;
    return widest;
}

/* Columns of the widest matrix. Those of predictors may come from a sidecar. */
static size_t widest_input(const hth_model *model)
{
    size_t n = model->hparams.rank;
    for (size_t i = 0; i < model->n_binding; i++) {
        const hth_matrix *m = model->bindings[i].matrix;
        if (m && m->n_col > n) n = m->n_col;
    }
    return n;
}

/* Logits of a whole batch would be large; this many tokens at once keep the head's product efficient. */
enum { HEAD_ROWS = 16 };

/* Buffers of selectors and of the transposed down. */
static void alloc_lists(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_hparams *h = &model->hparams;
    bool scored = s->selector == HEARTH_SELECTOR_PREDICTOR || s->selector == HEARTH_SELECTOR_THRESHOLD;
    size_t f = sizeof(float), n_active = model->down_transposed ? n_row * h->d_ff : 0;
    size_t n_sum = model->down_transposed ? n_thread * hth_axpy_width(h->d_model) : 0;
    s->list = bump_alloc(c, s->selector == HEARTH_SELECTOR_DENSE ? 0 : h->d_ff, sizeof *s->list);
    s->scores = bump_alloc(c, scored ? n_row * h->d_ff : 0, f);
    s->rank_out = bump_alloc(c, scored ? n_row * h->rank : 0, f);
    s->active_idx = bump_alloc(c, n_active, sizeof *s->active_idx);
    s->active_vals = bump_alloc(c, n_active, f);
    s->active_sets = bump_alloc(c, model->down_transposed ? n_row : 0, sizeof *s->active_sets);
    s->overflow = bump_alloc(c, model->down_transposed ? n_row : 0, sizeof *s->overflow);
    s->axpy_scratch.acc64 = bump_alloc(c, n_sum, sizeof *s->axpy_scratch.acc64);
    s->axpy_scratch.sums = bump_alloc(c, n_sum, sizeof *s->axpy_scratch.sums);
    s->axpy_scratch.offsets = bump_alloc(c, n_sum / 16, sizeof *s->axpy_scratch.offsets);
    s->axpy_scratch.chain = bump_alloc(c, n_sum, f);
    s->axpy_scratch.state =
        bump_alloc(c, model->down_transposed ? n_thread : 0, sizeof *s->axpy_scratch.state);
    s->axpy_scratch.n_cluster = hth_n_cluster(h->d_ff);
    s->axpy_scratch.scale = bump_alloc(c, model->down_transposed ? n_row * s->axpy_scratch.n_cluster : 0, f);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Rows that products quantise at once: the tokens, or those of a wave of experts or heads. */
static size_t max_rows(const hth_model *model, size_t n_row)
{
    const hth_hparams *h = &model->hparams;
    size_t n_wave = larger(h->experts.n_used, hth_fwd_n_by_head(h));
    return n_wave == 0 ? n_row : larger(hth_n_tiled(n_row), n_wave);
}

/* A form of these products has the same sizes in all layers: those of its operations. */
static void alloc_by_head(bump *c, const hth_model *model, size_t n_row, hth_step *s)
{
    const hth_program *p = model->program;
    hth_by_head *b = &s->by_head;
    size_t d_in[HTH_N_BY_HEAD] = {0}, d_out[HTH_N_BY_HEAD] = {0};
    b->n_head = hth_fwd_n_by_head(&model->hparams);
    if (b->n_head == 0) return;
    b->max_row = (uint32_t)max_rows(model, n_row);
    b->slices = bump_alloc(c, b->n_head, sizeof *b->slices);
    b->slice_of = bump_alloc(c, b->max_row, sizeof *b->slice_of);
    for (const hth_op *op = p->ops; op < p->ops + p->n_op; op++) {
        if (op->kind != HTH_OP_BY_HEAD) continue;
        d_in[op->by_head.form] = op->by_head.d_in;
        d_out[op->by_head.form] = op->by_head.d_out;
    }
    for (hth_by_head_form f = 0; f < HTH_N_BY_HEAD; f++) {
        if (d_out[f] == 0) continue;
        b->forms[f].d_out = (uint32_t)d_out[f];
        b->forms[f].x = bump_alloc(c, b->max_row * d_in[f], sizeof(float));
        b->forms[f].y = bump_alloc(c, b->max_row * d_out[f], sizeof(float));
        b->forms[f].waves = bump_alloc(c, b->n_head, sizeof *b->forms[f].waves);
    }
}

static void alloc_experts(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_expert_sizes *e = &model->hparams.experts;
    hth_expert_buffers *b = &s->experts;
    size_t f = sizeof(float), d = model->hparams.d_model,
           d_ff = e->d_ff > e->d_ff_shared ? e->d_ff : e->d_ff_shared;
    size_t max_row = max_rows(model, n_row), n_used = e->n_used;
    if (e->n_expert == 0) return;
    b->max_row = (uint32_t)max_row;
    b->scores = bump_alloc(c, n_thread * e->n_expert, f);
    b->first = bump_alloc(c, e->n_expert + 2, sizeof *b->first);
    b->pairs = bump_alloc(c, n_row * n_used, sizeof *b->pairs);
    b->rows = bump_alloc(c, max_row, sizeof *b->rows);
    b->slice_of = bump_alloc(c, max_row, sizeof *b->slice_of);
    b->slices = bump_alloc(c, max_row, sizeof *b->slices);
    b->x = bump_alloc(c, max_row * d, f);
    b->hidden = bump_alloc(c, max_row * d_ff, f);
    b->out = bump_alloc(c, max_row * d, f);
    for (int i = 0; i < HTH_N_EXPERT_PART; i++) b->data[i] = bump_alloc(c, max_row, sizeof *b->data[i]);
    b->wanted = bump_alloc(c, e->n_expert, sizeof *b->wanted);
    b->held = bump_alloc(c, e->n_expert, sizeof *b->held);
    b->guess_x = bump_alloc(c, d, f);
    b->guess_logits = bump_alloc(c, e->n_expert, f);
    b->guess_weights = bump_alloc(c, n_used, f);
    b->guess = bump_alloc(c, n_used, sizeof *b->guess);
    if (!model->expert_down_transposed) return;
    b->list = bump_alloc(c, max_row * d_ff, sizeof *b->list);
    b->n_list = bump_alloc(c, max_row, sizeof *b->n_list);
    b->scales = bump_alloc(c, max_row * (hth_n_cluster(d_ff) + 1), f);
}

static void alloc_layer_embeddings(bump *c, const hth_model *model, size_t n_thread, hth_step *s)
{
    size_t d = model->hparams.d_layer_embd, n = d * model->hparams.n_layer, f = sizeof(float);
    if (d == 0) return;
    s->layer_embd.rows = bump_alloc(c, n_thread * n, f);
    s->layer_embd.bytes = bump_alloc(c, n_thread, model->layer_embd.row_size);
    s->layer_embd.root = (float)hth_sqrt_d((double)d);
    s->layer_embd.inverse_root_model = (float)(1.0 / hth_sqrt_d((double)model->hparams.d_model));
}

static void alloc_recurrent(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_hparams *h = &model->hparams;
    hth_recurrent_buffers *r = &s->recurrent;
    if (h->recurrent.d_conv == 0 && h->compressed.q_rank == 0) return;
    r->runs = bump_alloc(c, n_row, sizeof *r->runs);
    r->run_of = bump_alloc(c, n_row, sizeof *r->run_of);
    if (h->compressed.q_rank > 0) r->n_scratch = hth_fwd_compressed_scratch(h);
    for (uint32_t i = 0; i < h->n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        if (l->mixer == HTH_MIXER_DELTA_NET) r->n_scratch = hth_fwd_delta_net_scratch(&l->delta_net);
        if (l->mixer == HTH_MIXER_KDA) r->n_scratch = l->kda.d;
    }
    r->scratch = bump_alloc(c, n_thread * r->n_scratch, sizeof(float));
    if (h->recurrent.d_state > 0) r->inverse_root = (float)(1.0 / hth_sqrt_d((double)h->recurrent.d_state));
}

static void alloc_buffers(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_hparams *h = &model->hparams;
    size_t n_q = (size_t)h->n_head * h->d_head, q_stride = widest_queries(model->program);
    size_t n_pair = hth_fwd_max_pair(h), f = sizeof(float);
    s->n_table = hth_fwd_n_table(h);
    s->head_rows = n_row < HEAD_ROWS ? (uint32_t)n_row : HEAD_ROWS;
    s->wanted = bump_alloc(c, s->head_rows, sizeof *s->wanted);
    s->values[HTH_ROWS_TOKENS] = bump_alloc(c, n_row, (size_t)4 * model->program->width[HTH_ROWS_TOKENS]);
    s->values[HTH_ROWS_WANTED] =
        bump_alloc(c, s->head_rows, (size_t)4 * model->program->width[HTH_ROWS_WANTED]);
    s->table_row = bump_alloc(c, 1,
                              model->token_embd.row_size > model->position_embd.row_size
                                  ? model->token_embd.row_size
                                  : model->position_embd.row_size);
    s->position_row = bump_alloc(c, model->position_embd.n_row > 0 ? h->d_model : 0, f);
    s->cosine = bump_alloc(c, s->n_table * n_row * n_pair, f);
    s->sine = bump_alloc(c, s->n_table * n_row * n_pair, f);
    s->frequency = bump_alloc(c, s->n_table * 2 * n_pair, sizeof(double));
    s->n_scratch = hth_attn_scratch(h->d_head, hth_fwd_group_queries(model, &s->group_rows));
    s->scratch = bump_alloc(c, n_thread * s->n_scratch, f);
    s->groups = bump_alloc(c, n_row, sizeof *s->groups);
    s->q_q8 = bump_alloc(c, n_row * q_stride, 1);
    s->q_d = bump_alloc(c, n_row * (q_stride / HTH_ACT_BLOCK), f);
    s->q_sum = bump_alloc(c, n_row * (q_stride / HTH_ACT_BLOCK), sizeof(int32_t));
    s->split_values = bump_alloc(c, HTH_SPLIT_SCRATCH * n_q, f);
    s->split_partials = bump_alloc(c, HTH_SPLIT_SCRATCH * (size_t)h->n_head, sizeof *s->split_partials);
    s->split_totals = bump_alloc(c, HTH_SPLIT_ROWS * (size_t)h->n_head, sizeof *s->split_totals);
    size_t widest = widest_input(model), n_block = widest / HTH_ACT_BLOCK + 1, n_tok = n_row;
    n_row = max_rows(model, n_row);
    size_t n_wide = widest / HTH_ACT_BLOCK_256 + 1, n_part = widest / HTH_ACT_SUBBLOCK + 1;
    s->act_q8.q = bump_alloc(c, n_row * widest, 1);
    s->act_q8.d = bump_alloc(c, n_row * n_block, f);
    s->act_q8.sum = bump_alloc(c, n_row * n_block, sizeof(int32_t));
    s->act_q8.q_256 = bump_alloc(c, n_row * widest, 1);
    s->act_q8.d_256 = bump_alloc(c, n_row * n_wide, f);
    s->act_q8.sum_16 = bump_alloc(c, n_row * n_part, sizeof(int16_t));
    size_t n_tiled = hth_n_tiled(n_row);
    s->act_q8.tiles.q = bump_alloc(c, n_tiled * widest, 1);
    s->act_q8.tiles.x = bump_alloc(c, n_tiled * widest, f);
    s->act_q8.tiles.d = bump_alloc(c, n_tiled * n_block, f);
    s->act_q8.tiles.offset = bump_alloc(c, n_tiled * n_block, sizeof(int32_t));
    s->act_q8.tiles_256.q = bump_alloc(c, n_tiled * widest, 1);
    s->act_q8.tiles_256.d = bump_alloc(c, n_tiled * n_wide, f);
    s->act_q8.tiles_256.sum_16 = bump_alloc(c, n_tiled * n_part, sizeof(int16_t));
    s->input.size = hth_input_size(widest);
    s->input.words = bump_alloc(c, s->input.size, 1);
    s->input.copies = bump_alloc(c, n_thread, HTH_INPUT_HEAD + s->input.size);
    s->act_q8.input = &s->input;
    s->act_q8.part = bump_alloc(c, n_thread * HTH_PRODUCT_SCRATCH, f);
    s->act_q8.work = bump_alloc(c, n_thread * HTH_PANEL_WORK, 1);
    alloc_lists(c, model, n_tok, n_thread, s);
    alloc_experts(c, model, n_tok, n_thread, s);
    s->pieces = bump_alloc(c, HTH_MAX_PIECE, sizeof *s->pieces);
    alloc_recurrent(c, model, n_tok, n_thread, s);
    alloc_by_head(c, model, n_tok, s);
    s->stream_scratch = bump_alloc(c, n_thread * h->n_stream * h->d_model, f);
    alloc_layer_embeddings(c, model, n_thread, s);
}

bool hth_step_size(const hth_model *model, uint32_t n_row, hearth_selector selector, uint32_t n_thread,
                   size_t *size)
{
    bump c = {0};
    hth_step s = {.selector = selector};
    alloc_buffers(&c, model, n_row, n_thread, &s);
    *size = c.used + sizeof s;
    return !c.overflow;
}

hearth_status hth_step_open(const hth_model *model, const hth_kernels *kernels, hth_pool *pool,
                            uint32_t n_row, hearth_selector selector, hth_step **out, hearth_error *err)
{
    *out = NULL;
    hth_step *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "a step");
    *s = (hth_step){.model = model,
                    .program = model->program,
                    .k = kernels,
                    .pool = pool,
                    .n_tok_max = n_row,
                    .selector = selector};
    bump c = {0};
    alloc_buffers(&c, model, n_row, hth_pool_n_thread(pool), s);
    s->size = c.used;
    s->memory = c.overflow ? NULL : hth_pages_alloc(s->size);
    if (!s->memory) {
        hth_free(s);
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "no memory: %s for a workspace of %u rows; ask for a smaller n_batch",
                        hth_format_bytes(c.used).text, n_row);
    }
    c = (bump){.memory = s->memory};
    alloc_buffers(&c, model, n_row, hth_pool_n_thread(pool), s);
    hth_fwd_rope_init(s);
    *out = s;
    return HEARTH_OK;
}

void hth_step_close(hth_step *step)
{
    if (!step) return;
    hth_pool_quiesce(step->pool);
    hth_pages_free(step->memory, step->size);
    hth_free(step->bundles);
    for (int i = 0; i < HTH_N_TABLE; i++) hth_table_rows_close(step->rows[i]);
    hth_free(step);
}
