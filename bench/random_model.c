/* random_model TYPE OUT: a GGUF of the llama-1b shape with random weights, every
 * matrix in the same type, for speed measurements beside other engines. Weights
 * are synthetic: the text of such a model is noise. */
#include "base/bits.h"
#include "file/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_LAYER = 16, D_MODEL = 2048, D_FF = 8192, N_HEAD = 32, N_HEAD_KV = 8, D_HEAD = 64, N_VOCAB = 32000 };

static uint64_t state = 20260101;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Where a block has its scale and its minimum (0: none), and what makes weights of rms 0.02. */
static const struct {
    hth_type type;
    size_t scale_at, minimum_at;
    float scale, minimum;
} scales[] = {
    {HTH_TYPE_Q8_0, 0, 0, 2.7e-4f, 0},       {HTH_TYPE_Q4_0, 0, 0, 4.3e-3f, 0},
    {HTH_TYPE_Q4_1, 0, 2, 4.3e-3f, -0.032f}, {HTH_TYPE_Q5_0, 0, 0, 2.2e-3f, 0},
    {HTH_TYPE_Q5_1, 0, 2, 2.2e-3f, -0.034f}, {HTH_TYPE_Q2_K, 80, 82, 2e-3f, 3e-3f},
    {HTH_TYPE_Q3_K, 108, 0, 4.8e-4f, 0},     {HTH_TYPE_Q4_K, 0, 2, 1e-4f, 7.5e-4f},
    {HTH_TYPE_Q5_K, 0, 2, 5e-5f, 7.7e-4f},   {HTH_TYPE_Q6_K, 208, 0, 1.5e-5f, 0},
    {HTH_TYPE_IQ4_NL, 0, 0, 2.9e-4f, 0},     {HTH_TYPE_IQ4_XS, 0, 0, 1.6e-5f, 0},
};

static void set_scales(hth_type type, size_t n_col, uint8_t *row)
{
    const hth_type_info *info = hth_type_find(type);
    for (uint8_t *block = row; block < row + hth_type_row_size(type, n_col); block += info->size) {
        if (type == HTH_TYPE_MXFP4) *block = 120; /* 2^(120 - 127) */
        for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
            if (scales[i].type != type) continue;
            hth_store_u16(block + scales[i].scale_at, hth_f32_to_f16(scales[i].scale));
            if (scales[i].minimum_at)
                hth_store_u16(block + scales[i].minimum_at, hth_f32_to_f16(scales[i].minimum));
        }
    }
}

/* One row of weights of about the size that training leaves (rms 0.02). */
static void random_row(hth_type type, size_t n_col, uint8_t *row)
{
    size_t size = hth_type_row_size(type, n_col);
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t r = next_random();
        memcpy(row + i, &r, 8);
    }
    for (size_t i = 0; i < n_col; i++) {
        if (type == HTH_TYPE_F32) hth_store_f32(row + 4 * i, (float)(int16_t)next_random() * 1e-6f);
        if (type == HTH_TYPE_F16)
            hth_store_u16(row + 2 * i, hth_f32_to_f16((float)(int16_t)next_random() * 1e-6f));
        if (type == HTH_TYPE_BF16)
            hth_store_u16(row + 2 * i, hth_f32_to_bf16((float)(int16_t)next_random() * 1e-6f));
    }
    if (hth_type_find(type)->quantised) set_scales(type, n_col, row);
}

typedef struct tensor {
    char name[64];
    hth_type type;
    uint64_t dim[2];
    uint32_t n_dim;
} tensor;

static size_t add(tensor *t, size_t n, const char *name, hth_type type, uint64_t n_col, uint64_t n_row)
{
    snprintf(t[n].name, sizeof t[n].name, "%s", name);
    t[n].type = type;
    t[n].dim[0] = n_col, t[n].dim[1] = n_row;
    t[n].n_dim = n_row > 0 ? 2 : 1;
    return n + 1;
}

static size_t add_layer(tensor *t, size_t n, int i, hth_type type)
{
    static const struct {
        const char *name;
        uint64_t n_col, n_row;
    } parts[] = {{"attn_norm", D_MODEL, 0},
                 {"attn_q", D_MODEL, N_HEAD * D_HEAD},
                 {"attn_k", D_MODEL, N_HEAD_KV * D_HEAD},
                 {"attn_v", D_MODEL, N_HEAD_KV * D_HEAD},
                 {"attn_output", N_HEAD * D_HEAD, D_MODEL},
                 {"ffn_norm", D_MODEL, 0},
                 {"ffn_gate", D_MODEL, D_FF},
                 {"ffn_up", D_MODEL, D_FF},
                 {"ffn_down", D_FF, D_MODEL}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, parts[k].name);
        n = add(t, n, name, parts[k].n_row ? type : HTH_TYPE_F32, parts[k].n_col, parts[k].n_row);
    }
    return n;
}

static void write_metadata(hth_gguf_writer *w)
{
    static const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {{"llama.block_count", N_LAYER},         {"llama.context_length", 4096},
                   {"llama.embedding_length", D_MODEL},    {"llama.feed_forward_length", D_FF},
                   {"llama.attention.head_count", N_HEAD}, {"llama.attention.head_count_kv", N_HEAD_KV},
                   {"llama.vocab_size", N_VOCAB}};
    hth_gguf_writer_text(w, "general.architecture", "llama", 5);
    hth_gguf_writer_text(w, "general.name", "synthetic llama-1b", 18);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hth_gguf_writer_uint(w, numbers[i].key, HTH_GGUF_U32, numbers[i].value);
    hth_gguf_writer_float(w, "llama.attention.layer_norm_rms_epsilon", HTH_GGUF_F32, 1e-5);
    hth_gguf_writer_text(w, "tokenizer.ggml.model", "no_vocab", 8);
}

static hearth_status write_tensor(hth_gguf_writer *w, const tensor *t, hearth_error *err)
{
    static uint8_t row[4 * D_FF];
    hearth_status st = HEARTH_OK;
    if (t->n_dim == 1) {
        for (size_t i = 0; i < t->dim[0]; i++) hth_store_f32(row + 4 * i, 1.0f);
        return hth_gguf_writer_data(w, row, 4 * t->dim[0], err);
    }
    for (uint64_t r = 0; st == HEARTH_OK && r < t->dim[1]; r++) {
        random_row(t->type, t->dim[0], row);
        st = hth_gguf_writer_data(w, row, hth_type_row_size(t->type, t->dim[0]), err);
    }
    return st;
}

int main(int argc, char **argv)
{
    static tensor tensors[N_LAYER * 9 + 3];
    hearth_error err;
    hth_type type;
    hth_gguf_writer *w;
    if (argc != 3 || !hth_type_by_name(argv[1], &type) || !hth_type_find(type)->supported) {
        fprintf(stderr, "usage: random_model TYPE OUT.gguf (any type that hearth computes with)\n");
        return 2;
    }
    size_t n = add(tensors, 0, "token_embd.weight", type, D_MODEL, N_VOCAB);
    for (int i = 0; i < N_LAYER; i++) n = add_layer(tensors, n, i, type);
    n = add(tensors, n, "output_norm.weight", HTH_TYPE_F32, D_MODEL, 0);
    n = add(tensors, n, "output.weight", type, D_MODEL, N_VOCAB);
    hearth_status st = hth_gguf_writer_open(argv[2], &w, &err);
    if (st == HEARTH_OK) {
        write_metadata(w);
        for (size_t i = 0; i < n; i++)
            hth_gguf_writer_tensor(w, tensors[i].name, tensors[i].type, tensors[i].n_dim, tensors[i].dim);
        st = hth_gguf_writer_begin(w, &err);
        for (size_t i = 0; st == HEARTH_OK && i < n; i++) st = write_tensor(w, &tensors[i], &err);
        if (st == HEARTH_OK) st = hth_gguf_writer_finish(w, &err);
        hth_gguf_writer_close(w);
    }
    if (st == HEARTH_OK) return 0;
    fprintf(stderr, "random_model: %s\n", err.message);
    return 1;
}
