/* NVML: MIG mode is switched, GPU instances and their compute instances are listed and made.
 *
 * The machine knows MIG devices. A GPU instance without a compute instance is one with compute_slices 0, which is not
 * listed as a device.
 */
#include "call.h"
#include "driver.h"
#include "mig_profiles.h"
#include "session.h"
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_INSTANCE = 7, LINES_SIZE = 2048 };

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

/* Until NVIDIA Ampere the mode is in force after a reset of the GPU, which the driver does at once where nobody uses it. */
static int waits_for_reset(const struct gpu *gpu)
{
    return gpu->architecture <= ARCHITECTURE_AMPERE && gpu->process_count > 0;
}

NVML_API nvml_return nvmlDeviceSetMigMode(nvml_device device, unsigned mode, nvml_return *activation)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(activation && mode <= 1);
    char lines[LINES_SIZE];
    int number = gpu_number(&call);
    if (!call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    if ((!mode && call.gpu->mig_count) || (call.gpu->process_count && !waits_for_reset(call.gpu)))
        return NVML_ERROR_IN_USE;
    *activation = mode != call.gpu->mig_enabled && waits_for_reset(call.gpu) ? NVML_ERROR_IN_USE : NVML_SUCCESS;
    unsigned now = *activation == NVML_SUCCESS ? mode : call.gpu->mig_enabled;
    snprintf(lines, sizeof lines, "gpu%d.mig_enabled=%u\ngpu%d.mig_pending=%u\nmig_load=%" PRIu64 "\n", number, now,
             number, mode, driver_load(call.machine));
    return state_append(lines) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

NVML_API nvml_return nvmlDeviceGetGpuInstances(nvml_device device, unsigned id, nvml_device *instances, unsigned *count)
{
    CALL(call_gpu(__func__, device));
    const struct profile *profile = profile_of_id(id);
    REQUIRE(instances && count && profile);
    *count = 0;
    for (size_t i = 0; call.gpu->mig_enabled && i < call.gpu->mig_count; i++) {
        const struct mig *mig = &call.gpu->migs[i];
        if (profile_of_mig(mig) != profile || !is_first(call.gpu, mig))
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
    const struct profile *profile = profile_of_mig(call.mig);
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

static unsigned count_of(const struct gpu *gpu, const struct profile *profile)
{
    unsigned count = 0;
    for (size_t i = 0; i < gpu->mig_count; i++)
        count += profile_of_mig(&gpu->migs[i]) == profile && is_first(gpu, &gpu->migs[i]);
    return count;
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

static unsigned unused_index(const struct gpu *gpu)
{
    unsigned index = 0;
    for (size_t i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].index == index) {
            index++;
            i = (size_t)-1;
        }
    return index;
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
    LINE("index", "%u", unused_index(call->gpu));
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
            place->start % profile->step == 0 && place->start / profile->step < profile->places);
    if (!call.gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!is_free(call.gpu, place->start, place->size) || count_of(call.gpu, profile) == profile->instances)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    struct mig mig = {
        .gpu_instance = unused_instance(call.gpu),
        .placement_start = place->start,
        .placement_size = place->size,
        .memory_total = call.gpu->memory_total * place->size / MEMORY_SLICES,
        .gpu_slices = profile->slices,
        .copy_engines = profile->slices,
    };
    profile_name(profile, call.gpu, mig.profile, sizeof mig.profile);
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
    const struct profile *profile = compute_profile(number);
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
    const struct profile *profile = compute_profile(id);
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
    const struct profile *profile = compute_profile_of(call.mig);
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

/* The entry that stands for a GPU instance without a compute instance 0; NULL where it has that one. */
static const struct mig *empty_entry(const struct call *call)
{
    for (size_t i = 0; i < call->gpu->mig_count; i++)
        if (call->gpu->migs[i].gpu_instance == call->mig->gpu_instance && !call->gpu->migs[i].compute_slices)
            return &call->gpu->migs[i];
    return NULL;
}

static unsigned unused_compute(const struct call *call)
{
    unsigned id = 0;
    for (size_t i = 0; i < call->gpu->mig_count; i++)
        if (call->gpu->migs[i].gpu_instance == call->mig->gpu_instance && call->gpu->migs[i].compute_instance == id) {
            id++;
            i = (size_t)-1;
        }
    return id;
}

/* The first compute instance makes a device of its GPU instance, each further one is another device. */
static nvml_return add_compute(const struct call *call, unsigned slices, char uuid[TEXT_SIZE])
{
    const struct gpu *gpu = call->gpu;
    unsigned used = 0;
    for (size_t i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gpu_instance == call->mig->gpu_instance)
            used += gpu->migs[i].compute_slices;
    if (used + slices > call->mig->gpu_slices)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    const struct mig *empty = empty_entry(call);
    struct mig mig = empty ? *empty : *call->mig;
    mig.compute_slices = slices;
    mig.multiprocessors = 14 * slices;
    device_name(&mig, gpu, mig.profile, sizeof mig.profile);
    if (!empty) {
        mig.compute_instance = unused_compute(call);
        name_device(mig.uuid, gpu, mig.gpu_instance, mig.compute_instance);
        memcpy(uuid, mig.uuid, TEXT_SIZE);
        return add_device(call, &mig);
    }
    char lines[LINES_SIZE];
    int number = gpu_number(call);
    size_t place = (size_t)(empty - gpu->migs);
    memcpy(uuid, mig.uuid, TEXT_SIZE);
    snprintf(lines, sizeof lines,
             "gpu%d.mig%zu.compute_slices=%u\ngpu%d.mig%zu.multiprocessors=%u\ngpu%d.mig%zu.profile=%s\n", number,
             place, slices, number, place, mig.multiprocessors, number, place, mig.profile);
    return state_append(lines) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

NVML_API nvml_return nvmlGpuInstanceCreateComputeInstance(nvml_device instance, unsigned id, nvml_device *compute)
{
    CALL(call_instance(__func__, instance));
    const struct profile *profile = compute_profile(id);
    REQUIRE(compute && profile);
    char uuid[TEXT_SIZE];
    nvml_return status = add_compute(&call, profile->slices, uuid);
    if (status == NVML_SUCCESS)
        *compute = session_mig(instance->position, uuid);
    return status == NVML_SUCCESS && !*compute ? NVML_ERROR_MEMORY : status;
}
