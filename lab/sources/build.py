"""Provides a system's package sources, built once: signed repositories, and the layer that its nodes start from."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from lab import bundle, golang, kmod, trees
from lab.bundle.contents import DNF_PACKAGES, ZYPPER_PACKAGES
from lab.bundle.repository import PUBLIC_KEY, publish
from lab.machine.command import CONTAINED, run
from lab.machine.folders import cache_dir, content_key, write_atomic
from lab.machine.lock import locked
from lab.sources import deb, rpm
from lab.sources.content import DOCKER_SUITE, write_content
from lab.sources.systems import BASE_SUITE, CRIOS, DOCKERS, System, find_system
from lab.sources.tables import (
    Package,
    base_packages,
    crio_packages,
    docker_packages,
    driver_packages,
    first_packages,
    own_packages,
)

HERE = Path(__file__).parent
BUILD_TIMEOUT_S = 900.0
# Every machine with dracut has cpio, and these systems have dracut.
LAYERS = {"dnf": (*DNF_PACKAGES, "cpio"), "zypper": (*ZYPPER_PACKAGES, "cpio")}
# What goes into the packages besides the tables; a change of any of them makes other packages.
INPUTS = ("inside.py", "rpm.py", "deb.py", "content.py", "nvidia_smi.py", "tables.py", "systems.py", "build.py")


@dataclass(frozen=True)
class Sources:
    """The package sources of ``system``: ``repositories`` for ``/srv/bundle``, ``layers`` for above the tree."""

    system: System
    folder: Path
    layers: tuple[Path, ...]

    @property
    def repositories(self) -> Path:
        """The folder with the repositories and their public key."""
        return self.folder / "repositories"

    @property
    def public_key(self) -> Path:
        """The key that signs everything in it."""
        return self.repositories / PUBLIC_KEY


def ensure(name: str, installed: tuple[str, ...] = ()) -> Sources:
    """Return the package sources of the system ``name``, building them unless the cache has them.

    ``installed`` are packages of ``BASE_SUITE`` that its nodes have from the start: for rpm they are of no package.
    """
    system = find_system(name)
    tree, packages = trees.ensure(BASE_SUITE), bundle.ensure(BASE_SUITE)
    texts = [(HERE / file).read_bytes() for file in (*INPUTS, f"tables/{system.table}.toml")]
    programs = [golang.containerd(version).name for version in (*system.engines, system.own_engine) if version]
    programs += [golang.crio().name] if system.crio else []
    programs += [bundle.ensure(DOCKER_SUITE).folder.name] if system.docker else []
    key = content_key(repr(system), tree.name, packages.folder.name, kmod.source_key(), *programs, *texts)
    folder = cache_dir() / "sources" / f"{name}-{key}"
    if not folder.is_dir():
        with locked(folder.parent / f"{name}.lock", wait_s=BUILD_TIMEOUT_S):
            if not folder.is_dir():
                _build(system, folder)
    below = (*LAYERS.get(system.manager, ()), *installed)
    layers = (bundle.ensure_layer(BASE_SUITE, below),) if below else ()
    return Sources(system, folder, layers if system.manager == "apt" else (folder / "system", *layers))


def _build(system: System, folder: Path) -> None:
    partial = folder.with_name(f".{system.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "stage").mkdir(parents=True)
    if system.manager == "apt":
        _build_debs(system, partial)
    else:
        _build_rpms(system, partial)
    for name in ("stage", "build", "build.work", "system.work", "root"):
        shutil.rmtree(partial / name, ignore_errors=True)
    partial.rename(folder)


def _build_debs(system: System, partial: Path) -> None:
    """Put the system's driver packages beside Debian's other packages, into one flat source."""
    repositories = partial / "repositories"
    repositories.mkdir()
    for package in bundle.ensure(BASE_SUITE).packages():
        if "nvidia" not in package.path.name and not package.name.startswith("libcuda"):
            os.link(package.path, repositories / package.path.name)
    of_crio, of_docker = repositories / CRIOS / "deb", repositories / DOCKERS / "dists" / system.repository
    of_crio.mkdir(parents=True)
    of_docker.mkdir(parents=True)
    folders = [(repositories, each) for each in (*driver_packages(system), *own_packages(system))]
    folders += [(of_crio, each) for each in crio_packages(system)]
    folders += [(of_docker, each) for each in docker_packages(system)]
    for index, (folder, built) in enumerate(folders):
        staged = partial / "stage" / str(index)
        staged.mkdir()
        write_content(built, system, staged)
        deb.build(built, staged, folder)
    for folder, component in ((repositories, ""), (of_crio, ""), (of_docker, "stable")):
        publish(folder, system.repository, cache_dir() / "bundle" / "key", component)


def _build_rpms(system: System, partial: Path) -> None:
    stage = partial / "stage"
    (stage / "out").mkdir()
    repositories = {"base": base_packages(system), system.repository: driver_packages(system)}
    if system.engines:
        repositories[DOCKERS] = docker_packages(system)
    if system.crio:
        repositories[f"{CRIOS}/rpm"] = crio_packages(system)
    for name, packages in repositories.items():
        (stage / "out" / name).mkdir(parents=True)
        _write_specs(name, packages, system, stage)
    if system.is_modular:
        modules = rpm.render_modules(repositories[system.repository], system)
        (stage / "specs" / f"{system.repository}.modules.yaml").write_text(modules)
    config = {
        "folder": str(partial),
        "lower": [str(bundle.ensure_layer(BASE_SUITE, LAYERS[system.manager])), str(trees.ensure(BASE_SUITE))],
        "repositories": list(repositories),
        "first": first_packages(system),
    }
    path = partial / "stage" / "build.json"
    write_atomic(path, json.dumps(config))
    run([*CONTAINED, sys.executable, "-I", str(HERE / "inside.py"), str(path)], timeout_s=BUILD_TIMEOUT_S)
    (stage / "out").rename(partial / "repositories")


def _write_specs(repository: str, packages: list[Package], system: System, stage: Path) -> None:
    """Write the files of all packages, and the spec files that pack them; ``/work`` is the stage inside the build."""
    (stage / "specs" / repository).mkdir(parents=True)
    for index, group in enumerate(rpm.sort_by_source(packages)):
        staged = {}
        for package in group:
            place = stage / "files" / repository / str(index) / package.name
            place.mkdir(parents=True)
            write_content(package, system, place)
            staged[package.name] = place
        spec = rpm.render_spec(group, staged).replace(str(stage), "/work")
        (stage / "specs" / repository / f"{index}.spec").write_text(spec)
