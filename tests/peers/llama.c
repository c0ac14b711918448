/* What llama.cpp answers, for tests/peers/peers.py. Linked with its library.
 *
 *     llama logits MODEL IDS OUT whole|single     float32 logits of every position
 *     llama chat FORMAT 0|1 [ROLE TEXT]...        a conversation in one of its built-in formats
 *
 * IDS holds decimal numbers. whole: one batch of all ids; single: one id at a time. What these
 * two differ by is what its own arithmetic leaves open. Everything is computed in float32. */
#include "llama.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ID = 4096, MAX_MESSAGE = 64 };

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

static int logits(const char *path, const char *ids_path, const char *out_path, bool whole)
{
    static llama_token ids[MAX_ID];
    int n = read_ids(ids_path, ids);
    if (n == 0) return fail("no ids");
    struct llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model) return fail("the model is not loaded");
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = (uint32_t)(n < 256 ? 256 : n);
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = llama_init_from_model(model, params);
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

int main(int argc, char **argv)
{
    llama_log_set(say_errors, NULL);
    if (argc == 6 && strcmp(argv[1], "logits") == 0) {
        llama_backend_init();
        return logits(argv[2], argv[3], argv[4], strcmp(argv[5], "whole") == 0);
    }
    if (argc >= 4 && strcmp(argv[1], "chat") == 0) return chat(argv[2], argv[3][0] == '1', argc - 4, argv + 4);
    return fail("logits MODEL IDS OUT whole|single, or chat FORMAT 0|1 [ROLE TEXT]...");
}
