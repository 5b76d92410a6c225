"""Brings the loaded kernel module of the driver to the version on disk, or leaves everything as it was.

Order: check who uses it → write the mark → stop the driver's own services → unload → load → make device nodes → start
the services → remove the mark. The mark holds what was loaded and what ran, so that the next run finishes one that was
killed anywhere; a reboot, which starts everything anyway, clears it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils import driver_services
from ansible_collections.grapnel.node.plugins.module_utils.device_nodes import make_nodes, missing_nodes
from ansible_collections.grapnel.node.plugins.module_utils.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.modprobe import (
    is_loaded,
    load,
    loaded_version,
    unload,
    version_on_disk,
)
from ansible_collections.grapnel.node.plugins.module_utils.module_use import (
    UNLOAD_ORDER,
    find_obstacles,
    loaded_modules,
)
from ansible_collections.grapnel.node.plugins.module_utils.units import RELOAD_MARK

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.device_nodes import MakeNode
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_NVIDIA = "nvidia"
_ALWAYS = (_NVIDIA, "nvidia_uvm")
_LET_GO_S = 5.0  # a process that has just been stopped may still be closing what it had open
_POLL_S = 0.1


class KernelModuleError(Exception):
    """The module is not what it should be; the message says what was changed."""


@dataclass(frozen=True)
class Before:
    """What was loaded and what ran before an exchange began."""

    modules: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """The driver's modules now; ``unfinished`` is what an exchange that was cut short has left to be restored."""

    version: str | None
    on_disk: str | None
    loaded: tuple[str, ...]
    unfinished: Before | None

    @property
    def is_loaded(self) -> bool:
        """Whether the driver's own module is loaded, in whatever version."""
        return _NVIDIA in self.loaded

    def is_as_wanted(self, version: str) -> bool:
        """Tell whether there is nothing to do."""
        return self.is_loaded and self.version == version and self.unfinished is None

    def must_unload(self, version: str) -> bool:
        """Tell whether another version is in the way."""
        return self.is_loaded and self.version != version


def read_state(host: Host) -> State:
    """Return the state of the modules."""
    loaded = tuple(loaded_modules(host))
    return State(loaded_version(host, _NVIDIA), version_on_disk(host, _NVIDIA), loaded, _read_mark(host))


def read_loaded(host: Host) -> State:
    """Return the state without asking for the file on disk, which takes two processes."""
    return State(loaded_version(host, _NVIDIA), None, tuple(loaded_modules(host)), _read_mark(host))


def obstacles_to(host: Host, state: State, version: str, without: tuple[str, ...] = ()) -> list[str]:
    """Return who is in the way of an exchange, a line each: not what is stopped for it, not the units ``without``."""
    if not state.must_unload(version):
        return []
    return find_obstacles(host, {*driver_services.running_services(host), *without})


def require_on_disk(state: State, version: str) -> None:
    """Raise `KernelModuleError`, before anything is changed, if a version cannot be loaded because it is not there."""
    if state.on_disk == version or (state.is_loaded and state.version == version):
        return
    raise KernelModuleError(
        f"kernel module {version} is not on disk (found: {state.on_disk or 'none'}), nothing was changed: "
        "install it for the running kernel first"
    )


def require_free(host: Host, state: State, version: str) -> None:
    """Raise `KernelModuleError`, before anything is changed, if somebody uses the module that is to be unloaded."""
    in_the_way = obstacles_to(host, state, version)
    if in_the_way:
        raise KernelModuleError(
            f"kernel module {state.version} is in use, nothing was changed: {'; '.join(in_the_way)}"
        )


def bring_to(host: Host, version: str, clock: Clock = Clock(), mknod: MakeNode = os.mknod) -> None:  # noqa: B008 - a Clock is a value
    """Load the module on disk, after unloading another one; raises `KernelModuleError`."""
    state = read_state(host)
    require_on_disk(state, version)
    require_free(host, state, version)
    before = merge(state, driver_services.running_services(host))
    write_mark(host, before)
    try:
        if state.must_unload(version):
            stop_services(host)
            unload_all(host, state, clock)
        load_all(host, before, version)
        make_nodes(host, missing_nodes(host), mknod)
    except (KernelModuleError, OSError) as error:
        raise KernelModuleError("; ".join([str(error), *restore(host, before)])) from error
    complaints = restore(host, before)
    if complaints:
        raise KernelModuleError(f"kernel module {version} is loaded, but {'; '.join(complaints)}")


def merge(state: State, running: list[str]) -> Before:
    """Return what is to be restored: what is there now, and what a run that was cut short had taken away."""
    former = state.unfinished or Before()
    modules = {*state.loaded, *former.modules}
    return Before(tuple(name for name in UNLOAD_ORDER if name in modules), tuple(sorted({*running, *former.services})))


def stop_services(host: Host) -> list[str]:
    """Stop those of the driver's own services that run, and return them; raises `KernelModuleError`."""
    running = driver_services.running_services(host)
    complaint = driver_services.stop(host, running)
    if complaint:
        raise KernelModuleError(f"nothing was unloaded: {complaint}")
    return running


def unload_all(host: Host, state: State, clock: Clock) -> None:
    """Unload the driver's modules, all or none if that is possible; raises `KernelModuleError`."""
    in_the_way = _wait_for_nobody(host, clock)
    if in_the_way:
        raise KernelModuleError(
            f"kernel module {state.version} is in use, nothing was unloaded: {'; '.join(in_the_way)}"
        )
    gone: list[str] = []
    for name in state.loaded:
        complaint = unload(host, name)
        if complaint:
            users = [*find_obstacles(host), *_load_again(host, gone)]
            raise KernelModuleError("; ".join([f"kernel module {name} cannot be unloaded: {complaint}", *users]))
        gone.insert(0, name)


def _wait_for_nobody(host: Host, clock: Clock) -> list[str]:
    """Wait a moment, and return who still uses the modules."""
    deadline = clock.now() + _LET_GO_S
    while True:
        in_the_way = find_obstacles(host)
        if not in_the_way or clock.now() >= deadline:
            return in_the_way
        clock.sleep(_POLL_S)


def _load_again(host: Host, names: list[str]) -> list[str]:
    """Load what was unloaded before something came in between; the file on disk may be of another version by now."""
    complaints = {name: complaint for name in names if (complaint := load(host, name))}
    loaded = [name for name in names if name not in complaints]
    words = [f"loaded again: {', '.join(loaded)}"] if loaded else []
    return [*words, *(f"{name} was unloaded and cannot be loaded again: {why}" for name, why in complaints.items())]


def load_all(host: Host, before: Before, version: str) -> None:
    """Load a version of the driver's module, and the others that were loaded; raises `KernelModuleError`."""
    complaint = "" if is_loaded(host, _NVIDIA) else load(host, _NVIDIA)
    if complaint:
        raise KernelModuleError(f"kernel module {version} cannot be loaded, so none is loaded now: {complaint}")
    found = loaded_version(host, _NVIDIA)
    if found != version:
        raise KernelModuleError(f"kernel module {found} was loaded instead of {version}")
    others = [name for name in dict.fromkeys((*_ALWAYS, *reversed(before.modules))) if not is_loaded(host, name)]
    complaints = [f"{name}: {complaint}" for name in others if (complaint := load(host, name))]
    if complaints:
        raise KernelModuleError(f"kernel module {version} is loaded, but not {'; '.join(complaints)}")


def restore(host: Host, before: Before) -> list[str]:
    """Start the services again; the mark goes when everything is there again. Returns what could not be started."""
    complaint = driver_services.start(host, list(before.services))
    if complaint:
        return [complaint]
    if all(is_loaded(host, name) for name in before.modules):
        host.path(RELOAD_MARK).unlink(missing_ok=True)
    return []


def _read_mark(host: Host) -> Before | None:
    text = host.read_text(RELOAD_MARK)
    if text is None:
        return None
    try:
        values = json.loads(text)
        return Before(tuple(map(str, values["modules"])), tuple(map(str, values["services"])))
    except (ValueError, KeyError, TypeError):
        return Before()  # something was begun; what is missing then is what always is loaded


def write_mark(host: Host, before: Before) -> None:
    """Note what is to be restored, before anything is taken away."""
    place = host.path(RELOAD_MARK)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    beside = place.with_name(f".{place.name}.new")
    beside.write_text(json.dumps({"modules": before.modules, "services": before.services}), encoding="utf-8")
    beside.replace(place)
