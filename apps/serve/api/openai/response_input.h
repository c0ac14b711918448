/* The conversation of a request of the Responses API. */
#ifndef HEARTH_APPS_SERVE_API_RESPONSE_INPUT_H
#define HEARTH_APPS_SERVE_API_RESPONSE_INPUT_H

#include "serve/api/conversation.h"
#include "serve/api/openai/response_store.h"

/* Reads instructions, the items of previous_response_id, and input. items: gets all but the instructions, for the store;
 * NULL: the request is not stored. False: f->problem says why. */
bool response_input_read(fields *f, response_store *store, uint64_t owner, conversation *out, item_list *items);

#endif
