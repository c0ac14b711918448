/* Makes what small_model.h declares. Used by tests/study and tests/measure. */
#include "support/models/small_model.h"

#include "support/test.h"
#include "support/models/tiny_model.h"

#define STORYTELLER_FILE HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { D_FF = 100 };

static gguf_bytes make_file(void)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_u32(&m, "llama.feed_forward_length", D_FF);
    for (uint32_t i = 0; i < m.n_tensor; i++)
        for (uint32_t k = 0; k < 2; k++)
            if (strstr(m.tensors[i].name, "ffn_") && m.tensors[i].dim[k] == TINY_D_FF) m.tensors[i].dim[k] = D_FF;
    gguf_bytes file = tiny_write(&m);
    return file;
}

hearth_model *small_model_open(bool storyteller, gguf_bytes *bytes)
{
    hearth_model *model = NULL;
    hearth_model_options o = hearth_model_defaults();
    o.selector = HEARTH_SELECTOR_DENSE;
    *bytes = storyteller ? (gguf_bytes){0} : make_file();
    if (storyteller) CHECK_OK(hearth_model_open(STORYTELLER_FILE, &o, &model, err));
    else CHECK_OK(hearth_model_open_memory(bytes->data, bytes->n, "tiny", &o, &model, err));
    return model;
}

hearth_session *small_model_session(const hearth_model *model, uint32_t n_ctx, uint32_t n_batch,
                                    uint32_t n_thread)
{
    hearth_session_options o = {.n_ctx = n_ctx, .n_batch = n_batch, .n_thread = n_thread, .kv = HEARTH_KV_F16,
                                .selector = HEARTH_SELECTOR_DENSE};
    hearth_session *session = OPENED(hearth_session, model, &o);
    return session;
}
