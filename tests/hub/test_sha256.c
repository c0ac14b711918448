/* hub/sha256.h against the vectors of FIPS 180-4's examples and of NIST's test files. */
#include "hub/sha256.h"
#include "support/test.h"

static const char *hash_of(const void *bytes, size_t n)
{
    static char hex[SHA256_HEX];
    sha256 s;
    sha256_init(&s);
    sha256_add(&s, bytes, n);
    sha256_end(&s, hex);
    return hex;
}

static const struct {
    const char *text, *hash;
} known[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrs"
     "tnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    {"\xbd", "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b"},
    {"\xc9\x8c\x8e\x55", "7abc22c0ae5af26ce93dbb94433a0e0b2e119d014f8e7f65bd56c61ccccd9504"},
};

TEST(sha256_gives_the_published_hashes)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK_TEXT(hash_of(known[i].text, strlen(known[i].text)), known[i].hash);
}

TEST(sha256_of_a_million_characters_is_the_published_one)
{
    char hex[SHA256_HEX], characters[1000];
    sha256 s;
    memset(characters, 'a', sizeof characters);
    sha256_init(&s);
    for (int i = 0; i < 1000; i++) sha256_add(&s, characters, sizeof characters);
    sha256_end(&s, hex);
    CHECK_TEXT(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Lengths around those at which the end takes another block. */
TEST(sha256_does_not_depend_on_how_bytes_are_cut)
{
    uint8_t bytes[300];
    test_random r = {5};
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)test_random_next(&r);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        char hex[SHA256_HEX];
        sha256 s;
        sha256_init(&s);
        for (size_t at = 0; at < n;) {
            size_t take = 1 + test_random_below(&r, 70);
            if (take > n - at) take = n - at;
            sha256_add(&s, bytes + at, take);
            at += take;
        }
        sha256_end(&s, hex);
        CHECK_TEXT(hex, hash_of(bytes, n));
    }
}
