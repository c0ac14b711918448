/* What the files that move experts share: expert_moves.c chooses which ones, expert_sources.c knows where their weights
 * are, and records how they come to the device. */
#ifndef HTH_FORWARD_GPU_EXPERT_MOVES_H
#define HTH_FORWARD_GPU_EXPERT_MOVES_H

#include "forward/gpu/gpu_int.h"

/* Records the conversions of experts of a layer into slots: from word `at` of `jobs` on are their grids and which ones they
 * are (HTH_READS_*). grids: the words of the grids, but for the number of experts, which the caller puts there. */
hearth_status hth_gpu_record_packs(hth_gpu *g, hth_cmdlist *cmdlist, uint32_t i_layer, hth_buffer *jobs, uint32_t at,
                                   uint32_t grids[HTH_READS_JOBS], hearth_error *err);
/* The slots of gate, up or down of a layer's experts. */
hth_buffer_range hth_gpu_expert_slot_range(const hth_gpu *g, uint32_t i_layer, int i);
/* Copies the weights of an expert to an entry of staging memory, in the form in which its command list expects them. */
void hth_gpu_stage_expert(hth_gpu *g, hth_pool *pool, uint32_t i_layer, uint32_t expert, uint32_t entry);

#endif
