/* Work on the engine thread that the scheduler does not do, in parts between its steps: so others wait for a part at
 * most. */
#ifndef HEARTH_APPS_SERVE_TASKS_H
#define HEARTH_APPS_SERVE_TASKS_H

#include "serve/exchange.h"

typedef struct task task;
struct task {
    task *next; /* of the model's */
    call *call;
    /* Does a part. false: it has ended the call, and freed itself. A cancelled call is ended by call_break. */
    bool (*go_on)(task *t);
};

/* A part of each. Whether some are left. */
bool tasks_go_on(task **list);
/* When the server stops: all calls are cancelled. */
void tasks_end(task **list);

#endif
