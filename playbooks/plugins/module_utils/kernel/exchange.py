"""Unloads the driver's kernel modules and loads them again, all or none where that is possible.

The steps of a driver change call this. What was loaded and what ran before is written down by them, so that whoever
comes after a kill restores it; the mark below tells those who gather facts that an exchange has not ended.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.kernel import services as driver_services
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import (
    describe_module,
    is_loaded,
    load,
    loaded_at_boot,
    loaded_version,
    module_file,
    unload,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import HostError
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import RELOAD_MARK
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import (
    UNLOAD_ORDER,
    find_users,
    loaded_modules,
)

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.use.modules import Users

_NVIDIA = "nvidia"
_ALWAYS = (_NVIDIA, "nvidia_uvm")
_DISPLAY = ("nvidia_modeset", "nvidia_drm")  # the first has /dev/nvidia-modeset
_KEY_REFUSED = ("Key was rejected", "Required key not available")  # strerror of EKEYREJECTED and ENOKEY
_KEY_HINT = (
    " (the kernel does not have the certificate of whoever signed it: compare `modinfo -F signer nvidia` with "
    "`mokutil --list-enrolled`)"
)
_UNSIGNED_HINT = " (it is not signed, and the kernel accepts signed modules only: declare driver.signing)"
_LET_GO_S = 5.0  # a process that has just been stopped may still be closing what it had open
_POLL_S = 0.1


class KernelModuleError(Exception):
    """The module is not what it should be; the message says what was changed."""


class StuckModuleError(KernelModuleError):
    """The module cannot be unloaded although no process uses it: nothing that could be ended would free it."""


@dataclass(frozen=True)
class Before:
    """What was loaded and what ran before an exchange began."""

    modules: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedModules:
    """The driver's modules that are loaded now, in the order in which they can be unloaded, and their version."""

    version: str | None
    loaded: tuple[str, ...]


def read_loaded(host: Host) -> LoadedModules:
    """Return what is loaded."""
    return LoadedModules(loaded_version(host, _NVIDIA), tuple(loaded_modules(host)))


def merge(state: LoadedModules, former: Before, running: list[str]) -> Before:
    """Return what is to be restored: what is there now, and what a run that was cut short had taken away."""
    modules = {*state.loaded, *former.modules}
    return Before(tuple(name for name in UNLOAD_ORDER if name in modules), tuple(sorted({*running, *former.services})))


def stop_services(host: Host) -> list[str]:
    """Stop those of the driver's own services that run, and return them; raises `KernelModuleError`."""
    running = driver_services.running_services(host)
    complaint = driver_services.stop(host, running)
    if complaint:
        raise KernelModuleError(f"nothing was unloaded: {complaint}")
    return running


def unload_all(host: Host, state: LoadedModules, clock: Clock) -> None:
    """Unload the driver's modules, all or none if that is possible; raises `KernelModuleError`."""
    users = _wait_for_nobody(host, clock)
    if users.lines:
        raise _error_for(users)(
            f"kernel module {state.version} is in use, nothing was unloaded: {'; '.join(users.lines)}"
        )
    gone: list[str] = []
    for name in state.loaded:
        complaint = unload(host, name)
        if complaint:
            users, again = find_users(host), _load_again(host, gone)
            words = [f"kernel module {name} cannot be unloaded: {complaint}", *users.lines, *again]
            raise _error_for(users)("; ".join(words))
        gone.insert(0, name)


def _error_for(users: Users) -> type[KernelModuleError]:
    return KernelModuleError if users.processes else StuckModuleError


def _wait_for_nobody(host: Host, clock: Clock) -> Users:
    """Wait a moment, and return who still uses the modules."""
    deadline = clock.now() + _LET_GO_S
    while True:
        users = find_users(host)
        if not users.lines or clock.now() >= deadline:
            return users
        clock.sleep(_POLL_S)


def _load_again(host: Host, names: list[str]) -> list[str]:
    """Load what was unloaded before something came in between; the file on disk may be of another version by now."""
    complaints = {name: complaint for name in names if (complaint := load(host, name))}
    loaded = [name for name in names if name not in complaints]
    words = [f"loaded again: {', '.join(loaded)}"] if loaded else []
    return [*words, *(f"{name} was unloaded and cannot be loaded again: {why}" for name, why in complaints.items())]


def modules_to_load(before: Before) -> list[str]:
    """Return the modules that are loaded with a driver, in their order."""
    return list(dict.fromkeys((*_ALWAYS, *reversed(before.modules))))


def load_all(host: Host, before: Before, version: str) -> None:
    """Load a version of the driver's module, and the others that were loaded; raises `KernelModuleError`."""
    complaint = "" if is_loaded(host, _NVIDIA) else load(host, _NVIDIA)
    if complaint:
        hint = _key_hint(host) if any(words in complaint for words in _KEY_REFUSED) else ""
        raise KernelModuleError(f"kernel module {version} cannot be loaded, so none is loaded now: {complaint}{hint}")
    found = loaded_version(host, _NVIDIA)
    if found != version:
        raise KernelModuleError(f"kernel module {found} was loaded instead of {version}")
    others = [name for name in modules_to_load(before) if not is_loaded(host, name)]
    complaints = [f"{name}: {complaint}" for name in others if (complaint := load(host, name))]
    if complaints:
        raise KernelModuleError(f"kernel module {version} is loaded, but not {'; '.join(complaints)}")
    if _NVIDIA not in before.modules:  # it is new here: have what the next boot would have
        for name in loaded_at_boot(host, _DISPLAY):
            load(host, name)  # containers that compute do without


def _key_hint(host: Host) -> str:
    """Tell why the kernel refused the driver's key: it has the same error for a module that nobody signed."""
    fields: dict[str, str] = {}
    with contextlib.suppress(HostError):  # what the kernel said counts more
        file = module_file(host, _NVIDIA)
        fields = describe_module(host, file) if file else {}
    return _UNSIGNED_HINT if fields and "signer" not in fields else _KEY_HINT  # empty where modinfo cannot read it


def write_mark(host: Host, before: Before) -> None:
    """Note what is to be restored, before anything is taken away."""
    place = host.path(RELOAD_MARK)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    beside = place.with_name(f".{place.name}.new")
    beside.write_text(json.dumps({"modules": before.modules, "services": before.services}), encoding="utf-8")
    beside.replace(place)
