/* NVML: MIG mode, MIG devices and their slices. */
#include "call.h"
#include "session.h"

NVML_API nvml_return nvmlDeviceGetMigMode(nvml_device device, unsigned *current, unsigned *pending)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(current && pending);
    if (!call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = call.gpu->mig_enabled;
    *pending = call.gpu->mig_pending;
    return NVML_SUCCESS;
}

GPU_NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, call.gpu->mig_enabled ? MAX_MIG : 0)

NVML_API nvml_return nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *mig)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(mig);
    if (!call.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; call.gpu->mig_enabled && i < call.gpu->mig_count; i++) {
        if (call.gpu->migs[i].index != index || !call.gpu->migs[i].compute_slices)
            continue;
        *mig = session_mig(device->position, call.gpu->migs[i].uuid);
        return *mig ? NVML_SUCCESS : NVML_ERROR_MEMORY;
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvml_return nvmlDeviceIsMigDeviceHandle(nvml_device device, unsigned *is_mig)
{
    CALL(call_device(__func__, device));
    REQUIRE(is_mig);
    *is_mig = call.mig != NULL;
    return NVML_SUCCESS;
}

/* A call that only makes sense for a MIG device. */
static struct call call_slice(const char *function, nvml_device device)
{
    struct call call = call_device(function, device);
    if (call.status == NVML_SUCCESS && !call.mig)
        call.status = NVML_ERROR_INVALID_ARGUMENT;
    return call;
}

NVML_API nvml_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_device device, nvml_device *parent)
{
    CALL(call_slice(__func__, device));
    REQUIRE(parent);
    *parent = session_gpu(device->position);
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetGpuInstanceId(nvml_device device, unsigned *id)
{
    CALL(call_slice(__func__, device));
    REQUIRE(id);
    *id = call.mig->gpu_instance;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetComputeInstanceId(nvml_device device, unsigned *id)
{
    CALL(call_slice(__func__, device));
    REQUIRE(id);
    *id = call.mig->compute_instance;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetAttributes_v2(nvml_device device, struct nvml_attributes *attributes)
{
    CALL(call_slice(__func__, device));
    REQUIRE(attributes);
    const struct mig *mig = call.mig;
    *attributes = (struct nvml_attributes){
        mig->multiprocessors, mig->copy_engines, mig->decoders,       mig->encoders,           mig->jpeg,
        mig->ofa,             mig->gpu_slices,   mig->compute_slices, mig->memory_total >> 20,
    };
    return NVML_SUCCESS;
}

/* A GPU instance is known by its first MIG device. */
NVML_API nvml_return nvmlDeviceGetGpuInstanceById(nvml_device device, unsigned id, nvml_device *instance)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(instance);
    for (size_t i = 0; call.gpu->mig_enabled && i < call.gpu->mig_count; i++)
        if (call.gpu->migs[i].gpu_instance == id) {
            *instance = session_mig(device->position, call.gpu->migs[i].uuid);
            return *instance ? NVML_SUCCESS : NVML_ERROR_MEMORY;
        }
    return NVML_ERROR_NOT_FOUND;
}
