/* NVML: compute instances and GPU instances are destroyed, unless somebody computes on them. */
#include "call.h"
#include "state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPU_LINES_SIZE = 96 * 1024 };

struct removal {
    unsigned gpu;
    const char *uuid; /* of the MIG device */
    bool is_emptied;  /* it stands for its GPU instance and stays, without a compute instance */
};

struct lines {
    char *text;
    size_t length;
    unsigned gpu, mig; /* whose lines these are */
};

__attribute__((format(printf, 3, 4))) static void line(struct lines *lines, const char *name, const char *format, ...)
{
    va_list values;
    size_t room = GPU_LINES_SIZE - lines->length;
    int length = snprintf(lines->text + lines->length, room, "gpu%u.mig%u.%s=", lines->gpu, lines->mig, name);
    va_start(values, format);
    length += vsnprintf(lines->text + lines->length + length, room - (size_t)length, format, values);
    va_end(values);
    lines->length += (size_t)length;
    lines->text[lines->length++] = '\n';
}

static void render_processes(struct lines *lines, const struct mig *mig)
{
    for (size_t i = 0; i < mig->process_count; i++) {
        const struct process *process = &mig->processes[i];
        char name[64];
#define FIELD(field, format, value)                                  \
    snprintf(name, sizeof name, "process%zu." field, i);             \
    line(lines, name, format, value)
        FIELD("pid", "%u", process->pid);
        FIELD("memory_used", "%" PRIu64, process->memory_used);
        FIELD("graphics", "%u", process->graphics);
        FIELD("sm_utilization", "%u", process->sm_utilization);
#undef FIELD
    }
}

static void render_mig(struct lines *lines, const struct mig *mig)
{
    line(lines, "index", "%u", mig->index);
    line(lines, "uuid", "%s", mig->uuid);
    line(lines, "profile", "%s", mig->profile);
#define NUMBER(field) line(lines, #field, "%u", mig->field)
    NUMBER(gpu_instance);
    NUMBER(compute_instance);
    NUMBER(placement_start);
    NUMBER(placement_size);
    line(lines, "memory_total", "%" PRIu64, mig->memory_total);
    line(lines, "memory_used", "%" PRIu64, mig->memory_used);
    NUMBER(multiprocessors);
    NUMBER(gpu_slices);
    NUMBER(compute_slices);
    NUMBER(copy_engines);
    NUMBER(decoders);
    NUMBER(encoders);
    NUMBER(jpeg);
    NUMBER(ofa);
    NUMBER(activity.graphics);
    NUMBER(activity.tensor);
    NUMBER(activity.dram);
#undef NUMBER
    render_processes(lines, mig);
}

/* All lines of the GPU's MIG devices without one of them; a list has no gaps, so that those behind it move up. */
static char *render(const struct machine *machine, const void *argument)
{
    const struct removal *removal = argument;
    const struct gpu *gpu = &machine->gpus[removal->gpu];
    struct lines lines = {calloc(1, GPU_LINES_SIZE), 0, removal->gpu, 0};
    for (size_t i = 0; lines.text && i < gpu->mig_count; i++) {
        struct mig mig = gpu->migs[i];
        bool is_meant = strcmp(mig.uuid, removal->uuid) == 0;
        if (is_meant && !removal->is_emptied)
            continue;
        if (is_meant)
            mig.compute_slices = mig.multiprocessors = 0;
        render_mig(&lines, &mig);
        lines.mig++;
    }
    if (lines.text)
        snprintf(lines.text + lines.length, GPU_LINES_SIZE - lines.length,
                 "gpu%u.mig_capable=%u\ngpu%u.mig_enabled=%u\ngpu%u.mig_pending=%u\n", removal->gpu, gpu->mig_capable,
                 removal->gpu, gpu->mig_enabled, removal->gpu, gpu->mig_pending);
    return lines.text;
}

static nvml_return remove_mig(const struct call *call, bool is_emptied)
{
    char prefix[32];
    struct removal removal = {(unsigned)(call->gpu - call->machine->gpus), call->mig->uuid, is_emptied};
    char uuid[TEXT_SIZE]; /* the machine of this call is gone while it is written */
    memcpy(uuid, removal.uuid, sizeof uuid);
    removal.uuid = uuid;
    snprintf(prefix, sizeof prefix, "gpu%u.mig", removal.gpu);
    return state_replace(prefix, render, &removal) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

static struct call call_mig(const char *function, nvml_device instance)
{
    struct call call = call_device(function, instance);
    if (call.status == NVML_SUCCESS && !call.mig)
        call.status = NVML_ERROR_INVALID_ARGUMENT;
    return call;
}

/* How many devices a GPU instance has. */
static size_t devices_of(const struct call *call)
{
    size_t count = 0;
    for (size_t i = 0; i < call->gpu->mig_count; i++)
        count += call->gpu->migs[i].gpu_instance == call->mig->gpu_instance;
    return count;
}

NVML_API nvml_return nvmlComputeInstanceDestroy(nvml_device instance)
{
    CALL(call_mig(__func__, instance));
    if (call.mig->process_count)
        return NVML_ERROR_IN_USE;
    bool stands_for_all = call.mig->compute_instance == 0 || devices_of(&call) == 1;
    return remove_mig(&call, stands_for_all);
}

NVML_API nvml_return nvmlGpuInstanceDestroy(nvml_device instance)
{
    CALL(call_mig(__func__, instance));
    for (size_t i = 0; i < call.gpu->mig_count; i++)
        if (call.gpu->migs[i].gpu_instance == call.mig->gpu_instance && call.gpu->migs[i].compute_slices)
            return NVML_ERROR_IN_USE;
    return remove_mig(&call, false);
}
