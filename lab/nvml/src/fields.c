/* NVML: nvmlDeviceGetFieldValues, the numbered values. Each one has its own status. */
#include "call.h"

#include <time.h>

/* NVML_FI_DEV_* */
enum {
    ECC_CURRENT = 1,
    ECC_PENDING = 2,
    ECC_CORRECTED_VOLATILE = 3,
    ECC_UNCORRECTED_VOLATILE = 4,
    ECC_CORRECTED_AGGREGATE = 5,
    ECC_UNCORRECTED_AGGREGATE = 6,
    MEMORY_TEMPERATURE = 82,
    TOTAL_ENERGY = 83,
    NVLINK_SPEED_MBPS = 90,
    NVLINK_LINK_COUNT = 91,
    PCIE_REPLAY_COUNTER = 94,
    NVLINK_DATA_SENT = 138,
    NVLINK_DATA_RECEIVED = 139,
    REMAPPED_CORRECTED = 142,
    REMAPPED_UNCORRECTED = 143,
    REMAPPED_PENDING = 144,
    REMAPPED_FAILURE = 145,
    NVLINK_SPEED = 164,
    NVLINK_STATE = 165,
    NVLINK_VERSION = 166,
    POWER_AVERAGE = 185,
    POWER_INSTANT = 186,
    POWER_MIN_LIMIT = 187,
    POWER_MAX_LIMIT = 188,
    POWER_DEFAULT_LIMIT = 189,
    POWER_CURRENT_LIMIT = 190,
    POWER_REQUESTED_LIMIT = 192,
    RECOVERY_ACTION = 230,
};

static void set_small(struct nvml_field_value *value, unsigned number)
{
    value->type = NVML_VALUE_UNSIGNED;
    value->value.small = number;
    value->status = NVML_SUCCESS;
}

static void set_large(struct nvml_field_value *value, uint64_t number)
{
    value->type = NVML_VALUE_UNSIGNED_LONG_LONG;
    value->value.large = number;
    value->status = NVML_SUCCESS;
}

static void fill_ecc(struct nvml_field_value *value, const struct ecc *ecc)
{
    if (!ecc->supported)
        return;
    switch (value->field) {
    case ECC_CURRENT: set_small(value, ecc->enabled); return;
    case ECC_PENDING: set_small(value, ecc->pending); return;
    case ECC_CORRECTED_VOLATILE: set_large(value, ecc->volatile_corrected); return;
    case ECC_UNCORRECTED_VOLATILE: set_large(value, ecc->volatile_uncorrected); return;
    case ECC_CORRECTED_AGGREGATE: set_large(value, ecc->aggregate_corrected); return;
    case ECC_UNCORRECTED_AGGREGATE: set_large(value, ecc->aggregate_uncorrected); return;
    }
}

static void fill_remapped(struct nvml_field_value *value, const struct remapped_rows *rows)
{
    if (!rows->supported)
        return;
    switch (value->field) {
    case REMAPPED_CORRECTED: set_small(value, rows->corrected); return;
    case REMAPPED_UNCORRECTED: set_small(value, rows->uncorrected); return;
    case REMAPPED_PENDING: set_small(value, rows->pending); return;
    case REMAPPED_FAILURE: set_small(value, rows->failed); return;
    }
}

static void fill_power(struct nvml_field_value *value, const struct gpu *gpu)
{
    switch (value->field) {
    case TOTAL_ENERGY: set_large(value, gpu->energy_mj); return;
    case POWER_AVERAGE: set_small(value, gpu->power_usage_mw); return;
    case POWER_INSTANT: set_small(value, gpu->power_usage_mw); return;
    case POWER_MIN_LIMIT: set_small(value, gpu->power_limit_min_mw); return;
    case POWER_MAX_LIMIT: set_small(value, gpu->power_limit_max_mw); return;
    case POWER_DEFAULT_LIMIT: set_small(value, gpu->power_limit_default_mw); return;
    case POWER_CURRENT_LIMIT: set_small(value, gpu->power_limit_mw); return;
    case POWER_REQUESTED_LIMIT: set_small(value, gpu->power_limit_mw); return;
    }
}

/* Speed of a link in Mbit/s, by its version. */
static unsigned speed_of(unsigned version)
{
    static const unsigned by_version[] = {0, 20000, 25781, 25000, 26562, 53125};
    return version < sizeof(by_version) / sizeof(by_version[0]) ? by_version[version] : 0;
}

/* KiB of data over all links, which is what this scope asks for: the simulated GPU does not tell its links apart. */
static void fill_traffic(struct nvml_field_value *value, const struct gpu *gpu)
{
    if (value->scope != UINT32_MAX || gpu->link_count == 0)
        return;
    switch (value->field) {
    case NVLINK_DATA_SENT: set_large(value, gpu->nvlink_sent_kib); return;
    case NVLINK_DATA_RECEIVED: set_large(value, gpu->nvlink_received_kib); return;
    }
}

/* Values of the link that the scope names. */
static void fill_link(struct nvml_field_value *value, const struct gpu *gpu)
{
    if (value->scope >= gpu->link_count)
        return;
    const struct link *link = &gpu->links[value->scope];
    switch (value->field) {
    case NVLINK_SPEED_MBPS: set_small(value, speed_of(link->version)); return;
    case NVLINK_SPEED: set_small(value, link->active ? speed_of(link->version) : 0); return;
    case NVLINK_STATE: set_small(value, link->active); return;
    case NVLINK_VERSION: set_small(value, link->version); return;
    }
}

static void fill_rest(struct nvml_field_value *value, const struct gpu *gpu)
{
    switch (value->field) {
    case MEMORY_TEMPERATURE: set_small(value, gpu->memory_temperature); return;
    case NVLINK_LINK_COUNT: set_small(value, (unsigned)gpu->link_count); return;
    case PCIE_REPLAY_COUNTER: set_small(value, gpu->pcie_replays); return;
    case RECOVERY_ACTION: set_small(value, gpu->recovery_action); return;
    }
}

NVML_API nvml_return nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field_value *values)
{
    struct timespec now;
    CALL(call_gpu(__func__, device));
    REQUIRE(values && count > 0);
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        values[i].status = NVML_ERROR_NOT_SUPPORTED;
        values[i].timestamp_us = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        values[i].latency_us = 0;
        fill_ecc(&values[i], &call.gpu->ecc);
        fill_remapped(&values[i], &call.gpu->remapped_rows);
        fill_power(&values[i], call.gpu);
        fill_link(&values[i], call.gpu);
        fill_traffic(&values[i], call.gpu);
        fill_rest(&values[i], call.gpu);
    }
    return NVML_SUCCESS;
}
