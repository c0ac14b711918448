/* The memory of sequences, in pages that all sequences of a model with one type of cache share. A page holds
 * HTH_KV_PAGE entries of a KV cache, or a copy of the states of recurrent layers. An entry is a position, or a block of
 * positions (hth_compressed). sequence.c takes pages and gives them back, and computes addresses inside them.
 *
 * Layers with a window have pages of their own, so that these can be freed behind the window, and so have blocks. A
 * page holds, for each layer of its class, the keys of all KV heads, then their values, each head's two groups
 * together (kernels/attn/kv_layout.h).
 *
 * A sequence reserves as many pages as it may ever hold, and takes them, when it is opened. A step takes a page only
 * in place of one that it shares, which cannot fail and allocates nothing. Or several sequences share a budget of
 * reserved pages, and hold those of their tokens only. The pool is thread safe.
 *
 * A device has the pages of its layers in its own memory (gpu/cache.h), at the same index as here; what is copied here
 * is copied there before the next step (hth_kv_pool_next_copy). */
#ifndef HTH_FORWARD_KV_POOL_H
#define HTH_FORWARD_KV_POOL_H

#include "kernels/attn/kv_layout.h"
#include "model/model.h"

typedef enum hth_kv_class {
    HTH_KV_FULL,
    HTH_KV_WINDOW,
    HTH_N_KV_POSITION_CLASS,                 /* classes whose entries are positions; devices have them */
    HTH_KV_BLOCKS = HTH_N_KV_POSITION_CLASS, /* an entry is a block of hth_hparams.compressed.n_tok[0] positions, ... */
    HTH_N_KV_CLASS = HTH_KV_BLOCKS + HTH_N_BLOCK_SIZE,
    HTH_KV_STATES = HTH_N_KV_CLASS, /* a page is a copy of the states of one kind (hth_state_kind), in its order */
    HTH_N_PAGE_CLASS = HTH_KV_STATES + HTH_N_STATE
} hth_kv_class;

typedef struct hth_kv_pool hth_kv_pool;
typedef struct hth_kv_slab hth_kv_slab;

typedef struct hth_kv_budget hth_kv_budget;

typedef struct hth_kv_page {
    uint8_t *data;
    hth_kv_budget *budget; /* the budget that counts it; NULL: its sequence reserved it */
    uint32_t n_ref; /* sequences that hold it; 0: free */
    uint32_t index; /* while it is held: unique in its class, less than the largest number of reserved pages */
    bool is_zero;   /* of states: nothing has been written to it */
    hth_kv_slab *slab;
    struct hth_kv_page *next; /* in the slab's list of free pages */
} hth_kv_page;

/* The layout of a layer's keys and values in a page of its class. */
typedef struct hth_kv_layer {
    hth_kv_class class;
    uint32_t n_head_kv; /* 0: the layer has no keys and values */
    uint32_t d_head;
    size_t chunk_size;  /* bytes of a KV head's keys, or values, in a page */
    size_t offset;      /* bytes to the keys of KV head 0 */
    size_t states[HTH_N_STATE]; /* bytes to the mixer's state in that of a sequence (hth_layer.state_sizes) */
} hth_kv_layer;

hth_kv_class hth_kv_class_of(const hth_layer *layer);
/* Positions of an entry; 0: no layer is of the class. */
uint32_t hth_kv_stride(const hth_model *model, hth_kv_class class);
/* The complete entries of n positions, and the pages that hold entries of n positions. */
uint32_t hth_kv_n_entry(const hth_model *model, hth_kv_class class, uint32_t n_pos);
uint32_t hth_kv_n_class_page(const hth_model *model, hth_kv_class class, uint32_t n_pos);

/* ARGUMENT: a type that does not exist or does not suit the model's heads; MEMORY. The model must outlive the pool. */
hearth_status hth_kv_pool_open(const hth_model *model, hearth_kv_type type, hth_kv_pool **out, hearth_error *err);
/* All sequences must be closed. */
void hth_kv_pool_close(hth_kv_pool *pool);

const hth_model *hth_kv_pool_model(const hth_kv_pool *pool);
hearth_kv_type hth_kv_pool_type(const hth_kv_pool *pool);
/* i_layer: of the model, or n_layer more: its blocks. */
const hth_kv_layer *hth_kv_pool_layer(const hth_kv_pool *pool, uint32_t i_layer);
/* Bytes of a page; 0: no layer is of the class. */
size_t hth_kv_pool_page_size(const hth_kv_pool *pool, hth_kv_class class);

/* Bytes of the states of all mixers; each begins at a multiple of 64 from the start of the memory. */
size_t hth_kv_state_size(const hth_model *model, hth_state_kind kind);
/* Bytes of a page of each class; 0: no layer is of the class. false: as the next. */
bool hth_kv_page_sizes(const hth_model *model, hearth_kv_type type, size_t sizes[HTH_N_KV_CLASS]);
/* Bytes of the pages of n_ctx positions; false: overflow, or the model's head size does not suit the type. */
bool hth_kv_size(const hth_model *model, hearth_kv_type type, uint32_t n_ctx, size_t *size);
static inline uint32_t hth_kv_n_page(uint32_t n_pos) { return n_pos / HTH_KV_PAGE + (n_pos % HTH_KV_PAGE > 0); }

/* A device has n_page pages of each class of positions, none of blocks, and n_state of states of each kind (0: it has none), so
 * that more cannot be reserved. n_page 0: no device; copies that wait are dropped. */
void hth_kv_pool_set_limit(hth_kv_pool *pool, uint32_t n_page, uint32_t n_state);
uint32_t hth_kv_pool_limit(hth_kv_pool *pool); /* 0: no device */
uint32_t hth_kv_pool_state_limit(hth_kv_pool *pool); /* 0: no states on a device */
/* Adds capacity for n_page more pages of each class. */
typedef enum hth_kv_reserved {
    HTH_KV_RESERVED,
    HTH_KV_OUT_OF_MEMORY, /* nothing was reserved, as with the next one */
    HTH_KV_OVER_LIMIT,    /* a device has fewer pages */
    HTH_KV_OVER_STATES,   /* a device has fewer states */
} hth_kv_reserved;
hth_kv_reserved hth_kv_pool_reserve(hth_kv_pool *pool, const uint32_t n_page[HTH_N_PAGE_CLASS]);
/* Frees memory that no remaining reservation needs. */
void hth_kv_pool_unreserve(hth_kv_pool *pool, const uint32_t n_page[HTH_N_PAGE_CLASS]);

/* Pages that are reserved for several sequences together. One that several of them hold counts once. */
struct hth_kv_budget {
    hth_kv_pool *pool;
    uint32_t n_page[HTH_N_PAGE_CLASS], n_used[HTH_N_PAGE_CLASS]; /* n_used: under the pool's lock; none of states */
};
/* Opens a budget for n_position positions. All its sequences must be closed before it is. */
hth_kv_reserved hth_kv_budget_open(hth_kv_budget *budget, hth_kv_pool *pool, uint32_t n_position);
void hth_kv_budget_close(hth_kv_budget *budget);
/* Whether so many more pages of each class can be taken. */
bool hth_kv_budget_has(const hth_kv_budget *budget, const uint32_t n_page[HTH_N_KV_CLASS]);

/* A page with one reference; its contents are undefined. The caller holds fewer pages than it reserved, or the budget
 * has one. */
hth_kv_page *hth_kv_page_take(hth_kv_pool *pool, hth_kv_class class, hth_kv_budget *budget);
void hth_kv_page_share(hth_kv_pool *pool, hth_kv_page *page);
void hth_kv_page_drop(hth_kv_pool *pool, hth_kv_class class, hth_kv_page *page);
/* Whether other sequences hold it. Only the holder's own thread shares a page that it holds alone. */
bool hth_kv_page_is_shared(const hth_kv_page *page);
/* The page to write to in place of `page`: itself if no other sequence holds it, else another one, of the same budget;
 * `page` is then dropped. _copy: with its contents; _replace: its contents are undefined. */
hth_kv_page *hth_kv_page_copy_shared(hth_kv_pool *pool, hth_kv_class class, hth_kv_page *page);
hth_kv_page *hth_kv_page_replace_shared(hth_kv_pool *pool, hth_kv_class class, hth_kv_page *page);

/* The next copy that the device has to make, by indices of pages; false: none. Copies stay in their order, and in the
 * queue until they are done. A step that follows all of them finds the contents that it expects: a page is written or
 * taken by others only after its copy was queued.
 *
 * A page is copied to only when it is taken, and when its last holder drops it its copy leaves the queue. The first copy
 * stays, because it may be under way, and so does one that a later copy reads. That is one of a sequence which returned to
 * a draft and was then prepared. So there are at most two copies for each page if the caller empties the queue, or sets
 * the limit to 0, after hth_sequence_prepare and before sequences are opened, closed or prepared again. */
typedef struct hth_kv_copy {
    uint32_t from, to;
} hth_kv_copy;
/* Between these two one caller has the queue: each copy is made once on every device, then taken from it. */
void hth_kv_pool_begin_copies(hth_kv_pool *pool);
void hth_kv_pool_end_copies(hth_kv_pool *pool);
bool hth_kv_pool_next_copy(hth_kv_pool *pool, hth_kv_class class, hth_kv_copy *copy);
void hth_kv_pool_copy_done(hth_kv_pool *pool, hth_kv_class class);

/* Pages in use and capacity, for tests and reports. */
typedef struct hth_kv_usage {
    uint32_t n_used, n_reserved, n_page;
} hth_kv_usage;
hth_kv_usage hth_kv_pool_usage(hth_kv_pool *pool, hth_kv_class class);

#endif
