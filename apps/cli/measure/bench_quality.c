/* Quality loss of the mode that hearth bench times: runs the text of -f with it and with the same file dense
 * with an F16 cache, after the last timed sample, in separate sessions. The figures are those of hearth compare
 * over chunks of the same length. */
#include "cli/measure/bench.h"
#include "common/options/model_args.h"
#include "engine/engine.h"
#include "measure/chunks.h"

#include <stdlib.h>

/* Tokens of a chunk, if the model's context allows, and of all chunks together. */
enum { CHUNK_TOKENS = 512, DEFAULT_TOKENS = 2048, MIN_CHUNK = 3 };

/* Divides the text into chunks before anything is measured, so that a text that is too short is reported at
 * once. */
static bool check_text(const bench_quality *p, const hearth_model *model)
{
    hth_chunks w;
    hearth_error err;
    if (hth_chunks_open(&w, model, p->text, p->n_text, p->n_ctx, &err) == HEARTH_OK) {
        hth_chunks_close(&w);
        return true;
    }
    report_text("%s: %s", p->path, err.message);
    return false;
}

bool bench_open_quality(bench *b, const args *a, const hearth_model *model)
{
    bench_quality *p = &b->quality;
    uint64_t capacity = args_uint(a, "ctx", b->info.n_ctx_train);
    if (!p->path) return true;
    p->of_reference = is_reference(a, model);
    p->n_ctx = capacity < CHUNK_TOKENS ? (uint32_t)capacity : CHUNK_TOKENS;
    if (p->n_ctx < MIN_CHUNK) p->n_ctx = MIN_CHUNK; /* shorter chunks score nothing */
    p->n_chunk = args_uint(a, "chunks", (DEFAULT_TOKENS + p->n_ctx - 1) / p->n_ctx);
    p->text = read_text_file(p->path, &p->n_text);
    return p->text && (p->of_reference || check_text(p, model));
}

static hearth_status compare(bench_quality *p, const hearth_model *model, hearth_error *err)
{
    hth_compare_side reference = {model, p->reference}, mode = {model, p->mode};
    progress shown;
    hearth_status st = hth_compare_open(&reference, &mode, &p->compare, err);
    if (st != HEARTH_OK) return st;
    progress_init(&shown, "comparing", "chunks", 1);
    st = hth_measure_compare(p->compare, p->text, p->n_text, p->n_chunk, progress_show, &shown, &p->result,
                             err);
    progress_end(&shown);
    return st;
}

/* Verifies a mode that is declared exact. */
static bool check_exact(const bench *b)
{
    const hth_comparison *r = &b->quality.result;
    if (b->approximate || r->n_identical == r->n_scored) return true;
    report_text(
        "%s: selector %s calls itself exact, but the logits of %llu of %llu positions are not those of "
        "dense",
        b->info.path, hearth_selector_name(b->info.selector),
        (unsigned long long)(r->n_scored - r->n_identical), (unsigned long long)r->n_scored);
    return false;
}

bool bench_measure_quality(bench *b, const args *a, const hearth_model *model)
{
    bench_quality *p = &b->quality;
    hearth_error err;
    if (!p->text || p->of_reference) return true;
    hearth_session_options o = session_options(a, 0);
    o.n_ctx = p->n_ctx;
    hearth_status st = hearth_session_open(model, &o, &p->mode, &err);
    if (st == HEARTH_OK && !open_reference(a, model, p->mode, &p->reference)) return false;
    if (st == HEARTH_OK) st = compare(p, model, &err);
    if (st != HEARTH_OK) report(&err);
    return st == HEARTH_OK && check_exact(b);
}

void bench_close_quality(bench_quality *p)
{
    hth_compare_close(p->compare); /* frees the layers of the result */
    hearth_session_close(p->reference);
    hearth_session_close(p->mode);
    free(p->text);
}
