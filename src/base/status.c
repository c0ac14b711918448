/* Errors as values. Called from everywhere. Nothing here allocates, so that running out of memory can be reported
 * too. */
#include "base/status.h"
#include "base/format_bytes.h"

#include <stdio.h>
#include <string.h>

const char *hearth_status_name(hearth_status status)
{
    switch (status) {
    case HEARTH_OK: return "ok";
    case HEARTH_ERROR_MEMORY: return "out of memory";
    case HEARTH_ERROR_IO: return "input or output failed";
    case HEARTH_ERROR_FORMAT: return "malformed";
    case HEARTH_ERROR_UNSUPPORTED: return "not supported";
    case HEARTH_ERROR_ARGUMENT: return "argument out of range";
    case HEARTH_ERROR_CONTEXT: return "context full";
    case HEARTH_ERROR_NUMERIC: return "value not finite";
    case HEARTH_ERROR_CANCELLED: return "cancelled";
    case HEARTH_ERROR_DEVICE: return "device failed";
    }
    return "unknown status";
}

#define HTH_STRING_(x) #x
#define HTH_STRING(x) HTH_STRING_(x)

const char *hearth_version(void)
{
    return HTH_STRING(HEARTH_VERSION_MAJOR) "." HTH_STRING(HEARTH_VERSION_MINOR) "." HTH_STRING(
        HEARTH_VERSION_PATCH);
}

/* Bytes above 0x7E are escaped only if keep_high is 0: error lines may quote paths in UTF-8, names from files are
 * shown byte by byte. */
static size_t escape_into(char *out, size_t n_out, const char *text, size_t n, int keep_high)
{
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        int plain = c >= 0x20 && (c < 0x7f || (keep_high && c >= 0x80));
        size_t need = plain ? 1 : 4;
        if (used + need + 4 > n_out) { /* space for "..." and the NUL */
            for (int dots = 0; dots < 3 && used + 1 < n_out; dots++) out[used++] = '.';
            break;
        }
        if (plain) {
            out[used++] = (char)c;
        } else {
            out[used++] = '\\';
            out[used++] = 'x';
            out[used++] = hex[c >> 4];
            out[used++] = hex[c & 15];
        }
    }
    if (n_out > 0) out[used] = '\0';
    return used;
}

char *hth_escape(char *out, size_t n_out, const char *text, size_t n)
{
    escape_into(out, n_out, text, n, 0);
    return out;
}

hearth_status hth_fail(hearth_error *err, hearth_status status, const char *format, ...)
{
    if (err) {
        char line[sizeof err->message];
        va_list args;
        va_start(args, format);
        int n = vsnprintf(line, sizeof line, format, args);
        va_end(args);
        size_t len = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
        *err = (hearth_error){.status = status};
        escape_into(err->message, sizeof err->message, line, len, 1);
    }
    return status;
}

hearth_status hth_fail_null(hearth_error *err, const char *name)
{
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is NULL", name);
}

hearth_status hth_fail_enum(hearth_error *err, const char *name, int value, int n)
{
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is %d; there are 0 to %d", name, value, n - 1);
}

hearth_status hth_returned(hearth_status status, const char *function, hearth_error *err)
{
    if (status == HEARTH_OK) return status;
    if ((unsigned)status > HEARTH_ERROR_DEVICE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s returned %d, which is no status", function,
                        (int)status);
    err->status = status;
    err->message[sizeof err->message - 1] = '\0';
    return err->message[0] ? status : hth_fail(err, status, "%s returned: %s", function, hearth_status_name(status));
}

hearth_status hth_fail_memory(hearth_error *err, size_t size, const char *what)
{
    return hth_fail(err, HEARTH_ERROR_MEMORY, "no memory: %s for %s", hth_format_bytes(size).text, what);
}

hearth_status hth_fail_cancelled(hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted: the evaluation was cancelled");
}
