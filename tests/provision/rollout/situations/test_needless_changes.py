"""Nodes that are disturbed although nothing about their driver has changed."""

from __future__ import annotations

from provision.apply.model import Assessment
from provision.planning.node_plan import Disruption, NodePlan
from provision.rollout.decision.prepare import prepare
from tests.provision.apply.fakes import item
from tests.provision.rollout.fakes import view
from tests.provision.rollout.situations.fleets import fleet
from tests.provision.samples import make_facts, make_stack


def test_a_node_that_has_its_driver_is_left_alone_however_often_it_is_applied() -> None:
    """NVIDIA/gpu-operator 705, 831: the same driver was uninstalled and built again with every restart."""
    stage = fleet(2)
    stage.apply()
    way = list(stage.way)
    stage.world.place("n1", [])

    for machine in stage.machines.values():  # they are rebooted
        stage.world.take_down(machine.name)
        stage.world.bring_up(machine.name)
    assert stage.apply() == {}
    assert stage.apply() == {}
    assert stage.way == way


def test_what_does_not_concern_the_driver_evicts_nobody() -> None:
    """NVIDIA/gpu-operator PR 2527: a change of the chart's other values evicted every workload with a GPU."""
    plan = NodePlan(node="n1", items=(item("hook", disruption=Disruption.NONE),))
    prepared = prepare({"n1": Assessment(make_facts(), plan)}, {"n1": make_stack()}, {"n1": view("n1")}, {"n1": ()})

    assert prepared.in_place == ("n1",)
    assert prepared.rollout == ()
