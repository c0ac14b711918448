/* A fuzz target for saved sessions: the first byte says whether length and checksum are made right, the rest is a file
 * (edited_file.h). One that restores has tokens of the vocabulary, goes on, and can be saved and restored again; after one
 * that does not, the session is as before. Built with libFuzzer by the preset `fuzz`; test_session.c replays seeds and
 * mutations. */
#include "base/alloc.h"
#include "base/hash.h"
#include "fuzz/edited_file.h"
#include "support/models/tiny_model.h"

#include <hearth/hearth.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LENGTH_AT = 16, HASH_SIZE = 8, BLOCK = 1 << 16 }; /* src/engine/session_file.c */

static hearth_session *opened;
static gguf_bytes valid;

static void open_session(void)
{
    static const int32_t tokens[] = {1, 20, 30, 40, 50, 60, 70};
    hearth_model *model;
    hearth_session_options o = hearth_session_defaults();
    void *saved;
    size_t n;
    tiny_model m = tiny_new();
    gguf_bytes bytes = tiny_take(&m);
    o.n_thread = 1;
    expect(hearth_model_open_memory(bytes.data, bytes.n, "tiny.gguf", NULL, &model, NULL) == HEARTH_OK);
    expect(hearth_session_open(model, &o, &opened, NULL) == HEARTH_OK);
    expect(hearth_session_eval(opened, tokens, 7, NULL) == HEARTH_OK);
    expect(hearth_session_save_memory(opened, &saved, &n, NULL) == HEARTH_OK);
    gguf_put(&valid, saved, n);
    hearth_free(saved);
}

/* So that what was changed is read, not refused by the checksum. */
static void make_right(gguf_bytes *b)
{
    uint64_t hash = 0;
    if (b->n < LENGTH_AT + 8 + HASH_SIZE) return;
    size_t end = b->n - HASH_SIZE;
    gguf_patch(b, LENGTH_AT, b->n, 8);
    for (size_t at = 0; at < end; at += BLOCK) hash = hth_hash_more(hash, b->data + at, end - at < BLOCK ? end - at : BLOCK);
    gguf_patch(b, end, hash, HASH_SIZE);
}

static void go_on(void)
{
    void *saved;
    size_t n;
    hearth_error why = {0};
    const int32_t token = 5;
    uint32_t position = hearth_session_position(opened);
    const int32_t *tokens = hearth_session_tokens(opened);
    for (uint32_t i = 0; i < position; i++) expect(tokens[i] >= 0 && tokens[i] < TINY_VOCAB);
    expect(hearth_session_save_memory(opened, &saved, &n, NULL) == HEARTH_OK);
    hearth_status st = hearth_session_eval(opened, &token, 1, &why);
    expect(st == HEARTH_OK || why.message[0]); /* keys and values that are not finite */
    expect(hearth_session_restore_memory(opened, saved, n, NULL) == HEARTH_OK);
    expect(hearth_session_position(opened) == position);
    hearth_free(saved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hearth_error why = {0};
    if (!opened) open_session();
    if (size == 0) return 0;
    gguf_bytes b = edited_file(&valid, data + 1, size - 1);
    if (data[0] % 2) make_right(&b);
    uint32_t before = hearth_session_position(opened);
    hearth_status st = hearth_session_restore_memory(opened, b.data, b.n, &why);
    expect(size > 1 || st == HEARTH_OK); /* the session that is edited */
    if (st == HEARTH_OK) go_on();
    else expect(why.message[0] && hearth_session_position(opened) == before);
    gguf_free(&b);
    return 0;
}
