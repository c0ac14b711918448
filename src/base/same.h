/* Whether two paths name the same file. */
#ifndef HTH_BASE_SAME_H
#define HTH_BASE_SAME_H

#include <stdbool.h>
#include <sys/stat.h>

static inline bool hth_same_stat(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Follows links. False if one of the files does not exist. */
static inline bool hth_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && hth_same_stat(&x, &y);
}

#endif
