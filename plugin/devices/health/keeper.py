"""Keeps the health of this node's GPUs over looks, sessions and restarts: the shell around `judgement`.

Used by the driver's thread alone. A file that cannot be written is written at the next look: until then the state is
in memory, and the file as it was.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.errors import HealthError, os_reason
from plugin.devices.health.judgement import next_health, why_unhealthy
from plugin.devices.health.model import (
    FindingChange,
    GpuHealth,
    GpuInput,
    HealthInput,
    Moment,
    NodeHealth,
    Policy,
    SliceInput,
)
from plugin.devices.health.store import health_mark, read_health, read_verdicts, set_damaged_aside, write_health

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.devices.health.model import Transition, Verdict
    from plugin.devices.inventory import Device, Inventory
    from plugin.driver.reading import Reading, XidEvent

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GAP_S = 2.0  # a session that is reopened within this time counts as one without a gap


class Clock(NamedTuple):
    """Where a moment comes from. `module` is the folder of the driver's kernel module in sysfs."""

    module: Path
    boot_id: Path = _BOOT_ID
    uptime_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    utc: Callable[[], str] = lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def moment(self, watched_since_s: float) -> Moment:
        """Return the current moment. The inode of a folder in sysfs is another one after each load of the module."""
        try:
            boot_id = self.boot_id.read_text().strip()
        except OSError:
            boot_id = ""
        try:
            module_id = str(self.module.stat().st_ino)
        except OSError:
            module_id = ""
        return Moment(boot_id, module_id, self.uptime_s(), self.utc(), watched_since_s)


def health_input(
    inventory: Inventory, readings: Mapping[str, Reading], events: tuple[XidEvent, ...], moment: Moment
) -> HealthInput:
    """Return the look of an inventory: every known GPU, and the MIG devices of each."""
    gpus = tuple(
        GpuInput(device.gpu.uuid, readings.get(device.gpu.uuid), device.unhealthy if device.is_lost else "")
        for device in inventory.devices
    )
    parents = {mig.uuid: device.gpu.uuid for device in inventory.devices for mig in device.gpu.mig}
    slices = tuple(
        SliceInput(mig.uuid, device.gpu.uuid, mig.gpu_instance, mig.compute_instance)
        for device in inventory.devices
        for mig in device.gpu.mig
    )
    return HealthInput(moment, gpus, events, parents=parents, slices=slices)


class HealthKeeper:
    """The current state, from the files at first use. `policy` may be replaced at any time."""

    def __init__(self, folder: Path, clock: Clock, logger: Logger, policy: Policy | None = None) -> None:
        self.folder = folder
        self.policy = policy or Policy()
        self._clock = clock
        self._log = logger
        self._state: NodeHealth | None = None
        self._saved: NodeHealth | None = None  # as the file is; None: not as the state is
        self._mark: tuple[int, ...] | None = None  # of that file: it may be removed
        self._verdicts: dict[str, Verdict] | None = None
        self._heard: tuple[XidEvent, ...] = ()
        self._watched_since_s = 0.0
        self._ended_s: float | None = None

    def watch_begins(self) -> None:
        """Note that events are received from now on."""
        now = self._clock.uptime_s()
        if self._ended_s is None or now - self._ended_s > _GAP_S:
            self._watched_since_s = now
        self._ended_s = None

    def watch_ends(self, *, lost_events: bool = False) -> None:
        """Note that no events are received for a while, or were lost already."""
        self._ended_s = self._clock.uptime_s() - (_GAP_S * 2 if lost_events else 0)

    def hear(self, events: tuple[XidEvent, ...]) -> None:
        """Keep events, each once, until the next look is judged: whoever heard them may be gone by then."""
        self._heard = tuple(dict.fromkeys((*self._heard, *events)))

    @property
    def is_pressing(self) -> bool:
        """Whether evidence is awaited, or something happened: readings are worth their time then."""
        if self._heard:
            return True
        gpus = () if self._state is None else self._state.gpus.values()
        return any(finding.kind.condemns for gpu in gpus for finding in gpu.findings)

    def judge(self, inventory: Inventory, readings: Mapping[str, Reading]) -> tuple[Inventory, tuple[Transition, ...]]:
        """Return the inventory with what health says of it, and what changed; tells each change to the journal.

        A device that the inventory has a reason against already keeps it: a verdict makes no device node.
        """
        state = self._load()
        if self._is_worth_saving():
            self._save()
        events, self._heard = self._heard, ()
        look = health_input(inventory, readings, events, self._clock.moment(self._watched_since_s))
        look = look._replace(verdicts=self._read_verdicts(state))
        self._state, changes = next_health(state, look, self.policy)
        if changes:
            self._save()
        for change in changes:
            self._tell(change)
        return replace(inventory, devices=tuple(map(self._judged, inventory.devices))), changes

    def _judged(self, device: Device) -> Device:
        slices = tuple(replace(each, problem=each.problem or self._why(each.facts.uuid)) for each in device.slices)
        return replace(device, unhealthy=device.unhealthy or self._why(device.gpu.uuid), slices=slices)

    def _why(self, uuid: str) -> str:
        state = self._state or NodeHealth()
        return why_unhealthy(state.gpus.get(uuid, GpuHealth()))

    def _load(self) -> NodeHealth:
        if self._state is None:
            try:
                self._state = self._saved = read_health(self.folder)
            except HealthError as error:
                self._log.warning(error.message, hint="health starts from nothing; the file is kept under another name")
                self._state = NodeHealth()
                self._set_aside()
            self._mark = health_mark(self.folder)
        return self._state

    def _set_aside(self) -> None:
        try:
            set_damaged_aside(self.folder)
        except OSError as error:
            self._log.warning(f"{self.folder}: the file stays: {os_reason(error)}")

    def _read_verdicts(self, state: NodeHealth) -> Mapping[str, Verdict]:
        """Return what people decided; while their file cannot be understood, what it said when it could."""
        try:
            self._verdicts = read_verdicts(self.folder)
        except HealthError as error:
            self._log.standing("verdicts", error.message, hint="verdicts stay as they were")
            if self._verdicts is None:
                self._verdicts = {uuid: gpu.verdict for uuid, gpu in state.gpus.items() if gpu.verdict is not None}
        else:
            self._log.standing("verdicts")
        return self._verdicts

    def _save(self) -> None:
        """Write what a restart must know: a change before anybody hears of it, the rest with the next look."""
        try:
            write_health(self.folder, self._state or NodeHealth())
        except OSError as error:
            problem = f"{self.folder}: health cannot be remembered: {os_reason(error)}"
            self._log.standing("health", problem, hint="it is tried again at every look")
            self._saved = None
        else:
            self._log.standing("health")
            self._saved, self._mark = self._state, health_mark(self.folder)

    def _is_worth_saving(self) -> bool:
        """Whether the file lacks something; what grows with every look is written along, not for its own sake."""
        if self._saved is None or self._mark != health_mark(self.folder):
            return True
        return _lasting(self._saved) != _lasting(self._state or NodeHealth())

    def _tell(self, change: Transition) -> None:
        if change.change is FindingChange.STRAY:
            self._log.standing(f"stray {change.cause}", f"{change.cause}: {change.reason}")
            return
        warns = change.change is FindingChange.OPENED and change.kind.condemns
        say = self._log.warning if warns else self._log.info
        fields = {"class": change.kind.word, "reason": change.reason}
        say(f"health {change.change.value}", device=change.uuid, cause=change.cause, **fields)


def _lasting(state: NodeHealth) -> dict[str, tuple[object, ...]]:
    return {
        uuid: (gpu.resets, gpu.boot_id, gpu.module_id, gpu.links_best, gpu.counters.volatile_uncorrected)
        for uuid, gpu in state.gpus.items()
    }
