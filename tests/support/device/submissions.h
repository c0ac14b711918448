/* Submissions as small as a test wants them, and checks of the command lists. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_SUBMISSIONS_H
#define HEARTH_TESTS_SUPPORT_DEVICE_SUBMISSIONS_H

#include "forward/gpu/gpu.h"

/* From now on models that are opened with n_thread threads on that device (not a simulated one) make
 * submissions of so much work: it is what a GPU that slow would be measured to do. False: there is no such
 * device (skipped). One at a time; nothing is kept behind it. */
bool submissions_begin(const char *device, uint32_t n_thread, uint64_t max_work);
void submissions_end(void);

/* No command list is empty, and none has more work than the limit unless it is a single indivisible dispatch. Returns
 * the number of command lists; work: of all together. */
uint64_t submissions_check(const hth_gpu *gpu, uint64_t *work);

#endif
