/* Parses values of options that have named fields. */
#include "common/options/option_fields.h"

#include "common/options/options.h"

#include <string.h>

/* Parses a value of text[n], which must use all n bytes. */
static bool parse_value(const char *text, size_t n, double *value)
{
    char number[32];
    if (n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = '\0';
    return parse_float(number, value) && *value >= 0.0 && *value <= 1e9;
}

bool parse_fields(const char *text, const option_fields *f)
{
    for (size_t n; *text; text += n + (text[n] == ',')) {
        size_t i = 0;
        n = strcspn(text, ",");
        while (i < f->n && strncmp(text, f->names[i], strlen(f->names[i])) != 0) i++;
        if (i == f->n) return false;
        const char *value = text + strlen(f->names[i]);
        size_t length = n - strlen(f->names[i]);
        f->given[i] = true;
        if (i + f->n_path < f->n) {
            if (!parse_value(value, length, &f->values[i])) return false;
            continue;
        }
        if (length == 0 || length >= f->path_size) return false;
        memcpy(f->path, value, length);
        f->path[length] = '\0';
    }
    return true;
}
