/* NVML: settings of a GPU that last until the driver's module is unloaded (nvml.h of the driver, "Device Commands").
 *
 * Clocks that are locked cannot be read back, as with NVIDIA's library.
 */
#include "call.h"
#include "driver.h"
#include "state.h"

#include <inttypes.h>
#include <stdio.h>

enum { VOLTA = 5, AMPERE = 7 }; /* NVML_DEVICE_ARCH_* */
enum { DEFAULT_MODE = 0, EXCLUSIVE_PROCESS = 3 };

/* Writes values of one GPU, and of which load of the module they are. */
static nvml_return keep(const struct call *call, const char *name, unsigned value, const char *other, unsigned second)
{
    char lines[256];
    int number = (int)(call->gpu - call->machine->gpus);
    int length = snprintf(lines, sizeof lines, "gpu%d.%s=%u\nsettings_load=%" PRIu64 "\n", number, name, value,
                          driver_load(call->machine));
    if (other)
        snprintf(lines + length, sizeof lines - (size_t)length, "gpu%d.%s=%u\n", number, other, second);
    return state_append(lines) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

NVML_API nvml_return nvmlDeviceSetPersistenceMode(nvml_device device, unsigned mode)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(mode <= NVML_FEATURE_ENABLED);
    return keep(&call, "persistence_mode", mode, NULL, 0);
}

/* In MIG mode a GPU has no compute mode: its MIG devices have (their mode is not simulated). */
NVML_API nvml_return nvmlDeviceSetComputeMode(nvml_device device, unsigned mode)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(mode <= EXCLUSIVE_PROCESS);
    if (call.gpu->mig_enabled && mode != DEFAULT_MODE)
        return NVML_ERROR_NOT_SUPPORTED;
    return keep(&call, "compute_mode", mode, NULL, 0);
}

NVML_API nvml_return nvmlDeviceSetPowerManagementLimit(nvml_device device, unsigned milliwatts)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(milliwatts >= call.gpu->power_limit_min_mw && milliwatts <= call.gpu->power_limit_max_mw);
    return keep(&call, "power_limit_mw", milliwatts, NULL, 0);
}

static nvml_return lock_graphics(const struct call *call, unsigned lowest, unsigned highest)
{
    if (call->gpu->architecture < VOLTA)
        return NVML_ERROR_NOT_SUPPORTED;
    return keep(call, "clock_sm_locked_min", lowest, "clock_sm_locked_max", highest);
}

NVML_API nvml_return nvmlDeviceSetGpuLockedClocks(nvml_device device, unsigned lowest, unsigned highest)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(lowest && lowest <= highest && highest <= call.gpu->clock_sm_max);
    return lock_graphics(&call, lowest, highest);
}

NVML_API nvml_return nvmlDeviceResetGpuLockedClocks(nvml_device device)
{
    CALL(call_gpu(__func__, device));
    return lock_graphics(&call, 0, 0);
}

static nvml_return lock_memory(const struct call *call, unsigned lowest, unsigned highest)
{
    if (call->gpu->architecture < AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    return keep(call, "clock_memory_locked_min", lowest, "clock_memory_locked_max", highest);
}

NVML_API nvml_return nvmlDeviceSetMemoryLockedClocks(nvml_device device, unsigned lowest, unsigned highest)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(lowest && lowest <= highest && highest <= call.gpu->clock_memory_max);
    return lock_memory(&call, lowest, highest);
}

NVML_API nvml_return nvmlDeviceResetMemoryLockedClocks(nvml_device device)
{
    CALL(call_gpu(__func__, device));
    return lock_memory(&call, 0, 0);
}
