"""Reads dnf's modules: which stream of a module offers a package, and which streams are enabled.

NVIDIA's repositories for RHEL 8 and 9 offer each branch and flavour of the driver as a stream of ``nvidia-driver``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_MODULE = "nvidia-driver"
_CACHE = "/var/cache/dnf"
_ENABLED = "/etc/dnf/modules.d"
_TIMEOUT_S = 60.0
_FIELD = re.compile(r"^([A-Za-z ]*?) *: (.*)$")
_STATE = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(\S+)[ \t]*$", re.MULTILINE)


def streams_of_packages(host: Host) -> dict[str, str]:
    """Return ``nvidia-driver:STREAM`` by ``name-epoch:version-release.arch``; empty where no repository has modules."""
    if not _has_modules(host):
        return {}
    shown = host.run(["dnf", "-q", "-C", "module", "info", _MODULE], _TIMEOUT_S)
    found: dict[str, str] = {}
    field = stream = ""
    for line in shown.stdout.splitlines():
        match = _FIELD.match(line)
        if match is None:
            continue
        field = match.group(1).strip() or field  # a list's further lines have no name in front
        if field == "Stream":
            stream = f"{_MODULE}:{match.group(2).split(' ', 1)[0]}"  # "open-dkms [d][e]"
        elif field == "Artifacts":
            found.setdefault(match.group(2).strip(), stream)
    return found


def _has_modules(host: Host) -> bool:
    folders = (f"{_CACHE}/{name}/repodata" for name in host.names(_CACHE))
    return any("modules.yaml" in name for folder in folders for name in host.names(folder))


def enabled_streams(host: Host) -> Mapping[str, str]:
    """Return the enabled stream of the driver's module: dnf refuses packages of another one until it is reset."""
    text = host.read_text(f"{_ENABLED}/{_MODULE}.module") or ""
    state = dict(_STATE.findall(text))
    return {_MODULE: state["stream"]} if state.get("state") == "enabled" and state.get("stream") else {}
