/* NVML: NVLink, PCIe topology and peer-to-peer between GPUs. */
#include "call.h"
#include "session.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A GPU without NVLink answers NOT_SUPPORTED, one with it INVALID_ARGUMENT for a link that it does not have. */
static nvml_return find_link(const struct call *call, unsigned number, const struct link **link)
{
    if (call->gpu->link_count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(number < call->gpu->link_count);
    *link = &call->gpu->links[number];
    return NVML_SUCCESS;
}

#define LINK_NUMBER(function, expression)                                                       \
    NVML_API nvml_return function(nvml_device device, unsigned number, unsigned *value)         \
    {                                                                                           \
        const struct link *link;                                                                \
        CALL(call_gpu(__func__, device));                                                       \
        REQUIRE(value);                                                                         \
        nvml_return status = find_link(&call, number, &link);                                   \
        if (status == NVML_SUCCESS)                                                             \
            *value = (expression);                                                              \
        return status;                                                                          \
    }

LINK_NUMBER(nvmlDeviceGetNvLinkState, link->active)
LINK_NUMBER(nvmlDeviceGetNvLinkVersion, link->version)
LINK_NUMBER(nvmlDeviceGetNvLinkRemoteDeviceType, link->remote_type)

NVML_API nvml_return nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned number,
                                                         struct nvml_pci_info *info)
{
    const struct link *link;
    CALL(call_gpu(__func__, device));
    REQUIRE(info);
    nvml_return status = find_link(&call, number, &link);
    if (status != NVML_SUCCESS)
        return status;
    *info = (struct nvml_pci_info){0};
    if (sscanf(link->remote_pci, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3)
        return NVML_ERROR_UNKNOWN;
    snprintf(info->bus_id, sizeof(info->bus_id), "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%04X:%02X:%02X.0", info->domain & 0xffff,
             info->bus & 0xff, info->device & 0xff);
    return NVML_SUCCESS;
}

/* Every capability of an active link is there, except an SLI bridge (capability 4). */
NVML_API nvml_return nvmlDeviceGetNvLinkCapability(nvml_device device, unsigned number, unsigned capability,
                                                   unsigned *value)
{
    const struct link *link;
    CALL(call_gpu(__func__, device));
    REQUIRE(value && capability < 6);
    nvml_return status = find_link(&call, number, &link);
    if (status == NVML_SUCCESS)
        *value = link->active && capability != 4;
    return status;
}

/* Error counters 0 to 4 of a link: the simulated links have no errors of their own. */
NVML_API nvml_return nvmlDeviceGetNvLinkErrorCounter(nvml_device device, unsigned number, unsigned counter,
                                                     uint64_t *value)
{
    const struct link *link;
    CALL(call_gpu(__func__, device));
    REQUIRE(value && counter < 5);
    nvml_return status = find_link(&call, number, &link);
    if (status == NVML_SUCCESS)
        *value = 0;
    return status;
}

/* The second GPU of a call about two; `call` is about the first. */
static nvml_return find_peer(const struct call *call, nvml_device device, const struct gpu **peer)
{
    REQUIRE(session_is_handle(device) && !device->is_mig);
    *peer = call_find_gpu(call->machine, device);
    return *peer ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
}

static unsigned topology_level(const struct gpu *a, const struct gpu *b)
{
    if (a->board == b->board)
        return NVML_TOPOLOGY_INTERNAL;
    if (a->pcie_switch == b->pcie_switch)
        return NVML_TOPOLOGY_SINGLE;
    if (a->pcie_switch_tree == b->pcie_switch_tree)
        return NVML_TOPOLOGY_MULTIPLE;
    if (a->host_bridge == b->host_bridge)
        return NVML_TOPOLOGY_HOSTBRIDGE;
    return a->numa_node == b->numa_node ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
}

NVML_API nvml_return nvmlDeviceGetTopologyCommonAncestor(nvml_device one, nvml_device other, unsigned *level)
{
    const struct gpu *peer;
    CALL(call_gpu(__func__, one));
    REQUIRE(level);
    nvml_return status = find_peer(&call, other, &peer);
    if (status == NVML_SUCCESS)
        *level = topology_level(call.gpu, peer);
    return status;
}

NVML_API nvml_return nvmlDeviceGetTopologyNearestGpus(nvml_device device, unsigned level, unsigned *count,
                                                      nvml_device *devices)
{
    unsigned found = 0;
    CALL(call_gpu(__func__, device));
    REQUIRE(count && (devices || *count == 0));
    for (unsigned i = 0; i < session_gpu_count(); i++) {
        const struct gpu *peer = call_find_gpu(call.machine, session_gpu(i));
        if (!peer || peer == call.gpu || topology_level(call.gpu, peer) != level)
            continue;
        if (found < *count)
            devices[found] = session_gpu(i);
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlDeviceOnSameBoard(nvml_device one, nvml_device other, int *same)
{
    const struct gpu *peer;
    CALL(call_gpu(__func__, one));
    REQUIRE(same);
    nvml_return status = find_peer(&call, other, &peer);
    if (status == NVML_SUCCESS)
        *same = call.gpu->board == peer->board;
    return status;
}

static bool is_same_pci(const char *a, const char *b)
{
    unsigned domain[2], bus[2], device[2];
    return sscanf(a, "%x:%x:%x", &domain[0], &bus[0], &device[0]) == 3 &&
           sscanf(b, "%x:%x:%x", &domain[1], &bus[1], &device[1]) == 3 && domain[0] == domain[1] &&
           bus[0] == bus[1] && device[0] == device[1];
}

/* Two GPUs reach each other by NVLink when a link of one ends at the other, or both have links to a switch. */
static bool has_nvlink_to(const struct gpu *gpu, const struct gpu *peer)
{
    for (size_t i = 0; i < gpu->link_count; i++) {
        const struct link *link = &gpu->links[i];
        if (!link->active)
            continue;
        if (link->remote_type == NVML_NVLINK_REMOTE_SWITCH || is_same_pci(link->remote_pci, peer->pci_address))
            return true;
    }
    return false;
}

NVML_API nvml_return nvmlDeviceGetP2PStatus(nvml_device one, nvml_device other, unsigned index, unsigned *status)
{
    const struct gpu *peer;
    CALL(call_gpu(__func__, one));
    REQUIRE(status && index < NVML_P2P_INDEX_COUNT);
    nvml_return found = find_peer(&call, other, &peer);
    if (found != NVML_SUCCESS)
        return found;
    *status = call.gpu->p2p_status > peer->p2p_status ? call.gpu->p2p_status : peer->p2p_status;
    bool is_linked = has_nvlink_to(call.gpu, peer) && has_nvlink_to(peer, call.gpu);
    if (index == NVML_P2P_INDEX_NVLINK && *status == NVML_P2P_STATUS_OK && !is_linked)
        *status = NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* Reads a UUID as text, dashes and all, into its bytes. */
static bool parse_uuid(const char *text, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        text += *text == '-';
        if (!text[0] || !text[1] || sscanf(text, "%2x", &byte) != 1)
            return false;
        bytes[i] = (uint8_t)byte;
        text += 2;
    }
    return *text == '\0';
}

enum { ARCHITECTURE_HOPPER = 9 }; /* older GPUs are in no fabric, and do not know the question */

/* The fabric that a fabric manager puts a GPU into; only the second version of the structure is known here. */
NVML_API nvml_return nvmlDeviceGetGpuFabricInfoV(nvml_device device, struct nvml_fabric_info_v2 *info)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(info);
    if (info->version != NVML_FABRIC_INFO_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (call.gpu->fabric_state == NVML_FABRIC_NOT_SUPPORTED && call.gpu->architecture < ARCHITECTURE_HOPPER)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (struct nvml_fabric_info_v2){.version = info->version, .state = call.gpu->fabric_state};
    if (info->state != NVML_FABRIC_COMPLETED)
        return NVML_SUCCESS;
    info->clique = call.gpu->fabric_clique;
    return parse_uuid(call.gpu->fabric_cluster, info->cluster, sizeof(info->cluster)) ? NVML_SUCCESS
                                                                                        : NVML_ERROR_UNKNOWN;
}

NVML_API nvml_return nvmlDeviceGetMultiGpuBoard(nvml_device device, unsigned *is_multi)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(is_multi);
    *is_multi = 0;
    for (size_t i = 0; i < call.machine->gpu_count; i++)
        if (&call.machine->gpus[i] != call.gpu && call.machine->gpus[i].board == call.gpu->board)
            *is_multi = 1;
    return NVML_SUCCESS;
}
