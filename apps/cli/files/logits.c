/* hearth logits: writes the logits of every position of a list of ids as raw floats. */
#include "cli/commands.h"
#include "common/options/model_args.h"
#include "file/atomic_writer.h"

#include <stdlib.h>

static const option_spec options[] = {
    OPT_FILE("ids", 0, "FILE", "ids with spaces, lines or commas; - is stdin"),
    OPT_FILE("output", 'o', "FILE", "where to write; appears when it is complete"),
    {0},
};

typedef struct sink {
    hth_atomic_writer file;
    size_t n_vocab;
} sink;

/* The format is little-endian, as are all supported machines. */
static hearth_status write_logits(void *user, size_t i_token, const float *logits, hearth_error *err)
{
    sink *s = user;
    (void)i_token;
    return hth_atomic_writer_write(&s->file, logits, s->n_vocab * sizeof *logits, err);
}

static int write_all(hearth_session *session, const int32_t *ids, size_t n, const char *path, size_t n_vocab)
{
    hearth_error err;
    sink s = {.n_vocab = n_vocab};
    hearth_status st = hth_atomic_writer_open(&s.file, path, &err);
    if (st == HEARTH_OK) st = hearth_session_eval_each(session, ids, n, write_logits, &s, &err);
    if (st == HEARTH_ERROR_CANCELLED)
        snprintf(err.message, sizeof err.message, "interrupted; nothing was kept");
    if (st == HEARTH_OK) st = hth_atomic_writer_finish(&s.file, &err);
    hth_atomic_writer_close(&s.file);
    return st == HEARTH_OK ? 0 : report(&err);
}

static int run_logits(const args *a)
{
    const char *ids_path = args_text(a, "ids", NULL), *out_path = args_text(a, "output", NULL);
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    size_t n = 0;
    int status = EXIT_OTHER;
    if (!ids_path || !out_path) return usage_error("logits needs --ids FILE and -o FILE");
    const input inputs[] = {{args_operand(a, 0), "it"},
                            {ids_path, "it"},
                            {args_text(a, "predictors", NULL), "the predictors"},
                            {args_text(a, "thresholds", NULL), "the thresholds"}};
    int wrong = check_output(a, out_path, OUTPUT_LOGITS, inputs, 4);
    if (wrong) return wrong;
    install_signal_handlers();
    if (!open_model(a, args_operand(a, 0), &model)) return EXIT_OTHER;
    hearth_model_info info = model_info(model);
    int32_t *ids = read_ids(ids_path, info.n_vocab, &n);
    if (ids && n == 0) {
        report_text("%s: no ids", ids_path);
    } else if (ids &&
               open_session(a, model, n > info.n_ctx_train ? info.n_ctx_train : (uint32_t)n, &session)) {
        print_start_line(a, model, session);
        status = write_all(session, ids, n, out_path, info.n_vocab);
    }
    free(ids);
    hearth_session_close(session);
    hearth_model_close(model);
    return status;
}

const command command_logits = {
    .name = "logits",
    .operands = "MODEL",
    .summary = "write the logits of every position of a list of token ids",
    .details = "The ids are evaluated as given, at positions 0, 1, 2, ... The output is float32,\n"
               "little-endian, [number of ids][vocabulary].\n",
    .example = "hearth logits model.gguf --ids prompt.ids -o prompt.f32 --kv f32",
    .groups = {options, output_options, model_options, gpu_options},
    .models = 1,
    .run = run_logits,
};
