/* What llama.cpp answers, for tests/peers/peers.py. Linked with its library.
 *
 *     llama logits MODEL IDS OUT whole|single     float32 logits of every position
 *     llama rank MODEL IDS OUT                    float32 classes of a reranker for the first 1, 2, ... ids, each a text
 *     llama chat FORMAT 0|1 [ROLE TEXT]...        a conversation in one of its built-in formats
 *     llama blocks TYPE OUT                       hashes of the floats of blocks: tests/kernels/test_codec.c
 *     llama samplers VOCAB CASES OUT              what its samplers leave: tests/peers/samplers.py
 *
 * IDS holds decimal numbers. whole: one batch of all ids; single: one id at a time. What these
 * two differ by is what its own arithmetic leaves open. Everything is computed in float32. */
#include "llama.h"
#include "sampler_case.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ID = 4096, MAX_MESSAGE = 64, N_BLOCK = 32, N_RUN = 64, RUN_BLOCKS = 64, MAX_BLOCK = 256 };

static int fail(const char *what)
{
    fprintf(stderr, "llama: %s\n", what);
    return 1;
}

static void say_errors(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static int read_ids(const char *path, llama_token *ids)
{
    FILE *f = fopen(path, "r");
    int n = 0;
    if (!f) return 0;
    while (n < MAX_ID && fscanf(f, "%d", &ids[n]) == 1) n++;
    fclose(f);
    return n;
}

/* Computes n ids from position `from` on and writes their logits. */
static bool run_batch(struct llama_context *context, int n_vocab, const llama_token *ids, int from, int n,
                      FILE *out)
{
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = ids[from + i];
        batch.pos[i] = from + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = true;
    }
    bool ok = llama_decode(context, batch) == 0;
    for (int i = 0; i < n && ok; i++)
        ok = fwrite(llama_get_logits_ith(context, i), sizeof(float), (size_t)n_vocab, out) == (size_t)n_vocab;
    llama_batch_free(batch);
    return ok;
}

static struct llama_context_params params_for(int n)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = (uint32_t)(n < 256 ? 256 : n);
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return params;
}

static int logits(const char *path, const char *ids_path, const char *out_path, bool whole)
{
    static llama_token ids[MAX_ID];
    int n = read_ids(ids_path, ids);
    if (n == 0) return fail("no ids");
    struct llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model) return fail("the model is not loaded");
    struct llama_context *context = llama_init_from_model(model, params_for(n));
    FILE *out = fopen(out_path, "wb");
    if (!context || !out) return fail("no context or no file");
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)), step = whole ? n : 1;
    bool ok = true;
    for (int at = 0; at < n && ok; at += step) ok = run_batch(context, n_vocab, ids, at, step, out);
    ok = fclose(out) == 0 && ok;
    llama_free(context);
    llama_model_free(model);
    return ok ? 0 : fail("the batch is not computed");
}

static int rank(const char *path, const char *ids_path, const char *out_path)
{
    static llama_token ids[MAX_ID];
    int n = read_ids(ids_path, ids);
    struct llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    if (n == 0 || !model) return fail("no ids, or the model is not loaded");
    struct llama_context_params params = params_for(n);
    params.embeddings = true;
    params.pooling_type = LLAMA_POOLING_TYPE_RANK;
    struct llama_context *context = llama_init_from_model(model, params);
    FILE *out = fopen(out_path, "wb");
    if (!context || !out) return fail("no context or no file");
    size_t n_class = llama_model_n_cls_out(model);
    bool ok = true;
    for (int k = 1; k <= n && ok; k++) {
        llama_memory_clear(llama_get_memory(context), true);
        ok = llama_decode(context, llama_batch_get_one(ids, k)) == 0 &&
             fwrite(llama_get_embeddings_seq(context, 0), sizeof(float), n_class, out) == n_class;
    }
    ok = fclose(out) == 0 && ok;
    llama_free(context);
    llama_model_free(model);
    return ok ? 0 : fail("a batch is not computed");
}

static int chat(const char *format, bool asks, int n_text, char **texts)
{
    static char out[1 << 20];
    struct llama_chat_message messages[MAX_MESSAGE];
    if (n_text / 2 > MAX_MESSAGE) return fail("too many messages");
    for (int i = 0; i < n_text / 2; i++) messages[i] = (struct llama_chat_message){texts[2 * i], texts[2 * i + 1]};
    int n = llama_chat_apply_template(format, messages, (size_t)(n_text / 2), asks, out, sizeof out);
    if (n < 0 || n > (int)sizeof out) return fail("the format is not known");
    return fwrite(out, 1, (size_t)n, stdout) == (size_t)n ? 0 : 1;
}

/* ---- blocks --------------------------------------------------------------------------------------- */

/* Vigna's SplitMix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* FNV-1a of floats, begun with `hash`; unchanged if one of them is not finite. */
static uint64_t hash_floats(uint64_t hash, const float *x, int64_t n)
{
    uint64_t h = hash;
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] - x[i] == 0.0f)) return hash;
    for (size_t i = 0; i < (size_t)n * sizeof *x; i++) h = (h ^ ((const unsigned char *)x)[i]) * 0x100000001b3u;
    return h;
}

/* Blocks of random rows, quantised with random importances. */
static bool write_quantised(FILE *f, enum ggml_type type)
{
    static unsigned char blocks[N_BLOCK * MAX_BLOCK];
    static float x[N_BLOCK * MAX_BLOCK], importance[MAX_BLOCK];
    uint64_t state = type, hashes[N_BLOCK];
    int64_t per_block = ggml_blck_size(type);
    for (int64_t i = 0; i < per_block; i++) importance[i] = 0.5f + (float)(next_random(&state) >> 40) * 0x1p-24f;
    for (int64_t i = 0; i < N_BLOCK * per_block; i++) {
        x[i] = 0.0f;
        for (int k = 0; k < 6; k++) x[i] += (float)(next_random(&state) >> 40) * 0x1p-24f - 0.5f;
    }
    size_t size = ggml_quantize_chunk(type, x, blocks, 0, N_BLOCK, per_block, importance);
    ggml_get_type_traits(type)->to_float(blocks, x, N_BLOCK * per_block);
    for (int i = 0; i < N_BLOCK; i++) hashes[i] = hash_floats(0xcbf29ce484222325u, x + i * per_block, per_block);
    return size == N_BLOCK * ggml_type_size(type) && fwrite(blocks, 1, size, f) == size &&
           fwrite(hashes, sizeof hashes, 1, f) == 1;
}

/* Blocks of random bytes, which are not written. */
static bool write_runs(FILE *f, enum ggml_type type)
{
    uint64_t state = type, hashes[N_RUN], block[MAX_BLOCK / 8];
    float x[MAX_BLOCK];
    for (int run = 0; run < N_RUN; run++) {
        hashes[run] = 0xcbf29ce484222325u;
        for (int i = 0; i < RUN_BLOCKS; i++) {
            for (size_t k = 0; k < MAX_BLOCK / 8; k++) block[k] = next_random(&state);
            ggml_get_type_traits(type)->to_float(block, x, ggml_blck_size(type));
            hashes[run] = hash_floats(hashes[run], x, ggml_blck_size(type));
        }
    }
    return fwrite(hashes, sizeof hashes, 1, f) == 1;
}

static int blocks(const char *name, const char *path)
{
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        const char *known = ggml_type_name((enum ggml_type)type);
        if (!known || strcmp(known, name) != 0) continue;
        FILE *f = fopen(path, "wb");
        uint32_t head[] = {(uint32_t)type, N_BLOCK, N_RUN, RUN_BLOCKS};
        bool ok = f && fwrite("HHSH", 1, 4, f) == 4 && fwrite(head, sizeof head, 1, f) == 1 &&
                  write_quantised(f, (enum ggml_type)type) && write_runs(f, (enum ggml_type)type);
        ok = f && fclose(f) == 0 && ok;
        return ok ? 0 : fail("the blocks are not written");
    }
    return fail("the type is not known");
}

/* ---- samplers ------------------------------------------------------------------------------------- */

static void add(struct llama_sampler *chain, struct llama_sampler *one) { llama_sampler_chain_add(chain, one); }

/* The order is that of common_sampler_init by default. */
static struct llama_sampler *make_chain(const struct llama_vocab *vocab, const sampler_case *c)
{
    static const char *breakers[] = {"\n", ":", "\"", "*"};
    enum { M = 100 };
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (c->mirostat > 0) {
        add(chain, llama_sampler_init_temp(c->temperature));
        add(chain, c->mirostat == 1 ? llama_sampler_init_mirostat(c->n_vocab, 1, c->mirostat_tau, c->mirostat_eta, M)
                                    : llama_sampler_init_mirostat_v2(1, c->mirostat_tau, c->mirostat_eta));
        return chain;
    }
    add(chain, llama_sampler_init_penalties(c->n_vocab, c->repeat_last_n, c->repeat_penalty, c->frequency_penalty,
                                            c->presence_penalty));
    add(chain, llama_sampler_init_dry(vocab, c->dry_multiplier, c->dry_base, c->dry_allowed_length, c->dry_last_n, breakers,
                                      c->has_breakers ? sizeof breakers / sizeof *breakers : 0));
    add(chain, llama_sampler_init_top_n_sigma(c->top_n_sigma));
    add(chain, llama_sampler_init_top_k(c->top_k));
    add(chain, llama_sampler_init_typical(c->typical_p, 1));
    add(chain, llama_sampler_init_top_p(c->top_p, 1));
    add(chain, llama_sampler_init_min_p(c->min_p, 1));
    add(chain, llama_sampler_init_xtc(c->xtc_probability, c->xtc_threshold, 1, 1));
    add(chain, llama_sampler_init_temp_ext(c->temperature, c->dynatemp_range, c->dynatemp_exponent));
    add(chain, llama_sampler_init_dist(1));
    return chain;
}

/* The distribution of a step, and the token that is drawn of it. */
static bool answer_step(struct llama_sampler *chain, const float *logits, int n_vocab, FILE *out)
{
    static llama_token_data data[MAX_VOCAB];
    static int32_t ids[MAX_VOCAB];
    static float p[MAX_VOCAB];
    for (int i = 0; i < n_vocab; i++) data[i] = (llama_token_data){i, logits[i], 0.0f};
    struct llama_token_data_array all = {data, (size_t)n_vocab, -1, false};
    llama_sampler_apply(chain, &all);
    if (all.selected < 0 || (size_t)all.selected >= all.size) return false;
    for (size_t i = 0; i < all.size; i++) ids[i] = all.data[i].id, p[i] = all.data[i].p;
    llama_sampler_accept(chain, ids[all.selected]);
    return write_answer(out, (const int32_t[]){(int32_t)all.size, (int32_t)all.selected}, ids, p);
}

static int samplers(const char *vocab_path, const char *path, const char *out_path)
{
    static float logits[MAX_VOCAB];
    static int32_t history[MAX_HISTORY];
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(vocab_path, params);
    FILE *in = fopen(path, "rb"), *out = fopen(out_path, "wb");
    sampler_case c;
    bool ok = model && in && out;
    while (ok && read_case(in, &c, history)) {
        struct llama_sampler *chain = make_chain(llama_model_get_vocab(model), &c);
        for (int i = 0; i < c.n_history; i++) llama_sampler_accept(chain, history[i]);
        for (int i = 0; i < c.n_step && ok; i++)
            ok = read_numbers(in, logits, c.n_vocab) && answer_step(chain, logits, c.n_vocab, out);
        llama_sampler_free(chain);
    }
    ok = ok && feof(in) && fclose(out) == 0;
    return ok ? 0 : fail("the samplers give no answer");
}

int main(int argc, char **argv)
{
    llama_log_set(say_errors, NULL);
    if (argc == 6 && strcmp(argv[1], "logits") == 0) {
        llama_backend_init();
        return logits(argv[2], argv[3], argv[4], strcmp(argv[5], "whole") == 0);
    }
    if (argc >= 4 && strcmp(argv[1], "chat") == 0) return chat(argv[2], argv[3][0] == '1', argc - 4, argv + 4);
    if (argc == 4 && strcmp(argv[1], "blocks") == 0) return blocks(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "rank") == 0) {
        llama_backend_init();
        return rank(argv[2], argv[3], argv[4]);
    }
    if (argc == 5 && strcmp(argv[1], "samplers") == 0) return samplers(argv[2], argv[3], argv[4]);
    return fail("logits MODEL IDS OUT whole|single, rank MODEL IDS OUT, chat FORMAT 0|1 [ROLE TEXT]..., blocks TYPE OUT, or "
                "samplers VOCAB CASES OUT");
}
