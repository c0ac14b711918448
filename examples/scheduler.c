/* Requests of several users: a scheduler divides its steps among them, shares the cache of prompts that begin alike, and
 * tells each of them what happens. `hearth serve` works like this.
 *
 *     cc scheduler.c $(pkg-config --cflags --libs hearth) -o scheduler
 *     ./scheduler model.gguf 30 7 "Once upon a time" "The dog" "A girl named Lily"
 *
 * Writes each prompt with up to 30 tokens behind it, drawn with seed 7, in the order in which the requests end. A text
 * has the bits that it has alone. */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct user {
    const char *prompt;
    char text[4096]; /* what the user gets; a request that does not fit into it is stopped */
    size_t n;
    bool has_failed;
} user;

static bool append(user *u, const char *text, size_t n)
{
    if (n > sizeof u->text - u->n) return false;
    memcpy(u->text + u->n, text, n);
    u->n += n;
    return true;
}

/* Called by hearth_scheduler_step, for each token and at the end. */
static bool on_event(void *pointer, const hearth_request_event *event)
{
    user *u = (user *)pointer;
    switch (event->state) {
    case HEARTH_REQUEST_TOKEN: return append(u, event->text, event->n_text);
    case HEARTH_REQUEST_FAILED:
        u->has_failed = true;
        fprintf(stderr, "scheduler: \"%s\": %s\n", u->prompt, event->error->message);
        break;
    default: /* END, LENGTH, STOPPED, STOP_TEXT, CANCELLED */
        append(u, event->text, event->n_text);
        printf("%s%.*s\n", u->prompt, (int)u->n, u->text);
        fflush(stdout); /* a user who is ready does not wait for the others */
    }
    return false; /* counts for TOKEN only */
}

static hearth_status add(hearth_scheduler *scheduler, const hearth_model *model, user *u, uint32_t n_token,
                         uint64_t seed, hearth_error *err)
{
    hearth_sampler_options sampling = hearth_sampler_defaults();
    sampling.temperature = 0.8f;
    sampling.top_k = 40;
    sampling.top_p = 0.95f;
    sampling.seed = seed;
    int32_t *ids = NULL;
    size_t n;
    uint64_t id;
    hearth_status status = hearth_tokenize(model, u->prompt, strlen(u->prompt), HEARTH_ADD_SPECIAL, &ids, &n, err);
    if (!status) {
        hearth_request request = hearth_request_defaults();
        request.tokens = ids; /* is copied, as is sampling */
        request.n_token = n;
        request.max_token = n_token;
        request.sampler = &sampling;
        request.with_text = true;
        request.fn = on_event;
        request.user = u;
        status = hearth_scheduler_add(scheduler, &request, &id, err);
    }
    hearth_free(ids);
    return status;
}

static hearth_status run(const char *path, user *users, size_t n_user, uint32_t n_token, uint64_t seed,
                         hearth_error *err)
{
    hearth_model *model = NULL;
    hearth_scheduler *scheduler = NULL;
    hearth_status status = hearth_model_open(path, NULL, &model, err);
    if (!status) status = hearth_scheduler_open(model, NULL, &scheduler, err);
    for (size_t i = 0; i < n_user && !status; i++)
        status = add(scheduler, model, &users[i], n_token, seed, err);
    bool more = true;
    while (!status && more) /* a server adds requests here that have come meanwhile */
        status = hearth_scheduler_step(scheduler, &more, err);
    hearth_scheduler_close(scheduler);
    hearth_model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fputs("usage: scheduler MODEL N_TOKEN SEED PROMPT...\n", stderr);
        return 2;
    }
    size_t n_user = (size_t)argc - 4;
    user *users = (user *)calloc(n_user, sizeof *users);
    if (!users) return 1;
    for (size_t i = 0; i < n_user; i++) users[i].prompt = argv[4 + i];
    hearth_error err;
    hearth_status status =
        run(argv[1], users, n_user, (uint32_t)strtoul(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), &err);
    if (status) fprintf(stderr, "scheduler: %s\n", err.message);
    bool is_well = !status;
    for (size_t i = 0; i < n_user; i++) is_well = is_well && !users[i].has_failed;
    free(users);
    return is_well ? 0 : 1;
}
