/* The table of fields that no API offers, and the one whose values decide. */
#include "serve/api/refused_fields.h"

static bool is_usual(const refused_field *r, const hth_json *v)
{
    bool is_whole = v->kind == HTH_JSON_BOOL || v->kind == HTH_JSON_INTEGER;
    if (is_whole || v->kind == HTH_JSON_REAL) {
        double x = is_whole ? (double)v->integer : v->real;
        return !(x < r->usual || x > r->usual);
    }
    return r->usual == 0 && (v->kind == HTH_JSON_TEXT ? v->text.n == 0 : v->n == 0);
}

bool fields_refuse(fields *f, const refused_field *list)
{
    for (; list->name && fields_ok(f); list++) {
        const hth_json *v = fields_value(f, list->name);
        if (v && !is_usual(list, v))
            fields_fail(f, list->name, "is not supported%s%s", list->instead ? ": use " : "", list->instead ? list->instead : "");
    }
    return fields_ok(f);
}

/* An answer consists of texts alone. */
static bool refuse_modalities(fields *f)
{
    const hth_json *list;
    if (!fields_array(f, "modalities", &list)) return false;
    for (const hth_json *v = hth_json_first(list); v; v = v->next)
        if (!hth_json_is_word(v, "text")) return fields_fail(f, "modalities", "only text is supported");
    return true;
}

bool fields_refuse_common(fields *f)
{
    static const refused_field common[] = {
        {"functions", "tools", 0},
        {"web_search_options", NULL, 0},
        {"suffix", "/infill", 0},
        {"audio", NULL, 0},
        {"structured_outputs", "a schema or grammar", 0},
        {"guided_regex", "grammar", 0},
        {"guided_choice", "a schema with enum", 0},
        {"guided_grammar", "grammar", 0},
        {"guided_whitespace_pattern", NULL, 0},
        {"regex", "grammar", 0},
        {"ebnf", "grammar", 0},
        {"structural_tag", NULL, 0},
        {"use_beam_search", NULL, 0},
        {"logits_processors", NULL, 0},
        {"prompt_logprobs", NULL, 0},
        {"bad_words", "logit_bias", 0},
        {"banned_tokens", "logit_bias", 0},
        {"custom_token_bans", "logit_bias", 0},
        {"allowed_token_ids", "grammar", 0},
        {"min_tokens", NULL, 0},
        {"min_new_tokens", NULL, 0},
        {"max_new_tokens", "max_tokens", 0},
        {"stop_token_ids", "stop", 0},
        {"stop_regex", "stop", 0},
        {"include_stop_str_in_output", NULL, 0},
        {"no_stop_trim", NULL, 0},
        {"skip_special_tokens", NULL, 1},
        {"truncate_prompt_tokens", NULL, -1},
        {"do_sample", "temperature 0", 1},
        {"penalty_alpha", NULL, 0},
        {"no_repeat_ngram_size", "dry_multiplier", 0},
        {"encoder_repetition_penalty", NULL, 1},
        {"tfs", NULL, 1},
        {"tfs_z", NULL, 1},
        {"top_a", "min_p", 0},
        {"epsilon_cutoff", "min_p", 0},
        {"eta_cutoff", "min_p", 0},
        {"smoothing_factor", NULL, 0},
        {"guidance_scale", NULL, 1},
        {"cfg_scale", NULL, 1},
        {"negative_prompt", NULL, 0},
        {"lora", NULL, 0},
        {"chat_template", "the option --template of the server", 0},
        {"documents", "a message", 0},
        {"post_sampling_probs", NULL, 0},
        {NULL, NULL, 0},
    };
    if (hth_json_kind_of(fields_value(f, "function_call")) == HTH_JSON_OBJECT) /* a word chooses among functions that are not there */
        return fields_fail(f, "function_call", "is not supported: use tool_choice");
    return fields_refuse(f, common) && refuse_modalities(f);
}
