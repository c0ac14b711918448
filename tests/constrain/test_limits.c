/* Sources that explode, nest or recurse: each is compiled or refused in bounded time, and no text needs more than
 * bounded memory. Also: every failing allocation is an error. */
#include "base/alloc.h"
#include "base/clock.h"
#include "constrain/automaton.h"
#include "support/faults.h"
#include "support/test.h"
#include "support/texts.h"

static const double MAX_SECONDS =
    60.0; /* a bound for sanitizers and loaded machines; what is bounded takes below one */

/* A source of n parts. Freed by the caller. */
static char *repeated(const char *begin, const char *part, size_t n, const char *middle, const char *end_part,
                      const char *end)
{
    size_t size = strlen(begin) + n * (strlen(part) + strlen(end_part)) + strlen(middle) + strlen(end) + 1;
    char *text = malloc(size), *p = text;
    p = stpcpy(p, begin);
    for (size_t i = 0; i < n; i++) p = stpcpy(p, part);
    p = stpcpy(p, middle);
    for (size_t i = 0; i < n; i++) p = stpcpy(p, end_part);
    stpcpy(p, end);
    return text;
}

/* Opens it, follows a text if it can be opened, and takes a mask; returns the status of opening. */
static hearth_status survive(hearth_constraint_kind kind, const char *source, const char *text,
                             const char *words)
{
    static float logits[257];
    hth_token_trie *trie = texts_bytes_trie();
    hearth_constraint_options o = {.kind = kind, .text = source, .n = strlen(source)};
    hearth_constraint *c = NULL;
    hearth_error why = {.status = HEARTH_OK};
    uint64_t held = hth_alloc_in_use(), start = hth_clock_ns();
    hearth_status st = hth_constraint_open(trie, &o, NULL, &c, &why);
    if (st != HEARTH_OK && !strstr(why.message, words))
        test_fail(__FILE__, __LINE__, "%.60s: %s", source, why.message);
    for (size_t i = 0; c && text[i]; i++) hth_constraint_accept_bytes(c, text + i, 1);
    if (c && hearth_constraint_mask(c, logits, &why) != HEARTH_OK && !strstr(why.message, words))
        test_fail(__FILE__, __LINE__, "%.60s: %s", source, why.message);
    CHECK(hth_alloc_in_use() - held < (size_t)160 << 20);
    hearth_constraint_close(c);
    CHECK_INT(hth_alloc_in_use(), held);
    double seconds = (double)(hth_clock_ns() - start) * 1e-9;
    if (seconds > MAX_SECONDS) test_fail(__FILE__, __LINE__, "%.60s: %.1f s", source, seconds);
    hth_token_trie_close(trie);
    return st;
}

static hearth_status schema(const char *source, const char *text, const char *words)
{
    return survive(HEARTH_CONSTRAINT_JSON_SCHEMA, source, text, words);
}

static hearth_status grammar(const char *source, const char *text, const char *words)
{
    return survive(HEARTH_CONSTRAINT_GRAMMAR, source, text, words);
}

TEST(nested_schemas_end)
{
    for (size_t n = 10; n <= 10000; n *= 10) {
        FREED char *items = repeated("", "{\"items\":", n, "{}", "}", "");
        hearth_status st = schema(items, "[[[[", "nested more than 128 levels deep");
        CHECK_INT(st, n < 128 ? HEARTH_OK : HEARTH_ERROR_UNSUPPORTED);
    }
    FREED char *open = repeated("", "[", 100000, "", "", "");
    CHECK_INT(schema(open, "", "nested"), HEARTH_ERROR_UNSUPPORTED);
    FREED char *any = repeated("{\"type\":\"string\",\"pattern\":\"", "(", 60000, "a", ")", "\"}");
    CHECK_INT(schema(any, "", "nested too deeply"), HEARTH_ERROR_UNSUPPORTED);
}

TEST(deep_texts_end_where_no_level_is_left)
{
    hth_token_trie *trie = texts_bytes_trie();
    static const char source[] = "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}";
    static float logits[257];
    hearth_constraint_options o = {
        .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = source, .n = strlen(source)};
    hearth_constraint *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    uint32_t depth = 0;
    while (c && hth_constraint_accept_bytes(c, "[", 1)) depth++;
    printf("     %u levels\n", depth);
    CHECK(depth > 100 && depth <= HTH_GRAMMAR_MAX_DEPTH);
    CHECK_OK(hearth_constraint_mask(c, logits, err));
    for (; depth > 0; depth--) CHECK(hth_constraint_accept_bytes(c, "]", 1));
    CHECK_INT(hearth_constraint_get_end(c), HEARTH_CONSTRAINT_COMPLETE);
    hearth_constraint_close(c);
    hth_token_trie_close(trie);
}

TEST(schemas_that_explode_are_refused)
{
    FREED char *choices =
        repeated("{\"allOf\":[true", ",{\"anyOf\":[{\"minLength\":1},{\"maxLength\":9}]}", 40, "", "", "]}");
    CHECK_INT(schema(choices, "\"", "more than"), HEARTH_ERROR_UNSUPPORTED);
    FREED char *joined = repeated("{\"allOf\":[true", ",{\"type\":\"null\"}", 1000, "", "", "]}");
    CHECK_INT(schema(joined, "", "more than 64 schemas"), HEARTH_ERROR_UNSUPPORTED);
    char *names = malloc(240000), *p = names;
    p += sprintf(p, "{\"properties\":{");
    for (int i = 0; i < 12000; i++) p += sprintf(p, "%s\"p%d\":{}", i ? "," : "", i);
    sprintf(p, "}}");
    CHECK_INT(schema(names, "", "more than 4096 properties"), HEARTH_ERROR_UNSUPPORTED);
    p = names + sprintf(names, "{\"properties\":{");
    for (int i = 0; i < 4000; i++) p += sprintf(p, "%s\"p%d\":{\"type\":\"null\"}", i ? "," : "", i);
    sprintf(p, "}}");
    CHECK_INT(schema(names, "{\"p17\":null,\"p", "complex"), HEARTH_OK);
    free(names);
    FREED char *large = repeated("{\"description\":\"", "x", 300000, "", "", "\"}");
    CHECK_INT(schema(large, "", "262144"), HEARTH_ERROR_UNSUPPORTED);
    CHECK_INT(schema("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/"
                     "$defs/a\"}}}",
                     "1", ""),
              HEARTH_OK);
    CHECK_INT(
        schema(
            "{\"anyOf\":[{\"allOf\":[{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}]},{\"$ref\":\"#\"}]}",
            "n", ""),
        HEARTH_OK);
    CHECK_INT(
        schema("{\"type\":\"array\",\"minItems\":1000000000000,\"items\":{\"type\":\"null\"}}", "[null", ""),
        HEARTH_OK);
}

TEST(grammars_that_explode_are_refused)
{
    FREED char *groups = repeated("root ::= ", "(", 60000, "\"a\"", ")", "");
    CHECK_INT(grammar(groups, "", "nested too deeply"), HEARTH_ERROR_UNSUPPORTED);
    FREED char *empties = repeated("root ::= ", "(", 150, "\"a\"", ")*", "");
    CHECK_INT(grammar(empties, "aaaa", ""), HEARTH_OK);
    FREED char *unbalanced = repeated("root ::= ", "(\"a\" | ", 199, "\"b\"", ")*", "");
    CHECK_INT(grammar(unbalanced, "aabb", "complex"), HEARTH_OK);
    /* a set of places that doubles with each call */
    char *doubled = malloc(1 << 16), *p = doubled;
    p += sprintf(p, "root ::= r0\n");
    for (int i = 0; i < 60; i++) p += sprintf(p, "r%d ::= r%d \"a\" | r%d \"b\"\n", i, i + 1, i + 1);
    sprintf(p, "r60 ::= \"c\"");
    grammar(doubled, "c", "too many places");
    /* states that are exponentially many, of one text */
    CHECK_INT(grammar("root ::= [ab]* \"a\" [ab]{1000}", "abababababababbbabab", "complex"), HEARTH_OK);
    p = doubled + sprintf(doubled, "root ::= ");
    for (int i = 0; i < 3000; i++) p += sprintf(p, "[^\"\\\\]* ");
    CHECK_INT(grammar(doubled, "abc", "too many places"), HEARTH_ERROR_UNSUPPORTED);
    p = doubled + sprintf(doubled, "root ::= ");
    for (int i = 0; i < 200; i++) p += sprintf(p, "[^\"\\\\]* ");
    CHECK_INT(grammar(doubled, "abc", ""), HEARTH_OK);
    free(doubled);
    FREED char *tails = repeated("root ::= \"x\" tail\ntail ::= \"y\"", "?", 1, " tail?", "", "");
    grammar(tails, "xy", "");
}

/* ---- failing allocations ------------------------------------------------------------------------------------ */

static hearth_status constrain_once(const fault_paths *p, hearth_error *err)
{
    static const char source[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
                                 "\"pattern\":\"^(a|b){2}$\"},\"b\":{\"enum\":[1,{\"x\":[2.5]}]},"
                                 "\"c\":{\"$ref\":\"#/$defs/"
                                 "d\"}},\"additionalProperties\":{\"type\":\"integer\"},\"required\":[\"a\"],"
                                 "\"$defs\":{\"d\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"number\"}]}}}";
    static const char gbnf[] = "root ::= item+ \"!\"\nitem ::= [a-z\xC3\xA9] | \"(\" item \")\"";
    static const char *const choices[] = {"yes", "no"};
    const hearth_constraint_options all[] = {
        {.kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = source, .n = strlen(source)},
        {.kind = HEARTH_CONSTRAINT_GRAMMAR, .text = gbnf, .n = strlen(gbnf)},
        {.kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = 2},
        {.kind = HEARTH_CONSTRAINT_JSON_OBJECT}};
    hearth_model *model = NULL;
    hearth_constraint *c = NULL, *copy = NULL;
    float *logits = NULL;
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st != HEARTH_OK) return st;
    hearth_model_info info = {0};
    hearth_model_get_info(model, &info);
    logits = calloc(info.n_vocab, sizeof *logits);
    for (size_t i = 0; i < sizeof all / sizeof *all && st == HEARTH_OK; i++) {
        st = hearth_constraint_open(model, &all[i], &c, err);
        if (st == HEARTH_OK) st = hearth_constraint_copy(c, &copy, err);
        for (uint32_t id = 0; st == HEARTH_OK && id < info.n_vocab; id++) logits[id] = 0.0f;
        if (st == HEARTH_OK) st = hearth_constraint_mask(copy, logits, err);
        int32_t next = -1;
        for (uint32_t id = 0; st == HEARTH_OK && id < info.n_vocab; id++)
            if (logits[id] == 0.0f) next = (int32_t)id;
        if (st == HEARTH_OK) st = hearth_constraint_accept(copy, next, err);
        if (st == HEARTH_OK) st = hearth_constraint_mask(copy, logits, err);
        hearth_constraint_close(c);
        hearth_constraint_close(copy);
        c = copy = NULL;
    }
    free(logits);
    hearth_model_close(model);
    return st;
}

TEST(constraints_survive_failing_allocations)
{
    fault_survive("constraint", constrain_once, 60, 0, 0);
}
