/* Implements unicode.h with utf8proc. */
#include "text/unicode.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

bool hth_unicode_engine(char *out, size_t n_out)
{
    snprintf(out, n_out, "utf8proc %s, Unicode %s", utf8proc_version(), utf8proc_unicode_version());
    return true;
}

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

bool hth_unicode_is_control(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

bool hth_unicode_is_punctuation(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
    }
}

bool hth_unicode_is_mark(uint32_t cp) { return category(cp) == UTF8PROC_CATEGORY_MN; }

size_t hth_unicode_decompose(uint32_t cp, uint32_t out[HTH_UNICODE_MAX_DECOMPOSED])
{
    utf8proc_int32_t found[HTH_UNICODE_MAX_DECOMPOSED];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, found, HTH_UNICODE_MAX_DECOMPOSED,
                                                 UTF8PROC_DECOMPOSE, &last);
    if (n < 1 || n > HTH_UNICODE_MAX_DECOMPOSED) {
        out[0] = cp;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) out[i] = (uint32_t)found[i];
    return (size_t)n;
}

size_t hth_unicode_lower(uint32_t cp, uint32_t out[HTH_UNICODE_MAX_LOWER])
{
    if (cp == 0x130) { /* the only one that becomes two, i and a dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}
