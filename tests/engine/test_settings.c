/* What only the environment had: the level of the kernels is a model's own; huge pages and the folder of the disk cache
 * are one for the process, so that a second model with other values is refused as long as the first is in use. */
#include "base/disk_cache.h"
#include "base/switches.h"
#include "support/engine.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <sys/stat.h>

static gguf_bytes file;

static bool make_file(void)
{
    tiny_model m = tiny_new();
    file = tiny_take(&m);
    unsetenv("HEARTH_CPU");
    setenv("HEARTH_CACHE", test_scratch("of-the-environment"), 1);
    return true;
}

static void free_file(void)
{
    gguf_free(&file);
    unsetenv("HEARTH_CPU");
    unsetenv("HEARTH_CACHE");
}

__attribute__((constructor)) static void set_fixture(void)
{
    test_before_each = make_file, test_after_each = free_file;
}

static hearth_model *open_with(hearth_model_options o)
{
    o.n_thread = 1;
    return OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, "tiny.gguf", &o);
}

static void check_refused(hearth_model_options o, const char *words)
{
    hearth_model *m = NULL;
    CHECK_FAILS(hearth_model_open_memory(file.data, file.n, "tiny.gguf", &o, &m, err), HEARTH_ERROR_ARGUMENT,
                words);
    CHECK(!m);
}

/* ---- the level of the kernels ------------------------------------------------------------------------------ */

TEST(a_model_names_its_level)
{
    static const int32_t ids[] = {1, 60, 70, 80};
    const engine_setting one = {.n_thread = 1};
    FREED float *first = NULL;
    size_t n = 0;
    setenv("HEARTH_CPU", "generic", 1);
    for (const char *name; (name = hearth_cpu_level(n)); n++) {
        CLOSED(hearth_model) *m = open_with((hearth_model_options){.cpu = name});
        if (!m) continue;
        CHECK_TEXT(test_model_info(m).cpu, name); /* whatever the environment says */
        FREED float *logits = engine_last_logits(m, &one, ids, 4);
        if (!first) first = logits, logits = NULL;
        else if (CHECK(logits != NULL)) CHECK_BYTES(logits, first, TINY_VOCAB * sizeof(float));
    }
    CHECK(n > 0);
    CHECK_TEXT(hearth_cpu_level(n - 1), "generic");
    CHECK(!hearth_cpu_level(n + 1));
    CLOSED(hearth_model) *by_environment = open_with((hearth_model_options){0});
    CHECK_TEXT(test_model_info(by_environment).cpu, "generic");
    unsetenv("HEARTH_CPU");
    CLOSED(hearth_model) *best = open_with((hearth_model_options){0});
    CHECK_TEXT(test_model_info(best).cpu, hearth_cpu_level(0));
}

TEST(levels_that_the_machine_lacks_are_refused)
{
    static const char *const all[] = {"generic", "avx2", "avx512", "neon", "dotprod", "i8mm"};
    size_t n_refused = 0;
    for (int i = 0; i < 6; i++) {
        bool is_there = false;
        const char *name;
        for (size_t k = 0; (name = hearth_cpu_level(k)); k++) is_there |= strcmp(name, all[i]) == 0;
        char words[80];
        snprintf(words, sizeof words, "hearth_model_options.cpu is %s: this machine has %s", all[i],
                 hearth_cpu_level(0));
        if (!is_there) check_refused((hearth_model_options){.cpu = all[i]}, words), n_refused++;
    }
    CHECK(n_refused >= 3); /* those of other processors */
    check_refused((hearth_model_options){.cpu = "AVX2"}, "no such level; known: generic, avx2");
}

/* ---- the folder of the cache ------------------------------------------------------------------------------- */

/* Whether the disk cache writes there. */
static bool is_cache(const char *folder)
{
    char path[300];
    struct stat s;
    snprintf(path, sizeof path, "%s/entry", folder);
    unlink(path);
    return hth_diskcache_put("entry", 1, "x", 1) && stat(path, &s) == 0;
}

TEST(a_model_names_the_folder_of_the_cache)
{
    char folder[200], environment[200];
    snprintf(folder, sizeof folder, "%s", test_scratch("of-the-model"));
    snprintf(environment, sizeof environment, "%s", test_scratch("of-the-environment"));
    CHECK(is_cache(environment));
    hearth_model *m = open_with((hearth_model_options){.cache = folder});
    CHECK(is_cache(folder) && !is_cache(environment));
    hearth_session *s = OPENED(hearth_session, m, NULL);
    hearth_model_close(m);
    CHECK(is_cache(folder)); /* the session still uses the model */
    hearth_session_close(s);
    CHECK(is_cache(environment));
    m = open_with((hearth_model_options){.cache = ""});
    CHECK(!hth_diskcache_put("entry", 1, "x", 1));
    hearth_model_close(m);
    m = open_with((hearth_model_options){0});
    CHECK(is_cache(environment));
    hearth_model_close(m);
}

TEST(the_folder_is_one_for_the_process)
{
    char folder[200], copy[200];
    snprintf(folder, sizeof folder, "%s", test_scratch("of-the-model"));
    memcpy(copy, folder, sizeof copy);
    hearth_model *m = open_with((hearth_model_options){.cache = folder});
    memset(folder, 'x', 5); /* it was copied */
    CLOSED(hearth_model) *same = open_with((hearth_model_options){.cache = copy});
    CHECK(is_cache(copy));
    check_refused((hearth_model_options){.cache = "elsewhere"},
                  "hearth_model_options.cache is elsewhere|another model|of-the-model");
    check_refused((hearth_model_options){.cache = ""}, "hearth_model_options.cache is |of-the-model");
    check_refused((hearth_model_options){0}, "hearth_model_options.cache is NULL|of-the-model");
    hearth_model_close(m);
    check_refused((hearth_model_options){0}, "hearth_model_options.cache is NULL");
    hearth_model_close(same);
    same = open_with((hearth_model_options){0});
    check_refused((hearth_model_options){.cache = copy}, "has NULL");
}

TEST(models_that_are_not_opened_hold_nothing)
{
    hearth_model *m = NULL;
    const hearth_model_options o = {.cache = "elsewhere", .no_huge_pages = true, .activation = "none"},
                               bad_level = {.cache = "elsewhere", .cpu = "none"};
    CHECK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", &o, &m, NULL) != HEARTH_OK);
    check_refused(bad_level, "cpu is none");
    CLOSED(hearth_model) *other = open_with((hearth_model_options){0});
    CHECK(other && hth_switch_is_on(HTH_SWITCH_HUGE_PAGES));
    /* Nor does one that was refused for that reason give up what others hold. */
    check_refused((hearth_model_options){.cache = "elsewhere"}, "one for all");
    check_refused((hearth_model_options){.cache = "elsewhere"}, "one for all");
}

TEST(paths_have_a_length)
{
    static char path[5000];
    memset(path, 'p', sizeof path - 1);
    check_refused((hearth_model_options){.cache = path}, "hearth_model_options.cache has 4999 bytes");
    setenv("HEARTH_CACHE", path, 1);
    CHECK(!hth_diskcache_put("entry", 1, "x", 1));
}

/* ---- huge pages -------------------------------------------------------------------------------------------- */

TEST(a_model_turns_huge_pages_off)
{
    CHECK(hth_switch_is_on(HTH_SWITCH_HUGE_PAGES));
    hearth_model *m = open_with((hearth_model_options){.no_huge_pages = true});
    CHECK(!hth_switch_is_on(HTH_SWITCH_HUGE_PAGES) && hth_switch_is_on(HTH_SWITCH_PIN));
    check_refused((hearth_model_options){0},
                  "hearth_model_options.no_huge_pages is false|another model|has true");
    CLOSED(hearth_model) *same = open_with((hearth_model_options){.no_huge_pages = true, .vocab_only = true});
    hearth_model_close(m);
    CHECK(!hth_switch_is_on(HTH_SWITCH_HUGE_PAGES));
    hearth_model_close(same);
    same = NULL;
    CHECK(hth_switch_is_on(HTH_SWITCH_HUGE_PAGES));
}
