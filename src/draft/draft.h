/* Drafts: tokens that may follow a sequence, evaluated together with its next token. Those that are then sampled cost
 * no step of their own; what is sampled does not depend on them. Here: where drafts come from without a model, and
 * how many tokens of one are worth their time. engine/speculation.c evaluates them. */
#ifndef HTH_DRAFT_DRAFT_H
#define HTH_DRAFT_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens of one draft, and of all drafts of a step. */
enum { HTH_DRAFT_MAX = 15, HTH_DRAFT_ROWS = 32 };

/* ---- where they come from ------------------------------------------------------------------------------ */

/* The source of a draft: tokens that followed an earlier occurrence of the text's last tokens, by the number of tokens
 * that match, or a model. */
typedef enum hth_draft_source {
    HTH_DRAFT_SHORT, /* 2 or 3 */
    HTH_DRAFT_MEDIUM,
    HTH_DRAFT_LONG,
    HTH_DRAFT_MODEL, /* another one */
    HTH_DRAFT_MTP,   /* a block of the text's own model */
    HTH_N_DRAFT_SOURCE
} hth_draft_source;
enum { HTH_DRAFT_LEAST = 2, HTH_DRAFT_MEDIUM_LEAST = 4, HTH_DRAFT_LONG_LEAST = 8, HTH_DRAFT_MOST = 16 };

static inline bool hth_draft_is_by_model(hth_draft_source s) { return s >= HTH_DRAFT_MODEL; }

/* The earlier place whose tokens end like tokens[n] for the longest stretch, the last one among equals; stretches of
 * HTH_DRAFT_MOST or more are equal. Returns the index of the token that followed, less than n, and the length of the
 * stretch; n: there is none of HTH_DRAFT_LEAST. O(n). */
size_t hth_draft_find(const int32_t *tokens, size_t n, uint32_t *length);
hth_draft_source hth_draft_source_of(uint32_t length);
/* The n_draft tokens that follow, if the text goes on as it did from `from` on; past its end they repeat. */
void hth_draft_copy(const int32_t *tokens, size_t n, size_t from, uint32_t n_draft, int32_t *draft);

/* ---- whether they come true ---------------------------------------------------------------------------- */

/* The acceptance record of drafts from one source. Recent tokens have more weight. */
typedef struct hth_draft_record {
    double n_right, n_tried;
    uint32_t n_refused; /* drafts that were not evaluated, since one was */
    uint32_t patience;  /* value of n_refused at which a draft is tried again */
} hth_draft_record;
typedef struct hth_draft_history {
    hth_draft_record records[HTH_N_DRAFT_SOURCE];
} hth_draft_history;

hth_draft_history hth_draft_history_begin(void);
/* A token of a draft that was compared with the one that was sampled. */
void hth_draft_note(hth_draft_history *h, hth_draft_source source, bool is_right);
/* The share of tokens that will be right, if those before them in the draft are. */
double hth_draft_share(const hth_draft_history *h, hth_draft_source source);

/* ---- how many are worth it ----------------------------------------------------------------------------- */

enum { HTH_DRAFT_MAX_TOKENS = 128 }; /* tokens of the longest step whose time is kept */
/* Times of steps whose tokens all want logits, by the number of tokens. They grow with contexts and change with what
 * else the machine does: those of many steps ago count no more. */
typedef struct hth_draft_costs {
    double seconds[HTH_DRAFT_MAX_TOKENS + 1];
    uint64_t last[HTH_DRAFT_MAX_TOKENS + 1]; /* in which step it was measured; 0: in none */
    uint64_t n_step;
    double model_seconds; /* time in which a draft model makes one token for all sequences together */
} hth_draft_costs;

void hth_draft_measure(hth_draft_costs *c, uint32_t n_token, double seconds);
void hth_draft_measure_model(hth_draft_costs *c, double seconds);
/* The time of a step of n tokens; of numbers that were not measured, as those beside it let expect. 0: none of up to
 * n was. */
double hth_draft_seconds(const hth_draft_costs *c, uint32_t n_token);

/* A draft that a sequence offers. */
typedef struct hth_draft_offer {
    hth_draft_source source;
    uint32_t n_most;            /* tokens that it has; 0: none */
    hth_draft_history *history; /* history of the sequence */
    uint32_t n;                 /* tokens to evaluate */
} hth_draft_offer;

/* Chooses n of each offer, for a step that has n_base other tokens, and space for n_room more: those with which the
 * step gives the most tokens in its time, if they come true as often as before. Where sequences share the step, it
 * takes at most a quarter longer. Sources that seldom come true are tried again from time to time. A step without
 * drafts is measured first. */
void hth_draft_choose(const hth_draft_costs *c, hth_draft_offer *offers, uint32_t n_offer, uint32_t n_base,
                      uint32_t n_room);
/* Chooses n_wanted tokens of each offer, as far as it has them and there is room. */
void hth_draft_take_all(hth_draft_offer *offers, uint32_t n_offer, uint32_t n_wanted, uint32_t n_room);

#endif
