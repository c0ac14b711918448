/* Computes log probabilities of tokens and writes them as JSON. generation.c and the endpoints of text call it. */
#include "serve/api/logprobs.h"

#include "common/buffer.h"
#include "engine/engine.h"
#include "measure/perplexity.h"
#include "text/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOP_COMPLETION = 5 };

void logprobs_read_chat(fields *f, logprobs *out)
{
    int64_t n_top = 0;
    fields_bool(f, "logprobs", &out->wanted);
    if (!fields_int(f, "top_logprobs", 0, MAX_TOP, &n_top)) return;
    if (n_top > 0 && !out->wanted) fields_fail(f, "top_logprobs", "logprobs must be true");
    out->n_top = (uint32_t)n_top;
}

void logprobs_read_completion(fields *f, logprobs *out)
{
    int64_t n_top = 0;
    out->wanted = fields_value(f, "logprobs") != NULL;
    if (fields_int(f, "logprobs", 0, MAX_TOP_COMPLETION, &n_top)) out->n_top = (uint32_t)n_top;
}

/* The n largest logits, the largest first; among equal ones the lowest id. */
static void find_top(const float *logits, size_t n_vocab, double all, token_prob *top, uint32_t n)
{
    uint32_t n_found = 0;
    for (size_t i = 0; n > 0 && i < n_vocab; i++) {
        float value = (float)((double)logits[i] - all);
        if (n_found == n && !(value > top[n - 1].value)) continue;
        uint32_t at = n_found < n ? n_found++ : n - 1;
        for (; at > 0 && value > top[at - 1].value; at--) top[at] = top[at - 1];
        top[at] = (token_prob){(int32_t)i, value};
    }
}

static struct logprob_entry *add_entry(logprobs *l)
{
    void *more = grow_array(l->at, &l->capacity, l->n + 1, sizeof *l->at);
    if (!more) return NULL;
    l->at = more;
    return &l->at[l->n++];
}

bool logprobs_add_first(logprobs *l, int32_t id)
{
    struct logprob_entry *e = add_entry(l);
    if (e) *e = (struct logprob_entry){.token = {id, NAN}};
    return e;
}

bool logprobs_add(logprobs *l, const float *logits, size_t n_vocab, int32_t id)
{
    if (!l->wanted) return true;
    struct logprob_entry *e = add_entry(l);
    if (!e) return false;
    double value = hth_measure_log_probability(logits, n_vocab, id);
    e->token = (token_prob){id, (float)value};
    find_top(logits, n_vocab, (double)logits[id] - value, e->top, l->n_top);
    return true;
}

/* ---- JSON
 * -------------------------------------------------------------------------------------------------------- */

static const char *piece_of(const hearth_model *model, int32_t id, size_t *n)
{
    return hth_token_piece(model->tokenizer, id, true, n);
}

/* JSON has no infinity: OpenAI writes this number. */
static void write_value(json *j, const char *key, float value)
{
    json_float(j, key, value < -9999.0f ? -9999.0 : (double)value, 9);
}

static void write_token(json *j, const hearth_model *model, token_prob p)
{
    size_t n;
    const char *piece = piece_of(model, p.id, &n);
    json_int(j, "id", p.id);
    json_text(j, "token", piece, n);
    write_value(j, "logprob", p.value);
    json_open_compact(j, "bytes", '[');
    for (size_t i = 0; i < n; i++) json_uint(j, NULL, (unsigned char)piece[i]);
    json_close(j, ']');
}

/* Opens the member logprobs, or writes it as null and returns false. */
static bool begin_member(json *j, const logprobs *l)
{
    if (l->wanted) json_open_compact(j, "logprobs", '{');
    else json_put_null(j, "logprobs");
    return l->wanted;
}

void logprobs_write_list(json *j, const char *key, logprobs *l, const hearth_model *model)
{
    json_open_compact(j, key, '[');
    for (; l->n_written < l->n; l->n_written++) {
        const struct logprob_entry *e = &l->at[l->n_written];
        json_open_compact(j, NULL, '{');
        write_token(j, model, e->token);
        json_open_compact(j, "top_logprobs", '[');
        for (uint32_t k = 0; k < l->n_top; k++) {
            json_open_compact(j, NULL, '{');
            write_token(j, model, e->top[k]);
            json_close(j, '}');
        }
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

void logprobs_write_chat(json *j, logprobs *l, const hearth_model *model)
{
    if (!begin_member(j, l)) return;
    logprobs_write_list(j, "content", l, model);
    json_put_null(j, "refusal");
    json_close(j, '}');
}

/* Writes the offset in the text at which each token begins, from token `first` on. */
static void write_offsets(json *j, const logprobs *l, size_t first, const hearth_model *model)
{
    hth_detok detok;
    char *bytes = malloc(hth_detok_max_bytes(model->tokenizer));
    size_t offset = 0;
    bool begins = l->n > 0 && isnan(l->at[0].token.value);
    j->failed |= !bytes;
    hth_detok_init(&detok, model->tokenizer, false, begins);
    json_open_compact(j, "text_offset", '[');
    for (size_t i = 0; bytes && i < l->n; i++) {
        if (i >= first) json_uint(j, NULL, offset);
        offset += hth_detok_push(&detok, l->at[i].token.id, bytes);
    }
    json_close(j, ']');
    free(bytes);
}

/* The text of a token as a name: bytes that are not UTF-8, or have a NUL, are spelled, as OpenAI does. */
static char *make_key(const hearth_model *model, int32_t id)
{
    buffer key = {0};
    size_t n;
    const char *piece = piece_of(model, id, &n);
    bool is_text = hth_text_utf8_valid(piece, n) && !memchr(piece, 0, n),
         ok = is_text ? buffer_add(&key, piece, n) : buffer_add(&key, "bytes:", 6);
    for (size_t i = 0; ok && !is_text && i < n; i++) {
        char spelled[8];
        ok = buffer_add(&key, spelled,
                        (size_t)snprintf(spelled, sizeof spelled, "\\x%02x", (unsigned char)piece[i]));
    }
    if (ok) return key.bytes;
    free(key.bytes);
    return NULL;
}

/* Tokens of the same text have one name: that of the likelier one, which comes first. */
static void write_top(json *j, const struct logprob_entry *e, uint32_t n_top, const hearth_model *model)
{
    char *keys[MAX_TOP_COMPLETION];
    uint32_t n = 0;
    json_open_compact(j, NULL, '{');
    for (; n < n_top && n < MAX_TOP_COMPLETION && (keys[n] = make_key(model, e->top[n].id)); n++) {
        bool is_new = true;
        for (uint32_t i = 0; i < n; i++) is_new &= strcmp(keys[i], keys[n]) != 0;
        if (is_new) write_value(j, keys[n], e->top[n].value);
    }
    json_close(j, '}');
    j->failed |= n < n_top;
    for (uint32_t i = 0; i < n; i++) free(keys[i]);
}

void logprobs_write_completion(json *j, logprobs *l, const hearth_model *model)
{
    size_t first = l->n_written, n;
    if (!begin_member(j, l)) return;
    json_open_compact(j, "tokens", '[');
    for (size_t i = first; i < l->n; i++) {
        const char *piece = piece_of(model, l->at[i].token.id, &n);
        json_text(j, NULL, piece, n);
    }
    json_close(j, ']');
    json_open_compact(j, "token_logprobs", '[');
    for (size_t i = first; i < l->n; i++) write_value(j, NULL, l->at[i].token.value);
    json_close(j, ']');
    json_open_compact(j, "top_logprobs", '[');
    for (size_t i = first; i < l->n; i++) {
        if (isnan(l->at[i].token.value)) json_put_null(j, NULL);
        else write_top(j, &l->at[i], l->n_top, model);
    }
    json_close(j, ']');
    write_offsets(j, l, first, model);
    json_close(j, '}');
    l->n_written = l->n;
}
