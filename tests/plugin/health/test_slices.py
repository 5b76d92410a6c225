"""An error that the driver blames on a MIG device is that device's alone, and over when it is over there."""

from __future__ import annotations

import pytest

from plugin.devices.health.judgement import next_health, why_unhealthy
from plugin.devices.health.model import (
    GpuHealth,
    GpuInput,
    HealthInput,
    Moment,
    NodeHealth,
    Policy,
    SliceInput,
    Verdict,
)
from plugin.devices.health.record import parse_health, render_health
from plugin.driver.reading import Counters, Reading, XidEvent

GPU = "GPU-00000000-0000-0000-0000-000000000000"
FIRST, SECOND, THIRD = "MIG-a", "MIG-b", "MIG-c"
SLICES = (SliceInput(FIRST, GPU, 1, 0), SliceInput(SECOND, GPU, 2, 0), SliceInput(THIRD, GPU, 2, 1))
QUIET_S = 100.0


class CutGpu:
    """A GPU with three MIG devices, the last two in one GPU instance, that is looked at again and again."""

    def __init__(self) -> None:
        self.state = NodeHealth()
        self.uptime_s = 1000.0
        self.busy: dict[str, int] = {}
        self.counters = Counters(energy_mj=100, volatile_uncorrected=0)
        self.slices = SLICES
        self.verdicts: dict[str, Verdict] = {}
        self.look()

    def look(self, *events: XidEvent, after_s: float = 5.0) -> list[str]:
        self.uptime_s += after_s
        processes = tuple((each.uuid, self.busy.get(each.uuid, 0)) for each in self.slices)
        reading = Reading(
            counters=self.counters, rows_pending=False, processes=sum(self.busy.values()), slices=processes
        )
        moment = Moment("boot", "load", self.uptime_s, "some day", 0.0)
        look = HealthInput(moment, (GpuInput(GPU, reading),), events, self.verdicts, slices=self.slices)
        self.state, changes = next_health(self.state, look, Policy(quiet_s=QUIET_S))
        self.state = parse_health(render_health(self.state).encode())
        return [f"{each.uuid} {each.change.value} {each.cause}" for each in changes]

    def unhealthy(self) -> set[str]:
        uuids = (GPU, FIRST, SECOND, THIRD)
        return {uuid for uuid in uuids if why_unhealthy(self.state.gpus.get(uuid, GpuHealth()))}


@pytest.fixture
def gpu() -> CutGpu:
    return CutGpu()


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        pytest.param(XidEvent(GPU, 48, 1, 0), {FIRST}, id="of one device"),
        pytest.param(XidEvent(GPU, 48, 2), {SECOND, THIRD}, id="of a gpu instance with two devices"),
        pytest.param(XidEvent(GPU, 48, 2, 1), {THIRD}, id="of one of two compute instances"),
        pytest.param(XidEvent(GPU, 48), {GPU}, id="of nobody in particular"),
        pytest.param(XidEvent(GPU, 48, 9, 0), {GPU}, id="of an instance that nobody knows"),
        pytest.param(XidEvent(GPU, 13, 1, 0), set(), id="of an application"),
    ],
)
def test_who_is_blamed_is_unhealthy_and_nobody_else(gpu: CutGpu, event: XidEvent, wanted: set[str]) -> None:
    gpu.look(event)
    assert gpu.unhealthy() == wanted


def test_a_memory_error_that_is_blamed_on_a_slice_is_only_noted_for_the_gpu(gpu: CutGpu) -> None:
    gpu.counters = gpu.counters._replace(volatile_uncorrected=1)
    gpu.look(XidEvent(GPU, 48, 1, 0))
    assert gpu.unhealthy() == {FIRST}
    gpu.counters = gpu.counters._replace(volatile_uncorrected=2)
    gpu.look()
    assert gpu.unhealthy() == {FIRST, GPU}, "nobody is blamed for this one"


def test_a_slice_that_may_pass_returns_when_it_is_idle_whoever_works_beside_it(gpu: CutGpu) -> None:
    gpu.look(XidEvent(GPU, 62, 1, 0))
    passing = gpu.state.gpus[FIRST].findings[0].kind.word == "passing"
    gpu.busy = {SECOND: 3}
    told = gpu.look(after_s=QUIET_S + 5)
    assert (told == [f"{FIRST} closed xid 62"]) == passing
    gpu.counters = gpu.counters._replace(energy_mj=1)
    gpu.look()
    assert FIRST not in gpu.unhealthy(), "its gpu was reset"


def test_a_slice_in_use_waits(gpu: CutGpu) -> None:
    gpu.look(XidEvent(GPU, 999, 1, 0))
    gpu.busy = {FIRST: 1}
    assert gpu.look(after_s=QUIET_S + 5) == []
    gpu.busy = {}
    assert gpu.look() == [f"{FIRST} closed xid 999"]
    assert FIRST not in gpu.state.gpus or not gpu.state.gpus[FIRST].findings


def test_what_is_found_of_an_instance_is_over_when_it_is_destroyed(gpu: CutGpu) -> None:
    gpu.look(XidEvent(GPU, 48, 1, 0))
    gpu.slices = SLICES[1:]
    assert gpu.look() == [f"{FIRST} closed xid 48"]
    gpu.slices = SLICES
    gpu.look()
    assert gpu.unhealthy() == set()


def test_who_calls_the_gpu_healthy_vouches_for_its_slices(gpu: CutGpu) -> None:
    gpu.look(XidEvent(GPU, 48, 1, 0))
    gpu.verdicts = {GPU: Verdict(is_healthy=True, reason="checked", since="now")}
    gpu.look()
    assert gpu.unhealthy() == set()
