/* The table of fields that no API offers, and the one whose values decide. */
#include "serve/api/refused_fields.h"

static bool is_usual(const refused_field *r, const hth_json *v)
{
    bool is_count = v->kind == HTH_JSON_BOOL || v->kind == HTH_JSON_INTEGER;
    if (r->one_is_usual) return (is_count && v->integer == 1) || (v->kind == HTH_JSON_REAL && !(v->real < 1.0 || v->real > 1.0));
    if (v->kind == HTH_JSON_REAL) return !(v->real < 0.0 || v->real > 0.0);
    return (is_count && v->integer == 0) || (v->kind == HTH_JSON_TEXT && v->text.n == 0) || (v->kind >= HTH_JSON_ARRAY && v->n == 0);
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
        {"functions", "tools", false},
        {"function_call", "tool_choice", false},
        {"prediction", NULL, false},
        {"web_search_options", NULL, false},
        {"suffix", "/infill", false},
        {"audio", NULL, false},
        {"structured_outputs", "a schema or grammar", false},
        {"guided_regex", "grammar", false},
        {"guided_choice", "a schema with enum", false},
        {"guided_grammar", "grammar", false},
        {"guided_whitespace_pattern", NULL, false},
        {"regex", "grammar", false},
        {"ebnf", "grammar", false},
        {"structural_tag", NULL, false},
        {"use_beam_search", NULL, false},
        {"logits_processors", NULL, false},
        {"prompt_logprobs", NULL, false},
        {"bad_words", "logit_bias", false},
        {"banned_tokens", "logit_bias", false},
        {"custom_token_bans", "logit_bias", false},
        {"allowed_token_ids", "grammar", false},
        {"min_tokens", NULL, false},
        {"min_new_tokens", NULL, false},
        {"max_new_tokens", "max_tokens", false},
        {"stop_token_ids", "stop", false},
        {"stop_regex", "stop", false},
        {"include_stop_str_in_output", NULL, false},
        {"no_stop_trim", NULL, false},
        {"skip_special_tokens", NULL, true},
        {"truncate_prompt_tokens", NULL, false},
        {"do_sample", "temperature 0", true},
        {"penalty_alpha", NULL, false},
        {"no_repeat_ngram_size", "dry_multiplier", false},
        {"encoder_repetition_penalty", NULL, true},
        {"tfs", NULL, true},
        {"tfs_z", NULL, true},
        {"top_a", "min_p", false},
        {"epsilon_cutoff", "min_p", false},
        {"eta_cutoff", "min_p", false},
        {"smoothing_factor", NULL, false},
        {"guidance_scale", NULL, true},
        {"cfg_scale", NULL, true},
        {"negative_prompt", NULL, false},
        {"lora", NULL, false},
        {"chat_template", "the option --template of the server", false},
        {"documents", "a message", false},
        {NULL, NULL, false},
    };
    return fields_refuse(f, common) && refuse_modalities(f);
}
