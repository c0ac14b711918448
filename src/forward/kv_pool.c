/* Pages of KV caches, in slabs: a slab is one allocation, made when a reservation exceeds the capacity, and freed
 * when all of its pages are free and the rest suffices for the reservations. */
#include "forward/kv_pool.h"

#include "base/checked_math.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

struct hth_kv_slab {
    hth_kv_slab *next; /* a newer one */
    uint8_t *memory;
    size_t size;
    hth_kv_page *pages; /* [n_page] */
    hth_kv_page *free;
    uint32_t n_page, n_used;
};

enum { COPIES_OF_PAGE = 2 };

typedef struct page_class {
    size_t page_size; /* 0: no layer */
    hth_kv_slab *slabs;
    uint32_t n_page, n_reserved, n_used;
    uint32_t *free_indices; /* [n_free], with capacity for n_index: all that pages may have */
    uint32_t n_free, n_index;
    hth_kv_copy *copies; /* [n_copy], with capacity for COPIES_OF_PAGE n_index: kv_pool.h says why that suffices */
    uint32_t n_copy;
    uint32_t limit; /* pages that the device has; 0: none */
} page_class;

struct hth_kv_pool {
    const hth_model *model;
    hearth_kv_type type;
    hth_kv_layer *layers; /* [2 * n_layer], those of blocks behind those of positions */
    pthread_mutex_t copy_lock; /* hth_kv_pool_begin_copies; taken before `lock` */
    pthread_mutex_t lock; /* guards the members below, and n_ref of all pages */
    page_class classes[HTH_N_PAGE_CLASS];
};

/* ---- sizes ------------------------------------------------------------------------------------------------- */

static bool chunk_size(size_t d, hearth_kv_type type, size_t *size)
{
    if ((uint32_t)type >= HTH_N_KV_TYPE || (type == HEARTH_KV_Q8_0 && d % HTH_ACT_BLOCK > 0)) return false;
    *size = HTH_KV_PAGE / HTH_KV_GROUP * hth_kv_layout_group_size(type, d);
    return true;
}

hth_kv_class hth_kv_class_of(const hth_layer *l)
{
    return l->attn.n_head_kv > 0 && l->attn.window > 0 ? HTH_KV_WINDOW : HTH_KV_FULL;
}

uint32_t hth_kv_stride(const hth_model *model, hth_kv_class class)
{
    return class < HTH_N_KV_POSITION_CLASS ? 1 : model->hparams.compressed.n_tok[class - HTH_KV_BLOCKS];
}

uint32_t hth_kv_n_entry(const hth_model *model, hth_kv_class class, uint32_t n_pos)
{
    uint32_t stride = hth_kv_stride(model, class);
    return stride > 0 ? n_pos / stride : 0;
}

uint32_t hth_kv_n_class_page(const hth_model *model, hth_kv_class class, uint32_t n_pos)
{
    return hth_kv_n_page(hth_kv_n_entry(model, class, n_pos));
}

static hth_kv_layer kv_of(const hth_model *m, uint32_t i)
{
    const hth_layer *l = &m->layers[i % m->hparams.n_layer];
    if (i < m->hparams.n_layer)
        return (hth_kv_layer){.class = hth_kv_class_of(l), .n_head_kv = l->attn.n_head_kv, .d_head = l->attn.d_head};
    uint32_t class = HTH_KV_BLOCKS;
    while (l->compressed.n_tok != hth_kv_stride(m, class)) class++;
    return (hth_kv_layer){.class = class, .n_head_kv = 1, .d_head = l->attn.d_head};
}

/* The layer whose keys and values layer i has: itself, an earlier one, or none (UINT32_MAX). */
static uint32_t owner_of(const hth_model *m, uint32_t i)
{
    const hth_layer *l = &m->layers[i % m->hparams.n_layer];
    if (i < m->hparams.n_layer) return l->attn.n_head_kv > 0 ? l->attn.kv_layer : UINT32_MAX;
    return l->compressed.n_tok > 0 ? i : UINT32_MAX;
}

static size_t state_size_of(const hth_layer *l, hth_state_kind kind) { return (l->state_sizes[kind] + 63) / 64 * 64; }

size_t hth_kv_state_size(const hth_model *model, hth_state_kind kind)
{
    size_t size = 0;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) size += state_size_of(&model->layers[i], kind);
    return size;
}

bool hth_kv_page_sizes(const hth_model *model, hearth_kv_type type, size_t sizes[HTH_N_KV_CLASS])
{
    size_t chunk, size;
    bool ok = true;
    for (int c = 0; c < HTH_N_KV_CLASS; c++) sizes[c] = 0;
    for (uint32_t i = 0; ok && i < 2 * model->hparams.n_layer; i++) {
        if (owner_of(model, i) != i) continue;
        hth_kv_layer l = kv_of(model, i);
        ok = chunk_size(l.d_head, type, &chunk) && hth_mul_size(chunk, 2 * (size_t)l.n_head_kv, &size) &&
             hth_add_size(sizes[l.class], size, &sizes[l.class]);
    }
    return ok;
}

bool hth_kv_size(const hth_model *model, hearth_kv_type type, uint32_t n_ctx, size_t *size)
{
    size_t sizes[HTH_N_KV_CLASS], part;
    bool ok = hth_kv_page_sizes(model, type, sizes);
    *size = 0;
    for (int c = 0; ok && c < HTH_N_KV_CLASS; c++)
        ok = hth_mul_size(sizes[c], hth_kv_n_class_page(model, (hth_kv_class)c, n_ctx), &part) &&
             hth_add_size(*size, part, size);
    return ok;
}

static hearth_status check_type(const hth_model *model, hearth_kv_type type, hearth_error *err)
{
    if ((uint32_t)type >= HTH_N_KV_TYPE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "KV cache of type %d: 0 (F16), 1 (F32) and 2 (Q8_0) exist", (int)type);
    for (uint32_t i = 0; type == HEARTH_KV_Q8_0 && i < model->hparams.n_layer; i++) {
        const hth_attention *a = &model->layers[i].attn;
        if (a->n_head_kv > 0 && a->d_head % HTH_ACT_BLOCK > 0)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "KV cache q8_0: heads of %u values are not whole blocks of %d; ask for "
                            "hearth_session_options.kv F16",
                            a->d_head, HTH_ACT_BLOCK);
    }
    return HEARTH_OK;
}

/* ---- the pool ---------------------------------------------------------------------------------------------- */

hearth_status hth_kv_pool_open(const hth_model *model, hearth_kv_type type, hth_kv_pool **out, hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer;
    *out = NULL;
    hearth_status st = check_type(model, type, err);
    if (st != HEARTH_OK) return st;
    hth_kv_pool *p = hth_alloc(1, sizeof *p);
    hth_kv_layer *layers = p ? hth_alloc(2 * (size_t)n_layer, sizeof *layers) : NULL;
    if (!layers) {
        hth_free(p);
        return hth_fail_memory(err, 2 * (size_t)n_layer * sizeof *layers, "a KV cache");
    }
    p->model = model, p->type = type, p->layers = layers;
    size_t states[HTH_N_STATE] = {0};
    for (uint32_t i = 0; i < 2 * n_layer; i++) {
        hth_kv_layer *l = &layers[i];
        uint32_t from = owner_of(model, i);
        if (from != UINT32_MAX) {
            *l = kv_of(model, i);
            (void)chunk_size(l->d_head, type, &l->chunk_size); /* the type was checked */
            l->offset = from == i ? p->classes[l->class].page_size : layers[from].offset;
            if (from == i) p->classes[l->class].page_size += 2 * l->n_head_kv * l->chunk_size;
        }
        for (int k = 0; i < n_layer && k < HTH_N_STATE; k++) {
            l->states[k] = states[k];
            states[k] += state_size_of(&model->layers[i], (hth_state_kind)k);
        }
    }
    for (int k = 0; k < HTH_N_STATE; k++) p->classes[HTH_KV_STATES + k].page_size = states[k];
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->copy_lock, NULL);
    *out = p;
    return HEARTH_OK;
}

static void free_slab(hth_kv_slab *s)
{
    hth_pages_free(s->memory, s->size);
    hth_free(s->pages);
    hth_free(s);
}

void hth_kv_pool_close(hth_kv_pool *p)
{
    if (!p) return;
    for (int c = 0; c < HTH_N_PAGE_CLASS; c++) {
        assert(p->classes[c].n_used == 0);
        for (hth_kv_slab *s = p->classes[c].slabs, *next; s; s = next) {
            next = s->next;
            free_slab(s);
        }
        hth_free(p->classes[c].free_indices);
        hth_free(p->classes[c].copies);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->copy_lock);
    hth_free(p->layers);
    hth_free(p);
}

const hth_model *hth_kv_pool_model(const hth_kv_pool *p) { return p->model; }
hearth_kv_type hth_kv_pool_type(const hth_kv_pool *p) { return p->type; }
const hth_kv_layer *hth_kv_pool_layer(const hth_kv_pool *p, uint32_t i_layer) { return &p->layers[i_layer]; }
size_t hth_kv_pool_page_size(const hth_kv_pool *p, hth_kv_class class) { return p->classes[class].page_size; }

hth_kv_usage hth_kv_pool_usage(hth_kv_pool *p, hth_kv_class class)
{
    pthread_mutex_lock(&p->lock);
    const page_class *c = &p->classes[class];
    hth_kv_usage u = {c->n_used, c->n_reserved, c->n_page};
    pthread_mutex_unlock(&p->lock);
    return u;
}

/* ---- reservations ------------------------------------------------------------------------------------------ */

static hth_kv_slab *alloc_slab(size_t page_size, uint32_t n_page)
{
    size_t size;
    hth_kv_slab *s = hth_mul_size(page_size, n_page, &size) ? hth_alloc(1, sizeof *s) : NULL;
    if (!s) return NULL;
    s->size = size, s->n_page = n_page;
    s->pages = hth_alloc(n_page, sizeof *s->pages);
    s->memory = s->pages ? hth_pages_alloc(size) : NULL;
    if (!s->memory) {
        free_slab(s);
        return NULL;
    }
    for (uint32_t i = n_page; i-- > 0;) {
        s->pages[i] = (hth_kv_page){.data = s->memory + i * page_size, .is_zero = true, .slab = s, .next = s->free};
        s->free = &s->pages[i];
    }
    return s;
}

/* Frees slabs without pages in use, while the others suffice. The lock is held here and in the next two. */
static void trim(page_class *c)
{
    for (hth_kv_slab **at = &c->slabs; *at;) {
        hth_kv_slab *s = *at;
        if (s->n_used > 0 || c->n_page - s->n_page < c->n_reserved) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        c->n_page -= s->n_page;
        free_slab(s);
    }
}

/* Capacity for indices below n. */
static bool grow_indices(page_class *c, uint32_t n)
{
    if (n <= c->n_index) return true;
    uint32_t *indices = hth_realloc(c->free_indices, n, sizeof *indices);
    if (indices) c->free_indices = indices;
    hth_kv_copy *copies = hth_realloc(c->copies, (size_t)n * COPIES_OF_PAGE, sizeof *copies);
    if (copies) c->copies = copies;
    if (!indices || !copies) return false;
    for (uint32_t i = n; i-- > c->n_index;) c->free_indices[c->n_free++] = i;
    c->n_index = n;
    return true;
}

static bool grow(page_class *c, uint64_t n)
{
    if (n <= c->n_page) return true;
    if (n > UINT32_MAX || !grow_indices(c, (uint32_t)n)) return false;
    hth_kv_slab *s = alloc_slab(c->page_size, (uint32_t)n - c->n_page), **end = &c->slabs;
    if (!s) return false;
    while (*end) end = &(*end)->next;
    *end = s;
    c->n_page += s->n_page;
    return true;
}

void hth_kv_pool_set_limit(hth_kv_pool *p, uint32_t n_page, uint32_t n_state)
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < HTH_N_PAGE_CLASS; i++) {
        p->classes[i].limit = i < HTH_N_KV_POSITION_CLASS ? n_page : i >= HTH_KV_STATES ? n_state : 0;
        if (p->classes[i].limit == 0) p->classes[i].n_copy = 0;
    }
    pthread_mutex_unlock(&p->lock);
}

static uint32_t limit_of(hth_kv_pool *p, hth_kv_class class)
{
    pthread_mutex_lock(&p->lock);
    uint32_t n = p->classes[class].limit;
    pthread_mutex_unlock(&p->lock);
    return n;
}

uint32_t hth_kv_pool_limit(hth_kv_pool *p) { return limit_of(p, HTH_KV_FULL); }
uint32_t hth_kv_pool_state_limit(hth_kv_pool *p) { return limit_of(p, HTH_KV_STATES); }

hth_kv_reserved hth_kv_pool_reserve(hth_kv_pool *p, const uint32_t n_page[HTH_N_PAGE_CLASS])
{
    hth_kv_reserved result = HTH_KV_RESERVED;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < HTH_N_PAGE_CLASS; i++) {
        const page_class *c = &p->classes[i];
        if (c->limit > 0 && (uint64_t)c->n_reserved + n_page[i] > c->limit)
            result = i < HTH_KV_STATES ? HTH_KV_OVER_LIMIT : HTH_KV_OVER_STATES;
    }
    for (int i = 0; result == HTH_KV_RESERVED && i < HTH_N_PAGE_CLASS; i++)
        if (!grow(&p->classes[i], (uint64_t)p->classes[i].n_reserved + n_page[i])) result = HTH_KV_OUT_OF_MEMORY;
    for (int i = 0; i < HTH_N_PAGE_CLASS; i++) {
        if (result == HTH_KV_RESERVED) p->classes[i].n_reserved += n_page[i];
        else trim(&p->classes[i]);
    }
    pthread_mutex_unlock(&p->lock);
    return result;
}

void hth_kv_pool_unreserve(hth_kv_pool *p, const uint32_t n_page[HTH_N_PAGE_CLASS])
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < HTH_N_PAGE_CLASS; i++) {
        p->classes[i].n_reserved -= n_page[i];
        trim(&p->classes[i]);
    }
    pthread_mutex_unlock(&p->lock);
}

hth_kv_reserved hth_kv_budget_open(hth_kv_budget *b, hth_kv_pool *pool, uint32_t n_position)
{
    *b = (hth_kv_budget){.pool = pool};
    for (int c = 0; c < HTH_N_KV_CLASS; c++)
        if (pool->classes[c].page_size > 0)
            b->n_page[c] = hth_kv_n_class_page(pool->model, (hth_kv_class)c, n_position);
    hth_kv_reserved result = hth_kv_pool_reserve(pool, b->n_page);
    if (result != HTH_KV_RESERVED) b->pool = NULL;
    return result;
}

void hth_kv_budget_close(hth_kv_budget *b)
{
    if (b->pool) hth_kv_pool_unreserve(b->pool, b->n_page);
    b->pool = NULL;
}

bool hth_kv_budget_has(const hth_kv_budget *b, const uint32_t n_page[HTH_N_KV_CLASS])
{
    bool has = true;
    pthread_mutex_lock(&b->pool->lock);
    for (int c = 0; c < HTH_N_KV_CLASS; c++) has = has && n_page[c] <= b->n_page[c] - b->n_used[c];
    pthread_mutex_unlock(&b->pool->lock);
    return has;
}

/* ---- pages ------------------------------------------------------------------------------------------------- */

/* hth_kv_page_is_shared reads it without the lock. A holder that became the only one has seen the last read of the
 * others. */
static void set_n_ref(hth_kv_page *page, uint32_t n) { __atomic_store_n(&page->n_ref, n, __ATOMIC_RELEASE); }

bool hth_kv_page_is_shared(const hth_kv_page *page) { return __atomic_load_n(&page->n_ref, __ATOMIC_ACQUIRE) > 1; }

/* The lock is held here and in the next two. */
static hth_kv_page *take_page(hth_kv_pool *p, hth_kv_class class, hth_kv_budget *budget)
{
    page_class *c = &p->classes[class];
    hth_kv_slab *s = c->slabs;
    while (s && !s->free) s = s->next;
    assert(s); /* pages are reserved */
    hth_kv_page *page = s->free;
    s->free = page->next;
    page->next = NULL;
    page->budget = budget;
    if (budget) budget->n_used[class]++;
    page->index = c->free_indices[--c->n_free];
    set_n_ref(page, 1);
    s->n_used++, c->n_used++;
    return page;
}

/* Takes the copy to a page without holders out of the queue, unless a later one reads the page. The first copy
 * may be under way. */
static void forget_copy(page_class *c, uint32_t index)
{
    uint32_t n = c->n_copy;
    while (n > 1 && c->copies[n - 1].to != index && c->copies[n - 1].from != index) n--;
    if (n <= 1 || c->copies[n - 1].to != index) return;
    memmove(c->copies + n - 1, c->copies + n, (c->n_copy - n) * sizeof *c->copies);
    c->n_copy--;
}

static void drop(hth_kv_pool *p, hth_kv_class class, hth_kv_page *page)
{
    page_class *c = &p->classes[class];
    set_n_ref(page, page->n_ref - 1);
    if (page->n_ref > 0) return;
    forget_copy(c, page->index);
    if (page->budget) page->budget->n_used[class]--;
    page->next = page->slab->free;
    page->slab->free = page;
    c->free_indices[c->n_free++] = page->index;
    page->slab->n_used--, c->n_used--;
}

hth_kv_page *hth_kv_page_take(hth_kv_pool *p, hth_kv_class class, hth_kv_budget *budget)
{
    pthread_mutex_lock(&p->lock);
    hth_kv_page *page = take_page(p, class, budget);
    pthread_mutex_unlock(&p->lock);
    return page;
}

void hth_kv_page_share(hth_kv_pool *p, hth_kv_page *page)
{
    pthread_mutex_lock(&p->lock);
    set_n_ref(page, page->n_ref + 1);
    pthread_mutex_unlock(&p->lock);
}

void hth_kv_page_drop(hth_kv_pool *p, hth_kv_class class, hth_kv_page *page)
{
    pthread_mutex_lock(&p->lock);
    drop(p, class, page);
    pthread_mutex_unlock(&p->lock);
}

/* Under the lock: of two holders that write at once, the second one finds that it holds the page alone. */
static hth_kv_page *replace_shared(hth_kv_pool *p, hth_kv_class class, hth_kv_page *page, bool copies)
{
    page_class *c = &p->classes[class];
    hth_kv_page *own = page;
    pthread_mutex_lock(&p->lock);
    if (page->n_ref > 1) {
        own = take_page(p, class, page->budget);
        if (copies) memcpy(own->data, page->data, c->page_size);
        if (copies && c->limit > 0) {
            assert(c->n_copy < COPIES_OF_PAGE * (uint64_t)c->n_index);
            c->copies[c->n_copy++] = (hth_kv_copy){page->index, own->index};
        }
        drop(p, class, page);
    }
    pthread_mutex_unlock(&p->lock);
    return own;
}

hth_kv_page *hth_kv_page_copy_shared(hth_kv_pool *p, hth_kv_class class, hth_kv_page *page)
{
    return replace_shared(p, class, page, true);
}

hth_kv_page *hth_kv_page_replace_shared(hth_kv_pool *p, hth_kv_class class, hth_kv_page *page)
{
    return replace_shared(p, class, page, false);
}

/* ---- copies on the device ---------------------------------------------------------------------------------- */

void hth_kv_pool_begin_copies(hth_kv_pool *p) { pthread_mutex_lock(&p->copy_lock); }
void hth_kv_pool_end_copies(hth_kv_pool *p) { pthread_mutex_unlock(&p->copy_lock); }

bool hth_kv_pool_next_copy(hth_kv_pool *p, hth_kv_class class, hth_kv_copy *copy)
{
    pthread_mutex_lock(&p->lock);
    const page_class *c = &p->classes[class];
    bool any = c->n_copy > 0;
    if (any) *copy = c->copies[0];
    pthread_mutex_unlock(&p->lock);
    return any;
}

void hth_kv_pool_copy_done(hth_kv_pool *p, hth_kv_class class)
{
    pthread_mutex_lock(&p->lock);
    page_class *c = &p->classes[class];
    if (c->n_copy > 0) memmove(c->copies, c->copies + 1, --c->n_copy * sizeof *c->copies);
    pthread_mutex_unlock(&p->lock);
}
