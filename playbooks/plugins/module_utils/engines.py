"""Container engines: which are there, and what they say about their own configuration.

How a configuration is written and swapped belongs to `configuration`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.host import Finished

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_ENGINES = ("containerd", "crio", "docker", "podman")
_TIMEOUT_S = 20.0
_VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")
_CRI_PLUGIN = re.compile(r"^io\.containerd\.(?:grpc\.v1\s+cri|cri\.v1\s+\w+)\b.*\serror\s*$", re.MULTILINE)

CONTAINERD_CONFIG = "/etc/containerd/config.toml"


def read_engines(host: Host) -> dict[str, Any]:
    """Facts ``engines``; None for those that are not there."""
    return {engine: _read_engine(host, engine) for engine in _ENGINES}


def _read_engine(host: Host, engine: str) -> dict[str, Any] | None:
    binary = host.find_command(engine)
    if binary is None:
        return None
    version = _VERSION.search(host.run([binary, "--version"], _TIMEOUT_S).stdout)
    return {
        "binary": binary,
        "version": version.group() if version else "",
        "config_error": _containerd_config_error(host, binary) if engine == "containerd" else None,
    }


def _containerd_config_error(host: Host, binary: str) -> str | None:
    if not host.path(CONTAINERD_CONFIG).exists():
        return None
    dumped = host.run(containerd_dump(binary), _TIMEOUT_S)
    return dumped.complaint if dumped.return_code else None


def containerd_dump(binary: str) -> list[str]:
    """Command with which containerd parses its configuration, imports and plugin tables included."""
    return [binary, "--config", CONTAINERD_CONFIG, "config", "dump"]


def containerd_silence(host: Host) -> str | None:
    """Return why containerd does not answer, None when it does; it may just need more time."""
    listed = _list_plugins(host)
    return listed.complaint if listed.return_code else None


def containerd_flaw(host: Host) -> str | None:
    """Return why a containerd that answers is of no use to a kubelet, None when it is.

    containerd comes up without its CRI plugin when that plugin's table is wrong, or names a file that is not there.
    """
    if _CRI_PLUGIN.search(_list_plugins(host).stdout):
        return "the cri plugin of containerd could not be loaded, see journalctl -u containerd"
    return None


def _list_plugins(host: Host) -> Finished:
    client = host.find_command("ctr")
    return host.run([client, "--timeout", "5s", "plugins", "ls"], _TIMEOUT_S) if client else Finished(0)
