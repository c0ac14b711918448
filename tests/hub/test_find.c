/* hub/find.c: where models are searched; the folders that are opened are seen through libc's opendir. */
#include "hub/hub.h"
#include "support/test.h"

#include <dirent.h>

static const char *watched;
static bool was_opened;

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    was_opened |= strcmp(path, watched) == 0;
    return __real_opendir(path);
}

static bool searches(const char *folder)
{
    CLEANUP(hub_free_models) hub_models models;
    watched = folder, was_opened = false;
    CHECK_OK(hub_find_models(&models, err));
    return was_opened;
}

TEST(models_of_ollama_are_where_its_variable_says_or_where_it_puts_them)
{
    static const char service[] = "/usr/share/ollama/.ollama/models/manifests";
    char own[1100], home[1100];
    snprintf(home, sizeof home, "%s/.ollama/models/manifests", test_scratch("home"));
    snprintf(own, sizeof own, "%s/manifests", test_scratch("own"));
    setenv("HOME", test_scratch("home"), 1);
    unsetenv("OLLAMA_MODELS");
    CHECK(searches(home));
    CHECK(searches(service));
    setenv("OLLAMA_MODELS", test_scratch("own"), 1);
    CHECK(searches(own));
    CHECK(!searches(home) && !searches(service));
}
