"""`grapnel-node devices`: the GPUs of this node, who has each, and since when it is as it is. Changes nothing.

Driver, kubelet and state files are asked here and now; where one does not say anything, a note says so.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.base.errors import DriverNotReady, HealthError, HistoryError, KubeletError
from plugin.changes.driver_change.release.record import remembered_inventory
from plugin.changes.driver_change.release.store import read_release
from plugin.cli.grammar.options import invocation_of
from plugin.cli.health import gpu_to_json, read_state
from plugin.cli.other_devices import look_at_others, others_to_json, render_others
from plugin.cli.show import take_inventory
from plugin.cli.table import WIDE, WIDEST, clock, fit_table, pods_cell, short_id
from plugin.daemon.optional.division import find_claimed
from plugin.devices.allocation.table import find_missing_channels
from plugin.devices.health.judgement import why_unhealthy
from plugin.devices.health.model import GpuHealth, NodeHealth
from plugin.devices.inventory import Inventory
from plugin.holdings.history.ledger import Ledger
from plugin.holdings.history.store import read_history
from plugin.holdings.history.view import utc_of
from plugin.kubelet.list_size import plan_that_fits
from plugin.kubelet.pod_resources.attribution import holders_by_uuid
from plugin.settings.load import load
from plugin.settings.node_config import BOTH, DEVICE_PLUGIN, DRA
from plugin.sharing.mps.plan import refusals_of_node

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from types import SimpleNamespace

    from plugin.changes.driver_change.release.record import Release
    from plugin.devices.inventory import Device
    from plugin.devices.other.offered import OtherPlan
    from plugin.driver.topology.machine import Topology
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
    from plugin.settings.load import Invocation
    from plugin.settings.node_config import NodeConfig

_KUBELET_S = 2.0
_LEFT = ("GPU", "ID")
_HARDWARE = ("NODE", "PCI", "NUMA", "MEMORY", "MODEL")
_DIVIDED = ("INTERFACE",)
_RIGHT = ("STATE", "SINCE", "PODS")


class _EveryResource:
    """Contains every resource: what a GPU is called elsewhere does not make it free."""

    def __contains__(self, _resource: object) -> bool:
        return True


class _Node(NamedTuple):
    """What was found out. `holders` is None where the kubelet does not say."""

    inventory: Inventory
    release: Release | None
    health: NodeHealth
    ledger: Ledger
    holders: Mapping[str, tuple[PodContainer, ...]] | None
    problems: tuple[str, ...]
    others: OtherPlan | None = None  # None where no file describes any
    left_out: tuple[str, ...] = ()  # why what is declared is not offered
    interface: str = DEVICE_PLUGIN
    claimed: frozenset[str] = frozenset()  # UUIDs of GPUs that are given by claims, where the others are not

    def health_of(self, device: Device) -> GpuHealth:
        return self.health.gpus.get(device.gpu.uuid, GpuHealth())

    def reason(self, device: Device) -> str:
        """Return why a device is given to no pod, but for a release, which is said once."""
        found = why_unhealthy(self.health_of(device))
        return found if self.release is not None else device.unhealthy or found

    def since(self, device: Device) -> str | None:
        """Return since when a device is in its state, None where it was not written down."""
        last = self.ledger.state_of(device.gpu.uuid)
        if last is not None and (last.what == "unhealthy") == bool(self.reason(device)):
            return utc_of(last.at)
        return None

    def interface_of(self, device: Device) -> str:
        """Return by which interface a GPU is given to pods."""
        if self.interface != BOTH:
            return self.interface
        return DRA if device.gpu.uuid in self.claimed else DEVICE_PLUGIN

    def pods(self, device: Device) -> list[dict[str, str]]:
        """Return the containers that have a device, a unit of it, or one of its MIG devices."""
        ids = (device.gpu.uuid, *(each.uuid for each in device.gpu.mig))
        found = dict.fromkeys(holder for one in ids for holder in (self.holders or {}).get(one, ()))
        return [{"namespace": holder.namespace, "pod": holder.pod, "container": holder.container} for holder in found]


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    return show_devices(invocation_of(arguments), as_json=arguments.json)


def show_devices(invocation: Invocation, *, as_json: bool) -> int:
    """Print what the daemon would offer, who has it, and since when it does not."""
    node = _find_out(load(invocation).config)
    if as_json:
        print(json.dumps(_as_json(node), indent=2))
        return 0
    if node.release is not None:
        print(f"{node.release.describe()}: no GPU is offered; what follows is how it was then")
    print(f"driver {node.inventory.driver_version or 'unknown'}{_models(node.inventory)}")
    # Where the output is no terminal, nobody's lines are too long.
    width = shutil.get_terminal_size((WIDEST, 24)).columns
    lines = render_devices(node, width)
    if node.others is not None:
        lines += ["", *render_others(node.others, width)]
    for line in lines:
        print(line)
    for message in (*_findings(node), *node.problems):
        print(f"note: {message}", file=sys.stderr)
    return 0


def _find_out(config: NodeConfig) -> _Node:
    release = read_release(config.state_folder)
    problems: list[str] = []
    found = look_at_others(config)
    try:
        inventory = _look(config, release)
    except DriverNotReady as error:
        if found is None:
            raise
        inventory = Inventory()
        problems.append(error.message)
    health, ledger, holders = NodeHealth(), Ledger(time.time()), None
    try:
        health = read_state(config.state_folder)
    except HealthError as error:
        problems.append(f"health is not known: {error.message}")
    try:
        ledger.begin_with(read_history(config.state_folder))
    except HistoryError as error:
        problems.append(f"it is not known since when: {error.message}")
    try:
        holders = holders_by_uuid(_list_assignments(config), _EveryResource())
    except KubeletError as error:
        problems.append(f"it is not known who has which GPU: {error.message}")
    if found is not None:
        plan, faults = found
        problems += [*faults, *(message for _, message in plan.findings)]
    others = None if found is None else found[0]
    left_out = () if release is not None else tuple(explain_offers(config, inventory))
    claimed = find_claimed(config.state_folder, config.claims, inventory, config.sys_root)
    return _Node(
        inventory, release, health, ledger, holders, tuple(problems), others, left_out, config.interface, claimed
    )


def explain_offers(config: NodeConfig, inventory: Inventory) -> Iterator[str]:
    """Yield what of a node's GPUs is not offered as declared, and why, as far as that does not change by itself."""
    yield from (message for _, message in plan_that_fits(inventory, config.offer_rules).findings)
    yield from (f"{uuid} {why}" for uuid, why in refusals_of_node(config, inventory).items())
    imex = config.settings.answers.imex
    missing = find_missing_channels(config.settings.answers, inventory) if inventory.devices else ""
    if missing and imex.is_required:
        yield f"no gpu is given away: {missing}, and imex.required is set"


def _findings(node: _Node) -> tuple[str, ...]:
    return (*(message for _, message in node.inventory.findings), *node.left_out)


def _list_assignments(config: NodeConfig) -> tuple[DeviceAssignment, ...]:
    import asyncio

    from plugin.kubelet.pod_resources.client import list_assignments

    return asyncio.run(list_assignments(config.kubelet_root, _KUBELET_S))


def _look(config: NodeConfig, release: Release | None) -> Inventory:
    """Ask the driver; on a released node it is not asked, and what is remembered is shown."""
    tree = config.host_tree
    if release is not None:
        return remembered_inventory(release, tree)
    from plugin.driver.nvml.loading.library import NvmlSource

    return take_inventory(NvmlSource(config.settings.driver_root), tree)


def _models(inventory: Inventory) -> str:
    """Return how many GPUs of which product there are."""
    models = [device.gpu.model for device in inventory.devices]
    return "".join(f", {models.count(model)} {model}" for model in dict.fromkeys(models))


def render_devices(node: _Node, width: int) -> list[str]:
    """Return the table: state and pods on 80 columns, whole ids on 120, the hardware where there is room."""
    has_hardware, has_ids = width >= WIDEST, width >= WIDE
    divided = _DIVIDED if node.interface == BOTH else ()
    header = (*_LEFT, *(_HARDWARE if has_hardware else ()), *divided, *_RIGHT)
    rows = [
        (_row(node, device, has_hardware=has_hardware, has_ids=has_ids), node.reason(device))
        for device in node.inventory.devices
    ]
    return fit_table([(header, ""), *rows], width)


def _row(node: _Node, device: Device, *, has_hardware: bool, has_ids: bool) -> tuple[str, ...]:
    gpu = device.gpu
    memory = "-" if device.memory_bytes is None else f"{device.memory_bytes / 2**30:.1f} GiB"
    numa = "-" if device.numa_node is None else str(device.numa_node)
    hardware = (device.path, gpu.pci_address, numa, memory, gpu.model) if has_hardware else ()
    state = "unhealthy" if node.reason(device) else "healthy"
    pods = "?" if node.holders is None else pods_cell(node.pods(device))
    name = gpu.uuid if has_ids else short_id(gpu.uuid)
    divided = (node.interface_of(device),) if node.interface == BOTH else ()
    return str(gpu.index), name, *hardware, *divided, state, clock(node.since(device)), pods


def _as_json(node: _Node) -> dict[str, object]:
    release, inventory = node.release, node.inventory
    return {
        "released": None if release is None else {"since": release.since, "problem": release.problem},
        "driverVersion": inventory.driver_version,
        "devices": [_device_to_json(node, device) for device in inventory.devices],
        "otherDevices": [] if node.others is None else others_to_json(node.others),
        "controlNodes": [one.path for one in inventory.control],
        "findings": list(_findings(node)),
        "problems": list(node.problems),
    }


def _device_to_json(node: _Node, device: Device) -> dict[str, Any]:
    return {
        "index": device.gpu.index,
        "uuid": device.gpu.uuid,
        "node": device.path,
        "pciAddress": device.gpu.pci_address,
        "numaNode": device.numa_node,
        "memoryBytes": device.memory_bytes,
        "model": device.gpu.model,
        "interface": node.interface_of(device),
        "state": "unhealthy" if node.reason(device) else "healthy",
        "reason": node.reason(device),
        "since": node.since(device),
        "pods": None if node.holders is None else node.pods(device),
        **connections_to_json(node.inventory.topology, device.gpu.uuid),
        "health": gpu_to_json(node.health_of(device)),
    }


def connections_to_json(topology: Topology, uuid: str) -> dict[str, object]:
    """Return a GPU's pairs in the driver's order, and its nearest RDMA devices; nothing where they are not known."""
    position = topology.positions.get(uuid)
    if position is None:
        return {}
    pairs = zip(topology.ids, topology.pairs[position], strict=False)
    return {
        "peers": [
            {"uuid": other, "nvlinks": pair.nvlinks, "distance": pair.level.words, "score": pair.score}
            for other, pair in pairs
            if other != uuid
        ],
        "nics": [{"name": nic.name, "distance": nic.level.words} for nic in topology.neighbours(uuid)],
    }
