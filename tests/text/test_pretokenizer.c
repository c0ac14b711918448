/* text/pretokenizer.h: words end where the reference says, whether the expressions run as machine
 * code or interpreted; limits are errors; no text makes cutting slow. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "support/models/json_lines.h"
#include "support/test.h"
#include "support/models/vocab_data.h"
#include "text/pretokenizer.h"

enum { N_FAMILY = 28, N_TEXT = 294 };

static const char *const names[N_FAMILY] = {
    "afmoe",       "bailingmoe", "bloom",     "chameleon", "deepseek-coder", "deepseek-llm", "deepseek-v3", "default",
    "exaone-moe",  "falcon",     "gpt-2",     "gpt-4o",    "jais-2",         "kimi-k2",      "laguna",      "llama-bpe",
    "minicpm5",    "qwen2",      "qwen35",    "seed-coder", "spark2_5",      "starcoder",    "superbpe",    "tekken",
    "tiny_aya",    "ufakzeka",   "viking",    "youtu"};

static const hth_pretok_type *family_of(const char *name)
{
    unsigned flags;
    return hth_pretok_type_find((hth_str){name, strlen(name)}, &flags);
}

static bool has_engine(void)
{
    char engine[100];
    if (hth_pretokenizer_engine(engine, sizeof engine)) return true;
    test_skip("built without PCRE2");
    return false;
}

static hth_pretokenizer *cutter_of(const char *name, bool jit)
{
    hth_pretokenizer *c = OPENED(hth_pretokenizer, family_of(name), jit);
    return c;
}

/* The ends of all words into ends (space for n), or SIZE_MAX after a failed check. */
static size_t cut_text(const hth_pretokenizer *c, hth_pretok_iter *cut, const char *text, size_t n, size_t *ends)
{
    size_t n_word = 0, at = 0, length;
    hearth_error why = {0};
    hearth_status status = hth_pretok_iter_begin(cut, c, text, n, &why);
    while (status == HEARTH_OK && (status = hth_pretok_iter_next(cut, &length, &why)) == HEARTH_OK) {
        if (length == 0) break;
        at += length;
        if (!CHECK(at <= n && n_word < n)) return SIZE_MAX;
        ends[n_word++] = at;
    }
    if (status != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s", why.message);
    CHECK_INT(at, n);
    return n_word;
}

/* ---- the reference ------------------------------------------------------------------------ */

static void check_family(const char *name, char *texts)
{
    char path[100];
    size_t n_bytes, n_line = 0;
    snprintf(path, sizeof path, "pretok/%s.jsonl", name);
    FREED char *answers = vocab_data_read(path, &n_bytes);
    char *rest = answers;
    CLOSED(hth_pretokenizer) *c = cutter_of(name, true);
    CLEANUP(hth_pretok_iter_free) hth_pretok_iter cut = {0};
    if (!c) return;
    for (char *line; (line = json_next_line(&texts)); n_line++) {
        size_t n, n_ends;
        FREED char *text = json_base64(json_field(line, "b64"), &n);
        FREED int32_t *expected = json_ints(json_field(json_next_line(&rest), "ends"), &n_ends, NULL);
        FREED size_t *ends = malloc((n + 1) * sizeof *ends);
        size_t n_word = cut_text(c, &cut, text, n, ends);
        bool same = n_word == n_ends;
        for (size_t i = 0; same && i < n_ends; i++) same = ends[i] == (size_t)expected[i];
        if (!same) test_fail(__FILE__, __LINE__, "%s line %zu is cut elsewhere", name, n_line + 1);
    }
    CHECK_INT(n_line, N_TEXT);
    printf("     %s: %zu\n", name, n_line);
}

TEST(pre_tokenizers_split_as_the_reference_does)
{
    if (!has_engine()) return;
    for (int i = 0; i < N_FAMILY; i++) {
        size_t n_bytes;
        FREED char *texts = vocab_data_read("pretok/texts.jsonl", &n_bytes);
        if (!texts) return;
        check_family(names[i], texts);
    }
}

/* One text that shows how the architectures differ; the bars are where it is cut. */
TEST(pre_tokenizers_differ_as_they_should)
{
    static const struct {
        const char *name, *cuts;
    } known[N_FAMILY] = {
        {"bloom", "He'S| 12345| | x_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"deepseek-coder", "He|'|S| |1|2|3|4|5| | x|_|y|!|\n| caf\xC3\xA9|\xE4\xB8\xAD|,| ABc"},
        {"deepseek-llm", "He|'|S| |12345| | x|_|y|!|\n| caf|\xC3\xA9|\xE4\xB8\xAD|,| ABc"},
        {"deepseek-v3", "He|'S| |123|45| | x|_y|!\n| caf\xC3\xA9|\xE4\xB8\xAD|,| ABc"},
        {"default", "He|'|S| |123|45| | x|_|y|!|\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"falcon", "He|'|S| |123|45| | x|_|y|!|\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"gpt-2", "He|'|S| 12345| | x|_|y|!|\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"gpt-4o", "He'S| |123|45| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"llama-bpe", "He|'S| |123|45| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"qwen2", "He|'S| |1|2|3|4|5| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"qwen35", "He|'S| |1|2|3|4|5| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"tekken", "He|'S| |1|2|3|4|5| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"starcoder", "He|'|S| |1|2|3|4|5| | x|_|y|!|\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"viking", "He'S| |1|2|3|4|5| | x_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"afmoe", "He|'S| |12|345| | x|_y|!\n| caf\xC3\xA9|\xE4\xB8\xAD|,| ABc"},
        {"bailingmoe", "He|'S| |1|2|3|4|5| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"chameleon", "He|'|S| |1|2|3|4|5|  |x|_|y|!|\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"exaone-moe", "He|'S| |1|2|3|4|5| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"jais-2", "He|'S| |123|45| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"kimi-k2", "He'S| |123|45| | x|_y|!\n| caf\xC3\xA9|\xE4\xB8\xAD|,| ABc"},
        {"laguna", "He|'S| |1|2|3|4|5| | x|_y|!|\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"minicpm5", "He|'S| |123|45| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"seed-coder", "He|'S| |1|2|3|4|5| | x|_y|!|\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"spark2_5", "He|'S| |1|2|3|4|5| | x|_y|!|\n| caf\xC3\xA9|\xE4\xB8\xAD|,| ABc"},
        {"superbpe", "He'S |12|345|  x_y!\n caf\xC3\xA9\xE4\xB8\xAD, ABc"},
        {"tiny_aya", "He'S| |12|345| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"ufakzeka", "He|'S| |1|2|3|4|5| | x|_y|!\n| caf\xC3\xA9\xE4\xB8\xAD|,| ABc"},
        {"youtu", "He'S| |1|2|3|4|5| | x|_y|!\n| caf\xC3\xA9|\xE4\xB8\xAD|,| ABc"},
    };
    if (!has_engine()) return;
    for (int i = 0; i < N_FAMILY; i++) {
        char text[100], cuts[200];
        size_t ends[100], n = 0, n_cuts = 0;
        for (const char *p = known[i].cuts; *p; p++)
            if (*p != '|') text[n++] = *p;
        CLOSED(hth_pretokenizer) *c = cutter_of(known[i].name, true);
        CLEANUP(hth_pretok_iter_free) hth_pretok_iter cut = {0};
        size_t n_word = cut_text(c, &cut, text, n, ends);
        for (size_t k = 0, at = 0; k < n_word && n_word != SIZE_MAX; k++) {
            for (; at < ends[k]; at++) cuts[n_cuts++] = text[at];
            cuts[n_cuts++] = '|';
        }
        cuts[n_cuts > 0 ? n_cuts - 1 : 0] = '\0';
        CHECK_TEXT(cuts, known[i].cuts);
    }
}

TEST(every_known_name_has_a_pre_tokenizer)
{
    unsigned flags;
    const char *name;
    size_t n = 0;
    for (; (name = hth_pretok_type_name(n)) != NULL; n++) {
        const hth_pretok_type *f = family_of(name);
        bool known = f && (strcmp(f->name, "gemma4") == 0 || strcmp(f->name, "whitespace") == 0); /* of characters */
        for (int i = 0; f && i < N_FAMILY; i++) known |= strcmp(f->name, names[i]) == 0;
        if (!known) test_fail(__FILE__, __LINE__, "%s is of no family", name);
        if (f && n < N_FAMILY) CHECK_TEXT(f->name, name);
    }
    CHECK_INT(n, 90);
    CHECK(hth_pretok_type_find((hth_str){"gpt-22", 6}, &flags) == NULL);
    CHECK(hth_pretok_type_find((hth_str){"gpt-", 4}, &flags) == NULL);
    CHECK(hth_pretok_type_find((hth_str){"", 0}, &flags) == NULL);
    CHECK(strcmp(family_of("smaug-bpe")->name, "llama-bpe") == 0);
    CHECK(strcmp(family_of("refact")->name, "starcoder") == 0);
}

/* ---- machine code and interpreter ------------------------------------------------------------ */

/* Characters that the expressions tell apart, and some ill-formed bytes. */
static size_t random_text(test_random *r, char *out, size_t n_max)
{
    static const char *const atoms[] = {
        "a", "Z", "s", "'", "ll", "RE", " ", "  ", "\n", "\r", "\t", "\v", "0", "123", "!", ".", "$", "~", "`", "/",
        "(", "|", "_", "\xC2\xA0", "\xC2\x85", "\xC3\xA9", "\xC3\x89", "\xC5\xBF", "\xCC\x81", "\xD9\xA1",
        "\xE0\xA4\xBF", "\xE1\xA0\x8E", "\xE2\x80\x83", "\xE2\x80\x8B", "\xE2\x80\xA8", "\xE2\x80\xA6",
        "\xE3\x80\x80", "\xE3\x80\x81", "\xE4\xB8\xAD", "\xED\x95\x9C", "\xEF\xBC\xA1", "\xEF\xBC\x91",
        "\xEE\x80\x80", "\xF0\x9F\x99\x82", "\xF0\x90\x90\x80", "\xC7\x85", "\xE2\x85\xA7", "\xC2\xB2", "\xFF",
        "\xE4\xB8", "\xED\xA0\x80", "\x80", "\xF4\x90", "",
    };
    const uint32_t n_atom = sizeof atoms / sizeof *atoms;
    size_t n = 0;
    for (uint32_t k = test_random_below(r, 24); k > 0; k--) {
        const char *atom = atoms[test_random_below(r, n_atom)];
        for (uint32_t times = 1 + (test_random_below(r, 6) == 0 ? test_random_below(r, 5) : 0); times > 0;
             times--) {
            if (n + 4 > n_max) return n;
            memcpy(out + n, atom, strlen(atom));
            n += strlen(atom);
            if (*atom == '\0') out[n++] = '\0';
        }
    }
    return n;
}

TEST(machine_code_and_interpreter_cut_alike)
{
    if (!has_engine()) return;
    const int n_round = test_is_long() ? 100000 : 2000;
    for (int i = 0; i < N_FAMILY; i++) {
        hth_pretokenizer *fast = cutter_of(names[i], true), *slow = cutter_of(names[i], false);
        hth_pretok_iter cut[2] = {{0}, {0}};
        test_random r = {(uint64_t)i + 1};
        for (int round = 0; round < n_round; round++) {
            char text[300];
            size_t ends[2][300], n = random_text(&r, text, sizeof text);
            size_t n_fast = cut_text(fast, &cut[0], text, n, ends[0]);
            size_t n_slow = cut_text(slow, &cut[1], text, n, ends[1]);
            if (n_fast == n_slow && memcmp(ends[0], ends[1], n_fast * sizeof *ends[0]) == 0) continue;
            test_fail(__FILE__, __LINE__, "%s, seed %d, round %d: cut otherwise", names[i], i + 1, round);
            break;
        }
        hth_pretok_iter_free(&cut[0]);
        hth_pretok_iter_free(&cut[1]);
        hth_pretokenizer_close(fast);
        hth_pretokenizer_close(slow);
    }
}

/* An ill-formed byte is cut as any character of no class is. */
TEST(ill_formed_bytes_are_symbols_of_no_class)
{
    if (!has_engine()) return;
    for (int i = 0; i < N_FAMILY; i++) {
        CLOSED(hth_pretokenizer) *c = cutter_of(names[i], true);
        CLEANUP(hth_pretok_iter_free) hth_pretok_iter cut = {0};
        test_random r = {(uint64_t)i + 50};
        for (int round = 0; round < 500; round++) {
            char bad[400], good[1200];
            size_t ends[2][1200], n_bad = 0, n_good = 0, place[1200] = {0};
            for (uint32_t k = test_random_below(&r, 30); k > 0; k--) {
                static const char likely[] = "ab 1!\n'";
                char letter = likely[test_random_below(&r, sizeof likely - 1)];
                bool spoil = test_random_below(&r, 3) == 0;
                bad[n_bad++] = spoil ? '\xFF' : letter;
                memcpy(good + n_good, spoil ? "\xF3\xB0\x80\x80" : &letter, spoil ? 4 : 1); /* U+F0000 */
                n_good += spoil ? 4 : 1;
                place[n_good] = n_bad;
            }
            size_t n_word = cut_text(c, &cut, bad, n_bad, ends[0]);
            CHECK_INT(cut_text(c, &cut, good, n_good, ends[1]), n_word);
            for (size_t k = 0; k < n_word && n_word != SIZE_MAX; k++) CHECK_INT(ends[0][k], place[ends[1][k]]);
        }
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static hearth_status cut_with(const char *expression, const char *second, bool jit, const char *text,
                              size_t n, size_t *n_word, hearth_error *why)
{
    const hth_pretok_type pretok_type = {"strange", {expression, second}};
    hth_pretokenizer *c = NULL;
    hth_pretok_iter cut = {0};
    size_t length = 1;
    uint64_t held = hth_alloc_in_use();
    *n_word = 0;
    hearth_status status = hth_pretokenizer_open(&pretok_type, jit, &c, why);
    if (status == HEARTH_OK) status = hth_pretok_iter_begin(&cut, c, text, n, why);
    while (status == HEARTH_OK && length > 0) {
        status = hth_pretok_iter_next(&cut, &length, why);
        *n_word += length > 0;
    }
    hth_pretok_iter_free(&cut);
    hth_pretokenizer_close(c);
    CHECK_INT(hth_alloc_in_use(), held);
    return status;
}

static void refuse(const char *expression, const char *second, bool jit, const char *text, size_t n,
                   const char *part, const char *part_2)
{
    hearth_error why = {0};
    size_t n_word;
    CHECK_INT(cut_with(expression, second, jit, text, n, &n_word, &why), HEARTH_ERROR_UNSUPPORTED);
    if (!strstr(why.message, part) || !strstr(why.message, part_2))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\" and \"%s\"", why.message, part, part_2);
}

TEST(a_wrong_expression_is_named)
{
    if (!has_engine()) return;
    refuse("a", "b(c", true, "a", 1, "\"strange\", expression 2", "missing closing parenthesis");
}

TEST(limits_are_errors_that_name_the_expression)
{
    if (!has_engine()) return;
    /* exponential: each of the 40 characters may be in a group of its own or not */
    char text[60];
    memset(text, 'a', sizeof text);
    refuse("[0-9]", "(?:a|a)+[bc]|(?:a+a+)+[bc]", false, text, 40, "expression 2 on the text from byte 0", "limit");
    refuse("[0-9]", "(?:a|a)+[bc]|(?:a+a+)+[bc]", true, text, 40, "expression 2 on the text from byte 0", "limit");
    /* a frame for every character: the heap */
    size_t n = 4 << 20;
    FREED char *long_text = malloc(n);
    memset(long_text, 'a', n);
    refuse("(?:a(?=a|b|c))+[de]", NULL, false, long_text, n, "expression 1 on the text from byte 0", "limit");
}

/* The expression of tekken as upstream writes it needs more than the small stack of
 * machine code; it is then interpreted, and cuts as it should. */
TEST(a_full_stack_of_machine_code_is_interpreted)
{
    if (!has_engine()) return;
    const char *nested = "((?=[\\p{L}])([^a-z]))*((?=[\\p{L}])([^A-Z]))+";
    const size_t n = 20000;
    FREED char *text = malloc(n);
    memset(text, 'a', n);
    text[0] = text[n - 1] = '1';
    for (int jit = 0; jit < 2; jit++) {
        hearth_error why = {0};
        size_t n_word = 0;
        CHECK_INT(cut_with(nested, NULL, jit, text, n, &n_word, &why), HEARTH_OK);
        CHECK_INT(n_word, 3);
    }
}

TEST(empty_matches_cut_nothing)
{
    if (!has_engine()) return;
    hearth_error why = {0};
    size_t n_word;
    CHECK_INT(cut_with("b*", "x?", true, "abba", 4, &n_word, &why), HEARTH_OK);
    CHECK_INT(n_word, 3); /* a, bb, a */
    CHECK_INT(cut_with("b*", NULL, true, "", 0, &n_word, &why), HEARTH_OK);
    CHECK_INT(n_word, 0);
}

/* ---- long texts -------------------------------------------------------------------------------- */

/* A long run of anything takes a time in proportion: were it quadratic anywhere, 256 KiB would take minutes, and
 * the cap would be passed. Something may follow, so that a run is not at the end of its text. */
TEST(long_runs_of_any_unit_are_cut_in_time)
{
    static const char *const units[] = {
        " ", "\n", "\r\n", "\t", "a", "A", "\xC3\xA9", "\xE4\xB8\xAD", "0", "!", "'", "'s", "Aa", "aA", "$", "/",
        "\r", " \n", "\xCC\x81", "\xE2\x80\x83", "a ", " a", "1 ", "\xFF", "\xEE\x80\x80", "\xE4\xB8\xADZ", ", ",
        "\xF0\x9F\x99\x82", "12a", "\xC2\xB2", "\xC2\xB2\x31", "e\xCC\x81 ", "IMGIMGA", "\xE3\x81\x82",
    };
    static const char *const ends[] = {"", "a", "1", "!", "\n", "\x01", "\xE4\xB8\xAD"};
    if (!has_engine()) return;
    const size_t n = test_is_long() ? 1 << 22 : 1 << 18;
    const int n_end = test_is_long() ? 7 : 1;
    FREED char *text = malloc(n + 8);
    uint64_t slowest = 0;
    const char *which = "", *unit = "";
    for (int i = 0; i < N_FAMILY; i++) {
        CLOSED(hth_pretokenizer) *c = cutter_of(names[i], true);
        CLEANUP(hth_pretok_iter_free) hth_pretok_iter cut = {0};
        for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
            for (int e = 0; e < n_end; e++) {
                size_t n_unit = strlen(units[k]), at = 0, length = 1;
                const char *end = ends[n_end == 1 ? (k + (size_t)i * 2) % 7 : (size_t)e];
                for (; at + n_unit <= n; at += n_unit) memcpy(text + at, units[k], n_unit);
                memcpy(text + at, end, strlen(end));
                at += strlen(end);
                uint64_t start = hth_clock_ns();
                CHECK_OK(hth_pretok_iter_begin(&cut, c, text, at, err));
                for (size_t sum = 0; length > 0; sum += length) {
                    hearth_error why = {0};
                    if (!CHECK_INT(hth_pretok_iter_next(&cut, &length, &why), HEARTH_OK)) break;
                    if (length == 0) CHECK_INT(sum, at);
                }
                uint64_t took = hth_clock_ns() - start;
                if (took > slowest) {
                    slowest = took;
                    which = names[i];
                    unit = units[k];
                }
            }
        }
    }
    char shown[40];
    printf("     slowest of %zu bytes: %.0f ms, %s, \"%s\"\n", n, (double)slowest * 1e-6, which,
           hth_escape(shown, sizeof shown, unit, strlen(unit)));
    CHECK(slowest < UINT64_C(10000000000));
}

TEST(every_failing_allocation_of_a_cut_is_an_error)
{
    if (!has_engine()) return;
    static const char text[] = "a b1\xFF 22 c";
    uint64_t held = hth_alloc_in_use();
    int n_failed = 0;
    for (uint64_t n = 1; n < 200; n++) {
        hth_pretokenizer *c = NULL;
        hth_pretok_iter cut = {0};
        hearth_error why = {0};
        size_t length = 1;
        hth_alloc_fail_at(n, 0);
        hearth_status status = hth_pretokenizer_open(family_of("starcoder"), false, &c, &why);
        if (status == HEARTH_OK) status = hth_pretok_iter_begin(&cut, c, text, sizeof text - 1, &why);
        while (status == HEARTH_OK && length > 0) status = hth_pretok_iter_next(&cut, &length, &why);
        hth_alloc_fail_at(0, 0);
        hth_pretok_iter_free(&cut);
        hth_pretokenizer_close(c);
        CHECK_INT(hth_alloc_in_use(), held);
        if (status == HEARTH_OK) break;
        CHECK_INT(status, HEARTH_ERROR_MEMORY);
        n_failed++;
    }
    CHECK(n_failed >= 6 && n_failed < 190);
}
