/* `hearth inspect` as text: first the model, then its bytes by tensor, the requirements of a run, and the
 * metadata. */
#include "cli/files/inspect_facts.h"
#include "common/options/field_names.h"
#include "common/options/model_args.h"
#include "common/terminal/table.h"
#include "forward/sequence.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_TEXT = 80, SHOWN_ELEMENTS = 6 };

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

/* Prints a heading after a blank line. */
static void heading(const char *text) { printf("\n%s\n", text); }

static void label(const char *text) { printf("  %-14s ", text); }

/* ---- texts from the file -------------------------------------------------------------- */

static void print_text(hth_str text, bool all)
{
    size_t n = all || text.n < SHOWN_TEXT ? text.n : SHOWN_TEXT;
    while (n > 0 && n < text.n && ((unsigned char)text.bytes[n] & 0xc0) == 0x80)
        n--; /* not inside a character */
    putchar('"');
    for (size_t i = 0; i < n;) {
        char one[8];
        uint32_t c;
        size_t size = hth_text_utf8_decode(text.bytes + i, text.n - i, &c);
        bool control =
            size > 0 && (c < 0x20 || (c >= 0x7f && c < 0xa0)); /* C1 controls also control terminals */
        if (size > 0 && !control) {
            fwrite(text.bytes + i, 1, size, stdout);
            i += size;
            continue;
        }
        for (size_t end = i + (size > 0 ? size : 1); i < end; i++)
            fputs(hth_escape(one, sizeof one, text.bytes + i, 1), stdout);
    }
    printf(n < text.n ? "\"... (%zu bytes)" : "\"", text.n);
}

static void print_element(const hth_gguf_value *v, uint64_t i, bool all)
{
    hth_gguf_type t = v->element_type;
    if (t == HTH_GGUF_TEXT) print_text(((const hth_str *)v->elements)[i], all);
    else if (t == HTH_GGUF_F32 || t == HTH_GGUF_F64) printf("%.9g", hth_gguf_element_float(v, i));
    else if (value_type_is_signed(t)) printf("%lld", (long long)hth_gguf_element_int(v, i));
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
        if (value_type_is_signed(v->type)) printf("%lld", (long long)v->as.i);
        else printf("%llu", (unsigned long long)v->as.u);
        return;
    }
    printf("%llu of %s", (unsigned long long)v->n_element, value_type_name(v->element_type));
    if (v->element_type == HTH_GGUF_ARRAY) return;
    uint64_t n = all || v->n_element < SHOWN_ELEMENTS ? v->n_element : SHOWN_ELEMENTS;
    for (uint64_t i = 0; i < n; i++) {
        fputs(i ? ", " : ": ", stdout);
        print_element(v, i, all);
    }
    if (n < v->n_element) fputs(", ...", stdout);
}

/* ---- the model ---------------------------------------------------------------------------- */

static void print_attention(const hth_model *m)
{
    static const char *const rotations[] = {"rotation of neighbours", "rotation of halves", "no rotation"};
    const hth_hparams *h = &m->hparams;
    uint32_t n_window = 0, window = 0;
    for (uint32_t i = 0; i < h->n_layer; i++)
        if (m->layers[i].attn.window > 0) n_window++, window = m->layers[i].attn.window;
    if (h->n_head == 0) return;
    label("attention");
    printf("%u heads of %u, %u for keys and values; %s", h->n_head, h->d_head, h->n_head_kv,
           rotations[h->rope.kind]);
    if (h->rope.kind != HTH_ROPE_NONE) printf(", base %g", h->rope.base);
    if (n_window > 0) printf("; %u of %u layers see %u positions", n_window, h->n_layer, window);
    putchar('\n');
}

/* How many layers have blocks of how many positions, and the streams between them. */
static void print_blocks(const hth_model *m)
{
    for (int k = 0; k < HTH_N_BLOCK_SIZE; k++) {
        uint32_t n = 0, size = m->hparams.compressed.n_tok[k];
        for (uint32_t i = 0; i < m->hparams.n_layer; i++) n += m->layers[i].compressed.n_tok == size;
        if (size > 0) printf(", %u over blocks of %u", n, size);
    }
    printf("; %u residual streams", m->hparams.n_stream);
}

/* Mixers that are not attention. */
static void print_other_mixers(const hth_model *m)
{
    static const char *const names[HTH_N_MIXER] = {[HTH_MIXER_LATENT] = "latent attention",
                                                   [HTH_MIXER_COMPRESSED] = "compressed attention",
                                                   [HTH_MIXER_SHORT_CONV] = "short convolution",
                                                   [HTH_MIXER_DELTA_NET] = "gated DeltaNet",
                                                   [HTH_MIXER_KDA] = "Kimi Delta Attention",
                                                   [HTH_MIXER_SSM] = "state spaces"};
    const hth_recurrent_sizes *r = &m->hparams.recurrent;
    const hth_latent_sizes *z = &m->hparams.latent;
    uint32_t n[HTH_N_MIXER] = {0};
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) n[m->layers[i].mixer]++, n[m->layers[i].parallel_mixer]++;
    for (int k = 0; k < HTH_N_MIXER; k++) {
        if (n[k] == 0 || !names[k]) continue;
        label(k == HTH_MIXER_LATENT || k == HTH_MIXER_COMPRESSED ? "" : "recurrent");
        printf("%u of %u layers: %s", n[k], m->hparams.n_layer, names[k]);
        if (k == HTH_MIXER_LATENT) printf(" of rank %u, keys of %u, values of %u", z->rank, z->d_nope + z->d_rope, z->d_value);
        else if (k == HTH_MIXER_COMPRESSED) print_blocks(m);
        else if (k == HTH_MIXER_SHORT_CONV) printf(" of %u tokens", r->d_conv);
        else if (k == HTH_MIXER_SSM) printf(", %u channels with states of %u", r->d_inner, r->d_state);
        else printf(", %u heads of %u", r->n_head, r->d_state);
        putchar('\n');
    }
}

/* Blocks behind the layers. */
static void print_mtp(const hth_model *m)
{
    uint32_t n = m->hparams.n_block - m->hparams.n_layer;
    if (n == 0) return;
    label("MTP");
    printf("%u block%s that predict%s further tokens: %s\n", n, n > 1 ? "s" : "", n > 1 ? "" : "s",
           hth_model_has_mtp(m) ? "the first one makes drafts" : "not used");
}

/* The head that scores pairs of texts. */
static void print_rank_head(const facts *f)
{
    const hth_gguf_value *labels = reranker_labels(f->model);
    if (!hth_model_is_reranker(f->model)) return;
    label("reranker");
    printf("a head of %u classes", f->model->n_class);
    for (uint64_t i = 0; labels && i < labels->n_element && (f->all || i < SHOWN_ELEMENTS); i++) {
        fputs(i ? ", " : ": ", stdout);
        print_text(((const hth_str *)labels->elements)[i], f->all);
    }
    puts("; the first one is the score of a document at /v1/rerank of hearth serve");
}

/* The usual names of an activation with and without a gate. */
static const char *ffn_name(hth_activation activation, bool gated)
{
    static const char *const names[HTH_N_ACTIVATION][2] = {{"SiLU", "SwiGLU"},
                                                           {"GELU", "GeGLU"},
                                                           {"ReLU", "ReGLU"},
                                                           {"ReLU\u00b2", "gated ReLU\u00b2"},
                                                           {"dReLU", "dReLU"},
                                                           {"clamped SwiGLU", "clamped SwiGLU"}};
    return names[activation][gated];
}

/* Selectors that the activation allows but that need a missing file. */
static void print_missing_selectors(const facts *f)
{
    bool exact;
    size_t n = 0;
    const char *const *modes = sparsity_modes(f->model, &exact);
    for (size_t i = 0; modes[i]; i++) {
        hearth_selector s = HEARTH_SELECTOR_DENSE;
        while (strcmp(hearth_selector_name(s), modes[i]) != 0) s++;
        if (f->runs_with[s]) continue;
        if (n == 0) label("");
        printf("%s%s with a file of hearth %ss", n++ ? ", " : "", modes[i], modes[i]);
    }
    if (n > 0) puts(" (approximate)");
}

/* Selectors that the file can run with, and the choice of auto. */
static void print_selectors(const facts *f)
{
    bool first = true;
    printf("; runs with ");
    for (hearth_selector s = HEARTH_SELECTOR_DENSE; s <= HEARTH_SELECTOR_THRESHOLD; s++) {
        if (!f->runs_with[s]) continue;
        printf("%s%s%s", first ? "" : ", ", hearth_selector_name(s),
               selector_is_approximate(s) ? " (approximate)" : "");
        first = false;
    }
    if (f->no_choice.status == HEARTH_OK)
        printf("; auto takes %s: %s\n", hearth_selector_name(f->chosen), f->chosen_why);
    else printf("; auto cannot: %s\n", printable(with_options(f->no_choice.message).text));
    print_missing_selectors(f);
}

static void print_experts(const hth_model *m)
{
    static const char *const scores[HTH_N_SCORE] = {[HTH_SCORE_SOFTMAX] = "softmax",
                                                    [HTH_SCORE_SIGMOID] = "sigmoid",
                                                    [HTH_SCORE_SOFTMAX_CHOSEN] = "softmax of the chosen",
                                                    [HTH_SCORE_SQRT_SOFTPLUS] = "root of softplus"};
    const hth_expert_sizes *e = &m->hparams.experts;
    hth_active_weights active = hth_model_count_active(m);
    if (e->n_expert == 0) return;
    label("experts");
    printf("%u of %u neurons", e->n_expert, e->d_ff);
    if (active.n_layer < m->hparams.n_layer) printf(" in %u layers", active.n_layer);
    printf(", %u used for a token by %s", e->n_used, scores[e->score]);
    if (e->n_group > 1) printf(" from %u of %u groups", e->n_group_used, e->n_group);
    if (e->d_ff_shared > 0) printf(", and a shared one of %u neurons", e->d_ff_shared);
    putchar('\n');
    label("parameters");
    printf("%.1f M, of which a token uses %.1f M; it reads %.2f MiB\n", (double)active.n_weight * 1e-6,
           (double)active.n_active * 1e-6, mib(active.read_size));
}

static void print_ffn(const facts *f)
{
    const hth_model *m = f->model;
    const hth_hparams *h = &m->hparams;
    bool exact, gated = m->layers[0].ffn.gate.n_row > 0;
    print_experts(m);
    label("feed-forward");
    if (h->d_ff == 0 && h->experts.n_expert == 0) {
        puts("none");
        return;
    }
    if (h->d_ff > 0) printf("%u neurons%s, ", h->d_ff, h->experts.n_expert > 0 ? " in dense layers" : "");
    printf("%s%s\n", ffn_name(h->activation, gated || h->experts.n_expert > 0),
           hth_gguf_find(m->file, "hearth.ffn.activation") ? " (as the file says)" : "");
    label("sparsity");
    sparsity_modes(m, &exact);
    printf(exact ? "neurons give exact zeros" : "no exact zeros");
    print_selectors(f);
}

static void print_tokenizer(const facts *f)
{
    label("tokenizer");
    if (f->no_tokenizer.status != HEARTH_OK)
        printf("none: %s\n", printable(with_options(f->no_tokenizer.message).text));
    else if (f->cut)
        printf("%s, %d tokens, words cut as \"%s\" by %s\n", f->tokenizer_title, (int)f->n_token, f->cut, f->cut_engine);
    else printf("%s, %d tokens\n", f->tokenizer_title, (int)f->n_token);
}

static void print_model(const facts *f)
{
    const hth_gguf_value *name = hth_gguf_find(f->file, "general.name");
    heading("Model");
    if (name && name->type == HTH_GGUF_TEXT) {
        label("name");
        print_text(name->as.text, f->all);
        putchar('\n');
    }
    if (f->model) {
        const hth_hparams *h = &f->model->hparams;
        label("architecture");
        printf("%s: %u layers, width %u, vocabulary %u, trained for %u positions\n", h->architecture,
               h->n_layer, h->d_model, h->n_vocab, h->n_ctx_train);
        print_attention(f->model);
        print_other_mixers(f->model);
        print_mtp(f->model);
        print_rank_head(f);
        print_ffn(f);
    }
    print_tokenizer(f);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void print_sum(const char *name, const tensor_sum *s, const char *remark)
{
    printf("  %-14s %7llu %16llu %12.2f%s\n", name, (unsigned long long)s->n_tensor,
           (unsigned long long)s->n_weight, mib(s->size), remark);
}

/* Integer tensors are lists of a file: orders of neurons, counts. */
static const char *type_note(const hth_type_info *type)
{
    bool counts = type->name[0] == 'I' && type->name[1] >= '0' && type->name[1] <= '9';
    return type->supported ? "" : counts ? "  (no weights)" : "  (not supported)";
}

static void print_sums(const facts *f)
{
    tensor_sum whole = {0};
    heading("Tensors           number          weights          MiB");
    for (int r = 0; r < N_ROLE; r++) {
        if (f->roles[r].n_tensor == 0) continue;
        print_sum(role_name((role)r), &f->roles[r], "");
        whole.n_tensor += f->roles[r].n_tensor, whole.n_weight += f->roles[r].n_weight;
        whole.size += f->roles[r].size;
    }
    print_sum("together", &whole, "");
    putchar('\n');
    for (uint32_t i = 0; i < HTH_TYPE_LIMIT; i++)
        if (f->types[i].n_tensor)
            print_sum(hth_type_find(i)->name, &f->types[i], type_note(hth_type_find(i)));
}

static void print_tensor(const hth_gguf_tensor *t)
{
    char name[260], shape[100];
    int n = 0;
    for (uint32_t d = 0; d < t->n_dim; d++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%llu", d ? ", " : "",
                      (unsigned long long)t->dim[d]);
    printf("  %-36s %-6s %-20s %10.3f MiB at %llu of part %u\n",
           hth_escape(name, sizeof name, t->name.bytes, t->name.n), hth_type_find(t->type)->name, shape,
           mib(t->size), (unsigned long long)t->offset, t->i_part + 1);
}

/* ---- entry point ------------------------------------------------------------------------------- */

/* On a terminal with its share of all, as a bar. */
static void print_need(const char *what, size_t bytes, size_t all, const char *note)
{
    label(what);
    printf("%12.2f MiB", mib(bytes));
    if (shows_bars() && all > 0) printf("  %s", bar_of((double)bytes / (double)all, BAR_COLUMNS).text);
    printf("%s\n", note);
}

static void print_needs(const facts *f)
{
    char title[80];
    size_t states = HTH_N_STATE_COPY * f->state_size;
    if (is_sidecar(f->file)) return;
    if (!f->model) {
        printf("\nCannot be run: %s\n", printable(with_options(f->why_not.message).text));
        return;
    }
    snprintf(title, sizeof title, "Memory for a run of %u positions", f->n_ctx);
    heading(title);
    size_t all = f->weight_size + f->kv_f16_size + states + f->step_size;
    char note[80];
    print_need("weights", f->weight_size, all, "");
    snprintf(note, sizeof note, " (f16; f32: %.2f)", mib(f->kv_f32_size));
    print_need("KV cache", f->kv_f16_size, all, note);
    snprintf(note, sizeof note, " (%d copies of %.2f)", HTH_N_STATE_COPY, mib(f->state_size));
    if (f->state_size > 0) print_need("states", states, all, note);
    print_need("workspace", f->step_size, all, "");
    print_need("together", all, all, "");
}

static void print_metadata(const facts *f)
{
    char title[80];
    snprintf(title, sizeof title, "Metadata (%zu)", hth_gguf_n_value(f->file));
    heading(title);
    for (size_t i = 0; i < hth_gguf_n_value(f->file); i++) {
        const hth_gguf_value *v = hth_gguf_value_at(f->file, i);
        char key[400];
        printf("  %-42s %-5s ", hth_escape(key, sizeof key, v->key.bytes, v->key.n),
               value_type_name(v->type));
        print_value(v, f->all);
        putchar('\n');
    }
}

/* Writers place tensors in the order of the tensor infos. Other legal layouts are reported, because not every
 * program reads them. */
static void print_layout(const hth_gguf *file)
{
    uint64_t gap = 0, alignment = hth_gguf_alignment(file);
    for (size_t i = 1; i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i), *before = hth_gguf_tensor_at(file, i - 1);
        if (t->i_part != before->i_part) continue;
        if (t->offset < before->offset) {
            puts("tensors lie in another order than the directory names them");
            return;
        }
        uint64_t between = t->offset - before->offset - before->size;
        if (between >= alignment) gap += between;
    }
    if (gap > 0) printf("%llu bytes lie between tensors\n", (unsigned long long)gap);
}

void inspect_print(const facts *f)
{
    uint32_t n_part = hth_gguf_n_part(f->file);
    printf("%s: GGUF version %u, %u part%s, %.2f MiB, alignment %llu\n", printable(hth_gguf_path(f->file)),
           hth_gguf_version(f->file), n_part, n_part == 1 ? "" : "s", mib(hth_gguf_size(f->file)),
           (unsigned long long)hth_gguf_alignment(f->file));
    if (hth_gguf_trailing(f->file))
        printf("%llu bytes lie after the last tensor\n", (unsigned long long)hth_gguf_trailing(f->file));
    print_layout(f->file);
    if (is_sidecar(f->file)) inspect_print_sidecar(f);
    else print_model(f);
    print_sums(f);
    print_needs(f);
    print_metadata(f);
    if (!f->all) return;
    heading("Every tensor");
    for (size_t i = 0; i < hth_gguf_n_tensor(f->file); i++) print_tensor(hth_gguf_tensor_at(f->file, i));
}
