/* What the system may refuse at any time: threads, memory, the request for large pages. The
 * calls are wrapped at link time (tests/CMakeLists.txt) and refused one after the other. */
#include "base/alloc.h"
#include "base/pool.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

static int n_until_refusal; /* of calls of the kind under test; 0: none is refused */
static int n_call;

static bool refused(void)
{
    n_call++;
    return n_until_refusal > 0 && n_call >= n_until_refusal;
}

static void refuse_from(int n) { n_until_refusal = n, n_call = 0; }

typedef void *thread_main(void *);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, thread_main *f, void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, thread_main *f, void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, thread_main *f, void *arg)
{
    return refused() ? EAGAIN : __real_pthread_create(t, a, f, arg);
}

static bool no_map, no_advice;
static int n_advice;
void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t from);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t from);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    if (!no_map) return __real_mmap(at, n, protection, flags, fd, from);
    errno = ENOMEM;
    return MAP_FAILED;
}

int __real_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice)
{
    n_advice++;
    if (!no_advice) return __real_madvise(at, n, advice);
    errno = EINVAL;
    return -1;
}

/* ---- threads ------------------------------------------------------------------------------ */

static void count_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    _Atomic uint32_t *sum = arg;
    atomic_fetch_add(sum, (uint32_t)i_unit + 1);
}

TEST(a_pool_works_with_the_threads_that_it_gets)
{
    uint64_t held = hth_alloc_in_use();
    for (uint32_t k = 1; k <= 4; k++) {
        _Atomic uint32_t sum = 0;
        char words[60];
        refuse_from((int)k); /* the k-th worker, which would be thread k + 1 */
        test_log_start();
        hth_pool *pool = OPENED(hth_pool, 5);
        test_log_stop();
        refuse_from(0);
        snprintf(words, sizeof words, "refused thread %u of 5; %u do the work", k + 1, k);
        CHECK(test_n_warning("") == 1 && test_n_warning(words) == 1);
        if (!pool) continue;
        CHECK_INT(hth_pool_n_thread(pool), k);
        hth_pool_run(pool, count_unit, &sum, 1000);
        CHECK_INT(sum, 1000 * 1001 / 2);
        hth_pool_close(pool);
        CHECK_INT(hth_alloc_in_use(), held);
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

TEST(large_memory_that_is_refused_is_null)
{
    hth_pool *pool = NULL;
    hearth_error why = {0};
    no_map = true;
    CHECK(hth_pages_alloc(1000) == NULL);
    CHECK(hth_pages_alloc((size_t)5 << 20) == NULL);
    CHECK_INT(hth_pool_open(2, &pool, &why), HEARTH_ERROR_MEMORY);
    no_map = false;
    CHECK(strstr(why.message, "no memory: ") && strstr(why.message, "iB for "));
}

TEST(large_memory_without_large_pages_serves)
{
    size_t size = (size_t)5 << 20;
    n_advice = 0;
    no_advice = true;
    unsigned char *p = hth_pages_alloc(size);
    no_advice = false;
    CHECK_INT(n_advice, 1);
    if (CHECK(p != NULL)) {
        CHECK_INT(p[0] + p[size - 1], 0);
        memset(p, 1, size);
    }
    hth_pages_free(p, size);
}
