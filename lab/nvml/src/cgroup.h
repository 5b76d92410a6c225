/* Control groups (cgroup v2) as the library sees them: below the machine's `cgroup_root`, by path or by process.
 *
 * A limit is kept by the inode of the group's folder, as a container sees its own group as the root of the hierarchy.
 */
#ifndef GPUSIM_CGROUP_H
#define GPUSIM_CGROUP_H

#include "machine.h"

#include <stdbool.h>

enum { CGROUP_PATH_SIZE = 4096 };

/* The path below cgroup_root of a full path, "" for the root; NULL where that is not a folder of cgroup v2. */
const char *cgroup_below_root(const struct machine *machine, const char *path);

/* The inode of a group by its path below cgroup_root; 0 where there is none. */
uint64_t cgroup_id(const struct machine *machine, const char *path);

/* The path of a process's group ("self" or a number), "" for the root; false where there is none. */
bool cgroup_of_process(const char *pid, char path[CGROUP_PATH_SIZE]);

/* Whether a group is another one or below it. */
bool cgroup_is_within(const char *path, const char *outer);

/* Shortens a path by its last name; false for the root. */
bool cgroup_to_parent(char *path);

/* The limit of a group on a GPU, NULL without one. */
const struct memory_limit *cgroup_limit(const struct machine *machine, unsigned gpu, const char *path);

#endif
