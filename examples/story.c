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
    if (!status)
        status = hearth_tokenize(s->model, prompt, strlen(prompt), HEARTH_ADD_SPECIAL, &s->prompt,
                                 &s->n_prompt, err);
    return status;
}

static void story_close(story *s)
{
    hearth_free(s->prompt);
    hearth_sampler_close(s->sampler);
    hearth_session_close(s->session);
    hearth_model_close(s->model);
}

/* Called by hearth_generate, for each token: characters are whole. */
static bool show(void *user, const hearth_generated *part)
{
    fwrite(part->text, 1, part->n, stdout);
    (void)user;
    return fflush(stdout) == 0; /* false, if no one reads it any more, ends the text */
}

static hearth_status story_tell(story *s, unsigned long n_token, hearth_error *err)
{
    hearth_generate_options options = hearth_generate_defaults();
    options.tokens = s->prompt;
    options.n_token = s->n_prompt;
    options.max_token = n_token;
    options.sampler = s->sampler;
    options.fn = show;
    hearth_status status = hearth_generate(s->session, &options, NULL, err);
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
    if (!status) fputs(argv[2], stdout);
    if (!status) status = story_tell(&s, strtoul(argv[3], NULL, 10), &err);
    if (status) fprintf(stderr, "story: %s\n", err.message);
    story_close(&s);
    return status ? 1 : 0;
}
