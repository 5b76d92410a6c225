"""The host driver inventory: its values and its JSON form (contract ``docs/contracts/inventory``).

How it is made is ``discovery``'s business, where it is kept and when it is made anew ``store``'s.
"""

from __future__ import annotations

from runtime_hook.document import Document
from runtime_hook.errors import InventoryError
from runtime_hook.values import value

INVENTORY_SCHEMA = "grapnel.dev/inventory/v1alpha1"
CONTROL_KINDS = ("ctl", "uvm", "uvm-tools", "modeset")


@value
class ControlDevice:
    """A device node that belongs to no single GPU."""

    path: str
    major: int
    minor: int
    kind: str


@value
class Gpu:
    """One GPU; major and minor are what stat says of its node, never computed."""

    index: int
    uuid: str
    minor_number: int
    pci_address: str
    path: str
    major: int
    minor: int


@value
class Library:
    """A driver library: its real file, its SONAME, and further names that lead to it."""

    path: str
    soname: str
    links: tuple[str, ...]
    capability: str
    elf_class: int


@value
class Binary:
    """A driver program: its real file and the name it has in a container."""

    path: str
    name: str
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
    """What must still hold for the inventory to be true; an empty module version means: not loaded."""

    module_version: str
    gpu_addresses: tuple[str, ...]
    files: tuple[FileMark, ...]
    devices: tuple[DeviceMark, ...]


@value
class Inventory:
    """Everything of the host's driver that a container may be given."""

    driver_version: str
    control: tuple[ControlDevice, ...]
    gpus: tuple[Gpu, ...]
    libraries: tuple[Library, ...]
    binaries: tuple[Binary, ...]
    fingerprint: Fingerprint


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
        fingerprint=_fingerprint(document.child("fingerprint")),
    )


def _path(entry: Document) -> str:
    path = entry.text("path")
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InventoryError(f"{entry.where}: path {path!r} is not absolute and plain")
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
    )


def _library(entry: Document) -> Library:
    return Library(
        path=_path(entry),
        soname=_name(entry, entry.text("soname")),
        links=tuple(_name(entry, link) for link in entry.texts("links")),
        capability=entry.text("capability"),
        elf_class=entry.number("elf_class"),
    )


def _binary(entry: Document) -> Binary:
    return Binary(_path(entry), _name(entry, entry.text("name")), entry.text("capability"))


def _fingerprint(entry: Document) -> Fingerprint:
    return Fingerprint(
        module_version=entry.text("module_version"),
        gpu_addresses=tuple(entry.texts("gpu_addresses")),
        files=tuple(
            FileMark(mark.text("path"), mark.number("inode"), mark.number("size"), mark.number("mtime_ns"))
            for mark in entry.children("files")
        ),
        devices=tuple(
            DeviceMark(mark.text("path"), mark.number("major"), mark.number("minor"))
            for mark in entry.children("devices")
        ),
    )


def render_inventory(inventory: Inventory) -> dict[str, object]:
    """Return the JSON form of an inventory."""
    fingerprint = inventory.fingerprint
    return {
        "schema": INVENTORY_SCHEMA,
        "driver_version": inventory.driver_version,
        "devices": {
            "control": [dict(vars(device)) for device in inventory.control],
            "gpus": [dict(vars(gpu)) for gpu in inventory.gpus],
        },
        "libraries": [{**vars(library), "links": list(library.links)} for library in inventory.libraries],
        "binaries": [dict(vars(binary)) for binary in inventory.binaries],
        "fingerprint": {
            "module_version": fingerprint.module_version,
            "gpu_addresses": list(fingerprint.gpu_addresses),
            "files": [dict(vars(mark)) for mark in fingerprint.files],
            "devices": [dict(vars(mark)) for mark in fingerprint.devices],
        },
    }
