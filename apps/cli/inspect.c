/* hearth inspect: what is in a file, and what running it takes. Weights are not
 * read, so it answers at once for any size. */
#include "base/alloc.h"
#include "cli/verbs.h"
#include "common/json.h"
#include "common/output.h"
#include "file/gguf.h"
#include "model/model.h"
#include "run/run.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const option_spec options[] = {
    {"ctx", 'c', OPTION_UINT, "N", "context to estimate for; default: at most 4096", 1, 16777216, NULL,
     false},
    {"all", 0, OPTION_FLAG, NULL, "show arrays and texts whole, and every tensor", 0, 0, NULL, false},
    {"json", 0, OPTION_FLAG, NULL, "print a JSON object", 0, 0, NULL, false},
    {0},
};

enum { SHOWN_TEXT = 80, SHOWN_ELEMENTS = 6, BATCH_ROWS = 256 };

/* ---- metadata as text -------------------------------------------------------------------- */

static const char *type_name(hth_gguf_type type)
{
    static const char *const names[] = {"u8",   "i8",   "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "text", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : "?";
}

static void print_text(hth_text text, bool all)
{
    size_t n = all || text.n < SHOWN_TEXT ? text.n : SHOWN_TEXT;
    while (n > 0 && n < text.n && ((unsigned char)text.bytes[n] & 0xc0) == 0x80)
        n--; /* not inside a character */
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        char one[8];
        unsigned char c = (unsigned char)text.bytes[i],
                      next = i + 1 < n ? (unsigned char)text.bytes[i + 1] : 0;
        bool control = c < 0x80 || (c == 0xc2 && next < 0xa0); /* C1 controls drive terminals too */
        if (!control) putchar(c);
        else fputs(hth_escape(one, sizeof one, text.bytes + i, 1), stdout);
        if (control && c == 0xc2 && i + 1 < n)
            fputs(hth_escape(one, sizeof one, text.bytes + ++i, 1), stdout);
    }
    printf(n < text.n ? "\"... (%zu bytes)" : "\"", text.n);
}

static bool is_signed(hth_gguf_type t)
{
    return t == HTH_GGUF_I8 || t == HTH_GGUF_I16 || t == HTH_GGUF_I32 || t == HTH_GGUF_I64;
}

static void print_element(const hth_gguf_value *v, uint64_t i, bool all)
{
    hth_gguf_type t = v->element_type;
    if (t == HTH_GGUF_TEXT) print_text(((const hth_text *)v->elements)[i], all);
    else if (t == HTH_GGUF_F32 || t == HTH_GGUF_F64) printf("%.9g", hth_gguf_element_float(v, i));
    else if (is_signed(t)) printf("%lld", (long long)hth_gguf_element_int(v, i));
    else printf("%llu", (unsigned long long)hth_gguf_element_uint(v, i));
}

static void print_value(const hth_gguf_value *v, bool all)
{
    switch (v->type) {
    case HTH_GGUF_TEXT: print_text(v->as.text, all); return;
    case HTH_GGUF_F32:
    case HTH_GGUF_F64: printf("%.9g", v->as.f); return;
    case HTH_GGUF_BOOL: fputs(v->as.u ? "true" : "false", stdout); return;
    case HTH_GGUF_ARRAY: break;
    default:
        if (is_signed(v->type)) printf("%lld", (long long)v->as.i);
        else printf("%llu", (unsigned long long)v->as.u);
        return;
    }
    printf("%llu of %s", (unsigned long long)v->n_element, type_name(v->element_type));
    if (v->element_type == HTH_GGUF_ARRAY) return;
    uint64_t n = all || v->n_element < SHOWN_ELEMENTS ? v->n_element : SHOWN_ELEMENTS;
    for (uint64_t i = 0; i < n; i++) {
        fputs(i ? ", " : ": ", stdout);
        print_element(v, i, all);
    }
    if (n < v->n_element) fputs(", ...", stdout);
}

/* ---- tensors ---------------------------------------------------------------------------------- */

typedef struct type_sum {
    uint64_t n_tensor, n_weight, size;
} type_sum;

static uint64_t n_weight_of(const hth_gguf_tensor *t)
{
    return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}

static void sum_types(const hth_gguf *file, type_sum sums[HTH_TYPE_LIMIT])
{
    memset(sums, 0, HTH_TYPE_LIMIT * sizeof *sums);
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        sums[t->type].n_tensor++;
        sums[t->type].n_weight += n_weight_of(t);
        sums[t->type].size += t->size;
    }
}

static void print_tensor(const hth_gguf_tensor *t)
{
    char name[260];
    printf("  %-36s %-6s [", hth_escape(name, sizeof name, t->name.bytes, t->name.n),
           hth_type_find(t->type)->name);
    for (uint32_t d = 0; d < t->n_dim; d++) printf("%s%llu", d ? ", " : "", (unsigned long long)t->dim[d]);
    printf("]  %llu bytes at %llu of part %u\n", (unsigned long long)t->size, (unsigned long long)t->offset,
           t->i_part + 1);
}

/* ---- what a run needs ----------------------------------------------------------------------------- */

typedef struct needs {
    bool runs;
    hearth_error why_not;
    uint32_t n_ctx;
    uint64_t weights;
    size_t kv_f16, kv_f32, step;
} needs;

static needs estimate(const args *a, const hth_gguf *file)
{
    needs n = {0};
    hth_model *model;
    n.runs = hth_model_open(file, &model, &n.why_not) == HEARTH_OK;
    if (!n.runs) return n;
    uint32_t trained = model->hparams.n_ctx_train;
    n.n_ctx = (uint32_t)args_uint(a, "ctx", trained < 4096 ? trained : 4096);
    n.weights = model->weight_size;
    n.runs = hth_kv_size(model, HEARTH_KV_F16, n.n_ctx, &n.kv_f16) &&
             hth_kv_size(model, HEARTH_KV_F32, n.n_ctx, &n.kv_f32) &&
             hth_step_size(model, n.n_ctx < BATCH_ROWS ? n.n_ctx : BATCH_ROWS, 1, &n.step);
    if (!n.runs)
        snprintf(n.why_not.message, sizeof n.why_not.message, "a context of %u positions overflows", n.n_ctx);
    hth_model_close(model);
    return n;
}

/* ---- the tokenizer ------------------------------------------------------------------------------------- */

typedef struct words {
    hearth_error why_not; /* status OK when the file has a tokenizer of ours */
    int32_t n_vocab;
    const char *cut; /* the pre-tokenizer's family, or NULL */
    char engine[80];
} words;

static words describe_tokenizer(const hth_gguf *file)
{
    words w = {0};
    hth_tokenizer *tok;
    w.why_not.status = hth_tokenizer_open(file, &tok, &w.why_not);
    if (w.why_not.status != HEARTH_OK) return w;
    w.n_vocab = hth_tokenizer_n_vocab(tok);
    w.cut = hth_tokenizer_cut_by(tok, w.engine, sizeof w.engine);
    hth_tokenizer_close(tok);
    return w;
}

static void print_tokenizer(const hth_gguf *file)
{
    words w = describe_tokenizer(file);
    if (w.why_not.status != HEARTH_OK) printf("\nNo tokenizer: %s\n", w.why_not.message);
    else if (w.cut)
        printf("\nTokenizer: byte-level BPE, %d tokens, words cut as \"%s\" by %s\n", (int)w.n_vocab, w.cut,
               w.engine);
    else printf("\nTokenizer: SentencePiece, %d tokens\n", (int)w.n_vocab);
}

static void json_tokenizer(json *j, const hth_gguf *file)
{
    words w = describe_tokenizer(file);
    json_open(j, "tokenizer", '{');
    json_bool(j, "possible", w.why_not.status == HEARTH_OK);
    if (w.why_not.status != HEARTH_OK) {
        json_word(j, "reason", w.why_not.message);
    } else {
        json_word(j, "kind", w.cut ? "gpt2" : "llama");
        json_int(j, "tokens", w.n_vocab);
        if (w.cut) json_word(j, "pre", w.cut);
        if (w.cut) json_word(j, "engine", w.engine);
    }
    json_close(j, '}');
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static void print_report(const args *a, const hth_gguf *file)
{
    bool all = args_has(a, "all");
    type_sum sums[HTH_TYPE_LIMIT];
    printf("%s: GGUF version %u, %u part%s, %llu bytes, alignment %llu\n", hth_gguf_path(file),
           hth_gguf_version(file), hth_gguf_n_part(file), hth_gguf_n_part(file) == 1 ? "" : "s",
           (unsigned long long)hth_gguf_size(file), (unsigned long long)hth_gguf_alignment(file));
    if (hth_gguf_trailing(file))
        printf("%llu bytes lie after the last tensor\n", (unsigned long long)hth_gguf_trailing(file));
    printf("\nMetadata (%zu):\n", hth_gguf_n_value(file));
    for (size_t i = 0; i < hth_gguf_n_value(file); i++) {
        const hth_gguf_value *v = hth_gguf_value_at(file, i);
        char key[400];
        printf("  %-42s %-5s ", hth_escape(key, sizeof key, v->key.bytes, v->key.n), type_name(v->type));
        print_value(v, all);
        putchar('\n');
    }
    printf("\nTensors (%zu):\n", hth_gguf_n_tensor(file));
    sum_types(file, sums);
    for (uint32_t i = 0; i < HTH_TYPE_LIMIT; i++)
        if (sums[i].n_tensor)
            printf("  %-8s %6llu tensors  %14llu weights  %14llu bytes%s\n", hth_type_find(i)->name,
                   (unsigned long long)sums[i].n_tensor, (unsigned long long)sums[i].n_weight,
                   (unsigned long long)sums[i].size, hth_type_find(i)->supported ? "" : "  (not supported)");
    for (size_t i = 0; all && i < hth_gguf_n_tensor(file); i++) print_tensor(hth_gguf_tensor_at(file, i));
    print_tokenizer(file);
    needs n = estimate(a, file);
    if (!n.runs) {
        printf("\nCannot be run: %s\n", n.why_not.message);
        return;
    }
    printf("\nA run with %u positions needs:\n  weights      %14llu bytes\n  KV cache     %14zu bytes (f16; "
           "f32: %zu)\n"
           "  workspace    %14zu bytes\n  together     %14llu bytes\n",
           n.n_ctx, (unsigned long long)n.weights, n.kv_f16, n.kv_f32, n.step,
           (unsigned long long)(n.weights + n.kv_f16 + n.step));
}

static void json_element(json *j, const hth_gguf_value *v, uint64_t i)
{
    hth_gguf_type t = v->element_type;
    if (t == HTH_GGUF_TEXT) {
        hth_text text = ((const hth_text *)v->elements)[i];
        json_text(j, NULL, text.bytes, text.n);
    } else if (t == HTH_GGUF_F32 || t == HTH_GGUF_F64) {
        json_float(j, NULL, hth_gguf_element_float(v, i), t == HTH_GGUF_F32 ? 9 : 17);
    } else if (t == HTH_GGUF_BOOL) {
        json_bool(j, NULL, hth_gguf_element_uint(v, i) != 0);
    } else if (is_signed(t)) {
        json_int(j, NULL, hth_gguf_element_int(v, i));
    } else {
        json_uint(j, NULL, hth_gguf_element_uint(v, i));
    }
}

static void json_value(json *j, const hth_gguf_value *v, bool all)
{
    json_open_compact(j, NULL, '{');
    json_text(j, "key", v->key.bytes, v->key.n);
    json_word(j, "type", type_name(v->type));
    if (v->type == HTH_GGUF_TEXT) json_text(j, "value", v->as.text.bytes, v->as.text.n);
    else if (v->type == HTH_GGUF_F32 || v->type == HTH_GGUF_F64)
        json_float(j, "value", v->as.f, v->type == HTH_GGUF_F32 ? 9 : 17);
    else if (v->type == HTH_GGUF_BOOL) json_bool(j, "value", v->as.u != 0);
    else if (v->type != HTH_GGUF_ARRAY && is_signed(v->type)) json_int(j, "value", v->as.i);
    else if (v->type != HTH_GGUF_ARRAY) json_uint(j, "value", v->as.u);
    else {
        json_word(j, "element_type", type_name(v->element_type));
        json_uint(j, "n", v->n_element);
        if (v->element_type != HTH_GGUF_ARRAY && (all || v->n_element <= SHOWN_ELEMENTS)) {
            json_open_compact(j, "value", '[');
            for (uint64_t i = 0; i < v->n_element; i++) json_element(j, v, i);
            json_close(j, ']');
        }
    }
    json_close(j, '}');
}

static void json_tensor(json *j, const hth_gguf_tensor *t)
{
    json_open_compact(j, NULL, '{');
    json_text(j, "name", t->name.bytes, t->name.n);
    json_word(j, "type", hth_type_find(t->type)->name);
    json_open_compact(j, "dims", '[');
    for (uint32_t d = 0; d < t->n_dim; d++) json_uint(j, NULL, t->dim[d]);
    json_close(j, ']');
    json_uint(j, "bytes", t->size);
    json_uint(j, "part", t->i_part + 1);
    json_uint(j, "offset", t->offset);
    json_close(j, '}');
}

static void json_needs(json *j, const needs *n)
{
    json_open(j, "run", '{');
    json_bool(j, "possible", n->runs);
    if (n->runs) {
        json_uint(j, "n_ctx", n->n_ctx);
        json_uint(j, "weight_bytes", n->weights);
        json_uint(j, "kv_f16_bytes", n->kv_f16);
        json_uint(j, "kv_f32_bytes", n->kv_f32);
        json_uint(j, "workspace_bytes", n->step);
    } else {
        json_word(j, "reason", n->why_not.message);
    }
    json_close(j, '}');
}

static void print_json(const args *a, const hth_gguf *file)
{
    json j;
    needs n = estimate(a, file);
    json_init(&j, stdout);
    json_open(&j, NULL, '{');
    json_word(&j, "file", hth_gguf_path(file));
    json_uint(&j, "version", hth_gguf_version(file));
    json_uint(&j, "parts", hth_gguf_n_part(file));
    json_uint(&j, "bytes", hth_gguf_size(file));
    json_uint(&j, "alignment", hth_gguf_alignment(file));
    json_uint(&j, "trailing_bytes", hth_gguf_trailing(file));
    json_open(&j, "metadata", '[');
    for (size_t i = 0; i < hth_gguf_n_value(file); i++)
        json_value(&j, hth_gguf_value_at(file, i), args_has(a, "all"));
    json_close(&j, ']');
    json_open(&j, "tensors", '[');
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) json_tensor(&j, hth_gguf_tensor_at(file, i));
    json_close(&j, ']');
    json_tokenizer(&j, file);
    json_needs(&j, &n);
    json_close(&j, '}');
    json_end(&j);
}

static int run(const args *a)
{
    hth_gguf *file;
    hearth_error err;
    if (hth_gguf_open(args_operand(a, 0), &file, &err) != HEARTH_OK) return report(&err);
    if (args_has(a, "json")) print_json(a, file);
    else print_report(a, file);
    hth_gguf_close(file);
    return 0;
}

const verb verb_inspect = {
    .name = "inspect",
    .operands = "FILE",
    .n_operand_min = 1,
    .n_operand_max = 1,
    .summary = "show what is in a model file, and the memory that a run needs",
    .details = "Metadata, tensors by type and bytes, the tokenizer, and the bytes of weights,\n"
               "KV cache and workspace. Works for every well-formed GGUF file; says why one\n"
               "cannot be run.\n",
    .example = "hearth inspect model.gguf -c 8192",
    .groups = {options},
    .run = run,
};
