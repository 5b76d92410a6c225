"""Manages a site: a named set of nodes with its own bridge, subnet and folder. Several can run at once.

The folder is authoritative: ``site.json``, ``ssh/``, ``inventory.yaml`` and a folder per node, whose ``node.json`` is
written last, so that an unfinished node of a killed command is recognised.
"""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import nvml
from lab.kmod import KmodFiles
from lab.machine.errors import SiteError
from lab.machine.folders import state_dir, write_atomic
from lab.machine.lock import locked
from lab.machine.requirements import require_machine
from lab.nodes.boot import Machine, kill_supervisors
from lab.nodes.cgroup import ControlGroup, hierarchies
from lab.nodes.inventory import render_inventory
from lab.nodes.layer import Layer
from lab.nodes.network import FIRST_NODE, LAST_NODE, Bridge, bridge_owners, free_subnet, remove_bridge
from lab.nodes.node import Node
from lab.nodes.prepare import HOST_KEY, write_identity, write_pci, write_site_files
from lab.nodes.spec import NodeSpec, check_name, gpu_line
from lab.nodes.ssh import SshAccess
from lab.nodes.system import find_materials, write_system
from lab.nvml import state as nvml_state
from lab.sources.content import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lab.nodes.system import Materials

    Furnish = Callable[[Layer, str], None]  # its layer, its address

LOCK_WAIT_S = 600.0
SEPARATOR = (
    "."  # not allowed in names of sites and nodes: site "a" must not mistake the groups of site "a-b" for its own
)
MACHINE_LOCK = Path("/run/lock/grapnel-lab.lock")


@dataclass(frozen=True)
class NodeStatus:
    """The status of a node."""

    name: str
    suite: str
    address: str
    gpus: int
    driver_module: str
    is_running: bool
    console: Path


@dataclass(frozen=True)
class _Record:
    """The content of ``node.json``; tree and packages stay those that the node was created from."""

    spec: NodeSpec
    octet: int
    lower: tuple[Path, ...]
    bundle: Path

    def to_json(self) -> str:
        """Return the file's text."""
        values = {"spec": self.spec.to_json(), "octet": self.octet}
        return json.dumps({**values, "lower": list(map(str, self.lower)), "bundle": str(self.bundle)})


def _read_record(path: Path) -> _Record:
    try:
        values = json.loads(path.read_text())
        lower, packages = tuple(map(Path, values["lower"])), Path(values["bundle"])
        return _Record(NodeSpec.from_json(values["spec"]), values["octet"], lower, packages)
    except (KeyError, TypeError) as error:
        raise SiteError(f"{path} was written by another version of the lab", hint="destroy that site") from error


class Site:
    """The site called ``name``; nothing is created before the first ``up``."""

    def __init__(self, name: str) -> None:
        check_name("site", name)
        self.name = name
        self.folder = state_dir() / name
        self.bridge_name = f"gn-{name}"
        self.access = SshAccess(self.folder, self.bridge_name)

    @property
    def inventory_path(self) -> Path:
        """The site as an Ansible inventory; rewritten whenever a node is added or removed."""
        return self.folder / "inventory.yaml"

    @property
    def bridge(self) -> Bridge:
        """The site's bridge, with its addresses; ``SiteError`` before the site is created."""
        path = self.folder / "site.json"
        if not path.exists():
            raise SiteError(f"there is no site {self.name}")
        return Bridge(self.bridge_name, json.loads(path.read_text())["subnet"], self.folder)

    def open(self) -> Bridge:
        """Create the site without a node: its subnet, its bridge, its key."""
        require_machine()
        with self._lock():
            return self._open()

    def up(self, spec: NodeSpec, furnish: Furnish | None = None) -> Node:
        """Create the node if it is new, start it if it is not running, wait until it is ready.

        ``furnish`` adds files to a new node before its first boot.
        """
        require_machine()
        with self._lock():
            bridge = self._open()
            node = self._existing(spec) or self._create(spec, bridge, furnish)
            node.start()
            self._write_access()
        node.wait_ready()
        return node

    def start(self, name: str) -> Node:
        """Start an existing node again and wait until it is ready."""
        return self.up(self.node(name).spec)

    def down(self, name: str) -> None:
        """Power a node off; its disk stays, ``up`` starts it again."""
        with self._lock():
            self.node(name).stop()

    def crash(self, name: str) -> None:
        """Cut a node's power."""
        self.node(name).cut()

    def reboot(self, name: str) -> Node:
        """Reboot a node cleanly and wait until it is ready again."""
        node = self.node(name)
        node.reboot()
        return node

    def remove(self, name: str) -> None:
        """Cut a node's power and delete it, disk included."""
        with self._lock():
            self.node(name).delete()
            self._write_access()

    def destroy(self) -> None:
        """Remove all processes, cgroups, interfaces and folders of the site, even after a crash."""
        with self._lock():
            self._require_own()
            kill_supervisors(self.folder)
            for group in self._groups():
                group.kill()
                group.remove()
            self.access.close_all()
            remove_bridge(self.bridge_name, self.folder)
            # Renamed first, so that a half-removed folder does not count as a site.
            gone = self.folder.with_name(f".{self.name}.gone")
            shutil.rmtree(gone, ignore_errors=True)
            if self.folder.exists():
                self.folder.rename(gone)
                shutil.rmtree(gone)

    def has_remains(self) -> bool:
        """Whether processes or a bridge of the site exist, with or without its folder."""
        return self.bridge_name in bridge_owners() or any(group.pids() for group in self._groups())

    def _require_own(self) -> None:
        """Refuse to touch a site of the same name that another state folder holds."""
        owner = bridge_owners().get(self.bridge_name)
        if owner is not None and owner != str(self.folder):
            hint = "set XDG_STATE_HOME as it was when that site was made"
            raise SiteError(f"site {self.name} belongs to {owner or 'something else'}", hint=hint)

    def node(self, name: str) -> Node:
        """Return an existing node; ``SiteError`` if the site has none of that name."""
        path = self._node_folder(name) / "node.json"
        if not path.exists():
            known = ", ".join(self.node_names()) or "none"
            raise SiteError(f"site {self.name} has no node {name}", hint=f"nodes: {known}")
        return self._node(_read_record(path), self.bridge)

    def node_names(self) -> list[str]:
        """Return the names of the site's nodes."""
        return sorted(path.parent.name for path in self.folder.glob("nodes/*/node.json"))

    def nodes(self) -> list[Node]:
        """Return the site's nodes by name."""
        return [self.node(name) for name in self.node_names()]

    def status(self) -> list[NodeStatus]:
        """Return the status of every node."""
        return [
            NodeStatus(
                name=node.name,
                suite=node.spec.suite,
                address=node.address,
                gpus=node.spec.gpus,
                driver_module=node.spec.driver_module,
                is_running=node.is_running,
                console=node.machine.console,
            )
            for node in self.nodes()
        ]

    def _lock(self) -> AbstractContextManager[None]:
        """Return the site's lock: next to the folder, so that it can be held while the folder is removed."""
        return locked(self.folder.with_name(f".{self.name}.lock"), wait_s=LOCK_WAIT_S)

    def _open(self) -> Bridge:
        """Create the site's subnet, bridge and key."""
        path = self.folder / "site.json"
        with locked(MACHINE_LOCK, wait_s=LOCK_WAIT_S):  # two sites must not take the same subnet
            if not path.exists():
                subnet = free_subnet(zlib.crc32(self.name.encode()) % 250)
                write_atomic(path, json.dumps({"subnet": subnet}))
            bridge = self.bridge
            bridge.create()
        self.access.prepare()
        return bridge

    def _node_folder(self, name: str) -> Path:
        return self.folder / "nodes" / name

    def _existing(self, spec: NodeSpec) -> Node | None:
        if spec.name not in self.node_names():
            return None
        node = self.node(spec.name)
        if node.spec != spec:
            hint = f"remove it first: python3 -m lab remove {spec.name} --site {self.name}"
            raise SiteError(f"node {spec.name} exists as {node.spec}, not {spec}", hint=hint)
        return node

    def _node(self, record: _Record, bridge: Bridge) -> Node:
        spec = record.spec
        folder = self._node_folder(spec.name)
        machine = Machine(
            name=f"g{bridge.subnet}-{record.octet}",
            hostname=spec.name,
            folder=folder,
            lower=record.lower,
            bundle=record.bundle,
            bridge=bridge.name,
            group=ControlGroup(f"{self.bridge_name}{SEPARATOR}{spec.name}"),
            binds=spec.binds,
        )
        return Node(spec, self.name, bridge.node_address(record.octet), folder, machine, self.access)

    def _create(self, spec: NodeSpec, bridge: Bridge, furnish: Furnish | None) -> Node:
        """Fill a new node's folder; an unfinished one is emptied first."""
        folder = self._node_folder(spec.name)
        shutil.rmtree(folder, ignore_errors=True)
        materials = find_materials(spec)
        lower = materials.lower
        record = _Record(spec, self._free_octet(), lower, materials.packages)
        node = self._node(record, bridge)
        for name in ("upper", "work", "root", "containerd", "containers", "kubelet"):
            (folder / name).mkdir(parents=True)
        (folder / "upper").chmod(0o755)
        layer = Layer(folder / "upper", lower[-1], lower[:-1])
        write_identity(layer, spec.name, node.address, self.access.key.with_suffix(".pub"))
        write_site_files(layer, materials)
        write_pci(folder / "pci", node.gpus)
        self._simulate(layer, node, materials)
        if furnish:
            furnish(layer, node.address)
        write_atomic(folder / "node.json", record.to_json())
        return node

    def _simulate(self, layer: Layer, node: Node, materials: Materials) -> None:
        """Give the node its simulated kernel module and, for every driver in the package folder, its libraries."""
        machine = node.spec.machine(self.name)
        simulation = KmodFiles(layer, node.kernel_release)
        simulation.install_kernel(gpu_line(gpu) for gpu in machine.gpus)
        if node.spec.driver_module:
            simulation.install_module(node.spec.driver_module)
        built = (nvml.build(), nvml.build_cuda(), materials.driver_versions)
        if materials.system:
            write_system(layer, materials.system)
            simulation.link_libraries(*built, LIBRARIES)
        else:
            simulation.install_libraries(*built)
        nvml_state.write(node.nvml_library, machine)

    def _free_octet(self) -> int:
        used = {_read_record(path).octet for path in self.folder.glob("nodes/*/node.json")}
        return next(octet for octet in range(FIRST_NODE, LAST_NODE) if octet not in used)

    def _write_access(self) -> None:
        """Rewrite the inventory and the known host keys from the nodes' folders."""
        addresses = {node.name: node.address for node in self.nodes()}
        write_atomic(self.inventory_path, render_inventory(addresses, self.access))
        keys = [
            f"{address} {(self._node_folder(name) / 'upper' / f'{HOST_KEY}.pub').read_text()}"
            for name, address in addresses.items()
        ]
        write_atomic(self.access.known_hosts, "".join(keys))

    def _groups(self) -> list[ControlGroup]:
        """Return the cgroups of all nodes that the site has, or had when its folder was lost."""
        prefix = f"{self.bridge_name}{SEPARATOR}"
        found = {path.name for hierarchy in hierarchies() for path in hierarchy.glob(f"{prefix}*")}
        return [ControlGroup(name) for name in sorted(found)]


def known_sites() -> list[Site]:
    """Return the sites that have a folder."""
    folders = (path.parent.name for path in sorted(state_dir().glob("*/site.json")))
    return [Site(name) for name in folders if not name.startswith(".")]  # those are half removed


def lost_sites() -> dict[str, str]:
    """Return bridges of sites whose folder is gone, by name, with the folder they had."""
    owners = bridge_owners().items()
    return {name: owner for name, owner in owners if owner and not Path(owner, "site.json").exists()}
