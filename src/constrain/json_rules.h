/* Rules of JSON texts (RFC 8259): what schemas and the constraint "any JSON object" are made of. White space is bounded
 * (at most one space, or a line break and an indentation), and so are numbers, because a model that is drawn from at a
 * high temperature could go on with both for ever. */
#ifndef HTH_CONSTRAIN_JSON_RULES_H
#define HTH_CONSTRAIN_JSON_RULES_H

#include "constrain/grammar.h"
#include "text/json.h"

/* Digits of a fraction, and of a whole number that may have one: all of them are exact in a double. */
enum { HTH_JSON_DIGITS = 15 };
#define HTH_JSON_MAX_WHOLE UINT64_C(999999999999999)
/* The largest integer of which a schema says nothing: ids have up to 19 digits. */
#define HTH_JSON_MAX_INTEGER UINT64_C(9999999999999999999)

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

/* An end of a range of numbers: [-]whole.digits, which is no part of the range if it is open. */
typedef struct hth_json_bound {
    bool minus, is_open;
    bool is_huge; /* beyond UINT64_MAX, which is `whole` then */
    uint64_t whole;
    uint32_t n_digit;
    char digits[HTH_JSON_DIGITS + 1]; /* digits of the fraction; the last is not 0 */
} hth_json_bound;

typedef struct hth_json_range {
    hth_json_bound min, max;
} hth_json_range;

/* False: it is no number, or has more than HTH_JSON_DIGITS digits behind the point. */
bool hth_json_bound_read(const hth_json *number, bool is_open, hth_json_bound *out);
/* By their numbers alone: below 0, 0, above 0. */
int hth_json_bound_compare(const hth_json_bound *a, const hth_json_bound *b);

/* json_numbers.c: whole numbers of a range, in decimal; numbers of a range, with a fraction or without. */
uint32_t hth_json_integers(hth_json_rules *r, uint32_t tail, const hth_json_range *range);
uint32_t hth_json_numbers(hth_json_rules *r, uint32_t tail, const hth_json_range *range);
/* Adds the rules digit, integer and number. */
void hth_json_numbers_add(hth_json_rules *r);

#endif
