/* Moving experts, shared by several files: expert_moves.c, expert_reads.c and expert_stream.c say which ones move and when,
 * expert_sources.c knows where their weights are, and records how they come to the device. */
#ifndef HTH_FORWARD_GPU_EXPERT_MOVES_H
#define HTH_FORWARD_GPU_EXPERT_MOVES_H

#include "forward/gpu/gpu_int.h"

/* Gate, up and down of a layer's experts on the host; those without rows are absent. */
const hth_matrix *hth_gpu_expert_part(const hth_layer *l, int i);
/* Rows of an expert: where gate and up are one matrix, both halves. */
uint32_t hth_gpu_expert_rows(const hth_layer *l, int i);
/* Records the conversions of experts of a layer to slots of gate, up and down, of which those without a matrix are left
 * out: from word `at` of `jobs` on are their grids and which ones they are (HTH_READS_*). grids: the words of the grids, but
 * for the number of experts, which the caller puts there. */
hearth_status hth_gpu_record_packs(hth_gpu *g, hth_cmdlist *cmdlist, uint32_t i_layer,
                                   const hth_gpu_fused_matrix to[HTH_GPU_EXPERT_PARTS], hth_buffer *jobs, uint32_t at,
                                   uint32_t grids[HTH_READS_JOBS], hearth_error *err);
/* Lets so many experts come with the next conversions; jobs: the words that they read. */
static inline void hth_gpu_set_n_read(uint32_t *jobs, uint32_t n)
{
    for (int k = 0; k < HTH_READS_JOBS / HTH_READS_GRID_WORDS; k++) jobs[HTH_READS_GRID_WORDS * k + 2] = n;
    jobs[HTH_READS_JOBS] = n;
}
/* Copies the weights of an expert to an entry of staging memory, in the form in which its command list expects them. view:
 * where a store has them; NULL: the host has those of all. */
void hth_gpu_stage_expert(hth_gpu *g, hth_pool *pool, uint32_t i_layer, uint32_t expert, const hth_store_view *view,
                          uint32_t entry);

#endif
