/* A story with libhearth: open a model, read a prompt, generate, print.
 *
 *     cc story.c $(pkg-config --cflags --libs hearth) -o story
 *     ./story model.gguf "Once upon a time" 100 7
 *
 * Writes what `hearth run model.gguf -p "Once upon a time" -n 100 --seed 7` writes. */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct story {
    hearth_model *model;
    hearth_session *session; /* KV cache and position */
    hearth_sampler *sampler;
    hearth_detokenizer *decoder;
    int32_t *prompt; /* n_prompt ids */
    size_t n_prompt;
} story;

static hearth_status story_open(story *s, const char *path, const char *prompt, uint64_t seed,
                                hearth_error *err)
{
    hearth_sampler_options sampling = hearth_sampler_defaults();
    sampling.temperature = 0.8f;
    sampling.top_k = 40;
    sampling.top_p = 0.95f;
    sampling.min_p = 0.05f;
    sampling.seed = seed;
    hearth_status status = hearth_model_open(path, NULL, &s->model, err);
    if (!status) status = hearth_session_open(s->model, NULL, &s->session, err);
    if (!status) status = hearth_sampler_open(s->model, &sampling, &s->sampler, err);
    if (!status) status = hearth_detokenizer_open(s->model, true, false, &s->decoder, err);
    if (!status)
        status = hearth_tokenize(s->model, prompt, strlen(prompt), HEARTH_ADD_SPECIAL, &s->prompt,
                                 &s->n_prompt, err);
    return status;
}

static void story_close(story *s)
{
    hearth_free(s->prompt);
    hearth_detokenizer_close(s->decoder);
    hearth_sampler_close(s->sampler);
    hearth_session_close(s->session);
    hearth_model_close(s->model);
}

/* Prints a token and tells the sampler of it. */
static hearth_status story_show(story *s, int32_t id, hearth_error *err)
{
    const char *text;
    size_t n;
    hearth_sampler_accept(s->sampler, id);
    hearth_status status = hearth_detokenizer_push(s->decoder, id, &text, &n, err);
    if (!status) fwrite(text, 1, n, stdout);
    return status;
}

static hearth_status story_tell(story *s, unsigned long n_token, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < s->n_prompt && !status; i++) status = story_show(s, s->prompt[i], err);
    if (!status) status = hearth_session_eval(s->session, s->prompt, s->n_prompt, err);
    while (!status && n_token-- > 0) {
        int32_t id;
        status = hearth_sampler_sample(s->sampler, hearth_session_logits(s->session), &id, err);
        if (!status && hearth_token_is_eog(s->model, id)) break;
        if (!status) status = story_show(s, id, err);
        if (!status) status = hearth_session_eval(s->session, &id, 1, err);
    }
    const char *rest; /* of a character that the last token left incomplete */
    size_t n;
    hearth_detokenizer_flush(s->decoder, &rest, &n);
    fwrite(rest, 1, n, stdout);
    putchar('\n');
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: story MODEL PROMPT N_TOKEN SEED\n", stderr);
        return 2;
    }
    story s;
    memset(&s, 0, sizeof s);
    hearth_error err;
    hearth_status status = story_open(&s, argv[1], argv[2], strtoull(argv[4], NULL, 10), &err);
    if (!status) status = story_tell(&s, strtoul(argv[3], NULL, 10), &err);
    if (status) fprintf(stderr, "story: %s\n", err.message);
    story_close(&s);
    return status ? 1 : 0;
}
