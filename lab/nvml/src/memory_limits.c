/* NVML: limits of a control group's memory on a GPU, which drivers have from branch 615 on (CUDA 13.4).
 *
 * As NVIDIA documents it (nvmlSetMemoryLimits_v1_t, and "MPS v3 Memory Partitioning"): root sets, everybody reads; not
 * on MIG; soft <= hard <= the GPU's memory; soft 0 and hard MAX is no limit; a group that is removed loses its own; one
 * without a limit reads the nearest of the groups around it. The limits of all of them hold, as with the kernel's dmem.
 */
#include "call.h"
#include "cgroup.h"
#include "driver.h"
#include "state.h"
#include "usage.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES_SIZE = 1024 * MAX_LIMITS };

static bool has_limits(const struct call *call)
{
    unsigned from = call->machine->memory_limits_from;
    return from > 0 && atoi(driver_version(call->machine)) >= (int)from && !call->gpu->mig_enabled;
}

static void add_lines(char *lines, size_t number, const struct memory_limit *limit)
{
    size_t length = strlen(lines);
    snprintf(lines + length, LINES_SIZE - length,
             "limit%zu.gpu=%u\nlimit%zu.cgroup=%" PRIu64 "\nlimit%zu.path=%s\nlimit%zu.soft=%" PRIu64
             "\nlimit%zu.hard=%" PRIu64 "\n",
             number, limit->gpu, number, limit->cgroup, number, limit->path, number, limit->soft, number, limit->hard);
}

/* The machine's limits with one of them changed, and without those of groups that are gone. */
static char *render(const struct machine *machine, const void *argument)
{
    const struct memory_limit *changed = argument;
    char *lines = calloc(1, LINES_SIZE);
    size_t count = 0;
    for (size_t i = 0; lines && i < machine->limit_count; i++) {
        const struct memory_limit *limit = &machine->limits[i];
        bool is_other = limit->gpu != changed->gpu || limit->cgroup != changed->cgroup;
        if (is_other && cgroup_id(machine, limit->path) == limit->cgroup)
            add_lines(lines, count++, limit);
    }
    if (lines && count < MAX_LIMITS && (changed->soft > 0 || changed->hard < NVML_MEMORY_LIMIT_MAX))
        add_lines(lines, count, changed);
    return lines;
}

NVML_API nvml_return nvmlDeviceSetMemoryLimits_v1(nvml_device device, struct nvml_set_memory_limits *limits)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(limits && limits->cgroup);
    if (!has_limits(&call))
        return NVML_ERROR_NOT_SUPPORTED;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    bool is_max = limits->hard == NVML_MEMORY_LIMIT_MAX;
    REQUIRE(limits->soft <= limits->hard && (is_max || limits->hard <= call.gpu->memory_total));
    const char *path = cgroup_below_root(call.machine, limits->cgroup);
    struct memory_limit changed = {.gpu = (unsigned)(call.gpu - call.machine->gpus), .soft = limits->soft,
                                   .hard = limits->hard};
    if (!path || strlen(path) >= sizeof(changed.path))
        return NVML_ERROR_NOT_FOUND;
    strcpy(changed.path, path);
    changed.cgroup = cgroup_id(call.machine, path);
    return state_replace("limit", render, &changed) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

NVML_API nvml_return nvmlDeviceGetMemoryLimits_v1(nvml_device device, struct nvml_memory_limits *limits)
{
    char group[CGROUP_PATH_SIZE];
    CALL(call_gpu(__func__, device));
    REQUIRE(limits && limits->cgroup);
    if (!has_limits(&call))
        return NVML_ERROR_NOT_SUPPORTED;
    const char *path = cgroup_below_root(call.machine, limits->cgroup);
    if (!path)
        return NVML_ERROR_NOT_FOUND;
    limits->soft = 0;
    limits->hard = NVML_MEMORY_LIMIT_MAX;
    limits->used = usage_of_group(call.gpu->uuid, path);
    snprintf(group, sizeof(group), "%s", path);
    do {
        const struct memory_limit *found =
            cgroup_limit(call.machine, (unsigned)(call.gpu - call.machine->gpus), group);
        if (found) {
            limits->soft = found->soft;
            limits->hard = found->hard;
            return NVML_SUCCESS;
        }
    } while (cgroup_to_parent(group));
    return NVML_SUCCESS;
}
