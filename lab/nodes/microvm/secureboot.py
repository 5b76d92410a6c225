"""UEFI firmware for the virtual machine that starts signed kernels only, and a module to be loaded there.

The kernel is Debian's as it is, with its signature; the firmware (`ovmf`) has the certificate of its signer, and those
of a test. Started that way, the kernel locks itself down and loads signed modules only. Two modules with the names of
NVIDIA's are compiled for it, which do nothing and are not signed.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.machine.command import CONTAINED, run
from lab.machine.errors import LabError
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.requirements import require_machine
from lab.nodes.microvm.system import INIT, KERNEL, SUITE, System, fetch, only, write_first_root
from lab.nodes.microvm.variables import write_variables

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "550.163.01"
MODULES = ("nvidia", "nvidia-uvm")
SOURCE = f'#include <linux/module.h>\n\nMODULE_LICENSE("GPL");\nMODULE_VERSION("{VERSION}");\n'
_HEADERS = "linux-headers-cloud-amd64"
_FIRMWARE = "ovmf"
_COMPILER = ("gcc", "make")
_KEPT = {"usr/share/OVMF/OVMF_CODE_4M.secboot.fd": "code.fd", "usr/share/OVMF/OVMF_VARS_4M.fd": "variables.fd"}
_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class SecureBoot:
    """What the machine is started with instead of a kernel that QEMU loads; nothing in ``folder`` is ever changed."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """Debian's signed kernel."""
        return self.folder / "vmlinuz"

    @property
    def first_root(self) -> Path:
        """The archive that this kernel starts with."""
        return self.folder / "initrd"

    @property
    def modules(self) -> Path:
        """A folder with ``efivarfs.ko``, signed by Debian, and NVIDIA's by name, which nobody has signed."""
        return self.folder / "modules"

    def arguments(self, enrolled: tuple[Path, ...], folder: Path, archive: Path, command_line: str) -> list[str]:
        """Return QEMU's arguments for a start by firmware; ``enrolled`` are certificates, the first is the owner's.

        The kernel is on a disk: QEMU changes one that it loads itself, which is then no longer what was signed.
        """
        system_partition, variables = folder / "esp", folder / "variables.fd"
        system_partition.mkdir()
        shutil.copy(self.kernel, system_partition / "linux.efi")
        shutil.copy(archive, system_partition / "initrd")
        ours = [path.read_bytes() for path in enrolled]
        accepted = [*ours, (self.folder / "signer.der").read_bytes()]
        empty = (self.folder / "variables.fd").read_bytes()
        line = f"initrd=\\initrd {command_line}"
        variables.write_bytes(write_variables(empty, ours[0], accepted, "\\linux.efi", line))
        return [
            *("-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"),
            *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={self.folder / 'code.fd'}"),
            *("-drive", f"if=pflash,unit=1,format=raw,file={variables}"),
            # behind the other disk, which Linux looks for as its first
            *("-drive", f"file=fat:ro:{system_partition},format=raw,if=none,id=esp,read-only=on"),
            *("-device", "virtio-blk-pci,drive=esp,addr=0x1e"),
        ]


def ensure_secure_boot(system: System) -> SecureBoot:
    """Return it, building it if it is not in the cache (two minutes, 130 MB to fetch). Raises LabError."""
    home = cache_dir() / "microvm"
    key = content_key(SUITE, KERNEL, _HEADERS, _FIRMWARE, *_COMPILER, *_KEPT, *MODULES, SOURCE, INIT)
    found = SecureBoot(home / f"secureboot-{SUITE}-{key}")
    if found.folder.is_dir():
        return found
    require_machine()
    with locked(home / "secureboot.lock", wait_s=_TIMEOUT_S):
        if not found.folder.is_dir():
            _build(system, found.folder)
    return found


def _build(system: System, folder: Path) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    made = SecureBoot(partial)
    made.modules.mkdir(parents=True)
    packages, compiler = partial / "packages", partial / "compiler"
    fetch(packages, "extract", f"{KERNEL},{_FIRMWARE}")
    for place, name in _KEPT.items():
        shutil.copy(packages / place, partial / name)
    shutil.copy(only(packages, "boot/vmlinuz-*"), made.kernel)
    (partial / "signer.der").write_bytes(_signer(made.kernel.read_bytes()))
    write_first_root(made.first_root, system.tree, packages)
    run(["xz", "-dk", str(only(packages, "**/efivarfs.ko.xz"))], timeout_s=60.0)
    shutil.move(only(packages, "**/efivarfs.ko"), made.modules)
    fetch(compiler, "minbase", ",".join((*_COMPILER, _HEADERS)))
    _compile(compiler, made.modules)
    for used in (packages, compiler):
        shutil.rmtree(used)
    partial.rename(folder)


def _compile(tree: Path, target: Path) -> None:
    work = tree / "work"
    work.mkdir()
    for name in MODULES:
        (work / f"{name}.c").write_text(SOURCE)
    (work / "Kbuild").write_text(f"obj-m := {' '.join(f'{name}.o' for name in MODULES)}\n")
    headers = "/" + str(only(tree, "usr/src/linux-headers-*-cloud-amd64").relative_to(tree))
    run([*CONTAINED, "chroot", str(tree), "make", "-C", headers, "M=/work", "modules"], timeout_s=300.0)
    for name in MODULES:
        shutil.copy(work / f"{name}.ko", target)


def _signer(program: bytes) -> bytes:
    """Return the certificate (DER) of who signed a program for UEFI (PE, its directory of certificates)."""
    (header,) = struct.unpack_from("<I", program, 60)
    (place,) = struct.unpack_from("<I", program, header + 24 + 112 + 4 * 8)
    (length,) = struct.unpack_from("<I", program, place)
    signature = program[place + 8 : place + length]
    shown = subprocess.run(
        ["openssl", "pkcs7", "-inform", "DER", "-print_certs"], input=signature, capture_output=True, check=False
    )
    read = ["openssl", "x509", "-outform", "DER"]
    certificate = subprocess.run(read, input=shown.stdout, capture_output=True, check=False).stdout
    if not place or not certificate:
        raise LabError(f"{KERNEL} of {SUITE} is not signed")
    return certificate
