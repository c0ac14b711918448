/* Replaces unicode_utf8proc.c in a build without utf8proc (-DHEARTH_UTF8PROC=OFF): opening a vocabulary that needs
 * these functions returns an error before one of them is called. */
#include "text/unicode.h"

bool hth_unicode_engine(char *out, size_t n_out)
{
    if (n_out > 0) out[0] = '\0';
    return false;
}

bool hth_unicode_is_control(uint32_t cp) { return (void)cp, false; }
bool hth_unicode_is_punctuation(uint32_t cp) { return (void)cp, false; }
bool hth_unicode_is_mark(uint32_t cp) { return (void)cp, false; }

size_t hth_unicode_decompose(uint32_t cp, uint32_t out[HTH_UNICODE_MAX_DECOMPOSED])
{
    out[0] = cp;
    return 1;
}

size_t hth_unicode_lower(uint32_t cp, uint32_t out[HTH_UNICODE_MAX_LOWER])
{
    out[0] = cp;
    return 1;
}
