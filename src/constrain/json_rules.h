/* Rules of JSON texts (RFC 8259): what schemas and the constraint "any JSON object" are made of. White space is bounded
 * (at most one space, or a line break and an indentation), and so are numbers, because a model that is drawn from at a
 * high temperature could go on with both for ever. */
#ifndef HTH_CONSTRAIN_JSON_RULES_H
#define HTH_CONSTRAIN_JSON_RULES_H

#include "constrain/grammar.h"
#include "text/json.h"

/* Digits of a whole number and of a fraction: all of them are exact in a double. */
enum { HTH_JSON_DIGITS = 15 };
#define HTH_JSON_MAX_INTEGER INT64_C(999999999999999)

typedef struct hth_json_rules {
    hth_grammar *g;
    uint32_t indent, character, digit; /* parts of others */
    uint32_t space, gap;               /* between parts; behind a colon */
    uint32_t string, number, integer, value, object, array;
} hth_json_rules;

void hth_json_rules_add(hth_json_rules *r, hth_grammar *g);

/* A string of min to max characters. */
uint32_t hth_json_string(hth_json_rules *r, uint32_t tail, uint32_t min, uint32_t max);
/* One character of a normalised set, as it stands in a JSON string. */
uint32_t hth_json_char(hth_grammar *g, uint32_t tail, const hth_char_set *set);
/* A character as part of a string, escaped where it must be. */
uint32_t hth_json_escaped(hth_grammar *g, uint32_t tail, const char *text, size_t n);
/* Exactly this text, in quotes. */
uint32_t hth_json_quoted(hth_grammar *g, uint32_t tail, const char *text, size_t n);
/* A value in its shortest form. */
uint32_t hth_json_literal(hth_grammar *g, uint32_t tail, const hth_json *value);

/* Whole numbers from min to max, in decimal. */
uint32_t hth_json_integers(hth_json_rules *r, uint32_t tail, int64_t min, int64_t max);
/* Numbers from min to max, with a fraction or without; an open end is not one of them. */
typedef struct hth_json_range {
    int64_t min, max;
    bool min_open, max_open;
} hth_json_range;
uint32_t hth_json_numbers(hth_json_rules *r, uint32_t tail, hth_json_range range);

#endif
