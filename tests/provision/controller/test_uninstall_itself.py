"""The controller ends with nothing in flight before its chart goes, or goes on: on a real API server."""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import GrapnelError
from provision.cluster.kubernetes import lease, uninstalling
from provision.cluster.kubernetes.lease import UNINSTALLING
from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.objects.core import Metadata
from provision.controller import loop
from provision.controller.stacks.writer import FINALIZER
from provision.controller.uninstall import ending
from provision.controller.uninstall.ending import Ending
from provision.controller.uninstall.workload import Deployment, DeploymentSpec, DeploymentStatus, Pod
from tests.provision.controller.fleet import NEW, OLD, World, driver, remove_stacks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.controller.loop import Controller
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}


@pytest.fixture
def world(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(loop, "hold", partial(lease.hold, renew_s=0.5))  # it hears at once what takes ten seconds
    stage.kubectl("delete", "nodes", "-l", UPGRADE)  # of tests whose rollouts were cut short: they are in flight
    made = World(stage, f"uninstalled-{next(_NUMBERS)}")
    yield made
    made.machines.stops.clear()
    remove_stacks(stage)
    stage.kubectl("delete", "nodes", "-l", f"pool={made.pool}")


@dataclass
class OnePod:
    """A Deployment of one pod, which is a controller of this process; None where it does not run."""

    controller: Controller | None
    name: str = "grapnel-controller"
    ended: threading.Event = field(default_factory=threading.Event)
    busy: list[str] = field(default_factory=list)

    def find(self) -> Deployment:
        spec, status = DeploymentSpec(replicas=1), DeploymentStatus(ready_replicas=int(self.controller is not None))
        return Deployment(metadata=Metadata(name=self.name), spec=spec, status=status)

    def pods(self, _deployment: Deployment) -> list[Pod]:
        is_gone = self.controller is None or self.ended.is_set()
        return [] if is_gone else [Pod(metadata=Metadata(name="controller-a"))]

    def busy_nodes(self) -> list[str]:
        return self.busy

    def end(self) -> None:
        if self.controller is not None:
            self.controller.stop()


@contextmanager
def installed(world: World, holder: str = "controller-a") -> Iterator[OnePod]:
    """Run a controller that an uninstallation may end."""
    found = world.make_controller(holder)
    pod = OnePod(found)

    def run() -> None:
        try:
            found.run()
        finally:
            pod.ended.set()

    thread = threading.Thread(target=run, name=holder)
    thread.start()
    try:
        yield pod
    finally:
        found.stop()
        thread.join(60)
    assert not thread.is_alive()


def uninstall(world: World, pod: OnePod, wait_s: float = 60.0, stop: threading.Event | None = None) -> list[str]:
    """Do what the chart does before it goes; return what it says."""
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        world.said.append(f"uninstall: {text}")

    Ending(world.api(), pod, wait_s, tell, stop or threading.Event()).run()
    return said


def request_of(world: World) -> str | None:
    found = world.stage.get("lease", "-n", "kube-system", "grapnel-controller")
    text: str | None = found["metadata"].get("annotations", {}).get(UNINSTALLING)
    return text


def holder_of(world: World) -> str:
    """Return who has one of the leases: who leads, or who changes nodes."""
    names = ("grapnel-controller", "grapnel-upgrade")
    found = [world.stage.get("lease", "-n", "kube-system", name) for name in names]
    return next((each["spec"]["holderIdentity"] for each in found if each["spec"].get("holderIdentity")), "")


def renewed(world: World) -> str:
    found: str = world.stage.get("lease", "-n", "kube-system", "grapnel-controller")["spec"]["renewTime"]
    return found


def begin(world: World) -> tuple[str, str]:
    """Have a rollout stand in the release of its first node; return that one and another one that waits."""
    for _number in range(2):
        world.machines.stops.add(world.join(driver(OLD)))
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    world.wait(lambda: bool(world.machines.stopped), "a node is being changed")
    (first,) = world.machines.stopped
    return first, next(name for name in world.machines.nodes if name != first)


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in world.status()["conditions"]}


def test_with_nothing_in_flight_it_ends_and_leaves_nothing_that_only_a_controller_could_end(world: World) -> None:
    world.join(driver(OLD))
    world.declare(driver={"version": OLD}, whenDeleted="Remove")
    with installed(world) as pod:
        world.wait_for("AsDeclared")
        world.wait(lambda: FINALIZER in world.stage.get("gpustack", world.pool)["metadata"]["finalizers"], "it is kept")
        uninstall(world, pod)
        assert pod.ended.is_set()
    assert holder_of(world) == ""
    assert request_of(world) is None
    assert world.status()["state"] == "NoController"
    assert set(conditions(world).values()) == {("Unknown", "NoController")}
    assert not world.stage.get("gpustack", world.pool)["metadata"].get("finalizers")
    with installed(world, "controller-b"):
        world.wait_for("AsDeclared")


def test_a_node_that_only_waits_for_its_pods_comes_back_as_it_was(world: World) -> None:
    """It was left cordoned, with nobody who had the right to bring it back."""
    first = world.join(driver(OLD))
    guarded = {"run": world.pool}
    pod_name = world.stage.make_pod(first, labels=guarded)
    world.stage.run_pod(pod_name)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": world.pool},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": guarded}},
    }
    world.stage.kubectl("create", "-f", "-", data=budget)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    with installed(world) as pod:
        world.wait(lambda: any(each.endswith(f"{first}: drain") for each in world.said), "it is drained")
        said = uninstall(world, pod)
    assert not world.is_out(first)
    assert world.machines.nodes[first].packages == [driver(OLD)]
    assert "grapnel.dev/upgrade" not in world.node(first)["metadata"].get("annotations", {})
    assert any(first in each and "is in drain" in each for each in said)
    assert world.status()["state"] == "NoController"
    world.stage.kubectl("delete", "pdb", world.pool)
    world.stage.kubectl("delete", "pod", pod_name, "--grace-period=0", "--force")


def test_a_node_whose_gpus_are_being_released_comes_back_as_it_was_and_no_other_begins(world: World) -> None:
    with installed(world) as pod:
        first, second = begin(world)
        threading.Timer(3.0, world.machines.stops.clear).start()
        uninstall(world, pod)
    assert world.machines.nodes[first].packages == [driver(OLD)]
    assert world.machines.nodes[first].verbs == ["release", "verify", "resume"]
    assert world.machines.nodes[second].packages == [driver(OLD)]
    assert not world.is_out(first)
    assert not world.is_out(second)
    assert holder_of(world) == ""
    assert world.status()["state"] == "NoController"


def test_a_node_whose_driver_is_being_exchanged_is_finished(world: World) -> None:
    world.machines.stops_in = "apply"
    with installed(world) as pod:
        first, second = begin(world)
        threading.Timer(3.0, world.machines.stops.clear).start()
        uninstall(world, pod)
    assert world.machines.nodes[first].packages == [driver(NEW)]
    assert world.machines.nodes[second].packages == [driver(OLD)]
    assert not world.is_out(first)
    assert world.status()["state"] == "NoController"


def test_what_does_not_end_in_time_refuses_it_and_the_controller_goes_on(world: World) -> None:
    with installed(world) as pod:
        first, second = begin(world)
        with pytest.raises(GrapnelError) as refused:
            uninstall(world, pod, wait_s=3.0)
        assert f"{first} is in release" in refused.value.message
        assert second not in refused.value.message
        assert "--no-hooks" in refused.value.hint
        assert request_of(world) is None
        assert not pod.ended.is_set()
        world.machines.stops.clear()
        world.wait_for("AsDeclared")
    assert driver(NEW) in world.machines.nodes[second].packages


def test_one_that_is_told_to_end_leaves_the_controller_at_work(world: World) -> None:
    with installed(world) as pod:
        begin(world)
        stop = threading.Event()
        threading.Timer(3.0, stop.set).start()
        with pytest.raises(GrapnelError, match="told to end"):
            uninstall(world, pod, stop=stop)
        assert request_of(world) is None
        world.machines.stops.clear()
        world.wait_for("AsDeclared")


@pytest.mark.long
def test_the_request_of_one_that_was_killed_runs_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uninstalling, "LASTS_S", 8.0)
    name = world.join()
    with installed(world):
        world.wait(lambda: holder_of(world) == "controller-a", "it leads")
        uninstalling.ask(world.api())
        asked = renewed(world)
        world.wait(lambda: renewed(world) != asked, "it has heard")
        world.declare(driver={"version": NEW})
        world.wait(lambda: any("being uninstalled" in each for each in world.said), "it says so")
        assert world.asked("facts") == [], "nothing begins"
        world.wait_for("AsDeclared")
    assert driver(NEW) in world.machines.nodes[name].packages


def test_without_a_controller_at_work_it_says_so_where_something_is_in_flight(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "ALONE_S", 2.0)
    with world.controller():
        first, _second = begin(world)
    with pytest.raises(GrapnelError, match="no controller is at work") as refused:
        uninstall(world, OnePod(None))
    assert f"{first} is in release" in refused.value.message
    world.machines.stops.clear()
    with installed(world, "controller-b"):
        world.wait_for("AsDeclared")
    uninstall(world, OnePod(None))
    assert world.status()["state"] == "NoController"


def test_a_stack_that_is_being_deleted_is_brought_to_its_end_first(world: World) -> None:
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD}, whenDeleted="Remove", rollout=AT_ONCE)
    with installed(world) as pod:
        world.wait_for("AsDeclared")
        world.machines.stops.add(name)
        world.delete()
        world.wait(lambda: name in world.machines.stopped, "it is being removed")
        threading.Timer(3.0, world.machines.stops.clear).start()
        uninstall(world, pod)
    assert world.machines.nodes[name].packages == []
    assert not world.is_there("gpustack", world.pool)
