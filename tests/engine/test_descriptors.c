/* Models that are opened by descriptors: one file or several in any order, in memory, mapped and from storage, with the
 * results of their paths; the caller's descriptors stay as they are. What is no file of a model is refused by name. */
#include "engine/engine.h"
#include "support/engine.h"
#include "support/faults.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { N_PART = 3, N_ID = 6 };
static const int32_t ids[N_ID] = {1, 60, 70, 80, 90, 100};
static char parts[N_PART][200]; /* NAME-00001-of-00003.gguf and so on */
static int fds[N_PART];

static void write_part(int i)
{
    char name[60];
    tiny_model t = tiny_new();
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", i + 1, N_PART);
    snprintf(parts[i], sizeof parts[i], "%s", test_scratch(name));
    for (uint32_t k = 0; k < t.n_tensor; k++) t.tensors[k].gone = k % N_PART != (uint32_t)i;
    tiny_set(&t, "split.no", 2, (uint64_t)i, 2);
    tiny_set(&t, "split.count", 2, N_PART, 2);
    tiny_set(&t, "split.tensors.count", 5, t.n_tensor, 4);
    tiny_save(&t, parts[i]);
    fds[i] = open(parts[i], O_RDONLY | O_CLOEXEC);
}

static bool open_parts(void)
{
    for (int i = 0; i < N_PART; i++) write_part(i);
    return CHECK(fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0);
}

static void close_parts(void)
{
    for (int i = 0; i < N_PART; i++) close(fds[i]);
}

__attribute__((constructor)) static void set_fixture(void)
{
    test_before_each = open_parts, test_after_each = close_parts;
}

static int n_open(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n;
}

/* Logits of the last token. */
static float *logits_of(const hearth_model *m)
{
    return m ? engine_last_logits(m, &(engine_setting){.n_thread = 1}, ids, N_ID) : NULL;
}

static void check_same_logits(const hearth_model *m, const hearth_model *other)
{
    FREED float *a = logits_of(m), *b = logits_of(other);
    if (CHECK(a && b)) CHECK_BYTES(a, b, TINY_VOCAB * sizeof(float));
}

TEST(parts_are_taken_in_any_order)
{
    static const int orders[][N_PART] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    CLOSED(hearth_model) *by_path = OPENED(hearth_model, parts[0], NULL);
    for (int i = 0; i < 3; i++) {
        int given[N_PART];
        for (int k = 0; k < N_PART; k++) given[k] = fds[orders[i][k]];
        CLOSED(hearth_model) *m =
            OPENED_BY(hearth_model_open_descriptors, hearth_model, given, N_PART, "the model", NULL);
        if (!m) continue;
        CHECK_TEXT(test_model_info(m).path, "the model");
        check_same_logits(m, by_path);
    }
}

/* A file has one position for all of its descriptors that were duplicated. */
TEST(descriptors_stay_the_callers)
{
    const int before = n_open();
    for (int i = 0; i < N_PART; i++) CHECK_INT(lseek(fds[i], 1000 + i, SEEK_SET), 1000 + i);
    hearth_model *m = OPENED_BY(hearth_model_open_descriptors, hearth_model, fds, N_PART, "m", NULL);
    for (int i = 0; i < N_PART; i++) CHECK_INT(lseek(fds[i], 0, SEEK_CUR), 1000 + i);
    CHECK_INT(n_open(), before + N_PART);
    close_parts();
    CLOSED(hearth_model) *by_path = OPENED(hearth_model, parts[1], NULL);
    check_same_logits(m, by_path);
    hearth_model_close(m);
    for (int i = 0; i < N_PART; i++) fds[i] = open(parts[i], O_RDONLY | O_CLOEXEC);
}

TEST(files_are_mapped)
{
    CLOSED(hearth_model) *by_path = OPENED(hearth_model, parts[0], NULL);
    CLOSED(hearth_model) *mapped = OPENED_BY(hearth_model_open_descriptors, hearth_model, fds, N_PART, "m",
                                             &(hearth_model_options){.mmap = true});
    if (mapped) CHECK(test_model_info(mapped).mapped);
    check_same_logits(mapped, by_path);
}

/* From storage, which opens the file again without the page cache. */
static const char *const ways[] = {"pread", "auto"};

/* With little memory beyond the least, so that a part stays in the file. */
static hearth_model *open_streamed(const char *io, int fd)
{
    const hearth_model_options o = {.io = io, .n_thread = 1, .ram = 1, .gpu = {.n_ctx = 64}};
    hth_engine_set_store_memory(4096);
    hearth_model *m = OPENED_BY(hearth_model_open_descriptors, hearth_model, &fd, 1, "m", &o);
    hth_engine_set_store_memory(UINT64_MAX);
    return m;
}

TEST(weights_stay_in_storage)
{
    const char *path = test_scratch("experts.gguf");
    tiny_model t = tiny_new();
    tiny_become(&t, "qwen3moe");
    tiny_save(&t, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    CLOSED(hearth_model) *by_path = OPENED(hearth_model, path, NULL);
    for (size_t i = 0; i < 2; i++) {
        CLOSED(hearth_model) *m = open_streamed(ways[i], fd);
        if (!m) continue;
        CHECK(test_model_info(m).reader && test_model_info(m).n_streamed > 0);
        check_same_logits(m, by_path);
    }
    close(fd);
}

TEST(files_in_memory_are_files)
{
    tiny_model t = tiny_new();
    CLEANUP(gguf_free) gguf_bytes b = tiny_take(&t);
    const int fd = memfd_create("model", MFD_CLOEXEC);
    CHECK_INT(write(fd, b.data, b.n), b.n);
    CLOSED(hearth_model) *m = OPENED_BY(hearth_model_open_descriptors, hearth_model, &fd, 1, "m", NULL);
    CLOSED(hearth_model) *other = OPENED_BY(hearth_model_open_memory, hearth_model, b.data, b.n, "m", NULL);
    check_same_logits(m, other);
    close(fd);
}

/* ---- mistakes ---------------------------------------------------------------------------------------------- */

static void check_refused(const int *given, size_t n, const char *words)
{
    hearth_model *m = NULL;
    const int before = n_open();
    CHECK_FAILS(hearth_model_open_descriptors(given, n, "m", NULL, &m, err), HEARTH_ERROR_ARGUMENT, words);
    CHECK(!m);
    CHECK_INT(n_open(), before);
}

TEST(what_is_no_open_file_is_refused)
{
    int pipes[2], sockets[2];
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    const int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
              null = open("/dev/null", O_RDONLY | O_CLOEXEC), written = open(parts[0], O_WRONLY | O_CLOEXEC),
              path = open(parts[0], O_PATH | O_CLOEXEC), closed = dup(folder);
    close(closed);
    const struct {
        int fd;
        const char *words;
    } wrong[] = {{-1, "m (fds[0]): descriptor -1 is not open"},
                 {closed, "is not open"},
                 {INT32_MAX, "is not open"},
                 {folder, "m (fds[0]): is a folder|a regular file"},
                 {pipes[0], "is a pipe"},
                 {sockets[0], "is a socket"},
                 {null, "is a character device"},
                 {written, "is not open for reading"},
                 {path, "is not open for reading"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check_refused(&wrong[i].fd, 1, wrong[i].words);
        if (i == 0) check_refused((int[]){fds[0], fds[1], -1}, 3, "m (fds[2]): descriptor -1 is not open");
    }
    const int all[] = {folder, null, written, path, pipes[0], pipes[1], sockets[0], sockets[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) close(all[i]);
}

TEST(parts_are_given_once_each)
{
    const int other = open(parts[1], O_RDONLY | O_CLOEXEC);
    check_refused(fds, 1, "m (fds[0]): is one of 3 files|n_fd is 1");
    check_refused(fds, 2, "n_fd is 2");
    check_refused((int[]){fds[0], fds[1], fds[0]}, 3, "m (fds[2]): is part 1 of 3, as fds[0] is");
    check_refused((int[]){fds[0], fds[1], other}, 3, "m (fds[2]): is part 2 of 3, as fds[1] is");
    check_refused((int[]){fds[0], fds[1], fds[2], other}, 4, "is one of 3 files|n_fd is 4");
    check_refused(fds, 0, "n_fd is 0");
    check_refused(fds, 100000, "n_fd is 100000");
    close(other);
}

/* A second part that says something else of itself. */
static void check_other_refused(const char *key, uint32_t type, uint64_t value, size_t size, const char *words)
{
    tiny_model t = tiny_new();
    const char *path = test_scratch("other.gguf");
    hearth_model *m = NULL;
    for (uint32_t k = 0; k < t.n_tensor; k++) t.tensors[k].gone = k % N_PART != 1;
    tiny_set(&t, "split.no", 2, 1, 2);
    tiny_set(&t, "split.count", 2, N_PART, 2);
    tiny_set(&t, key, type, value, size);
    tiny_save(&t, path);
    const int other = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_FAILS(
        hearth_model_open_descriptors((int[]){fds[0], other, fds[2]}, N_PART, "m", NULL, &m, err),
        HEARTH_ERROR_FORMAT, words);
    CHECK(!m);
    close(other);
}

TEST(parts_of_other_models_are_refused)
{
    check_other_refused("llama.context_length", 4, 99, 4, "m (fds[1]): key 'llama.context_length'|not of one model");
    check_other_refused("split.no", 2, 3, 2, "m (fds[1]): split.no is 3, but split.count is 3");
    check_other_refused("split.tensors.count", 5, 3, 4, "m (fds[1]): split.tensors.count is 3, but the 3 parts have");
}

/* ---- faults ------------------------------------------------------------------------------------------------ */

static hearth_status open_and_close(const fault_paths *p, hearth_error *err)
{
    hearth_model *m = NULL;
    hearth_status st = hearth_model_open_descriptors((int[]){fds[2], fds[0], fds[1]}, N_PART, "m",
                                                     &(hearth_model_options){.n_thread = 1}, &m, err);
    CHECK((m != NULL) == (st == HEARTH_OK));
    hearth_model_close(m);
    return st;
}

TEST(each_failure_is_an_error)
{
    const int before = n_open();
    fault_survive("descriptors", open_and_close, 60, 6, 0);
    CHECK_INT(n_open(), before);
}
