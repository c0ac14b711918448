/* Draws texts of JSON schemas at temperature 2 from the embedded model, for test_walks.py:
 *
 *     constraint_walk MODEL SCHEMAS.jsonl N_SEED N_TOKEN
 *
 * prints for each schema and seed: the number of its line from 0, "complete" or "cut", the text as hexadecimal. */
#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct walk {
    hearth_model *model;
    hearth_session *session;
    float *logits;
    size_t n_vocab;
    uint32_t n_prompt, n_token;
    hearth_error err;
} walk;

static void fail(const walk *w, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, w->err.message);
    exit(1);
}

static void print_bytes(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%02x", (unsigned char)bytes[i]);
}

static void draw(walk *w, const hearth_constraint *from, int i_schema, uint64_t seed)
{
    hearth_sampler_options o = {
        .temperature = 2.0f, .typical_p = 1.0f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = seed};
    hearth_sampler *sampler;
    hearth_detokenizer *decoder;
    hearth_constraint *c;
    const char *bytes;
    size_t n;
    if (hearth_sampler_open(w->model, &o, &sampler, &w->err) || hearth_constraint_copy(from, &c, &w->err) ||
        hearth_detokenizer_open(w->model, false, false, &decoder, &w->err))
        fail(w, "opening");
    if (hearth_session_truncate(w->session, w->n_prompt - 1, &w->err)) fail(w, "truncate");
    int32_t id = hearth_token_bos(w->model);
    if (hearth_session_eval(w->session, &id, 1, &w->err)) fail(w, "eval");
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bool ends = false;
    for (uint32_t i = 0; i < w->n_token && !ends; i++) {
        memcpy(w->logits, hearth_session_logits(w->session), w->n_vocab * sizeof *w->logits);
        if (hearth_constraint_mask(c, w->logits, &w->err)) fail(w, "mask");
        if (hearth_sampler_sample(sampler, w->logits, &id, &w->err)) fail(w, "sample");
        if (hearth_constraint_accept(c, id, &w->err)) fail(w, "accept");
        if (hearth_detokenizer_push(decoder, id, &bytes, &n, &w->err)) fail(w, "push");
        fwrite(bytes, 1, n, out);
        ends = hearth_token_is_eog(w->model, id) || hearth_constraint_get_end(c) == HEARTH_CONSTRAINT_COMPLETE;
        if (!ends && hearth_session_eval(w->session, &id, 1, &w->err)) fail(w, "eval");
    }
    hearth_detokenizer_flush(decoder, &bytes, &n);
    fwrite(bytes, 1, n, out);
    fclose(out);
    printf("%d %s ", i_schema, ends ? "complete" : "cut");
    print_bytes(text, size);
    printf("\n");
    free(text);
    hearth_constraint_close(c);
    hearth_detokenizer_close(decoder);
    hearth_sampler_close(sampler);
}

int main(int argc, char **argv)
{
    walk w = {.n_prompt = 1};
    hearth_session_options so = hearth_session_defaults();
    hearth_model_info info = {0};
    if (argc != 5) return 2;
    w.n_token = (uint32_t)atoi(argv[4]);
    so.n_ctx = w.n_token + 8;
    so.n_thread = 1;
    if (hearth_model_open(argv[1], NULL, &w.model, &w.err) ||
        hearth_session_open(w.model, &so, &w.session, &w.err))
        fail(&w, argv[1]);
    hearth_model_get_info(w.model, &info);
    w.n_vocab = info.n_vocab;
    w.logits = malloc(w.n_vocab * sizeof *w.logits);
    int32_t bos = hearth_token_bos(w.model);
    if (!w.logits || hearth_session_eval(w.session, &bos, 1, &w.err)) fail(&w, "prompt");
    FILE *f = fopen(argv[2], "r");
    char *line = NULL;
    size_t capacity = 0;
    if (!f) return 1;
    for (int i = 0; getline(&line, &capacity, f) > 0; i++) {
        hearth_constraint_options o = {
            .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = line, .n = strlen(line)};
        hearth_constraint *c;
        if (hearth_constraint_open(w.model, &o, &c, &w.err)) fail(&w, line);
        for (uint64_t seed = 0; seed < (uint64_t)atoi(argv[3]); seed++) draw(&w, c, i, seed);
        hearth_constraint_close(c);
    }
    free(line);
    fclose(f);
    free(w.logits);
    hearth_session_close(w.session);
    hearth_model_close(w.model);
    return 0;
}
