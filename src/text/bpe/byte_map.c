/* Maps bytes to the characters that represent them. Used at load for every token, and by bpe.c to look up a whole
 * word. The map is GPT-2's, which all byte-level vocabularies share. */
#include "text/bpe/byte_map.h"

#include "text/utf8.h"

#include <string.h>

static int prints(uint32_t b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD); }

/* Index of a byte among those that do not print: 00-20, 7F-A0, AD. */
static uint32_t rank_of(uint32_t b) { return b <= 0x20 ? b : b <= 0xA0 ? b - 0x7F + 33 : 67; }

size_t hth_text_byte_char(unsigned char byte, char *out)
{
    return hth_text_utf8_encode(prints(byte) ? byte : 0x100 + rank_of(byte), out);
}

/* The byte that a code point represents, or -1. */
static int char_byte(uint32_t cp)
{
    if (cp < 0x100) return prints(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

size_t hth_text_unmap(const char *text, size_t n, char *out, size_t *n_other)
{
    size_t n_out = 0;
    *n_other = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t length = hth_text_utf8_decode(text + i, n - i, &cp);
        int byte = length > 0 ? char_byte(cp) : -1;
        size_t used = length > 0 ? length : 1, made = byte >= 0 ? 1 : used;
        if (out && byte >= 0) out[n_out] = (char)byte;
        else if (out) memmove(out + n_out, text + i, used);
        *n_other += byte < 0;
        n_out += made;
        i += used;
    }
    return n_out;
}
