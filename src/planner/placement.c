/* Reads and writes placement files. The file's contents are not trusted. */
#include "planner/placement.h"

#include "base/alloc.h"
#include "sparse/sidecar.h"

#include <stdio.h>
#include <string.h>

#define KIND "placement"
#define KEY_HOT "hearth.placement.hot"
#define KEY_READS "hearth.placement.reads" /* layers, ascending; only if there are any */
#define KEY_HOST_KV "hearth.placement.host_kv" /* only if it is 1 */
#define KEY_HEAD "hearth.placement.head"
#define KEY_HANDOFF "hearth.placement.handoff"
#define KEY_DEVICE "hearth.placement.device"
#define KEY_DRIVER "hearth.placement.driver"
#define KEY_STREAM "hearth.placement.stream"
#define KEY_SECONDS "hearth.placement.seconds"
#define KEY_ENDS "hearth.placement.ends" /* only with several devices */

hth_placement_key hth_placement_key_of(const char *key, uint32_t i_device)
{
    hth_placement_key k;
    if (i_device == 0) snprintf(k.text, sizeof k.text, "%s", key);
    else snprintf(k.text, sizeof k.text, "%s.%u", key, i_device);
    return k;
}

static void write_device(hth_gguf_writer *out, const hth_placement_device *d, uint32_t i)
{
    const char *handoff = d->submit_on_demand ? "submitted" : "queued";
    uint32_t n_stream = 0;
    while (n_stream < HTH_PLACEMENT_STREAMS && d->streams[n_stream].n_tok > 0) n_stream++;
    hth_gguf_writer_text(out, hth_placement_key_of(KEY_HANDOFF, i).text, handoff, strlen(handoff));
    hth_gguf_writer_text(out, hth_placement_key_of(KEY_DEVICE, i).text, d->name, strlen(d->name));
    hth_gguf_writer_text(out, hth_placement_key_of(KEY_DRIVER, i).text, d->driver, strlen(d->driver));
    if (n_stream > 0)
        hth_gguf_writer_array(out, hth_placement_key_of(KEY_STREAM, i).text, HTH_GGUF_U32, d->streams, 2 * n_stream);
}

static void write_reads(hth_gguf_writer *out, const hth_placement *p)
{
    uint32_t layers[HTH_MAX_LAYER], n = 0;
    for (uint32_t i = 0; i < p->n_layer; i++)
        if (hth_layer_set_has(&p->read_experts, i)) layers[n++] = i;
    if (n > 0) hth_gguf_writer_array(out, KEY_READS, HTH_GGUF_U32, layers, n);
}

hearth_status hth_placement_write(const hth_placement *p, uint64_t model_hash, const char *path,
                                  hearth_error *err)
{
    uint32_t ends[HEARTH_MAX_GPU];
    hth_gguf_writer *out;
    hearth_status st = hth_gguf_writer_open(path, &out, err);
    if (st != HEARTH_OK) return st;
    hth_sidecar_write_head(out, KIND, model_hash);
    hth_gguf_writer_array(out, KEY_HOT, HTH_GGUF_U32, p->n_hot, p->n_layer);
    write_reads(out, p);
    hth_gguf_writer_uint(out, KEY_HEAD, HTH_GGUF_U32, p->head);
    if (p->host_kv) hth_gguf_writer_uint(out, KEY_HOST_KV, HTH_GGUF_U32, 1);
    for (uint32_t i = 0; i < p->n_device; i++) {
        write_device(out, &p->devices[i], i);
        ends[i] = p->devices[i].end_layer;
    }
    if (p->n_device > 1) hth_gguf_writer_array(out, KEY_ENDS, HTH_GGUF_U32, ends, p->n_device);
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
        const hth_layer *l = &model->layers[i];
        uint64_t x = hth_gguf_element_uint(hot, i), n_unit = hth_layer_n_unit(l);
        bool divides = hth_ffn_is_transposed(&l->ffn) || hth_layer_divides_experts(l);
        if (x > n_unit || (x < n_unit && !divides))
            return hth_fail(
                err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: value %u is %llu: layer %u has %llu %s%s",
                hth_gguf_path(file), KEY_HOT, (unsigned long long)hot->offset, i, (unsigned long long)x, i,
                (unsigned long long)n_unit, hth_layer_divides_experts(l) ? "experts" : "neurons",
                x > n_unit ? "" : ", which only hearth pack can divide");
        p->n_hot[i] = (uint32_t)x;
    }
    return HEARTH_OK;
}

static hearth_status read_reads(hth_placement *p, const hth_gguf *file, hearth_error *err)
{
    const hth_gguf_value *layers = hth_gguf_find(file, KEY_READS);
    if (!layers) return HEARTH_OK;
    uint64_t n = layers->type == HTH_GGUF_ARRAY ? layers->n_element : 0, next = 0;
    bool right = n > 0 && n <= p->n_layer;
    hearth_status st = right ? hth_gguf_get_array(file, KEY_READS, HTH_GGUF_U32, n, &layers, err) : HEARTH_OK;
    for (uint64_t i = 0; st == HEARTH_OK && right && i < n; i++) {
        uint64_t layer = hth_gguf_element_uint(layers, i);
        right = layer >= next && layer < p->n_layer;
        if (right) hth_layer_set_add(&p->read_experts, (uint32_t)layer);
        next = layer + 1;
    }
    if (st != HEARTH_OK || right) return st;
    return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: wanted are numbers below %u, ascending, of layers there",
                    hth_gguf_path(file), KEY_READS, (unsigned long long)hth_gguf_find(file, KEY_READS)->offset, p->n_layer);
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
static hearth_status read_streams(hth_placement_device *d, const hth_gguf *file, const char *key,
                                  hearth_error *err)
{
    const hth_gguf_value *pairs = hth_gguf_find(file, key);
    if (!pairs) return HEARTH_OK;
    uint64_t n = pairs->type == HTH_GGUF_ARRAY ? pairs->n_element : 0;
    bool right = n > 0 && n <= 2 * HTH_PLACEMENT_STREAMS && n % 2 == 0;
    hearth_status st = right ? hth_gguf_get_array(file, key, HTH_GGUF_U32, n, &pairs, err) : HEARTH_OK;
    for (uint64_t i = 0; st == HEARTH_OK && right && i < n; i += 2) {
        d->streams[i / 2].n_tok = (uint32_t)hth_gguf_element_uint(pairs, i);
        d->streams[i / 2].cpu_share = (uint32_t)hth_gguf_element_uint(pairs, i + 1);
    }
    if (st != HEARTH_OK || (right && hth_placement_streams_valid(d->streams))) return st;
    return hth_fail(
        err, HEARTH_ERROR_FORMAT,
        "%s: %s at %llu: wanted are up to %d pairs, of tokens, ascending, and of parts of %d: make it "
        "again with hearth plan",
        hth_gguf_path(file), key, (unsigned long long)pairs->offset, HTH_PLACEMENT_STREAMS,
        HTH_PLACEMENT_PARTS);
}

static hearth_status read_device(hth_placement_device *d, const hth_gguf *file, uint32_t i, hearth_error *err)
{
    char handoff[32] = "";
    const hth_placement_key key = hth_placement_key_of(KEY_HANDOFF, i);
    hearth_status st = need_text(file, key.text, handoff, sizeof handoff, err);
    if (st == HEARTH_OK) st = need_text(file, hth_placement_key_of(KEY_DEVICE, i).text, d->name, sizeof d->name, err);
    if (st == HEARTH_OK) st = need_text(file, hth_placement_key_of(KEY_DRIVER, i).text, d->driver, sizeof d->driver, err);
    if (st == HEARTH_OK) st = read_streams(d, file, hth_placement_key_of(KEY_STREAM, i).text, err);
    if (st != HEARTH_OK) return st;
    d->submit_on_demand = strcmp(handoff, "submitted") == 0;
    if (d->submit_on_demand || strcmp(handoff, "queued") == 0) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s at %llu: known are queued and submitted",
                    hth_gguf_path(file), key.text, (unsigned long long)hth_gguf_find(file, key.text)->offset);
}

/* The number of devices, and where the layers of each end. */
static hearth_status read_ends(hth_placement *p, const hth_gguf *file, hearth_error *err)
{
    const hth_gguf_value *ends = hth_gguf_find(file, KEY_ENDS);
    p->n_device = 1, p->devices[0].end_layer = p->n_layer;
    if (!ends) return HEARTH_OK;
    uint64_t n = ends->type == HTH_GGUF_ARRAY ? ends->n_element : 0, before = 0;
    bool right = n > 1 && n <= HEARTH_MAX_GPU;
    hearth_status st = right ? hth_gguf_get_array(file, KEY_ENDS, HTH_GGUF_U32, n, &ends, err) : HEARTH_OK;
    for (uint64_t i = 0; st == HEARTH_OK && right && i < n; i++) {
        uint64_t end = hth_gguf_element_uint(ends, i);
        right = end >= before && end <= p->n_layer;
        p->devices[i].end_layer = (uint32_t)(before = end);
    }
    if (st != HEARTH_OK) return st;
    p->n_device = (uint32_t)n;
    if (right && before == p->n_layer) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_FORMAT,
        "%s: %s at %llu: wanted are the ends of the layers of 2 to %d devices, ascending, the last one %u",
        hth_gguf_path(file), KEY_ENDS, (unsigned long long)hth_gguf_find(file, KEY_ENDS)->offset,
        HEARTH_MAX_GPU, p->n_layer);
}

static hearth_status read_rest(hth_placement *p, const hth_gguf *file, const hth_model *model,
                               hearth_error *err)
{
    uint64_t head = 0, host_kv = 0;
    bool found;
    hearth_status st = hth_gguf_get_uint(file, KEY_HEAD, 0, 1, &head, &found, err);
    if (st == HEARTH_OK && !found) st = hth_gguf_missing(file, KEY_HEAD, "every placement", err);
    if (st == HEARTH_OK) st = hth_gguf_get_uint(file, KEY_HOST_KV, 0, 1, &host_kv, NULL, err);
    if (st == HEARTH_OK) st = read_ends(p, file, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < p->n_device; i++)
        st = read_device(&p->devices[i], file, i, err);
    if (st == HEARTH_OK) st = hth_gguf_get_float(file, KEY_SECONDS, 0.0, 1e6, &p->seconds, NULL, err);
    if (st != HEARTH_OK) return st;
    p->head = head == 1, p->host_kv = host_kv == 1;
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
    hearth_error why;
    hearth_status st = hth_gguf_open(path, &file, &why);
    if (st != HEARTH_OK)
        return hth_fail(err, st, "%s%s", why.message,
                        st == HEARTH_ERROR_MEMORY ? "" : "; it is no placement: hearth plan writes one");
    st = hth_sidecar_check_head(file, KIND, model->file, &hash, err);
    if (st == HEARTH_OK) st = read_hot(p, file, model, err);
    if (st == HEARTH_OK) st = read_reads(p, file, err);
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
