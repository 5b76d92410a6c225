/* NVML: memory, processes, temperature, power, clocks, utilisation. */
#include "call.h"

#include <time.h>

NVML_API nvml_return nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory)
{
    CALL(call_device(__func__, device));
    REQUIRE(memory);
    uint64_t total = call.mig ? call.mig->memory_total : call.gpu->memory_total;
    /* without _v2, what the driver reserves counts as used */
    uint64_t used = call.mig ? call.mig->memory_used : call.gpu->memory_used + call.gpu->memory_reserved;
    *memory = (struct nvml_memory){total, total - used, used};
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory)
{
    CALL(call_device(__func__, device));
    REQUIRE(memory);
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    uint64_t total = call.mig ? call.mig->memory_total : call.gpu->memory_total;
    uint64_t used = call.mig ? call.mig->memory_used : call.gpu->memory_used;
    uint64_t reserved = call.mig ? 0 : call.gpu->memory_reserved;
    *memory = (struct nvml_memory_v2){NVML_MEMORY_V2, total, reserved, total - used - reserved, used};
    return NVML_SUCCESS;
}

/* A MIG device has the share of the GPU's BAR1 that its memory slices are of the eight that there are. */
NVML_API nvml_return nvmlDeviceGetBAR1MemoryInfo(nvml_device device, struct nvml_memory *memory)
{
    enum { MEMORY_SLICES = 8 };
    CALL(call_device(__func__, device));
    REQUIRE(memory);
    const struct gpu *gpu = call.gpu;
    uint64_t total = call.mig ? gpu->bar1_total / MEMORY_SLICES * call.mig->gpu_slices : gpu->bar1_total;
    uint64_t used = call.mig ? 0 : gpu->bar1_used;
    *memory = (struct nvml_memory){total, total - used, used};
    return NVML_SUCCESS;
}

struct process_list {
    unsigned room, count;
    struct nvml_process *entries;
};

static void add_processes(struct process_list *list, const struct process *processes, size_t count,
                          unsigned graphics, const struct mig *mig)
{
    for (size_t i = 0; i < count; i++) {
        if (processes[i].graphics != graphics)
            continue;
        if (list->count < list->room)
            list->entries[list->count] = (struct nvml_process){
                processes[i].pid, processes[i].memory_used, mig ? mig->gpu_instance : NVML_NOT_A_SLICE,
                mig ? mig->compute_instance : NVML_NOT_A_SLICE};
        list->count++;
    }
}

/* The handle of a GPU lists the processes of its MIG devices too, that of a MIG device only its own. */
static nvml_return list_processes(const struct call *call, unsigned graphics, unsigned *count,
                                  struct nvml_process *entries)
{
    REQUIRE(count && (entries || *count == 0));
    struct process_list list = {*count, 0, entries};
    const struct gpu *gpu = call->gpu;
    if (!call->mig)
        add_processes(&list, gpu->processes, gpu->process_count, graphics, NULL);
    for (size_t i = 0; gpu->mig_enabled && i < gpu->mig_count; i++)
        if (!call->mig || call->mig == &gpu->migs[i])
            add_processes(&list, gpu->migs[i].processes, gpu->migs[i].process_count, graphics, &gpu->migs[i]);
    *count = list.count;
    return list.count > list.room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvml_return list_processes_v1(const struct call *call, unsigned graphics, unsigned *count,
                                     struct nvml_process_v1 *entries)
{
    struct nvml_process found[MAX_PROCESSES * (MAX_MIG + 1)];
    unsigned total = sizeof(found) / sizeof(found[0]);
    REQUIRE(count && (entries || *count == 0));
    nvml_return status = list_processes(call, graphics, &total, found);
    for (unsigned i = 0; i < total && i < *count; i++)
        entries[i] = (struct nvml_process_v1){found[i].pid, found[i].used};
    if (status == NVML_SUCCESS && total > *count)
        status = NVML_ERROR_INSUFFICIENT_SIZE;
    *count = total;
    return status;
}

#define PROCESS_LIST(function, graphics)                                                                         \
    NVML_API nvml_return function(nvml_device device, unsigned *count, struct nvml_process_v1 *entries)          \
    {                                                                                                            \
        CALL(call_device(__func__, device));                                                                     \
        return list_processes_v1(&call, graphics, count, entries);                                               \
    }                                                                                                            \
    NVML_API nvml_return function##_v2(nvml_device device, unsigned *count, struct nvml_process *entries)        \
    {                                                                                                            \
        CALL(call_device(__func__, device));                                                                     \
        return list_processes(&call, graphics, count, entries);                                                  \
    }                                                                                                            \
    NVML_API nvml_return function##_v3(nvml_device device, unsigned *count, struct nvml_process *entries)        \
    {                                                                                                            \
        CALL(call_device(__func__, device));                                                                     \
        return list_processes(&call, graphics, count, entries);                                                  \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, 0)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, 1)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, 2)

/* One sample for each process that did something in the last period, which ends now; none: NOT_FOUND. */
NVML_API nvml_return nvmlDeviceGetProcessUtilization(nvml_device device, struct nvml_process_sample *samples,
                                                     unsigned *count, unsigned long long last_seen_us)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(count);
    if (call.gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    unsigned room = samples ? *count : 0, found = 0;
    for (size_t i = 0; now_us > last_seen_us && i < call.gpu->process_count; i++) {
        const struct process *process = &call.gpu->processes[i];
        if (!process->sm_utilization)
            continue;
        if (found < room)
            samples[found] = (struct nvml_process_sample){process->pid, now_us, process->sm_utilization, 0, 0, 0};
        found++;
    }
    *count = found;
    if (!found)
        return NVML_ERROR_NOT_FOUND;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetTemperature(nvml_device device, unsigned sensor, unsigned *celsius)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(celsius && sensor == 0);
    *celsius = call.gpu->temperature;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetTemperatureV(nvml_device device, struct nvml_temperature *temperature)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(temperature && temperature->sensor == 0);
    if (temperature->version != NVML_TEMPERATURE_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    temperature->celsius = (int)call.gpu->temperature;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetTemperatureThreshold(nvml_device device, unsigned threshold, unsigned *celsius)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(celsius);
    if (threshold > 1)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = threshold == 0 ? call.gpu->temperature_shutdown : call.gpu->temperature_slowdown;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetPowerManagementLimitConstraints(nvml_device device, unsigned *lowest,
                                                                  unsigned *highest)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(lowest && highest);
    *lowest = call.gpu->power_limit_min_mw;
    *highest = call.gpu->power_limit_max_mw;
    return NVML_SUCCESS;
}

GPU_NUMBER(nvmlDeviceGetPowerUsage, unsigned, call.gpu->power_usage_mw)
GPU_NUMBER(nvmlDeviceGetPowerManagementMode, unsigned, NVML_FEATURE_ENABLED)
GPU_NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, call.gpu->power_limit_mw)
GPU_NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, call.gpu->power_limit_mw)
GPU_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, call.gpu->power_limit_default_mw)
GPU_NUMBER(nvmlDeviceGetTotalEnergyConsumption, uint64_t, call.gpu->energy_mj)
GPU_NUMBER(nvmlDeviceGetPerformanceState, unsigned, call.gpu->performance_state)
GPU_NUMBER(nvmlDeviceGetPowerState, unsigned, call.gpu->performance_state)
GPU_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, uint64_t, call.gpu->clock_event_reasons)
GPU_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, uint64_t, call.gpu->clock_event_reasons)

static nvml_return clock_of(unsigned kind, unsigned sm, unsigned memory, unsigned video, unsigned *mhz)
{
    const unsigned clocks[] = {sm, sm, memory, video};
    REQUIRE(mhz && kind < sizeof(clocks) / sizeof(clocks[0]));
    *mhz = clocks[kind];
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetClockInfo(nvml_device device, unsigned kind, unsigned *mhz)
{
    CALL(call_gpu(__func__, device));
    return clock_of(kind, call.gpu->clock_sm, call.gpu->clock_memory, call.gpu->clock_video, mhz);
}

NVML_API nvml_return nvmlDeviceGetMaxClockInfo(nvml_device device, unsigned kind, unsigned *mhz)
{
    CALL(call_gpu(__func__, device));
    return clock_of(kind, call.gpu->clock_sm_max, call.gpu->clock_memory_max, call.gpu->clock_video_max, mhz);
}

NVML_API nvml_return nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *utilization)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(utilization);
    if (call.gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    *utilization = (struct nvml_utilization){call.gpu->utilization, call.gpu->memory_utilization};
    return NVML_SUCCESS;
}

static nvml_return engine_utilization(unsigned percent, unsigned *utilization, unsigned *period_us)
{
    REQUIRE(utilization && period_us);
    *utilization = percent;
    *period_us = 167000; /* what real GPUs answer */
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetEncoderUtilization(nvml_device device, unsigned *utilization, unsigned *period_us)
{
    CALL(call_gpu(__func__, device));
    return engine_utilization(call.gpu->encoder_utilization, utilization, period_us);
}

NVML_API nvml_return nvmlDeviceGetDecoderUtilization(nvml_device device, unsigned *utilization, unsigned *period_us)
{
    CALL(call_gpu(__func__, device));
    return engine_utilization(call.gpu->decoder_utilization, utilization, period_us);
}
