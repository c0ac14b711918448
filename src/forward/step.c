/* One step: a batch of tokens through all layers. The engine calls it for every prompt chunk and every generated
 * token. A token's bits depend on its own sequence alone: tokens meet only in matrix products, which compute each
 * one as if it were alone. */
#include "forward/forward_int.h"

#include "base/format_bytes.h"
#include "base/checked_math.h"
#include "forward/gpu/gpu.h"
#include "kernels/vector/math.h"

#include <assert.h>
#include <string.h>

/* ---- the workspace ------------------------------------------------------------- */

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
    s->axpy_scratch.state = bump_alloc(c, model->down_transposed ? n_thread : 0, sizeof *s->axpy_scratch.state);
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

static void alloc_rows(bump *c, size_t n_head, size_t max_row, hth_head_rows *r)
{
    r->x = bump_alloc(c, max_row * r->d_in, sizeof(float));
    r->y = bump_alloc(c, max_row * r->d_out, sizeof(float));
    r->waves = bump_alloc(c, n_head, sizeof *r->waves);
}

static void alloc_by_head(bump *c, const hth_model *model, size_t n_row, hth_step *s)
{
    hth_by_head *b = &s->by_head;
    b->n_head = hth_fwd_n_by_head(&model->hparams);
    if (b->n_head == 0) return;
    b->max_row = (uint32_t)max_rows(model, n_row);
    b->slices = bump_alloc(c, b->n_head, sizeof *b->slices);
    b->slice_of = bump_alloc(c, b->max_row, sizeof *b->slice_of);
}

static void alloc_latent(bump *c, const hth_model *model, size_t n_row, hth_step *s)
{
    const hth_hparams *h = &model->hparams;
    const hth_latent_sizes *z = &h->latent;
    hth_latent_buffers *b = &s->latent;
    size_t f = sizeof(float), n_head = h->n_head, d_key = z->d_nope + z->d_rope, max_row = max_rows(model, n_row);
    if (z->rank == 0) return;
    b->q_a = bump_alloc(c, n_row * z->q_rank, f);
    b->q = bump_alloc(c, n_row * n_head * d_key, f);
    b->out = bump_alloc(c, n_row * n_head * z->d_value, f);
    b->queries = (hth_head_rows){.from = b->q,
                                 .to = s->q,
                                 .from_head = (uint32_t)d_key,
                                 .to_head = h->d_head,
                                 .d_in = z->d_nope,
                                 .d_out = z->rank};
    b->values = (hth_head_rows){.from = s->attn_out,
                                .to = b->out,
                                .from_head = h->d_head,
                                .to_head = z->d_value,
                                .d_in = z->rank,
                                .d_out = z->d_value};
    alloc_rows(c, n_head, max_row, &b->queries);
    alloc_rows(c, n_head, max_row, &b->values);
}

static void alloc_compressed(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_hparams *h = &model->hparams;
    const hth_compressed_sizes *z = &h->compressed;
    hth_compressed_buffers *b = &s->compressed;
    size_t f = sizeof(float), d = h->d_head;
    if (z->q_rank == 0) return;
    uint32_t d_in = h->n_head / z->n_group * h->d_head;
    b->q_a = bump_alloc(c, n_row * z->q_rank, f);
    b->values = bump_alloc(c, n_row * 2 * d, f);
    b->scores = bump_alloc(c, n_row * 2 * d, f);
    b->low = bump_alloc(c, n_row * z->n_group * z->out_rank, f);
    b->groups = (hth_head_rows){.from = s->attn_out,
                                .to = b->low,
                                .from_head = d_in,
                                .to_head = z->out_rank,
                                .d_in = d_in,
                                .d_out = z->out_rank};
    alloc_rows(c, z->n_group, max_rows(model, n_row), &b->groups);
    b->n_scratch = hth_fwd_compressed_scratch(h);
    b->scratch = bump_alloc(c, n_thread * b->n_scratch, f);
}

static void alloc_streams(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    size_t n = model->hparams.n_stream, d = model->hparams.d_model, f = sizeof(float);
    if (n == 0) return;
    s->streams.x = bump_alloc(c, n_row * n * d, f);
    s->streams.weights = bump_alloc(c, n_row * (2 + n) * n, f);
    s->streams.normed = bump_alloc(c, n_thread * n * d, f);
}

static void alloc_experts(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_expert_sizes *e = &model->hparams.experts;
    hth_expert_buffers *b = &s->experts;
    size_t f = sizeof(float), d = model->hparams.d_model, d_ff = e->d_ff > e->d_ff_shared ? e->d_ff : e->d_ff_shared;
    size_t max_row = max_rows(model, n_row), n_used = e->n_used;
    if (e->n_expert == 0) return;
    b->max_row = (uint32_t)max_row;
    b->logits = bump_alloc(c, n_row * e->n_expert, f);
    b->scores = bump_alloc(c, n_thread * e->n_expert, f);
    b->chosen = bump_alloc(c, n_row * n_used, sizeof *b->chosen);
    b->weights = bump_alloc(c, n_row * n_used, f);
    b->first = bump_alloc(c, e->n_expert + 2, sizeof *b->first);
    b->pairs = bump_alloc(c, n_row * n_used, sizeof *b->pairs);
    b->rows = bump_alloc(c, max_row, sizeof *b->rows);
    b->slice_of = bump_alloc(c, max_row, sizeof *b->slice_of);
    b->slices = bump_alloc(c, max_row, sizeof *b->slices);
    b->x = bump_alloc(c, max_row * d, f);
    b->hidden = bump_alloc(c, max_row * d_ff, f);
    b->out = bump_alloc(c, max_row * d, f);
    b->sums = bump_alloc(c, n_row * d, sizeof *b->sums);
    b->overflow = bump_alloc(c, n_row, sizeof *b->overflow);
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

static void alloc_layer_embeddings(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    size_t d = model->hparams.d_layer_embd, n = d * model->hparams.n_layer, f = sizeof(float);
    if (d == 0) return;
    s->layer_embd.e = bump_alloc(c, n_row * n, f);
    s->layer_embd.gate = bump_alloc(c, n_row * d, f);
    s->layer_embd.rows = bump_alloc(c, n_thread * n, f);
    s->layer_embd.bytes = bump_alloc(c, n_thread, model->layer_embd.row_size);
    s->layer_embd.root = (float)hth_sqrt_d((double)d);
    s->layer_embd.inverse_root_model = (float)(1.0 / hth_sqrt_d((double)model->hparams.d_model));
}

static void alloc_recurrent(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_recurrent_sizes *sizes = &model->hparams.recurrent;
    hth_recurrent_buffers *r = &s->recurrent;
    size_t n_in = 0, n_channel = 0, n_joined = 0, n_head = sizes->n_head, n_inner = sizes->d_inner, n_low = 0,
           n_delta = 0, n_decay = n_head, f = sizeof(float); /* n_delta: heads of delta rules */
    if (sizes->n_tap == 0 && model->hparams.compressed.q_rank == 0) return;
    r->runs = bump_alloc(c, n_row, sizeof *r->runs);
    r->run_of = bump_alloc(c, n_row, sizeof *r->run_of);
    if (sizes->n_tap == 0) return;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        const hth_delta_net *n = &l->delta_net;
        bool is_net = l->mixer == HTH_MIXER_DELTA_NET, is_kda = l->mixer == HTH_MIXER_KDA;
        n_in = larger(n_in, is_net ? n->conv.n_channel : l->short_conv.in.n_row);
        n_channel = larger(n_channel, is_net ? n->conv.n_channel : l->short_conv.conv.n_channel);
        const hth_ssm *ssm = &l->ssm;
        n_in = larger(n_in, ssm->conv.n_channel), n_channel = larger(n_channel, ssm->conv.n_channel);
        if (ssm->x.n_row > 0 && ssm->gate.n_row == 0) n_joined = ssm->x.n_row;
        if (ssm->b.n_row > 0) n_low = sizes->d_state;
        if (is_net && n->gate.n_row == 0) n_joined = n->qkv.n_row;
        if (is_net || is_kda) n_delta = n_head;
        if (is_net) r->n_scratch = hth_fwd_delta_net_scratch(n);
        if (is_kda) n_in = n_channel = 3 * n_inner, r->n_scratch = l->kda.d, n_decay = n_inner;
    }
    r->in = bump_alloc(c, n_row * n_in, f);
    r->conv = bump_alloc(c, n_row * n_channel, f);
    r->joined = bump_alloc(c, n_row * n_joined, f);
    r->gate = bump_alloc(c, n_row * n_inner, f);
    r->out = bump_alloc(c, n_row * n_inner, f);
    r->rates = bump_alloc(c, n_row * (n_head + n_delta), f);
    r->beta = bump_alloc(c, n_row * n_delta, f);
    r->decay = bump_alloc(c, n_row * n_decay, f);
    r->low = bump_alloc(c, n_decay > n_head ? 2 * n_row * sizes->d_state : 0, f);
    r->dt_low = bump_alloc(c, n_row * sizes->dt_rank, f);
    r->b = bump_alloc(c, n_row * n_low, f);
    r->c = bump_alloc(c, n_row * n_low, f);
    r->scratch = bump_alloc(c, n_thread * r->n_scratch, f);
    if (sizes->d_state > 0) r->inverse_root = (float)(1.0 / hth_sqrt_d((double)sizes->d_state));
}

static void alloc_buffers(bump *c, const hth_model *model, size_t n_row, size_t n_thread, hth_step *s)
{
    const hth_hparams *h = &model->hparams;
    size_t n_q = (size_t)h->n_head * h->d_head, n_kv = (size_t)h->n_head_kv * h->d_head;
    size_t n_pair = hth_fwd_max_pair(h), f = sizeof(float);
    s->n_table = hth_fwd_n_table(h);
    s->x = bump_alloc(c, n_row * h->d_model, f);
    s->x_norm = bump_alloc(c, n_row * h->d_model, f);
    s->q = bump_alloc(c, n_row * n_q, f);
    s->kv = bump_alloc(c, n_row * n_kv, 2 * f);
    s->attn_out = bump_alloc(c, n_row * n_q, f);
    s->attn_gate = bump_alloc(c, h->attn_gate ? n_row * n_q : 0, f);
    s->q_gate = bump_alloc(c, h->attn_gate == HTH_ATTN_GATE_IN_Q ? 2 * n_row * n_q : 0, f);
    s->gate = bump_alloc(c, n_row * h->d_ff, f);
    s->up = bump_alloc(c, n_row * h->d_ff, f);
    s->hidden = bump_alloc(c, n_row * h->d_ff, f);
    s->block_out = bump_alloc(c, n_row * h->d_model, f);
    bool saves = h->parallel || h->dense_residual || h->parallel_mixer;
    s->mixer_saved = bump_alloc(c, saves ? n_row * h->d_model : 0, f);
    bool keeps = h->experts_read_before || h->adds_embedding;
    s->kept = bump_alloc(c, keeps ? n_row * h->d_model : 0, f);
    s->mtp_input = bump_alloc(c, model->mtp.proj.n_row > 0 ? 2 * n_row * h->d_model : 0, f);
    s->cosine = bump_alloc(c, s->n_table * n_row * n_pair, f);
    s->sine = bump_alloc(c, s->n_table * n_row * n_pair, f);
    s->frequency = bump_alloc(c, s->n_table * 2 * n_pair, sizeof(double));
    s->n_scratch = hth_attn_scratch(h->d_head, hth_fwd_group_queries(model, &s->group_rows));
    s->scratch = bump_alloc(c, n_thread * s->n_scratch, f);
    s->groups = bump_alloc(c, n_row, sizeof *s->groups);
    s->q_q8 = bump_alloc(c, n_row * n_q, 1);
    s->q_d = bump_alloc(c, n_row * (n_q / HTH_ACT_BLOCK), f);
    s->q_sum = bump_alloc(c, n_row * (n_q / HTH_ACT_BLOCK), sizeof(int32_t));
    s->split_values = bump_alloc(c, HTH_SPLIT_SCRATCH * n_q, f);
    s->split_partials = bump_alloc(c, HTH_SPLIT_SCRATCH * (size_t)h->n_head, sizeof *s->split_partials);
    s->split_totals = bump_alloc(c, HTH_SPLIT_ROWS * (size_t)h->n_head, sizeof *s->split_totals);
    s->head_rows = n_row < HEAD_ROWS ? (uint32_t)n_row : HEAD_ROWS;
    s->logits = bump_alloc(c, (size_t)s->head_rows * h->n_vocab, f);
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
    alloc_latent(c, model, n_tok, s);
    alloc_compressed(c, model, n_tok, n_thread, s);
    alloc_streams(c, model, n_tok, n_thread, s);
    alloc_layer_embeddings(c, model, n_tok, n_thread, s);
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
    *s = (hth_step){.model = model, .k = kernels, .pool = pool, .n_tok_max = n_row, .selector = selector};
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

/* Between two phases a step may wait for a read of some MiB, or for a GPU's part of a layer: threads that slept would
 * be woken later than that. It lasts as long as the pool. */
enum { LONG_SPIN_NS = 2000000 };

void hth_step_use_gpu(hth_step *step, hth_gpu *gpu)
{
    step->gpu = gpu;
    if (gpu && hth_gpu_divides_layers(gpu)) hth_pool_set_spin(step->pool, LONG_SPIN_NS);
}

hearth_status hth_step_use_store(hth_step *step, const hth_streamed *streamed, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    step->streamed = streamed;
    if (streamed->store) hth_pool_set_spin(step->pool, LONG_SPIN_NS);
    for (int i = 0; i < HTH_N_TABLE && st == HEARTH_OK; i++)
        if (streamed->tables[i].row_size > 0)
            st = hth_table_rows_open(streamed->reader, &streamed->tables[i], step->n_tok_max,
                                     streamed->cancel, &step->rows[i], err);
    if (st != HEARTH_OK) return st;
    return streamed->bundles ? hth_fwd_open_bundles(step, err) : HEARTH_OK;
}

bool hth_step_store_size(const hth_model *model, uint32_t n_row, const hth_row_table tables[HTH_N_TABLE], bool dense,
                         size_t *size)
{
    size_t rows;
    *size = 0;
    if (dense && model->down_transposed && !hth_fwd_bundles_size(model, n_row, size)) return false;
    for (int i = 0; i < HTH_N_TABLE; i++)
        if (!hth_table_rows_size(&tables[i], n_row, &rows) || !hth_add_size(*size, rows, size)) return false;
    return true;
}

void hth_step_set_probe(hth_step *step, hth_ffn_probe_fn *fn, void *user)
{
    step->probe = fn;
    step->probe_user = user;
}

void hth_step_set_product_probe(hth_step *step, hth_product_probe_fn *fn, void *user)
{
    step->act_q8.probe = fn;
    step->act_q8.probe_user = user;
}

void hth_step_select(hth_step *step, hth_selector_fn *fn, void *user)
{
    step->select = fn;
    step->select_user = user;
}

void hth_step_set_route(hth_step *step, hth_route_fn *fn, void *user)
{
    step->route = fn;
    step->route_user = user;
}

void hth_step_copy_probes(hth_step *step, const hth_step *from)
{
    hth_step_set_probe(step, from->probe, from->probe_user);
    hth_step_set_product_probe(step, from->act_q8.probe, from->act_q8.probe_user);
    hth_step_select(step, from->select, from->select_user);
    hth_step_set_route(step, from->route, from->route_user);
    step->n_tok_done = from->n_tok_done;
}

/* ---- per-token operations ---------------------------------------------------------- */

void hth_fwd_norm_row(const void *rows, size_t i)
{
    const hth_fwd_norm_rows *n = rows;
    const hth_hparams *h = &n->s->model->hparams;
    const hth_kernels *k = n->s->k;
    const float *x = n->x + i * h->d_model;
    float *y = n->y + i * h->d_model, inv_n = 1.0f / (float)h->d_model;
    float eps = n->norm->eps != 0.0f ? n->norm->eps : h->norm_eps;
    if (!n->norm->weight) {
        memcpy(y, x, h->d_model * sizeof *y);
    } else if (h->norm == HTH_NORM_LAYER) {
        k->layer_norm(x, n->norm->weight, n->norm->bias, h->d_model, inv_n, eps, y);
    } else {
        k->rms_norm(x, n->norm->weight, h->d_model, inv_n, eps, y);
        if (n->norm->bias) k->add(y, n->norm->bias, h->d_model, y);
    }
}

void hth_fwd_low_norm_row(const void *norm, size_t i)
{
    const hth_fwd_low_norm *n = norm;
    float *x = n->x + i * n->n;
    n->s->k->rms_norm(x, n->weight, n->n, 1.0f / (float)n->n, n->s->model->hparams.norm_eps, x);
}

static void norm_unit(void *arg, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    hth_fwd_norm_row(arg, i);
}

void hth_fwd_norm(hth_step *s, const hth_norm *norm, const float *x, float *y, uint32_t n_row)
{
    hth_fwd_norm_rows rows = {s, norm, x, y};
    hth_pool_add(s->pool, norm_unit, &rows, sizeof rows, n_row);
}

typedef struct add_job {
    const hth_step *s;
    float *x, *block;
} add_job;

static void add_row(void *arg, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    const add_job *job = arg;
    const hth_hparams *h = &job->s->model->hparams;
    size_t d = h->d_model;
    if (h->residual_scale != 1.0f) job->s->k->scale(job->block + i * d, h->residual_scale, d, job->block + i * d);
    job->s->k->add(job->x + i * d, job->block + i * d, d, job->x + i * d);
}

static void add_plain_row(void *arg, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    const add_job *job = arg;
    size_t d = job->s->model->hparams.d_model;
    job->s->k->add(job->x + i * d, job->block + i * d, d, job->x + i * d);
}

typedef struct scale_job {
    const hth_step *s;
    float *x;
    float factor;
} scale_job;

static void scale_row(void *arg, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    const scale_job *job = arg;
    size_t d = job->s->model->hparams.d_model;
    job->s->k->scale(job->x + i * d, job->factor, d, job->x + i * d);
}

/* Keeps the residual stream before the first layer. */
static void keep_row(void *step, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    const hth_step *s = step;
    size_t d = s->model->hparams.d_model;
    memcpy(s->kept + i * d, s->x + i * d, d * sizeof *s->x);
}

typedef struct kept_job {
    const hth_step *s;
    float factor;
} kept_job;

/* Adds what keep_row kept, times a factor; x_norm is scratch memory. */
static void add_kept_row(void *arg, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    const kept_job *job = arg;
    const hth_step *s = job->s;
    size_t d = s->model->hparams.d_model, at = i * d;
    s->k->scale(s->kept + at, job->factor, d, s->x_norm + at);
    s->k->add(s->x + at, s->x_norm + at, d, s->x + at);
}

/* ---- the step ------------------------------------------------------------------------ */

/* Adds a block's output to the residual stream, after a post-norm where the architecture has one. */
static void add_to_stream(hth_step *s, float *block, const hth_norm *post)
{
    add_job job = {s, s->x, block};
    if (post->weight) hth_fwd_norm(s, post, block, block, s->n_tok);
    hth_pool_add(s->pool, add_row, &job, sizeof job, s->n_tok);
}

static void save_mixer(hth_step *s)
{
    float *out = s->block_out;
    s->block_out = s->mixer_saved;
    s->mixer_saved = out;
}

/* The dense network, then experts, each perhaps with norms of its own; their sum. */
static hearth_status run_both(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    const hth_experts *e = &s->model->layers[i_layer].experts;
    double factor = s->model->hparams.dense_residual_scale;
    assert(!add_to);
    (void)add_to;
    hearth_status st = hth_fwd_ffn(s, i_layer, NULL, err);
    if (st != HEARTH_OK) return st;
    save_mixer(s);
    if (e->dense_post_norm.weight) hth_fwd_norm(s, &e->dense_post_norm, s->mixer_saved, s->mixer_saved, s->n_tok);
    if ((st = hth_fwd_experts(s, i_layer, NULL, err)) != HEARTH_OK) return st;
    if (e->post_norm.weight) hth_fwd_norm(s, &e->post_norm, s->block_out, s->block_out, s->n_tok);
    add_job job = {s, s->block_out, s->mixer_saved};
    hth_pool_add(s->pool, add_plain_row, &job, sizeof job, s->n_tok);
    scale_job scale = {s, s->block_out, (float)factor};
    if (factor != 0.0) hth_pool_add(s->pool, scale_row, &scale, sizeof scale, s->n_tok);
    return HEARTH_OK;
}

static hth_fwd_block_fn *const mixers[HTH_N_MIXER] = {[HTH_MIXER_ATTENTION] = hth_fwd_attention,
                                                      [HTH_MIXER_LATENT] = hth_fwd_latent,
                                                      [HTH_MIXER_COMPRESSED] = hth_fwd_compressed,
                                                      [HTH_MIXER_SHORT_CONV] = hth_fwd_short_conv,
                                                      [HTH_MIXER_DELTA_NET] = hth_fwd_delta_net,
                                                      [HTH_MIXER_KDA] = hth_fwd_kda,
                                                      [HTH_MIXER_SSM] = hth_fwd_ssm};
static hth_fwd_block_fn *const networks[HTH_N_NETWORK] = {[HTH_NETWORK_DENSE] = hth_fwd_ffn,
                                                           [HTH_NETWORK_EXPERTS] = hth_fwd_experts,
                                                           [HTH_NETWORK_BOTH] = run_both};

/* The mixer of a layer, or two whose outputs are added up in block_out. */
static hearth_status run_mixers(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    const hth_layer *l = &s->model->layers[i_layer];
    hearth_status st = mixers[l->mixer](s, i_layer, add_to, err);
    if (st != HEARTH_OK || l->beside == HTH_MIXER_NONE) return st;
    save_mixer(s);
    st = mixers[l->beside](s, i_layer, s->mixer_saved, err);
    save_mixer(s);
    return st;
}

/* A layer whose blocks read and write streams (hth_connection). */
static hearth_status run_connected(hth_step *s, uint32_t i_layer, hearth_error *err)
{
    const hth_layer *l = &s->model->layers[i_layer];
    hth_fwd_read_streams(s, &l->mixer_connection);
    hearth_status st = mixers[l->mixer](s, i_layer, NULL, err);
    if (st != HEARTH_OK) return st;
    hth_fwd_write_streams(s);
    hth_fwd_read_streams(s, &l->ffn_connection);
    if ((st = networks[l->network](s, i_layer, NULL, err)) == HEARTH_OK) hth_fwd_write_streams(s);
    return st;
}

static hearth_status run_layer(hth_step *s, uint32_t i_layer, hearth_error *err)
{
    const hth_layer *l = &s->model->layers[i_layer];
    const hth_hparams *h = &s->model->hparams;
    bool parallel = h->parallel, scaled = h->residual_scale != 1.0f, two = l->beside != HTH_MIXER_NONE;
    float *mixer_to = parallel || scaled || two || l->mixer_post_norm.weight ? NULL : s->x;
    bool both = l->network == HTH_NETWORK_BOTH;
    float *network_to = parallel || scaled || both || l->ffn_post_norm.weight ? NULL : s->x;
    hearth_status st = HEARTH_OK;
    if (h->n_stream > 0) return run_connected(s, i_layer, err);
    if (hth_has_experts(l->network) && l->experts.router.reads_layer_input) st = hth_fwd_route_early(s, i_layer, err);
    if (st != HEARTH_OK) return st;
    if (l->experts.reads_stream_before) hth_fwd_norm(s, &l->experts.norm, s->x, s->kept, s->n_tok);
    if (l->mixer != HTH_MIXER_NONE) {
        if ((st = run_mixers(s, i_layer, mixer_to, err)) != HEARTH_OK) return st;
        if (parallel) save_mixer(s);
        else if (!mixer_to) add_to_stream(s, s->block_out, &l->mixer_post_norm);
    }
    if (l->network == HTH_NETWORK_NONE) return HEARTH_OK;
    st = networks[l->network](s, i_layer, network_to, err);
    if (st != HEARTH_OK) return st;
    if (parallel) add_to_stream(s, s->mixer_saved, &l->mixer_post_norm);
    if (!network_to) add_to_stream(s, s->block_out, &l->ffn_post_norm);
    if (l->embedding.gate.n_row > 0) {
        hth_fwd_add_layer_embedding(s, i_layer);
        add_to_stream(s, s->block_out, &l->embedding.norm);
    }
    if (l->embedding_scale)
        hth_pool_add(s->pool, add_kept_row, &(kept_job){s, *l->embedding_scale}, sizeof(kept_job), s->n_tok);
    if (l->output_scale)
        hth_pool_add(s->pool, scale_row, &(scale_job){s, s->x, *l->output_scale}, sizeof(scale_job), s->n_tok);
    return HEARTH_OK;
}

bool hth_step_device_failed(const hth_step *step) { return step->device_failed; }

/* What is not in the host's memory cannot be probed. */
static hearth_status check_probe(const hth_step *s, hearth_error *err)
{
    bool selects = s->select && (s->gpu || !s->bundles);
    if (!s->probe && !selects && !s->act_q8.probe) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: neurons %s cannot be probed: open the model without %s",
                    hth_gguf_path(s->model->file), s->gpu ? "on a device" : "whose weights are read when they are needed",
                    s->gpu ? "a device (gpu.device none)" : "a limit of memory");
}

/* Before all that may fail: a step that does must leave no copies behind (kv_pool.h). */
static hearth_status copy_pages(hth_step *s, hearth_error *err)
{
    hearth_status st = s->gpu ? hth_gpu_copy_pages(s->gpu, s->tokens[0].seq->pool, err) : HEARTH_OK;
    s->device_failed = hth_gpu_is_device_failure(st);
    return st;
}

/* Nothing may fail between the start of the reads of rows and hth_fwd_embed, which waits for them. */
static hearth_status begin_tokens(hth_step *s, hearth_error *err)
{
    hth_fwd_start_rows(s);
    hth_fwd_group(s);
    hth_fwd_find_runs(s);
    hth_fwd_by_head_begin(s);
    return hth_fwd_embed(s, err);
}

static hearth_status run_on_device(hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hth_pool_finish(s->pool);
    if (check_probe(s, err) != HEARTH_OK) return HEARTH_ERROR_UNSUPPORTED;
    hearth_status st = hth_gpu_run(s->gpu, s, to, err);
    s->device_failed = hth_gpu_is_device_failure(st);
    return st;
}

/* Skipped units left sums of the transposed down behind. */
static void clear_sums(hth_step *s)
{
    if (!s->model->down_transposed) return;
    hth_pool_quiesce(s->pool);
    hth_axpy_scratch_clear(&s->axpy_scratch, hth_pool_n_thread(s->pool), s->model->hparams.d_model);
}

void hth_step_keep_hidden(hth_step *step, bool on) { step->keeps_hidden = on; }
const float *hth_step_hidden(const hth_step *step) { return step->x_norm; }

hearth_status hth_step_run(hth_step *step, const hth_batch_token *tokens, uint32_t n_row, hth_logits_fn *fn, void *user,
                           hearth_error *err)
{
    step->tokens = tokens;
    step->n_tok = n_row;
    hth_alloc_assert_none(1); /* functions called from here may allocate again */
    hearth_status st = copy_pages(step, err);
    if (st == HEARTH_OK) st = begin_tokens(step, err);
    if (st != HEARTH_OK) { /* nothing is queued yet */
        hth_alloc_assert_none(-1);
        return st;
    }
    if (step->model->hparams.adds_embedding) hth_pool_add(step->pool, keep_row, step, 0, n_row);
    hth_fwd_begin_streams(step);
    hth_fwd_embed_layers(step);
    hth_fwd_rope_tables(step);
    hth_logits_sink to = {fn, user, 0};
    uint32_t n_done = 0;
    bool head_done = false;
    if (step->gpu) {
        st = run_on_device(step, &to, err);
        n_done = hth_gpu_end_layer(step->gpu), head_done = hth_gpu_has_head(step->gpu);
    } else if (step->streamed && (step->streamed->pieces || step->streamed->bundles)) {
        st = check_probe(step, err);
    }
    for (uint32_t i = n_done; st == HEARTH_OK && i < step->model->hparams.n_layer; i++)
        st = run_layer(step, i, err);
    if (step->model->hparams.n_stream > 0) hth_fwd_read_streams(step, &step->model->output_connection);
    if (st == HEARTH_OK && !head_done) st = hth_fwd_head(step, &to, err);
    hth_pool_finish(step->pool);
    if (hth_pool_take_cancelled(step->pool)) {
        st = hth_fail_cancelled(err);
        clear_sums(step);
    }
    if (st != HEARTH_OK) hth_fwd_delta_net_undo(step);
    hth_fwd_drop_wanted(step); /* of a layer that was not reached */
    if (step->streamed && step->streamed->store) hth_store_advance(step->streamed->store, n_row);
    step->n_tok_done += n_row;
    if (st == HEARTH_OK && step->gpu) hth_gpu_sim_host_cost_rest(step->gpu, step, to.n_given > 0);
    hth_alloc_assert_none(-1);
    return st;
}
