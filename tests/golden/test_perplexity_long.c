/* Perplexities of the trained models against the table of models/README.md: float64
 * for F32 files, llama.cpp for the quantised ones. Takes many minutes. */
#include "support/perplexity.h"
#include "support/test.h"

TEST(storyteller_on_stories_by_512)
{
    perplexity_check(STORYTELLER, &(perplexity_line){STORIES, 512, 61759, 120, 30600, 7.4605, 1e-3});
}

TEST(storyteller_on_stories_by_256)
{
    perplexity_check(STORYTELLER, &(perplexity_line){STORIES, 256, 61759, 241, 30607, 7.3696, 1e-3});
}

TEST(stories260K_on_stories_by_256)
{
    perplexity_check(STORIES260K, &(perplexity_line){STORIES, 256, 107423, 419, 53213, 4.0353, 1e-3});
}

TEST(babyllama_on_stories_by_256)
{
    perplexity_check(BABYLLAMA, &(perplexity_line){STORIES, 256, 219674, 858, 108966, 2.0335, 1e-3});
}

TEST(babyllama_in_q8_0_on_stories)
{
    perplexity_check_quantised(HTH_TYPE_Q8_0, &(perplexity_line){STORIES, 256, 219674, 858, 108966, 2.0338, 0.003 * 2.0338});
}

TEST(babyllama_in_q4_0_on_stories)
{
    perplexity_check_quantised(HTH_TYPE_Q4_0, &(perplexity_line){STORIES, 256, 219674, 858, 108966, 2.0981, 0.003 * 2.0981});
}

TEST(storyteller_on_english)
{
    perplexity_check(STORYTELLER, &(perplexity_line){ENGLISH, 256, 149111, 582, 73914, 480.3566, 1e-3});
    perplexity_check(STORYTELLER, &(perplexity_line){ENGLISH, 512, 149111, 291, 74205, 465.4557, 1e-3});
}

TEST(stories260K_on_english)
{
    perplexity_check(STORIES260K, &(perplexity_line){ENGLISH, 256, 218063, 851, 108077, 27.9195, 1e-3});
    perplexity_check(STORIES260K, &(perplexity_line){ENGLISH, 512, 218063, 425, 108375, 27.3711, 1e-3});
}

TEST(babyllama_on_english)
{
    const perplexity_line f32 = {ENGLISH, 256, 390793, 1526, 193802, 6.6271, 1e-3};
    const perplexity_line q8_0 = {ENGLISH, 256, 390793, 1526, 193802, 6.6287, 0.003 * 6.6287};
    const perplexity_line q4_0 = {ENGLISH, 256, 390793, 1526, 193802, 6.7527, 0.003 * 6.7527};
    perplexity_check(BABYLLAMA, &f32);
    perplexity_check_quantised(HTH_TYPE_Q8_0, &q8_0);
    perplexity_check_quantised(HTH_TYPE_Q4_0, &q4_0);
}

TEST_MAIN
