/* Reads and writes placement files. The file's contents are not trusted. */
#include "planner/placement.h"

#include "base/alloc.h"
#include "sparse/sidecar.h"

#include <stdio.h>
#include <string.h>

#define KIND "placement"
#define KEY_HOT "hearth.placement.hot"
#define KEY_HEAD "hearth.placement.head"
#define KEY_HANDOFF "hearth.placement.handoff"
#define KEY_DEVICE "hearth.placement.device"
#define KEY_DRIVER "hearth.placement.driver"
#define KEY_STREAM "hearth.placement.stream"
#define KEY_SECONDS "hearth.placement.seconds"

hearth_status hth_placement_write(const hth_placement *p, uint64_t model_hash, const char *path,
                                  hearth_error *err)
{
    const char *handoff = p->submit_on_demand ? "submitted" : "queued";
    hth_gguf_writer *out;
    hearth_status st = hth_gguf_writer_open(path, &out, err);
    if (st != HEARTH_OK) return st;
    hth_sidecar_write_head(out, KIND, model_hash);
    hth_gguf_writer_array(out, KEY_HOT, HTH_GGUF_U32, p->n_hot, p->n_layer);
    hth_gguf_writer_uint(out, KEY_HEAD, HTH_GGUF_U32, p->head);
    hth_gguf_writer_text(out, KEY_HANDOFF, handoff, strlen(handoff));
    hth_gguf_writer_text(out, KEY_DEVICE, p->device, strlen(p->device));
    hth_gguf_writer_text(out, KEY_DRIVER, p->driver, strlen(p->driver));
    uint32_t n_stream = 0;
    while (n_stream < HTH_PLACEMENT_STREAMS && p->streams[n_stream].n_tok > 0) n_stream++;
    if (n_stream > 0) hth_gguf_writer_array(out, KEY_STREAM, HTH_GGUF_U32, p->streams, 2 * n_stream);
    if (p->seconds > 0.0) hth_gguf_writer_float(out, KEY_SECONDS, HTH_GGUF_F64, p->seconds);
    st = hth_gguf_writer_begin(out, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_finish(out, err);
    hth_gguf_writer_close(out);
    return st;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static hearth_status need_text(const hth_gguf *file, const char *key, char *to, size_t size,
                               hearth_error *err)
{
    hth_str text;
    bool found;
    hearth_status st = hth_gguf_get_text(file, key, &text, &found, err);
    if (st != HEARTH_OK) return st;
    if (!found) return hth_gguf_missing(file, key, "every placement", err);
    snprintf(to, size, "%.*s", (int)(text.n < size ? text.n : size - 1), text.bytes);
    return HEARTH_OK;
}

static hearth_status read_hot(hth_placement *p, const hth_gguf *file, const hth_model *model,
                              hearth_error *err)
{
    const hth_gguf_value *hot = hth_gguf_find(file, KEY_HOT);
    uint32_t n_layer = model->hparams.n_layer;
    if (!hot) return hth_gguf_missing(file, KEY_HOT, "every placement", err);
    uint64_t n = hot->type == HTH_GGUF_ARRAY ? hot->n_element : 0;
    if (n < 1 || n > n_layer)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: 1 to %u numbers are wanted, one for each layer", hth_gguf_path(file),
                        KEY_HOT, (unsigned long long)hot->offset, n_layer);
    hearth_status st = hth_gguf_get_array(file, KEY_HOT, HTH_GGUF_U32, n, &hot, err);
    if (st != HEARTH_OK) return st;
    p->n_layer = (uint32_t)n;
    p->n_hot = hth_alloc(n, sizeof *p->n_hot);
    if (!p->n_hot) return hth_fail_memory(err, n * sizeof *p->n_hot, "a placement");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t x = hth_gguf_element_uint(hot, i), d_ff = model->layers[i].ffn.d_ff;
        if (x > d_ff || (x < d_ff && model->layers[i].ffn.down_t.rows.n_row == 0))
            return hth_fail(
                err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: value %u is %llu: layer %u has %llu neurons%s",
                hth_gguf_path(file), KEY_HOT, (unsigned long long)hot->offset, i, (unsigned long long)x, i,
                (unsigned long long)d_ff, x > d_ff ? "" : ", which only hearth pack can divide");
        p->n_hot[i] = (uint32_t)x;
    }
    return HEARTH_OK;
}

bool hth_placement_streams_valid(const hth_placement_stream streams[HTH_PLACEMENT_STREAMS])
{
    for (int i = 0; i < HTH_PLACEMENT_STREAMS; i++) {
        uint32_t n_tok = streams[i].n_tok, last = i > 0 ? streams[i - 1].n_tok : 0;
        bool is_end = n_tok == 0 && streams[i].cpu_share == 0;
        if (streams[i].cpu_share >= HTH_PLACEMENT_PARTS) return false;
        if (!is_end && (n_tok <= last || (i > 0 && last == 0))) return false;
    }
    return true;
}

/* Pairs of tokens and parts. */
static hearth_status read_streams(hth_placement *p, const hth_gguf *file, hearth_error *err)
{
    const hth_gguf_value *pairs = hth_gguf_find(file, KEY_STREAM);
    if (!pairs) return HEARTH_OK;
    uint64_t n = pairs->type == HTH_GGUF_ARRAY ? pairs->n_element : 0;
    bool right = n > 0 && n <= 2 * HTH_PLACEMENT_STREAMS && n % 2 == 0;
    hearth_status st = right ? hth_gguf_get_array(file, KEY_STREAM, HTH_GGUF_U32, n, &pairs, err) : HEARTH_OK;
    for (uint64_t i = 0; st == HEARTH_OK && right && i < n; i += 2) {
        p->streams[i / 2].n_tok = (uint32_t)hth_gguf_element_uint(pairs, i);
        p->streams[i / 2].cpu_share = (uint32_t)hth_gguf_element_uint(pairs, i + 1);
    }
    if (st != HEARTH_OK || (right && hth_placement_streams_valid(p->streams))) return st;
    return hth_fail(
        err, HEARTH_ERROR_FORMAT,
        "%s: %s at %llu: wanted are up to %d pairs, of tokens, ascending, and of parts of %d: make it "
        "again with hearth plan",
        hth_gguf_path(file), KEY_STREAM, (unsigned long long)pairs->offset, HTH_PLACEMENT_STREAMS,
        HTH_PLACEMENT_PARTS);
}

static hearth_status read_rest(hth_placement *p, const hth_gguf *file, const hth_model *model,
                               hearth_error *err)
{
    uint64_t head = 0;
    char handoff[32] = "";
    bool found;
    hearth_status st = hth_gguf_get_uint(file, KEY_HEAD, 0, 1, &head, &found, err);
    if (st == HEARTH_OK && !found) st = hth_gguf_missing(file, KEY_HEAD, "every placement", err);
    if (st == HEARTH_OK) st = need_text(file, KEY_HANDOFF, handoff, sizeof handoff, err);
    if (st == HEARTH_OK) st = need_text(file, KEY_DEVICE, p->device, sizeof p->device, err);
    if (st == HEARTH_OK) st = need_text(file, KEY_DRIVER, p->driver, sizeof p->driver, err);
    if (st == HEARTH_OK) st = read_streams(p, file, err);
    if (st == HEARTH_OK) st = hth_gguf_get_float(file, KEY_SECONDS, 0.0, 1e6, &p->seconds, NULL, err);
    if (st != HEARTH_OK) return st;
    p->head = head == 1;
    p->submit_on_demand = strcmp(handoff, "submitted") == 0;
    if (!p->submit_on_demand && strcmp(handoff, "queued") != 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s at %llu: known are queued and submitted",
                        hth_gguf_path(file), KEY_HANDOFF,
                        (unsigned long long)hth_gguf_find(file, KEY_HANDOFF)->offset);
    if (p->head && p->n_layer < model->hparams.n_layer)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: %s: the head lies there only behind all %u layers",
                        hth_gguf_path(file), KEY_HEAD, model->hparams.n_layer);
    return HEARTH_OK;
}

hearth_status hth_placement_open(hth_placement *p, const char *path, const hth_model *model,
                                 hearth_error *err)
{
    uint64_t hash;
    hth_gguf *file;
    *p = (hth_placement){0};
    hearth_status st = hth_gguf_open(path, &file, err);
    if (st != HEARTH_OK) return st;
    st = hth_sidecar_check_head(file, KIND, model->file, &hash, err);
    if (st == HEARTH_OK) st = read_hot(p, file, model, err);
    if (st == HEARTH_OK) st = read_rest(p, file, model, err);
    hth_gguf_close(file);
    if (st != HEARTH_OK) hth_placement_close(p);
    return st;
}

void hth_placement_close(hth_placement *p)
{
    hth_free(p->n_hot);
    p->n_hot = NULL;
}
