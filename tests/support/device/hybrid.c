/* Packing for tests, and what lies beside a packed model: profiles, thresholds, placements. What is not
 * measured is drawn from a seed. */
#include "support/device/hybrid.h"

#include "convert/pack.h"
#include "convert/predictors.h"
#include "measure/profile.h"
#include "measure/thresholds.h"
#include "model/arch.h"
#include "forward/gpu/shader_params.h"
#include "sparse/profile.h"

#include "device/device.h"
#include "support/models/tiny_model.h"

#define STORYTELLER "models/storyteller-drelu/storyteller-drelu-f32.gguf"

typedef struct beside {
    char profile[512], predictors[512], thresholds[512];
} beside;

static void name_beside(char path[512], const char *of, const char *kind)
{
    char name[100];
    snprintf(name, sizeof name, "%s-%s.gguf", of, kind);
    snprintf(path, 512, "%s", test_program_scratch(name));
}

static beside paths_beside(const char *of)
{
    beside b;
    name_beside(b.profile, of, "profile");
    name_beside(b.predictors, of, "predictors");
    name_beside(b.thresholds, of, "thresholds");
    return b;
}

static void remove_beside(const beside *b) { remove(b->profile), remove(b->predictors), remove(b->thresholds); }

static bool pack(const char *in, const char *out, const char *mix, const beside *b)
{
    hth_pack_options o = {.ftype = mix ? hth_ftype_find(mix) : NULL, .pure = true,
                          .profile = b && b->profile[0] ? b->profile : NULL,
                          .predictors = b && b->predictors[0] ? b->predictors : NULL,
                          .thresholds = b && b->thresholds[0] ? b->thresholds : NULL, .n_thread = 2};
    hth_pack_result r;
    hearth_error err = {0};
    hearth_status st = hth_pack(in, out, &o, &r, &err);
    if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s", err.message);
    return st == HEARTH_OK;
}

/* ---- storyteller -------------------------------------------------------------------------------- */

/* Profile, thresholds and predictors by the text. */
static void measure_storyteller(const char *model_path, const char *text, size_t n, const beside *to)
{
    hth_profile *profile = NULL;
    hth_thresholds thresholds = {0};
    hth_predictor_result *layers = NULL;
    uint32_t n_layer;
    const hearth_model_options mo = {.selector = HEARTH_SELECTOR_DENSE, .n_thread = 2};
    const hearth_session_options so = {.n_ctx = 64, .n_batch = 64, .n_thread = 2, .kv = HEARTH_KV_F16};
    const hth_profile_options po = {
        .out = to->profile, .n_sample = 64, .settings = "kv f16", .save_ns = HTH_PROFILE_SAVE_NS};
    const hth_threshold_options to_find = {.sparsity = 0.9, .n_sample = 32};
    hth_predictor_options made = hth_predictor_defaults();
    made.n_token = 256, made.n_step = 20, made.recall = 0.8, made.n_thread = 2;
    hearth_model *model = OPENED(hearth_model, model_path, &mo);
    if (!model) return;
    hearth_session *session = OPENED(hearth_session, model, &so);
    if (session) CHECK_OK(hth_measure_profile(model, session, text, n, &po, &profile, err));
    if (session) CHECK_OK(hearth_session_truncate(session, 0, err));
    if (session) CHECK_OK(hth_thresholds_find(model, session, text, n, &to_find, &thresholds, err));
    CHECK_OK(hth_thresholds_write(&thresholds, model, to->thresholds, err));
    hth_thresholds_close(&thresholds);
    hth_profile_close(profile);
    hearth_session_close(session);
    hearth_model_close(model);
    CHECK_OK(hth_predictors_make(model_path, text, n, to->predictors, 64, &made, &layers, &n_layer, err));
    hearth_free(layers);
}

/* Of the whole process: measuring takes longer than most of what is tested with it. */
static beside of_storyteller;

/* NULL: there are no test data, and the case fails. */
static const beside *measured_storyteller(const char *model_path)
{
    enum { SOME_TEXT = 3000 };
    size_t n = 0;
    if (of_storyteller.profile[0]) return &of_storyteller;
    const char *text_path = test_data("text/stories.txt");
    char *text = text_path ? test_read_file(text_path, &n) : NULL;
    if (!text) return NULL;
    of_storyteller = paths_beside("storyteller");
    measure_storyteller(model_path, text, n < SOME_TEXT ? n : SOME_TEXT, &of_storyteller);
    free(text);
    return &of_storyteller;
}

bool hybrid_pack_storyteller(const char *mix, const char *path)
{
    char source[1024];
    const char *data = test_data(STORYTELLER);
    if (!data) return false;
    snprintf(source, sizeof source, "%s", data);
    const beside *b = measured_storyteller(source);
    return b && pack(source, path, mix, b);
}

/* ---- files of PowerInfer ------------------------------------------------------------------------ */

/* A model's file and what its layers are, without its weights. */
typedef struct opened {
    hth_gguf *file;
    hth_model *model;
    uint64_t hash;
} opened;

static bool open_bare(const char *path, opened *o)
{
    *o = (opened){0};
    CHECK_OK(hth_gguf_open(path, &o->file, err));
    if (o->file) CHECK_OK(hth_model_open(o->file, &(hth_model_overrides){0}, &o->model, err));
    if (o->model) CHECK_OK(hth_model_hash(o->file, &o->hash, err));
    return o->model != NULL;
}

static void close_bare(opened *o)
{
    hth_model_close(o->model);
    hth_gguf_close(o->file);
}

/* A profile that is drawn: which neurons are active how often is random. */
static void write_profile(const char *model, const char *path)
{
    enum { N_TOK = 8 };
    opened o;
    hth_profile *p = NULL;
    test_random r = {1};
    if (open_bare(model, &o)) CHECK_OK(hth_profile_new(o.model, 0, true, &p, err));
    if (!p) return;
    p->model_hash = o.hash, p->n_tok = p->n_done = p->n_ctx = N_TOK;
    snprintf(p->activation, sizeof p->activation, "%s", hth_activation_name(o.model->hparams.activation));
    for (uint32_t i = 0; i < p->n_layer; i++) {
        hth_profile_layer *l = &p->layers[i];
        l->largest = 1e3f;
        for (uint32_t j = 0; j < l->d_ff; j++) {
            uint32_t n = test_random_below(&r, N_TOK + 1);
            l->n_fired[j] = n, l->mean[j] = (float)n / N_TOK, l->sum[j] = n;
            l->bins[0] += N_TOK - n, l->bins[9] += n;
        }
    }
    CHECK_OK(hth_profile_write(p, path, err));
    hth_profile_close(p);
    close_bare(&o);
}

static float drawn_floor(uint32_t i_layer, uint32_t i)
{
    test_random r = {i_layer * 4099 + i};
    return 0.05f * (1.0f + test_random_float(&r));
}

bool hybrid_pack_powerinfer(const char *name, const char *path)
{
    char below[100], source[1024];
    snprintf(below, sizeof below, "golden/powerinfer/%s.q4_0.powerinfer.gguf", name);
    const char *data = test_data(below);
    if (!data) return false;
    snprintf(source, sizeof source, "%s", data);
    CLEANUP(remove_beside) beside b = paths_beside(name);
    b.predictors[0] = '\0';
    write_profile(source, b.profile);
    bool made = hybrid_write_thresholds(source, drawn_floor, b.thresholds) && pack(source, path, NULL, &b);
    return made;
}

bool hybrid_pack_wide(const char *path)
{
    char source[512];
    tiny_model m = tiny_new();
    snprintf(source, sizeof source, "%s", test_scratch("wide-f32.gguf"));
    tiny_set_u32(&m, "llama.feed_forward_length", HYBRID_WIDE);
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        char name[40];
        snprintf(name, sizeof name, "blk.%u.ffn_gate.weight", i);
        tiny_find(&m, name)->dim[1] = HYBRID_WIDE;
        snprintf(name, sizeof name, "blk.%u.ffn_up.weight", i);
        tiny_find(&m, name)->dim[1] = HYBRID_WIDE;
        snprintf(name, sizeof name, "blk.%u.ffn_down.weight", i);
        tiny_find(&m, name)->dim[0] = HYBRID_WIDE;
    }
    tiny_save(&m, source);
    bool made = pack(source, path, "Q8_0", NULL);
    remove(source);
    return made;
}

bool hybrid_pack_floats(const char *name, const char *path)
{
    char below[100];
    snprintf(below, sizeof below, "golden/powerinfer/%s.f16.powerinfer.gguf", name);
    const char *source = test_data(below);
    return source && pack(source, path, NULL, NULL);
}

bool hybrid_write_thresholds(const char *model, hybrid_floor_fn *floor_of, const char *path)
{
    hth_thresholds t = {0};
    opened o;
    const hearth_model_options mo = {.selector = HEARTH_SELECTOR_DENSE, .n_thread = 1};
    if (!open_bare(model, &o)) return false;
    t.n_layer = o.model->hparams.n_layer, t.n_token = 1;
    t.layers = calloc(t.n_layer, sizeof *t.layers);
    if (!t.layers) abort();
    for (uint32_t i = 0; i < t.n_layer; i++) {
        t.layers[i].d_ff = o.model->layers[i].ffn.d_ff;
        t.layers[i].thresholds = calloc(t.layers[i].d_ff, sizeof(float));
        if (!t.layers[i].thresholds) abort();
        for (uint32_t j = 0; j < t.layers[i].d_ff; j++) t.layers[i].thresholds[j] = floor_of(i, j);
    }
    hearth_model *m = OPENED(hearth_model, model, &mo);
    if (m) CHECK_OK(hth_thresholds_write(&t, m, path, err));
    hearth_model_close(m);
    for (uint32_t i = 0; i < t.n_layer; i++) free(t.layers[i].thresholds);
    free(t.layers);
    close_bare(&o);
    return m != NULL;
}

/* ---- placements --------------------------------------------------------------------------------- */

hth_device *hybrid_open_device(const char *name)
{
    hth_device *d = NULL;
    hearth_error why = {0};
    const hth_device_spec spec = {.name = name, .shader_refs = hth_shader_ref_table};
    hearth_status st = hth_device_open(&spec, &d, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) test_skip("%s", why.message);
    else if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s", why.message);
    return d;
}

bool hybrid_write_placement(const char *model, const char *device, hth_placement *p, const char *path)
{
    opened o;
    hth_device_names names;
    names.n = 0;
    CHECK_OK(hth_device_split_names(device, &names, err));
    p->n_device = names.n;
    for (uint32_t i = 0; i < names.n; i++) {
        hth_device *d = hybrid_open_device(names.all[i]);
        if (!d) return false;
        snprintf(p->devices[i].name, sizeof p->devices[i].name, "%s", hth_device_get_info(d)->name);
        snprintf(p->devices[i].driver, sizeof p->devices[i].driver, "%s", hth_device_get_info(d)->driver);
        hth_device_close(d);
    }
    if (names.n == 0) return false;
    p->devices[names.n - 1].end_layer = p->n_layer;
    bool there = open_bare(model, &o);
    if (there) CHECK_OK(hth_placement_write(p, o.hash, path, err));
    close_bare(&o);
    return there;
}
