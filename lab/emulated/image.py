"""Builds what an emulated machine boots: Debian's kernel for arm64, a RAM disk that mounts the disk, and the disk.

Debian's packages are installed by their own scripts, which QEMU runs one by one (user-mode emulation); the kernel is
told of it for as long as that takes, in a mount namespace of its own.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.emulated import agent
from lab.machine.command import CONTAINED, run
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import carried_options, find_mirrors
from lab.machine.requirements import require_machine

SUITE: Final = "bookworm"  # QEMU of Debian 12 cannot start the compressed kernels of later suites
BUILD_TIMEOUT_S: Final = 3600.0
PACKAGES: Final = (
    "systemd", "systemd-sysv", "dbus", "kmod", "procps", "python3", "python3-apt", "zstd",
    "runc", "crun", "busybox-static", "gcc", "make", "libc6-dev",
    "linux-image-cloud-arm64", "linux-headers-cloud-arm64",
)  # fmt: skip
# binfmt_misc's own format (Documentation/admin-guide/binfmt-misc.rst): ELF, 64 bit, little endian, EM_AARCH64. F: the
# interpreter is opened now, so that it is found below other roots, too. The entry goes with the mount namespace.
_REGISTER: Final = r"""
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ':grapnel-aarch64:M::\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'\
':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' \
    > /proc/sys/fs/binfmt_misc/register
exec "$@"
"""
_AGENT_UNIT: Final = """\
[Unit]
DefaultDependencies=no
After=local-fs.target
[Service]
ExecStart=/usr/bin/python3 -IS /usr/lib/lab/agent.py
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
"""
# Nothing here is seen on a screen, has a clock to set or a network; udev would coldplug devices that nothing uses.
_MASKED: Final = (
    "getty.target systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket "
    "systemd-udevd-kernel.socket systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer "
    "e2scrub_reap.service dpkg-db-backup.timer fstrim.timer systemd-update-utmp.service"
)
_FINISH: Final = (
    f'chroot "$1" systemctl --quiet mask {_MASKED}',
    'chroot "$1" systemctl --quiet set-default multi-user.target',
    'cd "$1" && rm -rf ./var/lib/apt/lists/* ./etc/resolv.conf ./etc/apt/sources.list',
)
_BOOT_MODULES: Final = ("virtio_pci", "virtio_blk", "virtio_console", "ext4", "overlay")
_INIT: Final = """\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t devtmpfs none /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
"""
# Two modules as the driver has them, in two versions, compiled against the machine's own kernel.
VERSIONS: Final = ("560.28.03", "560.35.03")
_MODULE: Final = """\
#include <linux/module.h>
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(LAB_VERSION);
#ifdef LAB_UVM
extern int lab_nvidia;
static int __init start(void) { return lab_nvidia; }
#else
int lab_nvidia;
EXPORT_SYMBOL(lab_nvidia);
static int __init start(void) { return 0; }
#endif
static void __exit stop(void) { }
module_init(start);
module_exit(stop);
"""
_BUILD: Final = """\
set -e
kernel=$(ls /lib/modules)
for version in %s; do
    mkdir -p /srv/modules/$version && cd /srv/modules/$version
    cp /srv/module.c nvidia.c
    { echo '#define LAB_UVM'; cat /srv/module.c; } > nvidia-uvm.c
    printf 'obj-m := nvidia.o nvidia-uvm.o\\nccflags-y := -DLAB_VERSION=\\\\"%%s\\\\"\\n' $version > Makefile
    make -s -C /lib/modules/$kernel/build M=$PWD modules
    find . -type f ! -name '*.ko' -delete
done
"""


@dataclass(frozen=True)
class Image:
    """What a machine is started with; ``release`` is its kernel's."""

    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def ram_disk(self) -> Path:
        return self.folder / "initrd"

    @property
    def disk(self) -> Path:
        return self.folder / "disk.ext4"

    @property
    def release(self) -> str:
        return (self.folder / "release").read_text()


def ensure() -> Image:
    """Return the image, built if it is not in the cache (some minutes, 1 GB)."""
    home = cache_dir() / "emulated"
    key = content_key(
        SUITE, *PACKAGES, *_FINISH, _AGENT_UNIT, _INIT, _MODULE, _BUILD, *_BOOT_MODULES, *VERSIONS,
        Path(agent.__file__).read_bytes(),
    )  # fmt: skip
    image = Image(home / f"{SUITE}-arm64-{key}")
    if image.folder.is_dir():
        return image
    require_machine()
    with locked(home / "arm64.lock", wait_s=BUILD_TIMEOUT_S):
        if not image.folder.is_dir():
            _build(image.folder)
    return image


def _build(folder: Path) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    tree = partial / "tree"
    _install(tree)
    (tree / "usr/lib/lab").mkdir()
    shutil.copy(agent.__file__, tree / "usr/lib/lab/agent.py")
    unit = tree / "etc/systemd/system/lab-agent.service"
    unit.write_text(_AGENT_UNIT)
    wants = tree / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")
    (tree / "srv/module.c").write_text(_MODULE)
    _emulated("chroot", str(tree), "sh", "-c", _BUILD % " ".join(VERSIONS))
    image = Image(partial)
    release = next((tree / "lib/modules").iterdir()).name
    (partial / "release").write_text(release)
    shutil.copy(tree / "boot" / f"vmlinuz-{release}", image.kernel)
    _write_ram_disk(tree, release, image.ram_disk)
    run(
        ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-L", "lab", "-d", str(tree), str(image.disk), "3G"],
        timeout_s=BUILD_TIMEOUT_S,
    )
    shutil.rmtree(tree)
    partial.rename(folder)


def _install(tree: Path) -> None:
    arguments = ["--variant=minbase", "--mode=root", "--format=directory", "--architectures=arm64"]
    arguments += [f"--include={','.join(PACKAGES)}", "--dpkgopt=path-exclude=/usr/share/doc/*"]
    arguments += ["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"]
    arguments += ["--dpkgopt=force-unsafe-io", *(f"--aptopt={option}" for option in carried_options())]
    arguments += [f"--customize-hook={hook}" for hook in _FINISH]
    sources = [line for line in find_mirrors().source_lines(SUITE) if f" {SUITE} " in line or "-security" in line]
    _emulated("mmdebstrap", *arguments, SUITE, str(tree), *sources)


def _emulated(*command: str) -> None:
    """Run a command that starts programs of the other architecture; no RAM disk of Debian's is made in it."""
    environment = ["env", "INITRD=No", "DEBIAN_FRONTEND=noninteractive"]
    run([*CONTAINED, *environment, "sh", "-c", _REGISTER, "sh", *command], timeout_s=BUILD_TIMEOUT_S)


def _write_ram_disk(tree: Path, release: str, target: Path) -> None:
    """Write a RAM disk with busybox, an init script and the modules that the disk needs, in their order."""
    folder, modules = target.with_name("ram"), tree / "lib/modules" / release
    (folder / "bin").mkdir(parents=True)
    (folder / "modules").mkdir()
    shutil.copy(tree / "bin/busybox", folder / "bin/busybox")
    order = []
    for path in _in_order(modules):
        shutil.copy(modules / path, folder / "modules")
        order.append(Path(path).name)
    (folder / "modules/order").write_text("\n".join(order))
    (folder / "init").write_text(_INIT)
    (folder / "init").chmod(0o755)
    run(["sh", "-c", 'cd "$1" && find . | busybox cpio -o -H newc > "$2"', "sh", str(folder), str(target)], timeout_s=60)
    shutil.rmtree(folder)


def _in_order(modules: Path) -> list[str]:
    """Return the modules' files below a kernel's folder, each after those that it depends on (modules.dep)."""
    lines = (line.partition(":") for line in (modules / "modules.dep").read_text().splitlines())
    needs = {path: rest.split() for path, _, rest in lines}
    by_name = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    ordered: list[str] = []
    for name in _BOOT_MODULES:
        if name in by_name:  # else it is built in
            ordered += [path for path in (*reversed(needs[by_name[name]]), by_name[name]) if path not in ordered]
    return ordered
