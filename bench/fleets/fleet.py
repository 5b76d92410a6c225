"""Measures the controller with a fleet of one size."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.fleets import objects, peer
from bench.fleets.figures import Rates, Rolled, Size
from bench.fleets.processes import Lead, cpu_s, memory_mib, wait
from bench.fleets.requests import count

if TYPE_CHECKING:
    from bench.fleets.stage import Stage

SETTLE_S: Final = 2.0
BETWEEN_S: Final = 0.3  # two changes, so that each is looked at by itself
PEER_ROUNDS: Final = 3
PARALLEL: Final = 50  # nodes that are worked on at once, at least
PART: Final = 25  # ... and one of so many


@dataclass(frozen=True, slots=True)
class Fleet:
    """A stage, and how much is measured on it."""

    stage: Stage
    nodes: int
    pods_per_node: int
    changes: int
    idle_s: float

    def measure(self) -> Size:
        """Measure from the first look to the end of a roll-out."""
        stage, began = self.stage, time.monotonic()
        stage.make(self.nodes, self.pods_per_node)
        created_s = time.monotonic() - began
        pods = count(stage.api, objects.PODS)
        time.sleep(SETTLE_S)
        alone = self._server_rate()
        others = self._peer(alone)
        _say(f"{self.nodes} nodes and {pods} pods in {created_s:.0f} s; a list of all every 120 s: {others}")
        parallel = max(PARALLEL, self.nodes // PART)
        stage.send("POST", objects.STACKS, objects.stack(objects.OLD, parallel=parallel))
        with Lead.running(stage.control_plane.kubeconfig) as lead:
            looked_at_s = stage.wait_for("AsDeclared", self.nodes)
            looked_at_cpu_s = cpu_s(lead.pid)
            _say(f"all looked at in {looked_at_s:.0f} s")
            stage.wait_for_marks(self.nodes)
            time.sleep(SETTLE_S)
            idle, memory = self._idle(lead, alone), memory_mib(lead.pid)
            _say(f"nothing changes: {memory:.1f} MiB, {idle}")
            noticed, each = self._notice(lead)
            _say(f"noticed after {min(noticed):.2f} to {max(noticed):.2f} s; now the roll-out")
            rolled = self._roll(lead)
            peak = memory_mib(lead.pid, at_most=True)
        return Size(
            nodes=self.nodes,
            pods=pods,
            played_by="KWOK" if stage.player else "nobody",
            player_mib=memory_mib(stage.player) if stage.player else 0.0,
            player_cpu_s=cpu_s(stage.player) if stage.player else 0.0,
            created_s=created_s,
            looked_at_s=looked_at_s,
            looked_at_cpu_s=looked_at_cpu_s,
            idle=idle,
            idle_server_cpu_s=alone,
            memory_idle=memory,
            memory_peak=peak,
            noticed=noticed,
            requests_for_a_change=each,
            rolled=rolled,
            peer=others,
            server_mib=stage.server_mib(),
        )

    def _server_rate(self) -> float:
        """Return what the API server needs in a minute while nobody but kubelets asks for anything."""
        cpu, began = self.stage.server_cpu_s(), time.monotonic()
        time.sleep(self.idle_s)
        return (self.stage.server_cpu_s() - cpu) / (time.monotonic() - began) * 60

    def _idle(self, lead: Lead, alone: float) -> Rates:
        """Nothing changes but what kubelets say."""
        before, cpu, server = lead.counts(), cpu_s(lead.pid), self.stage.server_cpu_s()
        began = time.monotonic()
        time.sleep(self.idle_s)
        minutes = (time.monotonic() - began) / 60
        after = lead.counts()
        return Rates(
            requests=(after.requests - before.requests) / minutes,
            megabytes=(after.size - before.size) / minutes / 1e6,
            cpu_s=(cpu_s(lead.pid) - cpu) / minutes,
            server_cpu_s=(self.stage.server_cpu_s() - server) / minutes - alone,
        )

    def _notice(self, lead: Lead) -> tuple[tuple[float, ...], float]:
        """Nodes boot one after the other; each is looked at."""
        names = objects.names_of(self.nodes)
        chosen = [names[number * self.nodes // self.changes] for number in range(self.changes)]
        took, before = [], lead.counts().requests
        for name in chosen:
            lead.looked.pop(name, None)
            boot, began = str(time.time()), time.time()
            self.stage.send("PATCH", f"{objects.NODES}/{name}/status", {"status": {"nodeInfo": {"bootID": boot}}})
            wait(lambda name=name: name in lead.looked, f"{name} is looked at", 60)  # type: ignore[misc] # bound now
            took.append(lead.looked[name] - began)
            time.sleep(BETWEEN_S)
        return tuple(took), (lead.counts().requests - before) / len(took)

    def _roll(self, lead: Lead) -> Rolled:
        """Roll another driver out; one node of twenty fails."""
        failing = sum(map(objects.is_faulty, objects.names_of(self.nodes)))
        before, cpu, server = lead.counts(), cpu_s(lead.pid), self.stage.server_cpu_s()
        self.stage.declare(objects.NEW)
        seconds = self.stage.wait_for("Degraded", self.nodes - failing)
        return Rolled(
            seconds=seconds,
            failed=failing,
            cpu_s=cpu_s(lead.pid) - cpu,
            requests=lead.counts().requests - before.requests,
            server_cpu_s=self.stage.server_cpu_s() - server,
        )

    def _peer(self, alone: float) -> Rates:
        """List everything, several times in a row; a minute has half a time of it."""
        requests = size = 0
        server, began, own = self.stage.server_cpu_s(), time.monotonic(), time.process_time()
        for _round in range(PEER_ROUNDS):
            asked, came = peer.look(self.stage.api)
            requests, size = requests + asked, size + came
        idle = alone * (time.monotonic() - began) / 60
        part = 60 / peer.EVERY_S / PEER_ROUNDS
        return Rates(
            requests=requests * part,
            megabytes=size * part / 1e6,
            cpu_s=(time.process_time() - own) * part,
            server_cpu_s=(self.stage.server_cpu_s() - server - idle) * part,
        )


def _say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(f"... {text}", file=sys.stderr, flush=True)
