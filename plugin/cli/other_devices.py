"""Other devices than GPUs for people: what the files and the machine say here and now. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugin.cli.table import fit_table
from plugin.devices.other.files import SUFFIX, read_classes
from plugin.devices.other.plan import plan_others
from plugin.devices.other.sysfs import HostSysfs
from plugin.settings.explain import Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plugin.devices.other.offered import OtherPlan
    from plugin.settings.node_config import NodeConfig

_HEADER = ("RESOURCE", "CLASS", "UNITS", "HEALTHY", "NUMA", "DEVICES")


def look_at_others(config: NodeConfig) -> tuple[OtherPlan, tuple[str, ...]] | None:
    """Return what is offered of them, and what is wrong with the files; None where no file describes any."""
    if not config.device_classes.is_dir():
        return None

    found = read_classes(config.device_classes)
    if not found.classes and not found.problems:
        return None
    plan = plan_others(found.classes.values(), HostSysfs(config.sys_root, config.dev_root))
    return plan, tuple(found.problems.values())


def render_others(plan: OtherPlan, width: int) -> list[str]:
    """Return the table: a line for each resource, as a count may be a thousand units."""
    rows = [((*_cells(one),), "") for one in others_to_json(plan)]
    return fit_table([(_HEADER, ""), *rows], width) if rows else ["no other device is found"]


def _cells(one: Mapping[str, Any]) -> Iterator[str]:
    yield from (one["resource"], one["class"], str(one["units"]), str(one["healthy"]))
    yield ",".join(map(str, one["numaNodes"])) or "-"
    yield ", ".join(device["id"] for device in one["devices"])


def others_to_json(plan: OtherPlan) -> list[dict[str, Any]]:
    """Return the resources with their devices, each device once however many units it is."""
    return [
        {
            "resource": name,
            "class": resource.class_name,
            "units": len(resource.offers),
            "healthy": sum(offer.is_healthy for offer in resource.offers),
            "numaNodes": sorted({offer.numa_node for offer in resource.offers if offer.numa_node is not None}),
            "devices": [
                {
                    "id": device.device_id,
                    "nodes": [node.host_path for node in device.nodes],
                    "environment": dict(device.variables),
                    "reason": reason,
                }
                for device, reason in dict.fromkeys(
                    (entry.device, entry.unhealthy) for entry in resource.table.entries.values()
                )
            ],
        }
        for name, resource in plan.resources.items()
    ]


def explain_classes(config: NodeConfig) -> tuple[Sequence[Line], Sequence[str]]:
    """Return a line for each class, and what is wrong with the files."""
    if not config.device_classes.is_dir():
        return (), ()

    found = read_classes(config.device_classes)
    folder = config.device_classes
    lines = [
        Line(f"devices.{name}", one.describe(), str(folder / f"{name}{SUFFIX}")) for name, one in found.classes.items()
    ]
    return lines, tuple(found.problems.values())
