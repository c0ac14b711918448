/* Keeps a model within its limit of memory. Sessions that were not announced take memory from the store of weights; so
 * does the system, at which a thread looks: also between evaluations, when nothing else would. Reading what the system
 * tells takes 0.1 to 0.3 ms. */
#include "engine/budget.h"

#include "base/checked_math.h"
#include "base/clock.h"
#include "base/format_bytes.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/engine.h"

#include <inttypes.h>

/* ---- what the system leaves ------------------------------------------------------------------ */

/* With `auto` the system keeps 1/16 of its memory, 256 MiB at least, and a control group 2 % and 16 MiB. A limit in
 * bytes is given up only when memory runs out: at half of that. */
enum { MACHINE_PART = 16, MACHINE_MIN = 256 << 20, GROUP_PART = 50, GROUP_MIN = 16 << 20 };
/* Percent of time in which tasks wait for memory, from which on the margins are twice as large. */
#define PRESSURE 10.0
/* The system is looked at twice a second; more often while it leaves less than a program may take in that time. */
enum { CHECK_NS = 500000000, CHECK_SOON_NS = 50000000, SOON_HEADROOM = 512 << 20 };
/* How long it must leave more before the store grows again. Changes that are not worth the work: a part, and bytes. */
#define CALM_NS 5000000000u
enum { SHRINK_PART = 256, SHRINK_MIN = 1 << 20, GROW_PART = 16 };

int64_t hth_budget_headroom(const hth_system_memory *s, bool is_auto, bool pressed)
{
    int64_t headroom = INT64_MAX, factor = pressed ? 2 : 1;
    if (s->total > 0 && s->available > 0) {
        uint64_t margin = hth_max_u64(s->total / MACHINE_PART, MACHINE_MIN) / (is_auto ? 1 : 2);
        headroom = (int64_t)hth_min_u64(s->available, INT64_MAX) - factor * (int64_t)margin;
    }
    if (s->group_limit > 0) {
        uint64_t margin = (s->group_limit / GROUP_PART + GROUP_MIN) / (is_auto ? 1 : 2);
        int64_t left = (int64_t)hth_min_u64(s->group_available, INT64_MAX) - factor * (int64_t)margin;
        if (left < headroom) headroom = left;
    }
    return headroom;
}

static uint64_t add_headroom(uint64_t size, int64_t headroom)
{
    if (headroom < 0) return size > (uint64_t)-headroom ? size - (uint64_t)-headroom : 0;
    return size + (uint64_t)headroom;
}

uint64_t hth_budget_follow(hth_budget_cap *c, const hth_system_memory *s, uint64_t touched, uint64_t now_ns)
{
    int64_t headroom = hth_budget_headroom(s, c->is_auto, false);
    bool pressed = headroom < 0 || s->pressure >= PRESSURE || s->n_limit_event > c->n_limit_event;
    if (pressed) headroom = hth_budget_headroom(s, c->is_auto, true);
    uint64_t left = hth_max_u64(hth_min_u64(add_headroom(touched, headroom), c->max), c->min);
    c->n_limit_event = s->n_limit_event;
    if (left < c->now) {
        if (c->now - left > c->max / SHRINK_PART + SHRINK_MIN) c->now = left;
        c->is_calm = false;
    } else if (left - c->now > c->max / GROW_PART || (left == c->max && c->now < c->max)) {
        if (!c->is_calm) c->calm_since = now_ns, c->calm_left = left;
        c->is_calm = true, c->calm_left = hth_min_u64(c->calm_left, left);
        if (now_ns - c->calm_since >= CALM_NS) c->now = c->calm_left, c->is_calm = false;
    } else {
        c->is_calm = false;
    }
    return headroom < SOON_HEADROOM ? CHECK_SOON_NS : CHECK_NS;
}

/* ---- the store --------------------------------------------------------------------------------- */

/* Bytes that sessions and the system leave to the store. */
static uint64_t size_of_store(const hth_budget *b)
{
    uint64_t others = b->fixed + hth_max_u64(b->announced, b->sessions);
    return b->limit > 0 ? hth_min_u64(b->cap.now, b->limit > others ? b->limit - others : 0) : b->cap.now;
}

/* Called with the lock held. */
static void divide(hearth_model *m, const char *why)
{
    hth_budget *b = &m->budget;
    uint64_t size = size_of_store(b);
    if (!m->streamed.store) return;
    hth_store_set_memory(m->streamed.store, size);
    uint64_t change = size > b->logged ? size - b->logged : b->logged - size;
    if (change <= b->cap.max / GROW_PART) return;
    hth_log(HEARTH_LOG_INFO, "%s: %s of weights stay in memory instead of %s: %s", hth_gguf_path(m->file),
            hth_format_bytes(size).text, hth_format_bytes(b->logged).text, why);
    b->logged = size;
}

static hth_engine_memory_fn *test_memory;
void hth_engine_set_system_memory(hth_engine_memory_fn *fn) { test_memory = fn; }

static void read_system(hth_system_memory *system)
{
    if (test_memory) test_memory(system);
    else hth_system_memory_read("", system);
}

/* Bytes that are read again are those of the file then. */
static void warn_of_writes(hearth_model *m)
{
    const char *path = m->budget.was_written ? NULL : hth_gguf_written_part(m->file);
    if (!path) return;
    m->budget.was_written = true;
    hth_log(HEARTH_LOG_WARN,
            "%s: was written to while weights are read from it: results may be wrong from here on", path);
}

uint64_t hth_engine_check_memory(hearth_model *m, uint64_t now_ns)
{
    hth_budget *b = &m->budget;
    hth_system_memory system;
    read_system(&system);
    pthread_mutex_lock(&b->lock);
    warn_of_writes(m);
    uint64_t before = b->cap.now;
    uint64_t wait_ns = hth_budget_follow(&b->cap, &system, hth_store_touched(m->streamed.store), now_ns);
    if (b->cap.now != before)
        divide(m, b->cap.now < before ? "the system needs memory" : "the system has memory again");
    pthread_mutex_unlock(&b->lock);
    return wait_ns;
}

static void *watch(void *model)
{
    hearth_model *m = model;
    hth_budget *b = &m->budget;
    uint64_t next = 0;
    pthread_mutex_lock(&b->lock);
    while (!b->closing) {
        if (hth_cond_wait_until(&b->wake, &b->lock, next)) continue;
        pthread_mutex_unlock(&b->lock);
        uint64_t now = hth_clock_ns();
        next = now + hth_engine_check_memory(m, now);
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static hearth_status refuse(const hearth_model *m, uint64_t size, hearth_error *err)
{
    const hth_budget *b = &m->budget;
    return hth_fail(err, HEARTH_ERROR_MEMORY,
                    "%s: a session of %s (%" PRIu64 " bytes) beside %s of other sessions and at least %s "
                    "of weights exceeds the limit of %s; n_ctx and n_batch make it less",
                    hth_gguf_path(m->file), hth_format_bytes(size).text, size,
                    hth_format_bytes(b->sessions).text, hth_format_bytes(b->fixed + b->cap.min).text,
                    hth_format_bytes(b->limit).text);
}

hearth_status hth_engine_reserve(hearth_model *m, uint64_t size, hearth_error *err)
{
    if (m->part_of) m = m->part_of;
    hth_budget *b = &m->budget;
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&b->lock);
    uint64_t others = b->fixed + b->cap.min;
    if (b->limit > 0 && (size > b->limit || b->sessions + size > b->limit - hth_min_u64(others, b->limit))) {
        st = refuse(m, size, err);
    } else {
        b->sessions += size;
        if (b->sessions > b->announced) divide(m, "sessions need memory");
    }
    pthread_mutex_unlock(&b->lock);
    return st;
}

void hth_engine_release(hearth_model *m, uint64_t size)
{
    if (m->part_of) m = m->part_of;
    hth_budget *b = &m->budget;
    pthread_mutex_lock(&b->lock);
    bool took = b->sessions > b->announced;
    b->sessions -= size;
    if (took) divide(m, "sessions have given memory back");
    pthread_mutex_unlock(&b->lock);
}

hearth_status hth_engine_open_pages(hearth_model *m, hearth_kv_type kv, uint32_t n_position, hth_kv_budget *pages,
                                    uint64_t *size, hearth_error *err)
{
    hth_kv_pool *pool;
    size_t bytes;
    hearth_status st = hth_engine_kv_pool(m, kv, &pool, err);
    if (st != HEARTH_OK) return st;
    if (!hth_kv_size(m->model, kv, n_position, &bytes)) bytes = SIZE_MAX;
    if ((st = hth_engine_reserve(m, bytes, err)) != HEARTH_OK) return st;
    *size = bytes;
    if (hth_kv_budget_open(pages, pool, n_position) == HTH_KV_RESERVED) return HEARTH_OK;
    pages->pool = NULL;
    return hth_fail(err, HEARTH_ERROR_MEMORY, "%s: no memory for a cache of %u positions", hth_gguf_path(m->file),
                    n_position);
}

void hth_engine_close_pages(hearth_model *m, hth_kv_budget *pages, uint64_t size)
{
    if (pages->pool) hth_kv_budget_close(pages);
    hth_engine_release(m, size);
}

/* ---- weights that come back from a device --------------------------------------------------------- */

/* Whether so much and the least of the store fit into the limit, which then leaves *max to it as it was opened. */
static bool still_fits(const hth_budget *b, uint64_t fixed, uint64_t *max)
{
    uint64_t sessions = hth_max_u64(b->announced, b->sessions),
             left = b->limit - hth_min_u64(fixed, b->limit);
    if (left < sessions || left - sessions < b->cap.min) return false;
    *max = left - b->announced;
    return true;
}

hearth_status hth_engine_change_fixed(hearth_model *m, uint64_t fixed, hearth_error *err)
{
    hth_budget *b = &m->budget;
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&b->lock);
    uint64_t max = b->cap.max;
    if (b->limit > 0 && !still_fits(b, fixed, &max)) {
        st = hth_fail(err, HEARTH_ERROR_MEMORY,
                      "%s: with what comes back from the device it needs %s, the limit is %s",
                      hth_gguf_path(m->file),
                      hth_format_bytes(fixed + b->cap.min + hth_max_u64(b->announced, b->sessions)).text,
                      hth_format_bytes(b->limit).text);
    } else {
        b->fixed = fixed;
        b->cap.now = b->cap.now == b->cap.max ? max : hth_min_u64(b->cap.now, max);
        b->cap.max = max;
        if (m->streamed.store) hth_store_move(m->streamed.store, m->on_device, size_of_store(b));
        divide(m, "the device computes another part");
    }
    pthread_mutex_unlock(&b->lock);
    return st;
}

/* ---- opening and closing ------------------------------------------------------------------------ */

void hth_engine_init_budget(hearth_model *m)
{
    pthread_mutex_init(&m->budget.lock, NULL);
    hth_cond_init(&m->budget.wake);
}

uint64_t hth_engine_system_left(const char **who)
{
    hth_system_memory s;
    read_system(&s);
    bool is_known = s.total > 0 && s.available > 0;
    uint64_t left = is_known ? s.available : UINT64_MAX;
    bool by_group = s.group_limit > 0 && s.group_available < left;
    *who = by_group ? "its control group" : "the system";
    return by_group ? s.group_available : left;
}

uint64_t hth_engine_system_limit(uint64_t resident)
{
    const char *ignored;
    uint64_t left = hth_engine_system_left(&ignored);
    if (left == UINT64_MAX) return left;
    left += resident;
    return left + left / GROUP_PART + GROUP_MIN;
}

uint64_t hth_engine_auto_limit(uint64_t resident, bool logs)
{
    hth_system_memory s;
    read_system(&s);
    int64_t headroom = hth_budget_headroom(&s, true, false);
    if (headroom == INT64_MAX) return UINT64_MAX; /* the system does not say */
    uint64_t limit = add_headroom(resident, headroom);
    bool by_group = s.group_limit > 0 && s.group_available < s.available;
    if (logs)
        hth_log(HEARTH_LOG_INFO, "the limit of memory is %s: %s leaves %s, and this process has %s",
                hth_format_bytes(limit).text, by_group ? "its control group" : "the system",
                hth_format_bytes(headroom > 0 ? (uint64_t)headroom : 0).text,
                hth_format_bytes(resident).text);
    return limit;
}

void hth_engine_watch_memory(hearth_model *m, uint64_t size, bool is_auto)
{
    hth_budget *b = &m->budget;
    hth_system_memory system;
    read_system(&system);
    b->cap.is_auto = is_auto, b->cap.max = b->cap.now = size, b->cap.n_limit_event = system.n_limit_event;
    b->logged = size;
    if (test_memory) return;
    b->has_thread = hth_thread_start(&b->thread, watch, m, "hearth-memory");
    if (!b->has_thread)
        hth_log(HEARTH_LOG_WARN,
                "the system created no thread that looks at its memory: weights will not give way");
}

void hth_engine_stop_watching(hearth_model *m)
{
    hth_budget *b = &m->budget;
    if (!b->has_thread) return;
    pthread_mutex_lock(&b->lock);
    b->closing = true;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    b->has_thread = false;
}

void hth_engine_close_budget(hearth_model *m)
{
    pthread_cond_destroy(&m->budget.wake);
    pthread_mutex_destroy(&m->budget.lock);
}
