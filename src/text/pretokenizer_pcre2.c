/* Splits text into words with PCRE2. Called by bpe.c for every raw fragment. Expressions see only well-formed
 * UTF-8, which is checked here once, because PCRE2 would check the whole remaining text at every match. Reaching a
 * limit is an error, never a wrong word. If JIT code exhausts its small stack, the match is retried without JIT. */
#include "text/pretokenizer.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct hth_pretokenizer {
    const hth_pretok_type *type;
    pcre2_general_context *memory;
    pcre2_code *stage[HTH_TEXT_MAX_STAGE];
    size_t n_stage;
};

/* ---- compiling ------------------------------------------------------------------ */

static void *take_memory(size_t n, void *unused)
{
    (void)unused;
    return hth_alloc(n, 1);
}

static void give_memory(void *memory, void *unused)
{
    (void)unused;
    hth_free(memory);
}

static hearth_status fail(hearth_error *err, const hth_pretok_type *pretok_type, size_t stage, int code,
                          const char *what, size_t at)
{
    PCRE2_UCHAR why[160] = "";
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return hth_fail_memory(err, 0, "cutting a text into words");
    pcre2_get_error_message(code, why, sizeof why);
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "pre-tokenizer \"%s\", expression %zu %s %zu: %s",
                    pretok_type->name, stage + 1, what, at, (const char *)why);
}

static hearth_status compile_stage(hth_pretokenizer *c, pcre2_compile_context *context, bool jit,
                                   hearth_error *err)
{
    const char *expression = c->type->stage[c->n_stage];
    int code;
    PCRE2_SIZE at = 0;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &code, &at, context);
    if (!compiled) return fail(err, c->type, c->n_stage, code, "at its byte", at);
    /* Fails where memory cannot be both writable and executable; the expression is then interpreted. */
    if (jit) pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    c->stage[c->n_stage++] = compiled;
    return HEARTH_OK;
}

hearth_status hth_pretokenizer_open(const hth_pretok_type *pretok_type, bool jit, hth_pretokenizer **out,
                                   hearth_error *err)
{
    *out = NULL;
    hearth_status status = HEARTH_OK;
    pcre2_compile_context *context = NULL;
    hth_pretokenizer *c = hth_alloc(1, sizeof *c);
    if (c) c->memory = pcre2_general_context_create(take_memory, give_memory, NULL);
    if (c && c->memory) context = pcre2_compile_context_create(c->memory);
    if (!context) {
        status = hth_fail_memory(err, sizeof *c, "a pre-tokenizer");
        goto done;
    }
    c->type = pretok_type;
    while (status == HEARTH_OK && c->n_stage < HTH_TEXT_MAX_STAGE && pretok_type->stage[c->n_stage])
        status = compile_stage(c, context, jit, err);
    if (status != HEARTH_OK) goto done;
    *out = c;
    c = NULL;
done:
    pcre2_compile_context_free(context);
    hth_pretokenizer_close(c);
    return status;
}

void hth_pretokenizer_close(hth_pretokenizer *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_stage; i++) pcre2_code_free(c->stage[i]);
    pcre2_general_context_free(c->memory);
    hth_free(c);
}

bool hth_pretokenizer_engine(char *out, size_t n_out)
{
    char version[64] = "", unicode[64] = ""; /* documented to need 24 bytes */
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    snprintf(out, n_out, "PCRE2 %.*s, Unicode %s", (int)strcspn(version, " "), version, unicode);
    return true;
}

/* ---- input of the expressions ---------------------------------------------------- */

/* A private-use character: no letter, number, mark, punctuation, symbol or white space, and in no expression of
 * Hearth. */
static const char no_class[4] = {'\xF3', '\xB0', '\x80', '\x80'};

/* Copies the text with each ill-formed byte replaced. */
static hearth_status copy_text(hth_pretok_iter *iter, hearth_error *err)
{
    size_t need;
    if (!hth_mul_size(iter->n, sizeof no_class, &need))
        return hth_fail_memory(err, SIZE_MAX, "cutting a text into words");
    if (need > iter->capacity) {
        hth_free(iter->copy);
        iter->copy = hth_alloc(need, 1);
        iter->capacity = iter->copy ? need : 0;
        if (!iter->copy) return hth_fail_memory(err, need, "cutting a text into words");
    }
    size_t n = 0;
    for (size_t i = 0; i < iter->n;) {
        uint32_t cp;
        size_t length = hth_text_utf8_decode(iter->text + i, iter->n - i, &cp);
        memcpy(iter->copy + n, length > 0 ? iter->text + i : no_class, length > 0 ? length : sizeof no_class);
        n += length > 0 ? length : sizeof no_class;
        i += length > 0 ? length : 1;
    }
    iter->subject = iter->copy;
    iter->piece[0].end = n;
    return HEARTH_OK;
}

/* Number of bytes of the text that the next n bytes of the subject represent. */
static size_t length_in_text(const hth_pretok_iter *iter, size_t n)
{
    if (iter->subject == iter->text) return n;
    size_t i = iter->at;
    while (n > 0) {
        uint32_t cp;
        size_t length = hth_text_utf8_decode(iter->text + i, iter->n - i, &cp);
        i += length > 0 ? length : 1;
        n -= length > 0 ? length : sizeof no_class;
    }
    return i - iter->at;
}

/* ---- iterating -------------------------------------------------------------------- */

/* Limits on the steps of a match: more than any of our expressions needs (a run of white space without a line end
 * is read twice), and proportional to the length of the text. */
static void set_limits(hth_pretok_iter *iter)
{
    uint64_t steps = UINT64_C(10000000) + 16 * (uint64_t)iter->n;
    uint32_t limit = steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX;
    pcre2_set_match_limit(iter->limits, limit);
    pcre2_set_depth_limit(iter->limits, limit);
    pcre2_set_heap_limit(iter->limits, 64 * 1024); /* KiB */
}

hearth_status hth_pretok_iter_begin(hth_pretok_iter *iter, const hth_pretokenizer *pretokenizer,
                                    const char *text, size_t n, hearth_error *err)
{
    if (!iter->match) iter->match = pcre2_match_data_create(1, pretokenizer->memory);
    if (!iter->limits) iter->limits = pcre2_match_context_create(pretokenizer->memory);
    if (!iter->match || !iter->limits) return hth_fail_memory(err, 0, "cutting a text into words");
    iter->pretokenizer = pretokenizer;
    iter->text = iter->subject = text;
    iter->n = n;
    iter->at = iter->depth = 0;
    iter->piece[0] = (struct hth_text_piece){.end = n};
    set_limits(iter);
    return hth_text_utf8_valid(text, n) ? HEARTH_OK : copy_text(iter, err);
}

/* Finds the first match of a stage, from where its chunk is already split. The end of the chunk if there is none. */
static hearth_status find_match(const hth_pretok_iter *iter, size_t stage, size_t *from, size_t *end,
                                hearth_error *err)
{
    const struct hth_text_piece *p = &iter->piece[stage];
    const pcre2_code *code = iter->pretokenizer->stage[stage];
    PCRE2_SPTR subject = (PCRE2_SPTR)iter->subject + p->begin;
    const size_t n = p->end - p->begin, at = p->at - p->begin;
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = pcre2_match(code, subject, n, at, options, iter->match, iter->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, subject, n, at, options | PCRE2_NO_JIT, iter->match, iter->limits);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return fail(err, iter->pretokenizer->type, stage, rc, "on the text from byte", iter->at);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(iter->match);
    *from = rc < 0 ? p->end : p->begin + found[0];
    *end = rc < 0 ? p->end : p->begin + found[1];
    return HEARTH_OK;
}

/* The end of the next chunk of a stage. The current position if there is none. */
static hearth_status next_chunk(hth_pretok_iter *iter, size_t stage, size_t *end, hearth_error *err)
{
    struct hth_text_piece *p = &iter->piece[stage];
    size_t from = p->at;
    *end = p->at;
    if (p->at == p->end) return HEARTH_OK;
    if (p->match_end > p->at) {
        *end = p->match_end;
    } else {
        hearth_status status = find_match(iter, stage, &from, &p->match_end, err);
        if (status != HEARTH_OK) return status;
        *end = from > p->at ? from : p->match_end;
    }
    p->at = *end;
    return HEARTH_OK;
}

hearth_status hth_pretok_iter_next(hth_pretok_iter *iter, size_t *n, hearth_error *err)
{
    const size_t last = iter->pretokenizer->n_stage - 1;
    *n = 0;
    for (;;) {
        size_t from = iter->piece[iter->depth].at, end;
        hearth_status status = next_chunk(iter, iter->depth, &end, err);
        if (status != HEARTH_OK) return status;
        if (end == from) {
            if (iter->depth == 0) return HEARTH_OK;
            iter->depth--;
        } else if (iter->depth < last) {
            iter->piece[++iter->depth] = (struct hth_text_piece){.begin = from, .end = end, .at = from};
        } else {
            *n = length_in_text(iter, end - from);
            iter->at += *n;
            return HEARTH_OK;
        }
    }
}

void hth_pretok_iter_free(hth_pretok_iter *iter)
{
    pcre2_match_context_free(iter->limits);
    pcre2_match_data_free(iter->match);
    hth_free(iter->copy);
    *iter = (hth_pretok_iter){0};
}
