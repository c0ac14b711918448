/* CPU levels. On x86 the operating system must also save the wide registers, which XCR0 reports. On AArch64 the
 * kernel lists the features in the auxiliary vector. */
#define _GNU_SOURCE
#include "base/system/cpu.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Words of cpuid and XCR0; all zero on CPUs too old to have them. */
enum { LEAF_1_C, XCR0, LEAF_7_B, LEAF_7_C, N_WORD };

static void read_words(unsigned word[N_WORD])
{
    unsigned a, b, c, d, high;
    for (int i = 0; i < N_WORD; i++) word[i] = 0;
    if (!__get_cpuid(1, &a, &b, &word[LEAF_1_C], &d) || !(word[LEAF_1_C] & bit_OSXSAVE)) return;
    __asm__("xgetbv" : "=a"(word[XCR0]), "=d"(high) : "c"(0));
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        word[LEAF_7_B] = b;
        word[LEAF_7_C] = c;
    }
}

/* The features of each level, lowest level first. */
static const struct feature {
    hth_cpu level;
    unsigned word, bits;
    const char *name;
} features[] = {
    {HTH_CPU_AVX2, LEAF_1_C, bit_OSXSAVE, "XSAVE switched on by the system"},
    {HTH_CPU_AVX2, LEAF_1_C, bit_AVX, "AVX"},
    {HTH_CPU_AVX2, LEAF_1_C, bit_FMA, "FMA"},
    {HTH_CPU_AVX2, LEAF_1_C, bit_F16C, "F16C"},
    {HTH_CPU_AVX2, XCR0, 0x6, "256-bit registers saved by the system"},
    {HTH_CPU_AVX2, LEAF_7_B, bit_AVX2, "AVX2"},
    {HTH_CPU_AVX2, LEAF_7_B, bit_BMI | bit_BMI2, "BMI2"},
    {HTH_CPU_AVX512, LEAF_7_B, bit_AVX512F, "AVX-512"},
    {HTH_CPU_AVX512, XCR0, 0xe6, "512-bit registers saved by the system"},
    {HTH_CPU_AVX512, LEAF_7_B, bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD,
     "AVX-512 BW, DQ, VL and CD"},
    {HTH_CPU_AVX512, LEAF_7_C, bit_AVX512VNNI, "AVX-512 VNNI"},
    {HTH_CPU_AVX512, LEAF_7_C, bit_AVX512VBMI, "AVX-512 VBMI"},
    {HTH_CPU_AVX512, LEAF_7_C, bit_AVX512VBMI2, "AVX-512 VBMI2"},
};

/* The first feature that the machine lacks, or NULL. */
static const struct feature *first_missing(void)
{
    unsigned word[N_WORD];
    read_words(word);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if ((word[features[i].word] & features[i].bits) != features[i].bits) return &features[i];
    return NULL;
}

hth_cpu hth_cpu_detect(void)
{
    const struct feature *missing = first_missing();
    return !missing ? HTH_CPU_AVX512 : missing->level == HTH_CPU_AVX512 ? HTH_CPU_AVX2 : HTH_CPU_GENERIC;
}

const char *hth_cpu_missing_feature(void)
{
    const struct feature *missing = first_missing();
    return missing ? missing->name : NULL;
}

bool hth_cpu_has_bf16_dot(void)
{
    unsigned a, b, c, d;
    return hth_cpu_detect() == HTH_CPU_AVX512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

unsigned hth_cpu_amd_family(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx ||
        d != signature_AMD_edx || !__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    unsigned family = a >> 8 & 15;
    return family == 15 ? family + (a >> 20 & 255) : family;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

unsigned hth_cpu_amd_family(void) { return 0; }
bool hth_cpu_has_bf16_dot(void) { return getauxval(AT_HWCAP2) >> 14 & 1; /* HWCAP2_BF16 */ }

hth_cpu hth_cpu_detect(void)
{
    const unsigned long asimddp = 1ul << 20, i8mm = 1ul << 13; /* HWCAP_ASIMDDP, HWCAP2_I8MM */
    if (!(getauxval(AT_HWCAP) & asimddp)) return HTH_CPU_NEON;
    return getauxval(AT_HWCAP2) & i8mm ? HTH_CPU_I8MM : HTH_CPU_DOTPROD;
}

const char *hth_cpu_missing_feature(void)
{
    hth_cpu machine = hth_cpu_detect();
    if (machine == HTH_CPU_I8MM) return NULL;
    return machine == HTH_CPU_DOTPROD ? "smmla (FEAT_I8MM)" : "sdot (FEAT_DotProd)";
}
#else
hth_cpu hth_cpu_detect(void) { return HTH_CPU_GENERIC; }
const char *hth_cpu_missing_feature(void) { return "kernels of this program for its architecture"; }
bool hth_cpu_has_bf16_dot(void) { return false; }
unsigned hth_cpu_amd_family(void) { return 0; }
#endif

static const char *const names[] = {"generic", "avx2", "avx512", "neon", "dotprod", "i8mm"};

const char *hth_cpu_name(hth_cpu level) { return names[level]; }

int hth_cpu_has(hth_cpu machine, hth_cpu level)
{
    if (level == HTH_CPU_GENERIC) return 1;
    bool arm = machine >= HTH_CPU_NEON;
    return (level >= HTH_CPU_NEON) == arm && level <= machine;
}

hearth_status hth_cpu_choose(const char *asked, hth_cpu *level, hearth_error *err)
{
    hth_cpu machine = hth_cpu_detect();
    const char *name = asked ? asked : getenv("HEARTH_CPU"),
               *from = asked ? "hearth_model_options.cpu is " : "HEARTH_CPU=";
    if (!name || (!asked && !*name)) {
        *level = machine;
        return HEARTH_OK;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        if (!hth_cpu_has(machine, (hth_cpu)i))
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "%s%s: this machine has %s; unset it or name a lower level", from, name,
                            names[machine]);
        *level = (hth_cpu)i;
        return HEARTH_OK;
    }
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s%.100s: no such level; known: generic, avx2, avx512, neon, dotprod, i8mm", from, name);
}
