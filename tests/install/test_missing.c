/* A case that lacks its test data fails and says what makes them: seen from outside, by
 * running this case once more in a process of its own. */
#include "support/test.h"

#include <sys/wait.h>

static bool in_child;

static void lack_data(void)
{
    CHECK(test_data("models/stories260K/stories260K-f32.gguf") && test_data("golden/files"));
    if (test_n_failed() > 0) _exit(2);
    if (test_data("golden/no-such-file.gguf") || test_n_failed() != 1) _exit(3);
}

TEST(a_case_without_its_data_fails)
{
    char *argv[] = {(char[]){"test_missing"}, (char[]){"a_case_without_its_data_fails"}, NULL};
    const char *said = test_scratch("said");
    if (in_child) {
        lack_data();
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        in_child = true;
        unsetenv("HEARTH_TEST_REPORT");
        if (!freopen(said, "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(4);
        exit(test_run_all(2, argv));
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 1);
    FREED char *text = test_read_file(said, NULL);
    CHECK(text && strstr(text, "no golden/no-such-file.gguf in tests/data") && strstr(text, "make.py build/data"));
}
