/* Perplexities of the trained models against the table of tests/data/README.md: float64
 * for F32 files, llama.cpp for the quantised ones. The English text takes many minutes
 * and is measured with $HEARTH_LONG only. */
#include "support/perplexity.h"
#include "support/test.h"

#include <stdlib.h>

/* Lines of the table from n_story on are about the English text. */
static size_t n_line(size_t n_story, size_t n_all) { return getenv("HEARTH_LONG") ? n_all : n_story; }

static const perplexity_line storyteller[] = {
    {STORIES, 256, 61759, 241, 30607, 7.3689, 1e-3},
    {STORIES, 512, 61759, 120, 30600, 7.4592, 1e-3},
    {ENGLISH, 256, 149111, 582, 73914, 479.2409, 1e-3},
    {ENGLISH, 512, 149111, 291, 74205, 464.6563, 1e-3},
};

static const perplexity_line stories260K[] = {
    {STORIES, 256, 107423, 419, 53213, 4.0353, 1e-3},
    {STORIES, 512, 107423, 209, 53295, 4.0870, 1e-3},
    {ENGLISH, 256, 218063, 851, 108077, 27.9195, 1e-3},
    {ENGLISH, 512, 218063, 425, 108375, 27.3711, 1e-3},
};

static const perplexity_line babyllama[] = {
    {STORIES, 256, 219674, 858, 108966, 2.0335, 1e-3},
    {ENGLISH, 256, 390793, 1526, 193802, 6.6271, 1e-3},
};

static const perplexity_line babyllama_q8_0[] = {
    {STORIES, 256, 219674, 858, 108966, 2.0338, 0.003 * 2.0338},
    {ENGLISH, 256, 390793, 1526, 193802, 6.6287, 0.003 * 6.6287},
};

static const perplexity_line babyllama_q4_0[] = {
    {STORIES, 256, 219674, 858, 108966, 2.0981, 0.003 * 2.0981},
    {ENGLISH, 256, 390793, 1526, 193802, 6.7527, 0.003 * 6.7527},
};

TEST(storyteller_has_the_perplexities_of_the_table)
{
    for (size_t i = 0; i < n_line(2, 4); i++) perplexity_check(STORYTELLER, &storyteller[i]);
}

TEST(stories260K_has_the_perplexities_of_the_table)
{
    for (size_t i = 0; i < n_line(2, 4); i++) perplexity_check(STORIES260K, &stories260K[i]);
}

TEST(babyllama_has_the_perplexities_of_the_table)
{
    for (size_t i = 0; i < n_line(1, 2); i++) perplexity_check(BABYLLAMA, &babyllama[i]);
}

TEST(babyllama_in_q8_0_is_as_good_as_the_peer)
{
    for (size_t i = 0; i < n_line(1, 2); i++) perplexity_check_quantised(HTH_TYPE_Q8_0, &babyllama_q8_0[i]);
}

TEST(babyllama_in_q4_0_is_as_good_as_the_peer)
{
    for (size_t i = 0; i < n_line(1, 2); i++) perplexity_check_quantised(HTH_TYPE_Q4_0, &babyllama_q4_0[i]);
}

TEST_MAIN
