/* A fuzz target for the option parser: the bytes, cut at newlines, are the arguments of
 * a command that has one option of every kind. What is accepted must lie within the table's
 * bounds. Built with libFuzzer by the preset `fuzz`; test_options.c replays seeded lines. */
#include "common/options/options.h"
#include "support/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const option_spec kinds[] = {
    OPT_FLAG("flag", 'f', "a flag"),
    OPT_UINT("count", 'c', "N", 1, 4096, "a count"),
    OPT_UINT("large", 0, "N", 0, UINT32_MAX, "a large count"),
    OPT_INT("offset", 'o', "N", -5, 5, "of either sign"),
    OPT_FLOAT("share", 's', "X", 0, 1, "a share"),
    OPT_TEXT("text", 't', "TEXT", "any bytes", .flags = OPTION_REPEATS),
    {0},
};
static const option_spec others[] = {
    OPT_FILE("file", 0, "FILE", "a path"),
    OPT_CHOICE("mood", 'm', "[MOOD]", "good|bad", "one of two, or none", .flags = OPTION_BARE),
    OPT_CHOICE("kind", 'k', "KIND", "f16|f32|q8_0", "one of some"),
    OPT_UINT_LIST("list", 'l', "N,...", 1, 100, "numbers"),
    OPT_SIZE("room", 'r', "BYTES", 0, 1e18, "bytes"),
    {0},
};

static void expect(bool holds) { if (!holds) abort(); }

static int look(const args *a)
{
    uint64_t list[OPTION_LIST_MAX];
    uint64_t count = args_uint(a, "count", 1), large = args_uint(a, "large", 0);
    int64_t offset = args_int(a, "offset", 0);
    double share = args_float(a, "share", 0.5);
    const char *kind = args_text(a, "kind", "f16");
    const char *mood = args_text(a, "mood", "good");
    size_t n = args_list(a, "list", list, OPTION_LIST_MAX), n_text = 0;
    expect(count >= 1 && count <= 4096 && large <= UINT32_MAX && offset >= -5 && offset <= 5);
    expect(share >= 0.0 && share <= 1.0);
    expect(strcmp(kind, "f16") == 0 || strcmp(kind, "f32") == 0 || strcmp(kind, "q8_0") == 0);
    expect(mood ? strcmp(mood, "good") == 0 || strcmp(mood, "bad") == 0 : args_has(a, "mood"));
    expect(n <= OPTION_LIST_MAX);
    expect(args_size(a, "room", 7) <= (uint64_t)1e18);
    for (size_t i = 0; i < n; i++) expect(list[i] >= 1 && list[i] <= 100);
    while (args_text_at(a, "text", n_text)) n_text++;
    expect(args_operand(a, 0) != NULL && args_operand(a, 2) == NULL);
    expect(args_has(a, "flag") || !args_has(a, "flag"));
    return 0;
}

static const command target = {.name = "target", .operands = "A [B]", .summary = "for tests", .details = "Nothing.\n", .example = "hearth target a",
                               .groups = {kinds, others}, .run = look};

/* Messages and help go nowhere. */
static void be_quiet(void)
{
    static FILE *nowhere;
    if (nowhere) return;
    nowhere = fopen("/dev/null", "w");
    expect(nowhere != NULL);
    stderr = nowhere; /* glibc's are variables */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { MAX_ARGS = 300 };
    char *argv[MAX_ARGS + 1];
    int argc = 0;
    FREED char *bytes = malloc(n + 1);
    expect(bytes != NULL);
    if (n > 0) memcpy(bytes, data, n);
    bytes[n] = '\0';
    be_quiet();
    for (char *p = bytes; p && argc < MAX_ARGS;) {
        char *end = memchr(p, '\n', n - (size_t)(p - bytes));
        if (end) *end = '\0';
        argv[argc++] = p;
        p = end ? end + 1 : NULL;
    }
    argv[argc] = NULL;
    FILE *out = stdout;
    stdout = stderr;
    const char *instead = NULL;
    int code = command_run(&target, argc, argv, &instead);
    expect(!instead);
    stdout = out;
    expect(code == 0 || code == EXIT_USAGE);
    return 0;
}
