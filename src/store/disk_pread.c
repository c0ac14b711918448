/* A disk by threads that call pread: the reference, and what is used where io_uring is refused. Reads wait in a ring of
 * requests; results wait in another. A thread takes the oldest request. If the system created no thread, wait reads. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "store/disk.h"

#include <errno.h>
#include <unistd.h>

enum { MAX_THREAD = 32, N_QUEUE = 64 };

typedef struct pread_disk {
    hth_disk disk;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t has_request, has_result;
    hth_disk_read requests[N_QUEUE];
    hth_disk_result results[N_QUEUE];
    uint32_t first_request, n_request, first_result, n_result;
    uint32_t n_running; /* started, and their results not taken: at most N_QUEUE */
    bool woken, closing;
    pthread_t threads[MAX_THREAD];
    uint32_t n_thread;
} pread_disk;

static hth_disk_result read_now(const hth_disk_read *read)
{
    ssize_t n = pread(read->fd, read->to, read->size, (off_t)read->at);
    return (hth_disk_result){read->id, n < 0 ? -errno : n};
}

/* With d->lock held. */
static hth_disk_read take_request(pread_disk *d)
{
    hth_disk_read read = d->requests[d->first_request];
    d->first_request = (d->first_request + 1) % N_QUEUE;
    d->n_request--;
    return read;
}

static void *run_thread(void *disk)
{
    pread_disk *d = disk;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (d->n_request == 0 && !d->closing) pthread_cond_wait(&d->has_request, &d->lock);
        if (d->n_request == 0) break;
        hth_disk_read read = take_request(d);
        pthread_mutex_unlock(&d->lock);
        hth_disk_result result = read_now(&read);
        pthread_mutex_lock(&d->lock);
        d->results[(d->first_result + d->n_result++) % N_QUEUE] = result;
        pthread_cond_signal(&d->has_result);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static bool start_pread(hth_disk *disk, const hth_disk_read *read)
{
    pread_disk *d = (pread_disk *)disk;
    pthread_mutex_lock(&d->lock);
    bool ok = d->n_running < N_QUEUE;
    if (ok) {
        d->requests[(d->first_request + d->n_request++) % N_QUEUE] = *read;
        d->n_running++;
        pthread_cond_signal(&d->has_request);
    }
    pthread_mutex_unlock(&d->lock);
    return ok;
}

static uint32_t wait_pread(hth_disk *disk, uint64_t timeout_ns, hth_disk_result *results, uint32_t max)
{
    pread_disk *d = (pread_disk *)disk;
    uint64_t start_ns = hth_clock_ns();
    uint64_t end_ns = timeout_ns < UINT64_MAX - start_ns ? start_ns + timeout_ns : UINT64_MAX;
    bool in_time = true;
    uint32_t n = 0;
    pthread_mutex_lock(&d->lock);
    while (d->n_result == 0 && !d->woken && in_time) {
        if (d->n_thread == 0 && d->n_request > 0) {
            hth_disk_read read = take_request(d);
            d->results[(d->first_result + d->n_result++) % N_QUEUE] = read_now(&read);
        } else {
            in_time = hth_cond_wait_until(&d->has_result, &d->lock, end_ns);
        }
    }
    d->woken = false;
    for (; n < max && d->n_result > 0; n++, d->n_result--, d->n_running--) {
        results[n] = d->results[d->first_result];
        d->first_result = (d->first_result + 1) % N_QUEUE;
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}

static void wake(hth_disk *disk)
{
    pread_disk *d = (pread_disk *)disk;
    pthread_mutex_lock(&d->lock);
    d->woken = true;
    pthread_cond_signal(&d->has_result);
    pthread_mutex_unlock(&d->lock);
}

static uint64_t now(hth_disk *disk)
{
    (void)disk;
    return hth_clock_ns();
}

static void close_pread(hth_disk *disk)
{
    pread_disk *d = (pread_disk *)disk;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->has_request);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->n_thread; i++) pthread_join(d->threads[i], NULL);
    pthread_cond_destroy(&d->has_result);
    pthread_cond_destroy(&d->has_request);
    pthread_mutex_destroy(&d->lock);
    hth_free(d);
}

hearth_status hth_disk_open_pread(uint32_t n_thread, hth_disk **out, hearth_error *err)
{
    static const hth_disk_ops ops = {start_pread, wait_pread, wake, now, close_pread};
    *out = NULL;
    pread_disk *d = hth_alloc(1, sizeof *d);
    if (!d) return hth_fail_memory(err, sizeof *d, "threads for reads");
    d->disk = (hth_disk){&ops, "pread", NULL};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->has_request, NULL);
    hth_cond_init(&d->has_result);
    if (n_thread > MAX_THREAD) n_thread = MAX_THREAD;
    while (d->n_thread < n_thread && hth_thread_start(&d->threads[d->n_thread], run_thread, d, "hearth-pread")) d->n_thread++;
    if (d->n_thread < n_thread)
        hth_log(HEARTH_LOG_WARN, "the system created %u of %u threads that read the disk", d->n_thread, n_thread);
    *out = &d->disk;
    return HEARTH_OK;
}
