/* The rotation (RoPE) of queries and keys: frequencies, and the cosines and sines of a step's positions. */
#include "forward/forward_int.h"

#include "kernels/vector/math.h"

static size_t row_at(const hth_step *s, uint32_t i_table, size_t t)
{
    return (i_table * (size_t)s->n_tok_max + t) * hth_fwd_max_pair(&s->model->hparams);
}

static double clamp01(double x) { return x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x; }

static double ceil_of(double x)
{
    double n = (double)(int64_t)x;
    return n < x ? n + 1.0 : n;
}

/* The pair index whose wavelength fits r times into the original context (Peng et al. 2023, YaRN, section 3.2). */
static double pair_of_rotations(const hth_rope *rope, double r)
{
    const double two_pi = 6.283185307179586477;
    return rope->n_rot * hth_log_d(rope->n_ctx_original / (two_pi * r)) / (2.0 * hth_log_d(rope->base));
}

/* Weight of pair i's unscaled frequency under YaRN, 0 to 1; the rest is scaled. */
static double yarn_keep(const hth_rope *rope, uint32_t i)
{
    double low = pair_of_rotations(rope, rope->beta_fast), high = pair_of_rotations(rope, rope->beta_slow);
    low = low < 0.0 ? 0.0 : (double)(int64_t)low;
    high = ceil_of(high);
    if (high > rope->n_rot - 1.0) high = rope->n_rot - 1.0;
    double width = high - low < 0.001 ? 0.001 : high - low;
    return 1.0 - clamp01((i - low) / width);
}

/* Whether pair i has the position of the text. */
static bool has_position(const hth_rope *rope, uint32_t i)
{
    const uint32_t *n = rope->sections;
    uint32_t all = n[0] + n[1] + n[2] + n[3];
    if (rope->section_rule == HTH_SECTIONS_NONE || all == 0) return true;
    uint32_t at = i % all;
    if (rope->section_rule == HTH_SECTIONS_BLOCKS) return at < n[0] + n[1] + n[2];
    return at < 3 * n[at % 3];
}

static void fill_frequencies(const hth_rope *rope, const float *factors, double *frequency)
{
    for (uint32_t i = 0; i < rope->n_rot / 2; i++) {
        double theta = has_position(rope, i) ? hth_pow_d(rope->base, -2.0 * i / rope->n_rot) : 0.0;
        if (factors) theta /= (double)factors[i];
        double keep = rope->scaling == HTH_SCALING_YARN ? yarn_keep(rope, i) : 0.0;
        frequency[i] = keep * theta + (1.0 - keep) * (theta / rope->factor);
    }
}

void hth_fwd_rope_init(hth_step *s)
{
    const hth_rope *rope = &s->model->hparams.rope;
    size_t n_pair = hth_fwd_max_pair(&s->model->hparams);
    const float *factors = s->model->rope_factors, *far = s->model->rope_factors_long;
    fill_frequencies(rope, factors, s->frequency);
    fill_frequencies(rope, far ? far : factors, s->frequency + n_pair);
    if (s->n_table == 2) {
        hth_rope near = *rope;
        near.n_rot = rope->window_n_rot;
        bool unscaled = s->model->hparams.rope.window_unscaled;
        if (rope->window_base > 0.0) near.base = rope->window_base;
        if (unscaled) near.scaling = HTH_SCALING_NONE, near.factor = 1.0, factors = far = NULL;
        fill_frequencies(&near, factors, s->frequency + 2 * n_pair);
        fill_frequencies(&near, far ? far : factors, s->frequency + 3 * n_pair);
    }
    s->rope_scale = (float)rope->magnitude;
}

/* The table entries of one token. The length of its cache selects the frequency factors, so that all its keys
 * rotate alike. */
void hth_fwd_rope_row(const hth_step *s, const hth_op *op, size_t i_row)
{
    const hth_rope *rope = &s->model->hparams.rope;
    const hth_batch_token *token = &s->tokens[i_row];
    size_t max_pair = hth_fwd_max_pair(&s->model->hparams),
           far = token->seq->options.n_ctx > rope->n_ctx_original ? max_pair : 0;
    (void)op;
    for (uint32_t t = 0; t < s->n_table; t++) {
        size_t n_pair = hth_fwd_n_pair(&s->model->hparams, t), at = row_at(s, t, i_row);
        const double *frequency = s->frequency + t * 2 * max_pair + far;
        float scale = t > 0 && rope->window_unscaled ? 1.0f : s->rope_scale;
        for (size_t i = 0; i < n_pair; i++) {
            double sin_d, cos_d;
            hth_sincos_d(token->position * frequency[i], &sin_d, &cos_d);
            s->cosine[at + i] = (float)cos_d * scale;
            s->sine[at + i] = (float)sin_d * scale;
        }
    }
}

hth_rope_row hth_fwd_rope_row_of(const hth_step *s, uint32_t i_table, size_t t)
{
    size_t at = row_at(s, i_table, t);
    return (hth_rope_row){s->cosine + at, s->sine + at, hth_fwd_n_pair(&s->model->hparams, i_table)};
}
