"""A driver that lies: pynvml's calls, in front of the simulated library, with wrong answers mixed in by a seed.

Used in a process of its own (`python -m tests.plugin.nvml.liar FOLDER SEED ROUNDS`), which looks at the node as the
daemon does, round after round, and prints what no look may end with. Everything that an answer reaches is gone through:
inventory, health and its file, offers, the table of answers, metrics, the hook's facts, a remembered release.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml

from plugin.base.log import Logger
from plugin.changes.driver_change.release.record import Release, parse_release, remember_gpus, render_release
from plugin.daemon.hook_facts import render_facts
from plugin.devices.allocation.preference.choice import prefer
from plugin.devices.health.keeper import Clock, HealthKeeper
from plugin.devices.health.store import read_health
from plugin.devices.observer import Observation, Observer, Pace
from plugin.devices.resources import plan_offers
from plugin.driver.nvml.loading.library import NvmlSource
from plugin.driver.nvml.telemetry import TelemetryReader
from plugin.kubelet.device_plugin.messages import device_list
from plugin.kubelet.rpc.codec import encode
from plugin.kubelet.rpc.status import encode_detail
from plugin.publication.metrics.counters import Counters
from plugin.publication.metrics.devices import Attribution, gpu_families, health_family
from plugin.publication.metrics.exposition import render
from plugin.settings.node_config import NodeConfig
from tests.plugin.fakes import DictTree, whole_table

if TYPE_CHECKING:
    from collections.abc import Callable

CODES = (1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 18, 19, 20, 23, 25, 999, 4711)
TEXTS = ("", "GPU-x", "MIG-1", "a\nb", 'q"\\', "\udcff", "ü" * 40, "GPU-" + "0" * 200, "0000:00:00.0", "zz:zz", "\0")
NUMBERS = (0, 1, 257, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)  # what C has room for
SURPRISES = (TypeError, ValueError, AttributeError, OSError, LookupError)
SOURCES = Path(__file__).parents[4] / "plugin/driver/nvml"


class Pci(NamedTuple):
    """What a call for a PCI address returns."""

    busId: str  # noqa: N815 - NVML's name


class Liar:
    """Answers a call of pynvml now and then with something else than the library does."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.rate = 0.0
        self.only = ""  # the one function that lies, or all of them

    def spoil(self, name: str) -> None:
        """Put a lie in front of one function."""
        real: Callable[..., object] = getattr(pynvml, name)

        def call(*arguments: object, **named: object) -> object:
            answer = real(*arguments, **named)
            is_honest = self._dice.random() >= self.rate or self.only not in {"", name}
            return answer if is_honest else self._lie(answer)

        setattr(pynvml, name, call)

    def _lie(self, answer: object) -> object:
        kind = self._dice.choice(("error", "error", "no text", "surprise", "value", "value"))
        if kind == "error":
            raise pynvml.NVMLError(self._dice.choice(CODES))
        if kind == "no text":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        if kind == "surprise":
            raise self._dice.choice(SURPRISES)("not what was promised")
        return self._other(answer)

    def _other(self, answer: Any) -> object:
        if isinstance(answer, str):
            return self._dice.choice(TEXTS)
        if isinstance(answer, int):
            return self._dice.choice(NUMBERS)
        if isinstance(answer, (list, tuple)):
            kept = answer if self._dice.random() < 0.7 else ()
            return type(answer)(self._other(each) for each in kept)
        return Pci(self._dice.choice(TEXTS)) if hasattr(answer, "busId") else answer


def functions() -> list[str]:
    """Return every function of pynvml that the daemon's source names."""
    text = "".join(path.read_text() for path in SOURCES.glob("*.py"))
    names = set(re.findall(r"\bnvml(?:Device|System|Event|Gpm|Init)\w*", text))
    return sorted(name for name in names if callable(getattr(pynvml, name, None)))


def follow(observation: Observation, counters: Counters) -> None:
    """Do with an observation what the daemon does."""
    inventory = observation.inventory
    counters.observed(inventory, inventory)
    for change in observation.transitions:
        if change.new_xid is not None:
            counters.xid(change.uuid, change.new_xid)
    table = whole_table(inventory)
    for resource in plan_offers(inventory, NodeConfig().offer_rules).resources.values():
        offers = resource.offers
        encode(device_list(offers))
        if len(offers) > 1:
            prefer(table, [offer.device_id for offer in offers], [], 2)
    for entry in table.entries.values():
        encode_detail(entry.unhealthy)
    render_facts(inventory).encode()
    gpus = remember_gpus(inventory, observation.waiting_for)
    release = Release("2026-09-01T10:00:00Z", driver_version=inventory.driver_version, gpus=gpus)
    if parse_release(render_release(release).encode()).gpus != gpus:
        raise AssertionError("a release remembers other gpus than it was given")


def look(observer: Observer, reader: TelemetryReader, counters: Counters, folder: Path) -> None:
    """Look once, and follow what was seen to where it ends."""
    observation = observer.observe()
    follow(observation, counters)
    telemetry = (reader.read() if not observation.waiting_for else None) or ()
    inventory = observation.inventory
    render((*gpu_families(inventory, telemetry, Attribution({}, {}, {}), "host"), health_family(inventory, "host")))
    read_health(folder)


def main(folder: Path, seed: int, rounds: int) -> None:
    """Look so many times; each round another function lies, or all of them. Prints what went wrong, then the GPUs."""
    dice, counters, ticks = random.Random(seed), Counters(), itertools.count()
    liar, names = Liar(dice), functions()
    wait = pynvml.nvmlEventSetWait_v2
    pynvml.nvmlEventSetWait_v2 = lambda event_set, wait_ms: wait(event_set, min(wait_ms, 5))  # ends of sessions wait
    for name in names:
        liar.spoil(name)
    keeper = HealthKeeper(folder / "state", Clock(folder / "module"), Logger())
    reader = TelemetryReader(clock=lambda: float(next(ticks)))
    source = NvmlSource(follower=reader)
    observer = Observer(source, DictTree(), Pace(5, 15, 0), clock=lambda: float(next(ticks)), health=keeper)
    for _ in range(rounds):
        liar.only = dice.choice(("", *names, *names))
        liar.rate = dice.choice((0.3, 1.0) if liar.only else (0.02, 0.2, 1.0))
        try:
            look(observer, reader, counters, folder / "state")
        except Exception:  # noqa: BLE001 - that there is none is what is tested
            sys.stdout.write(f"{liar.only or 'all'}: {traceback.format_exc(limit=-4)}\n")
    liar.rate = 0.0
    observer.close()
    uuids = sorted(device.gpu.uuid for device in observer.observe().inventory.devices)
    sys.stdout.write(f"{len(names)} functions, {' '.join(uuids)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
