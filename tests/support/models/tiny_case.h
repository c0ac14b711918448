/* The tiny model that a case changes, and what opening it must give. Used by tests/model. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_TINY_CASE_H
#define HEARTH_TESTS_SUPPORT_MODELS_TINY_CASE_H

#include "support/models/tiny_model.h"

#include <hearth/hearth.h>

/* As tiny_begin makes it: at the start of the program, and after tiny_reset, tiny_close and each tiny_expect_*. */
extern tiny_model tiny;
void tiny_reset(void);

/* The file of the model that is open. */
extern gguf_bytes tiny_file;
/* Opens the tiny model as "tiny.gguf" and records the warnings; closed with tiny_close in either case. */
hearth_status tiny_open(hearth_model **model, hearth_error *err);
hearth_status tiny_open_with(const hearth_model_options *o, hearth_model **model, hearth_error *err);
/* The same with the bytes of tiny_file, which the case has written and changed. */
hearth_status tiny_open_file(hearth_model **model, hearth_error *err);
void tiny_close(hearth_model *model);

/* Opening it fails with a line that begins with the file's name and contains both texts. */
void tiny_expect_refused(hearth_status status, const char *text, const char *other);
/* The same with HEARTH_ERROR_FORMAT. */
void tiny_expect_format_error(const char *text, const char *other);
void tiny_expect_accepted(void);
/* Accepted with one warning that contains the file's name and the text; with none if it is NULL. */
void tiny_expect_warning(const char *text);

#endif
