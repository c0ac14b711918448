/* The words of every shader, read as SPIR-V without any tool: bindings, push constants and constants are
 * those of the table, and nothing in them may be rounded, fused or computed as a driver likes
 * (docs/arithmetic.md). Each rule is also shown words that break it. */
#include "support/test.h"

#if HTH_VULKAN
#include "device/vulkan/spirv.h"

/* ---- SPIR-V 1.5 ------------------------------------------------------------------------------------ */

enum { N_HEADER = 5, WORD_BOUND = 3, MAX_ID = 1 << 16, MAX_SPEC = 64 };
enum {
    OP_EXTENSION = 10,
    OP_EXT_INST = 12,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    OP_TYPE_STRUCT = 30,
    OP_TYPE_POINTER = 32,
    OP_VARIABLE = 59,
    OP_DECORATE = 71,
    OP_MEMBER_DECORATE = 72,
    OP_FCONVERT = 115,
    OP_QUANTIZE_TO_F16 = 116,
    OP_FADD = 129,
    OP_FSUB = 131,
    OP_FMUL = 133,
    OP_FDIV = 136,
    OP_FREM = 140,
    OP_DOT = 148, /* from FREM on: remainders, and products of vectors and matrices */
    OP_TYPE_INT = 21,
    OP_TYPE_MATRIX = 4456, /* SPV_KHR_cooperative_matrix */
    OP_MATRIX_PRODUCT = 4459,
    OP_EXECUTION_MODE_ID = 331,
    OP_PER_ELEMENT = 5369, /* SPV_NV_cooperative_matrix2 */
};
enum { SATURATES = 16 /* of a product's operands */ };
enum { CLASS_PUSH_CONSTANT = 9, CLASS_STORAGE_BUFFER = 12 };
enum { SPEC_ID = 1, NON_WRITABLE = 24, NON_READABLE = 25, BINDING = 33, OFFSET = 35, NO_CONTRACTION = 42 };
enum { MODE_LOCAL_SIZE_ID = 38 };
enum { MODE_SUBNORMAL = 4459, MODE_SPECIAL = 4461, MODE_NEAREST = 4462 };

/* The capabilities that a device always has or promises by name: Shader, the three of floats.glsl; those of
 * integer dot products of bytes in a word; with matrices Int8, GroupNonUniform, VulkanMemoryModel and their
 * own; that of functions of their elements. */
static const uint32_t capabilities[] = {1, 4464, 4466, 4467}, dot_capabilities[] = {6018, 6019};
static const uint32_t matrix_capabilities[] = {39, 61, 5345, 6022}, element_capabilities[] = {5432};
/* Of GLSL.std.450: magnitudes, signs, smaller and larger and clamped integers, places of bits; two halves as floats, in a
 * shader that has the other way too and in that which tries it (device/vulkan/half_probe.c). */
enum { FMA = 50, UNPACK_HALVES = 62 };
static const uint32_t exact_functions[] = {4, 5, 7, 38, 39, 41, 42, 44, 45, 73, 74, 75};

static bool is_among(uint32_t x, const uint32_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == x) return true;
    return false;
}
#define AMONG(X, LIST) is_among(X, LIST, sizeof LIST / sizeof *LIST)

enum { OF_FLOATS = HTH_VK_FLOAT_CONTROLS_ALL & ~HTH_VK_DENORM_PRESERVE_16 };

/* What is known of an id. */
typedef struct thing {
    uint32_t pointee;  /* of a pointer type */
    uint32_t n_member; /* of a struct */
    uint32_t last;     /* offset of its last member */
    uint32_t binding;  /* of a variable, plus 1 */
    bool non_writable, non_readable, no_contraction;
    bool is_integer; /* a type */
} thing;

typedef struct module {
    thing things[MAX_ID];
    uint32_t n_of_binding[HTH_SHADER_MAX_BIND];
    char access[HTH_SHADER_MAX_BIND + 1];
    uint32_t push_size, n_spec;
    bool spec[MAX_SPEC];
    uint32_t modes; /* HTH_VK_FLOATS_* */
    hth_coopmat_level matrices;
    uint32_t n_product, n_per_element; /* of matrices */
    bool has_size;                     /* of workgroups, by constants of their own */
    bool may_convert;                  /* halves, where that was tried: half_probe.c */
    bool may_fuse;                     /* products that are exact: the bits are those of both operations */
    char wrong[200];
} module;
static module now;

static void complain(const char *what, uint32_t which)
{
    if (!now.wrong[0]) snprintf(now.wrong, sizeof now.wrong, "%s %u", what, which);
}

typedef void visit_fn(const uint32_t *op, uint32_t length, bool dot);

static void visit_all(const uint32_t *words, size_t n, bool dot, visit_fn *visit)
{
    for (size_t i = N_HEADER; i < n;) {
        uint32_t length = words[i] >> 16;
        if (length == 0 || length > n - i) {
            complain("no instruction at", (uint32_t)i);
            return;
        }
        visit(words + i, length, dot);
        i += length;
    }
}

/* ---- what is declared ------------------------------------------------------------------------------ */

static void decorate(thing *t, uint32_t decoration, uint32_t value)
{
    switch (decoration) {
    case NON_WRITABLE: t->non_writable = true; break;
    case NON_READABLE: t->non_readable = true; break;
    case NO_CONTRACTION: t->no_contraction = true; break;
    case BINDING: t->binding = value + 1; break;
    case OFFSET: t->last = value > t->last ? value : t->last; break;
    case SPEC_ID:
        if (value == 0 && now.has_size && now.spec[0])
            now.has_size = false; /* gl_WorkGroupSize is the other */
        else if (value == HTH_SHADER_CONVERTS_HALVES) now.may_convert = true;
        else if (value >= MAX_SPEC || now.spec[value]) complain("twice, or too large: constant", value);
        else now.spec[value] = true, now.n_spec++;
        break;
    default: break;
    }
}

static void find_things(const uint32_t *op, uint32_t length, bool dot)
{
    switch (op[0] & 0xffffu) {
    case OP_TYPE_STRUCT: now.things[op[1]].n_member = length - 2; break;
    case OP_TYPE_INT: now.things[op[1]].is_integer = true; break;
    case OP_TYPE_POINTER: now.things[op[1]].pointee = op[3]; break;
    case OP_DECORATE: decorate(&now.things[op[1]], op[2], length > 3 ? op[3] : 0); break;
    case OP_MEMBER_DECORATE: decorate(&now.things[op[1]], op[3], length > 4 ? op[4] : 0); break;
    case OP_EXECUTION_MODE_ID: now.has_size = op[2] == MODE_LOCAL_SIZE_ID; break;
    case OP_EXECUTION_MODE:
        if (op[2] == MODE_SUBNORMAL && op[3] == 32) now.modes |= HTH_VK_DENORM_PRESERVE;
        if (op[2] == MODE_SUBNORMAL && op[3] == 16) now.modes |= HTH_VK_DENORM_PRESERVE_16;
        if (op[2] == MODE_SPECIAL && op[3] == 32) now.modes |= HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE;
        if (op[2] == MODE_NEAREST && op[3] == 32) now.modes |= HTH_VK_ROUNDING_RTE;
        break;
    default: break;
    }
}

static void find_variable(const uint32_t *op)
{
    const thing *variable = &now.things[op[2]], *type = &now.things[now.things[op[1]].pointee];
    uint32_t binding = variable->binding - 1;
    bool read_only = variable->non_writable || type->non_writable;
    bool write_only = variable->non_readable || type->non_readable;
    if (op[3] == CLASS_PUSH_CONSTANT) now.push_size = type->n_member > 0 ? type->last + 4 : 0;
    if (op[3] != CLASS_STORAGE_BUFFER) return;
    if (binding >= HTH_SHADER_MAX_BIND) {
        complain("a buffer without a binding that can be:", binding);
        return;
    }
    /* What is only read may be seen as words and as fours of words. */
    char access = read_only && write_only ? '?' : read_only ? 'r' : write_only ? 'w' : 'x';
    if (now.n_of_binding[binding] > 0 && (access != 'r' || now.access[binding] != 'r'))
        complain("twice, and written: binding", binding);
    now.n_of_binding[binding] = 1;
    now.access[binding] = access;
}

/* ---- what is done ---------------------------------------------------------------------------------- */

static void check_op(const uint32_t *op, uint32_t length, bool dot)
{
    uint32_t code = op[0] & 0xffffu;
    switch (code) {
    case OP_VARIABLE: find_variable(op); break;
    case OP_CAPABILITY:
        if (!AMONG(op[1], capabilities) && !(dot && AMONG(op[1], dot_capabilities)) &&
            !(now.matrices && AMONG(op[1], matrix_capabilities)) &&
            !(now.matrices == HTH_COOPMAT_CM2 && AMONG(op[1], element_capabilities)))
            complain("capability", op[1]);
        break;
    case OP_TYPE_MATRIX:
        if (!now.things[op[2]].is_integer) complain("a matrix of no integers:", op[1]);
        break;
    case OP_MATRIX_PRODUCT:
        if (length > 6 && op[6] & SATURATES) complain("a product that clamps its sums:", op[2]);
        now.n_product++;
        break;
    case OP_PER_ELEMENT: now.n_per_element++; break;
    case OP_EXT_INST:
        if (!AMONG(op[4], exact_functions) && !(op[4] == UNPACK_HALVES && now.may_convert) &&
            !(op[4] == FMA && now.may_fuse))
            complain("the driver's function", op[4]);
        break;
    case OP_FADD:
    case OP_FSUB:
    case OP_FMUL:
        if (!now.things[op[2]].no_contraction) complain("not precise: a float sum or product, code", code);
        break;
    case OP_FCONVERT:
    case OP_QUANTIZE_TO_F16:
    case OP_FDIV: complain("instruction", code); break;
    default:
        if (code >= OP_FREM && code <= OP_DOT) complain("instruction", code);
        break;
    }
}

static void check_form(const hth_shader_info *form, bool dot)
{
    uint32_t n_bind = (uint32_t)strlen(form->bindings);
    for (uint32_t i = 0; i < HTH_SHADER_MAX_BIND; i++)
        if (now.n_of_binding[i] != (i < n_bind)) complain("not as often as it should be: binding", i);
    for (uint32_t i = 0; i < n_bind; i++)
        if (now.access[i] != form->bindings[i]) complain("read or written, but not as the table says: binding", i);
    if (now.push_size != form->push_size) complain("bytes of push constants:", now.push_size);
    for (uint32_t i = 0; i < MAX_SPEC; i++)
        if (now.spec[i] && i >= form->n_const) complain("not in the table: constant", i);
    if (now.n_spec > form->n_const || (!dot && now.n_spec < form->n_const)) complain("constants:", now.n_spec);
    if ((now.matrices != HTH_COOPMAT_NONE) != (now.n_product > 0)) complain("products of matrices:", now.n_product);
    if ((now.matrices == HTH_COOPMAT_CM2) != (now.n_per_element > 0))
        complain("functions of elements:", now.n_per_element);
    if (now.modes != OF_FLOATS) complain("of what floats.glsl asks for, only", now.modes);
}

/* The first rule that they break; NULL: none. */
static const char *wrong_words(const uint32_t *words, size_t n, const hth_shader_info *form, bool dot)
{
    memset(&now, 0, sizeof now);
    for (int id = 0; id < HTH_N_SHADER; id++)
        if (strcmp(form->name, hth_shader_infos[id].name) == 0)
            now.matrices = hth_shader_coopmat_level((hth_shader_id)id);
    now.may_fuse = form == &hth_shader_infos[HTH_SHADER_attn];
    now.may_convert = form == &hth_shader_infos[HTH_SHADER_widen_halves];
    if (n < N_HEADER || words[0] != 0x07230203 || words[WORD_BOUND] > MAX_ID) return "no module";
    visit_all(words, n, dot, find_things);
    visit_all(words, n, dot, check_op);
    check_form(form, dot);
    return now.wrong[0] ? now.wrong : NULL;
}

/* ---- every shader --------------------------------------------------------------------------------- */

TEST(every_shader_has_spirv)
{
    for (int id = 0; id < HTH_N_SHADER; id++) {
        size_t size;
        if (!hth_vk_spirv((hth_shader_id)id, false, &size))
            test_fail(__FILE__, __LINE__, "%s has none", hth_shader_infos[id].name);
    }
}

TEST(spirv_agrees_with_the_shader_table_and_leaves_the_driver_no_choice)
{
    for (int id = 0; id < HTH_N_SHADER; id++) {
        size_t size, dot_size;
        const uint32_t *plain = hth_vk_spirv((hth_shader_id)id, false, &size);
        const uint32_t *dot = hth_vk_spirv((hth_shader_id)id, true, &dot_size);
        const char *name = hth_shader_infos[id].name, *wrong;
        if (plain && (wrong = wrong_words(plain, size / 4, &hth_shader_infos[id], false)))
            test_fail(__FILE__, __LINE__, "%s: %s", name, wrong);
        if (dot && dot != plain && (wrong = wrong_words(dot, dot_size / 4, &hth_shader_infos[id], true)))
            test_fail(__FILE__, __LINE__, "%s.dot: %s", name, wrong);
    }
}

/* ---- that the rules can be broken ------------------------------------------------------------------ */

static uint32_t *copy_words_of(hth_shader_id id, size_t *n)
{
    size_t size;
    const uint32_t *words = hth_vk_spirv(id, false, &size);
    uint32_t *copy = malloc(size);
    memcpy(copy, words, size);
    *n = size / 4;
    return copy;
}

/* norm_quantize, which has all that most rules speak of. */
static uint32_t *copy_words(size_t *n) { return copy_words_of(HTH_SHADER_norm_quantize, n); }

/* Word `at` of the first instruction with that code, and that word, becomes `to`. */
static bool mutate(uint32_t *words, size_t n, uint32_t code, size_t at, uint32_t from, uint32_t to)
{
    for (size_t i = N_HEADER; i < n; i += words[i] >> 16) {
        if ((words[i] & 0xffffu) != code || words[i] >> 16 <= at || (at > 0 && words[i + at] != from)) continue;
        words[i + at] = at > 0 ? to : (words[i] & 0xffff0000u) | to;
        return true;
    }
    return false;
}

TEST(spirv_that_breaks_a_rule_is_found)
{
    static const struct {
        uint32_t code, at, from, to;
        const char *says;
    } breaks[] = {
        {OP_FADD, 0, 0, OP_FDIV, "instruction 136"},
        {OP_FMUL, 0, 0, OP_DOT, "instruction 148"},
        {OP_CAPABILITY, 1, 4467, 10, "capability 10"}, /* Float64 */
        {OP_CAPABILITY, 1, 4467, 6019, "capability 6019"},
        {OP_EXECUTION_MODE, 2, MODE_NEAREST, MODE_NEAREST + 1, "floats.glsl"},
        {OP_EXECUTION_MODE, 3, 32, 64, "floats.glsl"},
        {OP_MEMBER_DECORATE, 3, NON_WRITABLE, NON_READABLE, "binding"},
        {OP_MEMBER_DECORATE, 3, NON_READABLE, 0, "binding"},
        {OP_MEMBER_DECORATE, 4, 12, 16, "push"},
        {OP_DECORATE, 3, 7, 9, "binding"},
        {OP_DECORATE, 2, SPEC_ID, 0, "constants"},
        {OP_DECORATE, 3, 4, 5, "constant 5"},
        {OP_EXT_INST, 4, 38, 31, "function 31"}, /* UMin, Sqrt */
        {OP_EXT_INST, 4, 41, 50, "function 50"}, /* UMax, Fma */
        {OP_EXT_INST, 4, 41, UNPACK_HALVES, "function 62"},
    };
    const hth_shader_info *form = &hth_shader_infos[HTH_SHADER_norm_quantize];
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        size_t n;
        FREED uint32_t *words = copy_words(&n);
        CHECK(wrong_words(words, n, form, false) == NULL);
        bool done = mutate(words, n, breaks[i].code, breaks[i].at, breaks[i].from, breaks[i].to);
        if (breaks[i].code == OP_MEMBER_DECORATE && breaks[i].at == 3)
            while (mutate(words, n, OP_DECORATE, 2, breaks[i].from, breaks[i].to)) continue; /* glslc of 2026 decorates variables too */
        const char *wrong = wrong_words(words, n, form, false);
        if (!done || !wrong || !strstr(wrong, breaks[i].says))
            test_fail(__FILE__, __LINE__, "change %zu: %s, not: %s", i, wrong ? wrong : "nothing", breaks[i].says);
    }
    CHECK(wrong_words(capabilities, 4, form, false) != NULL);
}

TEST(cooperative_matrix_spirv_that_breaks_a_rule_is_found)
{
    static const struct {
        uint32_t code, at, from, to;
        const char *says;
    } breaks[] = {
        {OP_CAPABILITY, 1, 6022, 6023, "capability 6023"},
        {OP_CAPABILITY, 1, 39, 9, "capability 9"}, /* Float16 */
        {OP_FMUL, 0, 0, OP_FDIV, "instruction 136"},
        {OP_MATRIX_PRODUCT, 6, 15, 31, "clamps"},
        {OP_DECORATE, 3, 14, 15, "constant 15"},
        {OP_MATRIX_PRODUCT, 0, 0, OP_MATRIX_PRODUCT + 1, "products of matrices: 0"},
    };
    const hth_shader_info *form = &hth_shader_infos[HTH_SHADER_mul_mat_q];
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        size_t n;
        FREED uint32_t *words = copy_words_of(HTH_SHADER_mul_mat_q, &n);
        CHECK(wrong_words(words, n, form, false) == NULL);
        bool done = mutate(words, n, breaks[i].code, breaks[i].at, breaks[i].from, breaks[i].to);
        const char *wrong = wrong_words(words, n, form, false);
        if (!done || !wrong || !strstr(wrong, breaks[i].says))
            test_fail(__FILE__, __LINE__, "change %zu: %s, not: %s", i, wrong ? wrong : "nothing", breaks[i].says);
    }
}

static void check_integers(hth_shader_id id)
{
    const hth_shader_info *form = &hth_shader_infos[id];
    size_t n, n_type = 0;
    FREED uint32_t *words = copy_words_of(id, &n);
    CHECK(wrong_words(words, n, &hth_shader_infos[HTH_SHADER_mul_mat_vec_q], false) != NULL);
    for (size_t i = N_HEADER; i < n; i += words[i] >> 16) {
        if ((words[i] & 0xffffu) != OP_TYPE_MATRIX) continue;
        uint32_t component = words[i + 2];
        words[i + 2] = words[i + 1]; /* itself */
        const char *wrong = wrong_words(words, n, form, false);
        CHECK(wrong && strstr(wrong, "no integers"));
        words[i + 2] = component, n_type++;
    }
    CHECK_INT(n_type, 3);
}

TEST(cooperative_matrices_are_of_integers_and_in_tile_shaders_only)
{
    check_integers(HTH_SHADER_mul_mat_q);
    check_integers(HTH_SHADER_mul_mat_q_cm2);
}

static void check_wrong(hth_shader_id words_of, hth_shader_id form_of, const char *says)
{
    size_t n;
    FREED uint32_t *words = copy_words_of(words_of, &n);
    hth_shader_info form = hth_shader_infos[form_of];
    form.n_const = hth_shader_infos[words_of].n_const;
    const char *wrong = wrong_words(words, n, &form, false);
    if (!wrong || !strstr(wrong, says)) test_fail(__FILE__, __LINE__, "%s, not: %s", wrong ? wrong : "nothing", says);
}

TEST(per_element_functions_are_in_their_shaders_only)
{
    check_wrong(HTH_SHADER_mul_mat_q_cm2, HTH_SHADER_mul_mat_q, "capability 5432");
    check_wrong(HTH_SHADER_mul_mat_q, HTH_SHADER_mul_mat_q_cm2, "functions of elements: 0");
    size_t n;
    FREED uint32_t *words = copy_words_of(HTH_SHADER_mul_mat_q_cm2, &n);
    CHECK(mutate(words, n, OP_CAPABILITY, 1, 5432, 5430)); /* reductions, in the driver's order */
    const char *wrong = wrong_words(words, n, &hth_shader_infos[HTH_SHADER_mul_mat_q_cm2], false);
    CHECK(wrong && strstr(wrong, "capability 5430"));
}

static bool is_sum_or_product(const uint32_t *words, size_t n, uint32_t id)
{
    for (size_t i = N_HEADER; i < n; i += words[i] >> 16) {
        uint32_t code = words[i] & 0xffffu;
        if (code == OP_FADD || code == OP_FSUB || code == OP_FMUL)
            if (words[i + 2] == id) return true;
    }
    return false;
}

/* Each by itself loses its mark; marks of what is neither change nothing. */
static void check_marks(hth_shader_id id)
{
    const hth_shader_info *form = &hth_shader_infos[id];
    size_t n, n_found = 0;
    FREED uint32_t *words = copy_words_of(id, &n);
    for (size_t i = N_HEADER; i < n; i += words[i] >> 16) {
        if ((words[i] & 0xffffu) != OP_DECORATE || words[i + 2] != NO_CONTRACTION) continue;
        words[i + 2] = 0;
        bool found = wrong_words(words, n, form, false) != NULL;
        CHECK_INT(found, is_sum_or_product(words, n, words[i + 1]));
        n_found += found;
        words[i + 2] = NO_CONTRACTION;
    }
    CHECK(n_found > 15);
}

TEST(every_sum_and_product_that_is_not_precise_is_found)
{
    check_marks(HTH_SHADER_norm_quantize);
    check_marks(HTH_SHADER_mul_mat_q_cm2);
}

TEST(spirv_is_checked_against_its_row_of_the_table)
{
    size_t n;
    FREED uint32_t *words = copy_words(&n);
    hth_shader_info form = hth_shader_infos[HTH_SHADER_norm_quantize];
    form.n_const--;
    CHECK(wrong_words(words, n, &form, false) != NULL);
    form.n_const += 2;
    CHECK(wrong_words(words, n, &form, false) != NULL);
    form.n_const--, form.bindings = "rrrrwwww";
    CHECK(wrong_words(words, n, &form, false) == NULL);
    form.bindings = "rrrrwwwx";
    CHECK(wrong_words(words, n, &form, false) != NULL);
    form.bindings = "rrrrwww";
    CHECK(wrong_words(words, n, &form, false) != NULL);
}

/* ---- what floats are asked for --------------------------------------------------------------------- */

static size_t n_extension;
static void count_extensions(const uint32_t *op, uint32_t length, bool dot)
{
    n_extension += (op[0] & 0xffffu) == OP_EXTENSION;
}

static uint32_t modes_of(const uint32_t *words, size_t n)
{
    memset(&now, 0, sizeof now);
    n_extension = 0;
    visit_all(words, n, false, find_things);
    visit_all(words, n, false, count_extensions);
    CHECK(!now.wrong[0]);
    return now.modes;
}

static bool has_capability(const uint32_t *words, size_t n, uint32_t capability)
{
    for (size_t i = N_HEADER; i < n; i += words[i] >> 16)
        if ((words[i] & 0xffffu) == OP_CAPABILITY && words[i + 1] == capability) return true;
    return false;
}

TEST(spirv_requires_what_a_device_supports)
{
    enum { MODE_WORDS = 4, CAPABILITY_WORDS = 2, EXTENSION_WORDS = 7 };
    const uint32_t subnormals = HTH_VK_DENORM_PRESERVE | HTH_VK_DENORM_PRESERVE_16;
    size_t n;
    FREED uint32_t *words = copy_words(&n);
    FREED uint32_t *to = malloc((n + HTH_VK_SPIRV_MORE) * sizeof *to);
    for (uint32_t floats = 0; floats <= HTH_VK_FLOAT_CONTROLS_ALL; floats++) {
        bool keeps_subnormals = floats & subnormals, keeps_special = floats & HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE,
             keeps_nearest = floats & HTH_VK_ROUNDING_RTE;
        size_t n_mode = (size_t)__builtin_popcount(floats);
        size_t n_capability = (size_t)keeps_subnormals + keeps_special + keeps_nearest;
        size_t wanted = n + n_mode * MODE_WORDS + n_capability * CAPABILITY_WORDS + (floats ? EXTENSION_WORDS : 0) -
                        3 * (MODE_WORDS + CAPABILITY_WORDS) - EXTENSION_WORDS;
        size_t kept = hth_vk_spirv_set_float_controls(words, n, floats, to);
        CHECK_INT(kept, wanted);
        CHECK_INT(modes_of(to, kept), floats);
        CHECK_INT(n_extension, floats > 0);
        CHECK_INT(has_capability(to, kept, 4464), keeps_subnormals);
        CHECK_INT(has_capability(to, kept, 4466), keeps_special);
        CHECK_INT(has_capability(to, kept, 4467), keeps_nearest);
        CHECK(has_capability(to, kept, 1));
        if (floats == OF_FLOATS) CHECK(memcmp(to, words, n * 4) == 0);
    }
}

TEST(what_is_no_module_is_left_as_it_is)
{
    static const uint32_t length_0[] = {0x07230203, 0, 0, 0, 0, OP_CAPABILITY};
    static const uint32_t past_end[] = {0x07230203, 0, 0, 0, 0, 2 << 16 | OP_CAPABILITY};
    static const uint32_t header[] = {0x07230203, 0, 0, 0};
    static const uint32_t other[] = {1, 0, 0, 0, 0, 2 << 16 | OP_CAPABILITY, 4467};
    uint32_t to[8];
    CHECK_INT(hth_vk_spirv_set_float_controls(length_0, 6, 0, to), 6);
    CHECK(memcmp(to, length_0, sizeof length_0) == 0);
    CHECK_INT(hth_vk_spirv_set_float_controls(past_end, 6, 0, to), 6);
    CHECK_INT(hth_vk_spirv_set_float_controls(header, 4, 0, to), 4);
    CHECK_INT(hth_vk_spirv_set_float_controls(other, 7, 0, to), 7);
}

#else
TEST(spirv_agrees_with_the_shader_table_and_leaves_the_driver_no_choice) { test_skip("this build has no Vulkan"); }
#endif
