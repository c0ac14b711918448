/* Regular expressions of the keyword `pattern`: the part of ECMA-262 that is about sets of texts. */
#ifndef HTH_CONSTRAIN_PATTERN_H
#define HTH_CONSTRAIN_PATTERN_H

#include "constrain/json_rules.h"

/* Characters of the texts that match; max HTH_GRAMMAR_UNBOUNDED: any number. */
typedef struct hth_pattern_lengths {
    uint32_t min, max;
} hth_pattern_lengths;

/* Adds the contents of all JSON strings that an expression matches; anywhere in the string, unless ^ and $ say more. With
 * an `end`, which is a character, they are no JSON but the texts themselves, without that character; an expression that
 * asks for it is UNSUPPORTED.
 * Supported: characters, escapes, classes, groups, alternatives, quantifiers, ^ and $ at the ends of the alternatives
 * of the whole expression. UNSUPPORTED names what is not: look-around, back references, \b, \p. FORMAT: bad syntax.
 * Other failures are the grammar's. */
hearth_status hth_pattern_add(hth_grammar *g, uint32_t *tail, hth_str pattern, uint32_t end, hth_pattern_lengths *lengths,
                              hearth_error *err);

#endif
