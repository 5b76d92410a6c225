#define _GNU_SOURCE
#include "usage.h"

#include "cgroup.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_SIZE = TEXT_SIZE + 16 };

static void name_of(const char *gpu_uuid, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "gpusim:%s", gpu_uuid);
}

/* This process's own file of a GPU, made if there is none; -1 where none can be made. */
static int own_file(const char *gpu_uuid)
{
    static struct {
        char name[NAME_SIZE];
        int file;
    } files[MAX_GPUS];
    static size_t count;
    char name[NAME_SIZE];
    name_of(gpu_uuid, name);
    for (size_t i = 0; i < count; i++)
        if (strcmp(files[i].name, name) == 0)
            return files[i].file;
    if (count == MAX_GPUS)
        return -1;
    memcpy(files[count].name, name, sizeof(name));
    files[count].file = memfd_create(name, MFD_CLOEXEC);
    return files[count].file < 0 ? -1 : files[count++].file;
}

bool usage_add(const char *gpu_uuid, int64_t bytes)
{
    struct stat status;
    int file = own_file(gpu_uuid);
    if (file < 0 || fstat(file, &status) != 0)
        return false;
    return ftruncate(file, status.st_size + bytes < 0 ? 0 : status.st_size + bytes) == 0;
}

uint64_t usage_own(const char *gpu_uuid)
{
    struct stat status;
    int file = own_file(gpu_uuid);
    return file >= 0 && fstat(file, &status) == 0 ? (uint64_t)status.st_size : 0;
}

/* Bytes that one process has, by its files. */
static uint64_t usage_of_process(const char *pid, const char *name)
{
    char folder[64], path[128], target[NAME_SIZE + 32], wanted[NAME_SIZE + 32];
    uint64_t bytes = 0;
    snprintf(folder, sizeof(folder), "/proc/%.16s/fd", pid);
    snprintf(wanted, sizeof(wanted), "/memfd:%s (deleted)", name);
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        struct stat status;
        snprintf(path, sizeof(path), "%s/%.16s", folder, entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        target[length < 0 ? 0 : length] = '\0';
        if (strcmp(target, wanted) == 0 && stat(path, &status) == 0)
            bytes += (uint64_t)status.st_size;
    }
    if (files)
        closedir(files);
    return bytes;
}

uint64_t usage_of_group(const char *gpu_uuid, const char *path)
{
    char name[NAME_SIZE], group[CGROUP_PATH_SIZE];
    uint64_t bytes = 0;
    name_of(gpu_uuid, name);
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));)
        if (isdigit((unsigned char)entry->d_name[0]) && cgroup_of_process(entry->d_name, group) &&
            cgroup_is_within(group, path))
            bytes += usage_of_process(entry->d_name, name);
    if (processes)
        closedir(processes);
    return bytes;
}
