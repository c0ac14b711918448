/* Reads the folder of seeds and hands each file to a fuzz target; see corpus.h. */
#include "support/models/corpus.h"

#include "support/test.h"

#include <dirent.h>

static bool replay_file(const char *path, corpus_target *target)
{
    size_t n = 0;
    char *bytes = test_read_file(path, &n);
    if (!bytes) return false;
    FREED uint8_t *exact = malloc(n ? n : 1); /* without the NUL that test_read_file puts behind */
    if (n > 0) memcpy(exact, bytes, n);
    free(bytes);
    target(exact, n);
    return true;
}

int corpus_replay(const char *name, corpus_target *target)
{
    char folder[1024], path[1400];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", HEARTH_SOURCE_DIR, name);
    DIR *d = opendir(folder);
    if (!d) {
        test_fail(__FILE__, __LINE__, "no folder %s", folder);
        return 0;
    }
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (replay_file(path, target)) n++;
        else test_fail(__FILE__, __LINE__, "%s cannot be read", path);
    }
    closedir(d);
    return n;
}
