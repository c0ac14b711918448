/* Weights that stay in the file with a limit of memory: shared by streamed_items.c, memory_division.c and streaming.c.
 * engine.h has what others call. */
#ifndef HTH_ENGINE_STREAMING_H
#define HTH_ENGINE_STREAMING_H

#include "engine/engine.h"

/* Lists the items of a store, and which of them are on the device (m->on_device), and the tables that are read by rows
 * (m->streamed.tables). The caller frees list->items and list->sums, also on failure. MEMORY, IO. */
hearth_status hth_engine_list_items(hearth_model *m, hth_weight_items *list, hearth_error *err);
/* After a change of what lies on the device. The tables are those of hth_streamed; NULL: none are streamed so. */
void hth_engine_find_on_device(hearth_model *m, const uint32_t *first_expert, const hth_ffn_pieces *pieces,
                               const hth_ffn_bundles *bundles);
/* Whether experts are streamed; else dense networks, in bundles or in pieces. */
bool hth_engine_streams_experts(const hearth_model *m);
bool hth_engine_streams_bundles(const hearth_model *m);
/* Whether there are items of a matrix. */
bool hth_engine_has_items(const hearth_model *m, const hth_matrix *w);
/* Bytes of the tables that are read by rows. */
uint64_t hth_engine_tables_size(const hearth_model *m);

/* size - by, or 0. */
static inline uint64_t hth_less(uint64_t size, uint64_t by) { return size > by ? size - by : 0; }

#endif
