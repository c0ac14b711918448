/* The switches and defaults of the environment: names, and what their values mean; what models hold in their place. */
#include "base/switches.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *off, *on;
} switches[HTH_N_SWITCH] = {
    [HTH_SWITCH_PIN] = {"HEARTH_PIN", "threads may move", "each stays on a core"},
    [HTH_SWITCH_HUGE_PAGES] = {"HEARTH_HUGE_PAGES", "memory on ordinary pages", "on huge pages"},
};

/* The settings in force; has_cache, cache: hth_settings.cache. Each allocation reads no_huge_pages. */
static struct {
    pthread_mutex_t lock;
    uint32_t n_holder;
    atomic_bool no_huge_pages;
    bool has_cache;
    char cache[HTH_SETTINGS_PATH];
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_held_cache(const char *cache)
{
    return cache ? held.has_cache && strcmp(held.cache, cache) == 0 : !held.has_cache;
}

/* With the lock. */
static const char *shown(const char *cache) { return !cache ? "NULL" : *cache ? cache : "\"\""; }

static hearth_status check_settings(const hth_settings *s, hearth_error *err)
{
    if (s->cache && strlen(s->cache) >= sizeof held.cache)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "hearth_model_options.cache has %zu bytes; a path has less than %zu",
                        strlen(s->cache), sizeof held.cache);
    if (held.n_holder == 0) return HEARTH_OK;
    if (s->no_huge_pages != held.no_huge_pages)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "hearth_model_options.no_huge_pages is %s, but another model of this process is in use and has %s: "
                        "the value is one for all",
                        s->no_huge_pages ? "true" : "false", held.no_huge_pages ? "true" : "false");
    if (is_held_cache(s->cache)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "hearth_model_options.cache is %.200s, but another model of this process is in use and has %.200s: the "
                    "folder is one for all",
                    shown(s->cache), shown(held.has_cache ? held.cache : NULL));
}

hearth_status hth_settings_hold(const hth_settings *s, hearth_error *err)
{
    pthread_mutex_lock(&held.lock);
    hearth_status st = check_settings(s, err);
    if (st == HEARTH_OK && held.n_holder++ == 0) {
        held.no_huge_pages = s->no_huge_pages;
        held.has_cache = s->cache != NULL;
        snprintf(held.cache, sizeof held.cache, "%s", s->cache ? s->cache : "");
    }
    pthread_mutex_unlock(&held.lock);
    return st;
}

void hth_settings_release(void)
{
    pthread_mutex_lock(&held.lock);
    if (--held.n_holder == 0) held.no_huge_pages = held.has_cache = false;
    pthread_mutex_unlock(&held.lock);
}

bool hth_settings_cache(char out[HTH_SETTINGS_PATH])
{
    const char *variable = getenv("HEARTH_CACHE");
    pthread_mutex_lock(&held.lock);
    const char *path = held.has_cache ? held.cache : variable;
    if (path && strlen(path) >= HTH_SETTINGS_PATH) path = ""; /* no system takes it */
    if (path) snprintf(out, HTH_SETTINGS_PATH, "%s", path);
    pthread_mutex_unlock(&held.lock);
    return path != NULL;
}

bool hth_switch_is_on(hth_switch which)
{
    if (which == HTH_SWITCH_HUGE_PAGES && atomic_load_explicit(&held.no_huge_pages, memory_order_relaxed)) return false;
    const char *value = getenv(switches[which].name);
    return !value || strcmp(value, "0") != 0;
}

hearth_status hth_switches_check(hearth_error *err)
{
    for (int i = 0; i < HTH_N_SWITCH; i++) {
        const char *value = getenv(switches[i].name);
        if (!value || !*value || strcmp(value, "0") == 0 || strcmp(value, "1") == 0) continue;
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s=%s: no such value; known: 0 (%s), 1 (%s)", switches[i].name, value,
                        switches[i].off, switches[i].on);
    }
    return HEARTH_OK;
}

const char *hth_default_io(void)
{
    const char *value = getenv("HEARTH_IO");
    return value && *value ? value : NULL;
}
