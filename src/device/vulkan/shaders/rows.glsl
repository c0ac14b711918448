/* What mul_mat_vec_q and mul_mat_vec_f share: LANES invocations of a workgroup compute ROWS rows for COLS tokens; which
 * ones, and where their outputs go. Tokens come first in the grid, so that workgroups that run at the same time read
 * the same rows. Expects n_row, y_stride, y_first, has_bias, bias and y. ONTO: y is
 * added to. SPARSE, the binding of a mask: rows row_first and on, of which those are computed whose bits are
 * set from mask_first on. */
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
uint first_token() { return gl_WorkGroupID.x * COLS; }

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
const uint row_first = 0;
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
    if (has_bias != 0) value = value + bias[row_first + row];
#ifdef ONTO
    value = y[at] + value;
#endif
    y[at] = value;
}
