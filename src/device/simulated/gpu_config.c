/* GPU descriptions: lines of `key = value`; # starts a comment. Every key but those of is_optional is required,
 * only budget_bytes_at and fault may repeat, and each value is range-checked. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "base/format_errno.h"
#include "device/simulated/simulated_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 65536, MAX_DIGITS = 15 };

typedef struct reader {
    const char *path;
    hth_sim_gpu *gpu;
    uint32_t seen; /* bit mask of keys */
    unsigned line;
    hearth_error *err;
} reader;

/* Part of a line. */
typedef struct span {
    const char *at;
    size_t n;
} span;

/* ---- numbers ------------------------------------------------------------------------------------ */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* digits[.digits][e digits]: at most as many digits as a double holds, so that every machine parses the same
 * value. */
static bool read_number(span p, double *value)
{
    size_t i = 0, n_digit = 0, behind = 0, exponent = 0;
    bool point = false;
    double v = 0.0;
    for (; i < p.n && (is_digit(p.at[i]) || (p.at[i] == '.' && !point)); i++) {
        if (p.at[i] == '.') {
            point = true;
            continue;
        }
        v = v * 10.0 + (p.at[i] - '0');
        behind += point;
        if (++n_digit > MAX_DIGITS) return false;
    }
    if (n_digit == 0 || !is_digit(p.at[i - 1])) return false;
    if (i < p.n && p.at[i] == 'e') {
        size_t first = ++i;
        for (; i < p.n && is_digit(p.at[i]); i++) exponent = exponent * 10 + (size_t)(p.at[i] - '0');
        if (i == first || i - first > 2) return false;
    }
    for (; exponent > behind; exponent--) v *= 10.0;
    double by = 1.0;
    for (; behind > exponent; behind--) by *= 10.0;
    *value = v / by;
    return i == p.n;
}

static bool read_count(span p, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < p.n; i++) {
        if (!is_digit(p.at[i]) || i >= MAX_DIGITS) return false;
        *value = *value * 10 + (uint64_t)(p.at[i] - '0');
    }
    return p.n > 0;
}

/* With suffix K, M or G: powers of 1024, as in --vram. */
static bool read_bytes(span p, double min, uint64_t *value)
{
    static const char units[] = "KMG";
    const char *unit = p.n > 0 ? memchr(units, p.at[p.n - 1], 3) : NULL;
    double v;
    if (!read_number((span){p.at, p.n - (unit != NULL)}, &v)) return false;
    if (unit) v *= (double)((uint64_t)1024 << (10 * (unit - units)));
    if (v < min || v > 0x1p50) return false;
    *value = (uint64_t)v;
    return true;
}

/* ---- words ------------------------------------------------------------------------------------------ */

static bool is_word(span p, const char *word) { return p.n == strlen(word) && memcmp(p.at, word, p.n) == 0; }

static span trimmed(span p)
{
    while (p.n > 0 && (p.at[0] == ' ' || p.at[0] == '\t')) p.at++, p.n--;
    while (p.n > 0 && memchr(" \t\r", p.at[p.n - 1], 3)) p.n--;
    return p;
}

/* Splits at the first `delimiter`. */
static bool split_at(span p, char delimiter, span *before, span *behind)
{
    const char *at = p.n > 0 ? memchr(p.at, delimiter, p.n) : NULL;
    if (!at) return false;
    *before = trimmed((span){p.at, (size_t)(at - p.at)});
    *behind = trimmed((span){at + 1, p.n - (size_t)(at - p.at) - 1});
    return true;
}

static bool read_name(span p, char name[64])
{
    if (p.n == 0 || p.n > 63) return false;
    for (size_t i = 0; i < p.n; i++)
        if (p.at[i] < 0x20 || p.at[i] > 0x7e) return false;
    memcpy(name, p.at, p.n);
    name[p.n] = '\0';
    return true;
}

static bool read_clock(span p, bool *real)
{
    *real = is_word(p, "real");
    return *real || is_word(p, "virtual");
}

static bool read_values(span p, bool *none)
{
    *none = is_word(p, "none");
    return *none || is_word(p, "computed");
}

static bool read_budget(span p, hth_sim_gpu *gpu)
{
    span step, bytes;
    if (gpu->n_budget == HTH_SIM_MAX_BUDGETS || !split_at(p, ':', &step, &bytes)) return false;
    hth_sim_budget *b = &gpu->budgets[gpu->n_budget++];
    return read_count(step, &b->step) && b->step > 0 && read_bytes(bytes, 1.0, &b->bytes);
}

static bool read_fault(span p, hth_sim_gpu *gpu)
{
    static const hth_fault kinds[] = {{0, HEARTH_ERROR_MEMORY, "memory"},
                                      {0, HEARTH_ERROR_DEVICE, "device"},
                                      {0, HEARTH_ERROR_UNSUPPORTED, "unsupported"},
                                      {0, HEARTH_ERROR_DEVICE, "timeout"}};
    span call, what;
    if (gpu->n_fault == HTH_SIM_MAX_FAULTS || !split_at(p, ':', &call, &what)) return false;
    hth_fault *f = &gpu->faults[gpu->n_fault];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!is_word(what, kinds[i].what)) continue;
        *f = kinds[i];
        gpu->n_fault++;
        return read_count(call, &f->call) && f->call > 0;
    }
    return false;
}

/* ---- keys --------------------------------------------------------------------------------------------- */

typedef enum kind { NAME, BYTES, NUMBER, COUNT, CLOCK, VALUES, BUDGET, FAULT } kind;

typedef struct key {
    const char *name, *wants;
    size_t at; /* offset in hth_sim_gpu */
    kind kind;
    double min, max, unit; /* of a NUMBER: range, and factor; of BYTES: min */
} key;

#define RATE(name, field)                                                                                    \
    {                                                                                                        \
        name, "1e6 to 1e15 a second", offsetof(hth_sim_gpu, field), NUMBER, 1e6, 1e15, 1.0                   \
    }
#define MICROSECONDS(name, field)                                                                            \
    {                                                                                                        \
        name, "0 to 1e6 microseconds", offsetof(hth_sim_gpu, field), NUMBER, 0.0, 1e6, 1e3                   \
    }

static const key keys[] = {
    {"name", "1 to 63 letters of ASCII", offsetof(hth_sim_gpu, name), NAME, 0, 0, 0},
    {"vram_bytes", "1 to 2^50 bytes, or with K, M, G", offsetof(hth_sim_gpu, vram_bytes), BYTES, 1, 0, 0},
    RATE("bandwidth", bandwidth),
    RATE("pcie_up", pcie_up),
    RATE("pcie_down", pcie_down),
    RATE("host_bandwidth", host_bandwidth),
    RATE("host_products", host_products),
    {"max_binding_bytes", "1 to 2^50 bytes, or with K, M, G", offsetof(hth_sim_gpu, max_binding_bytes), BYTES, 1, 0, 0},
    {"pinned_bytes", "0 to 2^50 bytes, or with K, M, G", offsetof(hth_sim_gpu, pinned_bytes), BYTES, 0, 0, 0},
    MICROSECONDS("pcie_latency_us", pcie_latency_ns),
    MICROSECONDS("dispatch_us", dispatch_ns),
    MICROSECONDS("submit_us", submit_ns),
    MICROSECONDS("wake_us", wake_ns),
    {"flops", "1e6 to 1e18 a second", offsetof(hth_sim_gpu, flops), NUMBER, 1e6, 1e18, 1.0},
    {"jitter", "a share, 0 to 0.9", offsetof(hth_sim_gpu, jitter), NUMBER, 0.0, 0.9, 1.0},
    {"seed", "a whole number of at most 15 digits", offsetof(hth_sim_gpu, seed), COUNT, 0, 0, 0},
    {"clock", "virtual or real", offsetof(hth_sim_gpu, wall_clock), CLOCK, 0, 0, 0},
    {"values", "computed or none", offsetof(hth_sim_gpu, no_values), VALUES, 0, 0, 0},
    {"budget_bytes_at", "SUBMISSION:BYTES, counted from 1, at most 16", 0, BUDGET, 0, 0, 0},
    {"fault", "CALL:memory, device, unsupported or timeout, counted from 1, at most 64", 0, FAULT, 0, 0, 0},
};
enum { N_KEY = sizeof keys / sizeof *keys };

static bool is_repeatable(const key *k) { return k->kind == BUDGET || k->kind == FAULT; }
static bool is_optional(const key *k)
{
    return is_repeatable(k) || k->kind == VALUES || k->at == offsetof(hth_sim_gpu, host_bandwidth) ||
           k->at == offsetof(hth_sim_gpu, host_products) ||
           k->at == offsetof(hth_sim_gpu, max_binding_bytes) || k->at == offsetof(hth_sim_gpu, pinned_bytes);
}

static bool read_value(const key *k, span p, hth_sim_gpu *gpu)
{
    void *to = (uint8_t *)gpu + k->at;
    double v;
    switch (k->kind) {
    case NAME: return read_name(p, to);
    case BYTES: return read_bytes(p, k->min, to);
    case COUNT: return read_count(p, to);
    case CLOCK: return read_clock(p, to);
    case VALUES: return read_values(p, to);
    case BUDGET: return read_budget(p, gpu);
    case FAULT: return read_fault(p, gpu);
    case NUMBER: break;
    }
    if (!read_number(p, &v) || !(v >= k->min && v <= k->max)) return false;
    *(double *)to = v * k->unit;
    return true;
}

static hearth_status fail_line(const reader *r, span what, const char *why)
{
    return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s:%u: %.*s: %s", r->path, r->line,
                    (int)(what.n < 80 ? what.n : 80), what.at, why);
}

static hearth_status read_line(reader *r, span line)
{
    span name, value;
    split_at(line, '#', &line, &value);
    line = trimmed(line);
    if (line.n == 0) return HEARTH_OK;
    if (!split_at(line, '=', &name, &value)) return fail_line(r, line, "is not of the form key = value");
    for (size_t i = 0; i < N_KEY; i++) {
        const key *k = &keys[i];
        char why[160];
        if (!is_word(name, k->name)) continue;
        if (!is_repeatable(k) && r->seen & 1u << i) return fail_line(r, name, "stands there twice");
        r->seen |= 1u << i;
        if (read_value(k, value, r->gpu)) return HEARTH_OK;
        snprintf(why, sizeof why, "found %.*s, expected %s", (int)(value.n < 40 ? value.n : 40), value.at,
                 k->wants);
        return fail_line(r, name, why);
    }
    return fail_line(r, name, "no such key");
}

hearth_status hth_sim_describe_text(const char *path, const char *text, size_t n, hth_sim_gpu *gpu,
                                    hearth_error *err)
{
    reader r = {.path = path, .gpu = gpu, .err = err};
    hearth_status st = HEARTH_OK;
    *gpu = (hth_sim_gpu){.pinned_bytes = UINT64_MAX};
    for (size_t at = 0; st == HEARTH_OK && at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        r.line++;
        st = read_line(&r, (span){text + at, length});
        at += length + 1;
    }
    for (size_t i = 0; st == HEARTH_OK && i < N_KEY; i++)
        if (!is_optional(&keys[i]) && !(r.seen & 1u << i))
            st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s:%u: ends without %s (%s)", path,
                          r.line > 0 ? r.line : 1, keys[i].name, keys[i].wants);
    return st;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static hearth_status fail_errno(hearth_error *err, const char *path, const char *what)
{
    return hth_fail(err, HEARTH_ERROR_IO, "%s: cannot %s it: %s", path, what, hth_format_errno(errno).text);
}

/* Reads at most `capacity` bytes, from the beginning. */
static hearth_status read_whole(int fd, const char *path, char *text, size_t capacity, size_t *n,
                                hearth_error *err)
{
    *n = 0;
    while (*n < capacity) {
        ssize_t got = read(fd, text + *n, capacity - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(err, path, "read");
        if (got == 0) break;
        *n += (size_t)got;
    }
    return HEARTH_OK;
}

hearth_status hth_sim_describe(const char *path, hth_sim_gpu *gpu, hearth_error *err)
{
    enum { SHOWN = 200 };
    const char *label = strlen(path) > SHOWN ? path + strlen(path) - SHOWN : path;
    hearth_status st = HEARTH_OK;
    struct stat about;
    char *text = NULL;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return fail_errno(err, label, "open");
    if (fstat(fd, &about) != 0) {
        st = fail_errno(err, label, "look at");
        goto done;
    }
    if (!S_ISREG(about.st_mode)) {
        st = hth_fail(err, HEARTH_ERROR_IO, "%s: a GPU description must be a regular file", label);
        goto done;
    }
    text = hth_alloc(1, MAX_BYTES + 1);
    if (!text) {
        st = hth_fail_memory(err, MAX_BYTES + 1, "a GPU description");
        goto done;
    }
    st = read_whole(fd, label, text, MAX_BYTES + 1, &n, err);
    if (st == HEARTH_OK && n > MAX_BYTES)
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s:1: more than %d bytes: not a GPU description",
                      label, MAX_BYTES);
    if (st == HEARTH_OK) st = hth_sim_describe_text(label, text, n, gpu, err);
done:
    hth_free(text);
    close(fd);
    return st;
}
