/* Goes over the list of tasks. */
#include "serve/tasks.h"

bool tasks_go_on(task **list)
{
    for (task **at = list; *at;) {
        task *t = *at, *next = t->next;
        if (t->go_on(t)) at = &t->next;
        else *at = next;
    }
    return *list;
}

void tasks_end(task **list)
{
    for (const task *t = *list; t; t = t->next) call_cancel(t->call);
    while (tasks_go_on(list)) {
    }
}
