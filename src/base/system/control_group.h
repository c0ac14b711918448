/* The control groups of this process. A limit applies from the group itself and from every group above it. */
#ifndef HTH_BASE_CONTROL_GROUP_H
#define HTH_BASE_CONTROL_GROUP_H

/* Gets the folder of a group; its files have the names of version 1 or 2. */
typedef void hth_control_group_fn(const char *folder, void *user);

/* Calls v1 or v2 for the process's own group of a controller ("memory") and those above it. root is the prefix of every
 * path: "" for this machine, a folder in tests. */
void hth_control_group_visit(const char *root, const char *controller, hth_control_group_fn *v1,
                             hth_control_group_fn *v2, void *user);

#endif
