/* Follows texts through constraints, for the tests of src/constrain. */
#include "support/texts.h"
#include "support/test.h"

hth_token_trie *texts_bytes_trie(void)
{
    static uint8_t bytes[256];
    static hth_str pieces[257];
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i, pieces[i] = (hth_str){(const char *)&bytes[i], 1};
    pieces[256] = (hth_str){"", 0};
    hth_token_trie *trie = NULL;
    CHECK_OK(hth_token_trie_open_pieces(pieces, 257, &trie, err));
    return trie;
}

size_t texts_follow(const hth_token_trie *trie, const hearth_constraint_options *options, const char *text,
                    size_t n, hearth_constraint_end *end)
{
    hearth_constraint *c = NULL;
    size_t i = 0;
    CHECK_OK(hth_constraint_open(trie, options, NULL, &c, err));
    if (!c) return SIZE_MAX;
    while (i < n && hth_constraint_accept_bytes(c, text + i, 1)) i++;
    *end = hearth_constraint_get_end(c);
    hearth_constraint_close(c);
    return i;
}

/* At each place of the text: the tokens of the mask are the bytes that are accepted. */
static void check_masks(const hth_token_trie *trie, const hearth_constraint_options *options,
                        const char *text, const char *file, int line)
{
    static float logits[257];
    hearth_constraint *c = NULL, *copy;
    CHECK_OK(hth_constraint_open(trie, options, NULL, &c, err));
    if (!c) return;
    for (size_t i = 0; i <= strlen(text); i++) {
        for (int id = 0; id < 257; id++) logits[id] = 0.0f;
        bool any = false;
        hearth_error why = {.status = HEARTH_OK};
        hearth_status st = hearth_constraint_mask(c, logits, &why);
        if (st != HEARTH_OK) test_fail(file, line, "%s: %s", text, why.message);
        for (int id = 0; id < 257; id++) {
            CHECK_OK(hearth_constraint_copy(c, &copy, err));
            bool takes = hearth_constraint_accept(copy, id, NULL) == HEARTH_OK, allows = logits[id] == 0.0f;
            hearth_constraint_close(copy);
            any |= allows;
            if (takes != allows)
                test_fail(file, line, "behind %.*s: token %d is %sallowed, but %staken", (int)i, text, id,
                          allows ? "" : "not ", takes ? "" : "not ");
        }
        if (!any) test_fail(file, line, "behind %.*s nothing is allowed", (int)i, text);
        if (!hth_constraint_accept_bytes(c, text + i, text[i] != 0)) break;
    }
    hearth_constraint_close(c);
}

void texts_check(hearth_constraint_kind kind, const texts_case *t, const char *file, int line)
{
    hth_token_trie *trie = texts_bytes_trie();
    hearth_constraint_options options = {.kind = kind, .text = t->source, .n = strlen(t->source)};
    hearth_constraint_end end = HEARTH_CONSTRAINT_INCOMPLETE;
    for (size_t i = 0; t->takes[i]; i++) {
        size_t n = strlen(t->takes[i]), reached = texts_follow(trie, &options, t->takes[i], n, &end);
        if (reached != n || end == HEARTH_CONSTRAINT_INCOMPLETE)
            test_fail(file, line, "%s: %s is refused at byte %zu", t->source, t->takes[i], reached);
        if (i < 2) check_masks(trie, &options, t->takes[i], file, line);
    }
    for (size_t i = 0; t->refuses[i]; i++) {
        size_t n = strlen(t->refuses[i]), reached = texts_follow(trie, &options, t->refuses[i], n, &end);
        if (reached == n && end != HEARTH_CONSTRAINT_INCOMPLETE)
            test_fail(file, line, "%s: %s is taken", t->source, t->refuses[i]);
    }
    hth_token_trie_close(trie);
}

void texts_check_refused(hearth_constraint_kind kind, const char *source, hearth_status status,
                         const char *words, const char *file, int line)
{
    hth_token_trie *trie = texts_bytes_trie();
    hearth_constraint_options options = {.kind = kind, .text = source, .n = strlen(source)};
    hearth_constraint *c = NULL;
    hearth_error why = {.status = HEARTH_OK};
    char shown[120];
    hearth_status st = hth_constraint_open(trie, &options, NULL, &c, &why);
    snprintf(shown, sizeof shown, "%s", source);
    test_check_failure((int)st, (int)status, why.message, words, file, line, shown);
    hearth_constraint_close(c);
    hth_token_trie_close(trie);
}
