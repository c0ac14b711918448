/* Which experts stay in memory? Plays the same drawn experts through the store with each of its policies, and through the
 * best one that knows the future (Belady 1966: evict what is needed last).
 *
 *     store_policies MODEL FREQUENCIES STICKY SHARE...
 *
 * MODEL gives the numbers of layers and experts; FREQUENCIES and STICKY as in hearth bench --route; SHARE: of all
 * experts, which fits into memory. Guesses are not made. For each share: hits of all uses of 512 tokens, from an empty
 * cache. */
#define _GNU_SOURCE
#include "file/gguf.h"
#include "measure/route_trace.h"
#include "model/model.h"
#include "store/disk_simulated.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_TOK = 512, ITEM_SIZE = 4096, MAX_USED = 64 };

typedef struct trace {
    hth_gguf *file;
    hth_model *model;
    hth_route_trace *route;
    double *frequency;
    size_t n_frequency;
    uint32_t n_layer, n_expert, n_used;
    uint32_t *uses; /* [N_TOK][n_layer][n_used] items */
    size_t n_use;
} trace;

static void quit(const char *what)
{
    fprintf(stderr, "store_policies: %s\n", what);
    exit(1);
}

static void check(hearth_status st, const hearth_error *err)
{
    if (st != HEARTH_OK) quit(err->message);
}

static void read_frequencies(trace *t, const char *path)
{
    FILE *f = fopen(path, "r");
    size_t capacity = 1 << 20;
    t->frequency = calloc(capacity, sizeof *t->frequency);
    if (!f || !t->frequency) quit("cannot read the frequencies");
    while (t->n_frequency < capacity && fscanf(f, "%lf", &t->frequency[t->n_frequency]) == 1)
        t->n_frequency++;
    fclose(f);
}

/* Items are numbered layer by layer, those with experts alone. */
static void draw(trace *t, double sticky)
{
    hearth_error err;
    const hth_hparams *h = &t->model->hparams;
    uint32_t chosen[MAX_USED];
    t->n_expert = h->experts.n_expert;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        if (!hth_has_experts(t->model->layers[i].network)) continue;
        t->n_layer++;
        t->n_used = t->model->layers[i].experts.router.n_used;
    }
    if (t->n_layer == 0 || t->n_used > MAX_USED) quit("no experts, or too many");
    const hth_route_trace_spec spec = {
        .frequency = t->frequency, .n_frequency = t->n_frequency, .sticky = sticky, .seed = 1};
    check(hth_route_trace_open(t->model, &spec, N_TOK, &t->route, &err), &err);
    t->uses = calloc((size_t)N_TOK * t->n_layer * t->n_used, sizeof *t->uses);
    if (!t->uses) quit("out of memory");
    for (uint64_t i = 0; i < N_TOK; i++)
        for (uint32_t l = 0, k = 0; l < h->n_layer; l++) {
            if (!hth_has_experts(t->model->layers[l].network)) continue;
            hth_route_trace_get(t->route, l, i, false, chosen);
            for (uint32_t j = 0; j < t->n_used; j++) t->uses[t->n_use++] = k * t->n_expert + chosen[j];
            k++;
        }
}

static uint64_t replay(const trace *t, hth_store_policy policy, uint64_t memory, uint32_t *n_slot)
{
    hearth_error err;
    hth_disk *disk;
    hth_reader *reader;
    hth_store *store;
    uint32_t n_item = t->n_layer * t->n_expert, asked[MAX_USED];
    int fd = open(hth_gguf_path(t->file), O_RDONLY | O_CLOEXEC);
    hth_reader_file file = {fd, hth_gguf_path(t->file)};
    hth_store_item *items = calloc(n_item, sizeof *items);
    if (!items || fd < 0) quit("out of memory, or files");
    for (uint32_t i = 0; i < n_item; i++) {
        items[i] = (hth_store_item){.extents = {{0, 0, 512}}, .n_extent = 1, .i_group = i / t->n_expert};
        if (policy == HTH_STORE_STATIC) items[i].weight = (float)t->frequency[i];
    }
    check(hth_disk_open_simulated(hth_disk_model_find("nvme4"), 1, true, &disk, &err), &err);
    check(hth_reader_open(&(hth_reader_options){.files = &file, .n_file = 1, .disk = disk, .buffered = true}, &reader, &err), &err);
    const hth_store_options o = {.items = items,
                                 .n_item = n_item,
                                 .n_group = t->n_layer,
                                 .memory = memory,
                                 .policy = policy,
                                 .reader = reader};
    check(hth_store_open(&o, &store, &err), &err);
    *n_slot = hth_store_n_slot(store);
    for (size_t i = 0; i < t->n_use; i += t->n_used) {
        size_t n = t->n_used;
        for (uint32_t j = 0; j < t->n_used; j++) asked[j] = t->uses[i + j];
        hth_store_request(store, asked, n);
        while (n > 0) {
            hth_store_view view;
            check(hth_store_acquire(store, asked, &n, true, &view, &err), &err);
            hth_store_release(store, view.i_item);
        }
        if ((i / t->n_used + 1) % t->n_layer == 0) hth_store_advance(store, 1);
    }
    uint64_t n_hit = 0;
    for (uint32_t i = 0; i < t->n_layer; i++) n_hit += hth_store_get_counters(store, i).n_hit;
    hth_store_close(store);
    hth_reader_close(reader);
    close(fd);
    free(items);
    return n_hit;
}

/* Hits of the best policy with so many slots. */
static uint64_t replay_best(const trace *t, uint32_t n_slot)
{
    uint32_t n_item = t->n_layer * t->n_expert, n_in = 0;
    size_t *next = calloc(t->n_use, sizeof *next), *until = calloc(n_item, sizeof *until);
    uint32_t *in = calloc(n_slot + 1, sizeof *in);
    bool *is_in = calloc(n_item, sizeof *is_in);
    uint64_t n_hit = 0;
    if (!next || !until || !in || !is_in) quit("out of memory");
    for (uint32_t i = 0; i < n_item; i++) until[i] = SIZE_MAX;
    for (size_t i = t->n_use; i-- > 0;) next[i] = until[t->uses[i]], until[t->uses[i]] = i;
    for (size_t i = 0; i < t->n_use; i++) {
        uint32_t item = t->uses[i], last = 0;
        until[item] = next[i];
        if (is_in[item]) {
            n_hit++;
            continue;
        }
        in[n_in++] = item, is_in[item] = true;
        if (n_in <= n_slot) continue;
        for (uint32_t k = 1; k < n_in; k++) last = until[in[k]] > until[in[last]] ? k : last;
        is_in[in[last]] = false, in[last] = in[--n_in];
    }
    free(next), free(until), free(in), free(is_in);
    return n_hit;
}

int main(int argc, char **argv)
{
    hearth_error err;
    trace t = {0};
    if (argc < 5) quit("usage: store_policies MODEL FREQUENCIES STICKY SHARE...");
    check(hth_gguf_open(argv[1], &t.file, &err), &err);
    check(hth_model_open(t.file, &(hth_model_overrides){0}, &t.model, &err), &err);
    read_frequencies(&t, argv[2]);
    draw(&t, strtod(argv[3], NULL));
    printf("| share | learned | LRU | static | Belady |\n|---|---|---|---|---|\n");
    for (int i = 4; i < argc; i++) {
        uint64_t memory = (uint64_t)(strtod(argv[i], NULL) * t.n_layer * t.n_expert) * ITEM_SIZE;
        double n = (double)t.n_use / 100.0;
        uint32_t n_slot;
        uint64_t learned = replay(&t, HTH_STORE_LEARNED, memory, &n_slot),
                 lru = replay(&t, HTH_STORE_LRU, memory, &n_slot),
                 fixed = replay(&t, HTH_STORE_STATIC, memory, &n_slot);
        printf("| %s | %.1f | %.1f | %.1f | %.1f |\n", argv[i], (double)learned / n, (double)lru / n,
               (double)fixed / n, (double)replay_best(&t, n_slot) / n);
    }
    hth_route_trace_close(t.route);
    hth_model_close(t.model);
    hth_gguf_close(t.file);
    free(t.uses);
    free(t.frequency);
    return 0;
}
