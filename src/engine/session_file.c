/* The format of saved sessions: tokens, last logits, pages of keys and values, state of recurrent layers. A file belongs
 * to one model, arithmetic and set of options; restored, it gives the bits of the session that was saved. session_ends.c
 * says where the bytes go, and where they come from.
 *
 * All numbers are little-endian. The head (session_head, without padding), then int32 tokens[n_tok], float
 * logits[n_vocab] if HAS_LOGITS, the state, the pages of each class in ascending order, and the hash of everything
 * before it, by blocks of BLOCK_SIZE bytes. Positions of a page behind the last token are zero. */
#include "base/fp_state.h"
#include "engine/session_int.h"

#include "base/hash.h"

#include <string.h>

enum { BLOCK_SIZE = 1 << 16, VERSION = 3 };

enum {
    HAS_LOGITS = 1,
    HAS_CACHE = 2,   /* else the cache is computed again from the tokens: it was on a device */
    LONG_CONTEXT = 4, /* the context exceeds the original one: other frequencies (hth_rope) */
    BF16_DOT = 8,
    ALL_FLAGS = 15
};

typedef struct session_head {
    char magic[8];
    uint32_t version, arithmetic;
    uint64_t file_size, model_hash;
    uint64_t options_hash; /* hash of options that change results: selector and its data, activation */
    uint32_t kv_type, flags, n_vocab, n_tok;
    uint32_t first[HTH_N_KV_CLASS], end[HTH_N_KV_CLASS]; /* pages in the file */
    uint64_t page_size[HTH_N_KV_CLASS];
    uint64_t state_size;
} session_head;
_Static_assert(sizeof(session_head) == 128, "the head has no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "session files are little-endian");

static const char magic[8] = {'H', 'T', 'H', 'S', 'E', 'S', 'S', 'N'};

/* ---- what a file is bound to ------------------------------------------------------------------------------- */

static uint64_t hash_matrix(uint64_t h, const hth_matrix *m)
{
    h = hth_hash_more(h, &m->type, sizeof m->type);
    return hth_hash_more(h, m->data, m->n_row * m->row_size);
}

/* The model's hash covers its tensors. Of the metadata all pairs count that may change what is computed. */
static uint64_t hash_metadata(uint64_t h, const hth_gguf *file)
{
    for (size_t i = 0; i < hth_gguf_n_value(file); i++) {
        const hth_gguf_value *v = hth_gguf_value_at(file, i);
        if (hth_str_begins(v->key, "general.") || hth_str_begins(v->key, "tokenizer.")) continue;
        h = hth_hash_more(hth_hash_more(h, v->key.bytes, v->key.n), v->raw.bytes, v->raw.n);
    }
    return h;
}

/* Hashes the hyperparameters that model options may override, and those that an architecture has without metadata. */
static uint64_t hash_hparams(uint64_t h, const hth_hparams *p)
{
    const double numbers[] = {
        (double)p->norm_eps, (double)p->attn_softcap, (double)p->logit_softcap, p->rope.base, p->rope.window_base,
        p->rope.factor,      p->rope.magnitude,     p->score_width,           p->rope.kind, p->rope.n_rot,
        p->rope.scaling,     p->rope.n_ctx_original,  p->activation,            p->d_head,
        (double)p->score_scale, (double)p->alibi, (double)p->qkv_limit, (double)p->embedding_scale,
        (double)p->residual_scale, (double)p->logit_scale, p->parallel, p->rope.section_rule,
        p->rope.sections[0], p->rope.sections[1], p->rope.sections[2], p->rope.sections[3],
        p->experts.n_used, p->experts.n_group, p->experts.n_group_used, p->experts.score, p->experts.normalise,
        (double)p->experts.scale, p->experts.n_leading, p->experts.step, (double)p->temperature_scale,
        p->temperature_length, p->temperature_offset, p->recurrent.n_head, p->recurrent.n_head_key, p->recurrent.n_group,
        p->recurrent.d_state, p->recurrent.norms_low};
    h = hth_hash_more(h, p->architecture, strlen(p->architecture));
    return hth_hash_more(h, numbers, sizeof numbers);
}

/* Predictors and thresholds may come from sidecars, so that the model's hash does not cover them. */
static uint64_t hash_options(const hearth_session *s)
{
    const hth_model *m = s->model->model;
    hearth_selector selector = s->own ? hth_session_selector(s) : s->model->selector;
    uint64_t h = hash_hparams(hash_metadata(hth_hash(&selector, sizeof selector), m->file), &m->hparams);
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_ffn *f = &m->layers[i].ffn;
        h = hth_hash_more(h, &m->layers[i].attn.window, sizeof m->layers[i].attn.window);
        h = hth_hash_more(h, &m->layers[i].mixer, sizeof m->layers[i].mixer);
        h = hth_hash_more(h, &m->layers[i].attn.rotates, sizeof m->layers[i].attn.rotates);
        const hth_predictor *p = &f->predictor;
        if (selector == HEARTH_SELECTOR_THRESHOLD) h = hth_hash_more(h, f->thresholds, f->d_ff * sizeof(float));
        if (selector != HEARTH_SELECTOR_PREDICTOR) continue;
        h = hash_matrix(hash_matrix(h, &p->in), &p->out);
        h = hth_hash_more(h, &p->threshold, sizeof p->threshold);
        if (p->bias) h = hth_hash_more(h, p->bias, f->d_ff * sizeof *p->bias);
    }
    return h;
}

/* The head of a file of n_tok tokens of this session, without flags and pages. */
static hearth_status fill_head(const hearth_session *s, session_head *head, hearth_error *err)
{
    const hth_hparams *h = &s->model->model->hparams;
    *head = (session_head){.version = VERSION,
                           .arithmetic = HTH_ARITHMETIC_VERSION,
                           .options_hash = hash_options(s),
                           .kv_type = hth_kv_pool_type(s->seq.pool),
                           .n_vocab = h->n_vocab,
                           .n_tok = s->position,
                           .state_size = s->seq.state_size};
    memcpy(head->magic, magic, sizeof magic);
    if (s->model->model->rope_factors_long && s->seq.options.n_ctx > h->rope.n_ctx_original)
        head->flags |= LONG_CONTEXT;
    if (s->own && s->options.bf16_dot) head->flags |= BF16_DOT;
    for (int c = 0; c < HTH_N_KV_CLASS; c++)
        head->page_size[c] = hth_kv_pool_page_size(s->seq.pool, (hth_kv_class)c);
    head->model_hash = s->model_hash;
    return s->has_model_hash ? HEARTH_OK : hth_model_hash(s->model->file, &head->model_hash, err);
}

hearth_status hth_session_binding(const hearth_session *s, uint64_t *hash, hearth_error *err)
{
    session_head head;
    hearth_status st = fill_head(s, &head, err);
    head.n_tok = 0;
    *hash = hth_hash(&head, sizeof head);
    return st;
}

/* 0: overflow. */
static uint64_t file_size_of(const session_head *h)
{
    uint64_t size = sizeof *h + h->n_tok * sizeof(int32_t) + sizeof(uint64_t), part;
    if (h->flags & HAS_LOGITS) size += h->n_vocab * sizeof(float);
    if (!(h->flags & HAS_CACHE)) return size;
    if (__builtin_add_overflow(size, h->state_size, &size)) return 0;
    for (int c = 0; c < HTH_N_KV_CLASS; c++)
        if (__builtin_mul_overflow(h->page_size[c], h->end[c] - h->first[c], &part) ||
            __builtin_add_overflow(size, part, &size))
            return 0;
    return size;
}

/* ---- saving ------------------------------------------------------------------------------------------------ */

hearth_status hth_engine_prepare_save(hearth_session *s, hearth_error *err)
{
    hearth_status st = hth_model_hash(s->model->file, &s->model_hash, err);
    s->has_model_hash = st == HEARTH_OK;
    return st;
}

typedef struct output {
    const hth_session_sink *sink;
    uint8_t *block; /* [BLOCK_SIZE] */
    size_t n;
    uint64_t hash, n_done, n_all; /* bytes */
    hearth_progress_fn *progress; /* or NULL */
    void *user;
    hearth_error *err;
} output;

/* False: the caller cancels. */
static bool report_progress(const output *o)
{
    HTH_FP_CALLBACK;
    return !o->progress || o->progress(o->user, o->n_done, o->n_all);
}

static hearth_status flush(output *o)
{
    if (o->n == 0) return HEARTH_OK;
    if (!report_progress(o))
        return hth_fail(o->err, HEARTH_ERROR_CANCELLED, "writing a session was cancelled");
    o->n_done += o->n;
    o->hash = hth_hash_more(o->hash, o->block, o->n);
    hearth_status st = o->sink->write(o->sink->user, o->block, o->n, o->err);
    o->n = 0;
    return st;
}

static hearth_status put(output *o, const void *data, uint64_t size)
{
    const uint8_t *from = data;
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && size > 0) {
        size_t n = BLOCK_SIZE - o->n < size ? BLOCK_SIZE - o->n : (size_t)size;
        memcpy(o->block + o->n, from, n);
        o->n += n, from += n, size -= n;
        if (o->n == BLOCK_SIZE) st = flush(o);
    }
    return st;
}

static hearth_status put_pages(output *o, const hearth_session *s, const session_head *h)
{
    uint64_t largest = 0;
    for (int c = 0; c < HTH_N_KV_CLASS; c++) largest = h->page_size[c] > largest ? h->page_size[c] : largest;
    uint8_t *page = hth_alloc(1, largest);
    float *zero = hth_alloc(s->model->model->hparams.d_head, sizeof *zero);
    hearth_status st = page && zero ? HEARTH_OK : hth_fail_memory(o->err, largest, "a page");
    for (int c = 0; c < HTH_N_KV_CLASS; c++)
        for (uint32_t i = h->first[c]; st == HEARTH_OK && i < h->end[c]; i++) {
            hth_sequence_copy_page(&s->seq, &s->model->kernels, (hth_kv_class)c, i, zero, page);
            st = put(o, page, h->page_size[c]);
        }
    hth_free(zero);
    hth_free(page);
    return st;
}

hearth_status hth_session_put(const hearth_session *s, const hth_session_sink *sink, hearth_progress_fn *progress,
                              void *user, hearth_error *err)
{
    session_head head;
    if (s->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    hth_session_discard_draft((hearth_session *)(uintptr_t)s); /* draft tokens are no part of the session yet */
    hearth_status st = fill_head(s, &head, err);
    if (st != HEARTH_OK) return st;
    if (s->has_logits) head.flags |= HAS_LOGITS;
    if (!hth_engine_has_gpu(s->model) && hth_session_has_cache(s))
        head.flags |= HAS_CACHE; /* pages are not read back */
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        bool saved = head.flags & HAS_CACHE && head.page_size[c] > 0;
        head.first[c] = saved && c == HTH_KV_WINDOW ? s->seq.first_window : 0;
        head.end[c] = saved ? hth_kv_n_class_page(s->model->model, (hth_kv_class)c, head.n_tok) : 0;
    }
    head.file_size = file_size_of(&head);
    output o = {.sink = sink,
                .block = hth_alloc(1, BLOCK_SIZE),
                .n_all = head.file_size,
                .progress = progress,
                .user = user,
                .err = err};
    if (!o.block) return hth_fail_memory(err, BLOCK_SIZE, "writing a session");
    st = sink->begin ? sink->begin(sink->user, head.file_size, err) : HEARTH_OK;
    if (st == HEARTH_OK) st = put(&o, &head, sizeof head);
    if (st == HEARTH_OK) st = put(&o, s->tokens, head.n_tok * sizeof *s->tokens);
    if (st == HEARTH_OK && s->has_logits)
        st = put(&o, hearth_session_logits(s), head.n_vocab * sizeof *s->logits);
    for (int k = 0; st == HEARTH_OK && head.flags & HAS_CACHE && k < HTH_N_STATE; k++)
        if (s->seq.states[k].now) st = put(&o, s->seq.states[k].now->data, s->seq.states[k].size);
    if (st == HEARTH_OK && head.flags & HAS_CACHE) st = put_pages(&o, s, &head);
    if (st == HEARTH_OK) st = flush(&o);
    if (st == HEARTH_OK) st = sink->write(sink->user, &o.hash, sizeof o.hash, err);
    hth_free(o.block);
    return st;
}

/* ---- restoring --------------------------------------------------------------------------------------------- */

typedef struct input {
    const hth_session_source *source;
    const char *name; /* name of the source */
    uint8_t *block;   /* [BLOCK_SIZE] */
    size_t at, n;     /* bytes of the block that were read from it, and that it holds */
    uint64_t left;    /* bytes before the hash that are not in a block yet */
    uint64_t hash;
    hearth_error *err;
} input;

static hearth_status read_all(input *in, void *to, size_t n)
{
    return in->source->read(in->source->user, to, n, in->err);
}

/* Reads the rest of a block that holds n bytes. */
static hearth_status read_block(input *in, size_t n)
{
    size_t more = BLOCK_SIZE - n < in->left ? BLOCK_SIZE - n : (size_t)in->left;
    hearth_status st = more > 0 ? read_all(in, in->block + n, more) : HEARTH_OK;
    if (st != HEARTH_OK) return st;
    in->at = 0, in->n = n + more, in->left -= more;
    in->hash = hth_hash_more(in->hash, in->block, in->n);
    return HEARTH_OK;
}

static hearth_status get(input *in, void *to, uint64_t size)
{
    uint8_t *p = to;
    while (size > 0) {
        if (in->at == in->n) {
            hearth_status st = read_block(in, 0);
            if (st != HEARTH_OK) return st;
            if (in->n == 0) return hth_fail(in->err, HEARTH_ERROR_FORMAT, "%s: the file ends early", in->name);
        }
        size_t n = in->n - in->at < size ? in->n - in->at : (size_t)size;
        if (p) memcpy(p, in->block + in->at, n), p += n;
        in->at += n, size -= n;
    }
    return HEARTH_OK;
}

/* Reads the hash, which follows what was read. */
static hearth_status check_hash(input *in, const session_head *h)
{
    uint64_t expected;
    hearth_status st = read_all(in, &expected, sizeof expected);
    if (st != HEARTH_OK || expected == in->hash) return st;
    return hth_fail(in->err, HEARTH_ERROR_FORMAT, "%s: damaged: the checksum at %llu is wrong", in->name,
                    (unsigned long long)(h->file_size - sizeof expected));
}

static hearth_status fail_other(const input *in, const char *what)
{
    return hth_fail(in->err, HEARTH_ERROR_ARGUMENT, "%s: saved with %s; it cannot be restored here", in->name, what);
}

/* Compares the head with what this session would write, and with the size of the source, if that is known. */
static hearth_status check_head(const input *in, const hearth_session *s, const session_head *h)
{
    uint64_t size = in->source->size == UINT64_MAX ? h->file_size : in->source->size;
    session_head own;
    hearth_status st = fill_head(s, &own, in->err);
    if (st != HEARTH_OK) return st;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return hth_fail(in->err, HEARTH_ERROR_FORMAT, "%s: not a saved session of Hearth", in->name);
    if (h->version != VERSION)
        return hth_fail(in->err, HEARTH_ERROR_UNSUPPORTED, "%s: version %u of saved sessions; this program reads %d",
                        in->name, h->version, VERSION);
    if (h->arithmetic != own.arithmetic)
        return hth_fail(in->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: saved under arithmetic version %u; this program computes by version %u", in->name,
                        h->arithmetic, own.arithmetic);
    if (h->model_hash != own.model_hash || h->n_vocab != own.n_vocab) return fail_other(in, "another model");
    if (h->options_hash != own.options_hash)
        return fail_other(in, "another selector, activation or other metadata of the model");
    if (h->kv_type != own.kv_type) return fail_other(in, "another type of KV cache");
    if ((h->flags & BF16_DOT) != (own.flags & BF16_DOT)) return fail_other(in, "another setting of bf16_dot");
    if ((h->flags & LONG_CONTEXT) != (own.flags & LONG_CONTEXT))
        return fail_other(in, "a context on the other side of the original length: it uses other rope frequencies");
    if (h->n_tok > s->seq.options.n_ctx)
        return hth_fail(in->err, HEARTH_ERROR_CONTEXT,
                        "%s: %u tokens do not fit into a context of %u; raise n_ctx", in->name, h->n_tok,
                        s->seq.options.n_ctx);
    bool same = h->state_size == own.state_size && !(h->flags & ~(uint32_t)ALL_FLAGS);
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        bool cached = h->flags & HAS_CACHE && h->page_size[c] > 0;
        uint32_t end = cached ? hth_kv_n_class_page(s->model->model, (hth_kv_class)c, h->n_tok) : 0;
        uint32_t most = c == HTH_KV_WINDOW ? hth_sequence_first_visible(&s->seq, h->n_tok) : 0;
        same = same && h->page_size[c] == own.page_size[c] && h->end[c] == end && h->first[c] <= end &&
               h->first[c] <= most;
    }
    if (!same || h->file_size != size || file_size_of(h) != size)
        return hth_fail(in->err, HEARTH_ERROR_FORMAT,
                        "%s: damaged: its head contradicts itself or its size of %llu bytes", in->name,
                        (unsigned long long)size);
    return HEARTH_OK;
}

/* to NULL: they are only checked. */
static hearth_status get_tokens(input *in, const session_head *h, int32_t *to)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < h->n_tok; i++) {
        int32_t token = 0;
        st = get(in, &token, sizeof token);
        if (st == HEARTH_OK && (token < 0 || (uint32_t)token >= h->n_vocab))
            st = hth_fail(in->err, HEARTH_ERROR_FORMAT, "%s: token %u is %d", in->name, i, token);
        if (to) to[i] = token;
    }
    return st;
}

/* Reads the rest of the file after the head into the session. */
static hearth_status load(input *in, hearth_session *s, const session_head *h)
{
    hearth_status st = get_tokens(in, h, s->tokens);
    if (st == HEARTH_OK && h->flags & HAS_LOGITS) st = get(in, s->logits, h->n_vocab * sizeof *s->logits);
    if (st != HEARTH_OK || !(h->flags & HAS_CACHE)) return st;
    if ((st = hth_session_check_pages(s, h->n_tok, in->err)) != HEARTH_OK) return st;
    hth_sequence_overwrite(&s->seq, h->n_tok, h->first[HTH_KV_WINDOW]);
    for (int k = 0; st == HEARTH_OK && k < HTH_N_STATE; k++)
        if (s->seq.states[k].now) st = get(in, s->seq.states[k].now->data, s->seq.states[k].size);
    hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_EXPLICIT);
    for (int c = 0; c < HTH_N_KV_CLASS; c++)
        for (uint32_t i = h->first[c]; st == HEARTH_OK && i < h->end[c]; i++) {
            bool held = i >= s->seq.tables[c].first;
            st = get(in, held ? s->seq.tables[c].pages[i]->data : NULL, h->page_size[c]);
        }
    return st;
}

/* Reads the head, then the first block, which begins with it. */
static hearth_status begin_input(input *in, const hearth_session *s, session_head *h)
{
    *in = (input){.source = in->source, .name = in->name, .block = in->block, .err = in->err};
    hearth_status st = read_all(in, in->block, sizeof *h);
    if (st != HEARTH_OK) return st;
    memcpy(h, in->block, sizeof *h);
    if ((st = check_head(in, s, h)) != HEARTH_OK) return st;
    in->left = h->file_size - sizeof *h - sizeof in->hash;
    st = read_block(in, sizeof *h);
    in->at = sizeof *h;
    return st;
}

/* All that can be found wrong, before the session is changed. */
static hearth_status check_all(input *in, const session_head *h)
{
    hearth_status st = get_tokens(in, h, NULL);
    if (st == HEARTH_OK) st = get(in, NULL, in->left + (in->n - in->at));
    return st == HEARTH_OK ? check_hash(in, h) : st;
}

static hearth_status restore(input *in, hearth_session *s)
{
    session_head h;
    const hth_session_source *source = in->source;
    if (source->size < sizeof h + sizeof in->hash)
        return hth_fail(in->err, HEARTH_ERROR_FORMAT, "%s: not a saved session of Hearth: %llu bytes", in->name,
                        (unsigned long long)source->size);
    hearth_status st = begin_input(in, s, &h);
    if (source->rewind) {
        if (st == HEARTH_OK) st = check_all(in, &h);
        if (st == HEARTH_OK) st = source->rewind(source->user, in->err);
        if (st == HEARTH_OK) st = begin_input(in, s, &h);
    }
    if (st != HEARTH_OK) return st;
    hth_session_reset(s);
    st = load(in, s, &h);
    if (st == HEARTH_OK) st = check_hash(in, &h);
    if (st == HEARTH_OK) hth_session_set(s, h.n_tok, h.flags & HAS_LOGITS, h.flags & HAS_CACHE);
    else hth_session_reset(s);
    return st;
}

hearth_status hth_session_get(hearth_session *s, const hth_session_source *source, hearth_error *err)
{
    if (s->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    input in = {.source = source, .name = source->name, .block = hth_alloc(1, BLOCK_SIZE), .err = err};
    if (!in.block) return hth_fail_memory(err, BLOCK_SIZE, "reading a session");
    hearth_status st = restore(&in, s);
    hth_free(in.block);
    return st;
}
