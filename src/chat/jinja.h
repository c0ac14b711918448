/* The parts of the template language, for the jinja_*.c files and template.c only: texts with the origin of each
 * byte, values, the syntax tree, and the state of one rendering. All memory is in an arena; nothing is freed
 * before the end. Functions that can fail return false after hth_jinja_fail, and all callers then return. */
#ifndef HTH_CHAT_JINJA_H
#define HTH_CHAT_JINJA_H

#include "base/alloc.h"
#include "chat/template.h"
#include "text/json.h"

/* Nested evaluations. Each takes a few hundred bytes of stack, all of them at most half of the 256 KiB that a
 * thread may have. */
enum { JINJA_MAX_DEPTH = 200 };

/* ---- texts and values ------------------------------------------------------------- */

/* Bytes of one origin. */
typedef struct hth_jinja_span {
    const char *p;
    size_t n;
    bool is_template;
} hth_jinja_span;

/* Spans that several texts may share. A text whose spans are the last ones in use can grow in place. */
typedef struct hth_jinja_spans {
    size_t used, capacity;
    hth_jinja_span span[];
} hth_jinja_spans;

/* Immutable to its holders. Slices and concatenations share the bytes. hth_jinja_bytes makes them contiguous for
 * operations that read them. */
typedef struct hth_jinja_text {
    hth_jinja_spans *spans;
    size_t n_span;
    size_t n;    /* bytes */
    bool flat;   /* known to be contiguous */
    bool markup; /* marked by `safe` or `escape`: what is joined to it is escaped, as by Python's MarkupSafe */
} hth_jinja_text;

typedef enum hth_jinja_kind {
    JINJA_UNDEFINED, /* text: its name */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_DIGITS, /* a number in JSON past int64_t, or past all doubles: as it is written */
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dict whose members can be assigned */
    JINJA_LOOP,      /* the variable `loop` */
    JINJA_MACRO,
    JINJA_FUNCTION, /* global, or a method bound to a value */
    JINJA_MISSING,   /* an omitted argument */
} hth_jinja_kind;

typedef struct hth_jinja_value {
    hth_jinja_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const char *digits;
        hth_jinja_text *text;
        struct hth_jinja_list *list;
        struct hth_jinja_dict *dict;
        struct hth_jinja_loop *loop;
        struct hth_jinja_macro *macro;
        struct hth_jinja_bound *bound;
    } as;
} hth_jinja_value;

typedef struct hth_jinja_list {
    hth_jinja_value *v;
    size_t n, capacity;
} hth_jinja_list;

typedef struct hth_jinja_pair {
    hth_jinja_value key, value;
} hth_jinja_pair;

typedef struct hth_jinja_dict {
    hth_jinja_pair *v; /* in insertion order */
    size_t n, capacity;
    hth_str source; /* source text of a call's arguments, printed unless a member was added; n 0: members are printed */
} hth_jinja_dict;

typedef struct hth_jinja_args {
    hth_jinja_value *v; /* positional */
    size_t n;
    hth_jinja_dict named;
} hth_jinja_args;

/* ---- the tree ------------------------------------------------------------------------ */

typedef enum hth_jinja_node_kind {
    /* expressions */
    NODE_CONST,   /* value */
    NODE_NAME,    /* name */
    NODE_LIST,    /* a: items */
    NODE_TUPLE,   /* a: items */
    NODE_DICT,    /* a: NODE_PAIRs */
    NODE_PAIR,    /* a: key, b: value */
    NODE_COND,    /* b if a else c (which may be NULL) */
    NODE_AND,     /* a: operands */
    NODE_OR,      /* a: operands */
    NODE_NOT,     /* a */
    NODE_COMPARE, /* a, then b: NODE_OPERANDs */
    NODE_CHAIN,   /* a, then b: NODE_OPERANDs, from the left */
    NODE_OPERAND, /* op, a */
    NODE_NEGATE,  /* a */
    NODE_PLUS,    /* a */
    NODE_MEMBER,  /* a.name */
    NODE_INDEX,   /* a[b] */
    NODE_SLICE,   /* a[b:c:d], each may be NULL */
    NODE_CALL,    /* a(b: NODE_ARGs) */
    NODE_ARG,     /* a, with name if it is a keyword argument */
    NODE_FILTER,  /* a | function(b) */
    NODE_TEST,    /* a is [not] function(b) */
    NODE_CAPTURE, /* the output of the body a */
    /* statements */
    NODE_DATA,   /* value: a text */
    NODE_OUTPUT, /* a */
    NODE_IF,     /* a: NODE_BRANCHes */
    NODE_BRANCH, /* a: condition (NULL: else), b: body */
    NODE_FOR,    /* a: target, b: iterable, c: condition or NULL, d: body, e: else body */
    NODE_SET,    /* a: target, b: value */
    NODE_MACRO,  /* name, a: NODE_PARAMs, b: body */
    NODE_PARAM,  /* name, a: default or NULL */
    NODE_BREAK,
    NODE_CONTINUE,
} hth_jinja_node_kind;

typedef enum hth_jinja_op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR,
    OP_MOD,
    OP_POW,
    OP_JOIN, /* ~ */
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
} hth_jinja_op;

typedef struct hth_jinja_node {
    uint8_t kind, op;
    bool negated; /* NODE_TEST */
    uint32_t line;
    hth_jinja_value value;
    hth_str name;
    const struct hth_jinja_function *function; /* NODE_FILTER, NODE_TEST */
    struct hth_jinja_node *a, *b, *c, *d, *e;
    struct hth_jinja_node *next; /* in a list */
} hth_jinja_node;

struct hth_template {
    hth_arena arena;
    hth_jinja_node *body;
};

/* ---- state of a parse or rendering ------------------------------------------------------ */

typedef struct hth_jinja_variable {
    hth_str name;
    hth_jinja_value value;
    struct hth_jinja_variable *next;
} hth_jinja_variable;

typedef struct hth_jinja_scope {
    hth_jinja_variable *first;
    struct hth_jinja_scope *above; /* the enclosing scope, for names that this one lacks */
} hth_jinja_scope;

typedef struct hth_jinja_loop {
    const hth_jinja_value *item;
    size_t n, i;
    hth_jinja_value changed; /* last argument of loop.changed */
} hth_jinja_loop;

typedef struct hth_jinja_macro {
    const hth_jinja_node *node;
    hth_jinja_scope *scope; /* scope of the definition */
} hth_jinja_macro;

/* A growing text. */
typedef struct hth_jinja_strbuf {
    hth_jinja_text text;
    char *at; /* the next free byte, up to end */
    char *end;
} hth_jinja_strbuf;

typedef struct hth_jinja {
    hth_arena *arena;
    hearth_error *err;
    hearth_status status;
    uint32_t line;   /* line of the node that is parsed or evaluated, for error messages */
    uint32_t n_node; /* nodes evaluated */
    unsigned depth, n_call;
    hth_jinja_scope *scope;
    hth_jinja_strbuf *out;
    const hth_template_input *in;
    enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow;
} hth_jinja;

/* A function, filter, test or method. names: its parameters, separated by spaces; the arguments are passed in that
 * order, JINJA_MISSING if omitted. NULL: they are passed as written. self: the value that is filtered or tested,
 * or that the method belongs to. */
typedef bool hth_jinja_call_fn(hth_jinja *j, const hth_jinja_value *self, const hth_jinja_args *args,
                               hth_jinja_value *out);
/* Begins the definition of such a function, which need not use all parameters. */
#define JINJA_FUNCTION(NAME)                                                                                 \
    bool NAME(HTH_UNUSED hth_jinja *j, HTH_UNUSED const hth_jinja_value *self,                               \
              HTH_UNUSED const hth_jinja_args *args, HTH_UNUSED hth_jinja_value *out)
#define HTH_UNUSED __attribute__((unused))
typedef struct hth_jinja_function {
    const char *name;
    hth_jinja_call_fn *call;
    const char *names;
    unsigned n_min; /* required arguments */
} hth_jinja_function;

typedef struct hth_jinja_bound {
    const hth_jinja_function *function;
    hth_jinja_value self;
} hth_jinja_bound;

/* ---- jinja_value.c ------------------------------------------------------------------------ */

/* Reports "chat template, line N: ..." and returns false. */
bool hth_jinja_fail(hth_jinja *j, hearth_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* n * size zeroed bytes within the limit, or NULL after hth_jinja_fail. */
void *hth_jinja_alloc(hth_jinja *j, size_t n, size_t size);
/* Counts n evaluated nodes against the limit. */
bool hth_jinja_count_steps(hth_jinja *j, size_t n);
/* Counts work on n bytes against the limit. */
bool hth_jinja_count_bytes(hth_jinja *j, size_t n);

bool hth_jinja_is_true(const hth_jinja_value *v);
/* "text", "list", ...: for messages. */
const char *hth_jinja_kind_name(const hth_jinja_value *v);
/* True if a and b are equal, as in Python. */
bool hth_jinja_equal(hth_jinja *j, const hth_jinja_value *a, const hth_jinja_value *b, bool *equal);
/* *order < 0, 0, > 0. Only numbers, texts and lists of them are ordered. */
bool hth_jinja_compare(hth_jinja *j, const hth_jinja_value *a, const hth_jinja_value *b, bool fold,
                       int *order);
/* item in container */
bool hth_jinja_contains(hth_jinja *j, const hth_jinja_value *item, const hth_jinja_value *container,
                        bool *found);
/* bool, int and float as numbers. */
bool hth_jinja_is_number(const hth_jinja_value *v);
double hth_jinja_number(const hth_jinja_value *v);
/* An integer argument, or `fallback` if it is absent or none. */
bool hth_jinja_int(hth_jinja *j, const hth_jinja_value *v, int64_t fallback, int64_t *out);

static inline hth_jinja_value hth_jinja_bool(bool b) { return (hth_jinja_value){JINJA_BOOL, {.b = b}}; }
static inline hth_jinja_value hth_jinja_integer(int64_t i) { return (hth_jinja_value){JINJA_INT, {.i = i}}; }
static inline hth_jinja_value hth_jinja_float(double f) { return (hth_jinja_value){JINJA_FLOAT, {.f = f}}; }
static inline hth_jinja_value hth_jinja_none(void) { return (hth_jinja_value){JINJA_NONE, {0}}; }
/* name may be NULL. */
bool hth_jinja_undefined(hth_jinja *j, const char *name, size_t n, hth_jinja_value *out);

bool hth_jinja_new_list(hth_jinja *j, hth_jinja_kind kind, hth_jinja_value *out);
bool hth_jinja_push(hth_jinja *j, hth_jinja_list *list, const hth_jinja_value *v);
bool hth_jinja_new_dict(hth_jinja *j, hth_jinja_kind kind, hth_jinja_value *out);
bool hth_jinja_put(hth_jinja *j, hth_jinja_dict *dict, const hth_jinja_value *key, const hth_jinja_value *v);
/* *at: the pair with that key, or NULL. */
bool hth_jinja_find(hth_jinja *j, const hth_jinja_dict *dict, const hth_jinja_value *key,
                    hth_jinja_pair **at);
/* All items that a loop over v iterates: characters of a text, keys of a dict. */
bool hth_jinja_items(hth_jinja *j, const hth_jinja_value *v, hth_jinja_list **out);

/* ---- jinja_text.c ----------------------------------------------------------------------------- */

/* A text of n bytes that are not copied and must stay valid. */
bool hth_jinja_text_of(hth_jinja *j, const char *p, size_t n, bool is_template, hth_jinja_value *out);
/* A text of the template's origin. */
bool hth_jinja_text_word(hth_jinja *j, const char *word, hth_jinja_value *out);
/* The bytes of a text, contiguous. NULL after hth_jinja_fail. */
const char *hth_jinja_bytes(hth_jinja *j, hth_jinja_text *text);
bool hth_jinja_text_is(hth_jinja *j, hth_jinja_text *text, const char *word, bool *is);
/* Finds word in text, from byte `from` on. */
bool hth_jinja_search(hth_jinja *j, hth_jinja_text *text, hth_jinja_text *word, size_t from, size_t *at,
                      bool *found);
/* Bytes from..to of text. */
bool hth_jinja_cut(hth_jinja *j, hth_jinja_text *text, size_t from, size_t to, hth_jinja_value *out);
/* a followed by b. */
bool hth_jinja_concat(hth_jinja *j, const hth_jinja_text *a, const hth_jinja_text *b, hth_jinja_value *out);
/* A text with the same origins and other bytes: map gets each byte and the one before it, or -1. */
typedef char hth_jinja_map_fn(char c, int before);
bool hth_jinja_map_bytes(hth_jinja *j, hth_jinja_text *text, hth_jinja_map_fn *map, hth_jinja_value *out);

bool hth_jinja_strbuf_bytes(hth_jinja *j, hth_jinja_strbuf *b, const char *p, size_t n, bool is_template);
bool hth_jinja_strbuf_text(hth_jinja *j, hth_jinja_strbuf *b, const hth_jinja_text *text);
bool hth_jinja_strbuf_value(hth_jinja *j, hth_jinja_strbuf *b, hth_jinja_value *out);
/* Iterates over a text: the origin of byte `at`, which never decreases; c->until is the end of that origin.
 * Zero-initialised is the start. */
typedef struct hth_jinja_cursor {
    size_t i_span, until;
} hth_jinja_cursor;
bool hth_jinja_origin(const hth_jinja_text *text, hth_jinja_cursor *c, size_t at);

/* Characters are UTF-8 sequences; an ill-formed byte is one character. */
size_t hth_jinja_char_size(const char *p, size_t n);
size_t hth_jinja_n_char(const char *p, size_t n);
/* Byte position of character i, or n. */
size_t hth_jinja_char_at(const char *p, size_t n, size_t i);
/* Size of the white space character at p, or 0 (Python's str.isspace). */
size_t hth_jinja_space_size(const char *p, size_t n);
/* Strips characters of set (NULL: white space) at one or both ends: sides 1 left, 2 right, 3 both. */
bool hth_jinja_strip(hth_jinja *j, hth_jinja_text *text, hth_jinja_text *set, int sides,
                     hth_jinja_value *out);

/* ---- jinja_format.c ----------------------------------------------------------------------------- */

/* Formats v as {{ v }} prints it. */
bool hth_jinja_print(hth_jinja *j, const hth_jinja_value *v, hth_jinja_strbuf *b);
/* Formats v as Python's repr. */
bool hth_jinja_repr(hth_jinja *j, const hth_jinja_value *v, hth_jinja_strbuf *b);
bool hth_jinja_to_text(hth_jinja *j, const hth_jinja_value *v, hth_jinja_value *out);
/* Python's repr of a float; out holds 40 bytes. */
void hth_jinja_format_float(double f, char *out);
/* A decimal number without sign. False if it is malformed or exceeds a double. */
bool hth_jinja_parse_float(const char *p, size_t n, double *out);
/* The pairs sorted by key; NULL after hth_jinja_fail. */
const hth_jinja_pair *hth_jinja_sorted_pairs(hth_jinja *j, const hth_jinja_dict *dict);
/* tojson(ensure_ascii, indent, separators, sort_keys) */
hth_jinja_call_fn hth_jinja_to_json;

/* ---- jinja_str_format.c --------------------------------------------------------------------------------- */

/* Python's str.format, and the formatting of `text % values` (values: a tuple, or one value). */
hth_jinja_call_fn hth_jinja_str_format;
bool hth_jinja_percent_format(hth_jinja *j, hth_jinja_text *format, const hth_jinja_value *values,
                              hth_jinja_value *out);

/* ---- jinja_json.c ----------------------------------------------------------------------------------- */

/* Texts inside are not template text. */
bool hth_jinja_from_json(hth_jinja *j, const char *p, size_t n, hth_jinja_value *out);
bool hth_jinja_from_tree(hth_jinja *j, const hth_json *tree, hth_jinja_value *out);

/* ---- jinja_lex.c -------------------------------------------------------------------------------------- */

typedef enum hth_jinja_token_kind {
    TOKEN_END, /* end of the source */
    TOKEN_DATA,
    TOKEN_OPEN_OUTPUT, /* {{ */
    TOKEN_CLOSE_OUTPUT,
    TOKEN_OPEN_STATEMENT, /* {% */
    TOKEN_CLOSE_STATEMENT,
    TOKEN_NAME,
    TOKEN_TEXT,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_SIGN, /* text: one or two characters */
} hth_jinja_token_kind;

typedef struct hth_jinja_token {
    hth_jinja_token_kind kind;
    uint32_t line;
    const char *p; /* in the source; of TOKEN_DATA the bytes left after trimming */
    size_t n;
    hth_jinja_value value; /* TOKEN_TEXT, TOKEN_INT, TOKEN_FLOAT */
} hth_jinja_token;

typedef struct hth_jinja_lexer {
    hth_jinja *j;
    const char *p, *start, *end;
    uint32_t line;
    bool inside;        /* inside a tag */
    char closing;       /* what closes the open tag: '}' or '%' */
    bool line_starts;   /* only white space since the line started is stripped before a tag */
    unsigned n_bracket; /* open brackets inside a tag: }} closes a dict first */
} hth_jinja_lexer;

bool hth_jinja_next_token(hth_jinja_lexer *lex, hth_jinja_token *token);

/* ---- jinja_parse.c, jinja_expr.c ------------------------------------------------------------------------- */

typedef struct hth_jinja_parser {
    hth_jinja *j;
    hth_jinja_lexer lex;
    hth_jinja_token now, ahead; /* the current token, and the next one */
    unsigned depth, n_loop;
} hth_jinja_parser;

bool hth_jinja_advance(hth_jinja_parser *p);
bool hth_jinja_unexpected(hth_jinja_parser *p, const char *wanted);
bool hth_jinja_is_sign(const hth_jinja_parser *p, const char *sign);
bool hth_jinja_is_word(const hth_jinja_parser *p, const char *word);
/* Consumes the sign. Fails if another token follows. */
bool hth_jinja_expect(hth_jinja_parser *p, const char *sign);
hth_jinja_node *hth_jinja_new_node(hth_jinja_parser *p, hth_jinja_node_kind kind);
bool hth_jinja_push_depth(hth_jinja_parser *p);

/* All return NULL after hth_jinja_fail. */
hth_jinja_node *hth_jinja_parse_expression(hth_jinja_parser *p);
hth_jinja_node *hth_jinja_parse_no_condition(hth_jinja_parser *p); /* stops before `if` */
/* One expression, or several with commas: a tuple. */
hth_jinja_node *hth_jinja_parse_list(hth_jinja_parser *p);
hth_jinja_node *hth_jinja_parse_targets(hth_jinja_parser *p);
/* Parses | f(x) | g after a; the second function starts after the first |. */
hth_jinja_node *hth_jinja_parse_filters(hth_jinja_parser *p, hth_jinja_node *a);
hth_jinja_node *hth_jinja_parse_first_filter(hth_jinja_parser *p, hth_jinja_node *a);
/* Parses a whole template. */
bool hth_jinja_parse(hth_jinja *j, const char *source, size_t n, hth_jinja_node **body);

/* ---- jinja_eval.c, jinja_exec.c ---------------------------------------------------------------------------- */

bool hth_jinja_eval(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out);
bool hth_jinja_exec(hth_jinja *j, const hth_jinja_node *list);
/* Runs the statements and returns their output. */
bool hth_jinja_capture(hth_jinja *j, const hth_jinja_node *list, hth_jinja_value *out);
bool hth_jinja_assign(hth_jinja *j, const hth_jinja_node *target, const hth_jinja_value *v);
bool hth_jinja_set(hth_jinja *j, hth_str name, const hth_jinja_value *v);
bool hth_jinja_call_macro(hth_jinja *j, const hth_jinja_macro *macro, const hth_jinja_args *args,
                          hth_jinja_value *out);
bool hth_jinja_enter(hth_jinja *j);
void hth_jinja_leave(hth_jinja *j);

/* v.name: methods first, then members; v[key]: members first, then methods. */
bool hth_jinja_member(hth_jinja *j, const hth_jinja_value *v, hth_str name, hth_jinja_value *out);
bool hth_jinja_index(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *key,
                     hth_jinja_value *out);

/* ---- jinja_ops.c ------------------------------------------------------------------------------------------------ */

bool hth_jinja_operate(hth_jinja *j, hth_jinja_op op, const hth_jinja_value *a, const hth_jinja_value *b,
                       hth_jinja_value *out);
bool hth_jinja_slice(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *start,
                     const hth_jinja_value *stop, const hth_jinja_value *step, hth_jinja_value *out);

/* ---- functions of each kind: NULL if the name is unknown ------------------------------------------------------- */

const hth_jinja_function *hth_jinja_find_function(const hth_jinja_function *table, hth_str name);
/* Orders args by the function's parameter names and calls it. */
bool hth_jinja_apply(hth_jinja *j, const hth_jinja_function *f, const hth_jinja_value *self,
                     const hth_jinja_args *args, hth_jinja_value *out);
extern const hth_jinja_function hth_jinja_filters[], hth_jinja_list_filters[], hth_jinja_tests[],
    hth_jinja_globals[];
/* A text argument; *out is NULL if it is absent or none. */
bool hth_jinja_text_argument(hth_jinja *j, const hth_jinja_value *v, hth_jinja_text **out);
/* Pairs as a list of tuples. */
bool hth_jinja_dict_items(hth_jinja *j, const hth_jinja_dict *dict, hth_jinja_value *out);
/* Escapes & < > ' " for HTML. The result is markup. */
bool hth_jinja_escape(hth_jinja *j, hth_jinja_text *text, hth_jinja_value *out);
/* Filters and tests that are also methods. */
hth_jinja_call_fn hth_jinja_upper, hth_jinja_lower, hth_jinja_capitalize, hth_jinja_title, hth_jinja_replace,
    hth_jinja_is_upper, hth_jinja_is_lower;
const hth_jinja_function *hth_jinja_filter(hth_str name);
const hth_jinja_function *hth_jinja_test(hth_str name);
/* The method of that name for values of v's kind. */
const hth_jinja_function *hth_jinja_method(const hth_jinja_value *v, hth_str name);

#endif
