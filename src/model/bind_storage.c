/* Files that `hearth pack --for-storage` wrote: the neurons that are read together, checksums of what is read together,
 * and the bounds of the scales of down, which would take reading all of it. Keys and tensors: docs/streaming.md. Called by
 * bind_ffn.c for each layer. */
#include "kernels/sparse_down.h"
#include "model/bind_int.h"

/* Bytes of a bundle's rows of one matrix. */
enum { MIN_SIZE = 16 << 10, MAX_SIZE = 64 << 10, PAGE_SIZE = HTH_STORAGE_ALIGNMENT };

uint32_t hth_bundle_shift(uint64_t row_size, bool in_order)
{
    uint32_t shift = HTH_CLUSTER_SHIFT;
    bool found_pages = false;
    for (uint32_t k = HTH_CLUSTER_SHIFT; k >= HTH_MIN_BUNDLE_SHIFT && !in_order; k--) {
        uint64_t size = row_size << k;
        bool pages = size % PAGE_SIZE == 0;
        if (size < MIN_SIZE || (found_pages && !pages)) break;
        if (size <= MAX_SIZE || k == HTH_MIN_BUNDLE_SHIFT) shift = k, found_pages = pages;
    }
    return shift;
}

size_t hth_layer_checked_matrices(const hth_layer *l, const hth_matrix *all[HTH_CHECKED_MATRICES],
                                  size_t rows[HTH_CHECKED_MATRICES])
{
    const hth_matrix *experts[HTH_EXPERT_MATRICES],
        *dense[] = {&l->ffn.gate, &l->ffn.up, &l->ffn.down_t.rows};
    bool of_experts = hth_has_experts(l->network);
    size_t n = 0, n_all = of_experts ? HTH_EXPERT_MATRICES : 3;
    hth_expert_matrices(&l->experts, experts);
    for (size_t i = 0; i < n_all; i++) {
        const hth_matrix *m = of_experts ? experts[i] : dense[i];
        if (m->n_row == 0) continue;
        rows[n] = of_experts ? m->n_row / l->experts.router.n_expert : l->n_bundle_neuron;
        all[n++] = m;
    }
    return n;
}

/* Whether the file has the keys, and the neurons of a bundle of layer i. */
static hearth_status read_neurons(hth_binder *b, uint32_t i, const hth_layer *l, bool *found,
                                  uint32_t *neurons)
{
    const hth_gguf *file = b->model->file;
    uint64_t version = HTH_STORAGE_VERSION;
    const hth_gguf_value *array;
    hearth_status st =
        hth_gguf_get_uint(file, HTH_KEY_STORAGE_VERSION, 0, UINT32_MAX, &version, found, b->err);
    if (st != HEARTH_OK || !*found) return st;
    if (version != HTH_STORAGE_VERSION)
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: %s at %llu is %llu, this version reads %d: pack the model again",
                        hth_gguf_path(file), HTH_KEY_STORAGE_VERSION,
                        (unsigned long long)hth_gguf_find(file, HTH_KEY_STORAGE_VERSION)->offset,
                        (unsigned long long)version, HTH_STORAGE_VERSION);
    st = hth_gguf_get_array(file, HTH_KEY_STORAGE_NEURONS, HTH_GGUF_U32, b->model->hparams.n_layer, &array,
                            b->err);
    if (st != HEARTH_OK) return st;
    if (!array) return hth_gguf_missing(file, HTH_KEY_STORAGE_NEURONS, HTH_KEY_STORAGE_VERSION, b->err);
    uint64_t n = hth_gguf_element_uint(array, i), min = 1u << HTH_MIN_BUNDLE_SHIFT, max = HTH_CLUSTER_NEURONS;
    *neurons = (uint32_t)n;
    bool dense = l->ffn.d_ff > 0 && b->model->down_transposed && !hth_has_experts(l->network);
    if (dense ? n >= min && n <= max && (n & (n - 1)) == 0 : n == 0) return HEARTH_OK;
    return hth_fail(b->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: value %u is %llu, expected %s",
                    hth_gguf_path(file), HTH_KEY_STORAGE_NEURONS, (unsigned long long)array->offset, i,
                    (unsigned long long)n,
                    dense ? "a power of two from 16 to 256" : "0: the layer has no neurons in rows of down");
}

/* FORMAT: a matrix that is read in parts does not begin at a page. */
static hearth_status check_place(const hth_binder *b, const hth_matrix *m)
{
    for (size_t k = 0; k < b->model->n_binding; k++) {
        const hth_gguf_tensor *t = b->model->bindings[k].tensor;
        if (b->model->bindings[k].matrix != m || t->offset % PAGE_SIZE == 0) continue;
        return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                        "%s: tensor '%s' is at byte %llu, but with %s it begins with a page of %d bytes",
                        hth_gguf_part_path(b->model->file, t->i_part), t->name.bytes,
                        (unsigned long long)t->offset, HTH_KEY_STORAGE_VERSION, PAGE_SIZE);
    }
    return HEARTH_OK;
}

hearth_status hth_bind_storage(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_matrix *all[HTH_CHECKED_MATRICES];
    size_t rows[HTH_CHECKED_MATRICES], n_unit = 0;
    bool found;
    hearth_status st = read_neurons(b, i, l, &found, &l->n_bundle_neuron);
    if (st != HEARTH_OK || !found || (l->n_bundle_neuron == 0 && !hth_has_experts(l->network))) return st;
    size_t n = hth_layer_checked_matrices(l, all, rows);
    for (size_t k = 0; k < n && st == HEARTH_OK; k++) {
        n_unit += (all[k]->n_row + rows[k] - 1) / rows[k];
        st = check_place(b, all[k]);
    }
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "ffn_checksum");
    if (l->n_bundle_neuron > 0) n_unit++; /* the checksum of the scales (engine/load.c) */
    if (st == HEARTH_OK) st = hth_bind_check_indices(b, t, 2, n_unit);
    if (st != HEARTH_OK) return st;
    l->checksums = t;
    hth_bind_note_used(b->model, t);
    if (l->n_bundle_neuron == 0) return HEARTH_OK;
    st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "ffn_down_t.scales"), hth_n_cluster(l->ffn.d_ff),
                         &l->ffn.scales);
    if (st == HEARTH_OK) b->model->bindings[b->model->n_binding - 1].must_be_nonneg = true;
    return st;
}
