/* The runner behind test.h. When $HEARTH_TEST_REPORT names a file, one line per
 * case is appended to it ("ok|FAIL|skip<TAB>file<TAB>name<TAB>reason<TAB>seconds of CPU time"). */
#include "support/test.h"

#include "base/alloc.h"

#include <ftw.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>

#ifdef __SANITIZE_THREAD__
/* Of the layer that watches Vulkan's calls: a thread of its own outlives what it locks. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:libVkLayer_khronos_validation\n"; }
#endif

static test_case *first, **last = &first;
static int n_failed_checks;
bool (*test_before_each)(void);
void (*test_after_each)(void);
static bool skipped, keeps_memory;
static char skip_reason[300];

void test_register(test_case *c)
{
    *last = c;
    last = &c->next;
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* CPU time of this process, and of those that it has waited for. */
static double cpu_seconds(void)
{
    struct rusage own, waited;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &waited);
    return seconds_of(own.ru_utime) + seconds_of(own.ru_stime) + seconds_of(waited.ru_utime) + seconds_of(waited.ru_stime);
}

static double case_start;

static void report(const test_case *c, const char *verdict, const char *reason)
{
    const char *name = c->file + strlen(c->file);
    for (int slashes = 0; name > c->file && (slashes += name[-1] == '/') < 2;) name--; /* ROOM/FILE */
    printf("%-4s %s %s%s%s\n", verdict, name, c->name, *reason ? ": " : "", reason);
    fflush(stdout);
    const char *path = getenv("HEARTH_TEST_REPORT");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
        fprintf(f, "%s\t%s\t%s\t%s\t%.2f\n", verdict, name, c->name, reason, cpu_seconds() - case_start);
        fclose(f);
    }
}

typedef struct scratch_file scratch_file;
static scratch_file *case_scratch, *program_scratch;
static void remove_scratch(scratch_file **list);

int test_run_all(int argc, char **argv)
{
    int n_run = 0, n_failed = 0, n_skipped = 0;
    for (test_case *c = first; c; c = c->next) {
        if (argc > 1 && !strstr(c->name, argv[1])) continue;
        n_failed_checks = 0;
        skipped = keeps_memory = false;
        uint64_t held = hth_alloc_in_use();
        case_start = cpu_seconds();
        if (!test_before_each || test_before_each()) c->run();
        if (test_after_each) test_after_each();
        if (hth_alloc_in_use() != held && !keeps_memory) test_fail(c->file, 0, "%s keeps memory of the library", c->name);
        remove_scratch(&case_scratch);
        n_run++;
        if (n_failed_checks > 0) {
            n_failed++;
            report(c, "FAIL", "");
        } else if (skipped) {
            n_skipped++;
            report(c, "skip", skip_reason);
        } else {
            report(c, "ok", "");
        }
    }
    remove_scratch(&program_scratch);
    if (n_run == 0) {
        fprintf(stderr, "no case matches\n");
        return 1;
    }
    return n_failed > 0 ? 1 : n_skipped == n_run ? 77 : 0;
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    n_failed_checks++;
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

bool test_check(bool ok, const char *file, int line, const char *text)
{
    if (!ok) test_fail(file, line, "%s", text);
    return ok;
}

bool test_check_int(long long a, long long b, const char *file, int line, const char *text)
{
    if (a != b) test_fail(file, line, "%s: %lld and %lld", text, a, b);
    return a == b;
}

bool test_check_text(const char *a, const char *b, const char *file, int line, const char *text)
{
    bool same = a && b && strcmp(a, b) == 0;
    if (!same) test_fail(file, line, "%s: \"%s\" and \"%s\"", text, a ? a : "(null)", b ? b : "(null)");
    return same;
}

bool test_check_failure(int status, int expected, const char *message, const char *words, const char *file, int line,
                        const char *text)
{
    bool ok = status == expected;
    for (const char *word = words; ok && word; word = strchr(word, '|')) {
        char one[300];
        word += *word == '|';
        snprintf(one, sizeof one, "%.*s", (int)strcspn(word, "|"), word);
        ok = strstr(message, one) != NULL;
    }
    if (!ok) test_fail(file, line, "%s: status %d, not %d with '%s': %s", text, status, expected, words, message);
    return ok;
}

bool test_check_bytes(const void *a, const void *b, size_t n, const char *file, int line, const char *text)
{
    const unsigned char *p = a, *q = b;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == q[i]) continue;
        test_fail(file, line, "%s: byte %zu of %zu is 0x%02x and 0x%02x", text, i, n, p[i], q[i]);
        return false;
    }
    return true;
}

void test_keeps_memory(void) { keeps_memory = true; }

enum { MAX_WARNING = 64 };
static char warnings[MAX_WARNING][1000];
static int n_warnings;
static pthread_mutex_t warnings_lock = PTHREAD_MUTEX_INITIALIZER;

static void record(void *user, hearth_log_level level, const char *line)
{
    if (level != HEARTH_LOG_WARN) return;
    pthread_mutex_lock(&warnings_lock);
    if (n_warnings == MAX_WARNING) abort();
    snprintf(warnings[n_warnings++], sizeof warnings[0], "%s", line);
    pthread_mutex_unlock(&warnings_lock);
}

void test_log_start(void)
{
    n_warnings = 0;
    hearth_log_set(record, NULL);
}

void test_log_stop(void) { hearth_log_set(NULL, NULL); }

int test_n_warning(const char *text)
{
    int n = 0;
    for (int i = 0; i < n_warnings; i++) n += strstr(warnings[i], text) != NULL;
    return n;
}

const char *test_warning(const char *text)
{
    for (int i = n_warnings; i-- > 0;)
        if (strstr(warnings[i], text)) return warnings[i];
    return "";
}

bool test_is_long(void) { return getenv("HEARTH_LONG") != NULL; }

bool test_is_sanitized(void)
{
#ifdef HEARTH_TEST_SANITIZED
    return true;
#else
    return false;
#endif
}

bool test_driver_flushes(const char *driver)
{
    static const char MESA[] = "llvmpipe Mesa ";
    return getenv("HEARTH_GPU_FLUSHES") || (strncmp(driver, MESA, strlen(MESA)) == 0 && atoi(driver + strlen(MESA)) >= 26);
}

int test_n_failed(void) { return n_failed_checks; }

void test_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(skip_reason, sizeof skip_reason, format, args);
    va_end(args);
    skipped = true;
}

void test_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("     ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

const char *test_data(const char *relative)
{
    static const char *const folders[] = {"tests/data", "build/data"}; /* of the repository; made */
    static char paths[8][1024];
    static int turn;
    char *path = paths[turn++ % 8];
    struct stat st;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int n = snprintf(path, sizeof paths[0], "%s/%s/%s", HEARTH_SOURCE_DIR, folders[i], relative);
        if (n > 0 && (size_t)n < sizeof paths[0] && stat(path, &st) == 0) return path;
    }
    test_fail(__FILE__, __LINE__,
              "no %s in tests/data or build/data; python3 tests/data/make.py build/data makes the latter",
              relative);
    return NULL;
}

struct scratch_file {
    scratch_file *next;
    pid_t owner; /* a child of the case leaves the files of its parent */
    char path[1024];
};

static const char *add_scratch(scratch_file **list, const char *name)
{
    scratch_file *s = malloc(sizeof *s);
    const char *root = getenv("TMPDIR");
    if (!s) abort();
    snprintf(s->path, sizeof s->path, "%s/hearth-test-%ld-%s", root ? root : "/tmp", (long)getpid(), name);
    s->next = *list, s->owner = getpid();
    return (*list = s)->path;
}

const char *test_scratch(const char *name) { return add_scratch(&case_scratch, name); }
const char *test_program_scratch(const char *name) { return add_scratch(&program_scratch, name); }

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) { return remove(path); }

static void remove_scratch(scratch_file **list)
{
    while (*list) {
        FREED scratch_file *s = *list;
        if (s->owner == getpid()) nftw(s->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        *list = s->next;
    }
}

char *test_read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *bytes = NULL;
    size_t used = 0, capacity = 0;
    for (;;) {
        if (used + 1 >= capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            char *more = realloc(bytes, capacity);
            if (!more) abort();
            bytes = more;
        }
        size_t got = fread(bytes + used, 1, capacity - used - 1, f);
        if (got == 0) break;
        used += got;
    }
    fclose(f);
    bytes[used] = '\0';
    if (n) *n = used;
    return bytes;
}

bool test_write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool ok = fwrite(data, 1, n, f) == n;
    return fclose(f) == 0 && ok;
}

uint64_t test_random_next(test_random *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint32_t test_random_below(test_random *r, uint32_t n)
{
    return (uint32_t)(((test_random_next(r) >> 32) * n) >> 32);
}

float test_random_float(test_random *r)
{
    return (float)(int64_t)(test_random_next(r) >> 40) * 0x1p-23f - 1.0f;
}
