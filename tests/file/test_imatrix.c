/* Importance matrices as files: what is written is read again, sums of texts add up, and damaged or contradictory
 * files are refused by the name of their tensor. */
#include "file/imatrix.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <math.h>

static hth_str text(const char *s) { return (hth_str){s, strlen(s)}; }

static void close_at(hth_imatrix **m) { hth_imatrix_close(*m); }
#define CLOSED_MATRIX CLEANUP(close_at) hth_imatrix

/* ---- files byte by byte --------------------------------------------------------------------------- */

typedef struct tensor {
    const char *name;
    uint32_t n_dim, type;
    uint64_t dim[2];
    const float *values;
} tensor;

/* A file of general.type `type` (NULL: without) with these tensors. */
static gguf_bytes make_file(const char *type, const tensor *tensors, size_t n)
{
    gguf_bytes b = {0};
    uint64_t offset = 0;
    gguf_header(&b, 3, n, type ? 3 : 2);
    if (type) gguf_pair_text(&b, "general.type", type);
    gguf_pair_u32(&b, "imatrix.chunk_count", 3);
    gguf_pair_u32(&b, "imatrix.chunk_size", 16);
    for (size_t i = 0; i < n; i++) {
        uint64_t size = tensors[i].dim[0] * (tensors[i].n_dim > 1 ? tensors[i].dim[1] : 1) * 4;
        gguf_info(&b, tensors[i].name, tensors[i].n_dim, tensors[i].dim, tensors[i].type, offset);
        offset += (size + 31) / 32 * 32;
    }
    gguf_pad(&b, 32);
    for (size_t i = 0; i < n; i++) {
        uint64_t size = tensors[i].dim[0] * (tensors[i].n_dim > 1 ? tensors[i].dim[1] : 1) * 4;
        gguf_put(&b, tensors[i].values, size);
        gguf_pad(&b, 32);
    }
    return b;
}

static const float sums[] = {1.0f, 2.0f, 0.0f, 8.0f, 16.0f, 32.0f}, counts[] = {4.0f, 5.0f};

/* Two experts of three columns, and a matrix of three. */
static const tensor good[] = {{"blk.0.ffn_up_exps.weight.in_sum2", 2, 0, {3, 2}, sums},
                              {"blk.0.ffn_up_exps.weight.counts", 2, 0, {1, 2}, counts},
                              {"blk.0.attn_q.weight.in_sum2", 1, 0, {3}, sums},
                              {"blk.0.attn_q.weight.counts", 1, 0, {1}, counts}};

static void check_refused(const tensor *tensors, size_t n, const char *words)
{
    hth_imatrix *m = NULL;
    CLEANUP(gguf_free) gguf_bytes b = make_file("imatrix", tensors, n);
    CHECK_FAILS(hth_imatrix_open_memory(b.data, b.n, "bad.imatrix", &m, err), HEARTH_ERROR_FORMAT, words);
    CHECK(m == NULL);
}

/* The good file with one tensor in the place of another. */
static void check_refused_with(size_t i, tensor other, const char *words)
{
    tensor tensors[4];
    memcpy(tensors, good, sizeof tensors);
    tensors[i] = other;
    check_refused(tensors, 4, words);
}

TEST(imatrix_of_llama_cpp_is_read)
{
    CLOSED_MATRIX *m = NULL;
    CLEANUP(gguf_free) gguf_bytes b = make_file("imatrix", good, 4);
    CHECK_OK(hth_imatrix_open_memory(b.data, b.n, "a", &m, err));
    if (!m) return;
    CHECK_INT(m->n_entry, 2);
    CHECK_INT(m->n_chunk, 3);
    CHECK_INT(m->chunk_size, 16);
    const hth_imatrix_entry *q = hth_imatrix_find(m, text("blk.0.attn_q.weight")),
                            *up = hth_imatrix_find(m, text("blk.0.ffn_up_exps.weight"));
    CHECK(q == &m->entries[0] && up == &m->entries[1]); /* sorted */
    CHECK(q->n_value == 3 && q->n_count == 1 && q->counts[0] == 4.0 && q->sums[1] == 2.0);
    CHECK(up->n_value == 6 && up->n_count == 2 && up->counts[1] == 5.0 && up->sums[5] == 32.0);
    CHECK(!hth_imatrix_find(m, text("blk.0.attn_k.weight")) && !hth_imatrix_find(m, text("")));
}

TEST(imatrix_without_a_partner_is_refused)
{
    check_refused(good, 3, "bad.imatrix: |'blk.0.attn_q.weight.in_sum2'|no counts");
    check_refused(good + 1, 3, "'blk.0.ffn_up_exps.weight.counts'|no sums");
    check_refused(good, 0, "bad.imatrix: |no tensors");
}

TEST(imatrix_with_values_that_are_no_sums_is_refused)
{
    static const float bad[] = {NAN, INFINITY, -1.0f, -INFINITY};
    for (size_t i = 0; i < 4; i++) {
        float values[6] = {1, 1, 1, 1, bad[i], 1}, count[2] = {1, bad[i]};
        check_refused_with(0, (tensor){good[0].name, 2, 0, {3, 2}, values}, "'blk.0.ffn_up_exps.weight.in_sum2'|value 4 is");
        check_refused_with(1, (tensor){good[1].name, 2, 0, {1, 2}, count}, "'blk.0.ffn_up_exps.weight.counts'|value 1 is");
    }
}

TEST(imatrix_with_contradictory_counts_is_refused)
{
    static const float half[] = {4.5f, 1.0f}, none[] = {0.0f, 1.0f}, huge[] = {3e38f, 1.0f}, four[] = {1, 1, 1, 1};
    check_refused_with(1, (tensor){good[1].name, 2, 0, {1, 2}, half}, "ffn_up_exps.weight.counts'|whole");
    check_refused_with(1, (tensor){good[1].name, 2, 0, {1, 2}, huge}, "ffn_up_exps.weight.counts'|whole");
    check_refused_with(1, (tensor){good[1].name, 2, 0, {1, 2}, none}, "ffn_up_exps.weight.counts'|count of 0");
    check_refused_with(1, (tensor){good[1].name, 2, 0, {1, 4}, four}, "ffn_up_exps.weight.counts'|divide");
    for (size_t i = 0; i < 3; i++) { /* one sum of a matrix that was never used */
        float some[6] = {0};
        some[i] = 1.0f;
        tensor tensors[] = {{good[0].name, 2, 0, {3, 2}, some}, {good[1].name, 2, 0, {1, 2}, none}};
        check_refused(tensors, 2, "ffn_up_exps.weight.counts'|count of 0");
    }
}

TEST(imatrix_of_another_type_is_refused)
{
    check_refused_with(0, (tensor){good[0].name, 2, 26, {3, 2}, sums}, "ffn_up_exps.weight.in_sum2'|F32");
    check_refused_with(1, (tensor){good[1].name, 2, 26, {1, 2}, counts}, "ffn_up_exps.weight.counts'|F32");
}

TEST(files_that_are_no_imatrix_are_refused)
{
    static const char *const types[] = {"model", NULL};
    hth_imatrix *m = NULL;
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(gguf_free) gguf_bytes b = make_file(types[i], good, 4);
        CHECK_FAILS(hth_imatrix_open_memory(b.data, b.n, "x", &m, err), HEARTH_ERROR_FORMAT,
                    i ? "x: is no importance matrix|''" : "x: is no importance matrix|'model'");
    }
    CHECK_FAILS(hth_imatrix_open("/nowhere/at/all", &m, err), HEARTH_ERROR_IO, "/nowhere/at/all");
}

TEST(imatrix_cut_short_is_refused_at_every_length)
{
    CLEANUP(gguf_free) gguf_bytes b = make_file("imatrix", good, 4);
    for (size_t n = 0; n < b.n - 28; n++) { /* the last tensor has 4 bytes, then padding */
        hth_imatrix *m = NULL;
        hearth_error err = {0};
        void *exact = malloc(n ? n : 1);
        memcpy(exact, b.data, n);
        if (!CHECK(hth_imatrix_open_memory(exact, n, "x", &m, &err) != HEARTH_OK)) printf("     %zu bytes\n", n);
        hth_imatrix_close(m);
        free(exact);
    }
}

/* ---- the older format --------------------------------------------------------------------------------- */

static gguf_bytes make_dat(uint32_t n_entry, const char *name, uint32_t n_chunk, uint32_t n_value, const float *values)
{
    gguf_bytes b = {0};
    gguf_word(&b, n_entry, 4);
    for (uint32_t i = 0; i < n_entry; i++) {
        gguf_word(&b, strlen(name), 4);
        gguf_put(&b, name, strlen(name));
        gguf_word(&b, n_chunk, 4);
        gguf_word(&b, n_value, 4);
        gguf_put(&b, values, n_value * sizeof *values);
    }
    return b;
}

static void put_end(gguf_bytes *b, uint32_t n_chunk, const char *dataset)
{
    gguf_word(b, n_chunk, 4);
    gguf_word(b, strlen(dataset), 4);
    gguf_put(b, dataset, strlen(dataset));
}

TEST(older_imatrix_is_read)
{
    for (int with_end = 0; with_end < 2; with_end++) {
        CLOSED_MATRIX *m = NULL;
        CLEANUP(gguf_free) gguf_bytes b = make_dat(1, "blk.7.attn_q.weight", 5, 6, sums);
        if (with_end) put_end(&b, 9, "wiki.txt");
        CHECK_OK(hth_imatrix_open_memory(b.data, b.n, "a.dat", &m, err));
        if (!m) return;
        CHECK_INT(m->n_entry, 1);
        CHECK_INT(m->chunk_size, 0);
        CHECK(m->entries[0].counts[0] == 5.0 && m->entries[0].sums[5] == 32.0 && m->entries[0].n_value == 6);
        CHECK_INT(m->n_dataset, with_end);
        CHECK_INT(m->n_chunk, with_end ? 9 : 0);
        if (with_end) CHECK_TEXT(m->datasets[0].bytes, "wiki.txt");
    }
}

static void check_dat_refused(gguf_bytes b, const char *words)
{
    hth_imatrix *m = NULL;
    CHECK_FAILS(hth_imatrix_open_memory(b.data, b.n, "a.dat", &m, err), HEARTH_ERROR_FORMAT, words);
    gguf_free(&b);
}

TEST(older_imatrix_that_is_damaged_is_refused)
{
    float bad[] = {1.0f, -2.0f};
    check_dat_refused(make_dat(2, "a", 1, 6, sums), "a.dat: |'a'|twice");
    check_dat_refused(make_dat(1, "a", 1, 2, bad), "a.dat: |'a'|value 1 at byte 21 is -2");
    check_dat_refused(make_dat(0, "a", 1, 2, bad), "a.dat: is neither GGUF|number of entries at byte 0");
    check_dat_refused(make_dat(1, "", 1, 2, bad), "length of a name at byte 4");
    gguf_bytes nul = make_dat(1, "abc", 1, 2, bad);
    nul.data[9] = 0;
    check_dat_refused(nul, "name with a NUL at byte 8");
    gguf_bytes whole = make_dat(1, "abc", 1, 6, sums);
    put_end(&whole, 1, "text");
    size_t n_entries = whole.n - 12;
    for (size_t n = 1; n < whole.n; n++) {
        if (n == n_entries || n == n_entries + 4) continue; /* the end may be missing */
        gguf_bytes cut = {0};
        gguf_put(&cut, whole.data, n);
        check_dat_refused(cut, "a.dat: is neither GGUF nor");
    }
    gguf_free(&whole);
}

/* ---- merging ------------------------------------------------------------------------------------------- */

static hth_imatrix *matrix(uint32_t chunk_size) { return OPENED_BY(hth_imatrix_new, hth_imatrix, chunk_size); }

/* An entry whose value i is first + i, and whose counts are all `count`. */
static void add(hth_imatrix *m, const char *name, size_t n_value, uint32_t n_count, double first, double count)
{
    hth_imatrix_entry *e;
    CHECK_OK(hth_imatrix_add(m, text(name), n_value, n_count, &e, err));
    for (size_t i = 0; i < n_value; i++) e->sums[i] = first + (double)i;
    for (uint32_t i = 0; i < n_count; i++) e->counts[i] = count;
    hth_imatrix_sort(m);
}

TEST(merged_imatrices_are_those_of_one_text)
{
    CLOSED_MATRIX *a = matrix(16), *b = matrix(16);
    add(a, "y", 4, 1, 1.0, 32.0);
    add(b, "y", 4, 1, 10.0, 16.0);
    add(b, "x", 2, 2, 5.0, 3.0);
    CHECK_OK(hth_imatrix_add_dataset(a, text("one"), err));
    CHECK_OK(hth_imatrix_add_dataset(b, text("two"), err));
    CHECK_OK(hth_imatrix_merge(a, b, "b", err));
    CHECK_INT(a->n_entry, 2);
    CHECK_INT(a->n_chunk, 3); /* 48 tokens */
    CHECK(a->entries[0].sums[1] == 6.0 && a->entries[0].counts[1] == 3.0);
    CHECK(a->entries[1].sums[3] == 17.0 && a->entries[1].counts[0] == 48.0);
    CHECK(a->n_dataset == 2 && strcmp(a->datasets[1].bytes, "two") == 0);
}

TEST(older_imatrix_counts_chunks_when_it_is_merged)
{
    CLOSED_MATRIX *a = matrix(16), *b = matrix(0);
    add(a, "y", 4, 2, 1.0, 32.0);
    add(b, "y", 4, 1, 10.0, 3.0); /* one count for both experts */
    CHECK_OK(hth_imatrix_merge(a, b, "b", err));
    CHECK(a->entries[0].sums[1] == 2.0 + 16.0 * 11.0);
    CHECK(a->entries[0].counts[0] == 80.0 && a->entries[0].counts[1] == 80.0);
    CLOSED_MATRIX *c = matrix(16), *d = matrix(16);
    add(c, "y", 4, 1, 1.0, 32.0);
    add(d, "y", 4, 2, 1.0, 4.0);
    CHECK_OK(hth_imatrix_merge(c, d, "d", err));
    CHECK(c->entries[0].n_count == 2 && c->entries[0].counts[1] == 36.0);
}

TEST(imatrices_of_different_models_do_not_merge)
{
    CLOSED_MATRIX *a = matrix(16), *b = matrix(16), *c = matrix(16);
    add(a, "blk.0.x", 4, 2, 1.0, 1.0);
    add(b, "blk.0.x", 6, 2, 1.0, 1.0);
    add(c, "blk.0.x", 4, 4, 1.0, 1.0);
    CHECK_FAILS(hth_imatrix_merge(a, b, "other.imatrix", err), HEARTH_ERROR_ARGUMENT, "other.imatrix: |'blk.0.x'|6|4");
    CHECK_FAILS(hth_imatrix_merge(a, c, "other.imatrix", err), HEARTH_ERROR_ARGUMENT, "other.imatrix: |'blk.0.x'|4|2");
}

/* ---- the model -------------------------------------------------------------------------------------------- */

TEST(imatrix_of_another_model_is_refused_by_its_tensor)
{
    CLEANUP(tiny_free) tiny_model t = tiny_new();
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&t);
    CLOSED(hth_gguf) *file = NULL;
    CHECK_OK(hth_gguf_open_memory(b.data, b.n, "tiny.gguf", &file, err));
    CLOSED_MATRIX *same = matrix(16), *deeper = matrix(16), *wider = matrix(16), *experts = matrix(16);
    add(same, "blk.1.ffn_down.weight", TINY_D_FF, 1, 1.0, 1.0);
    add(deeper, "blk.2.ffn_down.weight", TINY_D_FF, 1, 1.0, 1.0);
    add(wider, "blk.1.ffn_down.weight", TINY_D_FF + 32, 1, 1.0, 1.0);
    add(experts, "blk.1.ffn_down.weight", TINY_D_FF, 2, 1.0, 1.0);
    CHECK_OK(hth_imatrix_check_model(same, "a.imatrix", file, err));
    CHECK_FAILS(hth_imatrix_check_model(deeper, "a.imatrix", file, err), HEARTH_ERROR_ARGUMENT,
                "a.imatrix: tensor 'blk.2.ffn_down.weight' is not in tiny.gguf");
    CHECK_FAILS(hth_imatrix_check_model(wider, "a.imatrix", file, err), HEARTH_ERROR_ARGUMENT,
                "a.imatrix: tensor 'blk.1.ffn_down.weight' has 96 |tiny.gguf 64 in 1");
    CHECK_FAILS(hth_imatrix_check_model(experts, "a.imatrix", file, err), HEARTH_ERROR_ARGUMENT,
                "a.imatrix: tensor 'blk.1.ffn_down.weight'|in 2 matrices");
}

/* ---- weights --------------------------------------------------------------------------------------------- */

TEST(weights_have_a_mean_of_one_and_no_zero)
{
    CLOSED_MATRIX *m = matrix(16);
    float w[4], sum = 0.0f;
    add(m, "x", 8, 2, 0.0, 3.0); /* 0 1 2 3, 4 5 6 7 */
    hth_imatrix_entry *e = &m->entries[0];
    hth_imatrix_weights(e, 1, 2, w);
    for (int i = 0; i < 4; i++) sum += w[i];
    CHECK(fabsf(sum - 4.0f) < 1e-6f && fabsf(w[0] * 7.0f - w[3] * 4.0f) < 1e-5f);
    hth_imatrix_weights(e, 0, 2, w);
    CHECK(w[0] > 0.0f && w[0] < 1e-5f && w[3] > w[2]);
    e->counts[1] = 0.0; /* an expert without a token */
    hth_imatrix_weights(e, 1, 2, w);
    for (int i = 0; i < 4; i++) CHECK(w[i] == 1.0f);
    for (int i = 0; i < 4; i++) e->sums[i] = 0.0; /* inputs that were all 0 */
    hth_imatrix_weights(e, 0, 2, w);
    for (int i = 0; i < 4; i++) CHECK(w[i] == 1.0f);
}

TEST(one_count_serves_all_matrices_of_a_tensor)
{
    CLOSED_MATRIX *m = matrix(16);
    float w[4];
    add(m, "x", 8, 1, 1.0, 3.0);
    hth_imatrix_weights(&m->entries[0], 1, 2, w); /* 5 6 7 8 */
    CHECK(fabsf(w[0] * 8.0f - w[3] * 5.0f) < 1e-5f);
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

TEST(imatrix_that_was_written_is_read_again)
{
    const char *path = test_scratch("a.imatrix");
    CLOSED_MATRIX *a = matrix(24), *b = NULL;
    add(a, "blk.1.b", 3000, 3, 0.25, 7.0);
    add(a, "blk.0.a", 2, 1, 1.5, 9.0);
    add(a, "blk.0.unseen", 2, 1, 0.0, 0.0);
    a->n_chunk = 11;
    CHECK_OK(hth_imatrix_add_dataset(a, text("a text.txt"), err));
    CHECK_OK(hth_imatrix_write(a, path, err));
    CHECK_OK(hth_imatrix_open(path, &b, err));
    if (!b) return;
    CHECK_INT(b->n_entry, 2); /* nothing is said of what was not seen */
    CHECK(b->n_chunk == 11 && b->chunk_size == 24 && b->n_dataset == 1);
    CHECK_TEXT(b->datasets[0].bytes, "a text.txt");
    CHECK_TEXT(b->entries[0].name.bytes, "blk.0.a");
    CHECK_INT(b->entries[1].n_count, 3);
    for (size_t i = 0; i < 3000; i++) CHECK(b->entries[1].sums[i] == 0.25 + (double)i);
    for (size_t i = 0; i < 3; i++) CHECK(b->entries[1].counts[i] == 7.0);
}

TEST(sums_that_no_float_holds_are_not_written)
{
    const char *path = test_scratch("a.imatrix");
    CLOSED_MATRIX *a = matrix(24);
    add(a, "blk.0.a", 3, 1, 0.0, 9.0);
    a->entries[0].sums[2] = 1e39;
    CHECK_FAILS(hth_imatrix_write(a, path, err), HEARTH_ERROR_NUMERIC, "'blk.0.a'|column 2");
    CHECK(access(path, F_OK) != 0);
}
