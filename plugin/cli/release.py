"""`grapnel-node release`, `resume` and `offered`: change the remembered release, tell the daemon, say what is so."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plugin.admin.client import ask
from plugin.base.errors import (
    EXIT_FAILURE,
    EXIT_NOT_AS_WANTED,
    EXIT_OK,
    AdminError,
    ConfigError,
    DriverNotReady,
    NoAnswer,
    NodeDaemonError,
)
from plugin.changes.driver_change.release.record import Release, parse_gpu, remember_gpus, utc
from plugin.changes.driver_change.release.store import BOOT_ID, forget_release, read_release, sole_change, write_release
from plugin.changes.gpu_settings.store import has_settings
from plugin.cli.holders import PROC, lines_of, list_now, problems_of, to_json
from plugin.cli.show import take_inventory
from plugin.dra.partitions import without_partitions
from plugin.dra.store import read_partitions
from plugin.driver.cuda_probe.runner import find_libcuda
from plugin.driver.nvml.loading.root import HOST
from plugin.driver.topology.sysfs import has_gpu
from plugin.settings.load import Invocation, load
from plugin.settings.node_config import BOTH, DEVICE_PLUGIN, DRA, find_config
from plugin.system.bounded import call_within

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import SimpleNamespace

    from plugin.devices.inventory import Inventory
    from plugin.driver.gpu_state import GpuState
    from plugin.holdings.holders.scan import Holder
    from plugin.settings.node_config import NodeConfig

    States = Callable[[Path, float], Mapping[str, GpuState]]

_STATUS_S = 5.0
_STATES_S = 5.0
_AGAIN_S = 0.5
_SLACK_S = 5.0  # the daemon ends its waiting before we end ours
NO_DAEMON = "the daemon does not run"


class _Deadline:
    """What is left of the time for a verb; never nothing, as every step is tried."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        return max(1.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end


def _look(config: NodeConfig, deadline: _Deadline, change: str) -> dict[str, Any] | None:
    """Have the daemon follow the file; asked once more when it ended in the middle: it may run again."""
    try:
        return _ask_to_look(config, deadline.left_s()) or _ask_to_look(config, deadline.left_s())
    except AdminError as error:
        raise AdminError(error.message, f"{change}, and the daemon follows when it can; {error.hint}") from error


def _ask_to_look(config: NodeConfig, timeout_s: float) -> dict[str, Any] | None:
    return ask(config.admin_socket, {"verb": "look", "timeout_s": timeout_s}, timeout_s + _SLACK_S)


def _ask_states(driver_root: Path, timeout_s: float) -> Mapping[str, GpuState]:
    from plugin.changes.driver_change.verification.inspection import read_states

    return read_states(driver_root, timeout_s)


def _release_of_now(
    config: NodeConfig, driver_root: Path, timeout_s: float, states: States
) -> tuple[Release, list[str]]:
    """Return what is to be remembered, and what could not be learnt."""
    release, problems = _gpus_of_now(config, timeout_s)
    release = replace(release, libcuda=find_libcuda(driver_root) is not None)
    if problems or not release.gpus:
        return release, problems  # a driver that does not answer is not asked twice
    try:
        found = states(driver_root, min(timeout_s, _STATES_S))
        return replace(release, states=without_partitions(found, read_partitions(config.state_folder))), []
    except (DriverNotReady, NoAnswer) as error:
        return release, [f"the current mig, fabric and memory are not known: {error.message}"]


def _gpus_of_now(config: NodeConfig, timeout_s: float) -> tuple[Release, list[str]]:
    """Ask the daemon, or else the driver itself."""
    since, boot_id = utc(time.time()), BOOT_ID.read_text().strip()
    try:
        status = ask(config.admin_socket, {"verb": "status"}, _STATUS_S)
        if status is not None:
            gpus = tuple(map(parse_gpu, status["gpus"]))
            return Release(since, boot_id, str(status["driverVersion"]), gpus), []
        inventory = call_within(timeout_s, lambda: _inventory(config), "nvml")
    except (NodeDaemonError, LookupError, ValueError) as error:
        problem = error.message if isinstance(error, NodeDaemonError) else f"the daemon's answer: {error}"
        return Release(since, boot_id), [f"the current GPUs are not known: {problem}"]
    return Release(since, boot_id, inventory.driver_version, remember_gpus(inventory)), []


def _inventory(config: NodeConfig) -> Inventory:
    from plugin.driver.nvml.loading.library import NvmlSource

    return take_inventory(NvmlSource(), config.host_tree)


def _driver_root(config_path: Path | None) -> Path:
    """Return where the driver is installed; settings that cannot be read do not keep a node from its release."""
    try:
        return load(Invocation(config_path, {}, os.environ)).config.settings.driver_root
    except ConfigError:
        return HOST


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    act = {"release": release_node, "resume": resume_node, "offered": show_offered}[arguments.verb]
    return act(arguments.config, timeout_s=arguments.timeout, as_json=arguments.json)


def release_node(
    config_path: Path | None, *, timeout_s: float, as_json: bool, proc: Path = PROC, states: States = _ask_states
) -> int:
    """Release the node; returns 0 when nobody holds a GPU, 3 when somebody does."""
    config, deadline = find_config(config_path), _Deadline(timeout_s)
    problems: list[str] = []
    with sole_change(config.state_folder, deadline.left_s()):
        release = read_release(config.state_folder)
        if release is None or release.problem:
            release, problems = _release_of_now(config, _driver_root(config_path), deadline.left_s(), states)
            write_release(config.state_folder, release)
        answer = _look(config, deadline, "the release is remembered")
    if answer is None:
        problems.append(NO_DAEMON)
    elif not answer.get("released"):
        hint = f"does it use {config.state_folder}, too?"
        raise AdminError(f"{config.admin_socket}: the daemon did not follow", hint)
    else:
        problems += map(str, answer.get("problems", []))
    listing = list_now(config.sys_root, proc)
    problems += problems_of(listing)
    _print_release(release, listing.holders, problems, as_json=as_json)
    return EXIT_NOT_AS_WANTED if listing.holders else EXIT_OK


def _print_release(release: Release, holders: Sequence[Holder], problems: list[str], *, as_json: bool) -> None:
    if as_json:
        document = {"released": True, "since": release.since, "holders": to_json(holders)}
        print(json.dumps({**document, "problems": problems}, indent=2))
        return
    print(f"{release.describe()}; {'still held:' if holders else 'nobody holds a GPU'}")
    for line in lines_of(holders, problems):
        print(line)


def _set_gpus(config: NodeConfig, timeout_s: float) -> list[str]:
    if not has_settings(config.state_folder):
        return []
    from plugin.cli.gpu_settings import notes_of_settings

    return notes_of_settings(config, timeout_s)


def resume_node(config_path: Path | None, *, timeout_s: float, as_json: bool) -> int:
    """Forget the release and wait until the GPUs are offered; returns 1 when a daemon runs and offers none."""
    config, deadline = find_config(config_path), _Deadline(timeout_s)
    with sole_change(config.state_folder, deadline.left_s()):
        unset = _set_gpus(config, deadline.left_s())  # before anybody is given one: another driver knows no settings
        was_released = forget_release(config.state_folder)
        answer = _look(config, deadline, "the release is forgotten")
    if answer is None:
        offered, problems, code = 0, [f"{NO_DAEMON}: GPUs are offered when it starts"], EXIT_OK
    else:
        offered, problems = int(answer.get("offered", 0)), list(map(str, answer.get("problems", [])))
        code = EXIT_OK if offered or answer.get("held") else EXIT_FAILURE
    problems = [*unset, *problems]
    if as_json:
        print(json.dumps({"offered": offered, "problems": problems}, indent=2))
    else:
        print(f"{'resumed' if was_released else 'was not released'}; {offered} GPUs are offered")
        for problem in problems:
            print(f"note: {problem}")
    return code


def show_offered(config_path: Path | None, *, timeout_s: float, as_json: bool) -> int:
    """Wait until pods can be given the GPUs as node.json says, by whichever interface; returns 3 where they cannot.

    GPUs that pods hold through the other interface, unhealthy ones and a node without GPUs are no failure.
    """
    config, deadline = load(Invocation(config_path, {}, os.environ)).config, _Deadline(timeout_s)
    while True:
        answer = _ask_to_look(config, deadline.left_s()) or {}
        problems = _why_not_offered(config, answer)
        if not problems or deadline.is_over:
            break
        time.sleep(_AGAIN_S)
    offered, held = int(answer.get("offered", 0)), int(answer.get("held", 0))
    interfaces = _interfaces(config, answer)
    if as_json:
        document = {"interface": config.interface, "offered": offered, "held": held, "interfaces": interfaces}
        print(json.dumps({**document, "problems": problems}, indent=2))
    else:
        for name, each in interfaces.items():
            print(
                f"{each['offered']} GPUs are offered by {name}; {each['held']} wait for pods that have them otherwise"
            )
        for problem in problems:
            print(f"note: {problem}")
    return EXIT_NOT_AS_WANTED if problems else EXIT_OK


def _why_not_offered(config: NodeConfig, answer: Mapping[str, Any]) -> list[str]:
    if not answer:
        return [NO_DAEMON]
    if answer.get("released"):
        return ["the GPUs are out of service: grapnel-node resume"]
    if answer.get("interface") != config.interface:
        return [f"the daemon gives GPUs by {answer.get('interface')}, and node.json says {config.interface}"]
    if list(answer.get("claims", ())) != list(config.claims):
        return ["the daemon divides the GPUs as node.json had it before"]
    gpus = list(map(parse_gpu, answer.get("gpus", [])))
    if not gpus and not has_gpu(config.sys_root):
        return []
    if waits := list(map(str, answer.get("waits", []))):
        return waits
    by_claims = frozenset(answer.get("byClaims", ()))
    healthy = {
        name: sum(
            not gpu.unhealthy and (config.interface != BOTH or (gpu.uuid in by_claims) == (name == DRA)) for gpu in gpus
        )
        for name in (DEVICE_PLUGIN, DRA)
    }
    return [
        f"no GPU is offered by {name}"
        for name, each in _interfaces(config, answer).items()
        if healthy[name] and not (each["offered"] or each["held"])
    ]


def _interfaces(config: NodeConfig, answer: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    """Return the offered and the withheld GPUs of each interface; an older daemon reports only the totals."""
    counts = {key: int(answer.get(key, 0)) for key in ("offered", "held")}
    return answer.get("interfaces") or {config.interface: counts}
