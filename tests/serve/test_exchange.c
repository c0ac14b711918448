/* The two queues between network and engine thread: order, limits, cancelling, pausing, and both threads at once. */
#include "base/clock.h"
#include "base/thread.h"
#include "serve/exchange.h"
#include "support/test.h"

#include <sched.h>

static _Atomic unsigned n_wake;
static void wake(void *user) { (void)user, n_wake++; }

static void run(void *user, call *c) { (void)user, (void)c; }

static call *make(exchange *x, const char *body)
{
    char *copy = strdup(body);
    return call_make(x, run, NULL, "/path", copy, strlen(copy));
}

static void free_event(event *e)
{
    call *c = e->call;
    bool is_last = e == &c->last;
    free(e->bytes);
    if (is_last) call_free(c);
    else free(e);
}

static void free_events(event *e)
{
    for (event *next; e; e = next) {
        next = e->next;
        free_event(e);
    }
}

TEST(calls_come_in_order_and_only_as_many_as_may_wait)
{
    exchange *x = exchange_open(2, wake, NULL);
    call *a = make(x, "a"), *b = make(x, "b"), *c = make(x, "c");
    size_t n_waiting, n_running;
    CHECK(exchange_submit(x, a) && exchange_submit(x, b) && !exchange_submit(x, c));
    CHECK(exchange_take(x) == a && !exchange_is_closed(x));
    CHECK(exchange_submit(x, c));
    exchange_count(x, &n_waiting, &n_running);
    CHECK(n_waiting == 2 && n_running == 1);
    CHECK(exchange_take(x) == b && exchange_take(x) == c && exchange_take(x) == NULL);
    call_end(b);
    call_reply(a, 200, strdup("x"), 1);
    call_break(c);
    event *e = exchange_events(x);
    CHECK(e->kind == EVENT_END && e->call == b && e->next->status == 200 && e->next->n == 1 &&
          e->next->next->kind == EVENT_BREAK);
    free_events(e);
    exchange_count(x, &n_waiting, &n_running);
    CHECK(n_waiting == 0 && n_running == 0 && exchange_events(x) == NULL);
    exchange_close(x);
    call *d = make(x, "d");
    CHECK(exchange_is_closed(x) && !exchange_submit(x, d));
    call_free(d);
    exchange_free(x);
}

TEST(a_cancelled_call_is_not_taken_but_ends)
{
    exchange *x = exchange_open(9, wake, NULL);
    call *a = make(x, "a"), *b = make(x, "b");
    CHECK(exchange_submit(x, a) && exchange_submit(x, b));
    uint64_t seen = exchange_changes(x);
    call_cancel(a);
    CHECK(exchange_changes(x) != seen);
    CHECK(exchange_take(x) == b);
    event *e = exchange_events(x);
    CHECK(e && e->call == a && e->kind == EVENT_BREAK && !e->next);
    free_events(e);
    call_cancel(b);
    CHECK(call_is_cancelled(b));
    call_break(b);
    free_events(exchange_events(x));
    exchange_free(x);
}

TEST(a_call_is_paused_while_much_is_unsent)
{
    static char bytes[CALL_PAUSE_BYTES / 4];
    exchange *x = exchange_open(9, wake, NULL);
    call *a = make(x, "a");
    CHECK(exchange_submit(x, a) && exchange_take(x) == a && call_begin_stream(a));
    for (int i = 0; i < 4; i++) {
        CHECK(!call_is_paused(a));
        CHECK(call_send(a, bytes, sizeof bytes));
    }
    CHECK(call_is_paused(a));
    uint64_t seen = exchange_changes(x);
    call_sent(a, sizeof bytes);
    CHECK(!call_is_paused(a) &&
          exchange_changes(x) == seen); /* it goes on, but nothing waits for so little */
    call_sent(a, sizeof bytes);
    CHECK_INT(exchange_changes(x), seen);
    call_sent(a, 1);
    CHECK_INT(exchange_changes(x), seen + 1);
    call_end(a);
    exchange_free(x); /* with all events */
}

TEST(what_is_left_in_the_queues_is_freed)
{
    exchange *x = exchange_open(9, wake, NULL);
    call *a = make(x, "a"), *b = make(x, "b");
    CHECK(exchange_submit(x, a) && exchange_submit(x, b) && exchange_take(x) == a);
    CHECK(call_begin_stream(a) && call_send(a, "part", 4));
    call_end(a);
    exchange_free(x);
}

TEST(waiting_ends_by_a_change_or_by_its_time)
{
    exchange *x = exchange_open(9, wake, NULL);
    uint64_t seen = exchange_changes(x), begin = hth_clock_ns();
    exchange_wait(x, seen, begin + 20000000);
    CHECK(hth_clock_ns() - begin >= 20000000);
    exchange_close(x);
    exchange_wait(x, seen, UINT64_MAX);
    exchange_free(x);
}

/* ---- both threads -------------------------------------------------------------------------------------- */

enum { N_CALL = 2000, N_PART = 20 };

static void *serve(void *arg)
{
    exchange *x = arg;
    uint64_t n = 0;
    for (;;) {
        uint64_t seen = exchange_changes(x);
        for (call *c = exchange_take(x); c; c = exchange_take(x)) {
            bool ok = call_begin_stream(c);
            for (int i = 0; ok && i < N_PART && !call_is_cancelled(c); i++)
                ok = call_send(c, c->body, c->n_body);
            if (n++ % 2) call_end(c);
            else call_reply(c, 500, NULL, 0);
        }
        if (exchange_is_closed(x)) return NULL;
        exchange_wait(x, seen, UINT64_MAX);
    }
}

/* Handles the events so far; returns how many calls ended. */
static size_t handle_events(exchange *x, size_t *n_part)
{
    size_t n_end = 0;
    for (event *e = exchange_events(x), *next; e; e = next) {
        next = e->next;
        if (e->kind == EVENT_PART) {
            *n_part += 1;
            CHECK(e->n == 4 && memcmp(e->bytes, "body", 4) == 0);
            call_sent(e->call, e->n);
        }
        n_end += e == &e->call->last;
        free_event(e);
    }
    return n_end;
}

TEST(two_threads_lose_nothing)
{
    exchange *x = exchange_open(64, wake, NULL);
    pthread_t thread;
    test_random r = {31};
    size_t n_made = 0, n_end = 0, n_part = 0, n_cancelled = 0;
    if (!CHECK(hth_thread_start(&thread, serve, x, "serve"))) return;
    while (n_end < N_CALL) {
        if (n_made < N_CALL) {
            call *c = make(x, "body");
            if (!exchange_submit(x, c)) call_free(c);
            else if (n_made++, test_random_below(&r, 10) == 0)
                call_cancel(c), n_cancelled++; /* not over before its event */
        } else {
            sched_yield();
        }
        n_end += handle_events(x, &n_part);
    }
    exchange_close(x);
    pthread_join(thread, NULL);
    CHECK_INT(n_end, N_CALL);
    CHECK(n_part <= (size_t)N_CALL * N_PART && n_part >= (N_CALL - n_cancelled) * N_PART);
    CHECK(n_wake > 0 && exchange_events(x) == NULL);
    exchange_free(x);
}
