/* text/detok.c: pieces, and text as it comes. */
#include "support/models/vocab_case.h"
#include "text/utf8.h"

enum { BYTE = 3, SPACE_A = 259, USER, UNUSED, HALF };

bool vocab_begin(void)
{
    vocab_file_begin(&f, true);
    vocab_file_add_word(&f,
                        "\xE2\x96\x81"
                        "a",
                        -1.0f);
    vocab_file_add(&f, " \xE2\x96\x81u", 5, 0.0f, HTH_TOKEN_USER);
    vocab_file_add(&f, "z\xE2\x96\x81", 4, 0.0f, HTH_TOKEN_UNUSED);
    vocab_file_add_word(&f, "x\xE4\xB8", -1.0f);
    return vocab_open();
}

static void check_piece(int32_t id, bool show_special, const char *expected)
{
    size_t n;
    const char *piece = hth_token_piece(tok, id, show_special, &n);
    if (CHECK_INT(n, strlen(expected))) CHECK_BYTES(piece, expected, n);
}

TEST(pieces_are_what_tokens_stand_for)
{
    check_piece(1, false, "");
    check_piece(1, true, "<s>");
    check_piece(0, false, "");
    check_piece(0, true, "<unk>");
    check_piece(BYTE + 'q', false, "q");
    check_piece(SPACE_A, false, " a");
    check_piece(USER, false, " \xE2\x96\x81u");
    check_piece(UNUSED, false, "z ");
    check_piece(-1, true, "");
    check_piece(263, true, "");
    size_t n;
    const char *zero = hth_token_piece(tok, BYTE, false, &n);
    CHECK(n == 1 && *zero == '\0');
}

/* Pushes ids one by one; every chunk is copied behind the last. */
static size_t decode(const int32_t *ids, size_t n, bool show_special, bool at_start, char *out)
{
    hth_detok d;
    size_t n_out = 0;
    hth_detok_init(&d, tok, show_special, at_start);
    for (size_t i = 0; i < n; i++) n_out += hth_detok_push(&d, ids[i], out + n_out);
    return n_out + hth_detok_flush(&d, out + n_out);
}

static void check_text(const int32_t *ids, size_t n, bool show_special, bool at_start, const char *expected)
{
    char out[400];
    size_t n_out = decode(ids, n, show_special, at_start, out);
    if (CHECK_INT(n_out, strlen(expected))) CHECK_BYTES(out, expected, n_out);
}

TEST(one_space_is_dropped_at_the_start_of_a_text_only)
{
    check_text((int32_t[]){SPACE_A, SPACE_A}, 2, false, true, "a a");
    check_text((int32_t[]){1, SPACE_A, 2, SPACE_A}, 4, false, true, "a a");
    check_text((int32_t[]){SPACE_A, SPACE_A}, 2, false, false, " a a");
    check_text((int32_t[]){1, SPACE_A}, 2, true, true, "<s> a");
    check_text((int32_t[]){BYTE + ' ', SPACE_A}, 2, false, true, " a");
    check_text((int32_t[]){USER, SPACE_A}, 2, false, true, " \xE2\x96\x81u a");
}

TEST(characters_are_held_until_they_are_whole)
{
    hth_detok d;
    char out[64];
    hth_detok_init(&d, tok, false, true);
    CHECK_INT(hth_detok_push(&d, HALF, out), 1);
    CHECK_BYTES(out, "x", 1);
    CHECK_INT(hth_detok_push(&d, BYTE + 0xAD, out), 3);
    CHECK_BYTES(out, "\xE4\xB8\xAD", 3);
    CHECK_INT(hth_detok_push(&d, BYTE + 0xF0, out), 0);
    CHECK_INT(hth_detok_push(&d, BYTE + 0x9F, out), 0);
    CHECK_INT(hth_detok_push(&d, BYTE + 0x99, out), 0);
    CHECK_INT(hth_detok_push(&d, SPACE_A, out), 5);
    CHECK_BYTES(out, "\xF0\x9F\x99 a", 5);
    CHECK_INT(hth_detok_push(&d, BYTE + 0xED, out), 0);
    CHECK_INT(hth_detok_push(&d, BYTE + 0xA0, out), 2); /* a surrogate never comes */
    CHECK_INT(hth_detok_push(&d, BYTE + 0xC3, out), 0);
    CHECK_INT(hth_detok_flush(&d, out), 1);
    CHECK_BYTES(out, "\xC3", 1);
    CHECK_INT(hth_detok_flush(&d, out), 0);
}

/* Random ids: the chunks together are the pieces together, each chunk but the
 * last is as valid as the whole allows, and never more than a tail is held. */
TEST(streams_equal_the_whole)
{
    test_random r = {5};
    for (int i = 0; i < 2000; i++) {
        int32_t ids[20];
        char whole[400], out[400];
        size_t n_whole = 0, n_out = 0, n = 1 + test_random_below(&r, 20);
        hth_detok d;
        hth_detok_init(&d, tok, true, false);
        for (size_t k = 0; k < n; k++) {
            ids[k] = (int32_t)test_random_below(&r, 263);
            if (i % 2) ids[k] = BYTE + (int32_t)(0x80 + test_random_below(&r, 128));
            size_t n_chunk;
            const char *piece = hth_token_piece(tok, ids[k], true, &n_chunk);
            memcpy(whole + n_whole, piece, n_chunk);
            n_whole += n_chunk;
            n_out += hth_detok_push(&d, ids[k], out + n_out);
            CHECK_INT(n_whole - n_out, hth_text_utf8_tail(whole, n_whole));
        }
        n_out += hth_detok_flush(&d, out + n_out);
        if (CHECK_INT(n_out, n_whole)) CHECK_BYTES(out, whole, n_whole);
    }
}

TEST(valid_text_is_never_cut_inside_a_character)
{
    const char *path = test_data("tokenizers/llama.gguf");
    if (!path) return;
    CLOSED(hth_gguf) *llama_file = OPENED(hth_gguf, path);
    CLOSED(hth_tokenizer) *llama = OPENED(hth_tokenizer, llama_file);
    test_random r = {6};
    FREED char *out = malloc(hth_detok_max_bytes(llama));
    int n_held = 0;
    for (int i = 0; i < 500; i++) {
        char text[200];
        size_t n = 0;
        while (n < 150) {
            uint32_t cp = test_random_below(&r, i % 2 ? 0x110000 : 0x3000);
            if (cp < 0xD800 || cp > 0xDFFF) n += hth_text_utf8_encode(cp, text + n);
        }
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        hth_detok d;
        CHECK_OK(hth_tokenize(llama, text, n, 0, &ids, NULL, err));
        hth_detok_init(&d, llama, false, true);
        for (size_t k = 0; k < ids.n; k++) {
            size_t n_chunk = hth_detok_push(&d, ids.id[k], out);
            CHECK(hth_text_utf8_valid(out, n_chunk));
            n_held += d.n_pending > 0;
        }
        CHECK_INT(d.n_pending, 0);
    }
    CHECK(n_held > 1000); /* otherwise nothing was put to the test */
}
