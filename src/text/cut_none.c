/* The stand-in for cut_pcre2.c in a build without PCRE2 (-DHEARTH_PCRE2=OFF): there are
 * no cutters, so byte-level tokenizers are refused when they are opened. */
#include "text/cut.h"

hearth_status hth_text_cutter_open(const hth_text_family *family, bool jit, hth_text_cutter **out,
                                   hearth_error *err)
{
    (void)jit;
    *out = NULL;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "pre-tokenizer \"%s\" needs PCRE2, and this program was built without it", family->name);
}

void hth_text_cutter_close(hth_text_cutter *cutter) { (void)cutter; }

bool hth_text_cutter_engine(char *out, size_t n_out)
{
    if (n_out > 0) out[0] = '\0';
    return false;
}

hearth_status hth_text_cut_begin(hth_text_cut *cut, const hth_text_cutter *cutter, const char *text, size_t n,
                                 hearth_error *err)
{
    (void)cut, (void)cutter, (void)text, (void)n;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "built without PCRE2");
}

hearth_status hth_text_cut_next(hth_text_cut *cut, size_t *n, hearth_error *err)
{
    (void)cut;
    *n = 0;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "built without PCRE2");
}

void hth_text_cut_free(hth_text_cut *cut) { (void)cut; }
