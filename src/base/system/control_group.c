/* Finds control groups by /proc/self/cgroup: lines "0::/group" of version 2, "4:cpu,cpuacct:/group" of version 1. In a
 * container the group may have no folder below the mount; what it can see is the mount itself. */
#include "base/system/control_group.h"

#include "base/system/system_file.h"

#include <stdio.h>
#include <string.h>

/* Visits the folders from the group's own up to the controller's. */
static void walk_up(const char *mount, const char *group, hth_control_group_fn *visit, void *user)
{
    char folder[HTH_SYSTEM_PATH];
    size_t floor = strlen(mount), n = strcspn(group, "\n");
    if (floor + n >= sizeof folder) return;
    memcpy(folder, mount, floor);
    memcpy(folder + floor, group, n);
    for (n += floor;; n--) {
        while (n > floor && folder[n - 1] == '/') n--;
        folder[n] = '\0';
        visit(folder, user);
        while (n > floor && folder[n - 1] != '/') n--;
        if (n <= floor) return;
    }
}

static bool has_word(const char *list, const char *end, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p < end; p += strcspn(p, ",:") + 1)
        if (strcspn(p, ",:") == n && memcmp(p, word, n) == 0) return true;
    return false;
}

void hth_control_group_visit(const char *root, const char *controller, hth_control_group_fn *v1,
                             hth_control_group_fn *v2, void *user)
{
    char groups[HTH_SYSTEM_TEXT], mount[HTH_SYSTEM_PATH];
    if (strlen(root) > HTH_SYSTEM_PATH / 2 || !hth_system_read(root, "/proc/self/cgroup", groups)) return;
    for (const char *line = groups; *line;) {
        const char *end = line + strcspn(line, "\n"), *list = strchr(line, ':'), *group;
        if (!list || list >= end || !(group = strchr(list + 1, ':')) || group >= end) return;
        list++;
        if (list == group) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            walk_up(mount, group + 1, v2, user);
        } else if (has_word(list, group, controller)) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controller);
            walk_up(mount, group + 1, v1, user);
        }
        line = end + (*end == '\n');
    }
}
