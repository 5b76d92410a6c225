"""Plans the kernel module's part: whether the declared one is loaded, and will be after the next boot.

``driver.kernelModule: none`` says that something else puts the module on the node's disk. What is left to grapnel is
to exchange the loaded one for that one, and to refuse what would end with libraries and module of two versions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.text.excerpt import few
from provision.planning.node_plan import Action, Disruption, Item, Problem, Role
from provision.planning.planner.drivers.holders import describe_holders
from provision.planning.render.modprobe import OPTIONS_PATH, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.declaration.fleet.facts.driver import ModuleFile
    from provision.declaration.fleet.facts.node import KernelModule, NodeFacts
    from provision.planning.node_plan import FileContent

TARGET = "kernel module nvidia"
_NUMBER: Final = re.compile("0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*")
RELOAD_MARK = "/run/grapnel/kernel-module.json"


def plan_provided_module(facts: NodeFacts, version: str) -> tuple[Item, ...] | Problem:
    """Return what brings the loaded module to ``version`` (upstream's) where something else puts it on disk.

    A loaded module of that version is fine whatever is on disk: somebody may have prepared the next version.
    """
    module = facts.module
    if module.loaded:
        if module.version == version:
            return _finish(facts, version)
        return _reload(facts, version) if module.on_disk == version else _not_on_disk(facts, version)
    if not facts.gpus or module.on_disk is None:
        return ()
    return _load(version) if module.on_disk == version else _not_on_disk(facts, version)


def plan_module(facts: NodeFacts, version: str, flavour: str, files: Sequence[FileContent]) -> tuple[Item, ...]:
    """Return what brings the loaded module to a version and a flavour that come with the driver's packages.

    ``files`` are the driver's, with the parameters of its module: it has those with which it was loaded.
    """
    module = facts.module
    if not module.loaded:
        return _load(version) if facts.gpus else ()
    if module.version != version:
        return _reload(facts, version)
    if module.flavour not in (None, flavour):
        return _other_flavour(facts, version, flavour)
    if _has_other_options(facts, files):
        return _other_options(facts)
    return _finish(facts, version)


def _has_other_options(facts: NodeFacts, files: Sequence[FileContent]) -> bool:
    """Tell whether the module gets other parameters, as the program on the node does (``driver/module_options.py``)."""
    wanted = next((file.content for file in files if file.path == OPTIONS_PATH), None)
    return wanted is not None and parse_options(wanted) != parse_options(facts.content(OPTIONS_PATH) or "")


def find_not_in_force(facts: NodeFacts, declared: Mapping[str, int | str]) -> tuple[Problem, ...]:
    """Return which declared parameters a loaded module does not have, although its file has had them for some time.

    That is no change: whether loading it again would help, only whoever loads it can tell. An older initramfs may have
    other parameters, and the driver may choose another value than it was given.
    """
    known = facts.module.parameters
    numbers = {name: _number(value) for name, value in declared.items() if name in known}
    found = [
        f"{name} is {known[name]}, and is declared as {declared[name]}"
        for name, number in numbers.items()
        if number not in (None, known[name])
    ]
    if not found:
        return ()
    problem = Problem(
        code="module-parameters-not-in-force",
        message=f"the loaded kernel module of {facts.node.hostname} has other parameters than {OPTIONS_PATH}: "
        f"{few(found)}",
        hint="have it loaded again: `grapnel reboot NODE`; where that changes nothing, the driver chose it, "
        "or another file of modprobe.d did",
    )
    return (problem,)


def find_outdated_disks(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return which kernels boot with a disk that was not written again after the driver's settings had changed.

    That is no change: a disk is written at the end of one, and what kept it from being written has to go first.
    """
    if facts.initramfs is None or not facts.initramfs.outdated:
        return ()
    has_dracut = facts.initramfs.tool == "dracut"
    command = "dracut --force DISK KERNEL` for each of them" if has_dracut else "update-initramfs -u -k all`"
    problem = Problem(
        code="initramfs-outdated",
        message=f"the initramfs of kernel {few(facts.initramfs.outdated)} on {facts.node.hostname} is older than "
        f"{OPTIONS_PATH}: what the next boot loads first has the former settings",
        hint=f"see that /boot has room for another one, then `{command}",
    )
    return (problem,)


def _number(value: int | str) -> int | None:
    """Return the number that the kernel parses from a value (kstrtoint, base 0), None where it is not a number."""
    text = str(value).lower()
    if not _NUMBER.fullmatch(text):
        return None
    return int(text, 16 if text.startswith("0x") else 8 if text.startswith("0") else 10)


def plan_kernels(facts: NodeFacts, version: str, flavour: str, kernels: Sequence[str]) -> tuple[Item, ...]:
    """Return an item for each installed kernel that lacks the module: it could not drive a GPU after a boot into it."""
    return tuple(
        Item(
            role=Role.DRIVER,
            action=Action.INSTALL,
            target=f"{TARGET} for {kernel.release}",
            to=version,
            reason="installed kernels need the module of the driver's version",
        )
        for kernel in facts.kernels
        if kernel.release in kernels and not any(_is(file, version, flavour) for file in kernel.modules)
    )


def _is(file: ModuleFile, version: str, flavour: str) -> bool:
    return file.version == version and file.flavour in (None, flavour)


def _reload(facts: NodeFacts, version: str) -> tuple[Item, ...]:
    reason = f"the loaded kernel module is {_loaded(facts.module)}, and works with libraries of its own version only"
    return (
        Item(
            role=Role.DRIVER,
            action=Action.RELOAD,
            target=TARGET,
            from_=facts.module.version,
            to=version,
            reason=reason + describe_holders(facts),
            disruption=Disruption.DRAIN,
        ),
    )


def _other_flavour(facts: NodeFacts, version: str, flavour: str) -> tuple[Item, ...]:
    reason = f"the loaded kernel module is the {facts.module.flavour} one, and the {flavour} one is to run"
    return (
        Item(
            role=Role.DRIVER,
            action=Action.RELOAD,
            target=TARGET,
            from_=f"{facts.module.version} {facts.module.flavour}",
            to=f"{version} {flavour}",
            reason=reason + describe_holders(facts),
            disruption=Disruption.DRAIN,
        ),
    )


def _other_options(facts: NodeFacts) -> tuple[Item, ...]:
    reason = "the kernel module gets other parameters, which it only takes when it is loaded"
    return (
        Item(
            role=Role.DRIVER,
            action=Action.RELOAD,
            target=TARGET,
            reason=reason + describe_holders(facts),
            disruption=Disruption.DRAIN,
        ),
    )


def _load(version: str) -> tuple[Item, ...]:
    reason = "the node has GPUs, and no kernel module of the driver is loaded"
    return (Item(role=Role.DRIVER, action=Action.LOAD, target=TARGET, to=version, reason=reason),)


def _finish(facts: NodeFacts, version: str) -> tuple[Item, ...]:
    """Return what an exchange left undone that was stopped after the module itself was loaded."""
    if facts.file(RELOAD_MARK) is None:
        return ()
    reason = "an exchange of the module was interrupted before everything was loaded and started again"
    return (Item(role=Role.DRIVER, action=Action.LOAD, target=TARGET, from_=version, to=version, reason=reason),)


def _not_on_disk(facts: NodeFacts, version: str) -> Problem:
    module = facts.module
    on_disk = "none" if module.on_disk is None else module.on_disk
    loaded = _loaded(module) if module.loaded else "none"
    other = module.on_disk or module.version
    instead = f", or declare driver.version: {other}" if other else ""
    return Problem(
        code="module-not-on-disk",
        message=f"driver {version} needs kernel module {version}: "
        f"{facts.node.hostname} has {on_disk} on disk, and {loaded} loaded",
        hint=f"driver.kernelModule is none, so grapnel does not install the module: install {version} for kernel "
        f"{facts.node.kernel} first{instead}",
    )


def _loaded(module: KernelModule) -> str:
    return module.version or "of an unknown version"
