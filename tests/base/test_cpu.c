/* base/system/cpu.c: HEARTH_CPU lowers the level, and refuses what cannot be. */
#include "base/system/cpu.h"
#include "support/test.h"

static const hth_cpu all[] = {HTH_CPU_GENERIC, HTH_CPU_AVX2,    HTH_CPU_AVX512,
                              HTH_CPU_NEON,    HTH_CPU_DOTPROD, HTH_CPU_I8MM};

TEST(without_an_override_the_level_is_that_of_the_machine)
{
    hth_cpu level = HTH_CPU_GENERIC;
    unsetenv("HEARTH_CPU");
    CHECK_OK(hth_cpu_choose(NULL, &level, err));
    CHECK_INT(level, hth_cpu_detect());
    setenv("HEARTH_CPU", "", 1);
    CHECK_OK(hth_cpu_choose(NULL, &level, err));
    CHECK_INT(level, hth_cpu_detect());
    unsetenv("HEARTH_CPU");
}

#if defined(__x86_64__)
TEST(the_system_names_the_same_vendor_and_family)
{
    char text[4096];
    if (getenv("HEARTH_EMULATED")) {
        test_note("an emulator shows the host's /proc/cpuinfo");
        return;
    }
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) {
        test_skip("no /proc/cpuinfo");
        return;
    }
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    const char *maker = strstr(text, "vendor_id"), *family = strstr(text, "cpu family");
    bool amd = maker && family && strncmp(strchr(maker, ':') + 2, "AuthenticAMD", 12) == 0;
    CHECK_INT(hth_cpu_amd_family(), amd ? strtol(strchr(family, ':') + 1, NULL, 10) : 0);
}
#else /* emulators show the processors that they run on */
TEST(another_architecture_is_not_amd_s) { CHECK_INT(hth_cpu_amd_family(), 0); }
#endif

TEST(an_override_applies_where_the_machine_has_the_level)
{
    hth_cpu machine = hth_cpu_detect();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hearth_error err = {0};
        hth_cpu level = HTH_CPU_GENERIC;
        setenv("HEARTH_CPU", hth_cpu_name(all[i]), 1);
        hearth_status status = hth_cpu_choose(NULL, &level, &err);
        if (hth_cpu_has(machine, all[i])) {
            CHECK_INT(status, HEARTH_OK);
            CHECK_INT(level, all[i]);
        } else {
            CHECK_INT(status, HEARTH_ERROR_ARGUMENT);
            CHECK(strstr(err.message, hth_cpu_name(all[i])) && strstr(err.message, hth_cpu_name(machine)));
        }
    }
    unsetenv("HEARTH_CPU");
}

TEST(an_unknown_override_is_refused)
{
    static const char *const wrong[] = {"AVX2", "avx", "avx512 ", "sse2", "0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hearth_error err = {0};
        hth_cpu level;
        setenv("HEARTH_CPU", wrong[i], 1);
        CHECK_INT(hth_cpu_choose(NULL, &level, &err), HEARTH_ERROR_ARGUMENT);
        CHECK(strstr(err.message, wrong[i]) && strstr(err.message, "generic"));
    }
    unsetenv("HEARTH_CPU");
}

TEST(levels_of_the_other_architecture_are_never_had)
{
    CHECK(!hth_cpu_has(HTH_CPU_DOTPROD, HTH_CPU_AVX2) && !hth_cpu_has(HTH_CPU_AVX512, HTH_CPU_NEON));
    CHECK(hth_cpu_has(HTH_CPU_AVX512, HTH_CPU_AVX2) && hth_cpu_has(HTH_CPU_DOTPROD, HTH_CPU_NEON));
    CHECK(!hth_cpu_has(HTH_CPU_AVX2, HTH_CPU_AVX512) && !hth_cpu_has(HTH_CPU_NEON, HTH_CPU_DOTPROD));
    CHECK(hth_cpu_has(HTH_CPU_I8MM, HTH_CPU_DOTPROD) && !hth_cpu_has(HTH_CPU_DOTPROD, HTH_CPU_I8MM));
    CHECK(!hth_cpu_has(HTH_CPU_GENERIC, HTH_CPU_AVX2) && hth_cpu_has(HTH_CPU_GENERIC, HTH_CPU_GENERIC));
}

TEST(only_the_highest_levels_lack_nothing)
{
    hth_cpu machine = hth_cpu_detect();
    const char *lack = hth_cpu_missing_feature();
    CHECK((machine == HTH_CPU_AVX512 || machine == HTH_CPU_I8MM) == (lack == NULL));
    if (lack) CHECK(strlen(lack) > 2);
}

/* Set where a machine is emulated for its levels, so that none is left out unseen. */
TEST(the_machine_has_the_level_that_is_expected_of_it)
{
    const char *expected = getenv("HEARTH_EXPECT_CPU"), *machine = hth_cpu_name(hth_cpu_detect());
    CHECK_TEXT(machine, expected ? expected : machine);
}
