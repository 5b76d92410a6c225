"""Builds, and archives as dkms and as somebody hostile would write them."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from typing import TYPE_CHECKING

from provision.planning.supply.builds.model import ModuleBuild

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KERNEL, OTHER_KERNEL = "6.12.117+deb13-amd64", "6.13.0-amd64"
TREE = f"./dkms_main_tree/{KERNEL}/x86_64"
MODULE = f"{TREE}/module/nvidia-current.ko.xz"
CONTENT = lzma.compress(b"module")
# As dkms 3.2.2 writes it: mktarball --binaries-only.
MEMBERS: Mapping[str, bytes] = {
    "./dkms_binaries_only/dkms.conf": b'PACKAGE_NAME="nvidia-current"\n$(touch /root/was-here)\n',
    "./dkms_binaries_only/PACKAGE_NAME": b"nvidia-current\n",
    "./dkms_binaries_only/PACKAGE_VERSION": b"550.163.01\n",
    f"{TREE}/log/make.log": b"make: done\n",
    f"{TREE}/log/.config": b"CONFIG_X86=y\n",  # where the headers have one: of 3.0.10, too
    f"{TREE}/module/Module.symvers": b"0x1\tnvidia\n",
    MODULE: CONTENT,
    f"{TREE}/module/nvidia-current-uvm.ko.xz": lzma.compress(b"uvm"),
}


def build_of(kernel: str = KERNEL, **values: str) -> ModuleBuild:
    known = {
        "distribution": "debian-13",
        "architecture": "x86_64",
        "dkms": "nvidia-current",
        "version": "550.163.01",
        "flavour": "proprietary",
    }
    return ModuleBuild(kernel=kernel, **{**known, **values})


def write_archive(
    path: Path, members: Mapping[str, bytes] = MEMBERS, *more: tarfile.TarInfo, format_: int = tarfile.GNU_FORMAT
) -> Path:
    """Write files, then further headers as they are."""
    with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w", format=format_) as tar:
        for folder in (".", "./dkms_main_tree"):
            header = tarfile.TarInfo(folder)
            header.type = tarfile.DIRTYPE
            tar.addfile(header)
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
        for header in more:
            tar.addfile(header)
    return path


def member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, link
    return header


def read_archive(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {one.name: stream.read() for one in tar if (stream := tar.extractfile(one)) is not None}
