"""What is brought to the emulated machine, in one folder: programs as they are released, libraries, a package source.

All of it is compiled here where this Python is of the machine's version: there, each start would take ten seconds more.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ansible
import pytest

from lab.machine.folders import cache_dir
from lab.nodes.emulated.image import MACHINES_PYTHON, compile_here
from lab.nvml import install
from provision.planning.architecture import AARCH64
from provision.planning.supply.payload.archive import write_archive
from provision.planning.supply.payload.build import PYTHON
from provision.planning.supply.payload.libraries import CachedLibraries
from provision.planning.supply.payload.sources import find_sources

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

ROOT: Final = Path(__file__).parents[2]
COMPILER: Final = "aarch64-linux-gnu-gcc"
_SOURCES: Final = find_sources(ROOT)
_SITE: Final = Path(pytest.__file__).parents[1]
_ANSIBLE: Final = ("__init__.py", "release.py", "_vendor", "module_utils")
# What pytest is made of: none of it is compiled. It paints with two of Pygments' many languages.
_PYTEST: Final = ("_pytest", "pytest", "py.py", "pluggy", "iniconfig", "packaging", "pygments")
_PAINTED: Final = re.compile(r"(lexers/(__init__|_mapping|diff|python|_.*)|styles/(__init__|_mapping|default))\.py")
_KUBELET: Final = ("lab/__init__.py", "lab/kubelet", "lab/podresources")
_GRPC: Final = ("grpcio", "protobuf", "typing-extensions")  # as they are pinned for tests
_PACKAGE: Final = "libnvidia-ml1"
_CONTROL: Final = """\
Package: {package}
Version: {version}
Architecture: arm64
Maintainer: lab <lab@grapnel.invalid>
Depends: libc6
Description: a part of a driver
"""


def bring(folder: Path, machine: Machine, drivers: tuple[str, ...]) -> Path:
    """Return a folder with all that is run; the package source in it has NVML of these drivers for that machine.

    ``driver`` and ``node`` are what archives unpack to, ``ansible`` is for the modules, ``hook`` for the hook's tests,
    ``kubelet`` the stand-in with its gRPC.
    """
    brought = folder / "brought"
    site = CachedLibraries(_SOURCES.requirements, cache_dir() / "libraries", os.environ).site(PYTHON)
    for part, entries in (("driver", _SOURCES.driver_entries()), ("node", _SOURCES.node_entries(site))):
        path, _ = write_archive(folder, part, entries)
        (brought / part).mkdir(parents=True)
        subprocess.run(["tar", "-xf", str(path), "-C", str(brought / part)], check=True)
    core = Path(ansible.__file__).parent
    for place, source in {
        **{f"ansible/ansible/{name}": core / name for name in _ANSIBLE},
        "ansible/ansible_collections/grapnel/node/plugins": ROOT / "playbooks/plugins",
        **{f"hook/{name}": _SITE / name for name in _PYTEST},
        "hook/runtime_hook": ROOT / "runtime_hook",
        **{f"hook/tests/{name}": ROOT / "tests" / name for name in ("runtime_hook", "waiting.py")},
        **{f"kubelet/{name}": ROOT / name for name in _KUBELET},
        "kubelet/site": _grpc(folder),
    }.items():
        _copy(source, brought / place)
    compile_here(brought)
    _write_packages(brought / "packages", folder, machine, drivers)
    return brought


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_unwanted)
    else:
        shutil.copy(source, target)


def _unwanted(folder: str, names: list[str]) -> set[str]:
    place = Path(folder)
    is_language = place.parent.name == "pygments" and place.name in {"lexers", "styles"}
    others = {name for name in names if is_language and not _PAINTED.fullmatch(f"{place.name}/{name}")}
    return {"__pycache__", *others}


def _grpc(folder: Path) -> Path:
    """Return gRPC for the machine, in the version and with the hashes that tests have here."""
    pinned = re.split(r"\n(?=\S)", (ROOT / "requirements/dev.txt").read_text())
    requirements = folder / "grpc.txt"
    requirements.write_text("\n".join(each for each in pinned if each.partition("==")[0] in _GRPC))
    libraries = CachedLibraries(requirements, cache_dir() / "libraries", os.environ, AARCH64.name)
    return libraries.site(".".join(map(str, MACHINES_PYTHON)))


def _write_packages(source: Path, folder: Path, machine: Machine, drivers: tuple[str, ...]) -> None:
    """Make a package source with NVML in two versions; apt is told not to ask for a signature."""
    source.mkdir()
    for version in drivers:
        made = folder / f"{_PACKAGE}-{version}"
        install(made / "usr/lib/aarch64-linux-gnu", version, machine, compiler=COMPILER)
        control = _CONTROL.format(package=_PACKAGE, version=version)
        (made / "DEBIAN").mkdir()
        (made / "DEBIAN/control").write_text(control)
        package = source / f"{_PACKAGE}_{version}_arm64.deb"
        build = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(made), str(package)]
        subprocess.run(build, check=True, capture_output=True)
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        with (source / "Packages").open("a") as index:
            size = package.stat().st_size
            index.write(f"{control}Filename: ./{package.name}\nSize: {size}\nSHA256: {digest}\n\n")
