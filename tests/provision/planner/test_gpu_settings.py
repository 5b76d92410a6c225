"""What GPUs are set to comes onto the node and goes again, with a restart of the daemon and without a drain."""

from __future__ import annotations

from provision.node_plan import Disruption
from tests.provision.samples import configured, make_stack, plan, simulate_apply, steps

FILE = "/etc/grapnel/gpu-settings.json"
RESTART = ("restart", "grapnel-node.service")
PERSISTENT = {"devices": "all", "persistenceMode": True}


def test_declared_settings_are_written_and_set_by_the_restarted_daemon() -> None:
    stack = make_stack(node={"gpus": [PERSISTENT]})
    result = plan(configured(), stack)
    assert steps(result.items) == [("write", FILE), RESTART]
    assert {item.disruption for item in result.items} == {Disruption.NONE}, "pods go on"
    assert plan(simulate_apply(configured(), result), stack).is_empty


def test_settings_that_change_are_written_again() -> None:
    before = simulate_apply(configured(), plan(configured(), make_stack(node={"gpus": [PERSISTENT]})))
    result = plan(before, make_stack(node={"gpus": [{**PERSISTENT, "powerLimitWatts": 300}]}))
    assert steps(result.items) == [("write", FILE), RESTART]


def test_settings_that_are_declared_no_more_are_given_back() -> None:
    before = simulate_apply(configured(), plan(configured(), make_stack(node={"gpus": [PERSISTENT]})))
    result = plan(before, make_stack())
    assert steps(result.items) == [("remove", FILE), RESTART]
    assert result.roles.node_daemon is not None
    assert result.roles.node_daemon.node_daemon_absent == (FILE,)
    assert plan(simulate_apply(before, result), make_stack()).is_empty
