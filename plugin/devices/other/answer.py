"""What a container gets with units of other devices: nodes, variables and mounts, and never the annotation of GPUs.

The hook takes `grapnel.dev/allocation` for a proof of GPUs, so nothing of here may set it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.allocation.answer import ContainerAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.allocation.answer import DeviceNode, NamedDevice


@dataclass(frozen=True)
class PlainForm:
    """Everything that the devices need, each thing once; a variable of several devices has their values with commas."""

    def compose(
        self,
        control: tuple[DeviceNode, ...],
        devices: tuple[NamedDevice, ...],
        unit_ids: tuple[str, ...],
        _memory_bytes: Mapping[str, int],
    ) -> ContainerAnswer:
        """Return it for these devices."""
        values: dict[str, dict[str, None]] = {}
        for device in devices:
            for name, value in device.variables:
                values.setdefault(name, {})[value] = None
        nodes = (node for device in devices for node in device.nodes)
        return ContainerAnswer(
            device_ids=unit_ids,
            nodes=tuple(dict.fromkeys((*control, *nodes))),
            variables=tuple((name, ",".join(given)) for name, given in values.items()),
            marks=(),
            mounts=tuple(dict.fromkeys(mount for device in devices for mount in device.mounts)),
        )
