/* The input of a model's MTP block (hth_mtp_input) over a text. For each position of the text the block evaluates the
 * next token, with the row that the last layer gave for the position. Rows of a prompt are evaluated at once, rows of
 * single tokens when a draft is wanted. Rows of a prefix that was copied or restored are not known: the block starts
 * behind the prefix, and its drafts are worse. */
#ifndef HTH_ENGINE_MTP_FEED_H
#define HTH_ENGINE_MTP_FEED_H

#include "draft/draft.h"
#include "engine/session_int.h"

/* Rows that wait: those of a token and its draft, and as many before. */
enum { HTH_MTP_ROWS = 2 * (HTH_DRAFT_MAX + 1) };

typedef struct hth_mtp_feed {
    hearth_session *block; /* the token that follows, for each position that was evaluated */
    float *rows;           /* [HTH_MTP_ROWS][d_model] of positions from row_at on */
    uint32_t row_at, n_row;
    /* The position that is evaluated next: its row, those behind it and the one before are kept. */
    uint32_t next;
    uint32_t n_fed; /* tokens of block that are the text's; those behind are guesses */
    float *own;     /* [d_model] what the block gave for its last token */
} hth_mtp_feed;

/* Bytes of the rows. */
size_t hth_mtp_feed_size(const hth_model *model);
/* Takes the session, which it closes. MEMORY: it is closed. */
hearth_status hth_mtp_feed_open(hth_mtp_feed *f, hearth_session *block, hearth_error *err);
void hth_mtp_feed_close(hth_mtp_feed *f);
/* The text is another one. */
void hth_mtp_feed_forget(hth_mtp_feed *f);

/* Rows of n tokens of the text, from position `at` on: hth_hidden_fn of its session. Evaluates what there is no
 * more space for, in a batch of the block that is empty. */
hearth_status hth_mtp_feed_note(hth_mtp_feed *f, hearth_batch *batch, const hth_kv_budget *pages,
                                const int32_t *tokens, uint32_t at, uint32_t n, const float *rows,
                                hearth_error *err);

/* Whether the rows of a text are known whose last token, at position `at`, is evaluated next. */
bool hth_mtp_feed_is_ready(const hth_mtp_feed *f, uint32_t at);
/* Prepares that: the tokens behind the positions from f->next on are to be added to a batch. Returns their number. */
uint32_t hth_mtp_feed_settle(hth_mtp_feed *f, const int32_t *tokens, uint32_t at);
/* They were added. */
void hth_mtp_feed_add_rows(hth_mtp_feed *f, hearth_batch *batch, uint32_t n);

#endif
