/* The messages of a conversation, and files of them: JSON lines, one object {"role": "user", "content": "..."}
 * each. */
#ifndef HEARTH_APPS_COMMON_TRANSCRIPT_H
#define HEARTH_APPS_COMMON_TRANSCRIPT_H

#include <hearth/hearth.h>

/* Zero-initialised is empty. */
typedef struct transcript {
    hearth_message *message; /* owns role and content */
    size_t n, capacity;
} transcript;

void transcript_free(transcript *t);
/* False: out of memory, and an error was reported. */
bool transcript_add(transcript *t, const char *role, const char *content, size_t n);
/* Inserts a message before the others. */
bool transcript_add_first(transcript *t, const char *role, const char *content, size_t n);
/* Removes message i. */
void transcript_drop(transcript *t, size_t i);
/* Frees a message that was removed from the end. */
void transcript_free_message(hearth_message *m);

/* The file appears when it is complete. False: an error was reported. Bytes that are not UTF-8 become U+FFFD. */
bool transcript_save(const transcript *t, const char *path);
/* Replaces *t. If the file is invalid: reports an error and keeps *t. */
bool transcript_load(transcript *t, const char *path);

#endif
