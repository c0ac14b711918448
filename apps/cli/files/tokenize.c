/* hearth tokenize: converts text to ids or pieces, without trimming. */
#include "cli/commands.h"
#include "common/input.h"
#include "common/output.h"
#include "file/gguf.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const option_spec options[] = {
    OPT_TEXT("prompt", 'p', "TEXT", "the text; without it and -f it is read from stdin"),
    OPT_FILE("file", 'f', "FILE", "a file with the text, every byte of it"),
    OPT_FLAG("ids", 0, "print ids on one line (the default)"),
    OPT_FLAG("pieces", 0, "print id and text of each token on its own line"),
    OPT_FLAG("no-bos", 0, "add no begin- or end-of-text token"),
    OPT_FLAG("special", 0, "take texts of control tokens as these tokens"),
    {0},
};

static void print_piece(const hth_tokenizer *tok, int32_t id)
{
    size_t n;
    const char *piece = hth_token_piece(tok, id, true, &n);
    char shown[1200];
    printf("%d\t%s\n", id, hth_escape(shown, sizeof shown, piece, n));
}

static int print_tokens(const hth_tokenizer *tok, const args *a, const char *text, size_t n)
{
    hearth_error err;
    hth_ids ids = {0};
    size_t n_lost = 0;
    unsigned flags = (args_has(a, "no-bos") ? 0u : (unsigned)HEARTH_ADD_SPECIAL) |
                     (args_has(a, "special") ? (unsigned)HEARTH_PARSE_SPECIAL : 0u);
    if (hth_tokenize(tok, text, n, flags, &ids, &n_lost, &err) != HEARTH_OK) {
        hth_ids_free(&ids);
        return report(&err);
    }
    for (size_t i = 0; i < ids.n; i++) {
        if (args_has(a, "pieces")) print_piece(tok, ids.id[i]);
        else printf("%s%d", i ? " " : "", ids.id[i]);
    }
    if (!args_has(a, "pieces")) putchar('\n');
    if (n_lost) print_warning("%zu bytes are not in the vocabulary", n_lost);
    hth_ids_free(&ids);
    return 0;
}

static int run_tokenize(const args *a)
{
    const char *path = args_operand(a, 0), *text = args_text(a, "prompt", NULL);
    hearth_error err;
    hth_gguf *file = NULL;
    hth_tokenizer *tok = NULL;
    char *read = NULL;
    int status = EXIT_OTHER;
    if (text && args_has(a, "file")) return usage_error("--prompt and --file contradict each other");
    size_t n = text ? strlen(text) : 0;
    if (!text) text = read = read_whole(args_text(a, "file", "-"), &n);
    if (!text) return EXIT_OTHER;
    if (hth_gguf_open(path, &file, &err) != HEARTH_OK || hth_tokenizer_open(file, &tok, &err) != HEARTH_OK) {
        report(&err);
    } else {
        status = print_tokens(tok, a, text, n);
    }
    hth_tokenizer_close(tok);
    hth_gguf_close(file);
    free(read);
    return status;
}

const command command_tokenize = {
    .name = "tokenize",
    .operands = "MODEL",
    .summary = "turn text into token ids",
    .details = "Every byte counts, a last newline too. A file with a vocabulary alone is enough.\n",
    .example = "hearth tokenize model.gguf -p \"Once upon a time\" --pieces",
    .groups = {options},
    .models = 1,
    .run = run_tokenize,
};
