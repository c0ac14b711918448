/* Several texts at once: a batch evaluates one token of each session per run, so that the weights are read once for all.
 *
 *     cc batch.c $(pkg-config --cflags --libs hearth) -o batch
 *     ./batch model.gguf 30 "Once upon a time" "The dog" "A girl named Lily"
 *
 * Writes each prompt with up to 30 tokens behind it, the most likely ones. A text has the bits that it has alone. */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    hearth_session *session;
    hearth_detokenizer *decoder;
    int32_t *prompt;
    size_t n_prompt;
    int32_t id; /* the next token */
    bool has_ended;
    char *written; /* n_written bytes */
    size_t n_written;
} text;

static hearth_status text_open(text *t, const hearth_model *model, const char *prompt, hearth_error *err)
{
    hearth_session_options options = hearth_session_defaults();
    options.n_batch =
        HEARTH_BATCH_NONE; /* it is evaluated in batches only, and needs no memory for its own steps */
    hearth_status status = hearth_session_open(model, &options, &t->session, err);
    if (!status) status = hearth_detokenizer_open(model, true, false, &t->decoder, err);
    if (!status)
        status =
            hearth_tokenize(model, prompt, strlen(prompt), HEARTH_ADD_SPECIAL, &t->prompt, &t->n_prompt, err);
    return status;
}

static void text_close(text *t)
{
    hearth_detokenizer_close(t->decoder);
    hearth_session_close(t->session);
    hearth_free(t->prompt);
    free(t->written);
}

/* Texts grow side by side: each keeps what it has. */
static hearth_status text_write(text *t, int32_t id, hearth_error *err)
{
    const char *piece;
    size_t n;
    hearth_status status = hearth_detokenizer_push(t->decoder, id, &piece, &n, err);
    if (status) return status;
    char *grown = (char *)realloc(t->written, t->n_written + n + 1);
    if (!grown) {
        err->status = HEARTH_ERROR_MEMORY;
        strcpy(err->message, "no memory for a text");
        return HEARTH_ERROR_MEMORY;
    }
    memcpy(grown + t->n_written, piece, n);
    t->written = grown;
    t->n_written += n;
    return HEARTH_OK;
}

/* The prompts, each in one piece: n_tok of the batch is the number of their tokens. */
static hearth_status read_prompts(text *texts, size_t n_text, hearth_batch *batch, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < n_text && !status; i++) {
        text *t = &texts[i];
        for (size_t k = 0; k < t->n_prompt && !status; k++) status = text_write(t, t->prompt[k], err);
        if (!status) status = hearth_batch_add(batch, t->session, t->prompt, t->n_prompt, err);
    }
    return status ? status : hearth_batch_run(batch, err);
}

/* One token more of each text that goes on; *n_running: how many do. */
static hearth_status step(text *texts, size_t n_text, const hearth_model *model, hearth_batch *batch,
                          hearth_sampler *sampler, size_t *n_running, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    *n_running = 0;
    for (size_t i = 0; i < n_text && !status; i++) {
        text *t = &texts[i];
        if (t->has_ended) continue;
        status = hearth_sampler_sample(sampler, hearth_session_logits(t->session), &t->id, err);
        if (status) break;
        t->has_ended = hearth_token_is_eog(model, t->id);
        if (t->has_ended) continue;
        status = text_write(t, t->id, err);
        if (!status) status = hearth_batch_add(batch, t->session, &t->id, 1, err);
        ++*n_running;
    }
    return status || !*n_running ? status : hearth_batch_run(batch, err);
}

static hearth_status run(const char *path, unsigned long n_token, char **prompts, text *texts, size_t n_text,
                         hearth_error *err)
{
    hearth_model *model = NULL;
    hearth_batch *batch = NULL;
    hearth_sampler *sampler = NULL; /* without options it has no memory of a text: one is enough for all */
    size_t n_prompt = 0, n_running = n_text;
    hearth_status status = hearth_model_open(path, NULL, &model, err);
    for (size_t i = 0; i < n_text && !status; i++) {
        status = text_open(&texts[i], model, prompts[i], err);
        n_prompt += texts[i].n_prompt;
    }
    if (!status) status = hearth_sampler_open(model, NULL, &sampler, err);
    if (!status) status = hearth_batch_open(model, (uint32_t)n_prompt, 0, &batch, err);
    if (!status) status = read_prompts(texts, n_text, batch, err);
    while (!status && n_running && n_token-- > 0)
        status = step(texts, n_text, model, batch, sampler, &n_running, err);
    hearth_batch_close(batch);
    hearth_sampler_close(sampler);
    hearth_model_close(model); /* the sessions still use it, and keep it */
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: batch MODEL N_TOKEN PROMPT...\n", stderr);
        return 2;
    }
    size_t n_text = (size_t)argc - 3;
    text *texts = (text *)calloc(n_text, sizeof *texts);
    if (!texts) return 1;
    hearth_error err;
    hearth_status status = run(argv[1], strtoul(argv[2], NULL, 10), argv + 3, texts, n_text, &err);
    if (status) fprintf(stderr, "batch: %s\n", err.message);
    for (size_t i = 0; i < n_text; i++) {
        if (!status) printf("%.*s\n", (int)texts[i].n_written, texts[i].written ? texts[i].written : "");
        text_close(&texts[i]);
    }
    free(texts);
    return status ? 1 : 0;
}
