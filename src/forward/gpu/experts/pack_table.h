/* The table by which the shader pack_rows converts blocks of a type to the device's layout (weight_layout.h). Most
 * conversions only move bits: each bit of the result is one bit of the block, or its inverse, or constant. The table
 * says which. It is found by packing blocks with hth_soa_layout_pack, so that there is one definition.
 *
 * Elements of a block, in this order: the words of its quants, of its high bits, of the scales of its sub-blocks and of
 * their minima, as hth_soa_layout_pack writes them for a row of one block; then its scale and its minimum, of which
 * several blocks share a word.
 *
 *     words 2 e, 2 e + 1    element e: number of its first term | number of terms << 16; bits that are inverted
 *     words 2 t, 2 t + 1    term t: byte | unit << 16 | rotation << 24; mask. Terms follow the elements
 *
 * An element is the exclusive or of its inverted bits and of its terms. A term is the word that begins at a byte of the
 * block, rotated to the left, and masked. In a panel that word of row r begins at 16 byte + r unit, where the unit is
 * that of kernels/panel/panel.h; of rows in file order the unit is 0. Bits outside the block are masked. */
#ifndef HTH_FORWARD_GPU_PACK_TABLE_H
#define HTH_FORWARD_GPU_PACK_TABLE_H

#include "forward/gpu/weight_layout.h"
#include "kernels/panel/panel.h"

enum { HTH_PACK_TABLE_WORDS = 512 };

/* Writes the table and the number of its words. Takes about 1 ms. false: there is none, because the type has no such
 * conversion (floats, NVFP4, TQ1_0, types with a grid) or no panels. */
bool hth_pack_table(hth_type type, hth_layout layout, uint32_t table[HTH_PACK_TABLE_WORDS], uint32_t *n_word);

#endif
