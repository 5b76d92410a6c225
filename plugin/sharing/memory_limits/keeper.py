"""Sets the limits that the hook asks for, remembers which there are, and reads what containers use of them.

In the event loop; the driver is called in its own thread. A limit ends with its control group, so nothing has to be
taken away, and what a killed daemon knew is lost only to the page of metrics.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from plugin.base.errors import LimitError, LimitUnsupported, NoAnswer, NodeDaemonError
from plugin.holdings.holders.cgroup import parse_cgroup
from plugin.settings.node_config import LIMITS_OFF, LIMITS_REQUIRED
from plugin.sharing.memory_limits.request import check_group, parse_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.driver.telemetry import GroupMemory
    from plugin.sharing.memory_limits.ledger import MemoryLedger
    from plugin.sharing.memory_limits.request import LimitRequest
    from plugin.system.thread_calls import ThreadCalls

DRIVER_S = 3.0  # the hook waits longer
SET, NOT_SET, NOT_NEEDED = "set", "not set", "not needed"
_UNKNOWN = "no container was given this memory"
_UNKNOWN_HINT = "the kubelet makes the container again: see grapnel-node explain"


class LimitDriver(Protocol):
    """The driver's limits, called in its thread; raises LimitError."""

    def set_limit(self, uuid: str, group: str, limit_bytes: int) -> None:
        """Set the limit of a group."""

    def read_group(self, uuid: str, group: str) -> GroupMemory:
        """Return limit and use of a group."""


class Nvml:
    """The driver by NVML."""

    def __init__(self) -> None:
        from plugin.driver.nvml.changes.memory_limits import read_group, set_limit  # noqa: PLC0415 - tests have another driver

        self.set_limit, self.read_group = set_limit, read_group


@dataclass(frozen=True)
class LimitedGroup:
    """A container's group, by its full path, and the bytes of each GPU that it may have."""

    path: str
    memory: Mapping[str, int]


ROOT = Path("/sys/fs/cgroup")  # where NVIDIA's driver wants it
_PROCESSES = "cgroup.procs"
_CONTROLLERS = "cgroup.controllers"  # every group of v2 has it, and none of v1


def full_path(root: Path, group: str) -> str:
    """Return the full path of a group that is there; raises LimitError. `group` has been checked (`request`)."""
    if not (root / _CONTROLLERS).exists():
        raise LimitError(f"{root} is not cgroup v2", "memory limits take cgroup v2 alone (unified)")
    path = f"{root}{group}"
    # Links and mounts inside of the hierarchy would lead elsewhere; the kernel makes none.
    if os.path.realpath(path) != path or not Path(path, _PROCESSES).exists():
        raise LimitError(f"{path} is not there", "does the daemon see the node's control groups?")
    return path


def is_there(path: str) -> bool:
    """Whether a group still exists."""
    return Path(path, _PROCESSES).exists()


class LimitKeeper:
    """`policy` is the node's `memoryLimits` at the moment, which counts, whatever it was at the allocation."""

    def __init__(
        self,
        *,
        allocations: MemoryLedger,
        calls: ThreadCalls,
        policy: Callable[[], str],
        logger: Logger,
        driver: LimitDriver | None = None,
        root: Path = ROOT,
        driver_s: float = DRIVER_S,
    ) -> None:
        self._allocations = allocations
        self._calls = calls
        self._policy = policy
        self._log = logger
        self._driver = driver or Nvml()
        self._root = root
        self._driver_s = driver_s
        self._groups: dict[str, LimitedGroup] = {}  # by path

    @property
    def groups(self) -> tuple[LimitedGroup, ...]:
        """The groups with limits that this daemon has set and that are still there."""
        self._groups = {path: group for path, group in self._groups.items() if is_there(path)}
        return tuple(self._groups.values())

    @property
    def containers(self) -> frozenset[str]:
        """The ids of the containers that the driver keeps to a limit."""
        return frozenset(filter(None, (parse_cgroup(f"0::{path}").container_id for path in self._groups)))

    async def answer(self, content: dict[str, Any]) -> dict[str, Any]:
        """Answer the request `limit`; a wrong one gets an `error`."""
        try:
            request = parse_request(content)
        except ValueError as error:
            return {"error": f"limit: {error}"}
        policy = self._policy()
        if policy == LIMITS_OFF:
            return {"result": NOT_NEEDED, "required": False}
        is_required = policy == LIMITS_REQUIRED
        try:
            limits = await self._limit(request)
        except NodeDaemonError as error:
            self._tell(request, error, is_required=is_required)
            return {"result": NOT_SET, "required": is_required, "reason": error.message, "hint": error.hint}
        self._log.standing("memory limits")
        return {"result": SET, "required": is_required, "limits": dict(limits)}

    async def read(self) -> tuple[tuple[LimitedGroup, Mapping[str, GroupMemory]], ...]:
        """Return what the driver says of the groups, by the UUIDs of their GPUs; some may be gone."""
        groups = self.groups
        if not groups:
            return ()
        try:
            return await self._calls.call(lambda: tuple(self._read(groups)), self._driver_s, "the driver")
        except NoAnswer:
            return ()

    def _read(self, groups: tuple[LimitedGroup, ...]) -> list[tuple[LimitedGroup, Mapping[str, GroupMemory]]]:
        found: list[tuple[LimitedGroup, Mapping[str, GroupMemory]]] = []
        for group in groups:
            try:
                found.append((group, {uuid: self._driver.read_group(uuid, group.path) for uuid in group.memory}))
            except LimitError:
                continue  # a container that ended meanwhile
        return found

    async def _limit(self, request: LimitRequest) -> Mapping[str, int]:
        """Set the limits of one container; raises NodeDaemonError."""
        check_group(request)
        memory = await self._allocations.find(request.given.memory)
        if memory is None:
            raise LimitError(_UNKNOWN, _UNKNOWN_HINT)
        path = full_path(self._root, request.group)
        await self._calls.call(lambda: self._set(path, memory), self._driver_s, "the driver")
        known = {each.path: each.memory for each in self.groups}  # without those that have ended meanwhile
        # A container with several claims asks for each of them.
        self._groups[path] = LimitedGroup(path, {**known.get(path, {}), **memory})
        self._log.info("memory limit", container=request.container_id[:12], **_by_uuid(memory))
        return memory

    def _set(self, path: str, memory: Mapping[str, int]) -> None:
        for uuid, limit_bytes in memory.items():
            self._driver.set_limit(uuid, path, limit_bytes)

    def _tell(self, request: LimitRequest, error: NodeDaemonError, *, is_required: bool) -> None:
        """Say once what is so for every container of the node, and each time what is one container's own trouble."""
        if isinstance(error, LimitUnsupported) and not is_required:
            self._log.standing("memory limits", error.message, hint=error.hint)
            return
        what = "a container was refused: no memory limit" if is_required else "a container has no memory limit"
        self._log.warning(what, container=request.container_id[:12], problem=error.message, hint=error.hint)


def _by_uuid(memory: Mapping[str, int]) -> dict[str, str]:
    return {"limits": ",".join(f"{uuid}={size}" for uuid, size in memory.items())}
