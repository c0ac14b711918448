/* Fields that would change an answer and that no API of the server offers: they are refused by name, not ignored. Unknown
 * names of other kinds are ignored. */
#ifndef HEARTH_APPS_SERVE_REFUSED_FIELDS_H
#define HEARTH_APPS_SERVE_REFUSED_FIELDS_H

#include "serve/api/fields.h"

typedef struct refused_field {
    const char *name;
    const char *instead; /* what is offered in its place, or NULL */
    int usual;           /* the number that asks for nothing, of bool values 0 or 1; with 0 also what is empty */
} refused_field;

/* False: the request has one of them. The list ends with a row without a name. */
bool fields_refuse(fields *f, const refused_field *list);
/* Refuses the fields that no API here has, of the protocols of OpenAI, vLLM, SGLang, TGI, KoboldCpp, text-generation-webui, llama.cpp. */
bool fields_refuse_common(fields *f);

#endif
