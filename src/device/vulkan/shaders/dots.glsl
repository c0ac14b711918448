/* The integers of mul_mat_vec_q from dot products: each of the eight invocations computes those of its own blocks.
 * DOT: four products and their sum are one instruction. */
#ifdef DOT
#extension GL_EXT_spirv_intrinsics : require
#endif

shared float partials[N_PARTIAL];

void hold(uint at, float x) { partials[at] = x; }
float held(uint at) { return partials[at]; }

uvec4 low[ROWS], high[ROWS]; /* of this invocation */

#ifdef DOT
/* OpSDot of four signed bytes in a word. */
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packed_dot(uint a, uint b, spirv_literal int form);

int dot4(uint a, uint b) { return packed_dot(a, b, 0); }
#else
int byte_of(uint word, int i) { return bitfieldExtract(int(word), 8 * i, 8); }

int dot4(uint a, uint b)
{
    return byte_of(a, 0) * byte_of(b, 0) + byte_of(a, 1) * byte_of(b, 1) + byte_of(a, 2) * byte_of(b, 2) +
           byte_of(a, 3) * byte_of(b, 3);
}
#endif

int dot16(uvec4 a, uvec4 b) { return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w); }

/* Products of the sixteen weights `part` of block b, all rows and tokens. */
void add_part(uint b, uint part)
{
    uvec4 x[COLS];
    int x_sum[COLS];
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint at = (token_of[c] * n_block + b) * N_PART + part;
        x[c] = q[at];
        if (BLOCK != 32 && (OFFSET > 0 || MINIMA > 0)) x_sum[c] = sum[at];
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uvec4 w = weights_of(low[r], high[r], BLOCK == 16 ? b % 2 : part);
        uint at = row_of[r] * n_block + b;
        int scale = PART > 0 ? sub_byte(at_part, at, part) : 1;
        int least = PART > 0 && MINIMA > 0 ? sub_byte(at_least, at, part) : 0;
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            uint o = r * COLS + c;
            int products = dot16(w, x[c]);
            if (BLOCK != 32 && OFFSET > 0) products -= int(OFFSET) * x_sum[c];
            isums[o] += scale * products;
            if (BLOCK != 32 && MINIMA > 0) msums[o] += least * x_sum[c];
        }
    }
}

/* Piece i of block `first` + j, one of n_group that lie side by side, of all rows. */
void load_low(uint i, uint first, uint j, uint n_group)
{
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        low[r] = pieces[BLOCK == 16 ? (row_of[r] * n_block + first + j) / 2
                                    : (row_of[r] * n_block + first) * LOW_PIECES + i * n_group + j];
}

/* The high bits of the parts from `part` on, which are those of one piece of low bits. */
void load_high(uint part, uint first, uint j, uint n_group)
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) high[r] = high_of(row_of[r], first, j, n_group, part);
}

/* Those of blocks first + j of this invocation's rows and tokens; n_group of eight are there. */
void add_products(uint first, uint n_group, uint j)
{
    if (j >= n_group) return;
    for (uint i = 0; i < LOW_PIECES; i++) {
        load_low(i, first, j, n_group);
        if (HIGH_BITS > 0) load_high(i * PARTS_OF_PIECE, first, j, n_group);
        [[unroll]] for (uint k = 0; k < PARTS_OF_PIECE; k++) add_part(first + j, i * PARTS_OF_PIECE + k);
    }
}
