/* Perplexities of the trained models against the table of tests/data/README.md: float64
 * for F32 files, llama.cpp for the quantised ones. The first windows of the stories; with
 * $HEARTH_LONG also all of them and the English text, which take many minutes. */
#include "support/models/perplexity.h"
#include "support/test.h"

static const perplexity_line storyteller[] = {
    {STORIES, 256, 60, 61759, 241, 7620, 7.2912, 1e-3},
    {STORIES, 512, 30, 61759, 120, 7650, 7.4767, 1e-3},
    {STORIES, 256, 0, 61759, 241, 30607, 7.3689, 1e-3},
    {STORIES, 512, 0, 61759, 120, 30600, 7.4592, 1e-3},
    {ENGLISH, 256, 0, 149111, 582, 73914, 479.2409, 1e-3},
    {ENGLISH, 512, 0, 149111, 291, 74205, 464.6563, 1e-3},
};

static const perplexity_line stories260K[] = {
    {STORIES, 256, 60, 107423, 419, 7620, 3.8722, 1e-3},
    {STORIES, 512, 30, 107423, 209, 7650, 4.0387, 1e-3},
    {STORIES, 256, 0, 107423, 419, 53213, 4.0353, 1e-3},
    {STORIES, 512, 0, 107423, 209, 53295, 4.0870, 1e-3},
    {ENGLISH, 256, 0, 218063, 851, 108077, 27.9195, 1e-3},
    {ENGLISH, 512, 0, 218063, 425, 108375, 27.3711, 1e-3},
};

static const perplexity_line babyllama[] = {
    {STORIES, 256, 60, 219674, 858, 7620, 1.9724, 1e-3},
    {STORIES, 256, 0, 219674, 858, 108966, 2.0335, 1e-3},
    {ENGLISH, 256, 0, 390793, 1526, 193802, 6.6271, 1e-3},
};

static const perplexity_line babyllama_q8_0[] = {
    {STORIES, 256, 60, 219674, 858, 7620, 1.9733, 0.003 * 1.9733},
    {STORIES, 256, 0, 219674, 858, 108966, 2.0341, 0.003 * 2.0341},
    {ENGLISH, 256, 0, 390793, 1526, 193802, 6.6287, 0.003 * 6.6287},
};

static const perplexity_line babyllama_q4_0[] = {
    {STORIES, 256, 60, 219674, 858, 7620, 2.0305, 0.003 * 2.0305},
    {STORIES, 256, 0, 219674, 858, 108966, 2.0985, 0.003 * 2.0985},
    {ENGLISH, 256, 0, 390793, 1526, 193802, 6.7527, 0.003 * 6.7527},
};

/* type F32: the model itself. The first n_short lines are about the first chunks of the stories. */
static void check(const char *model, hth_type type, const perplexity_line *lines, size_t n_short, size_t n_all)
{
    for (size_t i = 0; i < (test_is_long() ? n_all : n_short); i++)
        if (type == HTH_TYPE_F32) perplexity_check(model, &lines[i]);
        else perplexity_check_quantised(type, &lines[i]);
}

TEST(storyteller_has_the_perplexities_of_the_table) { check(STORYTELLER, HTH_TYPE_F32, storyteller, 2, 6); }
TEST(stories260K_has_the_perplexities_of_the_table) { check(STORIES260K, HTH_TYPE_F32, stories260K, 2, 6); }
TEST(babyllama_has_the_perplexities_of_the_table) { check(BABYLLAMA, HTH_TYPE_F32, babyllama, 1, 3); }
TEST(babyllama_in_q8_0_is_as_good_as_the_peer) { check(BABYLLAMA, HTH_TYPE_Q8_0, babyllama_q8_0, 1, 3); }
TEST(babyllama_in_q4_0_is_as_good_as_the_peer) { check(BABYLLAMA, HTH_TYPE_Q4_0, babyllama_q4_0, 1, 3); }
