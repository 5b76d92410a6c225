"""Finds the sources of the parts for nodes, and chooses which of their files travel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from provision.planning.supply.payload.archive import Entry
from provision.planning.supply.payload.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAUNCHER = "launcher.py"
_HOOK_UNITS = ("grapnel-inventory.path", "grapnel-inventory.service")
_NODE_UNITS = ("grapnel-drift.service", "grapnel-drift.timer")
_RUNTIME_LAUNCHER = "wrapper_launcher.sh"
# The driver's program is the collection's own code, at its own import path: modules and program run the same.
_MODULE_UTILS = "ansible_collections/grapnel/node/plugins/module_utils"
_DRIVER_LAUNCHER = f"driver/{_LAUNCHER}"
# Of the libraries: what only type checkers, test runners and package managers read.
_UNUSED_FOLDERS = {"__pycache__", "tests", "bin"}
_UNUSED_SUFFIXES = {".pyi", ".pyc"}
_UNUSED_FILES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json", ".lock"}
_UNUSED_AT_THE_TOP = {"example.py", ".gitignore"}
# PyYAML's C parser is half of what would travel. The daemon limits what it reads in the one in Python; PyYAML itself
# goes without the other.
_UNUSED_PARSER = ("_yaml/*", "yaml/_yaml.*.so", "yaml/cyaml.py")


@dataclass(frozen=True)
class Sources:
    """A checkout, or an installed grapnel with the same files in it."""

    hook: Path
    plugin: Path
    requirements: Path
    unit: Path
    hook_units: tuple[Path, ...] = ()
    module_utils: Path = Path()
    node_units: tuple[Path, ...] = ()

    def hook_entries(self) -> list[Entry]:
        """Return the files of the hook's archive."""
        return [
            *_package(self.hook, "runtime_hook"),
            Entry("grapnel-hook", _existing(self.hook / _LAUNCHER), executable=True),
            Entry("grapnel-runtime", _existing(self.hook / _RUNTIME_LAUNCHER), executable=True),
            *(Entry(f"systemd/{unit.name}", unit) for unit in self.hook_units),
        ]

    def driver_entries(self) -> list[Entry]:
        """Return the files of the archive of the driver's program."""
        return [
            *(one for one in _package(self.module_utils, _MODULE_UTILS) if not one.name.endswith(_DRIVER_LAUNCHER)),
            Entry("grapnel-driver", _existing(self.module_utils / _DRIVER_LAUNCHER), executable=True),
        ]

    def node_entries(self, site: Path) -> list[Entry]:
        """Return the files of the daemon's archive, with its libraries."""
        return [
            *_package(self.plugin, "plugin"),
            *_libraries(site),
            Entry("grapnel-node", _existing(self.plugin / _LAUNCHER), executable=True),
        ]


def find_sources(root: Path) -> Sources:
    """Return the sources below the folder that holds grapnel's packages; raises `PayloadError` naming what is missing.

    A checkout has requirements and units in their own folders, an installed grapnel inside its package.
    """
    installed, units = root / "provision" / "_payload", root / "deploy" / "systemd"
    return Sources(
        hook=_existing(root / "runtime_hook"),
        plugin=_existing(root / "plugin"),
        requirements=_existing(root / "requirements" / "node.txt", installed / "node.txt"),
        unit=_existing(units / "grapnel-node.service", installed / "grapnel-node.service"),
        hook_units=tuple(_existing(units / name, installed / name) for name in _HOOK_UNITS),
        node_units=tuple(_existing(units / name, installed / name) for name in _NODE_UNITS),
        module_utils=_existing(
            root / "playbooks" / "plugins" / "module_utils", root / "provision" / "_collection" / _MODULE_UTILS
        ),
    )


def _existing(*candidates: Path) -> Path:
    for path in candidates:
        if path.exists():
            return path
    raise PayloadError(
        f"{candidates[0]} does not exist",
        hint="build the payload from a complete checkout, or from an installed grapnel",
    )


def _package(folder: Path, name: str) -> Iterator[Entry]:
    """Return a package's modules; its launcher travels as an executable beside it."""
    for path in folder.rglob("*.py"):
        relative = path.relative_to(folder)
        if "__pycache__" not in relative.parts and str(relative) != _LAUNCHER:
            yield Entry(f"{name}/{relative.as_posix()}", path)


def _libraries(site: Path) -> Iterator[Entry]:
    for path in site.rglob("*"):
        relative = path.relative_to(site)
        if path.is_file() and not _is_unused(relative):
            if relative.suffix == ".so":
                raise PayloadError(
                    f"{relative} is compiled for one Python and one architecture, and the daemon's archive is for all",
                    hint="take a version of the library that has no such file in requirements/node.txt",
                )
            yield Entry(f"site/{relative.as_posix()}", path)


def _is_unused(relative: Path) -> bool:
    return (
        bool(_UNUSED_FOLDERS.intersection(relative.parts[:-1]))
        or relative.suffix in _UNUSED_SUFFIXES
        or relative.name in _UNUSED_FILES
        or str(relative) in _UNUSED_AT_THE_TOP
        or any(relative.match(pattern) for pattern in _UNUSED_PARSER)
    )
