/* Goes over the list of tasks. */
#include "serve/tasks.h"

void tasks_add(task **list, task *t)
{
    while (*list) list = &(*list)->next;
    t->next = NULL;
    *list = t;
}

size_t tasks_count(const task *list)
{
    size_t n = 0;
    for (; list; list = list->next) n++;
    return n;
}

bool tasks_go_on(task **list)
{
    size_t n = 0;
    for (task **at = list; *at;) {
        task *t = *at, *next = t->next;
        bool waits = n >= TASKS_AT_ONCE && !call_is_cancelled(t->call);
        if (waits || t->go_on(t)) at = &t->next, n++;
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
