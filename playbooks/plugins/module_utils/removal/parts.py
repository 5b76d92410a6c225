"""Names the parts of a node that can be given back one by one, and tells which part a file belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.grapnel.node.plugins.module_utils.driver.removal import SOURCES
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import OWN_FOLDER
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import MODULE_PATH
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT

RUNTIME, DAEMON, HOOK, NODE = "runtime", "daemon", "hook", "node"
PARTS = (DAEMON, RUNTIME, HOOK, NODE)  # in the order in which they go: who uses something before what is used
HOOK_CONFIG = "/etc/grapnel/hook.json"
NODE_CONFIG = "/etc/grapnel/node.json"
OF_HOOK = (HOOK_CONFIG, MODULE_PATH)  # read by no service
_OWN = "/etc/grapnel/"
_UNIT_FILES = tuple(
    f"/etc/systemd/system/{unit}" for unit in (DAEMON_UNIT, "grapnel-drift.service", "grapnel-drift.timer")
)
_OF_ENGINES = f"{OWN_FOLDER}/"


@dataclass(frozen=True)
class Reader:
    """The service that reads a file, empty for none, and the engine that it is; one with ``reloads`` is reloaded."""

    unit: str = ""
    engine: str = ""
    reloads: bool = False


def part_of(path: str, reader: Reader) -> str:
    """Return the part that a file belongs to."""
    if path in OF_HOOK:
        return HOOK
    if (
        reader.unit == DAEMON_UNIT
        or path in _UNIT_FILES
        or (path.startswith(_OWN) and not path.startswith(_OF_ENGINES))
    ):
        return DAEMON
    return RUNTIME if reader.engine else NODE


def is_drivers(path: str) -> bool:
    """Tell whether a file is the driver's: its removal takes that away, whatever its text is by then."""
    return path in SOURCES
