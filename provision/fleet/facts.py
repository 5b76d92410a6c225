"""What is true of one node now: the values that the collection's facts module returns, parsed once.

The contract is ``docs/contracts/node-facts``. Unknown fields are ignored (a newer module may say more), known ones are
checked for their type. What the facts mean for a declaration belongs to ``provision.planner``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from provision.fleet.errors import FactsError


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    """A tolerant value: fields it does not know are ignored."""


class OperatingSystem(_Value, frozen=True, kw_only=True):
    """``/etc/os-release``: ``ID``, ``VERSION_ID``, ``VERSION_CODENAME``."""

    id: str
    version_id: str = ""
    codename: str = ""


class NodeIdentity(_Value, frozen=True, kw_only=True):
    """Which machine this is and what it runs; ``python`` is "major.minor" of ``/usr/bin/python3``."""

    hostname: str
    machine_id: str
    boot_id: str
    kernel: str
    architecture: str
    python: str
    os: OperatingSystem


class Gpu(_Value, frozen=True, kw_only=True, rename={"class_": "class"}):
    """One PCI function of a GPU vendor, ids in lower-case hexadecimal without ``0x``."""

    address: str
    vendor: str
    device: str
    class_: str
    numa_node: int | None = None


class KernelModule(_Value, frozen=True, kw_only=True):
    """The kernel module ``nvidia`` as it is loaded; ``on_disk`` is the version that modprobe would load now."""

    loaded: bool = False
    version: str | None = None
    flavour: str | None = None
    refcount: int = 0
    holders: tuple[str, ...] = ()
    on_disk: str | None = None


class InstalledPackage(_Value, frozen=True, kw_only=True):
    """One package that dpkg knows; ``status`` is dpkg's word, ``installed`` when all is well."""

    version: str
    source: str
    hold: bool = False
    status: str = "installed"


class AvailablePackage(_Value, frozen=True, kw_only=True):
    """One version of a package that apt could install; ``depends`` are the names it needs, first alternatives."""

    version: str
    source: str
    depends: tuple[str, ...] = ()


class LockHolder(_Value, frozen=True, kw_only=True):
    """The process that holds the package manager's lock."""

    pid: int
    command: str


class PackageManager(_Value, frozen=True, kw_only=True):
    """State of apt and dpkg; ``interrupted`` means that dpkg has to be repaired before it does anything else."""

    name: str
    interrupted: bool = False
    lists_age_s: float | None = None
    lists_error: str | None = None
    locked_by: LockHolder | None = None


class FileState(_Value, frozen=True, kw_only=True):
    """One file; ``content`` is None when it is too large or not UTF-8."""

    mode: str
    uid: int
    gid: int
    sha256: str
    content: str | None = None


class Service(_Value, frozen=True, kw_only=True):
    """A systemd unit in systemd's words (``LoadState``, ``ActiveState``, ``UnitFileState``)."""

    load: str = "not-found"
    active: str = "inactive"
    enabled: str = ""
    started_monotonic_us: int | None = None


class Engine(_Value, frozen=True, kw_only=True):
    """A container engine; ``config_error`` is its own parser's message about its present configuration."""

    binary: str
    version: str
    config_error: str | None = None


class Release(_Value, frozen=True, kw_only=True):
    """What of grapnel is installed: the digest of the archive it came from."""

    digest: str


class Inventory(_Value, frozen=True, kw_only=True):
    """What the node's own driver inventory says."""

    driver_version: str | None = None


class DeviceHolder(_Value, frozen=True, kw_only=True):
    """A process that has NVIDIA device nodes open, with its systemd unit, pod and container where it has them.

    ``is_driver_service``: it belongs to the driver and is stopped and started again when the module is exchanged.
    """

    pid: int
    command: str
    devices: tuple[str, ...] = ()
    unit: str | None = None
    pod_uid: str | None = None
    container_id: str | None = None
    is_driver_service: bool = False


class NodeFacts(_Value, frozen=True, kw_only=True):
    """Everything that the planner may know about one node."""

    schema: Literal["grapnel.dev/facts/v1alpha1"]
    node: NodeIdentity
    gpus: tuple[Gpu, ...] = ()
    module: KernelModule = KernelModule()
    packages: dict[str, InstalledPackage] = {}
    available: dict[str, tuple[AvailablePackage, ...]] = {}
    package_manager: PackageManager
    files: dict[str, FileState | None] = {}
    services: dict[str, Service | None] = {}
    engines: dict[str, Engine | None] = {}
    releases: dict[str, Release | None] = {}
    inventory: Inventory | None = None
    device_holders: tuple[DeviceHolder, ...] = ()

    def file(self, path: str) -> FileState | None:
        """Return the state of a file, None when it is absent (or was not asked for)."""
        return self.files.get(path)

    def content(self, path: str) -> str | None:
        """Text of a file, None when it is absent or unreadable as text."""
        state = self.files.get(path)
        return None if state is None else state.content

    def service(self, unit: str) -> Service:
        """Return the state of a unit; one that systemd does not know is ``not-found``."""
        return self.services.get(unit) or Service()

    def release_digest(self, part: str) -> str | None:
        """Digest of an installed part of grapnel (``hook``, ``node``)."""
        release = self.releases.get(part)
        return None if release is None else release.digest


def parse_facts(data: bytes | str | Mapping[str, Any], *, node: str = "") -> NodeFacts:
    """Parse the facts of one node.

    ``node`` is the inventory's name, used in messages only. Raises `FactsError` that names the node and the path of
    the first value that is wrong, like ``$.packages["libcuda1"].hold``.
    """
    try:
        if isinstance(data, (bytes, str)):
            data = msgspec.json.decode(data)
        return msgspec.convert(data, NodeFacts)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _error(_name_of(data, node), str(error)) from error


def _name_of(data: object, node: str) -> str:
    """Name the node in a message even if its facts are broken."""
    identity = data.get("node") if isinstance(data, Mapping) else None
    hostname = identity.get("hostname") if isinstance(identity, Mapping) else None
    return node or (hostname if isinstance(hostname, str) else "a node without a name")


def _error(node: str, reason: str) -> FactsError:
    reason = reason[:1].lower() + reason[1:]
    return FactsError(
        f"facts of {node}: {reason}",
        hint="the collection on this machine and the controller may be of different releases: update both",
    )
