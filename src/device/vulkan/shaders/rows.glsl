/* What mul_mat_vec_q and mul_mat_vec_f share: LANES invocations of a workgroup compute ROWS rows for COLS tokens; which
 * ones, and where their outputs go. Tokens come first in the grid, so that workgroups that run at the same time read
 * the same rows. Expects n_row, y_stride, y_first, has_bias, bias and y. ONTO: y is
 * added to. SPARSE, the binding of a mask: rows row_first and on, of which those are computed whose bits are
 * set from mask_first on. SLICED, the binding of pairs: number x of the grid is a token and one of the slices that
 * were chosen for it; COLS and ROWS are 1. */
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint COLS = 1;
layout(constant_id = 2) const uint ROWS = 1;
layout(constant_id = 3) const uint WANT = 0;
layout(constant_id = 4) const uint LANES = 8;

layout(binding = 0) readonly buffer Step { uint n_tok_want[2]; };

const uint GROUPS = LOCAL / LANES; /* of invocations */
const uint OUTPUTS = ROWS * COLS;

/* Of this invocation. Output number row * COLS + column. */
uint row_of[ROWS], token_of[COLS];

uint n_tok() { return n_tok_want[WANT]; }
uint row_group() { return gl_WorkGroupID.y; }
uint first_row() { return row_group() * (GROUPS * ROWS) + gl_LocalInvocationID.x / LANES; }
#ifdef SLICED
uint first_token() { return gl_WorkGroupID.x / n_used; }
#else
uint first_token() { return gl_WorkGroupID.x * COLS; }
#endif

#ifdef SPARSE
layout(binding = SPARSE) readonly buffer Mask { uint mask[]; };

bool is_live(uint row)
{
    uint i = mask_first + row;
    return (mask[i / 32] >> i % 32 & 1) != 0;
}

/* Whether any row of this workgroup is. */
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

uint number() { return gl_WorkGroupID.x % n_used; }
uint chosen() { return pairs[2 * n_used * first_token() + number()]; }
float weight() { return uintBitsToFloat(pairs[2 * n_used * first_token() + n_used + number()]); }
#else
const uint row_first = 0;
#endif
bool is_live(uint row) { return true; }
bool group_is_live() { return true; }
#endif

/* Whether any row of this invocation is. */
bool is_busy()
{
    bool any = false;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        any = any || is_live(min(first_row() + r * GROUPS, n_row - 1));
    return any;
}

/* Rows and tokens beyond the last are computed as the last, and not written. */
void choose()
{
#ifdef SLICED
    row_of[0] = (chosen() * slice_step + slice_first) * slice_rows + row_first + min(first_row(), n_row - 1);
    token_of[0] = x_by_pair != 0 ? gl_WorkGroupID.x : first_token();
    return;
#endif
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        row_of[r] = row_first + min(first_row() + r * GROUPS, n_row - 1);
    [[unroll]] for (uint c = 0; c < COLS; c++) token_of[c] = min(first_token() + c, n_tok() - 1);
}

void put(uint o, float product)
{
    uint row = first_row() + o / COLS * GROUPS, token = first_token() + o % COLS;
    if (row >= n_row || token >= n_tok() || !is_live(row)) return;
    uint at = token * y_stride + y_first + row;
    precise float value = product;
#ifdef SLICED
    at += number() * y_pair;
    if (has_bias != 0) value = value + bias[chosen() * slice_rows + row_first + row];
    if (weighs != 0) value = value * weight();
#else
    if (has_bias != 0) value = value + bias[row_first + row];
#endif
#ifdef ONTO
    value = y[at] + value;
#endif
    y[at] = value;
}
