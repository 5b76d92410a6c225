/* What callers of NVML see: return codes, constants and structure layouts.
 *
 * Declared from the facts that nvidia-ml-py publishes (pynvml.py: constants and ctypes layouts), only as far as the
 * simulated library implements them. Nothing of the simulation itself belongs here.
 */
#ifndef GPUSIM_API_H
#define GPUSIM_API_H

#include <stdint.h>

#define NVML_API __attribute__((visibility("default")))

typedef int nvml_return;
typedef struct handle *nvml_device;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 };
enum { NVML_MEMORY_ERROR_CORRECTED = 0, NVML_MEMORY_ERROR_UNCORRECTED = 1 };
enum { NVML_ECC_VOLATILE = 0, NVML_ECC_AGGREGATE = 1 };
enum { NVML_MEMORY_LOCATION_DEVICE_MEMORY = 2, NVML_MEMORY_LOCATION_COUNT = 8 };
enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3 };
/* Of all the events that an H100 has with driver 580, the one that happens here. */
enum { NVML_EVENT_XID = 0x8, NVML_EVENTS = 0xff9f };
enum { NVML_NVLINK_REMOTE_SWITCH = 2 };
enum { NVML_FABRIC_NOT_SUPPORTED = 0, NVML_FABRIC_COMPLETED = 3, NVML_FABRIC_UUID_SIZE = 16 };
enum { NVML_P2P_INDEX_NVLINK = 2, NVML_P2P_INDEX_COUNT = 5 };
enum { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };

enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50,
};

#define NVML_MEMORY_V2 0x02000028u
#define NVML_TEMPERATURE_V1 0x0100000Cu
#define NVML_FABRIC_INFO_V2 0x02000024u
#define NVML_PCI_INFO_EXT_V1 0x01000040u
#define NVML_NOT_A_SLICE 0xFFFFFFFFu /* GPU or compute instance id of something that is not a MIG device */

struct nvml_pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_pci_info_ext {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
};

struct nvml_pci_info_v2 {
    char bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    unsigned reserved[4];
};

struct nvml_fabric_info_v2 {
    unsigned version;
    uint8_t cluster[NVML_FABRIC_UUID_SIZE];
    nvml_return status;
    unsigned clique, state, health;
};

struct nvml_memory {
    uint64_t total, free, used;
};

struct nvml_memory_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};

#define NVML_MEMORY_LIMIT_MAX UINT64_MAX

struct nvml_set_memory_limits {
    const char *cgroup; /* full path of its folder */
    uint64_t soft, hard;
};

struct nvml_memory_limits {
    const char *cgroup;
    uint64_t soft, hard, used;
};

struct nvml_process_v1 {
    unsigned pid;
    uint64_t used;
};

struct nvml_process {
    unsigned pid;
    uint64_t used;
    unsigned gpu_instance, compute_instance;
};

struct nvml_process_sample {
    unsigned pid;
    uint64_t timestamp_us; /* since 1970 */
    unsigned sm, memory, encoder, decoder;
};

struct nvml_utilization {
    unsigned gpu, memory;
};

struct nvml_temperature {
    unsigned version, sensor;
    int celsius;
};

struct nvml_event_v1 {
    nvml_device device;
    uint64_t type, data;
};

struct nvml_event {
    nvml_device device;
    uint64_t type, data;
    unsigned gpu_instance, compute_instance;
};

struct nvml_ecc_counts {
    uint64_t l1_cache, l2_cache, device_memory, register_file;
};

struct nvml_row_histogram {
    unsigned max, high, partial, low, none;
};

struct nvml_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    uint64_t memory_mib;
};

struct nvml_placement {
    unsigned start, size;
};

struct nvml_gpu_instance_profile {
    unsigned id, is_p2p_supported, slices, instances, multiprocessors;
    unsigned copy_engines, decoders, encoders, jpeg, ofa;
    uint64_t memory_mib;
};

#define NVML_GPU_INSTANCE_PROFILE_V2 0x02000098u

struct nvml_gpu_instance_profile_v2 {
    unsigned version, id, is_p2p_supported, slices, instances, multiprocessors;
    unsigned copy_engines, decoders, encoders, jpeg, ofa;
    uint64_t memory_mib;
    char name[96];
};

struct nvml_compute_instance_profile {
    unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
};

struct nvml_compute_instance_info {
    nvml_device device, gpu_instance;
    unsigned id, profile, placement_start, placement_size;
};

struct nvml_gpu_instance_info {
    nvml_device device;
    unsigned id, profile, placement_start, placement_size;
};

enum {
    NVML_GPM_GRAPHICS_UTIL = 1,
    NVML_GPM_ANY_TENSOR_UTIL = 5,
    NVML_GPM_DRAM_BW_UTIL = 10,
    NVML_GPM_PCIE_TX_PER_SEC = 20,
    NVML_GPM_PCIE_RX_PER_SEC = 21,
};

#define NVML_GPM_VERSION 1u /* of both structures below */

typedef struct gpm_sample *nvml_gpm_sample;

struct nvml_gpm_support {
    unsigned version, is_supported;
};

struct nvml_gpm_metric {
    unsigned id;
    nvml_return status;
    double value;
    const char *short_name, *long_name, *unit;
};

struct nvml_gpm_metrics {
    unsigned version, count;
    nvml_gpm_sample first, second;
    struct nvml_gpm_metric metrics[]; /* as many as this driver knows, of which `count` are asked for */
};

enum { NVML_VALUE_UNSIGNED = 1, NVML_VALUE_UNSIGNED_LONG_LONG = 3 };

struct nvml_field_value {
    uint32_t field, scope;
    int64_t timestamp_us, latency_us;
    uint32_t type;
    nvml_return status;
    union {
        double real;
        unsigned small;
        uint64_t large;
    } value;
};

#endif
