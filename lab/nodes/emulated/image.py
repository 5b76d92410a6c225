"""Builds what an emulated machine boots: Debian's kernel for arm64, a RAM disk that mounts the disk, and the disk.

Packages are unpacked and not installed, so that nothing of the other architecture runs here; what their scripts would
have done and the machine needs is done here, or by the machine itself in its first start, which writes to its disk.
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.machine.command import CONTAINED, run
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import carried_options, find_mirrors
from lab.machine.requirements import require_machine
from lab.nodes.emulated import agent
from lab.nodes.emulated.machine import emulated_machine

SUITE: Final = "bookworm"  # QEMU of Debian 12 cannot start the compressed kernels of later suites
MACHINES_PYTHON: Final = (3, 11)
BUILD_TIMEOUT_S: Final = 1800.0
PACKAGES: Final = (
    *("apt", "base-files", "base-passwd", "bash", "busybox-static", "coreutils", "crun", "dash", "debianutils"),
    *("diffutils", "dpkg", "e2fsprogs", "findutils", "gcc", "grep", "gzip", "hostname", "kmod", "libc-bin"),
    *("libc6-dev", "linux-image-cloud-arm64", "login", "mawk", "mount"),
    *("perl-base", "procps", "python3", "python3-apt", "runc", "sed", "systemd", "systemd-sysv", "tar", "util-linux"),
    "zstd",
)
_MERGED: Final = 'for name in bin sbin lib; do mkdir -p "$1/usr/$name"; ln -s "usr/$name" "$1/$name"; done'
# The database of dpkg(1), as if the packages had been installed.
_STATUS: Final = """\
set -e
cd "$1/var/cache/apt/archives"
for deb in *.deb; do
    name=$(dpkg-deb --field "$deb" Package)
    same=$(dpkg-deb --field "$deb" Multi-Arch)
    [ "$same" = same ] && name=$name:$(dpkg-deb --field "$deb" Architecture)
    { dpkg-deb --field "$deb" | sed '/^Package:/a Status: install ok installed'; echo; } >> "$1/var/lib/dpkg/status"
    dpkg-deb --fsys-tarfile "$deb" | tar -t | sed 's|^[.]||; s|/$||; s|^$|/.|' > "$1/var/lib/dpkg/info/$name.list"
done
"""
_AGENT_UNIT: Final = """\
[Unit]
DefaultDependencies=no
After=systemd-remount-fs.service
[Service]
ExecStart=/usr/bin/python3 -IS /usr/lib/lab/agent.py
[Install]
WantedBy=multi-user.target
"""
# There is no screen, no network and no clock to set, and nothing looks for devices: the start would take twice as long.
_MASKED: Final = (
    *("dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount"),
    *("sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount", "kmod-static-nodes.service", "modprobe@.service"),
    *("systemd-update-utmp.service", "systemd-user-sessions.service", "systemd-logind.service"),
    *("getty.target", "systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udevd-control.socket"),
    *("systemd-udevd-kernel.socket", "systemd-timesyncd.service", "systemd-networkd.service", "systemd-pstore.service"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"),
)
_BOOT_MODULES: Final = ("virtio_pci", "virtio_blk", "virtio_console", "ext4", "overlay")
_INIT: Final = """\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
"""
_LIBRARIES: Final = ("/usr/lib/python3.11", "/usr/lib/python3")
_COMPILE: Final = f"python3 -m compileall -q {' '.join(_LIBRARIES)} || true"  # some files are for another Python
_FIRST_START: Final = "ldconfig; systemctl is-system-running --wait; sync"


@dataclass(frozen=True)
class Image:
    """What a machine is started with, in a folder of the cache."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """Return the kernel."""
        return self.folder / "vmlinuz"

    @property
    def ram_disk(self) -> Path:
        """Return the initial RAM disk."""
        return self.folder / "initrd"

    @property
    def disk(self) -> Path:
        """Return the disk, a file system."""
        return self.folder / "disk.ext4"


def ensure() -> Image:
    """Return the image, built if it is not in the cache (some minutes, 500 MB)."""
    home = cache_dir() / "emulated"
    key = content_key(
        *(SUITE, _MERGED, _STATUS, _AGENT_UNIT, _INIT, _COMPILE, _FIRST_START, Path(agent.__file__).read_bytes()),
        *("\n".join(names) for names in (PACKAGES, _MASKED, _BOOT_MODULES)),
    )
    image = Image(home / f"{SUITE}-arm64-{key}")
    if image.folder.is_dir():
        return image
    require_machine()
    with locked(home / "arm64.lock", wait_s=BUILD_TIMEOUT_S):
        if not image.folder.is_dir():
            _build(image.folder)
    return image


def _build(folder: Path) -> None:
    partial = Image(folder.with_name(f".{folder.name}.partial"))
    shutil.rmtree(partial.folder, ignore_errors=True)
    partial.folder.mkdir(parents=True)
    tree = partial.folder / "tree"
    _unpack(tree)
    _settle(tree)
    is_compiled = compile_here(*(tree / name.lstrip("/") for name in _LIBRARIES))
    release = next((tree / "lib/modules").iterdir()).name
    shutil.copy(tree / "boot" / f"vmlinuz-{release}", partial.kernel)
    run(["depmod", "-b", str(tree), release], timeout_s=60)
    _write_ram_disk(tree, release, partial.ram_disk)
    make = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(tree), str(partial.disk), "2G"]
    run(make, timeout_s=BUILD_TIMEOUT_S)
    shutil.rmtree(tree)
    with emulated_machine(partial, keeps=True) as machine:
        machine.sh(_FIRST_START if is_compiled else f"{_COMPILE}; {_FIRST_START}", timeout_s=BUILD_TIMEOUT_S)
    partial.folder.rename(folder)


def _unpack(tree: Path) -> None:
    arguments = ["--variant=extract", "--mode=root", "--format=directory", "--architectures=arm64"]
    arguments += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    arguments += [f"--aptopt={option}" for option in carried_options()]
    arguments += [f"--include={','.join(PACKAGES)}", f"--setup-hook={_MERGED}", f"--extract-hook={_STATUS}"]
    sources = find_mirrors().source_lines(SUITE)
    run([*CONTAINED, "mmdebstrap", *arguments, SUITE, str(tree), *sources], timeout_s=BUILD_TIMEOUT_S)


def _settle(tree: Path) -> None:
    """Do what scripts of packages would have done: accounts, alternatives, units; and install the agent."""
    for name in ("passwd", "group"):
        shutil.copy(tree / "usr/share/base-passwd" / f"{name}.master", tree / "etc" / name)
    (tree / "usr/bin/awk").symlink_to("mawk")
    for name in ("etc/machine-id", "etc/fstab", "etc/apt/sources.list"):
        (tree / name).write_text("")
    (tree / "etc/hostname").write_text("emulated\n")
    units = tree / "etc/systemd/system"
    (units / "multi-user.target.wants").mkdir(parents=True, exist_ok=True)
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    for name in _MASKED:
        (units / name).symlink_to("/dev/null")
    (units / "lab-agent.service").write_text(_AGENT_UNIT)
    (units / "multi-user.target.wants/lab-agent.service").symlink_to("/etc/systemd/system/lab-agent.service")
    for name in ("usr/lib/lab", "srv", "mnt", "usr/local/sbin"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(agent.__file__, tree / "usr/lib/lab/agent.py")


def compile_here(*folders: Path) -> bool:
    """Compile Python's files in folders of the machine's; tell whether that was done.

    A start that has to compile what it imports takes ten seconds there, and this takes two: but bytecode is of one
    version of Python, on all architectures, and this Python may be another one.
    """
    if sys.version_info[:2] != MACHINES_PYTHON:
        return False
    for folder in folders:
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(folder, quiet=2, workers=0, invalidation_mode=unchecked)
    return True


def _write_ram_disk(tree: Path, release: str, target: Path) -> None:
    """Write a RAM disk with busybox, an init script and the modules that the disk needs, in their order."""
    folder, modules = target.with_name("ram"), tree / "lib/modules" / release
    for name in ("bin", "modules", "dev", "root"):
        (folder / name).mkdir(parents=True)
    shutil.copy(tree / "bin/busybox", folder / "bin/busybox")
    order = in_order(modules)
    for path in order:
        shutil.copy(modules / path, folder / "modules")
    (folder / "modules/order").write_text("\n".join(Path(path).name for path in order))
    (folder / "init").write_text(_INIT)
    (folder / "init").chmod(0o755)
    pack = 'cd "$1" && find . | busybox cpio -o -H newc > "$2"'
    run(["sh", "-c", pack, "sh", str(folder), str(target)], timeout_s=60)
    shutil.rmtree(folder)


def in_order(modules: Path) -> list[str]:
    """Return the modules' files below a kernel's folder, each after those that it depends on (modules.dep)."""
    lines = (line.partition(":") for line in (modules / "modules.dep").read_text().splitlines())
    needs = {path: rest.split() for path, _, rest in lines}
    by_name = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    ordered: list[str] = []
    for name in _BOOT_MODULES:
        if name in by_name:  # else it is built in
            ordered += [path for path in (*reversed(needs[by_name[name]]), by_name[name]) if path not in ordered]
    return ordered
