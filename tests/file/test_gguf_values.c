/* Every length, count, dimension, type and offset of a valid file takes, one after the other, every value at which
 * readers of this format were broken: the ends of its range, the ends of 32 and 64 bits, and one more than the file
 * has left. What is not the file itself must be refused with the file, the thing and the byte. Single values with
 * the words of their messages: test_gguf_refuse.c. */
#include "file/gguf.h"
#include "support/refusal.h"
#include "support/test.h"

#define P(N) ((uint64_t)1 << (N))

/* The largest value that the reader takes for a field of that kind; 0: not tried here. */
static uint64_t limit_of(gguf_field_kind kind)
{
    switch (kind) {
    case GGUF_N_TENSOR: return P(20);
    case GGUF_N_PAIR: return 65536;
    case GGUF_KEY_LENGTH: return 65535;
    case GGUF_TEXT_LENGTH: return P(24);
    case GGUF_COUNT: return P(24);
    case GGUF_NAME_LENGTH: return 63;
    case GGUF_N_DIM: return 4;
    case GGUF_DIM: return P(40);
    case GGUF_VALUE_TYPE:
    case GGUF_ELEMENT_TYPE: return 12;
    case GGUF_TYPE: return 42;
    case GGUF_OFFSET: return P(48);
    default: return 0;
    }
}

static bool is_type(gguf_field_kind kind)
{
    return kind == GGUF_VALUE_TYPE || kind == GGUF_ELEMENT_TYPE || kind == GGUF_TYPE;
}

/* Whether the value leaves a valid file: fewer tensors (the rest are bytes that no code
 * asks for) and smaller dimensions where no block is cut. */
static bool stays_valid(const gguf_field *f, uint64_t value)
{
    if (f->kind == GGUF_N_TENSOR) return value < 3;
    if (f->kind != GGUF_DIM || value == 0) return false;
    static const uint64_t dim[3][2] = {{8, 4}, {32, 2}, {5, 1}};
    bool is_row = f->i == 1 && f->j == 0; /* in blocks of 32 */
    return value <= dim[f->i][f->j] && !is_row;
}

static void check_value(gguf_bytes *b, const gguf_field *f, uint64_t value)
{
    char id[60];
    hearth_error why = {0};
    gguf_small(b);
    uint64_t before = 0;
    for (size_t k = 0; k < f->width; k++) before |= (uint64_t)b->data[f->at + k] << (8 * k);
    if (f->width < 8) value &= P(8 * f->width) - 1;
    if (value == before || (is_type(f->kind) && value <= limit_of(f->kind))) return;
    gguf_patch(b, f->at, value, f->width);
    snprintf(id, sizeof id, "field %d [%u][%u] = %llu", (int)f->kind, f->i, f->j, (unsigned long long)value);
    hearth_status st = refusal_open(b, id, &why);
    if (stays_valid(f, value)) {
        if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", id, why.message);
        return;
    }
    bool named = strstr(why.message, "bad.gguf: ") == why.message && strstr(why.message, " byte ") != NULL;
    bool refused = st == HEARTH_ERROR_FORMAT ||
                   (st == HEARTH_ERROR_UNSUPPORTED && (f->kind == GGUF_TYPE || f->kind == GGUF_N_DIM));
    if (!refused || !named) test_fail(__FILE__, __LINE__, "%s: %s: %s", id, hearth_status_name(st), why.message);
}

TEST(gguf_takes_no_boundary_value_of_any_field)
{
    enum { N_FIELD = 200 };
    static gguf_field fields[N_FIELD];
    gguf_bytes b = gguf_small_new();
    size_t n_field = gguf_fields(b.data, fields, N_FIELD), size = b.n;
    CHECK(n_field > 40 && n_field < N_FIELD);
    for (size_t i = 0; i < n_field; i++) {
        const gguf_field *f = &fields[i];
        uint64_t limit = limit_of(f->kind), left = size - f->at - f->width;
        if (limit == 0) continue;
        const uint64_t values[] = {
            0,     1,        limit - 1, limit,     limit + 1, P(31) - 1,         P(31),      P(32) - 1,
            P(32), P(62),    P(62) + 1, P(63) - 1, P(63),     ~P(0) - 6,         ~P(0) - 30, UINT64_MAX,
            left,  left + 1, 0 - left,  0 - f->at, size,      0 - (uint64_t)size};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            /* a count of what is not there by one more or less is in test_gguf_refuse.c */
            check_value(&b, f, values[k]);
        }
    }
    gguf_free(&b);
    refusal_report();
}

/* ---- A9, B1: what must be taken ------------------------------------------------------------ */

TEST(gguf_takes_weights_that_are_a_hole_in_the_file)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    const char *path = test_scratch("hole.gguf");
    unsigned char last[4] = {1, 1, 1, 1};
    gguf_header(&b, 3, 1, 0);
    gguf_info(&b, "w", 2, (uint64_t[]){P(20), 64}, 0, 0);
    gguf_pad(&b, 32);
    CHECK(test_write_file(path, b.data, b.n));
    CHECK_INT(truncate(path, (off_t)(b.n + P(28))), 0);
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, path);
    if (file) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, 0);
        CHECK_INT(t->size, P(28));
        CHECK_OK(hth_gguf_read(file, t, P(28) - 4, 4, last, err));
        CHECK_BYTES(last, "\0\0\0\0", 4);
    }
}

/* The directory says that there are no tensors, though infos and data follow. */
TEST(gguf_that_denies_its_tensors_has_none)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    hearth_model *model = NULL;
    hearth_error why = {0};
    gguf_small(&b);
    gguf_patch(&b, gguf_field_of(&b, GGUF_N_TENSOR, 0, 0).at, 0, 8);
    hth_gguf *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "none.gguf");
    if (file) CHECK_INT(hth_gguf_n_tensor(file), 0);
    if (file) CHECK(hth_gguf_trailing(file) > 224);
    hth_gguf_close(file);
    CHECK_INT(hearth_model_open_memory(b.data, b.n, "none.gguf", NULL, &model, &why), HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(why.message, "none.gguf: a vocabulary, not a model") == why.message);
}

/* ---- C6, C7: bytes of texts ------------------------------------------------------------------ */

TEST(gguf_texts_may_hold_any_bytes)
{
    static const char odd[] = "\xff\xfe\0\xed\xa0\x80\n";
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 0, 1);
    gguf_key(&b, "general.name", 8);
    gguf_word(&b, sizeof odd - 1, 8);
    gguf_put(&b, odd, sizeof odd - 1);
    CLOSED(hth_gguf) *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "odd.gguf");
    if (file) {
        hth_str name = {0};
        CHECK_OK(hth_gguf_get_text(file, "general.name", &name, NULL, err));
        CHECK_INT(name.n, sizeof odd - 1);
        CHECK_BYTES(name.bytes, odd, sizeof odd); /* and the NUL behind it */
    }
}
