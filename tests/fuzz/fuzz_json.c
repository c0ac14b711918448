/* A fuzz target for JSON. What is promised of every text: it is refused with a line, or it is a tree whose values know
 * their parents and places, which is the same when it is written and read again. With clang (preset fuzz) a libFuzzer
 * program, with tests/fuzz/corpus/json as its corpus; test_json.c replays that and mutations of it. */
#include "text/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool holds)
{
    if (!holds) abort();
}

static void check_tree(const hth_json *v, const hth_json *parent)
{
    uint32_t n = 0;
    check(v->kind > HTH_JSON_ABSENT && v->kind <= HTH_JSON_OBJECT && v->parent == parent);
    for (const hth_json *c = v->child; c; c = c->next) {
        check(v->kind >= HTH_JSON_ARRAY && c->index == n++);
        if (v->kind == HTH_JSON_OBJECT) check(hth_json_member(v, c->key.bytes) == c || strlen(c->key.bytes) != c->key.n);
        check_tree(c, v);
    }
    check(v->n == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hearth_error err = {0};
    hth_json *v = hth_json_open((const char *)data, n, NULL, &err);
    if (!v) {
        check(err.message[0] && (err.status == HEARTH_ERROR_FORMAT || err.status == HEARTH_ERROR_UNSUPPORTED));
        return 0;
    }
    check_tree(v, NULL);
    size_t n_written, n_again;
    char *written = hth_json_write(v, n % 2, &n_written);
    hth_json *read = hth_json_open(written, n_written, NULL, NULL);
    check(read != NULL);
    char *again = hth_json_write(read, n % 2, &n_again);
    check(n_again == n_written && memcmp(again, written, n_written) == 0);
    hth_free(again);
    hth_free(written);
    hth_json_close(read);
    hth_json_close(v);
    return 0;
}
