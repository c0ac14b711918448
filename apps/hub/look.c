/* Facts of a model, and how it would run on this machine, from the metadata of its file. Reading a large
 * vocabulary takes a tenth of a second, so facts of a file are cached until the file or the program changes.
 * Free memory is checked each time. */
#define _GNU_SOURCE
#include "hub/machine.h"

#include "base/alloc.h"
#include "base/format_bytes.h"
#include "base/checked_math.h"
#include "base/hash.h"
#include "base/disk_cache.h"
#include "file/gguf.h"
#include "forward/forward.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

enum { VERSION = 1, MAX_RECORDS = 1000, BATCH_ROWS = 256 };

/* ---- cached facts ------------------------------------------------------------------------------------------ */

struct hub_record {
    uint64_t key; /* hash of the file's path, size and time */
    hub_facts facts;
};

static const char keep_name[] = "models";

/* Another version of the program may support more, so the program's file is part of the key. */
static uint64_t records_mark(const hub_machine *m)
{
    struct stat st = {0};
    uint64_t numbers[] = {m->key, sizeof(hub_record), 0, 0, 0, hub_gpu_key(m)};
    if (stat("/proc/self/exe", &st) == 0)
        numbers[2] = (uint64_t)st.st_size, numbers[3] = (uint64_t)st.st_mtim.tv_sec,
        numbers[4] = (uint64_t)st.st_mtim.tv_nsec;
    return hth_hash(numbers, sizeof numbers);
}

static void recall(hub_machine *m)
{
    size_t n;
    uint8_t *kept = hth_diskcache_get(keep_name, records_mark(m), &n);
    if (kept && n % sizeof *m->records == 0 && n / sizeof *m->records <= MAX_RECORDS) {
        memcpy(m->records, kept, n);
        m->n_record = n / sizeof *m->records;
    }
    hth_free(kept);
}

static bool key_of(const hub_model *model, uint64_t *key)
{
    struct stat st;
    if (stat(model->path, &st) != 0) return false;
    uint64_t numbers[] = {model->size,
                          (uint64_t)st.st_dev,
                          (uint64_t)st.st_ino,
                          (uint64_t)st.st_size,
                          (uint64_t)st.st_mtim.tv_sec,
                          (uint64_t)st.st_mtim.tv_nsec,
                          (uint64_t)st.st_ctim.tv_sec,
                          (uint64_t)st.st_ctim.tv_nsec};
    *key = hth_hash_more(hth_hash(numbers, sizeof numbers), model->path, strlen(model->path) + 1);
    return true;
}

static hub_record *find_record(hub_machine *m, uint64_t key)
{
    for (size_t i = 0; i < m->n_record; i++)
        if (m->records[i].key == key) return &m->records[i];
    return NULL;
}

/* The oldest record is replaced. */
static void add_record(hub_machine *m, uint64_t key, const hub_facts *facts)
{
    if (m->n_record == MAX_RECORDS) {
        m->n_record -= MAX_RECORDS / 4;
        memmove(m->records, m->records + MAX_RECORDS / 4, m->n_record * sizeof *m->records);
    }
    hub_record *r = &m->records[m->n_record++];
    memset(r, 0, sizeof *r); /* padding is written to the cache too */
    r->key = key;
    r->facts = *facts;
    m->has_new = true;
}

/* Descriptions of simulated GPUs change, so nothing is cached for them. */
static bool is_simulated(const hub_machine *m)
{
    return m->device && hth_device_get_info(m->device)->kind == HTH_DEVICE_SIMULATED;
}

const char *hub_machine_gpu(const hub_machine *m, bool *simulated)
{
    *simulated = is_simulated(m);
    return m->device ? hth_device_get_info(m->device)->name : NULL;
}

/* ---- the machine ------------------------------------------------------------------------------------------- */

static uint64_t machine_key(const hub_machine *m)
{
    struct utsname system = {0};
    uint64_t numbers[] = {VERSION,     sizeof(hth_calibration), m->kernels.level,
                          m->n_thread, m->facts.n_online,       m->facts.memory.total};
    uname(&system);
    uint64_t key = hth_hash(numbers, sizeof numbers);
    key = hth_hash_more(key, system.nodename, strlen(system.nodename) + 1);
    return hth_hash_more(key, m->facts.cpu_name, strlen(m->facts.cpu_name) + 1);
}

hearth_status hub_machine_open(const char *gpu, uint64_t vram, hub_machine **out, hearth_error *err)
{
    hth_cpu level;
    hearth_status st = hth_cpu_choose(NULL, &level, err);
    if (st != HEARTH_OK) return st;
    hub_machine *m = hth_alloc(1, sizeof *m);
    if (m) m->records = hth_alloc(MAX_RECORDS, sizeof *m->records);
    if (!m || !m->records) {
        hth_free(m);
        return hth_fail_memory(err, MAX_RECORDS * sizeof *m->records, "what is known of models");
    }
    hth_machine_read("", &m->facts);
    hth_kernels_init(&m->kernels, level);
    m->n_thread = hth_pool_default_threads(0);
    m->key = machine_key(m);
    m->vram = vram;
    st = hub_gpu_open(m, gpu, err);
    if (st != HEARTH_OK) {
        hub_machine_close(m);
        return st;
    }
    hub_speed_recall(m);
    if (!is_simulated(m)) recall(m);
    *out = m;
    return HEARTH_OK;
}

void hub_machine_close(hub_machine *m)
{
    if (!m) return;
    if (m->has_new && !is_simulated(m))
        hth_diskcache_put(keep_name, records_mark(m), m->records, m->n_record * sizeof *m->records);
    hth_pool_close(m->pool);
    hth_device_close(m->device);
    hth_free(m->records);
    hth_free(m);
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

const char *hub_main_type(const hth_gguf *file)
{
    uint64_t bytes[HTH_TYPE_LIMIT] = {0};
    uint32_t max = 0;
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        if ((uint32_t)t->type < HTH_TYPE_LIMIT) bytes[t->type] += t->size;
    }
    for (uint32_t i = 1; i < HTH_TYPE_LIMIT; i++)
        if (bytes[i] > bytes[max]) max = i;
    const hth_type_info *info = bytes[max] > 0 ? hth_type_find(max) : NULL;
    return info ? info->name : "";
}

/* Stores the error without the path, which is in the list already. */
static void set_error(hub_facts *f, const char *path, const hearth_error *why)
{
    hearth_error label; /* escaped as in the message */
    hth_fail(&label, HEARTH_ERROR_IO, "%s:", hth_gguf_label(path));
    size_t n = strlen(label.message);
    const char *text = why->message;
    if (strncmp(text, label.message, n) == 0) text += n + (text[n] == ' ');
    snprintf(f->why, sizeof f->why, "%s", text);
}

static bool add_size(uint64_t *sum, uint64_t more) { return hth_add_u64(*sum, more, sum); }

/* Memory of a session with the default context, weights included. False: overflow. */
static bool memory_of(const hth_model *model, uint64_t *memory)
{
    uint32_t n_ctx = hth_context_for(&model->hparams, 0);
    size_t kv, step;
    *memory = model->weight_size + HTH_N_STATE_COPY * hth_sequence_state_size(model);
    return hth_kv_size(model, HEARTH_KV_F16, n_ctx, &kv) &&
           hth_step_size(model, n_ctx < BATCH_ROWS ? n_ctx : BATCH_ROWS, HEARTH_SELECTOR_DENSE, 1, &step) &&
           add_size(memory, kv) && add_size(memory, step);
}

static void weigh(const hth_machine *m, hub_facts *f)
{
    uint64_t all = m->memory.total, now = m->memory.available;
    if (m->memory.group_limit > 0 && m->memory.group_limit < all) {
        all = m->memory.group_limit;
        if (m->memory.group_available < now) now = m->memory.group_available;
    }
    f->runs = all == 0 || f->memory <= all;
    f->is_tight = f->runs && now > 0 && f->memory > now;
    if (!f->runs) f->speed = 0.0;
    if (!f->runs)
        snprintf(f->why, sizeof f->why,
                 "needs %s of memory, and there are %s; --ram auto reads the rest from storage",
                 hth_format_bytes(f->memory).text, hth_format_bytes(all).text);
    else if (f->is_tight)
        snprintf(f->why, sizeof f->why, "needs %s of memory, and %s are free now",
                 hth_format_bytes(f->memory).text, hth_format_bytes(now).text);
}

static void look_at_model(hub_machine *machine, const hth_model *model, const char *path, hub_facts *f)
{
    hth_tokenizer *tokenizer;
    hearth_error why;
    if (hth_tokenizer_open(model->file, &tokenizer, &why) != HEARTH_OK) {
        set_error(f, path, &why);
        return;
    }
    hth_tokenizer_close(tokenizer);
    if (memory_of(model, &f->memory)) hub_speed_of(machine, model, f);
    else snprintf(f->why, sizeof f->why, "needs more memory than can be counted"), f->memory = 0;
}

/* Reads everything except whether enough memory is free now. */
static hearth_status read_facts(hub_machine *machine, const hub_model *model, hub_facts *facts,
                                hearth_error *why)
{
    hth_gguf *file = NULL;
    hth_model *opened = NULL;
    hth_str family = {"", 0};
    hearth_status st = hth_gguf_open(model->path, &file, why);
    if (st == HEARTH_OK) {
        snprintf(facts->type, sizeof facts->type, "%s", hub_main_type(file));
        if (hth_gguf_get_text(file, "general.architecture", &family, NULL, NULL) == HEARTH_OK)
            hth_escape(facts->family, sizeof facts->family, family.bytes, family.n);
        st = hth_model_open(file, &(hth_model_overrides){0}, &opened, why);
    }
    if (st == HEARTH_OK) look_at_model(machine, opened, model->path, facts);
    else set_error(facts, model->path, why);
    hth_model_close(opened);
    hth_gguf_close(file);
    return st;
}

hearth_status hub_look(hub_machine *machine, const hub_model *model, hub_facts *facts, hearth_error *err)
{
    uint64_t key = 0;
    hearth_error why;
    *facts = (hub_facts){.type = ""};
    if (model->n_missing > 0) {
        snprintf(facts->why, sizeof facts->why, "%u of its %u parts are not there", model->n_missing,
                 model->n_part);
        return HEARTH_OK;
    }
    bool has_key = key_of(model, &key);
    const hub_record *known = has_key ? find_record(machine, key) : NULL;
    if (known) {
        *facts = known->facts;
    } else {
        hearth_status st = read_facts(machine, model, facts, &why);
        if (st == HEARTH_ERROR_MEMORY) return hth_fail(err, st, "%s", why.message);
        bool is_whole = facts->memory == 0 || facts->speed > 0.0; /* rates can be measured another time */
        if (has_key && st != HEARTH_ERROR_IO && is_whole) add_record(machine, key, facts);
    }
    if (facts->memory > 0) weigh(&machine->facts, facts);
    return HEARTH_OK;
}
