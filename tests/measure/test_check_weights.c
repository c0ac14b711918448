/* Every weight is looked at: one that is not finite, or a scale that makes one, is
 * found wherever it lies, and named. */
#include "measure/check_weights.h"
#include "base/bits.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

static hearth_status check_bytes(const gguf_bytes *b, uint32_t n_thread, hth_check_result *r,
                                 hearth_error *why)
{
    CLOSED(hth_gguf) *file = NULL;
    hearth_status st = hth_gguf_open_memory(b->data, b->n, "tiny.gguf", &file, why);
    if (st != HEARTH_OK) return st;
    st = hth_check_weights(file, n_thread, NULL, NULL, r, why);
    return st;
}

TEST(a_good_file_is_read_whole)
{
    hth_check_result r;
    uint64_t n = 0;
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    for (uint32_t i = 0; i < m.n_tensor; i++) n += m.tensors[i].dim[0] * m.tensors[i].dim[1];
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    CHECK_OK(check_bytes(&b, 2, &r, err));
    CHECK_INT(r.n_tensor, m.n_tensor);
    CHECK_INT(r.n_weight, n);
    CHECK_INT(r.n_skipped, 0);
}

/* Floats: first, middle and last weight; any number of threads names the first. */
TEST(weights_that_are_not_finite_are_named)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const char *name = "blk.1.ffn_up.weight";
    const size_t last = TINY_D_MODEL * TINY_D_FF - 1, places[] = {0, 777, last};
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    for (int i = 0; i < 3; i++)
        for (uint32_t n_thread = 1; n_thread <= 3; n_thread += 2) {
            hth_check_result r;
            hearth_error why = {0};
            char place[40];
            CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
            uint8_t *data = (uint8_t *)b.data + tiny_data_at(&m, name);
            hth_store_f32(data + 4 * places[i], bad[i]);
            hth_store_f32(data + 4 * last, NAN);
            snprintf(place, sizeof place, "weight %zu (row %zu)", places[i], places[i] / TINY_D_MODEL);
            CHECK_INT(check_bytes(&b, n_thread, &r, &why), HEARTH_ERROR_NUMERIC);
            CHECK(strstr(why.message, "tiny.gguf: tensor 'blk.1.ffn_up.weight' at ") == why.message);
            CHECK(strstr(why.message, place) != NULL);
        }
}

/* A quantised matrix of one type, its bytes zero but for a broken scale in the second block of its third row. */
static void check_scale(uint32_t type, size_t block, size_t n_weight, size_t at, uint32_t scale, size_t size)
{
    hth_check_result r;
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    const uint64_t n_col = 2 * n_weight;
    tiny_add_tensor(&m, "extra.weight", type, 2, n_col, 4);
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    hth_check_result before;
    CHECK_OK(check_bytes(&b, 1, &before, err));
    memcpy((uint8_t *)b.data + tiny_data_at(&m, "extra.weight") + 5 * block + at, &scale, size);
    /* Zeros times an infinite scale are NaN; a type whose zeros mean -8 gives infinities. */
    CHECK_FAILS(check_bytes(&b, 1, &r, err), HEARTH_ERROR_NUMERIC, "'extra.weight'|(row 2)");
}

TEST(scales_that_are_not_finite_are_found)
{
    check_scale(2, 18, 32, 0, 0x7c00, 2);      /* Q4_0, infinite */
    check_scale(8, 34, 32, 0, 0x7e00, 2);      /* Q8_0, NaN */
    check_scale(12, 144, 256, 0, 0xfc00, 2);   /* Q4_K: d, minus infinity */
    check_scale(12, 144, 256, 2, 0x7e00, 2);   /* and its minimum */
    check_scale(14, 210, 256, 208, 0x7c01, 2); /* Q6_K, NaN; its zeros mean -32 */
    check_scale(10, 84, 256, 82, 0x7c00, 2);   /* Q2_K: its minimum */
    check_scale(39, 17, 32, 0, 255, 1);        /* MXFP4: the exponent that is none */
    check_scale(16, 66, 256, 0, 0x7c00, 2);    /* IQ2_XXS */
    check_scale(17, 74, 256, 0, 0x7e00, 2);    /* IQ2_XS */
    check_scale(22, 82, 256, 0, 0xfc00, 2);    /* IQ2_S */
    check_scale(18, 98, 256, 0, 0x7c00, 2);    /* IQ3_XXS */
    check_scale(21, 110, 256, 0, 0x7c01, 2);   /* IQ3_S */
    check_scale(19, 50, 256, 0, 0x7c00, 2);    /* IQ1_S */
    check_scale(29, 56, 256, 53, 0x7000c0, 3); /* IQ1_M: c and 7 are the upper four bits of two words */
    check_scale(34, 54, 256, 52, 0x7c00, 2);   /* TQ1_0 */
    check_scale(35, 66, 256, 64, 0x7e00, 2);   /* TQ2_0; NVFP4 has no scales that are not finite */
}

static bool stop(void *user, uint64_t done, uint64_t total) { return ++*(int *)user < 3; }

TEST(an_interrupted_check_says_so)
{
    CLEANUP(tiny_free) tiny_model m;
    hth_check_result r;
    hearth_error why = {0};
    int n = 0;
    tiny_begin(&m);
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    CLOSED(hth_gguf) *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "tiny.gguf");
    if (file) CHECK_INT(hth_check_weights(file, 1, stop, &n, &r, &why), HEARTH_ERROR_CANCELLED);
    CHECK_INT(n, 3);
    CHECK(strstr(why.message, "interrupted") != NULL);
}
