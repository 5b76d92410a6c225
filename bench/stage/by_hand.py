"""Measures the floor of a swap: the same packages and module, on one node, only with the node's own tools."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.nodes import Node

DAEMON = "grapnel-node"
LAUNCHER = "/usr/lib/grapnel/node/grapnel-node"
QUERY = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n"]
APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]
CHANGES = ["--allow-downgrades", "--allow-change-held-packages"]
MODULES = ["nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"]  # in the order in which they can be unloaded
Packages = dict[str, str]  # name -> version


@dataclass(frozen=True)
class Swap:
    """Durations of one swap by hand, in seconds."""

    packages_s: float
    module_s: float


def installed(node: Node) -> Packages:
    """Return every package of a node."""
    return dict(line.split(" ", 1) for line in node.run(QUERY).stdout.splitlines())


def changed(before: Packages, after: Packages) -> Packages:
    """Return the ``before`` versions of the packages that have another version ``after``."""
    return {name: version for name, version in before.items() if after.get(name, version) != version}


def swap(node: Node, packages: Packages, module: str) -> Swap:
    """Bring a node whose GPUs are not in use to these packages and this module; only that is timed."""
    node.install_module(module)
    node.run([LAUNCHER, "release", "--json"])
    began = time.monotonic()
    node.run([*APT, *CHANGES, *(f"{name}={version}" for name, version in packages.items())])
    installed_at = time.monotonic()
    node.run(["modprobe", "--remove", *MODULES])
    node.run(["modprobe", "--all", *reversed(MODULES)])
    ended = time.monotonic()
    node.run(["systemctl", "restart", DAEMON])
    node.run([LAUNCHER, "resume", "--json"])
    return Swap(installed_at - began, ended - installed_at)
