/* Every allocation, read and write that can fail does so, of what the commands tokenize,
 * detokenize, inspect, logits, imatrix, compare, profile, synth and chat ask of the library. Run, batch, quantize and
 * perplexity: test_faults.c; the program itself: tests/cli/test_faults.py. */
#include "convert/synth.h"
#include "file/atomic_writer.h"
#include "measure/check_weights.h"
#include "measure/compare.h"
#include "measure/imatrix.h"
#include "measure/profile.h"
#include "model/model.h"
#include "support/faults.h"
#include "support/test.h"
#include "text/tokenizer.h"

/* ---- text: the file's directory and vocabulary alone ---------------------------------------- */

static hearth_status open_text(const fault_paths *p, hth_gguf **file, hth_tokenizer **tok, hearth_error *err)
{
    *tok = NULL;
    hearth_status st = hth_gguf_open(p->in, file, err);
    return st == HEARTH_OK ? hth_tokenizer_open(*file, tok, err) : st;
}

static hearth_status tokenize(const fault_paths *p, hearth_error *err)
{
    char text[600];
    CLOSED(hth_gguf) *file = NULL;
    CLOSED(hth_tokenizer) *tok = NULL;
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    for (size_t i = 0; i < sizeof text; i++) text[i] = "ab c\n</s>"[i % 9];
    hearth_status st = open_text(p, &file, &tok, err);
    for (unsigned flags = 0; st == HEARTH_OK && flags < 4; flags++)
        st = hth_tokenize(tok, text, sizeof text, flags, &ids, NULL, err);
    return st;
}

static hearth_status detokenize(const fault_paths *p, hearth_error *err)
{
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_detokenizer) *decoder = NULL;
    const char *text;
    size_t n;
    hearth_status st = hearth_model_open(p->in, &(hearth_model_options){.mmap = true}, &model, err);
    if (st == HEARTH_OK) st = hearth_detokenizer_open(model, true, false, &decoder, err);
    for (int32_t id = 0; st == HEARTH_OK && id < 200; id++) st = hearth_detokenizer_push(decoder, id, &text, &n, err);
    if (st == HEARTH_OK) hearth_detokenizer_flush(decoder, &text, &n);
    return st;
}

static hearth_status inspect(const fault_paths *p, hearth_error *err)
{
    CLOSED(hth_gguf) *file = NULL;
    hth_model *model = NULL;
    hth_tokenizer *tok = NULL;
    hth_check_result checked;
    hearth_status st = hth_gguf_open(p->in, &file, err);
    if (st == HEARTH_OK) st = hth_model_open(file, &(hth_model_overrides){0}, &model, err);
    if (st == HEARTH_OK) st = hth_tokenizer_open(file, &tok, err);
    if (st == HEARTH_OK) st = hth_check_weights(file, 2, NULL, NULL, &checked, err);
    hth_tokenizer_close(tok);
    hth_model_close(model);
    return st;
}

/* ---- logits ---------------------------------------------------------------------------------------- */

static hearth_status write_logits(void *user, size_t i_token, const float *logits, hearth_error *err)
{
    return hth_atomic_writer_write(user, logits, 267 * sizeof *logits, err);
}

static hearth_status logits(const fault_paths *p, hearth_error *err)
{
    static const int32_t ids[] = {1, 60, 70, 80, 90, 100};
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    CLEANUP(hth_atomic_writer_close) hth_atomic_writer sink = {.fd = -1};
    hearth_session_options so = {.n_ctx = 8, .n_batch = 4, .n_thread = 2};
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hth_atomic_writer_open(&sink, p->out, err);
    if (st == HEARTH_OK) st = hearth_session_eval_each(session, ids, 6, write_logits, &sink, err);
    if (st == HEARTH_OK) st = hth_atomic_writer_finish(&sink, err);
    return st;
}

static hearth_status compare(const fault_paths *p, hearth_error *err)
{
    char text[100];
    CLOSED(hearth_model) *model = NULL;
    hth_compare_side reference = {0}, mode = {0};
    hth_compare *c = NULL;
    hth_comparison result;
    hearth_model_options o = {.n_thread = 1, .activation = "relu", .selector = HEARTH_SELECTOR_GATE};
    hearth_session_options so = {.n_ctx = 16, .n_batch = 8, .n_thread = 2};
    memset(text, 'c', sizeof text);
    hearth_status st = hearth_model_open(p->in, &o, &model, err);
    reference.model = mode.model = model;
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &mode.session, err);
    so.selector = HEARTH_SELECTOR_DENSE;
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &reference.session, err);
    if (st == HEARTH_OK) st = hth_compare_open(&reference, &mode, &c, err);
    if (st == HEARTH_OK) st = hth_measure_compare(c, text, sizeof text, 2, NULL, NULL, &result, err);
    hth_compare_close(c);
    hearth_session_close(reference.session);
    hearth_session_close(mode.session);
    return st;
}

static hearth_status imatrix(const fault_paths *p, hearth_error *err)
{
    char text[100];
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hth_imatrix *m = NULL, *sum = NULL;
    uint64_t n_done;
    hearth_session_options so = {.n_ctx = 16, .n_batch = 8, .n_thread = 2, .selector = HEARTH_SELECTOR_DENSE};
    memset(text, 'c', sizeof text);
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hth_imatrix_new(16, &sum, err);
    if (st == HEARTH_OK)
        st = hth_measure_imatrix(model, session, text, sizeof text, &(hth_imatrix_options){0}, sum, &n_done, err);
    if (st == HEARTH_OK) st = hth_imatrix_add_dataset(sum, (hth_str){"text", 4}, err);
    if (st == HEARTH_OK) st = hth_imatrix_write(sum, p->out, err);
    bool is_written = st == HEARTH_OK;
    if (st == HEARTH_OK) st = hth_imatrix_open(p->out, &m, err);
    if (st == HEARTH_OK) st = hth_imatrix_merge(sum, m, p->out, err);
    if (st != HEARTH_OK && is_written) remove(p->out); /* only its reader failed */
    hth_imatrix_close(m);
    hth_imatrix_close(sum);
    return st;
}

/* ---- profile: written, and read by its users --------------------------------------------------- */

/* save_ns 0: the state is written after every piece but the last. */
static hearth_status profile_with(const fault_paths *p, uint64_t save_ns, hearth_error *err)
{
    char text[400], resume[1100];
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hth_profile *made = NULL, *read = NULL;
    hearth_session_options so = {.n_ctx = 32, .n_batch = 8, .n_thread = 1, .selector = HEARTH_SELECTOR_DENSE};
    hth_profile_options o = {.out = p->out, .n_sample = 20, .settings = "kv f16", .save_ns = save_ns};
    memset(text, 'c', sizeof text);
    snprintf(resume, sizeof resume, "%s.resume", p->out);
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = hth_measure_profile(model, session, text, sizeof text, &o, &made, err);
    if (st == HEARTH_OK) st = hth_profile_open(p->out, NULL, &read, err);
    if (st != HEARTH_OK && made) remove(p->out); /* only its reader failed */
    /* Said of the profile, it would mean that it is there, and the caller would look for it. */
    if (st == HEARTH_ERROR_IO && strstr(err->message, ".resume: cannot sync the folder"))
        snprintf(err->message, sizeof err->message, "the state was not saved");
    if (access(resume, F_OK) == 0) remove(resume);
    hth_profile_close(read);
    hth_profile_close(made);
    return st;
}

static hearth_status profile(const fault_paths *p, hearth_error *err) { return profile_with(p, UINT64_MAX, err); }

static hearth_status profile_saving(const fault_paths *p, hearth_error *err) { return profile_with(p, 0, err); }

/* Stopped, and gone on with. */
static bool stop_late(void *user, uint64_t done, uint64_t total) { return done < 128; }

static hearth_status profile_resumed(const fault_paths *p, hearth_error *err)
{
    char text[400], resume[1100];
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    CLOSED(hth_profile) *made = NULL;
    hearth_session_options so = {.n_ctx = 32, .n_batch = 8, .n_thread = 1, .selector = HEARTH_SELECTOR_DENSE};
    hth_profile_options o = {
        .out = p->out, .n_sample = 20, .settings = "", .save_ns = UINT64_MAX, .progress = stop_late};
    memset(text, 'c', sizeof text);
    snprintf(resume, sizeof resume, "%s.resume", p->out);
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) {
        st = hth_measure_profile(model, session, text, sizeof text, &o, &made, err);
        if (st == HEARTH_ERROR_CANCELLED) st = HEARTH_OK;
    }
    o.progress = NULL;
    if (st == HEARTH_OK) st = hth_measure_profile(model, session, text, sizeof text, &o, &made, err);
    if (access(resume, F_OK) == 0) remove(resume);
    return st;
}

static hearth_status synth(const fault_paths *p, hearth_error *err)
{
    uint64_t size;
    hth_synth_options o = {.shape = "stories-15m", .ftype = hth_ftype_find("q8_0"), .seed = 1, .n_thread = 2};
    return hth_synth(p->out, &o, &size, err);
}

/* ---- chat: a template, a conversation of two turns, in a session ------------------------------------- */

static hearth_status answer(const hearth_model *model, const hearth_chat *chat, hearth_session *session,
                            size_t n_message, hearth_error *err)
{
    static const hearth_message messages[] = {{.role = "system", .content = "short", .n = 5},
                                              {.role = "user", .content = " hi <b> ", .n = 8},
                                              {.role = "user", .content = "x", .n = 1}};
    static const hearth_chat_options o = {.add_generation_prompt = true, .variables = "{\"tools\": [1, {\"a\": 2}]}"};
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    hearth_status st = hearth_chat_render(chat, messages, n_message, &o, &text, &n, err);
    if (st == HEARTH_OK) st = hearth_chat_tokenize(chat, messages, n_message, &o, &ids, &n_ids, err);
    if (st == HEARTH_OK) st = hearth_session_truncate(session, 0, err);
    if (st == HEARTH_OK) st = hearth_session_eval(session, ids, n_ids < 60 ? n_ids : 60, err);
    hearth_free(text);
    hearth_free(ids);
    return st;
}

static hearth_status run_chat(const fault_paths *p, const char *format, hearth_error *err)
{
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_chat) *chat = NULL;
    CLOSED(hearth_session) *session = NULL;
    hearth_session_options so = {.n_ctx = 64, .n_batch = 16, .n_thread = 1};
    hearth_status st = hearth_model_open(p->in, NULL, &model, err);
    if (st == HEARTH_OK) st = hearth_chat_open(model, format, &chat, err);
    if (st == HEARTH_OK) st = hearth_session_open(model, &so, &session, err);
    if (st == HEARTH_OK) st = answer(model, chat, session, 2, err);
    if (st == HEARTH_OK) st = answer(model, chat, session, 3, err);
    return st;
}

static hearth_status chat_own(const fault_paths *p, hearth_error *err) { return run_chat(p, NULL, err); }
static hearth_status chat_named(const fault_paths *p, hearth_error *err) { return run_chat(p, "chatml", err); }

/* ---- every n --------------------------------------------------------------------------------------------- */

TEST(text_survives_every_allocation_and_read_that_fails)
{
    fault_survive("tokenize", tokenize, 20, 1, 0);
    fault_survive("detokenize", detokenize, 20, 1, 0);
}

TEST(inspect_survives_every_allocation_and_read_that_fails) { fault_survive("inspect --check", inspect, 20, 20, 0); }

TEST(logits_survive_everything_that_fails) { fault_survive("logits", logits, 20, 20, 2); }

TEST(imatrix_survives_everything_that_fails) { fault_survive("imatrix", imatrix, 60, 20, 4); }

TEST(compare_survives_every_allocation_and_read_that_fails) { fault_survive("compare", compare, 60, 20, 0); }

TEST(profile_survives_everything_that_fails)
{
    fault_survive("profile", profile, 60, 20, 4);
    fault_survive("profile, saving", profile_saving, 60, 0, 10);
    fault_survive("profile, resumed", profile_resumed, 60, 20, 0);
}

TEST(chat_survives_every_allocation_and_read_that_fails)
{
    fault_survive("chat, template of the file", chat_own, 50, 20, 0);
    fault_survive("chat, format by name", chat_named, 30, 0, 0);
}

TEST(synth_survives_every_allocation_and_write_that_fails) { fault_survive("synth", synth, 5, 0, 5); }
