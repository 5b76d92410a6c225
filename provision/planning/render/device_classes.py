"""Renders the files of device classes, and which of them are ours (contract ``docs/contracts/device-class``).

People may have files of their own in the same folder. So a list says which ones were declared: what is declared no more
is taken away by it, and nothing else ever is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DeviceClass
from provision.planning.node_plan import FileContent

if TYPE_CHECKING:
    from provision.declaration.spec.model import StackSpec

DEVICE_CLASSES: Final = "/etc/grapnel/devices.d"
DECLARED_PATH: Final = "/etc/grapnel/declared-devices.json"


def render_device_classes(stack: StackSpec) -> tuple[FileContent, ...]:
    """Return the files of the declared classes; those that only have a name are none of an effective declaration."""
    return tuple(
        FileContent(class_path(each.name), each.content)
        for each in stack.plugin.device_classes
        if isinstance(each, DeviceClass)
    )


def class_path(name: str) -> str:
    """Return where the file of a class is."""
    return f"{DEVICE_CLASSES}/{name}.json"


def render_declared(names: tuple[str, ...]) -> str:
    """Return the list of the classes that were declared."""
    return json.dumps({"declared": sorted(names)}) + "\n"


def parse_declared(text: str | None) -> tuple[str, ...]:
    """Return the classes of a list that is on a node; nothing where it is missing, or not one of ours."""
    try:
        names = json.loads(text or "")["declared"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(each for each in names if isinstance(each, str)) if isinstance(names, list) else ()
