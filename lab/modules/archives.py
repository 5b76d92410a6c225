"""Provides the archives of built modules: kept in the cache under a key of everything that goes into the build."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from lab import bundle, trees
from lab.machine.command import CONTAINED, run
from lab.machine.errors import PackageError
from lab.machine.folders import cache_dir, content_key, write_atomic
from lab.machine.lock import locked
from lab.modules import empty

BUILDER = Path(__file__).with_name("build.py")
FORMAT_VERSION = "1"  # of what build.py makes: a change of it builds everything again
BUILD_TIMEOUT_S = 3600.0  # minutes on a free machine, but at the lowest priority
PACKAGES = {"proprietary": "nvidia-kernel-dkms", "open": "nvidia-open-kernel-dkms"}
DKMS_NAMES = {"proprietary": "nvidia-current", "open": "nvidia-current-open"}
# With the headers, what decides how a module comes out.
TOOLS = ("dkms", "gcc", "make")


@dataclass(frozen=True)
class Archive:
    """A driver's modules for the kernel of one suite's builder nodes."""

    suite: str
    version: str
    flavour: str = "proprietary"

    @property
    def file_name(self) -> str:
        """The name under which Debian's packages look for it, in ``/usr/share/NAME-dkms``."""
        return f"{DKMS_NAMES[self.flavour]}-{self.version}.dkms.tar.gz"


# The open modules of Debian 13 do not compile for its kernels since 6.12.107, where a function has another argument; no
# package of Debian's knows that yet. The archive is built from corrected sources, so that there are modules of both
# flavours; a node that compiles the package itself fails, as its users' machines do.
CORRECTIONS = {
    "nvidia-open-kernel-dkms=550.163.01-2": {
        "header": "include/linux/pci.h",
        "if": "int exclude_bars);",
        "file": "nvidia/nv-pci.c",
        "old": "pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size)",
        "new": "pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size, 0)",
    }
}
# What `make test` builds: two and a half minutes of CPU each. Others are built on request, such as the open modules of
# 550.163.01 (Debian has none of 535.309.01) and a second driver of bookworm.
ARCHIVES = (
    Archive("trixie", "550.163.01"),
    Archive("trixie", "535.309.01"),
    Archive("bookworm", "535.309.01"),
)


def kernel_release(suite: str) -> str:
    """Return the kernel that builder nodes of ``suite`` say they run."""
    return bundle.ensure(suite).kernel_release


def archive(version: str, flavour: str, kernel: str) -> Path:
    """Return the archive of the modules of ``version`` for ``kernel``, building it unless the cache has it.

    ``PackageError`` if no suite's builder nodes run that kernel, or its folder has no such module package.
    """
    suite = next((name for name in trees.SUITES if kernel_release(name) == kernel), None)
    if suite is None:
        known = ", ".join(f"{kernel_release(name)} ({name})" for name in trees.SUITES)
        raise PackageError(f"no lab node runs kernel {kernel}", hint=f"kernels: {known}")
    return ensure(Archive(suite, version, flavour))


def ensure(wanted: Archive, *, niceness: int = 19) -> Path:
    """Return the file of ``wanted`` without code that nothing runs, building it unless the cache has it.

    It is built at the lowest priority, beside tests whose waits have limits, unless ``niceness`` is less.
    """
    folder = bundle.ensure(wanted.suite)
    package = module_package(folder, wanted)
    kernel = folder.kernel_release
    versions = [f"{name}={folder.find(name).version}" for name in (*TOOLS, f"linux-headers-{kernel}")]
    correction = CORRECTIONS.get(f"{package.name}={package.version}")
    key = content_key(FORMAT_VERSION, package.name, package.version, repr(correction), *versions)
    home = cache_dir() / "modules"
    built = home / f"{wanted.version}-{wanted.flavour}-{kernel}-{key}"
    emptied = built.with_name(f"{built.name}-{content_key(Path(empty.__file__).read_bytes())}")
    if not emptied.is_dir():
        with locked(home / "build.lock", wait_s=BUILD_TIMEOUT_S):
            if not built.is_dir():
                _build(wanted, package, folder, built, niceness)
            if not emptied.is_dir():
                _empty(built, emptied, wanted.file_name)
    return emptied / wanted.file_name


def module_package(folder: bundle.Bundle, wanted: Archive) -> bundle.Package:
    """Return the package with the sources of ``wanted``; ``PackageError`` if the folder has none."""
    name = PACKAGES[wanted.flavour]
    found = [p for p in folder.packages() if p.name == name and p.upstream_version == wanted.version]
    if len(found) != 1:
        there = ", ".join(p.version for p in folder.packages() if p.name == name) or "none"
        raise PackageError(f"{folder.folder}: no {name} of {wanted.version}", hint=f"versions: {there}")
    return found[0]


def _empty(built: Path, emptied: Path, file_name: str) -> None:
    partial = built.with_name(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    empty.empty(built / file_name, partial / file_name)
    partial.rename(emptied)


def _build(wanted: Archive, package: bundle.Package, folder: bundle.Bundle, built: Path, niceness: int) -> None:
    """Build in an overlay of a builder's tree, which is thrown away; only the archive is kept."""
    partial = built.with_name(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in ("upper", "work", "root", "out"):
        (partial / name).mkdir(parents=True)
    (partial / "upper").chmod(0o755)
    lower = (bundle.ensure_layer(wanted.suite, bundle.BUILDER_PACKAGES), trees.ensure(wanted.suite))
    config = {
        "lower": list(map(str, lower)),
        "folder": str(partial),
        "package": str(package.path),
        "correction": CORRECTIONS.get(f"{package.name}={package.version}"),
        "module": f"{DKMS_NAMES[wanted.flavour]}/{wanted.version}",
        "kernel": folder.kernel_release,
        "file": wanted.file_name,
    }
    path = partial / "build.json"
    write_atomic(path, json.dumps(config))
    builder = ["nice", "-n", str(niceness), *CONTAINED, sys.executable, "-I", str(BUILDER), str(path)]
    run(builder, timeout_s=BUILD_TIMEOUT_S)
    (partial / "out").rename(built)
    shutil.rmtree(partial)
