/* What hth_gguf_read_uncached read leaves no page in the page cache. */
#include "file/gguf.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages of a file in the page cache. */
static size_t n_cached(int fd, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n_page = (size + page - 1) / page, n = 0;
    unsigned char *in = malloc(n_page);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (CHECK(map != MAP_FAILED) && CHECK(mincore(map, size, in) == 0))
        for (size_t i = 0; i < n_page; i++) n += in[i] & 1;
    if (map != MAP_FAILED) munmap(map, size);
    free(in);
    return n;
}

static void read_all(const hth_gguf *file)
{
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        FREED char *bytes = malloc((size_t)t->size);
        CHECK_OK(hth_gguf_read(file, t, 0, (size_t)t->size, bytes, err));
    }
}

TEST(what_is_read_uncached_does_not_stay_in_the_page_cache)
{
    size_t size;
    const char *path = test_scratch("cached.gguf"), *from = test_data("golden/files/tiny.gguf");
    FREED char *bytes = from ? test_read_file(from, &size) : NULL;
    if (!bytes || !CHECK(test_write_file(path, bytes, size))) return;
    CLOSED(hth_gguf) *file = NULL;
    CHECK_OK(hth_gguf_open(path, &file, err));
    if (!file) return;
    int fd = hth_gguf_part_fd(file, 0);
    fsync(fd); /* pages that are not written yet stay */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (n_cached(fd, size) > 0) {
        test_skip("the file system of %s keeps its pages", path);
        return;
    }
    read_all(file);
    CHECK(n_cached(fd, size) > 0);
    hth_gguf_read_uncached(file);
    CHECK_INT(n_cached(fd, size), 0);
    read_all(file);
    CHECK_INT(n_cached(fd, size), 0);
}
