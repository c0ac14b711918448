/* JSON from text: a constraint lets the model write nothing but JSON of a schema, whatever it would rather say.
 *
 *     cc json.c $(pkg-config --cflags --libs hearth) -o json
 *     ./json model.gguf "Lily is five years old. She has a red ball."
 *
 * Writes one JSON object, always with a name, an age and a colour. What the values are worth depends on the model. */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char schema[] =
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"name\", \"age\", \"colour\"],"
    " \"properties\": {\"name\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 20},"
    "                \"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 150},"
    "                \"colour\": {\"enum\": [\"red\", \"green\", \"blue\"]}}}";

typedef struct extraction {
    hearth_model *model;
    hearth_session *session;
    hearth_sampler *sampler;
    hearth_constraint *constraint; /* follows the JSON, token by token */
    hearth_detokenizer *decoder;
    float *logits; /* [n_vocab] of a token, of which the constraint takes away what cannot follow */
    size_t n_vocab;
} extraction;

static hearth_status extraction_open(extraction *x, const char *path, hearth_error *err)
{
    hearth_constraint_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.kind = HEARTH_CONSTRAINT_JSON_SCHEMA;
    options.text = schema;
    options.n = strlen(schema);
    hearth_status status = hearth_model_open(path, NULL, &x->model, err);
    if (!status) status = hearth_session_open(x->model, NULL, &x->session, err);
    if (!status) status = hearth_sampler_open(x->model, NULL, &x->sampler, err); /* the most likely token */
    if (!status) status = hearth_constraint_open(x->model, &options, &x->constraint, err);
    if (!status) status = hearth_detokenizer_open(x->model, false, false, &x->decoder, err);
    if (status) return status;
    hearth_model_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    hearth_model_get_info(x->model, &info);
    x->n_vocab = info.n_vocab;
    x->logits = (float *)malloc(x->n_vocab * sizeof *x->logits);
    if (x->logits) return HEARTH_OK;
    strcpy(err->message, "no memory for logits");
    return HEARTH_ERROR_MEMORY;
}

static void extraction_close(extraction *x)
{
    hearth_detokenizer_close(x->decoder);
    hearth_constraint_close(x->constraint);
    hearth_sampler_close(x->sampler);
    hearth_session_close(x->session);
    hearth_model_close(x->model);
    free(x->logits);
}

/* The next token of the JSON. */
static hearth_status next(extraction *x, int32_t *id, hearth_error *err)
{
    memcpy(x->logits, hearth_session_logits(x->session), x->n_vocab * sizeof *x->logits);
    hearth_status status = hearth_constraint_mask(x->constraint, x->logits, err);
    if (!status) status = hearth_sampler_sample(x->sampler, x->logits, id, err);
    return status;
}

static hearth_status write_json(extraction *x, hearth_error *err)
{
    const char *text;
    size_t n;
    int32_t id;
    while (hearth_constraint_get_end(x->constraint) != HEARTH_CONSTRAINT_ENDS) {
        hearth_status status = next(x, &id, err);
        if (!status && hearth_token_is_eog(x->model, id))
            break; /* possible only where the JSON is complete */
        if (!status) status = hearth_constraint_accept(x->constraint, id, err);
        if (!status) status = hearth_detokenizer_push(x->decoder, id, &text, &n, err);
        if (!status) fwrite(text, 1, n, stdout);
        if (!status) status = hearth_session_eval(x->session, &id, 1, err);
        if (status) return status;
    }
    putchar('\n');
    return HEARTH_OK;
}

static hearth_status extract(extraction *x, const char *text, hearth_error *err)
{
    static const char question[] = "\nName, age and favourite colour as JSON:\n";
    size_t n = strlen(text), n_prompt = n + strlen(question), n_ids;
    int32_t *ids = NULL;
    char *prompt = (char *)malloc(n_prompt);
    if (!prompt) {
        strcpy(err->message, "no memory for the prompt");
        return HEARTH_ERROR_MEMORY;
    }
    memcpy(prompt, text, n);
    memcpy(prompt + n, question, n_prompt - n);
    hearth_status status = hearth_tokenize(x->model, prompt, n_prompt, HEARTH_ADD_SPECIAL, &ids, &n_ids, err);
    if (!status) status = hearth_session_eval(x->session, ids, n_ids, err);
    if (!status) status = write_json(x, err);
    hearth_free(ids);
    free(prompt);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: json MODEL TEXT\n", stderr);
        return 2;
    }
    extraction x;
    memset(&x, 0, sizeof x);
    hearth_error err;
    hearth_status status = extraction_open(&x, argv[1], &err);
    if (!status) status = extract(&x, argv[2], &err);
    if (status) fprintf(stderr, "json: %s\n", err.message);
    extraction_close(&x);
    return status ? 1 : 0;
}
