/* Makes fault after fault happen to a task; see faults.h. What a task writes when nothing
 * fails is kept, to be compared with what a failed one may leave. */
#include "support/faults.h"

#include "base/alloc.h"
#include "file/gguf.h"
#include "file/atomic_writer.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

/* Makes fault n happen; 0: none. */
typedef void inject_fn(uint64_t n);
/* How many times it could have happened so far. */
typedef uint64_t count_fn(void);

static void one_allocation(uint64_t n) { hth_alloc_fail_at(n, 0); }
static void allocations_from(uint64_t n) { hth_alloc_fail_at(n, n != 0); }
static void one_read(uint64_t n) { hth_gguf_fail_read_at(n, HTH_READ_FAILS); }
static void one_write(uint64_t n) { hth_atomic_writer_fail_write_at(n); }

void fault_make_input(fault_paths *p)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_text(&m, "tokenizer.chat_template",
                  "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>\n{% endfor %}"
                  "{% set l = [1, 2] %}{{ l | join(',') }}{{ {'a': l} | tojson }}");
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    *p = (fault_paths){test_scratch("in.gguf"), test_scratch("out.gguf")};
    CHECK(test_write_file(p->in, b.data, b.n));
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* What a task writes when nothing fails; NULL: no file. */
static char *written(const fault_paths *p, size_t *n)
{
    char *bytes = exists(p->out) ? test_read_file(p->out, n) : NULL;
    remove(p->out);
    return bytes;
}

/* Nothing under either name of the output; when only the sync of its folder failed, it is there and whole. */
static bool nothing_half_written(const fault_paths *p, const char *whole, size_t n_whole,
                                 const hearth_error *why)
{
    char part[1100];
    size_t n = 0;
    snprintf(part, sizeof part, "%s.hearth-part", p->out);
    FREED char *bytes = written(p, &n);
    bool synced = !strstr(why->message, "cannot sync the folder");
    bool same = whole && bytes && n == n_whole && memcmp(bytes, whole, n) == 0;
    bool clean = !exists(part) && (synced ? bytes == NULL : same);
    return clean;
}

/* Returns the number of faults. n_min: fewer mean that the task was not put to the test. A task ends when it succeeds:
 * without a fault, or, where count is NULL, in spite of one. */
static uint64_t fault_each(fault_task *run, inject_fn *fault, count_fn *count, hearth_status status, uint64_t n_min)
{
    enum { N_MAX = 20000 };
    fault_paths p;
    fault_make_input(&p);
    size_t n_whole = 0, n_got = 0;
    CHECK_OK(run(&p, err));
    char *whole = written(&p, &n_whole);
    uint64_t held = hth_alloc_in_use(), n = 1;
    for (hearth_status st = status; st != HEARTH_OK && n < N_MAX; n++) {
        hearth_error why = {0};
        uint64_t before = count ? count() : 0;
        fault(n);
        st = run(&p, &why);
        fault(0);
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
        if (st == HEARTH_OK && (!count || count() - before < n)) break;
        if (st == HEARTH_OK) { /* it could do without */
            FREED char *bytes = written(&p, &n_got);
            CHECK(!bytes == !whole && (!whole || (n_got == n_whole && memcmp(bytes, whole, n_whole) == 0)));
            st = status;
            continue;
        }
        bool clean = nothing_half_written(&p, whole, n_whole, &why);
        if (st != status || !why.message[0] || why.status != st || !clean)
            test_fail(__FILE__, __LINE__, "fault %llu: status '%s', message '%s'%s", (unsigned long long)n,
                      hearth_status_name(st), why.message, clean ? "" : ", output left behind");
    }
    if (n <= n_min || n == N_MAX)
        test_fail(__FILE__, __LINE__, "the task ended after %llu faults", (unsigned long long)n);
    free(whole);
    remove(p.in);
    remove(p.out);
    return n - 1;
}

static void print_number(const char *name, uint64_t n, const char *what)
{
    printf("     %s: %llu %s\n", name, (unsigned long long)n, what);
}

void fault_survive(const char *name, fault_task *run, uint64_t n_allocation, uint64_t n_read, uint64_t n_write)
{
    if (n_allocation) {
        uint64_t n = fault_each(run, one_allocation, hth_alloc_count, HEARTH_ERROR_MEMORY, n_allocation);
        fault_each(run, allocations_from, hth_alloc_count, HEARTH_ERROR_MEMORY, n_allocation);
        print_number(name, n, "allocations, each failed once, and with all behind it");
    }
    if (n_read) {
        uint64_t n = fault_each(run, one_read, hth_gguf_n_read, HEARTH_ERROR_IO, n_read);
        print_number(name, n, "reads, each failed once");
    }
    if (n_write) {
        uint64_t n = fault_each(run, one_write, NULL, HEARTH_ERROR_IO, n_write);
        print_number(name, n, "writes, each failed once");
    }
}
