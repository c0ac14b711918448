/* The store keeps responses, so that a request can go on with an earlier one (previous_response_id) or name items of it
 * (item_reference). Responses of one conversation share their items. It is bounded in items and bytes: those
 * that were used longest ago leave. Any thread may use it: what it gives is the caller's. It is lost when the server ends. */
#ifndef HEARTH_APPS_SERVE_RESPONSE_STORE_H
#define HEARTH_APPS_SERVE_RESPONSE_STORE_H

#include <hearth/base.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RESPONSE_STORE_MAX = 1024, RESPONSE_STORE_ITEMS = 65536, RESPONSE_ID = 80 };

/* One item of a request or an answer, counted by those that hold it. Of those that a store keeps, its lock guards what
 * changes: n_holder, is_kept, next. */
typedef struct stored_item stored_item;
struct stored_item {
    char id[RESPONSE_ID]; /* "": clients cannot name it */
    uint64_t owner;       /* call.owner of its request */
    unsigned n_holder;
    bool is_kept;      /* by a response of the store, which counts it once */
    stored_item *next; /* next kept item whose id has the same hash */
    size_t n;
    char text[]; /* [n] JSON, and a NUL */
};

/* Items in the order of a conversation. Zero-initialised: none. */
typedef struct item_list {
    stored_item **at;
    size_t n, capacity;
} item_list;

typedef struct response_store response_store;

/* max_bytes 0: nothing is stored. NULL: memory ran out. */
response_store *response_store_open(uint64_t max_bytes);
void response_store_close(response_store *s);

/* A new item behind those of the list. False: memory ran out. */
bool item_list_add(item_list *l, const char *id, uint64_t owner, const char *text, size_t n);
void item_list_free(response_store *s, item_list *l);

/* Stores a response with all items of its conversation, which the store takes in any case, and its body of n bytes. One
 * that does not fit at all is not stored. */
void response_store_add(response_store *s, const char *id, uint64_t owner, item_list *items, const char *body, size_t n);
/* Adds the items of a response to a list; one item alone. ARGUMENT: there is none of this owner; MEMORY. */
hearth_status response_store_items(response_store *s, const char *id, uint64_t owner, item_list *out);
hearth_status response_store_item(response_store *s, const char *id, uint64_t owner, item_list *out);
/* A copy of the body of a response, freed with free. The same errors. */
hearth_status response_store_body(response_store *s, const char *id, uint64_t owner, char **body, size_t *n);
/* False: there is none of this owner. */
bool response_store_delete(response_store *s, const char *id, uint64_t owner);

#endif
