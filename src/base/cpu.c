/* CPU levels. On x86 the system must save the wide registers too, which XCR0
 * says; on AArch64 the kernel lists what it has in the auxiliary vector. */
#define _GNU_SOURCE
#include "base/cpu.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

static bool all(unsigned value, unsigned bits) { return (value & bits) == bits; }

hth_cpu hth_cpu_machine(void)
{
    unsigned a, b, c, d, c1, xcr0, high;
    if (!__get_cpuid(1, &a, &b, &c1, &d)) return HTH_CPU_GENERIC;
    if (!all(c1, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return HTH_CPU_GENERIC;
    __asm__("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    if (!all(xcr0, 0x6) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return HTH_CPU_GENERIC;
    if (!all(b, bit_AVX2 | bit_BMI | bit_BMI2)) return HTH_CPU_GENERIC;
    bool wide = all(xcr0, 0xe6) &&
                all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD) &&
                all(c, bit_AVX512VNNI | bit_AVX512VBMI | bit_AVX512VBMI2);
    return wide ? HTH_CPU_AVX512 : HTH_CPU_AVX2;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

hth_cpu hth_cpu_machine(void)
{
    const unsigned long asimddp = 1ul << 20; /* HWCAP_ASIMDDP */
    return getauxval(AT_HWCAP) & asimddp ? HTH_CPU_DOTPROD : HTH_CPU_NEON;
}
#else
hth_cpu hth_cpu_machine(void) { return HTH_CPU_GENERIC; }
#endif

static const char *const names[] = {"generic", "avx2", "avx512", "neon", "dotprod"};

const char *hth_cpu_name(hth_cpu level) { return names[level]; }

int hth_cpu_has(hth_cpu machine, hth_cpu level)
{
    if (level == HTH_CPU_GENERIC) return 1;
    bool arm = machine >= HTH_CPU_NEON;
    return (level >= HTH_CPU_NEON) == arm && level <= machine;
}

hearth_status hth_cpu_choose(hth_cpu *level, hearth_error *err)
{
    hth_cpu machine = hth_cpu_machine();
    const char *wish = getenv("HEARTH_CPU");
    if (!wish || !*wish) {
        *level = machine;
        return HEARTH_OK;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(wish, names[i]) != 0) continue;
        if (!hth_cpu_has(machine, (hth_cpu)i))
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "HEARTH_CPU=%s: this machine has %s; unset it or name a lower level", wish,
                            names[machine]);
        *level = (hth_cpu)i;
        return HEARTH_OK;
    }
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "HEARTH_CPU=%s: no such level; known: generic, avx2, avx512, neon, dotprod", wish);
}
