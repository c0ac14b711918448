/* The messages of a conversation, and files of them: JSON lines, one object
 * {"role": "user", "content": "..."} for each. */
#ifndef HEARTH_APPS_COMMON_TRANSCRIPT_H
#define HEARTH_APPS_COMMON_TRANSCRIPT_H

#include <hearth/hearth.h>

/* Zero-initialised is empty. */
typedef struct transcript {
    hearth_message *message; /* role and content belong to it */
    size_t n, capacity;
} transcript;

void transcript_free(transcript *t);
/* False after a message: out of memory. */
bool transcript_add(transcript *t, const char *role, const char *content, size_t n);
/* Puts a message in front of the others. */
bool transcript_add_first(transcript *t, const char *role, const char *content, size_t n);
/* Drops message i; those behind move up. */
void transcript_drop(transcript *t, size_t i);
/* A message that was taken off the end. */
void transcript_free_message(hearth_message *m);

/* The file is there when it is complete; false after a message. Bytes that are not UTF-8 become U+FFFD. */
bool transcript_save(const transcript *t, const char *path);
/* Replaces what *t has; when the file is not good, a message, and *t stays. */
bool transcript_load(transcript *t, const char *path);

#endif
