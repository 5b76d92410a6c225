"""The CDI file by which engines add a claim's devices to a container. Pure.

One file for the node, whatever claims there are: each device under its UUID, what makes a container a client of its MPS
server under a name beside it, and what each container with one needs besides. So no file is left behind by a claim, and
no engine has to read one anew while a pod starts, but for an amount of memory that no claim had before. The hook that
the file adds takes for granted what the engine added: device nodes, which only the kubelet names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.devices.allocation.answer import render_memory
from plugin.kubelet.cdi_names import KIND, device_name, memory_name, mps_name
from plugin.sharing.mps.answer import answer_client
from plugin.sharing.mps.plan import MpsDaemon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from plugin.devices.allocation.answer import Mount
    from plugin.devices.inventory import ControlNode
    from plugin.dra.devices import DraDevice
    from plugin.kubelet.cdi_names import MemoryPart

    Json = dict[str, Any]

FILE = "grapnel-claims.json"
_NO_HOST_PATH, _HOST_PATH = "0.3.0", "0.5.0"  # the least version that has what is used
_MARGIN_S = 15  # the hook gives up by itself before that, and says why
_NODE_MODE, _CAPABILITY_MODE = 0o666, 0o444
_CAPABILITIES = "/dev/nvidia-caps/"


class Hook(NamedTuple):
    """The hook's path, its time, and whether a container must not start without the limit of its memory."""

    path: str
    timeout_s: float
    is_limit_required: bool = False

    def call(self, *arguments: str) -> Json:
        """Return it as the file has it."""
        return {
            "hookName": "createRuntime",
            "path": self.path,
            "args": ["grapnel-hook", *arguments],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"],
            "timeout": int(self.timeout_s) + _MARGIN_S,
        }

    def limit(self, part: MemoryPart) -> Json:
        """Return its call that has a container's memory limited: to the sum of all of its parts of that GPU."""
        memory = render_memory({part.uuid: part.memory_bytes}, is_required=self.is_limit_required)
        return self.call("limit", memory, *(("--part", str(part.number)) if part.number else ()))


def render_cdi(
    devices: Iterable[DraDevice],
    control: Iterable[ControlNode],
    hook: Hook,
    mps_root: Path,
    memory: Iterable[MemoryPart] = (),
) -> Json:
    """Return the file's content. There has to be a device, else it is not valid.

    `memory` are the parts that claims have of GPUs' memory.
    """
    found = tuple(devices)
    nodes = {each.uuid: [device_node(*pair) for pair in each.nodes] for each in found}
    common = [device_node(f"/dev/{each.name}", each.path) for each in control]
    every = [*common, *(node for of_device in nodes.values() for node in of_device)]
    return {
        "cdiVersion": _HOST_PATH if any("hostPath" in node for node in every) else _NO_HOST_PATH,
        "kind": KIND,
        "devices": [
            *(
                {"name": device_name(each.uuid), "containerEdits": {"deviceNodes": nodes[each.uuid], **_shared(each)}}
                for each in found
            ),
            *_clients(found, mps_root),
            *(
                {"name": memory_name(each), "containerEdits": {"hooks": [hook.limit(each)]}}
                for each in sorted(set(memory))
            ),
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "GRAPNEL_INJECTION=cdi"],
            "deviceNodes": common,
            "hooks": [hook.call("prestart", "--entitlement", "cdi")],
        },
    }


def _clients(devices: Iterable[DraDevice], mps_root: Path) -> Iterator[Json]:
    """Yield what makes a container a client of each GPU's MPS server: for claims that ask for it."""
    for each in devices:
        if each.type == "gpu":
            client = answer_client(MpsDaemon(each.uuid, mps_root / each.uuid, 1, 0, 0))
            yield {"name": mps_name(each.uuid), "containerEdits": edits(client.variables, client.mounts)}


def _shared(device: DraDevice) -> Json:
    """Return what a container needs besides, so that its processes share the device as it is declared."""
    return {} if device.share is None else edits(device.share.variables, device.share.mounts)


def edits(variables: Iterable[tuple[str, str]], mounts: Iterable[Mount]) -> Json:
    """Return what adds variables and mounts to a container."""
    env = [f"{name}={value}" for name, value in variables]
    bound = [
        {
            "hostPath": each.host_path,
            "containerPath": each.container_path,
            "options": ["ro" if each.read_only else "rw", "nosuid", "nodev", "bind"],
        }
        for each in mounts
    ]
    return {**({"env": env} if env else {}), **({"mounts": bound} if bound else {})}


def device_node(path: str, host_path: str, permissions: str = "rw") -> Json:
    """Return a device node of a container."""
    mode = _CAPABILITY_MODE if path.startswith(_CAPABILITIES) else _NODE_MODE
    where = {"path": path} if path == host_path else {"path": path, "hostPath": host_path}
    return {**where, "fileMode": mode, "permissions": permissions}
