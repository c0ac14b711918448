/* Test hook that chooses which tokens share a step. */
#ifndef HTH_SCHEDULER_INT_H
#define HTH_SCHEDULER_INT_H

#include <hearth/hearth.h>

/* Called for each step; returns how many tokens of prompts it takes, 1 to room. */
typedef uint32_t hth_scheduler_part_fn(void *user, uint32_t room);
void hth_scheduler_set_part(hearth_scheduler *scheduler, hth_scheduler_part_fn *fn, void *user);

#endif
