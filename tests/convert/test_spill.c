/* Streams that do not fit into memory: what is put comes back from a file without a name, reads and writes
 * that fail end in an error of the call, short and interrupted ones do not show, and predictors that lose
 * their file leave none of their own. */
#include "convert/spill.h"
#include "base/alloc.h"
#include "convert/predictors.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

/* ---- what the system answers --------------------------------------------------------------------- */

typedef enum answer { FAILS, INTERRUPTED, SHORT, NOTHING } answer;

static struct {
    uint64_t n, at; /* calls since it was set; the one that is answered otherwise */
    answer how;
} reads, writes;

ssize_t __real_pread(int fd, void *to, size_t size, off_t at);
ssize_t __real_pwrite(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at)
{
    if (++reads.n != reads.at) return __real_pread(fd, to, size, at);
    if (reads.how == NOTHING) return 0;
    if (reads.how == SHORT) return __real_pread(fd, to, (size + 1) / 2, at);
    errno = reads.how == FAILS ? ENODEV : EINTR; /* a failure that a model does not try again */
    return -1;
}

ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at)
{
    if (++writes.n != writes.at) return __real_pwrite(fd, from, size, at);
    if (writes.how == NOTHING) return 0;
    if (writes.how == SHORT) return __real_pwrite(fd, from, (size + 1) / 2, at);
    errno = writes.how == FAILS ? ENOSPC : EINTR;
    return -1;
}

static void fail_read(uint64_t at, answer how) { reads.n = 0, reads.at = at, reads.how = how; }
static void fail_write(uint64_t at, answer how) { writes.n = 0, writes.at = at, writes.how = how; }

/* ---- streams --------------------------------------------------------------------------------------- */

enum { N_STREAM = 3, STREAM_SIZE = 1000, PIECE = 100 };

static unsigned char byte_of(uint32_t i_stream, uint64_t at) { return (unsigned char)(i_stream * 71 + at * 13); }

static hearth_status fill(hth_spill *s, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint64_t at = 0; st == HEARTH_OK && at < STREAM_SIZE; at += PIECE)
        for (uint32_t i = 0; st == HEARTH_OK && i < N_STREAM; i++) {
            unsigned char bytes[PIECE];
            for (uint64_t k = 0; k < PIECE; k++) bytes[k] = byte_of(i, at + k);
            st = hth_spill_put(s, i, at, bytes, PIECE, err);
        }
    return st;
}

static bool holds_all(const hth_spill *s)
{
    bool same = true;
    for (uint32_t i = 0; i < N_STREAM; i++) {
        unsigned char bytes[STREAM_SIZE];
        CHECK_OK(hth_spill_get(s, i, 0, bytes, STREAM_SIZE, err));
        for (uint64_t at = 0; at < STREAM_SIZE; at++) same = same && bytes[at] == byte_of(i, at);
    }
    return same;
}

/* A folder of its own, so that whatever is left in it shows. */
static const char *make_folder(void)
{
    static char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_scratch("spill"));
    CHECK(mkdir(folder, 0700) == 0 || errno == EEXIST);
    return folder;
}

static const char *in_folder(const char *folder)
{
    static char path[1100];
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    return path;
}

static size_t n_file_in(const char *folder)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) closedir(d);
    return n;
}

TEST(streams_come_back_from_memory_and_from_a_file_without_a_name)
{
    const char *folder = make_folder();
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        uint64_t held = hth_alloc_in_use();
        fail_write(0, FAILS);
        hth_spill *s =
            OPENED(hth_spill, N_STREAM, STREAM_SIZE, in_memory ? N_STREAM * STREAM_SIZE : 100, in_folder(folder));
        CHECK_OK(fill(s, err));
        CHECK(holds_all(s));
        CHECK_INT(writes.n, in_memory ? 0 : N_STREAM * STREAM_SIZE / PIECE);
        CHECK_INT(n_file_in(folder), 0);
        hth_spill_close(s);
        CHECK_INT(hth_alloc_in_use(), held);
    }
}

TEST(a_file_replaces_memory_that_cannot_be_allocated)
{
    const char *folder = make_folder();
    hth_alloc_fail_at(2, 0); /* after the object itself */
    CLOSED(hth_spill) *s = OPENED(hth_spill, N_STREAM, STREAM_SIZE, UINT64_MAX, in_folder(folder));
    hth_alloc_fail_at(0, 0);
    fail_write(0, FAILS);
    CHECK_OK(fill(s, err));
    CHECK(holds_all(s) && writes.n > 0);
}

TEST(a_folder_that_is_not_there_is_named)
{
    hth_spill *s = NULL;
    hearth_error why = {0};
    CHECK_INT(hth_spill_open(1, 10, 0, "/no/such/folder/out", &s, &why), HEARTH_ERROR_IO);
    CHECK(s == NULL && strstr(why.message, "/no/such/folder/out: cannot keep") == why.message);
}

TEST(short_and_interrupted_answers_do_not_show)
{
    const char *folder = make_folder();
    for (int how = INTERRUPTED; how <= SHORT; how++)
        for (uint64_t n = 1; n <= N_STREAM * STREAM_SIZE / PIECE; n++) {
            CLOSED(hth_spill) *s = OPENED(hth_spill, N_STREAM, STREAM_SIZE, 0, in_folder(folder));
            fail_write(n, (answer)how);
            CHECK_OK(fill(s, err));
            fail_read(1 + n % N_STREAM, (answer)how);
            CHECK(holds_all(s));
        }
    fail_write(0, FAILS);
    fail_read(0, FAILS);
}

TEST(answers_that_fail_are_errors_of_the_call)
{
    const char *folder = make_folder();
    unsigned char bytes[PIECE] = {0};
    for (int how = 0; how < 2; how++) {
        CLOSED(hth_spill) *s = OPENED(hth_spill, N_STREAM, STREAM_SIZE, 0, in_folder(folder));
        fail_write(5, how ? NOTHING : FAILS);
        CHECK_FAILS(fill(s, err), HEARTH_ERROR_IO, "out.gguf: cannot write what is kept of the text");
        fail_write(0, FAILS);
        CHECK_OK(fill(s, err));
        fail_read(1, how ? NOTHING : FAILS);
        CHECK_FAILS(hth_spill_get(s, 1, 7, bytes, PIECE, err), HEARTH_ERROR_IO,
                    "out.gguf: cannot read what is kept of the text");
        fail_read(0, FAILS);
        CHECK(holds_all(s));
    }
}

/* ---- predictors ---------------------------------------------------------------------------------------- */

static char model_path[1024], folder_path[1024];

static hearth_status make_predictors(hearth_error *err)
{
    hth_predictor_options o = hth_predictor_defaults();
    hth_predictor_result *layers = NULL;
    uint32_t n_layer = 0;
    o.n_token = 16, o.n_step = 1, o.n_thread = 1, o.memory = 0;
    hearth_status st = hth_predictors_make(model_path, "abc ca b abc bc a abc ab c abc ", 31,
                                           in_folder(folder_path), 8, &o, &layers, &n_layer, err);
    hearth_free(layers);
    return st;
}

/* Every n-th answer fails until the task succeeds in spite of it: after each nothing is kept and nothing lies in
 * the folder. Returns how many failed. */
static uint64_t survive(void (*fail)(uint64_t, answer), answer how)
{
    uint64_t held = hth_alloc_in_use(), n = 1;
    for (; n < 5000; n++) {
        hearth_error why = {0};
        fail(n, how);
        hearth_status st = make_predictors(&why);
        fail(0, how);
        if (!CHECK_INT(hth_alloc_in_use(), held) || st == HEARTH_OK) break;
        if (st != HEARTH_ERROR_IO || why.status != st || !why.message[0] || n_file_in(folder_path) != 0)
            test_fail(__FILE__, __LINE__, "answer %llu: '%s', '%s', %zu files", (unsigned long long)n,
                      hearth_status_name(st), why.message, n_file_in(folder_path));
    }
    CHECK_INT(n_file_in(folder_path), 1);
    remove(in_folder(folder_path));
    return n - 1;
}

TEST(predictors_survive_every_answer_of_their_file_that_fails)
{
    snprintf(model_path, sizeof model_path, "%s", test_scratch("model.gguf"));
    snprintf(folder_path, sizeof folder_path, "%s", make_folder());
    tiny_model m = tiny_new();
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    tiny_save(&m, model_path);
    uint64_t n_write = survive(fail_write, FAILS), n_empty = survive(fail_write, NOTHING);
    uint64_t n_read = survive(fail_read, FAILS);
    printf("     %llu writes and %llu reads, each failed\n", (unsigned long long)n_write, (unsigned long long)n_read);
    /* Inputs and active sets of each token and layer; reads are those of the model too. */
    CHECK_INT(n_write, 2 * 16 * TINY_LAYERS);
    CHECK_INT(n_empty, n_write);
    CHECK(n_read > 2 * TINY_LAYERS + 20);
}
