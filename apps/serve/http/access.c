/* Keys are kept and compared as SHA-256, all of them each time, so that the time tells nothing of a key. A page of
 * another origin reaches a server on loopback through its user's browser: by a name that it made resolve to this
 * machine (hence the names in Host), or across origins (hence Origin). */
#define _GNU_SOURCE
#include "serve/http/access.h"
#include "base/format_errno.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- keys ---------------------------------------------------------------------------------------------- */

static void hash_key(const char *key, size_t n, char hex[SHA256_HEX])
{
    sha256 s;
    sha256_init(&s);
    sha256_add(&s, key, n);
    sha256_end(&s, hex);
}

static bool is_strong(const char *key, size_t n)
{
    bool seen[256] = {false};
    unsigned n_different = 0;
    for (size_t i = 0; i < n; i++) {
        n_different += !seen[(unsigned char)key[i]];
        seen[(unsigned char)key[i]] = true;
    }
    return n >= ACCESS_STRONG_KEY && n_different >= ACCESS_STRONG_DIFFERENT;
}

hearth_status access_add_key(access_rules *a, const char *key, size_t n, const char *where, hearth_error *err)
{
    if (n == 0 || n > ACCESS_MAX_KEY)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: a key has %zu bytes; 1 to %d are allowed", where, n,
                        ACCESS_MAX_KEY);
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: byte %zu of a key is not printable", where, i);
    if (a->n_key == ACCESS_MAX_KEYS)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: more than %d keys", where, ACCESS_MAX_KEYS);
    if (!*a->weak && !is_strong(key, n)) snprintf(a->weak, sizeof a->weak, "%s", where);
    hash_key(key, n, a->keys[a->n_key++]);
    return HEARTH_OK;
}

static hearth_status add_lines(access_rules *a, FILE *f, const char *path, hearth_error *err)
{
    char line[ACCESS_MAX_KEY + 8], where[300];
    hearth_status st = HEARTH_OK;
    for (unsigned i = 1; st == HEARTH_OK && fgets(line, sizeof line, f); i++) {
        size_t n = strcspn(line, "\r\n");
        snprintf(where, sizeof where, "%.250s, line %u", path, i);
        if (n > 0 && *line != '#') st = access_add_key(a, line, n, where, err);
    }
    if (st == HEARTH_OK && ferror(f)) st = hth_fail(err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(errno).text);
    return st;
}

/* others: the bits of a mode by which others could read. */
static hearth_status read_keys(access_rules *a, const char *path, unsigned others, hearth_error *err)
{
    struct stat info;
    size_t before = a->n_key;
    FILE *f = fopen(path, "re");
    if (!f) return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(errno).text);
    hearth_status st = HEARTH_OK;
    if (fstat(fileno(f), &info) != 0 || !S_ISREG(info.st_mode))
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: it is no regular file", path);
    else if (info.st_mode & others)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT,
                      "%s: its mode is %04o, so others can read the keys; chmod 600 %s", path,
                      (unsigned)(info.st_mode & 07777), path);
    else st = add_lines(a, f, path, err);
    if (st == HEARTH_OK && a->n_key == before)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: it has no key", path);
    fclose(f);
    if (st != HEARTH_OK) a->n_key = before;
    return st;
}

hearth_status access_read_keys(access_rules *a, const char *path, hearth_error *err)
{
    return read_keys(a, path, 077, err);
}

hearth_status access_read_credential(access_rules *a, hearth_error *err)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    char path[4096];
    int n = folder ? snprintf(path, sizeof path, "%s/hearth-keys", folder) : -1;
    if (n < 0 || n >= (int)sizeof path || access(path, F_OK) != 0) return HEARTH_OK;
    return read_keys(a, path, 07, err); /* the manager's access list for the service shows as rights of the group */
}

static unsigned difference(const char *x, const char *y)
{
    unsigned differs = 0;
    for (size_t i = 0; i < SHA256_HEX; i++) differs |= (unsigned)(x[i] ^ y[i]);
    return differs;
}

bool access_key_ok(const access_rules *a, const head *h, unsigned *i_key)
{
    static const char bearer[] = "bearer ";
    const size_t n_bearer = sizeof bearer - 1;
    char hex[SHA256_HEX];
    text_part key = h->field[HEAD_API_KEY], authorization = h->field[HEAD_AUTHORIZATION];
    *i_key = 0;
    if (a->n_key == 0) return true;
    if (h->n_field[HEAD_API_KEY] + h->n_field[HEAD_AUTHORIZATION] != 1) return false;
    if (authorization.text) {
        if (authorization.n < n_bearer || strncasecmp(authorization.text, bearer, n_bearer) != 0)
            return false;
        key = text_trim((text_part){authorization.text + n_bearer, authorization.n - n_bearer});
    }
    hash_key(key.text, key.n, hex);
    for (size_t i = 0; i < a->n_key; i++) {
        unsigned is_equal = difference(hex, a->keys[i]) == 0;
        *i_key |= (0u - is_equal) & (unsigned)(i + 1);
    }
    return *i_key > 0;
}

uint64_t access_owner(const access_rules *a, unsigned i_key)
{
    char first[17];
    if (i_key == 0) return 0;
    snprintf(first, sizeof first, "%s", a->keys[i_key - 1]);
    return strtoull(first, NULL, 16);
}

/* ---- names and origins --------------------------------------------------------------------------------- */

static hearth_status add_name(const char **names, size_t *n, const char *name, const char *option,
                              hearth_error *err)
{
    if (*n == ACCESS_MAX_NAMES)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: more than %d", option, ACCESS_MAX_NAMES);
    names[(*n)++] = name;
    return HEARTH_OK;
}

hearth_status access_add_name(access_rules *a, const char *name, hearth_error *err)
{
    size_t n = strlen(name);
    if (n == 0 || n > 255 ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") != n)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "--allow-host %s: a host name is expected, without scheme and port", name);
    return add_name(a->names, &a->n_name, name, "--allow-host", err);
}

hearth_status access_add_origin(access_rules *a, const char *origin, hearth_error *err)
{
    const char *rest = strstr(origin, "://");
    if (!rest || rest == origin || rest[3] == '\0' || strpbrk(rest + 3, "/*, ") || strlen(origin) > 255)
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "--cors-origin %s: an origin is expected, as https://example.org or http://localhost:3000",
            origin);
    return add_name(a->origins, &a->n_origin, origin, "--cors-origin", err);
}

/* Removes ":port". False: it is no host. */
static bool split_port(text_part host, text_part *name)
{
    const char *from = host.text, *end = host.text + host.n;
    const char *bracket = host.n > 0 && *from == '[' ? memchr(from, ']', host.n) : NULL;
    const char *after = bracket ? bracket + 1 : from;
    const char *colon = memchr(after, ':', (size_t)(end - after)), *name_end = colon ? colon : end;
    for (const char *p = name_end; p < end; p++)
        if (p > name_end && (*p < '0' || *p > '9')) return false;
    if (bracket && name_end != after) return false;
    *name = (text_part){from, (size_t)(name_end - from)};
    return name->n > 0;
}

static bool is_address(text_part name)
{
    char text[64];
    unsigned char address[16];
    bool v6 = name.n > 2 && name.text[0] == '[' && name.text[name.n - 1] == ']';
    if (v6) name = (text_part){name.text + 1, name.n - 2};
    if (name.n >= sizeof text) return false;
    memcpy(text, name.text, name.n);
    text[name.n] = '\0';
    return inet_pton(v6 ? AF_INET6 : AF_INET, text, address) == 1;
}

bool access_host_ok(const access_rules *a, text_part host)
{
    text_part name;
    if (!split_port(host, &name)) return false;
    if (text_is(name, "localhost") || text_is(name, "127.0.0.1") || text_is(name, "[::1]")) return true;
    for (size_t i = 0; i < a->n_name; i++)
        if (text_is(name, a->names[i])) return true;
    return a->any_address && is_address(name);
}

bool access_origin_ok(const access_rules *a, const head *h, bool *foreign)
{
    text_part origin = h->field[HEAD_ORIGIN], host = h->field[HEAD_HOST];
    static const char scheme[] = "http://";
    const size_t n = sizeof scheme - 1;
    *foreign = false;
    if (h->n_field[HEAD_ORIGIN] == 0) return true;
    if (h->n_field[HEAD_ORIGIN] > 1) return false;
    if (origin.n == host.n + n && strncasecmp(origin.text, scheme, n) == 0 &&
        strncasecmp(origin.text + n, host.text, host.n) == 0)
        return true;
    for (size_t i = 0; i < a->n_origin; i++)
        if (text_is(origin, a->origins[i])) *foreign = true;
    return *foreign;
}
