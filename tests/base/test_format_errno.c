/* base/format_errno.h: texts of system errors, for numbers that exist and for others; errno stays. */
#include "base/format_errno.h"
#include "support/test.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

TEST(an_error_has_the_text_of_the_system)
{
    errno = EINTR;
    CHECK_TEXT(hth_format_errno(ENOENT).text, "No such file or directory");
    CHECK_TEXT(hth_format_errno(ENOSPC).text, "No space left on device");
    CHECK_INT(errno, EINTR);
}

TEST(every_number_has_a_text)
{
    static const int unknown[] = {4711, -1, INT_MAX, INT_MIN};
    errno = EINTR;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        hth_errno_text t = hth_format_errno(unknown[i]);
        CHECK(strlen(t.text) > 4 && strlen(t.text) < sizeof t.text - 1);
    }
    CHECK_INT(errno, EINTR);
}
