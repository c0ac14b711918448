/* The fuzz target of the option parser over seeded command lines, and over the ones that
 * are easily got wrong: it aborts on a fault. */
#include "fuzz_options.c"

#include "support/models/corpus.h"

TEST(seeds_of_the_corpus_pass_the_target) { CHECK(corpus_replay("options", LLVMFuzzerTestOneInput) >= 10); }

TEST(seeded_command_lines_pass_the_target)
{
    static const char *const words[] = {
        "a", "b", "--flag", "-f", "--count", "--count=", "--count=7", "-c", "-c7", "7", "4097", "0", "-1",
        "--offset", "--offset=-5", "-o", "-6", "--share", "0.5", "1e999", "nan", "0x10", "--share=1", "--text",
        "--text=", "-t", "--", "-", "--kind", "f32", "q9", "-kf16", "--list", "1,2,3", "1,", ",", "101",
        "--list=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "--file", "--fil", "--f", "--help", "-h", "", "=", "--=",
        "-ffff", "18446744073709551616", "--large", "4294967295", "4294967296", "\xff\xfe", "-\xff", "--count=7 ",
    };
    enum { N_WORD = sizeof words / sizeof *words };
    test_random r = {79};
    for (int i = 0; i < 20000; i++) {
        char line[1000];
        size_t n = 0;
        for (uint32_t k = test_random_below(&r, 8); k > 0; k--) {
            const char *word = words[test_random_below(&r, N_WORD)];
            n += (size_t)snprintf(line + n, sizeof line - n, "%s\n", word);
        }
        if (n > 0 && test_random_below(&r, 4) == 0)
            line[test_random_below(&r, (uint32_t)n)] = (char)test_random_next(&r);
        CHECK_INT(LLVMFuzzerTestOneInput((const uint8_t *)line, n), 0);
    }
}

/* More options than a program needs. */
TEST(too_many_arguments_are_refused)
{
    char line[3000];
    memset(line, 0, sizeof line);
    for (size_t i = 0; i + 3 < sizeof line; i += 3) memcpy(line + i, "-f\n", 3);
    CHECK_INT(LLVMFuzzerTestOneInput((const uint8_t *)line, sizeof line), 0);
}
