"""Looks into an archive of kernel modules, as ``dkms mktarball --binaries-only`` writes it, before it is believed.

The archive of a kernel must hold the modules of that kernel and of no other: dkms loads whatever is in it.
"""

from __future__ import annotations

import filecmp
import re
import shutil
import tarfile
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import Signer
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError, failure
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_signature import (
    find_forgery,
    read_certificate,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.plain_tar import open_plain, plain_members
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.dkms_status import BuiltModule
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_signature import Certificate
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 180.0  # at the lowest priority
_MAX_BYTES = 2 * 1024 * 1024 * 1024  # unpacked: an open and a proprietary module with symbols stay below a quarter
_MAX_MEMBERS = 10_000
_MAX_NAME_BYTES = 256
_MODULE_PARTS = 5  # tree, kernel, architecture, "module", name
_TREE = "dkms_main_tree"
_DKMS_TREE = "/var/lib/dkms"
_BINARIES = "dkms_binaries_only"
_MODULE = re.compile(r"\.ko(?:\.gz|\.xz|\.zst)?\Z")
_FIELD = re.compile(r"^(version|license|vermagic|signer): +(.*)$", re.MULTILINE)
_CLOSED_LICENSE = "NVIDIA"  # of the proprietary flavour; some of its modules are free, of the open one all are


@dataclass(frozen=True)
class Module:
    """What a module says of itself; fields that it does not have are empty."""

    name: str
    version: str
    license: str
    kernel: str
    vermagic: str
    signer: str
    forgery: str = ""  # why it is not signed by the certificate that was asked for


def require_fit(host: Host, archive: str, change: DriverChange, kernel: str, scratch: str) -> tuple[Signer, ...]:
    """Raise `StageError` unless an archive holds what a change needs for a kernel; returns who signed its modules."""
    certificate = read_certificate(host, change.sign.certificate) if change.sign else None
    modules = read_modules(host, archive, str(change.dkms), kernel, scratch, certificate=certificate)
    for module in modules:
        if module.kernel != kernel:
            raise _unfit(archive, f"{module.name} was built for the kernel {module.kernel or 'unknown'}, not {kernel}")
        if module.version and module.version != change.version:
            raise _unfit(archive, f"{module.name} has the version {module.version}, not {change.version}")
    _require_own_kernel(host, archive, modules, kernel)
    if not any(module.version for module in modules):
        raise _unfit(archive, "no module says which version it has")
    found = flavour_of(modules)
    if found != change.flavour:
        raise _unfit(archive, f"the modules are {found}, not {change.flavour}")
    if certificate is not None:
        _require_signer(archive, modules, certificate)
        return (Signer(certificate.name, certificate.key_id),)
    return tuple(dict.fromkeys(Signer(module.signer) for module in modules))


def _require_own_kernel(host: Host, archive: str, modules: list[Module], kernel: str) -> None:
    """Compare the whole of what a kernel takes modules by with that of its own ones, if it has any.

    Two kernels may have one name: a rebuilt one whose options are others refuses the modules of the first.
    """
    own = next(host.path(f"/lib/modules/{kernel}/kernel").rglob("*.ko*"), None)
    if own is None:
        return
    done = host.ask(["modinfo", f"/{own.relative_to(host.root)}"], _TIMEOUT_S)
    found = re.search(r"^vermagic: +(.*)$", done.stdout, re.MULTILINE)
    magic = found[1].strip() if found else ""
    for module in modules:
        if magic and module.vermagic != magic:
            raise _unfit(archive, f"{module.name} is for a kernel with {module.vermagic}, and this one has {magic}")


def flavour_of(modules: list[Module]) -> str:
    """Return which flavour modules are that belong together."""
    return "proprietary" if any(module.license == _CLOSED_LICENSE for module in modules) else "open"


def read_modules(
    host: Host, archive: str, dkms: str, kernel: str, scratch: str, *, certificate: Certificate | None = None
) -> list[Module]:
    """Return the modules in an archive; raises `StageError` for one that is no archive of that kernel.

    With a ``certificate``, their signatures are verified.
    """
    place = host.path(f"{scratch}/look")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        with open_plain(host.path(archive)) as opened:
            names = _unpack_modules(opened, place, archive, dkms, kernel)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise _unfit(archive, f"it cannot be read: {printable(str(error))}") from error
    modules = [_read_module(host, archive, f"{scratch}/look/{name}") for name in names]
    if certificate is not None:
        forgeries = [find_forgery(host, f"{scratch}/look/{name}", certificate, scratch) for name in names]
        modules = [replace(module, forgery=why) for module, why in zip(modules, forgeries)]
    shutil.rmtree(place)
    return modules


def has_modules_of(host: Host, archive: str, built: BuiltModule, scratch: str) -> bool:
    """Tell whether an archive has the modules in DKMS's tree and no others, byte for byte.

    The list of their symbols beside them is for building other modules.
    """
    tree = f"{_DKMS_TREE}/{built.module}/{built.version}/{built.kernel}/{built.architecture}/module"
    place, names = host.path(f"{scratch}/look"), sorted(name for name in host.names(tree) if _MODULE.search(name))
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        with open_plain(host.path(archive)) as opened:
            packed = _unpack_modules(opened, place, archive, built.module, built.kernel)
        return packed == names == filecmp.cmpfiles(place, host.path(tree), names, shallow=False)[0]
    except (StageError, tarfile.TarError, OSError, EOFError):
        return False
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _unpack_modules(opened: tarfile.TarFile, place: Path, archive: str, dkms: str, kernel: str) -> list[str]:
    """Unpack the modules alone, flat, and return their names."""
    names: list[str] = []
    for member in _members(opened, archive):
        parts = PurePosixPath(member.name).parts
        if parts and parts[0] not in (_TREE, _BINARIES):  # dkms would take sources, and commands, from elsewhere in it
            raise _unfit(archive, f"{printable(member.name)} in it does not belong to built modules")
        if parts[:1] == (_TREE,) and len(parts) > 1 and parts[1] != kernel:
            raise _unfit(archive, f"it has modules of the kernel {printable(parts[1])}, not {kernel} alone")
        stream = opened.extractfile(member) if member.isfile() else None
        if stream is None:
            continue
        if parts == (_BINARIES, "PACKAGE_NAME"):
            said = stream.read(_MAX_NAME_BYTES).decode("utf-8", "replace").strip()
            if said != dkms:
                raise _unfit(archive, f"it is of the DKMS module {printable(said)}, not {dkms}")
        elif parts[:1] == (_TREE,) and _MODULE.search(parts[-1]):
            if len(parts) != _MODULE_PARTS or parts[3] != "module" or parts[-1] in names:
                raise _unfit(archive, f"{printable(member.name)} in it is twice there, or not where modules are")
            with (place / parts[-1]).open("wb") as out:
                shutil.copyfileobj(stream, out)
            names.append(parts[-1])
    if not names:
        raise _unfit(archive, f"it has no modules of the kernel {kernel}")
    return sorted(names)


def _members(opened: tarfile.TarFile, archive: str) -> Iterator[tarfile.TarInfo]:
    """Return the members, of which none leads out of the folder that it is unpacked in."""
    size = 0
    for count, member in enumerate(plain_members(opened)):
        size += member.size
        if count >= _MAX_MEMBERS or size > _MAX_BYTES:
            raise _unfit(archive, "it unpacks to more than a driver's modules can be")
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
            raise _unfit(archive, f"{printable(member.name)} in it is neither a file nor a folder of its own")
        yield member


def _read_module(host: Host, archive: str, file: str) -> Module:
    done = host.ask(["modinfo", file], _TIMEOUT_S)
    if done.return_code:
        raise _unfit(archive, f"{PurePosixPath(file).name} is no kernel module: {done.complaint}")
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(done.stdout):
        found.setdefault(name, value.strip())
    return Module(
        name=PurePosixPath(file).name,
        version=found.get("version", ""),
        license=found.get("license", ""),
        kernel=found.get("vermagic", "").split(" ")[0],
        vermagic=found.get("vermagic", ""),
        signer=found.get("signer", ""),
    )


def _require_signer(archive: str, modules: list[Module], certificate: Certificate) -> None:
    """Compare signers by the name that they give, which makes the plainer message, and then by what is true."""
    for module in modules:
        if module.signer != certificate.name:
            signer = f"signed by {printable(module.signer)}" if module.signer else "not signed"
            raise _unfit(archive, f"{module.name} is {signer}, not by {certificate.name} ({certificate.path})")
        if module.forgery:
            raise _unfit(archive, f"{module.name} {module.forgery}")


def _unfit(archive: str, why: str) -> StageError:
    return failure(
        "module-unfit",
        f"{archive}: {why}",
        "build the module again for this kernel, version and flavour; see /etc/dkms/framework.conf for who signs",
    )
