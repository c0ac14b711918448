/* Profiles as files: a GGUF without weights, whose keys and tensors docs/profile.md lists. No part of the file is
 * trusted: shapes come from the model, or from the directory that the reader has checked, and all values are
 * checked against each other. */
#include "sparse/profile.h"

#include "base/bits.h"
#include "base/hash.h"
#include "sparse/sidecar.h"

#include <inttypes.h>
#include <stdio.h>

#define KIND "profile"
#define KEY_TEXT "hearth.profile.text_hash"
#define KEY_TOKENS "hearth.profile.tokens"
#define KEY_DONE "hearth.profile.tokens_done"
#define KEY_SAMPLES "hearth.profile.samples"
#define KEY_CONTEXT "hearth.profile.context"
#define KEY_ACTIVATION "hearth.profile.activation"
#define KEY_SETTINGS "hearth.profile.settings"
#define KEY_CHECKSUM "hearth.profile.checksum"
#define KEY_LARGEST "hearth.ffn.largest_hidden"
#define KEY_GATE "hearth.profile.gate_fired"
#define KEY_UP "hearth.profile.up_fired"
#define KEY_SLOTS "hearth.profile.size_counts"

enum { MAX_LAYER = 1024, MAX_D_FF = 1 << 20, NAME_SIZE = 40 };

/* ---- the checksum ----------------------------------------------------------------------------- */

static uint64_t add_layer(uint64_t h, const hth_profile *p, const hth_profile_layer *l)
{
    const size_t n = l->d_ff;
    const uint64_t numbers[] = {n, hth_bits_of(l->largest), l->gate_fired, l->up_fired};
    h = hth_hash_more(h, numbers, sizeof numbers);
    h = hth_hash_more(h, l->bins, sizeof l->bins);
    h = hth_hash_more(h, l->n_fired, n * sizeof *l->n_fired);
    h = hth_hash_more(h, l->mean, n * sizeof *l->mean);
    if (l->coact_bits) h = hth_hash_more(h, l->coact_bits, n * p->n_word * sizeof *l->coact_bits);
    return p->n_done < p->n_tok ? hth_hash_more(h, l->sum, n * sizeof *l->sum) : h;
}

/* A checksum over all values of a file. Collecting continues from a state for hours, so a flipped bit must not
 * pass for a count. */
static uint64_t checksum(const hth_profile *p)
{
    const uint64_t numbers[] = {p->model_hash, p->text_hash, p->n_tok,  p->n_done,
                                p->n_sample,   p->n_ctx,     p->n_layer};
    uint64_t h = hth_hash_more(0, numbers, sizeof numbers);
    h = hth_hash_more(h, p->activation, strlen(p->activation) + 1);
    h = hth_hash_more(h, p->settings, strlen(p->settings) + 1);
    for (uint32_t i = 0; i < p->n_layer; i++) h = add_layer(h, p, &p->layers[i]);
    return h;
}

/* ---- writing -------------------------------------------------------------------------------- */

static const char *name_of(char name[NAME_SIZE], uint32_t i_layer, const char *what)
{
    snprintf(name, NAME_SIZE, "blk.%u.%s", i_layer, what);
    return name;
}

/* Per-layer values that are stored as metadata arrays. */
typedef struct layer_arrays {
    float *largest;              /* [n_layer] */
    uint64_t *gate, *up, *bins; /* [n_layer], [n_layer], [n_layer][HTH_PROFILE_N_BIN] */
} layer_arrays;

static hearth_status gather(const hth_profile *p, hth_arena *arena, layer_arrays *a, hearth_error *err)
{
    const size_t n = p->n_layer;
    a->largest = hth_arena_alloc(arena, n, sizeof *a->largest, 8);
    a->gate = hth_arena_alloc(arena, n, sizeof *a->gate, 8);
    a->up = hth_arena_alloc(arena, n, sizeof *a->up, 8);
    a->bins = hth_arena_alloc(arena, n * HTH_PROFILE_N_BIN, sizeof *a->bins, 8);
    if (!a->largest || !a->gate || !a->up || !a->bins)
        return hth_fail_memory(err, n * sizeof *a->bins * HTH_PROFILE_N_BIN, "writing a profile");
    for (size_t i = 0; i < n; i++) {
        const hth_profile_layer *l = &p->layers[i];
        a->largest[i] = l->largest;
        a->gate[i] = l->gate_fired;
        a->up[i] = l->up_fired;
        memcpy(a->bins + i * HTH_PROFILE_N_BIN, l->bins, sizeof l->bins);
    }
    return HEARTH_OK;
}

static void set_text(hth_gguf_writer *w, const char *key, const char *text)
{
    hth_gguf_writer_text(w, key, text, strlen(text));
}

static void set_keys(hth_gguf_writer *w, const hth_profile *p, const layer_arrays *a)
{
    hth_sidecar_write_head(w, KIND, p->model_hash);
    hth_gguf_writer_uint(w, KEY_TEXT, HTH_GGUF_U64, p->text_hash);
    hth_gguf_writer_uint(w, KEY_TOKENS, HTH_GGUF_U64, p->n_tok);
    if (p->n_done < p->n_tok) hth_gguf_writer_uint(w, KEY_DONE, HTH_GGUF_U64, p->n_done);
    hth_gguf_writer_uint(w, KEY_SAMPLES, HTH_GGUF_U32, p->n_sample);
    hth_gguf_writer_uint(w, KEY_CONTEXT, HTH_GGUF_U32, p->n_ctx);
    set_text(w, KEY_ACTIVATION, p->activation);
    set_text(w, KEY_SETTINGS, p->settings);
    hth_gguf_writer_uint(w, KEY_CHECKSUM, HTH_GGUF_U64, checksum(p));
    hth_gguf_writer_array(w, KEY_LARGEST, HTH_GGUF_F32, a->largest, p->n_layer);
    hth_gguf_writer_array(w, KEY_GATE, HTH_GGUF_U64, a->gate, p->n_layer);
    hth_gguf_writer_array(w, KEY_UP, HTH_GGUF_U64, a->up, p->n_layer);
    hth_gguf_writer_array(w, KEY_SLOTS, HTH_GGUF_U64, a->bins, (uint64_t)p->n_layer * HTH_PROFILE_N_BIN);
}

/* In the order in which write_layer writes the data. */
static void declare_layer(hth_gguf_writer *w, const hth_profile *p, uint32_t i_layer)
{
    const hth_profile_layer *l = &p->layers[i_layer];
    char name[NAME_SIZE];
    const uint64_t each[] = {l->d_ff}, words[] = {p->n_word, l->d_ff}, pairs[] = {2, l->d_ff};
    hth_gguf_writer_tensor(w, name_of(name, i_layer, "fired"), HTH_TYPE_I32, 1, each);
    hth_gguf_writer_tensor(w, name_of(name, i_layer, "size"), HTH_TYPE_F32, 1, each);
    if (l->coact_bits) hth_gguf_writer_tensor(w, name_of(name, i_layer, "together"), HTH_TYPE_I32, 2, words);
    if (p->n_done < p->n_tok)
        hth_gguf_writer_tensor(w, name_of(name, i_layer, "sum"), HTH_TYPE_I32, 2, pairs);
}

static hearth_status write_layer(hth_gguf_writer *w, const hth_profile *p, const hth_profile_layer *l,
                                 hearth_error *err)
{
    const size_t n = l->d_ff;
    hearth_status st = hth_gguf_writer_data(w, l->n_fired, n * sizeof *l->n_fired, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_data(w, l->mean, n * sizeof *l->mean, err);
    if (st == HEARTH_OK && l->coact_bits)
        st = hth_gguf_writer_data(w, l->coact_bits, n * p->n_word * sizeof *l->coact_bits, err);
    if (st == HEARTH_OK && p->n_done < p->n_tok)
        st = hth_gguf_writer_data(w, l->sum, n * sizeof *l->sum, err);
    return st;
}

hearth_status hth_profile_write(const hth_profile *p, const char *path, hearth_error *err)
{
    hth_gguf_writer *w = NULL;
    hth_arena arena = {0};
    layer_arrays arrays;
    hearth_status st = gather(p, &arena, &arrays, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_open(path, &w, err);
    if (st != HEARTH_OK) goto done;
    set_keys(w, p, &arrays);
    for (uint32_t i = 0; i < p->n_layer; i++) declare_layer(w, p, i);
    st = hth_gguf_writer_begin(w, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < p->n_layer; i++) st = write_layer(w, p, &p->layers[i], err);
    if (st == HEARTH_OK) st = hth_gguf_writer_finish(w, err);
done:
    hth_gguf_writer_close(w);
    hth_arena_free(&arena);
    return st;
}

/* ---- reading: keys ----------------------------------------------------------------------------- */

typedef struct reader {
    const hth_gguf *file;
    const hth_model *model; /* or NULL */
    hth_profile *p;
    bool unfinished; /* the requested kind */
    hearth_error *err;
} reader;

static unsigned long long at_key(const reader *r, const char *key)
{
    return (unsigned long long)hth_gguf_find(r->file, key)->offset;
}

static hearth_status need_uint(reader *r, const char *key, uint64_t min, uint64_t max, uint64_t *value)
{
    return hth_sidecar_need_uint(r->file, KIND, key, min, max, value, r->err);
}

static hearth_status need_text(reader *r, const char *key, char *text, size_t size)
{
    return hth_sidecar_need_text(r->file, KIND, key, text, size, r->err);
}

static hearth_status need_array(reader *r, const char *key, hth_gguf_type type, uint64_t n,
                                const hth_gguf_value **array)
{
    return hth_sidecar_need_array(r->file, KIND, key, type, n, array, r->err);
}

/* Checks that the file is of the requested kind, a profile or a state. */
static hearth_status read_progress(reader *r)
{
    hth_profile *p = r->p;
    bool has_done = hth_gguf_find(r->file, KEY_DONE) != NULL;
    hearth_status st = need_uint(r, KEY_TOKENS, 1, INT32_MAX, &p->n_tok);
    p->n_done = p->n_tok;
    if (st == HEARTH_OK && has_done) st = need_uint(r, KEY_DONE, 1, p->n_tok - 1, &p->n_done);
    if (st != HEARTH_OK || has_done == r->unfinished) return st;
    if (!has_done)
        return hth_fail(r->err, HEARTH_ERROR_ARGUMENT, "%s: a finished profile, not a state to go on from",
                        hth_gguf_path(r->file));
    return hth_fail(
        r->err, HEARTH_ERROR_ARGUMENT,
        "%s: the state of a profile that is not finished: %llu of %llu tokens (%s at %llu); the command "
        "that began it goes on from there",
        hth_gguf_path(r->file), (unsigned long long)p->n_done, (unsigned long long)p->n_tok, KEY_DONE,
        at_key(r, KEY_DONE));
}

static hearth_status read_numbers(reader *r)
{
    hth_profile *p = r->p;
    uint64_t n_sample = 0, n_ctx = 0;
    hearth_status st = need_uint(r, KEY_TEXT, 0, UINT64_MAX, &p->text_hash);
    if (st == HEARTH_OK) st = read_progress(r);
    if (st != HEARTH_OK) return st;
    uint64_t max = p->n_tok < HTH_PROFILE_MAX_SAMPLE ? p->n_tok : HTH_PROFILE_MAX_SAMPLE;
    st = need_uint(r, KEY_SAMPLES, 0, max, &n_sample);
    if (st == HEARTH_OK) st = need_uint(r, KEY_CONTEXT, 1, p->n_tok, &n_ctx);
    p->n_sample = (uint32_t)n_sample;
    p->n_word = (p->n_sample + 31) / 32;
    p->n_ctx = (uint32_t)n_ctx;
    if (st == HEARTH_OK && p->n_tok % n_ctx != 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu is %llu, not whole chunks of %llu (%s)",
                        hth_gguf_path(r->file), KEY_TOKENS, at_key(r, KEY_TOKENS),
                        (unsigned long long)p->n_tok, (unsigned long long)n_ctx, KEY_CONTEXT);
    if (st == HEARTH_OK) st = need_text(r, KEY_ACTIVATION, p->activation, sizeof p->activation);
    if (st == HEARTH_OK) st = need_text(r, KEY_SETTINGS, p->settings, sizeof p->settings);
    return st;
}

static hearth_status read_activation(reader *r)
{
    hth_profile *p = r->p;
    hth_activation activation;
    bool needs_gate;
    char shown[80];
    if (!hth_activation_by_name((hth_str){p->activation, strlen(p->activation)}, &activation, &needs_gate))
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: %s at %llu is '%s', which is not known; known: " HTH_ACTIVATION_NAMES,
                        hth_gguf_path(r->file), KEY_ACTIVATION, at_key(r, KEY_ACTIVATION),
                        hth_escape(shown, sizeof shown, p->activation, strlen(p->activation)));
    p->coact_is_top_decile = !hth_activation_is_sparse(activation);
    if (!r->model || activation == r->model->hparams.activation) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_ARGUMENT,
                    "%s: %s at %llu is %s, but the model runs with %s: profile it again",
                    hth_gguf_path(r->file), KEY_ACTIVATION, at_key(r, KEY_ACTIVATION), p->activation,
                    hth_activation_name(r->model->hparams.activation));
}

/* ---- reading: layers ----------------------------------------------------------------------------- */

static hearth_status fail_neuron(reader *r, const hth_gguf_tensor *t, uint32_t j, const char *what)
{
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' at %llu: neuron %u: %s; the file is damaged", hth_gguf_path(r->file),
                    t->name.bytes, (unsigned long long)t->offset, j, what);
}

/* Finds the tensor of a layer, of that type and shape. */
static hearth_status find(reader *r, uint32_t i_layer, const char *what, hth_type type, uint64_t d0,
                          uint64_t d1, const hth_gguf_tensor **tensor)
{
    char name[NAME_SIZE];
    const hth_gguf_tensor *t = *tensor = hth_gguf_find_tensor(r->file, name_of(name, i_layer, what));
    uint32_t n_dim = d1 > 0 ? 2 : 1;
    if (!t)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: tensor '%s' is missing (a profile of %u layers has it)", hth_gguf_path(r->file),
                        name, r->p->n_layer);
    if (t->type == type && t->n_dim == n_dim && t->dim[0] == d0 && (n_dim == 1 || t->dim[1] == d1))
        return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' at %llu: %s of %u dimensions, %" PRIu64 " x %" PRIu64
                    ", but %s of %u, %" PRIu64 " x %" PRIu64 ", is expected",
                    hth_gguf_path(r->file), name, (unsigned long long)t->offset, hth_type_find(t->type)->name,
                    t->n_dim, t->dim[0], t->dim[1], hth_type_find(type)->name, n_dim, d0, d1 > 0 ? d1 : 1);
}

static hearth_status read_words(reader *r, const hth_gguf_tensor *t, void *words)
{
    return hth_gguf_read(r->file, t, 0, (size_t)t->size, words, r->err);
}

static hearth_status read_fired(reader *r, uint32_t i_layer, hth_profile_layer *l)
{
    const hth_gguf_tensor *t;
    hearth_status st = find(r, i_layer, "fired", HTH_TYPE_I32, l->d_ff, 0, &t);
    if (st == HEARTH_OK) st = read_words(r, t, l->n_fired);
    for (uint32_t j = 0; st == HEARTH_OK && j < l->d_ff; j++)
        if (l->n_fired[j] > r->p->n_done) st = fail_neuron(r, t, j, "it fired more often than there are tokens");
    return st;
}

static hearth_status read_size(reader *r, uint32_t i_layer, hth_profile_layer *l)
{
    const hth_gguf_tensor *t;
    hearth_status st = find(r, i_layer, "size", HTH_TYPE_F32, l->d_ff, 0, &t);
    if (st == HEARTH_OK) st = read_words(r, t, l->mean);
    for (uint32_t j = 0; st == HEARTH_OK && j < l->d_ff; j++) {
        /* A mean is rounded, so it may exceed the largest value by the rounding error. */
        if (hth_bits_of(l->mean[j]) >> 31 || !(l->mean[j] <= l->largest * 1.001f))
            st = fail_neuron(r, t, j, "its mean size is not between 0 and the layer's largest value");
        else if (l->n_fired[j] == 0 && l->mean[j] > 0.0f)
            st = fail_neuron(r, t, j, "it has a size though it never fired");
    }
    return st;
}

static hearth_status read_coact(reader *r, uint32_t i_layer, hth_profile_layer *l)
{
    const hth_gguf_tensor *t;
    const uint32_t n_word = r->p->n_word, n_last = r->p->n_sample % 32;
    hearth_status st = find(r, i_layer, "together", HTH_TYPE_I32, n_word, l->d_ff, &t);
    if (st != HEARTH_OK) return st;
    l->coact_bits = hth_arena_alloc(&r->p->arena, (size_t)t->size, 1, 64);
    if (!l->coact_bits) return hth_fail_memory(r->err, (size_t)t->size, "a profile");
    st = read_words(r, t, l->coact_bits);
    for (uint32_t j = 0; st == HEARTH_OK && j < l->d_ff; j++) {
        const uint32_t *words = l->coact_bits + (size_t)j * n_word;
        uint32_t n = 0;
        for (uint32_t k = 0; k < n_word; k++) n += (uint32_t)__builtin_popcount(words[k]);
        if (n > l->n_fired[j]) st = fail_neuron(r, t, j, "it fired at more samples than tokens");
        else if (n_last > 0 && words[n_word - 1] >> n_last != 0)
            st = fail_neuron(r, t, j, "a bit behind the last sample");
    }
    return st;
}

static hearth_status read_sum(reader *r, uint32_t i_layer, hth_profile_layer *l)
{
    const hth_gguf_tensor *t;
    hearth_status st = find(r, i_layer, "sum", HTH_TYPE_I32, 2, l->d_ff, &t);
    if (st == HEARTH_OK) st = read_words(r, t, l->sum);
    for (uint32_t j = 0; st == HEARTH_OK && j < l->d_ff; j++)
        if (!(l->sum[j] >= 0.0 && l->sum[j] <= 1e300)) st = fail_neuron(r, t, j, "its sum is no number from 0 on");
    return st;
}

/* The number of non-zero values must be the same by bins and by neurons. */
static hearth_status check_bins(reader *r, uint32_t i_layer, const hth_profile_layer *l)
{
    uint64_t n = 0, left, all = r->p->n_done * l->d_ff;
    bool fits = true;
    for (uint32_t j = 0; j < l->d_ff; j++) n += l->n_fired[j];
    left = n;
    for (size_t i = 1; i < HTH_PROFILE_N_BIN; i++) {
        fits = fits && l->bins[i] <= left;
        left -= l->bins[i];
    }
    if (fits && left == 0 && l->bins[0] == all - n && (l->largest > 0.0f) == (n > 0)) return HEARTH_OK;
    return hth_fail(
        r->err, HEARTH_ERROR_FORMAT,
        "%s: %s at %llu: layer %u: its sizes or its largest value are not those of %llu firings of %llu "
        "values; the file is damaged",
        hth_gguf_path(r->file), KEY_SLOTS, at_key(r, KEY_SLOTS), i_layer, (unsigned long long)n,
        (unsigned long long)all);
}

static hearth_status check_halves(reader *r, uint32_t i_layer, const hth_profile_layer *l)
{
    uint64_t all = r->p->n_done * l->d_ff;
    if (l->gate_fired <= all && l->up_fired <= all) return HEARTH_OK;
    const char *key = l->gate_fired > all ? KEY_GATE : KEY_UP;
    return hth_fail(
        r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: layer %u: %llu of %llu values; the file is damaged",
        hth_gguf_path(r->file), key, at_key(r, key), i_layer,
        (unsigned long long)(l->gate_fired > all ? l->gate_fired : l->up_fired), (unsigned long long)all);
}

/* The number of neurons of a layer, from the model or from the file's own directory. */
static hearth_status find_width(reader *r, uint32_t i_layer, uint32_t *d_ff)
{
    char name[NAME_SIZE];
    const hth_gguf_tensor *t = hth_gguf_find_tensor(r->file, name_of(name, i_layer, "fired"));
    if (r->model) {
        *d_ff = r->model->layers[i_layer].ffn.d_ff;
        return HEARTH_OK;
    }
    if (!t || t->dim[0] > MAX_D_FF)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' is missing or has more than %d entries",
                        hth_gguf_path(r->file), name, MAX_D_FF);
    *d_ff = (uint32_t)t->dim[0];
    return HEARTH_OK;
}

static hearth_status read_layer(reader *r, uint32_t i_layer)
{
    hth_profile_layer *l = &r->p->layers[i_layer];
    hearth_status st = find_width(r, i_layer, &l->d_ff);
    if (st != HEARTH_OK) return st;
    size_t capacity = ((size_t)l->d_ff + HTH_PROFILE_BLOCK - 1) / HTH_PROFILE_BLOCK * HTH_PROFILE_BLOCK;
    l->n_fired = hth_arena_alloc(&r->p->arena, capacity, sizeof *l->n_fired, 64);
    l->mean = hth_arena_alloc(&r->p->arena, capacity, sizeof *l->mean, 64);
    l->sum = r->unfinished ? hth_arena_alloc(&r->p->arena, capacity, sizeof *l->sum, 64) : NULL;
    if (!l->n_fired || !l->mean || (r->unfinished && !l->sum))
        return hth_fail_memory(r->err, capacity * sizeof *l->sum, "a profile");
    if ((st = read_fired(r, i_layer, l)) != HEARTH_OK) return st;
    if ((st = read_size(r, i_layer, l)) != HEARTH_OK) return st;
    if (r->p->n_word > 0 && (st = read_coact(r, i_layer, l)) != HEARTH_OK) return st;
    if (r->unfinished && (st = read_sum(r, i_layer, l)) != HEARTH_OK) return st;
    if ((st = check_bins(r, i_layer, l)) != HEARTH_OK) return st;
    return check_halves(r, i_layer, l);
}

static hearth_status read_arrays(reader *r)
{
    hth_profile *p = r->p;
    const hth_gguf_value *largest, *gate, *up, *bins;
    hearth_status st =
        need_array(r, KEY_LARGEST, HTH_GGUF_F32, r->model ? r->model->hparams.n_layer : 0, &largest);
    if (st != HEARTH_OK) return st;
    if (largest->n_element < 1 || largest->n_element > MAX_LAYER)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu has %llu values; 1 to %d layers are possible", hth_gguf_path(r->file),
                        KEY_LARGEST, at_key(r, KEY_LARGEST), (unsigned long long)largest->n_element,
                        MAX_LAYER);
    p->n_layer = (uint32_t)largest->n_element;
    if ((st = need_array(r, KEY_GATE, HTH_GGUF_U64, p->n_layer, &gate)) != HEARTH_OK) return st;
    if ((st = need_array(r, KEY_UP, HTH_GGUF_U64, p->n_layer, &up)) != HEARTH_OK) return st;
    st = need_array(r, KEY_SLOTS, HTH_GGUF_U64, (uint64_t)p->n_layer * HTH_PROFILE_N_BIN, &bins);
    if (st != HEARTH_OK) return st;
    p->layers = hth_arena_alloc(&p->arena, p->n_layer, sizeof *p->layers, 16);
    if (!p->layers) return hth_fail_memory(r->err, p->n_layer * sizeof *p->layers, "a profile");
    for (uint32_t i = 0; i < p->n_layer; i++) {
        hth_profile_layer *l = &p->layers[i];
        double x = hth_gguf_element_float(largest, i);
        if (!(x >= 0.0 && x <= 3e38))
            return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: value %u is %g, expected a finite number from 0 on",
                            hth_gguf_path(r->file), KEY_LARGEST, at_key(r, KEY_LARGEST), i, x);
        l->largest = (float)x;
        l->gate_fired = hth_gguf_element_uint(gate, i);
        l->up_fired = hth_gguf_element_uint(up, i);
        for (size_t k = 0; k < HTH_PROFILE_N_BIN; k++)
            l->bins[k] = hth_gguf_element_uint(bins, i * (uint64_t)HTH_PROFILE_N_BIN + k);
    }
    return HEARTH_OK;
}

static hearth_status check_checksum(reader *r)
{
    uint64_t said;
    hearth_status st = need_uint(r, KEY_CHECKSUM, 0, UINT64_MAX, &said);
    if (st != HEARTH_OK || said == checksum(r->p)) return st;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: %s at %llu is not that of the figures: the file is damaged", hth_gguf_path(r->file),
                    KEY_CHECKSUM, at_key(r, KEY_CHECKSUM));
}

static hearth_status read_all(reader *r)
{
    const hth_gguf *model = r->model ? r->model->file : NULL;
    hearth_status st = hth_sidecar_check_head(r->file, KIND, model, &r->p->model_hash, r->err);
    if (st != HEARTH_OK) return st;
    if ((st = read_numbers(r)) != HEARTH_OK) return st;
    if ((st = read_activation(r)) != HEARTH_OK) return st;
    st = read_arrays(r);
    for (uint32_t i = 0; st == HEARTH_OK && i < r->p->n_layer; i++) st = read_layer(r, i);
    return st == HEARTH_OK ? check_checksum(r) : st;
}

static hearth_status open_kind(const char *path, const hth_model *model, bool unfinished, hth_profile **out,
                               hearth_error *err)
{
    hth_gguf *file;
    *out = NULL;
    hearth_status st = hth_gguf_open(path, &file, err);
    if (st != HEARTH_OK) return st;
    reader r = {.file = file, .model = model, .unfinished = unfinished, .err = err};
    r.p = hth_alloc(1, sizeof *r.p);
    st = r.p ? read_all(&r) : hth_fail_memory(err, sizeof *r.p, "a profile");
    hth_gguf_close(file);
    if (st == HEARTH_OK) *out = r.p;
    else hth_profile_close(r.p);
    return st;
}

hearth_status hth_profile_open(const char *path, const hth_model *model, hth_profile **out, hearth_error *err)
{
    return open_kind(path, model, false, out, err);
}

hearth_status hth_profile_open_state(const char *path, const hth_model *model, hth_profile **out,
                                     hearth_error *err)
{
    return open_kind(path, model, true, out, err);
}
