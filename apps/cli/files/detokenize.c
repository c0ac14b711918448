/* hearth detokenize: ids to text, byte for byte. */
#include "cli/commands.h"
#include "common/options/model_args.h"
#include "common/output.h"
#include "file/gguf.h"
#include "text/tokenizer.h"

#include <stdlib.h>

static const option_spec options[] = {
    OPT_FILE("ids", 0, "FILE", "ids with spaces, lines or commas; default: stdin"),
    OPT_FLAG("pieces", 0, "print id and text of each token on its own line"),
    OPT_FLAG("no-bos", 0, "the ids continue a text: keep the leading space"),
    OPT_FLAG("special", 0, "show control tokens by name"),
    {0},
};

static int print_text(const hth_tokenizer *tok, const args *a, const int32_t *ids, size_t n)
{
    hth_detok d;
    size_t n_out;
    char *out = malloc(hth_detok_max_bytes(tok));
    if (!out) return report_text("out of memory");
    hth_detok_init(&d, tok, args_has(a, "special"), !args_has(a, "no-bos"));
    for (size_t i = 0; i < n; i++) {
        if (args_has(a, "pieces")) {
            char shown[1200];
            const char *piece = hth_token_piece(tok, ids[i], true, &n_out);
            printf("%d\t%s\n", ids[i], hth_escape(shown, sizeof shown, piece, n_out));
            continue;
        }
        n_out = hth_detok_push(&d, ids[i], out);
        fwrite(out, 1, n_out, stdout);
    }
    n_out = hth_detok_flush(&d, out);
    fwrite(out, 1, n_out, stdout);
    free(out);
    return 0;
}

static int run_detokenize(const args *a)
{
    hearth_error err;
    hth_gguf *file = NULL;
    hth_tokenizer *tok = NULL;
    int status = EXIT_OTHER;
    if (hth_gguf_open(args_operand(a, 0), &file, &err) != HEARTH_OK ||
        hth_tokenizer_open(file, &tok, &err) != HEARTH_OK) {
        report(&err);
    } else {
        size_t n;
        int32_t *ids = read_ids(args_text(a, "ids", "-"), (uint32_t)hth_tokenizer_n_vocab(tok), &n);
        if (ids) status = print_text(tok, a, ids, n);
        free(ids);
    }
    hth_tokenizer_close(tok);
    hth_gguf_close(file);
    return status;
}

const command command_detokenize = {
    .name = "detokenize",
    .operands = "MODEL",
    .summary = "turn token ids into text",
    .details = "Writes the bytes as they are: nothing is trimmed, no newline is added.\n",
    .example = "hearth tokenize model.gguf -p Hello | hearth detokenize model.gguf",
    .groups = {options},
    .models = 1,
    .run = run_detokenize,
};
