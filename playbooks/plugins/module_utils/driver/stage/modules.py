"""Provides the module of every kernel: handed over, kept from another set, or built now."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.build import Builder
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import SCRATCH
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.kernels import has_modules
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError, failure
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.module_archive import require_fit
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.module_sources import find_sources
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import failed, link_or_copy
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageOptions
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import PackageSource


def take_built(host: Host, change: DriverChange, folder: str, handed: Mapping[str, str]) -> list[str]:
    """Put modules into a set that exist already, and return the kernels that still need one.

    One that was handed over must fit; one of another set is used if it does.
    """
    missing = []
    for kernel in change.kernels:
        archive = store.module_archive(folder, kernel)
        given = handed.get(f"{store.MODULES}/{kernel}{store.MODULE_SUFFIX}")
        if given is not None:
            require_fit(host, given, change, kernel, f"{folder}/{SCRATCH}")
            link_or_copy(host, given, archive)
        elif not _take_from_sets(host, change, kernel, archive, folder):
            missing.append(kernel)
    return missing


def _take_from_sets(host: Host, change: DriverChange, kernel: str, archive: str, folder: str) -> bool:
    """Use the module of another set, or of its way back, if it is the one that is wanted."""
    for name in store.staged_changes(host):
        for place in (store.staged_folder(name), store.before_folder(store.staged_folder(name))):
            found = store.module_archive(place, kernel)
            if host.path(found).is_file() and _fits(host, found, change, kernel, folder):
                link_or_copy(host, found, archive)
                return True
    return False


def _fits(host: Host, archive: str, change: DriverChange, kernel: str, folder: str) -> bool:
    with contextlib.suppress(StageError):
        require_fit(host, archive, change, kernel, f"{folder}/{SCRATCH}")
        return True
    return False


def build_missing(
    host: Host,
    source: PackageSource,
    change: DriverChange,
    kernels: Sequence[str],
    files: Sequence[str],
    folder: str,
    options: StageOptions,
) -> None:
    """Build the module for kernels, and leave nothing but the archives; raises `StageError`."""
    scratch = f"{folder}/{SCRATCH}/build"
    try:
        sources = find_sources(host, source, files, str(change.dkms), change.version, scratch)
        builder = Builder(host, change, sources, scratch)
        for kernel in kernels:
            archive = store.module_archive(folder, kernel)
            builder.build(kernel, archive, options.build_timeout_s)
            require_fit(host, archive, change, kernel, f"{folder}/{SCRATCH}")
    except SourceError as error:
        raise failed(error) from error
    finally:
        shutil.rmtree(host.path(scratch), ignore_errors=True)


def require_packaged(
    host: Host,
    source: PackageSource,
    change: DriverChange,
    files: Sequence[str],
    *,
    on_disk: Callable[..., bool] = has_modules,
) -> None:
    """Raise `StageError` unless packages bring a built module for every kernel, or have brought it before."""
    try:
        places = [path for file in files for path in source.list_files(host, file) if "/modules/" in path]
    except SourceError as error:
        raise failed(error) from error
    for kernel in change.kernels:
        if not any(f"/modules/{kernel}/" in path for path in places) and not on_disk(host, kernel):
            raise failure(
                "kernel-not-covered",
                f"no package of the change has a module for the kernel {kernel}",
                "choose packages for that kernel, or a module that is built with dkms",
            )
