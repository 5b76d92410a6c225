"""Writes the files of a package: small stand-ins for what the real one has, in the real one's places.

Kernel modules are those of ``lab.kmod``, libraries lead to the node's simulated NVML and CUDA. ``nvidia-smi`` knows
``-L`` and its exit statuses; a daemon is a unit that waits.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab import bundle, golang
from lab.kmod import MODULES, build_modules, module_argv
from lab.machine.command import run
from lab.sources.systems import BASE_SUITE

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
# Upstream's unit (containerd.service of 2.4.2).
CONTAINERD_UNIT = """\
[Unit]
Description=containerd container runtime
After=network.target dbus.service

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart={folder}/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""
# What packages of containerd say in its configuration. Docker's has no `version`, Ubuntu's and Amazon's bring no file.
DOCKERS_SETTINGS = """\
# Settings of a containerd that Docker alone uses.

disabled_plugins = ["cri"]

#root = "/var/lib/containerd"
"""
SETTINGS = {"docker": DOCKERS_SETTINGS, "suse": "# See containerd-config.toml(5) for documentation.\n"}
DOCKER_SUITE = "trixie"
UNPACK_TIMEOUT_S = 120.0
DOCKER_UNIT = """\
[Unit]
Description=Docker Application Container Engine
After=network-online.target docker.socket containerd.service
Wants=network-online.target containerd.service
Requires=docker.socket

[Service]
Type=notify
ExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock
ExecReload=/bin/kill -s HUP $MAINPID
Restart=always
RestartSec=2
Delegate=yes
KillMode=process
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target
"""
DOCKER_SOCKET = """\
[Unit]
Description=Docker Socket for the API

[Socket]
ListenStream=/run/docker.sock
SocketMode=0660
SocketUser=root
SocketGroup=docker

[Install]
WantedBy=sockets.target
"""
CRIO_UNIT = """\
[Unit]
Description=Container Runtime Interface for OCI (CRI-O)
Before=kubelet.service

[Service]
Type=notify
ExecStart=/usr/bin/crio
OOMScoreAdjust=-999
TimeoutStartSec=0
Restart=on-failure

[Install]
WantedBy=multi-user.target
Alias=cri-o.service
"""
CRIO_SETTINGS = """\
[crio.image]
signature_policy = "/etc/crio/policy.json"

[crio.runtime]
default_runtime = "runc"

[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/libexec/crio/conmon"
"""
CRIO_POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}\n'
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
        if kind == "containerd" and "ubuntu" in package.release:  # Docker's restarts it after an upgrade as well
            verb = "restart" if words[-1] == "docker" else "start"
            after.append(f"systemctl daemon-reload; systemctl enable containerd; systemctl {verb} containerd || :")
        if kind == "docker":
            after.append("getent group docker > /dev/null || groupadd --system docker")
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
    """Write a real containerd with the settings of whose package it is: Docker's has a runc, SUSE's no client."""
    version, whose = words
    folder = "/usr/sbin" if whose == "suse" else "/usr/bin"
    programs = [each for each in sorted(golang.containerd(version).iterdir()) if whose != "suse" or each.name != "ctr"]
    for program in programs:
        _copy(program, root / folder.lstrip("/"))
    if whose == "docker":
        _copy_runc(root / "usr/bin")
    _write(root / "usr/lib/systemd/system/containerd.service", CONTAINERD_UNIT.format(folder=folder))
    if whose in SETTINGS:
        _write(root / "etc/containerd/config.toml", SETTINGS[whose])


def _ctr(_: Package, __: System, root: Path, words: list[str]) -> None:
    """Write containerd's client by the name that SUSE's package gives it."""
    _copy(golang.containerd(words[0]) / "ctr", root / "usr/sbin")
    (root / "usr/sbin/ctr").rename(root / "usr/sbin/containerd-ctr")


def _crio(_: Package, __: System, root: Path, ___: list[str]) -> None:
    """Write a real CRI-O with runc, and a monitor that knows its version: it can be started, and start no container."""
    for program in sorted(golang.crio().iterdir()):
        _copy(program, root / "usr/bin")
    _copy_runc(root / "usr/libexec/crio")
    _write(root / "usr/libexec/crio/conmon", "#!/bin/sh\necho conmon version 2.2.1\n", 0o755)
    _write(root / "usr/lib/systemd/system/crio.service", CRIO_UNIT)
    _write(root / "etc/crio/crio.conf.d/10-crio.conf", CRIO_SETTINGS)
    _write(root / "etc/crio/policy.json", CRIO_POLICY)


def _docker(_: Package, __: System, root: Path, ___: list[str]) -> None:
    """Write Debian's Docker, which needs the libraries of C and systemd alone, with the units of Docker's package."""
    for name in ("dockerd", "docker-proxy"):
        _copy_of_debian("docker.io", f"usr/sbin/{name}", root / "usr/bin")
    _write(root / "usr/lib/systemd/system/docker.service", DOCKER_UNIT)
    _write(root / "usr/lib/systemd/system/docker.socket", DOCKER_SOCKET)


def _docker_cli(_: Package, __: System, root: Path, ___: list[str]) -> None:
    _copy_of_debian("docker-cli", "usr/bin/docker", root / "usr/bin")


def _copy_runc(folder: Path) -> None:
    """Copy Debian's, as these packages bring one that knows seccomp, which kubelets ask for."""
    _copy_of_debian("runc", "usr/sbin/runc", folder, BASE_SUITE)


def _copy_of_debian(package: str, program: str, folder: Path, suite: str = DOCKER_SUITE) -> None:
    with tempfile.TemporaryDirectory() as unpacked:
        deb = bundle.ensure(suite).find(package).path
        run(["dpkg-deb", "--extract", str(deb), unpacked], timeout_s=UNPACK_TIMEOUT_S)
        _copy(Path(unpacked, program), folder)


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
    "ctr": _ctr,
    "crio": _crio,
    "docker": _docker,
    "docker-cli": _docker_cli,
    "runc": _runc,
    "podman": _podman,
}
