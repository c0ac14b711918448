/* The log callback: together with the CPU table the only global state. */
#include "base/log.h"

#include "base/fp_state.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static hearth_log_fn *log_fn;
static void *log_user;

void hearth_log_set(hearth_log_fn *fn, void *user)
{
    log_fn = fn;
    log_user = user;
}

void hth_log(hearth_log_level level, const char *format, ...)
{
    if (!log_fn) return;
    char line[600], shown[800];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    HTH_FP_CALLBACK;
    log_fn(log_user, level, hth_escape(shown, sizeof shown, line, strlen(line)));
}
