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
    hearth_constraint *constraint; /* follows the JSON, token by token */
} extraction;

static hearth_status extraction_open(extraction *x, const char *path, hearth_error *err)
{
    hearth_constraint_options options = hearth_constraint_defaults();
    options.kind = HEARTH_CONSTRAINT_JSON_SCHEMA;
    options.text = schema;
    options.n = strlen(schema);
    hearth_status status = hearth_model_open(path, NULL, &x->model, err);
    if (!status) status = hearth_session_open(x->model, NULL, &x->session, err);
    if (!status) status = hearth_constraint_open(x->model, &options, &x->constraint, err);
    return status;
}

static void extraction_close(extraction *x)
{
    hearth_constraint_close(x->constraint);
    hearth_session_close(x->session);
    hearth_model_close(x->model);
}

static bool show(void *user, const hearth_generated *part)
{
    (void)user;
    fwrite(part->text, 1, part->n, stdout);
    return true;
}

/* Without a sampler the most likely of the tokens that the constraint allows is taken. */
static hearth_status write_json(extraction *x, const int32_t *ids, size_t n, hearth_error *err)
{
    hearth_usage usage;
    hearth_generate_options options = hearth_generate_defaults();
    options.tokens = ids;
    options.n_token = n;
    options.constraint = x->constraint;
    options.fn = show;
    memset(&usage, 0, sizeof usage);
    usage.size = sizeof usage;
    hearth_status status = hearth_generate(x->session, &options, &usage, err);
    putchar('\n');
    if (!status && hearth_constraint_get_end(x->constraint) == HEARTH_CONSTRAINT_INCOMPLETE) {
        status = HEARTH_ERROR_CONTEXT;
        snprintf(err->message, sizeof err->message, "the JSON is not complete: %s", hearth_end_name(usage.end));
    }
    return status;
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
    if (!status) status = write_json(x, ids, n_ids, err);
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
