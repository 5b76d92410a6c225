"""How long a device list is as the kubelet receives it, and which lists it would not take. Pure.

The kubelet dials a plugin without options for calls (`dial` in pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go,
1.36), so that grpc-go's own limit holds: `defaultClientMaxReceiveMessageSize`, 4 MiB (clientconn.go). A longer list
ends its stream, and with it the registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.resources import Offer, plan_offers
from plugin.kubelet.device_plugin.messages import device_list
from plugin.kubelet.rpc.codec import encode

if TYPE_CHECKING:
    from plugin.devices.inventory import Inventory
    from plugin.devices.resources import IdLengths, OfferPlan, OfferRules

KUBELET_TAKES_BYTES = 4 * 2**20


def list_bytes(lengths: IdLengths) -> int:
    """Return how long a list is when all of it is unhealthy, which takes more bytes.

    Devices are encoded one after the other, and ids of one length on one NUMA node alike: one of each is enough.
    """
    return sum(
        count * len(encode(device_list([Offer("x" * length, is_healthy=False, numa_node=numa_node)])))
        for (length, numa_node), count in lengths.items()
    )


def why_too_long(lengths: IdLengths) -> str:
    """Return why the kubelet would not take a list, "" where it would."""
    size = list_bytes(lengths)
    if size <= KUBELET_TAKES_BYTES:
        return ""
    return (
        f"its list of {sum(lengths.values()):,} devices has {size:,} bytes, and a kubelet takes "
        f"{KUBELET_TAKES_BYTES:,}: have fewer replicas, larger units, or several resources"
    )


def plan_that_fits(inventory: Inventory, rules: OfferRules) -> OfferPlan:
    """Return what is offered of an inventory, without resources whose lists are too long: these are findings."""
    return plan_offers(inventory, rules, why_too_long)
