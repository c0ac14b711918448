/* Submissions to Vulkan queues. Timeline semaphores: `host_semaphore` is signalled by the host, `done` counts the
 * completed command lists of each queue. A command list waits for the host semaphore and for the second queue on the
 * device, so a whole token can be submitted at once. */
#include "device/vulkan/vulkan_int.h"

enum { AT_ONCE = 64, MAX_WAIT = 2 };

static const VkPipelineStageFlags WORK[MAX_WAIT] = {VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                                                    VK_PIPELINE_STAGE_ALL_COMMANDS_BIT};

/* What a command list waits for. */
typedef struct wait_list {
    VkSemaphore semaphores[MAX_WAIT];
    uint64_t values[MAX_WAIT];
    uint32_t n;
} wait_list;

static void add_wait(wait_list *w, VkSemaphore semaphore, uint64_t value)
{
    if (value == 0) return;
    w->semaphores[w->n] = semaphore, w->values[w->n++] = value;
}

/* Before a command list is submitted. */
static void note_submission(hth_cmdlist *t, hth_queue_id queue, hth_fence fence)
{
    hth_vk_cmdlist *own = t->priv;
    hth_vk_proof_submit(t, queue, fence);
    if (own->times) hth_vk_times_read(t), own->run = fence, own->run_queue = queue;
}

/* times and infos of one command list; what they point to lives until the submission. */
static void fill_info(const hth_vk_device *vk, const hth_cmdlist *t, hth_queue_id queue, const wait_list *waits,
                      const hth_fence *fence, VkTimelineSemaphoreSubmitInfo *times, VkSubmitInfo *info)
{
    *times = (VkTimelineSemaphoreSubmitInfo){.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                             .waitSemaphoreValueCount = waits->n,
                                             .pWaitSemaphoreValues = waits->values,
                                             .signalSemaphoreValueCount = 1,
                                             .pSignalSemaphoreValues = fence};
    *info = (VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .pNext = times,
                           .waitSemaphoreCount = waits->n,
                           .pWaitSemaphores = waits->semaphores,
                           .pWaitDstStageMask = WORK,
                           .commandBufferCount = 1,
                           .pCommandBuffers = &((const hth_vk_cmdlist *)t->priv)->commands,
                           .signalSemaphoreCount = 1,
                           .pSignalSemaphores = &vk->done[queue]};
}

static hearth_status submit_some(hth_device *d, hth_queue_id queue, const hth_submit_info *submits, uint32_t n,
                                 hth_fence first, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkSubmitInfo infos[AT_ONCE];
    VkTimelineSemaphoreSubmitInfo times[AT_ONCE];
    wait_list waits[AT_ONCE];
    hth_fence fences[AT_ONCE];
    for (uint32_t i = 0; i < n; i++) {
        fences[i] = first + i;
        waits[i].n = 0;
        add_wait(&waits[i], vk->host_semaphore, submits[i].wait);
        add_wait(&waits[i], vk->done[HTH_QUEUE_BESIDE], submits[i].beside);
        note_submission(submits[i].cmdlist, queue, fences[i]);
        fill_info(vk, submits[i].cmdlist, queue, &waits[i], &fences[i], &times[i], &infos[i]);
    }
    VkResult r = vk->call.vkQueueSubmit(vk->queues[queue], n, infos, NULL);
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, d, "vkQueueSubmit", r);
}

hearth_status hth_vk_submit(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                            hearth_error *err)
{
    hearth_status st = hth_vk_finish_uploads(d, err);
    for (size_t i = 0; st == HEARTH_OK && i < n; i += AT_ONCE) {
        size_t left = n - i;
        st = submit_some(d, HTH_QUEUE_MAIN, submits + i, (uint32_t)(left < AT_ONCE ? left : AT_ONCE), first + i, err);
        /* Earlier submissions run and signal their fence values, which cannot be reused. */
        if (st == HEARTH_ERROR_MEMORY && i > 0) st = HEARTH_ERROR_DEVICE;
    }
    return st;
}

hearth_status hth_vk_submit_beside(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence first, hearth_error *err)
{
    hth_submit_info submits[AT_ONCE] = {{0}};
    hearth_status st = hth_vk_finish_uploads(d, err);
    for (size_t i = 0, k; st == HEARTH_OK && i < n; i += k) {
        for (k = 0; k < AT_ONCE && i + k < n; k++) submits[k].cmdlist = t[i + k];
        st = submit_some(d, HTH_QUEUE_BESIDE, submits, (uint32_t)k, first + i, err);
        if (st == HEARTH_ERROR_MEMORY && i > 0) st = HEARTH_ERROR_DEVICE; /* as above */
    }
    return st;
}

hearth_status hth_vk_signal(hth_device *d, uint64_t value, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkSemaphoreSignalInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = vk->host_semaphore, .value = value};
    VkResult r = vk->call.vkSignalSemaphore(vk->handle, &info);
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, d, "vkSignalSemaphore", r);
}

/* If the query fails, nothing counts as completed; the next wait reports why. */
hth_fence hth_vk_completed_value(hth_device *d, hth_queue_id queue)
{
    hth_vk_device *vk = d->priv;
    uint64_t value = 0;
    VkResult r = vk->call.vkGetSemaphoreCounterValue(vk->handle, vk->done[queue], &value);
    return r == VK_SUCCESS ? value : 0;
}

hearth_status hth_vk_wait(hth_device *d, hth_queue_id queue, hth_fence fence, uint64_t timeout_ns, bool *late,
                          hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &vk->done[queue],
                                .pValues = &fence};
    VkResult r = vk->call.vkWaitSemaphores(vk->handle, &info, timeout_ns);
    *late = r == VK_TIMEOUT;
    if (r == VK_TIMEOUT)
        return hth_fail(err, HEARTH_ERROR_DEVICE,
                        "%s: command list %llu%s is not done after %.1f s: %llu command lists are",
                        d->info.name, (unsigned long long)fence, hth_queue_words[queue], (double)d->timeout_ns * 1e-9,
                        (unsigned long long)hth_vk_completed_value(d, queue));
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, d, "vkWaitSemaphores", r);
}

/* ---- one-time commands ------------------------------------------------------------------------------- */

hearth_status hth_vk_commands_begin(hth_device *d, VkCommandBuffer *out, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = vk->commands,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkResult r = vk->call.vkAllocateCommandBuffers(vk->handle, &info, out);
    if (r != VK_SUCCESS) {
        *out = NULL;
        return hth_vk_fail(err, d, "vkAllocateCommandBuffers", r);
    }
    r = vk->call.vkBeginCommandBuffer(*out, &begin);
    if (r == VK_SUCCESS) return HEARTH_OK;
    vk->call.vkFreeCommandBuffers(vk->handle, vk->commands, 1, out);
    *out = NULL;
    return hth_vk_fail(err, d, "vkBeginCommandBuffer", r);
}

/* In intervals: a process that is stopped loses one of them, however long it was stopped. */
static VkResult wait_for(const hth_vk_device *vk, VkFence fence, uint64_t timeout_ns)
{
    enum { N_INTERVAL = 16 };
    VkResult r = VK_TIMEOUT;
    for (int i = 0; i < N_INTERVAL && r == VK_TIMEOUT; i++)
        r = vk->call.vkWaitForFences(vk->handle, 1, &fence, VK_TRUE, timeout_ns / N_INTERVAL);
    return r;
}

static hearth_status submit_with_fence(hth_device *d, hth_queue_id queue, const VkSubmitInfo *info, VkFence *fence,
                                       hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkFenceCreateInfo plain = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkResult r = vk->call.vkCreateFence(vk->handle, &plain, NULL, fence);
    if (r != VK_SUCCESS) return hth_vk_fail(err, d, "vkCreateFence", r);
    r = vk->call.vkQueueSubmit(vk->queues[queue], info != NULL, info, *fence);
    if (r == VK_SUCCESS) return HEARTH_OK;
    vk->call.vkDestroyFence(vk->handle, *fence, NULL);
    return hth_vk_fail(err, d, "vkQueueSubmit", r);
}

/* Waits for a fence, and frees it. */
static hearth_status finish_fence(hth_device *d, VkFence fence, uint64_t timeout_ns, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkResult r = wait_for(vk, fence, timeout_ns);
    vk->hangs = r == VK_TIMEOUT;
    if (vk->hangs)
        return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: what was submitted is not done after %.0f s",
                        d->info.name, (double)timeout_ns * 1e-9);
    vk->call.vkDestroyFence(vk->handle, fence, NULL);
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, d, "vkWaitForFences", r);
}

static uint64_t timeout_of(const hth_device *d)
{
    const uint64_t lost_ns = 2000000000;
    return d->lost ? lost_ns : hth_device_submit_timeout_ns(&d->info);
}

void hth_vk_finish(hth_device *d)
{
    const hth_vk_device *vk = d->priv;
    VkFence fence;
    for (int i = 0; i < HTH_N_QUEUE && !vk->hangs; i++)
        if (submit_with_fence(d, (hth_queue_id)i, NULL, &fence, NULL) == HEARTH_OK)
            finish_fence(d, fence, timeout_of(d), NULL);
}

hearth_status hth_vk_run_start(hth_device *d, VkCommandBuffer commands, VkFence *fence, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    VkResult r = vk->call.vkEndCommandBuffer(commands);
    hearth_status st = r == VK_SUCCESS ? submit_with_fence(d, HTH_QUEUE_MAIN, &info, fence, err)
                                       : hth_vk_fail(err, d, "vkEndCommandBuffer", r);
    if (st != HEARTH_OK) vk->call.vkFreeCommandBuffers(vk->handle, vk->commands, 1, &commands);
    return st;
}

hearth_status hth_vk_run_finish(hth_device *d, VkCommandBuffer commands, VkFence fence, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    if (vk->hangs) return hth_fail(err, HEARTH_ERROR_DEVICE, "%s: what was submitted is not done", d->info.name);
    hearth_status st = finish_fence(d, fence, timeout_of(d), err);
    if (!vk->hangs) vk->call.vkFreeCommandBuffers(vk->handle, vk->commands, 1, &commands);
    return st;
}

hearth_status hth_vk_run_once(hth_device *d, VkCommandBuffer commands, hearth_error *err)
{
    VkFence fence;
    hearth_status st = hth_vk_run_start(d, commands, &fence, err);
    return st == HEARTH_OK ? hth_vk_run_finish(d, commands, fence, err) : st;
}
