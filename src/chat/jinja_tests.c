/* Tests: functions for `is`, select and reject. */
#include "chat/jinja.h"

#include <string.h>

typedef const hth_jinja_value value;

#define KIND_TEST(NAME, CONDITION)                                                                           \
    static JINJA_FUNCTION(NAME) { return *out = hth_jinja_bool(CONDITION), true; }

static bool is_list(value *v) { return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE; }

KIND_TEST(test_defined, self->kind != JINJA_UNDEFINED)
KIND_TEST(test_undefined, self->kind == JINJA_UNDEFINED)
KIND_TEST(test_none, self->kind == JINJA_NONE)
KIND_TEST(test_boolean, self->kind == JINJA_BOOL)
KIND_TEST(test_true, self->kind == JINJA_BOOL && self->as.b)
KIND_TEST(test_false, self->kind == JINJA_BOOL && !self->as.b)
KIND_TEST(test_integer, self->kind == JINJA_INT || (self->kind == JINJA_DIGITS && !strpbrk(self->as.digits, ".eE")))
KIND_TEST(test_float, self->kind == JINJA_FLOAT)
KIND_TEST(test_number, hth_jinja_is_number(self))
KIND_TEST(test_string, self->kind == JINJA_TEXT)
KIND_TEST(test_mapping, self->kind == JINJA_DICT)
KIND_TEST(test_iterable, self->kind == JINJA_TEXT || is_list(self) || self->kind == JINJA_DICT ||
                             self->kind == JINJA_UNDEFINED)
KIND_TEST(test_sequence, self->kind == JINJA_TEXT || is_list(self) || self->kind == JINJA_DICT ||
                             self->kind == JINJA_UNDEFINED)
KIND_TEST(test_callable, self->kind == JINJA_MACRO || self->kind == JINJA_FUNCTION)

static JINJA_FUNCTION(test_eq) { return hth_jinja_operate(j, OP_EQ, self, &args->v[0], out); }
static JINJA_FUNCTION(test_ne) { return hth_jinja_operate(j, OP_NE, self, &args->v[0], out); }
static JINJA_FUNCTION(test_lt) { return hth_jinja_operate(j, OP_LT, self, &args->v[0], out); }
static JINJA_FUNCTION(test_le) { return hth_jinja_operate(j, OP_LE, self, &args->v[0], out); }
static JINJA_FUNCTION(test_gt) { return hth_jinja_operate(j, OP_GT, self, &args->v[0], out); }
static JINJA_FUNCTION(test_ge) { return hth_jinja_operate(j, OP_GE, self, &args->v[0], out); }
static JINJA_FUNCTION(test_in) { return hth_jinja_operate(j, OP_IN, self, &args->v[0], out); }

static bool remainder_is(hth_jinja *j, value *self, value *divisor, int64_t wanted, hth_jinja_value *out)
{
    hth_jinja_value rest, number = hth_jinja_integer(wanted);
    return hth_jinja_operate(j, OP_MOD, self, divisor, &rest) &&
           hth_jinja_operate(j, OP_EQ, &rest, &number, out);
}

static JINJA_FUNCTION(test_divisibleby) { return remainder_is(j, self, &args->v[0], 0, out); }

static JINJA_FUNCTION(test_even)
{
    hth_jinja_value two = hth_jinja_integer(2);
    return remainder_is(j, self, &two, 0, out);
}

static JINJA_FUNCTION(test_odd)
{
    hth_jinja_value two = hth_jinja_integer(2);
    return remainder_is(j, self, &two, 1, out);
}

/* Python's `is`: constants of the same kind and value, or the same object. */
static JINJA_FUNCTION(test_sameas)
{
    value *other = &args->v[0];
    bool object = is_list(self) || self->kind == JINJA_DICT;
    bool same = self->kind == other->kind;
    if (same && object) same = self->as.dict == other->as.dict;
    else if (same && !hth_jinja_equal(j, self, other, &same)) return false;
    *out = hth_jinja_bool(same);
    return true;
}

/* True if there is a letter, and all letters have that case. */
static bool all_of_case(hth_jinja *j, value *self, char first, hth_jinja_value *out)
{
    bool some = false, other = false;
    const char *p = self->kind == JINJA_TEXT ? hth_jinja_bytes(j, self->as.text) : "";
    size_t n = self->kind == JINJA_TEXT ? self->as.text->n : 0;
    if (!p || !hth_jinja_count_bytes(j, n)) return false;
    for (size_t i = 0; i < n; i++) {
        bool letter = (p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z');
        if (letter && p[i] >= first && p[i] <= first + 25) some = true;
        else if (letter) other = true;
    }
    *out = hth_jinja_bool(some && !other);
    return true;
}

JINJA_FUNCTION(hth_jinja_is_lower) { return all_of_case(j, self, 'a', out); }
JINJA_FUNCTION(hth_jinja_is_upper) { return all_of_case(j, self, 'A', out); }

const hth_jinja_function hth_jinja_tests[] = {
    {"!=", test_ne, "other", 1},
    {"<", test_lt, "other", 1},
    {"<=", test_le, "other", 1},
    {"==", test_eq, "other", 1},
    {">", test_gt, "other", 1},
    {">=", test_ge, "other", 1},
    {"boolean", test_boolean, "", 0},
    {"callable", test_callable, "", 0},
    {"defined", test_defined, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"eq", test_eq, "other", 1},
    {"equalto", test_eq, "other", 1},
    {"even", test_even, "", 0},
    {"false", test_false, "", 0},
    {"float", test_float, "", 0},
    {"ge", test_ge, "other", 1},
    {"greaterthan", test_gt, "other", 1},
    {"gt", test_gt, "other", 1},
    {"in", test_in, "seq", 1},
    {"integer", test_integer, "", 0},
    {"iterable", test_iterable, "", 0},
    {"le", test_le, "other", 1},
    {"lessthan", test_lt, "other", 1},
    {"lower", hth_jinja_is_lower, "", 0},
    {"lt", test_lt, "other", 1},
    {"mapping", test_mapping, "", 0},
    {"ne", test_ne, "other", 1},
    {"none", test_none, "", 0},
    {"number", test_number, "", 0},
    {"odd", test_odd, "", 0},
    {"sameas", test_sameas, "other", 1},
    {"sequence", test_sequence, "", 0},
    {"string", test_string, "", 0},
    {"true", test_true, "", 0},
    {"undefined", test_undefined, "", 0},
    {"upper", hth_jinja_is_upper, "", 0},
    {NULL, NULL, NULL, 0},
};

const hth_jinja_function *hth_jinja_test(hth_str name)
{
    return hth_jinja_find_function(hth_jinja_tests, name);
}
