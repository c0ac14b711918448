/* Rows of a table of which a step reads a few, named by its tokens: embeddings. The table stays in the file. */
#ifndef HTH_STORE_TABLE_ROWS_H
#define HTH_STORE_TABLE_ROWS_H

#include "store/reader.h"

/* A table in a file. */
typedef struct hth_row_table {
    hth_extent extent;
    uint64_t row_size; /* 0: there is no such table */
} hth_row_table;

typedef struct hth_table_rows hth_table_rows;

/* Bytes that n_max rows take at once. False: overflow. */
bool hth_table_rows_size(const hth_row_table *table, uint32_t n_max, size_t *size);

/* Reads up to n_max rows at once. The reader must outlive it. cancel: NULL, or a flag that ends waits. MEMORY. */
hearth_status hth_table_rows_open(hth_reader *reader, const hth_row_table *table, uint32_t n_max,
                                  const volatile int *cancel, hth_table_rows **out, hearth_error *err);
/* Waits for reads that run. NULL is allowed. */
void hth_table_rows_close(hth_table_rows *rows);

/* Starts to read row `i_row` as the i-th one; what was started for another step has been waited for. */
void hth_table_rows_start(hth_table_rows *rows, uint32_t i, uint64_t i_row);
/* Waits for all that were started. IO: one cannot be read. CANCELLED: the reads run on; the next start waits for them.
 * */
hearth_status hth_table_rows_wait(hth_table_rows *rows, hearth_error *err);
/* The i-th row, after that. */
const uint8_t *hth_table_rows_get(const hth_table_rows *rows, uint32_t i);

#endif
