/* Other spellings of options, and what a misspelt or foreign word was meant to be: nearest names, and the options of
 * llama.cpp that are not here, or not needed. */
#ifndef HEARTH_APPS_COMMON_SPELLING_H
#define HEARTH_APPS_COMMON_SPELLING_H

#include <stdbool.h>
#include <stddef.h>

/* For each word of a list separated by spaces: W, of N bytes. The body must not break. */
#define FOR_EACH_WORD(LIST, W, N)                                                                            \
    for (const char *W = (LIST); *W; W += strspn(W, " "))                                                    \
        for (size_t N = strcspn(W, " "), once_ = 1; once_; once_ = 0, W += N)

/* Whether a list has this word, of n bytes. */
bool lists_word(const char *list, const char *word, size_t n);

/* Other spellings of an option with their dashes, separated by spaces: "--temp"; "" where it has none. name:
 * without dashes. */
const char *other_spellings(const char *name);

enum { MAX_WORD = 40 };

/* The nearest of the names that are offered to a word: at most a third of the word's letters are wrong, missing,
 * added or exchanged with a neighbour. Leading dashes do not count. */
typedef struct nearest {
    const char *word;
    char name[MAX_WORD + 1]; /* "": none is near enough */
    size_t distance;
} nearest;

nearest nearest_to(const char *word);
void nearest_offer(nearest *n, const char *name);

/* What to do in place of an option of llama.cpp that a command does not have: a sentence; NULL: it is unknown. word is
 * the option with its dashes, n bytes. */
const char *foreign_option(const char *command, const char *word, size_t n);

#endif
