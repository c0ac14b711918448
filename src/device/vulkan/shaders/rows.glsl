/* What all products of rows share: a workgroup computes some rows for COLS tokens, which are its columns; which ones,
 * and where their outputs go. Where LANES invocations share ROWS rows, row_of and token_of name those of an invocation.
 * Tokens come first in the grid, so that workgroups that run at the same time read the same rows. Expects n_row,
 * y_stride, y_first, has_bias, bias and y. ONTO: y is added to. SPARSE, the binding of a mask: rows row_first and on, of
 * which those are computed whose bits are set from mask_first on. SLICED, the binding of pairs of a token and a slice
 * that was chosen for it: with a GROUP of 1 number x of the grid is a pair. With more the binding has groups of pairs of
 * one slice (group_pairs), and number x is COLS pairs of a group, which has GROUP / COLS of them. */
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint COLS = 1;
layout(constant_id = 2) const uint ROWS = 1;
#ifdef SLICED
layout(constant_id = 3) const uint GROUP = 1; /* pairs of a group, a multiple of COLS */
const uint WANT = 0;
#else
layout(constant_id = 3) const uint WANT = 0;
#endif
layout(constant_id = 4) const uint LANES = 8;

layout(binding = 0) readonly buffer Step { uint step_words[]; };

const uint GROUPS = LOCAL / LANES; /* of invocations */
const uint OUTPUTS = ROWS * COLS;

/* Of this invocation. Output number row * COLS + column. */
uint row_of[ROWS], token_of[COLS];

uint n_tok() { return step_words[WANT]; } /* STEP_N_TOK, or STEP_N_WANT */
uint row_group() { return gl_WorkGroupID.y; }
uint first_row() { return row_group() * (GROUPS * ROWS) + gl_LocalInvocationID.x / LANES; }
uint first_token() { return gl_WorkGroupID.x * COLS; }

#ifdef SPARSE
layout(binding = SPARSE) readonly buffer Mask { uint mask[]; };

bool is_live(uint row)
{
    uint i = mask_first + row;
    return (mask[i / 32] >> i % 32 & 1) != 0;
}

/* Whether any row of this workgroup is live. */
bool group_is_live()
{
    uint from = mask_first + row_group() * (GROUPS * ROWS);
    uint last = mask_first + min((row_group() + 1) * (GROUPS * ROWS), n_row) - 1, any = 0;
    for (uint w = from / 32; w <= last / 32; w++) {
        uint bits = mask[w];
        if (w == from / 32) bits &= ~0u << from % 32;
        if (w == last / 32) bits &= ~0u >> 31 - last % 32;
        any |= bits;
    }
    return any != 0;
}
#else
#ifdef SLICED
layout(binding = SLICED) readonly buffer Pairs { uint pairs[]; };

const uint GROUPS_HEAD = 4, GROUP_WORDS = 2 + 2 * GROUP; /* HTH_GROUPS_HEAD, hth_group_words */
const uint SHARES = GROUP / COLS; /* of a group, for a workgroup each */

uint group_at() { return GROUPS_HEAD + gl_WorkGroupID.x / SHARES * GROUP_WORDS; }
uint first_pair() { return gl_WorkGroupID.x % SHARES * COLS; }
bool has_pairs()
{
    if (GROUP == 1) return gl_WorkGroupID.x / n_used < n_tok();
    return gl_WorkGroupID.x / SHARES < pairs[0] && first_pair() < pairs[group_at() + 1];
}
/* Pairs of the group from this workgroup's first one on. Column c has pair number pair_number(c) of all. */
uint n_pair() { return GROUP > 1 ? pairs[group_at() + 1] - first_pair() : 1; }
uint pair_number(uint c)
{
    return GROUP > 1 ? pairs[group_at() + 2 + first_pair() + min(c, n_pair() - 1)] : gl_WorkGroupID.x;
}
uint word_of_pair() { return gl_WorkGroupID.x / n_used * 2 * n_used + gl_WorkGroupID.x % n_used; }
uint chosen() { return GROUP > 1 ? pairs[group_at()] : pairs[word_of_pair()]; }
float weight_of(uint c)
{
    return uintBitsToFloat(GROUP > 1 ? pairs[group_at() + 2 + GROUP + first_pair() + c] : pairs[word_of_pair() + n_used]);
}
const uint NO_SLOT = ~0u; /* HTH_STEP_NO_SLOT */
uint slot; /* of the slice. Outputs of slices without one are zeros. */
bool is_live(uint row) { return slot != NO_SLOT; }
/* Whether the outputs are written here: other dispatches have other slots. */
bool is_here()
{
    slot = slots_at > 0 ? step_words[slots_at + chosen()] : chosen();
    return slot == NO_SLOT || slot >= slot_first && slot - slot_first < n_slot;
}
uint first_weights; /* row of the weights that is number 0 */
#else
const uint row_first = 0;
bool is_live(uint row) { return true; }
#endif
bool group_is_live() { return true; }
#endif

/* Whether this workgroup has a token. */
bool has_work()
{
#ifdef SLICED
    return has_pairs() && is_here();
#else
    return first_token() < n_tok();
#endif
}

/* Whether any row of this invocation is live. */
bool is_busy()
{
    bool any = false;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        any = any || is_live(min(first_row() + r * GROUPS, n_row - 1));
    return any;
}

/* ---- inputs: rows and tokens beyond the last are computed as the last, and not written ------------------- */

#ifdef SLICED
void find_slice()
{
    first_weights = row_first + ((slot == NO_SLOT ? 0 : slot - slot_first) * slice_step + slice_first) * slice_rows;
}
#else
#define first_weights row_first
void find_slice() {}
#endif

uint weights_of_row(uint row) { return first_weights + min(row, n_row - 1); }

/* The inputs of column c. */
uint inputs_of(uint c)
{
#ifdef SLICED
    return x_by_pair != 0 ? pair_number(c) : pair_number(c) / n_used;
#else
    return min(first_token() + c, n_tok() - 1);
#endif
}

/* The same for tiles, which ask in every step, and for columns that are no constants: pairs are looked up once. */
#if defined(SLICED) && defined(MATRIX)
shared uint inputs_of_tile[COLS];
void find_inputs()
{
    for (uint c = gl_LocalInvocationID.x; c < COLS; c += LOCAL) inputs_of_tile[c] = inputs_of(c);
    barrier();
}
uint tile_inputs(uint c) { return inputs_of_tile[c]; }
#else
void find_inputs() {}
uint tile_inputs(uint c) { return inputs_of(c); }
#endif

void choose()
{
    find_slice();
    [[unroll]] for (uint r = 0; r < ROWS; r++) row_of[r] = weights_of_row(first_row() + r * GROUPS);
    [[unroll]] for (uint c = 0; c < COLS; c++) token_of[c] = inputs_of(c);
}

/* ---- outputs ----------------------------------------------------------------------------------------- */

#ifdef SLICED
void put_at(uint row, uint c, float product)
{
    if (row >= n_row || c >= n_pair()) return;
    uint pair = pair_number(c);
    precise float value = product;
    if (has_bias != 0 && is_live(row)) value = value + bias[chosen() * slice_rows + row_first + row];
    if (weighs != 0) value = value * weight_of(c);
    if (!is_live(row)) value = 0.0;
    y[pair / n_used * y_stride + y_first + pair % n_used * y_pair + row] = value;
}
#else
void put_at(uint row, uint c, float product)
{
    uint token = first_token() + c;
    if (row >= n_row || token >= n_tok() || !is_live(row)) return;
    uint at = token * y_stride + y_first + row;
    precise float value = product;
    if (has_bias != 0) value = value + bias[row_first + row];
#ifdef ONTO
    value = y[at] + value;
#endif
    y[at] = value;
}
#endif

/* Output o of this invocation. */
void put(uint o, float product) { put_at(first_row() + o / COLS * GROUPS, o % COLS, product); }
