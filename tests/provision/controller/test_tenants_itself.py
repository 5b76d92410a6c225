"""What stacks declare for tenants, kept by the controller on a real API server."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.controller.stacks.model import Stack
from provision.controller.tenants import AGAIN_S, SOON_S, TenancyDesk
from provision.declaration.spec.model import StackSpec
from provision.declaration.spec.validate import convert
from provision.declaration.spec.values.label_selector import LabelSelector
from tests.provision.cluster.fakes import Clock
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_access import user
from tests.provision.controller.fleet import NEW, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.stacks.derive import TenancyStands
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[3]
_NUMBERS = itertools.count(1)
GPU = "nvidia.com/gpu"


@pytest.fixture
def world(stage: Stage) -> Iterator[World]:
    made = World(stage, f"tenants-{next(_NUMBERS)}")
    stage.kubectl("create", "namespace", made.pool)
    yield made
    stage.kubectl("delete", "gpustacks", "--all")


def quota(world: World) -> dict[str, str] | None:
    found = world.stage.get("resourcequotas", "-n", world.pool)["items"]
    return found[0]["spec"]["hard"] if found else None


def tenancy(world: World, gpus: int) -> dict[str, Any]:
    return {"tenants": [{"namespace": world.pool, "quota": {GPU: gpus}}]}


def condition(status: dict[str, Any]) -> tuple[str, str]:
    found = next(each for each in status["conditions"] if each["type"] == "TenancyAsDeclared")
    return found["status"], found["message"]


def test_quotas_follow_their_stack_and_no_node_is_asked_for_it(world: World) -> None:
    world.join()
    world.declare(driver={"version": NEW}, tenancy=tenancy(world, 2))
    with world.controller():
        assert condition(world.wait_for("AsDeclared")) == ("True", "")
        assert quota(world) == {f"requests.{GPU}": "2"}
        runs = len(world.machines.runs)
        world.declare(driver={"version": NEW}, tenancy=tenancy(world, 1))
        world.wait_for("AsDeclared")
        assert quota(world) == {f"requests.{GPU}": "1"}
        world.declare(driver={"version": NEW})
        status = world.wait_for("AsDeclared")
        wait_until(lambda: quota(world) is None, "what is declared no more is taken back")
        assert len(world.machines.runs) == runs
    assert "TenancyAsDeclared" not in [each["type"] for each in status["conditions"]]


def test_two_stacks_that_declare_a_namespace_differently_are_told(world: World) -> None:
    other = f"{world.pool}-b"
    world.declare(driver={"version": NEW}, tenancy=tenancy(world, 2))
    with world.controller():
        wait_until(lambda: quota(world) == {f"requests.{GPU}": "2"}, "the first one is applied")
        world.declare(other, driver={"version": NEW}, tenancy=tenancy(world, 3))
        status = world.wait_for("Degraded", other)
        told = f"ResourceQuota {world.pool}/grapnel keeps {GPU}, which stack {world.pool} has set to another value"
        assert condition(status) == ("False", told)
        assert status["message"] == told
        assert quota(world) == {f"requests.{GPU}": "2"}


class Desk:
    """A desk whose clock is the test's."""

    def __init__(self, api: Api) -> None:
        self.clock, self.woken = Clock(), threading.Event()
        self.desk = TenancyDesk(api, wake=self.woken.set, say=print, clock=self.clock)

    def look(self, stack: Stack) -> TenancyStands | None:
        """Offer a stack, and wait until it has been looked at where it is."""
        self.woken.clear()
        if self.desk.offer(stack):
            assert self.woken.wait(60)
        return self.desk.stands(stack)


def test_a_quota_that_somebody_deletes_is_made_again_when_its_time_comes(world: World) -> None:
    desk = Desk(world.api())
    spec = convert({"driver": {"version": NEW}, "tenancy": tenancy(world, 2)}, StackSpec)
    stack = Stack(name=world.pool, uid="u", generation=1, spec=spec, selector=LabelSelector())
    stands = desk.look(stack)
    assert stands is not None
    assert stands.problems == ()
    world.stage.kubectl("delete", "resourcequota", "grapnel", "-n", world.pool)
    desk.look(stack)
    assert quota(world) is None  # its time has not come
    desk.clock.now += AGAIN_S
    desk.look(stack)
    assert quota(world) == {f"requests.{GPU}": "2"}

    world.stage.kubectl("delete", "resourcequota", "grapnel", "-n", world.pool)
    world.stage.kubectl("create", "quota", "grapnel", "-n", world.pool, "--hard=pods=5")
    desk.clock.now += AGAIN_S
    stands = desk.look(stack)
    assert stands is not None
    assert "is not grapnel's" in stands.problems[0]
    world.stage.kubectl("delete", "resourcequota", "grapnel", "-n", world.pool)
    desk.clock.now += SOON_S
    desk.look(stack)
    assert quota(world) == {f"requests.{GPU}": "2"}
    desk.desk.close()


def test_its_roles_are_enough_and_without_the_one_for_tenants_every_missing_rule_is_named(
    world: World, stage: Stage
) -> None:
    for name in ("operator", "telling", "controller", "tenancy"):
        stage.kubectl("apply", "-f", str(ROOT / f"deploy/rbac/{name}.yaml"))
    token = stage.kubectl("create", "token", "grapnel-controller", "-n", "grapnel-system").strip()
    world.kubeconfig = user(stage, world.pool, token)
    world.join()
    world.declare(driver={"version": NEW}, tenancy=tenancy(world, 2))
    with world.controller():
        assert condition(world.wait_for("AsDeclared")) == ("True", "")
    assert quota(world) == {f"requests.{GPU}": "2"}

    stage.kubectl("delete", "clusterrole", "grapnel-tenancy")
    world.declare(driver={"version": NEW}, tenancy=tenancy(world, 3))
    with world.controller("controller-b"):
        holds, message = condition(world.wait_for("Degraded"))
    assert holds == "False"
    assert "may not get resourcequotas, list resourcequotas, create resourcequotas" in message
    assert "deploy/rbac/tenancy.yaml grants what tenancy needs" in message
    assert quota(world) == {f"requests.{GPU}": "2"}
