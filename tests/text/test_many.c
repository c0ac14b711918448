/* Vocabularies with many special tokens, each the beginning of the next (F12 of docs/reliability.md): the longest
 * one matches, and a text that almost spells them all at every place takes time in proportion to its length. */
#include "base/alloc.h"
#include "support/models/gguf_build.h"
#include "support/test.h"
#include "text/tokenizer.h"

#include <time.h>

enum { N_BYTES = 259, N_CHAIN = 900, N_SPECIAL = 10000, N_TOKEN = N_BYTES + N_SPECIAL };

/* The text of token i: <unk>, <s>, </s>, 256 bytes, then "<a", "<aa", ..., then "<0>", "<1>", ... */
static void token_text(uint32_t i, char out[1000])
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    if (i < 3) snprintf(out, 1000, "%s", first[i]);
    else if (i < N_BYTES) snprintf(out, 1000, "<0x%02X>", i - 3);
    else if (i < N_BYTES + N_CHAIN) {
        uint32_t n = i - N_BYTES + 1;
        out[0] = '<';
        memset(out + 1, 'a', n);
        out[n + 1] = '\0';
    } else snprintf(out, 1000, "<%u>", i - N_BYTES - N_CHAIN);
}

static void build(gguf_bytes *b)
{
    char text[1000];
    gguf_header(b, 3, 0, 6);
    gguf_pair_text(b, "general.architecture", "llama");
    gguf_pair_text(b, "tokenizer.ggml.model", "llama");
    gguf_pair_u32(b, "tokenizer.ggml.eos_token_id", 2);
    gguf_array(b, "tokenizer.ggml.tokens", 8, N_TOKEN);
    for (uint32_t i = 0; i < N_TOKEN; i++) {
        token_text(i, text);
        gguf_text(b, text);
    }
    gguf_array(b, "tokenizer.ggml.scores", 6, N_TOKEN);
    gguf_zeros(b, (size_t)4 * N_TOKEN);
    gguf_array(b, "tokenizer.ggml.token_type", 5, N_TOKEN);
    for (uint32_t i = 0; i < N_TOKEN; i++)
        gguf_word(b,
                  i == 0                  ? HTH_TOKEN_UNKNOWN
                  : i < 3 || i >= N_BYTES ? HTH_TOKEN_CONTROL
                                          : HTH_TOKEN_BYTE,
                  4);
}

/* Seconds for n bytes of which every 902nd is '<' and the others are 'a', so that the whole
 * chain is walked and one byte more is there. */
static double seconds_for(const hth_tokenizer *tok, size_t n, size_t n_expected)
{
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    FREED char *text = malloc(n);
    for (size_t i = 0; i < n; i++) text[i] = i % (N_CHAIN + 2) == 0 ? '<' : 'a';
    clock_t start = clock(); /* of this process: others may keep the machine busy */
    CHECK_OK(hth_tokenize(tok, text, n, HEARTH_PARSE_SPECIAL, &ids, NULL, err));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    size_t n_longest = 0;
    for (size_t i = 0; i < ids.n; i++) n_longest += ids.id[i] == N_BYTES + N_CHAIN - 1;
    CHECK_INT(n_longest, n_expected);
    return seconds;
}

TEST(ten_thousand_special_tokens_match_longest_first_in_linear_time)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    CLOSED(hth_tokenizer) *tok = NULL;
    hth_ids ids = {0};
    build(&b);
    CLOSED(hth_gguf) *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "many.gguf");
    if (file) CHECK_OK(hth_tokenizer_open(file, &tok, err));
    if (tok) {
        CHECK_OK(hth_tokenize(tok, "<aaa<9099><a", 12, HEARTH_PARSE_SPECIAL, &ids, NULL, err));
        /* a space that is put in front is bytes here: the marks follow it */
        CHECK(ids.n >= 3);
        if (ids.n >= 3) CHECK_INT(ids.id[ids.n - 3], N_BYTES + 2);
        if (ids.n >= 3) CHECK_INT(ids.id[ids.n - 2], N_BYTES + N_CHAIN + 9099);
        if (ids.n >= 3) CHECK_INT(ids.id[ids.n - 1], N_BYTES);
        hth_ids_free(&ids);
        const size_t n = (size_t)(N_CHAIN + 2) * 64;
        double one = seconds_for(tok, n, 64), eight = seconds_for(tok, 8 * n, 512);
        printf("     %.1f ms for %zu bytes, %.1f ms for eight times as many\n", 1e3 * one, n, 1e3 * eight);
        CHECK(eight < 30.0 * one + 0.2);
    }
}
