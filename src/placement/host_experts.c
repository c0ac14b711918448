/* Which layers' experts stay on the host: the first ones, or those whose tensors llama.cpp's --override-tensor names. */
#define _POSIX_C_SOURCE 200809L
#include "placement/policy.h"

#include "base/alloc.h"
#include "base/log.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

/* One of the rules, without the text of those behind it. */
typedef struct rule {
    regex_t pattern;
    bool is_host;
} rule;
typedef struct rule_list {
    rule *items;
    size_t n;
} rule_list;

/* ---- rules --------------------------------------------------------------------------------------------- */

/* A pattern as POSIX has it: llama.cpp's are those of ECMAScript, of which (?: and \d are common. */
static void to_posix(const char *from, size_t n, char *to)
{
    for (size_t i = 0; i < n; i++) {
        if (from[i] == '(' && n - i > 2 && memcmp(from + i, "(?:", 3) == 0) {
            *to++ = '(', i += 2;
        } else if (from[i] == '\\' && i + 1 < n && from[i + 1] == 'd') {
            memcpy(to, "[0-9]", 5), to += 5, i++;
        } else {
            *to++ = from[i];
            if (from[i] == '\\' && i + 1 < n) *to++ = from[++i];
        }
    }
    *to = '\0';
}

/* Names of llama.cpp's buffers in the host's memory: CPU, CUDA_Host, Vulkan_Host and others. */
static bool is_host_buffer(const char *name, size_t n)
{
    static const char cpu[] = "CPU", pinned[] = "_Host";
    size_t n_pinned = sizeof pinned - 1;
    return (n == sizeof cpu - 1 && memcmp(name, cpu, n) == 0) ||
           (n > n_pinned && memcmp(name + n - n_pinned, pinned, n_pinned) == 0);
}

/* Adds PATTERN=BUFFER of n bytes. */
static hearth_status add_rule(rule_list *rules, const char *text, size_t n, hearth_error *err)
{
    const char *equals = memchr(text, '=', n);
    if (!equals || equals == text || equals + 1 == text + n)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "'%.*s' names no tensors and their memory: PATTERN=CPU does",
                        (int)(n < 200 ? n : 200), text);
    size_t n_pattern = (size_t)(equals - text);
    char *posix = hth_alloc(3 * n_pattern + 1, 1), why[80];
    if (!posix) return hth_fail_memory(err, 3 * n_pattern + 1, "a pattern of names");
    to_posix(text, n_pattern, posix);
    rule *to = &rules->items[rules->n];
    to->is_host = is_host_buffer(equals + 1, n - n_pattern - 1);
    int wrong = regcomp(&to->pattern, posix, REG_EXTENDED | REG_NOSUB);
    hth_free(posix);
    if (wrong == 0) return rules->n++, HEARTH_OK;
    regerror(wrong, &to->pattern, why, sizeof why);
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "'%.*s' is no pattern of names: %s",
                    (int)(n_pattern < 200 ? n_pattern : 200), text, why);
}

static hearth_status open_rules(rule_list *rules, const char *text, hearth_error *err)
{
    size_t n = 1;
    for (const char *c = text; *c; c++) n += *c == ',';
    rules->items = hth_alloc(n, sizeof *rules->items);
    if (!rules->items) return hth_fail_memory(err, n * sizeof *rules->items, "patterns of names");
    hearth_status st = HEARTH_OK;
    for (size_t size; st == HEARTH_OK && n > 0; n--, text += size + 1)
        st = add_rule(rules, text, size = strcspn(text, ","), err);
    return st;
}

static void close_rules(rule_list *rules)
{
    while (rules->n > 0) regfree(&rules->items[--rules->n].pattern);
    hth_free(rules->items);
}

hearth_status hth_placement_check_rules(const char *text, hearth_error *err)
{
    rule_list rules = {0};
    hearth_status st = open_rules(&rules, text, err);
    close_rules(&rules);
    return st;
}

/* Whether the first rule that names a tensor keeps it on the host. */
static bool is_kept(const rule_list *rules, const hth_gguf_tensor *t)
{
    char name[64]; /* tensors have at most 63 bytes */
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.bytes);
    for (size_t i = 0; i < rules->n; i++)
        if (regexec(&rules->items[i].pattern, name, 0, NULL, 0) == 0) return rules->items[i].is_host;
    return false;
}

/* ---- layers -------------------------------------------------------------------------------------------- */

/* Whether a matrix is one of experts that may lie apart from their layer. */
static bool is_of_experts(const hth_model *m, const hth_binding *b)
{
    const hth_layer *l = b->layer < m->hparams.n_layer ? &m->layers[b->layer] : NULL;
    return l && hth_layer_divides_experts(l) && hth_experts_have(&l->experts, b->matrix);
}

static void keep_named(const hth_model *m, const rule_list *rules, hth_layer_set *layers)
{
    uint32_t n_expert = 0, n_other = 0;
    for (size_t i = 0; i < m->n_binding; i++) {
        const hth_binding *b = &m->bindings[i];
        if (!b->matrix || b->matrix == &m->token_embd || !is_kept(rules, b->tensor)) continue;
        if (is_of_experts(m, b)) hth_layer_set_add(layers, b->layer), n_expert++;
        else n_other++;
    }
    if (n_other > 0 || n_expert == 0)
        hth_log(HEARTH_LOG_WARN, "only experts are kept on the CPU by name, here %u tensors of them; %u others stay where "
                "their layer is", n_expert, n_other);
}

hearth_status hth_placement_find_host_experts(const hth_model *m, const hth_placement_layers *which,
                                              hth_layer_set *layers, hearth_error *err)
{
    rule_list rules = {0};
    *layers = (hth_layer_set){0};
    for (uint32_t i = 0; i < m->hparams.n_layer && i < which->n_cpu_experts; i++) hth_layer_set_add(layers, i);
    if (!which->cpu) return HEARTH_OK;
    hearth_status st = open_rules(&rules, which->cpu, err);
    if (st == HEARTH_OK) keep_named(m, &rules, layers);
    close_rules(&rules);
    return st;
}
