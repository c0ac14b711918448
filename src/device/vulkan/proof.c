/* Proofs that command lists ran. After a reset some drivers say that all submitted work is complete although it was
 * dropped. So the last command of each list writes a word that the host cleared before; a wait is over only if the
 * words of all lists that it waited for are there. */
#include "base/alloc.h"
#include "device/vulkan/vulkan_int.h"

enum { N_SLOT = 16384, RAN = 1 };

typedef struct submission {
    hth_queue_id queue;
    hth_fence fence;
} submission;

struct hth_vk_proofs {
    hth_buffer buffer; /* uint32_t[N_SLOT], outside the budget */
    uint16_t free[N_SLOT];
    uint32_t n_free;
    hth_fence seen[HTH_N_QUEUE]; /* up to which all were looked at */
    submission last[N_SLOT];     /* of the slot's list */
    uint16_t slots[HTH_N_QUEUE][HTH_QUEUE_MAX_IN_FLIGHT]; /* by fence: 1 + the slot of its list, 0: it has none */
};

hearth_status hth_vk_proofs_open(hth_device *d, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    hth_vk_proofs *p = hth_alloc(1, sizeof *p);
    if (!p) return hth_fail_memory(err, sizeof *p, "a Vulkan device");
    const uint64_t size = N_SLOT * sizeof(uint32_t);
    p->buffer = (hth_buffer){.device = d, .memory = HTH_MEMORY_READBACK, .size = size, .allocated = size};
    hearth_status st = hth_vk_buffer_new(&p->buffer, "the ends of command lists", err);
    if (st != HEARTH_OK) return hth_free(p), st;
    for (uint32_t i = 0; i < N_SLOT; i++) p->free[p->n_free++] = (uint16_t)(N_SLOT - 1 - i);
    vk->proofs = p;
    return HEARTH_OK;
}

void hth_vk_proofs_close(hth_device *d)
{
    hth_vk_device *vk = d->priv;
    if (!vk->proofs) return;
    hth_vk_buffer_free(&vk->proofs->buffer);
    hth_free(vk->proofs);
    vk->proofs = NULL;
}

void hth_vk_proof_record(hth_cmdlist *t)
{
    hth_vk_device *vk = t->device->priv;
    hth_vk_cmdlist *own = t->priv;
    hth_vk_proofs *p = vk->proofs;
    if (p->n_free == 0) return; /* all words are taken: this list counts as run */
    uint32_t slot = p->free[--p->n_free];
    own->proof = 1 + slot;
    vk->call.vkCmdFillBuffer(own->commands, ((hth_vk_buffer *)p->buffer.priv)->handle,
                             slot * sizeof(uint32_t), sizeof(uint32_t), RAN);
}

void hth_vk_proof_free(hth_cmdlist *t)
{
    hth_vk_proofs *p = ((hth_vk_device *)t->device->priv)->proofs;
    hth_vk_cmdlist *own = t->priv;
    if (own->proof) p->free[p->n_free++] = (uint16_t)(own->proof - 1);
}

static uint32_t *word(const hth_vk_proofs *p, uint32_t slot)
{
    return (uint32_t *)(void *)p->buffer.map + slot;
}

void hth_vk_proof_submit(const hth_cmdlist *t, hth_queue_id queue, hth_fence fence)
{
    hth_vk_proofs *p = ((hth_vk_device *)t->device->priv)->proofs;
    const hth_vk_cmdlist *own = t->priv;
    p->slots[queue][fence % HTH_QUEUE_MAX_IN_FLIGHT] = (uint16_t)own->proof;
    if (own->proof == 0) return;
    p->last[own->proof - 1] = (submission){queue, fence};
    *word(p, own->proof - 1) = 0;
}

bool hth_vk_did_run(const hth_device *d, hth_queue_id queue, hth_fence fence)
{
    hth_vk_proofs *p = ((hth_vk_device *)d->priv)->proofs;
    for (hth_fence *seen = &p->seen[queue]; *seen < fence; ++*seen) {
        hth_fence next = *seen + 1;
        uint32_t slot = p->slots[queue][next % HTH_QUEUE_MAX_IN_FLIGHT];
        /* After a later submission of the same list that one's word counts. */
        bool is_last = slot > 0 && p->last[slot - 1].queue == queue && p->last[slot - 1].fence == next;
        if (is_last && *word(p, slot - 1) != RAN) return false;
    }
    return true;
}
