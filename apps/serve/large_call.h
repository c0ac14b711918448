/* Calls whose request or answer is large run on the thread of a worker, so that the engine thread goes on with its steps:
 * the tokens of 16 MB take seconds. What needs the scheduler, or else belongs to the engine thread, waits until that thread
 * has the call back. */
#ifndef HEARTH_APPS_SERVE_LARGE_CALL_H
#define HEARTH_APPS_SERVE_LARGE_CALL_H

#include "serve/engine.h"

enum { CALL_LARGE = 16 << 10 }; /* bytes: less is read in some milliseconds, and not worth another thread */

/* On the engine thread: calls run(user, c) on the worker's thread, behind those that are there. It ends the call or gives
 * it back by call_go_on; the model is busy until it has returned. False: memory ran out, and nothing has happened. */
bool large_call_begin(served_model *m, call *c, call_fn *run, void *user);
/* On any thread that has the call: calls fn(object) on the engine thread, at once if this is it, else when `run` has
 * returned. Once for a call, before the call is ended; fn may end it. */
void call_go_on(call *c, void (*fn)(void *object), void *object);
/* On the engine thread: goes on with those that were given back. */
void large_calls_go_on(engine *e);

#endif
