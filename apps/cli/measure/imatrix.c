/* hearth imatrix: computes an importance matrix over a text, or combines several. */
#include "cli/commands.h"
#include "common/options/model_args.h"
#include "engine/engine.h"
#include "file/atomic_writer.h"
#include "measure/imatrix.h"

#include <string.h>

static const option_spec options[] = {
    OPT_FILE("file", 'f', "FILE", "the text; - is stdin"),
    OPT_FILE("output", 'o', "OUT", "the importance matrix; appears when it is complete"),
    OPT_FILE("in-file", 0, "FILE", "add the matrix in FILE; may be given often", .flags = OPTION_REPEATS),
    OPT_UINT("chunks", 0, "N", 1, 1e9, "N chunks at most"),
    OPT_UINT("from-chunk", 0, "N", 0, 1e9, "leave out the first N chunks"),
    OPT_FLAG("process-output", 0, "also the inputs of the output matrix"),
    {0},
};

/* ---- what was computed ------------------------------------------------------------------------- */

/* Experts that the text never reached. */
static uint64_t count_unused(const hth_imatrix *m, const char **first)
{
    uint64_t n = 0;
    for (size_t i = 0; i < m->n_entry; i++)
        for (uint32_t k = 0; m->entries[i].n_count > 1 && k < m->entries[i].n_count; k++) {
            if (m->entries[i].counts[k] > 0.0) continue;
            if (n++ == 0) *first = m->entries[i].name.bytes;
        }
    return n;
}

static int write_result(const args *a, const hth_imatrix *m)
{
    hearth_error err;
    const char *out = args_text(a, "output", NULL), *first = "";
    if (hth_imatrix_write(m, out, &err) != HEARTH_OK) return report(&err);
    uint64_t n_unused = count_unused(m, &first);
    if (n_unused > 0)
        print_warning("%llu matrices of experts had no token, first in %s: their weights count alike; a longer text has "
                      "more of them",
                      (unsigned long long)n_unused, first);
    printf("%s: %zu tensors, %llu chunks of %u tokens\n", printable(out), m->n_entry, (unsigned long long)m->n_chunk,
           m->chunk_size);
    return 0;
}

/* ---- --in-file ----------------------------------------------------------------------------------- */

/* The model of a matrix is known by its tensors alone. */
static void warn_of_other_tensors(const hth_imatrix *m, const hth_imatrix *more, const char *path)
{
    const hth_imatrix *sides[] = {m, more};
    for (int side = 0; m->n_entry > 0 && side < 2; side++)
        for (size_t i = 0; i < sides[side]->n_entry; i++) {
            hth_str name = sides[side]->entries[i].name;
            if (hth_imatrix_find(sides[1 - side], name)) continue;
            print_warning(side == 0 ? "%s: has no tensor '%s', which those before have: is it of another model?"
                                    : "%s: only here is a tensor '%s': is it of another model?",
                          printable(path), name.bytes);
            return;
        }
}

/* model NULL: of any model. */
static bool add_file(hth_imatrix *m, const char *path, const hearth_model *model)
{
    hth_imatrix *more;
    hearth_error err;
    hearth_status st = hth_imatrix_open(path, &more, &err);
    if (st == HEARTH_OK && model) st = hth_imatrix_check_model(more, path, model->file, &err);
    if (st == HEARTH_OK) warn_of_other_tensors(m, more, path);
    if (st == HEARTH_OK) st = hth_imatrix_merge(m, more, path, &err);
    hth_imatrix_close(more);
    if (st != HEARTH_OK) report(&err);
    return st == HEARTH_OK;
}

/* A matrix with the files of --in-file. chunk_size 0: that of the first file. */
static hth_imatrix *open_files(const args *a, uint32_t chunk_size, const hearth_model *model)
{
    hth_imatrix *m, *first = NULL;
    hearth_error err;
    const char *path = args_text_at(a, "in-file", 0);
    if (chunk_size == 0 && path && hth_imatrix_open(path, &first, NULL) == HEARTH_OK) chunk_size = first->chunk_size;
    hth_imatrix_close(first);
    if (hth_imatrix_new(chunk_size ? chunk_size : HTH_IMATRIX_CHUNK, &m, &err) != HEARTH_OK) {
        report(&err);
        return NULL;
    }
    for (size_t i = 0; (path = args_text_at(a, "in-file", i)); i++) {
        if (add_file(m, path, model)) continue;
        hth_imatrix_close(m);
        return NULL;
    }
    return m;
}

static int combine(const args *a)
{
    hth_imatrix *m = open_files(a, (uint32_t)args_uint(a, "ctx", 0), NULL);
    int status = m ? write_result(a, m) : EXIT_OTHER;
    hth_imatrix_close(m);
    return status;
}

/* ---- a text --------------------------------------------------------------------------------------- */

static int add_text(const args *a, const hearth_model *model, hearth_session *session, const char *text, size_t n,
                    hth_imatrix *m)
{
    hearth_error err;
    progress p;
    uint64_t n_done;
    const char *file = args_text(a, "file", NULL);
    hth_imatrix_options o = {.first_chunk = args_uint(a, "from-chunk", 0),
                             .n_chunk = args_uint(a, "chunks", 0),
                             .with_output = args_has(a, "process-output"),
                             .progress = progress_show,
                             .progress_user = &p};
    progress_init(&p, "computing", "chunks", 1);
    hearth_status st = hth_measure_imatrix(model, session, text, n, &o, m, &n_done, &err);
    progress_end(&p);
    if (st == HEARTH_OK && n_done == 0) return report_text("interrupted; nothing was written");
    if (st == HEARTH_OK) st = hth_imatrix_add_dataset(m, (hth_str){file, strlen(file)}, &err);
    if (st != HEARTH_OK) return report(&err);
    int status = write_result(a, m);
    if (status == 0 && interrupted())
        print_status("interrupted; %s has the chunks so far: --from-chunk %llu --in-file adds the others",
                     args_text(a, "output", NULL), (unsigned long long)(o.first_chunk + n_done));
    return status;
}

static int compute(const args *a, const hearth_model *model, hearth_session *session, const char *text, size_t n)
{
    hearth_error err;
    print_start_line(a, model, session);
    if (hth_atomic_writer_check(args_text(a, "output", NULL), &err) != HEARTH_OK) return report(&err);
    hth_imatrix *m = open_files(a, hearth_session_n_ctx(session), model);
    int status = m ? add_text(a, model, session, text, n, m) : EXIT_OTHER;
    hth_imatrix_close(m);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------ */

static int check_usage(const args *a)
{
    const char *model = args_operand(a, 0), *file = args_text(a, "file", NULL), *out = args_text(a, "output", NULL),
               *in = args_text_at(a, "in-file", 0), *selector = args_text(a, "selector", "dense");
    if (!out) return usage_error("imatrix needs -o OUT");
    if (!file && !in) return usage_error("imatrix needs -f FILE, or matrices to combine: --in-file FILE");
    if (file && !model) return usage_error("imatrix -f %s: needs the model", file);
    if (!file && model) return usage_error("imatrix %s: needs -f FILE; --in-file alone needs no model", model);
    if (strcmp(selector, "dense") != 0 && strcmp(selector, "auto") != 0)
        return usage_error("imatrix --selector %s: all neurons are computed, so that all are seen", selector);
    if (args_has(a, "bf16-dot")) return usage_error("imatrix --bf16-dot: the result would depend on --batch");
    for (size_t i = 0; (in = args_text_at(a, "in-file", i)); i++) {
        const input read = {in, "a matrix"};
        int wrong = check_output(a, out, OUTPUT_IMATRIX, &read, 1);
        if (wrong) return wrong;
    }
    return check_output_beside(a, file, out, OUTPUT_IMATRIX);
}

static int run_imatrix(const args *a)
{
    int status = check_usage(a);
    if (status) return status;
    return args_has(a, "file") ? run_on_neurons(a, NULL, compute) : combine(a);
}

const command command_imatrix = {
    .name = "imatrix",
    .operands = "[MODEL]",
    .summary = "find which weights matter for a text, for quantize",
    .details = "As llama-imatrix does: for every matrix of the layers the squares of its\n"
               "inputs, over chunks of -c tokens; for each expert those of its tokens. OUT is a\n"
               "GGUF file that quantize --imatrix and llama.cpp read; --in-file also reads their\n"
               "older .dat files. The result depends neither on threads nor on --batch. Ctrl-C\n"
               "writes the chunks so far. Without MODEL, --in-file combines files. Without -c\n"
               "chunks have 512 tokens.\n",
    .example = "hearth imatrix model-f16.gguf -f text.txt -o model.imatrix",
    .groups = {options, output_options, model_options},
    .models = 1,
    .run = run_imatrix,
};
