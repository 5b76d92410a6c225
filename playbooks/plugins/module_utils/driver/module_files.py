"""Puts prebuilt kernel modules where DKMS and modprobe find them, so that nothing is compiled out of service.

Maintainer scripts of a DKMS package build for whatever kernel has headers. While every kernel that counts has its
module prebuilt, they are told not to, and the archives are loaded once the package is there.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import read_signers
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import describe_module, module_file
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import SelinuxError, is_on, restore_labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_DKMS_SETTINGS = "/etc/dkms"
NO_BUILDS = f"{_DKMS_SETTINGS}/no-autoinstall"
_OURS = "# grapnel-driver: the modules of this transaction are prebuilt\n"
_NO_KERNEL = 'BUILD_EXCLUSIVE_KERNEL="^$"\n'
_LOAD_TIMEOUT_S = 300.0
_BUILD_TIMEOUT_S = 3600.0
_NVIDIA = "nvidia"
_DKMS_TREE = "/var/lib/dkms"
_VERSION = re.compile(r"^[0-9]+(\.[0-9]+)+$")
_PROPRIETARY = "NVIDIA"  # license of the module; the open one has a free one


class ModuleFileError(Exception):
    """A kernel has no module that would do; the message names it."""


def missing_archives(target: Target) -> list[str]:
    """Return the kernels for which a module would have to be compiled."""
    change = target.change
    return [kernel for kernel in change.kernels if kernel not in target.archives] if change.dkms else []


def forbid_builds(host: Host, target: Target | None = None) -> None:
    """Keep the scripts of packages from building; a file that somebody else has put there stays as it is.

    Those of RPM packages call dkms by themselves, so it is told that the target's module is for no kernel at all
    (dkms(8), ``/etc/dkms/MODULE-VERSION.conf``).
    """
    texts = {NO_BUILDS: _OURS}
    if target is not None and target.change.dkms:
        texts[f"{_DKMS_SETTINGS}/{target.change.dkms}-{target.change.version}.conf"] = _OURS + _NO_KERNEL
    for path, text in texts.items():
        place = host.path(path)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            place.write_text(text, encoding="utf-8")


def allow_builds(host: Host) -> None:
    """Take back `forbid_builds`, that of a run that was killed as well."""
    names = [name for name in host.names(_DKMS_SETTINGS) if name.startswith(_NVIDIA) and name.endswith(".conf")]
    for path in (NO_BUILDS, *(f"{_DKMS_SETTINGS}/{name}" for name in names)):
        if (host.read_text(path) or "").startswith(_OURS.strip()):
            host.path(path).unlink()
    with contextlib.suppress(OSError):  # DKMS has its own settings in it; without DKMS the folder is ours
        host.path(_DKMS_SETTINGS).rmdir()


def withdraw_modules(host: Host, target: Target) -> None:
    """Take other versions of the target's module out of DKMS before their package does it with more effort.

    Its script asks for the state of every module, removes it, and has depmod read all modules of every kernel, whose
    result nobody reads before the new module is there. Whatever this leaves undone, the script does.
    """
    name = target.change.dkms
    if not name or missing_archives(target):
        return
    for version in host.names(f"{_DKMS_TREE}/{name}"):
        if _VERSION.match(version) and version != target.change.version:
            host.run(["dkms", "remove", "--no-depmod", "-m", name, "-v", version, "--all"], _LOAD_TIMEOUT_S)


def install_modules(host: Host, target: Target) -> list[str]:
    """Load prebuilt modules for the kernels that lack theirs, and return those; raises `ModuleFileError`."""
    lacking = lacking_modules(host, target)
    for kernel in lacking:
        if target.change.dkms:
            _install(host, target, kernel)
            _label(host, kernel)
        complaint = _complaint(host, target, kernel)
        if complaint:
            raise ModuleFileError(complaint)
    return lacking


def lacking_modules(host: Host, target: Target) -> list[str]:
    """Return the kernels of the target that lack its module."""
    return [kernel for kernel in target.change.kernels if _complaint(host, target, kernel)]


def _complaint(host: Host, target: Target, kernel: str) -> str:
    """Return why the module that modprobe would load in a kernel is not the right one, empty when it is.

    Where a key is declared, one that somebody else has signed is not: it may no longer load after the next boot.
    """
    fields = _describe(host, kernel)
    found, wanted = _identity(fields), (target.change.version, target.change.flavour)
    if found != wanted:
        said = f"{found[0]} ({found[1]})" if found[0] else "none"
        return f"kernel {kernel} lacks the module {wanted[0]} ({wanted[1]}) on disk, it has {said}"
    signers = {one.name for one in read_signers(host, target.folder, kernel)} if target.change.sign else set()
    signer = fields.get("signer", "")
    if not signers or signer in signers:
        return ""
    by = ", ".join(sorted(signers))
    return f"kernel {kernel} lacks the module {wanted[0]} signed by {by} on disk, it has that of {signer or 'nobody'}"


def _describe(host: Host, kernel: str) -> dict[str, str]:
    file = module_file(host, _NVIDIA, kernel)
    return describe_module(host, file) if file is not None else {}


def _identity(fields: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return version and flavour of a module, None for none."""
    if not fields:
        return None, None
    return fields.get("version"), "proprietary" if fields.get("license") == _PROPRIETARY else "open"


def find_module(host: Host, kernel: str) -> tuple[str | None, str | None]:
    """Return version and flavour of the module that a kernel would load."""
    return _identity(_describe(host, kernel))


def _install(host: Host, target: Target, kernel: str) -> None:
    """Load an archive into DKMS's tree and install it; without one, the module is compiled, where that is allowed.

    What is built there already is replaced: it may be half of a module, from a power cut, or signed by another key.
    """
    name = ["-m", str(target.change.dkms), "-v", target.change.version]
    archive = target.archives.get(kernel)
    if archive is not None:
        # It says that the module was added before when it was, and has loaded the archive by then.
        taken = host.run(["dkms", "ldtarball", "--force", "--archive", str(host.path(archive))], _LOAD_TIMEOUT_S)
        if _state(host, name, kernel) not in ("built", "installed"):
            raise ModuleFileError(f"dkms has not taken {archive} for kernel {kernel}: {taken.complaints}")
    timeout_s = _LOAD_TIMEOUT_S if archive is not None else _BUILD_TIMEOUT_S
    done = host.run(["dkms", "install", "--force", *name, "-k", kernel], timeout_s)
    if done.return_code:
        raise ModuleFileError(f"dkms cannot install {' '.join(name[1::2])} for kernel {kernel}: {done.complaints}")


def _label(host: Host, kernel: str) -> None:
    """Give new modules their label: a kernel that unpacks them itself loads none with that of another folder."""
    file = module_file(host, _NVIDIA, kernel) if is_on(host) else None
    if file is None:
        return
    try:
        restore_labels(host, [posixpath.dirname(file)])
    except SelinuxError as error:
        raise ModuleFileError(str(error)) from error


def _state(host: Host, name: Sequence[str], kernel: str) -> str:
    shown = host.ask(["dkms", "status", *name, "-k", kernel], _LOAD_TIMEOUT_S)
    match = re.search(r": (\w+)", shown.stdout)
    return match.group(1) if match else ""
