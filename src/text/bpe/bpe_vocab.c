/* Reads and checks the BPE data of a file: the name of the pre-tokenizer, and the merges by rank.
 * Called by hth_tokenizer_open. A merge whose parts or result are not tokens can never apply (or would produce
 * something that is not a token): it is skipped and counted, because real files have such lines. */
#include "base/log.h"
#include "text/bpe/byte_map.h"
#include "text/internal.h"
#include "text/unicode.h"

#include <stdio.h>
#include <string.h>

/* ---- the pre-tokenizer -------------------------------------------------------------- */

/* Lists as many known names as fit, those of the types first. */
static const char *list_names(char *out, size_t n_out)
{
    size_t n = 0;
    const char *name;
    for (size_t i = 0; (name = hth_pretok_type_name(i)) != NULL; i++) {
        int more = snprintf(out + n, n_out - n, "%s%s", i > 0 ? ", " : "", name);
        if (more < 0 || (size_t)more >= n_out - n - 4) {
            snprintf(out + n, n_out - n, " ...");
            break;
        }
        n += (size_t)more;
    }
    return out;
}

/* Only BPE of "whitespace" can. */
static hearth_status read_lower_case(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.normalizer.lowercase";
    char engine[100];
    hearth_status status = hth_gguf_get_bool(file, key, &tok->lower_case, NULL, err);
    if (status == HEARTH_OK && tok->lower_case && !hth_unicode_engine(engine, sizeof engine))
        status = hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                          "%s: %s needs utf8proc, and this program was built without it", hth_gguf_path(file),
                          key);
    return status;
}

hearth_status hth_text_read_pre(hth_tokenizer *tok, const hth_gguf *file, const char *implied,
                                hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.pre";
    hth_str name = {"default", 7};
    bool found = false;
    hearth_status status = implied ? HEARTH_OK : hth_gguf_get_text(file, key, &name, &found, err);
    if (status == HEARTH_OK && tok->drops_white) status = read_lower_case(tok, file, err);
    if (status != HEARTH_OK) return status;
    if (implied) name = (hth_str){implied, strlen(implied)};
    else if (!found)
        hth_log(HEARTH_LOG_WARN,
                "%s: %s missing; \"default\" is taken, and words may be cut "
                "otherwise than the model was taught",
                hth_gguf_path(file), key);
    tok->pretok_type = hth_pretok_type_find(name, &tok->flags);
    if (!tok->pretok_type) {
        char shown[64], names[400];
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is \"%s\"; known are %s", hth_gguf_path(file),
                        key, hth_escape(shown, sizeof shown, name.bytes, name.n),
                        list_names(names, sizeof names));
    }
    hearth_error why;
    status = hth_pretokenizer_open(tok->pretok_type, true, &tok->pretokenizer, &why);
    return status == HEARTH_OK ? status : hth_fail(err, status, "%s: %s", hth_gguf_path(file), why.message);
}

/* ---- words ------------------------------------------------------------------------------ */

static int32_t find_word(const hth_tokenizer *tok, hth_str text)
{
    uint32_t id = hth_file_name_find(&tok->word_index, tok->token, sizeof *tok->token, text);
    return id == HTH_FILE_NAME_NONE ? -1 : (int32_t)id;
}

/* Indexes the words by text. If several words have the same text, the one with the lowest id is used. */
static hearth_status index_words(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    const unsigned kinds = tok->flags & HTH_TEXT_CHARACTERS ? HTH_TEXT_WORDS : HTH_TEXT_BYTE_WORDS;
    size_t n_double = 0;
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        const hth_text_token *t = &tok->token[i];
        if (!(kinds >> t->kind & 1) || t->entry.n == 0) continue;
        if (find_word(tok, t->entry) >= 0) n_double++;
        else if (!hth_file_name_add(&tok->word_index, t->entry, (uint32_t)i))
            return hth_fail_memory(err, 0, "the vocabulary");
    }
    if (n_double > 0)
        hth_log(HEARTH_LOG_WARN,
                "%s: tokenizer.ggml.tokens: %zu words repeat the text of another; "
                "text becomes the one with the lowest id",
                hth_gguf_path(file), n_double);
    return HEARTH_OK;
}

static void list_bytes(hth_tokenizer *tok, const hth_gguf *file)
{
    size_t n_missing = 0;
    for (unsigned b = 0; b < 256; b++) {
        char mapped[2];
        size_t n = hth_text_byte_char((unsigned char)b, mapped);
        int32_t id = find_word(tok, (hth_str){mapped, n});
        tok->byte_symbol[b] = id >= 0 ? (uint32_t)id : HTH_TEXT_BYTES + b;
        if (id >= 0) tok->byte_id[b] = id;
        bool occurs = b < 0xC0 || (b > 0xC1 && b < 0xF5); /* in well-formed UTF-8 */
        if (tok->byte_id[b] < 0 && occurs) n_missing++;
    }
    if (n_missing > 0)
        hth_log(HEARTH_LOG_WARN,
                "%s: tokenizer.ggml.tokens: no token for %zu of 256 bytes; a text "
                "loses those that no longer token holds",
                hth_gguf_path(file), n_missing);
}

/* ---- merges ------------------------------------------------------------------------------- */

/* The symbol of one half of a merge: a token, or a character (of a byte) without a token. */
static uint32_t symbol_of(const hth_tokenizer *tok, hth_str half)
{
    int32_t id = find_word(tok, half);
    if (id >= 0) return (uint32_t)id;
    if (tok->flags & HTH_TEXT_CHARACTERS) {
        size_t used;
        uint32_t symbol = hth_text_symbol_at(tok, half.bytes, half.n, &used);
        return used == half.n ? symbol : UINT32_MAX;
    }
    char byte[2];
    size_t n_other;
    if (half.n > sizeof byte || hth_text_unmap(half.bytes, half.n, byte, &n_other) != 1 || n_other > 0)
        return UINT32_MAX;
    return tok->byte_symbol[(unsigned char)byte[0]];
}

/* Splits "left right" and adds the merge. *known is false if a part or the result is unknown. */
static hearth_status add_merge(hth_tokenizer *tok, hth_str line, int32_t rank, bool *known, hearth_error *err)
{
    const char *space = memchr(line.bytes, ' ', line.n);
    const size_t n_left = (size_t)(space - line.bytes), n_right = line.n - n_left - 1;
    char text[HTH_TEXT_MAX_ENTRY];
    *known = false;
    if (line.n - 1 > sizeof text) return HEARTH_OK;
    memcpy(text, line.bytes, n_left);
    memcpy(text + n_left, space + 1, n_right);
    uint32_t left = symbol_of(tok, (hth_str){text, n_left});
    uint32_t right = symbol_of(tok, (hth_str){text + n_left, n_right});
    int32_t word = find_word(tok, (hth_str){text, n_left + n_right});
    if (left == UINT32_MAX || right == UINT32_MAX || word < 0) return HEARTH_OK;
    *known = true;
    tok->merge_id[rank] = word;
    return hth_merge_table_put(&tok->merges, left, right, rank, err);
}

static bool is_pair(hth_str line)
{
    const char *space = memchr(line.bytes, ' ', line.n);
    if (!space || space == line.bytes) return false;
    size_t n_right = line.n - (size_t)(space - line.bytes) - 1;
    return n_right > 0 && !memchr(space + 1, ' ', n_right);
}

hearth_status hth_text_read_merges(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.merges";
    const hth_gguf_value *array = NULL;
    hearth_status status = index_words(tok, file, err);
    if (status == HEARTH_OK && tok->flags & HTH_TEXT_CHARACTERS) status = hth_text_list_characters(tok, err);
    else if (status == HEARTH_OK) list_bytes(tok, file);
    if (status != HEARTH_OK) return status;
    if ((status = hth_gguf_get_array(file, key, HTH_GGUF_TEXT, 0, &array, err)) != HEARTH_OK) return status;
    if (!array)
        return hth_gguf_missing(file, key, "tokenizers of kinds \"gpt2\", \"gemma4\" and \"whitespace\"",
                                err);
    if (array->n_element == 0 || array->n_element > HTH_TEXT_MAX_PAIRS)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: %llu merges; a vocabulary has 1 to %d",
                        hth_gguf_path(file), key, (unsigned long long)array->offset,
                        (unsigned long long)array->n_element, HTH_TEXT_MAX_PAIRS);
    const size_t n = (size_t)array->n_element;
    const hth_str *line = array->elements;
    tok->merge_id = hth_alloc(n, sizeof *tok->merge_id);
    if (!tok->merge_id) return hth_fail_memory(err, n * sizeof *tok->merge_id, "merges");

    size_t n_unknown = 0;
    for (size_t i = 0; i < n && status == HEARTH_OK; i++) {
        bool known;
        if (!is_pair(line[i])) {
            char shown[64];
            return hth_fail(err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: merge %zu is \"%s\"; two texts with one space between "
                            "them were expected",
                            hth_gguf_path(file), key, (unsigned long long)array->offset, i,
                            hth_escape(shown, sizeof shown, line[i].bytes, line[i].n));
        }
        status = add_merge(tok, line[i], (int32_t)i, &known, err);
        n_unknown += !known;
    }
    if (status == HEARTH_OK && n_unknown > 0)
        hth_log(HEARTH_LOG_WARN,
                "%s: %s: %zu of %zu merges are of texts that are no tokens, and are "
                "left out",
                hth_gguf_path(file), key, n_unknown, n);
    return status;
}
