/* The simulated machine as values, and the parser of its text.
 *
 * The same model exists in Python (lab/nvml/machine.py); a test holds both together. Where the text comes from is
 * state.h's business, what a caller of NVML gets to see of it that of the files named after NVML's topics.
 */
#ifndef GPUSIM_MACHINE_H
#define GPUSIM_MACHINE_H

#include <stddef.h>
#include <stdint.h>

enum {
    MAX_GPUS = 64,
    MAX_LINKS = 18,
    MAX_PROCESSES = 32,
    MAX_MIG = 7,
    MAX_EVENTS = 64,
    MAX_FAILURES = 64,
    MAX_LIMITS = 256,
    TEXT_SIZE = 96, /* every string of the model */
    PATH_SIZE = 256,
};

struct process {
    unsigned pid;
    uint64_t memory_used;
    unsigned graphics, sm_utilization;
};

struct activity { /* in hundredths of a percent */
    unsigned graphics, tensor, dram;
};

struct link {
    unsigned active;
    char remote_pci[TEXT_SIZE];
    unsigned remote_type;
    unsigned version;
};

struct mig {
    unsigned index; /* position among the GPU's MIG devices, gaps allowed */
    char uuid[TEXT_SIZE];
    char profile[TEXT_SIZE];
    unsigned gpu_instance, compute_instance, placement_start, placement_size;
    uint64_t memory_total, memory_used;
    unsigned multiprocessors, gpu_slices, compute_slices, copy_engines, decoders, encoders, jpeg, ofa;
    struct activity activity;
    size_t process_count;
    struct process processes[MAX_PROCESSES];
};

struct ecc {
    unsigned supported, enabled, pending;
    uint64_t volatile_corrected, volatile_uncorrected, aggregate_corrected, aggregate_uncorrected;
};

struct remapped_rows {
    unsigned supported, corrected, uncorrected, pending, failed;
};

struct gpu {
    char name[TEXT_SIZE], uuid[TEXT_SIZE], serial[TEXT_SIZE], vbios[TEXT_SIZE], pci_address[TEXT_SIZE];
    unsigned pci_device_id, pci_subsystem_id, minor_number, brand, architecture;
    unsigned compute_major, compute_minor, cores;
    int numa_node;
    unsigned board, pcie_switch, pcie_switch_tree, host_bridge; /* equal numbers of two GPUs: shared */
    unsigned pcie_generation, pcie_width, pcie_replays;
    unsigned p2p_status;
    unsigned fabric_state;
    char fabric_cluster[TEXT_SIZE]; /* a UUID */
    unsigned fabric_clique;
    uint64_t memory_total, memory_used, memory_reserved, bar1_total, bar1_used;
    unsigned temperature, memory_temperature, temperature_slowdown, temperature_shutdown;
    unsigned power_usage_mw, power_limit_mw, power_limit_default_mw, power_limit_min_mw, power_limit_max_mw;
    uint64_t energy_mj, nvlink_sent_kib, nvlink_received_kib;
    unsigned clock_sm, clock_memory, clock_video, clock_sm_max, clock_memory_max, clock_video_max;
    unsigned clock_sm_locked_min, clock_sm_locked_max; /* 0: not locked; so below */
    unsigned clock_memory_locked_min, clock_memory_locked_max;
    uint64_t clock_event_reasons;
    unsigned performance_state, utilization, memory_utilization, encoder_utilization, decoder_utilization;
    unsigned pcie_sent_kib_s, pcie_received_kib_s;
    struct activity activity;
    unsigned persistence_mode, compute_mode, recovery_action;
    struct ecc ecc;
    struct remapped_rows remapped_rows;
    unsigned mig_capable, mig_enabled, mig_pending;
    size_t process_count, link_count, mig_count;
    struct process processes[MAX_PROCESSES];
    struct link links[MAX_LINKS];
    struct mig migs[MAX_MIG];
};

struct event {
    uint64_t sequence; /* counts up for the life of a machine, so that a waiting process knows what it has seen */
    unsigned gpu;
    unsigned xid;
    unsigned gpu_instance, compute_instance; /* that the driver blames; NVML's UINT_MAX for none */
};

struct failure {
    char function[TEXT_SIZE]; /* without _v2 and the like, or "*" */
    int gpu;                  /* index, or -1 for every call */
    int code;
    char driver[TEXT_SIZE]; /* the only version that fails so, or "" for every one */
};

/* Bytes of one GPU that the processes of a control group may have together. */
struct memory_limit {
    unsigned gpu;
    uint64_t cgroup;       /* the inode of its folder, by which a container knows it as well */
    char path[2 * PATH_SIZE]; /* below cgroup_root */
    uint64_t soft, hard;
};

struct machine {
    char driver_version[TEXT_SIZE];
    unsigned cuda_version;
    char module[TEXT_SIZE], module_version[TEXT_SIZE], devices[TEXT_SIZE];
    char sys_root[PATH_SIZE], dev_root[PATH_SIZE], cgroup_root[PATH_SIZE];
    unsigned call_cost_us;
    unsigned memory_limits_from; /* driver branch; 0: never */
    uint64_t mig_load; /* see driver_load; 0: MIG instances stay whatever is loaded */
    uint64_t settings_load; /* so for what is set of GPUs: settings.c */
    size_t gpu_count, event_count, failure_count, limit_count;
    struct gpu gpus[MAX_GPUS];
    struct event events[MAX_EVENTS];
    struct failure failures[MAX_FAILURES];
    struct memory_limit limits[MAX_LIMITS];
};

/* Parses `length` bytes of "path=value" lines into a zeroed machine. Returns 0, or the number of the first line that
 * is not understood (the machine is then half filled and must not be used). */
size_t machine_parse(struct machine *machine, const char *text, size_t length);

#endif
