"""Checks rules across the keys of the section `driver`, as far as the declaration alone shows them.

Which packages a distribution has, and what a node's GPUs can run, is decided when the node is planned for.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from provision.spec.model import Compile, DriverSource, KernelModule
from provision.spec.remark import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.spec.model import Driver
    from provision.spec.remark import Remark

_FLAVOURS: Final = frozenset({KernelModule.OPEN, KernelModule.PROPRIETARY})
_MIRRORED: Final = frozenset({DriverSource.NVIDIA, DriverSource.CANONICAL, DriverSource.BUNDLE})


def judge_driver(driver: Driver) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    if not driver.enabled:
        return _disabled(driver)
    return chain(_source(driver), _version(driver), _repository(driver), _module(driver))


def _disabled(driver: Driver) -> Iterator[Remark]:
    if driver.kernel_module in _FLAVOURS:
        hint = "grapnel leaves the whole driver alone; set driver.enabled: true, or leave the key out"
        yield warning(("driver", "kernelModule"), "has no effect while the driver is disabled", hint)


def _source(driver: Driver) -> Iterator[Remark]:
    if driver.source is DriverSource.RUNFILE:
        message = "runfile is not supported yet: its files belong to no package, so nothing could hold or replace them"
        hint = "write another source; or source: none, and install the driver by other means"
        yield error(("driver", "source"), message, hint)
    if driver.source is DriverSource.NONE and driver.kernel_module in _FLAVOURS:
        message = f"no {driver.kernel_module.value} module is installed with source: none"
        yield error(("driver", "kernelModule"), message, "leave the key out, or write another source")
    if driver.source is DriverSource.NONE and driver.companions:
        yield warning(("driver", "companions"), "has no effect with source: none", "grapnel installs no packages then")


def _version(driver: Driver) -> Iterator[Remark]:
    """With source `none` a version is what the node is verified against; there is nothing to choose from a branch."""
    if driver.version is not None and driver.branch is not None:
        hint = "keep one: version is exact, branch follows the newest version"
        yield error(("driver", "branch"), f"cannot stand beside version ({driver.version})", hint)
    elif driver.source is DriverSource.NONE:
        if driver.branch is not None:
            hint = "grapnel installs no packages then; version is what a node is verified against"
            yield warning(("driver", "branch"), "has no effect with source: none", hint)
    elif driver.version is None and driver.branch is None:
        hint = 'write one, for example version: "550.163.01"; or branch: "550"; or driver.enabled: false'
        yield error(("driver", "version"), "is required while the driver is enabled, unless a branch is declared", hint)


def _repository(driver: Driver) -> Iterator[Remark]:
    repository, path = driver.repository, ("driver", "repository")
    if repository is None:
        if driver.source is DriverSource.BUNDLE:
            yield error(path, "is required with source: bundle", "name the bundle: its folder here, or its url")
    elif driver.source not in _MIRRORED:
        hint = "packages come from what the node itself has configured; write source: nvidia, canonical or bundle"
        hint = hint if driver.source is DriverSource.DISTRIBUTION else "leave the key out"
        yield warning(path, f"has no effect with source: {driver.source.value}", hint)
    elif (repository.url is None) == (repository.folder is None):
        has_both = repository.url is not None
        yield error(path, "has both url and folder" if has_both else "has neither url nor folder", "write one of them")
    elif repository.folder is not None and driver.source is not DriverSource.BUNDLE:
        hint = "write source: bundle; or url: file:///FOLDER, for a folder on the node itself"
        yield error((*path, "folder"), f"is for source: bundle, not {driver.source.value}", hint)


def _module(driver: Driver) -> Iterator[Remark]:
    """Keys about a kernel module that grapnel does not install."""
    if driver.kernel_module is KernelModule.NONE:
        reason = "kernelModule: none"
    elif driver.source is DriverSource.NONE:
        reason = "source: none"
    else:
        return
    declared = {
        "moduleParameters": bool(driver.module_parameters),
        "signing": driver.signing is not None,
        "compile": driver.compile is not Compile.STAGE,
        "builder": driver.builder is not None,
    }
    for key, is_declared in declared.items():
        if is_declared:
            hint = "leave the key out, or have grapnel install the module"
            yield warning(("driver", key), f"has no effect with {reason}", hint)
