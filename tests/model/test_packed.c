/* Packed files that are not what they claim: each case changes one thing in a packed model that opens,
 * and the refusal names the file, the thing, its place, and what was wanted. The ids are the rows of
 * docs/reliability.md. */
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { I32 = 26, Q8_1 = 9, MAX_RANK = 65536 };

/* Opens the bytes: refused with a line that begins with the file's name and holds all words (parts separated
 * by '|'), or, with words NULL, taken. */
static void expect(const gguf_bytes *file, hearth_status status, const char *words, int line)
{
    CLOSED(hearth_model) *model = NULL;
    hearth_error why = {0};
    char all[200], *save = NULL;
    hearth_status st = hearth_model_open_memory(file->data, file->n, "packed.gguf", NULL, &model, &why);
    bool named = !words || strstr(why.message, "packed.gguf: ") == why.message;
    snprintf(all, sizeof all, "%s", words ? words : "");
    for (char *word = strtok_r(all, "|", &save); word; word = strtok_r(NULL, "|", &save))
        named = named && strstr(why.message, word) != NULL;
    if (st != status || !named || (st == HEARTH_OK) != (model != NULL))
        test_fail(__FILE__, line, "status '%s', '%s'; expected '%s'", hearth_status_name(st), why.message,
                  words ? words : "ok");
}

/* A packed model with a change, which may use m. */
#define EXPECT(CHANGE, STATUS, WORDS)                                                                        \
    do {                                                                                                     \
        tiny_model m;                                                                                        \
        tiny_begin(&m);                                                                                      \
        tiny_pack(&m);                                                                                       \
        CHANGE;                                                                                              \
        gguf_bytes file = tiny_write(&m);                                                                    \
        expect(&file, STATUS, WORDS, __LINE__);                                                              \
        gguf_free(&file);                                                                                    \
        tiny_free(&m);                                                                                       \
    } while (0)

/* Words of the weights are other ones: size bytes each, from number i of a tensor on. */
#define EXPECT_DATA(TENSOR, I, VALUE, WORDS)                                                                 \
    do {                                                                                                     \
        const char *words_ = WORDS;                                                                          \
        tiny_model m;                                                                                        \
        tiny_begin(&m);                                                                                      \
        tiny_pack(&m);                                                                                       \
        gguf_bytes file = tiny_write(&m);                                                                    \
        gguf_patch(&file, tiny_data_at(&m, TENSOR) + 4 * (I), VALUE, 4);                                     \
        expect(&file, words_ ? HEARTH_ERROR_FORMAT : HEARTH_OK, words_, __LINE__);                           \
        gguf_free(&file);                                                                                    \
        tiny_free(&m);                                                                                       \
    } while (0)

static void set_two(tiny_model *m, const char *key, float a, float b)
{
    tiny_set_floats(m, key, (float[]){a, b}, 2);
}

TEST(the_tiny_packed_model_opens)
{
    EXPECT((void)0, HEARTH_OK, NULL);
    EXPECT(tiny_set_text(&m, "hearth.selector", "threshold"), HEARTH_OK, NULL);
    EXPECT(tiny_find(&m, "blk.1.ffn_order")->gone = true, HEARTH_OK, NULL);
    EXPECT(tiny_find(&m, "blk.0.fc2.bias")->gone = true, HEARTH_OK, NULL);
}

/* ---- H1 to H3, H8: keys ----------------------------------------------------------------------------- */

TEST(packed_keys_are_known_or_refused)
{
    EXPECT(tiny_set_u32(&m, "hearth.pack.version", 2), HEARTH_ERROR_UNSUPPORTED,
           "hearth.pack.version at |is 2|reads 1");
    EXPECT(tiny_set_text(&m, "hearth.pack.version", "1"), HEARTH_ERROR_FORMAT,
           "hearth.pack.version|expected an integer");
    EXPECT(tiny_set_text(&m, "hearth.selector", "gates\x1b"), HEARTH_ERROR_UNSUPPORTED,
           "hearth.selector at |gates\\x1b|known: auto");
    EXPECT(tiny_set_u32(&m, "hearth.selector", 1), HEARTH_ERROR_FORMAT, "hearth.selector|expected text");
    EXPECT(tiny_set_text(&m, "hearth.predictor.input", "raw"), HEARTH_ERROR_UNSUPPORTED,
           "hearth.predictor.input at |'raw'|known: residual, normed");
}

TEST(shares_of_neurons_are_shares)
{
    static const float one[] = {0.5f, 0.0f, 1.0f};
    const char *shares = "hearth.ffn.shares";
    EXPECT(set_two(&m, shares, 0.25f, 1.0f), HEARTH_OK, NULL);
    EXPECT(set_two(&m, shares, 0.25f, 1.5f), HEARTH_ERROR_FORMAT, "hearth.ffn.shares at |value 1 is 1.5|0 to 1");
    EXPECT(set_two(&m, shares, -0.25f, 1.0f), HEARTH_ERROR_FORMAT, "hearth.ffn.shares at |value 0 is -0.25");
    EXPECT(set_two(&m, shares, NAN, 1.0f), HEARTH_ERROR_FORMAT, "hearth.ffn.shares at |value 0 is nan");
    EXPECT(tiny_set_floats(&m, shares, one, 3), HEARTH_ERROR_FORMAT, "shares|3 elements, expected 2");
}

/* Their chains are added as fixed-point numbers, which hold 256 of them. */
static void widen(tiny_model *m, uint32_t d_ff)
{
    tiny_set_u32(m, "llama.feed_forward_length", d_ff);
    for (uint32_t i = 0; i < m->n_tensor; i++)
        for (int k = 0; k < 2; k++)
            if (m->tensors[i].dim[k] == TINY_D_FF) m->tensors[i].dim[k] = d_ff;
}

TEST(floats_of_more_neurons_than_a_sum_holds_are_refused)
{
    EXPECT(widen(&m, 65537), HEARTH_ERROR_UNSUPPORTED,
           "'blk.0.ffn_down_t.weight' is F32, and a token uses up to 65792 neurons of it; of more than 65536, a transposed down must be quantised");
}

static void set_grid_type(tiny_model *m)
{
    tiny_tensor *t = tiny_find(m, "blk.0.ffn_down_t.weight");
    t->type = 16, t->dim[0] = 256;
}

TEST(a_transposed_down_in_a_type_without_its_kernels_is_refused)
{
    EXPECT(set_grid_type(&m), HEARTH_ERROR_UNSUPPORTED,
           "'blk.0.ffn_down_t.weight' is IQ2_XXS, which a transposed down cannot be");
}

TEST(packed_values_of_layers_are_finite_and_complete)
{
    static const float one[] = {1.0f, 1.0f, 1.0f};
    static const uint32_t words[] = {1, 1};
    const char *threshold = "hearth.predictor.threshold";
    EXPECT(set_two(&m, threshold, NAN, 0.0f), HEARTH_ERROR_FORMAT, "predictor.threshold at |value 0 is nan");
    EXPECT(set_two(&m, threshold, 0.0f, -INFINITY), HEARTH_ERROR_FORMAT, "value 1 is -inf|expected a finite number");
    EXPECT(tiny_set_floats(&m, threshold, one, 1), HEARTH_ERROR_FORMAT, "threshold|1 elements, expected 2");
    EXPECT(tiny_set_floats(&m, threshold, one, 3), HEARTH_ERROR_FORMAT, "threshold|3 elements, expected 2");
    EXPECT(tiny_set_array(&m, threshold, words, 2), HEARTH_ERROR_FORMAT, "threshold|expected array of f32");
    EXPECT(tiny_set_floats(&m, "hearth.ffn.largest_hidden", one, 3), HEARTH_OK, NULL); /* of earlier versions: not read */
    EXPECT(set_two(&m, threshold, -1e30f, 1e30f), HEARTH_OK, NULL);
}

TEST(packed_halves_are_0_or_1_for_each_layer)
{
    static const uint32_t both[] = {0, 1, 0}, two[] = {1, 2}, large[] = {UINT32_MAX, 0};
    const char *key = "hearth.pack.up_first";
    EXPECT(tiny_set_array(&m, key, both, 2), HEARTH_OK, NULL);
    EXPECT(tiny_set_array(&m, key, two, 2), HEARTH_ERROR_FORMAT,
           "hearth.pack.up_first at |value 1 is 2, expected 0 or 1");
    EXPECT(tiny_set_array(&m, key, large, 2), HEARTH_ERROR_FORMAT,
           "hearth.pack.up_first at |value 0 is 4294967295, expected 0 or 1");
    EXPECT(tiny_set_array(&m, key, both, 1), HEARTH_ERROR_FORMAT, "up_first|1 elements, expected 2");
    EXPECT(tiny_set_array(&m, key, both, 3), HEARTH_ERROR_FORMAT, "up_first|3 elements, expected 2");
    EXPECT(set_two(&m, key, 0.0f, 1.0f), HEARTH_ERROR_FORMAT, "up_first|expected array of u32");
    EXPECT(tiny_set_u32(&m, key, 1), HEARTH_ERROR_FORMAT, "up_first|expected array of u32");
}

TEST(a_selector_without_its_tensors_is_refused)
{
    EXPECT(tiny_find(&m, "blk.0.fc1.weight")->gone = true, HEARTH_ERROR_UNSUPPORTED,
           "'blk.0.fc2.weight'|is not used");
    EXPECT((tiny_set_text(&m, "hearth.selector", "threshold"),
            tiny_find(&m, "blk.0.ffn_floor.weight")->gone = true),
           HEARTH_ERROR_UNSUPPORTED, "'blk.1.ffn_floor.weight'|is not used");
    EXPECT(
        (tiny_set_text(&m, "hearth.selector", "gate"), tiny_set_text(&m, "hearth.ffn.activation", "swiglu")),
        HEARTH_ERROR_ARGUMENT, "selector gate is not possible|no exact zeros");
}

/* ---- H4, H5: tensors ------------------------------------------------------------------------------ */

TEST(tensors_of_packed_layers_are_all_there)
{
    static const char *const names[] = {"blk.0.fc2.weight", "blk.1.fc1.weight", "blk.1.fc2.weight",
                                        "blk.1.ffn_floor.weight", "blk.1.ffn_down_t.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char words[80];
        snprintf(words, sizeof words, "tensor '%s' is missing", names[i]);
        EXPECT(tiny_find(&m, names[i])->gone = true, HEARTH_ERROR_FORMAT, words);
    }
    EXPECT(tiny_find(&m, "blk.0.ffn_down_t.weight")->gone = true, HEARTH_ERROR_FORMAT,
           "'blk.0.ffn_down.weight' is missing");
}

TEST(tensors_of_packed_layers_have_their_shapes_and_types)
{
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t dim[2];
        const char *words;
    } rows[] = {{"blk.1.ffn_down_t.weight", 0, {64, 32}, "is [64, 32, 1, 1]|for [32, 64]"},
                {"blk.0.fc1.weight", 0, {31, 8}, "is [31, 8, 1, 1]|for [32, 8]"},
                {"blk.0.fc1.weight", 0, {32, MAX_RANK + 1}, "is [32, 65537, 1, 1]"},
                {"blk.0.fc2.weight", 0, {9, 64}, "is [9, 64, 1, 1]|for [8, 64]"},
                {"blk.1.fc2.weight", 0, {8, 65}, "is [8, 65, 1, 1]|for [8, 64]"},
                {"blk.1.fc2.bias", 0, {63, 1}, "is [63, 1, 1, 1]|for [64, 1]"},
                {"blk.0.ffn_floor.weight", 0, {65, 1}, "is [65, 1, 1, 1]|for [64, 1]"},
                {"blk.0.ffn_order", I32, {63, 1}, "is [63, 1, 1, 1]|for [64, 1]"},
                {"blk.0.ffn_order", 0, {64, 1}, "has type F32, expected I32"},
                {"blk.1.fc1.weight", Q8_1, {32, 8}, "type Q8_1"},
                {"blk.1.ffn_down_t.weight", I32, {32, 64}, "type I32"},
                {"blk.1.ffn_floor.weight", 8, {64, 1}, "type Q8_0"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char words[120];
        bool is_type = strstr(rows[i].words, "type") != NULL && rows[i].type != 0;
        snprintf(words, sizeof words, "tensor '%s' (info at byte |%s", rows[i].name, rows[i].words);
        EXPECT((tiny_find(&m, rows[i].name)->type = rows[i].type,
                tiny_find(&m, rows[i].name)->dim[0] = rows[i].dim[0],
                tiny_find(&m, rows[i].name)->dim[1] = rows[i].dim[1],
                tiny_find(&m, rows[i].name)->n_dim = rows[i].dim[1] > 1 ? 2 : 1),
               is_type ? HEARTH_ERROR_UNSUPPORTED : HEARTH_ERROR_FORMAT, words);
    }
}

/* ---- H6, H7: what the tensors hold -------------------------------------------------------------------- */

TEST(an_order_that_is_no_permutation_is_refused)
{
    const char *order = "blk.1.ffn_order"; /* 63, 62, ... 0 */
    EXPECT_DATA(order, 5, 64, "'blk.1.ffn_order' at |entry 5 is 64; expected each of 64 neurons once");
    EXPECT_DATA(order, 0, UINT32_MAX, "entry 0 is -1;");
    EXPECT_DATA(order, 63, INT32_MAX, "entry 63 is 2147483647;");
    EXPECT_DATA(order, 1, 63, "entry 1 is 63 again;");
    EXPECT_DATA(order, 63, 0, NULL); /* as it was */
}

TEST(thresholds_in_packed_files_are_finite_and_not_negative)
{
    const char *floors = "blk.1.ffn_floor.weight", *bias = "blk.0.fc2.bias";
    EXPECT_DATA(floors, 7, 0xbf800000u, "'blk.1.ffn_floor.weight' at |weight 7 is -1|expected a finite number from 0 on");
    EXPECT_DATA(floors, 0, 0x7fc00000u, "weight 0 is nan|expected a finite number from 0 on");
    EXPECT_DATA(floors, 63, 0x7f800000u, "weight 63 is inf|expected a finite number from 0 on");
    EXPECT_DATA(floors, 63, 0x80000000u, NULL); /* -0 */
    EXPECT_DATA(bias, 2, 0x7fc00000u, "'blk.0.fc2.bias' at |weight 2 is nan|expected a finite number");
    EXPECT_DATA(bias, 2, 0xbf800000u, NULL);
}

TEST(neurons_whose_scales_are_not_finite_are_refused)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_pack(&m);
    tiny_find(&m, "blk.1.ffn_down_t.weight")->type = 8;
    CLEANUP(gguf_free) gguf_bytes file = tiny_write(&m);
    expect(&file, HEARTH_OK, NULL, __LINE__);
    gguf_patch(&file, tiny_data_at(&m, "blk.1.ffn_down_t.weight") + 34 * 9, 0x7e00, 2);
    expect(&file, HEARTH_ERROR_FORMAT, "'blk.1.ffn_down_t.weight'|a scale that is not finite", __LINE__);
}
