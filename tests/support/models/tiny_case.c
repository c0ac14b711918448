/* Opens the tiny model for tiny_case.h. */
#include "support/models/tiny_case.h"

#include "support/test.h"

tiny_model tiny;
gguf_bytes tiny_file;

__attribute__((constructor)) static void begin(void) { tiny_begin(&tiny); }

void tiny_reset(void)
{
    tiny_free(&tiny);
    tiny_begin(&tiny);
}

static hearth_status open_file(const hearth_model_options *o, hearth_model **model, hearth_error *err)
{
    test_log_start();
    hearth_status st = hearth_model_open_memory(tiny_file.data, tiny_file.n, "tiny.gguf", o, model, err);
    test_log_stop();
    return st;
}

hearth_status tiny_open_file(hearth_model **model, hearth_error *err) { return open_file(NULL, model, err); }

hearth_status tiny_open_with(const hearth_model_options *o, hearth_model **model, hearth_error *err)
{
    tiny_file = tiny_write(&tiny);
    return open_file(o, model, err);
}

hearth_status tiny_open(hearth_model **model, hearth_error *err) { return tiny_open_with(NULL, model, err); }

void tiny_close(hearth_model *model)
{
    hearth_model_close(model);
    gguf_free(&tiny_file);
    tiny_reset();
}

void tiny_expect_refused(hearth_status status, const char *text, const char *other)
{
    hearth_error why = {0};
    hearth_model *model = NULL;
    hearth_status st = tiny_open(&model, &why);
    if (st != status || strstr(why.message, "tiny.gguf: ") != why.message || !strstr(why.message, text) ||
        !strstr(why.message, other))
        test_fail(__FILE__, __LINE__, "%s, %s: status '%s': %s", text, other, hearth_status_name(st), why.message);
    tiny_close(model);
}

void tiny_expect_format_error(const char *text, const char *other)
{
    tiny_expect_refused(HEARTH_ERROR_FORMAT, text, other);
}

static void open_and_close(void)
{
    hearth_model *model = NULL;
    CHECK_OK(tiny_open(&model, err));
    tiny_close(model);
}

void tiny_expect_accepted(void) { open_and_close(); }

void tiny_expect_warning(const char *text)
{
    open_and_close();
    int n = test_n_warning("");
    if (n != (text != NULL) || (text && !strstr(test_warning(text), "tiny.gguf: ")))
        test_fail(__FILE__, __LINE__, "%s: %d warnings, the last '%s'", text ? text : "none", n, test_warning(""));
}
