"""What GPUs are set to comes onto the node and goes again, with a restart of the daemon and without a drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from provision.declaration.fleet.facts.mig import GpuSettingsState
from provision.planning.drift.compare import differences_of
from provision.planning.drift.model import DriftKind
from provision.planning.node_plan import Disruption
from tests.provision.samples import configured, make_stack, plan, simulate_apply, steps

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

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


def applied(told: GpuSettingsState) -> NodeFacts:
    stack = make_stack(node={"gpus": [PERSISTENT]})
    return replace(simulate_apply(configured(), plan(configured(), stack)), gpu_settings=told)


def test_what_somebody_has_set_since_is_a_difference_that_is_set_again_without_a_restart() -> None:
    stack = make_stack(node={"gpus": [PERSISTENT]})
    facts = applied(GpuSettingsState(changes=("GPU 1: persistenceMode: on",)))
    result = plan(facts, stack)
    assert steps(result.items) == [("set", "settings of GPUs")]
    assert result.roles.node_daemon is not None
    assert result.roles.node_daemon.node_daemon_set_gpus
    (difference,) = differences_of(result)
    assert (difference.kind, "GPU 1: persistenceMode: on" in difference.reason) == (DriftKind.GPUS, True)
    assert plan(simulate_apply(facts, result), stack).is_empty


def test_what_gpus_tell_of_another_file_says_nothing() -> None:
    facts = applied(GpuSettingsState(changes=("GPU 1: persistenceMode: on",)))
    result = plan(facts, make_stack(node={"gpus": [{**PERSISTENT, "powerLimitWatts": 300}]}))
    assert steps(result.items) == [("write", FILE), RESTART]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(GpuSettingsState(refusals=("GPU 0: powerLimitWatts: 100 W to 400 W",)), id="out of its range"),
        pytest.param(GpuSettingsState(error="nvml does not answer"), id="a driver that is silent"),
    ],
)
def test_what_no_gpu_can_have_is_a_warning_that_keeps_nothing_else_from_being_done(told: GpuSettingsState) -> None:
    result = plan(applied(told), make_stack(node={"gpus": [PERSISTENT]}))
    (warning,) = result.warnings
    assert (warning.code, result.problems, result.items) == ("gpu-settings", (), ())
    assert (*told.refusals, told.error)[0] in warning.message
