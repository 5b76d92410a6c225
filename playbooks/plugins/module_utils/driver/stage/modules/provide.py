"""Provides the module of every kernel: handed over, kept from another set, or built now.

The set says for which kernels this node has built the module itself: another node may be shown no others, since two
nodes that were handed one module say nothing about it.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding, StageError, failure
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.build import Builder
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.kernels import has_modules
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_archive import require_fit
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_sources import find_sources
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.signers import require_signing
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import failed, link_or_copy
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.built_here import own_builds
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import Work

_OWN = "this node uses another module; find out who is root of the node that built the one that was handed over"


def take_built(work: Work, handed: Mapping[str, str]) -> list[str]:
    """Put modules into a set that exist already, and return the kernels that still need one.

    One that was handed over, or is in another set, is used if it fits. Without a network what was handed over must.
    """
    missing = []
    for kernel in work.change.kernels:
        given = handed.get(f"{store.MODULES}/{kernel}{store.MODULE_SUFFIX}")
        if given is not None and _takes(work, given, kernel):
            continue
        if not _take_from_sets(work, kernel):
            missing.append(kernel)
    return missing


def _takes(work: Work, given: str, kernel: str) -> bool:
    """Take a module that was handed over, if it fits; a node that may use nothing else raises `StageError`."""
    try:
        _require_fit(work, given, kernel)
    except StageError as error:
        if work.options.offline:
            raise
        work.findings.append(Finding(error.finding.code, f"not used: {error.finding.message}", _OWN, "warning"))
        return False
    link_or_copy(work.host, given, work.archive(kernel))
    return True


def _take_from_sets(work: Work, kernel: str) -> bool:
    """Use the module of another set, or of its way back, if it is the one that is wanted."""
    for name in store.staged_changes(work.host):
        folder = store.staged_folder(name)
        for place in (folder, store.before_folder(folder)):
            found = store.module_archive(place, kernel)
            if work.host.path(found).is_file() and _fits(work, found, kernel):
                link_or_copy(work.host, found, work.archive(kernel))
                if kernel in own_builds(work.host, place):
                    work.own.add(kernel)
                return True
    return False


def _fits(work: Work, archive: str, kernel: str) -> bool:
    with contextlib.suppress(StageError):
        _require_fit(work, archive, kernel)
        return True
    return False


def _require_fit(work: Work, archive: str, kernel: str) -> None:
    """Raise `StageError` unless an archive fits; remembers who signed what is in it."""
    work.signers[kernel] = require_fit(work.host, archive, work.change, kernel, work.scratch)


def build_missing(work: Work, kernels: Sequence[str], files: Sequence[str]) -> None:
    """Build the module for kernels, and leave nothing but the archives; raises `StageError`."""
    require_signing(work)
    scratch = store.BUILD
    try:
        builder = Builder(work.host, work.change, find_sources(work, files, scratch), scratch)
        for kernel in kernels:
            builder.build(kernel, work.archive(kernel), work.options.build_timeout_s)
            _require_fit(work, work.archive(kernel), kernel)
            work.own.add(kernel)
    except SourceError as error:
        raise failed(error) from error
    finally:
        shutil.rmtree(work.host.path(scratch), ignore_errors=True)


def require_packaged(work: Work, files: Sequence[str]) -> None:
    """Raise `StageError` unless packages bring a built module for every kernel, or have brought it before."""
    try:
        places = [path for file in files for path in work.source.list_files(work.host, file) if "/modules/" in path]
    except SourceError as error:
        raise failed(error) from error
    for kernel in work.change.kernels:
        if not any(f"/modules/{kernel}/" in path for path in places) and not has_modules(work.host, kernel):
            raise failure(
                "kernel-not-covered",
                f"no package of the change has a module for the kernel {kernel}",
                "choose packages for that kernel, or a module that is built with dkms",
            )
