/* Search by meaning: each text becomes a vector, the mean of what the last layer makes of its tokens, and the cosine of two
 * vectors says how near the texts are.
 *
 *     cc embeddings.c $(pkg-config --cflags --libs hearth) -lm -o embeddings
 *     ./embeddings model.gguf "a small dog" "The puppy barked" "They went by train"
 *
 * Writes for each text its cosine with the first one, and the text. The same text has the same bits each time. */
#include <hearth/hearth.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct vector {
    uint32_t n;
    double *value;
} vector;

/* Called for each token of a text, in order. */
static hearth_status add_token(void *user, size_t i_token, const float *hidden, hearth_error *err)
{
    vector *v = (vector *)user;
    (void)i_token, (void)err;
    for (uint32_t i = 0; i < v->n; i++) v->value[i] += hidden[i];
    return HEARTH_OK;
}

/* The length becomes 1, so that the mean of the tokens and their sum are the same, and a cosine is a dot product. */
static void normalise(vector *v)
{
    double square = 0;
    for (uint32_t i = 0; i < v->n; i++) square += v->value[i] * v->value[i];
    for (uint32_t i = 0; i < v->n && square > 0; i++) v->value[i] /= sqrt(square);
}

/* *v of a text, in a session that is used for one text after the other. */
static hearth_status embed(hearth_session *session, const hearth_model *model, const char *text, vector *v,
                           hearth_error *err)
{
    int32_t *ids = NULL;
    size_t n;
    hearth_status status = hearth_tokenize(model, text, strlen(text), HEARTH_ADD_SPECIAL, &ids, &n, err);
    if (!status) status = hearth_session_truncate(session, 0, err);
    memset(v->value, 0, v->n * sizeof *v->value);
    if (!status) status = hearth_session_eval_hidden(session, ids, n, add_token, v, err);
    if (!status) normalise(v);
    hearth_free(ids);
    return status;
}

static hearth_status compare(const hearth_model *model, hearth_session *session, char **texts, size_t n_text,
                             vector *query, vector *other, hearth_error *err)
{
    hearth_status status = embed(session, model, texts[0], query, err);
    for (size_t i = 1; i < n_text && !status; i++) {
        status = embed(session, model, texts[i], other, err);
        if (status) break;
        double cosine = 0;
        for (uint32_t k = 0; k < query->n; k++) cosine += query->value[k] * other->value[k];
        printf("%.6f\t%s\n", cosine, texts[i]);
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: embeddings MODEL QUERY TEXT...\n", stderr);
        return 2;
    }
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    hearth_model_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info; /* says how much of it this program knows */
    vector query = {0, NULL}, other = {0, NULL};
    hearth_error err;
    hearth_status status = hearth_model_open(argv[1], NULL, &model, &err);
    if (!status) status = hearth_session_open(model, NULL, &session, &err);
    if (!status) {
        hearth_model_get_info(model, &info);
        query.n = other.n = info.d_model;
        query.value = (double *)malloc(query.n * sizeof *query.value);
        other.value = (double *)malloc(other.n * sizeof *other.value);
        if (query.value && other.value) {
            status = compare(model, session, argv + 2, (size_t)argc - 2, &query, &other, &err);
        } else {
            status = HEARTH_ERROR_MEMORY;
            strcpy(err.message, "no memory for two vectors");
        }
    }
    if (status) fprintf(stderr, "embeddings: %s\n", err.message);
    free(query.value);
    free(other.value);
    hearth_session_close(session);
    hearth_model_close(model);
    return status ? 1 : 0;
}
