/* Descriptions of cards: lines of `key = value`, from # on a comment. Nothing is assumed: every key but
 * host_bandwidth, budget_bytes_at and fault must be there, none twice but the last two, and each within its
 * bounds. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
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
    hth_sim_gpu *card;
    uint32_t seen; /* bits of keys */
    unsigned line;
    hearth_error *err;
} reader;

/* A piece of a line. */
typedef struct piece {
    const char *at;
    size_t n;
} piece;

/* ---- numbers ------------------------------------------------------------------------------------ */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* digits[.digits][e digits]: no more digits than a double keeps, so that every machine reads the same. */
static bool read_number(piece p, double *value)
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

static bool read_count(piece p, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < p.n; i++) {
        if (!is_digit(p.at[i]) || i >= MAX_DIGITS) return false;
        *value = *value * 10 + (uint64_t)(p.at[i] - '0');
    }
    return p.n > 0;
}

/* With K, M or G behind it: powers of 1024, as --vram has them. */
static bool read_bytes(piece p, uint64_t *value)
{
    static const char units[] = "KMG";
    const char *unit = p.n > 0 ? memchr(units, p.at[p.n - 1], 3) : NULL;
    double v;
    if (!read_number((piece){p.at, p.n - (unit != NULL)}, &v)) return false;
    if (unit) v *= (double)((uint64_t)1024 << (10 * (unit - units)));
    if (v < 1.0 || v > 0x1p50) return false;
    *value = (uint64_t)v;
    return true;
}

/* ---- words ------------------------------------------------------------------------------------------ */

static bool is_word(piece p, const char *word) { return p.n == strlen(word) && memcmp(p.at, word, p.n) == 0; }

static piece trimmed(piece p)
{
    while (p.n > 0 && (p.at[0] == ' ' || p.at[0] == '\t')) p.at++, p.n--;
    while (p.n > 0 && memchr(" \t\r", p.at[p.n - 1], 3)) p.n--;
    return p;
}

/* What stands before and behind the first `mark`. */
static bool cut(piece p, char mark, piece *before, piece *behind)
{
    const char *at = p.n > 0 ? memchr(p.at, mark, p.n) : NULL;
    if (!at) return false;
    *before = trimmed((piece){p.at, (size_t)(at - p.at)});
    *behind = trimmed((piece){at + 1, p.n - (size_t)(at - p.at) - 1});
    return true;
}

static bool read_name(piece p, char name[64])
{
    if (p.n == 0 || p.n > 63) return false;
    for (size_t i = 0; i < p.n; i++)
        if (p.at[i] < 0x20 || p.at[i] > 0x7e) return false;
    memcpy(name, p.at, p.n);
    name[p.n] = '\0';
    return true;
}

static bool read_clock(piece p, bool *real)
{
    *real = is_word(p, "real");
    return *real || is_word(p, "virtual");
}

static bool read_budget(piece p, hth_sim_gpu *gpu)
{
    piece step, bytes;
    if (gpu->n_budget == HTH_SIM_MAX_BUDGETS || !cut(p, ':', &step, &bytes)) return false;
    hth_sim_budget *b = &gpu->budgets[gpu->n_budget++];
    return read_count(step, &b->step) && b->step > 0 && read_bytes(bytes, &b->bytes);
}

static bool read_fault(piece p, hth_sim_gpu *gpu)
{
    static const hth_fault kinds[] = {{0, HEARTH_ERROR_MEMORY, "memory"},
                                      {0, HEARTH_ERROR_DEVICE, "device"},
                                      {0, HEARTH_ERROR_UNSUPPORTED, "unsupported"},
                                      {0, HEARTH_ERROR_DEVICE, "timeout"}};
    piece call, what;
    if (gpu->n_fault == HTH_SIM_MAX_FAULTS || !cut(p, ':', &call, &what)) return false;
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

typedef enum kind { NAME, BYTES, NUMBER, COUNT, CLOCK, BUDGET, FAULT } kind;

typedef struct key {
    const char *name, *wants;
    size_t at; /* in a card */
    kind kind;
    double least, most, unit; /* of a NUMBER, and what it is multiplied by */
} key;

#define RATE(name, field)                                                                                    \
    {                                                                                                        \
        name, "1e6 to 1e15 a second", offsetof(hth_sim_gpu, field), NUMBER, 1e6, 1e15, 1.0                   \
    }
#define MICROSECONDS(name, field)                                                                            \
    {                                                                                                        \
        name, "0 to 1e6 microseconds", offsetof(hth_sim_gpu, field), NUMBER, 0.0, 1e6, 1e3                   \
    }

#define HOST "host_bandwidth"

static const key keys[] = {
    {"name", "1 to 63 letters of ASCII", offsetof(hth_sim_gpu, name), NAME, 0, 0, 0},
    {"vram_bytes", "1 to 2^50 bytes, or with K, M, G", offsetof(hth_sim_gpu, vram_bytes), BYTES, 0, 0, 0},
    RATE("bandwidth", bandwidth),
    RATE("pcie_up", pcie_up),
    RATE("pcie_down", pcie_down),
    RATE(HOST, host_bandwidth),
    MICROSECONDS("pcie_latency_us", pcie_latency_ns),
    MICROSECONDS("dispatch_us", dispatch_ns),
    MICROSECONDS("submit_us", submit_ns),
    MICROSECONDS("wake_us", wake_ns),
    {"flops", "1e6 to 1e18 a second", offsetof(hth_sim_gpu, flops), NUMBER, 1e6, 1e18, 1.0},
    {"jitter", "a share, 0 to 0.9", offsetof(hth_sim_gpu, jitter), NUMBER, 0.0, 0.9, 1.0},
    {"seed", "a whole number of at most 15 digits", offsetof(hth_sim_gpu, seed), COUNT, 0, 0, 0},
    {"clock", "virtual or real", offsetof(hth_sim_gpu, wall_clock), CLOCK, 0, 0, 0},
    {"budget_bytes_at", "SUBMISSION:BYTES, counted from 1, at most 16", 0, BUDGET, 0, 0, 0},
    {"fault", "CALL:memory, device, unsupported or timeout, counted from 1, at most 64", 0, FAULT, 0, 0, 0},
};
enum { N_KEY = sizeof keys / sizeof *keys };

static bool is_repeatable(const key *k) { return k->kind == BUDGET || k->kind == FAULT; }
static bool is_optional(const key *k) { return is_repeatable(k) || strcmp(k->name, HOST) == 0; }

static bool read_value(const key *k, piece p, hth_sim_gpu *gpu)
{
    void *to = (uint8_t *)gpu + k->at;
    double v;
    switch (k->kind) {
    case NAME: return read_name(p, to);
    case BYTES: return read_bytes(p, to);
    case COUNT: return read_count(p, to);
    case CLOCK: return read_clock(p, to);
    case BUDGET: return read_budget(p, gpu);
    case FAULT: return read_fault(p, gpu);
    case NUMBER: break;
    }
    if (!read_number(p, &v) || !(v >= k->least && v <= k->most)) return false;
    *(double *)to = v * k->unit;
    return true;
}

static hearth_status refuse(const reader *r, piece what, const char *why)
{
    return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s:%u: %.*s: %s", r->path, r->line,
                    (int)(what.n < 80 ? what.n : 80), what.at, why);
}

static hearth_status read_line(reader *r, piece line)
{
    piece name, value;
    cut(line, '#', &line, &value);
    line = trimmed(line);
    if (line.n == 0) return HEARTH_OK;
    if (!cut(line, '=', &name, &value)) return refuse(r, line, "is not of the form key = value");
    for (size_t i = 0; i < N_KEY; i++) {
        const key *k = &keys[i];
        char why[160];
        if (!is_word(name, k->name)) continue;
        if (!is_repeatable(k) && r->seen & 1u << i) return refuse(r, name, "stands there twice");
        r->seen |= 1u << i;
        if (read_value(k, value, r->card)) return HEARTH_OK;
        snprintf(why, sizeof why, "found %.*s, expected %s", (int)(value.n < 40 ? value.n : 40), value.at,
                 k->wants);
        return refuse(r, name, why);
    }
    return refuse(r, name, "no such key");
}

hearth_status hth_sim_describe_text(const char *path, const char *text, size_t n, hth_sim_gpu *gpu,
                                    hearth_error *err)
{
    reader r = {.path = path, .card = gpu, .err = err};
    hearth_status st = HEARTH_OK;
    *gpu = (hth_sim_gpu){0};
    for (size_t at = 0; st == HEARTH_OK && at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        r.line++;
        st = read_line(&r, (piece){text + at, length});
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
    char why[100] = "";
    int error = errno;
    if (strerror_r(error, why, sizeof why) != 0) snprintf(why, sizeof why, "error %d", error);
    return hth_fail(err, HEARTH_ERROR_IO, "%s: cannot %s it: %s", path, what, why);
}

/* At most room bytes, from the beginning. */
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
        st = hth_fail(err, HEARTH_ERROR_IO, "%s: a description of a card must be a regular file", label);
        goto done;
    }
    text = hth_alloc(1, MAX_BYTES + 1);
    if (!text) {
        st = hth_fail_memory(err, MAX_BYTES + 1, "the description of a card");
        goto done;
    }
    st = read_whole(fd, label, text, MAX_BYTES + 1, &n, err);
    if (st == HEARTH_OK && n > MAX_BYTES)
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s:1: more than %d bytes are no description of a card",
                      label, MAX_BYTES);
    if (st == HEARTH_OK) st = hth_sim_describe_text(label, text, n, gpu, err);
done:
    hth_free(text);
    close(fd);
    return st;
}
