/* NVML: which GPUs there are, and what they are. */
#include "call.h"
#include "session.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

NVML_API nvml_return nvmlDeviceGetCount_v2(unsigned *count)
{
    CALL(call_system(__func__));
    REQUIRE(count);
    *count = session_gpu_count();
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

typedef bool (*matcher)(const struct gpu *gpu, const char *key);

/* The first GPU of this session for which `matches` holds; `absent` when there is none. */
static nvml_return find(const struct call *call, const char *function, matcher matches, const char *key,
                        nvml_device *device)
{
    REQUIRE(key && device);
    for (unsigned i = 0; i < session_gpu_count(); i++) {
        const struct gpu *gpu = call_find_gpu(call->machine, session_gpu(i));
        if (gpu && matches(gpu, key)) {
            *device = session_gpu(i);
            return call_failure(call->machine, function, gpu);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    CALL(call_system(__func__));
    REQUIRE(device && index < session_gpu_count());
    const struct gpu *gpu = call_find_gpu(call.machine, session_gpu(index));
    *device = session_gpu(index);
    return gpu ? call_failure(call.machine, __func__, gpu) : NVML_ERROR_GPU_IS_LOST;
}

NVML_API nvml_return nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static bool has_uuid(const struct gpu *gpu, const char *uuid)
{
    return strcmp(gpu->uuid, uuid) == 0;
}

static nvml_return find_mig(const struct call *call, const char *uuid, nvml_device *device)
{
    for (unsigned i = 0; i < session_gpu_count(); i++) {
        const struct gpu *gpu = call_find_gpu(call->machine, session_gpu(i));
        if (gpu && gpu->mig_enabled && call_find_mig(gpu, uuid)) {
            *device = session_mig(i, uuid);
            return *device ? NVML_SUCCESS : NVML_ERROR_MEMORY;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
    CALL(call_system(__func__));
    nvml_return status = find(&call, __func__, has_uuid, uuid, device);
    return status == NVML_ERROR_NOT_FOUND ? find_mig(&call, uuid, device) : status;
}

static bool has_serial(const struct gpu *gpu, const char *serial)
{
    return strcmp(gpu->serial, serial) == 0;
}

NVML_API nvml_return nvmlDeviceGetHandleBySerial(const char *serial, nvml_device *device)
{
    CALL(call_system(__func__));
    return find(&call, __func__, has_serial, serial, device);
}

struct pci_address {
    unsigned domain, bus, device, function;
};

/* Takes the four-digit domain of the kernel and the eight-digit one of NVML. */
static struct pci_address parse_pci(const char *text)
{
    struct pci_address address = {0};
    if (sscanf(text, "%x:%x:%x.%x", &address.domain, &address.bus, &address.device, &address.function) < 3)
        address.device = ~0u;
    return address;
}

static bool has_pci_address(const struct gpu *gpu, const char *wanted)
{
    struct pci_address a = parse_pci(gpu->pci_address), b = parse_pci(wanted);
    return a.domain == b.domain && a.bus == b.bus && a.device == b.device && a.function == b.function;
}

NVML_API nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvml_device *device)
{
    CALL(call_system(__func__));
    return find(&call, __func__, has_pci_address, address, device);
}

NVML_API nvml_return nvmlDeviceGetHandleByPciBusId(const char *address, nvml_device *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(address, device);
}

NVML_API nvml_return nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci_info *info)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(info);
    struct pci_address at = parse_pci(call.gpu->pci_address);
    *info = (struct nvml_pci_info){.domain = at.domain, .bus = at.bus, .device = at.device,
                                   .device_id = call.gpu->pci_device_id,
                                   .subsystem_id = call.gpu->pci_subsystem_id};
    snprintf(info->bus_id, sizeof(info->bus_id), "%08X:%02X:%02X.0", at.domain, at.bus, at.device);
    snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%04X:%02X:%02X.0", at.domain & 0xffff,
             at.bus & 0xff, at.device & 0xff);
    return NVML_SUCCESS;
}

/* All simulated GPUs are "3D controllers" (class 03, subclass 02), as those of data centres are. */
NVML_API nvml_return nvmlDeviceGetPciInfoExt(nvml_device device, struct nvml_pci_info_ext *info)
{
    struct nvml_pci_info old;
    REQUIRE(info);
    if (info->version != NVML_PCI_INFO_EXT_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvml_return status = nvmlDeviceGetPciInfo_v3(device, &old);
    if (status != NVML_SUCCESS)
        return status;
    *info = (struct nvml_pci_info_ext){NVML_PCI_INFO_EXT_V1, old.domain, old.bus, old.device,
                                       old.device_id, old.subsystem_id, 3, 2, ""};
    memcpy(info->bus_id, old.bus_id, sizeof(info->bus_id));
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetPciInfo_v2(nvml_device device, struct nvml_pci_info_v2 *info)
{
    struct nvml_pci_info new;
    REQUIRE(info);
    nvml_return status = nvmlDeviceGetPciInfo_v3(device, &new);
    if (status != NVML_SUCCESS)
        return status;
    *info = (struct nvml_pci_info_v2){.domain = new.domain, .bus = new.bus, .device = new.device,
                                      .device_id = new.device_id, .subsystem_id = new.subsystem_id};
    memcpy(info->bus_id, new.bus_id_legacy, sizeof(info->bus_id));
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetPciInfo(nvml_device device, struct nvml_pci_info_v2 *info)
{
    return nvmlDeviceGetPciInfo_v2(device, info);
}

NVML_API nvml_return nvmlDeviceGetName(nvml_device device, char *name, unsigned length)
{
    char text[2 * TEXT_SIZE + 8];
    CALL(call_device(__func__, device));
    if (!call.mig)
        return call_text(name, length, call.gpu->name);
    snprintf(text, sizeof(text), "%s MIG %s", call.gpu->name, call.mig->profile);
    return call_text(name, length, text);
}

NVML_API nvml_return nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned length)
{
    CALL(call_device(__func__, device));
    return call_text(uuid, length, call.mig ? call.mig->uuid : call.gpu->uuid);
}

NVML_API nvml_return nvmlDeviceGetSerial(nvml_device device, char *serial, unsigned length)
{
    CALL(call_gpu(__func__, device));
    return call.gpu->serial[0] ? call_text(serial, length, call.gpu->serial) : NVML_ERROR_NOT_SUPPORTED;
}

NVML_API nvml_return nvmlDeviceGetVbiosVersion(nvml_device device, char *version, unsigned length)
{
    CALL(call_gpu(__func__, device));
    return call_text(version, length, call.gpu->vbios);
}

NVML_API nvml_return nvmlDeviceGetIndex(nvml_device device, unsigned *index)
{
    CALL(call_device(__func__, device));
    REQUIRE(index);
    *index = call.mig ? call.mig->index : device->position;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor)
{
    CALL(call_device(__func__, device));
    REQUIRE(major && minor);
    *major = (int)call.gpu->compute_major;
    *minor = (int)call.gpu->compute_minor;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceGetNumaNodeId(nvml_device device, unsigned *node)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(node);
    if (call.gpu->numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned)call.gpu->numa_node;
    return NVML_SUCCESS;
}

GPU_NUMBER(nvmlDeviceGetMinorNumber, unsigned, call.gpu->minor_number)
GPU_NUMBER(nvmlDeviceGetBrand, unsigned, call.gpu->brand)
GPU_NUMBER(nvmlDeviceGetArchitecture, unsigned, call.gpu->architecture)
GPU_NUMBER(nvmlDeviceGetNumGpuCores, unsigned, call.gpu->cores)
GPU_NUMBER(nvmlDeviceGetBoardId, unsigned, call.gpu->board)
GPU_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, call.gpu->pcie_generation)
GPU_NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, call.gpu->pcie_generation)
GPU_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, call.gpu->pcie_generation)
GPU_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, call.gpu->pcie_width)
GPU_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, call.gpu->pcie_width)
GPU_NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, call.gpu->pcie_replays)
GPU_NUMBER(nvmlDeviceGetPersistenceMode, unsigned, call.gpu->persistence_mode)
GPU_NUMBER(nvmlDeviceGetComputeMode, unsigned, call.gpu->compute_mode)
GPU_NUMBER(nvmlDeviceGetDisplayMode, unsigned, NVML_FEATURE_DISABLED)
GPU_NUMBER(nvmlDeviceGetDisplayActive, unsigned, NVML_FEATURE_DISABLED)
