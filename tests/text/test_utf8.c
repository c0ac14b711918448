/* text/utf8.c: every code point, and every short string of bytes. */
#include "text/utf8.h"

#include "support/test.h"

TEST(every_code_point_comes_back)
{
    uint32_t n_wrong = 0;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) continue;
        char bytes[4];
        uint32_t back = UINT32_MAX;
        size_t n = hth_text_utf8_encode(cp, bytes);
        n_wrong += hth_text_utf8_decode(bytes, n, &back) != n || back != cp;
        n_wrong += !hth_text_utf8_valid(bytes, n) || hth_text_utf8_tail(bytes, n) != 0;
        for (size_t cut = 1; cut < n; cut++) {
            n_wrong += hth_text_utf8_decode(bytes, cut, &back) != 0;
            n_wrong += hth_text_utf8_tail(bytes, cut) != cut;
        }
    }
    CHECK_INT(n_wrong, 0);
}

/* RFC 3629 as arithmetic: the shortest form of a number that is no surrogate. */
static size_t slow_decode(const unsigned char *p, size_t n)
{
    static const uint32_t min[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = p[0] < 0x80         ? 1
                    : (p[0] >> 5) == 6  ? 2
                    : (p[0] >> 4) == 14 ? 3
                    : (p[0] >> 3) == 30 ? 4 : 0;
    if (length < 2) return length;
    if (n < length) return 0;
    uint32_t v = p[0] & ((1u << (7 - length)) - 1);
    for (size_t i = 1; i < length; i++) {
        if (p[i] >> 6 != 2) return 0;
        v = v * 64 + p[i] % 64;
    }
    return v < min[length] || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF) ? 0 : length;
}

/* Every string of 3 bytes, each with some fourth bytes. */
TEST(every_sequence_is_judged_as_the_rfc_says)
{
    static const unsigned char fourth[] = {0x00, 0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xE1, 0xFF};
    uint32_t n_wrong = 0, cp;
    for (uint32_t v = 0; v < 1u << 24; v++) {
        unsigned char p[4] = {(unsigned char)(v >> 16), (unsigned char)(v >> 8), (unsigned char)v, 0};
        size_t n_fourth = p[0] >= 0xF0 ? sizeof fourth : 1;
        for (size_t k = 0; k < n_fourth; k++) {
            p[3] = fourth[k];
            n_wrong += hth_text_utf8_decode((char *)p, 4, &cp) != slow_decode(p, 4);
        }
    }
    CHECK_INT(n_wrong, 0);
}

/* A tail is held exactly if some three bytes make it well formed. */
TEST(tail_is_what_more_bytes_could_complete)
{
    uint32_t n_wrong = 0;
    for (uint32_t v = 0; v < 1u << 16; v++) {
        unsigned char p[4] = {(unsigned char)(v >> 8), (unsigned char)v, 0, 0};
        bool both = false, one = false;
        for (unsigned c = 0x80; c < 0xC0; c++) {
            unsigned char q[4] = {p[0], p[1], (unsigned char)c, 0x80};
            both = both || slow_decode(q, 4) > 2;
            unsigned char w[4] = {p[1], (unsigned char)c, 0x80, 0x80};
            one = one || slow_decode(w, 4) > 1;
        }
        size_t expected = both ? 2 : one ? 1 : 0;
        n_wrong += hth_text_utf8_tail((char *)p, 2) != expected;
    }
    CHECK_INT(n_wrong, 0);
    CHECK_INT(hth_text_utf8_tail("", 0), 0);
    CHECK_INT(hth_text_utf8_tail("\x80\x80\x80", 3), 0);
    CHECK_INT(hth_text_utf8_tail("a\xF0\x9F\x99", 4), 3);
    CHECK_INT(hth_text_utf8_tail("a\xF4\x90\x80", 4), 0);
}

TEST(validity_of_whole_texts)
{
    CHECK(hth_text_utf8_valid("", 0));
    CHECK(hth_text_utf8_valid("a\0b\xC3\xA9", 5));
    CHECK(!hth_text_utf8_valid("a\xC3", 2));
    CHECK(!hth_text_utf8_valid("\xED\xA0\x80", 3));
}
