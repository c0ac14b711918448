/* HEADS, COMPRESS and ATTEND of compressed attention (hth_compressed): each token attends to the positions
 * of its window and to the complete blocks of earlier positions, with one softmax over both. A block is a
 * key and a value, which the token that completes it stores. */
#include "forward/forward_int.h"

#include "kernels/vector/math.h"

#include <string.h>

typedef struct compressed_job {
    const hth_step *s;
    const hth_op *op;
    const hth_layer *layer;
} compressed_job;

static compressed_job job_of(const hth_step *s, const hth_op *op)
{
    return (compressed_job){s, op, &s->model->layers[op->layer]};
}

size_t hth_fwd_compressed_scratch(const hth_hparams *h)
{
    return 2 * (size_t)h->d_head + 2 * (size_t)hth_fwd_max_pair(h);
}

/* ---- queries and keys ---------------------------------------------------------------------------------- */

/* Rotates the last values of a head. */
static void rotate(const hth_step *s, float *x, const float *cosine, const float *sine)
{
    const hth_rope *rope = &s->model->hparams.rope;
    hth_rope_fn *fn = rope->kind == HTH_ROPE_NEOX ? s->k->rope_neox : s->k->rope_interleaved;
    fn(x + s->model->hparams.d_head - rope->n_rot, cosine, sine, rope->n_rot / 2);
}

/* Layers without blocks rotate by the second table (hth_fwd_n_table). */
static hth_rope_row angles_of(const compressed_job *job, size_t t)
{
    return hth_fwd_rope_row_of(job->s, job->layer->compressed.n_tok > 0 ? 0 : 1, t);
}

static void prepare_token(void *arg, size_t t, uint32_t i_thread)
{
    const compressed_job *job = arg;
    const hth_step *s = job->s;
    const hth_attention *a = &job->layer->attn;
    const hth_hparams *h = &s->model->hparams;
    const hth_rope_row angles = angles_of(job, t);
    size_t d = a->d_head;
    float *key = hth_fwd_row(s, job->op->out[1], t), *q = hth_fwd_row(s, job->op->out[0], t),
          inv_n = 1.0f / (float)d;
    (void)i_thread;
    s->k->rms_norm(key, job->layer->compressed.kv_norm, d, inv_n, h->norm_eps, key);
    rotate(s, key, angles.cosine, angles.sine);
    hth_sequence_store(s->tokens[t].seq, s->k, job->op->layer, s->tokens[t].position, key, key);
    for (size_t i = 0; i < a->n_head; i++) {
        s->k->rms_norm(q + i * d, s->model->ones, d, inv_n, h->norm_eps, q + i * d);
        rotate(s, q + i * d, angles.cosine, angles.sine);
    }
    hth_fwd_round_queries(s, job->op->out[0], a->n_head * d, t);
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

/* Running softmax sums of an incomplete block (hth_compressed_state): [d] each. sum 0: the block is empty. */
typedef struct partial_block {
    float *largest, *sum, *values;
} partial_block;

static partial_block part_at(float *state, size_t d)
{
    return (partial_block){state, state + d, state + 2 * d};
}

/* e[d] is scratch memory. */
static void add_token(const hth_kernels *k, const partial_block *b, const float *score, const float *value,
                      size_t d, float *e)
{
    for (size_t i = 0; i < d; i++) {
        float below = score[i] - b->largest[i];
        e[i] = b->sum[i] == 0.0f ? 0.0f : below > 0.0f ? -below : below;
    }
    k->exp(e, d, e);
    for (size_t i = 0; i < d; i++) {
        if (b->sum[i] == 0.0f) {
            b->largest[i] = score[i], b->sum[i] = 1.0f, b->values[i] = value[i];
        } else if (score[i] > b->largest[i]) {
            b->largest[i] = score[i], b->sum[i] = b->sum[i] * e[i] + 1.0f;
            b->values[i] = b->values[i] * e[i] + value[i];
        } else {
            b->sum[i] += e[i], b->values[i] += e[i] * value[i];
        }
    }
}

/* Stores block i_block as a key and a value of its first position. scratch: [d] and two of [n_pair]. */
static void store_block(const compressed_job *job, const partial_block *b, hth_sequence *seq,
                        uint32_t i_block, float *scratch)
{
    const hth_step *s = job->s;
    const hth_hparams *h = &s->model->hparams;
    size_t d = h->d_head, n_pair = h->rope.n_rot / 2;
    float *cosine = scratch + d, *sine = cosine + n_pair;
    double position = (double)i_block * job->layer->compressed.n_tok, sin_d, cos_d;
    s->k->rcp(b->sum, d, scratch);
    for (size_t i = 0; i < d; i++) scratch[i] *= b->values[i];
    s->k->rms_norm(scratch, job->layer->compressed.norm, d, 1.0f / (float)d, h->norm_eps, scratch);
    for (size_t i = 0; i < n_pair; i++) {
        hth_sincos_d(position * s->frequency[i], &sin_d, &cos_d);
        cosine[i] = (float)cos_d * s->rope_scale, sine[i] = (float)sin_d * s->rope_scale;
    }
    rotate(s, scratch, cosine, sine);
    hth_sequence_store(seq, s->k, h->n_layer + job->op->layer, i_block, scratch, scratch);
}

/* Adds the tokens of a sequence to its blocks, in their order. */
static void compress_run(void *arg, size_t i_run, uint32_t i_thread)
{
    const compressed_job *job = arg;
    const hth_step *s = job->s;
    const hth_compressed *c = &job->layer->compressed;
    const hth_row_group *run = &s->recurrent.runs[i_run];
    hth_sequence *seq = s->tokens[run->first].seq;
    hth_state state = hth_sequence_state(seq, job->op->layer, HTH_STATE_STEP);
    size_t d = job->layer->attn.d_head, n_row = c->values.n_row, n_state = hth_compressed_state(c, d);
    float *now = state.next, *kept, *scratch = s->recurrent.scratch + i_thread * s->recurrent.n_scratch;
    partial_block block = part_at(now, d), later = part_at(now + 3 * d, d);
    memcpy(now, state.now, n_state * sizeof *now);
    for (size_t t = run->first; t < run->first + run->n; t++) {
        uint32_t p = s->tokens[t].position, at = p % c->n_tok;
        const float *value = hth_fwd_row(s, job->op->in[0], t);
        float *score = hth_fwd_row(s, job->op->out[0], t);
        s->k->add(score, c->position + at * n_row, n_row, score);
        if (at == 0 && c->overlaps) memcpy(now, now + 3 * d, 3 * d * sizeof *now);
        if (at == 0) memset(c->overlaps ? later.sum : block.sum, 0, d * sizeof *now);
        add_token(s->k, &block, score + n_row - d, value + n_row - d, d, scratch);
        if (c->overlaps) add_token(s->k, &later, score, value, d, scratch);
        if (at + 1 == c->n_tok) store_block(job, &block, seq, p / c->n_tok, scratch);
        kept = hth_fwd_state_after(s, job->op->layer, t);
        if (kept && kept != now) memcpy(kept, now, n_state * sizeof *now);
    }
}

/* ---- attention ----------------------------------------------------------------------------------------- */

/* The arguments of some heads of a token, over n_pos entries of a cache. */
static hth_attn attend_to(const compressed_job *job, size_t t, uint32_t first_head, uint32_t i_cache,
                          size_t n_pos, uint32_t i_thread)
{
    const hth_step *s = job->s;
    const hth_attention *a = &job->layer->attn;
    hth_kv_head kv = hth_sequence_head(s->tokens[t].seq, i_cache, 0);
    size_t d = a->d_head, q_stride = hth_fwd_width(s, job->op->in[0]), at = t * q_stride + first_head * d;
    uint32_t left = a->n_head - first_head;
    return (hth_attn){
        .k_pages = kv.pages,
        .v_pages = kv.pages,
        .k_offset = kv.offset,
        .v_offset = kv.offset + kv.values_offset,
        .d_head = d,
        .n_row = 1,
        .n_head = left < HTH_UNIT_HEADS ? left : HTH_UNIT_HEADS,
        .n_pos = n_pos,
        .window = i_cache == job->op->layer ? a->window : 0,
        .q = hth_fwd_row(s, job->op->in[0], t) + first_head * d,
        .q_q8 = {.q = s->q_q8 + at, .d = s->q_d + at / HTH_ACT_BLOCK, .sum = s->q_sum + at / HTH_ACT_BLOCK},
        .q_stride = q_stride,
        .scale = s->model->hparams.score_scale,
        .sinks = a->sinks + first_head,
        .scratch = s->scratch + i_thread * s->n_scratch,
        .out_stride = a->n_head};
}

/* Values were rotated with keys, so outputs are rotated back. */
static void rotate_back(const compressed_job *job, size_t t, float *y, size_t n_head, float *scratch)
{
    const hth_step *s = job->s;
    const hth_rope_row angles = angles_of(job, t);
    size_t n_pair = s->model->hparams.rope.n_rot / 2;
    for (size_t i = 0; i < n_pair; i++) scratch[i] = -angles.sine[i];
    for (size_t i = 0; i < n_head; i++) rotate(s, y + i * job->layer->attn.d_head, angles.cosine, scratch);
}

static void attend_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const compressed_job *job = arg;
    const hth_step *s = job->s;
    size_t n_unit = (job->layer->attn.n_head + HTH_UNIT_HEADS - 1) / HTH_UNIT_HEADS, t = i_unit / n_unit;
    uint32_t first = (uint32_t)(i_unit % n_unit) * HTH_UNIT_HEADS, n_tok = job->layer->compressed.n_tok;
    size_t n_seen = (size_t)s->tokens[t].position + 1, n_block = n_tok > 0 ? n_seen / n_tok : 0;
    hth_attn window = attend_to(job, t, first, job->op->layer, n_seen, i_thread), blocks = {0};
    if (n_block > 0)
        blocks = attend_to(job, t, first, s->model->hparams.n_layer + job->op->layer, n_block, i_thread);
    float *y = hth_fwd_row(s, job->op->out[0], t) + first * job->layer->attn.d_head;
    hth_attn_all_splits(s->k, hth_kv_pool_type(s->tokens[t].seq->pool), &window, n_block > 0 ? &blocks : NULL,
                        y);
    rotate_back(job, t, y, window.n_head, s->recurrent.scratch + i_thread * s->recurrent.n_scratch);
}

/* ---- operations ---------------------------------------------------------------------------------------- */

hearth_status hth_fwd_heads_compressed(hth_step *s, const hth_op *op, hearth_error *err)
{
    compressed_job job = job_of(s, op);
    (void)err;
    hth_pool_add(s->pool, prepare_token, &job, sizeof job, s->n_tok);
    return HEARTH_OK;
}

hearth_status hth_fwd_compress(hth_step *s, const hth_op *op, hearth_error *err)
{
    compressed_job job = job_of(s, op);
    (void)err;
    hth_pool_add(s->pool, compress_run, &job, sizeof job, s->recurrent.n_run);
    return HEARTH_OK;
}

hearth_status hth_fwd_attend_compressed(hth_step *s, const hth_op *op, hearth_error *err)
{
    compressed_job job = job_of(s, op);
    size_t n_unit = (job.layer->attn.n_head + HTH_UNIT_HEADS - 1) / HTH_UNIT_HEADS;
    (void)err;
    hth_pool_add(s->pool, attend_unit, &job, sizeof job, s->n_tok * n_unit);
    return HEARTH_OK;
}
