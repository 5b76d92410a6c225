"""Checks rules across the keys of the section `driver`, as far as the declaration alone shows them.

Which packages a distribution has, and what a node's GPUs can run, is decided when the node is planned for.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Build, Compile, DriverSource, KernelModule, Repository
from provision.declaration.spec.rules.remark import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Driver
    from provision.declaration.spec.rules.remark import Remark

_FLAVOURS: Final = frozenset({KernelModule.OPEN, KernelModule.PROPRIETARY})
_REPOSITORY: Final = ("driver", "repository")
_RUNFILE: Final = ("driver", "runfile")
_MIRRORED: Final = frozenset({DriverSource.NVIDIA, DriverSource.CANONICAL})


def judge_driver(driver: Driver) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    if not driver.enabled:
        return _disabled(driver)
    return chain(_source(driver), _version(driver), _repository(driver), _runfile(driver), _module(driver))


def _disabled(driver: Driver) -> Iterator[Remark]:
    if driver.kernel_module in _FLAVOURS:
        hint = "grapnel leaves the whole driver alone; set driver.enabled: true, or leave the key out"
        yield warning(("driver", "kernelModule"), "has no effect while the driver is disabled", hint)


def _source(driver: Driver) -> Iterator[Remark]:
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


def _runfile(driver: Driver) -> Iterator[Remark]:
    """Yield what is wrong with the file that packages are made of, and with what is asked of it."""
    given = driver.runfile
    if driver.source is not DriverSource.RUNFILE:
        if given is not None:
            hint = "write source: runfile, or leave the key out"
            yield warning(_RUNFILE, f"has no effect with source: {driver.source.value}", hint)
        return
    if driver.branch is not None and driver.version is None:
        hint = "write version: that of the file, as in its name"
        yield error(("driver", "branch"), "cannot be chosen from with source: runfile: a file is one version", hint)
    if given is None:
        yield error(_RUNFILE, "is required with source: runfile", "name the file: its path or its url, and its sha256")
    elif given.path is None and given.url is None:
        yield error(_RUNFILE, "has neither path nor url", "write one of them: a path on this machine, or an https url")
    elif given.path is not None and given.url is not None:
        yield error(_RUNFILE, "has both path and url", "write one of them")


def _repository(driver: Driver) -> Iterator[Remark]:
    if driver.source is DriverSource.BUNDLE:
        yield from _bundle(driver, driver.repository or Repository())
    elif driver.source in _MIRRORED:
        yield from _place(driver, driver.repository or Repository())
        yield from _key(driver)
    else:
        yield from _without_effect(driver)


def _without_effect(driver: Driver) -> Iterator[Remark]:
    if driver.repository is not None:
        hint = "packages come from what the node itself has configured; write source: nvidia, canonical or bundle"
        hint = hint if driver.source is DriverSource.DISTRIBUTION else "leave the key out"
        yield warning(_REPOSITORY, f"has no effect with source: {driver.source.value}", hint)


def _bundle(driver: Driver, repository: Repository) -> Iterator[Remark]:
    """Yield what is wrong with the place of a bundle: nodes are handed its files, and do not read it themselves."""
    if repository.url is not None and repository.folder is not None:
        yield error(
            _REPOSITORY, "has both url and folder", "keep folder: a bundle is read by the machine that runs grapnel"
        )
    elif repository.url is not None:
        hint = (
            "fetch the bundle to the machine that runs grapnel and write folder: its place; or source: nvidia, "
            "with the url of a mirror that nodes reach"
        )
        yield error((*_REPOSITORY, "url"), "is not for source: bundle: nodes are handed its files by grapnel", hint)
    elif repository.folder is None:
        message = "is required with source: bundle" if driver.repository is None else "has no folder"
        hint = "write folder: the bundle's file, or the folder that it is unpacked in, on the machine that runs grapnel"
        yield error(_REPOSITORY, message, hint)


def _place(driver: Driver, repository: Repository) -> Iterator[Remark]:
    """Yield what is wrong with url and folder."""
    if repository.url is not None and repository.folder is not None:
        yield error(_REPOSITORY, "has both url and folder", "write one of them")
    elif repository.folder is not None:
        hint = "write source: bundle; or url: file:///FOLDER, for a folder on the node itself"
        yield error((*_REPOSITORY, "folder"), f"is for source: bundle, not {driver.source.value}", hint)
    elif repository.url is None and driver.source is DriverSource.CANONICAL and driver.repository is not None:
        yield error(_REPOSITORY, "has no url", "write the url of the mirror, or leave the key out")


def _key(driver: Driver) -> Iterator[Remark]:
    """Nodes know the keys of their own distribution, and none of NVIDIA's."""
    if driver.source is not DriverSource.NVIDIA:
        return
    hint = "write repository.key: the text of the .pub file beside NVIDIA's packages, once you checked it"
    if driver.repository is None:
        yield error(_REPOSITORY, "is required with source: nvidia, for the key that signs its packages", hint)
    elif driver.repository.key is None:
        yield error((*_REPOSITORY, "key"), "is required with source: nvidia", hint)


def _module(driver: Driver) -> Iterator[Remark]:
    """Yield what is wrong with keys about the kernel module."""
    if driver.kernel_module is KernelModule.NONE:
        yield from _no_module(driver, "kernelModule: none")
    elif driver.source is DriverSource.NONE:
        yield from _no_module(driver, "source: none")
    else:
        yield from _builder(driver)


def _builder(driver: Driver) -> Iterator[Remark]:
    if driver.build is Build.EACH and driver.builder is not None:
        hint = "leave one of them out: with build: each no node takes a module from another"
        yield warning(("driver", "builder"), "has no effect with build: each", hint)


def _no_module(driver: Driver, reason: str) -> Iterator[Remark]:
    """Yield keys about a module that grapnel does not install."""
    declared = {
        "moduleParameters": bool(driver.module_parameters),
        "signing": driver.signing is not None,
        "compile": driver.compile is not Compile.STAGE,
        "build": driver.build is not Build.ONCE,
        "builder": driver.builder is not None,
    }
    for key, is_declared in declared.items():
        if is_declared:
            hint = "leave the key out, or have grapnel install the module"
            yield warning(("driver", key), f"has no effect with {reason}", hint)
