/* The fuzz target of chat templates over its corpus and over seeded mixtures of what
 * templates are made of: it aborts on a fault. */
#include "fuzz_template.c"

#include "support/corpus.h"

TEST(seeds_of_the_corpus_pass_the_target) { CHECK(corpus_replay("template", LLVMFuzzerTestOneInput) >= 10); }

TEST(seeded_mixtures_pass_the_target)
{
    static const char *const words[] = {"{{ ",
                                        " }}",
                                        "{% ",
                                        " %}",
                                        "{%- ",
                                        " -%}",
                                        "for m in messages",
                                        "endfor",
                                        "if ",
                                        "elif ",
                                        "else",
                                        "endif",
                                        "set a = ",
                                        "endset",
                                        "macro f(x)",
                                        "endmacro",
                                        "m.role",
                                        "m.content",
                                        "messages",
                                        "[0]",
                                        "['content']",
                                        "a",
                                        "f(",
                                        ")",
                                        "(",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "'x'",
                                        "\"",
                                        "1",
                                        "2.5",
                                        "+",
                                        "~",
                                        "*",
                                        "-",
                                        "//",
                                        "%",
                                        "|trim",
                                        "|upper",
                                        "|tojson",
                                        "|length",
                                        "|replace('a', 'bb')",
                                        "|join(',')",
                                        ".split('e')",
                                        ".strip()",
                                        " is defined",
                                        " == ",
                                        " and ",
                                        " not ",
                                        " in ",
                                        "range(3)",
                                        "loop.index",
                                        "namespace(a=1)",
                                        ",",
                                        ":",
                                        "\n",
                                        "text",
                                        "# ",
                                        "{# ",
                                        " #}",
                                        "\\u00fe",
                                        "raise_exception('e')"};
    enum { N_WORD = sizeof words / sizeof *words };
    test_random r = {80};
    const int n_round = getenv("HEARTH_LONG") ? 500000 : 20000;
    for (int i = 0; i < n_round; i++) {
        char line[1500];
        size_t n = 1;
        line[0] = (char)test_random_next(&r);
        for (uint32_t k = test_random_below(&r, 24); k > 0; k--) {
            const char *word = words[test_random_below(&r, N_WORD)];
            memcpy(line + n, word, strlen(word));
            n += strlen(word);
        }
        memcpy(line + n, "\0hello there\0<s> &", 18);
        CHECK_INT(LLVMFuzzerTestOneInput((const uint8_t *)line, n + 18), 0);
    }
}

TEST_MAIN
