/* Who may ask: API keys, names of this host, and web pages of other origins. All is fixed before the server starts. */
#ifndef HEARTH_APPS_SERVE_HTTP_ACCESS_H
#define HEARTH_APPS_SERVE_HTTP_ACCESS_H

#include "base/status.h"
#include "hub/sha256.h"
#include "serve/http/head.h"

enum {
    ACCESS_MAX_NAMES = 32,
    ACCESS_MAX_KEYS = 256,
    ACCESS_MAX_KEY = 512,
    /* A key that cannot be guessed has so many bytes, and so many different ones among them. */
    ACCESS_STRONG_KEY = 16,
    ACCESS_STRONG_DIFFERENT = 5,
};

/* Zero-initialised: no keys, this machine's own names, no other origins. */
typedef struct access_rules {
    char keys[ACCESS_MAX_KEYS][SHA256_HEX]; /* the SHA-256 of each */
    size_t n_key;
    char weak[320]; /* the place of the first key that is easy to guess; "": there is none */
    const char *names[ACCESS_MAX_NAMES]; /* names that a Host header may have, without port */
    size_t n_name;
    const char *origins[ACCESS_MAX_NAMES]; /* "https://example.org" */
    size_t n_origin;
    bool
        any_address; /* addresses of any interface are names of this host: the server listens beyond loopback */
} access_rules;

/* Adds the keys of a file, one a line; lines that are empty or begin with # count as none. Only its owner may be
 * able to read the file. ARGUMENT, IO: no key was added. */
hearth_status access_read_keys(access_rules *a, const char *path, hearth_error *err);
/* Adds the keys that the service manager passes as the credential hearth-keys ($CREDENTIALS_DIRECTORY), if it does. */
hearth_status access_read_credential(access_rules *a, hearth_error *err);
/* Adds a key from `where`, named in messages. A key has 1 to ACCESS_MAX_KEY printable bytes. */
hearth_status access_add_key(access_rules *a, const char *key, size_t n, const char *where,
                             hearth_error *err);
/* An origin as browsers send it: scheme, "://", host and port. */
hearth_status access_add_origin(access_rules *a, const char *origin, hearth_error *err);
hearth_status access_add_name(access_rules *a, const char *name, hearth_error *err);

/* Whether a head has one of the keys, once; true if there are no keys. *i_key: which one, from 1; 0: there are none.
 * Takes the same time for all keys that are wrong. */
bool access_key_ok(const access_rules *a, const head *h, unsigned *i_key);
/* The owner of what is kept for a client is a hash of its key, so that it does not change with other keys; 0: there are no
 * keys. */
uint64_t access_owner(const access_rules *a, unsigned i_key);
/* Whether a Host header names this host. */
bool access_host_ok(const access_rules *a, text_part host);
/* Whether the request comes from no web page, from one of this server, or from one of an origin that was allowed.
 * *foreign: the last. */
bool access_origin_ok(const access_rules *a, const head *h, bool *foreign);

#endif
