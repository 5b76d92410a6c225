"""Defines the host driver inventory: its values and its JSON form (contract ``docs/contracts/inventory``).

``discovery`` builds it; ``store`` keeps it and decides when to rebuild it.
"""

from __future__ import annotations

from runtime_hook.base.document import Document
from runtime_hook.base.errors import InventoryError
from runtime_hook.base.values import value

IMEX_FOLDER, IMEX_NAME = "/dev/nvidia-caps-imex-channels", "channel"
INVENTORY_SCHEMA = "grapnel.dev/inventory/v1alpha2"
# ``socket``: of a running service; may be a folder (MPS). ``config``, ``firmware``: regular files.
FILE_KINDS = ("config", "firmware", "socket")


@value
class ControlDevice:
    """A device node that belongs to no single GPU."""

    path: str
    major: int
    minor: int
    kind: str


@value
class Node:
    """A device node and its numbers."""

    path: str
    major: int
    minor: int


@value
class ImexChannels:
    """IMEX channels: the major of their nodes, and runs of numbers (first, last). A channel's number is its minor.

    A host may have thousands, so they are not listed one by one.
    """

    major: int = -1
    runs: tuple[tuple[int, int], ...] = ()

    def has(self, number: int) -> bool:
        """Tell whether the host has a channel."""
        return any(first <= number <= last for first, last in self.runs)

    def node(self, number: int) -> Node:
        """Return the node of a channel."""
        return Node(f"{IMEX_FOLDER}/{IMEX_NAME}{number}", self.major, number)


@value
class Gpu:
    """One GPU; major and minor are what stat says of its node, never computed.

    ``model``, ``brand`` and ``compute_capability`` (such as "8.0") are "" where they are not known.
    """

    index: int
    uuid: str
    minor_number: int
    pci_address: str
    path: str
    major: int
    minor: int
    model: str = ""
    brand: str = ""
    compute_capability: str = ""
    drm: tuple[Node, ...] = ()


@value
class MigDevice:
    """A compute instance of a GPU in MIG mode: what opens it besides the GPU's own node.

    ``index`` is NVML's number below its GPU, -1 where it is not known, as is an empty ``uuid``.
    """

    gpu_uuid: str
    gpu_instance: int
    compute_instance: int
    nodes: tuple[Node, ...]
    uuid: str = ""
    index: int = -1


@value
class Library:
    """A driver library: its real file, its SONAME, and further names that lead to it.

    ``subfolder`` counts from the container's library folder ("" or such as "vdpau").
    """

    path: str
    soname: str
    links: tuple[str, ...]
    capability: str
    elf_class: int
    subfolder: str = ""


@value
class Binary:
    """A driver program: its real file and the name it has in a container."""

    path: str
    name: str
    capability: str


@value
class DriverFile:
    """A file that has the same meaning at ``target`` in every container; ``kind`` is one of ``FILE_KINDS``."""

    path: str
    target: str
    capability: str
    kind: str


@value
class DriverLink:
    """A symbolic link below the container's library folder that is no library's own name."""

    subfolder: str
    name: str
    target: str
    capability: str


@value
class FileMark:
    """What stat said of a file when the inventory was made; -1 where there was none."""

    path: str
    inode: int
    size: int
    mtime_ns: int


@value
class DeviceMark:
    """Which device a node led to; -1 where there was no node."""

    path: str
    major: int
    minor: int


@value
class Fingerprint:
    """What must still hold for the inventory to be true; an empty module version means: not loaded.

    ``majors`` are NVIDIA's in the kernel's list, ``mig`` instances such as "gpu0/gi1/ci0"; ``outside`` are files that
    are not below the driver's root.
    """

    module_version: str
    gpu_addresses: tuple[str, ...]
    files: tuple[FileMark, ...]
    devices: tuple[DeviceMark, ...]
    majors: tuple[tuple[str, int], ...] = ()
    mig: tuple[str, ...] = ()
    outside: tuple[FileMark, ...] = ()


@value
class Inventory:
    """Everything of the host's driver that a container may be given; ``cuda_version`` "" where it is not known.

    ``stale`` are device nodes with a major that the kernel has given to another driver since: nobody gets them.
    """

    driver_version: str
    control: tuple[ControlDevice, ...]
    gpus: tuple[Gpu, ...]
    libraries: tuple[Library, ...]
    binaries: tuple[Binary, ...]
    fingerprint: Fingerprint
    mig: tuple[MigDevice, ...] = ()
    files: tuple[DriverFile, ...] = ()
    links: tuple[DriverLink, ...] = ()
    cuda_version: str = ""
    stale: tuple[Node, ...] = ()
    imex: ImexChannels = ImexChannels()


def missing_node(inventory: Inventory, path: str, hint: str = "nvidia-modprobe -c0 -u makes it") -> InventoryError:
    """Return the error for a device node that a container needs and that this host lacks, or has with a stale major.

    A node outlives its module; when the module is loaded again with another major, the node opens nothing, or the
    device of another driver.
    """
    for node in inventory.stale:
        if node.path == path:
            return InventoryError(f"device node {path} is stale: major {node.major} is not its driver's any more", hint)
    return InventoryError(f"device node {path} is missing on this host", hint)


def parse_inventory(content: object, where: str) -> Inventory:
    """Turn parsed JSON into an inventory; unknown keys are left to later releases."""
    document = Document(content, where, InventoryError)
    if document.text("schema") != INVENTORY_SCHEMA:
        raise InventoryError(f"{where}: unknown schema {document.text('schema')}", f"known is {INVENTORY_SCHEMA}")
    devices = document.child("devices")
    return Inventory(
        driver_version=document.text("driver_version"),
        control=tuple(_control(entry) for entry in devices.children("control")),
        gpus=tuple(_gpu(entry) for entry in devices.children("gpus")),
        libraries=tuple(_library(entry) for entry in document.children("libraries")),
        binaries=tuple(_binary(entry) for entry in document.children("binaries")),
        mig=tuple(_mig(entry) for entry in devices.children("mig")),
        files=tuple(_file(entry) for entry in document.children("files")),
        links=tuple(_link(entry) for entry in document.children("links")),
        cuda_version=document.text("cuda_version", ""),
        stale=_nodes(devices, "stale"),
        imex=_imex(devices.child("imex")),
        fingerprint=_fingerprint(document.child("fingerprint")),
    )


def _path(entry: Document, key: str = "path") -> str:
    path = entry.text(key)
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InventoryError(f"{entry.where}: {key} {path!r} is not absolute and plain")
    return path


def _name(entry: Document, name: str) -> str:
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise InventoryError(f"{entry.where}: {name!r} is not a file name")
    return name


def _control(entry: Document) -> ControlDevice:
    return ControlDevice(_path(entry), entry.number("major"), entry.number("minor"), entry.text("kind"))


def _gpu(entry: Document) -> Gpu:
    return Gpu(
        index=entry.number("index"),
        uuid=entry.text("uuid"),
        minor_number=entry.number("minor_number"),
        pci_address=entry.text("pci_address"),
        path=_path(entry),
        major=entry.number("major"),
        minor=entry.number("minor"),
        model=entry.text("model", ""),
        brand=entry.text("brand", ""),
        compute_capability=entry.text("compute_capability", ""),
        drm=_nodes(entry, "drm"),
    )


def _nodes(entry: Document, key: str) -> tuple[Node, ...]:
    return tuple(Node(_path(node), node.number("major"), node.number("minor")) for node in entry.children(key))


def _imex(entry: Document) -> ImexChannels:
    runs = entry.children("runs")
    return ImexChannels(entry.number("major", -1), tuple((run.number("first"), run.number("last")) for run in runs))


def _mig(entry: Document) -> MigDevice:
    return MigDevice(
        gpu_uuid=entry.text("gpu_uuid"),
        gpu_instance=entry.number("gpu_instance"),
        compute_instance=entry.number("compute_instance"),
        nodes=_nodes(entry, "nodes"),
        uuid=entry.text("uuid", ""),
        index=entry.number("index", -1),
    )


def _library(entry: Document) -> Library:
    return Library(
        path=_path(entry),
        soname=_name(entry, entry.text("soname")),
        links=tuple(_name(entry, link) for link in entry.texts("links")),
        capability=entry.text("capability"),
        elf_class=entry.number("elf_class"),
        subfolder=_subfolder(entry),
    )


def _binary(entry: Document) -> Binary:
    return Binary(_path(entry), _name(entry, entry.text("name")), entry.text("capability"))


def _subfolder(entry: Document) -> str:
    subfolder = entry.text("subfolder", "")
    return "/".join(_name(entry, part) for part in subfolder.split("/")) if subfolder else ""


def _file(entry: Document) -> DriverFile:
    kind = entry.text("kind")
    if kind not in FILE_KINDS:
        raise InventoryError(f"{entry.where}: kind {kind} is unknown", f"known are {', '.join(FILE_KINDS)}")
    return DriverFile(_path(entry), _path(entry, "target"), entry.text("capability"), kind)


def _link(entry: Document) -> DriverLink:
    target = entry.text("target")
    if not target or "\0" in target:
        raise InventoryError(f"{entry.where}: target {target!r} is no link's text")
    return DriverLink(_subfolder(entry), _name(entry, entry.text("name")), target, entry.text("capability"))


def _fingerprint(entry: Document) -> Fingerprint:
    majors = entry.child("majors")
    return Fingerprint(
        module_version=entry.text("module_version"),
        gpu_addresses=tuple(entry.texts("gpu_addresses")),
        files=_file_marks(entry, "files"),
        devices=tuple(
            DeviceMark(mark.text("path"), mark.number("major"), mark.number("minor"))
            for mark in entry.children("devices")
        ),
        majors=tuple((name, majors.number(name)) for name in majors.content),
        mig=tuple(entry.texts("mig")),
        outside=_file_marks(entry, "outside"),
    )


def _file_marks(entry: Document, key: str) -> tuple[FileMark, ...]:
    return tuple(
        FileMark(mark.text("path"), mark.number("inode"), mark.number("size"), mark.number("mtime_ns"))
        for mark in entry.children(key)
    )


def render_inventory(inventory: Inventory) -> dict[str, object]:
    """Return the JSON form of an inventory."""
    fingerprint = inventory.fingerprint
    return {
        "schema": INVENTORY_SCHEMA,
        "driver_version": inventory.driver_version,
        "cuda_version": inventory.cuda_version,
        "devices": {
            "control": [dict(vars(device)) for device in inventory.control],
            "gpus": [{**vars(gpu), "drm": [dict(vars(node)) for node in gpu.drm]} for gpu in inventory.gpus],
            "mig": [{**vars(mig), "nodes": [dict(vars(node)) for node in mig.nodes]} for mig in inventory.mig],
            "imex": {
                "major": inventory.imex.major,
                "runs": [{"first": first, "last": last} for first, last in inventory.imex.runs],
            },
            "stale": [dict(vars(node)) for node in inventory.stale],
        },
        "libraries": [{**vars(library), "links": list(library.links)} for library in inventory.libraries],
        "binaries": [dict(vars(binary)) for binary in inventory.binaries],
        "files": [dict(vars(file)) for file in inventory.files],
        "links": [dict(vars(link)) for link in inventory.links],
        "fingerprint": {
            "module_version": fingerprint.module_version,
            "gpu_addresses": list(fingerprint.gpu_addresses),
            "files": [dict(vars(mark)) for mark in fingerprint.files],
            "devices": [dict(vars(mark)) for mark in fingerprint.devices],
            "majors": dict(fingerprint.majors),
            "mig": list(fingerprint.mig),
            "outside": [dict(vars(mark)) for mark in fingerprint.outside],
        },
    }
