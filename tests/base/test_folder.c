/* base/system/folder.h: folders are made with their parents, and what stands in the way is named. */
#include "base/system/folder.h"

#include "support/test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path, unsigned mode)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode) && (s.st_mode & 0777) == mode;
}

static const char *below(const char *base, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s%s", base, name);
    return path;
}

TEST(a_folder_is_made_once)
{
    const char *base = test_scratch("made");
    CHECK_OK(hth_folder_make(base, 0700, err));
    CHECK(is_folder(base, 0700));
    CHECK_OK(hth_folder_make(base, 0711, err));
    CHECK(is_folder(base, 0700)); /* what is there stays as it is */
}

TEST(parents_are_made_and_the_last_part_is_not)
{
    const char *base = test_scratch("parents");
    CHECK_OK(hth_folder_make_parents(below(base, "/a//b/file"), 0700, err));
    CHECK(is_folder(below(base, "/a/b"), 0700));
    CHECK(access(below(base, "/a/b/file"), F_OK) != 0);
    CHECK_OK(hth_folder_make_parents(below(base, "/a/c/"), 0700, err));
    CHECK(is_folder(below(base, "/a/c"), 0700));
    CHECK_OK(hth_folder_make_parents("/", 0700, err));
    CHECK_OK(hth_folder_make_parents("name", 0700, err));
    CHECK_OK(hth_folder_make_parents("", 0700, err));
}

TEST(what_is_in_the_way_is_named)
{
    hearth_error err;
    static char far_away[5000];
    const char *base = test_scratch("file");
    FILE *f = fopen(base, "w");
    CHECK(f && fclose(f) == 0);
    CHECK_INT(hth_folder_make(base, 0700, &err), HEARTH_ERROR_IO);
    CHECK_INT(errno, ENOTDIR);
    CHECK(strstr(err.message, base) && strstr(err.message, "cannot be made"));
    CHECK_INT(hth_folder_make_parents(below(base, "/a/b"), 0700, &err), HEARTH_ERROR_IO);
    CHECK_INT(hth_folder_make(below(base, "-missing/a"), 0700, &err), HEARTH_ERROR_IO);
    CHECK_INT(errno, ENOENT);
    memset(far_away, 'a', sizeof far_away - 1);
    CHECK_INT(hth_folder_make_parents(far_away, 0700, &err), HEARTH_ERROR_IO);
    CHECK(strstr(err.message, "too long") != NULL);
}
