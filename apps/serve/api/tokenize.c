/* POST /tokenize and /detokenize: {content, add_special, parse_special, with_pieces} to {tokens}, {tokens} to
 * {content}. */
#include "serve/endpoints.h"

#include "common/buffer.h"
#include "engine/engine.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

static void end_with_error(call *c, const hearth_error *err)
{
    problem p;
    problem_of_error(&p, err);
    call_problem(c, &p);
}

/* ---- to tokens ----------------------------------------------------------------------------------------- */

static bool is_utf8(const char *text, size_t n)
{
    uint32_t ignored;
    for (size_t i = 0, size; i < n; i += size) {
        size = hth_text_utf8_decode(text + i, n - i, &ignored);
        if (size == 0) return false;
    }
    return true;
}

/* A piece as text, or as its bytes if it is a part of a character. */
static void write_piece(json *j, const hth_tokenizer *tok, int32_t id)
{
    size_t n;
    const char *piece = hth_token_piece(tok, id, true, &n);
    json_open_compact(j, NULL, '{');
    json_int(j, "id", id);
    if (is_utf8(piece, n)) {
        json_text(j, "piece", piece, n);
    } else {
        json_open_compact(j, "piece", '[');
        for (size_t i = 0; i < n; i++) json_uint(j, NULL, (unsigned char)piece[i]);
        json_close(j, ']');
    }
    json_close(j, '}');
}

static void answer_tokens(call *c, const served_model *served, const int32_t *ids, size_t n, bool with_pieces)
{
    json_line l;
    if (json_line_begin(&l)) {
        json_open_compact(&l.j, "tokens", '[');
        for (size_t i = 0; i < n && !call_is_cancelled(c); i++) {
            if (with_pieces) write_piece(&l.j, served->model->tokenizer, ids[i]);
            else json_int(&l.j, NULL, ids[i]);
        }
        json_close(&l.j, ']');
    }
    call_line(c, &l);
}

void tokenize_run(void *user, call *c)
{
    const served_model *served = user;
    fields f;
    problem p;
    hearth_error err;
    const char *text = NULL;
    size_t n = 0, n_ids;
    int32_t *ids = NULL;
    bool add_special = false, parse_special = true, with_pieces = false;
    bool ok = fields_read(c, &f, &p) && fields_need_text(&f, "content", &text, &n) &&
              fields_bool(&f, "add_special", &add_special) &&
              fields_bool(&f, "parse_special", &parse_special) &&
              fields_bool(&f, "with_pieces", &with_pieces);
    unsigned flags = (add_special ? (unsigned)HEARTH_ADD_SPECIAL : 0u) |
                     (parse_special ? (unsigned)HEARTH_PARSE_SPECIAL : 0u);
    if (!ok) {
        call_problem(c, &p);
    } else if (hearth_tokenize(served->model, text, n, flags, &ids, &n_ids, &err) != HEARTH_OK) {
        end_with_error(c, &err);
    } else {
        answer_tokens(c, served, ids, n_ids, with_pieces);
    }
    hearth_free(ids);
}

/* ---- to text ------------------------------------------------------------------------------------------- */

static bool add_token(fields *f, const served_model *served, hearth_detokenizer *d, const hth_json *v,
                      buffer *text)
{
    hearth_error err;
    const char *piece;
    size_t n;
    char name[40];
    snprintf(name, sizeof name, "tokens[%u]", v->index);
    if (!fields_need_kind(f, name, HTH_JSON_INTEGER, v)) return false;
    int64_t id = v->integer;
    if (id < 0 || id >= (int64_t)served->info.n_vocab)
        return fields_fail(f, name, "the vocabulary has the ids 0 to %u, not %lld", served->info.n_vocab - 1,
                           (long long)id);
    if (hearth_detokenizer_push(d, (int32_t)id, &piece, &n, &err) != HEARTH_OK)
        return fields_fail(f, name, "%s", err.message);
    if (buffer_add(text, piece, n)) return true;
    problem_set(f->problem, 503, "", "out of memory");
    return false;
}

static void answer_text(call *c, buffer *text)
{
    json_line l;
    if (json_line_begin(&l)) json_text(&l.j, "content", text->bytes ? text->bytes : "", text->n);
    call_line(c, &l);
}

void detokenize_run(void *user, call *c)
{
    const served_model *served = user;
    fields f;
    problem p;
    hearth_error err;
    const hth_json *tokens = NULL;
    const char *tail;
    size_t n;
    hearth_detokenizer *d = NULL;
    buffer text = {0};
    bool ok = fields_read(c, &f, &p) && fields_need_array(&f, "tokens", &tokens);
    if (ok && hearth_detokenizer_open(served->model, true, true, &d, &err) != HEARTH_OK) {
        problem_of_error(&p, &err);
        ok = false;
    }
    for (const hth_json *v = hth_json_first(tokens); ok && v; v = v->next) ok = add_token(&f, served, d, v, &text);
    if (ok) {
        hearth_detokenizer_flush(d, &tail, &n);
        if (!buffer_add(&text, tail, n)) problem_set(&p, 503, "", "out of memory"), ok = false;
    }
    if (ok) answer_text(c, &text);
    else call_problem(c, &p);
    free(text.bytes);
    hearth_detokenizer_close(d);
}
