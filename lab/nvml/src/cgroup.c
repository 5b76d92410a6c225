#include "cgroup.h"

#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

const char *cgroup_below_root(const struct machine *machine, const char *path)
{
    struct statfs system;
    struct stat status;
    size_t length = strlen(machine->cgroup_root);
    if (strncmp(path, machine->cgroup_root, length) != 0 || (path[length] != '/' && path[length] != '\0') ||
        strstr(path, "/.."))
        return NULL;
    if (statfs(path, &system) != 0 || system.f_type != CGROUP2_SUPER_MAGIC)
        return NULL;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? path + length : NULL;
}

uint64_t cgroup_id(const struct machine *machine, const char *path)
{
    char full[CGROUP_PATH_SIZE + PATH_SIZE];
    struct statfs system;
    struct stat status;
    snprintf(full, sizeof(full), "%s%s", machine->cgroup_root, path);
    bool is_group = statfs(full, &system) == 0 && system.f_type == CGROUP2_SUPER_MAGIC && stat(full, &status) == 0;
    return is_group ? status.st_ino : 0;
}

bool cgroup_of_process(const char *pid, char path[CGROUP_PATH_SIZE])
{
    char file[64], line[CGROUP_PATH_SIZE + 16];
    snprintf(file, sizeof(file), "/proc/%.16s/cgroup", pid);
    FILE *groups = fopen(file, "re");
    bool found = false;
    while (groups && !found && fgets(line, sizeof(line), groups)) {
        line[strcspn(line, "\n")] = '\0';
        found = strncmp(line, "0::/", 4) == 0;
    }
    if (groups)
        fclose(groups);
    if (!found || strlen(line + 3) >= CGROUP_PATH_SIZE)
        return false;
    strcpy(path, line[4] ? line + 3 : "");
    return true;
}

bool cgroup_is_within(const char *path, const char *outer)
{
    size_t length = strlen(outer);
    return strncmp(path, outer, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

bool cgroup_to_parent(char *path)
{
    char *name = strrchr(path, '/');
    if (name)
        *name = '\0';
    return name != NULL;
}

const struct memory_limit *cgroup_limit(const struct machine *machine, unsigned gpu, const char *path)
{
    uint64_t id = machine->limit_count > 0 ? cgroup_id(machine, path) : 0;
    for (size_t i = 0; id && i < machine->limit_count; i++)
        if (machine->limits[i].gpu == gpu && machine->limits[i].cgroup == id)
            return &machine->limits[i];
    return NULL;
}
