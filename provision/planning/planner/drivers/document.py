"""Describes a node's driver as the document that the program on the node carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.driver.packages.module_stream import render_stream
from provision.planning.driver.packages.pins.render import render as render_pins
from provision.planning.driver_change import ChangedFile, DriverChange, ModuleTarget, Signing
from provision.planning.node_plan import FileContent
from provision.planning.render.modprobe import (
    DRACUT_PATH,
    LOAD_PATH,
    OPTIONS_PATH,
    render_dracut,
    render_load,
    render_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.planner.drivers.choice import Choice

MODULE = "nvidia"
DRACUT = "dracut"


def driver_files(facts: NodeFacts, declared: Driver, choice: Choice) -> tuple[FileContent, ...]:
    """Return the files that come with a driver: its pin, its module stream, what the kernel is told of modules."""
    request = choice.request
    files = [*render_pins(choice.manager, choice.driver, request.members), *render_stream(request.module_stream)]
    if choice.is_module_managed:
        modules = {MODULE, *([request.dkms_name] if request.dkms_name else [])}
        files.append(FileContent(OPTIONS_PATH, render_options(modules, declared.module_parameters)))
        if facts.initramfs is not None and facts.initramfs.tool == DRACUT:
            files.append(FileContent(DRACUT_PATH, render_dracut()))
        if request.kernel_modules:
            files.append(FileContent(LOAD_PATH, render_load(request.kernel_modules)))
    return tuple(files)


def describe_change(facts: NodeFacts, declared: Driver, choice: Choice, files: Sequence[FileContent]) -> DriverChange:
    """Return the change to a chosen driver. It says what is to be, not what is, so that it keeps its id."""
    request, signing = choice.request, declared.signing
    return DriverChange(
        version=choice.upstream,
        flavour=choice.flavour.value,
        manager=choice.manager.value,
        packages=choice.driver.packages,
        remove=choice.driver.remove,
        files=tuple(ChangedFile(each.path, each.content, each.mode) for each in files),
        hold=declared.hold,
        kernels=choice.kernels,
        dkms=request.dkms_name,
        services=request.services,
        sign=Signing(key=signing.key, certificate=signing.certificate) if signing and request.dkms_name else None,
        compile=declared.compile.value,
        reboot=declared.reboot,
        module=ModuleTarget(version=choice.upstream) if _loads_module(facts, choice) else None,
    )


def _loads_module(facts: NodeFacts, choice: Choice) -> bool:
    """Tell whether a module is to be loaded: a machine without GPUs may still be given the libraries.

    So may one on whose disk nobody has put the module yet, where that is not grapnel's to do.
    """
    if facts.module.loaded:
        return True
    return bool(facts.gpus) and (choice.is_module_managed or facts.module.on_disk is not None)
