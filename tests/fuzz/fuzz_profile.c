/* A fuzz target for profiles: a file (edited_file.h), read with its model and without. One that opens agrees with itself,
 * so that what is asked of it is in range, and is the same when it was written and read again. Built with libFuzzer by the
 * preset `fuzz`; test_profile.c replays seeds and mutations. */
#include "base/alloc.h"
#include "fuzz/tiny_file.h"
#include "sparse/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_TOK = 96, N_SAMPLE = 40 };

static gguf_bytes write_profile(const hth_profile *p)
{
    char path[60];
    snprintf(path, sizeof path, "/tmp/hearth-fuzz-%d.profile", (int)getpid());
    expect(hth_profile_write(p, path, NULL) == HEARTH_OK);
    return take_file(path);
}

/* Figures that agree with each other. */
static gguf_bytes make_profile(const tiny_file *t)
{
    hth_profile *p;
    expect(hth_profile_new(t->model, N_SAMPLE, true, &p, NULL) == HEARTH_OK);
    p->n_tok = p->n_done = N_TOK, p->n_ctx = 32, p->text_hash = 12345, p->model_hash = t->hash;
    snprintf(p->activation, sizeof p->activation, "%s", hth_activation_name(t->model->hparams.activation));
    snprintf(p->settings, sizeof p->settings, "kv f16");
    for (uint32_t i = 0; i < p->n_layer; i++) {
        hth_profile_layer *l = &p->layers[i];
        l->bins[0] = N_TOK * TINY_D_FF;
        for (uint32_t j = 0; j < TINY_D_FF; j++) {
            l->n_fired[j] = j % (N_TOK + 1);
            l->sum[j] = l->n_fired[j] * 0.125;
            l->mean[j] = (float)(l->sum[j] / N_TOK);
            l->bins[0] -= l->n_fired[j];
            l->bins[2 + j] += l->n_fired[j];
            for (uint32_t k = 0, n = 0; k < N_SAMPLE && n < l->n_fired[j]; k += 2, n++)
                l->coact_bits[j * p->n_word + k / 32] |= 1u << k % 32;
        }
        l->largest = 1.5f;
        l->gate_fired = 3 + i, l->up_fired = 4;
    }
    gguf_bytes b = write_profile(p);
    hth_profile_close(p);
    return b;
}

static void check(const hth_profile *p)
{
    for (uint32_t i = 0; i < p->n_layer; i++) {
        double live = hth_profile_live(p, i), cover = hth_profile_cover(p, i, 0.9);
        expect(live >= 0.0 && live <= 1.0 && cover >= 0.0 && cover <= 1.0);
    }
    for (uint32_t i = 0; i < p->n_sample; i++) expect(hth_profile_sample_at(p, i) < p->n_tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gguf_bytes valid;
    const tiny_file *t = tiny_file_open();
    char path[40];
    hth_profile *p;
    if (!valid.data) valid = make_profile(t);
    gguf_bytes b = edited_file(&valid, data, size);
    int fd = memory_file(&b, path);
    uint64_t held = hth_alloc_in_use();
    for (int with_model = 0; with_model < 2; with_model++) {
        hearth_error why = {0};
        p = NULL;
        hearth_status st = hth_profile_open(path, with_model ? t->model : NULL, &p, &why);
        expect((st == HEARTH_OK) == (p != NULL) && (p || why.message[0]));
        expect(size > 0 || p); /* the file that is edited */
        if (p) check(p);
        hth_profile_close(p);
    }
    expect(hth_alloc_in_use() == held);
    close(fd);
    gguf_free(&b);
    return 0;
}
