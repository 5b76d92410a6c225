"""Keeps the way back: everything that is needed to return to the driver that the node has now, without a network.

Where a driver is installed, that is its packages at their exact versions, its built modules, the former files and
holds. Where none is, it is the removal of what the change brings. What depends on the driver in neither direction, such
as a newer library that it needed, stays.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.before.way_back import (
    find_files,
    write_files,
    write_holds,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (
    NO_DRIVER,
    ChangedFile,
    DriverChange,
    PackageVersion,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import SEAL
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import read_json
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import (
    Finding,
    StageError,
    failure,
    unreadable,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.dkms_status import installed_modules
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_archive import (
    flavour_of,
    has_modules_of,
    read_modules,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.tools import remembered
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import (
    download,
    link_or_copy,
    take_over,
    versions_of,
)
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import loaded_version
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request, has_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.driver.before.way_back import FormerFile
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.dkms_status import BuiltModule
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import Work
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Resolution

_TIMEOUT_S = 120.0
_QUERY_TIMEOUT_S = 30.0
_UPSTREAM = re.compile(r"^(?:\d+:)?(?P<upstream>\d+(?:\.\d+)+)")  # without epoch, and a packager's revision
_PLAIN_MODE = 0o777  # a change knows no other bits
_GO_ON = (
    "without it a failed change cannot be undone by itself: stage from a source that has it, or go on and know that"
)


def former_packages(change: DriverChange, resolution: Resolution) -> dict[str, str]:
    """Return the driver's packages that change or go, with the versions that they have now."""
    own = {*change.names, *change.remove, *resolution.remove}
    changed = {**resolution.replaced, **resolution.remove}
    return {name: version for name, version in sorted(changed.items()) if version and name in own}


def keep_way_back(work: Work, resolution: Resolution) -> list[Finding]:
    """Write the folder ``before`` of a set; returns what is missing in it, and raises `StageError`."""
    host, change = work.host, work.change
    former = former_packages(change, resolution)
    files = _find_former_files(host, change)
    modules = installed_modules(host) if former and change.has_module else []
    lost = _collect(work, former)
    lost += [f"the module {one.module} {one.version} for {one.kernel}" for one in modules if not _keep(work, one)]
    new = {name for name, version in resolution.replaced.items() if not version}
    if former:
        back = _return(work, former, new, modules)
    else:
        back = _removal(change, new | _present(work, remembered(host)).keys())
    write_files(host, work.before, files)
    write_holds(host, work.before, _held(work, {*former, *change.names}))
    store.write_change(host, work.before, replace(back, files=_texts(files)))
    return [_no_way_back(lost)] if lost else []


def _no_way_back(lost: Sequence[str]) -> Finding:
    return Finding(
        "no-way-back",
        f"what the node has now cannot be put back, because nothing has {', '.join(lost)}",
        _GO_ON,
        "warning",
    )


def _find_former_files(host: Host, change: DriverChange) -> list[FormerFile]:
    try:
        return find_files(host, [file.path for file in change.files])
    except store.StoreError as error:
        raise failure("file-in-the-way", str(error), "move what stands there, or manage it elsewhere") from error


def _present(work: Work, names: Collection[str]) -> dict[str, InstalledPackage]:
    try:
        return work.manager.installed(work.host, names)
    except PackageError as error:
        raise unreadable(error) from error


def _held(work: Work, names: Collection[str]) -> set[str]:
    try:
        return work.manager.held(work.host, names)
    except PackageError as error:
        raise unreadable(error) from error


def _collect(work: Work, former: Mapping[str, str]) -> list[str]:
    """Collect the former packages' files; returns those that nobody has."""
    host, target = work.host, f"{work.before}/{store.PACKAGES}"
    known = versions_of(host, work.manager, _files_at_hand(host, work.manager.suffix))
    missing = {}
    for name, version in former.items():
        file = known.get((name, version)) or work.source.find_cached(host, name, version)
        if file:
            take_over(host, [file], target)
        else:
            missing[name] = version
    if missing and not work.options.offline:
        _try_download(work, missing, target)
    found = versions_of(host, work.manager, work.package_files_back())
    return [f"{name} {version}" for name, version in missing.items() if (name, version) not in found]


def _files_at_hand(host: Host, suffix: str) -> list[str]:
    """Return the package files of all sets, the current one's last, so that its files win."""
    names = sorted(store.staged_changes(host), key=lambda name: name == store.current_change(host))
    return [file for name in names for file in _whole_files(host, store.staged_folder(name), suffix)]


def _whole_files(host: Host, folder: str, suffix: str) -> Iterator[str]:
    """Return the package files of a set that are as they were sealed."""
    sealed = read_json(host, f"{folder}/{SEAL}") or {}
    for each in (store.before_folder(folder), folder):
        for file in store.package_files(host, each, suffix):
            digest = sealed.get(file[len(folder) + 1 :], "")
            if has_digest(host.path(file), f"sha256:{digest}"):
                yield file


def _try_download(work: Work, missing: Mapping[str, str], target: str) -> None:
    """Download what the sources still have; what is missing afterwards is told by name."""
    beside = f"{work.scratch}/former"
    work.host.path(beside).mkdir(exist_ok=True)
    try:
        files = download(work, Request(missing), beside)
    except StageError as error:
        if error.finding.code == "no-space":
            raise
        files = ()
    take_over(work.host, files, target)


def _keep(work: Work, one: BuiltModule) -> bool:
    """Keep an installed module as it is; tells whether that was possible."""
    archive = store.module_archive(work.before, one.kernel)
    packed = _find_packed(work, one)
    if packed is not None:
        link_or_copy(work.host, packed, archive)
        return True
    module = ["-m", one.module, "-v", one.version, "-k", one.kernel, "-a", one.architecture]
    pack = ["env", f"TMPDIR={work.scratch}", "dkms", "mktarball", *module, "--binaries-only", "--archive", archive]
    return work.host.run(pack, _TIMEOUT_S).return_code == 0 and work.host.path(archive).is_file()


def _find_packed(work: Work, one: BuiltModule) -> str | None:
    """Return the archive of another set that has just this module: most often the one that was installed from it.

    Comparing takes a fraction of the time that packing takes.
    """
    folders = [store.staged_folder(name) for name in store.staged_changes(work.host)]
    places = (place for folder in folders for place in (folder, store.before_folder(folder)))
    archives = (store.module_archive(place, one.kernel) for place in places)
    there = (archive for archive in archives if work.host.path(archive).is_file())
    return next((each for each in there if has_modules_of(work.host, each, one, work.scratch)), None)


def _removal(change: DriverChange, brought: set[str]) -> DriverChange:
    """Return the way back of a first installation."""
    return DriverChange(
        version=NO_DRIVER, flavour="none", manager=change.manager, packages=(), remove=tuple(sorted(brought)), files=(),
        hold=False, kernels=(), dkms=None, services=(), sign=None, compile="stage", reboot=change.reboot,
        module=None if change.module is None else NO_DRIVER,
    )  # fmt: skip


def _return(work: Work, former: Mapping[str, str], new: set[str], modules: Sequence[BuiltModule]) -> DriverChange:
    """Return the change to the driver that is installed now."""
    host, change = work.host, work.change
    version = modules[0].version if modules else _upstream(former)
    loaded = NO_DRIVER if loaded_version(host, "nvidia") is None else version
    return DriverChange(
        version=version,
        flavour=_flavour(work, modules[0]) if modules else "none",
        manager=change.manager,
        packages=tuple(PackageVersion(name, former[name]) for name in sorted(former)),
        remove=tuple(sorted(new)),
        files=(),
        hold=change.hold,
        kernels=tuple(dict.fromkeys(one.kernel for one in modules)),
        dkms=modules[0].module if modules else None,
        services=tuple(name for name in _services(host, change) if _is_active(host, name)),
        sign=None,
        compile="stage",
        reboot=change.reboot,
        module=None if change.module is None else loaded,
    )


def _upstream(former: Mapping[str, str]) -> str:
    """Return the version that most of the driver's packages have: some of them count by themselves."""
    found = [match["upstream"] for version in former.values() if (match := _UPSTREAM.match(version))]
    if not found:
        raise failure(
            "packages-unreadable",
            f"none of the versions {', '.join(former.values())} begins with one of the driver's",
            "remove the driver that is installed by hand, then stage again",
        )
    return max(sorted(found), key=found.count)


def _flavour(work: Work, module: BuiltModule) -> str:
    """Return the flavour of a module that was kept; one that could not be kept cannot be returned to anyway."""
    archive = store.module_archive(work.before, module.kernel)
    if not work.host.path(archive).is_file():
        return "proprietary"
    return flavour_of(read_modules(work.host, archive, module.module, module.kernel, work.scratch))


def _services(host: Host, change: DriverChange) -> tuple[str, ...]:
    """Return the services of a change and of the one that it follows, which may have brought others."""
    current = store.current_change(host)
    try:
        former = () if current is None else store.read_change(host, store.staged_folder(current)).services
    except store.StoreError:  # its set is damaged: what the change itself has is known
        former = ()
    return tuple(dict.fromkeys((*change.services, *former)))


def _is_active(host: Host, service: str) -> bool:
    return host.run(["systemctl", "is-active", "--quiet", service], _QUERY_TIMEOUT_S).return_code == 0


def _texts(files: Sequence[FormerFile]) -> tuple[ChangedFile, ...]:
    """Return the former files that a change can hold; the others come back from their copies."""
    return tuple(
        ChangedFile(file.path, file.content.decode(), f"{file.mode:04o}")
        for file in files
        if file.content is not None and _is_text(file.content) and file.mode <= _PLAIN_MODE
    )


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
