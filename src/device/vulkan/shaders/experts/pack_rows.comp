#version 450
/* Rows of chosen slices in the device's layout (forward/gpu/shader_params.h: pack_rows), by a table of where bits come
 * from (forward/gpu/experts/pack_table.h). A workgroup has a tile of 16 rows by BLOCKS blocks. It loads the tile's bytes into
 * shared memory in pieces of 16, with what lies around them, so that all are aligned. Then neighbouring invocations
 * write neighbouring words. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FORM = 0;
layout(constant_id = 2) const uint SIZE = 18; /* bytes of a block */
layout(constant_id = 3) const uint BLOCKS = 32;
layout(constant_id = 4) const uint BLOCK = 32; /* hth_quant_desc, member by member */
layout(constant_id = 5) const uint LOW_BITS = 4;
layout(constant_id = 6) const uint HIGH_BITS = 0;
layout(constant_id = 7) const uint OFFSET = 8;
layout(constant_id = 8) const uint TABLE = 0;
layout(constant_id = 9) const uint PART = 0;
layout(constant_id = 10) const uint MINIMA = 0;
layout(constant_id = 11) const uint SCALE = 0;
layout(binding = 0) readonly buffer Jobs { uint jobs[]; };
layout(binding = 1) readonly buffer Source { uvec4 pieces[]; };
layout(binding = 1) readonly buffer SourceWords { uint words[]; }; /* the same */
layout(binding = 2) readonly buffer Table { uvec2 table[]; };
layout(binding = 3) writeonly buffer Planes { uint planes[]; };
layout(push_constant) uniform Push
{
    uint jobs_at, base, pitch, slice_rows, n_block;
    uint at_high, at_scale, at_part, at_least, at_minimum;
};

const uint FILE = 0, PANELS = 1, PLANES = 2; /* HTH_PACK_ROWS_* */
const uint LANES = gl_WorkGroupSize.x, ROWS = 16, GROUP = 8, ARRAY_WORDS = 64, HEAD = 4; /* HTH_PACK_ROWS_HEAD */

/* Words of a block in each array, and blocks that share a word of scales. PLANES of floats: a block is a word. */
const uint LOW_WORDS = BLOCK == 0 ? 1 : BLOCK * LOW_BITS / 32;
const uint HIGH_WORDS = BLOCK * HIGH_BITS / 32;
const uint PART_WORDS = PART == 0 ? 0 : BLOCK / (PART == 0 ? 1 : PART) / 4;
const uint LEAST_WORDS = MINIMA == 0 ? 0 : PART_WORDS;
const uint OF_SCALE = SCALE == 1 ? 4 : 2, OF_MINIMUM = 2;

/* Elements of the table. */
const uint HIGH_AT = LOW_WORDS, PART_AT = HIGH_AT + HIGH_WORDS, LEAST_AT = PART_AT + PART_WORDS,
           SCALE_AT = LEAST_AT + LEAST_WORDS, MINIMUM_AT = SCALE_AT + 1;

/* A segment is what lies side by side in the source: of rows in file order the blocks of a row, of panels a block of 16
 * rows. Each has PITCH words of the tile, for its bytes and for those around it. A term that begins in the last word also
 * loads the one behind it, which its mask leaves out. */
const uint SEGMENTS = FORM == FILE ? ROWS : FORM == PANELS ? BLOCKS : 1;
const uint SEGMENT_SIZE = FORM == FILE ? BLOCKS * SIZE : ROWS * SIZE;
const uint PITCH = FORM == PLANES ? 4 : (SEGMENT_SIZE + 30) / 16 * 4;
shared uint tile[SEGMENTS * PITCH + 1];

/* Of this workgroup's job: the byte of the source at which its slice begins, and the number of its slot. */
uint slice, slot;

uint lane() { return gl_LocalInvocationID.x; }

/* The tile of this workgroup. */
uint first_row() { return gl_WorkGroupID.y * ROWS; }
uint first_block() { return gl_WorkGroupID.x * BLOCKS; }
uint n_row_of_tile() { return min(ROWS, slice_rows - first_row()); }
uint n_block_of_tile() { return min(BLOCKS, n_block - first_block()); }

/* ---- loading ----------------------------------------------------------------------------------------- */

/* The number of block b among those of a panel (kernels/panel/panel.h). */
uint place_in_panel(uint b)
{
    uint sum = b % 8;
    return sum * (n_block / 8) + min(sum, n_block % 8) + b / 8;
}

/* The byte of the source at which a segment begins. */
uint segment_at(uint i)
{
    if (FORM == FILE) return slice + ((first_row() + i) * n_block + first_block()) * SIZE;
    return slice + (first_row() * n_block + ROWS * place_in_panel(first_block() + i)) * SIZE;
}

void load_tile()
{
    const uint n_segment = FORM == FILE ? n_row_of_tile() : n_block_of_tile();
    const uint n_byte = FORM == FILE ? n_block_of_tile() * SIZE : ROWS * SIZE;
    for (uint i = lane(); i < n_segment * (PITCH / 4); i += LANES) {
        uint from = segment_at(i / (PITCH / 4)), at = from / 16 + i % (PITCH / 4);
        if (16 * at >= from + n_byte) continue;
        uvec4 piece = pieces[at];
        for (uint k = 0; k < 4; k++) tile[4 * i + k] = piece[k];
    }
}

/* ---- elements ---------------------------------------------------------------------------------------- */

/* The word that begins at byte `at` of the tile. */
uint word_of_tile(uint at)
{
    uint word = tile[at / 4], shift = at % 4 * 8;
    return shift == 0 ? word : word >> shift | tile[at / 4 + 1] << (32 - shift);
}

/* Element e of the block of row r and block b of the tile. */
uint element(uint e, uint r, uint b)
{
    const uint segment = FORM == FILE ? r : b;
    const uint from = 4 * PITCH * segment + segment_at(segment) % 16 + (FORM == FILE ? b * SIZE : 0);
    const uvec2 head = table[e];
    uint x = head.y;
    for (uint t = head.x & 0xffffu; t < (head.x & 0xffffu) + (head.x >> 16); t++) {
        uvec2 term = table[t];
        uint at = term.x & 0xffffu, unit = term.x >> 16 & 0xffu, rotation = term.x >> 24;
        uint word = word_of_tile(from + (FORM == FILE ? at : ROWS * at + r * unit));
        x ^= (word << rotation | word >> (32 - rotation & 31)) & term.y;
    }
    return x;
}

/* ---- arrays ------------------------------------------------------------------------------------------ */

/* The number of row r of the tile in the matrix. */
uint row_of(uint r) { return slot * slice_rows + first_row() + r; }

/* Quants, whose words lie by groups of eight blocks, in pieces of four. Of each group the tile has all blocks, or some
 * if it is no wider. */
void put_pieces(uint to, uint n_word, uint first_element)
{
    const uint n = n_block_of_tile(), n_all = n * n_word, width = min(GROUP, BLOCKS);
    for (uint i = lane(); i < n_row_of_tile() * n_all; i += LANES) {
        uint r = i / n_all, in_row = i % n_all, first = in_row / (width * n_word) * width;
        uint n_here = min(width, n - first), in_group = in_row - first * n_word;
        uint b = first + in_group / 4 % n_here, piece = in_group / (4 * n_here), word = in_group % 4;
        uint block = first_block() + b, group = block / GROUP * GROUP, n_group = min(GROUP, n_block - group);
        uint at = (row_of(r) * n_block + group) * n_word + 4 * (piece * n_group + block - group) + word;
        planes[to + at] = element(first_element + 4 * piece + word, r, b);
    }
}

/* Words that lie by block. */
void put_words(uint to, uint n_word, uint first_element)
{
    const uint n_all = n_block_of_tile() * n_word;
    for (uint i = lane(); i < n_row_of_tile() * n_all; i += LANES) {
        uint r = i / n_all, in_row = i % n_all;
        planes[to + (row_of(r) * n_block + first_block()) * n_word + in_row] =
            element(first_element + in_row % n_word, r, in_row / n_word);
    }
}

/* Scales or minima, of which n_of blocks share a word. Rows begin at a word. */
void put_shared(uint to, uint n_of, uint e)
{
    const uint n = n_block_of_tile(), n_all = (n + n_of - 1) / n_of, row_words = (n_block + n_of - 1) / n_of;
    for (uint i = lane(); i < n_row_of_tile() * n_all; i += LANES) {
        uint r = i / n_all, first = i % n_all * n_of, word = 0;
        for (uint k = 0; k < min(n_of, n - first); k++) word |= element(e, r, first + k) << 32 / n_of * k;
        planes[to + row_of(r) * row_words + (first_block() + first) / n_of] = word;
    }
}

void put_tile()
{
    put_pieces(0, LOW_WORDS, 0);
    if (HIGH_WORDS > 1) put_pieces(at_high, HIGH_WORDS, HIGH_AT);
    else if (HIGH_WORDS > 0) put_words(at_high, 1, HIGH_AT);
    if (PART_WORDS > 0) put_words(at_part, PART_WORDS, PART_AT);
    if (LEAST_WORDS > 0) put_words(at_least, LEAST_WORDS, LEAST_AT);
    put_shared(at_scale, OF_SCALE, SCALE_AT);
    if (MINIMA > 0) put_shared(at_minimum, OF_MINIMUM, MINIMUM_AT);
}

/* ---- slices in the device's layout --------------------------------------------------------------------- */

uint word_of_source(uint at)
{
    uint word = words[at / 4], shift = at % 4 * 8;
    return shift == 0 ? word : word >> shift | words[at / 4 + 1] << (32 - shift);
}

/* Copies an array of rows of so many words. Returns the byte of the slice at which the next array begins. */
uint copy_array(uint from, uint to, uint row_words)
{
    const uint n = slice_rows * row_words;
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * LANES)
        planes[to + slot * n + i] = word_of_source(from + 4 * i);
    return from + (n + ARRAY_WORDS - 1) / ARRAY_WORDS * ARRAY_WORDS * 4;
}

void copy_slice()
{
    uint from = copy_array(slice, 0, n_block * LOW_WORDS);
    if (BLOCK == 0) return;
    from = copy_array(from, at_high, n_block * HIGH_WORDS);
    from = copy_array(from, at_scale, (n_block + OF_SCALE - 1) / OF_SCALE);
    from = copy_array(from, at_part, n_block * PART_WORDS);
    from = copy_array(from, at_least, n_block * LEAST_WORDS);
    if (MINIMA > 0) copy_array(from, at_minimum, (n_block + OF_MINIMUM - 1) / OF_MINIMUM);
}

void main()
{
    if (gl_WorkGroupID.z >= jobs[jobs_at]) return;
    const uint job = jobs_at + HEAD + 2 * gl_WorkGroupID.z;
    slot = jobs[job], slice = base + jobs[job + 1] * pitch;
    if (FORM == PLANES) {
        copy_slice();
        return;
    }
    load_tile();
    barrier();
    put_tile();
}
