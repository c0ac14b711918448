/* One row of one token by LANES invocations (mul_mat_vec_q.glsl, for steps of one token): 16 or 32 where the rows are
 * few, so that as many bytes of a row are on their way at the same time. The eight partial sums of docs/arithmetic.md 2
 * stay those of eight invocations, which add in the order of blocks what all have left in shared memory for a window of
 * blocks.
 *
 * Invocation j + 8 s takes blocks j, j + 8, ...: of blocks of 32 those of every TEAMS-th group of eight, whose terms
 * need no other; of blocks of 256 every TEAMS-th piece of each, whose integers the first eight add. Four pieces are
 * loaded before the first is used: written one after another, because a loop over arrays need not stay in registers. */
const uint TEAMS = LANES / 8, OWN = BLOCK == 32 ? 1 : LOW_PIECES / TEAMS; /* units of a group */
const uint WINDOW = BLOCK == 32 ? 32 : 4;                                 /* groups of eight blocks */
const bool NARROW = LANES > 8, ONE_ROW = OUTPUTS == 1 && BLOCK != 16;
const uint N_TERM = NARROW ? WINDOW * 8 * GROUPS : 1;
const uint N_INTEGER = NARROW && BLOCK != 32 ? TEAMS * N_TERM : 1;

/* [group][row][8]. Blocks of 32: what a block adds to a partial sum; of 256: its scale, to be multiplied by the
 * integers [group][team][row][8]. */
shared float terms[N_TERM], least_terms[MINIMA > 0 ? N_TERM : 1];
shared int integers[N_INTEGER], least_integers[MINIMA > 0 ? N_INTEGER : 1];

uint j, team; /* of this invocation */
uint window;  /* its first block */

uint term_at(uint m) { return (m * GROUPS + gl_LocalInvocationID.x / LANES) * 8 + j; }
uint integer_at(uint m, uint s) { return term_at(m * TEAMS + s); }

/* Block b of the row, number `block` of a group of n that lie side by side; its inputs are block x of all tokens'. */
struct place { uint first, block, n, b, x; };

/* Of group m of the window; a block beyond the row's last is the last of its group. */
place place_of(uint m)
{
    uint first = window + 8 * m, n = min(8, n_block - first), block = min(j, n - 1);
    return place(first, block, n, first + block, token_of[0] * n_block + first + block);
}

/* A piece of a block, and of a block of 32 another, if it has two. */
struct unit {
    uint m, i; /* group and piece */
    uint b, x;
    uvec4 low, more, high;
    float scale, minimum, dx;
    int x_sum;
    uint sub_scales, sub_minima;
};

/* Word of the bytes of the sub-blocks of piece i, in the plane from word `from` on. */
uint sub_word(uint from, uint b, uint i)
{
    return planes[from + (row_of[0] * n_block + b) * (N_SUB / 4) + (i * PARTS_OF_PIECE >> SUB_SHIFT) / 4];
}

/* Unit number k of this invocation, or the last of n groups. */
unit load_unit(uint k, uint n)
{
    unit u;
    u.m = min(BLOCK == 32 ? k * TEAMS + team : k / OWN, n - 1), u.i = BLOCK == 32 ? 0 : team + TEAMS * (k % OWN);
    place p = place_of(u.m);
    uint at = (row_of[0] * n_block + p.first) * LOW_PIECES + p.block;
    u.b = p.b, u.x = p.x;
    u.low = pieces[at + u.i * p.n];
    u.more = BLOCK == 32 && LOW_PIECES > 1 ? pieces[at + p.n] : uvec4(0);
    u.high = HIGH_BITS > 0 ? high_of(row_of[0], p.first, p.block, p.n, u.i * PARTS_OF_PIECE) : uvec4(0);
    u.scale = u.minimum = u.dx = 0.0, u.x_sum = 0, u.sub_scales = u.sub_minima = 0;
    if (BLOCK == 32) {
        u.scale = scale_at(row_of[0], p.b), u.dx = d[p.x];
        if (MINIMA > 0) u.minimum = half_at(at_minimum, row_of[0], p.b);
        if (OFFSET > 0 || MINIMA > 0) u.x_sum = sum[p.x];
    }
    if (PART > 0) u.sub_scales = sub_word(at_part, p.b, u.i);
    if (PART > 0 && MINIMA > 0) u.sub_minima = sub_word(at_least, p.b, u.i);
    return u;
}

/* What a block of 32 adds to both of its partial sums; nothing, where there is no such block. */
vec2 terms_of(unit u, bool is_there)
{
    int isum = dot16(weights_of(u.low, u.high, 0), q[2 * u.x]) +
               dot16(weights_of(LOW_PIECES > 1 ? u.more : u.low, u.high, 1), q[2 * u.x + 1]);
    if (OFFSET > 0) isum -= int(OFFSET) * u.x_sum;
    precise float t = u.scale * u.dx;
    precise float term = t * float(isum);
    precise float tm = u.minimum * u.dx;
    precise float least = tm * float(u.x_sum);
    return is_there ? vec2(term, least) : vec2(0.0);
}

/* The integers of a piece of a block of 256, products and minima; nothing, where there is no such piece. */
ivec2 integers_of(unit u, bool is_there)
{
    int isum = 0, msum = 0;
    [[unroll]] for (uint k = 0; k < PARTS_OF_PIECE; k++) {
        uint part = u.i * PARTS_OF_PIECE + k, byte = 8 * ((part >> SUB_SHIFT) % 4), at = u.x * N_PART + part;
        int products = dot16(weights_of(u.low, u.high, part), q[at]);
        int x_sum = OFFSET > 0 || MINIMA > 0 ? sum[at] : 0;
        products -= int(OFFSET) * x_sum;
        isum += PART > 0 ? bitfieldExtract(int(u.sub_scales), int(byte), 8) * products : products;
        if (MINIMA > 0) msum += bitfieldExtract(int(u.sub_minima), int(byte), 8) * x_sum;
    }
    return is_there ? ivec2(isum, msum) : ivec2(0);
}

/* Unit number k, loaded before, of n groups. No branches, so that loads need not wait for units before: what was there
 * is read where it is not used, too. Of blocks of 32 there are never more units than a window holds. */
void leave_unit(unit u, uint k, uint n)
{
    uint m = BLOCK == 32 ? k * TEAMS + team : k / OWN, at = term_at(m), to = integer_at(u.m, team);
    if (BLOCK == 32) {
        vec2 both = terms_of(u, m < n && u.b % 8 == j);
        terms[at] = both.x;
        if (MINIMA > 0) least_terms[at] = both.y;
    } else {
        ivec2 both = integers_of(u, m < n);
        int before = integers[to];
        bool is_first = m < n && u.i == team;
        integers[to] = (is_first ? 0 : before) + both.x;
        if (MINIMA > 0) {
            int least_before = least_integers[to];
            least_integers[to] = (is_first ? 0 : least_before) + both.y;
        }
    }
}

/* The scales of blocks of 256, each by one invocation. */
void leave_scales(uint n)
{
    for (uint m = team; m < n; m += TEAMS) {
        place p = place_of(m);
        precise float t = scale_at(row_of[0], p.b) * d[p.x];
        terms[term_at(m)] = t;
        precise float tm = MINIMA > 0 ? half_at(at_minimum, row_of[0], p.b) * d[p.x] : 0.0;
        if (MINIMA > 0) least_terms[term_at(m)] = tm;
    }
}

void add_term(float term, float least)
{
    precise float s = sums[0] + term;
    sums[0] = s;
    precise float sm = least_sums[0] + least;
    if (MINIMA > 0) least_sums[0] = sm;
}

/* Unit number k of n groups, to this invocation's own sums: eight invocations leave nothing for each other. */
void add_unit(unit u, uint k, uint n)
{
    if (BLOCK == 32) {
        vec2 both = terms_of(u, k < n && u.b % 8 == j);
        add_term(both.x, both.y);
    } else {
        ivec2 both = integers_of(u, true);
        isums[0] += both.x, msums[0] += both.y;
    }
}

/* The first `end` blocks, by eight invocations: all, or none. */
void add_row_of_eight(uint end)
{
    const uint n_at_once = BLOCK == 32 ? 4 : 1, n_unit = BLOCK == 32 ? 4 : OWN;
    j = gl_LocalInvocationID.x % 8, team = 0;
    for (window = 0; window < end; window += 8 * n_at_once) {
        const uint n = min(n_at_once, (n_block - window + 7) / 8);
        isums[0] = 0, msums[0] = 0;
        for (uint k = 0; k < n_unit; k += 4) {
            unit u0 = load_unit(k, n), u1 = load_unit(k + 1, n), u2 = load_unit(k + 2, n), u3 = load_unit(k + 3, n);
            add_unit(u0, k, n), add_unit(u1, k + 1, n), add_unit(u2, k + 2, n), add_unit(u3, k + 3, n);
        }
        if (BLOCK != 32 && window + j < n_block) add_block(window + j);
    }
}

/* What group m adds to this invocation's partial sums. */
void add_group(uint m)
{
    uint at = term_at(m);
    float t = terms[at], tm = MINIMA > 0 ? least_terms[at] : 0.0;
    if (BLOCK == 32) {
        add_term(t, tm);
        return;
    }
    if (place_of(m).b % 8 != j) return;
    int isum = 0, msum = 0;
    for (uint s = 0; s < TEAMS; s++) {
        isum += integers[integer_at(m, s)];
        if (MINIMA > 0) msum += least_integers[integer_at(m, s)];
    }
    precise float u = t * to_float(isum);
    precise float um = tm * float(msum);
    add_term(u, um);
}

/* The first `end` blocks: all, or none. */
void add_row(uint end)
{
    j = gl_LocalInvocationID.x % 8, team = gl_LocalInvocationID.x % LANES / 8;
    for (window = 0; window < n_block; window += 8 * WINDOW) {
        const uint n = window < end ? min(WINDOW, (n_block - window + 7) / 8) : 0;
        const uint n_unit = BLOCK == 32 ? (n + TEAMS - 1) / TEAMS : n * OWN; /* of the team that has most */
        if (BLOCK != 32) leave_scales(n);
        for (uint k = 0; k < n_unit; k += 4) {
            unit u0 = load_unit(k, n), u1 = load_unit(k + 1, n), u2 = load_unit(k + 2, n), u3 = load_unit(k + 3, n);
            leave_unit(u0, k, n), leave_unit(u1, k + 1, n), leave_unit(u2, k + 2, n), leave_unit(u3, k + 3, n);
        }
        barrier();
        for (uint m = 0; team == 0 && m < n; m += BLOCK == 32 ? 4 : 1) {
            add_group(m);
            if (BLOCK == 32) add_group(m + 1), add_group(m + 2), add_group(m + 3);
        }
        barrier();
    }
}
