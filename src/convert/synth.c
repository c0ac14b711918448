/* hearth synth: writes the tensor infos of a model of a known shape, then random blocks, which all threads
 * generate in chunks and which are written in order. Weights are drawn so that activations keep their magnitude
 * through the layers; fill_blocks defines what is random. */
#include "convert/synth.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/random.h"
#include "file/gguf_write.h"
#include "kernels/kernels.h"
#include "kernels/quant/blocks.h"
#include "kernels/vector/math.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* ---- shapes -------------------------------------------------------------------------- */

typedef struct shape {
    const char *name, *arch;
    uint32_t n_layer, d_model, d_ff, n_head, n_kv, d_head, n_vocab, n_ctx;
    double rope_base;
    bool tied;
    uint32_t n_expert, n_used; /* experts have d_ff neurons each; 0: dense */
    uint32_t d_shared;         /* neurons of a shared expert; 0: none */
    uint32_t d_dense;          /* neurons of the first layer, which has no experts; 0: it has experts */
    uint32_t d_beside;         /* neurons of a dense network beside the experts of each layer; 0: none */
    uint32_t n_rot, window;    /* 0: the whole head; none */
    uint32_t n_kv_window, d_head_window; /* in layers with a window, all but every 6th; 0: layers do not differ */
    uint32_t rank, d_rope, d_value;      /* latent attention with keys of d_head; 0: none */
    uint32_t n_delta, n_delta_key, d_delta; /* heads of gated DeltaNet in all but every 4th layer; 0: none */
} shape;

/* Architecture, layers, d_model, d_ff, heads, KV heads, d_head, vocabulary, context, base of the rotation. */
static const shape shapes[] = {
    {"llama-1b", "llama", 16, 2048, 8192, 32, 8, 64, 32000, 4096, 10000.0, .tied = false},
    {"llama-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 10000.0, .tied = false},
    {"mistral-7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 10000.0, .tied = false},
    {"llama3-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 8192, 500000.0, .tied = false},
    {"llama-13b", "llama", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 10000.0, .tied = false},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 32768, 1000000.0, .tied = true},
    {"shape-32b", "llama", 64, 5120, 27648, 40, 8, 128, 152064, 32768, 1000000.0, .tied = false},
    {"llama-70b", "llama", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 10000.0, .tied = false},
    {"stories-15m", "llama", 6, 288, 768, 6, 6, 48, 32000, 256, 10000.0, .tied = true},
    {"mixtral-8x7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1000000.0, .n_expert = 8,
     .n_used = 2},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 768, 32, 4, 128, 151936, 32768, 1000000.0, .n_expert = 128,
     .n_used = 8},
    {"smallthinker-4b", "smallthinker", 32, 1536, 768, 12, 2, 128, 151936, 32768, 1500000.0, .tied = true,
     .n_expert = 32, .n_used = 4},
    {"smallthinker-21b", "smallthinker", 52, 2560, 768, 28, 4, 128, 151936, 16384, 1500000.0, .n_expert = 64,
     .n_used = 6},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 150000.0, .n_expert = 32,
     .n_used = 4, .window = 128},
    {"gemma4-12b", "gemma4", 48, 3840, 15360, 16, 1, 512, 262144, 262144, 1000000.0, .tied = true, .window = 1024,
     .n_kv_window = 8, .d_head_window = 256},
    {"gemma4-26b-a4b", "gemma4", 30, 2816, 704, 16, 2, 512, 262144, 262144, 1000000.0, .tied = true, .n_expert = 128,
     .n_used = 8, .d_beside = 2112, .window = 1024, .n_kv_window = 8, .d_head_window = 256},
    {"deepseek-v2-lite", "deepseek2", 27, 2048, 1408, 16, 1, 192, 102400, 163840, 10000.0, .n_expert = 64, .n_used = 6,
     .d_shared = 2816, .d_dense = 10944, .rank = 512, .d_rope = 64, .d_value = 128},
    {"qwen35-9b", "qwen35", 32, 4096, 12288, 16, 4, 256, 248320, 262144, 10000000.0, .n_rot = 64,
     .n_delta = 32, .n_delta_key = 16, .d_delta = 128},
    {"qwen35-35b-a3b", "qwen35moe", 40, 2048, 512, 16, 2, 256, 248320, 262144, 10000000.0, .n_expert = 256,
     .n_used = 8, .d_shared = 512, .n_rot = 64, .n_delta = 32, .n_delta_key = 16, .d_delta = 128},
};

const char *hth_synth_shapes(void)
{
    return "llama-1b, llama-7b, mistral-7b, llama3-8b, llama-13b, qwen3-4b, shape-32b, llama-70b, stories-15m, "
           "mixtral-8x7b, qwen3-30b-a3b, smallthinker-4b, smallthinker-21b, gpt-oss-20b, gemma4-12b, "
           "gemma4-26b-a4b, deepseek-v2-lite, qwen35-9b, qwen35-35b-a3b";
}

static const shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

typedef struct work {
    const hth_synth_options *options;
    const shape *shape;  /* with the layers that are written */
    uint32_t n_layer_all; /* of the whole shape */
    hth_gguf_writer *out;
    hth_pool *pool;
    hth_kernels k;
    hth_ftype_model model;
    uint64_t total, done;
    bool declares; /* first pass over the tensors, which only declares them */
    uint64_t i_tensor;
    bool has_other_types; /* than those asked for */
    /* the current chunk */
    hth_type type;
    float rms;
    uint64_t i_piece, first_block;
    size_t n_block;
    uint8_t *bytes;
    uint16_t scale, minimum; /* F16 values for blocks of the type */
    uint8_t exponent;        /* scale exponent of MXFP4 blocks */
} work;

/* ---- random blocks ------------------------------------------------------------------------ */

/* Offsets of the scale and of the minimum, if any, in blocks of a type. */
static const struct {
    hth_type type;
    uint8_t scale_at;
    int8_t minimum_at; /* -1: none */
} layouts[] = {
    {HTH_TYPE_Q8_0, 0, -1},   {HTH_TYPE_Q4_0, 0, -1},   {HTH_TYPE_Q4_1, 0, 2},    {HTH_TYPE_Q5_0, 0, -1},
    {HTH_TYPE_Q5_1, 0, 2},    {HTH_TYPE_IQ4_NL, 0, -1}, {HTH_TYPE_IQ4_XS, 0, -1}, {HTH_TYPE_Q2_K, 80, 82},
    {HTH_TYPE_Q3_K, 108, -1}, {HTH_TYPE_Q4_K, 0, 2},    {HTH_TYPE_Q5_K, 0, 2},    {HTH_TYPE_Q6_K, 208, -1},
    {HTH_TYPE_IQ3_S, 0, -1},  {HTH_TYPE_IQ3_XXS, 0, -1}, {HTH_TYPE_IQ2_S, 0, -1},  {HTH_TYPE_IQ2_XS, 0, -1},
    {HTH_TYPE_IQ1_S, 0, -1},  {HTH_TYPE_IQ2_XXS, 0, -1}, {HTH_TYPE_TQ2_0, 64, -1}, {HTH_TYPE_TQ1_0, 52, -1},
};

/* The index of the NVFP4 scale that is nearest to a non-negative half. */
static uint8_t nearest_nvfp4_scale(uint16_t half)
{
    uint8_t e = 0;
    float x = hth_f16_to_f32(half);
    while (e < 126 && hth_nvfp4_scale(e) + hth_nvfp4_scale(e + 1) < 2.0f * x) e++;
    return e;
}

static void set_scales(const work *w, uint8_t *block)
{
    if (w->type == HTH_TYPE_MXFP4) block[0] = w->exponent;
    for (int i = 0; i < 4 && w->type == HTH_TYPE_NVFP4; i++) block[i] = nearest_nvfp4_scale(w->scale);
    for (int i = 0; i < 4 && w->type == HTH_TYPE_IQ1_M; i++) /* a quarter in the upper half of every second byte */
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (w->scale >> 4 * i & 15) << 4);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].type != w->type) continue;
        hth_store_u16(block + layouts[i].scale_at, w->scale);
        if (layouts[i].minimum_at >= 0) hth_store_u16(block + layouts[i].minimum_at, w->minimum);
    }
}

/* Uniform in -1..1. */
static float next_even(uint64_t *state) { return (float)(int32_t)(hth_random_next(state) >> 32) * 0x1p-31f; }

static void put_float(const work *w, uint64_t *state, uint8_t *p)
{
    float x = 1.7320508f * w->rms * next_even(state); /* sqrt(3): the rms of a uniform distribution */
    if (w->type == HTH_TYPE_F32) hth_store_f32(p, x);
    else hth_store_u16(p, w->type == HTH_TYPE_F16 ? hth_f32_to_f16(x) : hth_f32_to_bf16(x));
}

/* Quantised blocks: every bit is random except the scales of the block. Floats: uniform. */
static void fill_blocks(const work *w, uint64_t *state, uint8_t *p, size_t n_block)
{
    const hth_type_info *info = hth_type_find(w->type);
    if (!info->quantised) {
        for (size_t i = 0; i < n_block; i++) put_float(w, state, p + i * info->size);
        return;
    }
    size_t size = n_block * info->size;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t r = hth_random_next(state);
        memcpy(p + at, &r, size - at < 8 ? size - at : 8);
    }
    for (size_t i = 0; i < n_block; i++) set_scales(w, p + i * info->size);
}

/* Mean and rms of some blocks with the current scales. */
static void measure(work *w, double *mean, double *rms)
{
    enum { N_BLOCK = 32 };
    static const uint64_t seed = 7;
    const hth_type_info *info = hth_type_find(w->type);
    uint8_t bytes[N_BLOCK * 256];
    float x[N_BLOCK * 256];
    uint64_t state = seed;
    size_t n = (size_t)N_BLOCK * info->n_weight;
    double sum = 0.0, squares = 0.0;
    fill_blocks(w, &state, bytes, N_BLOCK);
    w->k.unpack[w->type](bytes, n, x);
    for (size_t i = 0; i < n; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    *mean = sum / (double)n;
    *rms = hth_sqrt_d(squares / (double)n);
}

/* Chooses scales for which weights of the type have mean 0 and the requested rms. They are computed from random
 * blocks with simple scales. */
static void choose_scales(work *w)
{
    if (!hth_type_find(w->type)->quantised) return;
    double of_scale, of_minimum, rms, ignored;
    w->exponent = 128, w->scale = hth_f32_to_f16(1.0f), w->minimum = 0;
    measure(w, &of_scale, &rms);
    w->scale = 0, w->minimum = hth_f32_to_f16(1.0f);
    measure(w, &of_minimum, &ignored);
    float minimum = of_minimum != 0.0 ? (float)(-of_scale / of_minimum) : 0.0f;
    w->scale = hth_f32_to_f16(1.0f), w->minimum = hth_f32_to_f16(minimum);
    measure(w, &ignored, &rms);
    double wanted = (double)w->rms / rms;
    for (; wanted < 0.75 && w->exponent > 1; wanted *= 2.0)
        w->exponent--; /* MXFP4 has only powers of two */
    wanted = (double)w->rms / rms;
    w->scale = hth_f32_to_f16((float)wanted);
    w->minimum = hth_f32_to_f16((float)(wanted * (double)minimum));
}

/* ---- tensors ---------------------------------------------------------------------------------- */

enum { PIECE_SIZE = 8 << 20, UNIT_SIZE = 64 << 10 };

static size_t unit_blocks(const work *w) { return UNIT_SIZE / hth_type_find(w->type)->size; }

static void fill_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const work *w = arg;
    size_t first = i_unit * unit_blocks(w), left = w->n_block - first;
    uint64_t state = w->options->seed;
    state = hth_random_next(&state) + w->i_tensor;
    state = hth_random_next(&state) + (w->first_block + first);
    fill_blocks(w, &state, w->bytes + first * hth_type_find(w->type)->size,
                left < unit_blocks(w) ? left : unit_blocks(w));
}

static hearth_status write_matrix(work *w, uint64_t n_weight, hearth_error *err)
{
    const hth_type_info *info = hth_type_find(w->type);
    uint64_t n_block = n_weight / info->n_weight;
    size_t piece = PIECE_SIZE / UNIT_SIZE * unit_blocks(w);
    hearth_status st = HEARTH_OK;
    choose_scales(w);
    for (w->first_block = 0; st == HEARTH_OK && w->first_block < n_block; w->first_block += w->n_block) {
        uint64_t left = n_block - w->first_block;
        w->n_block = left < piece ? (size_t)left : piece;
        hth_pool_run(w->pool, fill_unit, w, (w->n_block + unit_blocks(w) - 1) / unit_blocks(w));
        st = hth_gguf_writer_data(w->out, w->bytes, w->n_block * info->size, err);
        w->done += w->n_block * info->size;
        const hth_synth_options *o = w->options;
        if (st == HEARTH_OK && o->progress && !o->progress(o->progress_user, w->done, w->total))
            st = hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was written");
    }
    return st;
}

static hth_type type_of(work *w, const char *name, uint64_t n_col)
{
    hth_type wanted, type = hth_ftype_type(w->options->ftype, &w->model, (hth_str){name, strlen(name)}, n_col, &wanted);
    if (type != wanted && !w->has_other_types)
        hth_log(HEARTH_LOG_WARN, "%s: tensor '%s': rows of %llu weights do not fit blocks of %s: %s instead, and for others",
                w->options->shape, name, (unsigned long long)n_col, hth_type_find(wanted)->name, hth_type_find(type)->name);
    w->has_other_types |= type != wanted;
    return type;
}

/* A tensor. n_slice 0: there is none. */
typedef struct part {
    const char *name; /* without .weight */
    uint64_t n_col, n_row, n_slice;
    bool constant;    /* all values are `value`; else they are random */
    float value;
} part;
#define MATRICES(NAME, N_COL, N_ROW, N_SLICE) {NAME, N_COL, N_ROW, N_SLICE, false, 0.0f}
#define MATRIX(NAME, N_COL, N_ROW) MATRICES(NAME, N_COL, N_ROW, 1)
#define VECTORS(NAME, N, N_ROW, PRESENT, VALUE) {NAME, N, N_ROW, PRESENT, true, VALUE}
#define VECTOR(NAME, N, PRESENT, VALUE) VECTORS(NAME, N, 0, PRESENT, VALUE)

/* The next tensor: the first pass declares it, the second writes its data. */
static hearth_status tensor(work *w, const char *name, hth_type type, const part *t, float rms, hearth_error *err)
{
    uint64_t dim[3] = {t->n_col, t->n_row, t->n_slice}, n = t->n_col * (t->n_row ? t->n_row * t->n_slice : 1);
    bool vector = t->n_row == 0;
    w->type = type;
    w->rms = rms;
    w->i_tensor++;
    if (w->declares) {
        hth_gguf_writer_tensor(w->out, name, w->type, t->n_slice > 1 ? 3 : vector ? 1 : 2, dim);
        w->total += hth_type_row_size(w->type, t->n_col) * (n / t->n_col);
        return HEARTH_OK;
    }
    if (!t->constant) return write_matrix(w, n, err);
    for (uint64_t i = 0; i < n; i++) hth_store_f32(w->bytes + 4 * i, t->value);
    w->done += 4 * n;
    return hth_gguf_writer_data(w->out, w->bytes, 4 * n, err);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

/* Whether a matrix is of floats in published files. */
static bool is_float(const part *t)
{
    return t->constant || ends_with(t->name, "ffn_gate_inp") || ends_with(t->name, "ssm_conv1d");
}

static hearth_status put_parts(work *w, uint32_t i_layer, const part *parts, size_t n, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) {
        char name[64];
        part t = parts[i];
        float rms = (float)(1.0 / hth_sqrt_d((double)t.n_col));
        bool turned = w->options->packed && strcmp(t.name, "ffn_down") == 0;
        bool whole = ends_with(t.name, ".bias") || ends_with(t.name, ".scale") || strcmp(t.name, "ssm_a") == 0;
        if (t.n_slice == 0) continue;
        snprintf(name, sizeof name, "blk.%u.%s%s", i_layer, t.name, whole ? "" : ".weight");
        if (turned) t.n_col = w->shape->d_model, t.n_row = w->shape->d_ff;
        hth_type type = is_float(&t) ? HTH_TYPE_F32 : type_of(w, name, t.n_col);
        if (strncmp(t.name, "fc", 2) == 0 || (turned && hth_axpy_limit(type) == 0)) type = HTH_TYPE_Q8_0;
        if (turned) snprintf(name, sizeof name, "blk.%u.ffn_down_t.weight", i_layer);
        st = tensor(w, name, type, &t, rms, err);
    }
    return st;
}

static bool is_recurrent(const shape *s, uint32_t i_layer)
{
    return s->n_delta > 0 && i_layer < s->n_layer && (i_layer + 1) % 4 != 0;
}

/* Layers whose heads are those of windows. */
static bool has_window(const shape *s, uint32_t i_layer) { return s->d_head_window > 0 && (i_layer + 1) % 6 != 0; }

static hearth_status latent_attention(work *w, uint32_t i_layer, hearth_error *err)
{
    const shape *s = w->shape;
    uint64_t d = s->d_model, n = s->n_head;
    const part parts[] = {MATRIX("attn_q", d, n * s->d_head),
                          MATRIX("attn_kv_a_mqa", d, s->rank + s->d_rope),
                          VECTOR("attn_kv_a_norm", s->rank, 1, 1.0f),
                          MATRICES("attn_k_b", s->d_head - s->d_rope, s->rank, n),
                          MATRICES("attn_v_b", s->rank, s->d_value, n),
                          MATRIX("attn_output", n * s->d_value, d)};
    return put_parts(w, i_layer, parts, sizeof parts / sizeof *parts, err);
}

static hearth_status attention(work *w, uint32_t i_layer, hearth_error *err)
{
    const shape *s = w->shape;
    bool near = has_window(s, i_layer), gemma = s->d_head_window > 0, oss = strcmp(s->arch, "gpt-oss") == 0;
    uint64_t d = s->d_model, d_head = near ? s->d_head_window : s->d_head, n_q = s->n_head * d_head,
             n_kv = (near ? s->n_kv_window : s->n_kv) * d_head;
    bool normed = strncmp(s->arch, "qwen3", 5) == 0 || gemma;
    float gain = gemma ? 0.3f : 1.0f; /* Gemma 4 does not scale its scores */
    if (s->rank > 0) return latent_attention(w, i_layer, err);
    const part parts[] = {MATRIX("attn_q", d, s->n_delta ? 2 * n_q : n_q),
                          MATRIX("attn_k", d, n_kv),
                          MATRICES("attn_v", d, n_kv, !gemma || near),
                          VECTOR("attn_q.bias", n_q, oss, 0.0f),
                          VECTOR("attn_k.bias", n_kv, oss, 0.0f),
                          VECTOR("attn_v.bias", n_kv, oss, 0.0f),
                          VECTOR("attn_q_norm", d_head, normed, gain),
                          VECTOR("attn_k_norm", d_head, normed, gain),
                          VECTOR("attn_sinks", s->n_head, oss, 0.0f),
                          MATRIX("attn_output", n_q, d),
                          VECTOR("attn_output.bias", d, oss, 0.0f)};
    return put_parts(w, i_layer, parts, sizeof parts / sizeof *parts, err);
}

/* Decays with which a state forgets half in some ten tokens. */
static hearth_status delta_net(work *w, uint32_t i_layer, hearth_error *err)
{
    const shape *s = w->shape;
    uint64_t d = s->d_model, n = s->n_delta, inner = n * s->d_delta,
             n_qkv = inner + 2 * (uint64_t)s->n_delta_key * s->d_delta;
    const part parts[] = {MATRIX("attn_qkv", d, n_qkv),
                          MATRIX("attn_gate", d, inner),
                          MATRIX("ssm_beta", d, n),
                          MATRIX("ssm_alpha", d, n),
                          MATRIX("ssm_conv1d", 4, n_qkv),
                          VECTOR("ssm_a", n, 1, -0.1f),
                          VECTOR("ssm_dt.bias", n, 1, 0.0f),
                          VECTOR("ssm_norm", s->d_delta, 1, 1.0f),
                          MATRIX("ssm_out", inner, d)};
    return put_parts(w, i_layer, parts, sizeof parts / sizeof *parts, err);
}

static hearth_status network(work *w, uint32_t i_layer, hearth_error *err)
{
    const shape *s = w->shape;
    bool leading = s->d_dense > 0 && i_layer == 0, beside = s->d_beside > 0;
    uint64_t d = s->d_model, rank = w->options->rank, n = leading ? 0 : s->n_expert, f = s->d_ff,
             n_dense = leading ? s->d_dense : beside ? s->d_beside : f, shared = leading ? 0 : s->d_shared;
    bool dense = n == 0 || beside, gated = shared > 0 && s->d_dense == 0, oss = strcmp(s->arch, "gpt-oss") == 0;
    float router_gain = (float)hth_sqrt_d((double)d); /* Gemma 4 divides a router's input by it */
    const part parts[] = {MATRICES("ffn_gate", d, n_dense, dense),
                          MATRICES("ffn_up", d, n_dense, dense),
                          MATRICES("ffn_down", n_dense, d, dense),
                          VECTOR("post_ffw_norm_1", d, beside, 1.0f),
                          VECTOR("pre_ffw_norm_2", d, beside, 1.0f),
                          VECTOR("ffn_gate_inp.scale", d, beside, router_gain),
                          MATRICES("ffn_gate_inp", d, n, n > 0),
                          MATRICES("ffn_gate_up_exps", d, 2 * f, beside ? n : 0),
                          MATRICES("ffn_gate_exps", d, f, beside ? 0 : n),
                          MATRICES("ffn_up_exps", d, f, beside ? 0 : n),
                          MATRICES("ffn_down_exps", f, d, n),
                          VECTOR("ffn_gate_inp.bias", n, oss, 0.0f),
                          VECTORS("ffn_gate_exps.bias", f, n, oss, 0.0f),
                          VECTORS("ffn_up_exps.bias", f, n, oss, 0.0f),
                          VECTORS("ffn_down_exps.bias", d, n, oss, 0.0f),
                          VECTOR("ffn_down_exps.scale", n, beside, 1.0f),
                          VECTOR("post_ffw_norm_2", d, beside, 1.0f),
                          VECTOR("layer_output_scale", 1, beside, 1.0f),
                          VECTOR("ffn_gate_inp_shexp", d, gated, 0.01f),
                          MATRICES("ffn_gate_shexp", d, shared, shared > 0),
                          MATRICES("ffn_up_shexp", d, shared, shared > 0),
                          MATRICES("ffn_down_shexp", shared, d, shared > 0),
                          MATRICES("fc1", d, rank, rank > 0),
                          MATRICES("fc2", rank, f, rank > 0)};
    return put_parts(w, i_layer, parts, sizeof parts / sizeof *parts, err);
}

static hearth_status layer(work *w, uint32_t i_layer, hearth_error *err)
{
    const shape *s = w->shape;
    bool other_name = s->n_delta > 0 || strcmp(s->arch, "gpt-oss") == 0;
    bool gemma = s->d_head_window > 0;
    const part norms[] = {VECTOR("attn_norm", s->d_model, 1, 1.0f),
                          VECTOR("post_attention_norm", s->d_model, gemma, 1.0f),
                          VECTOR("post_ffw_norm", s->d_model, gemma, 1.0f),
                          VECTOR(other_name ? "post_attention_norm" : "ffn_norm", s->d_model, 1, 1.0f)};
    hearth_status st = put_parts(w, i_layer, norms, 3, err);
    if (st == HEARTH_OK) st = is_recurrent(s, i_layer) ? delta_net(w, i_layer, err) : attention(w, i_layer, err);
    if (st == HEARTH_OK) st = put_parts(w, i_layer, norms + 3, 1, err);
    return st == HEARTH_OK ? network(w, i_layer, err) : st;
}

/* Behind the layers, one that predicts a token further. */
static hearth_status mtp_block(work *w, hearth_error *err)
{
    uint64_t d = w->shape->d_model;
    const part parts[] = {VECTOR("nextn.enorm", d, 1, 1.0f), VECTOR("nextn.hnorm", d, 1, 1.0f),
                          VECTOR("nextn.shared_head_norm", d, 1, 1.0f), MATRIX("nextn.eh_proj", 2 * d, d)};
    hearth_status st = put_parts(w, w->shape->n_layer, parts, sizeof parts / sizeof *parts, err);
    return st == HEARTH_OK ? layer(w, w->shape->n_layer, err) : st;
}

static hearth_status walk(work *w, bool declares, hearth_error *err)
{
    const shape *s = w->shape;
    float small = (float)(1.0 / hth_sqrt_d((double)s->d_model));
    w->declares = declares, w->i_tensor = 0;
    hth_type table = type_of(w, "token_embd.weight", s->d_model),
             head = type_of(w, "output.weight", s->d_model);
    const part embedding = MATRIX("", s->d_model, s->n_vocab), norm = VECTOR("", s->d_model, 1, 1.0f);
    hearth_status st = tensor(w, "token_embd.weight", table, &embedding, s->tied ? small : 1.0f, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < s->n_layer; i++) st = layer(w, i, err);
    if (st == HEARTH_OK && w->options->mtp) st = mtp_block(w, err);
    const part freqs = VECTOR("", s->d_head / 2, 1, 1.0f);
    if (st == HEARTH_OK) st = tensor(w, "output_norm.weight", HTH_TYPE_F32, &norm, 0.0f, err);
    if (st == HEARTH_OK && s->d_head_window > 0) st = tensor(w, "rope_freqs.weight", HTH_TYPE_F32, &freqs, 0.0f, err);
    if (st == HEARTH_OK && !s->tied) st = tensor(w, "output.weight", head, &embedding, small, err);
    return st;
}

/* ---- metadata ------------------------------------------------------------------------------------ */

static void put_number(work *w, const char *key, uint64_t value)
{
    char name[80];
    snprintf(name, sizeof name, "%s.%s", w->shape->arch, key);
    hth_gguf_writer_uint(w->out, name, HTH_GGUF_U32, value);
}

static void put_float_key(work *w, const char *key, double value)
{
    char name[80];
    snprintf(name, sizeof name, "%s.%s", w->shape->arch, key);
    hth_gguf_writer_float(w->out, name, HTH_GGUF_F32, value);
}

/* Heads and windows by layer. */
static void put_gemma(work *w)
{
    const shape *s = w->shape;
    uint32_t n_kv[64], near[64];
    char name[80];
    for (uint32_t i = 0; i < s->n_layer; i++) near[i] = has_window(s, i), n_kv[i] = near[i] ? s->n_kv_window : s->n_kv;
    snprintf(name, sizeof name, "%s.attention.head_count_kv", s->arch);
    hth_gguf_writer_array(w->out, name, HTH_GGUF_U32, n_kv, s->n_layer);
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", s->arch);
    hth_gguf_writer_array(w->out, name, HTH_GGUF_U32, near, s->n_layer);
    put_number(w, "attention.key_length_swa", s->d_head_window);
    put_number(w, "attention.value_length_swa", s->d_head_window);
    put_number(w, "rope.dimension_count_swa", s->d_head_window);
    put_float_key(w, "rope.freq_base_swa", 10000.0);
    put_float_key(w, "final_logit_softcapping", 30.0);
    put_number(w, "embedding_length_per_layer_input", 0);
}

static void put_deepseek(work *w)
{
    const shape *s = w->shape;
    char name[80];
    put_number(w, "attention.kv_lora_rank", s->rank);
    put_number(w, "attention.key_length_mla", s->d_head);
    put_number(w, "attention.value_length_mla", s->d_value);
    put_number(w, "leading_dense_block_count", s->d_dense > 0);
    put_number(w, "expert_shared_count", s->d_shared / s->d_ff);
    put_number(w, "expert_gating_func", HTH_SCORE_SOFTMAX);
    put_float_key(w, "expert_weights_scale", 1.0);
    snprintf(name, sizeof name, "%s.rope.scaling.type", s->arch);
    hth_gguf_writer_text(w->out, name, "yarn", 4);
    put_float_key(w, "rope.scaling.factor", 40.0);
    put_float_key(w, "rope.scaling.yarn_log_multiplier", 0.0707);
    put_number(w, "rope.scaling.original_context_length", 4096);
}

static void put_delta_net(work *w)
{
    const shape *s = w->shape;
    const int32_t sections[4] = {11, 11, 10, 0};
    char name[80];
    snprintf(name, sizeof name, "%s.rope.dimension_sections", s->arch);
    hth_gguf_writer_array(w->out, name, HTH_GGUF_I32, sections, 4);
    put_number(w, "ssm.conv_kernel", 4);
    put_number(w, "ssm.time_step_rank", s->n_delta);
    put_number(w, "ssm.group_count", s->n_delta_key);
    put_number(w, "ssm.state_size", s->d_delta);
    put_number(w, "ssm.inner_size", s->n_delta * s->d_delta);
    put_number(w, "full_attention_interval", 4);
}

enum { N_BYTE_TOKEN = 256, N_SPECIAL = 3, WORD_SIZE = 12 };

/* Names <unk> <s> </s>, the bytes, then words that are numbers spelled in letters after U+2581, so that text
 * can be tokenized. */
static void spell(uint32_t id, char word[WORD_SIZE])
{
    static const char *const special[N_SPECIAL] = {"<unk>", "<s>", "</s>"};
    if (id < N_SPECIAL) {
        snprintf(word, WORD_SIZE, "%s", special[id]);
    } else if (id < N_SPECIAL + N_BYTE_TOKEN) {
        snprintf(word, WORD_SIZE, "<0x%02X>", (unsigned)(id - N_SPECIAL));
    } else {
        size_t n = (size_t)snprintf(word, WORD_SIZE, "\xe2\x96\x81");
        for (uint32_t rest = id - N_SPECIAL - N_BYTE_TOKEN + 1; rest > 0; rest = (rest - 1) / 26)
            word[n++] = (char)('a' + (rest - 1) % 26);
        word[n] = '\0';
    }
}

static hearth_status put_vocabulary(work *w, hearth_error *err)
{
    uint32_t n = w->shape->n_vocab;
    hth_str *texts = hth_alloc(n, sizeof *texts);
    char(*words)[WORD_SIZE] = hth_alloc(n, sizeof *words);
    float *scores = hth_alloc(n, sizeof *scores);
    int32_t *types = hth_alloc(n, sizeof *types);
    bool ok = texts && words && scores && types;
    for (uint32_t i = 0; ok && i < n; i++) {
        spell(i, words[i]);
        texts[i] = (hth_str){words[i], strlen(words[i])};
        types[i] = i == 0 ? 2 : i < N_SPECIAL ? 3 : i < N_SPECIAL + N_BYTE_TOKEN ? 6 : 1;
        scores[i] = types[i] == 1 ? -(float)i : 0.0f;
    }
    if (ok) {
        hth_gguf_writer_text(w->out, "tokenizer.ggml.model", "llama", 5);
        hth_gguf_writer_texts(w->out, "tokenizer.ggml.tokens", texts, n);
        hth_gguf_writer_array(w->out, "tokenizer.ggml.scores", HTH_GGUF_F32, scores, n);
        hth_gguf_writer_array(w->out, "tokenizer.ggml.token_type", HTH_GGUF_I32, types, n);
        hth_gguf_writer_uint(w->out, "tokenizer.ggml.bos_token_id", HTH_GGUF_U32, 1);
        hth_gguf_writer_uint(w->out, "tokenizer.ggml.eos_token_id", HTH_GGUF_U32, 2);
    }
    hth_free(texts);
    hth_free(words);
    hth_free(scores);
    hth_free(types);
    return ok ? HEARTH_OK : hth_fail_memory(err, (uint64_t)n * 64, "a vocabulary");
}

static hearth_status put_metadata(work *w, hearth_error *err)
{
    const shape *s = w->shape;
    const hth_synth_options *o = w->options;
    char layers[40] = "", name[120];
    if (s->n_layer < w->n_layer_all) snprintf(layers, sizeof layers, " %u of %u layers,", s->n_layer, w->n_layer_all);
    int n = snprintf(name, sizeof name, "synthetic %s,%s random weights, seed %llu", s->name, layers,
                     (unsigned long long)o->seed);
    hth_gguf_writer_text(w->out, "general.architecture", s->arch, strlen(s->arch));
    hth_gguf_writer_text(w->out, "general.name", name, (size_t)n);
    hth_gguf_writer_uint(w->out, "general.file_type", HTH_GGUF_U32, o->ftype->file_type);
    hth_gguf_writer_uint(w->out, "general.quantization_version", HTH_GGUF_U32, 2);
    hth_gguf_writer_text(w->out, HTH_KEY_MADE_BY, "synth", 5);
    put_number(w, "vocab_size", s->n_vocab);
    put_number(w, "context_length", s->n_ctx);
    put_number(w, "embedding_length", s->d_model);
    put_number(w, "block_count", s->n_layer + o->mtp);
    if (o->mtp) put_number(w, "nextn_predict_layers", 1);
    put_number(w, "feed_forward_length", s->d_dense ? s->d_dense : s->d_beside ? s->d_beside : s->d_ff);
    put_number(w, "attention.head_count", s->n_head);
    if (s->d_head_window == 0) put_number(w, "attention.head_count_kv", s->n_kv);
    put_number(w, "attention.key_length", s->rank ? s->rank + s->d_rope : s->d_head);
    put_number(w, "attention.value_length", s->rank ? s->rank : s->d_head);
    put_number(w, "rope.dimension_count", s->d_rope ? s->d_rope : s->n_rot ? s->n_rot : s->d_head);
    put_float_key(w, "rope.freq_base", s->rope_base);
    put_float_key(w, "attention.layer_norm_rms_epsilon", 1e-5);
    if (s->n_expert > 0) {
        put_number(w, "expert_count", s->n_expert);
        put_number(w, "expert_used_count", s->n_used);
        put_number(w, "expert_feed_forward_length", s->d_ff);
    }
    if (s->d_shared > 0) put_number(w, "expert_shared_feed_forward_length", s->d_shared);
    if (s->window > 0) put_number(w, "attention.sliding_window", s->window);
    if (s->n_delta > 0) put_delta_net(w);
    if (s->d_head_window > 0) put_gemma(w);
    if (s->rank > 0) put_deepseek(w);
    if (strcmp(s->arch, "smallthinker") == 0) put_number(w, "expert_gating_func", HTH_SCORE_SIGMOID);
    if (o->packed) hth_gguf_writer_uint(w->out, "hearth.pack.version", HTH_GGUF_U32, 1);
    if (o->rank) hth_gguf_writer_text(w->out, "hearth.predictor.input", "normed", 6);
    if (o->activation)
        hth_gguf_writer_text(w->out, "hearth.ffn.activation", o->activation, strlen(o->activation));
    return put_vocabulary(w, err);
}

/* ---- entry points ---------------------------------------------------------------------------------- */

hearth_status hth_synth(const char *out_path, const hth_synth_options *options, uint64_t *size,
                        hearth_error *err)
{
    const shape *known = find_shape(options->shape);
    work w = {.options = options};
    hth_cpu level;
    *size = 0;
    if (!known)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "shape '%s' is not known; known: %s", options->shape,
                        hth_synth_shapes());
    if (options->n_layer > known->n_layer)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "shape %s has %u layers, not %u", options->shape, known->n_layer,
                        options->n_layer);
    shape first = *known;
    if (options->n_layer > 0) first.n_layer = options->n_layer;
    w.shape = &first, w.n_layer_all = known->n_layer;
    if (w.shape->n_expert > 0 && (options->packed || options->rank > 0))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "shape %s has experts: they are not packed, and have no predictors",
                        options->shape);
    if (options->mtp && !hth_arch_find((hth_str){w.shape->arch, strlen(w.shape->arch)})->predicts)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "shape %s: no block of %s predicts further tokens",
                        options->shape, w.shape->arch);
    if (options->rank % hth_type_find(HTH_TYPE_Q8_0)->n_weight)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "predictors of rank %u: expected a multiple of 32",
                        options->rank);
    hearth_status st = hth_cpu_choose(NULL, &level, err);
    if (st != HEARTH_OK) return st;
    hth_kernels_init(&w.k, level);
    w.model = (hth_ftype_model){.n_layer = w.shape->n_layer,
                              .n_gqa = w.shape->n_head / w.shape->n_kv,
                              .n_expert = w.shape->n_expert,
                              .tied = w.shape->tied,
                              .pure = options->pure};
    w.bytes = hth_alloc(1, PIECE_SIZE);
    if (!w.bytes) return hth_fail_memory(err, PIECE_SIZE, "a chunk of weights");
    if ((st = hth_pool_open(hth_pool_default_threads(options->n_thread), &w.pool, err)) != HEARTH_OK) goto done;
    if ((st = hth_gguf_writer_open(out_path, &w.out, err)) != HEARTH_OK) goto done;
    if ((st = put_metadata(&w, err)) != HEARTH_OK) goto done;
    if ((st = walk(&w, true, err)) != HEARTH_OK) goto done;
    if ((st = hth_gguf_writer_begin(w.out, err)) != HEARTH_OK) goto done;
    if ((st = walk(&w, false, err)) != HEARTH_OK) goto done;
    if ((st = hth_gguf_writer_finish(w.out, err)) == HEARTH_OK) *size = w.total;
done:
    if (w.out) hth_gguf_writer_close(w.out);
    hth_pool_close(w.pool);
    hth_free(w.bytes);
    return st;
}
