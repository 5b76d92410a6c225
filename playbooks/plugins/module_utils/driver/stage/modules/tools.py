"""Sees to it that the node can build modules: installs dkms, compiler and headers, which disturb nobody, if it may.

The driver's module package depends on them anyway; installing them now keeps their installation, and the build, out of
the time in which the node is out of service. Which ones came this way is remembered, so that a node that had no driver
before gets rid of them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import read_json, write_json
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError, failure
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.kernels import (
    missing_tools,
    without_headers,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import download
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import Work
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_REMEMBERED = f"{store.HOME}/tools.json"
_HEADERS = {"apt": "linux-headers-{}", "dnf": "kernel-devel-{}", "zypper": "kernel-default-devel"}


def provide(work: Work, kernels: Sequence[str]) -> None:
    """Install what is missing for building modules; raises `StageError`."""
    wanted = _missing(work.host, work.manager.name, kernels)
    if not wanted:
        return
    if work.options.offline or not work.options.install_tools:
        raise failure(
            "build-tools-missing",
            f"a module cannot be built on this node, which lacks {', '.join(wanted)}",
            f"install {' '.join(wanted)} on the node, or hand over a module that was built elsewhere",
        )
    target = f"{work.scratch}/tools"
    work.host.path(target).mkdir(exist_ok=True)
    try:
        files = download(work, Request(dict.fromkeys(wanted, "")), target)
    except StageError as error:
        raise _refused(error.finding.message) from error
    _install(work, files)
    left = _missing(work.host, work.manager.name, kernels)
    if left:
        raise failure(
            "build-tools-missing",
            f"{', '.join(left)} are still missing after their installation",
            "a kernel that its distribution no longer has gets no headers: boot a newer one first",
        )


def remembered(host: Host) -> tuple[str, ...]:
    """Return the packages that staging has installed for building."""
    found = read_json(host, _REMEMBERED)
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _missing(host: Host, manager: str, kernels: Sequence[str]) -> list[str]:
    headers = (_HEADERS[manager].format(release) for release in without_headers(host, kernels))
    return list(dict.fromkeys([*missing_tools(host), *headers]))


def _install(work: Work, files: tuple[str, ...]) -> None:
    """Install files, and remember first what they bring that was not there."""
    host, manager = work.host, work.manager
    transaction = Transaction(files, (), work.scratch)
    try:
        rehearsal = manager.rehearse(host, transaction)
        present = manager.installed(host, rehearsal.install)
        brought = {name for name in rehearsal.install if name not in present}
        if rehearsal.remove:
            raise _refused(f"that would remove {', '.join(sorted(rehearsal.remove))}")
        write_json(host, _REMEMBERED, sorted({*remembered(host), *brought}))
        manager.apply(host, transaction, work.clock)
    except PackageError as error:
        raise _refused(str(error)) from error


def _refused(why: str) -> StageError:
    return failure(
        "build-tools-missing",
        f"what is needed to build modules cannot be installed: {why}",
        "install dkms, gcc, make and the kernel's headers on the node, or hand over a built module",
    )
