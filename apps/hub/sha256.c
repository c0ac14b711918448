/* SHA-256 as in FIPS 180-4. Some hundred megabytes per second, more than most connections;
 * tests/hub/test_sha256.c checks it with the vectors of NIST. */
#include "hub/sha256.h"

#include <stdio.h>
#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2). */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned by) { return x >> by | x << (32 - by); }

static uint32_t read_word(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void add_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 16; i++) w[i] = read_word(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t one = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                       constants[i] + w[i];
        uint32_t two =
            (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sha256_init(sha256 *s)
{
    /* The first 32 bits of the fractional parts of the square roots of the first 8 primes (5.3.3). */
    *s = (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(sha256 *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t held = s->n % SHA256_BLOCK;
    s->n += n;
    if (held > 0) {
        size_t take = SHA256_BLOCK - held < n ? SHA256_BLOCK - held : n;
        memcpy(s->block + held, p, take);
        p += take, n -= take;
        if (held + take < SHA256_BLOCK) return;
        add_block(s->state, s->block);
    }
    for (; n >= SHA256_BLOCK; p += SHA256_BLOCK, n -= SHA256_BLOCK) add_block(s->state, p);
    if (n > 0) memcpy(s->block, p, n);
}

void sha256_end(sha256 *s, char hex[SHA256_HEX])
{
    uint8_t tail[2 * SHA256_BLOCK] = {0x80}; /* a 1 bit, zeros, and the length in bits as 64 bits */
    uint64_t n_bit = s->n * 8;
    size_t held = s->n % SHA256_BLOCK, n = (held < 56 ? 56 : 120) - held;
    for (int i = 0; i < 8; i++) tail[n + (size_t)i] = (uint8_t)(n_bit >> (56 - 8 * i));
    sha256_add(s, tail, n + 8);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", (unsigned)s->state[i]);
}
