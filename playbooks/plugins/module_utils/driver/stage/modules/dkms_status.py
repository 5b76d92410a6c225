"""Reads which modules dkms has installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 180.0  # it reads every module, at the lowest priority
# dkms 3 writes name/version, dkms 2 name, version.
_LINE = re.compile(
    r"^(?P<module>nvidia[^/,\s]*)(?:/|, )(?P<version>[^,\s]+), (?P<kernel>[^,\s]+), (?P<arch>[^:,\s]+): installed",
    re.MULTILINE,
)


@dataclass(frozen=True)
class BuiltModule:
    """One of the driver's modules, installed for one kernel."""

    module: str
    version: str
    kernel: str
    architecture: str  # as dkms was told: not always the kernel's name for it


def installed_modules(host: Host) -> list[BuiltModule]:
    """Return the driver's modules that dkms has installed, none where there is no dkms; raises HostError."""
    done = host.ask(["dkms", "status"], _TIMEOUT_S)
    return [
        BuiltModule(each["module"], each["version"], each["kernel"], each["arch"])
        for each in _LINE.finditer(done.stdout)
    ]
