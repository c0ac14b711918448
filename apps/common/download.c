/* Shows what hub_pull does. */
#include "common/download.h"

#include "common/output.h"

typedef struct shown {
    progress bar;
    char what[80];
    bool is_open;
} shown;

static void end(void *user)
{
    shown *s = user;
    if (s->is_open) progress_end(&s->bar);
    s->is_open = false;
}

static void begin(void *user, const char *what)
{
    shown *s = user;
    end(s);
    snprintf(s->what, sizeof s->what, "%s", what);
    progress_init(&s->bar, s->what, "MiB", 0x1p20);
    s->is_open = true;
}

static bool show(void *user, uint64_t done, uint64_t all)
{
    shown *s = user;
    if (all > 0 && s->is_open) progress_update(&s->bar, done, all);
    return !interrupted();
}

static void say(void *user, const char *line)
{
    (void)user;
    report_text("%s", line);
}

hearth_status download_model(const char *what, hub_pull_options options, hub_pulled *out, hearth_error *err)
{
    shown s = {.is_open = false};
    options.watch = (hub_watch){begin, show, end, say, &s};
    install_signal_handlers();
    hearth_status st = hub_pull(what, &options, out, err);
    end(&s);
    return st;
}
