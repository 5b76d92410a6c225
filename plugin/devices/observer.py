"""Keeps the inventory fresh: asks the driver at a steady pace, in a thread of its own.

NVML calls can block for seconds or for ever; here they block nothing else. Not here: what happens
with a new inventory.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import DriverNotReady
from plugin.devices.inventory import Inventory, NodeTree, next_inventory, without_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.devices.health.model import Transition
    from plugin.driver.reading import Reading, XidEvent
    from plugin.driver.snapshot import GpuSource, Snapshot

_TRUST_S = 60.0  # for a session whose predecessor went deaf


@dataclass(frozen=True)
class Observation:
    """An inventory, why the driver could not be asked (empty: it was), and how health changed."""

    inventory: Inventory
    waiting_for: str = ""
    hint: str = ""
    transitions: tuple[Transition, ...] = ()

    @property
    def has_driver(self) -> bool:
        """Whether a driver has answered so far."""
        return bool(self.inventory.driver_version)


@dataclass(frozen=True)
class Pace:
    """How often to look: while the driver answers, while it or a GPU is missing, and at the condition of the GPUs."""

    refresh_s: float
    retry_s: float
    health_s: float = 30.0


class Health(Protocol):
    """Who judges what is seen: `plugin.devices.health.keeper`."""

    @property
    def is_pressing(self) -> bool:
        """Whether the GPUs are to be read at every look."""

    def watch_begins(self) -> None:
        """Note that events are received from now on."""

    def watch_ends(self, *, lost_events: bool = False) -> None:
        """Note that no events are received for a while, or were lost already."""

    def hear(self, events: tuple[XidEvent, ...]) -> None:
        """Keep events until the next look is judged, whoever looks then."""

    def judge(self, inventory: Inventory, readings: Mapping[str, Reading]) -> tuple[Inventory, tuple[Transition, ...]]:
        """Return the inventory with what health says of it, and what changed."""


class NoHealth:
    """Judges nothing: what answers is healthy."""

    is_pressing = False

    def watch_begins(self) -> None:
        """Nothing is noted."""

    def watch_ends(self, *, lost_events: bool = False) -> None:
        """Nothing is noted."""

    def hear(self, events: tuple[XidEvent, ...]) -> None:
        """Nothing is kept."""

    def judge(self, inventory: Inventory, readings: Mapping[str, Reading]) -> tuple[Inventory, tuple[Transition, ...]]:
        """Return the inventory as it is."""
        del readings
        return inventory, ()


def snapshot_of_gpus(source: GpuSource) -> Snapshot:
    """Return a snapshot with at least one GPU; a driver without any is as good as none."""
    snapshot = source.snapshot()
    if not snapshot.gpus and not snapshot.lost:
        raise DriverNotReady("nvml lists no gpu", "is a GPU in this machine? see: lspci -d 10de:")
    return snapshot


@dataclasses.dataclass
class Observer:
    """One look at a time. `clock` is monotonic seconds."""

    source: GpuSource
    tree: NodeTree
    pace: Pace
    clock: Callable[[], float] = time.monotonic
    inventory: Inventory = dataclasses.field(default_factory=Inventory)  # what is known already, not judged
    health: Health = dataclasses.field(default_factory=NoHealth)
    happened: Callable[[], None] = lambda: None  # called in any thread: it is time to look
    _is_open: bool = False
    _opened_at: float = 0.0
    _nodes: frozenset[str] = frozenset()  # the GPUs' device nodes when the session began
    _read_at: float | None = None
    _is_deaf: bool = False
    _unheard: tuple[str, float] = ("", 0.0)  # why events were not heard, and when it was so last

    def observe(self) -> Observation:
        """Ask once; an absent driver is an observation, not an error."""
        if self._is_open and self._is_reopening_due():
            self.close()
        try:
            self._open()
            self._take_events()
            snapshot = snapshot_of_gpus(self.source)
            readings = self._read_health()
        except DriverNotReady as error:
            self.close()
            self.inventory = without_driver(self.inventory, error.message)
            return Observation(self.inventory, error.message, error.hint)
        self.inventory = next_inventory(self.inventory, snapshot, self.tree)
        judged, transitions = self.health.judge(self.inventory, readings)
        return Observation(self._with_unheard(judged), transitions=transitions)

    def _with_unheard(self, inventory: Inventory) -> Inventory:
        """Say so while XID errors are not heard; a new session is not trusted before some time."""
        problem, at = self._unheard
        if not problem or self.clock() - at > _TRUST_S:
            return inventory
        return dataclasses.replace(
            inventory, findings=(*inventory.findings, ("xid events", f"xid errors are not heard: {problem}"))
        )

    def close(self) -> None:
        """Let go of the driver."""
        if self._is_open:
            self._is_open = False
            self.source.close()
            self._take_events()  # until the very end of the session
            if not self._is_deaf:
                self.health.watch_ends()
            self._is_deaf = False

    def _open(self) -> None:
        if not self._is_open:
            self.source.open()
            self._is_open = True
            self._opened_at = self.clock()
            self._nodes = self.tree.gpu_nodes()
            self._read_at = None
            self.health.watch_begins()
            self.source.watch_events(self.happened)

    def _take_events(self) -> None:
        """Take what has happened; when nothing is heard any more, the session is reopened at the next observation."""
        try:
            self.health.hear(self.source.take_events())
        except DriverNotReady as error:
            self._is_deaf = True
            self._unheard = (error.message, self.clock())
            self.health.watch_ends(lost_events=True)

    def _read_health(self) -> Mapping[str, Reading]:
        """Ask the GPUs for their condition, when it is time or something has happened."""
        is_due = self._read_at is None or self.clock() - self._read_at >= self.pace.health_s
        if not (is_due or self.health.is_pressing):
            return {}
        self._read_at = self.clock()
        return self.source.read_health()

    def _is_reopening_due(self) -> bool:
        """NVML lists GPUs when a session starts: one that came back or is new is only seen by a new session.

        A new one has a device node that was not there. A session that hears no events may do so when it is begun again;
        where that is deaf as well it is not begun at every look.
        """
        if self.clock() - self._opened_at < self.pace.retry_s:
            return False
        is_incomplete = self._is_deaf or any(not device.is_healthy for device in self.inventory.devices)
        return is_incomplete or self.tree.gpu_nodes() != self._nodes


class ObserverThread:
    """Runs one observer at a time until stopped, and hands every observation and its observer to `publish`.

    Without an observer it has let go of the driver, says so to `released`, and sleeps. An exception that is
    no observation is a bug: it ends the thread and goes to `crashed`. All three are called in the thread.
    """

    def __init__(
        self,
        publish: Callable[[Observer, Observation], None],
        released: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._publish = publish
        self._released = released
        self._crashed = crashed
        self._wake = threading.Event()
        self._is_stopping = False
        self._observer: Observer | None = None
        self._wanted: Observer | None = None
        self._questions: deque[Callable[[], None]] = deque()  # its methods are atomic
        # A daemon thread: a driver that hangs for ever must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def replace_observer(self, observer: Observer | None) -> None:
        """Replace the observer; the old one is closed in the thread first, and with None the driver is let go.

        While a call of the driver hangs nothing is replaced: it happens when the driver answers.
        """
        self._wanted = observer
        self._wake.set()

    def ask(self, question: Callable[[], None]) -> None:
        """Look before it is time, and call a question in the thread then: the driver's session is open, if it answers.

        Whoever asks puts the next question when this one has been called, so that few wait while a call of the driver
        hangs, and while nobody looks.
        """
        self._questions.append(question)
        self._wake.set()

    def observe_now(self) -> None:
        """Look before it is time."""
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Close the driver session; returns False if it did not end in time."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._observe_until_stopped()
        except Exception as error:  # noqa: BLE001 - whatever it is, the daemon must hear of it
            self._crashed(error)

    def _observe_until_stopped(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            self._change_observer()
            observer = self._observer
            if observer is None:
                self._released()
                self._wake.wait()
            else:
                observation = observer.observe()
                self._publish(observer, observation)
                self._answer()
                self._wake.wait(observer.pace.retry_s if observation.waiting_for else observer.pace.refresh_s)
        self._wanted = None
        self._change_observer()

    def _answer(self) -> None:
        while self._questions:
            self._questions.popleft()()

    def _change_observer(self) -> None:
        wanted = self._wanted
        if wanted is not self._observer:
            if self._observer is not None:
                self._observer.close()
            self._observer = wanted
