/* NVML: MIG mode is switched, GPU instances and their compute instances are listed and made.
 *
 * The machine knows MIG devices. A GPU instance without a compute instance is one with compute_slices 0, which is not
 * listed as a device. Profiles, their ids and placements are those that NVIDIA's MIG user guide lists for an A100.
 */
#include "call.h"
#include "driver.h"
#include "session.h"
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MEMORY_SLICES = 8, FIRST_INSTANCE = 7, LINES_SIZE = 2048 };

static const struct profile {
    unsigned number, id, slices, memory_slices, instances, step; /* `step`: places lie this far apart */
} profiles[] = {
    {0, 19, 1, 1, 7, 1}, {1, 14, 2, 2, 3, 2}, {2, 9, 3, 4, 2, 4}, {3, 5, 4, 4, 1, 8}, {4, 0, 7, 8, 1, 8},
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const struct profile *profile_of_id(unsigned id)
{
    for (size_t i = 0; i < COUNT(profiles); i++)
        if (profiles[i].id == id)
            return &profiles[i];
    return NULL;
}

static const struct profile *profile_of_slices(unsigned slices)
{
    for (size_t i = 0; i < COUNT(profiles); i++)
        if (profiles[i].slices == slices)
            return &profiles[i];
    return NULL;
}

/* Compute instances are numbered like GPU instances of as many slices; their ids are these numbers. */
static const struct profile *profile_of_number(unsigned number)
{
    return number < COUNT(profiles) ? &profiles[number] : NULL;
}

static int gpu_number(const struct call *call)
{
    return (int)(call->gpu - call->machine->gpus);
}

static struct call call_instance(const char *function, nvml_device instance)
{
    struct call call = call_device(function, instance);
    if (call.status == NVML_SUCCESS && !call.mig)
        call.status = NVML_ERROR_INVALID_ARGUMENT;
    return call;
}

/* Whether this is the device by which its GPU instance is known: the first one. */
static int is_first(const struct gpu *gpu, const struct mig *mig)
{
    for (size_t i = 0; i < gpu->mig_count && &gpu->migs[i] != mig; i++)
        if (gpu->migs[i].gpu_instance == mig->gpu_instance)
            return 0;
    return 1;
}

NVML_API nvml_return nvmlDeviceSetMigMode(nvml_device device, unsigned mode, nvml_return *activation)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(activation && mode <= 1);
    char lines[LINES_SIZE];
    if (!call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!mode && call.gpu->mig_count)
        return NVML_ERROR_IN_USE;
    snprintf(lines, sizeof lines, "gpu%d.mig_enabled=%u\ngpu%d.mig_pending=%u\n", gpu_number(&call), mode,
             gpu_number(&call), mode);
    *activation = NVML_SUCCESS;
    return state_append(lines) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

NVML_API nvml_return nvmlDeviceGetGpuInstanceProfileInfo(nvml_device device, unsigned number,
                                                         struct nvml_gpu_instance_profile *info)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(info);
    const struct profile *profile = profile_of_number(number);
    if (!profile || !call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (struct nvml_gpu_instance_profile){
        .id = profile->id,
        .slices = profile->slices,
        .instances = profile->instances,
        .multiprocessors = 14 * profile->slices,
        .copy_engines = profile->slices,
        .memory_mib = (call.gpu->memory_total >> 20) * profile->memory_slices / MEMORY_SLICES,
    };
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetGpuInstances(nvml_device device, unsigned id, nvml_device *instances, unsigned *count)
{
    CALL(call_gpu(__func__, device));
    const struct profile *profile = profile_of_id(id);
    REQUIRE(instances && count && profile);
    *count = 0;
    for (size_t i = 0; call.gpu->mig_enabled && i < call.gpu->mig_count; i++) {
        const struct mig *mig = &call.gpu->migs[i];
        if (mig->gpu_slices != profile->slices || !is_first(call.gpu, mig))
            continue;
        nvml_device found = session_mig(device->position, mig->uuid);
        if (!found)
            return NVML_ERROR_MEMORY;
        instances[(*count)++] = found;
    }
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlGpuInstanceGetInfo(nvml_device instance, struct nvml_gpu_instance_info *info)
{
    CALL(call_instance(__func__, instance));
    const struct profile *profile = profile_of_slices(call.mig->gpu_slices);
    REQUIRE(info);
    *info = (struct nvml_gpu_instance_info){
        session_gpu(instance->position),    call.mig->gpu_instance,    profile ? profile->id : 0,
        call.mig->placement_start, call.mig->placement_size,
    };
    return NVML_SUCCESS;
}

static int is_free(const struct gpu *gpu, unsigned start, unsigned size)
{
    for (size_t i = 0; i < gpu->mig_count; i++) {
        const struct mig *mig = &gpu->migs[i];
        if (start < mig->placement_start + mig->placement_size && mig->placement_start < start + size)
            return 0;
    }
    return 1;
}

static unsigned unused_instance(const struct gpu *gpu)
{
    unsigned id = FIRST_INSTANCE;
    for (size_t i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gpu_instance == id) {
            id++;
            i = (size_t)-1;
        }
    return id;
}

/* The name of a MIG device depends on its place alone, as the driver's do: made again, it is the same. */
static void name_device(char uuid[TEXT_SIZE], const struct gpu *gpu, unsigned gpu_instance, unsigned compute_instance)
{
    size_t length = strlen(gpu->uuid);
    snprintf(uuid, TEXT_SIZE, "MIG-%.*s%02x%02x", (int)(length - 8), gpu->uuid + 4, gpu_instance, compute_instance);
}

static nvml_return add_device(const struct call *call, const struct mig *mig)
{
    char lines[LINES_SIZE];
    int length = 0;
#define LINE(name, format, value)                                                                                  \
    length += snprintf(lines + length, sizeof lines - (size_t)length, "gpu%d.mig%zu." name "=" format "\n",         \
                       gpu_number(call), call->gpu->mig_count, value)
    LINE("index", "%zu", call->gpu->mig_count);
    LINE("uuid", "%s", mig->uuid);
    LINE("profile", "%s", mig->profile);
    LINE("gpu_instance", "%u", mig->gpu_instance);
    LINE("compute_instance", "%u", mig->compute_instance);
    LINE("placement_start", "%u", mig->placement_start);
    LINE("placement_size", "%u", mig->placement_size);
    LINE("memory_total", "%" PRIu64, mig->memory_total);
    LINE("multiprocessors", "%u", mig->multiprocessors);
    LINE("gpu_slices", "%u", mig->gpu_slices);
    LINE("compute_slices", "%u", mig->compute_slices);
    LINE("copy_engines", "%u", mig->copy_engines);
#undef LINE
    snprintf(lines + length, sizeof lines - (size_t)length, "mig_load=%" PRIu64 "\n", driver_load(call->machine));
    if (call->gpu->mig_count == MAX_MIG)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    return state_append(lines) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

NVML_API nvml_return nvmlDeviceCreateGpuInstanceWithPlacement(nvml_device device, unsigned id,
                                                              const struct nvml_placement *place, nvml_device *instance)
{
    CALL(call_gpu(__func__, device));
    const struct profile *profile = profile_of_id(id);
    REQUIRE(place && instance && profile && place->size == profile->memory_slices &&
            place->start % profile->step == 0 && place->start + place->size <= MEMORY_SLICES);
    if (!call.gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!is_free(call.gpu, place->start, place->size))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    struct mig mig = {
        .gpu_instance = unused_instance(call.gpu),
        .placement_start = place->start,
        .placement_size = place->size,
        .memory_total = call.gpu->memory_total * place->size / MEMORY_SLICES,
        .gpu_slices = profile->slices,
        .copy_engines = profile->slices,
    };
    uint64_t gib = (call.gpu->memory_total + (1 << 29)) >> 30;
    snprintf(mig.profile, sizeof mig.profile, "%ug.%" PRIu64 "gb", profile->slices, gib * place->size / MEMORY_SLICES);
    name_device(mig.uuid, call.gpu, mig.gpu_instance, 0);
    nvml_return status = add_device(&call, &mig);
    if (status == NVML_SUCCESS)
        *instance = session_mig(device->position, mig.uuid);
    return status == NVML_SUCCESS && !*instance ? NVML_ERROR_MEMORY : status;
}

NVML_API nvml_return nvmlGpuInstanceGetComputeInstanceProfileInfo(nvml_device instance, unsigned number, unsigned engine,
                                                                  struct nvml_compute_instance_profile *info)
{
    CALL(call_instance(__func__, instance));
    const struct profile *profile = profile_of_number(number);
    REQUIRE(info);
    if (!profile || engine || profile->slices > call.mig->gpu_slices)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (struct nvml_compute_instance_profile){
        .id = profile->number,
        .slices = profile->slices,
        .instances = call.mig->gpu_slices / profile->slices,
        .multiprocessors = 14 * profile->slices,
    };
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlGpuInstanceGetComputeInstances(nvml_device instance, unsigned id, nvml_device *instances,
                                                        unsigned *count)
{
    CALL(call_instance(__func__, instance));
    const struct profile *profile = profile_of_number(id);
    REQUIRE(instances && count && profile);
    *count = 0;
    for (size_t i = 0; i < call.gpu->mig_count; i++) {
        const struct mig *mig = &call.gpu->migs[i];
        if (mig->gpu_instance != call.mig->gpu_instance || mig->compute_slices != profile->slices)
            continue;
        nvml_device found = session_mig(instance->position, mig->uuid);
        if (!found)
            return NVML_ERROR_MEMORY;
        instances[(*count)++] = found;
    }
    return NVML_SUCCESS;
}

/* Compute instances lie one after the other in the order of their ids. */
static unsigned first_slice(const struct gpu *gpu, const struct mig *mig)
{
    unsigned start = 0;
    for (size_t i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gpu_instance == mig->gpu_instance && gpu->migs[i].compute_instance < mig->compute_instance)
            start += gpu->migs[i].compute_slices;
    return start;
}

NVML_API nvml_return nvmlComputeInstanceGetInfo_v2(nvml_device instance, struct nvml_compute_instance_info *info)
{
    CALL(call_instance(__func__, instance));
    const struct profile *profile = profile_of_slices(call.mig->compute_slices);
    REQUIRE(info && profile);
    *info = (struct nvml_compute_instance_info){
        session_gpu(instance->position),
        instance,
        call.mig->compute_instance,
        profile->number,
        first_slice(call.gpu, call.mig),
        call.mig->compute_slices,
    };
    return NVML_SUCCESS;
}

/* The first compute instance makes a device of its GPU instance, each further one is another device. */
static nvml_return add_compute(const struct call *call, unsigned slices, char uuid[TEXT_SIZE])
{
    const struct gpu *gpu = call->gpu;
    unsigned used = 0, devices = 0;
    for (size_t i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gpu_instance == call->mig->gpu_instance) {
            used += gpu->migs[i].compute_slices;
            devices += gpu->migs[i].compute_slices > 0;
        }
    if (used + slices > call->mig->gpu_slices)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    struct mig mig = *call->mig;
    mig.compute_slices = slices;
    mig.multiprocessors = 14 * slices;
    if (slices < mig.gpu_slices)
        snprintf(mig.profile, sizeof mig.profile, "%uc.%.80s", slices,
                 strchr(call->mig->profile, 'c') ? strchr(call->mig->profile, '.') + 1 : call->mig->profile);
    if (devices) {
        mig.compute_instance = devices;
        name_device(mig.uuid, gpu, mig.gpu_instance, devices);
        memcpy(uuid, mig.uuid, TEXT_SIZE);
        return add_device(call, &mig);
    }
    char lines[LINES_SIZE];
    int number = gpu_number(call);
    size_t place = (size_t)(call->mig - gpu->migs);
    memcpy(uuid, mig.uuid, TEXT_SIZE);
    snprintf(lines, sizeof lines,
             "gpu%d.mig%zu.compute_slices=%u\ngpu%d.mig%zu.multiprocessors=%u\ngpu%d.mig%zu.profile=%s\n", number,
             place, slices, number, place, mig.multiprocessors, number, place, mig.profile);
    return state_append(lines) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

NVML_API nvml_return nvmlGpuInstanceCreateComputeInstance(nvml_device instance, unsigned id, nvml_device *compute)
{
    CALL(call_instance(__func__, instance));
    const struct profile *profile = profile_of_number(id);
    REQUIRE(compute && profile);
    char uuid[TEXT_SIZE];
    nvml_return status = add_compute(&call, profile->slices, uuid);
    if (status == NVML_SUCCESS)
        *compute = session_mig(instance->position, uuid);
    return status == NVML_SUCCESS && !*compute ? NVML_ERROR_MEMORY : status;
}
