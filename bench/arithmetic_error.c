/* What rounding in the down product costs on a real model: a float file, a text. Shows
 * how large h becomes, the error of down in several forms against double on the same
 * weights, and the perplexity with each form instead of the engine's own down.
 * Neuron-major forms: integer with k of the token, or one k per layer chosen from the
 * first chunks with some bits of headroom (a token beyond it takes its own k).
 * Row-major forms: h rounded to 8 bits per 32 by rule R1.
 *   arithmetic_error MODEL TEXT [CHUNKS [CHUNKS OF PERPLEXITY]] */
#include "base/bits.h"
#include "engine/engine.h"
#include "kernels/vector/math.h"
#include "measure/perplexity.h"
#include "forward/forward_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CTX = 512, MAX_LAYER = 64, MAX_FF = 16384, MAX_HEADROOM = 4 };

typedef enum form { NEURON_EXACT, NEURON_TOKEN_K, NEURON_LAYER_K, NEURON_LAYER_K2, ROW_EXACT, ROW_R1, N_FORM } form;
static const char *const form_name[N_FORM] = {
    "neuron-major, double", "integer, k of the token", "integer, k of the layer, 1 bit",
    "integer, k of the layer, 2 bits", "row-major, double", "row-major, h to 8 bits (R1)",
};

/* One layer's down in one type, in both layouts. */
typedef struct down {
    uint8_t *rows;    /* row-major, packed */
    float *row_major; /* the same, as floats: [d_model][d_ff] */
    float *scale;     /* neuron-major: [d_ff][d_model / 32] */
    int8_t *q;        /* [d_ff][d_model] */
    float d_max;
} down;

typedef struct probe {
    hearth_model *m;
    hth_step *step;
    hth_kv_pool *kv;
    hth_sequence seq;
    hth_pool *pool;
    int32_t *ids;
    size_t n_ids, d_model, d_ff;
    down down[2][MAX_LAYER];  /* Q8_0, Q4_0 */
    float profile[MAX_LAYER]; /* largest |h| of the first chunks */
    float *top[MAX_LAYER];    /* largest |h| of each token */
    size_t n_top, n_top_max;
    double error[2][N_FORM][MAX_LAYER], worst[2][N_FORM];
    size_t n_error[MAX_LAYER], n_redone, n_token;
    double share[MAX_LAYER]; /* of neurons that are active, summed */
} probe;

static const hth_type types[2] = {HTH_TYPE_Q8_0, HTH_TYPE_Q4_0};

static void make_down(probe *p, int t, size_t i_layer)
{
    const hth_layer *l = &p->m->model->layers[i_layer];
    const hth_kernels *k = &p->m->kernels;
    size_t n = p->d_model, f = p->d_ff, size = hth_type_row_size(types[t], f);
    down *d = &p->down[t][i_layer];
    float *w = malloc(n * f * 4), *column = malloc(n * 4);
    uint8_t *packed = malloc(hth_type_row_size(types[t], n));
    d->rows = malloc(n * size), d->row_major = malloc(n * f * 4);
    d->scale = malloc(f * n / 32 * 4), d->q = malloc(f * n);
    for (size_t i = 0; i < n; i++) {
        k->unpack[l->ffn.down.type](l->ffn.down.data + i * l->ffn.down.row_size, f, w + i * f);
        k->pack[types[t]](w + i * f, f, d->rows + i * size);
        k->unpack[types[t]](d->rows + i * size, f, d->row_major + i * f);
    }
    size_t block = hth_type_find(types[t])->size;
    for (size_t j = 0; j < f; j++) {
        for (size_t i = 0; i < n; i++) column[i] = w[i * f + j];
        k->pack[types[t]](column, n, packed);
        k->unpack[types[t]](packed, n, column);
        for (size_t b = 0; b < n / 32; b++) {
            float s = hth_f16_to_f32(hth_load_u16(packed + b * block)), size_of_s = s < 0 ? -s : s;
            d->scale[j * n / 32 + b] = s;
            if (size_of_s > d->d_max) d->d_max = size_of_s;
            for (size_t i = 0; i < 32; i++)
                d->q[j * n + 32 * b + i] = s == 0 ? 0 : (int8_t)lrintf(column[32 * b + i] / s);
        }
    }
    free(w), free(column), free(packed);
}

/* ---- forms of down ---------------------------------------------------------------------------- */

/* 2^k for the largest k with max|h| max|d| 2^k <= 32766, within -100..100. */
static float power_for(float h_max, float d_max)
{
    float product = h_max * d_max;
    uint32_t bits = hth_bits_of(product);
    int e = (int)(bits >> 23) - 127, k = (bits & 0x7fffffu) > 0x7ffc00u ? 13 - e : 14 - e;
    k = k > 100 ? 100 : k < -100 ? -100 : k;
    return hth_float_of((uint32_t)(k + 127) << 23);
}

static float largest(const float *h, size_t n)
{
    float top = 0;
    for (size_t j = 0; j < n; j++) top = fabsf(h[j]) > top ? fabsf(h[j]) : top;
    return top;
}

static void by_integers(const probe *p, const down *d, const float *h, float power, float *y)
{
    int64_t sum[MAX_FF] = {0};
    size_t n = p->d_model;
    for (size_t j = 0; j < p->d_ff; j++) {
        if (h[j] == 0) continue;
        for (size_t b = 0; b < n / 32; b++) {
            float c = (h[j] * power) * d->scale[j * n / 32 + b];
            int32_t rounded = (int32_t)((c + 0x1.8p23f) - 0x1.8p23f);
            for (size_t i = 32 * b; i < 32 * b + 32; i++) sum[i] += rounded * d->q[j * n + i];
        }
    }
    for (size_t i = 0; i < n; i++) y[i] = (float)sum[i] * (1.0f / power);
}

static void exact(const probe *p, const down *d, const float *h, bool neuron_major, double *y)
{
    size_t n = p->d_model;
    for (size_t i = 0; i < n; i++) y[i] = 0;
    for (size_t j = 0; j < p->d_ff; j++) {
        if (h[j] == 0) continue;
        for (size_t i = 0; i < n; i++)
            y[i] += (double)h[j] * (neuron_major ? (double)d->scale[(j * n + i) / 32] * d->q[j * n + i]
                                                 : (double)d->row_major[i * p->d_ff + j]);
    }
}

static void by_rows(const probe *p, int t, const down *d, const float *h, float *y)
{
    int8_t q[MAX_FF];
    float scale[MAX_FF / 32];
    int32_t sum[MAX_FF / 32];
    p->m->kernels.quant_act(h, p->d_ff, q, scale, sum);
    hth_rows job = {.w = d->rows, .row_size = hth_type_row_size(types[t], p->d_ff), .n_col = p->d_ff,
                    .end = p->d_model, .act = {.x = h, .q = q, .d = scale, .sum = sum}, .n_tok = 1, .y = y,
                    .y_stride = p->d_model};
    p->m->kernels.rows[types[t]](&job);
}

static void compute(probe *p, int t, form f, size_t i_layer, const float *h, float *y)
{
    const down *d = &p->down[t][i_layer];
    double wide[MAX_FF];
    float top = largest(h, p->d_ff), limit = p->profile[i_layer] * (f == NEURON_LAYER_K ? 2.0f : 4.0f);
    switch (f) {
    case NEURON_EXACT:
    case ROW_EXACT:
        exact(p, d, h, f == NEURON_EXACT, wide);
        for (size_t i = 0; i < p->d_model; i++) y[i] = (float)wide[i];
        return;
    case NEURON_TOKEN_K: by_integers(p, d, h, power_for(top, d->d_max), y); return;
    case NEURON_LAYER_K:
    case NEURON_LAYER_K2:
        p->n_redone += top > limit, p->n_token++;
        by_integers(p, d, h, power_for(top > limit ? top : limit, d->d_max), y);
        return;
    default: by_rows(p, t, d, h, y); return;
    }
}

/* ---- what is observed --------------------------------------------------------------------------- */

static void add_errors(probe *p, size_t i_layer, const float *h)
{
    double right[MAX_FF];
    float y[MAX_FF];
    p->n_error[i_layer]++;
    for (int t = 0; t < 2; t++)
        for (int f = 0; f < N_FORM; f++) {
            if (f == NEURON_EXACT || f == ROW_EXACT) continue;
            double error = 0, size = 0;
            exact(p, &p->down[t][i_layer], h, f < ROW_EXACT, right);
            compute(p, t, (form)f, i_layer, h, y);
            for (size_t i = 0; i < p->d_model; i++) {
                double e = (double)y[i] - right[i];
                error += e * e, size += right[i] * right[i];
            }
            double relative = size > 0 ? sqrt(error / size) : 0;
            p->error[t][f][i_layer] += relative * relative;
            if (relative > p->worst[t][f]) p->worst[t][f] = relative;
        }
}

static void observe(void *user, const hth_ffn_probe *seen)
{
    probe *p = user;
    for (size_t i = 0; i < seen->n_tok; i++) {
        const float *h = seen->hidden + i * seen->d_ff;
        p->top[seen->i_layer][p->n_top + i] = largest(h, seen->d_ff);
        for (size_t j = 0; j < seen->d_ff; j++) p->share[seen->i_layer] += h[j] != 0;
        if (p->profile[seen->i_layer] > 0 && i % 16 == 0) add_errors(p, seen->i_layer, h);
    }
}

typedef struct kept_logits {
    float *logits;
    size_t n_vocab;
} kept_logits;

static hearth_status keep(void *user, uint32_t i, const float *logits, hearth_error *err)
{
    (void)err;
    const kept_logits *k = user;
    memcpy(k->logits + i * k->n_vocab, logits, k->n_vocab * sizeof *logits);
    return HEARTH_OK;
}

static void run_chunk(probe *p, size_t i_chunk, float *logits, int t, int f)
{
    static hth_batch_token tokens[N_CTX];
    hearth_error err;
    hth_step *s = p->step;
    kept_logits kept = {logits, p->m->model->hparams.n_vocab};
    for (uint32_t i = 0; i < N_CTX; i++) {
        int32_t id = i == 0 ? hearth_token_bos(p->m) : p->ids[i_chunk * N_CTX + i];
        tokens[i] = (hth_batch_token){&p->seq, id, i, i >= N_CTX / 2};
    }
    if (f < 0) {
        if (hth_step_run(s, tokens, N_CTX, keep, &kept, &err) != HEARTH_OK) exit(1);
        return;
    }
    s->tokens = tokens, s->n_tok = N_CTX;
    hth_fwd_embed(s), hth_fwd_rope_tables(s);
    for (uint32_t i = 0; i < p->m->model->hparams.n_layer; i++) {
        const hth_layer *l = &p->m->model->layers[i];
        hth_fwd_attention(s, i, NULL);
        s->k->add(s->x, s->block_out, N_CTX * p->d_model, s->x);
        hth_fwd_norm(s, &l->ffn_norm, s->x, s->x_norm, s->n_tok);
        hth_output both[] = {{.matrix = &l->ffn.gate, .y = s->gate}, {.matrix = &l->ffn.up, .y = s->up}};
        hth_product(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, both, 2);
        s->k->activate[p->m->model->hparams.activation](s->gate, s->up, (size_t)s->n_tok * p->d_ff, s->hidden);
        for (size_t r = 0; r < N_CTX; r++)
            compute(p, t, (form)f, i, s->hidden + r * p->d_ff, s->block_out + r * p->d_model);
        s->k->add(s->x, s->block_out, N_CTX * p->d_model, s->x);
    }
    if (hth_fwd_head(s, &(hth_logits_sink){.fn = keep, .user = &kept}, &err) != HEARTH_OK) exit(1);
}

/* ---- tables ---------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_sizes(probe *p, size_t n_profile)
{
    printf("\n### max|h| of a token, by layer (%zu tokens; profile: the first %zu)\n\n| layer | fire | min | "
           "10 %% | median | "
           "90 %% | 99.9 %% | max | profile | beyond it | beyond 2^1 | beyond 2^2 "
           "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
           p->n_top, n_profile);
    for (size_t l = 0; l < p->m->model->hparams.n_layer; l++) {
        size_t n = p->n_top, beyond[3] = {0};
        for (size_t i = n_profile; i < n; i++)
            for (int b = 0; b < 3; b++) beyond[b] += p->top[l][i] > p->profile[l] * (float)(1 << b);
        double left = (double)(n - n_profile);
        qsort(p->top[l], n, sizeof(float), by_size);
        const float *s = p->top[l];
        printf("| %zu | %.1f %% | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f %% | %.2f %% | %.2f "
               "%% |\n",
               l, 100 * p->share[l] / ((double)n * (double)p->d_ff), (double)s[0], (double)s[n / 10],
               (double)s[n / 2], (double)s[n - n / 10], (double)s[n - 1 - n / 1000], (double)s[n - 1],
               (double)p->profile[l], 100 * (double)beyond[0] / left, 100 * (double)beyond[1] / left,
               100 * (double)beyond[2] / left);
    }
}

static void print_errors(const probe *p)
{
    size_t n_layer = p->m->model->hparams.n_layer;
    printf("\n### Error of down against double on the same weights, relative rms\n\n| form | type | mean of "
           "layers | largest "
           "layer | worst token |\n|---|---|---|---|---|\n");
    for (int t = 0; t < 2; t++)
        for (int f = 0; f < N_FORM; f++) {
            if (f == NEURON_EXACT || f == ROW_EXACT) continue;
            double sum = 0, top = 0;
            for (size_t l = 0; l < n_layer; l++) {
                double square = p->error[t][f][l] / (double)p->n_error[l];
                sum += square;
                if (square > top) top = square;
            }
            printf("| %s | %s | %.1e | %.1e | %.1e |\n", form_name[f], hth_type_find(types[t])->name,
                   sqrt(sum / (double)n_layer), sqrt(top), p->worst[t][f]);
        }
}

static void print_perplexity(probe *p, size_t n_chunk, float *logits)
{
    size_t n_vocab = p->m->model->hparams.n_vocab, n = n_chunk * (N_CTX / 2 - 1);
    double *base = malloc(n * sizeof *base);
    printf("\n### Perplexity with down replaced (%zu chunks of %d; the rest as in the file)\n\n| type | "
           "form | perplexity | "
           "change of nll against double, same weights | tokens done again |\n|---|---|---|---|---|\n",
           n_chunk, N_CTX);
    for (int t = 0; t < 2; t++)
        for (int f = 0; f < N_FORM; f++) {
            double sum = 0, change = 0, square = 0;
            p->n_redone = p->n_token = 0;
            for (size_t w = 0, at = 0; w < n_chunk; w++) {
                run_chunk(p, w, logits, t, f);
                for (size_t i = 0; i + 1 < N_CTX / 2; i++, at++) {
                    int32_t next = p->ids[w * N_CTX + N_CTX / 2 + i + 1];
                    double nll = -hth_measure_log_probability(logits + i * n_vocab, n_vocab, next);
                    if (f == NEURON_EXACT || f == ROW_EXACT) base[at] = nll;
                    sum += nll, change += nll - base[at], square += (nll - base[at]) * (nll - base[at]);
                }
            }
            double count = (double)n, mean = change / count;
            printf("| %s | %s | %.4f | %+.1e +/- %.0e | ", hth_type_find(types[t])->name, form_name[f],
                   exp(sum / count), mean, sqrt((square / count - mean * mean) / count));
            if (p->n_token) printf("%.2f %% |\n", 100.0 * (double)p->n_redone / (double)p->n_token);
            else printf("|\n");
            fflush(stdout);
        }
    free(base);
}

static char *read_text(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *text = malloc((size_t)size);
    *n = text ? fread(text, 1, (size_t)size, f) : 0;
    fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    static probe p;
    hearth_error err;
    size_t n_text, n_chunk = argc > 3 ? (size_t)atoi(argv[3]) : 20,
                   n_score = argc > 4 ? (size_t)atoi(argv[4]) : 8;
    char *text = argc > 2 ? read_text(argv[2], &n_text) : NULL;
    if (!text) return fprintf(stderr, "usage: arithmetic_error MODEL TEXT [CHUNKS [CHUNKS OF PERPLEXITY]]\n"), 2;
    if (hearth_model_open(argv[1], NULL, &p.m, &err) != HEARTH_OK) return fprintf(stderr, "%s\n", err.message), 1;
    const hth_hparams *h = &p.m->model->hparams;
    p.d_model = h->d_model, p.d_ff = h->d_ff;
    if (h->n_layer > MAX_LAYER || p.d_ff > MAX_FF || p.d_model > MAX_FF || p.d_model % 256 || p.d_ff % 32) return 1;
    if (hearth_tokenize(p.m, text, n_text, HEARTH_ADD_SPECIAL, &p.ids, &p.n_ids, &err) != HEARTH_OK) return 1;
    if (n_chunk > p.n_ids / N_CTX) n_chunk = p.n_ids / N_CTX;
    if (hth_pool_open(1, &p.pool, &err) != HEARTH_OK) return 1;
    if (hth_step_open(p.m->model, &p.m->kernels, p.pool, N_CTX, HEARTH_SELECTOR_DENSE, &p.step, &err) != HEARTH_OK)
        return 1;
    if (hth_kv_pool_open(p.m->model, HEARTH_KV_F16, &p.kv, &err) != HEARTH_OK ||
        hth_sequence_open(&p.seq, p.kv, &(hth_sequence_options){.n_ctx = N_CTX}, &err) != HEARTH_OK)
        return 1;
    hth_sequence_prepare(&p.seq, N_CTX);
    float *logits = malloc((size_t)N_CTX / 2 * h->n_vocab * sizeof *logits);
    for (size_t l = 0; l < h->n_layer; l++) {
        p.top[l] = malloc(n_chunk * N_CTX * sizeof(float));
        for (int t = 0; t < 2; t++) make_down(&p, t, l);
    }
    size_t n_profile = n_chunk / 4 ? n_chunk / 4 : 1;
    hth_step_set_probe(p.step, observe, &p);
    for (size_t w = 0; w < n_chunk; w++) {
        if (w == n_profile)
            for (size_t l = 0; l < h->n_layer; l++) p.profile[l] = largest(p.top[l], p.n_top);
        run_chunk(&p, w, logits, 0, -1);
        p.n_top += N_CTX;
    }
    hth_step_set_probe(p.step, NULL, NULL);
    print_sizes(&p, n_profile * N_CTX);
    print_errors(&p);
    print_perplexity(&p, n_score < n_chunk ? n_score : n_chunk, logits);
    return 0;
}
