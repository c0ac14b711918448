/* Which option sets a field. Longer names come before those with which they begin. */
#include "common/options/field_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *field, *option;
} names[] = {{"hearth_model_options.ram HEARTH_RAM_AUTO", "--ram auto"},
             {"hearth_model_options.ram", "--ram"},
             {"hearth_model_options.io", "--io"},
             {"hearth_model_options.allow_unused", "--allow-unused"},
             {"hearth_model_options.predictors", "--predictors"},
             {"hearth_model_options.thresholds", "--thresholds"},
             {"hearth_model_options.overrides", "--override-kv"},
             {"hearth_session_options.kv F16", "--kv f16"},
             {"gpu.device", "--gpu"},
             {"gpu.vram", "--vram"},
             {"gpu.placement", "--placement"},
             {"gpu.bit_exact", "--gpu-strict"},
             {"gpu.host_kv", "--no-kv-offload"},
             {"gpu.n_ctx", "-c"},
             {"gpu.n_batch", "--batch"},
             {"gpu.n_session", "--parallel"},
             {"n_ctx", "-c"},
             {"n_batch", "--batch"},
             {"quantize_options.imatrix", "--imatrix"},
             {"for_storage", "--for-storage"}};
enum { N_NAME = sizeof names / sizeof *names };

/* Bytes of names of files and of longer fields. */
static bool is_of_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("_/-", c);
}

/* The name that stands at `at`; N_NAME: none. */
static size_t find_name(const char *message, const char *at)
{
    if (at > message && (is_of_word(at[-1]) || at[-1] == '.')) return N_NAME;
    for (size_t i = 0; i < N_NAME; i++) {
        size_t n = strlen(names[i].field);
        if (strncmp(at, names[i].field, n) != 0 || (at[n] && is_of_word(at[n]))) continue;
        if (at[n] != '.' || !at[n + 1] || !is_of_word(at[n + 1])) return i;
    }
    return N_NAME;
}

char *name_options(char *out, size_t size, const char *message)
{
    size_t used = 0;
    for (const char *at = message; *at && used + 1 < size;) {
        size_t i = find_name(message, at);
        if (i == N_NAME) {
            out[used++] = *at++;
            continue;
        }
        int n = snprintf(out + used, size - used, "%s", names[i].option);
        used = n > 0 && (size_t)n < size - used ? used + (size_t)n : size - 1;
        at += strlen(names[i].field);
    }
    out[used] = '\0';
    return out;
}

option_text with_options(const char *message)
{
    option_text t;
    (void)name_options(t.text, sizeof t.text, message);
    return t;
}
