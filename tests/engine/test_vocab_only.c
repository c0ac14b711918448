/* Models that are opened with vocab_only: metadata and vocabulary work as with weights, none is read, and what evaluates
 * tokens says why it cannot. */
#include "engine/engine.h"
#include "support/faults.h"
#include "support/models/tiny_model.h"
#include "support/models/vocab_file.h"
#include "support/test.h"

static const hearth_model_options vocab_only = {.vocab_only = true};
static const char text[] = "abc a ab\n";

/* The tiny model, or its keys alone. */
static hearth_model *open_tiny(tiny_model *m, gguf_bytes *file, const hearth_model_options *options)
{
    *file = tiny_take(m);
    return OPENED_BY(hearth_model_open_memory, hearth_model, file->data, file->n, "tiny.gguf", options);
}

static hearth_model *open_vocabulary(gguf_bytes *file)
{
    tiny_model m = tiny_new();
    m.n_tensor = 0;
    return open_tiny(&m, file, &vocab_only);
}

static void check_ids(const hearth_model *model, const hearth_model *other)
{
    int32_t *ids = NULL, *expected = NULL;
    size_t n = 0, n_expected = 0;
    CHECK_OK(hearth_tokenize(model, text, sizeof text - 1, HEARTH_ADD_SPECIAL, &ids, &n, err));
    CHECK_OK(hearth_tokenize(other, text, sizeof text - 1, HEARTH_ADD_SPECIAL, &expected, &n_expected, err));
    CHECK(n > 4);
    if (CHECK_INT(n, n_expected)) CHECK_BYTES(ids, expected, n * sizeof *ids);
    CLOSED(hearth_detokenizer) *d = OPENED(hearth_detokenizer, model, true, false);
    char all[40] = "";
    const char *piece;
    size_t n_piece, n_all = 0;
    for (size_t i = 0; d && i < n; i++) {
        CHECK_OK(hearth_detokenizer_push(d, ids[i], &piece, &n_piece, err));
        memcpy(all + n_all, piece, n_piece), n_all += n_piece;
    }
    CHECK_TEXT(all, text);
    hearth_free(ids);
    hearth_free(expected);
}

TEST(texts_are_as_with_weights)
{
    CLEANUP(gguf_free) gguf_bytes whole = {0}, keys = {0};
    tiny_model m = tiny_new();
    CLOSED(hearth_model) *model = open_tiny(&m, &whole, NULL), *vocabulary = open_vocabulary(&keys);
    if (!model || !vocabulary) return;
    check_ids(vocabulary, model);
    CHECK_INT(hearth_token_eos(vocabulary), 2);
    CHECK(hearth_token_is_eog(vocabulary, 2));
}

static void count_text(void *user, hearth_answer_kind kind, const char *bytes, size_t n)
{
    *(size_t *)user += n;
}

TEST(chats_constraints_and_samplers_work)
{
    CLEANUP(gguf_free) gguf_bytes keys = {0};
    CLOSED(hearth_model) *m = open_vocabulary(&keys);
    if (!m) return;
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, m, "chatml");
    const hearth_message message = {.role = "user", .content = "ab", .n = 2};
    int32_t *ids = NULL;
    size_t n = 0, n_text = 0;
    CHECK_OK(hearth_chat_tokenize(chat, &message, 1, NULL, &ids, &n, err));
    CHECK(n > 4);
    hearth_free(ids);
    hearth_answer *answer =
        OPENED(hearth_answer, m, &(hearth_answer_options){.fn = count_text, .user = &n_text});
    CHECK_OK(hearth_answer_push(answer, 3 + 'a', err));
    CHECK_OK(hearth_answer_finish(answer, err));
    hearth_answer_close(answer);
    CHECK_INT(n_text, 1);

    const char *const choices[] = {"b"};
    const hearth_constraint_options o = {
        .kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = 1};
    hearth_constraint *constraint = OPENED(hearth_constraint, m, &o);
    CLOSED(hearth_sampler) *sampler = OPENED(hearth_sampler, m, NULL);
    float logits[TINY_VOCAB] = {0};
    int32_t id = -1;
    CHECK_OK(hearth_constraint_mask(constraint, logits, err));
    CHECK_OK(hearth_sampler_sample(sampler, logits, &id, err));
    CHECK(id == 3 + 'b' || id == 261); /* the byte, or the word */
    hearth_constraint_close(constraint);
}

TEST(info_has_what_the_metadata_say)
{
    CLEANUP(gguf_free) gguf_bytes keys = {0};
    CLOSED(hearth_model) *m = open_vocabulary(&keys);
    if (!m) return;
    const hearth_model_info info = test_model_info(m);
    CHECK_TEXT(info.path, "tiny.gguf");
    CHECK_TEXT(info.architecture, "llama");
    CHECK_TEXT(info.activation, "silu");
    const char *chosen = getenv("HEARTH_CPU");
    CHECK_TEXT(info.cpu, chosen && *chosen ? chosen : hearth_cpu_level(0));
    CHECK_INT(info.n_layer, TINY_LAYERS);
    CHECK_INT(info.d_ff, TINY_D_FF);
    CHECK_INT(info.n_ctx_train, TINY_CONTEXT);
    CHECK_INT(info.d_model, TINY_D_MODEL);
    CHECK_INT(info.n_vocab, TINY_VOCAB);
    CHECK_INT(hearth_model_n_vocab(m), TINY_VOCAB);
    CHECK_INT(hearth_model_d_model(m), TINY_D_MODEL);
    CHECK(info.n_parameter == 0 && info.weight_bytes == 0 && info.bytes_per_token == 0);
    CHECK_INT(info.selector, HEARTH_SELECTOR_AUTO);
    CHECK(strstr(info.selector_why, "without weights") && !info.gpu && !info.gpu_note[0] && !info.reader);
}

TEST(what_evaluates_tokens_is_refused)
{
    CLEANUP(gguf_free) gguf_bytes keys = {0}, whole = {0};
    tiny_model t = tiny_new();
    CLOSED(hearth_model) *m = open_vocabulary(&keys), *model = open_tiny(&t, &whole, NULL);
    if (!m || !model) return;
    hearth_session *s = NULL;
    hearth_batch *b = NULL;
    hearth_scheduler *scheduler = NULL;
    hearth_storage_stats stats = {0};
    CHECK_FAILS(hearth_session_open(m, NULL, &s, err), HEARTH_ERROR_ARGUMENT,
                "tiny.gguf: a session needs weights|vocab_only");
    CHECK_FAILS(hearth_batch_open(m, 4, 1, &b, err), HEARTH_ERROR_ARGUMENT,
                "a batch needs weights|vocab_only");
    CHECK_FAILS(hearth_scheduler_open(m, NULL, &scheduler, err), HEARTH_ERROR_ARGUMENT,
                "a scheduler needs weights");
    hearth_embedder *e = NULL;
    CHECK_FAILS(hearth_embedder_open(m, NULL, &e, err), HEARTH_ERROR_ARGUMENT, "an embedder needs weights|vocab_only");
    CHECK(!s && !b && !scheduler && !e);
    CHECK_INT(hearth_session_bytes(m, NULL), 0);
    CHECK(!hearth_model_get_storage(m, &stats) && !hearth_model_get_layer_storage(m, 0, &stats));
    CLOSED(hearth_session) *other = OPENED(hearth_session, model, NULL);
    CHECK_FAILS(hearth_session_use_drafts(other, &(hearth_draft_options){.model = m}, NULL, err),
                HEARTH_ERROR_ARGUMENT, "a model that drafts needs weights");
}

/* Neither the weights are read, nor is there anything that depends on them. */
TEST(no_weight_is_read)
{
    const char *path = test_scratch("whole.gguf");
    tiny_model t = tiny_new();
    tiny_save(&t, path);
    uint64_t before = hth_gguf_n_read();
    hth_gguf *file = NULL;
    CHECK_OK(hth_gguf_open(path, &file, err));
    hth_gguf_close(file);
    uint64_t n_read = hth_gguf_n_read() - before;
    const hearth_model_options o = {.vocab_only = true,
                                    .ram = 1,
                                    .gpu = {.device = "vulkan:99"},
                                    .predictors = "/nowhere",
                                    .activation = "none"};
    CLOSED(hearth_model) *m = OPENED(hearth_model, path, &o);
    CHECK_INT(hth_gguf_n_read() - before, 2 * n_read);
    if (m) CHECK_INT(hearth_model_n_vocab(m), TINY_VOCAB);
    /* Without it they have an effect. */
    hearth_model_options other = o;
    hearth_model *none = NULL;
    other.vocab_only = false;
    CHECK(hearth_model_open(path, &other, &none, NULL) != HEARTH_OK && !none);
}

/* A file with vocabulary alone is none that can be evaluated. */
TEST(weights_are_needed_otherwise)
{
    tiny_model t = tiny_new();
    t.n_tensor = 0;
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&t);
    hearth_model *m = NULL;
    CHECK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &m, NULL) != HEARTH_OK && !m);
}

TEST(models_of_other_libraries_have_vocabularies)
{
    tiny_model t = tiny_new();
    tiny_set_text(&t, "general.architecture", "of-tomorrow");
    tiny_find(&t, "token_embd.weight")->dim[1] = TINY_VOCAB + 5;
    CLEANUP(gguf_free) gguf_bytes file = {0};
    CLOSED(hearth_model) *m = open_tiny(&t, &file, &vocab_only);
    if (!m) return;
    const hearth_model_info info = test_model_info(m);
    CHECK_TEXT(info.architecture, "of-tomorrow");
    CHECK_TEXT(info.activation, "");
    CHECK(info.n_layer == 0 && hearth_model_d_model(m) == 0);
    CHECK_INT(hearth_model_n_vocab(m), TINY_VOCAB + 5); /* rows that pad it */
}

/* As with weights, only functions on texts fail. */
TEST(vocabularies_may_be_unknown)
{
    tiny_model t = tiny_new();
    tiny_set_text(&t, "tokenizer.ggml.model", "of-tomorrow");
    t.n_tensor = 0;
    CLEANUP(gguf_free) gguf_bytes file = {0};
    CLOSED(hearth_model) *m = open_tiny(&t, &file, &vocab_only);
    if (!m) return;
    int32_t *ids;
    size_t n;
    hearth_sampler *sampler;
    hearth_metadata key = {0};
    CHECK_FAILS(hearth_tokenize(m, "a", 1, 0, &ids, &n, err), HEARTH_ERROR_UNSUPPORTED, "of-tomorrow");
    CHECK_FAILS(hearth_sampler_open(m, NULL, &sampler, err), HEARTH_ERROR_UNSUPPORTED, "of-tomorrow");
    CHECK_INT(hearth_model_n_vocab(m), 0);
    CHECK_INT(hearth_model_find_metadata(m, "tokenizer.ggml.model", &key), HEARTH_OK);
    CHECK_TEXT(key.as_string, "of-tomorrow");
}

/* ---- faults -------------------------------------------------------------------------------------------- */

static hearth_status open_and_close(const fault_paths *p, hearth_error *err)
{
    hearth_model *m = NULL;
    hearth_status st = hearth_model_open(p->in, &vocab_only, &m, err);
    CHECK((m != NULL) == (st == HEARTH_OK));
    hearth_model_close(m);
    return st;
}

TEST(each_failure_is_an_error) { fault_survive("vocab_only", open_and_close, 20, 1, 0); }
