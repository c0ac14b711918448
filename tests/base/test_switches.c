/* Switches of the environment. */
#include "base/alloc.h"
#include "base/switches.h"
#include "measure/machine/machine.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

TEST(values_that_mean_nothing_are_refused)
{
    static const char *const names[] = {"HEARTH_PIN", "HEARTH_HUGE_PAGES"};
    static const char *const values[] = {"0", "1", "", "x", "00", "yes"};
    for (int n = 0; n < HTH_N_SWITCH; n++) {
        for (int i = 0; i < 6; i++) {
            char expected[50];
            hearth_error err = {0};
            setenv(names[n], values[i], 1);
            CHECK_INT(hth_switches_check(&err), i >= 3 ? HEARTH_ERROR_ARGUMENT : HEARTH_OK);
            CHECK_INT(hth_switch_is_on((hth_switch)n), i > 0);
            snprintf(expected, sizeof expected, "%s=%s: no such value", names[n], values[i]);
            if (i >= 3) CHECK(strstr(err.message, expected) != NULL);
        }
        unsetenv(names[n]);
        CHECK(hth_switch_is_on((hth_switch)n));
    }
}

/* With huge pages for all memory ("always") the system decides. */
TEST(memory_stays_on_ordinary_pages)
{
    hth_machine machine;
    hth_machine_read("", &machine);
    size_t size = (size_t)64 << 20;
    uint64_t before = hth_huge_page_bytes();
    setenv("HEARTH_HUGE_PAGES", "0", 1);
    char *p = hth_pages_alloc(size);
    unsetenv("HEARTH_HUGE_PAGES");
    CHECK(p != NULL);
    if (p) memset(p, 1, size);
    if (machine.huge != HTH_HUGE_ALWAYS) CHECK(hth_huge_page_bytes() <= before);
    hth_pages_free(p, size);
}
