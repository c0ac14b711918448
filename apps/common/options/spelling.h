/* Other spellings of options, and suggestions for misspelled or foreign words: nearest names, and options of
 * llama.cpp that do not exist or are not needed. */
#ifndef HEARTH_APPS_COMMON_SPELLING_H
#define HEARTH_APPS_COMMON_SPELLING_H

#include <stdbool.h>
#include <stddef.h>

/* Iterates over a list of words separated by spaces: W, of N bytes. The body must not break. */
#define FOR_EACH_WORD(LIST, W, N)                                                                            \
    for (const char *W = (LIST); *W; W += strspn(W, " "))                                                    \
        for (size_t N = strcspn(W, " "), once_ = 1; once_; once_ = 0, W += N)

/* Whether the list contains the word of n bytes. */
bool lists_word(const char *list, const char *word, size_t n);

/* Other spellings of an option with their dashes, separated by spaces: "--temp"; "": none. name: without
 * dashes. */
const char *other_spellings(const char *name);

enum { MAX_WORD = 40 };

/* The offered name that is nearest to a word: at most a third of the word's letters are wrong, missing, added
 * or swapped with a neighbour. Leading dashes are ignored. */
typedef struct nearest {
    const char *word;
    char name[MAX_WORD + 1]; /* "": none is near enough */
    size_t distance;
} nearest;

nearest nearest_to(const char *word);
void nearest_offer(nearest *n, const char *name);

/* An option of llama.cpp, a program like it, or Ollama, that a command does not have. */
typedef struct foreign_option {
    const char *commands; /* names of the commands that the row applies to, separated by spaces; "": all */
    const char *words;    /* its spellings with their dashes, separated by spaces */
    /* COMMAND: it means another command, which is the answer. FLAG and VALUE are taken, as they change neither a text nor
     * who may do what: they stand alone, or before a value. UNDONE: as VALUE, but what it asks for
     * is not done, and another option does it. */
    enum { FOREIGN_REFUSED, FOREIGN_COMMAND, FOREIGN_FLAG, FOREIGN_VALUE, FOREIGN_UNDONE } kind;
    const char *values; /* separated by '|': of a flag, those that may follow it; else all for which that is so. NULL: none, any */
    const char *answer; /* why, or what to do instead */
} foreign_option;

/* word: the option with its dashes, n bytes. NULL: unknown. */
const foreign_option *find_foreign_option(const char *command, const char *word, size_t n);

#endif
