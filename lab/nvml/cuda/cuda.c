/* CUDA's driver library, as far as one allocation needs it: the memory of a simulated GPU is this process's own.
 *
 * A failure of the machine with the name of a function here (without _v2) gives its code, for one GPU or for all; code
 * -1 is a call that never returns, code -2 a copy that gives back something else than was written. A GPU that fails with
 * everything (`*`) is not there. What a process allocates counts for the limits of its control group and of those around
 * it (memory_limits.c); past one of them there is no memory. Where no group is to be seen, there is no limit. A client of
 * MPS also keeps to the ceiling that its server has for each process.
 */
#define _GNU_SOURCE
#include "api.h"
#include "mps.h"

#include "../src/cgroup.h"
#include "../src/driver.h"
#include "../src/state.h"
#include "../src/usage.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { CODE_HANGS = -1, CODE_WRONG_DATA = -2 };

struct context {
    unsigned gpu; /* place in the machine */
};

static bool is_initialised;
static unsigned device_count, devices[MAX_GPUS]; /* places in the machine of what is visible */
static struct context *current;

static cu_result failure(const char *function, int gpu)
{
    const struct machine *machine = state_machine();
    for (size_t i = 0; machine && i < machine->failure_count; i++) {
        const struct failure *found = &machine->failures[i];
        bool is_here = found->gpu < 0 || found->gpu == gpu;
        if (strcmp(found->function, function) == 0 && is_here && driver_fails(machine, found)) {
            while (found->code == CODE_HANGS)
                pause();
            return found->code;
        }
    }
    return CUDA_SUCCESS;
}

static bool is_lost(const struct machine *machine, unsigned gpu)
{
    for (size_t i = 0; i < machine->failure_count; i++)
        if (strcmp(machine->failures[i].function, "*") == 0 && machine->failures[i].gpu == (int)gpu &&
            driver_fails(machine, &machine->failures[i]))
            return true;
    return false;
}

/* The node stays open, as in the real library: this is how a process shows that it holds a GPU. */
static bool open_node(const struct machine *machine, const char *name)
{
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof(path), "%s/%s", machine->dev_root, name);
    return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0 || errno == ENXIO;
}

static bool has_uvm(const struct machine *machine)
{
    char path[PATH_SIZE + 32];
    struct statfs system;
    snprintf(path, sizeof(path), "%s/module", machine->sys_root);
    if (strcmp(machine->module, "check") != 0 || statfs(path, &system) != 0 || system.f_type == SYSFS_MAGIC)
        return true;
    strcat(path, "/nvidia_uvm");
    return access(path, F_OK) == 0;
}

/* CUDA_VISIBLE_DEVICES: UUIDs of GPUs or MIG devices; a list ends at the first that is not there. */
static int find_visible(const struct machine *machine, const char *uuid)
{
    for (unsigned i = 0; i < machine->gpu_count; i++) {
        const struct gpu *gpu = &machine->gpus[i];
        if (!gpu->mig_enabled && strcmp(gpu->uuid, uuid) == 0)
            return (int)i;
        for (size_t j = 0; gpu->mig_enabled && j < gpu->mig_count; j++)
            if (strcmp(gpu->migs[j].uuid, uuid) == 0)
                return (int)i;
    }
    return -1;
}

static void add_device(const struct machine *machine, int gpu)
{
    char node[32];
    if (gpu < 0 || device_count == MAX_GPUS || is_lost(machine, (unsigned)gpu))
        return;
    snprintf(node, sizeof(node), "nvidia%u", machine->gpus[gpu].minor_number);
    if (strcmp(machine->devices, "check") != 0 || open_node(machine, node))
        devices[device_count++] = (unsigned)gpu;
}

static void find_devices(const struct machine *machine)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible) {
        for (unsigned i = 0; i < machine->gpu_count; i++)
            add_device(machine, (int)i);
        return;
    }
    char *names = strdup(visible), *rest = names, *name;
    while (names && (name = strsep(&rest, ",")))
        add_device(machine, find_visible(machine, name));
    free(names);
}

CUDA_API cu_result cuDriverGetVersion(int *version)
{
    state_open();
    const struct machine *machine = state_machine();
    if (!version || !machine)
        return version ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE;
    *version = (int)driver_cuda_version(machine);
    return CUDA_SUCCESS;
}

CUDA_API cu_result cuInit(unsigned flags)
{
    if (is_initialised)
        return CUDA_SUCCESS;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_open();
    cu_result failed = failure("cuInit", -1);
    if (failed != CUDA_SUCCESS)
        return failed;
    const struct machine *machine = state_machine(); /* one from before `failure` may be gone */
    if (!machine)
        return CUDA_ERROR_UNKNOWN;
    nvml_return module = driver_check(machine);
    if (module != NVML_SUCCESS)
        return module == NVML_ERROR_DRIVER_NOT_LOADED ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    bool check = strcmp(machine->devices, "check") == 0;
    if (!has_uvm(machine) || (check && (!open_node(machine, "nvidiactl") || !open_node(machine, "nvidia-uvm"))))
        return CUDA_ERROR_UNKNOWN;
    find_devices(machine);
    is_initialised = device_count > 0;
    if (is_initialised)
        mps_connect();
    return is_initialised ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUDA_API cu_result cuDeviceGetCount(int *count)
{
    if (!is_initialised || !count)
        return is_initialised ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    *count = (int)device_count;
    return CUDA_SUCCESS;
}

CUDA_API cu_result cuDeviceGet(cu_device *device, int ordinal)
{
    if (!is_initialised || !device)
        return is_initialised ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    if (ordinal < 0 || (unsigned)ordinal >= device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUDA_API cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device device)
{
    (void)flags;
    if (!is_initialised || !context || device < 0 || (unsigned)device >= device_count)
        return is_initialised ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    cu_result failed = failure("cuCtxCreate", (int)devices[device]);
    if (failed != CUDA_SUCCESS)
        return failed;
    current = malloc(sizeof(*current));
    if (!current)
        return CUDA_ERROR_OUT_OF_MEMORY;
    current->gpu = devices[device];
    *context = current;
    return CUDA_SUCCESS;
}

CUDA_API cu_result cuCtxDestroy_v2(cu_context context)
{
    if (!current || context != current)
        return CUDA_ERROR_INVALID_CONTEXT;
    cu_result failed = failure("cuCtxDestroy", (int)current->gpu);
    free(current);
    current = NULL;
    return failed;
}

/* Whether what this process has is within every limit that holds for it. */
static bool is_within_limits(const struct machine *machine, unsigned gpu)
{
    char group[CGROUP_PATH_SIZE];
    if (machine->limit_count == 0 || !cgroup_of_process("self", group))
        return true;
    do {
        const struct memory_limit *limit = cgroup_limit(machine, gpu, group);
        if (limit && usage_of_group(machine->gpus[gpu].uuid, group) > limit->hard)
            return false;
    } while (cgroup_to_parent(group));
    return true;
}

/* Counts before it asks: of two that race for the last byte none gets too much. */
static bool take_memory(unsigned gpu, size_t size)
{
    const struct machine *machine = state_machine();
    if (!machine || size > INT64_MAX)
        return false;
    const char *uuid = machine->gpus[gpu].uuid;
    if (!usage_add(uuid, (int64_t)size))
        return machine->limit_count == 0;
    if (usage_own(uuid) <= mps_limit(uuid) && is_within_limits(machine, gpu))
        return true;
    usage_add(machine->gpus[gpu].uuid, -(int64_t)size);
    return false;
}

static void give_memory(unsigned gpu, size_t size)
{
    const struct machine *machine = state_machine();
    if (machine)
        usage_add(machine->gpus[gpu].uuid, -(int64_t)size);
}

/* In front of the memory of an allocation, which is given without touching it. */
struct block {
    size_t size;
    unsigned gpu;
} __attribute__((aligned(16)));

CUDA_API cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t size)
{
    if (!current || !pointer || size == 0)
        return current ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    cu_result failed = failure("cuMemAlloc", (int)current->gpu);
    if (failed != CUDA_SUCCESS)
        return failed;
    if (size > SIZE_MAX - sizeof(struct block) || !take_memory(current->gpu, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = malloc(sizeof(*block) + size);
    if (!block) {
        give_memory(current->gpu, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *block = (struct block){size, current->gpu};
    *pointer = (cu_pointer)(uintptr_t)(block + 1);
    return CUDA_SUCCESS;
}

CUDA_API cu_result cuMemFree_v2(cu_pointer pointer)
{
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (pointer) {
        struct block *block = (struct block *)(uintptr_t)pointer - 1;
        give_memory(block->gpu, block->size);
        free(block);
    }
    return failure("cuMemFree", (int)current->gpu);
}

CUDA_API cu_result cuMemcpyHtoD_v2(cu_pointer target, const void *source, size_t size)
{
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    cu_result failed = failure("cuMemcpyHtoD", (int)current->gpu);
    if (failed == CUDA_SUCCESS)
        memcpy((void *)(uintptr_t)target, source, size);
    return failed;
}

CUDA_API cu_result cuMemcpyDtoH_v2(void *target, cu_pointer source, size_t size)
{
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    cu_result failed = failure("cuMemcpyDtoH", (int)current->gpu);
    if (failed != CUDA_SUCCESS && failed != CODE_WRONG_DATA)
        return failed;
    memcpy(target, (const void *)(uintptr_t)source, size);
    if (failed == CODE_WRONG_DATA && size > 0)
        ((unsigned char *)target)[size - 1] ^= 1;
    return CUDA_SUCCESS;
}

CUDA_API cu_result cuGetErrorName(cu_result error, const char **name)
{
    static const struct {
        cu_result error;
        const char *name;
    } names[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].error == error) {
            *name = names[i].name;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}
