/* Search by meaning: each text becomes a vector of length 1, made of what the last layer makes of its tokens as the file
 * says, and the cosine of two vectors says how near the texts are.
 *
 *     cc embeddings.c $(pkg-config --cflags --libs hearth) -o embeddings
 *     ./embeddings model.gguf "a small dog" "The puppy barked" "They went by train"
 *
 * Writes for each text its cosine with the first one, and the text. All texts are evaluated together; the same text has
 * the same bits each time. */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of the texts, which are the caller's. */
static hearth_status tokenize(const hearth_model *model, char **texts, hearth_embed_text *tokens, size_t n,
                              hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < n && !status; i++) {
        int32_t *ids = NULL;
        status = hearth_tokenize(model, texts[i], strlen(texts[i]), HEARTH_ADD_SPECIAL, &ids,
                                 &tokens[i].n_token, err);
        tokens[i].tokens = ids;
    }
    return status;
}

/* Vectors have length 1, so that the cosine is the dot product. */
static void compare(const float *vectors, uint32_t n_dim, char **texts, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        double cosine = 0;
        for (uint32_t k = 0; k < n_dim; k++) cosine += (double)vectors[k] * vectors[i * n_dim + k];
        printf("%.6f\t%s\n", cosine, texts[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: embeddings MODEL QUERY TEXT...\n", stderr);
        return 2;
    }
    hearth_model *model = NULL;
    hearth_embedder *embedder = NULL;
    hearth_error err;
    size_t n = (size_t)argc - 2;
    hearth_embed_text *tokens = (hearth_embed_text *)calloc(n, sizeof *tokens);
    float *vectors = NULL;
    hearth_status status = hearth_model_open(argv[1], NULL, &model, &err);
    if (!status) status = hearth_embedder_open(model, NULL, &embedder, &err);
    if (!status) {
        vectors = (float *)calloc(n * hearth_embedder_n_dim(embedder), sizeof *vectors);
        if (tokens && vectors) {
            status = tokenize(model, argv + 2, tokens, n, &err);
        } else {
            status = HEARTH_ERROR_MEMORY;
            strcpy(err.message, "no memory for the vectors");
        }
    }
    if (!status) status = hearth_embed(embedder, tokens, n, vectors, &err);
    if (!status) compare(vectors, hearth_embedder_n_dim(embedder), argv + 2, n);
    else fprintf(stderr, "embeddings: %s\n", err.message);
    for (size_t i = 0; tokens && i < n; i++) hearth_free((void *)tokens[i].tokens);
    free(tokens);
    free(vectors);
    hearth_embedder_close(embedder);
    hearth_model_close(model);
    return status ? 1 : 0;
}
