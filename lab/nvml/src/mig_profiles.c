/* NVML: the profiles of GPU instances and their places.
 *
 * Numbers, ids, sizes and places are those that NVIDIA's MIG user guide and `nvidia-smi mig -lgipp` list alike for the
 * A100 (40 and 80 GB) and the H100 (80 GB); only the memory in their names differs.
 */
#include "mig_profiles.h"

#include "call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct profile profiles[] = {
    {0, 19, 1, 1, 7, 7, 1, ""}, {1, 14, 2, 2, 3, 3, 2, ""}, {2, 9, 3, 4, 2, 2, 4, ""}, {3, 5, 4, 4, 1, 1, 8, ""},
    {4, 0, 7, 8, 1, 1, 8, ""},  {7, 20, 1, 1, 1, 7, 1, "+me"}, {9, 15, 1, 2, 4, 4, 2, ""},
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
enum { COMPUTE_PROFILES = 5 };

const struct profile *profile_of_number(unsigned number)
{
    for (size_t i = 0; i < COUNT(profiles); i++)
        if (profiles[i].number == number)
            return &profiles[i];
    return NULL;
}

const struct profile *profile_of_id(unsigned id)
{
    for (size_t i = 0; i < COUNT(profiles); i++)
        if (profiles[i].id == id)
            return &profiles[i];
    return NULL;
}

const struct profile *profile_of_mig(const struct mig *mig)
{
    const char *attribute = strpbrk(mig->profile, "+-");
    const struct profile *alike = NULL;
    for (size_t i = 0; i < COUNT(profiles); i++) {
        if (profiles[i].slices != mig->gpu_slices)
            continue;
        if (profiles[i].memory_slices == mig->placement_size && strcmp(profiles[i].attribute, attribute ? attribute : "") == 0)
            return &profiles[i];
        if (!alike)
            alike = &profiles[i];
    }
    return alike;
}

const struct profile *compute_profile(unsigned number)
{
    return number < COMPUTE_PROFILES ? &profiles[number] : NULL;
}

const struct profile *compute_profile_of(const struct mig *mig)
{
    for (size_t i = 0; i < COMPUTE_PROFILES; i++)
        if (profiles[i].slices == mig->compute_slices)
            return &profiles[i];
    return NULL;
}

void profile_name(const struct profile *profile, const struct gpu *gpu, char *name, size_t size)
{
    uint64_t gib = (gpu->memory_total + (1 << 29)) >> 30;
    snprintf(name, size, "%ug.%" PRIu64 "gb%s", profile->slices, gib * profile->memory_slices / MEMORY_SLICES,
             profile->attribute);
}

void device_name(const struct mig *mig, const struct gpu *gpu, char *name, size_t size)
{
    int length = mig->compute_slices < mig->gpu_slices ? snprintf(name, size, "%uc.", mig->compute_slices) : 0;
    profile_name(profile_of_mig(mig), gpu, name + length, size - (size_t)length);
}

static struct nvml_gpu_instance_profile_v2 describe(const struct profile *profile, const struct gpu *gpu)
{
    struct nvml_gpu_instance_profile_v2 info = {
        .version = NVML_GPU_INSTANCE_PROFILE_V2,
        .id = profile->id,
        .slices = profile->slices,
        .instances = profile->instances,
        .multiprocessors = 14 * profile->slices,
        .copy_engines = profile->slices,
        .memory_mib = (gpu->memory_total >> 20) * profile->memory_slices / MEMORY_SLICES,
    };
    memcpy(info.name, "MIG ", 4);
    profile_name(profile, gpu, info.name + 4, sizeof info.name - 4);
    return info;
}

NVML_API nvml_return nvmlDeviceGetGpuInstanceProfileInfo(nvml_device device, unsigned number,
                                                         struct nvml_gpu_instance_profile *info)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(info && number < PROFILE_NUMBERS);
    const struct profile *profile = profile_of_number(number);
    if (!profile || !call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    struct nvml_gpu_instance_profile_v2 all = describe(profile, call.gpu);
    *info = (struct nvml_gpu_instance_profile){
        .id = all.id,
        .slices = all.slices,
        .instances = all.instances,
        .multiprocessors = all.multiprocessors,
        .copy_engines = all.copy_engines,
        .memory_mib = all.memory_mib,
    };
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetGpuInstanceProfileInfoV(nvml_device device, unsigned number,
                                                          struct nvml_gpu_instance_profile_v2 *info)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(info);
    if (info->version != NVML_GPU_INSTANCE_PROFILE_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REQUIRE(number < PROFILE_NUMBERS);
    const struct profile *profile = profile_of_number(number);
    if (!profile || !call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = describe(profile, call.gpu);
    return NVML_SUCCESS;
}

/* Whether or not MIG mode is on, as NVML's reference says. */
NVML_API nvml_return nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvml_device device, unsigned id,
                                                                   struct nvml_placement *places, unsigned *count)
{
    CALL(call_gpu(__func__, device));
    const struct profile *profile = profile_of_id(id);
    REQUIRE(count && profile);
    if (!call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    if (places && *count < profile->places)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    *count = profile->places;
    for (unsigned i = 0; places && i < profile->places; i++)
        places[i] = (struct nvml_placement){i * profile->step, profile->memory_slices};
    return NVML_SUCCESS;
}
