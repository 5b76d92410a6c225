"""Describes the packages that are made of a runfile: what they are called, need, exclude, and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.planning.architecture import ARCHITECTURES
from provision.planning.driver.packages.distributions.runfile import (
    MODULES,
    PERSISTENCED,
    PERSISTENCED_UNIT,
    SOURCE,
    USER_SPACE,
    depends_of,
    dkms_name,
    package_version,
)
from provision.planning.supply.runfile.deb import DebPackage, PackedFile
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.layout import source_tree

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from provision.planning.driver.terms import Flavour
    from provision.planning.supply.runfile.layout import Layout, Placed
    from provision.planning.supply.runfile.manifest import Manifest

# What brings the same files, on Debian, on Ubuntu (virtual packages that those of every branch provide) and in NVIDIA's
# repositories. All of a driver's packages need one another, so that these are enough.
_RIVALS: Final = (
    "libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvidia-allocator1", "libnvidia-cfg1", "libnvidia-compute",
    "libnvidia-decode", "libnvidia-encode", "libnvidia-encode1", "libnvidia-fbc1", "libnvidia-ml1", "libnvidia-nvvm4",
    "libnvidia-opticalflow1", "libnvidia-ptxjitcompiler1", "nvidia-alternative", "nvidia-compute-utils",
    "nvidia-cuda-mps", "nvidia-driver-cuda", "nvidia-modprobe", "nvidia-opencl-icd", "nvidia-smi", "nvidia-utils",
)  # fmt: skip
_MODULE_RIVALS: Final = (
    "nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "nvidia-kernel-source", "nvidia-kernel-support",
    "nvidia-dkms-kernel", "nvidia-open-kernel-dkms", "nvidia-open-kernel-support",
)  # fmt: skip
# For programs that depend on what a distribution calls these, each with the library or program that it stands for.
_STANDS_FOR: Final = {
    "libcuda1": "libcuda.so.1",
    "libcuda.so.1": "libcuda.so.1",
    "libnvidia-ml1": "libnvidia-ml.so.1",
    "libnvidia-ml.so.1": "libnvidia-ml.so.1",
    "libnvcuvid1": "libnvcuvid.so.1",
    "libnvidia-encode1": "libnvidia-encode.so.1",
    "nvidia-smi": "nvidia-smi",
}
_UNIT: Final = """\
[Unit]
Description=Keeps the GPUs initialised while nobody uses them

[Service]
Type=forking
PIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced
ExecStopPost=/bin/rm -rf /run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""
_USER: Final = 'u nvidia-persistenced - "NVIDIA persistence daemon" / /usr/sbin/nologin\n'
_NO_NOUVEAU: Final = "blacklist nouveau\noptions nouveau modeset=0\n"
_RELOAD: Final = "[ ! -d /run/systemd/system ] || systemctl daemon-reload\n"


def describe_packages(manifest: Manifest, layout: Layout, sha256: str, folder: Path) -> tuple[DebPackage, ...]:
    """Return the packages of an unpacked runfile; raises `RunfileError` for one that lacks what it lists."""
    packages = [_user_space(manifest, layout, sha256, folder)]
    if layout.persistenced:
        packages.append(_persistenced(manifest, layout, sha256, folder))
    packages += [_module(manifest, layout, flavour, sha256, folder) for flavour in layout.modules]
    return tuple(packages)


def _user_space(manifest: Manifest, layout: Layout, sha256: str, folder: Path) -> DebPackage:
    names = {one.path.rpartition("/")[2] for one in layout.user_space}
    provides = [f"{name} (= {manifest.version})" for name, file in _STANDS_FOR.items() if file in names]
    fields = _fields(
        USER_SPACE, manifest, sha256, _RIVALS, "libraries and programs for machines without a screen", provides=provides
    )
    return DebPackage(fields, _packed(layout.user_space, folder), {"triggers": "activate-noawait ldconfig\n"})


def _persistenced(manifest: Manifest, layout: Layout, sha256: str, folder: Path) -> DebPackage:
    files = (
        *_packed(layout.persistenced, folder),
        PackedFile(f"usr/lib/systemd/system/{PERSISTENCED_UNIT}", content=_UNIT.encode()),
        PackedFile("usr/lib/sysusers.d/nvidia-runfile.conf", content=_USER.encode()),
    )
    rivals = ("nvidia-persistenced", "nvidia-compute-utils")
    fields = _fields(PERSISTENCED, manifest, sha256, rivals, "the persistence daemon")
    stop = f"[ ! -d /run/systemd/system ] || systemctl disable --now {PERSISTENCED_UNIT} || :\n"
    scripts = {
        "postinst": _script("configure", f"systemd-sysusers nvidia-runfile.conf\n{_RELOAD}"),
        "prerm": _script("remove", stop),
        "postrm": _script("remove", f"userdel nvidia-persistenced 2>/dev/null || :\n{_RELOAD}"),
    }
    return DebPackage(fields, files, scripts)


def _module(manifest: Manifest, layout: Layout, flavour: Flavour, sha256: str, folder: Path) -> DebPackage:
    tree, name = source_tree(manifest, flavour, sha256), dkms_name(flavour, sha256)
    files = (
        *_packed(layout.modules[flavour], folder),
        PackedFile(f"{tree}/dkms.conf", content=_dkms_configuration(name, manifest).encode()),
        PackedFile("usr/lib/modprobe.d/nvidia-runfile.conf", content=_NO_NOUVEAU.encode()),
    )
    others = [other for key, other in MODULES.items() if key is not flavour]
    words = f"the {flavour.value} kernel modules, built by DKMS"
    fields = _fields(MODULES[flavour], manifest, sha256, (*_MODULE_RIVALS, *others), words)
    common = f'/usr/lib/dkms/common.postinst {name} {manifest.version} /usr/share/{name} "" "$2"\n'
    scripts = {
        "postinst": _script("configure", common),
        # The tree of another file has another name in DKMS, so that of this one goes in an upgrade, too.
        "prerm": f"#!/bin/sh\nset -e\ndkms remove -m {name} -v {manifest.version} --all || :\n",
    }
    return DebPackage(fields, files, scripts)


def _script(action: str, lines: str) -> str:
    """Return a package's script that does something for one action alone (deb-postinst(5))."""
    return f'#!/bin/sh\nset -e\n[ "$1" = {action} ] || exit 0\n{lines}'


def _fields(
    name: str, manifest: Manifest, sha256: str, rivals: Iterable[str], words: str, *, provides: Iterable[str] = ()
) -> dict[str, str]:
    version = package_version(manifest.version, sha256)
    fields = {"Package": name}
    if name != SOURCE:
        fields["Source"] = SOURCE
    fields |= {
        "Version": version,
        "Architecture": ARCHITECTURES[manifest.architecture].debian,
        "Maintainer": "grapnel <grapnel@localhost>",
    }
    fields["Section"] = "non-free/kernel"
    fields["Depends"] = ", ".join(depends_of(name, version))
    if provided := ", ".join(provides):
        fields["Provides"] = provided
    fields["Conflicts"] = fields["Replaces"] = ", ".join(sorted(rivals))
    fields["Description"] = (
        f"NVIDIA driver {manifest.version}: {words}\n"
        f" made by grapnel of NVIDIA's installer file with the SHA-256 digest\n {sha256}"
    )
    return fields


def _dkms_configuration(name: str, manifest: Manifest) -> str:
    """Return dkms.conf(5 of dkms(8)); the targets are those of NVIDIA's own Makefile."""
    lines = [
        f'PACKAGE_NAME="{name}"',
        f'PACKAGE_VERSION="{manifest.version}"',
        'AUTOINSTALL="yes"',
        "MAKE[0]=\"'make' -j${parallel_jobs:-1} KERNEL_UNAME=${kernelver} modules\"",
        "CLEAN=\"'make' KERNEL_UNAME=${kernelver} clean\"",
    ]
    for index, module in enumerate(manifest.modules):
        lines += [f'BUILT_MODULE_NAME[{index}]="{module}"', f'DEST_MODULE_LOCATION[{index}]="/updates/dkms"']
    return "\n".join(lines) + "\n"


def _packed(files: Iterable[Placed], folder: Path) -> tuple[PackedFile, ...]:
    """Return files as they are packed, each once; raises `RunfileError` for one that the archive does not have."""
    return tuple({one.path: _pack(one, folder) for one in files}.values())


def _pack(one: Placed, folder: Path) -> PackedFile:
    if one.target:
        return PackedFile(one.path, target=one.target)
    source = folder / one.source
    if not source.is_file():
        raise RunfileError(
            f"the runfile lists {one.source} (line {one.line} of its manifest) and does not have it",
            hint="take the file from its maker again",
        )
    return PackedFile(one.path, one.mode, source=source)
