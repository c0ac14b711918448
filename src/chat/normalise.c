/* The rules, each a pass over the list of messages, and which sets of them are worth a try. */
#include "chat/normalise.h"

#include "base/hash.h"
#include "text/json.h"

#include <stdio.h>
#include <string.h>

enum { N_RULE = 10, ALL_RULES = (1 << N_RULE) - 1, ID_SIZE = 9 };

/* ---- lists --------------------------------------------------------------------------------------------- */

typedef struct list {
    hth_arena *arena;
    hth_message *at;
    size_t n, capacity;
    hearth_status st;
    hearth_error *err;
} list;

static bool fail_memory(list *l)
{
    l->st = hth_fail_memory(l->err, 1, "messages");
    return false;
}

static bool add(list *l, hth_message m)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 16;
        hth_message *more = hth_arena_alloc(l->arena, capacity, sizeof *more, 16);
        if (!more) return fail_memory(l);
        if (l->n > 0) memcpy(more, l->at, l->n * sizeof *more);
        l->at = more, l->capacity = capacity;
    }
    l->at[l->n++] = m;
    return true;
}

static hth_message empty_of(const char *role)
{
    return (hth_message){.role = {role, strlen(role)}, .content = {"", 0}};
}

static bool is_of(const hth_message *m, const char *role) { return hth_str_eq(m->role, role); }

/* The tree of a message's members; NULL: it has none, or an error. */
static hth_json *members_of(list *l, const hth_message *m)
{
    hth_json *tree = NULL;
    if (m->members.n == 0) return NULL;
    l->st = hth_json_read(l->arena, m->members.bytes, m->members.n, NULL, &tree, l->err);
    return tree;
}

static hth_json *member(hth_json *object, const char *name)
{
    hth_json *v = hth_json_kind_of(object) == HTH_JSON_OBJECT ? object->child : NULL;
    while (v && !hth_str_eq(v->key, name)) v = v->next;
    return v;
}

/* NULL: there are none. */
static hth_json *calls_of(hth_json *members)
{
    hth_json *v = member(members, "tool_calls");
    return hth_json_kind_of(v) == HTH_JSON_ARRAY ? v : NULL;
}

static bool write_members(list *l, const hth_json *tree, hth_str *out)
{
    size_t n;
    char *text = hth_json_write(tree, false, &n);
    out->bytes = text ? hth_arena_strndup(l->arena, text, n) : NULL;
    out->n = n;
    hth_free(text);
    return out->bytes || fail_memory(l);
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

static bool fits(hth_str id)
{
    bool ok = id.n == ID_SIZE;
    for (size_t i = 0; ok && i < id.n; i++) {
        char c = id.bytes[i];
        ok = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    }
    return ok;
}

/* Equal ids stay equal, so that a result finds its call. */
static bool shorten(list *l, hth_json *id, bool *changed)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (hth_json_kind_of(id) != HTH_JSON_TEXT || fits(id->text)) return true;
    char text[ID_SIZE];
    uint64_t h = hth_hash(id->text.bytes, id->text.n);
    for (int i = 0; i < ID_SIZE; i++, h /= 62) text[i] = letters[h % 62];
    id->text = (hth_str){hth_arena_strndup(l->arena, text, ID_SIZE), ID_SIZE};
    *changed = true;
    return id->text.bytes || fail_memory(l);
}

static bool shorten_ids(list *l, const hth_message *m, bool *changed)
{
    hth_message copy = *m;
    bool is_other = false;
    hth_json *tree = members_of(l, m), *calls = calls_of(tree);
    if (l->st != HEARTH_OK || !shorten(l, member(tree, "tool_call_id"), &is_other)) return false;
    for (hth_json *call = calls ? calls->child : NULL; call; call = call->next)
        if (!shorten(l, member(call, "id"), &is_other)) return false;
    *changed |= is_other;
    return (!is_other || write_members(l, tree, &copy.members)) && add(l, copy);
}

/* ---- roles --------------------------------------------------------------------------------------------- */

static bool join(list *l, hth_str a, hth_str b, hth_str *out)
{
    if (a.n == 0 || b.n == 0) {
        *out = a.n == 0 ? b : a;
        return true;
    }
    char *text = hth_arena_alloc(l->arena, a.n + b.n + 3, 1, 1);
    if (!text) return fail_memory(l);
    memcpy(text, a.bytes, a.n);
    memcpy(text + a.n, "\n\n", 2);
    memcpy(text + a.n + 2, b.bytes, b.n);
    *out = (hth_str){text, a.n + 2 + b.n};
    return true;
}

/* Results are told apart by their ids, and calls belong before them. */
static bool may_merge(list *l, const hth_message *a, const hth_message *b)
{
    if (hth_str_compare(a->role, b->role) != 0 || is_of(a, "tool")) return false;
    return !calls_of(members_of(l, a)) && l->st == HEARTH_OK;
}

static bool merge(list *l, const hth_message *m, bool *changed)
{
    hth_message *last = l->n > 0 ? &l->at[l->n - 1] : NULL;
    if (!last || !may_merge(l, last, m)) return l->st == HEARTH_OK && add(l, *m);
    *changed = true;
    if (m->members.n > 0) last->members = m->members;
    last->parts = NULL;
    return join(l, last->content, m->content, &last->content);
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static bool answers(list *l, const hth_message *m, const hth_json *call)
{
    if (!is_of(m, "tool")) return false;
    const hth_json *id = hth_json_member(call, "id"), *of = hth_json_member(members_of(l, m), "tool_call_id");
    return hth_json_kind_of(id) == HTH_JSON_TEXT && hth_json_kind_of(of) == HTH_JSON_TEXT &&
           hth_str_compare(id->text, of->text) == 0;
}

/* An answer of several calls, with the results behind it. Returns how many messages that are; 0: an error. */
static size_t split(list *l, const hth_message *m, size_t n, hth_json *tree, hth_json *calls)
{
    size_t n_result = 0;
    hth_json alone = {.kind = HTH_JSON_OBJECT, .n = 1, .child = calls}, *call = calls->child, *next;
    while (n_result + 1 < n && is_of(&m[1 + n_result], "tool")) n_result++;
    bool *placed = hth_arena_alloc(l->arena, n_result + 1, sizeof *placed, 1);
    if (!placed) return fail_memory(l);
    calls->n = 1;
    for (bool is_first = true; call; call = next, is_first = false) {
        hth_message one = is_first ? *m : empty_of("assistant");
        next = call->next;
        calls->child = call, call->next = NULL;
        if (!is_first) calls->next = NULL, calls->parent = &alone;
        if (!write_members(l, is_first ? tree : &alone, &one.members) || !add(l, one)) return 0;
        for (size_t i = 1; i <= n_result; i++) {
            if (placed[i] || (next && !answers(l, &m[i], call)))
                continue; /* the last call gets what answers none */
            placed[i] = true;
            if (!add(l, m[i])) return 0;
        }
        if (l->st != HEARTH_OK) return 0;
    }
    return 1 + n_result;
}

static bool split_calls(list *l, const hth_message *m, size_t n, bool *changed)
{
    for (size_t i = 0, step; i < n; i += step) {
        hth_json *tree = members_of(l, &m[i]), *calls = calls_of(tree);
        bool many = calls && calls->n > 1;
        if (l->st != HEARTH_OK || (!many && !add(l, m[i]))) return false;
        step = many ? split(l, &m[i], n - i, tree, calls) : 1;
        if (step == 0) return false;
        *changed |= many;
    }
    return true;
}

/* ---- contents -------------------------------------------------------------------------------------------- */

static bool change_content(list *l, hth_normal_rule rule, hth_message *m, bool *changed)
{
    bool has_calls = calls_of(members_of(l, m)) != NULL;
    if (l->st != HEARTH_OK) return false;
    if (rule == HTH_NORMAL_APART && has_calls && m->content.n > 0) {
        hth_message text = {.role = m->role, .content = m->content};
        m->content.n = 0;
        *changed = true;
        if (!add(l, text)) return false;
    } else if (rule == HTH_NORMAL_NONE && has_calls && m->content.n == 0) {
        m->content.bytes = NULL;
        *changed = true;
    } else if (rule == HTH_NORMAL_FILL && !has_calls && m->content.n == 0 &&
               (is_of(m, "user") || is_of(m, "assistant"))) {
        m->content = (hth_str){"...", 3};
        m->parts = NULL;
        *changed = true;
    }
    return add(l, *m);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

/* Adds what a rule makes of the i-th message of m. */
static bool apply_to(list *l, hth_normal_rule rule, const hth_message *m, size_t i, bool *changed)
{
    hth_message copy = m[i];
    bool is_system = is_of(&copy, "system");
    switch (rule) {
    case HTH_NORMAL_IDS: return shorten_ids(l, &copy, changed);
    case HTH_NORMAL_LATER:
    case HTH_NORMAL_SYSTEM:
        if (!is_system || (rule == HTH_NORMAL_LATER && i == 0)) return add(l, copy);
        *changed = true;
        copy.role = (hth_str){"user", 4};
        return add(l, copy);
    case HTH_NORMAL_MERGE: return merge(l, &copy, changed);
    case HTH_NORMAL_FIRST:
        if (is_of(&copy, "assistant") && (i == 0 || (i == 1 && is_of(&m[0], "system")))) {
            *changed = true;
            if (!add(l, empty_of("user"))) return false;
        }
        return add(l, copy);
    case HTH_NORMAL_ALTERNATE:
        if (is_of(&copy, "user") && i > 0 && is_of(&m[i - 1], "tool")) {
            *changed = true;
            if (!add(l, empty_of("assistant"))) return false;
        }
        return add(l, copy);
    default: return change_content(l, rule, &copy, changed);
    }
}

/* *changed: the rules that changed something. */
static hearth_status apply(const hth_message *messages, size_t n, unsigned rules, hth_plain_messages *out,
                           unsigned *changed, hearth_error *err)
{
    *out = (hth_plain_messages){0};
    *changed = 0;
    list from = {.at = (hth_message *)(uintptr_t)messages, .n = n};
    for (unsigned rule = 1; rule < 1u << N_RULE; rule <<= 1) {
        list to = {.arena = &out->arena, .err = err};
        bool is_other = false, ok = true;
        if (!(rules & rule)) continue;
        if (rule == HTH_NORMAL_SPLIT) ok = split_calls(&to, from.at, from.n, &is_other);
        for (size_t i = 0; rule != HTH_NORMAL_SPLIT && ok && i < from.n; i++)
            ok = apply_to(&to, (hth_normal_rule)rule, from.at, i, &is_other);
        if (!ok) {
            hth_plain_messages_free(out);
            return to.st;
        }
        if (is_other) *changed |= rule;
        from = to;
    }
    out->at = from.at;
    out->n = from.n;
    return HEARTH_OK;
}

static bool moves(unsigned set) { return set & (HTH_NORMAL_LATER | HTH_NORMAL_SYSTEM); }

hearth_status hth_normalise(const hth_message *messages, size_t n, unsigned rules, hth_plain_messages *out,
                            bool *is_new, hearth_error *err)
{
    unsigned changed;
    hearth_status st = apply(messages, n, rules, out, &changed, err);
    unsigned idle = rules & ~changed;
    /* Behind a rule that changes roles it need not find any. */
    *is_new = idle == 0 || (idle == HTH_NORMAL_MERGE && moves(rules));
    return st;
}

/* ---- sets ---------------------------------------------------------------------------------------------- */

/* Whether a set of rules makes sense: rules that change roles need MERGE, because messages of one role may then follow
 * each other, and LATER and SYSTEM exclude each other. */
static bool is_possible(unsigned set)
{
    return (!moves(set) || set & HTH_NORMAL_MERGE) && !(set & HTH_NORMAL_LATER && set & HTH_NORMAL_SYSTEM);
}

/* A rule that changes nothing, alone or behind all others, is in no set. */
hearth_status hth_normal_begin(const hth_message *messages, size_t n, hth_normal_sets *out, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    *out = (hth_normal_sets){.n_rule = 1};
    for (unsigned i = 0; i < N_RULE + 2 && st == HEARTH_OK; i++) {
        unsigned rules = 1u << i, changed;
        hth_plain_messages made;
        if (i >= N_RULE) rules = ALL_RULES & ~(i == N_RULE ? HTH_NORMAL_LATER : HTH_NORMAL_SYSTEM);
        st = apply(messages, n, rules, &made, &changed, err);
        if (st != HEARTH_OK) break;
        hth_plain_messages_free(&made);
        out->possible |= changed;
    }
    if (moves(out->possible)) out->possible |= HTH_NORMAL_MERGE;
    return st;
}

unsigned hth_normal_next(hth_normal_sets *sets)
{
    for (; sets->n_rule <= N_RULE; sets->n_rule++, sets->last = 0)
        while (sets->last < ALL_RULES) {
            unsigned set = ++sets->last;
            if ((unsigned)__builtin_popcount(set) == sets->n_rule && !(set & ~sets->possible) &&
                is_possible(set))
                return set;
        }
    return 0;
}

/* ---- what a prompt shows ------------------------------------------------------------------------------- */

/* The first piece of a text that no template writes in another way: letters, digits, spaces. Templates remove the
 * reasoning of earlier answers. */
static hth_str piece_of(const hth_message *m)
{
    enum { MOST = 40 };
    static const char end[] = "</think>";
    hth_str t = m->content;
    size_t skip = 0;
    for (size_t i = 0; is_of(m, "assistant") && i + sizeof end - 1 <= t.n; i++)
        if (memcmp(t.bytes + i, end, sizeof end - 1) == 0) skip = i + sizeof end - 1;
    for (size_t from = skip, to; from < t.n; from = to + 1) {
        for (to = from; to < t.n && to - from < MOST; to++) {
            unsigned char c = (unsigned char)t.bytes[to];
            bool is_plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c >= 0x80 ||
                            (c == ' ' && to > from);
            if (!is_plain) break;
        }
        while (to > from && t.bytes[to - 1] == ' ') to--;
        if (to > from) return (hth_str){t.bytes + from, to - from};
    }
    return (hth_str){"", 0};
}

/* Whether a text has the names of a message's calls and a piece of their arguments. */
static bool shows_calls(hth_str text, const hth_message *m)
{
    hearth_error why;
    bool ok = true;
    hth_json *members = m->members.n > 0 ? hth_json_open(m->members.bytes, m->members.n, NULL, &why) : NULL;
    const hth_json *calls = calls_of(members);
    for (const hth_json *call = hth_json_first(calls); call && ok; call = call->next) {
        const hth_json *f = hth_json_member(call, "function"), *name = hth_json_member(f, "name"),
                       *arguments = hth_json_member(f, "arguments");
        ok = hth_json_kind_of(name) != HTH_JSON_TEXT || hth_str_has(text, name->text);
        if (ok && hth_json_kind_of(arguments) == HTH_JSON_TEXT)
            ok = hth_str_has(text, piece_of(&(hth_message){.content = arguments->text}));
    }
    hth_json_close(members);
    return ok;
}

bool hth_shows_messages(const char *text, size_t n_text, const hth_message *messages, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        hth_str piece = piece_of(&messages[i]);
        if (!shows_calls((hth_str){text + at, n_text - at}, &messages[i])) return false;
        while (at + piece.n <= n_text && memcmp(text + at, piece.bytes, piece.n) != 0) at++;
        if (at + piece.n > n_text) return false;
        at += piece.n;
    }
    return true;
}
