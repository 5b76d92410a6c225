"""Renders what rpmbuild and createrepo read: spec files, and the list of module streams (modules.yaml)."""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import TYPE_CHECKING

from lab.sources.content import scripts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lab.sources.systems import System
    from lab.sources.tables import Package

MODULE = "nvidia-driver"
OPEN, PROPRIETARY = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"
STREAM_VERSION = "20251101000000"
HEADER = """\
%global debug_package %{{nil}}
%define _build_id_links none
%define __os_install_post %{{nil}}
%define __brp_ldconfig %{{nil}}
%define _binary_payload w1.zstdio
Name: {source}
Version: {version}
Release: {release}
Summary: {source}
License: NVIDIA
"""


def sort_by_source(packages: Sequence[Package]) -> list[list[Package]]:
    """Return the packages in groups that one spec file builds: those of one source and one version."""

    def source(package: Package) -> tuple[str, str, str]:
        return package.source, package.version, package.upstream

    return [list(group) for _, group in groupby(sorted(packages, key=source), key=source)]


def render_spec(packages: Sequence[Package], staged: Mapping[str, Path]) -> str:
    """Return the spec file of packages with one source; ``staged`` has each one's files, as the build sees them."""
    first = packages[0]
    values = {"source": first.source, "version": first.version, "release": first.release}
    lines = [HEADER.format(**values).rstrip("\n")]
    if first.epoch:
        lines.append(f"Epoch: {first.epoch}")
    if all(package.name != first.source for package in packages):
        lines.append(f"%description\nStand-in for {first.source}.")
    for package in sorted(packages, key=lambda package: package.name != first.source):
        lines += _preamble(package)
    lines.append("%install")
    lines += [f"cp -a {staged[package.name]}/. %{{buildroot}}/" for package in packages]
    for package in packages:
        for name, text in scripts(package).items():
            lines += [f"%{name}{_of(package)}", *_guarded(name, text)]
        lines += [f"%files{_of(package)}", *_files(staged[package.name])]
    return "\n".join(lines) + "\n"


def _of(package: Package) -> str:
    """Return how a section of a spec file names a package: the one that is called like its source is the main one."""
    return "" if package.name == package.source else f" -n {package.name}"


def _preamble(package: Package) -> list[str]:
    lines = [] if package.name == package.source else [f"%package -n {package.name}", f"Summary: {package.name}"]
    lines.append("AutoReqProv: no")
    if package.arch == "noarch":
        lines.append("BuildArch: noarch")
    for tag in ("requires", "provides", "conflicts", "obsoletes"):
        lines += [f"{tag.capitalize()}: {text}" for text in getattr(package, tag)]
    return [*lines, f"%description{_of(package)}", f"Stand-in for {package.name}.", ""]


def _guarded(name: str, text: str) -> list[str]:
    """Return a script; what runs before the removal does so in an upgrade too, as in NVIDIA's packages."""
    return [text, "exit 0"] if name == "post" else [text, ":"]


def _files(root: Path) -> list[str]:
    """Return the files of a package; those of an administrator stay when it is upgraded."""
    paths = (f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(f"%config(noreplace) {path}" if path.startswith("/etc/") else path for path in paths)


def render_modules(packages: Sequence[Package], system: System) -> str:
    """Return the module streams: branches, and the newest under the names that always mean it.

    Streams, profiles and the default stream are those that genmodules.py in NVIDIA's cuda-repo-management writes.
    """
    newest = max((package.upstream for package in packages), key=_numbers)
    branches = sorted({package.upstream.partition(".")[0] for package in packages}, key=int)
    streams = [("latest-dkms", newest, PROPRIETARY), ("open-dkms", newest, OPEN)]
    for branch in branches:
        streams += [(f"{branch}-dkms", branch, PROPRIETARY), (f"{branch}-open", branch, OPEN)]
    documents = [_stream(name, prefix, module, packages, system) for name, prefix, module in streams]
    return "".join([*documents, _defaults([name for name, _, _ in streams])])


def _stream(name: str, prefix: str, module: str, packages: Sequence[Package], system: System) -> str:
    left_out = {OPEN, PROPRIETARY, "nvidia-open", "cuda-drivers"} - {module}
    left_out -= {"nvidia-open"} if module == OPEN else {"cuda-drivers"}
    chosen = [
        package
        for package in packages
        if f"{package.upstream}.".startswith(f"{prefix}.") and package.name not in left_out
    ]
    installed = ("nvidia-driver", "nvidia-driver-libs", "nvidia-driver-cuda", "nvidia-driver-cuda-libs", module)
    context = hashlib.sha256(f"{name} {system.dist}".encode()).hexdigest()[:10]
    lines = [
        "---", "document: modulemd", "version: 2", "data:", f"  name: {MODULE}", f'  stream: "{name}"',
        f"  version: {STREAM_VERSION}", f"  context: {context}", "  arch: x86_64",
        f"  summary: Driver of the {name} branch", "  description: Stand-in", "  license:", "    module: [MIT]",
        "  profiles:", "    default:", f"      rpms: [{', '.join(installed)}]", "    ks:",
        f"      rpms: [{', '.join(installed)}]", "    fm:",
        f"      rpms: [{', '.join((*installed, 'nvidia-fabricmanager', 'libnvidia-nscq'))}]",
        "  artifacts:", "    rpms:", *(f"    - {package.nevra}" for package in chosen), "...",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _defaults(names: Sequence[str]) -> str:
    lines = ["---", "document: modulemd-defaults", "version: 1", "data:", f"  module: {MODULE}"]
    lines += ["  stream: latest-dkms", "  profiles:", *(f'    "{name}": [default]' for name in names), "..."]
    return "\n".join(lines) + "\n"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
