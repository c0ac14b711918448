/* Sequences: page tables over a shared pool, and states with checkpoints. Called by the engine around steps, and by
 * mixers within them. */
#include "forward/sequence.h"

#include "base/checked_math.h"
#include "base/format_bytes.h"
#include "base/system/system_memory.h"

#include <assert.h>
#include <string.h>

static const hth_model *model_of(const hth_sequence *s) { return hth_kv_pool_model(s->pool); }

/* The widest window. */
static uint32_t window_of(const hth_model *m)
{
    uint32_t window = 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_layer *l = &m->layers[i];
        if (l->attn.n_head_kv > 0 && l->attn.window > window) window = l->attn.window;
    }
    return window;
}

static uint32_t n_page_of(const hth_sequence *s, hth_kv_class class, uint32_t n_pos)
{
    return hth_kv_n_class_page(model_of(s), class, n_pos);
}

static bool releases(const hth_sequence_options *o) { return o->release_window && o->n_step > 0; }

uint32_t hth_sequence_max_step(const hth_sequence *s)
{
    return releases(&s->options) ? s->options.n_step : s->options.n_ctx;
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

size_t hth_sequence_state_size(const hth_model *m)
{
    return hth_kv_state_size(m, HTH_STATE_STEP) + hth_kv_state_size(m, HTH_STATE_CHUNK);
}

/* Pages that a sequence holds of a class. */
static uint32_t count_held(const hth_model *model, const hth_sequence_options *options, hth_kv_class class)
{
    uint32_t n_page = options->budget ? 0 : hth_kv_n_class_page(model, class, options->n_ctx);
    if (class != HTH_KV_WINDOW || !releases(options)) return n_page;
    /* A step sees the window before its first token; both ends may lie inside a page. */
    uint64_t n = ((uint64_t)window_of(model) + options->n_step) / HTH_KV_PAGE + 2;
    return n < n_page ? (uint32_t)n : n_page;
}

bool hth_sequence_size(const hth_model *model, hearth_kv_type type, const hth_sequence_options *options, size_t *size)
{
    size_t sizes[HTH_N_KV_CLASS], part;
    if (!hth_kv_page_sizes(model, type, sizes)) return false;
    *size = HTH_N_STATE_COPY * hth_sequence_state_size(model);
    for (int c = 0; c < HTH_N_KV_CLASS; c++)
        if (!hth_mul_size(sizes[c], count_held(model, options, (hth_kv_class)c), &part) ||
            !hth_add_size(*size, part, size))
            return false;
    return true;
}

static hearth_status fail_reserve(const hth_sequence *s, hth_kv_reserved why, hearth_error *err)
{
    size_t size;
    if (why == HTH_KV_OVER_LIMIT)
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "%s: no room for %u positions beside other sessions on its device: it was opened for %u in "
                        "all; open it with a larger gpu.n_ctx, or close a session",
                        hth_gguf_path(model_of(s)->file), s->options.n_ctx,
                        hth_kv_pool_limit(s->pool) * HTH_KV_PAGE);
    if (why == HTH_KV_OVER_STATES)
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "%s: no room for the states of one more session on its device, which has those of %u; close a "
                        "session, or open it with a larger gpu.n_session",
                        hth_gguf_path(model_of(s)->file), hth_kv_pool_state_limit(s->pool) / HTH_N_STATE_COPY_ON_DEVICE);
    if (!hth_sequence_size(model_of(s), hth_kv_pool_type(s->pool), &s->options, &size)) size = SIZE_MAX;
    hth_system_memory machine;
    hth_system_memory_read("", &machine);
    return hth_fail(err, HEARTH_ERROR_MEMORY,
                    "no memory: %s for a context of %u positions, and this machine has %s; the model was trained for %u: ask for "
                    "less with n_ctx",
                    hth_format_bytes(size).text, s->options.n_ctx, hth_format_bytes(machine.total).text,
                    model_of(s)->hparams.n_ctx_train);
}

static void hold(hth_page_table *t, uint32_t i, hth_kv_page *page)
{
    t->pages[i] = page;
    t->data[i] = page ? page->data : NULL;
}

/* Copies of the states that a sequence may hold. */
static uint32_t n_copy_of(const hth_sequence *s) { return 2 + HTH_N_CHECKPOINT_KIND * s->n_kept; }

static hth_kv_class class_of(int kind) { return (hth_kv_class)(HTH_KV_STATES + kind); }

static void share(hth_sequence *s, int kind, hth_kv_page *page, hth_kv_page **to)
{
    if (*to) hth_kv_page_drop(s->pool, class_of(kind), *to);
    hth_kv_page_share(s->pool, page);
    *to = page;
}

/* Makes a page of states one that may be written: no other sequence or checkpoint holds it. */
static void own_state(hth_sequence *s, int kind, hth_kv_page **page, bool copies)
{
    *page = copies ? hth_kv_page_copy_shared(s->pool, class_of(kind), *page)
                   : hth_kv_page_replace_shared(s->pool, class_of(kind), *page);
    (*page)->is_zero = false;
}

/* Makes `now` zero. */
static void clear_state(hth_sequence *s, int kind)
{
    hth_kv_page *now = hth_kv_page_replace_shared(s->pool, class_of(kind), s->states[kind].now);
    if (!now->is_zero) memset(now->data, 0, s->states[kind].size);
    now->is_zero = true;
    s->states[kind].now = now;
}

/* Takes the pages of the states, or shares those of `from`. */
static void open_states(hth_sequence *s, const hth_sequence *from)
{
    for (int k = 0; k < HTH_N_STATE; k++) {
        s->states[k].size = hth_kv_pool_page_size(s->pool, class_of(k));
        s->state_size += s->states[k].size;
        if (s->states[k].size == 0) continue;
        s->states[k].now = hth_kv_page_take(s->pool, class_of(k), NULL);
        s->states[k].next = hth_kv_page_take(s->pool, class_of(k), NULL);
        if (!from) clear_state(s, k);
    }
}

/* from: the sequence whose pages up to n_tok are shared; NULL: none. */
static hearth_status open_sequence(hth_sequence *s, hth_kv_pool *pool, const hth_sequence_options *options,
                                   const hth_sequence *from, hearth_error *err)
{
    bool on_device = hth_kv_pool_state_limit(pool) > 0;
    *s = (hth_sequence){.pool = pool,
                        .options = *options,
                        .n_page = hth_kv_n_page(options->n_ctx),
                        .n_kept = on_device ? HTH_KEPT_ON_DEVICE : HTH_KEPT};
    uint32_t n_held[HTH_N_PAGE_CLASS];
    bool ok = true;
    for (int c = 0; c < HTH_N_PAGE_CLASS; c++) {
        bool used = hth_kv_pool_page_size(pool, (hth_kv_class)c) > 0;
        n_held[c] = !used ? 0 : c < HTH_KV_STATES ? count_held(model_of(s), options, (hth_kv_class)c) : n_copy_of(s);
    }
    hth_kv_reserved reserved = hth_kv_pool_reserve(pool, n_held);
    if (reserved != HTH_KV_RESERVED) {
        hearth_status st = fail_reserve(s, reserved, err);
        s->pool = NULL; /* nothing to close */
        return st;
    }
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        s->tables[c].n_held = n_held[c];
        s->tables[c].pages = hth_alloc(s->n_page, sizeof *s->tables[c].pages);
        s->tables[c].data = hth_alloc(s->n_page, sizeof *s->tables[c].data);
        ok = ok && s->tables[c].pages && s->tables[c].data;
    }
    open_states(s, from);
    if (!ok) {
        hearth_status st = hth_fail_memory(err, s->n_page * sizeof(void *), "the pages of a sequence");
        hth_sequence_close(s);
        return st;
    }
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        hth_page_table *t = &s->tables[c];
        bool used = hth_kv_pool_page_size(pool, (hth_kv_class)c) > 0;
        /* It counts pages before t->first, too. */
        uint32_t n_shared = from && used ? n_page_of(from, (hth_kv_class)c, from->n_tok) : 0;
        if (from) t->first = from->tables[c].first;
        if (from && options->budget) t->n_held = n_shared > t->first ? n_shared - t->first : 0;
        for (uint32_t i = t->first; i < t->first + t->n_held; i++) {
            hth_kv_page *page = i < n_shared ? from->tables[c].pages[i] : hth_kv_page_take(pool, (hth_kv_class)c, NULL);
            if (i < n_shared) hth_kv_page_share(pool, page);
            hold(t, i, page);
        }
    }
    return HEARTH_OK;
}

hearth_status hth_sequence_open(hth_sequence *s, hth_kv_pool *pool, const hth_sequence_options *options,
                                hearth_error *err)
{
    return open_sequence(s, pool, options, NULL, err);
}

static void drop_checkpoint(hth_sequence *s, hth_checkpoint *c)
{
    c->valid = false;
    for (int k = 0; k < HTH_N_STATE; k++) {
        if (c->pages[k]) hth_kv_page_drop(s->pool, class_of(k), c->pages[k]);
        c->pages[k] = NULL;
    }
}

void hth_sequence_close(hth_sequence *s)
{
    uint32_t n_held[HTH_N_PAGE_CLASS];
    if (!s->pool) return;
    for (int k = 0; k < HTH_N_STATE; k++) {
        bool used = s->states[k].size > 0;
        n_held[class_of(k)] = used ? n_copy_of(s) : 0;
        if (used) hth_kv_page_drop(s->pool, class_of(k), s->states[k].now);
        if (used) hth_kv_page_drop(s->pool, class_of(k), s->states[k].next);
    }
    for (int i = 0; i < HTH_N_CHECKPOINT; i++) drop_checkpoint(s, &s->checkpoints[i]);
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        hth_page_table *t = &s->tables[c];
        n_held[c] = t->n_held;
        for (uint32_t i = t->first; t->pages && i < t->first + t->n_held; i++)
            if (t->pages[i]) hth_kv_page_drop(s->pool, (hth_kv_class)c, t->pages[i]);
        hth_free(t->pages);
        hth_free(t->data);
    }
    for (int c = 0; s->options.budget && c < HTH_N_KV_CLASS; c++) n_held[c] = 0;
    hth_kv_pool_unreserve(s->pool, n_held);
    *s = (hth_sequence){0};
}

hearth_status hth_sequence_fork(const hth_sequence *from, hth_sequence *s, hearth_error *err)
{
    hearth_status st = open_sequence(s, from->pool, &from->options, from, err);
    if (st != HEARTH_OK) return st;
    s->n_tok = from->n_tok;
    s->first_window = from->first_window;
    s->ahead = from->ahead;
    for (int k = 0; k < HTH_N_STATE; k++) {
        if (s->states[k].size == 0) continue;
        share(s, k, from->states[k].now, &s->states[k].now);
        share(s, k, from->states[k].next, &s->states[k].next); /* that of a chunk is used if a draft has ended it */
    }
    for (uint32_t i = 0; i < HTH_N_CHECKPOINT; i++) {
        const hth_checkpoint *c = &from->checkpoints[i];
        if (i % HTH_KEPT >= s->n_kept) continue;
        s->checkpoints[i].n_tok = c->n_tok, s->checkpoints[i].valid = c->valid;
        for (int k = 0; k < HTH_N_STATE; k++)
            if (c->pages[k]) share(s, k, c->pages[k], &s->checkpoints[i].pages[k]);
    }
    return HEARTH_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------- */

/* Pages [first, end), whose contents are not needed. */
static void replace_shared(hth_sequence *s, hth_kv_class class, uint32_t first, uint32_t end)
{
    hth_page_table *t = &s->tables[class];
    for (uint32_t i = first; i < end; i++)
        if (hth_kv_page_is_shared(t->pages[i])) hold(t, i, hth_kv_page_replace_shared(s->pool, class, t->pages[i]));
}

/* With a budget: takes pages up to `end`. */
static void take_pages(hth_sequence *s, hth_kv_class class, uint32_t end)
{
    hth_page_table *t = &s->tables[class];
    for (; s->options.budget && t->first + t->n_held < end; t->n_held++)
        hold(t, t->first + t->n_held, hth_kv_page_take(s->pool, class, s->options.budget));
}

/* With a budget: drops the pages from `end` on. */
static void drop_pages(hth_sequence *s, hth_kv_class class, uint32_t end)
{
    hth_page_table *t = &s->tables[class];
    for (; s->options.budget && t->n_held > 0 && t->first + t->n_held > end; t->n_held--) {
        hth_kv_page_drop(s->pool, class, t->pages[t->first + t->n_held - 1]);
        hold(t, t->first + t->n_held - 1, NULL);
    }
}

void hth_sequence_count_missing(const hth_sequence *s, uint32_t n_new, uint32_t n_page[HTH_N_KV_CLASS])
{
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        const hth_page_table *t = &s->tables[c];
        uint32_t first = hth_kv_n_entry(model_of(s), (hth_kv_class)c, s->n_tok) / HTH_KV_PAGE,
                 held = t->first + t->n_held, end = n_page_of(s, (hth_kv_class)c, s->n_tok + n_new);
        if (hth_kv_pool_page_size(s->pool, (hth_kv_class)c) == 0) continue;
        if (end > held) n_page[c] += end - held;
        for (uint32_t i = first; i < end && i < held; i++) n_page[c] += hth_kv_page_is_shared(t->pages[i]);
    }
}

/* A step writes `next`, and adds tokens to a chunk in place. */
static void prepare_states(hth_sequence *s)
{
    for (int k = 0; k < HTH_N_STATE; k++) {
        if (s->states[k].size == 0) continue;
        own_state(s, k, &s->states[k].next, false);
        if (k == HTH_STATE_CHUNK) own_state(s, k, &s->states[k].now, true);
    }
}

void hth_sequence_prepare(hth_sequence *s, uint32_t n_new)
{
    assert(n_new > 0 && n_new <= s->options.n_ctx - s->n_tok && n_new <= hth_sequence_max_step(s));
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        hth_page_table *t = &s->tables[c];
        if (hth_kv_pool_page_size(s->pool, (hth_kv_class)c) == 0) continue;
        uint32_t n_old = hth_kv_n_entry(model_of(s), (hth_kv_class)c, s->n_tok), first = n_old / HTH_KV_PAGE,
                 end = n_page_of(s, (hth_kv_class)c, s->n_tok + n_new);
        take_pages(s, (hth_kv_class)c, end);
        assert(first >= t->first && end <= t->first + t->n_held);
        if (n_old % HTH_KV_PAGE > 0 && hth_kv_page_is_shared(t->pages[first]))
            hold(t, first, hth_kv_page_copy_shared(s->pool, (hth_kv_class)c, t->pages[first]));
        replace_shared(s, (hth_kv_class)c, hth_kv_n_page(n_old), end);
    }
    prepare_states(s);
}

/* Reuses the pages before `first` for positions behind the last page, as far as the context goes; drops them if there is
 * a budget. */
static void release_pages(hth_sequence *s, hth_kv_class class, uint32_t first)
{
    hth_page_table *t = &s->tables[class];
    bool drops = s->options.budget != NULL;
    for (; t->first < first && (drops ? t->n_held > 0 : t->first + t->n_held < s->n_page); t->first++) {
        hth_kv_page *page = t->pages[t->first];
        hold(t, t->first, NULL);
        if (!drops) hold(t, t->first + t->n_held, page); /* copied before it is written, if it is shared */
        else hth_kv_page_drop(s->pool, class, page), t->n_held--;
    }
    if (s->first_window < t->first) s->first_window = t->first;
}

uint32_t hth_sequence_first_visible(const hth_sequence *s, uint32_t n_tok)
{
    uint32_t window = window_of(model_of(s));
    return window > 0 && n_tok >= window ? (n_tok + 1 - window) / HTH_KV_PAGE : 0;
}

void hth_sequence_checkpoint(hth_sequence *s, hth_checkpoint_kind kind)
{
    if (s->state_size == 0 || s->n_tok == 0) return;
    hth_checkpoint *of_kind = &s->checkpoints[kind * HTH_KEPT], *c = of_kind;
    for (uint32_t i = 0; i < s->n_kept; i++) {
        if (of_kind[i].valid && of_kind[i].n_tok == s->n_tok) return;
        if (!of_kind[i].valid || (c->valid && of_kind[i].n_tok < c->n_tok)) c = &of_kind[i];
    }
    c->n_tok = s->n_tok, c->valid = true;
    for (int k = 0; k < HTH_N_STATE; k++)
        if (s->states[k].now) share(s, k, s->states[k].now, &c->pages[k]);
}

/* Pages that no later token sees are reused. */
static void release_window(hth_sequence *s)
{
    if (releases(&s->options) && s->tables[HTH_KV_WINDOW].n_held > 0)
        release_pages(s, HTH_KV_WINDOW, hth_sequence_first_visible(s, s->n_tok));
}

static void swap_state(hth_sequence *s, hth_state_kind kind)
{
    hth_kv_page *written = s->states[kind].next;
    s->states[kind].next = s->states[kind].now, s->states[kind].now = written;
}

void hth_sequence_commit(hth_sequence *s, uint32_t n_new)
{
    uint32_t before = s->n_tok;
    s->n_tok += n_new;
    swap_state(s, HTH_STATE_STEP);
    if (before / HTH_CHUNK != s->n_tok / HTH_CHUNK) swap_state(s, HTH_STATE_CHUNK);
    if (before / HTH_CHECKPOINT_STEP != s->n_tok / HTH_CHECKPOINT_STEP)
        hth_sequence_checkpoint(s, HTH_CHECKPOINT_REGULAR);
    release_window(s);
}

void hth_sequence_set_ahead(hth_sequence *s, uint32_t n, const uint8_t *states)
{
    assert(n < HTH_CHUNK && n < s->n_tok);
    s->ahead.n = n, s->ahead.states = states;
}

/* ---- going back -------------------------------------------------------------------------------------------- */

/* Whether the pages that the token at position n sees are all there. */
static bool has_window(const hth_sequence *s, uint32_t n)
{
    return s->first_window <= hth_sequence_first_visible(s, n);
}

uint32_t hth_sequence_reachable(const hth_sequence *s, uint32_t n)
{
    uint32_t best = 0;
    if (n >= s->n_tok) return s->n_tok;
    if (s->state_size == 0 || n >= s->n_tok - s->ahead.n) return has_window(s, n) ? n : 0;
    for (int i = 0; i < HTH_N_CHECKPOINT; i++) {
        const hth_checkpoint *c = &s->checkpoints[i];
        if (c->valid && c->n_tok <= n && c->n_tok > best && has_window(s, c->n_tok)) best = c->n_tok;
    }
    return best;
}

static void move_to_front(hth_page_table *t)
{
    for (uint32_t i = 0; t->first > 0 && i < t->n_held; i++) { /* ascending: no page is overwritten */
        hth_kv_page *page = t->pages[t->first + i];
        hold(t, t->first + i, NULL);
        hold(t, i, page);
    }
    t->first = 0;
}

/* The states before a token of the draft. The copy of a chunk that the draft completed has all of its tokens. */
static void return_to_draft(hth_sequence *s, uint32_t n)
{
    uint32_t i = n - (s->n_tok - s->ahead.n), end = s->n_tok;
    size_t size = s->states[HTH_STATE_STEP].size;
    hth_kv_page **step = &s->states[HTH_STATE_STEP].now, **chunk = &s->states[HTH_STATE_CHUNK].now;
    if (*step) {
        /* A device returns by what its copy has of the tokens before. */
        own_state(s, HTH_STATE_STEP, step, true);
        memcpy((*step)->data, s->ahead.states + i * size, size);
    }
    if (!*chunk) return;
    if (n / HTH_CHUNK != end / HTH_CHUNK) {
        swap_state(s, HTH_STATE_CHUNK);
        end = (n / HTH_CHUNK + 1) * HTH_CHUNK;
    }
    own_state(s, HTH_STATE_CHUNK, chunk, true);
    hth_sequence_clear_chunk(s, n, end - n);
}

/* The states of position n, of checkpoints if in_draft is false; drops later checkpoints. */
static void return_states(hth_sequence *s, uint32_t n, bool in_draft)
{
    bool lacks_regular = false;
    for (int k = 0; n == 0 && k < HTH_N_STATE; k++)
        if (s->states[k].now) clear_state(s, k);
    for (int i = 0; i < HTH_N_CHECKPOINT; i++) {
        hth_checkpoint *c = &s->checkpoints[i];
        bool is_it = c->valid && c->n_tok == n && n > 0 && !in_draft;
        for (int k = 0; is_it && k < HTH_N_STATE; k++)
            if (c->pages[k]) share(s, k, c->pages[k], &s->states[k].now);
        if (c->n_tok <= n) continue;
        bool is_regular = i / HTH_KEPT == HTH_CHECKPOINT_REGULAR;
        lacks_regular |= c->valid && is_regular && c->n_tok / HTH_CHECKPOINT_STEP == n / HTH_CHECKPOINT_STEP;
        drop_checkpoint(s, c);
    }
    if (in_draft && lacks_regular) hth_sequence_checkpoint(s, HTH_CHECKPOINT_REGULAR);
}

void hth_sequence_truncate(hth_sequence *s, uint32_t n)
{
    assert(hth_sequence_reachable(s, n) == n);
    bool in_draft = n < s->n_tok && n >= s->n_tok - s->ahead.n;
    if (in_draft && s->state_size > 0) return_to_draft(s, n);
    s->ahead.n = 0;
    if (n >= s->n_tok && n > 0) return;
    for (int c = 0; n == 0 && c < HTH_N_KV_CLASS; c++) move_to_front(&s->tables[c]);
    for (int c = 0; c < HTH_N_KV_CLASS; c++) drop_pages(s, (hth_kv_class)c, n_page_of(s, (hth_kv_class)c, n));
    s->n_tok = n;
    if (n == 0) s->first_window = 0;
    if (s->state_size > 0) return_states(s, n, in_draft);
}

/* ---- saving and restoring ---------------------------------------------------------------------------------- */

void hth_sequence_copy_page(const hth_sequence *s, const hth_kernels *k, hth_kv_class class, uint32_t i,
                            const float *zero, uint8_t *to)
{
    const hth_model *m = model_of(s);
    hearth_kv_type type = hth_kv_pool_type(s->pool);
    uint32_t n_used = hth_kv_n_entry(m, class, s->n_tok) - i * HTH_KV_PAGE, n_layer = m->hparams.n_layer;
    memcpy(to, s->tables[class].data[i], hth_kv_pool_page_size(s->pool, class));
    for (uint32_t j = 0; n_used < HTH_KV_PAGE && j < 2 * n_layer; j++) {
        const hth_kv_layer *l = hth_kv_pool_layer(s->pool, j);
        bool own = l->class == class && (j >= n_layer || m->layers[j].attn.kv_layer == j);
        for (size_t h = 0; own && h < l->n_head_kv; h++)
            for (size_t at = n_used; at < HTH_KV_PAGE; at++) {
                uint8_t *keys = to + l->offset + h * l->chunk_size;
                hth_kv_layout_put_key(k, type, keys, l->d_head, at, zero);
                hth_kv_layout_put_value(k, type, keys + l->n_head_kv * l->chunk_size, l->d_head, at, zero);
            }
    }
}

void hth_sequence_overwrite(hth_sequence *s, uint32_t n_tok, uint32_t first_window)
{
    hth_sequence_truncate(s, 0);
    s->n_tok = n_tok;
    for (int k = 0; k < HTH_N_STATE; k++)
        if (s->states[k].now) own_state(s, k, &s->states[k].now, false); /* the caller writes it */
    release_window(s);
    if (s->first_window < first_window) s->first_window = first_window;
    for (int c = 0; c < HTH_N_KV_CLASS; c++) {
        if (hth_kv_pool_page_size(s->pool, (hth_kv_class)c) == 0) continue;
        take_pages(s, (hth_kv_class)c, n_page_of(s, (hth_kv_class)c, n_tok));
        uint32_t first = s->tables[c].first, end = first + s->tables[c].n_held,
                 n_page = n_page_of(s, (hth_kv_class)c, n_tok);
        replace_shared(s, (hth_kv_class)c, first, end < n_page ? end : n_page);
    }
}

hth_state hth_sequence_state(const hth_sequence *s, uint32_t i_layer, hth_state_kind kind)
{
    size_t at = hth_kv_pool_layer(s->pool, i_layer)->states[kind];
    return (hth_state){s->states[kind].now->data + at, s->states[kind].next->data + at};
}

/* ---- keys and values --------------------------------------------------------------------------------------- */

void hth_sequence_store(hth_sequence *s, const hth_kernels *k, uint32_t i_layer, uint32_t position, const float *key,
                        const float *value)
{
    const hth_kv_layer *l = hth_kv_pool_layer(s->pool, i_layer);
    size_t d = l->d_head, chunk = l->chunk_size;
    hearth_kv_type type = hth_kv_pool_type(s->pool);
    uint8_t *keys = s->tables[l->class].pages[position / HTH_KV_PAGE]->data + l->offset;
    uint8_t *values = keys + l->n_head_kv * chunk;
    for (size_t i = 0; i < l->n_head_kv; i++) {
        hth_kv_layout_put_key(k, type, keys + i * chunk, d, position % HTH_KV_PAGE, key + i * d);
        hth_kv_layout_put_value(k, type, values + i * chunk, d, position % HTH_KV_PAGE, value + i * d);
    }
}

hth_kv_head hth_sequence_head(const hth_sequence *s, uint32_t i_layer, uint32_t i_head)
{
    const hth_kv_layer *l = hth_kv_pool_layer(s->pool, i_layer);
    return (hth_kv_head){.pages = s->tables[l->class].data,
                         .offset = l->offset + i_head * l->chunk_size,
                         .values_offset = l->n_head_kv * l->chunk_size};
}
