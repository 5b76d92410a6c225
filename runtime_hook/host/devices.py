"""Finds device nodes, GPUs and MIG devices, and compares the nodes with the kernel's own lists.

A node that is left over from before the module was reloaded has a major that is another driver's by now, or
nobody's: it is told apart as stale and never given to a container.
"""

from __future__ import annotations

from runtime_hook.base.values import value
from runtime_hook.host.driverfiles import CONTROL_FAMILIES, CONTROL_NODES, FIRST_OF_FAMILY, MAJOR_NAMES
from runtime_hook.host.fingerprint import (
    GPU_FOLDER,
    PCI_FOLDER,
    instance_folder,
    is_number,
    mark_device,
    mig_instances,
    read_majors,
)
from runtime_hook.host.gpumodels import brand, compute_capability
from runtime_hook.host.inventory import IMEX_FOLDER, IMEX_NAME, ControlDevice, Gpu, ImexChannels, MigDevice, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.host.inventory import DeviceMark

_CAPS_FOLDER = "/dev/nvidia-caps"
_MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
_DRM_NAMES = ("card", "renderD")
_LIMIT_BYTES = 1 << 16
_PAIR = 2  # words: a name and a number
_MIG_MINORS_LIMIT_BYTES = 1 << 20


@value
class Devices:
    """Everything that was found. ``marks``: what there was at the paths that have to stay as they are."""

    control: tuple[ControlDevice, ...]
    gpus: tuple[Gpu, ...]
    mig: tuple[MigDevice, ...]
    imex: ImexChannels
    stale: tuple[Node, ...]
    marks: tuple[DeviceMark, ...]


def find_devices(tree: HostTree) -> Devices:
    """Look at ``/dev``, ``/proc/driver/nvidia`` and ``/sys/bus/pci``."""
    search = _Search(tree)
    control = [*search.control_nodes(), *search.control_families(), *search.mig_control_nodes()]
    imex = search.imex_channels()
    gpus = search.gpus()
    mig = [device for gpu in gpus for device in search.mig_devices(gpu)]
    return Devices(
        control=tuple(control),
        gpus=tuple(gpu for gpu in gpus if gpu.major >= 0),
        mig=tuple(mig),
        imex=imex,
        stale=tuple(search.stale),
        marks=tuple(
            search.mark(path) for path in (*CONTROL_NODES.values(), *FIRST_OF_FAMILY, *[gpu.path for gpu in gpus])
        ),
    )


class _Search:
    """One scan of the host: the kernel's majors and what turned out to be stale."""

    def __init__(self, tree: HostTree) -> None:
        self._tree = tree
        self._majors = dict(read_majors(tree))
        self._caps = _read_mig_minors(tree)
        self._seen: dict[str, DeviceMark] = {}
        self.stale: list[Node] = []

    def mark(self, path: str) -> DeviceMark:
        """Return which device a path leads to, as first seen."""
        if path not in self._seen:
            self._seen[path] = mark_device(path, self._tree.status(path))
        return self._seen[path]

    def node(self, path: str, kind: str) -> Node | None:
        """Return a character device, or None or a stale one, which is noted."""
        seen = self.mark(path)
        if seen.major < 0:
            return None
        node = Node(path, seen.major, seen.minor)
        if self._is_stale(node, kind):
            self.stale.append(node)
            return None
        return node

    def _is_stale(self, node: Node, kind: str) -> bool:
        """Tell whether the kernel gives this kind another major; it cannot be told where it lists nothing of NVIDIA."""
        names = MAJOR_NAMES.get(kind)
        if names is None or not any(name in self._majors for name in MAJOR_NAMES["gpu"]):
            return False
        return node.major not in {self._majors[name] for name in names if name in self._majors}

    def control_nodes(self) -> list[ControlDevice]:
        """Return the nodes of which a host has one."""
        found = ((kind, self.node(path, kind)) for kind, path in CONTROL_NODES.items())
        return [_control(node, kind) for kind, node in found if node is not None]

    def control_families(self) -> list[ControlDevice]:
        """Return the nodes of which a host has any number, by number."""
        found = []
        for kind, folder, beginning in CONTROL_FAMILIES:
            tails = [name[len(beginning) :] for name in self._tree.names(folder) if name.startswith(beginning)]
            for tail in sorted(
                (tail for tail in tails if not tail or is_number(tail)), key=lambda tail: int(tail or 0)
            ):
                node = self.node(f"{folder}/{beginning}{tail}", kind)
                if node is not None:
                    found.append(_control(node, kind))
        return found

    def imex_channels(self) -> ImexChannels:
        """Return the IMEX channels; a node whose minor is not the number in its name is left out."""
        tails = (name[len(IMEX_NAME) :] for name in self._tree.names(IMEX_FOLDER) if name.startswith(IMEX_NAME))
        runs: list[tuple[int, int]] = []
        major = -1
        for number in sorted({int(tail) for tail in tails if is_number(tail)}):
            node = self.node(f"{IMEX_FOLDER}/{IMEX_NAME}{number}", "imex")
            if node is None or node.minor != number or node.major != (major if runs else node.major):
                continue
            major = node.major
            if runs and runs[-1][1] == number - 1:
                runs[-1] = (runs[-1][0], number)
            else:
                runs.append((number, number))
        return ImexChannels(major, tuple(runs))

    def mig_control_nodes(self) -> list[ControlDevice]:
        """Return the nodes that allow to change MIG's layout and to watch all of it."""
        found = []
        for kind, name in (("mig-config", "config"), ("mig-monitor", "monitor")):
            node = self._cap(name, kind)
            if node is not None:
                found.append(_control(node, kind))
        return found

    def _cap(self, name: str, kind: str) -> Node | None:
        number = self._caps.get(name)
        return None if number is None else self.node(f"{_CAPS_FOLDER}/nvidia-cap{number}", kind)

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that the module knows, in PCI order as NVML counts them; major -1 where there is no node."""
        found: list[Gpu] = []
        for address in self._tree.names(GPU_FOLDER):
            data = self._tree.read(f"{GPU_FOLDER}/{address}/information", _LIMIT_BYTES)
            fields = _parse_information((data or b"").decode("utf-8", "replace"))
            minor_number, uuid = fields.get("Device Minor", ""), fields.get("GPU UUID", "")
            if is_number(minor_number) and uuid.startswith("GPU-"):
                found.append(self._gpu(len(found), uuid, int(minor_number), address, fields.get("Model", "")))
        return found

    def _gpu(self, index: int, uuid: str, minor_number: int, address: str, model: str) -> Gpu:
        path = f"/dev/nvidia{minor_number}"
        node = self.node(path, "gpu") or Node(path, -1, -1)
        return Gpu(
            index=index,
            uuid=uuid,
            minor_number=minor_number,
            pci_address=address,
            path=path,
            major=node.major,
            minor=node.minor,
            model=model,
            brand=brand(model),
            compute_capability=compute_capability(self._pci_device(address)),
            drm=self._drm_nodes(address),
        )

    def _pci_device(self, address: str) -> int:
        data = self._tree.read(f"{PCI_FOLDER}/{address}/device", _LIMIT_BYTES) or b""
        try:
            return int(data, 16)
        except ValueError:
            return -1

    def _drm_nodes(self, address: str) -> tuple[Node, ...]:
        names = self._tree.names(f"{PCI_FOLDER}/{address}/drm")
        nodes = (self.node(f"/dev/dri/{name}", "drm") for name in names if name.startswith(_DRM_NAMES))
        return tuple(node for node in nodes if node is not None)

    def mig_devices(self, gpu: Gpu) -> list[MigDevice]:
        """Return the compute instances of a GPU whose nodes are there, those of its GPU instances included."""
        found = []
        for gpu_instance, compute_instance in mig_instances(self._tree, gpu.minor_number):
            inside = instance_folder(gpu.minor_number, gpu_instance)
            nodes = (
                self._cap(f"{inside}/access", "mig"),
                self._cap(f"{inside}/ci{compute_instance}/access", "mig"),
            )
            if gpu.major >= 0 and nodes[0] is not None and nodes[1] is not None:
                found.append(MigDevice(gpu.uuid, gpu_instance, compute_instance, (nodes[0], nodes[1])))
        return found


def _control(node: Node, kind: str) -> ControlDevice:
    return ControlDevice(node.path, node.major, node.minor, kind)


def _parse_information(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): content.strip() for key, _, content in pairs}


def _read_mig_minors(tree: HostTree) -> dict[str, int]:
    """Return capability → number of its node: ``config``, ``monitor``, ``gpu0/gi1/access``, ``gpu0/gi1/ci0/access``."""
    text = (tree.read(_MIG_MINORS, _MIG_MINORS_LIMIT_BYTES) or b"").decode("ascii", "replace")
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == _PAIR and is_number(pair[1])}
