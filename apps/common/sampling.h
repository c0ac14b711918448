/* Sampling as the program and the server offer it: the library's defaults are greedy, and zero turns its stages off. */
#ifndef HEARTH_APPS_COMMON_SAMPLING_H
#define HEARTH_APPS_COMMON_SAMPLING_H

#include <hearth/hearth.h>

/* Returns the options that are used unless users say otherwise. */
hearth_sampler_options sampling_defaults(void);

/* Puts what the file says (general.sampling.*, which converters copy from generation_config.json) into the options. Values
 * out of range are left out, with a warning. */
void sampling_of_model(const hearth_model *model, hearth_sampler_options *o);

/* The names of the samplers, in the order in which they are applied. */
enum { N_SAMPLER = 9 };
extern const char *const sampler_names[N_SAMPLER];

/* Turns off all samplers that the list does not name: "top_k;temperature", in the order in which they are applied. NULL,
 * or why it is no such list. */
const char *sampling_keep(hearth_sampler_options *o, const char *list);

/* Options with the numbers of users become those of the library: a share of 0 keeps one token, as the smallest share
 * does, XTC takes all above a probability of 0, and no penalty looks at 0 tokens. */
void sampling_finish(hearth_sampler_options *o);

#endif
