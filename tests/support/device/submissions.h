/* Submissions as small as a test wants them, and a look at what tapes hold. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_SUBMISSIONS_H
#define HEARTH_TESTS_SUPPORT_DEVICE_SUBMISSIONS_H

#include "forward/gpu/gpu.h"

/* From now on models that are opened with n_thread threads on that device (not a simulated one) make
 * submissions of so much work: it is what a card that slow would be measured to do. False: there is no such
 * device (skipped). One at a time; nothing is kept behind it. */
bool submissions_begin(const char *device, uint32_t n_thread, uint64_t n_work);
void submissions_end(void);

/* No tape is empty, and none has more work than it may, unless that is one run that cannot be divided. Returns how many tapes there
 * are; work: of all together. */
uint64_t submissions_check(const hth_gpu *gpu, uint64_t *work);

#endif
