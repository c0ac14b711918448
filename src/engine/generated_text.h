/* The text of generated tokens, as far as it can be shown: characters are whole, and no stop text has begun. */
#ifndef HTH_ENGINE_GENERATED_TEXT_H
#define HTH_ENGINE_GENERATED_TEXT_H

#include "engine/engine.h"
#include "text/stops.h"

typedef struct hth_generated_text {
    hth_detok detok;
    char *bytes; /* [n_shown] which were given, then [n] that are kept back */
    size_t n_shown, n;
    hth_stop *stops; /* [n_stop] */
    size_t n_stop, i_stop; /* i_stop: which was found; n_stop: none yet */
} hth_generated_text;

typedef struct hth_generated_text_options {
    const char *name; /* name of the field of stops, for error messages */
    const char *const *stops; /* [n_stop], copied */
    size_t n_stop;
    const int32_t *prompt; /* [n_prompt] whose text the generated one continues; 0: it is one of its own */
    size_t n_prompt;
    bool show_special; /* as of hearth_detokenizer_open */
    bool is_constrained; /* a space at its beginning is a part of the text: constraints know of no other */
} hth_generated_text_options;

/* ARGUMENT: a stop text is NULL or empty; UNSUPPORTED: the vocabulary is not; MEMORY. */
hearth_status hth_generated_text_open(hth_generated_text *t, const hearth_model *m,
                                      const hth_generated_text_options *o, hearth_error *err);
void hth_generated_text_close(hth_generated_text *t);
/* The bytes that a token in range makes sure: text[n], valid until the next call. None follow a stop text. */
size_t hth_generated_text_push(hth_generated_text *t, int32_t id, const char **text);
/* The bytes that were kept back. */
size_t hth_generated_text_finish(hth_generated_text *t, const char **text);

#endif
