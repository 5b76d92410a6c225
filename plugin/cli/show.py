"""`grapnel-node devices` and `grapnel-node config`: look, change nothing."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from plugin.cli.connections import connections_to_json
from plugin.cli.health import gpu_to_json, read_state
from plugin.errors import HealthError
from plugin.health.judgement import why_unhealthy
from plugin.health.model import GpuHealth, NodeHealth
from plugin.inventory import Device, HostTree, Inventory, next_inventory
from plugin.observer import snapshot_of_gpus
from plugin.release.record import Release, remembered_inventory
from plugin.release.store import read_release
from plugin.settings.explain import explain, show_cell
from plugin.settings.load import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.config import NodeConfig
    from plugin.settings.load import Given
    from plugin.snapshot import GpuSource

_HEADER = ("INDEX", "UUID", "NODE", "PCI", "NUMA", "MEMORY", "HEALTH", "MODEL")


def take_inventory(source: GpuSource, tree: HostTree) -> Inventory:
    """Look once, and let go of the driver."""
    source.open()
    try:
        return next_inventory(Inventory(), snapshot_of_gpus(source), tree)
    finally:
        source.close()


def _health_of(device: Device, health: NodeHealth) -> GpuHealth:
    return health.gpus.get(device.gpu.uuid, GpuHealth())


def _row(device: Device, health: NodeHealth) -> tuple[str, ...]:
    gpu = device.gpu
    memory = "-" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.1f} GiB"
    numa = "-" if device.numa_node is None else str(device.numa_node)
    word = "unhealthy" if why_unhealthy(_health_of(device, health)) else "healthy"
    return (str(gpu.index), gpu.uuid, device.path, gpu.pci_address, numa, memory, word, gpu.model)


def format_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return columns as wide as they need to be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)  # noqa: B905 - strict= needs Python 3.10
    return "\n".join(lines)


def _as_json(inventory: Inventory, release: Release | None, health: NodeHealth) -> dict[str, object]:
    return {
        "released": None if release is None else {"since": release.since, "problem": release.problem},
        "driverVersion": inventory.driver_version,
        "devices": [
            {
                "index": device.gpu.index,
                "uuid": device.gpu.uuid,
                "node": device.path,
                "pciAddress": device.gpu.pci_address,
                "numaNode": device.numa_node,
                "memoryBytes": device.gpu.memory_bytes,
                "model": device.gpu.model,
                **connections_to_json(inventory.topology, device.gpu.uuid),
                "health": gpu_to_json(_health_of(device, health)),
            }
            for device in inventory.devices
        ],
        "controlNodes": [node.path for node in inventory.control],
        "findings": [message for _, message in inventory.findings],
    }


def _look(config: NodeConfig, release: Release | None) -> Inventory:
    """Ask the driver; on a released node nobody does, not even to look, and what is remembered is shown."""
    tree = HostTree(config.dev_root, config.sys_root)
    if release is not None:
        return remembered_inventory(release, tree)
    from plugin.nvml.library import NvmlSource  # noqa: PLC0415 - `config` needs no NVML

    return take_inventory(NvmlSource(config.settings.driver_root), tree)


def _remembered_health(config: NodeConfig) -> tuple[NodeHealth, str]:
    """Return what the daemon found and people decided, and why that is not known."""
    try:
        return read_state(config.state_folder), ""
    except HealthError as error:
        return NodeHealth(), f"health is not known: {error.message}"


def show_devices(given: Given, *, as_json: bool) -> int:
    """Print what the daemon would offer, and since when it does not."""
    config = load(given).config
    release = read_release(config.state_folder)
    inventory = _look(config, release)
    health, problem = _remembered_health(config)
    if as_json:
        print(json.dumps(_as_json(inventory, release, health), indent=2))
        return 0
    if release is not None:
        print(f"{release.describe()}: no GPU is offered; what follows is how it was then")
    print(f"driver {inventory.driver_version or 'unknown'}")
    print(format_table([_HEADER, *(_row(device, health) for device in inventory.devices)]))
    reasons = ((device.gpu.uuid, why_unhealthy(_health_of(device, health))) for device in inventory.devices)
    for message in (
        *(message for _, message in inventory.findings),
        *(f"{uuid} is unhealthy: {reason}" for uuid, reason in reasons if reason),
        *([problem] if problem else ()),
    ):
        print(f"note: {message}", file=sys.stderr)
    return 0


def show_config(given: Given) -> int:
    """Print the configuration in the form of node.json."""
    print(json.dumps(load(given).config.to_json(), indent=2))
    return 0


def explain_config(given: Given, *, as_json: bool) -> int:
    """Print every setting's value, where it came from, and why it changes nothing where that is so."""
    loaded = load(given)
    lines = explain(loaded.resolved, loaded.settings, has_file=loaded.has_file)
    if as_json:
        settings = [
            {"name": line.name, "value": line.value, "origin": line.origin, "noEffect": line.effect or None}
            for line in lines
        ]
        print(json.dumps({"settings": settings, "notes": loaded.resolved.notes}, indent=2))
        return 0
    rows = [
        (line.name, show_cell(line.value), line.origin, f"no: {line.effect}" if line.effect else "yes")
        for line in lines
    ]
    print(format_table([("SETTING", "VALUE", "FROM", "COUNTS"), *rows]))
    for note in loaded.resolved.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0
