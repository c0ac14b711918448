/* The perplexity of a trained model against the table of models/README.md; the rest
 * of the table is in test_perplexity_long.c. */
#include "support/perplexity.h"
#include "support/test.h"

TEST(stories260K_on_stories_by_512)
{
    perplexity_check(STORIES260K, &(perplexity_line){STORIES, 512, 107423, 209, 53295, 4.0870, 1e-3});
}

TEST_MAIN
