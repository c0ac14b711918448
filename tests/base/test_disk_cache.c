/* base/disk_cache.h: what is kept comes back byte for byte, or not at all. */
#include "base/disk_cache.h"

#include "base/alloc.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/stat.h>

/* A cache directory of the test's own, below one that does not exist yet. */
static char folder[256];
static const char *base;

static void open_folder(void)
{
    base = test_scratch("cache");
    CHECK_INT(mkdir(base, 0700), 0);
    snprintf(folder, sizeof folder, "%s/a/b", base);
    setenv("HEARTH_CACHE", folder, 1);
}

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static bool is_kept(const char *name, uint64_t mark, const void *bytes, size_t n)
{
    size_t got;
    uint8_t *read = hth_diskcache_get(name, mark, &got);
    bool same = read && got == n && memcmp(read, bytes, n) == 0;
    hth_free(read);
    return same;
}

TEST(a_cached_entry_is_returned_for_its_key_only)
{
    open_folder();
    size_t n;
    CHECK(hth_diskcache_get("card", 1, &n) == NULL);
    CHECK(hth_diskcache_put("card", 1, "first", 5));
    CHECK(is_kept("card", 1, "first", 5));
    CHECK(hth_diskcache_get("card", 2, &n) == NULL);
    CHECK(hth_diskcache_put("card", 2, "the second", 10));
    CHECK(is_kept("card", 2, "the second", 10));
    CHECK(hth_diskcache_get("card", 1, &n) == NULL);
    CHECK(hth_diskcache_put("nothing", 0, NULL, 0));
    CHECK(is_kept("nothing", 0, "", 0));
    struct stat s;
    CHECK(stat(folder, &s) == 0 && (s.st_mode & 0777) == 0700);
}

TEST(damaged_files_are_as_if_not_there)
{
    open_folder();
    const char text[] = "some bytes that are kept";
    const size_t size = 32 + sizeof text;
    size_t n;
    for (size_t i = 0; i < size; i++) {
        CHECK(hth_diskcache_put("x", 7, text, sizeof text));
        FILE *f = fopen(path_of("x"), "r+b");
        fseek(f, (long)i, SEEK_SET);
        int c = fgetc(f);
        fseek(f, (long)i, SEEK_SET);
        fputc(c ^ 0x10, f);
        fclose(f);
        CHECK(hth_diskcache_get("x", 7, &n) == NULL);
    }
    for (size_t i = 0; i < size; i++) {
        CHECK(hth_diskcache_put("x", 7, text, sizeof text));
        CHECK(truncate(path_of("x"), (off_t)i) == 0);
        CHECK(hth_diskcache_get("x", 7, &n) == NULL);
    }
    CHECK(hth_diskcache_put("x", 7, text, sizeof text));
    CHECK(truncate(path_of("x"), (off_t)size + 1) == 0);
    CHECK(hth_diskcache_get("x", 7, &n) == NULL);
}

TEST(without_a_place_nothing_is_kept)
{
    size_t n;
    static const char *const places[] = {"", "/proc/hearth", "/dev/null/x"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        setenv("HEARTH_CACHE", places[i], 1);
        CHECK(!hth_diskcache_put("x", 1, "y", 1));
        CHECK(hth_diskcache_get("x", 1, &n) == NULL);
    }
    unsetenv("HEARTH_CACHE");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK(!hth_diskcache_put("x", 1, "y", 1));
    CHECK(hth_diskcache_get("x", 1, &n) == NULL);
}

TEST(a_folder_may_be_named_from_where_the_process_is)
{
    size_t n = 0;
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    open_folder();
    CHECK(here >= 0 && chdir(base) == 0);
    setenv("HEARTH_CACHE", "not/there", 1);
    CHECK(hth_diskcache_put("x", 1, "y", 1));
    uint8_t *kept = hth_diskcache_get("x", 1, &n);
    CHECK(kept && n == 1 && *kept == 'y' && access("not/there/x", R_OK) == 0);
    hth_free(kept);
    CHECK(fchdir(here) == 0);
    close(here);
}

TEST(the_usual_places_are_found)
{
    open_folder();
    unsetenv("HEARTH_CACHE");
    setenv("XDG_CACHE_HOME", base, 1);
    CHECK(hth_diskcache_put("x", 1, "y", 1));
    snprintf(folder, sizeof folder, "%s/hearth", base);
    CHECK(access(path_of("x"), R_OK) == 0);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", base, 1);
    CHECK(hth_diskcache_put("x", 1, "y", 1));
    snprintf(folder, sizeof folder, "%s/.cache/hearth", base);
    CHECK(access(path_of("x"), R_OK) == 0);
}

TEST(names_that_lead_elsewhere_are_refused)
{
    open_folder();
    size_t n;
    char longest[HTH_DISKCACHE_NAME + 2];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *const names[] = {"", "..", ".part-x", "a/b", "a b", longest};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(!hth_diskcache_put(names[i], 1, "y", 1));
        CHECK(hth_diskcache_get(names[i], 1, &n) == NULL);
    }
    CHECK(hth_diskcache_put(longest + 1, 1, "y", 1));
}
