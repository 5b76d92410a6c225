#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_HANDLES = MAX_GPUS + MAX_GPUS * MAX_MIG * 2 };

static struct handle handles[MAX_HANDLES]; /* GPUs first, then MIG devices in the order in which they were met */
static unsigned gpu_count, handle_count;
static int nodes[MAX_GPUS + 1];
static unsigned node_count;

/* The real library keeps these open as well: this is how a process shows that it holds a GPU. */
static int open_node(const char *dev_root, const char *name)
{
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof(path), "%s/%s", dev_root, name);
    int node = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (node < 0)
        return errno;
    nodes[node_count++] = node;
    return 0;
}

/* A node that opens into nothing (ENXIO: no driver behind the number) was still allowed to be opened. */
static bool is_out_of_reach(int error)
{
    return error == EPERM || error == EACCES || error == ENOENT || error == ENOTDIR;
}

static nvml_return open_control(const struct machine *machine)
{
    switch (open_node(machine->dev_root, "nvidiactl")) {
    case ENOENT:
    case ENOTDIR:
        return NVML_ERROR_DRIVER_NOT_LOADED;
    case EACCES:
        return NVML_ERROR_NO_PERMISSION;
    case EPERM: /* refused by a device cgroup: "Failed to initialize NVML: Unknown Error" */
        return NVML_ERROR_UNKNOWN;
    default:
        return NVML_SUCCESS;
    }
}

static void add_gpu(const struct gpu *gpu)
{
    struct handle *handle = &handles[handle_count++];
    handle->is_mig = false;
    handle->position = gpu_count++;
    memcpy(handle->uuid, gpu->uuid, sizeof(handle->uuid));
}

nvml_return session_start(const struct machine *machine)
{
    bool check = strcmp(machine->devices, "check") == 0;
    nvml_return status = check ? open_control(machine) : NVML_SUCCESS;
    for (size_t i = 0; status == NVML_SUCCESS && i < machine->gpu_count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "nvidia%u", machine->gpus[i].minor_number);
        if (!check || !is_out_of_reach(open_node(machine->dev_root, name)))
            add_gpu(&machine->gpus[i]);
    }
    return status;
}

void session_stop(void)
{
    while (node_count > 0)
        close(nodes[--node_count]);
    gpu_count = handle_count = 0;
}

unsigned session_gpu_count(void)
{
    return gpu_count;
}

nvml_device session_gpu(unsigned position)
{
    return position < gpu_count ? &handles[position] : NULL;
}

nvml_device session_mig(unsigned position, const char *uuid)
{
    for (unsigned i = gpu_count; i < handle_count; i++)
        if (strcmp(handles[i].uuid, uuid) == 0)
            return &handles[i];
    if (handle_count == MAX_HANDLES)
        return NULL;
    struct handle *handle = &handles[handle_count++];
    handle->is_mig = true;
    handle->position = position;
    snprintf(handle->uuid, sizeof(handle->uuid), "%s", uuid);
    return handle;
}

bool session_is_handle(nvml_device handle)
{
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)handles;
    return (uintptr_t)handle >= (uintptr_t)handles && offset % sizeof(*handle) == 0 &&
           offset / sizeof(*handle) < handle_count;
}
