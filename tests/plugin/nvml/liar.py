"""A driver that lies: pynvml's calls, in front of the simulated library, with wrong answers mixed in by a seed.

Used in a process of its own (`python -m tests.plugin.nvml.liar FOLDER SEED ROUNDS`), which looks at the node as the
daemon does, round after round, and tells what no look may end with. Everything that an answer reaches is gone through:
inventory, health and its file, offers, the table of answers, metrics, the hook's facts, a remembered release.
"""

from __future__ import annotations

import random
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

from plugin.allocation import prepare_table
from plugin.config import NodeConfig
from plugin.facts import render_facts
from plugin.health.keeper import Clock, HealthKeeper
from plugin.health.store import read_health
from plugin.kubelet.messages import device_list
from plugin.log import Journal
from plugin.metrics.counters import Counters
from plugin.metrics.devices import gpu_families, health_family
from plugin.metrics.exposition import render
from plugin.nvml.library import NvmlSource
from plugin.nvml.telemetry import read_telemetry
from plugin.observer import Observation, Observer, Pace
from plugin.preference.choice import prefer
from plugin.release.record import Release, parse_release, remember_gpus, render_release
from plugin.resources import plan_offers
from plugin.rpc.codec import encode
from tests.plugin.fakes import DictTree

if TYPE_CHECKING:
    from collections.abc import Callable

CODES = (1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 18, 19, 20, 23, 25, 999, 4711)
TEXTS = ("", "GPU-x", "MIG-1", "a\nb", 'q"\\', "\udcff", "ü" * 40, "GPU-" + "0" * 200, "0000:00:00.0", "zz:zz", "\0")
NUMBERS = (0, 1, 257, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)  # what C has room for


class Pci:
    """What a call for a PCI address returns."""

    def __init__(self, bus_id: str) -> None:
        self.busId = bus_id


class Liar:
    """Answers a call of pynvml now and then with something else than the library does."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.rate = 0.0
        self.only = ""

    def spoil(self, name: str) -> None:
        """Put a lie in front of one function."""
        real: Callable[..., Any] = getattr(pynvml, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if self._random.random() >= self.rate or self.only not in {"", name}:
                return real(*arguments, **named)
            return self._lie(name, real(*arguments, **named))

        setattr(pynvml, name, call)

    def _lie(self, name: str, answer: Any) -> Any:
        kind = self._random.choice(("error", "error", "unicode", "type", "value", "value"))
        if kind == "error":
            raise pynvml.NVMLError(self._random.choice(CODES))
        if kind == "unicode":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        if kind == "type" or name == "nvmlInit":
            raise self._random.choice((TypeError, ValueError, AttributeError, OSError))("not what was promised")
        return self._other(answer)

    def _other(self, answer: Any) -> Any:
        if isinstance(answer, str):
            return self._random.choice(TEXTS)
        if isinstance(answer, int):
            return self._random.choice(NUMBERS)
        if isinstance(answer, (list, tuple)):
            return type(answer)(map(self._other, answer)) if self._random.random() < 0.7 else type(answer)()
        if hasattr(answer, "busId"):
            return Pci(self._random.choice(TEXTS))
        return answer


def functions() -> list[str]:
    """Return every function of pynvml that the daemon's source names, session and library apart."""
    import re

    text = "".join(path.read_text() for path in (Path(__file__).parents[3] / "plugin/nvml").glob("*.py"))
    names = sorted(set(re.findall(r"pynvml\.(nvml(?:Device|System|Event|Init)\w*)", text)))
    return [name for name in names if callable(getattr(pynvml, name))]


def follow(observation: Observation, counters: Counters) -> None:
    """Do with an observation what the daemon does."""
    inventory = observation.inventory
    counters.observed(inventory, inventory)
    for change in observation.transitions:
        if change.new_xid is not None:
            counters.xid(change.uuid, change.new_xid)
    for offers in plan_offers(inventory, NodeConfig()).resources.values():
        encode(device_list(offers))
        ids = [offer.device_id for offer in offers]
        table = prepare_table(inventory)
        if len(ids) > 1:
            prefer(table, ids, [], 2)
        for entry in table.entries.values():
            encode_header(entry.unhealthy)
    render_facts(inventory).encode()
    gpus = remember_gpus(inventory, observation.waiting_for)
    release = Release("2026-09-01T10:00:00Z", driver_version=inventory.driver_version, gpus=gpus)
    assert parse_release(render_release(release).encode()).gpus == gpus


def encode_header(text: str) -> None:
    from plugin.rpc.status import encode_detail

    encode_detail(text)


def main(folder: Path, seed: int, rounds: int) -> int:
    """Look so many times; each round another call lies, or all of them."""
    journal, counters, liar = Journal(), Counters(), Liar(seed)
    names = functions()
    for name in names:
        liar.spoil(name)
    keeper = HealthKeeper(folder / "state", Clock(folder / "module"), journal)
    dice, bad = random.Random(seed), 0
    source = NvmlSource()
    clock = iter(range(10**9))
    observer = Observer(
        source, DictTree(), Pace(5, 15, 0), clock=lambda: float(next(clock)), health=keeper, happened=lambda: None
    )
    for number in range(rounds):
        liar.only = dice.choice(("", *names, *names))
        liar.rate = dice.choice((0.02, 0.2, 1.0)) if liar.only == "" else dice.choice((0.3, 1.0))
        try:
            observation = observer.observe()
            follow(observation, counters)
            telemetry = read_telemetry() if source._is_open else None
            render(
                (
                    *gpu_families(observation.inventory, telemetry or (), {}, "host"),
                    health_family(observation.inventory, "host"),
                )
            )
            read_health(folder / "state")
        except Exception:
            bad += 1
            print(f"round {number} only={liar.only!r} rate={liar.rate}", traceback.format_exc(limit=-4), sep="\n")
            if bad > 12:
                return 1
    liar.rate = 0.0
    observer.close()
    observation = observer.observe()
    print("devices", len(observation.inventory.devices), "functions", len(names))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
