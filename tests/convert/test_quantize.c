/* What quantize makes of weights at the ends of their range. What it makes of real
 * ones is measured by bench/quantize.py and tests/golden. */
#include "base/bits.h"
#include "convert/quantize.h"
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
