/* The store of the Responses API: owners, items that several responses share, and the bounds. */
#include "serve/api/openai/response_store.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

/* Stores a response with the items of another one (or NULL) and one more, named ID-item, of n bytes. */
static void store(response_store *s, const char *id, uint64_t owner, const char *before, size_t n)
{
    item_list items = {.n = 0};
    char name[RESPONSE_ID], *text = calloc(1, n + 1);
    if (before) CHECK_INT(response_store_items(s, before, owner, &items), HEARTH_OK);
    snprintf(name, sizeof name, "%s-item", id);
    if (CHECK(text != NULL)) CHECK(item_list_add(&items, name, owner, text, n));
    response_store_add(s, id, owner, &items, id, strlen(id));
    CHECK(items.n == 0 && items.at == NULL);
    free(text);
}

static size_t count(response_store *s, const char *id, uint64_t owner)
{
    char *body;
    size_t n, n_item;
    item_list items = {.n = 0};
    hearth_status st = response_store_items(s, id, owner, &items);
    CHECK_INT(response_store_body(s, id, owner, &body, &n), st);
    CHECK(st == HEARTH_OK ? n == strlen(id) && memcmp(body, id, n) == 0 : st == HEARTH_ERROR_ARGUMENT && !body);
    free(body);
    n_item = items.n;
    item_list_free(s, &items);
    return n_item;
}

static bool has_item(response_store *s, const char *id, uint64_t owner)
{
    item_list items = {.n = 0};
    bool has = response_store_item(s, id, owner, &items) == HEARTH_OK;
    CHECK_INT(items.n, has);
    if (has) CHECK(strcmp(items.at[0]->id, id) == 0);
    item_list_free(s, &items);
    return has;
}

TEST(responses_and_items_belong_to_their_owner)
{
    response_store *s = response_store_open(1 << 20);
    store(s, "a", 1, NULL, 10);
    store(s, "b", 1, "a", 10);
    CHECK_INT(count(s, "a", 1), 1);
    CHECK_INT(count(s, "b", 1), 2);
    CHECK_INT(count(s, "b", 2), 0);
    CHECK(has_item(s, "a-item", 1) && !has_item(s, "a-item", 2) &&
          !has_item(s, "", 1));
    CHECK(!response_store_delete(s, "a", 2) && response_store_delete(s, "a", 1) &&
          !response_store_delete(s, "a", 1));
    CHECK_INT(count(s, "b", 1), 2); /* which has its item still */
    CHECK(has_item(s, "a-item", 1));
    CHECK(response_store_delete(s, "b", 1));
    CHECK(!has_item(s, "a-item", 1) && !has_item(s, "b-item", 1));
    response_store_close(s);
}

TEST(items_that_were_taken_stay_when_their_response_leaves)
{
    response_store *s = response_store_open(1 << 20);
    item_list items = {.n = 0};
    store(s, "a", 1, NULL, 10);
    CHECK_INT(response_store_items(s, "a", 1, &items), HEARTH_OK);
    CHECK_INT(response_store_item(s, "a-item", 1, &items), HEARTH_OK);
    CHECK(response_store_delete(s, "a", 1));
    if (CHECK_INT(items.n, 2)) CHECK(items.at[0] == items.at[1] && strcmp(items.at[0]->id, "a-item") == 0 && items.at[0]->n == 10);
    item_list_free(s, &items);
    CHECK(!has_item(s, "a-item", 1));
    response_store_close(s);
}

TEST(those_that_were_used_longest_ago_leave)
{
    response_store *s = response_store_open(100000);
    char id[16];
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof id, "r%d", i);
        store(s, id, 0, NULL, 15000);
        CHECK_INT(count(s, "r0", 0), 1); /* it is used each time */
    }
    for (int i = 1; i < 10; i++) {
        snprintf(id, sizeof id, "r%d", i);
        CHECK_INT(count(s, id, 0), i > 4);
    }
    store(s, "large", 0, NULL, 200000);
    CHECK_INT(count(s, "large", 0) + count(s, "r0", 0), 0);
    store(s, "next", 0, NULL, 90000); /* all was given back */
    CHECK_INT(count(s, "next", 0), 1);
    response_store_close(s);
    s = response_store_open(0);
    store(s, "a", 0, NULL, 1);
    CHECK_INT(count(s, "a", 0), 0);
    response_store_close(s);
    s = response_store_open(1 << 30);
    for (int i = 0; i <= RESPONSE_STORE_MAX; i++) {
        snprintf(id, sizeof id, "r%d", i);
        store(s, id, 0, NULL, 1);
    }
    CHECK_INT(count(s, "r0", 0), 0);
    CHECK_INT(count(s, "r1", 0), 1);
    response_store_close(s);
}

/* A conversation of 300 turns has each item once: with all lists 0.5 MB, not 9 of texts alone. */
TEST(a_long_conversation_has_each_item_once)
{
    response_store *s = response_store_open(1 << 20);
    char id[16], before[16] = "";
    for (int i = 0; i < 300; i++) {
        snprintf(id, sizeof id, "r%d", i);
        store(s, id, 7, *before ? before : NULL, 100);
        memcpy(before, id, sizeof before);
    }
    CHECK_INT(count(s, "r299", 7), 300);
    CHECK_INT(count(s, "r0", 7), 1);
    response_store_close(s);
}
