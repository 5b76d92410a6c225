"""Parses the facts of one node, as the collection's facts module returns them.

The contract is ``docs/contracts/node-facts``. Unknown fields are ignored (a newer module may say more), known ones are
checked for their type, their size and their grammar: whoever is root of the node may have written them. Text that a
user of the node chooses (names of processes, of units) never makes facts wrong, it is made printable. What the facts
mean for a declaration belongs to ``provision.planning.planner``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from provision.base import strict_json
from provision.base.decoding import decoder_of
from provision.base.printable import printable
from provision.base.strict_json import MalformedError
from provision.declaration.fleet.errors import FactsError
from provision.declaration.fleet.facts import grammar
from provision.declaration.fleet.facts.driver import (
    BuildTools,
    DkmsBuild,
    DriverState,
    ForeignDriver,
    Initramfs,
    Kernel,
    Nouveau,
    PendingReboot,
    SecureBoot,
    Unattended,
)
from provision.declaration.fleet.facts.fact import COMMAND, MESSAGE, Fact, tidy
from provision.declaration.fleet.facts.kernel import ApparmorState, KernelState, SelinuxState
from provision.declaration.fleet.facts.kubelet import CgroupV1, KubeletState
from provision.declaration.fleet.facts.mig import GpuSettingsState, MigState
from provision.declaration.fleet.facts.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Mapping

# An Ubuntu machine with NVIDIA's repository knows 200 packages in 30 versions each: 2.4 MB.
MAX_BYTES: Final = 4 << 20
_RELEASED: Final = "/var/lib/grapnel/node/released.json"  # the node daemon's own


class OperatingSystem(Fact, frozen=True, kw_only=True):
    """``/etc/os-release``: ``ID``, ``VERSION_ID``, ``VERSION_CODENAME``.

    ``image`` is what keeps the system as an image that packages do not change (``ostree``), empty where they do.
    """

    id: grammar.Label
    version_id: grammar.Label = ""
    codename: grammar.Label = ""
    image: grammar.Word = ""


class NodeIdentity(Fact, frozen=True, kw_only=True):
    """Which machine this is and what it runs.

    ``python`` is "major.minor" of ``/usr/bin/python3``; ``pythons`` those of all interpreters that grapnel's programs
    can be started with, by path, null where the collection is older.
    """

    hostname: grammar.Hostname
    machine_id: grammar.Word
    boot_id: grammar.Word
    kernel: grammar.Word
    architecture: grammar.Word
    python: grammar.PythonVersion
    pythons: Annotated[dict[grammar.PythonPath, grammar.PythonVersion], Meta(max_length=16)] | None = None
    os: OperatingSystem


class Gpu(Fact, frozen=True, kw_only=True, rename={"class_": "class"}):
    """One PCI function of a GPU vendor, ids in lower-case hexadecimal without ``0x``."""

    address: grammar.PciAddress
    vendor: grammar.PciId
    device: grammar.PciId
    class_: grammar.PciId
    numa_node: grammar.NumaNode | None = None
    subsystem_vendor: grammar.PciId = ""
    subsystem_device: grammar.PciId = ""


class KernelModule(Fact, frozen=True, kw_only=True):
    """The kernel module ``nvidia`` as it is loaded; ``on_disk`` is the version that modprobe would load now.

    ``parameters`` are those in force that are numbers; none where the collection is older, or the driver lists none.
    """

    loaded: bool = False
    version: grammar.Version | None = None
    flavour: grammar.Word | None = None
    refcount: grammar.Count = 0
    holders: Annotated[tuple[grammar.Word, ...], Meta(max_length=64)] = ()
    on_disk: grammar.Version | None = None
    parameters: Annotated[dict[grammar.Word, grammar.ModuleNumber], Meta(max_length=256)] = {}


class InstalledPackage(Fact, frozen=True, kw_only=True):
    """One package that is installed; ``status`` is in dpkg's words, ``installed`` when all is well.

    ``hold``: no upgrade moves it, by whatever the package manager calls that (a hold, a version lock, a lock).
    """

    version: grammar.Version
    source: grammar.PackageName
    hold: bool = False
    status: grammar.Word = "installed"


class AvailablePackage(Fact, frozen=True, kw_only=True):
    """One version of a package that could be installed; ``depends`` are the names it needs, first alternatives.

    ``module_stream`` is the dnf module that offers it. ``fetchable``: a source has it; a version that is only installed
    is listed without.
    """

    version: grammar.Version
    source: grammar.PackageName
    depends: Annotated[tuple[grammar.PackageName, ...], Meta(max_length=512)] = ()
    module_stream: grammar.Word | None = None
    fetchable: bool = True


_Versions = Annotated[tuple[AvailablePackage, ...], Meta(max_length=512)]


class LockHolder(Fact, frozen=True, kw_only=True):
    """The process that holds the package manager's lock."""

    pid: grammar.Pid
    command: str

    def __post_init__(self) -> None:
        tidy(self, "command", COMMAND)


class PackageManager(Fact, frozen=True, kw_only=True):
    """State of the package manager; ``interrupted`` means that it has to be repaired before it does anything else.

    ``module_streams`` are dnf's enabled streams by module. ``left_out`` are packages of engines that an exclusion or a
    lock keeps away. ``release_upgrade`` is the file by which another release of the system is on its way;
    ``release_lock`` the release that dnf's sources are kept at.
    """

    name: grammar.Word
    interrupted: bool = False
    module_streams: Annotated[dict[grammar.Word, grammar.Word], Meta(max_length=64)] = {}
    left_out: Annotated[tuple[grammar.PackageName, ...], Meta(max_length=64)] = ()
    release_upgrade: grammar.AbsolutePath | None = None
    release_lock: grammar.Word | None = None
    lists_age_s: grammar.Seconds | None = None
    lists_error: str | None = None
    locked_by: LockHolder | None = None

    def __post_init__(self) -> None:
        tidy(self, "lists_error", MESSAGE)


class FileState(Fact, frozen=True, kw_only=True):
    """One file; ``content`` is None when it is too large or not UTF-8."""

    mode: grammar.Mode
    uid: grammar.UserId
    gid: grammar.UserId
    sha256: grammar.Sha256
    content: grammar.FileText | None = None


class Service(Fact, frozen=True, kw_only=True):
    """A systemd unit in systemd's words (``LoadState``, ``ActiveState``, ``UnitFileState``, ``KillMode``).

    ``newer_files`` were changed since it came to its present state, and are read only when it starts.
    """

    load: grammar.Word = "not-found"
    active: grammar.Word = "inactive"
    enabled: grammar.Word = ""
    kill_mode: grammar.Word = ""
    newer_files: Annotated[tuple[grammar.AbsolutePath, ...], Meta(max_length=16)] = ()

    @property
    def is_running(self) -> bool:
        """Whether it runs, or is on its way."""
        return self.active in {"active", "activating", "reloading"}


_Paths = Annotated[tuple[grammar.AbsolutePath, ...], Meta(max_length=64)]


class Engine(Fact, frozen=True, kw_only=True):
    """A container engine; ``config_error`` is its own parser's message about its present configuration.

    ``config`` is the file that a Kubernetes distribution writes for its containerd; ``imports`` are the files that
    containerd's imports lead to. ``takes_gpus`` is Docker's: whether the one that runs knows ``--gpus``, None where
    none runs.
    """

    binary: grammar.AbsolutePath
    version: grammar.Word
    config_error: str | None = None
    config: grammar.AbsolutePath | None = None
    imports: Annotated[dict[grammar.AbsolutePath, _Paths], Meta(max_length=64)] = {}
    takes_gpus: bool | None = None

    def __post_init__(self) -> None:
        tidy(self, "config_error", MESSAGE)


class StagedEngine(Fact, frozen=True, kw_only=True):
    """Packages that lie ready for an exchange of an engine, at these versions, with those that lead back.

    One that is not ``complete`` was left by a run that was killed, or does not fit the node any more. ``bytes`` are of
    all files.
    """

    packages: Annotated[dict[grammar.PackageName, grammar.Version], Meta(max_length=64)] = {}
    complete: bool = False
    bytes: grammar.Bytes = 0


class Installation(Fact, frozen=True, kw_only=True):
    """An installed part of grapnel: the digest of the archive that it came from, and what starts its programs."""

    digest: grammar.Word
    python: grammar.PythonPath = "/usr/bin/python3"


class Inventory(Fact, frozen=True, kw_only=True):
    """What the node's own driver inventory says."""

    driver_version: grammar.Version | None = None


class DeviceHolder(Fact, frozen=True, kw_only=True):
    """A process that has NVIDIA device nodes open, with its systemd unit, pod and container where it has them.

    ``is_driver_service``: it belongs to the driver and is stopped and started again when the module is exchanged.
    """

    pid: grammar.Pid
    command: str
    devices: Annotated[tuple[str, ...], Meta(max_length=1024)] = ()
    unit: str | None = None
    pod_uid: grammar.Word | None = None
    container_id: grammar.Word | None = None
    is_driver_service: bool = False

    def __post_init__(self) -> None:
        tidy(self, "command", COMMAND)
        tidy(self, "unit", COMMAND)
        tidy(self, "devices", COMMAND)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the planner may know about one node.

    ``engine_holds`` are the packages of engines that grapnel itself holds, ``engine_staged`` what lies ready for an
    exchange of one, None where nothing does.
    """

    schema: Literal["grapnel.dev/facts/v1alpha1"]
    node: NodeIdentity
    gpus: Annotated[tuple[Gpu, ...], Meta(max_length=1024)] = ()
    module: KernelModule = KernelModule()
    packages: Annotated[dict[grammar.PackageName, InstalledPackage], Meta(max_length=4096)] = {}
    available: Annotated[dict[grammar.PackageName, _Versions], Meta(max_length=4096)] = {}
    package_manager: PackageManager
    files: Annotated[dict[grammar.AbsolutePath, FileState | None], Meta(max_length=512)] = {}
    services: Annotated[dict[grammar.Unit, Service | None], Meta(max_length=256)] = {}
    engines: Annotated[dict[grammar.Word, Engine | None], Meta(max_length=32)] = {}
    engine_holds: Annotated[tuple[grammar.PackageName, ...], Meta(max_length=64)] = ()
    engine_staged: StagedEngine | None = None
    kubelet_engine: grammar.Word | None = None
    installed: Annotated[dict[grammar.Word, Installation | None], Meta(max_length=32)] = {}
    inventory: Inventory | None = None
    device_holders: Annotated[tuple[DeviceHolder, ...], Meta(max_length=16384)] = ()
    kernels: Annotated[tuple[Kernel, ...], Meta(max_length=64)] = ()
    dkms: Annotated[tuple[DkmsBuild, ...], Meta(max_length=512)] = ()
    secure_boot: SecureBoot = SecureBoot()
    nouveau: Nouveau | None = None
    disk_free: Annotated[dict[grammar.AbsolutePath, grammar.Bytes], Meta(max_length=16)] = {}
    foreign_driver: ForeignDriver | None = None
    unattended: Unattended | None = None
    initramfs: Initramfs | None = None
    build_tools: BuildTools | None = None
    nvswitches: grammar.Devices = 0
    infiniband: bool = False
    pending_reboot: PendingReboot | None = None
    driver: DriverState = DriverState()
    mig: MigState | None = None
    gpu_settings: GpuSettingsState | None = None
    kernel: KernelState | None = None
    selinux: SelinuxState | None = None
    apparmor: ApparmorState | None = None
    kubelet: KubeletState | None = None
    cgroup_v1: CgroupV1 | None = None
    product_files: Annotated[tuple[grammar.AbsolutePath, ...], Meta(max_length=128)] = ()
    traces: Traces | None = None

    def file(self, path: str) -> FileState | None:
        """Return the state of a file, None when it is absent (or was not asked for)."""
        return self.files.get(path)

    def content(self, path: str) -> str | None:
        """Text of a file, None when it is absent or unreadable as text."""
        state = self.files.get(path)
        return None if state is None else state.content

    @property
    def is_released(self) -> bool:
        """Whether the node daemon does not offer the GPUs, as they were taken out of service and not given back."""
        return self.file(_RELEASED) is not None

    def service(self, unit: str) -> Service:
        """Return the state of a unit; one that systemd does not know is ``not-found``."""
        return self.services.get(unit) or Service()

    def installed_digest(self, part: str) -> str | None:
        """Return the digest of an installed part of grapnel (``hook``, ``node``), None when it is not installed."""
        installation = self.installed.get(part)
        return None if installation is None else installation.digest


def parse_facts(data: bytes | str | Mapping[str, Any], *, node: str = "") -> NodeFacts:
    """Parse the facts of one node.

    ``node`` is the inventory's name, used in messages only. Raises `FactsError`, whatever the data are: it names the
    node and the path of the first value that is wrong, like ``$.packages["libcuda1"].hold``.
    """
    raw = b""
    try:
        raw = strict_json.as_bytes(data)
        return strict_json.decode(raw, NodeFacts, limit_bytes=MAX_BYTES)
    except MalformedError as error:
        raise _error(node or _hostname(raw), _with_key(str(error), raw)) from error


def _hostname(raw: bytes) -> str:
    """Return what a node whose facts are wrong calls itself, for a message."""
    try:
        return decoder_of(_Named).decode(raw).node.hostname
    except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError):
        return "a node without a name"


class _Named(msgspec.Struct):
    node: _Name


class _Name(msgspec.Struct):
    hostname: grammar.Hostname


_BY_KEY: Final[Mapping[str, Any]] = {
    "packages": InstalledPackage,
    "available": _Versions,
    "files": FileState | None,
    "services": Service | None,
    "engines": Engine | None,
    "installed": Installation | None,
}
_KEYED: Final = re.compile(r" - at `\$\.(\w+)\[\.\.\.\][^`]*`$")


def _with_key(reason: str, raw: bytes) -> str:
    """Return a reason with the key in its path that msgspec leaves out: ``$.files[...].mode``."""
    path = _KEYED.search(reason)
    try:
        key = "" if path is None else _wrong_key(raw, path.group(1))
    except (
        msgspec.MsgspecError,
        LookupError,
        ValueError,
        RecursionError,
        MemoryError,
    ):
        return reason  # such as of a document that has the field twice
    return reason.replace("[...]", f'["{printable(key, limit=64)}"]', 1) if key else reason


def _wrong_key(raw: bytes, field: str) -> str:
    """Return the first key of a mapping whose value is not what it should be."""
    entries = decoder_of(dict[str, msgspec.Raw]).decode(raw)[field]
    for key, value in decoder_of(dict[str, msgspec.Raw]).decode(entries).items():
        try:
            decoder_of(_BY_KEY[field]).decode(value)
        except msgspec.ValidationError:
            return key
    return ""


def _error(node: str, reason: str) -> FactsError:
    return FactsError(
        f"facts of {node}: {reason}",
        hint="the collection and the controller may be of different versions: update both",
    )
