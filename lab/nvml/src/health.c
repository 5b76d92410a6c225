/* NVML: ECC modes and counters, remapped rows, retired pages. */
#include "call.h"

NVML_API nvml_return nvmlDeviceGetEccMode(nvml_device device, unsigned *current, unsigned *pending)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(current && pending);
    if (!call.gpu->ecc.supported)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = call.gpu->ecc.enabled;
    *pending = call.gpu->ecc.pending;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetDefaultEccMode(nvml_device device, unsigned *mode)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(mode);
    *mode = NVML_FEATURE_ENABLED;
    return call.gpu->ecc.supported ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* All errors of the simulated GPUs are errors of device memory. */
static nvml_return count_errors(const struct ecc *ecc, unsigned error, unsigned counter, uint64_t *count)
{
    const uint64_t counts[2][2] = {{ecc->volatile_corrected, ecc->aggregate_corrected},
                                   {ecc->volatile_uncorrected, ecc->aggregate_uncorrected}};
    REQUIRE(count && error <= NVML_MEMORY_ERROR_UNCORRECTED && counter <= NVML_ECC_AGGREGATE);
    if (!ecc->supported || !ecc->enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = counts[error][counter];
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned error, unsigned counter,
                                                 uint64_t *count)
{
    CALL(call_gpu(__func__, device));
    return count_errors(&call.gpu->ecc, error, counter, count);
}

NVML_API nvml_return nvmlDeviceGetMemoryErrorCounter(nvml_device device, unsigned error, unsigned counter,
                                                     unsigned location, uint64_t *count)
{
    CALL(call_device(__func__, device));
    REQUIRE(location < NVML_MEMORY_LOCATION_COUNT);
    nvml_return status = count_errors(&call.gpu->ecc, error, counter, count);
    if (status == NVML_SUCCESS && location != NVML_MEMORY_LOCATION_DEVICE_MEMORY)
        *count = 0;
    return status;
}

NVML_API nvml_return nvmlDeviceGetDetailedEccErrors(nvml_device device, unsigned error, unsigned counter,
                                                    struct nvml_ecc_counts *counts)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(counts);
    *counts = (struct nvml_ecc_counts){0};
    return count_errors(&call.gpu->ecc, error, counter, &counts->device_memory);
}

NVML_API nvml_return nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected,
                                               unsigned *pending, unsigned *failed)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(corrected && uncorrected && pending && failed);
    const struct remapped_rows *rows = &call.gpu->remapped_rows;
    if (!rows->supported)
        return NVML_ERROR_NOT_SUPPORTED;
    *corrected = rows->corrected;
    *uncorrected = rows->uncorrected;
    *pending = rows->pending;
    *failed = rows->failed;
    return NVML_SUCCESS;
}

/* Banks by how many spare rows they have left: the simulated GPU has 640, and one row per bank is ever remapped. */
NVML_API nvml_return nvmlDeviceGetRowRemapperHistogram(nvml_device device, struct nvml_row_histogram *histogram)
{
    enum { BANKS = 640 };
    CALL(call_gpu(__func__, device));
    REQUIRE(histogram);
    const struct remapped_rows *rows = &call.gpu->remapped_rows;
    if (!rows->supported)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned touched = rows->corrected + rows->uncorrected;
    touched = touched > BANKS ? BANKS : touched;
    *histogram = (struct nvml_row_histogram){.max = BANKS - touched, .high = touched};
    return NVML_SUCCESS;
}
