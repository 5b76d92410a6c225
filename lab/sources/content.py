"""Writes the files of a package: small stand-ins for what the real one has, in the real one's places.

Kernel modules are those of ``lab.kmod``, libraries lead to the node's simulated NVML and CUDA. ``nvidia-smi`` knows
``-L`` and its exit statuses; a daemon is a unit that waits.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from lab import golang
from lab.kmod import MODULES, build_modules, module_argv

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.sources.systems import System
    from lab.sources.tables import Package

LIBRARIES = "/usr/lib/gpusim/simulated"  # on a node: one hard link for each version that its system offers
BUILDS = "/var/log/lab-module-builds"  # on a node: a line for each time that its module was compiled
MODULE_SOURCE = Path(__file__).parents[1] / "kmod/src/module.c"
SMI = Path(__file__).with_name("nvidia_smi.py")
UNIT = """\
[Unit]
Description=Stand-in for {name}

[Service]
ExecStart=/usr/bin/sleep infinity

[Install]
WantedBy=multi-user.target
"""
# Upstream's unit (containerd.service of 2.4.2), and what Docker's package says in its configuration: no `version`.
CONTAINERD_UNIT = """\
[Unit]
Description=containerd container runtime
After=network.target dbus.service

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""
CONTAINERD_SETTINGS = """\
# Settings of a containerd that Docker alone uses.

disabled_plugins = ["cri"]

#root = "/var/lib/containerd"
"""
BLACKLIST = "blacklist nouveau\noptions nouveau modeset=0\n"


def write_content(package: Package, system: System, root: Path) -> None:
    """Write everything of ``package`` below ``root``."""
    for line in package.content:
        kind, *words = line.split()
        WRITERS[kind](package, system, root, words)


def scripts(package: Package) -> dict[str, str]:
    """Return the shell scripts that run after its installation (``post``) and before its removal (``preun``)."""
    after, before = list[str](), list[str]()
    for line in package.content:
        kind, *words = line.split()
        if kind == "library":
            after.append("/sbin/ldconfig")
        if kind in ("modules", "kernel"):
            after.append(f"/sbin/depmod -a {package.kernel} || :")
        if kind == "dkms":
            module = f"-m {words[0]} -v {package.upstream}"
            # As the real package does: a build that fails does not fail the installation.
            after += [f"dkms add {module} || :", f"dkms build {module} || :", f"dkms install {module} --force || :"]
            before.append(f"dkms remove {module} --all || :")
    found = {"post": after, "preun": before}
    return {name: "\n".join(dict.fromkeys(lines)) for name, lines in found.items() if lines}


def _library(package: Package, system: System, root: Path, words: list[str]) -> None:
    name, number = words
    folder = root / ("usr/lib/x86_64-linux-gnu" if system.manager == "apt" else "usr/lib64")
    folder.mkdir(parents=True, exist_ok=True)
    file = f"{name}.so.{package.upstream}"
    (folder / file).symlink_to(f"{LIBRARIES}/{file}")
    (folder / f"{name}.so.{number}").symlink_to(file)


def _smi(package: Package, _: System, root: Path, __: list[str]) -> None:
    _write(root / "usr/bin/nvidia-smi", SMI.read_text().replace("@VERSION@", package.upstream), 0o755)


def _service(_: Package, __: System, root: Path, words: list[str]) -> None:
    _write(root / f"usr/lib/systemd/system/{words[0]}.service", UNIT.format(name=words[0]))


def _modprobe(package: Package, _: System, root: Path, __: list[str]) -> None:
    _write(root / f"usr/lib/modprobe.d/{package.name}.conf", BLACKLIST)


def _modules(package: Package, _: System, root: Path, words: list[str]) -> None:
    kernel = package.kernel
    built = build_modules(package.upstream, kernel, words[0]) / "lib/modules" / kernel / "updates"
    shutil.copytree(built, root / "usr/lib/modules" / kernel / "updates")


def _dkms(package: Package, _: System, root: Path, words: list[str]) -> None:
    name, flavour = words
    place = root / f"usr/src/{name}-{package.upstream}"
    _write(place / "module.c", MODULE_SOURCE.read_text())
    _write(place / "dkms.conf", _dkms_configuration(name, package.upstream))
    _write(place / "Makefile", _makefile(package.upstream, flavour))


def _dkms_configuration(name: str, version: str) -> str:
    lines = [f'PACKAGE_NAME="{name}"', f'PACKAGE_VERSION="{version}"', 'AUTOINSTALL="yes"']
    lines.append('MAKE[0]="make modules KERNEL_UNAME=${kernelver}"')
    lines.append('CLEAN="true"')
    for index, module in enumerate(MODULES):
        lines.append(f'BUILT_MODULE_NAME[{index}]="{module.name}"')
        lines.append(f'DEST_MODULE_LOCATION[{index}]="/kernel/drivers/video"')
    return "\n".join(lines) + "\n"


def _makefile(version: str, flavour: str) -> str:
    lines = [f"modules: {' '.join(f'{module.name}.ko' for module in MODULES)}"]
    lines.append(f"\techo {version} $(KERNEL_UNAME) >> {BUILDS}")
    for module in MODULES:
        argv = module_argv(module, version, "$(KERNEL_UNAME)", flavour, Path(f"{module.name}.ko"))
        lines += [f"{module.name}.ko: module.c", f"\t{shlex.join([*argv[:-1], 'module.c'])}"]
    return "\n".join(lines) + "\n"


def _kernel(package: Package, _: System, root: Path, __: list[str]) -> None:
    kernel = package.kernel
    for index in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        _write(root / f"usr/lib/modules/{kernel}/{index}", "")
    _write(root / f"boot/vmlinuz-{kernel}", "")
    _write(root / f"boot/config-{kernel}", "CONFIG_MODULES=y\n")


def _headers(package: Package, _: System, root: Path, __: list[str]) -> None:
    kernel = package.kernel
    _write(root / f"usr/src/kernels/{kernel}/include/generated/utsrelease.h", f'#define UTS_RELEASE "{kernel}"\n')
    _write(root / f"usr/src/kernels/{kernel}/.config", "CONFIG_MODULES=y\n")
    _write(root / f"usr/src/kernels/{kernel}/Makefile", f"# of kernel {kernel}\n")
    folder = root / f"usr/lib/modules/{kernel}"
    folder.mkdir(parents=True)
    (folder / "build").symlink_to(f"/usr/src/kernels/{kernel}")


def _containerd(_: Package, __: System, root: Path, words: list[str]) -> None:
    """Write a real containerd with its runc, and the settings of Docker's package."""
    folder = golang.containerd(words[0])
    for program in (*sorted(folder.iterdir()), golang.runc() / "runc"):
        _copy(program, root / "usr/bin")
    _write(root / "usr/lib/systemd/system/containerd.service", CONTAINERD_UNIT)
    _write(root / "etc/containerd/config.toml", CONTAINERD_SETTINGS)


def _runc(_: Package, __: System, root: Path, ___: list[str]) -> None:
    _copy(golang.runc() / "runc", root / "usr/bin")


def _podman(_: Package, __: System, root: Path, words: list[str]) -> None:
    """Write a program that knows its version: what is real of it is that it needs a runtime."""
    _write(root / "usr/bin/podman", f"#!/bin/sh\necho podman version {words[0]}\n", 0o755)


def _copy(program: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, folder / program.name)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


WRITERS: dict[str, Callable[[Package, System, Path, list[str]], None]] = {
    "library": _library,
    "smi": _smi,
    "service": _service,
    "modprobe": _modprobe,
    "modules": _modules,
    "dkms": _dkms,
    "kernel": _kernel,
    "headers": _headers,
    "containerd": _containerd,
    "runc": _runc,
    "podman": _podman,
}
