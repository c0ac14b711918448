/* Special tokens: BOS, EOS, unknown, and end of generation; flags; flags that GGUF does not state and that follow
 * from names. Called by hth_tokenizer_open between reading and indexing the vocabulary, because an
 * end-of-generation token counts as control whatever the file says. */
#include "text/internal.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* ---- ids ---------------------------------------------------------------------- */

typedef struct id_key {
    const char *key;
    hearth_special_token special;
    bool ends; /* it is an end of generation */
} id_key;

/* All ids that a file may state, older keys before those that took their place. "seperator" is the format's spelling. */
static const id_key id_keys[] = {
    {"tokenizer.ggml.bos_token_id", HEARTH_SPECIAL_BOS, false},
    {"tokenizer.ggml.eos_token_id", HEARTH_SPECIAL_EOS, true},
    {"tokenizer.ggml.unknown_token_id", HEARTH_SPECIAL_UNKNOWN, false},
    {"tokenizer.ggml.eot_token_id", HEARTH_SPECIAL_EOT, true},
    {"tokenizer.ggml.eom_token_id", HEARTH_SPECIAL_EOM, true},
    {"tokenizer.ggml.fim_pad_token_id", HEARTH_SPECIAL_FIM_PADDING, true},
    {"tokenizer.ggml.fim_rep_token_id", HEARTH_SPECIAL_FIM_REPOSITORY, true},
    {"tokenizer.ggml.fim_sep_token_id", HEARTH_SPECIAL_FIM_FILE, true},
    {"tokenizer.ggml.prefix_token_id", HEARTH_SPECIAL_FIM_PREFIX, false},
    {"tokenizer.ggml.suffix_token_id", HEARTH_SPECIAL_FIM_SUFFIX, false},
    {"tokenizer.ggml.middle_token_id", HEARTH_SPECIAL_FIM_MIDDLE, false},
    {"tokenizer.ggml.fim_pre_token_id", HEARTH_SPECIAL_FIM_PREFIX, false},
    {"tokenizer.ggml.fim_suf_token_id", HEARTH_SPECIAL_FIM_SUFFIX, false},
    {"tokenizer.ggml.fim_mid_token_id", HEARTH_SPECIAL_FIM_MIDDLE, false},
    {"tokenizer.ggml.padding_token_id", HEARTH_SPECIAL_PADDING, false},
    {"tokenizer.ggml.seperator_token_id", HEARTH_SPECIAL_SEPARATOR, false},
    {"tokenizer.ggml.cls_token_id", HEARTH_SPECIAL_CLASS, false},
    {"tokenizer.ggml.mask_token_id", HEARTH_SPECIAL_MASK, false},
};

static bool is_signed(const hth_gguf_value *v)
{
    return v->type == HTH_GGUF_I8 || v->type == HTH_GGUF_I16 || v->type == HTH_GGUF_I32 || v->type == HTH_GGUF_I64;
}

/* Converters write -1, of any integer width, for "none". */
static bool says_none(const hth_gguf_value *v)
{
    if (is_signed(v)) return v->as.i == -1;
    return (v->type == HTH_GGUF_U32 && v->as.u == UINT32_MAX) ||
           (v->type == HTH_GGUF_U64 && (v->as.u == UINT32_MAX || v->as.u == UINT64_MAX));
}

static bool is_unsigned(const hth_gguf_value *v)
{
    return v->type == HTH_GGUF_U8 || v->type == HTH_GGUF_U16 || v->type == HTH_GGUF_U32 || v->type == HTH_GGUF_U64;
}

/* Published files state ids of larger vocabularies. Such a key counts as absent, as in llama.cpp. */
static bool is_outside(const hth_tokenizer *tok, const hth_gguf *file, const char *key, const hth_gguf_value *v)
{
    const uint64_t n = (uint64_t)tok->n_vocab;
    char id[24];
    if (is_signed(v) && (v->as.i < 0 || (uint64_t)v->as.i >= n)) snprintf(id, sizeof id, "%lld", (long long)v->as.i);
    else if (is_unsigned(v) && v->as.u >= n) snprintf(id, sizeof id, "%llu", (unsigned long long)v->as.u);
    else return false;
    hth_log(HEARTH_LOG_WARN, "%s: %s at %llu is %s, but the vocabulary has tokens 0 to %d; it counts as absent",
            hth_gguf_path(file), key, (unsigned long long)v->offset, id, (int)tok->n_vocab - 1);
    return true;
}

/* *id keeps its default if the key is absent, or *outside. */
static hearth_status read_id(const hth_tokenizer *tok, const hth_gguf *file, const char *key,
                             int32_t *id, bool *outside, hearth_error *err)
{
    const hth_gguf_value *stated = hth_gguf_find(file, key);
    *outside = false;
    if (!stated) return HEARTH_OK;
    if (says_none(stated)) {
        *id = -1;
        return HEARTH_OK;
    }
    if ((*outside = is_outside(tok, file, key, stated))) return HEARTH_OK;
    uint64_t value = 0;
    hearth_status status =
        hth_gguf_get_uint(file, key, 0, (uint64_t)tok->n_vocab - 1, &value, NULL, err);
    if (status == HEARTH_OK) *id = (int32_t)value;
    return status;
}

enum { N_DEFAULT = 5 };
/* The ids that a file need not state, or -1. Those of "gpt2" (11) are right for one vocabulary of many, so there are
 * none. Without token types, the ids say which tokens are special. */
static const struct {
    hearth_special_token special;
    int32_t ids[HTH_TEXT_WORDPIECE + 1];
    hth_token_kind kind;
} defaults[N_DEFAULT] = {
#define IDS(S, B, U, W) {[HTH_TEXT_SPM] = S, [HTH_TEXT_BPE] = B, [HTH_TEXT_UNIGRAM] = U, [HTH_TEXT_WORDPIECE] = W}
    {HEARTH_SPECIAL_BOS, IDS(1, -1, -1, -1), HTH_TOKEN_CONTROL},
    {HEARTH_SPECIAL_EOS, IDS(2, -1, 1, -1), HTH_TOKEN_CONTROL},
    {HEARTH_SPECIAL_UNKNOWN, IDS(0, -1, 2, 100), HTH_TOKEN_UNKNOWN},
    {HEARTH_SPECIAL_CLASS, IDS(-1, -1, -1, 101), HTH_TOKEN_CONTROL},
    {HEARTH_SPECIAL_SEPARATOR, IDS(-1, -1, -1, 102), HTH_TOKEN_CONTROL},
#undef IDS
};

static void set_default_ids(hth_tokenizer *tok)
{
    for (int i = 0; i < HTH_N_SPECIAL; i++) tok->special[i] = -1;
    for (int i = 0; i < N_DEFAULT; i++) {
        int32_t id = defaults[i].ids[tok->algorithm];
        tok->special[defaults[i].special] = id < tok->n_vocab ? id : -1;
    }
}

/* A file without types does not say which tokens are special; its ids do. */
static void mark_special(hth_tokenizer *tok, int32_t id, hth_token_kind kind)
{
    if (id >= 0) tok->token[id].kind = (uint8_t)kind;
}

/* *lost_end: the key of an end of generation that is outside the vocabulary, or NULL. */
static hearth_status read_ids(hth_tokenizer *tok, const hth_gguf *file, bool add_last, const char **lost_end,
                              hearth_error *err)
{
    const bool has_kinds = hth_gguf_find(file, "tokenizer.ggml.token_type") != NULL;
    int32_t *special = tok->special;
    *lost_end = NULL;
    set_default_ids(tok);
    for (size_t i = 0; i < sizeof id_keys / sizeof *id_keys; i++) {
        const id_key *k = &id_keys[i];
        int32_t *id = &special[k->special];
        bool outside;
        hearth_status status = read_id(tok, file, k->key, id, &outside, err);
        if (status != HEARTH_OK) return status;
        if (outside && k->ends) *lost_end = k->key;
        /* The default belongs to the usual vocabulary, which this may not be. */
        if (outside && k->special == HEARTH_SPECIAL_EOS && *id >= 0 && has_kinds &&
            tok->token[*id].kind != HTH_TOKEN_CONTROL)
            *id = -1;
        if (!k->ends || *id < 0) continue;
        tok->token[*id].is_eog = true;
        if (!has_kinds) mark_special(tok, *id, HTH_TOKEN_CONTROL);
    }
    for (int i = 0; i < N_DEFAULT && !has_kinds; i++)
        mark_special(tok, special[defaults[i].special], defaults[i].kind);
    const bool is_wordpiece = tok->algorithm == HTH_TEXT_WORDPIECE;
    if (is_wordpiece && special[HEARTH_SPECIAL_BOS] < 0) special[HEARTH_SPECIAL_BOS] = special[HEARTH_SPECIAL_CLASS];
    if (tok->flags & HTH_TEXT_NO_BOS) special[HEARTH_SPECIAL_BOS] = -1;
    tok->bos = special[HEARTH_SPECIAL_BOS];
    tok->eos = special[HEARTH_SPECIAL_EOS];
    tok->unknown = special[HEARTH_SPECIAL_UNKNOWN];
    tok->last = !add_last ? -1 : is_wordpiece ? special[HEARTH_SPECIAL_SEPARATOR] : tok->eos;
    return HEARTH_OK;
}

/* Without any end a text would go on until the context is full. */
static hearth_status check_end(const hth_tokenizer *tok, const hth_gguf *file, const char *lost_end, hearth_error *err)
{
    bool has_end = !lost_end || tok->algorithm == HTH_TEXT_WORDPIECE;
    for (int32_t i = 0; i < tok->n_vocab && !has_end; i++) has_end = tok->token[i].is_eog;
    if (has_end) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_FORMAT,
                    "%s: %s is outside the vocabulary of %d tokens, and no other token ends a text: state the token "
                    "that does", hth_gguf_path(file), lost_end, (int)tok->n_vocab);
}

static void warn_of_odd_ids(const hth_tokenizer *tok, const hth_gguf *file)
{
    const char *path = hth_gguf_path(file);
    if (tok->algorithm == HTH_TEXT_WORDPIECE) return; /* it generates nothing */
    if (tok->eos < 0)
        hth_log(HEARTH_LOG_WARN, "%s: the vocabulary has no EOS token", path);
    else if (!hth_gguf_find(file, "tokenizer.ggml.eos_token_id"))
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.eos_token_id missing; %d is taken", path,
                (int)tok->eos);
    else if (tok->token[tok->eos].kind == HTH_TOKEN_NORMAL)
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.eos_token_id: token %d is an ordinary word",
                path, (int)tok->eos);
    if (tok->eos >= 0 && tok->bos == tok->eos)
        hth_log(HEARTH_LOG_WARN, "%s: token %d is both BOS and EOS", path, (int)tok->bos);
}

/* ---- flags ---------------------------------------------------------------------- */

/* Reads the flags of the file, with defaults by the kind of tokenizer. add_last: whether a token ends a text. */
static hearth_status read_flags(hth_tokenizer *tok, const hth_gguf *file, bool *add_last, hearth_error *err)
{
    const hth_text_algorithm a = tok->algorithm;
    const bool is_wordpiece = a == HTH_TEXT_WORDPIECE;
    tok->add_bos = a == HTH_TEXT_SPM || is_wordpiece || tok->flags & HTH_TEXT_BOS;
    tok->add_space_prefix = a == HTH_TEXT_SPM;
    *add_last = a == HTH_TEXT_UNIGRAM || is_wordpiece;
    hearth_status status =
        hth_gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &tok->add_bos, NULL, err);
    if (status == HEARTH_OK)
        status = hth_gguf_get_bool(file, "tokenizer.ggml.add_eos_token", add_last, NULL, err);
    if (status == HEARTH_OK)
        status = hth_gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &tok->add_space_prefix,
                                   NULL, err);
    if (a == HTH_TEXT_BPE && tok->add_space_prefix) {
        tok->add_space_prefix = false;
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.add_space_prefix is ignored: BPE puts "
                "nothing in front", hth_gguf_path(file));
    }
    tok->add_bos |= (tok->flags & HTH_TEXT_ALWAYS_BOS) != 0;
    tok->drops_space = tok->add_space_prefix || is_wordpiece;
    if (a != HTH_TEXT_UNIGRAM && hth_gguf_find(file, "tokenizer.ggml.precompiled_charsmap"))
        hth_log(HEARTH_LOG_WARN, "%s: tokenizer.ggml.precompiled_charsmap is ignored",
                hth_gguf_path(file));
    return status;
}

/* ---- end of generation ------------------------------------------------------------ */

/* Texts that end a generation in published vocabularies, whatever the file's keys say: llama.cpp's list as of
 * v0.5.0. */
static const char *const eog_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
    "<EOT>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "_<EOT>", "[EOT]",
    "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>", /* U+FF5C, U+2581 */
    "[e~[",
};

static bool has_text(const hth_text_token *t, const char *text)
{
    size_t n = strlen(text);
    return t->entry.n == n && memcmp(t->entry.bytes, text, n) == 0;
}

static bool is_eog_text(const hth_text_token *t)
{
    for (size_t i = 0; i < sizeof eog_texts / sizeof *eog_texts; i++)
        if (has_text(t, eog_texts[i])) return true;
    return false;
}

static bool has_token(const hth_tokenizer *tok, const char *text)
{
    return hth_tokenizer_find(tok, text, strlen(text)) >= 0;
}

static void mark_eog_texts(hth_tokenizer *tok)
{
    const bool is_html = has_token(tok, "<|tool_response>"); /* Gemma 4, whose "</s>" is a word */
    const bool has_call = has_token(tok, "<|call|>") || has_token(tok, "<|calls|>");
    const bool end_is_of_message = has_call && (has_token(tok, "<|return|>") || has_token(tok, "<|flush|>"));
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        hth_text_token *t = &tok->token[i];
        if (!is_eog_text(t) || (is_html && has_text(t, "</s>"))) continue;
        t->is_eog = !(end_is_of_message && has_text(t, "<|end|>"));
        t->kind = HTH_TOKEN_CONTROL;
    }
}

/* Texts that end a turn, in this order, and a message that calls a function: llama.cpp's lists as of v0.5.0. */
static const char *const eot_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]",
    "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>", "<end_of_utterance>",
};

/* The first end of generation that has one of the texts, in their order; -1: none. */
static int32_t find_end(const hth_tokenizer *tok, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = hth_tokenizer_find(tok, texts[i], strlen(texts[i]));
        if (hth_tokenizer_is_eog(tok, id)) return id;
    }
    return -1;
}

static void find_ends(hth_tokenizer *tok)
{
    static const char *const eom_texts[] = {"<|eom_id|>"};
    int32_t *eot = &tok->special[HEARTH_SPECIAL_EOT], *eom = &tok->special[HEARTH_SPECIAL_EOM];
    if (*eot < 0) *eot = find_end(tok, eot_texts, sizeof eot_texts / sizeof *eot_texts);
    if (*eom < 0) *eom = find_end(tok, eom_texts, 1);
}

/* ---- fill in the middle ------------------------------------------------------------ */

/* Texts of the tokens of code models: of a prefix, a suffix, a middle, padding, a repository and a file. The last three
 * end a generation. llama.cpp's lists as of v0.5.0, used for what the file does not state. */
static const struct fim {
    hearth_special_token special;
    const char *key, *old_key, *texts[9];
    bool ends;
} fims[] = {
    {HEARTH_SPECIAL_FIM_PREFIX,
     "tokenizer.ggml.fim_pre_token_id",
     "tokenizer.ggml.prefix_token_id",
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\357\275\234fim\342\226\201begin\357\275\234>", "<PRE>",
      "\342\226\201<PRE>", "<|code_prefix|>", "<|prefix|>"},
     false},
    {HEARTH_SPECIAL_FIM_SUFFIX,
     "tokenizer.ggml.fim_suf_token_id",
     "tokenizer.ggml.suffix_token_id",
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\357\275\234fim\342\226\201hole\357\275\234>", "<SUF>",
      "\342\226\201<SUF>", "<|code_suffix|>", "<|suffix|>"},
     false},
    {HEARTH_SPECIAL_FIM_MIDDLE,
     "tokenizer.ggml.fim_mid_token_id",
     "tokenizer.ggml.middle_token_id",
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\357\275\234fim\342\226\201end\357\275\234>", "<MID>",
      "\342\226\201<MID>", "<|code_middle|>", "<|middle|>"},
     false},
    {HEARTH_SPECIAL_FIM_PADDING, "tokenizer.ggml.fim_pad_token_id", "", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}, true},
    {HEARTH_SPECIAL_FIM_REPOSITORY, "tokenizer.ggml.fim_rep_token_id", "", {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}, true},
    {HEARTH_SPECIAL_FIM_FILE, "tokenizer.ggml.fim_sep_token_id", "", {"<|file_sep|>"}, true},
};

/* The first token with the first of the texts that any has becomes a control token. */
static void mark_fim_texts(hth_tokenizer *tok, const hth_gguf *file)
{
    for (size_t i = 0; i < sizeof fims / sizeof *fims; i++) {
        const struct fim *f = &fims[i];
        bool found = hth_gguf_find(file, f->key) || hth_gguf_find(file, f->old_key);
        for (const char *const *text = f->texts; *text && !found; text++) {
            int32_t id = hth_tokenizer_find(tok, *text, strlen(*text));
            found = id >= 0;
            if (!found) continue;
            tok->token[id].kind = HTH_TOKEN_CONTROL;
            tok->token[id].is_eog |= f->ends;
            tok->special[f->special] = id;
        }
    }
}

/* ---- flags by name ------------------------------------------------------------------- */

static bool name_contains(hth_str name, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= name.n; i++) {
        size_t k = 0;
        for (; k < n; k++) {
            char c = name.bytes[i + k];
            if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
            if (c != part[k]) break;
        }
        if (k == n) return true;
    }
    return false;
}

/* Phi-3's special tokens strip the white space after them, except for three. */
static hearth_status set_rstrip(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    hth_str name = {"", 0};
    hearth_status status = hth_gguf_get_text(file, "general.name", &name, NULL, err);
    if (status != HEARTH_OK) return status;
    if (!name_contains(name, "phi-3") && !name_contains(name, "phi3")) return HEARTH_OK;
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        hth_text_token *t = &tok->token[i];
        bool keeps =
            has_text(t, "<unk>") || has_text(t, "<s>") || has_text(t, "<|endoftext|>");
        t->rstrip = (HTH_TEXT_SPECIALS >> t->kind & 1) && !keeps;
    }
    return HEARTH_OK;
}

/* The mask token of some embedding models strips the white space before it. */
static hearth_status set_mask_lstrip(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    hth_str name = {"", 0}, arch = {"", 0};
    hearth_status status = hth_gguf_get_text(file, "general.name", &name, NULL, err);
    if (status == HEARTH_OK) status = hth_gguf_get_text(file, "general.architecture", &arch, NULL, err);
    if (status != HEARTH_OK) return status;
    const char *mask = NULL;
    if (name_contains(name, "modern-bert")) mask = "[MASK]";
    if (tok->flags & HTH_TEXT_MASK_LSTRIP || hth_str_eq(arch, "nomic-bert-moe") || hth_str_eq(arch, "jina-bert-v3"))
        mask = "<mask>";
    for (int32_t i = 0; i < tok->n_vocab && mask; i++) tok->token[i].lstrip = has_text(&tok->token[i], mask);
    return HEARTH_OK;
}

hearth_status hth_vocab_read_special(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    bool add_last = false;
    const char *lost_end;
    hearth_status status = read_flags(tok, file, &add_last, err);
    if (status == HEARTH_OK) status = read_ids(tok, file, add_last, &lost_end, err);
    if (status != HEARTH_OK) return status;
    mark_eog_texts(tok);
    mark_fim_texts(tok, file);
    find_ends(tok);
    if ((status = check_end(tok, file, lost_end, err)) != HEARTH_OK) return status;
    warn_of_odd_ids(tok, file);
    status = set_mask_lstrip(tok, file, err);
    return status == HEARTH_OK ? set_rstrip(tok, file, err) : status;
}
