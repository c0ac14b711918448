/* The worker beside the engine thread: order, ends, jobs that are taken back before, during and after their turn. */
#include "serve/worker.h"
#include "support/test.h"

#include <unistd.h>

typedef struct step {
    worker_job job;
    _Atomic bool *go; /* NULL: it does not wait */
    _Atomic bool has_begun;
    unsigned turn; /* from 1; 0: it did not run */
} step;

static _Atomic unsigned n_turn, n_wake;
static void wake(void *user) { (void)user, n_wake++; }

static void run(worker_job *j)
{
    step *s = (step *)j;
    s->has_begun = true;
    while (s->go && !*s->go) usleep(1000);
    s->turn = ++n_turn;
}

static void wait_for(worker *w, const step *s)
{
    while (!worker_has_ended(w, &s->job)) usleep(1000);
}

TEST(jobs_run_in_order_and_wake_their_owner)
{
    step steps[4] = {{.job.run = run}, {.job.run = run}, {.job.run = run}, {.job.run = run}};
    n_turn = n_wake = 0;
    worker *w = worker_open("worker", wake, NULL);
    for (int i = 0; i < 4; i++) worker_add(w, &steps[i].job);
    for (int i = 0; i < 4; i++) wait_for(w, &steps[i]);
    for (unsigned i = 0; i < 4; i++) CHECK_INT(steps[i].turn, i + 1);
    worker_add(w, &steps[2].job); /* again */
    wait_for(w, &steps[2]);
    CHECK_INT(steps[2].turn, 5);
    worker_close(w);
    CHECK_INT(n_wake, 5);
    worker_close(NULL);
}

TEST(a_job_that_waits_is_taken_back_and_one_that_runs_is_not)
{
    _Atomic bool go = false;
    step first = {.job.run = run, .go = &go}, middle = {.job.run = run}, last = {.job.run = run},
         never = {.job.run = run};
    n_turn = n_wake = 0;
    worker *w = worker_open("worker", wake, NULL);
    CHECK(worker_take_back(w, &never.job));
    worker_add(w, &first.job);
    worker_add(w, &middle.job);
    worker_add(w, &last.job);
    while (!first.has_begun) usleep(1000);
    CHECK(!worker_take_back(w, &first.job) && !worker_has_ended(w, &first.job));
    CHECK(worker_take_back(w, &last.job) && worker_take_back(w, &middle.job));
    worker_add(w, &last.job); /* the end of the queue is where it was */
    go = true;
    worker_settle(w, &first.job);
    CHECK_INT(first.turn, 1);
    CHECK(worker_has_ended(w, &first.job) && worker_take_back(w, &first.job));
    wait_for(w, &last);
    CHECK_INT(last.turn, 2);
    CHECK_INT(middle.turn, 0);
    worker_close(w);
}

TEST(a_job_that_runs_is_waited_for_at_the_end)
{
    for (int i = 0; i < 100; i++) {
        step a = {.job.run = run}, b = {.job.run = run};
        worker *w = worker_open("worker", wake, NULL);
        worker_add(w, &a.job);
        worker_add(w, &b.job);
        worker_settle(w, &b.job);
        worker_settle(w, &a.job);
        CHECK(b.turn == 0 || a.turn < b.turn);
        worker_close(w);
    }
}
