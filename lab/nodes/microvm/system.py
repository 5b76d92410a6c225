"""Builds what the virtual machine boots: Debian's kernel for clouds, a tree with its SELinux policy, a labelled disk.

The policy is Debian's `default` one, of which only those modules are kept that containers need: a policy of all 350
takes half a minute to make even without emulation. Everything in the tree has the labels that this policy gives it, as
after the first boot of an installed system. Programs for AppArmor, and OpenSSL's FIPS provider, are in it as well.
"""

from __future__ import annotations

import lzma
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.machine.command import CONTAINED, run
from lab.machine.errors import LabError
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import carried_options, find_mirrors
from lab.machine.requirements import require_machine
from lab.nodes.microvm.archive import pack

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "trixie"
PACKAGES = (
    *("kmod", "python3", "runc", "policycoreutils", "selinux-policy-default", "busybox-static", "selinux-utils"),
    *("apparmor", "openssl", "openssl-provider-fips", "openssh-client"),
)
KERNEL = "linux-image-cloud-amd64"
# What the module `container` of Debian's policy needs, and roles that its base names.
POLICY = (
    "base", "container", "unconfined", "clock", "iptables", "lvm", "xdg", "xserver", "getty",
    "auditadm", "dbadm", "secadm", "staff", "unprivuser",
)  # fmt: skip
STORE = "/var/lib/selinux/default/active/modules/100"
CONTEXTS = "/etc/selinux/default/contexts/files/file_contexts"
DISK_SIZE = "512M"
UNUSED = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/selinux", "/var/lib/apt/lists", "/boot")
_TIMEOUT_S = 900.0
# The disk's driver is a module. What a test has put into the archive goes over the tree; `/start` is its program.
INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b insmod /virtio_blk.ko
until [ -b /dev/vda ]; do $b sleep 0.1; done
$b mount -t ext4 /dev/vda /newroot
$b cp -a /given/. /newroot/
exec $b switch_root /newroot /start
"""


@dataclass(frozen=True)
class System:
    """What is booted, in one folder of the cache. Nothing in it is ever changed: writes to the disk are thrown away."""

    folder: Path

    @property
    def tree(self) -> Path:
        """The root file system, for programs of its own that are run in it without the virtual machine."""
        return self.folder / "tree"

    @property
    def disk(self) -> Path:
        """The same as a disk with an ext4 file system."""
        return self.folder / "disk"

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.folder / "vmlinuz"

    @property
    def first_root(self) -> Path:
        """The archive that the kernel starts with."""
        return self.folder / "initrd"


def ensure() -> System:
    """Return the system, building it if it is not in the cache (a minute, 120 MB to fetch). Raises LabError."""
    home = cache_dir() / "microvm"
    system = System(home / f"{SUITE}-{content_key(SUITE, *PACKAGES, KERNEL, *POLICY, *UNUSED, DISK_SIZE, INIT)}")
    if system.folder.is_dir():
        return system
    require_machine()
    with locked(home / f"{SUITE}.lock", wait_s=_TIMEOUT_S):
        if not system.folder.is_dir():
            _build(system)
    return system


def _build(system: System) -> None:
    partial = system.folder.with_name(f".{system.folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    unfinished, kernel = System(partial), partial / "kernel"
    fetch(kernel, "extract", KERNEL)
    fetch(unfinished.tree, "minbase", ",".join(PACKAGES))
    shutil.copy(only(kernel, "boot/vmlinuz-*"), unfinished.kernel)
    write_first_root(unfinished.first_root, unfinished.tree, kernel)
    shutil.rmtree(kernel)
    _reduce_policy(unfinished.tree)
    label(unfinished.tree)
    run(["mke2fs", "-q", "-t", "ext4", "-d", str(unfinished.tree), str(unfinished.disk), DISK_SIZE], timeout_s=300.0)
    partial.rename(system.folder)


def fetch(folder: Path, variant: str, packages: str) -> None:
    """Make a tree of packages with a variant of mmdebstrap's; ``extract`` only unpacks them. Raises LabError."""
    arguments = [f"--variant={variant}", "--mode=root", "--format=directory", f"--include={packages}"]
    arguments += [f"--aptopt={option}" for option in carried_options()]
    sources = find_mirrors().source_lines(SUITE)
    run([*CONTAINED, "mmdebstrap", *arguments, SUITE, str(folder), *sources], timeout_s=_TIMEOUT_S)


def write_first_root(archive: Path, tree: Path, kernel: Path) -> None:
    """Write the archive that a kernel starts with, from the folder with its unpacked package."""
    root = archive.with_name("first")
    for folder in ("bin", "dev", "newroot", "given"):
        (root / folder).mkdir(parents=True)
    shutil.copy(tree / "usr/bin/busybox", root / "bin/busybox")
    (root / "virtio_blk.ko").write_bytes(lzma.decompress(only(kernel, "**/virtio_blk.ko.xz").read_bytes()))
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    archive.write_bytes(pack(root))
    shutil.rmtree(root)


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of a pattern; raises LabError."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise LabError(f"{KERNEL} of {SUITE} has {len(found)} files {pattern} instead of one")
    return found[0]


def _reduce_policy(tree: Path) -> None:
    for module in (tree / STORE.lstrip("/")).iterdir():
        if module.name not in POLICY:
            shutil.rmtree(module)
    run([*CONTAINED, "chroot", str(tree), "semodule", "--noreload", "--build"], timeout_s=300.0)
    config = tree / "etc/selinux/config"
    config.write_text(config.read_text().replace("SELINUX=permissive", "SELINUX=enforcing"))
    for path in UNUSED:
        shutil.rmtree(tree / path.lstrip("/"), ignore_errors=True)


def change(system: System, folder: Path, command: list[str]) -> Path:
    """Run a command in the tree, on this machine and as fast as that; return the folder with the files it changed.

    ``folder`` may have a folder ``upper`` with files that are laid over the tree for it.
    """
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir(exist_ok=True)
    layers = f"lowerdir={system.tree},upperdir={folder}/upper,workdir={folder}/work"
    script = 'mount -t overlay overlay -o "$1" "$2" && shift && exec chroot "$@"'
    run([*CONTAINED, "sh", "-c", script, "sh", layers, str(folder / "merged"), *command], timeout_s=300.0)
    return folder / "upper"


def label(tree: Path) -> None:
    """Give everything in a tree the labels of its policy. They are kept by any kernel, and enforced by none but one."""
    run([*CONTAINED, "chroot", str(tree), "setfiles", "-F", CONTEXTS, "/"], timeout_s=300.0)
