/* Products by head: the vectors of each head times a matrix of its own, for all tokens of a step. latent.c and
 * compressed.c call it. */
#include "forward/forward_int.h"

#include <string.h>

/* Row i of a wave is token i mod height of head i / height; rows behind the tokens are padding. */
typedef struct wave_arg {
    const hth_by_head *of;
    const hth_head_rows *rows;
    uint32_t first_head;
    uint32_t unused[3];
} wave_arg;
_Static_assert(sizeof(wave_arg) == HTH_PREPARE_SIZE, "what a product prepares with");

static void gather(const void *arg, size_t i)
{
    const wave_arg *w = arg;
    const hth_head_rows *r = w->rows;
    size_t t = i % w->of->height, head = w->first_head + i / w->of->height;
    if (t < w->of->n_tok)
        memcpy(r->x + i * r->d_in, r->from + (t * w->of->n_head + head) * r->from_head, r->d_in * sizeof *r->x);
}

static void scatter(void *arg, size_t i, uint32_t i_thread)
{
    const wave_arg *w = arg;
    const hth_head_rows *r = w->rows;
    size_t t = i % w->of->height, head = w->first_head + i / w->of->height;
    (void)i_thread;
    if (t < w->of->n_tok)
        memcpy(r->to + (t * w->of->n_head + head) * r->to_head, r->y + i * r->d_out, r->d_out * sizeof *r->y);
}

void hth_fwd_multiply_heads(hth_step *s, const hth_head_rows *r, const hth_matrix *m)
{
    const hth_by_head *b = &s->by_head;
    hth_output out = {.matrix = m, .y = r->y};
    for (uint32_t head = 0; head < b->n_head; head += b->n_wave) {
        uint32_t n = b->n_head - head < b->n_wave ? b->n_head - head : b->n_wave;
        wave_arg arg = {.of = b, .rows = r, .first_head = head};
        hth_fusion fusion = {.prepare = gather, .prepare_arg = &arg};
        hth_product_slices_add(s->k, s->pool, &s->act_q8, r->x, &r->waves[head / b->n_wave], &out, 1, &fusion);
        hth_pool_add(s->pool, scatter, &arg, sizeof arg, n * b->height);
    }
}

/* The waves of a step are the same in all layers. Units read them while later layers are queued. */
static void set_waves(const hth_by_head *b, hth_head_rows *r)
{
    for (uint32_t head = 0, i = 0; r->waves && head < b->n_head; head += b->n_wave, i++) {
        uint32_t n = b->n_head - head < b->n_wave ? b->n_head - head : b->n_wave;
        r->waves[i] = (hth_submatrices){b->slices + head, n, r->d_out, n * b->height, false, b->slice_of};
    }
}

void hth_fwd_by_head_begin(hth_step *s)
{
    hth_head_rows *const all[] = {&s->latent.queries, &s->latent.values, &s->compressed.groups};
    hth_by_head *b = &s->by_head;
    if (!b->slices) return;
    b->n_tok = s->n_tok;
    b->height = s->n_tok > 1 ? (uint32_t)hth_n_tiled(s->n_tok) : 1;
    b->n_wave = b->max_row / b->height;
    for (uint32_t i = 0; i < b->n_head; i++)
        b->slices[i] = (hth_submatrix){i, i % b->n_wave * b->height, s->n_tok};
    for (uint32_t i = 0; i < b->n_wave * b->height; i++)
        b->slice_of[i] = i % b->height < s->n_tok ? i / b->height : UINT32_MAX;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) set_waves(b, all[i]);
}
