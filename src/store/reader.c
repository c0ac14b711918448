/* The thread that reads. It divides loads into pieces, keeps `depth` of them running, and decides what each result
 * means. Loads that are needed come before guesses, of which few bytes are read at once. */
#define _GNU_SOURCE
#include "store/reader.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/format_errno.h"
#include "base/log.h"
#include "base/thread.h"
#include "file/read_failure.h"
#include "store/direct_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE_SIZE = 1 << 20,
    MIN_DEPTH = 8,
    MAX_DEPTH = 32,
    WINDOW_PIECES = 64, /* between two changes of the depth */
    MAX_AGAIN = 1000,   /* EINTR, EAGAIN; then the piece is read by pread */
    MAX_RESULT = 16,
};
/* A read that takes longer is reported. */
#define LATE_NS 30000000000u

typedef struct reader_file {
    int fd, direct_fd;
    bool direct;    /* it is read by direct_fd */
    bool stays;     /* the page cache keeps what was read */
    uint32_t align; /* alignment of direct reads */
    uint64_t size;  /* bytes when it was opened */
    char *path;
} reader_file;

typedef enum piece_state { PIECE_FREE, PIECE_RUNNING, PIECE_DELAYED } piece_state;

typedef struct piece {
    hth_load *load;
    piece_state state;
    bool direct, reported;
    uint32_t i_file;
    uint64_t at, end; /* range of the read, rounded out to the alignment */
    uint64_t needed;  /* end of the bytes that the load wants */
    uint8_t *to;      /* destination of byte `at` */
    uint32_t n_again, n_failure;
    uint64_t start_ns, retry_at;
} piece;

typedef struct load_queue {
    hth_load *first, **last;
} load_queue;

struct hth_reader {
    hth_disk *disk;
    reader_file *files;
    uint32_t n_file;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* guards the members up to the next line */
    load_queue added;
    bool changes;          /* loads in the queues were prioritized or dropped */
    bool active;           /* without a thread: a caller reads */
    bool closing, cancels; /* cancels: once */
    hth_reader_stats stats;

    /* Used by the thread. */
    load_queue needed, guesses, dropped;
    piece pieces[MAX_DEPTH];
    uint32_t n_running, n_delayed;
    uint64_t running_size; /* bytes of the reads that run */
    uint32_t depth, best_depth;
    uint64_t busy_since; /* while reads run: the time up to which stats.busy_ns counts */
    struct {
        uint64_t start_ns, size;
        uint32_t n;
        bool full; /* `depth` pieces ran all the time */
    } window;
    double best_rate; /* bytes per ns */
};

/* ---- queues ---------------------------------------------------------------------------------- */

static void queue_init(load_queue *q) { q->first = NULL, q->last = &q->first; }

static void queue_append(load_queue *q, hth_load *loads)
{
    *q->last = loads;
    while (*q->last) q->last = &(*q->last)->next;
}

static void queue_pop(load_queue *q)
{
    q->first = q->first->next;
    if (!q->first) q->last = &q->first;
}

/* ---- memory of a load ------------------------------------------------------------------------- */

/* Extents lie one after another, each from a multiple of HTH_BUFFER_ALIGN on, with what precedes it in its unit of
 * alignment. */
static bool buffer_size_of(const hth_extent *e, size_t *size)
{
    uint64_t n = e->offset % HTH_BUFFER_ALIGN;
    if (!hth_add_u64(n, e->size, &n) || !hth_align_u64(n, HTH_BUFFER_ALIGN, &n) || n > SIZE_MAX) return false;
    *size = (size_t)n;
    return true;
}

bool hth_reader_buffer_size(const hth_extent *extents, uint32_t n, size_t *size)
{
    size_t each, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!buffer_size_of(&extents[i], &each) || !hth_add_size(sum, each, &sum)) return false;
    *size = sum;
    return true;
}

static void place_extents(hth_load *l)
{
    uint8_t *to = l->to;
    for (uint32_t i = 0; i < l->n_extent; i++) {
        size_t size = 0;
        bool ok = buffer_size_of(&l->extents[i], &size);
        assert(ok && l->extents[i].size > 0 && (uintptr_t)to % HTH_BUFFER_ALIGN == 0);
        (void)ok;
        l->data[i] = to + l->extents[i].offset % HTH_BUFFER_ALIGN;
        to += size;
    }
}

/* ---- pieces ----------------------------------------------------------------------------------- */

static piece *find_free(hth_reader *r)
{
    for (uint32_t i = 0; i < MAX_DEPTH; i++)
        if (r->pieces[i].state == PIECE_FREE) return &r->pieces[i];
    return NULL;
}

/* The next piece of the first load of a queue, which is removed from it with its last piece. */
static void cut_piece(hth_reader *r, load_queue *q, piece *p)
{
    hth_load *l = q->first;
    const hth_extent *e = &l->extents[l->i_extent];
    const reader_file *f = &r->files[e->i_file];
    uint64_t end = e->offset + e->size, align = f->direct ? f->align : 1;
    uint64_t at = l->read_from > 0 ? l->read_from : e->offset / align * align;
    uint8_t *first = (uint8_t *)(uintptr_t)l->data[l->i_extent] - e->offset % HTH_BUFFER_ALIGN;
    *p = (piece){.load = l, .direct = f->direct, .i_file = e->i_file, .at = at};
    p->to = first + (at - e->offset / HTH_BUFFER_ALIGN * HTH_BUFFER_ALIGN);
    if (end - at > PIECE_SIZE) {
        p->end = p->needed = (at + PIECE_SIZE) / align * align;
        l->read_from = p->end;
    } else {
        p->needed = end;
        p->end = (end + align - 1) / align * align;
        l->read_from = 0;
        if (++l->i_extent == l->n_extent) queue_pop(q);
    }
    l->n_running++;
}

static bool start_piece(hth_reader *r, piece *p)
{
    const reader_file *f = &r->files[p->i_file];
    hth_disk_read read = {.id = (uint64_t)(p - r->pieces),
                          .fd = p->direct ? f->direct_fd : f->fd,
                          .size = (uint32_t)(p->end - p->at),
                          .at = p->at,
                          .to = p->to};
    if (!r->disk->ops->start(r->disk, &read)) return false;
    p->state = PIECE_RUNNING;
    p->start_ns = r->disk->ops->now(r->disk);
    p->reported = false;
    r->running_size += read.size;
    if (r->n_running++ == 0) r->busy_since = p->start_ns;
    return true;
}

static void delay_piece(hth_reader *r, piece *p, uint64_t ns)
{
    p->state = PIECE_DELAYED;
    p->retry_at = r->disk->ops->now(r->disk) + ns;
    r->n_delayed++;
}

/* A load without pieces that run or will be cut has ended. */
static void end_if_complete(hth_load *l)
{
    if (l->n_running == 0 && l->i_extent == l->n_extent) l->done(l);
}

static void end_piece(piece *p)
{
    p->state = PIECE_FREE;
    p->load->n_running--;
    end_if_complete(p->load);
}

static void fail_load(hth_load *l, hth_load_failure failure)
{
    if (!l->failed) l->failure = failure;
    l->failed = true;
}

/* The rest of the load is not read. */
static void fail_piece(piece *p, int error)
{
    fail_load(p->load, (hth_load_failure){error, p->i_file, p->at, false});
    end_piece(p);
}

static void drop_first(load_queue *q)
{
    hth_load *l = q->first;
    queue_pop(q);
    l->i_extent = l->n_extent;
    end_if_complete(l);
}

/* ---- results ----------------------------------------------------------------------------------- */

static void count(hth_reader *r, uint64_t *counter)
{
    pthread_mutex_lock(&r->lock);
    ++*counter;
    pthread_mutex_unlock(&r->lock);
}

/* From now on a file is read through the page cache. */
static void use_buffered(hth_reader *r, reader_file *f, int error)
{
    if (!f->direct) return;
    f->direct = false;
    count(r, &r->stats.n_buffered_file);
    hth_log(HEARTH_LOG_WARN, "%s: direct reads are refused (%s); they go through the page cache", f->path,
            hth_format_errno(error).text);
}

/* Whole pages: what the range has of the ones at its ends is read again, if at all. */
static void drop_cached(const reader_file *f, uint64_t at, uint64_t n)
{
    uint64_t from = at / HTH_BUFFER_ALIGN * HTH_BUFFER_ALIGN,
             end = (at + n + HTH_BUFFER_ALIGN - 1) / HTH_BUFFER_ALIGN * HTH_BUFFER_ALIGN;
    if (!f->stays) posix_fadvise(f->fd, (off_t)from, (off_t)(end - from), POSIX_FADV_DONTNEED);
}

/* Bytes were read, perhaps fewer than asked for. */
static void advance_piece(hth_reader *r, piece *p, uint64_t n)
{
    uint64_t got = p->at + n;
    if (!p->direct) drop_cached(&r->files[p->i_file], p->at, n);
    if (got >= p->needed || p->load->failed) {
        end_piece(p);
        return;
    }
    /* The rest is not aligned, perhaps: it is read through the page cache. */
    count(r, &r->stats.n_short);
    p->to += n, p->at = got;
    p->end = p->needed;
    p->direct = false;
    if (!start_piece(r, p)) delay_piece(r, p, 0);
}

static void retry_piece(hth_reader *r, piece *p, int error)
{
    if (p->load->failed) {
        end_piece(p);
        return;
    }
    if (error == EINTR || error == EAGAIN || error == EBUSY) {
        count(r, &r->stats.n_again);
        if (++p->n_again <= MAX_AGAIN) {
            delay_piece(r, p, 0);
            return;
        }
        p->direct = false;
        ssize_t n = pread(r->files[p->i_file].fd, p->to, (size_t)(p->needed - p->at), (off_t)p->at);
        if (n > 0) {
            advance_piece(r, p, (uint64_t)n);
            return;
        }
        error = n < 0 ? errno : 0;
    }
    if ((error == EINVAL || error == EOPNOTSUPP) && p->direct) {
        use_buffered(r, &r->files[p->i_file], error);
        p->direct = false;
        delay_piece(r, p, 0);
        return;
    }
    if (error == 0 || !hth_read_may_recover(error) || p->n_failure == HTH_READ_MAX_RETRY) {
        fail_piece(p, error);
        return;
    }
    count(r, &r->stats.n_failed);
    delay_piece(r, p, hth_read_retry_ns[p->n_failure++]);
}

/* Raises the number of reads that run at once while the disk gains 5 % from that; else goes back to the best one. */
static void adapt_depth(hth_reader *r, uint64_t size)
{
    uint64_t now = r->disk->ops->now(r->disk);
    bool full = r->n_running + 1 >= r->depth;
    if (r->window.n++ == 0) {
        r->window.start_ns = now, r->window.size = 0, r->window.full = full;
        return;
    }
    r->window.size += size;
    r->window.full = r->window.full && full;
    if (r->window.n <= WINDOW_PIECES) return;
    r->window.n = 0;
    if (!r->window.full || now == r->window.start_ns) return;
    double rate = (double)r->window.size / (double)(now - r->window.start_ns);
    if (rate > r->best_rate * 1.05) {
        r->best_rate = rate, r->best_depth = r->depth;
        r->depth = r->depth + MIN_DEPTH > MAX_DEPTH ? MAX_DEPTH : r->depth + MIN_DEPTH;
    } else {
        r->depth = r->best_depth;
        r->best_rate *= 0.99; /* the disk may be slower or faster later */
    }
}

static void take_result(hth_reader *r, const hth_disk_result *result)
{
    piece *p = &r->pieces[result->id];
    assert(result->id < MAX_DEPTH && p->state == PIECE_RUNNING);
    uint64_t size = result->n > 0 ? (uint64_t)result->n : 0, now = r->disk->ops->now(r->disk);
    r->n_running--;
    r->running_size -= p->end - p->at;
    pthread_mutex_lock(&r->lock);
    r->stats.n_read++, r->stats.size += size, r->stats.depth = r->depth;
    r->stats.busy_ns += now - r->busy_since;
    pthread_mutex_unlock(&r->lock);
    r->busy_since = now;
    adapt_depth(r, size);
    if (result->n > 0) advance_piece(r, p, size);
    else retry_piece(r, p, (int)-result->n);
}

/* ---- the thread ---------------------------------------------------------------------------------- */

/* Moves loads to the queues where they belong. */
static void sort_loads(hth_reader *r, load_queue *from)
{
    hth_load *next, *l = from->first;
    for (queue_init(from); l; l = next) {
        next = l->next;
        l->next = NULL;
        load_queue *to = l->guess_size > 0 && !l->prioritized ? &r->guesses : &r->needed;
        queue_append(l->dropped ? &r->dropped : to, l);
    }
}

static void cancel_queue(load_queue *q)
{
    while (q->first) {
        fail_load(q->first, (hth_load_failure){ECANCELED, q->first->extents[0].i_file,
                                               q->first->extents[0].offset, false});
        drop_first(q);
    }
}

/* Takes what was added, and ends what was dropped. *cancels: all loads end; *closing: the reader too. */
static void take_added(hth_reader *r, bool *closing, bool *cancels)
{
    pthread_mutex_lock(&r->lock);
    if (r->changes) sort_loads(r, &r->needed), sort_loads(r, &r->guesses);
    sort_loads(r, &r->added);
    *closing = r->closing, *cancels = r->cancels || r->closing;
    r->changes = r->cancels = false;
    pthread_mutex_unlock(&r->lock);
    cancel_queue(&r->dropped);
}

static void start_pieces(hth_reader *r)
{
    uint64_t now = r->disk->ops->now(r->disk);
    for (uint32_t i = 0; i < MAX_DEPTH && r->n_delayed > 0; i++) {
        piece *p = &r->pieces[i];
        if (p->state != PIECE_DELAYED || p->retry_at > now || !start_piece(r, p)) continue;
        r->n_delayed--;
    }
    for (;;) {
        load_queue *q = r->needed.first ? &r->needed : &r->guesses;
        if (q->first && q->first->failed) {
            drop_first(q);
            continue;
        }
        if (!q->first || r->n_running >= r->depth) return;
        if (q == &r->guesses && r->running_size >= q->first->guess_size) return;
        piece *p = find_free(r);
        if (!p) return;
        cut_piece(r, q, p);
        if (start_piece(r, p)) continue;
        delay_piece(r, p, 0);
        return;
    }
}

/* Until when to wait for a result, in ns from now on. */
static uint64_t timeout_of(hth_reader *r)
{
    uint64_t now = r->disk->ops->now(r->disk), end = UINT64_MAX;
    for (uint32_t i = 0; i < MAX_DEPTH; i++) {
        const piece *p = &r->pieces[i];
        if (p->state == PIECE_FREE || (p->state == PIECE_RUNNING && p->reported)) continue;
        uint64_t at = p->state == PIECE_DELAYED ? p->retry_at : p->start_ns + LATE_NS;
        if (at < end) end = at;
    }
    return end == UINT64_MAX ? end : end > now ? end - now : 0;
}

static void report_late(hth_reader *r)
{
    uint64_t now = r->disk->ops->now(r->disk);
    for (uint32_t i = 0; i < MAX_DEPTH; i++) {
        piece *p = &r->pieces[i];
        if (p->state != PIECE_RUNNING || p->reported || now - p->start_ns < LATE_NS) continue;
        hth_log(HEARTH_LOG_WARN, "%s: a read of %" PRIu64 " bytes at byte %" PRIu64 " takes more than 30 s",
                r->files[p->i_file].path, p->end - p->at, p->at);
        p->reported = true;
    }
}

static void wait_for_results(hth_reader *r)
{
    hth_disk_result results[MAX_RESULT];
    uint32_t n = r->disk->ops->wait(r->disk, timeout_of(r), results, MAX_RESULT);
    for (uint32_t i = 0; i < n; i++) take_result(r, &results[i]);
    report_late(r);
}

/* Ends all loads. Memory belongs to the disk as long as a read runs. */
static void cancel_all(hth_reader *r)
{
    cancel_queue(&r->needed);
    cancel_queue(&r->guesses);
    for (uint32_t i = 0; i < MAX_DEPTH; i++)
        if (r->pieces[i].state == PIECE_DELAYED) fail_piece(&r->pieces[i], ECANCELED);
    r->n_delayed = 0;
}

static void *run_thread(void *reader)
{
    hth_reader *r = reader;
    for (;;) {
        bool closing, cancels;
        take_added(r, &closing, &cancels);
        if (cancels) cancel_all(r);
        else start_pieces(r);
        if (closing && r->n_running == 0) return NULL;
        wait_for_results(r);
    }
}

void hth_reader_start(hth_reader *r, hth_load *loads)
{
    for (hth_load *l = loads; l; l = l->next) {
        l->failed = false;
        l->read_from = 0;
        l->i_extent = l->n_running = 0;
        place_extents(l);
    }
    pthread_mutex_lock(&r->lock);
    queue_append(&r->added, loads);
    bool reads = !r->has_thread && !r->active;
    if (reads) r->active = true;
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread) r->disk->ops->wake(r->disk);
    while (reads) {
        bool closing, cancels;
        take_added(r, &closing, &cancels);
        start_pieces(r);
        if (r->n_running + r->n_delayed > 0) {
            wait_for_results(r);
            continue;
        }
        pthread_mutex_lock(&r->lock);
        reads = r->added.first || r->needed.first || r->guesses.first;
        r->active = reads;
        pthread_mutex_unlock(&r->lock);
    }
}

void hth_reader_cancel(hth_reader *r)
{
    pthread_mutex_lock(&r->lock);
    r->cancels = true;
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread) r->disk->ops->wake(r->disk);
}

static void change_load(hth_reader *r, bool *flag)
{
    pthread_mutex_lock(&r->lock);
    *flag = true;
    r->changes = true;
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread) r->disk->ops->wake(r->disk);
}

void hth_reader_prioritize(hth_reader *r, hth_load *load) { change_load(r, &load->prioritized); }
void hth_reader_drop(hth_reader *r, hth_load *load) { change_load(r, &load->dropped); }

/* ---- opening and closing ------------------------------------------------------------------------- */

static hearth_status open_file(hth_reader *r, reader_file *f, const hth_reader_file *from, bool buffered,
                               hearth_error *err)
{
    struct stat st;
    size_t size = strlen(from->path) + 1;
    *f = (reader_file){
        .fd = from->fd, .direct_fd = -1, .direct = !buffered, .stays = buffered, .path = hth_alloc(size, 1)};
    if (!f->path) return hth_fail_memory(err, size, "the path of a file to read");
    memcpy(f->path, from->path, size);
    if (fstat(f->fd, &st) == 0) f->size = (uint64_t)st.st_size;
    if (buffered) r->stats.n_buffered_file++;
    else if ((f->direct_fd = hth_direct_open(f->fd, &f->align)) < 0) use_buffered(r, f, errno);
    return HEARTH_OK;
}

/* Callers read then, of which a ring allows one only. */
static hearth_status read_without_thread(hth_reader *r, hearth_error *err)
{
    hth_disk *disk;
    hearth_status st = hth_disk_open_pread(0, &disk, err);
    if (st != HEARTH_OK) return st;
    hth_log(HEARTH_LOG_WARN, "the system created no thread that reads: reads are not overlapped");
    r->disk->ops->close(r->disk);
    r->disk = disk;
    return HEARTH_OK;
}

hearth_status hth_reader_open(const hth_reader_options *o, hth_reader **out, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    *out = NULL;
    hth_reader *r = hth_alloc(1, sizeof *r);
    if (!r) {
        o->disk->ops->close(o->disk);
        return hth_fail_memory(err, sizeof *r, "a reader");
    }
    *r = (hth_reader){.disk = o->disk, .depth = MIN_DEPTH, .best_depth = MIN_DEPTH};
    pthread_mutex_init(&r->lock, NULL);
    queue_init(&r->added), queue_init(&r->needed), queue_init(&r->guesses), queue_init(&r->dropped);
    r->stats.depth = r->depth;
    r->files = hth_alloc(o->n_file, sizeof *r->files);
    if (!r->files) st = hth_fail_memory(err, o->n_file * sizeof *r->files, "files to read");
    for (; st == HEARTH_OK && r->n_file < o->n_file; r->n_file++)
        st = open_file(r, &r->files[r->n_file], &o->files[r->n_file], o->buffered, err);
    if (st != HEARTH_OK) {
        hth_reader_close(r);
        return st;
    }
    r->has_thread = !o->in_caller && hth_thread_start(&r->thread, run_thread, r, "hearth-reader");
    if (!r->has_thread && !o->in_caller && (st = read_without_thread(r, err)) != HEARTH_OK) {
        hth_reader_close(r);
        return st;
    }
    *out = r;
    return HEARTH_OK;
}

void hth_reader_close(hth_reader *r)
{
    if (!r) return;
    if (r->has_thread) {
        pthread_mutex_lock(&r->lock);
        r->closing = true;
        pthread_mutex_unlock(&r->lock);
        r->disk->ops->wake(r->disk);
        pthread_join(r->thread, NULL);
    }
    assert(!r->added.first && !r->needed.first && !r->guesses.first && r->n_running + r->n_delayed == 0);
    r->disk->ops->close(r->disk);
    for (uint32_t i = 0; i < r->n_file; i++) {
        if (r->files[i].direct_fd >= 0) close(r->files[i].direct_fd);
        hth_free(r->files[i].path);
    }
    hth_free(r->files);
    pthread_mutex_destroy(&r->lock);
    hth_free(r);
}

/* ---- what it says --------------------------------------------------------------------------------- */

const char *hth_reader_path(const hth_reader *r, uint32_t i_file) { return r->files[i_file].path; }

hearth_status hth_reader_describe(const hth_reader *r, const hth_load_failure *f, hearth_error *err)
{
    const reader_file *file = &r->files[f->i_file];
    return hth_fail_read(err, file->path, f->at, file->size, f->error);
}

hth_reader_stats hth_reader_get_stats(hth_reader *r)
{
    pthread_mutex_lock(&r->lock);
    hth_reader_stats stats = r->stats;
    pthread_mutex_unlock(&r->lock);
    return stats;
}

const char *hth_reader_name(const hth_reader *r) { return r->disk->name; }
const struct hth_disk_model *hth_reader_disk_model(const hth_reader *r) { return r->disk->model; }
