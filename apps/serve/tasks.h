/* Work on the engine thread that the scheduler does not do, in parts between its steps: so others wait for a part at
 * most. */
#ifndef HEARTH_APPS_SERVE_TASKS_H
#define HEARTH_APPS_SERVE_TASKS_H

#include "serve/exchange.h"

typedef struct task task;
struct task {
    task *next; /* in the list of the model */
    call *call;
    /* Does a part. false: it has ended the call, and freed itself. A cancelled call is ended by call_break. */
    bool (*go_on)(task *t);
};

/* Tasks that go on in turns: each may need the cache of a whole context. Others wait until one has ended. */
enum { TASKS_AT_ONCE = 4 };

/* Behind all others. */
void tasks_add(task **list, task *t);
size_t tasks_count(const task *list);
/* A part of each that is not waiting. Whether some are left. */
bool tasks_go_on(task **list);
/* When the server stops: all calls are cancelled. */
void tasks_end(task **list);

#endif
