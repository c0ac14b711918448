/* Evaluates the facts of hearth doctor: each check_result is ok, or names one remedy. doctor.c calls it; it
 * measures nothing. */
#include "cli/device/doctor.h"
#include "common/options/field_names.h"

#include "base/format_bytes.h"
#include "base/pool.h"
#include "base/switches.h"
#include "device/driver_faults.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GB 1e-9

static void append(char *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char *out, const char *format, ...)
{
    size_t at = strlen(out);
    va_list list;
    va_start(list, format);
    vsnprintf(out + at, sizeof((check_result){0}.text) - at, format, list);
    va_end(list);
}

static void better(check_result *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void better(check_result *f, const char *format, ...)
{
    va_list list;
    if (!f->ok) return; /* keeps the first remedy */
    f->ok = false;
    va_start(list, format);
    vsnprintf(f->fix, sizeof f->fix, format, list);
    va_end(list);
}

/* ---- cores ---------------------------------------------------------------------------------- */

static void check_cpu(const system_info *d, check_result *f)
{
    append(f->text, "%s; kernels for %s", d->machine.cpu_name[0] ? d->machine.cpu_name : "unknown",
        hth_cpu_name(d->level));
    if (d->level != d->machine_level) {
        append(f->text, ", as HEARTH_CPU asks");
        better(f, "unset HEARTH_CPU: this machine has %s", hth_cpu_name(d->machine_level));
    } else if (d->lack) {
        append(f->text, ": it lacks %s", d->lack);
        if (strstr(d->lack, "by the system"))
            better(f, "switch these registers on in the kernel or the hypervisor");
    }
}

static void check_cores(const system_info *d, check_result *f)
{
    const hth_machine *m = &d->machine;
    uint32_t usual = hth_pool_default_threads(0);
    append(f->text, "%u physical, %u CPU%s of %u usable; %u thread%s by default", m->n_core, m->n_allowed,
        m->n_allowed == 1 ? "" : "s", m->n_online, usual, usual == 1 ? "" : "s");
    if (d->n_thread != usual) append(f->text, "; measured with %u", d->n_thread);
    if (d->n_thread > m->n_allowed)
        better(f, "more threads than CPUs wait for one another: use -t %u", m->n_allowed);
    if (m->cpu_quota > 0.0) append(f->text, "; quota %.1f CPUs", m->cpu_quota);
    if (m->n_allowed < m->n_online)
        better(f, "start hearth without taskset or a cpuset to use all %u CPUs", m->n_online);
    if (m->cpu_quota > 0.0 && m->cpu_quota < m->n_core)
        better(f, "raise the CPU quota of the control group (cpu.max), or use -t %d",
               m->cpu_quota < 1.0 ? 1 : (int)m->cpu_quota);
}

static void check_load(const system_info *d, check_result *f)
{
    const hth_cpu_load *l = &d->load;
    if (!d->load_known) {
        append(f->text, "not known: /proc/stat does not tell");
        return;
    }
    append(f->text, "other programs keep %.1f of %u CPUs busy", l->busy, d->machine.n_online);
    if (l->pid) append(f->text, ", most %s (%d)", l->name, l->pid);
    if (l->stolen >= 0.05) append(f->text, "; the host takes %.1f", l->stolen);
    if (l->busy >= 0.2 && l->pid)
        better(f, "stop what is not needed, %s first: figures and speed suffer", l->name);
    if (l->busy >= 0.2) better(f, "stop what is not needed: figures and speed suffer");
    if (l->stolen >= 0.2)
        better(f, "the host of this virtual machine is busy: wait, or ask for cores of your own");
}

/* ---- memory --------------------------------------------------------------------------------- */

static void check_memory(const system_info *d, check_result *f)
{
    const hth_machine *m = &d->machine;
    append(f->text, "%s, %s free", hth_format_bytes(m->memory.total).text, hth_format_bytes(m->memory.available).text);
    if (m->memory.group_limit)
        append(f->text, "; control group grants %s, %s used", hth_format_bytes(m->memory.group_limit).text,
               hth_format_bytes(m->memory.group_used).text);
    if (d->path && !d->mmap)
        append(f->text, "; a run takes %s", hth_format_bytes(d->weight_bytes + d->session_bytes).text);
    if (d->path && !d->fits)
        better(f, "take --ram auto, a smaller type (hearth quantize), or close other programs");
    if (m->memory.total && m->memory.available < m->memory.total / 10)
        better(f, "close other programs: less than a tenth is free");
}

static void check_huge_pages(const system_info *d, check_result *f)
{
    static const char *const modes[] = {"the kernel has none", "never", "on request (madvise)", "always"};
    append(f->text, "%s", modes[d->machine.huge]);
    if (d->opened && !d->mmap && d->weight_bytes) {
        double share = (double)d->huge_bytes / (double)d->weight_bytes;
        append(f->text, "; weights: %.0f %% of %s on them", share > 1.0 ? 100.0 : 100.0 * share,
            hth_format_bytes(d->weight_bytes).text);
        if (!hth_switch_is_on(HTH_SWITCH_HUGE_PAGES)) append(f->text, ", as HEARTH_HUGE_PAGES asks");
        else if (d->machine.huge >= HTH_HUGE_MADVISE && share < 0.9 && d->weight_bytes >= (uint64_t)64 << 20)
            better(f, "free memory is in pieces: echo 1 | sudo tee /proc/sys/vm/compact_memory");
    }
    if (d->opened && d->mmap) {
        append(f->text, "; a mapped model gets none");
        better(f, "leave --io mmap out where memory allows it");
    }
    if (d->machine.huge == HTH_HUGE_NEVER)
        better(f, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    if (d->machine.huge == HTH_HUGE_UNKNOWN) better(f, "use a kernel built with transparent huge pages");
}

static void check_bandwidth(const system_info *d, check_result *f)
{
    append(f->text, "%.1f GB/s by one thread", d->one.median * GB);
    if (d->n_thread > 1)
        append(f->text, ", %.1f (%.1f-%.1f) by %u", d->all.median * GB, d->all.min * GB, d->all.max * GB,
            d->n_thread);
    const hth_sample_stats *s = d->n_thread > 1 ? &d->all : &d->one;
    if (s->max > 1.4 * s->min) better(f, "it varies: measure again when nothing else is at work");
}

/* ---- limits, storage ------------------------------------------------------------------------ */

static void format_limit(char *out, const char *what, uint64_t bytes)
{
    if (bytes == UINT64_MAX) append(out, "%s unlimited", what);
    else append(out, "%s %s", what, hth_format_bytes(bytes).text);
}

static void check_limits(const system_info *d, check_result *f)
{
    static const char *const modes[] = {"guessed", "always", "never"};
    format_limit(f->text, "address space", d->address_limit);
    format_limit(f->text, ", locked memory", d->locked_limit);
    uint32_t overcommit = d->machine.memory.overcommit;
    append(f->text, "; overcommit %s", overcommit < 3 ? modes[overcommit] : "unknown");
    if (d->address_limit != UINT64_MAX) better(f, "lift the limit in this shell: ulimit -v unlimited");
    if (overcommit == 2)
        better(f, "large models may be refused with memory left: sudo sysctl vm.overcommit_memory=0");
}

static void check_gpu(const system_info *d, check_result *f)
{
    const doctor_gpu *g = &d->gpu;
    uint64_t is_free = hth_device_free_memory(&g->info);
    if (g->is_left_out) {
        append(f->text, "not looked at, as asked for: the CPU does all of it");
        return;
    }
    if (g->failed) {
        append(f->text, "%s", g->problem);
        better(f, g->found ? "measure again; docs/gpu.md says what drivers want"
                           : "hearth devices lists what there is; docs/gpu.md says what is needed");
        return;
    }
    if (!g->found) {
        append(f->text, "%s%s%s", g->info.name[0] ? g->info.name : "no discrete GPU: the CPU does all of it",
            g->problem[0] ? "; " : "", g->problem);
        if (g->info.name[0]) better(f, "a newer driver may help; docs/gpu.md says what is needed");
        return;
    }
    if (g->problem[0]) {
        append(f->text, "%s: %s", g->info.name, g->problem);
        better(f, "hearth devices lists others; docs/gpu.md says what is needed");
        return;
    }
    append(f->text, "%s, ", g->info.name);
    if (is_free == UINT64_MAX) append(f->text, "memory without a limit");
    else append(f->text, "%s free", hth_format_bytes(is_free).text);
    if (is_free == 0) better(f, "no model has room there: a twentieth, at least 256 to 512 MiB, is left to others");
    for (size_t i = 0; i < g->n_calibration; i++) {
        double rate = g->calibrations[i].device_rate.median * GB;
        append(f->text, "%s %s %.*f GB/s", i ? "," : "; rows of",
            hth_type_find((uint32_t)g->calibrations[i].type)->name, rate < 10.0 ? 2 : 0, rate);
    }
    if (g->n_calibration > 0) {
        const hth_calibration *c = &g->calibrations[0];
        append(f->text, "; handoff %.0f us", c->sync_latency[hth_calibration_submit_mode(c)] * 1e6);
    }
}

static void check_driver(const system_info *d, check_result *f)
{
    const hth_device_info *info = &d->gpu.info;
    char version[48];
    size_t n = 0;
    hth_driver_version_format(hth_driver_version_of(info), version);
    append(f->text, "%s, version %s", info->driver, version);
    for (const hth_driver_fault *known = NULL; (known = hth_driver_fault_next(info, known)); n++)
        if (known->remedy) better(f, "%s", with_options(known->remedy).text);
    if (n > 0) append(f->text, "; %zu known fault%s, below", n, n == 1 ? "" : "s");
    else append(f->text, "; no fault of it is known");
}

static void check_disk(const system_info *d, check_result *f)
{
    if (d->disk_rate <= 0.0) {
        append(f->text, "not known: this file cannot be read past the page cache");
        return;
    }
    double seconds = (double)d->weight_bytes / d->disk_rate;
    append(f->text, "%.2f GB/s; the first load of %s takes %.1f s", d->disk_rate * GB,
        hth_format_bytes(d->weight_bytes).text, seconds);
    if (seconds > 20.0) better(f, "keep the file on a faster disk");
}

size_t doctor_check(const system_info *d, check_result out[DOCTOR_MAX_FINDING])
{
    static const struct {
        const char *name;
        void (*check)(const system_info *, check_result *);
        bool of_model, of_driver;
    } checks[] = {
        {"cpu", check_cpu, false, false},
        {"cores", check_cores, false, false},
        {"load", check_load, false, false},
        {"memory", check_memory, false, false},
        {"huge pages", check_huge_pages, false, false},
        {"bandwidth", check_bandwidth, false, false},
        {"limits", check_limits, false, false},
        {"gpu", check_gpu, false, false},
        {"driver", check_driver, false, true},
        {"disk", check_disk, true, false},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].of_model && !d->path) continue;
        if (checks[i].of_driver && d->gpu.info.driver_id == 0) continue;
        out[n] = (check_result){.name = checks[i].name, .ok = true};
        checks[i].check(d, &out[n++]);
    }
    return n;
}
