/* NVML: GPM, the counters that profilers read, on Hopper and later.
 *
 * The machine says what a GPU does now (`activity`, `pcie_*_kib_s`) and counts nothing over time: between two samples it
 * did what it does at the second one.
 */
#include "call.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HOPPER = 9, KIB_PER_MIB = 1024, SHORTEST_NS = 100000000 /* that NVML documents between two samples */ };

struct gpm_sample {
    struct gpm_sample *next;
    int64_t taken_ns; /* 0: nothing was read into it */
    char uuid[TEXT_SIZE];
    unsigned gpu_instance; /* NVML_NOT_A_SLICE: the whole GPU */
    struct activity activity;
    unsigned pcie_sent_kib_s, pcie_received_kib_s;
};

static struct gpm_sample *samples; /* that were not freed; one that is left at the end of a session stays */

static struct gpm_sample **find(nvml_gpm_sample sample)
{
    struct gpm_sample **place = &samples;
    while (*place && *place != sample)
        place = &(*place)->next;
    return place;
}

static bool is_sample(nvml_gpm_sample sample)
{
    return sample && *find(sample);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

NVML_API nvml_return nvmlGpmQueryDeviceSupport(nvml_device device, struct nvml_gpm_support *support)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(support);
    if (support->version != NVML_GPM_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    support->is_supported = call.gpu->architecture >= HOPPER;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlGpmSampleAlloc(nvml_gpm_sample *sample)
{
    CALL(call_system(__func__));
    REQUIRE(sample);
    *sample = calloc(1, sizeof(**sample));
    if (!*sample)
        return NVML_ERROR_MEMORY;
    (*sample)->next = samples;
    samples = *sample;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlGpmSampleFree(nvml_gpm_sample sample)
{
    CALL(call_system(__func__));
    REQUIRE(is_sample(sample));
    *find(sample) = sample->next;
    free(sample);
    return NVML_SUCCESS;
}

static nvml_return read_sample(const struct gpu *gpu, const struct mig *mig, nvml_gpm_sample sample)
{
    REQUIRE(is_sample(sample));
    if (gpu->architecture < HOPPER)
        return NVML_ERROR_NOT_SUPPORTED;
    sample->taken_ns = now_ns();
    memcpy(sample->uuid, gpu->uuid, sizeof(sample->uuid));
    sample->gpu_instance = mig ? mig->gpu_instance : NVML_NOT_A_SLICE;
    sample->activity = mig ? mig->activity : gpu->activity;
    sample->pcie_sent_kib_s = gpu->pcie_sent_kib_s;
    sample->pcie_received_kib_s = gpu->pcie_received_kib_s;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlGpmSampleGet(nvml_device device, nvml_gpm_sample sample)
{
    CALL(call_gpu(__func__, device));
    return read_sample(call.gpu, NULL, sample);
}

/* A GPU instance does what its first MIG device does. */
NVML_API nvml_return nvmlGpmMigSampleGet(nvml_device device, unsigned gpu_instance, nvml_gpm_sample sample)
{
    CALL(call_gpu(__func__, device));
    for (size_t i = 0; call.gpu->mig_enabled && i < call.gpu->mig_count; i++)
        if (call.gpu->migs[i].gpu_instance == gpu_instance && call.gpu->migs[i].compute_slices)
            return read_sample(call.gpu, &call.gpu->migs[i], sample);
    return NVML_ERROR_INVALID_ARGUMENT;
}

static nvml_return value_between(const struct gpm_sample *sample, unsigned id, double *value)
{
    bool is_whole = sample->gpu_instance == NVML_NOT_A_SLICE;
    switch (id) {
    case NVML_GPM_GRAPHICS_UTIL:
        *value = sample->activity.graphics / 100.0;
        return NVML_SUCCESS;
    case NVML_GPM_ANY_TENSOR_UTIL:
        *value = sample->activity.tensor / 100.0;
        return NVML_SUCCESS;
    case NVML_GPM_DRAM_BW_UTIL:
        *value = sample->activity.dram / 100.0;
        return NVML_SUCCESS;
    case NVML_GPM_PCIE_TX_PER_SEC:
        *value = (double)sample->pcie_sent_kib_s / KIB_PER_MIB;
        return is_whole ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_GPM_PCIE_RX_PER_SEC:
        *value = (double)sample->pcie_received_kib_s / KIB_PER_MIB;
        return is_whole ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

/* Samples of one thing, the older one first; what was done in less than 100 ms is not a number. */
NVML_API nvml_return nvmlGpmMetricsGet(struct nvml_gpm_metrics *asked)
{
    CALL(call_system(__func__));
    REQUIRE(asked);
    if (asked->version != NVML_GPM_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const struct gpm_sample *first = asked->first, *second = asked->second;
    REQUIRE(is_sample(asked->first) && is_sample(asked->second) && first->taken_ns && second->taken_ns);
    REQUIRE(strcmp(first->uuid, second->uuid) == 0 && first->gpu_instance == second->gpu_instance);
    REQUIRE(first->taken_ns <= second->taken_ns);
    for (unsigned i = 0; i < asked->count; i++) {
        struct nvml_gpm_metric *metric = &asked->metrics[i];
        metric->status = value_between(second, metric->id, &metric->value);
        if (second->taken_ns - first->taken_ns < SHORTEST_NS)
            metric->value = NAN;
    }
    return NVML_SUCCESS;
}
