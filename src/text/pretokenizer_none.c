/* Replaces pretokenizer_pcre2.c in a build without PCRE2 (-DHEARTH_PCRE2=OFF): opening a byte-level tokenizer
 * returns an error. */
#include "text/pretokenizer.h"

hearth_status hth_pretokenizer_open(const hth_pretok_type *pretok_type, bool jit, hth_pretokenizer **out,
                                   hearth_error *err)
{
    (void)jit;
    *out = NULL;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "pre-tokenizer \"%s\" needs PCRE2, and this program was built without it", pretok_type->name);
}

void hth_pretokenizer_close(hth_pretokenizer *pretokenizer) { (void)pretokenizer; }

bool hth_pretokenizer_engine(char *out, size_t n_out)
{
    if (n_out > 0) out[0] = '\0';
    return false;
}

hearth_status hth_pretok_iter_begin(hth_pretok_iter *iter, const hth_pretokenizer *pretokenizer,
                                    const char *text, size_t n, hearth_error *err)
{
    (void)iter, (void)pretokenizer, (void)text, (void)n;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "built without PCRE2");
}

hearth_status hth_pretok_iter_next(hth_pretok_iter *iter, size_t *n, hearth_error *err)
{
    (void)iter;
    *n = 0;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "built without PCRE2");
}

void hth_pretok_iter_free(hth_pretok_iter *iter) { (void)iter; }
