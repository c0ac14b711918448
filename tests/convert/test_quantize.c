/* What quantize makes of weights at the ends of their range, and of an importance matrix. What it makes of real
 * ones is measured by bench/quantize.py and tests/golden. */
#include "base/bits.h"
#include "convert/quantize.h"
#include "file/imatrix.h"
#include "kernels/kernels.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

/* The tiny model with one weight set, quantised. */
static hearth_status quantize_with(float weight, const char *type, hearth_error *err)
{
    tiny_model m;
    hth_quantize_result r;
    hth_quantize_options o = {.ftype = hth_ftype_find(type), .n_thread = 2};
    const char *in = test_scratch("in.gguf");
    tiny_begin(&m);
    gguf_bytes b = tiny_write(&m);
    hth_store_f32((uint8_t *)b.data + tiny_data_at(&m, "blk.1.ffn_up.weight") + 4 * 100, weight);
    FILE *f = fopen(in, "wb");
    if (f) fwrite(b.data, 1, b.n, f), fclose(f);
    gguf_free(&b);
    tiny_free(&m);
    hearth_status st = hth_quantize(in, test_scratch("out.gguf"), &o, &r, err);
    remove(in);
    return st;
}

static bool exists(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f) fclose(f);
    return f != NULL;
}

TEST(weights_that_fit_no_half_are_refused)
{
    static const float bad[] = {NAN, INFINITY, -1e6f, 65536.0f};
    static const char *const types[] = {"F16", "Q8_0", "Q4_0", "Q4_1", "IQ4_NL"};
    const char *out = test_scratch("out.gguf");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            hearth_error why = {0};
            CHECK_INT(quantize_with(bad[i], types[t], &why), HEARTH_ERROR_NUMERIC);
            CHECK(strstr(why.message, "'blk.1.ffn_up.weight'") && strstr(why.message, "row 3") &&
                  strstr(why.message, types[t]));
            CHECK(!exists(out));
        }
}

TEST(the_largest_half_still_makes_a_model)
{
    static const char *const types[] = {"F16", "BF16", "Q8_0", "Q5_1", "Q4_0", "IQ4_NL"};
    const char *out = test_scratch("out.gguf");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        CHECK_OK(quantize_with(-65504.0f, types[t], err));
        hearth_model_close(OPENED(hearth_model, out, NULL));
    }
    CHECK_OK(quantize_with(1e30f, "BF16", err));
}

/* Its magic says which activation it has; a GGUF of the same keys would be another model. */
TEST(files_of_powerinfer_are_left_to_pack)
{
    const char *in = test_data("golden/powerinfer/llama-relu.f16.powerinfer.gguf"), *out = test_scratch("q.gguf");
    hth_quantize_options o = {.ftype = hth_ftype_find("Q8_0"), .n_thread = 1};
    hth_quantize_result r;
    hearth_error err;
    if (!in) return;
    CHECK_INT(hth_quantize(in, out, &o, &r, &err), HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(err.message, "PWRI") && strstr(err.message, "pack"));
}

/* The matrices of b are those of a, decoded. */
static void check_decoded(hth_gguf *a, hth_gguf *b)
{
    hth_kernels k;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    for (size_t i = 0; i < hth_gguf_n_tensor(a); i++) {
        const hth_gguf_tensor *from = hth_gguf_tensor_at(a, i), *to = hth_gguf_tensor_at(b, i);
        size_t n = (size_t)(from->dim[0] * from->dim[1]);
        CHECK_INT(to->type, HTH_TYPE_F32);
        FREED uint8_t *raw = malloc((size_t)from->size);
        FREED float *expected = malloc(n * sizeof *expected), *got = malloc(n * sizeof *got);
        CHECK_OK(hth_gguf_read(a, from, 0, (size_t)from->size, raw, err));
        CHECK_OK(hth_gguf_read(b, to, 0, n * sizeof *got, got, err));
        k.unpack[from->type](raw, n, expected);
        CHECK_BYTES(got, expected, n * sizeof *got);
    }
}

TEST(quantised_files_become_floats_and_other_types)
{
    static const char *const types[] = {"Q4_K",  "MXFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
                                        "IQ3_S", "IQ1_S", "IQ1_M",   "TQ1_0",  "TQ2_0", "NVFP4"};
    char name[80];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hth_quantize_options o = {.ftype = hth_ftype_find("F32"), .n_thread = 2};
        hth_quantize_result r;
        snprintf(name, sizeof name, "golden/quant/llama-%s.gguf", types[i]);
        const char *in = test_data(name), *out = test_scratch("out.gguf");
        if (!in) continue;
        CHECK_OK(hth_quantize(in, out, &o, &r, err));
        CHECK(r.n_changed > 10 && r.n_requantised == 0);
        CLOSED(hth_gguf) *a = OPENED_BY(hth_gguf_open, hth_gguf, in), *b = OPENED_BY(hth_gguf_open, hth_gguf, out);
        if (a && b) check_decoded(a, b);
        o.ftype = hth_ftype_find("Q8_0");
        CHECK_OK(hth_quantize(in, out, &o, &r, err));
        CHECK(r.n_changed > 10 && r.n_requantised == r.n_changed);
        hearth_model_close(OPENED(hearth_model, out, NULL));
        remove(out);
    }
}

/* ---- by importance ------------------------------------------------------------------------------------ */

static void close_matrix(hth_imatrix **m) { hth_imatrix_close(*m); }

static bool refuse_work(void *user, uint64_t done, uint64_t total)
{
    (*(int *)user)++;
    return true;
}

/* Quantises golden/arch/NAME. *n_call: how often progress was told, that is, weights were read. */
static hearth_status quantize_golden(const char *name, const char *type, const char *imatrix, hth_quantize_result *r,
                                     int *n_call, hearth_error *err)
{
    char path[80];
    hth_quantize_options o = {.ftype = hth_ftype_find(type), .n_thread = 2, .imatrix = imatrix,
                              .progress = refuse_work, .progress_user = n_call};
    snprintf(path, sizeof path, "golden/arch/%s.gguf", name);
    const char *in = test_data(path);
    *n_call = 0;
    return in ? hth_quantize(in, test_scratch("out.gguf"), &o, r, err) : HEARTH_ERROR_IO;
}

/* Rows of a tensor are those of pack_by with the importance of their matrix; of pack where e is NULL. */
static void check_rows(const hth_gguf *in, const hth_gguf *out, const char *name, const hth_imatrix_entry *e)
{
    hth_kernels k;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    const hth_gguf_tensor *from = hth_gguf_find_tensor(in, name), *to = hth_gguf_find_tensor(out, name);
    float x[128], w[128];
    uint8_t expected[600], found[600];
    size_t n = (size_t)from->dim[0], size = hth_type_row_size(to->type, n), n_row = (size_t)from->dim[1],
           n_matrix = (size_t)from->dim[2];
    for (size_t i = 0; i < n_row * n_matrix; i++) {
        CHECK_OK(hth_gguf_read(in, from, i * n * sizeof *x, n * sizeof *x, x, err));
        CHECK_OK(hth_gguf_read(out, to, i * size, size, found, err));
        if (e) hth_imatrix_weights(e, i / n_row, n_matrix, w);
        if (e) k.pack_by[to->type](x, w, n, expected);
        else k.pack[to->type](x, n, expected);
        if (!CHECK_BYTES(found, expected, size)) return;
    }
}

TEST(every_expert_is_rounded_by_its_own_importance)
{
    static const char *const weighted[] = {"blk.0.attn_q.weight", "blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight"};
    const char *path = test_data("golden/imatrix/mixtral.gguf"), *model = test_data("golden/arch/mixtral.gguf");
    CLEANUP(close_matrix) hth_imatrix *m = NULL;
    CLOSED(hth_gguf) *in = NULL, *out = NULL;
    hth_quantize_result r;
    int n_call;
    uint64_t value = 0;
    hth_str text = {0};
    if (!path || !model) return;
    CHECK_OK(quantize_golden("mixtral", "Q4_0", path, &r, &n_call, err));
    CHECK_OK(hth_imatrix_open(path, &m, err));
    CHECK_OK(hth_gguf_open(model, &in, err));
    CHECK_OK(hth_gguf_open(test_scratch("out.gguf"), &out, err));
    if (!m || !in || !out) return;
    for (size_t i = 0; i < 3; i++)
        check_rows(in, out, weighted[i], hth_imatrix_find(m, (hth_str){weighted[i], strlen(weighted[i])}));
    check_rows(in, out, "token_embd.weight", NULL);
    /* All that the matrix names and quantise, but those of experts of 16 columns, which are F16, and those of eight
     * experts whose type is not rounded by importance. */
    uint32_t n = 0;
    for (size_t i = 0; i < hth_gguf_n_tensor(out); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(out, i);
        n += t->type == HTH_TYPE_Q4_0 && hth_imatrix_find(m, t->name);
    }
    CHECK_INT(r.n_weighted, n);
    CHECK(n >= 8);
    CHECK_OK(hth_gguf_get_uint(out, "quantize.imatrix.entries_count", 15, 15, &value, NULL, err));
    CHECK_OK(hth_gguf_get_uint(out, "quantize.imatrix.chunks_count", 3, 3, &value, NULL, err));
    CHECK_INT(value, 3);
    CHECK_OK(hth_gguf_get_text(out, "quantize.imatrix.file", &text, NULL, err));
    CHECK(hth_str_eq(text, path));
    CHECK_OK(hth_gguf_get_text(out, "quantize.imatrix.dataset", &text, NULL, err));
    CHECK(hth_str_eq(text, "golden"));
}

TEST(threads_change_no_byte_of_what_is_rounded_by_importance)
{
    const char *path = test_data("golden/imatrix/qwen35moe.gguf"), *in = test_data("golden/arch/qwen35moe.gguf");
    char *bytes[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    if (!path || !in) return;
    for (uint32_t i = 0; i < 2; i++) {
        hth_quantize_options o = {.ftype = hth_ftype_find("Q4_K_M"), .n_thread = 1 + 2 * i, .imatrix = path};
        hth_quantize_result r;
        const char *out = test_scratch(i ? "b.gguf" : "a.gguf");
        CHECK_OK(hth_quantize(in, out, &o, &r, err));
        bytes[i] = test_read_file(out, &n[i]);
    }
    if (CHECK(bytes[0] && bytes[1]) && CHECK_INT(n[0], n[1])) CHECK_BYTES(bytes[0], bytes[1], n[0]);
    free(bytes[0]), free(bytes[1]);
}

TEST(importance_of_another_model_is_refused_before_weights_are_read)
{
    static const struct {
        const char *model, *matrix, *words;
    } cases[] = {
        {"mixtral", "llama-gqa", "llama-gqa.gguf: tensor 'blk.|another model"},      /* other tensors */
        {"llama-gqa", "mixtral", "mixtral.gguf: tensor 'blk.|another model"},
        {"phimoe", "mixtral", "mixtral.gguf: tensor 'blk.0.attn|another model"},     /* other widths */
        {"qwen2moe", "mixtral", "mixtral.gguf: tensor 'blk.0.ffn|another model"},    /* other experts */
        {"mixtral-drelu", "gpt-oss", "gpt-oss.gguf: tensor 'blk.|another model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[80];
        hth_quantize_result r;
        int n_call = 0;
        snprintf(path, sizeof path, "golden/imatrix/%s.gguf", cases[i].matrix);
        const char *matrix = test_data(path);
        if (!matrix) return;
        CHECK_FAILS(quantize_golden(cases[i].model, "Q4_0", matrix, &r, &n_call, err), HEARTH_ERROR_ARGUMENT,
                    cases[i].words);
        CHECK_INT(n_call, 0);
        CHECK(!exists(test_scratch("out.gguf")));
    }
}

/* A matrix with a part of the entries of golden/imatrix/mixtral: those whose name holds `part`. */
static const char *write_part(const char *part, uint32_t n_count)
{
    const char *path = test_data("golden/imatrix/mixtral.gguf"), *out = test_scratch("part.imatrix");
    CLEANUP(close_matrix) hth_imatrix *all = NULL, *some = NULL;
    CHECK_OK(hth_imatrix_open(path, &all, err));
    CHECK_OK(hth_imatrix_new(24, &some, err));
    for (size_t i = 0; all && i < all->n_entry; i++) {
        const hth_imatrix_entry *from = &all->entries[i];
        hth_imatrix_entry *e;
        if (!strstr(from->name.bytes, part)) continue;
        uint32_t n = from->n_count > 1 && n_count > 0 ? n_count : from->n_count;
        CHECK_OK(hth_imatrix_add(some, from->name, from->n_value, n, &e, err));
        memcpy(e->sums, from->sums, from->n_value * sizeof *e->sums);
        for (uint32_t k = 0; k < n; k++) e->counts[k] = 8.0;
    }
    CHECK_OK(hth_imatrix_write(some, out, err));
    return out;
}

TEST(importance_of_another_number_of_experts_is_refused)
{
    hth_quantize_result r;
    int n_call;
    const char *four = write_part("_exps", 4);
    CHECK_FAILS(quantize_golden("mixtral", "Q4_0", four, &r, &n_call, err), HEARTH_ERROR_ARGUMENT,
                "part.imatrix: tensor 'blk.0.ffn_down_exps.weight'|in 4 matrices|in 8");
    CHECK_INT(n_call, 0);
}

TEST(missing_importance_is_said)
{
    hth_quantize_result r;
    int n_call;
    const char *attention = write_part("attn_", 0);
    test_log_start();
    CHECK_OK(quantize_golden("mixtral", "Q4_0", attention, &r, &n_call, err));
    test_log_stop();
    CHECK_INT(test_n_warning("part.imatrix: 4 matrices are missing, first 'blk.0.ffn_gate_exps.weight'"), 1);
    const char *down = write_part("ffn_down", 0); /* of 16 columns, which no block holds */
    CHECK_FAILS(quantize_golden("mixtral", "Q4_0", down, &r, &n_call, err), HEARTH_ERROR_ARGUMENT,
                "part.imatrix: has none of the matrices of |mixtral.gguf, not even 'blk.0.");
    CHECK_INT(n_call, 0);
}

TEST(damaged_importance_is_refused_before_weights_are_read)
{
    hth_quantize_result r;
    int n_call;
    size_t n = 0;
    const char *path = test_data("golden/imatrix/mixtral.gguf"), *bad = test_scratch("bad.imatrix");
    FREED char *bytes = path ? test_read_file(path, &n) : NULL;
    if (!bytes) return;
    hth_store_f32((uint8_t *)bytes + n - 32 - 16 * 4 * 8, NAN);
    CHECK(test_write_file(bad, bytes, n));
    CHECK_FAILS(quantize_golden("mixtral", "Q4_0", bad, &r, &n_call, err), HEARTH_ERROR_FORMAT,
                "bad.imatrix: tensor '|value |is nan");
    CHECK(test_write_file(bad, bytes, n / 2));
    CHECK_FAILS(quantize_golden("mixtral", "Q4_0", bad, &r, &n_call, err), HEARTH_ERROR_FORMAT, "bad.imatrix: ");
    CHECK_INT(n_call, 0);
}

TEST(types_that_need_importance_are_refused_without)
{
    const char *in = test_data("models/storyteller-drelu/storyteller-drelu-f32.gguf");
    hth_quantize_options o = {.ftype = hth_ftype_find("Q2_K_S"), .n_thread = 2};
    hth_quantize_result r;
    CLEANUP(close_matrix) hth_imatrix *m = NULL;
    hth_imatrix_entry *e;
    if (!in) return;
    CHECK_FAILS(hth_quantize(in, test_scratch("q.gguf"), &o, &r, err), HEARTH_ERROR_ARGUMENT,
                "storyteller-drelu-f32.gguf: tensor 'blk.0.|Q2_K needs an importance matrix");
    CHECK_OK(hth_imatrix_new(16, &m, err));
    CHECK_OK(hth_imatrix_add(m, (hth_str){"blk.0.attn_q.weight", 19}, 256, 1, &e, err));
    e->sums[0] = e->counts[0] = 1.0;
    o.imatrix = test_scratch("one.imatrix");
    CHECK_OK(hth_imatrix_write(m, o.imatrix, err));
    test_log_start();
    CHECK_OK(hth_quantize(in, test_scratch("q.gguf"), &o, &r, err));
    test_log_stop();
    CHECK_INT(test_n_warning("and Q2_K needs their importance: Q4_K instead"), 1);
    hearth_model_close(OPENED(hearth_model, test_scratch("q.gguf"), NULL));
}

/* Tables of floats are matrices to llama-quantize. */
TEST(all_families_load_in_other_types)
{
    static const char *const names[] = {"deepseek4", "deepseek2", "qwen35moe", "kimi-linear", "falcon-h1", "gpt-oss", "lfm2moe"};
    hth_quantize_result r;
    int n_call;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_OK(quantize_golden(names[i], "Q4_0", NULL, &r, &n_call, err));
        CHECK(r.n_changed > 0);
        hearth_model_close(OPENED(hearth_model, test_scratch("out.gguf"), NULL));
        CHECK_INT(remove(test_scratch("out.gguf")), 0);
    }
}

/* A matrix of importance for every matrix of a file, with columns from 1 to 8. */
static const char *write_importance(const hth_gguf *file)
{
    const char *out = test_scratch("all.imatrix");
    CLEANUP(close_matrix) hth_imatrix *m = NULL;
    CHECK_OK(hth_imatrix_new(16, &m, err));
    for (size_t i = 0; m && i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        hth_imatrix_entry *e;
        if (!hth_ftype_is_matrix(t->name, t->n_dim)) continue;
        CHECK_OK(hth_imatrix_add(m, t->name, (size_t)t->dim[0], 1, &e, err));
        for (size_t c = 0; c < (size_t)t->dim[0]; c++) e->sums[c] = (double)(1u << c * c % 4);
        e->counts[0] = 1.0;
    }
    CHECK_OK(hth_imatrix_write(m, out, err));
    return out;
}

/* The squared error of the matrices of b divided by the squares of those of a. */
static double relative_error(hth_gguf *a, hth_gguf *b, hth_type type)
{
    hth_kernels k;
    double error = 0.0, size = 0.0;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    for (size_t i = 0; i < hth_gguf_n_tensor(a); i++) {
        const hth_gguf_tensor *from = hth_gguf_tensor_at(a, i), *to = hth_gguf_tensor_at(b, i);
        size_t n = (size_t)(from->dim[0] * from->dim[1]);
        if (!hth_ftype_is_matrix(from->name, from->n_dim)) continue;
        CHECK_INT(to->type, type);
        FREED uint8_t *raw = malloc((size_t)to->size);
        FREED float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        CHECK_OK(hth_gguf_read(a, from, 0, n * sizeof *x, x, err));
        CHECK_OK(hth_gguf_read(b, to, 0, (size_t)to->size, raw, err));
        k.unpack[type](raw, n, y);
        for (size_t j = 0; j < n; j++) {
            double e = (double)y[j] - (double)x[j];
            error += e * e, size += (double)x[j] * (double)x[j];
        }
    }
    return error / size;
}

/* Weights that a type holds exactly are found again; bytes do not depend on the number of threads. */
TEST(weights_of_a_type_become_that_type_again)
{
    static const char *const types[] = {"IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
                                        "IQ1_S",   "IQ1_M",  "TQ1_0", "TQ2_0",   "MXFP4"};
    const char *wide = test_scratch("wide.gguf"), *out = test_scratch("out.gguf"), *alone = test_scratch("alone.gguf");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[80];
        hth_quantize_result r;
        hth_quantize_options o = {.ftype = hth_ftype_find("F32"), .n_thread = 2}, p = {.n_thread = 3, .pure = true};
        /* The files of that name are mostly IQ2_XS. */
        p.ftype = hth_ftype_find(strcmp(types[i], "IQ2_S") == 0 ? "IQ2_M" : types[i]);
        snprintf(name, sizeof name, "golden/quant/llama-%s.gguf", types[i]);
        const char *in = test_data(name);
        if (!in) continue;
        CHECK_OK(hth_quantize(in, wide, &o, &r, err));
        CLOSED(hth_gguf) *a = OPENED_BY(hth_gguf_open, hth_gguf, wide);
        if (!a) continue;
        p.imatrix = write_importance(a);
        CHECK_OK(hth_quantize(wide, out, &p, &r, err));
        CHECK_INT(r.n_weighted, types[i][0] == 'I' ? r.n_changed : 0);
        p.n_thread = 1;
        CHECK_OK(hth_quantize(wide, alone, &p, &r, err));
        size_t n[2];
        FREED char *one = test_read_file(alone, &n[0]), *three = test_read_file(out, &n[1]);
        if (CHECK(one && three) && CHECK_INT(n[0], n[1])) CHECK_BYTES(one, three, n[0]);
        CLOSED(hth_gguf) *b = OPENED_BY(hth_gguf_open, hth_gguf, out);
        double error = b ? relative_error(a, b, p.ftype->type) : 1.0;
        printf("     %s: %.1e\n", types[i], error);
        CHECK(error < (types[i][0] == 'I' ? 1e-4 : 1e-30));
        hearth_model_close(OPENED(hearth_model, out, NULL));
    }
    remove(wide), remove(out), remove(alone);
}

TEST(grid_types_are_refused_without_importance)
{
    static const char *const types[] = {"IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_S", "IQ1_M"};
    const char *in = test_data("golden/quant/llama-IQ4_XS.gguf");
    hth_quantize_result r;
    for (size_t i = 0; in && i < sizeof types / sizeof *types; i++) {
        hth_quantize_options o = {.ftype = hth_ftype_find(types[i]), .n_thread = 2, .pure = true};
        CHECK_FAILS(hth_quantize(in, test_scratch("q.gguf"), &o, &r, err), HEARTH_ERROR_ARGUMENT,
                    "llama-IQ4_XS.gguf: tensor 'blk.0.|needs an importance matrix");
    }
    hth_quantize_options o = {.ftype = hth_ftype_find("IQ3_S"), .n_thread = 2};
    if (!in) return;
    CHECK_OK(hth_quantize(in, test_scratch("q.gguf"), &o, &r, err));
    hearth_model_close(OPENED(hearth_model, test_scratch("q.gguf"), NULL));
}
