/* base/distance.c: slips of the keyboard, counted. */
#include "base/distance.h"
#include "support/test.h"

TEST(each_slip_counts_once)
{
    CHECK_INT(hth_edit_distance("threads", "threads", false), 0);
    CHECK_INT(hth_edit_distance("threeds", "threads", false), 1);
    CHECK_INT(hth_edit_distance("thread", "threads", false), 1);
    CHECK_INT(hth_edit_distance("tthreads", "threads", false), 1);
    CHECK_INT(hth_edit_distance("therads", "threads", false), 1);
    CHECK_INT(hth_edit_distance("Threads", "threads", false), 1);
    CHECK_INT(hth_edit_distance("", "threads", false), 7);
    CHECK_INT(hth_edit_distance("threads", "", false), 7);
}

TEST(a_part_of_a_name_may_be_meant)
{
    CHECK_INT(hth_edit_distance("llama", "org/llama-3:Q4_0", true), 0);
    CHECK_INT(hth_edit_distance("lalma", "org/llama-3:Q4_0", true), 1);
    CHECK_INT(hth_edit_distance("q4-0", "q4_0", true), 1);
    CHECK_INT(hth_edit_distance("xyz", "org", true), 3);
    CHECK_INT(hth_edit_distance("", "org", true), 0);
    CHECK_INT(hth_edit_distance("xyz", "", true), 3);
}

TEST(of_long_names_the_beginning_counts)
{
    static char name[2 * HTH_DISTANCE_NAME];
    memset(name, 'a', sizeof name - 1);
    name[HTH_DISTANCE_NAME] = 'b';
    CHECK_INT(hth_edit_distance("b", name, true), 1);
    CHECK_INT(hth_edit_distance("", name, false), HTH_DISTANCE_NAME);
    name[HTH_DISTANCE_NAME - 1] = 'b';
    CHECK_INT(hth_edit_distance("b", name, true), 0);
}
