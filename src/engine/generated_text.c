/* Text of tokens, for hearth_generate and for requests of a scheduler. */
#include "engine/generated_text.h"

#include "base/alloc.h"

#include <string.h>

/* Bytes of the longest stop text, and of all. */
typedef struct stop_sizes {
    size_t longest, all;
} stop_sizes;

/* Adds the text of a token behind what is kept back. Rows of the model that pad the vocabulary have none. */
static size_t push_token(hth_generated_text *t, int32_t id)
{
    return id < hth_tokenizer_n_vocab(t->detok.tok) ? hth_detok_push(&t->detok, id, t->bytes + t->n) : 0;
}

static hearth_status measure(const hth_generated_text_options *o, stop_sizes *sizes, hearth_error *err)
{
    *sizes = (stop_sizes){0};
    if (o->n_stop > 0 && !o->stops)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is NULL, but n_stop is %zu", o->name, o->n_stop);
    for (size_t i = 0; i < o->n_stop; i++) {
        size_t n = o->stops[i] ? strlen(o->stops[i]) : 0;
        if (n == 0)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s[%zu] is %s: it would end every text", o->name, i,
                            o->stops[i] ? "empty" : "NULL");
        if (n > sizes->longest) sizes->longest = n;
        sizes->all += n;
    }
    return HEARTH_OK;
}

static void copy_stops(hth_generated_text *t, const char *const *stops, char *to)
{
    for (size_t i = 0; i < t->n_stop; i++) {
        t->stops[i] = (hth_stop){to, strlen(stops[i])};
        memcpy(to, stops[i], t->stops[i].n);
        to += t->stops[i].n;
    }
}

hearth_status hth_generated_text_open(hth_generated_text *t, const hearth_model *m,
                                      const hth_generated_text_options *o, hearth_error *err)
{
    stop_sizes sizes;
    *t = (hth_generated_text){.n_stop = o->n_stop, .i_stop = o->n_stop};
    hearth_status st = hth_engine_need_tokenizer(m, err);
    if (st == HEARTH_OK) st = measure(o, &sizes, err);
    if (st != HEARTH_OK) return st;
    size_t n_text = sizes.longest + hth_detok_max_bytes(m->tokenizer);
    t->stops = hth_alloc(o->n_stop + 1, sizeof *t->stops);
    t->bytes = hth_alloc(1, n_text + sizes.all);
    if (!t->stops || !t->bytes) {
        hth_generated_text_close(t);
        return hth_fail_memory(err, n_text + sizes.all, "the text");
    }
    copy_stops(t, o->stops, t->bytes + n_text);
    hth_detok_init(&t->detok, m->tokenizer, o->show_special, true);
    for (size_t i = 0; i < o->n_prompt; i++) push_token(t, o->prompt[i]); /* it may end within a character */
    if (o->is_constrained) t->detok.strip_space = false;
    return HEARTH_OK;
}

void hth_generated_text_close(hth_generated_text *t)
{
    hth_free(t->stops);
    hth_free(t->bytes);
    *t = (hth_generated_text){0};
}

/* Drops the bytes that the last call returned. */
static void drop_shown(hth_generated_text *t)
{
    memmove(t->bytes, t->bytes + t->n_shown, t->n);
    t->n_shown = 0;
}

static size_t show(hth_generated_text *t, size_t n, const char **text)
{
    t->n_shown = n, t->n -= n;
    *text = t->bytes;
    return n;
}

size_t hth_generated_text_push(hth_generated_text *t, int32_t id, const char **text)
{
    drop_shown(t);
    if (t->i_stop == t->n_stop) t->n += push_token(t, id);
    size_t at = hth_stops_find(t->stops, t->n_stop, t->bytes, t->n, &t->i_stop);
    if (at == t->n) return show(t, t->n - hth_stops_count_unsure(t->stops, t->n_stop, t->bytes, t->n), text);
    t->n = at;
    return show(t, at, text);
}

size_t hth_generated_text_finish(hth_generated_text *t, const char **text)
{
    drop_shown(t);
    if (t->i_stop == t->n_stop) t->n += hth_detok_flush(&t->detok, t->bytes + t->n);
    return show(t, t->n, text);
}
