/* Responses in the order of their use, and a hash table of the items that clients can name. */
#include "serve/api/openai/response_store.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUCKET = 4096 };

typedef struct stored_response stored_response;
struct stored_response {
    stored_response *newer, *older;
    char id[RESPONSE_ID];
    uint64_t owner;
    item_list items;
    char *body;
    size_t n_body;
};

struct response_store {
    pthread_mutex_t lock; /* guards all but max_bytes */
    uint64_t max_bytes, n_byte; /* bytes of items, each counted once, of bodies and of lists */
    size_t n_response, n_item;
    stored_response *newest, *oldest;
    stored_item *buckets[N_BUCKET];
};

/* ---- items ------------------------------------------------------------------------------------------------- */

static stored_item **bucket_of(response_store *s, const char *id)
{
    return &s->buckets[hth_hash(id, strlen(id)) % N_BUCKET];
}

/* An item that others hold needs the lock. */
static bool share(item_list *l, stored_item *item)
{
    if (l->n == l->capacity) { /* not by grow_array, which begins with far more than most lists have */
        size_t capacity = l->capacity ? 2 * l->capacity : 8;
        stored_item **bigger = realloc(l->at, capacity * sizeof *bigger);
        if (!bigger) return false;
        l->at = bigger, l->capacity = capacity;
    }
    l->at[l->n++] = item;
    item->n_holder++;
    return true;
}

bool item_list_add(item_list *l, const char *id, uint64_t owner, const char *text, size_t n)
{
    stored_item *item = calloc(1, sizeof *item + n + 1);
    if (!item) return false;
    snprintf(item->id, sizeof item->id, "%s", id);
    item->owner = owner, item->n = n;
    memcpy(item->text, text, n);
    if (share(l, item)) return true;
    free(item);
    return false;
}

static uint64_t size_of(const stored_item *item) { return sizeof *item + item->n + 1; }

static void drop_item(response_store *s, stored_item *item)
{
    if (--item->n_holder > 0) return;
    for (stored_item **at = bucket_of(s, item->id); item->is_kept && *item->id && *at; at = &(*at)->next)
        if (*at == item) {
            *at = item->next;
            break;
        }
    if (item->is_kept) s->n_byte -= size_of(item), s->n_item--;
    free(item);
}

/* With the lock held, as all that follows but the functions of the header. */
static void free_items(response_store *s, item_list *l)
{
    for (size_t i = 0; i < l->n; i++) drop_item(s, l->at[i]);
    free(l->at);
    *l = (item_list){.n = 0};
}

void item_list_free(response_store *s, item_list *l)
{
    if (l->n == 0) return; /* and it has no memory: an engine without a store has such lists */
    pthread_mutex_lock(&s->lock);
    free_items(s, l);
    pthread_mutex_unlock(&s->lock);
}

static void keep_item(response_store *s, stored_item *item)
{
    if (item->is_kept) return;
    item->is_kept = true;
    s->n_byte += size_of(item);
    s->n_item++;
    if (!*item->id) return;
    stored_item **bucket = bucket_of(s, item->id);
    item->next = *bucket;
    *bucket = item;
}

hearth_status response_store_item(response_store *s, const char *id, uint64_t owner, item_list *out)
{
    hearth_status st = HEARTH_ERROR_ARGUMENT;
    pthread_mutex_lock(&s->lock);
    stored_item *item = *id ? *bucket_of(s, id) : NULL;
    while (item && !(item->owner == owner && strcmp(item->id, id) == 0)) item = item->next;
    if (item) st = share(out, item) ? HEARTH_OK : HEARTH_ERROR_MEMORY;
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- responses --------------------------------------------------------------------------------------------- */

response_store *response_store_open(uint64_t max_bytes)
{
    response_store *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->max_bytes = max_bytes;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static uint64_t own_size(const stored_response *r)
{
    return sizeof *r + r->n_body + r->items.capacity * sizeof *r->items.at;
}

static void unlink_response(response_store *s, stored_response *r)
{
    *(r->newer ? &r->newer->older : &s->newest) = r->older;
    *(r->older ? &r->older->newer : &s->oldest) = r->newer;
    r->newer = r->older = NULL;
}

static void link_newest(response_store *s, stored_response *r)
{
    r->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = r;
    s->newest = r;
}

static void drop_response(response_store *s, stored_response *r)
{
    unlink_response(s, r);
    s->n_response--;
    s->n_byte -= own_size(r);
    free_items(s, &r->items);
    free(r->body);
    free(r);
}

void response_store_close(response_store *s)
{
    if (!s) return;
    while (s->newest) drop_response(s, s->newest);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void response_store_add(response_store *s, const char *id, uint64_t owner, item_list *items, const char *body,
                        size_t n)
{
    stored_response *r = s->max_bytes > 0 ? calloc(1, sizeof *r) : NULL;
    char *copy = r ? malloc(n) : NULL;
    if (!copy) {
        free(r);
        item_list_free(s, items);
        return;
    }
    memcpy(copy, body, n);
    *r = (stored_response){.owner = owner, .items = *items, .body = copy, .n_body = n};
    snprintf(r->id, sizeof r->id, "%s", id);
    *items = (item_list){.n = 0};
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < r->items.n; i++) keep_item(s, r->items.at[i]);
    s->n_byte += own_size(r);
    s->n_response++;
    link_newest(s, r);
    while (s->oldest && (s->n_byte > s->max_bytes || s->n_response > RESPONSE_STORE_MAX ||
                         s->n_item > RESPONSE_STORE_ITEMS))
        drop_response(s, s->oldest);
    pthread_mutex_unlock(&s->lock);
}

static stored_response *find(response_store *s, const char *id, uint64_t owner)
{
    stored_response *r = s->newest;
    while (r && !(r->owner == owner && strcmp(r->id, id) == 0)) r = r->older;
    return r;
}

/* The same, which is the newest then. */
static const stored_response *use(response_store *s, const char *id, uint64_t owner)
{
    stored_response *r = find(s, id, owner);
    if (!r) return NULL;
    unlink_response(s, r);
    link_newest(s, r);
    return r;
}

hearth_status response_store_items(response_store *s, const char *id, uint64_t owner, item_list *out)
{
    pthread_mutex_lock(&s->lock);
    const stored_response *r = use(s, id, owner);
    hearth_status st = r ? HEARTH_OK : HEARTH_ERROR_ARGUMENT;
    for (size_t i = 0; st == HEARTH_OK && i < r->items.n; i++)
        if (!share(out, r->items.at[i])) st = HEARTH_ERROR_MEMORY;
    pthread_mutex_unlock(&s->lock);
    return st;
}

hearth_status response_store_body(response_store *s, const char *id, uint64_t owner, char **body, size_t *n)
{
    pthread_mutex_lock(&s->lock);
    const stored_response *r = use(s, id, owner);
    hearth_status st = r ? HEARTH_OK : HEARTH_ERROR_ARGUMENT;
    *body = r ? malloc(r->n_body) : NULL;
    *n = *body ? r->n_body : 0;
    if (*body) memcpy(*body, r->body, r->n_body);
    else if (r) st = HEARTH_ERROR_MEMORY;
    pthread_mutex_unlock(&s->lock);
    return st;
}

bool response_store_delete(response_store *s, const char *id, uint64_t owner)
{
    pthread_mutex_lock(&s->lock);
    stored_response *r = find(s, id, owner);
    if (r) drop_response(s, r);
    pthread_mutex_unlock(&s->lock);
    return r != NULL;
}
