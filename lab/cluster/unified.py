"""Makes a node of a cluster look like one with cgroup v2 alone, for a while: to the runtime and to the node daemon.

The machine below may have both versions. Engine and kubelet keep to v1, for the controllers that this kernel has
there; containers that are made meanwhile are in groups of v2, as runc makes them on a host without v1, and
`grapnel-node` finds that hierarchy where such a host has it.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node

HIERARCHY = "/sys/fs/cgroup"
UNIT = "grapnel-node"
_UNIFIED = f"{HIERARCHY}/unified"
_RUNC = Path(__file__).with_name("files") / "unified/usr/local/sbin/runc"
_DROP_IN = f"etc/systemd/system/{UNIT}.service.d/unified.conf"


@contextmanager
def only_cgroup_v2(node: Node) -> Iterator[None]:
    """Have it so within the block; pods that were made in it must be gone at its end. Raises ``ClusterError``."""
    if (node.root / HIERARCHY.lstrip("/") / "cgroup.controllers").exists():
        yield
        return
    if not (node.root / _UNIFIED.lstrip("/") / "cgroup.controllers").exists():
        raise ClusterError(f"node {node.name} has no cgroup v2", hint=f"mount it at {_UNIFIED} on this machine")
    runtime, drop_in = node.root / "usr/local/sbin/runc", node.root / _DROP_IN
    runtime.parent.mkdir(parents=True, exist_ok=True)
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    runtime.write_bytes(_RUNC.read_bytes())
    runtime.chmod(0o755)
    drop_in.write_text(f"[Service]\nBindPaths={_UNIFIED}:{HIERARCHY}\n")
    try:
        _restart(node)
        yield
    finally:
        runtime.unlink()
        drop_in.unlink()
        _restart(node)


def _restart(node: Node) -> None:
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "restart", UNIT])
