/* What an importance matrix is for: a small trained model that was quantised by importance is nearer to the original,
 * on a text that the matrix was not computed of. */
#include "convert/quantize.h"
#include "measure/compare.h"
#include "measure/imatrix.h"
#include "support/test.h"

enum { N_CTX = 256, N_TEXT_CHUNK = 40, N_COMPARED = 16 };

static hearth_model *open_dense(const char *path)
{
    hearth_model_options o = hearth_model_defaults();
    o.selector = HEARTH_SELECTOR_DENSE;
    return path ? OPENED(hearth_model, path, &o) : NULL;
}

static hearth_session *open_session(const hearth_model *model)
{
    hearth_session_options o = {.n_ctx = N_CTX, .n_batch = N_CTX, .selector = HEARTH_SELECTOR_DENSE};
    return OPENED(hearth_session, model, &o);
}

/* Writes the matrix of the first chunks of the text. */
static const char *write_matrix(const hearth_model *model, const char *text, size_t n)
{
    const char *path = test_scratch("storyteller.imatrix");
    hth_imatrix *m = NULL;
    hth_imatrix_options o = {.n_chunk = N_TEXT_CHUNK};
    uint64_t n_done = 0;
    CLOSED(hearth_session) *session = open_session(model);
    CHECK_OK(hth_imatrix_new(N_CTX, &m, err));
    CHECK_OK(hth_measure_imatrix(model, session, text, n, &o, m, &n_done, err));
    CHECK_OK(hth_imatrix_write(m, path, err));
    CHECK_INT(n_done, N_TEXT_CHUNK);
    hth_imatrix_close(m);
    return path;
}

/* Mean KL divergence from the original. */
static double divergence(const hearth_model *original, const char *in, const char *type, const char *imatrix,
                         const char *text, size_t n)
{
    const char *path = test_scratch("quantised.gguf");
    hth_quantize_options o = {.ftype = hth_ftype_find(type), .imatrix = imatrix};
    hth_quantize_result r;
    CHECK_OK(hth_quantize(in, path, &o, &r, err));
    CLOSED(hearth_model) *model = open_dense(path);
    if (!model) return (double)NAN;
    hth_compare_side reference = {original, open_session(original)}, mode = {model, open_session(model)};
    hth_compare *c = NULL;
    hth_comparison result = {.kl = (double)NAN};
    CHECK_OK(hth_compare_open(&reference, &mode, &c, err));
    CHECK_OK(hth_measure_compare(c, text, n, N_COMPARED, NULL, NULL, &result, err));
    double kl = result.kl;
    hth_compare_close(c);
    hearth_session_close(reference.session);
    hearth_session_close(mode.session);
    return kl;
}

TEST(models_that_are_quantised_by_importance_are_nearer_to_the_original)
{
    static const char *const types[] = {"Q2_K", "Q4_0", "IQ4_NL", "Q3_K_S", "Q4_K_S", "Q4_1", "Q5_K_S"};
    const size_t n_type = test_is_long() ? sizeof types / sizeof *types : 3;
    size_t n = 0;
    const char *in = test_data("models/storyteller-drelu/storyteller-drelu-f32.gguf"), *path = test_data("text/stories.txt");
    FREED char *text = path ? test_read_file(path, &n) : NULL;
    CLOSED(hearth_model) *original = open_dense(in);
    if (!original || !text) return;
    const char *matrix = write_matrix(original, text, n);
    const char *second = strstr(text + n / 2, "\n\n"); /* far behind the chunks of the matrix */
    for (size_t i = 0; i < n_type; i++) {
        double without = divergence(original, in, types[i], NULL, second, n - (size_t)(second - text)),
               with = divergence(original, in, types[i], matrix, second, n - (size_t)(second - text));
        printf("     %s: KL %.5f, by importance %.5f\n", types[i], without, with);
        CHECK(with < without);
    }
}
