/* The sandbox leaves the server so few rights, once its options are read and its sockets are open, that a fault in what
 * reads models, requests and templates opens no other file, no connection and no program. Two parts of the kernel keep it:
 * Landlock the files, a seccomp filter the system calls. Neither can be undone, and threads that are started later
 * inherit both. docs/serving.md says what is allowed; --no-sandbox leaves it out. */
#ifndef HEARTH_APPS_SERVE_SANDBOX_H
#define HEARTH_APPS_SERVE_SANDBOX_H

#include <stdint.h>

typedef struct sandbox {
    int ruleset;     /* Landlock ruleset; -1: the kernel has no Landlock */
    uint64_t rights; /* Landlock's rights to files that this kernel knows */
} sandbox;

/* Begins with what every server needs of the system: libraries, drivers and their devices, /proc and /sys. */
void sandbox_open(sandbox *s);

/* Each allows a path and what lies below it. A path that is NULL or not there is left out. */
void sandbox_allow_read(const sandbox *s, const char *path);
void sandbox_allow_write(const sandbox *s, const char *path);
/* The server's own cache, where drivers keep theirs from now on too: other programs trust what lies in their usual one. */
void sandbox_allow_cache(const sandbox *s, const char *folder);
/* Files may be removed from the folder that a file lies in. */
void sandbox_allow_removal(const sandbox *s, const char *path);
/* Allows the folder of a model, and that of the file that it is a link to: a model has several files, and is opened
 * again when its turn comes. Of a folder that holds the user's home only the files *.gguf, and this one. */
void sandbox_allow_model(const sandbox *s, const char *path);

/* Applies both to the process, whose only thread calls it: Landlock is by thread. NULL: all of it holds; else what does
 * not, in words. */
const char *sandbox_enter(sandbox *s);
/* After the first model was opened: no further ring of io_uring, whose operations no filter sees. A store that is opened
 * later reads by threads. For all threads; again: nothing. */
void sandbox_seal(void);

#endif
