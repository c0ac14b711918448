/* Checks metadata of the whole file: keys of Hearth that must be known, the version of its quantised blocks, the
 * file type. Called once by hth_model_open, before tensors are bound. The types of the tensors override
 * general.file_type. */
#include "base/log.h"
#include "model/model.h"

#include <string.h>

/* The layout of blocks has had this version since Q4_0 got its f16 scale (ggml, 2023). */
enum { QUANTISATION_VERSION = 2 };

/* ---- keys of Hearth ------------------------------------------------------------------- */

/* A file with other keys of Hearth would be computed wrongly. */
static hearth_status check_own_keys(const hth_gguf *file, hearth_error *err)
{
    static const char prefix[] = "hearth.";
    static const char *const known[] = {"hearth.ffn.activation",  "hearth.ffn.largest_hidden",
                                        HTH_KEY_ACT_FREQ,           "hearth.predictor.threshold",
                                        "hearth.predictor.input", "hearth.selector",
                                        "hearth.pack.source",     "hearth.pack.version",
                                        HTH_KEY_STORAGE_VERSION,  HTH_KEY_STORAGE_NEURONS,
                                        HTH_KEY_GATE_UP_SWAPPED,         HTH_KEY_MADE_BY};
    for (size_t i = 0; i < hth_gguf_n_value(file); i++) {
        const hth_gguf_value *v = hth_gguf_value_at(file, i);
        if (v->key.n < sizeof prefix - 1 || memcmp(v->key.bytes, prefix, sizeof prefix - 1) != 0) continue;
        bool is_known = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            is_known = is_known || hth_str_eq(v->key, known[k]);
        if (is_known) continue;
        char shown[80];
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: key '%s' (at byte %llu) is not known to this version, and keys of Hearth are "
                        "never ignored: a later version made this file",
                        hth_gguf_path(file), hth_escape(shown, sizeof shown, v->key.bytes, v->key.n),
                        (unsigned long long)v->offset);
    }
    return HEARTH_OK;
}

/* ---- quantised blocks -------------------------------------------------------------------- */

static bool has_quantised(const hth_gguf *file)
{
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++)
        if (hth_type_find(hth_gguf_tensor_at(file, i)->type)->quantised) return true;
    return false;
}

static hearth_status check_quantisation_version(const hth_gguf *file, hearth_error *err)
{
    static const char key[] = "general.quantization_version";
    uint64_t version = QUANTISATION_VERSION;
    bool found, quantised = has_quantised(file);
    hearth_status st = hth_gguf_get_uint(file, key, 0, UINT32_MAX, &version, &found, err);
    if (st != HEARTH_OK || !quantised) return st;
    if (!found)
        hth_log(HEARTH_LOG_WARN, "%s: %s missing: %d is taken", hth_gguf_path(file), key,
                QUANTISATION_VERSION);
    if (version == QUANTISATION_VERSION) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_UNSUPPORTED,
        "%s: %s at %llu is %llu, and tensors are quantised: blocks of version %d are read, convert "
        "the model again",
        hth_gguf_path(file), key, (unsigned long long)hth_gguf_find(file, key)->offset,
        (unsigned long long)version, QUANTISATION_VERSION);
}

/* ---- file type ------------------------------------------------------------------------------ */

/* The block type for each number of general.file_type (llama.h, llama_ftype, as of 2026), -1 if it names none.
 * 1024 is added to a number that was only guessed. */
static int type_of_file_type(uint64_t file_type)
{
    static const int8_t types[] = {0,  1,  2,  3,  -1, -1, -1, 8,  6,  7,  10, 11, 11,
                                   11, 12, 12, 13, 13, 14, 16, 17, 10, 21, 18, 19, 20,
                                   21, 21, 22, 22, 23, 29, 30, -1, -1, -1, 34, 35, 39};
    file_type &= ~UINT64_C(1024);
    return file_type < sizeof types ? types[file_type] : -1;
}

static void warn_of_file_type(const hth_gguf *file)
{
    uint64_t file_type = 0;
    bool found, seen = false, has_matrix = false;
    hearth_error ignored;
    if (hth_gguf_get_uint(file, "general.file_type", 0, UINT32_MAX, &file_type, &found, &ignored) !=
        HEARTH_OK) {
        hth_log(HEARTH_LOG_WARN, "%s; the tensors say what they are", ignored.message);
        return;
    }
    int type = type_of_file_type(file_type);
    if (!found || type < 0) return;
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        has_matrix = has_matrix || t->n_dim > 1;
        seen = seen || (t->n_dim > 1 && (int)t->type == type);
    }
    if (has_matrix && !seen)
        hth_log(HEARTH_LOG_WARN,
                "%s: general.file_type is %llu (%s), but no matrix has that type; the tensors count",
                hth_gguf_path(file), (unsigned long long)file_type, hth_type_find((uint32_t)type)->name);
}

static hearth_status check_pack_version(const hth_gguf *file, hearth_error *err)
{
    static const char key[] = "hearth.pack.version";
    uint64_t version = HTH_PACK_VERSION;
    hearth_status st = hth_gguf_get_uint(file, key, 0, UINT32_MAX, &version, NULL, err);
    if (st != HEARTH_OK || version == HTH_PACK_VERSION) return st;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s at %llu is %llu, this version reads %d: pack the model again",
                    hth_gguf_path(file), key, (unsigned long long)hth_gguf_find(file, key)->offset,
                    (unsigned long long)version, HTH_PACK_VERSION);
}

hearth_status hth_model_check_metadata(const hth_gguf *file, hearth_error *err)
{
    hearth_status st = check_own_keys(file, err);
    if (st == HEARTH_OK) st = check_pack_version(file, err);
    if (st == HEARTH_OK) st = check_quantisation_version(file, err);
    if (st == HEARTH_OK) warn_of_file_type(file);
    return st;
}
