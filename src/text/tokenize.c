/* Text to ids. The text is split at special tokens (special.c); the fragments between them go to spm.c, bpe.c,
 * unigram.c or wordpiece.c.
 * Called by engine/ and the program. The parts of a conversation are joined first, so that the boundary between
 * two parts affects neither the space prefix nor splitting nor merging. */
#include "base/checked_math.h"
#include "base/log.h"
#include "text/internal.h"

#include <string.h>

static hearth_status encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text, size_t n,
                            hth_ids *ids, hearth_error *err)
{
    switch (tok->algorithm) {
    case HTH_TEXT_BPE: return hth_text_bpe_encode(tok, work, text, n, ids, err);
    case HTH_TEXT_UNIGRAM: return hth_text_unigram_encode(tok, work, text, n, ids, err);
    case HTH_TEXT_WORDPIECE: return hth_text_wordpiece_encode(tok, work, text, n, ids, err);
    default: return hth_text_spm_encode(tok, work, text, n, ids, err);
    }
}

/* Encodes the fragments between special tokens, and these tokens. */
static hearth_status add_text(const hth_tokenizer *tok, hth_tokenize_scratch *work, hth_str text,
                              const hth_text_matches *specials, hth_ids *ids, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    size_t from = 0;
    for (size_t i = 0; i < specials->n && status == HEARTH_OK; i++) {
        hth_text_match m = specials->match[i];
        status = encode(tok, work, text.bytes + from, m.at - from, ids, err);
        if (status == HEARTH_OK) status = hth_ids_push(ids, m.id, err);
        from = m.end;
    }
    if (status == HEARTH_OK) status = encode(tok, work, text.bytes + from, text.n - from, ids, err);
    return status;
}

/* When to add BOS. BOS_ONCE: not to a text that starts with it. */
typedef enum bos_rule { BOS_NEVER, BOS_ALWAYS, BOS_ONCE } bos_rule;

static hearth_status add_bos(const hth_tokenizer *tok, bos_rule rule, const hth_text_matches *specials,
                             hth_ids *ids, hearth_error *err)
{
    bool has_bos = specials->n > 0 && specials->match[0].at == 0 && specials->match[0].id == tok->bos;
    if (rule == BOS_NEVER || (rule == BOS_ONCE && has_bos) || !hth_tokenizer_adds_bos(tok)) return HEARTH_OK;
    if (has_bos) hth_log(HEARTH_LOG_WARN, "the text begins with the BOS token and gets another one");
    return hth_ids_push(ids, tok->bos, err);
}

/* spans: template text, where control tokens are recognised. */
static hearth_status tokenize(const hth_tokenizer *tok, hth_str text, const hth_text_span *spans,
                              size_t n_span, bos_rule rule, hth_ids *ids, size_t *n_unencodable, hearth_error *err)
{
    const size_t n_before = ids->n;
    hth_text_matches specials = {0};
    hth_tokenize_scratch work = {0};
    hearth_status status = hth_text_find_specials(tok, text, spans, n_span, &specials, err);
    if (status == HEARTH_OK) status = add_bos(tok, rule, &specials, ids, err);
    if (status == HEARTH_OK) status = add_text(tok, &work, text, &specials, ids, err);
    if (status == HEARTH_OK && rule != BOS_NEVER && tok->last >= 0) status = hth_ids_push(ids, tok->last, err);

    if (n_unencodable) *n_unencodable = work.n_unencodable;
    if (status != HEARTH_OK) ids->n = n_before;
    hth_tokenize_scratch_free(&work);
    hth_text_matches_free(&specials);
    return status;
}

hearth_status hth_tokenize(const hth_tokenizer *tok, const char *text, size_t n, unsigned flags, hth_ids *ids,
                           size_t *n_unencodable, hearth_error *err)
{
    const hth_text_span whole = {0, n};
    return tokenize(tok, (hth_str){text, n}, &whole, flags & HEARTH_PARSE_SPECIAL ? 1 : 0,
                    flags & HEARTH_ADD_SPECIAL ? BOS_ALWAYS : BOS_NEVER, ids, n_unencodable, err);
}

/* Joins the parts into bytes, and lists the spans of template text. Adjacent spans are merged. */
static size_t join(const hth_text_part *parts, size_t n_part, char *bytes, hth_text_span *spans)
{
    size_t at = 0, n_span = 0;
    for (size_t i = 0; i < n_part; i++) {
        const hth_text_part *p = &parts[i];
        if (p->n == 0) continue;
        memcpy(bytes + at, p->text, p->n);
        if (p->is_template) {
            if (n_span > 0 && spans[n_span - 1].end == at) spans[n_span - 1].end += p->n;
            else spans[n_span++] = (hth_text_span){at, at + p->n};
        }
        at += p->n;
    }
    return n_span;
}

hearth_status hth_tokenize_parts(const hth_tokenizer *tok, const hth_text_part *parts, size_t n_part,
                                 unsigned flags, hth_ids *ids, size_t *n_unencodable, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    size_t n = 0;
    for (size_t i = 0; i < n_part; i++)
        if (!hth_add_size(n, parts[i].n, &n)) return hth_fail_memory(err, SIZE_MAX, "text");
    char *bytes = hth_alloc(n, 1);
    hth_text_span *spans = hth_alloc(n_part, sizeof *spans);
    if (!bytes || !spans) {
        status = hth_fail_memory(err, n, "text");
        goto done;
    }
    size_t n_span = join(parts, n_part, bytes, spans);
    status = tokenize(tok, (hth_str){bytes, n}, spans, n_span,
                      flags & HEARTH_ADD_SPECIAL ? BOS_ONCE : BOS_NEVER, ids, n_unencodable, err);
done:
    hth_free(spans);
    hth_free(bytes);
    return status;
}
