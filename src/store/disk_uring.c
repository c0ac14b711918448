/* A disk by io_uring: one ring, which is restricted to reads where the kernel can do that, and an eventfd by which other threads end a wait.
 * Buffers are not registered: with reads of 64 KiB and more that was not faster, and it counts against RLIMIT_MEMLOCK.
 * Compiled only where liburing is found. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/clock.h"
#include "base/format_errno.h"
#include "store/disk.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Reads that run at once, beside the poll of the eventfd. The completion queue is twice as long. */
enum { N_ENTRY = 64, MAX_READ = N_ENTRY - 2 };
/* Identifies the result of the eventfd; ids of reads are below. */
#define WAKE_ID (UINT64_MAX - 1)

typedef struct uring_disk {
    hth_disk disk;
    struct io_uring ring;
    int event_fd;
    bool enabled;   /* by the thread that uses it */
    bool listening; /* event_fd is polled */
    uint32_t n_running;
} uring_disk;

static bool start_uring(hth_disk *disk, const hth_disk_read *read)
{
    uring_disk *d = (uring_disk *)disk;
    if (d->n_running == MAX_READ) return false;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);
    if (!sqe) return false;
    io_uring_prep_read(sqe, read->fd, read->to, read->size, read->at);
    io_uring_sqe_set_data64(sqe, read->id);
    d->n_running++;
    return true;
}

static void listen_for_wake(uring_disk *d)
{
    struct io_uring_sqe *sqe = d->listening ? NULL : io_uring_get_sqe(&d->ring);
    if (!sqe) return;
    io_uring_prep_poll_add(sqe, d->event_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, WAKE_ID);
    d->listening = true;
}

/* Takes what is in the completion queue. */
static uint32_t take_results(uring_disk *d, hth_disk_result *results, uint32_t max, bool *woken)
{
    struct io_uring_cqe *cqe;
    uint32_t n = 0;
    while (n < max && io_uring_peek_cqe(&d->ring, &cqe) == 0) {
        uint64_t id = io_uring_cqe_get_data64(cqe);
        if (id == WAKE_ID) {
            uint64_t n_wake;
            d->listening = false;
            *woken = read(d->event_fd, &n_wake, sizeof n_wake) == sizeof n_wake || *woken;
        } else if (id != LIBURING_UDATA_TIMEOUT) { /* which old kernels need for a timeout */
            results[n++] = (hth_disk_result){id, cqe->res};
            d->n_running--;
        }
        io_uring_cqe_seen(&d->ring, cqe);
    }
    return n;
}

static uint32_t wait_uring(hth_disk *disk, uint64_t timeout_ns, hth_disk_result *results, uint32_t max)
{
    uring_disk *d = (uring_disk *)disk;
    struct __kernel_timespec time = {.tv_sec = (long long)(timeout_ns / 1000000000),
                                     .tv_nsec = (long long)(timeout_ns % 1000000000)};
    bool woken = false;
    if (!d->enabled) {
        /* io_uring_enable_rings, which the shared library of liburing 2.3 lacks. An error: the ring is enabled. */
        (void)syscall(SYS_io_uring_register, d->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
        d->enabled = true;
    }
    for (;;) {
        struct io_uring_cqe *cqe;
        listen_for_wake(d);
        int r = io_uring_submit_and_wait_timeout(&d->ring, &cqe, 1, timeout_ns == UINT64_MAX ? NULL : &time, NULL);
        uint32_t n = take_results(d, results, max, &woken);
        if (n > 0 || woken || r == -ETIME) return n;
        if (r >= 0 && timeout_ns != UINT64_MAX) return 0; /* a timeout of an old kernel is a result */
        if (r == -EINTR) continue;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* EBUSY, EAGAIN: the system is short of memory */
        if (timeout_ns != UINT64_MAX) return 0;
    }
}

static void wake(hth_disk *disk)
{
    uring_disk *d = (uring_disk *)disk;
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(d->event_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
}

static uint64_t now(hth_disk *disk)
{
    (void)disk;
    return hth_clock_ns();
}

static void close_uring(hth_disk *disk)
{
    uring_disk *d = (uring_disk *)disk;
    io_uring_queue_exit(&d->ring);
    close(d->event_fd);
    hth_free(d);
}

/* The ring takes reads, the poll of the eventfd and timeouts, and no other operation, which a filter of system calls
 * would not see: a fault in this process cannot open files or connections by it. Until the ring is enabled. */
static int restrict_ring(struct io_uring *ring)
{
    struct io_uring_restriction allowed[] = {
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_POLL_ADD},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_TIMEOUT}, /* which old kernels need to wait with one */
        {.opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_ENABLE_RINGS},
    };
    /* io_uring_register_restrictions, which the shared library of liburing 2.3 lacks */
    long r = syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, allowed,
                     sizeof allowed / sizeof *allowed);
    return r < 0 ? -errno : 0;
}

/* The best of the modes that the kernel has; the last one is of kernels without restrictions. With SINGLE_ISSUER the
 * thread that enables the ring owns it. */
static int open_ring(struct io_uring *ring)
{
    static const unsigned modes[] = {
        IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_R_DISABLED,
        0,
    };
    int r = -EINVAL;
    for (size_t i = 0; i < sizeof modes / sizeof *modes && r == -EINVAL; i++) {
        r = io_uring_queue_init(N_ENTRY, ring, modes[i]);
        if (r < 0 || !(modes[i] & IORING_SETUP_R_DISABLED) || (r = restrict_ring(ring)) == 0) continue;
        io_uring_queue_exit(ring);
    }
    return r;
}

/* Whether the system allows io_uring_enter, and the kernel has reads: by a ring of its own, since another thread may
 * own the first one. 0, or -errno. */
static int try_ring(void)
{
    struct io_uring ring;
    struct io_uring_cqe *cqe;
    int r = io_uring_queue_init(2, &ring, 0);
    if (r < 0) return r;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
    bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    if (probe) io_uring_free_probe(probe);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    if (sqe) io_uring_prep_nop(sqe);
    r = reads && sqe ? io_uring_submit(&ring) : -ENOSYS;
    if (r >= 0) r = io_uring_wait_cqe(&ring, &cqe);
    io_uring_queue_exit(&ring);
    return r < 0 ? r : 0;
}

static const char *remedy_for(int error)
{
    return error == EPERM ? "; sysctl kernel.io_uring_disabled, or a seccomp filter that refuses io_uring_setup" : "";
}

hearth_status hth_disk_open_uring(hth_disk **out, hearth_error *err)
{
    static const hth_disk_ops ops = {start_uring, wait_uring, wake, now, close_uring};
    *out = NULL;
    uring_disk *d = hth_alloc(1, sizeof *d);
    if (!d) return hth_fail_memory(err, sizeof *d, "a ring for reads");
    d->disk = (hth_disk){&ops, "io_uring", NULL};
    d->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = d->event_fd < 0 ? -errno : try_ring();
    if (r == 0) r = open_ring(&d->ring);
    if (r < 0) {
        if (d->event_fd >= 0) close(d->event_fd);
        hth_free(d);
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "io_uring is refused: %s%s",
                        hth_format_errno(-r).text, remedy_for(-r));
    }
    *out = &d->disk;
    return HEARTH_OK;
}

bool hth_disk_has_uring(void) { return true; }
